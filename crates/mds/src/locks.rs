//! Which LDLM locks which change takes.

use std::sync::Arc;

use sheen_ldlm::Policy;
use sheen_target::{Context, EnqueueRequest, LockGuard, SparedLocks};
use sheen_types::{Errno, Fid, InodeBits, LockMode, ResourceName};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::ldlm::{LdlmReply, LockFlags as WireFlags};
use sheen_wire::md::MdsOpenFlags;

use crate::inode::Inode;

/// What a getattr hands out.
pub(crate) const ATTRIBUTES: InodeBits =
    InodeBits::LOOKUP.union(InodeBits::UPDATE).union(InodeBits::PERM);

/// A name of `directory` changes: revokes cached contents from all holders, but for a client that
/// asks for the change and corrects its own cache ([`ConnectFlags2::OWN_NAMES`]). Other changes of
/// the same directory go on beside this one.
pub(crate) async fn change_directory(
    context: &Context,
    directory: Fid,
) -> Result<LockGuard, Errno> {
    let corrects = context.has2(ConnectFlags2::OWN_NAMES);
    let spares = corrects.then(|| context.export.spared(SparedLocks::Readers));
    let (bits, mode) = (InodeBits::UPDATE, LockMode::Cw);
    context.target.lock_inode_sparing(directory, bits, mode, spares).await
}

/// Attributes of an inode change: revokes what covers them from all holders. `is_corrected`: but for the client that
/// asks for the change, which learns from the answer what has become of them ([`ConnectFlags2::OWN_ATTRIBUTES`]).
pub(crate) async fn change_attributes(
    context: &Context,
    inode: Fid,
    bits: InodeBits,
    is_corrected: bool,
) -> Result<LockGuard, Errno> {
    let spares = is_corrected.then(|| context.export.spared(SparedLocks::ReadersAndWriters));
    context.target.lock_inode_sparing(inode, bits, LockMode::Pw, spares).await
}

/// An inode loses a name, or gains one: its names are among its extended attributes (`trusted.link`).
pub(crate) async fn change_links(context: &Context, inode: Fid) -> Result<LockGuard, Errno> {
    let bits = InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::XATTR;
    context.target.lock_inode(inode, bits, LockMode::Ex).await
}

/// An inode loses a name, maybe its last: then its extended attributes go with it, and are not revoked apart.
pub(crate) async fn lose_name(context: &Context, inode: &Inode) -> Result<LockGuard, Errno> {
    match inode.has_one_name() {
        true => {
            let bits = InodeBits::LOOKUP | InodeBits::UPDATE;
            context.target.lock_inode(inode.fid, bits, LockMode::Ex).await
        }
        false => change_links(context, inode.fid).await,
    }
}

/// How a client holds the lock by which it keeps a file open: writing and executing exclude each other.
pub(crate) fn mode_of_open(flags: MdsOpenFlags) -> LockMode {
    match (flags.contains(MdsOpenFlags::WRITE), flags.contains(MdsOpenFlags::EXEC)) {
        (true, _) => LockMode::Cw,
        (false, true) => LockMode::Pr,
        (false, false) => LockMode::Cr,
    }
}

/// Takes `bits` for reading, and those of `more` on which no lock conflicts.
pub(crate) async fn read(
    context: &Context,
    inode: Fid,
    bits: InodeBits,
    more: InodeBits,
) -> Result<LockGuard, Errno> {
    let policy = Policy::InodeBits { bits, try_bits: more, gid: 0 };
    context.target.lock(ResourceName::of_fid(inode), policy, LockMode::Pr).await
}

/// Takes those of `bits` on which no lock conflicts: revokes none.
///
/// # Errors
/// [`Errno::EBUSY`] if that is no bit.
pub(crate) fn read_free_bits(
    context: &Context,
    inode: Fid,
    bits: InodeBits,
) -> Result<LockGuard, Errno> {
    let policy = Policy::InodeBits { bits: InodeBits(0), try_bits: bits, gid: 0 };
    let resource = ResourceName::of_fid(inode);
    context.target.try_lock(resource, policy, LockMode::Pr).ok_or(Errno::EBUSY)
}

/// Takes all of `bits`, or else all but `LOOKUP`, which an open file that its client keeps holds, or
/// name and layout, or nothing: revokes no lock.
pub(crate) fn read_for_open(
    target: &Arc<sheen_target::Target>,
    inode: Fid,
    bits: InodeBits,
) -> Option<LockGuard> {
    let resource = ResourceName::of_fid(inode);
    let attempt = |bits| target.try_lock(resource, Policy::bits(bits), LockMode::Pr);
    let not_named = bits.without(InodeBits::LOOKUP);
    let or_less = || attempt(not_named).or_else(|| attempt(InodeBits::LOOKUP | InodeBits::LAYOUT));
    attempt(bits).or_else(or_less)
}

/// The inode bits of a lock in a reply.
pub(crate) fn bits_of(lock: &LdlmReply) -> InodeBits {
    InodeBits(lock.desc.policy.as_inode_bits().bits)
}

/// Gives a lock to the client; the reply says, as Lustre's does, that an intent was executed.
pub(crate) fn hand_over(
    context: &Context,
    guard: LockGuard,
    enqueue: &EnqueueRequest,
) -> Result<LdlmReply, Errno> {
    let mut reply = guard.hand_over(context, enqueue)?;
    reply.flags |= enqueue.flags & WireFlags::HAS_INTENT;
    Ok(reply)
}
