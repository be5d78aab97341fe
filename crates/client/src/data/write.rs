//! Writing: into the cache within the grant, out of it in large RPCs, or straight through.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_rpc::{Bulk, Call, CallKind};
use sheen_types::{Errno, Extent, LockMode};
use sheen_wire::md::Valid;
use sheen_wire::messages::OstWrite;
use sheen_wire::ost::{BrwFlags, GrantReport, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstBody};

use super::extents::{Run, widened};
use super::grant::Shortage;
use super::layout_guard::{LayoutVersion, Refusal};
use super::negotiated_limits::max_brw;
use super::object::{Object, ObjectState};
use super::{Garbled, IoOptions};
use crate::call::{self, need};

/// Separate runs in one RPC; Lustre allows a run per page.
const RUNS_MAX: usize = 256;

/// After which a piece is written again that an OST could not take at the moment.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

impl Object {
    /// Accepts `data` at `offset`.
    pub(super) async fn write(
        self: &Arc<Self>,
        offset: u64,
        data: Bytes,
        owner: (u32, u32),
        options: IoOptions,
        layout_version: &LayoutVersion,
    ) -> Result<(), Refusal> {
        let length = data.len() as u64;
        let extent = Extent::of_length(offset, length).ok_or(Errno::EFBIG)?;
        let losses = self.state.lock().losses;
        let call_pages = options.call_pages;
        let mut lock = self.use_lock(extent, LockMode::Pw, options, layout_version).await?;
        self.write_locked(offset, data, owner, options).await?;
        if self.state.lock().losses != losses {
            self.drop_pages(extent, call_pages).await;
            // What became dirty after an eviction took the lock is covered again before the write is answered.
            while lock.is_evicted() {
                lock = self.use_lock(extent, LockMode::Pw, options, layout_version).await?;
            }
        }
        drop(lock);
        Ok(())
    }

    /// As [`Object::write`], for a caller that uses such a lock. Enqueuing another one here could wait for the
    /// caller's own to be cancelled.
    pub(super) async fn write_locked(
        self: &Arc<Self>,
        offset: u64,
        data: Bytes,
        owner: (u32, u32),
        options: IoOptions,
    ) -> Result<(), Errno> {
        self.state.lock().owner = owner;
        let _direct = options.direct.then(|| self.target.io().begin_direct());
        if options.direct || options.sync {
            self.write_through(offset, data, options.sync).await?;
        } else {
            self.write_cached(offset, data).await?;
        }
        Ok(())
    }

    /// Accepts `data` as dirty, as soon as the limits for dirty bytes admit it; writes it through if there is no
    /// grant for it.
    async fn write_cached(self: &Arc<Self>, offset: u64, data: Bytes) -> Result<(), Errno> {
        loop {
            let room_freed = self.target.shared.room_freed.notified();
            match self.accept(offset, &data) {
                Ok(()) => return Ok(()),
                Err(Shortage::NoGrant) if self.is_idle() => {
                    return self.write_through(offset, data, false).await;
                }
                // Replies to what is dirty now may bring grant.
                Err(Shortage::NoGrant) => self.flush(Extent::ALL).await,
                // The dirty bytes are other objects'.
                Err(Shortage::TooDirty) if self.is_idle() => room_freed.await,
                Err(Shortage::TooDirty) => self.flush(Extent::ALL).await,
            }
        }
    }

    /// Takes the bytes as dirty if the grant covers them, and sees to it that they are flushed: at once if they fill
    /// an RPC, else by the queue.
    fn accept(self: &Arc<Self>, offset: u64, data: &Bytes) -> Result<(), Shortage> {
        let end = offset + data.len() as u64;
        let (is_full, is_to_queue, needs_room) = {
            let mut state = self.state.lock();
            let needs_room = self.target.reserve(state.dirty.cost_of(offset, data.len() as u64))?;
            state.dirty.insert(offset, data.clone());
            state.record_unflushed(|| self.target.shared.record_unflushed(self.file));
            state.clean.remove(offset, end);
            self.touch(&mut state, offset, data);
            let is_full = state.dirty.bytes() >= self.target.limits().bulk_bytes;
            let is_to_queue = !is_full && !std::mem::replace(&mut state.is_queued, true);
            (is_full, is_to_queue, needs_room)
        };
        if is_full {
            self.start_full_rpcs();
        } else if is_to_queue {
            self.queue_flush();
        }
        if needs_room {
            self.target.flush_now();
        }
        Ok(())
    }

    /// Notes that `data` is written now, as far as calls of this client can see.
    pub(super) fn touch(&self, state: &mut ObjectState, offset: u64, data: &Bytes) {
        let end = offset + data.len() as u64;
        state.reads.note(offset, data);
        let now = self.target.shared.world.clock.wall();
        state.known_version += 1;
        state.known.size = state.known.size.max(end);
        state.sure_size = state.sure_size.max(end);
        (state.known.mtime, state.known.ctime) = (now, now);
        state.data_changes += 1;
    }

    /// Whether no reply is to come that may bring grant for what is dirty.
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.dirty.is_empty() && state.writing.is_empty()
    }

    /// Starts, in the background, write RPCs for what is dirty, as long as they are full; the rest waits in the
    /// queue for more.
    fn start_full_rpcs(self: &Arc<Self>) {
        let object = Arc::clone(self);
        let bulk = self.target.limits().bulk_bytes;
        let task = async move {
            while object.state.lock().dirty.bytes() >= bulk {
                if !object.start_write_rpc(Extent::ALL, bulk) {
                    break;
                }
            }
            let is_to_queue = {
                let mut state = object.state.lock();
                !state.dirty.is_empty() && !std::mem::replace(&mut state.is_queued, true)
            };
            if is_to_queue {
                object.queue_flush();
            }
        };
        self.target.shared.world.tasks.spawn("flush", Box::pin(task));
    }

    /// Sends everything dirty in `extent` and waits until no write of it is under way, but for writes through
    /// the cache that begin later. Several RPCs at once. A failure is the file's, not the caller's: calls that only
    /// have to come behind these bytes do not fail for them.
    pub(super) async fn flush(self: &Arc<Self>, extent: Extent) {
        let end = extent.end.saturating_add(1);
        let last_through = self.state.lock().through.last();
        loop {
            let progress = self.progress.notified();
            if self.start_write_rpc(extent, 0) {
                continue;
            }
            let pending = {
                let state = self.state.lock();
                state.dirty.overlaps(extent.start, end)
                    || state.writing.overlaps(extent.start, end)
                    || state.through.overlaps(extent.start, end, last_through)
            };
            if !pending {
                return;
            }
            progress.await;
        }
    }

    /// Starts one RPC with dirty bytes of `extent` if there are `least` of them or more; returns whether it
    /// did. The RPC goes on in a task.
    pub(super) fn start_write_rpc(self: &Arc<Self>, extent: Extent, least: u64) -> bool {
        let end = extent.end.saturating_add(1);
        let (runs, cost) = {
            let mut state = self.state.lock();
            if state.dirty.bytes() < least {
                return false;
            }
            let ObjectState { dirty, writing, through, .. } = &mut *state;
            let range = (extent.start, end);
            let (bulk, needs_whole_pages) =
                (self.target.limits().bulk_bytes, self.target.needs_whole_pages());
            let is_under_way = |from, to| {
                let (from, to) = if needs_whole_pages { widened(from, to) } else { (from, to) };
                writing.overlaps(from, to) || through.overlaps(from, to, through.last())
            };
            let taken = dirty.take(range, bulk, RUNS_MAX, needs_whole_pages, is_under_way);
            for (at, run) in &taken.0 {
                writing.insert(*at, run.clone());
            }
            taken
        };
        if runs.is_empty() {
            return false;
        }
        self.target.begin_sending(cost);
        let object = Arc::clone(self);
        let task = async move { object.send_dirty(runs, cost).await };
        self.target.shared.world.tasks.spawn("write", Box::pin(task));
        true
    }

    /// Sends runs that are marked as writing and used `cost` of the grant, and removes the mark. What the OST
    /// refuses is lost here too, and reported.
    async fn send_dirty(self: &Arc<Self>, runs: Vec<Run>, cost: u64) {
        let sent = self.send(&runs, BrwFlags::FROM_GRANT.union(BrwFlags::ASYNC), cost).await;
        self.target.end_sending(cost, sent.is_ok());
        if let Err(errno) = sent {
            tracing::warn!(file = %self.file, %errno, "written data was lost");
            self.note_failure(errno);
        }
        {
            let mut state = self.state.lock();
            for (at, run) in &runs {
                state.writing.remove(*at, at + run.len() as u64);
            }
            // An answer about size that was on its way may not know of these bytes.
            state.known_version += 1;
            match sent {
                Ok(()) => state.note_unsynced(),
                Err(_) => state.distrust_size(),
            }
            state.record_unflushed(|| None);
        }
        if sent.is_err() {
            let lost = runs.iter().filter_map(|(at, run)| Extent::of_length(*at, run.len() as u64));
            for part in lost {
                self.invalidate_lost_pages(part);
            }
        }
        self.progress.notify_waiters();
    }

    /// One write RPC; sent again if the OST saw other bytes than we sent, as often as operators say. A
    /// target that refuses for the moment is asked again, for ever: by the import if the answer as a whole says so,
    /// by this a little later if it says so of one of the pieces (`osc_recoverable_error`).
    pub(super) async fn send(
        &self,
        runs: &[Run],
        flags: BrwFlags,
        granted: u64,
    ) -> Result<(), Errno> {
        let clock = &self.target.shared.world.clock;
        let length = runs.iter().map(|(_, run)| run.len() as u64).sum();
        let first = runs.first().map_or(0, |(offset, _)| *offset);
        let mut resends = self.target.settings.resends.get();
        loop {
            let (call, sum) = self.write_call(runs, flags, granted);
            let (under_way, begin) = (self.target.io().write.begin(first, length), clock.now());
            let answer = call::call::<OstWrite>(&*self.target.channel, call).await;
            match self.note_presence(answer) {
                Ok(answer) => {
                    under_way.answered(clock.now().since(begin), length);
                    let oa = need(answer.reply.ost_body)?.oa;
                    self.target.add_grant(oa.grant_gained());
                    // The OST leaves it to us to see that it is wrong; Lustre's have written it.
                    let theirs = oa.checksum();
                    if let (Some(sum), Some(theirs)) = (sum, theirs.filter(|_| theirs != sum)) {
                        self.garbled(runs, (sum, theirs));
                        let Some(left) = resends.checked_sub(1) else { break };
                        resends = left;
                        continue;
                    }
                    self.learn_blocks(&oa);
                    let mut failed =
                        answer.reply.rcs.iter().filter_map(|rc| Errno::from_status(*rc as i32));
                    match failed.next() {
                        None => return Ok(()),
                        Some(Errno::EAGAIN | Errno::EINPROGRESS) => {
                            clock.sleep_until(clock.now() + BUSY_PAUSE).await;
                        }
                        Some(errno) => return Err(errno),
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
        let last = runs.last().map_or(first, |(offset, run)| *offset + run.len() as u64);
        tracing::error!(
            file = %self.file, object = ?self.oi, first, last,
            "the target never saw the bytes that were sent: given up (osc.*.resend_count)"
        );
        Err(Errno::EIO)
    }

    fn garbled(&self, runs: &[Run], sums: (u32, u32)) {
        tracing::warn!(file = %self.file, "data changed on its way to the target");
        let (Some((start, _)), Some((last, run))) = (runs.first(), runs.last()) else { return };
        let end = last + run.len() as u64;
        self.target.shared.dump(self.target.settings.dumps.get(), || Garbled {
            file: self.file,
            extent: Extent { start: *start, end: end.saturating_sub(1) },
            sums,
            data: runs.iter().map(|(_, run)| run.clone()).collect(),
        });
    }

    /// The request, and the checksum that goes with it.
    fn write_call(&self, runs: &[Run], flags: BrwFlags, granted: u64) -> (Call, Option<u32>) {
        let niobuf_remote = niobufs(runs, flags);
        let pieces: Vec<Bytes> = runs.iter().map(|(_, run)| run.clone()).collect();
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let limits = self.target.limits();
        let is_short = length <= limits.short_io;
        let mut oa = self.obdo();
        oa.report_grant(self.grant_report(granted));
        let sum = limits.checksum.map(|checksum| checksum.of(&pieces));
        if let (Some(checksum), Some(sum)) = (limits.checksum, sum) {
            oa.set_checksum(checksum, sum);
        }
        let mut request = OstWrite {
            obd_ioobj: vec![ObdIoobj {
                oid: self.oi,
                max_brw: max_brw(limits.bulk_bytes),
                bufcnt: niobuf_remote.len() as u32,
            }],
            niobuf_remote,
            ..OstWrite::default()
        };
        let bulk = if is_short {
            oa.flags |= ObdoFlags::SHORT_IO;
            request.short_io = match &pieces[..] {
                [one] => one.clone(),
                _ => pieces.concat().into(),
            };
            Bulk::None
        } else {
            Bulk::Source(pieces)
        };
        request.ost_body = OstBody { oa };
        (Call { kind: CallKind::Idempotent, bulk, ..Call::new(request) }, sum)
    }

    /// What every data request says of its object.
    pub(super) fn obdo(&self) -> Obdo {
        let state = self.state.lock();
        let known = state.known;
        Obdo {
            valid: Valid::ID
                | Valid::GROUP
                | Valid::FID
                | Valid::PARENT
                | Valid::FLAGS
                | Valid::MTIME
                | Valid::CTIME
                | Valid::UID
                | Valid::GID,
            oi: self.oi,
            parent_seq: self.file.seq,
            parent_oid: self.file.oid,
            stripe_idx: self.mapping.stripe,
            mtime: known.mtime.seconds,
            ctime: known.ctime.seconds,
            uid: state.owner.0,
            gid: state.owner.1,
            ..Obdo::default()
        }
    }

    /// What we have, use and would like.
    fn grant_report(&self, used: u64) -> GrantReport {
        let grant = self.target.grant();
        GrantReport {
            available: grant.available,
            dirty: grant.dirty,
            wanted: self.target.grant_wanted(),
            used,
            // What a resend repeats the OST counts twice, which is the safe side.
            lost: self.target.take_lost(),
        }
    }
}

/// One niobuf for each group of runs that touch.
fn niobufs(runs: &[Run], flags: BrwFlags) -> Vec<NiobufRemote> {
    let mut niobufs: Vec<NiobufRemote> = Vec::with_capacity(1);
    for (offset, run) in runs {
        let length = run.len() as u32;
        match niobufs.last_mut() {
            Some(last) if last.offset + u64::from(last.len) == *offset => last.len += length,
            _ => niobufs.push(NiobufRemote { offset: *offset, len: length, flags }),
        }
    }
    niobufs
}
