//! A caller's credentials, as requests carry them.

use sheen_rpc::{BodyExtras, Call};
use sheen_types::Fid;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::ptlrpc::MsgFlags;

use crate::types::Credentials;

/// No supplementary group.
pub(crate) const NO_GROUP: u32 = u32::MAX;
/// Lustre packs the low word of the capability set; the superuser has all of them.
const ALL_CAPABILITIES: u32 = u32::MAX;

impl Credentials {
    /// Capabilities as requests carry them.
    pub(crate) fn capabilities(&self) -> u32 {
        if self.uid == 0 { ALL_CAPABILITIES } else { 0 }
    }

    /// The frame of a request about `fid`.
    pub(crate) fn body(&self, fid: Fid, valid: Valid, suppgid: u32) -> MdtBody {
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
    pub(crate) fn sign(&self, call: Call) -> Call {
        let body = BodyExtras {
            flags: call.body.flags | MsgFlags::PACK_UID_GID,
            uid: self.uid,
            gid: self.gid,
            ..call.body
        };
        Call { body, ..call }
    }
}
