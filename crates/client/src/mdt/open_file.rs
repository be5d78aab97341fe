//! Files that are open on an MDT, and their close: one `MDS_CLOSE`, which carries times and the size as far as we know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheen_rpc::{Answer, Call, RpcError};
use sheen_types::{Errno, Fid, Xid};
use sheen_wire::md::{AttrValid, Bias, MdtIoepoch, OpenHandle, RecSetattr, ReintOp};
use sheen_wire::messages::MdsClose;

use super::handle::{CloseHandle, HandleCell, opened};
use super::{Mdc, NO_GROUP};
use crate::call;
use crate::data::{InlineData, InlineView};
use crate::types::Credentials;

/// A file that is open on an MDT. Dropped before it has an owner it is closed: its call has failed, or was dropped
/// itself, before a program got the file.
pub(crate) struct MdtOpen {
    mdt: Arc<Mdc>,
    handle: Arc<HandleCell>,
    xid: Xid,
    /// The file's data, if it came along.
    inline_data: Option<InlineData>,
    /// Something closes it that lives longer than a call; or it was closed.
    has_owner: AtomicBool,
}

/// The attributes of a file that a close sends to the MDT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CloseAttributes {
    /// Bytes, if we know; the MDT keeps it as a hint (LSOM).
    pub(crate) size: Option<u64>,
    /// Blocks of 512 bytes, with the size.
    pub(crate) blocks: u64,
    /// Last access; 0 if unknown.
    pub(crate) atime: i64,
    /// Last change of data.
    pub(crate) mtime: i64,
    /// Last change of anything.
    pub(crate) ctime: i64,
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// Whether data was written through this handle.
    pub(crate) modified: bool,
}

impl CloseAttributes {
    /// The file was only read, at `atime`.
    pub(crate) fn of_access(atime: i64) -> Self {
        Self { atime, ..Self::default() }
    }

    /// The attributes of two users of one handle together; `later` is the more recent.
    pub(crate) fn and(self, later: Self) -> Self {
        let base = if later.modified || !self.modified { later } else { self };
        Self { atime: self.atime.max(later.atime), ..base }
    }
}

impl MdtOpen {
    /// A file that the MDT has opened, in reply to the request `xid`.
    pub(crate) fn new(mdt: Arc<Mdc>, handle: Arc<HandleCell>, xid: Xid) -> Self {
        Self { mdt, handle, xid, inline_data: None, has_owner: AtomicBool::new(false) }
    }

    /// Closes what an answer says was opened, whose call was dropped.
    pub(crate) fn close_dropped(mdt: Arc<Mdc>, handle: Arc<HandleCell>, answer: &Answer) {
        if opened(answer).is_some() {
            drop(Self::new(mdt, handle, answer.xid));
        }
    }

    /// The open file with its data, which came along.
    pub(crate) fn with_data(self, inline_data: Option<InlineData>) -> Self {
        let mut open = self;
        open.inline_data = inline_data;
        open
    }

    /// From now on its owner closes it.
    pub(crate) fn note_owner(&self) {
        self.has_owner.store(true, Ordering::Relaxed);
    }

    /// The file's bytes, if they came along and may be shown.
    pub(crate) fn view(&self) -> Option<InlineView> {
        self.inline_data.as_ref()?.view()
    }

    /// Closes the file `fid`. One RPC.
    pub(crate) async fn close(
        &self,
        who: &Credentials,
        fid: Fid,
        attributes: Option<CloseAttributes>,
    ) -> Result<(), Errno> {
        self.note_owner();
        let call = self.close_call(who, fid, attributes);
        let result = call::call::<MdsClose>(&*self.mdt.channel, call).await;
        self.mdt.channel.release(self.xid);
        match result {
            // The MDT has evicted us, and closed the handle.
            Ok(_) | Err(Errno::ESTALE) => Ok(()),
            Err(errno) => {
                self.handle.note_close_refused();
                Err(errno)
            }
        }
    }

    /// As [`MdtOpen::close`], without waiting: the request goes with the next one to the MDT, if that comes
    /// soon, and `until_answered` is dropped when the answer has come.
    pub(crate) async fn close_in_background(
        &self,
        who: &Credentials,
        fid: Fid,
        attributes: Option<CloseAttributes>,
        until_answered: impl Send + 'static,
    ) {
        self.note_owner();
        let mut call = self.close_call(who, fid, attributes);
        call.may_linger = true;
        let (channel, xid) = (Arc::clone(&self.mdt.channel), self.xid);
        let handle = Arc::clone(&self.handle);
        let then = Box::new(move |result: Result<Answer, RpcError>| {
            channel.release(xid);
            if let Err(error) = result {
                handle.note_close_refused();
                tracing::debug!(file = %fid, %error, "close");
            }
            drop(until_answered);
        });
        self.mdt.channel.call_detached(call, then).await;
    }

    fn close_call(&self, who: &Credentials, fid: Fid, attributes: Option<CloseAttributes>) -> Call {
        let request = request(who, fid, self.handle.get(), attributes);
        let mut call = who.sign(Call::modifying(request));
        call.hook = Some(Arc::new(CloseHandle(Arc::clone(&self.handle))));
        call
    }
}

impl Drop for MdtOpen {
    fn drop(&mut self) {
        if *self.has_owner.get_mut() {
            return;
        }
        let open = Self::new(Arc::clone(&self.mdt), Arc::clone(&self.handle), self.xid);
        // A process that ends drops the task before it runs.
        open.note_owner();
        let close = async move {
            let fid = open.handle.fid();
            open.close_in_background(&Credentials::root(), fid, None, ()).await;
        };
        self.mdt.locks.world().tasks.spawn("close of a call", Box::pin(close));
    }
}

/// Closes what a restarted MDT has opened by replay though it was closed before. Does not wait.
pub(super) fn close_again(mdt: &Arc<Mdc>, fid: Fid, handle: OpenHandle) {
    let who = Credentials::root();
    let call = who.sign(Call::modifying(request(&who, fid, handle, None)));
    let then = Box::new(move |result: Result<Answer, RpcError>| {
        if let Err(error) = result {
            tracing::debug!(file = %fid, %error, "close after recovery");
        }
    });
    let closed = mdt.channel.call_detached(call, then);
    mdt.locks.world().tasks.spawn("close after recovery", closed);
}

fn request(
    who: &Credentials,
    fid: Fid,
    handle: OpenHandle,
    attributes: Option<CloseAttributes>,
) -> MdsClose {
    MdsClose {
        mdt_ioepoch: MdtIoepoch { open_handle: handle, ..MdtIoepoch::default() },
        rec_reint: close_record(who, fid, attributes),
        ..MdsClose::default()
    }
}

fn close_record(who: &Credentials, fid: Fid, attributes: Option<CloseAttributes>) -> RecSetattr {
    let mut record = RecSetattr {
        opcode: ReintOp::SETATTR,
        cap: who.capabilities(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid: NO_GROUP,
        fid,
        ..RecSetattr::default()
    };
    let Some(known) = attributes else { return record };
    if known.modified {
        record.valid = AttrValid::MTIME
            | AttrValid::MTIME_SET
            | AttrValid::CTIME
            | AttrValid::CTIME_SET
            | AttrValid::MODE;
    }
    if known.atime != 0 {
        record.valid |= AttrValid::ATIME | AttrValid::ATIME_SET;
    }
    if let Some(size) = known.size {
        record.valid |= AttrValid::LSIZE | AttrValid::LBLOCKS;
        (record.size, record.blocks) = (size, known.blocks);
    }
    record.mode = known.mode;
    (record.atime, record.mtime, record.ctime) = (known.atime, known.mtime, known.ctime);
    if known.modified {
        record.bias = Bias::DATA_MODIFIED;
    }
    record
}

#[cfg(test)]
mod tests {
    use sheen_io::{BoxFuture, Tasks, World};

    use super::*;
    use crate::locks::ClientNamespace;
    use crate::mdt::FidSource;
    use crate::records::Recorder;
    use crate::testing::{CoveredNothing, FakeInodeData, FakeMdt, TestWorld, lock_config};

    /// Of a process that ends.
    struct Ended;

    impl Tasks for Ended {
        fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
            drop(task);
        }

        fn blocking(&self, _job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn an_open_of_a_call_goes_with_the_process() {
        let world = World { tasks: Arc::new(Ended), ..TestWorld::new(1).world() };
        let channel: Arc<dyn sheen_rpc::Channel> = FakeMdt::new();
        let cache = Arc::new(CoveredNothing);
        let name = "fs-MDT0000".to_owned();
        let locks = ClientNamespace::new(name, world, Arc::clone(&channel), lock_config(), cache);
        let fids = FidSource::new(Arc::clone(&channel), Recorder::default());
        let data = Arc::new(FakeInodeData::default());
        let refuses_batches = false.into();
        let index = Default::default();
        let mdt = Arc::new(Mdc { index, channel, locks, fids, data, refuses_batches });
        let handle = HandleCell::new(&mdt);
        drop(MdtOpen::new(Arc::clone(&mdt), handle, Xid(1)));
        assert_eq!(Arc::strong_count(&mdt), 1, "no task holds it");
    }
}
