//! What changes of names have in common, whether they are of one MDT or of several: when they may be made, and their replies.

use sheen_target::Outcome;
use sheen_types::limits::LINK_COUNT_MAX;
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{MdsReintLinkReply, MdsReintRenameReply, MdsReintUnlinkReply};

use crate::caller::{Caller, May};
use crate::directory::Child;
use crate::inode::Inode;
use crate::remote;
use crate::striped::are_one_directory;
use crate::xattrs::XattrsOf;

/// A walk to the root longer than this goes in a circle.
pub(crate) const DEPTH_MAX: usize = 10_000;

/// All that a rename is about.
pub(crate) struct Rename {
    pub(crate) caller: Caller,
    pub(crate) from: Inode,
    pub(crate) to: Inode,
    pub(crate) old: Name,
    pub(crate) new: Name,
    pub(crate) source: Inode,
    pub(crate) victim: Option<Inode>,
    pub(crate) now: Timestamp,
}

/// Whether a rename may be made.
///
/// # Errors
/// Those of `rename(2)`, in Linux's order.
pub(crate) fn may_move(
    moved: &Rename,
    xattrs: &(impl XattrsOf + ?Sized),
    refuse_cycle: impl FnOnce() -> Result<(), Errno>,
    is_empty: impl FnOnce(Fid) -> Result<bool, Errno>,
) -> Result<(), Errno> {
    let from = (moved.from.fid, &moved.from.attributes);
    moved.caller.may_remove(xattrs, from, &moved.source.attributes)?;
    if moved.to.attributes.links == 0 {
        return Err(Errno::ENOENT);
    }
    let source_is_directory = moved.source.is_directory();
    let changes_parent =
        source_is_directory && !are_one_directory(xattrs, moved.from.fid, moved.to.fid)?;
    if changes_parent {
        refuse_cycle()?;
    }
    let to = (moved.to.fid, &moved.to.attributes);
    match &moved.victim {
        None => moved.caller.may(xattrs, to.0, to.1, May::WRITE.and(May::EXEC))?,
        Some(victim) => moved.caller.may_remove(xattrs, to, &victim.attributes)?,
    }
    match moved.victim.as_ref().map(|victim| (source_is_directory, victim.is_directory())) {
        Some((true, false)) => return Err(Errno::ENOTDIR),
        Some((false, true)) => return Err(Errno::EISDIR),
        _ => {}
    }
    if changes_parent {
        // Its `..` changes.
        let attributes = &moved.source.attributes;
        moved.caller.may(xattrs, moved.source.fid, attributes, May::WRITE)?;
    }
    let Some(victim) = &moved.victim else {
        let gains_link = source_is_directory && moved.from.fid != moved.to.fid;
        return match gains_link && to.1.links >= LINK_COUNT_MAX {
            true => Err(Errno::EMLINK),
            false => Ok(()),
        };
    };
    if victim.is_directory() && (victim.fid == moved.from.fid || !is_empty(victim.fid)?) {
        return Err(Errno::ENOTEMPTY);
    }
    Ok(())
}

/// The reply to a rename, with what is left of the inode whose name was replaced.
pub(crate) fn renamed(body: MdtBody) -> MdsReintRenameReply {
    MdsReintRenameReply { mdt_body: Some(body), ..MdsReintRenameReply::default() }
}

/// Whether a name stands for a directory.
pub(crate) fn is_directory(child: Child) -> bool {
    child.kind == sheen_store::FileKind::Directory
}

/// Whether an inode may have one more name.
///
/// # Errors
/// [`Errno::ENOENT`], [`Errno::EMLINK`], [`Errno::EPERM`].
pub(crate) fn may_get_link(inode: &Inode) -> Result<(), Errno> {
    // What has no name is on its way out.
    if inode.attributes.links == 0 {
        return Err(Errno::ENOENT);
    }
    if inode.attributes.links >= LINK_COUNT_MAX {
        return Err(Errno::EMLINK);
    }
    let kept = sheen_wire::md::FileFlags::IMMUTABLE | sheen_wire::md::FileFlags::APPEND;
    match inode.attributes.flags & kept.0 {
        0 => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

/// Nothing is said of the inode: the client's attributes of it went with its lock.
pub(crate) fn linked() -> Outcome {
    let mdt_body = Some(MdtBody::default());
    Outcome::ok(MdsReintLinkReply { mdt_body, ..MdsReintLinkReply::default() })
}

/// Refuses to remove a directory as a file, or the other way round.
///
/// # Errors
/// [`Errno::ENOTDIR`], [`Errno::EISDIR`].
pub(crate) fn check_unlink_kind(is_rmdir: bool, victim: &Inode) -> Result<(), Errno> {
    match (is_rmdir, victim.is_directory()) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        _ => Ok(()),
    }
}

/// The reply that names the MDT of the inode as the one to be asked.
pub(crate) fn remote_reply(inode: Fid) -> Outcome {
    let mdt_body = Some(remote::named(inode));
    Outcome::failed(Errno::EREMOTE, MdsReintUnlinkReply { mdt_body, ..Default::default() })
}
