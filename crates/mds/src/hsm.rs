//! MDS_HSM_STATE_GET and MDS_HSM_STATE_SET of files that have no state in an archive, as none has here: what a client
//! sends after each truncation, and gets no for, as from Lustre's MDT.
//!
//! A state that Lustre would keep is refused ([`Errno::EOPNOTSUPP`]).

use bytes::Bytes;
use sheen_io::logged;
use sheen_target::Outcome;
use sheen_types::Errno;
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::md::{HsmStateSet, HsmUserState, MdtBody};
use sheen_wire::messages::{
    MdsHsmStateGet, MdsHsmStateGetReply, MdsHsmStateSet, MdsHsmStateSetReply,
};

use crate::Mdt;
use crate::caller::{Caller, Capability};

/// `HSS_SETMASK`.
const SETS: u32 = 1;
/// `HSS_CLEARMASK`.
const CLEARS: u32 = 2;
/// `HSS_ARCHIVE_ID`.
const NAMES_ARCHIVE: u32 = 4;
/// `HS_EXISTS`: there is a copy in an archive.
const EXISTS: u64 = 0x1;
/// `HS_DIRTY`: the copy is older than the file.
const DIRTY: u64 = 0x2;
/// `HS_RELEASED`: the data is in the archive only.
const RELEASED: u64 = 0x4;
/// `HS_ARCHIVED`: the copy is complete.
const ARCHIVED: u64 = 0x8;
/// `HS_NORELEASE` and `HS_NOARCHIVE`.
const NEVER: u64 = 0x30;
/// `HS_LOST`: the copy is gone.
const LOST: u64 = 0x40;
/// States that an owner may set (`HSM_USER_MASK`).
const OF_OWNERS: u64 = NEVER | DIRTY;
/// All states (`HSM_FLAGS_MASK`), with `HS_PCCRW` and `HS_PCCRO`.
const ALL: u64 = OF_OWNERS | EXISTS | RELEASED | ARCHIVED | LOST | 0x180;

impl Mdt {
    /// No state, and no archive.
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

    /// Changes nothing: a state that is no state is refused as Lustre refuses it, any other by name.
    pub(crate) fn set_hsm_state(&self, request: &MdsHsmStateSet) -> Result<Outcome, Errno> {
        self.inode(request.mdt_body.fid1)?;
        let change = decoded(&request.hsm_state_set)?;
        let reply = MdsHsmStateSetReply::default();
        match wanted_state(&change, &Caller::from(&request.mdt_body)) {
            Ok(0) => Ok(Outcome::ok(reply)),
            Ok(_) => Err(Errno::EOPNOTSUPP),
            Err(errno) => Ok(Outcome::failed(errno, reply)),
        }
    }
}

fn decoded(bytes: &Bytes) -> Result<HsmStateSet, Errno> {
    HsmStateSet::decode(&mut Reader::new(bytes, ByteOrder::Little))
        .map_err(logged!(Errno::EPROTO, "the HSM state of a file cannot be read"))
}

/// What a file without a state would have for one.
fn wanted_state(change: &HsmStateSet, caller: &Caller) -> Result<u64, Errno> {
    let named = change.set | change.clear;
    if named & !ALL != 0 {
        return Err(Errno::EINVAL);
    }
    if named & !OF_OWNERS != 0 && !caller.can(Capability::SysAdmin) {
        return Err(Errno::EPERM);
    }
    let set = if change.valid & SETS != 0 { change.set } else { 0 };
    let state = if change.valid & CLEARS != 0 { set & !change.clear } else { set };
    if change.valid & NAMES_ARCHIVE != 0 && state & EXISTS == 0 {
        return Ok(0);
    }
    let has = |flag| state & flag != 0;
    let is_none = has(DIRTY) && (!has(EXISTS) || has(RELEASED))
        || (has(RELEASED) || has(LOST)) && !has(ARCHIVED);
    if is_none { Err(Errno::EINVAL) } else { Ok(state) }
}
