//! Attributes of objects and the fields of [`Obdo`].

use sheen_store::{AttributePatch, Attributes};
use sheen_types::Timestamp;
use sheen_wire::md::Valid;
use sheen_wire::ost::{Obdo, OstLvb};

/// What most answers say of an object (`OFD_VALID_FLAGS`).
pub const ALWAYS: Valid = Valid(
    Valid::ID.0
        | Valid::TYPE.0
        | Valid::MODE.0
        | Valid::SIZE.0
        | Valid::BLOCKS.0
        | Valid::ATIME.0
        | Valid::MTIME.0
        | Valid::CTIME.0,
);
/// Whose object it is, where that is said as well.
pub const OWNER: Valid = Valid(Valid::UID.0 | Valid::GID.0 | Valid::PROJID.0);

/// Puts the object's attributes of now into an answer, which says of them what `said` names.
pub fn fill(obdo: &mut Obdo, from: &Attributes, said: Valid) {
    obdo.size = from.size;
    obdo.blocks = from.blocks;
    obdo.mtime = from.modified.seconds;
    obdo.atime = from.accessed.seconds;
    obdo.ctime = from.changed.seconds;
    obdo.mode = from.kind.mode_bits() | from.permissions;
    obdo.uid = from.uid;
    obdo.gid = from.gid;
    obdo.projid = from.project;
    obdo.valid |= said;
}

/// What a request sets. Sizes are not among it: they belong to the data.
pub fn patch(from: &Obdo) -> AttributePatch {
    let has = |bit: Valid| from.valid.contains(bit);
    let time = |bit, seconds| has(bit).then(|| Timestamp::from_seconds(seconds));
    AttributePatch {
        permissions: has(Valid::MODE).then_some(from.mode & 0o7777),
        uid: has(Valid::UID).then_some(from.uid),
        gid: has(Valid::GID).then_some(from.gid),
        project: has(Valid::PROJID).then_some(from.projid),
        accessed: time(Valid::ATIME, from.atime),
        modified: time(Valid::MTIME, from.mtime),
        changed: time(Valid::CTIME, from.ctime),
        ..AttributePatch::default()
    }
}

/// The times that come with data; an object's first writer becomes its owner.
pub fn data_patch(from: &Obdo, now: &Attributes) -> AttributePatch {
    let mut patch = patch(from);
    let unowned = now.permissions & 0o6000 == 0o6000;
    if unowned {
        patch.permissions = Some(now.permissions & !0o7000);
    } else {
        (patch.uid, patch.gid, patch.project) = (None, None, None);
        patch.permissions = None;
    }
    // Writes may arrive late and out of order: times only go forward.
    patch.modified = patch.modified.filter(|time| *time >= now.modified);
    patch.changed = patch.changed.filter(|time| *time >= now.changed);
    patch.accessed = patch.accessed.filter(|time| *time >= now.accessed);
    patch
}

/// What comes with a lock.
pub fn lvb(from: &Attributes) -> OstLvb {
    OstLvb {
        size: from.size,
        mtime: from.modified.seconds,
        atime: from.accessed.seconds,
        ctime: from.changed.seconds,
        blocks: from.blocks,
        mtime_ns: from.modified.nanoseconds,
        atime_ns: from.accessed.nanoseconds,
        ctime_ns: from.changed.nanoseconds,
        padding: 0,
    }
}
