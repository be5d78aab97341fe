//! The features that the client announces: exactly those that it implements.

use sheen_types::PAGE_BITS;
use sheen_types::limits::{BULK_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use sheen_wire::connect::{
    ChecksumTypes, ConnectFlags, ConnectFlags2, ObdConnectData, version_code,
};

/// The release whose protocol we speak.
const VERSION: u32 = version_code(2, 17, 0, 0);
/// Inode bits that locks of ours may carry: all that Lustre knows today.
const INODE_BITS: u64 = 0x7f;
/// Modifying requests at once that we ask for.
const MODIFYING_MAX: u16 = 8;
/// Grant to start with that we ask of an OST, and of an MDT that keeps data.
const GRANT_BYTES: u32 = 32 << 20;

/// What every connection has.
const COMMON: ConnectFlags = ConnectFlags::VERSION
    .union(ConnectFlags::AT)
    .union(ConnectFlags::FULL20)
    .union(ConnectFlags::BULK_MBITS)
    .union(ConnectFlags::FLAGS2);

/// What is offered to the MGS.
pub(crate) fn offer_to_mgs() -> ObdConnectData {
    ObdConnectData { flags: COMMON, version: VERSION, ..ObdConnectData::default() }
}

/// What is offered to an MDT.
pub(crate) fn offer_to_mdt() -> ObdConnectData {
    let flags = COMMON
        | ConnectFlags::IBITS
        | ConnectFlags::ACL
        | ConnectFlags::XATTR
        | ConnectFlags::LARGE_ACL
        | ConnectFlags::ATTRFID
        | ConnectFlags::BRW_SIZE
        | ConnectFlags::CANCELSET
        | ConnectFlags::FID
        | ConnectFlags::LOV_V3
        | ConnectFlags::HASH64
        | ConnectFlags::MAX_EASIZE
        | ConnectFlags::JOBSTATS
        | ConnectFlags::UMASK
        | ConnectFlags::EINPROGRESS
        | ConnectFlags::LVB_TYPE
        | ConnectFlags::LAYOUTLOCK
        | ConnectFlags::FLOCK_DEAD
        | ConnectFlags::DISP_STRIPE
        | ConnectFlags::OPEN_BY_FID
        | ConnectFlags::DIR_STRIPE
        | ConnectFlags::MULTIMODRPCS
        | ConnectFlags::SUBTREE
        | ConnectFlags::GRANT
        | ConnectFlags::GRANT_SHRINK
        | ConnectFlags::GRANT_PARAM
        | ConnectFlags::CKSUM
        | ConnectFlags::SHORTIO;
    ObdConnectData {
        flags,
        flags2: ConnectFlags2::OWN_NAMES
            | ConnectFlags2::OWN_ATTRIBUTES
            | ConnectFlags2::OVERSTRIPING
            | ConnectFlags2::LOCK_CONVERT
            | ConnectFlags2::DOM_LVB
            | ConnectFlags2::ATOMIC_OPEN_LOCK
            | ConnectFlags2::BATCH_RPC
            | ConnectFlags2::DIR_MIGRATE
            | ConnectFlags2::CRUSH
            | ConnectFlags2::MDT_IDENTITY,
        version: VERSION,
        grant: GRANT_BYTES,
        brw_size: 1 << 20,
        grant_blkbits: PAGE_BITS,
        cksum_types: ChecksumTypes::CRC32C | ChecksumTypes::ADLER,
        ibits_known: INODE_BITS,
        max_easize: XATTR_VALUE_BYTES_MAX as u32,
        maxmodrpcs: MODIFYING_MAX,
        ..ObdConnectData::default()
    }
}

/// What is offered to an OST, which is to refuse us if its objects are not those of the MDT that our names come from; as far as that
/// one has said who it is.
///
/// Without `GRANT_PARAM`: what extents cost beside their blocks is not counted here, so an OST of Lustre adds it.
pub(crate) fn offer_to_ost(mdt: Option<&ObdConnectData>) -> ObdConnectData {
    let identity = mdt.filter(|agreed| agreed.mdt_identity().is_some());
    let identity = identity.map(|agreed| agreed.identity.clone()).unwrap_or_default();
    let identity_flag = match identity.as_bytes() {
        [] => ConnectFlags2::NONE,
        _ => ConnectFlags2::MDT_IDENTITY,
    };
    let flags2 = ConnectFlags2::LOCKAHEAD | identity_flag;
    let flags = COMMON
        | ConnectFlags::GRANT
        | ConnectFlags::GRANT_SHRINK
        | ConnectFlags::BRW_SIZE
        | ConnectFlags::CANCELSET
        | ConnectFlags::FID
        | ConnectFlags::MAXBYTES
        | ConnectFlags::JOBSTATS
        | ConnectFlags::EINPROGRESS
        | ConnectFlags::LVB_TYPE
        | ConnectFlags::CKSUM
        | ConnectFlags::SHORTIO;
    ObdConnectData {
        flags,
        version: VERSION,
        grant: GRANT_BYTES,
        brw_size: BULK_BYTES_MAX as u32,
        cksum_types: ChecksumTypes::CRC32C | ChecksumTypes::ADLER,
        flags2,
        identity,
        ..ObdConnectData::default()
    }
}
