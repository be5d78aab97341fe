//! The caller's identity, as requests carry it.

use sheen_rpc::{BodyExtras, Call};
use sheen_types::Fid;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::ptlrpc::MsgFlags;

use crate::cache::Inode;
use crate::posix::{Credentials, May};

/// No supplementary group.
pub(super) const NO_GROUP: u32 = u32::MAX;
/// Lustre packs the low word of the capability set; the superuser has all of them.
const ALL_CAPABILITIES: u32 = u32::MAX;

impl Credentials {
    /// Capabilities as requests carry them.
    pub(super) fn capabilities(&self) -> u32 {
        if self.uid == 0 { ALL_CAPABILITIES } else { 0 }
    }

    /// The one group that the server must count in to judge whether the caller may do `wanted` to
    /// `inode`.
    pub(super) fn group_for(&self, inode: &Inode, wanted: May) -> u32 {
        inode.state().deciding_groups(self, wanted).0.unwrap_or(NO_GROUP)
    }

    /// As [`Credentials::group_for`], and the group of `inode` if the caller is in it: set-id bits
    /// depend on that one.
    pub(super) fn groups_for(&self, inode: &Inode, wanted: May) -> (u32, u32) {
        let (deciding, owning) = inode.state().deciding_groups(self, wanted);
        let owning = owning.filter(|group| Some(*group) != deciding);
        (deciding.unwrap_or(NO_GROUP), owning.unwrap_or(NO_GROUP))
    }

    /// The frame of a request about `fid`.
    pub(super) fn body(&self, fid: Fid, valid: Valid, suppgid: u32) -> MdtBody {
        MdtBody {
            fid1: fid,
            valid: valid | Valid::ID,
            uid: self.uid,
            gid: self.gid,
            fsuid: self.uid,
            fsgid: self.gid,
            capability: self.capabilities(),
            suppgid,
            ..MdtBody::default()
        }
    }

    /// The frame of a request about nothing in particular.
    pub(crate) fn plain_body(&self) -> MdtBody {
        MdtBody { capability: self.capabilities(), suppgid: NO_GROUP, ..MdtBody::default() }
    }

    /// `call` with the caller's ids in its body, for schedulers on the server.
    pub(super) fn sign(&self, call: Call) -> Call {
        let body = BodyExtras {
            flags: call.body.flags | MsgFlags::PACK_UID_GID,
            uid: self.uid,
            gid: self.gid,
            ..call.body
        };
        Call { body, ..call }
    }
}
