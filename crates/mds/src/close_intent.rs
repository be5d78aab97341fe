//! MDS_CLOSE with an intent (`MDS_CLOSE_INTENT`): a close that ends a lease and exchanges the file's layout with that
//! of another file, all in one transaction (Lustre's `mdt_close_handle_layouts`).
//!
//! The file is closed in any case. Whether its layout was exchanged, the answer says by
//! [`Valid::CLOSE_INTENT_EXECED`]; without it a client reports `EBUSY`. What else such a close may be asked for
//! (to release a file to an archive, to merge or split mirrors, to end a resync) is not done, and not said to be.
//!
//! [`Valid::CLOSE_INTENT_EXECED`]: sheen_wire::md::Valid::CLOSE_INTENT_EXECED

use sheen_ldlm::Owner;
use sheen_target::{Context, LockGuard, Outcome};
use sheen_types::{Errno, InodeBits, LockHandle, LockMode, ResourceName};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::md::{AttrValid, Bias, CloseData, OpenHandle, RecSetattr};
use sheen_wire::messages::{MdsCloseIntent, MdsReintMigrate};

use crate::Mdt;
use crate::caller::Caller;
use crate::change_set::ChangeSet;
use crate::open_table::{OpenFile, OpenTable};
use crate::swap_layouts::SwappedFile;

/// A swap that is about to be made.
struct Swap<'a> {
    locks: [LockGuard; 2],
    changes: ChangeSet<'a>,
    /// Data lies on the MDT, which knows its size.
    is_on_mdt: bool,
}

/// The lease that a client gives up with a migration. It goes when it is known that the name is to move: a client whose request is refused
/// closes the file by itself, unless it is to ask again (`EAGAIN`).
pub(crate) enum Lease {
    /// There is none, or none any more.
    None,
    /// The open file, and the lock that is its lease.
    Held { file: OpenHandle, lock: LockHandle },
    /// It is given up, and the file closed.
    Closed,
}

impl Lease {
    /// The one that a request names.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] if it says that there is one, and not which.
    pub(crate) fn of(request: &MdsReintMigrate) -> Result<Self, Errno> {
        if !request.rec_reint.bias.contains(Bias::CLOSE_MIGRATE) {
            return Ok(Self::None);
        }
        match (&request.mdt_ioepoch, &request.close_data) {
            (Some(epoch), Some(data)) => {
                Ok(Self::Held { file: epoch.open_handle, lock: data.handle })
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Whether the client is to hear that its file is closed.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

impl Mdt {
    /// Closes, and does what else it can of what it is asked to.
    pub(crate) async fn close_intent(
        &self,
        context: &Context,
        request: &MdsCloseIntent,
    ) -> Result<Outcome, Errno> {
        let (handle, record) = (request.mdt_ioepoch.open_handle, &request.rec_reint);
        let swaps = record.bias.contains(Bias::CLOSE_LAYOUT_SWAP)
            && !self.must_not_change(context)
            && !context.is_applied_already();
        match request.close_data.as_ref().filter(|_| swaps) {
            Some(data) => self.close_and_swap(context, handle, record, data).await,
            None => self.close(context, handle, record).await,
        }
    }

    /// Closes the file that the client has leased, unless that is done. A handle that is not there is closed already: the request was
    /// sent before.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] if another client has opened the file since, which is closed here then, too; those of a close.
    pub(crate) async fn close_lease(
        &self,
        context: &Context,
        lease: &mut Lease,
    ) -> Result<(), Errno> {
        let Lease::Held { file, lock } = *lease else { return Ok(()) };
        *lease = Lease::None;
        let table = context.export.role::<OpenTable>();
        let held = table.get(file).map(|file| holds_lease(context, &file, lock));
        end_lease(context, lock);
        let (Some(holds), Some(file)) = (held, table.remove(file)) else { return Ok(()) };
        *lease = Lease::Closed;
        self.close_for_client(&context.target, file).await?;
        if holds { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    async fn close_and_swap(
        &self,
        context: &Context,
        handle: OpenHandle,
        record: &RecSetattr,
        data: &CloseData,
    ) -> Result<Outcome, Errno> {
        let table = context.export.role::<OpenTable>();
        let Some(file) = table.get(handle) else {
            return self.close(context, handle, record).await;
        };
        let files = [file.fid, data.fid];
        // An operation that holds the file and waits for a lock on it ends the lease.
        let Some(held) = self.hold_unless_awaited(&context.target, &files).await else {
            end_lease(context, data.handle);
            return self.close(context, handle, record).await;
        };
        let swap = self.swap_under_lease(context, &file, record, data).await;
        let swap = swap.inspect_err(|errno| {
            tracing::debug!(fid = %file.fid, %errno, "a close does not exchange layouts");
        });
        let swap = swap.ok();
        let Some(file) = table.remove(handle) else {
            drop((swap, held));
            return self.close(context, handle, record).await;
        };
        let mut record = record.clone();
        if swap.as_ref().is_some_and(|swap| swap.is_on_mdt) {
            record.valid = record.valid.without(AttrValid::LSIZE | AttrValid::LBLOCKS);
        }
        let (locks, changes) = swap.map(|swap| (swap.locks, swap.changes)).unzip();
        let done = self.close_under_hold(context, &held, &file, &record, changes);
        drop((locks, held));
        done
    }

    /// Ends the lease and prepares the swap; no error but those that leave all as it is. Both files are held.
    async fn swap_under_lease(
        &self,
        context: &Context,
        file: &OpenFile,
        record: &RecSetattr,
        data: &CloseData,
    ) -> Result<Swap<'_>, Errno> {
        // A replay swaps again what was swapped once: its lease is gone with the target of then.
        let holds = holds_lease(context, file, data.handle) || context.replay().is_some();
        end_lease(context, data.handle);
        if !holds {
            return Err(Errno::ESTALE);
        }
        if file.fid == data.fid {
            return Err(Errno::EINVAL);
        }
        let sides = self.sides(&Caller::from(record), file.fid, data.fid)?;
        // With its last close a file without a name goes, as it is.
        if self.open_counts.is_open_once(file.fid) && self.is_orphan(sides[0].inode())? {
            return Err(Errno::ESTALE);
        }
        let locks = self.lock_both(context, &sides).await?;
        let is_on_mdt = sides.iter().any(SwappedFile::is_on_mdt);
        Ok(Swap { locks, changes: self.exchange(context, sides), is_on_mdt })
    }
}

/// Whether the client still has the lock of its lease of the file.
pub(crate) fn holds_lease(context: &Context, file: &OpenFile, lease: LockHandle) -> bool {
    let Some(lock) = context.target.namespace().lock(lease) else { return false };
    lock.owner == Owner::Export(context.export.handle().0)
        && lock.desc.resource == ResourceName::of_fid(file.fid)
        && lock.desc.granted == Some(LockMode::Pw)
        && lock.desc.policy.inode_bits().contains(InodeBits::OPEN)
}

/// The client has dropped the lock of its lease with the request.
pub(crate) fn end_lease(context: &Context, lease: LockHandle) {
    context.cancel_early(&LdlmRequest::cancel(vec![lease]), 0);
}
