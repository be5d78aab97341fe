//! An open file's handle on its MDT, which lives in the memory there, and what a restart of the MDT does
//! to it: the open is replayed and gives another handle.
//!
//! A close is sent with the current handle, however long it had to wait. If the MDT has refused it, not able
//! to write any more, and replays the open after its restart all the same, the file is closed then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::{Answer, RequestHook};
use sheen_types::Fid;
use sheen_wire::ldlm::LockFlags as WireFlags;
use sheen_wire::lov::LovMagic;
use sheen_wire::md::{Disposition, MdtBody, OpenHandle};
use sheen_wire::messages::{Reply, Request};
use sheen_wire::ptlrpc::PtlrpcBody;

use super::open_file::close_again;
use super::{Mdc, intent_status};

/// The handle as the MDT calls it now.
pub(crate) struct HandleCell {
    mdt: Weak<Mdc>,
    handle: AtomicU64,
    first: Mutex<FirstReply>,
    /// The MDT has refused to close it.
    is_close_refused: AtomicBool,
}

/// What a replay must ask for: what the first reply returned.
#[derive(Default)]
struct FirstReply {
    fid: Fid,
    layout: Bytes,
}

impl HandleCell {
    pub(crate) fn new(mdt: &Arc<Mdc>) -> Arc<Self> {
        Arc::new(Self {
            mdt: Arc::downgrade(mdt),
            handle: AtomicU64::new(0),
            first: Mutex::default(),
            is_close_refused: AtomicBool::new(false),
        })
    }

    /// The handle.
    pub(super) fn get(&self) -> OpenHandle {
        OpenHandle(self.handle.load(Ordering::Acquire))
    }

    /// Takes over what the first reply returns, unless a restart has overtaken it.
    pub(crate) fn set_first(&self, body: &MdtBody) {
        let (new, order) = (body.open_handle.0, Ordering::AcqRel);
        _ = self.handle.compare_exchange(0, new, order, Ordering::Acquire);
    }

    /// The file that was opened.
    pub(super) fn fid(&self) -> Fid {
        self.first.lock().fid
    }

    /// The MDT has refused to close it: it has forgotten the handle, and may replay what opened it.
    pub(super) fn note_close_refused(&self) {
        self.is_close_refused.store(true, Ordering::Release);
    }
}

impl RequestHook for HandleCell {
    fn keep_until_release(&self, answer: &Answer) -> bool {
        let Some((body, layout)) = opened(answer) else { return false };
        *self.first.lock() = FirstReply { fid: body.fid1, layout: layout.clone() };
        self.set_first(body);
        true
    }

    fn before_replay(&self, request: &mut Request, _answer_body: &PtlrpcBody) {
        let Request::LdlmIntentOpen(open) = request else { return };
        let first = self.first.lock();
        open.dlm_req.flags |= WireFlags::INTENT_ONLY;
        open.rec_reint.fid2 = first.fid;
        open.rec_reint.open_handle_old = self.get();
        if !first.layout.is_empty() {
            open.eadata = defined_layout(&first.layout);
        }
    }

    fn replayed(&self, answer: &Answer) {
        let Some((body, _)) = opened(answer) else {
            tracing::warn!(status = answer.body.status, "open file lost in recovery");
            return;
        };
        self.handle.store(body.open_handle.0, Ordering::Release);
        if self.is_close_refused.load(Ordering::Acquire)
            && let Some(mdt) = self.mdt.upgrade()
        {
            close_again(&mdt, body.fid1, body.open_handle);
        }
    }
}

/// Puts the current handle into a close.
pub(super) struct CloseHandle(pub(super) Arc<HandleCell>);

impl RequestHook for CloseHandle {
    fn before_send(&self, request: &mut Request) {
        if let Request::MdsClose(close) = request {
            close.mdt_ioepoch.open_handle = self.0.get();
        }
    }

    fn before_replay(&self, request: &mut Request, _answer_body: &PtlrpcBody) {
        self.before_send(request);
    }
}

/// The attributes and layout of an answer that opened something.
pub(super) fn opened(answer: &Answer) -> Option<(&MdtBody, &Bytes)> {
    let Reply::LdlmIntentOpen(reply) = &answer.reply else { return None };
    let lock = reply.dlm_rep.as_ref()?;
    let success = intent_status(lock.policy_res2).is_none();
    let open = lock.policy_res1.contains(Disposition::OPEN_OPEN);
    (success && open).then_some((reply.mdt_body.as_ref()?, &reply.mdt_md))
}

/// A layout marked as one to be taken as it is, objects and all.
fn defined_layout(layout: &Bytes) -> Bytes {
    let mut bytes = layout.to_vec();
    if let Some(magic) = bytes.first_chunk_mut::<4>() {
        *magic = (u32::from_le_bytes(*magic) | LovMagic::DEFINED).to_le_bytes();
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use sheen_wire::messages::MdsClose;

    use super::*;

    #[test]
    fn a_close_is_sent_with_the_current_handle() {
        let cell = Arc::new(HandleCell {
            mdt: Weak::new(),
            handle: AtomicU64::new(0),
            first: Mutex::default(),
            is_close_refused: AtomicBool::new(false),
        });
        let body = |handle| MdtBody { open_handle: OpenHandle(handle), ..MdtBody::default() };
        cell.set_first(&body(1));
        let sent = || {
            let mut close = Request::from(MdsClose::default());
            CloseHandle(Arc::clone(&cell)).before_send(&mut close);
            let Request::MdsClose(close) = close else { panic!("still a close") };
            close.mdt_ioepoch.open_handle
        };
        assert_eq!(sent(), OpenHandle(1));
        // A restart, and only then the task that handles the first reply.
        cell.handle.store(2, Ordering::Release);
        cell.set_first(&body(1));
        assert_eq!(sent(), OpenHandle(2));
    }
}
