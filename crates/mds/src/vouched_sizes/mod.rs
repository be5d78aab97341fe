//! Files with data on OSTs whose size the MDT vouches for (strict SOM): a stat asks no OST.
//!
//! Lustre's word for such a size is a strict one (`SOM_FL_STRICT`): a getattr says it as `OBD_MD_FLSIZE`, as it does for
//! files that were never written ([`crate::known_empty`]). The decision is docs/decisions/0017-strict-sizes.md.
//!
//! A file goes through three states, which its [`SizeRecord`] has:
//!
//! - *lazy*: a client may write it, or may have been able to when the MDT lost sight of it. An open for writing makes it
//!   so before its client is answered, and revokes the `UPDATE` locks of clients to which a size was vouched for.
//! - *closed*: all opens for writing that it ever had were seen, and each was closed by its client
//!   ([`crate::open_counts`]). Dirty bytes may be left at clients, under their locks on the objects.
//! - *strict*: the OSTs were asked after that, under a lock that makes clients flush, and what they said is
//!   durable there ([`ask`]).
//!
//! Only what is asked for is confirmed: a getattr of a closed file sets it going. A file that no client looks at costs
//! nothing, and its first stat a glimpse as before.
//!
//! Costs: nothing for an open, a close or a getattr but bits in a record that they read or write anyway; one more
//! local transaction for an open for writing of a strict file. For each written file that is looked at two RPCs to each
//! of its objects, once; as many files wait for that as are written in a go, in a queue of bounded memory ([`awaited`]).

mod ask;
mod awaited;
mod era;
mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{Context, RecoveryStatus, Target, store_errno};
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::md::{AttrValid, MdtBody, RecSetattr, Valid};

use self::awaited::Awaited;
pub(crate) use self::era::forget as forget_era;
pub(crate) use self::record::{Era, SizeRecord, Trust};
use crate::change_set::ChangeSet;
use crate::dom_layout::part_of;
use crate::hold::HoldGuard;
use crate::inode::{Inode, WholeInode};
use crate::open_table::OpenTable;
use crate::{Mdt, xattrs};

/// See the module's documentation.
pub(crate) struct VouchedSizes {
    /// The era that the store began with, and after that the next ones.
    era: Mutex<Era>,
    /// The era, once recovery has ended; 0 before, and while operators do not want it.
    settled: AtomicU64,
    /// Operators do not want it.
    is_off: AtomicBool,
    awaited: Awaited,
}

/// What was so before an open for writing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BeforeWriter {
    /// Whether the file was known to be empty.
    pub(crate) was_known_empty: bool,
    /// Whether all opens for writing that it ever had were seen, and closed by their clients.
    pub(crate) was_closed: bool,
}

impl VouchedSizes {
    /// # Errors
    /// Those of the store.
    pub(crate) fn load(store: &dyn Store, random: [u8; 16]) -> Result<Self, StoreError> {
        Ok(Self {
            era: Mutex::new(era::load(store, random)?),
            settled: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
            awaited: Awaited::default(),
        })
    }

    /// The era, by which records count; `None` until recovery has ended.
    pub(crate) fn era(&self) -> Option<Era> {
        let settled = self.settled.load(Ordering::Acquire);
        (settled != 0).then_some(Era(settled))
    }

    /// What the OSTs said, or are about to say, of the file does not count.
    pub(crate) fn end_confirmation(&self, fid: Fid) {
        self.awaited.end(fid);
    }
}

impl Mdt {
    /// Recovery has ended. Where clients were lost in it, or in an earlier one that did not end, or know more than the
    /// store, all sizes are in doubt, and who writes what was opened since the start.
    ///
    /// # Errors
    /// Those of the store: no size is vouched for.
    pub(crate) fn settle_sizes(&self, target: &Target) -> Result<(), StoreError> {
        let recovery = target.view().recovery;
        let is_lost = recovery.evicted > 0 || recovery.lost_before.clients;
        self.settle_era(target, is_lost || recovery.went_back > 0)
    }

    /// Begins to vouch for sizes, in a new era if all that is stored is `in_doubt`.
    fn settle_era(&self, target: &Target, in_doubt: bool) -> Result<(), StoreError> {
        let mut era = self.sizes.era.lock();
        let mut settled = *era;
        if in_doubt {
            self.open_counts.forget_known_writers();
            settled = era::next(settled);
        }
        let mut transaction = Transaction::new();
        era::settle(&mut transaction, settled);
        target.transact_locally(transaction)?;
        *era = settled;
        if !self.sizes.is_off.load(Ordering::Acquire) {
            self.sizes.settled.store(settled.0, Ordering::Release);
        }
        Ok(())
    }

    /// Whether sizes of files that were written are vouched for (`enable_strict_som`).
    #[must_use]
    pub fn vouches_for_sizes(&self) -> bool {
        !self.sizes.is_off.load(Ordering::Acquire)
    }

    /// Sets that. What was vouched for before it was off is not when it is on again: an administrator says so that sizes
    /// are in doubt.
    ///
    /// # Errors
    /// Those of the store.
    pub fn set_vouches_for_sizes(&self, wanted: bool) -> Result<(), Errno> {
        let was_off = self.sizes.is_off.swap(!wanted, Ordering::AcqRel);
        if !wanted {
            self.sizes.settled.store(0, Ordering::Release);
            return Ok(());
        }
        let target = self.target.get().and_then(Weak::upgrade);
        let Some(target) = target.filter(|_| was_off) else { return Ok(()) };
        let recovers = target.recovery_status() != RecoveryStatus::Complete
            && target.recovery_status() != RecoveryStatus::Inactive;
        match recovers {
            // Its end settles it.
            true => Ok(()),
            false => self.settle_era(&target, true).map_err(store_errno),
        }
    }

    /// What the MDT knows of a file's size. What is no such record counts as none.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn size_record(&self, fid: Fid) -> Result<Option<SizeRecord>, StoreError> {
        Ok(self.store.xattr(fid, xattrs::SOM)?.as_ref().and_then(SizeRecord::decode))
    }

    /// Adds what is known of the size of a file with a layout: a hint, or what the MDT vouches for. Has a file confirmed
    /// that all writers have closed. Clients of Lustre get hints.
    pub(crate) fn put_size(
        &self,
        context: &Context,
        inode: &Inode,
        record: Option<SizeRecord>,
        body: &mut MdtBody,
    ) {
        let Some(record) = record else { return };
        if let Some((size, blocks)) = record.reported {
            body.valid = body.valid | Valid::LAZYSIZE | Valid::LAZYBLOCKS;
            (body.size, body.blocks) = (size, blocks);
        }
        let era = self.sizes.era();
        if !context.has2(ConnectFlags2::OWN_NAMES) {
            return;
        }
        if record.vouched(era).is_some() {
            body.valid = body.valid | Valid::SIZE | Valid::BLOCKS;
        } else if record.is_closed(era) {
            self.confirm_soon(&context.target, inode.fid);
        }
    }

    /// A client is about to be able to write the file: its size is not vouched for any more, and clients that have it
    /// must ask again.
    pub(crate) async fn prepare_for_writer(
        &self,
        target: &Arc<Target>,
        held: &HoldGuard<'_>,
        fid: Fid,
    ) -> Result<BeforeWriter, Errno> {
        let was_known_empty = self.known_empty.remove(fid);
        let record = self.size_record(fid).map_err(store_errno)?;
        let was_strict = record.is_some_and(|record| record.is_strict());
        if let Some(record) = record.filter(|_| was_strict) {
            // Before the lock: a getattr after it finds no size to vouch for.
            let mut changes = self.change_set();
            changes.set_xattr(fid, xattrs::SOM, record.as_closed().encode());
            self.execute_locally(target, held, changes)?;
        }
        if was_known_empty || was_strict {
            drop(target.lock_inode(fid, InodeBits::UPDATE, LockMode::Ex).await?);
        }
        let era = self.sizes.era();
        let was_closed = was_known_empty || record.is_some_and(|record| record.is_closed(era));
        Ok(BeforeWriter { was_known_empty, was_closed })
    }

    /// The client of a request is about to cut the file's objects, or to extend it. One that has the file open for writing
    /// does it before it closes that; when any other has done it, no one knows.
    pub(crate) fn note_truncate(&self, context: &Context, record: &RecSetattr) {
        self.sizes.end_confirmation(record.fid);
        let by_handle = record.valid.intersects(AttrValid::FROM_OPEN | AttrValid::OVERRIDE);
        let table = context.export.role::<OpenTable>();
        if !(by_handle && table.is_writing(record.fid)) {
            self.open_counts.forget_known_writers_of(record.fid);
        }
    }

    /// The record for the transaction of a close; `None` to leave it as it is. `closed` says that it was the last one of
    /// all writers that the file ever had. The inode is held.
    pub(crate) fn size_at_close(
        &self,
        inode: &Inode,
        record: &RecSetattr,
        closed: Option<Era>,
    ) -> Option<SizeRecord> {
        let reports = record.valid.intersects(AttrValid::LSIZE | AttrValid::LBLOCKS);
        if !inode.is_regular() || !reports && closed.is_none() {
            return None;
        }
        // A close does not fail for want of a hint: where the store fails, none is written.
        let (Ok(layout), Ok(before)) = (self.layout(inode), self.size_record(inode.fid)) else {
            return None;
        };
        if layout.as_ref().and_then(part_of).is_some_and(|part| part.is_all) {
            return None;
        }
        // Where there are no objects nothing was written: what a client reports is the size of those that are gone.
        let reports = reports && layout.is_some();
        // What a close says late is no news of a file that was confirmed since, and clients rely on that.
        if before.is_some_and(|before| before.is_strict()) {
            return None;
        }
        let reported = before.and_then(|before| before.reported);
        let size = reported.map_or(0, |(size, _)| size);
        // A client knows only of its own writes: a smaller size than another's is no news.
        let reported = match (reports, record.valid.contains(AttrValid::LSIZE)) {
            (true, true) => Some((size.max(record.size), record.blocks)),
            (true, false) => Some((size, record.blocks)),
            (false, _) => reported,
        };
        Some(SizeRecord { trust: closed.map_or(Trust::Lazy, Trust::Closed), reported })
    }
}

impl ChangeSet<'_> {
    /// A file is opened for writing: what is known of its size is no more than a hint.
    pub(crate) fn add_writer(&mut self, fid: Fid) -> Result<(), Errno> {
        if let Some(record) = self.mdt.size_record(fid).map_err(store_errno)?
            && record.trust != Trust::Lazy
        {
            self.set_xattr(fid, xattrs::SOM, record.as_hint().encode());
        }
        Ok(())
    }
}

impl WholeInode {
    /// What the MDT knows of the size, as [`Mdt::size_record`] reads it.
    pub(crate) fn size_record(&self) -> Option<SizeRecord> {
        self.xattrs.get(xattrs::SOM).as_ref().and_then(SizeRecord::decode)
    }
}
