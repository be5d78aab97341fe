//! Reading an object: from what is cached, the rest from the OST.

use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::{Bulk, Call};
use sheen_types::{Errno, Extent, LockMode, PAGE_BYTES};
use sheen_wire::md::Valid;
use sheen_wire::messages::OstRead;
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, ObdoFlags, OstBody};

use super::layout_guard::{LayoutVersion, Refusal};
use super::negotiated_limits::{NegotiatedLimits, max_brw};
use super::object::Object;
use super::writes_during_reads::ReadInFlight;
use super::{Garbled, IoOptions};
use crate::call::{self, need};

/// Zeros to share.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// `length` zero bytes that share one buffer.
pub(super) fn zeros(length: u64) -> impl Iterator<Item = Bytes> {
    let whole = length / ZEROS.len() as u64;
    let rest = (length % ZEROS.len() as u64) as usize;
    let parts = (0..whole).map(|_| Bytes::from_static(&ZEROS));
    parts.chain((rest > 0).then(|| Bytes::from_static(&ZEROS[..rest])))
}

impl Object {
    /// The bytes of `start..end`, fewer only where the object ends as far as this client and the OST know.
    pub(super) async fn read(
        self: &Arc<Self>,
        start: u64,
        end: u64,
        options: IoOptions,
        layout_version: &LayoutVersion,
    ) -> Result<Vec<Bytes>, Refusal> {
        let extent = Extent { start, end: end - 1 };
        let lock = self.use_lock(extent, LockMode::Pr, options, layout_version).await?;
        let read = self.read_locked(start, end, options).await;
        drop(lock);
        Ok(read?)
    }

    /// As [`Object::read`], for a caller that uses such a lock. Enqueuing another one here could wait for the
    /// caller's own to be cancelled.
    pub(super) async fn read_locked(
        self: &Arc<Self>,
        start: u64,
        end: u64,
        options: IoOptions,
    ) -> Result<Vec<Bytes>, Errno> {
        let _direct = options.direct.then(|| self.target.io().begin_direct());
        if options.direct {
            self.flush(Extent { start, end: end - 1 }).await;
        }
        let (cached, found, reading) = self.take_cached(start, end);
        let (mut out, mut asked_for) = (Output { pieces: Vec::new(), at: start }, 0);
        for (offset, run) in cached {
            if out.at < offset {
                asked_for += offset - out.at;
                let fetched = self.fetch(out.at, offset).await?;
                out.extend(fetched);
                // What the OST does not have before bytes of ours is a hole.
                out.pad_to(offset);
            }
            out.extend(vec![run]);
        }
        if out.at < end {
            let until = self.end_of_data(out.at, end);
            asked_for += until - out.at;
            let fetched = self.fetch(out.at, until).await?;
            out.extend(fetched);
        }
        if !options.direct {
            self.target.shared.ahead.count_read(found, asked_for);
        }
        let end = match self.may_be_filled(out.at) {
            true => Some(self.glimpsed_size().await?),
            false => None,
        };
        Ok(reading.merge(out.pieces, end))
    }

    async fn glimpsed_size(self: &Arc<Self>) -> Result<u64, Errno> {
        self.glimpse().await?;
        Ok(self.state.lock().known.size)
    }

    /// Whether an OST that fills up the last page may have sent bytes from behind the end of the object: they
    /// end with a page, and where the object ends is either known for certain, or seems to be before that.
    fn may_be_filled(&self, at: u64) -> bool {
        let state = self.state.lock();
        !state.is_vouched && at.is_multiple_of(PAGE_BYTES) && state.known.size < at
    }

    /// Where to stop fetching `start..end`: at once, if a lock keeps other clients from moving the object's
    /// end and it lies before that. Otherwise all is asked for, as by Lustre's clients, whole pages.
    fn end_of_data(&self, start: u64, end: u64) -> u64 {
        match self.is_covered() && self.state.lock().known.size <= start {
            true => start,
            false => end,
        }
    }

    /// Fetches `start..end` into the clean bytes, where a read will find it.
    pub(super) async fn prefetch(
        self: &Arc<Self>,
        start: u64,
        end: u64,
        layout_version: &LayoutVersion,
    ) -> Result<(), Refusal> {
        let Some(lock) = self.use_lock_ahead(Extent { start, end: end - 1 }).await else {
            self.target.shared.ahead.no_lock(end - start);
            return Ok(());
        };
        layout_version.check()?;
        let data_changes = {
            let state = self.state.lock();
            if state.has_unwritten(start, end) {
                return Ok(());
            }
            state.data_changes
        };
        let pieces = self.fetch(start, end).await?;
        {
            let mut state = self.state.lock();
            // What was changed in the meantime may be on the OST by now, and newer than what came.
            let is_current = state.data_changes == data_changes;
            let mut at = start;
            for piece in pieces.into_iter().filter(|_| is_current) {
                let length = piece.len() as u64;
                state.clean.insert(at, piece);
                at += length;
            }
        }
        drop(lock);
        Ok(())
    }

    /// What we hold of the range, the newest of each byte, in order; how many bytes of it were clean, which are moved
    /// to the caller; and what will collect bytes written since.
    fn take_cached(
        self: &Arc<Self>,
        start: u64,
        end: u64,
    ) -> (Vec<(u64, Bytes)>, u64, ReadInFlight) {
        let mut state = self.state.lock();
        let mut merged = super::extents::Extents::default();
        let mut insert = |at, run| _ = merged.insert(at, run);
        state.clean.over(start, end, &mut insert);
        let found = state.clean.remove(start, end);
        state.through.over(start, end, &mut insert);
        state.writing.over(start, end, &mut insert);
        state.dirty.over(start, end, &mut insert);
        let reading = ReadInFlight::begin(self, &mut state, start, end);
        drop(state);
        let mut cached = Vec::new();
        merged.over(start, end, |at, run| cached.push((at, run)));
        (cached, found, reading)
    }

    /// `start..end` from the OST, in RPCs of at most a bulk each, one after the other's request.
    pub(super) async fn fetch(self: &Arc<Self>, start: u64, end: u64) -> Result<Vec<Bytes>, Errno> {
        let bulk = self.target.limits().read_bytes;
        let mut parts = Vec::new();
        let mut at = start;
        while at < end {
            let length = (end - at).min(bulk);
            parts.push((length, self.fetch_one(at, length as usize)));
            at += length;
        }
        let mut pieces = Vec::new();
        let (lengths, futures): (Vec<u64>, Vec<_>) = parts.into_iter().unzip();
        for (wanted, fetched) in lengths.into_iter().zip(sheen_types::futures::all(futures).await) {
            let fetched = fetched?;
            let got: u64 = fetched.iter().map(|piece| piece.len() as u64).sum();
            pieces.extend(fetched);
            if got < wanted {
                break;
            }
        }
        Ok(pieces)
    }

    async fn fetch_one(&self, offset: u64, length: usize) -> Result<Vec<Bytes>, Errno> {
        let clock = &self.target.shared.world.clock;
        for _ in 0..=self.target.settings.resends.get() {
            let limits = self.target.limits();
            let call = self.read_call(offset, length, &limits);
            let under_way = self.target.io().read.begin(offset, length as u64);
            let begin = clock.now();
            let answer = call::call::<OstRead>(&*self.target.channel, call).await;
            let answer = self.note_presence(answer)?;
            let oa = need(answer.reply.ost_body)?.oa;
            let mut pieces = answer.bulk;
            if pieces.is_empty() && !answer.reply.short_io.is_empty() {
                pieces = vec![answer.reply.short_io];
            }
            let received: usize = pieces.iter().map(Bytes::len).sum();
            let got = self.read_count(answer.body.status, received, length)?;
            trim(&mut pieces, got as u64);
            under_way.answered(clock.now().since(begin), got as u64);
            let sums = limits.checksum.zip(oa.checksum());
            let sums = sums.map(|(checksum, theirs)| (checksum.of(&pieces), theirs));
            let Some(sums) = sums.filter(|(ours, theirs)| ours != theirs) else {
                return Ok(pieces);
            };
            tracing::warn!(file = %self.file, offset, "data changed on its way from the OST");
            let end = (offset + got as u64).saturating_sub(1);
            self.target.shared.dump(self.target.settings.dumps.get(), || Garbled {
                file: self.file,
                extent: Extent { start: offset, end },
                sums,
                data: pieces,
            });
        }
        tracing::error!(
            file = %self.file, object = ?self.oi, offset,
            "the OST's bytes never came as they were sent: given up (osc.*.resend_count)"
        );
        Err(Errno::EIO)
    }

    /// How many bytes a read that asked for `length` has brought, by the reply's `status`.
    fn read_count(&self, status: i32, received: usize, length: usize) -> Result<usize, Errno> {
        let got = usize::try_from(status).ok().filter(|got| *got <= received.min(length));
        got.ok_or_else(|| {
            let target = self.target.channel.target_uuid();
            tracing::warn!(
                %target, file = %self.file, object = ?self.oi, status, received, length,
                "a reply to a read says more bytes than it has or was asked for"
            );
            Errno::EPROTO
        })
    }

    fn read_call(&self, offset: u64, length: usize, limits: &NegotiatedLimits) -> Call {
        let mut oa = self.obdo();
        oa.valid = Valid::ID | Valid::GROUP | Valid::FID | Valid::PARENT | Valid::FLAGS;
        if let Some(checksum) = limits.checksum {
            oa.ask_for_checksum(checksum);
        }
        let is_short = length as u64 <= limits.short_io;
        if is_short {
            oa.flags |= ObdoFlags::SHORT_IO;
        }
        let request = OstRead {
            ost_body: OstBody { oa },
            obd_ioobj: vec![ObdIoobj {
                oid: self.oi,
                max_brw: max_brw(limits.read_bytes),
                bufcnt: 1,
            }],
            niobuf_remote: vec![NiobufRemote { offset, len: length as u32, flags: BrwFlags::NONE }],
            ..OstRead::default()
        };
        match is_short {
            true => Call::new(request).with_reply_room(length),
            false => Call::new(request).with_bulk(Bulk::Sink(length)),
        }
    }
}

/// Bytes laid end to end.
struct Output {
    pieces: Vec<Bytes>,
    at: u64,
}

impl Output {
    fn extend(&mut self, pieces: Vec<Bytes>) {
        for piece in pieces {
            self.at += piece.len() as u64;
            self.pieces.push(piece);
        }
    }

    fn pad_to(&mut self, offset: u64) {
        if self.at < offset {
            self.pieces.extend(zeros(offset - self.at));
            self.at = offset;
        }
    }
}

/// Trims pieces to `length` bytes in all.
pub(super) fn trim(pieces: &mut Vec<Bytes>, length: u64) {
    let mut left = length;
    pieces.retain_mut(|piece| {
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= piece.len() as u64;
        !piece.is_empty()
    });
}
