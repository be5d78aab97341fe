//! Files that stay open for later opens: what is asked, and when they are closed after all.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::md::{Bias, Disposition, MdsOpenFlags, OpenHandle};
use sheen_wire::messages::{LdlmIntentOpenReply, MdsClose, MdsCloseReply, Request};

use super::tests::layout;
use super::{Credentials, FileHandle, Lookup, NodeId, OpenFlags};
use crate::testing::{Fixture, blocking, found, lock_reply, name, opened};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);
const READ: OpenFlags = OpenFlags(0);
const WRITE: OpenFlags = OpenFlags(2);
/// What the MDT gives with an open that stays.
const KEPT: InodeBits = InodeBits::LOOKUP.union(InodeBits::OPEN).union(InodeBits::LAYOUT);

/// A file that was looked up, in a mount that keeps it from the second open on.
struct Known {
    fixture: Fixture,
    node: NodeId,
    reply: Option<LdlmIntentOpenReply>,
}

impl Known {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.mdt.answer(found(FILE, 0o100_644, 0x77, InodeBits(0x13)));
        let files = fixture.files.clone();
        let look = async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name("f")).await };
        let Ok(Lookup::Found(entry)) = fixture.world.run(look) else { panic!("it is there") };
        fixture.mdt.take_asked();
        Self { fixture, node: entry.node, reply: None }
    }

    fn try_open(&self, who: Credentials, flags: OpenFlags) -> Result<FileHandle, Errno> {
        let (files, node) = (self.fixture.files.clone(), self.node);
        let open = async move { files.open(&who, node, flags).await };
        self.fixture.world.run(open).map(|opened| opened.handle)
    }

    fn open(&self, flags: OpenFlags) -> FileHandle {
        self.try_open(Fixture::root(), flags).unwrap()
    }

    /// An open that gets the lock it asks for.
    fn open_to_cache(&mut self, flags: OpenFlags, handle: u64, mode: LockMode) -> FileHandle {
        let mut reply = opened(FILE, handle, false, layout());
        let mut lock = lock_reply(FILE, 0x9000 + handle, mode, KEPT);
        lock.policy_res1 |= Disposition::OPEN_OPEN | Disposition::OPEN_LOCK;
        reply.dlm_rep = Some(lock);
        self.fixture.mdt.answer(reply.clone());
        self.reply = Some(reply);
        self.open(flags)
    }

    fn close(&self, handle: FileHandle) {
        let files = self.fixture.files.clone();
        self.fixture.world.run(async move { files.release(handle, None).await }).unwrap();
    }

    fn open_and_close(&self) {
        self.fixture.mdt.answer(opened(FILE, 1, false, layout()));
        let handle = self.open(READ);
        self.fixture.mdt.answer(MdsCloseReply::default());
        self.close(handle);
    }

    /// A file that is kept open for reading, and the request for its lock.
    fn kept(flags: OpenFlags, mode: LockMode) -> (Self, FileHandle, Request) {
        let mut known = Self::new();
        known.open_and_close();
        known.fixture.mdt.take_asked();
        let handle = known.open_to_cache(flags, 7, mode);
        let asked = known.fixture.mdt.take_asked().remove(0);
        (known, handle, asked)
    }

    /// Another client wants the lock that the request asked for.
    fn call_back(&self, request: &Request) {
        let Request::LdlmIntentOpen(open) = request else { panic!("{request:?}") };
        let lock = self.reply.as_ref().unwrap().dlm_rep.as_ref().unwrap();
        self.fixture.locks.on_blocking(&blocking(&open.dlm_req, lock)).unwrap();
        self.fixture.world.settle();
    }

    fn asked(&self) -> Vec<Request> {
        self.fixture.mdt.take_asked()
    }
}

fn asks_lock(request: &Request) -> bool {
    let Request::LdlmIntentOpen(open) = request else { panic!("{request:?}") };
    open.rec_reint.flags().contains(MdsOpenFlags::LOCK)
}

fn the_close(asked: &[Request]) -> &MdsClose {
    match asked {
        [Request::MdsClose(close), Request::LdlmCancel(_)] => close,
        other => panic!("expected a close and then a cancel, got {other:?}"),
    }
}

#[test]
fn a_file_opened_again_at_once_stays_open_until_its_lock_goes() {
    let (known, handle, request) = Known::kept(READ, LockMode::Cr);
    assert!(asks_lock(&request));
    known.close(handle);
    for _ in 0..3 {
        known.close(known.open(READ));
    }
    assert!(known.asked().is_empty(), "no RPC for what is open");
    known.fixture.mdt.answer(MdsCloseReply::default());
    known.call_back(&request);
    assert_eq!(the_close(&known.asked()).mdt_ioepoch.open_handle, OpenHandle(7));
    assert_eq!(known.fixture.mdt.released.lock().len(), 2, "no replay of what is closed");
    known.open_and_close();
}

#[test]
fn a_file_is_kept_open_after_so_many_opens() {
    let known = Known::new();
    let keep = &known.fixture.files.settings().open_cache;
    keep.reopened_within.set(0);
    for _ in 0..3 {
        known.open_and_close();
    }
    keep.count.set(0);
    known.open_and_close();
    keep.count.set(6);
    known.open_and_close();
    assert!(
        !known.asked().iter().any(|it| matches!(it, Request::LdlmIntentOpen(_)) && asks_lock(it))
    );
    let mut known = known;
    let handle = known.open_to_cache(READ, 9, LockMode::Cr);
    assert!(asks_lock(&known.asked()[0]), "the sixth");
    known.close(handle);
    assert!(known.asked().is_empty());
}

#[test]
fn a_file_in_use_is_closed_by_its_last_user_when_the_lock_has_gone() {
    let (known, first, request) = Known::kept(READ, LockMode::Cr);
    let second = known.open(READ);
    known.call_back(&request);
    assert!(matches!(&known.asked()[..], [Request::LdlmCancel(_)]), "users keep it open");
    known.close(first);
    assert!(known.asked().is_empty());
    known.fixture.mdt.answer(MdsCloseReply::default());
    known.close(second);
    assert!(matches!(&known.asked()[..], [Request::MdsClose(_)]));
}

#[test]
fn what_must_reach_the_mdt_does() {
    let (mut known, handle, request) = Known::kept(READ, LockMode::Cr);
    known.close(handle);
    // Another way of using it.
    let written = known.open_to_cache(WRITE, 8, LockMode::Cw);
    assert!(asks_lock(&known.asked()[0]));
    known.close(written);
    known.close(known.open(WRITE));
    known.close(known.open(READ));
    assert!(known.asked().is_empty());
    // What may be refused.
    let stranger = Credentials { uid: 77, gid: 77, ..Fixture::root() };
    known.fixture.mdt.refuse(Errno::EACCES);
    assert_eq!(known.try_open(stranger, WRITE), Err(Errno::EACCES));
    let asked = known.asked();
    assert!(!asks_lock(&asked[0]), "there is one already");
    // What cuts the file.
    known.fixture.mdt.refuse(Errno::EROFS);
    let cut = OpenFlags(WRITE.0 | OpenFlags::TRUNCATE);
    assert_eq!(known.try_open(Fixture::root(), cut), Err(Errno::EROFS));
    assert!(!asks_lock(&known.asked()[0]));
    // Only the lock of the reader is revoked.
    known.fixture.mdt.answer(MdsCloseReply::default());
    let reply = opened(FILE, 7, false, Bytes::new());
    let mut lock = lock_reply(FILE, 0x9007, LockMode::Cr, KEPT);
    lock.policy_res1 |= Disposition::OPEN_OPEN;
    known.reply = Some(LdlmIntentOpenReply { dlm_rep: Some(lock), ..reply });
    known.call_back(&request);
    assert_eq!(the_close(&known.asked()).mdt_ioepoch.open_handle, OpenHandle(7));
    known.close(known.open(WRITE));
    assert!(known.asked().is_empty());
}

#[test]
fn the_close_carries_what_any_user_wrote() {
    let (known, first, request) = Known::kept(WRITE, LockMode::Cw);
    let files = known.fixture.files.clone();
    let write = async move { files.write(first, 0, Bytes::from_static(b"text")).await };
    assert_eq!(known.fixture.world.run(write), Ok(4));
    known.close(first);
    known.close(known.open(WRITE));
    known.fixture.mdt.answer(MdsCloseReply::default());
    known.asked();
    known.call_back(&request);
    let asked = known.asked();
    assert_eq!(the_close(&asked).rec_reint.bias, Bias::DATA_MODIFIED);
}

#[test]
fn what_may_be_executed_is_not_kept_open_for_writing() {
    let known = Known::new();
    known.open_and_close();
    known.fixture.files.settings().open_cache.count.set(1);
    known.fixture.files.settings().open_cache.reopened_within.set(1000);
    let inode = known.fixture.files.0.inodes.by_node(known.node).unwrap();
    inode.state().attributes_mut().unwrap().mode |= 0o100;
    known.asked();
    let mut reply = opened(FILE, 5, false, layout());
    if let Some(body) = &mut reply.mdt_body {
        body.mode |= 0o100;
    }
    known.fixture.mdt.answer(reply);
    let handle = known.open(WRITE);
    assert!(!asks_lock(&known.asked()[0]));
    known.fixture.mdt.answer(MdsCloseReply::default());
    known.close(handle);
    assert!(matches!(&known.asked()[..], [Request::MdsClose(_)]));
}

#[test]
fn an_unmount_closes_what_is_kept() {
    let (known, handle, _) = Known::kept(READ, LockMode::Cr);
    known.close(handle);
    known.fixture.mdt.answer(MdsCloseReply::default());
    let files = known.fixture.files.clone();
    known.fixture.world.run(async move { files.unmount().await });
    let asked = known.asked();
    assert!(asked.iter().any(|request| matches!(request, Request::MdsClose(_))), "{asked:?}");
}

#[test]
fn an_inode_that_is_kept_open_goes_with_the_lock() {
    let (known, handle, request) = Known::kept(READ, LockMode::Cr);
    known.close(handle);
    known.fixture.files.forget(known.node, 1);
    let inodes = Arc::clone(&known.fixture.files.0.inodes);
    assert!(inodes.by_fid(FILE).is_some());
    known.fixture.mdt.answer(MdsCloseReply::default());
    known.call_back(&request);
    the_close(&known.asked());
    assert!(inodes.by_fid(FILE).is_none());
}

#[test]
fn an_eviction_leaves_nothing_that_is_kept() {
    let (known, handle, _) = Known::kept(READ, LockMode::Cr);
    known.close(handle);
    known.fixture.mdt.refuse(Errno::ESTALE);
    known.fixture.locks.on_evicted();
    known.fixture.world.settle();
    known.fixture.mdt.answer(opened(FILE, 11, false, layout()));
    let handle = known.open(READ);
    known.fixture.mdt.answer(MdsCloseReply::default());
    known.close(handle);
    assert!(known.fixture.mdt.is_done());
}

#[test]
fn what_the_mdt_has_opened_is_closed_though_its_lock_went_with_an_eviction() {
    let known = Known::new();
    let locks = Arc::clone(&known.fixture.locks);
    // The open is resent over the connection after the eviction, and its lock is forgotten by then.
    known.fixture.mdt.expect(move |_| {
        locks.on_evicted();
        Ok(opened(FILE, 7, false, layout()).into())
    });
    known.fixture.mdt.answer(MdsCloseReply::default());
    let released = known.fixture.mdt.released.lock().len();
    assert_eq!(known.try_open(Fixture::root(), READ), Err(Errno::EIO));
    assert_eq!(closes(&known.asked()), [OpenHandle(7)]);
    let released = known.fixture.mdt.released.lock().len() - released;
    assert_eq!(released, 1, "no replay of what is closed");
    // The client goes on as any that has nothing open.
    known.open_and_close();
}

/// Begins an open, and drops it at its first wait.
fn drop_while_it_waits(known: &Known) {
    let (files, node) = (known.fixture.files.clone(), known.node);
    known.fixture.world.run(async move {
        let who = Fixture::root();
        let mut open = Box::pin(files.open(&who, node, READ));
        let waits = poll_fn(|context| Poll::Ready(open.as_mut().poll(context).is_pending()));
        assert!(waits.await);
    });
    known.fixture.world.settle();
}

fn closes(asked: &[Request]) -> Vec<OpenHandle> {
    let of_close = |request: &Request| match request {
        Request::MdsClose(close) => Some(close.mdt_ioepoch.open_handle),
        _ => None,
    };
    asked.iter().filter_map(of_close).collect()
}

#[test]
fn what_is_opened_for_a_call_that_has_gone_is_closed() {
    let known = Known::new();
    let hold = Arc::new(tokio::sync::Notify::new());
    *known.fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
    known.fixture.mdt.answer(opened(FILE, 7, false, layout()));
    drop_while_it_waits(&known);
    assert_eq!(closes(&known.asked()), [], "the answer is on its way");
    known.fixture.mdt.answer(MdsCloseReply::default());
    *known.fixture.mdt.hold.lock() = None;
    hold.notify_one();
    known.fixture.world.settle();
    assert_eq!(closes(&known.asked()), [OpenHandle(7)]);
    assert_eq!(known.fixture.mdt.released.lock().len(), 1, "no replay of what is closed");
}

#[test]
fn what_is_open_while_its_lock_waits_is_closed_when_the_call_goes() {
    let known = Known::new();
    let mut reply = opened(FILE, 7, false, layout());
    reply.dlm_rep.as_mut().unwrap().desc.granted_mode = Default::default();
    known.fixture.mdt.answer(reply);
    known.fixture.mdt.answer(MdsCloseReply::default());
    drop_while_it_waits(&known);
    assert_eq!(closes(&known.asked()), [OpenHandle(7)]);
    assert_eq!(known.fixture.mdt.released.lock().len(), 1);
}
