//! States of files in an archive (HSM). There are no archives here: no file has a copy in one, which is what clients
//! are told, and a file cannot be marked as if it had.

use bytes::Bytes;
use sheen_target::Outcome;
use sheen_types::Errno;
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::md::{HsmStateSet, HsmUserState, MdtBody};
use sheen_wire::messages::{
    MdsHsmStateGet, MdsHsmStateGetReply, MdsHsmStateSet, MdsHsmStateSetReply,
};

use crate::Mdt;
use crate::caller::{Caller, Capability};

/// `HS_*`: there is a copy; it is older than the file; the file's data is in the archive only; the copy is whole; the
/// copy is lost.
const EXISTS: u64 = 0x1;
const DIRTY: u64 = 0x2;
const RELEASED: u64 = 0x4;
const ARCHIVED: u64 = 0x8;
const LOST: u64 = 0x40;
/// `HSM_FLAGS_MASK`: all that have a meaning.
const KNOWN: u64 = 0x1ff;
/// `HSM_USER_MASK`: what every user may ask to change: `HS_NORELEASE`, `HS_NOARCHIVE`, `HS_DIRTY`.
const OF_USERS: u64 = 0x32;
/// `HSS_*`: which fields of a request count.
const SETS: u32 = 0x1;
const CLEARS: u32 = 0x2;
const NAMES_ARCHIVE: u32 = 0x4;

impl Mdt {
    /// Answers that nothing is known of copies of a file.
    pub(crate) fn hsm_state(&self, request: &MdsHsmStateGet) -> Result<Outcome, Errno> {
        self.inode(request.mdt_body.fid1)?;
        let mut writer = Writer::with_capacity(HsmUserState::SIZE);
        HsmUserState::default().encode(&mut writer);
        Ok(Outcome::ok(MdsHsmStateGetReply {
            mdt_body: Some(MdtBody::default()),
            hsm_user_state: writer.into_bytes(),
            ..MdsHsmStateGetReply::default()
        }))
    }

    /// Changes nothing, as Lustre for a file that was never archived: clients say of every such file that they
    /// cut that its copy has become old.
    pub(crate) fn set_hsm_state(&self, request: &MdsHsmStateSet) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        self.inode(asked.fid1)?;
        let change = parse(&request.hsm_state_set)?;
        if (change.set | change.clear) & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let is_of_users = (change.set | change.clear) & !OF_USERS == 0;
        if !is_of_users && !Caller::from(asked).can(Capability::SysAdmin) {
            return Err(Errno::EPERM);
        }
        check(states_after(&change), change.valid & NAMES_ARCHIVE != 0)?;
        Ok(Outcome::ok(MdsHsmStateSetReply::default()))
    }
}

fn parse(change: &Bytes) -> Result<HsmStateSet, Errno> {
    HsmStateSet::decode(&mut Reader::new(change, ByteOrder::Little)).map_err(|error| {
        tracing::debug!(%error, "undecodable change of a file's state in an archive");
        Errno::EPROTO
    })
}

/// The states that a change leaves of none.
fn states_after(change: &HsmStateSet) -> u64 {
    let set = if change.valid & SETS != 0 { change.set } else { 0 };
    let cleared = if change.valid & CLEARS != 0 { change.clear } else { 0 };
    set & !cleared
}

/// What Lustre calls inconsistent is [`Errno::EINVAL`]; states that are consistent, and would have to be kept,
/// [`Errno::EOPNOTSUPP`].
fn check(states: u64, names_archive: bool) -> Result<(), Errno> {
    let has = |bits: u64| states & bits != 0;
    if names_archive && !has(EXISTS) {
        return Ok(());
    }
    let inconsistent =
        has(DIRTY) && (!has(EXISTS) || has(RELEASED)) || has(RELEASED | LOST) && !has(ARCHIVED);
    match states {
        0 => Ok(()),
        _ if inconsistent => Err(Errno::EINVAL),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
