//! How an MDT that is not the controller comes by what it needs of it: its own range, before which it has no clients;
//! the table; and the ranges of the OSTs on which it creates objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::within;
use sheen_rpc::Channel;
use sheen_target::Target;
use sheen_types::Errno;
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use tokio::sync::Notify;

use super::Sequences;
use crate::Mdt;

/// How long a try waits for the controller's answer; after that the log says what is waited for.
const QUIET: Duration = Duration::from_secs(10);
/// Between a failed try and the next one.
const PAUSE: Duration = Duration::from_secs(1);

/// What is still to be asked of the controller.
#[derive(Default)]
pub(crate) struct Joining {
    state: Mutex<State>,
    /// There is something to ask.
    more: Notify,
    /// The MDT has become open.
    pub(crate) opened: Notify,
}

#[derive(Default)]
struct State {
    /// All of the table was read since the start.
    has_table: bool,
    /// OSTs whose ranges are not known.
    osts: BTreeMap<u16, Arc<dyn Channel>>,
    /// What the log has said of why this MDT is not open.
    said: Option<Errno>,
}

impl Joining {
    /// Notes that objects are to be created on an OST whose range is not known.
    pub(crate) fn add_ost(&self, index: u16, channel: Arc<dyn Channel>) {
        self.state.lock().osts.insert(index, channel);
        self.more.notify_one();
    }

    fn next_ost(&self) -> Option<u16> {
        self.state.lock().osts.first_key_value().map(|(index, _)| *index)
    }
}

impl Mdt {
    /// Asks the controller for what is needed of it, for as long as the target runs. Nothing is to be asked where this
    /// MDT is the controller.
    pub(crate) fn start_joining(&self, target: &Arc<Target>) {
        if self.sequences.is_controller() {
            return;
        }
        let (mdt, weak) = (Weak::clone(&self.me), Arc::downgrade(target));
        let world = target.world().clone();
        let joining = async move {
            while let (Some(mdt), Some(target)) = (mdt.upgrade(), weak.upgrade()) {
                let asked = mdt.ask_controller(&target).await;
                let joining = Arc::clone(&mdt.joining);
                drop((mdt, target));
                match asked {
                    Ok(()) => joining.more.notified().await,
                    Err(errno) => {
                        tracing::debug!(%errno, "MDT0000 has not given what is needed of it");
                        world.clock.sleep_until(world.clock.now() + PAUSE).await;
                    }
                }
            }
        };
        target.world().tasks.spawn("mdt joins", Box::pin(joining));
    }

    async fn ask_controller(&self, target: &Target) -> Result<(), Errno> {
        if !self.sequences.is_open() {
            self.take_first_range(target).await?;
        }
        if !self.joining.state.lock().has_table {
            self.read_table(target).await?;
            self.joining.state.lock().has_table = true;
        }
        while let Some(index) = self.joining.next_ost() {
            let range = self.ask_range(target, u32::from(index), SeqRangeFlags::OST).await?;
            self.sequences.table.learn(std::slice::from_ref(&range))?;
            // Another channel may have come for it meanwhile.
            let channel = self.joining.state.lock().osts.remove(&index);
            if let Some(channel) = channel {
                self.add_ost(index, channel);
            }
        }
        Ok(())
    }

    /// Asks for a first range, not for ever: the target may have stopped meanwhile.
    async fn ask_range(
        &self,
        target: &Target,
        index: u32,
        kind: SeqRangeFlags,
    ) -> Result<LuSeqRange, Errno> {
        let asked = self.sequences.controller.get().super_range(index, kind, None);
        within(&*target.world().clock, QUIET, asked).await.ok_or(Errno::ETIMEDOUT)?
    }

    /// The range that this MDT gives sequences out of. It is durable before any is given out.
    async fn take_first_range(&self, target: &Target) -> Result<(), Errno> {
        let index = u32::from(self.sequences.index);
        let range = self.ask_range(target, index, SeqRangeFlags::MDT).await;
        let range = range.inspect_err(|errno| {
            // Not at every try.
            if self.joining.state.lock().said.replace(*errno) != Some(*errno) {
                tracing::warn!(target = target.name(), %errno,
                    "waits for MDT0000, which gives it its range of FIDs: no client is let in before");
            }
        })?;
        self.sequences.table.learn(std::slice::from_ref(&range))?;
        target.sync().await?;
        self.sequences.open().await;
        let start = format_args!("{:#x}", range.start);
        tracing::info!(target = target.name(), %start, "has its range of FIDs");
        self.joining.opened.notify_waiters();
        Ok(())
    }

    async fn read_table(&self, target: &Target) -> Result<(), Errno> {
        let read = self.sequences.read_table();
        within(&*target.world().clock, QUIET, read).await.ok_or(Errno::ETIMEDOUT)?
    }
}

/// Readings of the controller's table for requests that name sequences which are not known here.
#[derive(Default)]
pub(super) struct TableReadings {
    begun: AtomicU64,
    /// The last one that has ended well. Held while the table is read.
    done: tokio::sync::Mutex<u64>,
}

impl Sequences {
    /// All ranges that the controller has are known here.
    async fn read_table(&self) -> Result<(), Errno> {
        let mut start = 0;
        loop {
            let (ranges, has_more) = self.controller.get().ranges(start).await?;
            self.table.learn(&ranges)?;
            match ranges.last().filter(|_| has_more) {
                Some(LuSeqRange { start: last, .. }) if *last > start => start = *last,
                // Else a controller could keep us here for ever.
                Some(_) => return Err(Errno::EPROTO),
                None => return Ok(()),
            }
        }
    }

    /// All ranges are known here that the controller had when this was called. One reading is under way at a time, for all
    /// requests that came before it began: no client has MDT0000 asked as often as it likes, nor fills the connection to it.
    pub(super) async fn read_table_anew(&self) -> Result<(), Errno> {
        let before = self.readings.begun.load(Ordering::Acquire);
        let mut done = self.readings.done.lock().await;
        if *done > before {
            return Ok(());
        }
        let number = self.readings.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.read_table().await?;
        *done = number;
        Ok(())
    }
}
