//! The calls to an object besides reads, writes and glimpses: truncate, sync, times, space, seek, data version.

use std::sync::Arc;

use sheen_rpc::{Call, CallKind};
use sheen_types::{Errno, Extent, LockMode, Timestamp};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{
    MdsGetattr, OstFallocate, OstGetattr, OstPunch, OstSeek, OstSetattr, OstSync,
};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody};

use super::data_target::DataTargetKind;
use super::extents::widened;
use super::layout_guard::{LayoutVersion, Refusal};
use super::mdt::NewTimes;
use super::object::Object;
use super::{IoOptions, Locking};
use crate::call::{self, need};
use crate::types::{Fallocate, Seek, VersionFlush};

/// Without a slot: doing it twice does no harm.
fn idempotent(call: Call) -> Call {
    Call { kind: CallKind::Idempotent, ..call }
}

/// The version, where the server has sent one.
fn stated(valid: Valid, version: u64) -> Result<u64, Errno> {
    if valid.contains(Valid::DATAVERSION) { Ok(version) } else { Err(Errno::EOPNOTSUPP) }
}

impl Object {
    /// Truncates or extends the object to `size` bytes.
    pub(super) async fn truncate(
        self: &Arc<Self>,
        size: u64,
        time: Timestamp,
        locking: Locking,
        layout_version: &LayoutVersion,
    ) -> Result<(), Refusal> {
        let rest = Extent { start: size, end: Extent::EOF };
        let options = IoOptions { locking, ..IoOptions::default() };
        let lock = self.use_lock(rest, LockMode::Pw, options, layout_version).await?;
        self.discard(size, u64::MAX);
        // Writes that are under way now are answered before the truncate is sent, also those of callers that are gone.
        self.flush(Extent::ALL).await;
        let mut oa = self.timed(time);
        oa.set_range(size, Extent::EOF);
        let request = OstPunch { ost_body: OstBody { oa }, ..OstPunch::default() };
        let call = idempotent(Call::new(request));
        let answer = call::call::<OstPunch>(&*self.target.channel, call).await?;
        let oa = need(answer.reply.ost_body)?.oa;
        {
            let mut state = self.state.lock();
            state.known_version += 1;
            state.known.size = size.max(state.unwritten_end());
            state.sure_size = state.sure_size.min(size);
            (state.known.mtime, state.known.ctime) = (time, time);
            state.known.blocks = oa.blocks;
            state.note_unsynced();
        }
        drop(lock);
        Ok(())
    }

    fn timed(&self, time: Timestamp) -> Obdo {
        let mut oa = self.obdo();
        oa.valid = oa.valid.without(Valid::UID | Valid::GID);
        (oa.mtime, oa.ctime) = (time.seconds, time.seconds);
        oa
    }

    /// Flushes `extent` and makes it durable. No RPC if nothing was changed since an OST_SYNC was sent that was
    /// answered: one that is under way may still fail, or be dropped with its caller.
    pub(super) async fn sync(self: &Arc<Self>, extent: Extent) -> Result<(), Errno> {
        self.flush(extent).await;
        let Some(until) = self.state.lock().unsynced() else { return Ok(()) };
        let mut oa = self.obdo();
        oa.valid = Valid::ID | Valid::GROUP | Valid::FID;
        oa.set_range(extent.start, extent.end);
        let request = OstSync { ost_body: OstBody { oa }, ..OstSync::default() };
        call::call::<OstSync>(&*self.target.channel, Call::new(request)).await?;
        if extent == Extent::ALL {
            self.state.lock().note_synced(until);
        }
        Ok(())
    }

    /// Sets times that a program chose.
    pub(super) async fn set_times(
        self: &Arc<Self>,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        ctime: Timestamp,
    ) -> Result<(), Errno> {
        // An MDT has the inode's times already, and no separate ones for its data.
        if self.target.kind == DataTargetKind::Ost {
            // Writes that are under way now carry times of their own: they are answered first.
            self.flush(Extent::ALL).await;
            self.send_times(atime, mtime, ctime).await?;
        }
        self.state.lock().set_times(NewTimes { atime, mtime, ctime });
        Ok(())
    }

    async fn send_times(
        &self,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        ctime: Timestamp,
    ) -> Result<(), Errno> {
        let mut oa = self.timed(ctime);
        oa.valid = Valid::ID | Valid::GROUP | Valid::FID | Valid::CTIME;
        if let Some(atime) = atime {
            oa.valid |= Valid::ATIME;
            oa.atime = atime.seconds;
        }
        if let Some(mtime) = mtime {
            oa.valid |= Valid::MTIME;
            oa.mtime = mtime.seconds;
        }
        let request = OstSetattr { ost_body: OstBody { oa }, ..OstSetattr::default() };
        let call = idempotent(Call::new(request));
        call::call::<OstSetattr>(&*self.target.channel, call).await.map(|_| ())
    }

    /// Reserves or frees the space of `extent`.
    pub(super) async fn fallocate(
        self: &Arc<Self>,
        what: Fallocate,
        extent: Extent,
        locking: Locking,
        layout_version: &LayoutVersion,
    ) -> Result<(), Refusal> {
        let options = IoOptions { locking, ..IoOptions::default() };
        let lock = self.use_lock(extent, LockMode::Pw, options, layout_version).await?;
        let end = extent.end.saturating_add(1);
        let (first, last) = widened(extent.start, end);
        self.flush(Extent { start: first, end: last - 1 }).await;
        let mut oa = self.timed(self.target.shared.world.clock.wall());
        oa.set_range(extent.start, end);
        oa.set_fallocate(what);
        let request = OstFallocate { ost_body: OstBody { oa }, ..OstFallocate::default() };
        let call = idempotent(Call::new(request));
        let answer = call::call::<OstFallocate>(&*self.target.channel, call).await?;
        let oa = need(answer.reply.ost_body)?.oa;
        {
            let mut state = self.state.lock();
            state.clean.remove(extent.start, end);
            state.data_changes += 1;
            state.known.blocks = oa.blocks;
            state.known.ctime = self.target.shared.world.clock.wall();
            state.note_unsynced();
            state.known_version += 1;
            if !what.keeps_size() {
                state.known.size = state.known.size.max(end);
            }
        }
        drop(lock);
        Ok(())
    }

    /// The next data or hole of the object; `None` if there is none.
    pub(super) async fn seek(
        self: &Arc<Self>,
        offset: u64,
        what: Seek,
        locking: Locking,
        layout_version: &LayoutVersion,
    ) -> Result<Option<u64>, Refusal> {
        let rest = Extent { start: offset, end: Extent::EOF };
        let options = IoOptions { locking, ..IoOptions::default() };
        let lock = self.use_lock(rest, LockMode::Pr, options, layout_version).await?;
        self.flush(Extent::ALL).await;
        let found = self.seek_held(offset, what).await;
        drop(lock);
        Ok(found?)
    }

    /// As [`Object::seek`], for a caller that holds a group lock on the object and has nothing to write.
    pub(super) async fn seek_held(&self, offset: u64, what: Seek) -> Result<Option<u64>, Errno> {
        let mut oa = self.obdo();
        oa.valid = Valid::ID | Valid::GROUP | Valid::FID;
        oa.set_seek(what, offset);
        let request = OstSeek { ost_body: OstBody { oa }, ..OstSeek::default() };
        let answer = call::call::<OstSeek>(&*self.target.channel, Call::new(request)).await;
        match answer {
            Ok(answer) => {
                let found = need(answer.reply.ost_body)?.oa.size;
                Ok((found != u64::MAX).then_some(found))
            }
            Err(Errno::ENXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The version of the object's bytes. The server takes the lock that has clients flush; of this one no call holds
    /// one meanwhile.
    pub(super) async fn data_version(&self, flush: VersionFlush) -> Result<u64, Errno> {
        let flags = match flush {
            VersionFlush::None => ObdoFlags::NONE,
            VersionFlush::Dirty => ObdoFlags::SRVLOCK,
            VersionFlush::All => ObdoFlags::SRVLOCK | ObdoFlags::FLUSH,
        };
        let more = if flush == VersionFlush::None { Valid::NONE } else { Valid::FLAGS };
        if self.target.kind == DataTargetKind::Mdt {
            let valid = Valid::DATAVERSION | more;
            let mdt_body = MdtBody { fid1: self.file, valid, flags: flags.0, ..MdtBody::default() };
            let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
            let answer =
                call::call::<MdsGetattr>(&*self.target.channel, Call::new(request)).await?;
            let body = need(answer.reply.mdt_body)?;
            return stated(body.valid, body.version);
        }
        let mut oa = self.obdo();
        (oa.valid, oa.flags) = (Valid::ID | Valid::GROUP | Valid::FID | more, flags);
        let request = OstGetattr { ost_body: OstBody { oa }, ..OstGetattr::default() };
        let answer = call::call::<OstGetattr>(&*self.target.channel, Call::new(request)).await?;
        let oa = need(answer.reply.ost_body)?.oa;
        stated(oa.valid, oa.data_version)
    }
}
