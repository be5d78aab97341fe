//! A directory of numbered files, served by a scripted MDT that counts what it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode};
use sheen_wire::dir::{DirEntry as WireEntry, DirPage, DirPageHeader, HASH_END};
use sheen_wire::md::Valid;
use sheen_wire::messages::{
    LdlmEnqueueReply, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsReadpageReply, Reply, Request,
};

use super::super::tests::layout;
use crate::posix::{DirCookie, DirEntryPlus, FileHandle, ListingRoom, NodeId, OpenFlags};
use crate::testing::{Fixture, absent, batch_reply, found, lock_reply, parts_of};

/// LOOKUP, UPDATE, PERM, and LAYOUT.
pub(super) const WHOLE: InodeBits = InodeBits(0x1b);
/// Names of a page.
const PAGE_NAMES: usize = 60;

/// What an MDT has been asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) readpages: usize,
    pub(super) locks: usize,
    pub(super) getattrs: Vec<String>,
    pub(super) batches: Vec<Vec<String>>,
}

/// The directory: the root.
#[derive(Clone)]
pub(super) struct Directory(Arc<Mutex<FakeDirectory>>);

struct FakeDirectory {
    names: BTreeMap<String, Fid>,
    /// Names in the order of their hashes.
    listed: Vec<String>,
    /// Parts with these names fail.
    fails: BTreeMap<String, Errno>,
    /// The MDT stops at a part that fails, as Lustre's.
    stops: bool,
    /// Batches are refused whole.
    refuses: Option<Errno>,
    asked: Asked,
    locks: u64,
    has_layout: bool,
}

impl Directory {
    /// Serves files `prefix`0 and so on, in this order.
    pub(super) fn serve(fixture: &Fixture, names: Vec<String>, has_layout: bool) -> Self {
        let fid = |number: usize| Fid::new(0x2_0000_0400, 100 + number as u32);
        let known = names.iter().enumerate().map(|(at, name)| (name.clone(), fid(at))).collect();
        let state = FakeDirectory {
            names: known,
            listed: names,
            fails: BTreeMap::new(),
            stops: false,
            refuses: None,
            asked: Asked::default(),
            locks: 1000,
            has_layout,
        };
        let this = Self(Arc::new(Mutex::new(state)));
        let (server, source) = (this.clone(), Arc::clone(&fixture.mdt.source));
        fixture.mdt.takes_batches.store(true, Ordering::Relaxed);
        fixture.mdt.serve(move |request| server.answer(request, &source.lock()));
        this
    }

    /// A part with this name fails.
    pub(super) fn fail(&self, name: &str, errno: Errno) {
        self.0.lock().fails.insert(name.to_owned(), errno);
    }

    /// A name that is listed still is gone.
    pub(super) fn remove(&self, name: &str) {
        self.0.lock().names.remove(name);
    }

    pub(super) fn stop_at_failures(&self) {
        self.0.lock().stops = true;
    }

    pub(super) fn refuse_batches(&self, errno: Errno) {
        self.0.lock().refuses = Some(errno);
    }

    pub(super) fn asked(&self) -> Asked {
        std::mem::take(&mut self.0.lock().asked)
    }

    /// Where the locks of answers from now on start.
    pub(super) fn next_lock(&self) -> LockHandle {
        LockHandle(self.0.lock().locks + 1)
    }

    fn answer(&self, request: &Request, source: &Bytes) -> (Result<Reply, Errno>, Vec<Bytes>) {
        let mut state = self.0.lock();
        let reply = match request {
            Request::LdlmEnqueue(_) => {
                state.asked.locks += 1;
                let lock = lock_reply(Fid::ROOT, 0x99, LockMode::Pr, InodeBits::UPDATE);
                LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into()
            }
            Request::MdsReadpage(request) => {
                state.asked.readpages += 1;
                let pages = state.pages(request.mdt_body.size);
                return (Ok(MdsReadpageReply::default().into()), pages);
            }
            Request::LdlmIntentGetattr(request) => {
                let name = name_of(request);
                state.asked.getattrs.push(name.clone());
                state.look_up(&name).1.into()
            }
            Request::MdsBatch(request) if state.refuses.is_some() => {
                let names = parts_of(request, source).iter().map(name_of).collect();
                state.asked.batches.push(names);
                return (Err(state.refuses.unwrap_or(Errno::EROFS)), Vec::new());
            }
            Request::MdsBatch(request) => state.batch(&parts_of(request, source)),
            other => panic!("not expected: {:?}", other.kind()),
        };
        (Ok(reply), Vec::new())
    }
}

impl FakeDirectory {
    fn look_up(&mut self, name: &str) -> (i32, LdlmIntentGetattrReply) {
        let Some(fid) = self.names.get(name).copied() else {
            return (Errno::ENOENT.status(), absent());
        };
        self.locks += 1;
        let mut reply = found(fid, 0o100_644, self.locks, WHOLE);
        if self.has_layout {
            reply.mdt_md = layout();
            if let Some(body) = &mut reply.mdt_body {
                body.valid |= Valid::EASIZE;
                body.eadatasize = reply.mdt_md.len() as u32;
            }
        }
        (0, reply)
    }

    fn batch(&mut self, parts: &[LdlmIntentGetattr]) -> Reply {
        let names: Vec<String> = parts.iter().map(name_of).collect();
        let mut answers = Vec::new();
        for name in &names {
            let answer = match self.fails.get(name) {
                Some(errno) => (errno.status(), LdlmIntentGetattrReply::default()),
                None => self.look_up(name),
            };
            if self.stops && answer.0 != 0 {
                break;
            }
            answers.push(answer);
        }
        self.asked.batches.push(names);
        batch_reply(&answers).into()
    }

    fn pages(&self, from: u64) -> Vec<Bytes> {
        let hash = |at: usize| (at as u64 + 1) << 8;
        let first =
            (0..self.listed.len()).find(|at| hash(*at) >= from).unwrap_or(self.listed.len());
        let mut pages = Vec::new();
        let mut at = first;
        loop {
            let end = (at + PAGE_NAMES).min(self.listed.len());
            let entry = |at: usize| {
                let name = &self.listed[at];
                let fid = self.names.get(name).copied().unwrap_or(Fid::new(0x2_0000_0400, 9));
                WireEntry::new(fid, hash(at), Bytes::from(name.clone()), 0o100_000)
            };
            let hash_end = if end == self.listed.len() { HASH_END } else { hash(end) };
            let header = DirPageHeader { hash_end, ..DirPageHeader::default() };
            let entries = (at..end).map(entry).collect();
            pages.push(DirPage { header, entries }.encode());
            at = end;
            if at == self.listed.len() {
                return pages;
            }
        }
    }
}

fn name_of(request: &LdlmIntentGetattr) -> String {
    let name = request.name.as_ref().map_or(&b""[..], |name| name.as_bytes());
    String::from_utf8(name.to_vec()).expect("a name of a test")
}

/// So many numbered names.
pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("file.{number}")).collect()
}

impl Fixture {
    pub(super) fn open_root(&self) -> FileHandle {
        let files = self.files.clone();
        let flags = OpenFlags(OpenFlags::DIRECTORY);
        let opened = async move { files.open(&Self::root(), NodeId::ROOT, flags).await };
        self.world.run(opened).expect("the root can be listed").handle
    }

    /// Lists the root as a process that is known to look at what it lists.
    pub(super) fn list(
        &self,
        handle: FileHandle,
        from: DirCookie,
        names: usize,
    ) -> Vec<DirEntryPlus> {
        let files = self.files.clone();
        files.0.ahead.trust(Self::root().pid);
        let room = ListingRoom::for_names(names);
        let list = async move { files.readdir_plus(&Self::root(), handle, from, room).await };
        self.world.run(list).expect("the root can be listed")
    }
}
