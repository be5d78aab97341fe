//! Tests: our own changes of names under a directory's lock that stays, and names known to be absent,
//! against an MDT with one directory, the root.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode};
use sheen_wire::dir::{DirEntry as WireEntry, DirPage, DirPageHeader, HASH_END};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use sheen_wire::messages::{
    LdlmEnqueueReply, MdsCloseReply, MdsGetattrReply, MdsReadpageReply, MdsReintCreateReply,
    MdsReintLinkReply, MdsReintRenameReply, MdsReintUnlinkReply, Reply, Request,
};

use super::*;
use crate::testing::{Fixture, absent, blocking, body, found, lock_reply, name, opened};

const DIRECTORY: u32 = 0o040_755;
const WHOLE: InodeBits = InodeBits(0x13);

/// What the MDT has.
#[derive(Default)]
struct Root {
    names: BTreeMap<String, Fid>,
    handles: u64,
    /// Names that a page has at most.
    page: usize,
    /// Another client removes at once what is renamed.
    takes_away: bool,
}

struct Bench {
    fixture: Fixture,
    root: Arc<Mutex<Root>>,
}

impl Root {
    fn lock(&mut self) -> u64 {
        self.handles += 1;
        0x9000 + self.handles
    }

    fn rename(&mut self, from: &str, to: String) -> Result<Reply, Errno> {
        let fid = self.names.remove(from).ok_or(Errno::ENOENT)?;
        let victim = self.names.insert(to.clone(), fid);
        if self.takes_away {
            self.names.remove(&to);
        }
        let mdt_body = Some(victim.map(|victim| body(victim, 0o100_644)).unwrap_or_default());
        Ok(MdsReintRenameReply { mdt_body, ..Default::default() }.into())
    }

    fn answer(&mut self, request: &Request) -> (Result<Reply, Errno>, Vec<Bytes>) {
        let mut pages = Vec::new();
        let text = |text: &Option<sheen_wire::text::Text>| {
            text.as_ref().map(|text| text.to_text()).unwrap_or_default()
        };
        let answer = match request {
            Request::LdlmIntentGetattr(asked) => {
                let lock = self.lock();
                match (text(&asked.name).as_str(), self.names.get(&text(&asked.name))) {
                    ("", _) => Ok(found(Fid::ROOT, DIRECTORY, lock, WHOLE).into()),
                    (_, Some(fid)) => Ok(found(*fid, 0o100_644, lock, WHOLE).into()),
                    (_, None) => Ok(absent().into()),
                }
            }
            Request::LdlmIntentOpen(open) if text(&open.name).is_empty() => {
                let mut reply = opened(Fid::ROOT, 1, false, Bytes::new());
                reply.mdt_body = Some(body(Fid::ROOT, DIRECTORY));
                reply.dlm_rep =
                    reply.dlm_rep.map(|lock| LdlmReply { handle: LockHandle(0), ..lock });
                Ok(reply.into())
            }
            Request::LdlmIntentOpen(open) => {
                let lock = self.lock();
                let old = self.names.get(&text(&open.name)).copied();
                let fid = old.unwrap_or(open.rec_reint.fid2);
                self.names.insert(text(&open.name), fid);
                Ok(opened(fid, lock, old.is_none(), Bytes::new()).into())
            }
            Request::MdsReintCreate(create) => match self.names.contains_key(&text(&create.name)) {
                true => Err(Errno::EEXIST),
                false => {
                    let fid = create.rec_reint.fid2;
                    self.names.insert(text(&create.name), fid);
                    let mdt_body = Some(body(fid, create.rec_reint.mode));
                    Ok(MdsReintCreateReply { mdt_body, ..Default::default() }.into())
                }
            },
            Request::MdsReintUnlink(unlink) => match self.names.remove(&text(&unlink.name)) {
                Some(_) => Ok(MdsReintUnlinkReply::default().into()),
                None => Err(Errno::ENOENT),
            },
            Request::MdsReintLink(link) => {
                self.names.insert(text(&link.name), link.rec_reint.fid1);
                Ok(MdsReintLinkReply::default().into())
            }
            Request::MdsReintRename(rename) => {
                self.rename(&text(&rename.name), text(&rename.symtgt))
            }
            Request::LdlmEnqueue(_) => {
                let lock = lock_reply(Fid::ROOT, self.lock(), LockMode::Pr, InodeBits::UPDATE);
                Ok(LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into())
            }
            Request::MdsReadpage(asked) => {
                pages.push(self.read(asked.mdt_body.size));
                Ok(MdsReadpageReply::default().into())
            }
            Request::MdsGetattr(_) => {
                let mdt_body = Some(body(Fid::ROOT, DIRECTORY));
                Ok(MdsGetattrReply { mdt_body, ..Default::default() }.into())
            }
            Request::MdsClose(_) => Ok(MdsCloseReply::default().into()),
            other => panic!("not expected: {:?}", other.kind()),
        };
        (answer, pages)
    }

    /// A page from a hash on. Names sort by their bytes, and hash so.
    fn read(&self, from: u64) -> Bytes {
        let hash = |name: &str| {
            let mut bytes = [0; 8];
            let length = name.len().min(7);
            bytes[1..=length].copy_from_slice(&name.as_bytes()[..length]);
            u64::from_be_bytes(bytes)
        };
        let mut entries: Vec<WireEntry> = self
            .names
            .iter()
            .map(|(name, fid)| {
                WireEntry::new(*fid, hash(name), Bytes::from(name.clone()), 0o100_000)
            })
            .filter(|entry| entry.hash >= from)
            .collect();
        let rest = entries.split_off(entries.len().min(self.page));
        let hash_end = rest.first().map_or(HASH_END, |entry| entry.hash);
        DirPage { header: DirPageHeader { hash_end, ..Default::default() }, entries }.encode()
    }
}

impl Bench {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.mdt.own_names.store(true, Ordering::Relaxed);
        fixture.mdt.transno.store(1, Ordering::Relaxed);
        let root = Arc::new(Mutex::new(Root { page: 50, ..Root::default() }));
        let server = Arc::clone(&root);
        fixture.mdt.serve(move |request| server.lock().answer(request));
        Self { fixture, root }
    }

    /// A directory with these names, all of them known.
    fn knowing(names: &[&str]) -> Self {
        let bench = Self::new();
        for (number, name) in names.iter().enumerate() {
            let fid = Fid::new(0x2_0000_0500, number as u32 + 1);
            bench.root.lock().names.insert((*name).to_owned(), fid);
        }
        bench.look_up("missing-1");
        bench.look_up("missing-2");
        bench.asked();
        assert_eq!((bench.look_up("missing-3"), bench.asked().len()), (false, 0));
        bench
    }

    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        work: impl FnOnce(FileSystem) -> F,
    ) -> T {
        self.fixture.world.run(work(self.fixture.files.clone()))
    }

    /// Whether the name is there.
    fn look_up(&self, text: &str) -> bool {
        let name = name(text);
        let found = self
            .run(|files| async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name).await });
        matches!(found.unwrap(), Lookup::Found(_))
    }

    fn create(&self, text: &str) {
        let name = name(text);
        self.run(|files| async move {
            let flags = OpenFlags(OpenFlags::CREATE | 1);
            let who = Fixture::root();
            let (_, opened) = files.open_create(&who, NodeId::ROOT, &name, 0o644, flags).await?;
            files.release(opened.handle, None).await
        })
        .unwrap();
    }

    fn unlink(&self, text: &str) {
        let name = name(text);
        self.run(|files| async move { files.unlink(&Fixture::root(), NodeId::ROOT, &name).await })
            .unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let (from, to) = (name(from), name(to));
        self.run(|files| async move {
            let (from, to) = ((NodeId::ROOT, &from), (NodeId::ROOT, &to));
            files.rename(&Fixture::root(), from, to, RenameMode::Replace).await
        })
        .unwrap();
    }

    fn stat(&self) -> Stat {
        self.run(|files| async move { files.getattr(&Fixture::root(), NodeId::ROOT).await })
            .unwrap()
    }

    fn list(&self) -> Vec<String> {
        let listed = self.run(|files| async move {
            let flags = OpenFlags(OpenFlags::DIRECTORY);
            let handle = files.open(&Fixture::root(), NodeId::ROOT, flags).await?.handle;
            let mut names = Vec::new();
            loop {
                let at = names.last().map_or(DirCookie(0), |entry: &DirEntry| entry.next);
                let more = files.readdir(handle, at, 100).await?;
                if more.is_empty() {
                    break;
                }
                names.extend(more);
            }
            files.release(handle, None).await?;
            Ok::<_, Errno>(names)
        });
        let text = |entry: DirEntry| String::from_utf8(entry.name.to_vec()).unwrap();
        listed.unwrap().into_iter().map(text).collect()
    }

    /// The kinds of requests since the last time.
    fn asked(&self) -> Vec<&'static str> {
        let asked = self.fixture.mdt.take_asked();
        asked.iter().map(|request| request.format().name).collect()
    }

    fn count(asked: &[&'static str], name: &str) -> usize {
        asked.iter().filter(|asked| **asked == name).count()
    }

    /// Another client changes the directory: all locks on it are revoked.
    fn revoke_all(&self) {
        self.revoke(Fid::ROOT, InodeBits::UPDATE);
    }

    fn revoke(&self, fid: Fid, bits: InodeBits) {
        let resource = sheen_types::ResourceName::of_fid(fid);
        for lock in self.fixture.locks.engine().dump(resource) {
            let reply = lock_reply(fid, 0, LockMode::Pr, bits);
            let callback = LdlmRequest {
                handles: vec![lock.handle],
                ..blocking(&LdlmRequest::default(), &reply)
            };
            self.fixture.locks.on_blocking(&callback).unwrap();
        }
        self.fixture.world.settle();
    }
}

#[test]
fn many_creates_cost_one_open_and_one_close_each() {
    let bench = Bench::new();
    for number in 0..200 {
        let text = format!("f{number}");
        assert!(!bench.look_up(&text));
        bench.create(&text);
    }
    let asked = bench.asked();
    assert_eq!(Bench::count(&asked, "LDLM_INTENT_OPEN"), 200);
    assert_eq!(Bench::count(&asked, "MDS_CLOSE"), 200);
    // The sequence; two lookups until reading was paid for; the lock, and what it covers.
    let rest: Vec<_> = asked
        .iter()
        .filter(|name| !["LDLM_INTENT_OPEN", "MDS_CLOSE"].contains(name))
        .copied()
        .collect();
    assert_eq!(rest.len(), 5, "{rest:?}");
    assert_eq!(Bench::count(&rest, "LDLM_CANCEL"), 0);
}

#[test]
fn unlinks_and_renames_are_known_at_once() {
    let bench = Bench::knowing(&["a", "b", "c"]);
    for text in ["a", "b", "c"] {
        assert!(bench.look_up(text));
    }
    bench.asked();
    bench.unlink("a");
    assert!(!bench.look_up("a"));
    assert_eq!(bench.asked(), ["MDS_REINT_UNLINK"]);
    assert!(!bench.look_up("d"));
    bench.rename("b", "d");
    assert!(!bench.look_up("b") && bench.look_up("d"));
    assert_eq!(bench.asked(), ["MDS_REINT_RENAME", "LDLM_INTENT_GETATTR"]);
    bench.rename("c", "d");
    assert!(!bench.look_up("c") && bench.look_up("d"));
    bench.unlink("d");
    bench.asked();
    assert!(!bench.look_up("d"));
    assert_eq!(bench.asked().len(), 0, "a name that was replaced was there once only");
}

/// The kernel moves the name by itself.
#[test]
fn a_moved_name_is_kept_under_a_lock_from_the_start_or_not_at_all() {
    let bench = Bench::knowing(&["a"]);
    assert!(bench.look_up("a"));
    let notices = || bench.fixture.watcher.take();
    notices();
    bench.rename("a", "b");
    assert!(!notices().contains(&"entry 1 b".to_owned()));
    bench.revoke(Fid::new(0x2_0000_0500, 1), InodeBits::LOOKUP);
    assert_eq!(notices().last(), Some(&"entry 1 b".to_owned()));

    assert!(bench.look_up("b"));
    bench.root.lock().takes_away = true;
    notices();
    bench.rename("b", "c");
    assert_eq!(notices().last(), Some(&"entry 1 c".to_owned()));
}

#[test]
fn few_names_of_one_inode_are_kept_and_each_is_invalidated_once() {
    let bench = Bench::new();
    let fid = Fid::new(0x2_0000_0500, 1);
    let names: Vec<String> = (0..20).map(|number| format!("l{number:02}")).collect();
    for name in &names {
        bench.root.lock().names.insert(name.clone(), fid);
    }
    assert!(names.iter().all(|name| bench.look_up(name)));
    let notices = || {
        bench.revoke(fid, InodeBits::LOOKUP);
        let notices = bench.fixture.watcher.take();
        notices.iter().filter(|it| it.starts_with("entry 1 l")).count()
    };
    assert_eq!(notices(), 8);
    assert!(bench.look_up("l19") && bench.look_up("l03"));
    assert_eq!(notices(), 2);
    assert_eq!(notices(), 0);
}

#[test]
fn two_names_of_one_inode_stay_when_one_is_renamed_over_the_other() {
    let bench = Bench::knowing(&["a", "b"]);
    // As the MDT answers it: nothing happened, no transaction.
    bench.fixture.mdt.transno.store(0, Ordering::Relaxed);
    bench.fixture.mdt.answer(MdsReintRenameReply::default());
    bench.rename("a", "b");
    assert!(bench.look_up("a") && bench.look_up("b"));
}

#[test]
fn names_are_asked_again_when_the_lock_is_gone() {
    let bench = Bench::knowing(&["a"]);
    bench.revoke_all();
    assert!(bench.asked().contains(&"LDLM_CANCEL"));
    // The other client's change comes through only now.
    bench.root.lock().names.insert("theirs".to_owned(), Fid::new(7, 7));
    assert!(bench.look_up("theirs"));
}

#[test]
fn names_that_another_takes_the_lock_for_are_learnt_ever_more_seldom() {
    let bench = Bench::new();
    let mut requests = Vec::new();
    for round in 0..64 {
        bench.look_up(&format!("missing-{round}"));
        requests.extend(bench.asked());
        bench.revoke_all();
        bench.fixture.mdt.take_asked();
    }
    let read = Bench::count(&requests, "MDS_READPAGE");
    assert_eq!(read, 5, "after 2 lookups, 4 more, 8 more and so on");
}

#[test]
fn a_listing_of_several_pages_makes_all_names_known() {
    let bench = Bench::new();
    for number in 0..120 {
        let fid = Fid::new(0x2_0000_0500, number + 1);
        bench.root.lock().names.insert(format!("n{number:03}"), fid);
    }
    assert_eq!(bench.list().len(), 120);
    bench.asked();
    assert!(!bench.look_up("x"));
    assert_eq!(bench.asked().len(), 0);
}

#[test]
fn attributes_are_asked_without_a_second_lock_after_a_change_of_ours() {
    let bench = Bench::knowing(&[]);
    assert!(bench.stat().keep);
    bench.asked();
    assert!(bench.stat().keep);
    assert_eq!(bench.asked().len(), 0);
    bench.fixture.watcher.take();
    bench.create("f");
    assert_eq!(bench.fixture.watcher.take(), ["inode 1 Attributes"]);
    bench.asked();
    assert!(bench.stat().keep);
    assert_eq!(bench.asked(), ["MDS_GETATTR"]);
    bench.create("g");
    bench.create("h");
    assert_eq!(
        bench.fixture.watcher.take().len(),
        1,
        "notified once until they are asked for again"
    );
}

#[test]
fn pages_are_read_again_after_a_change_of_ours() {
    let bench = Bench::knowing(&["a"]);
    bench.stat();
    assert_eq!(bench.list(), ["a"]);
    bench.asked();
    assert_eq!(bench.list(), ["a"]);
    assert_eq!(bench.asked().len(), 0);
    bench.create("b");
    assert_eq!(bench.list(), ["a", "b"]);
}

/// Sends `first`, whose answer is prepared and stays on its way while `second` runs from beginning to
/// end.
fn overlapped<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    bench: &Bench,
    first: impl FnOnce(FileSystem) -> F,
    second: impl FnOnce(&Bench),
) -> T {
    let hold = Arc::new(tokio::sync::Notify::new());
    *bench.fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
    let place = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&place);
    let work = first(bench.fixture.files.clone());
    let task = async move { *slot.lock() = Some(work.await) };
    bench.fixture.world.world().tasks.spawn("first", Box::pin(task));
    bench.fixture.world.settle();
    *bench.fixture.mdt.hold.lock() = None;
    second(bench);
    hold.notify_waiters();
    bench.fixture.world.settle();
    place.lock().take().expect("the first has ended")
}

#[test]
fn attributes_that_a_change_of_ours_overtakes_are_not_kept() {
    let bench = Bench::knowing(&[]);
    bench.stat();
    bench.create("f");
    let stat = |files: FileSystem| async move {
        files.getattr(&Fixture::root(), NodeId::ROOT).await.unwrap()
    };
    assert!(!overlapped(&bench, stat, |bench| bench.create("g")).keep);
    assert!(bench.stat().keep);
}

#[test]
fn an_absent_name_that_a_change_of_ours_overtakes_is_not_kept() {
    let bench = Bench::new();
    bench.stat();
    let look_up = |files: FileSystem| async move {
        files.lookup(&Fixture::root(), NodeId::ROOT, &name("f")).await.unwrap()
    };
    let found = overlapped(&bench, look_up, |bench| bench.create("f"));
    assert!(matches!(found, Lookup::Absent { keep: false }), "{found:?}");
    assert!(bench.look_up("f"));
}

#[test]
fn a_name_made_while_the_directory_is_read_is_known() {
    let bench = Bench::new();
    bench.stat();
    let list = |files: FileSystem| async move {
        let flags = OpenFlags(OpenFlags::DIRECTORY);
        let handle = files.open(&Fixture::root(), NodeId::ROOT, flags).await.unwrap().handle;
        files.readdir(handle, DirCookie(0), 100).await.unwrap()
    };
    let before = overlapped(&bench, list, |bench| bench.create("f"));
    assert!(before.is_empty(), "the page was on its way already");
    assert_eq!(bench.list(), ["f"], "so it was not kept");
    bench.revoke_all();
    bench.stat();
    let again = overlapped(&bench, list, |bench| bench.unlink("f"));
    assert_eq!(again.len(), 1);
    assert!(!bench.look_up("f"));
}

#[test]
fn a_change_whose_answer_is_not_awaited_leaves_its_name_in_doubt() {
    let bench = Bench::knowing(&[]);
    let hold = Arc::new(tokio::sync::Notify::new());
    *bench.fixture.mdt.hold.lock() = Some(hold);
    let files = bench.fixture.files.clone();
    let mut making = Box::pin(async move {
        let who = Fixture::root();
        files.make_node(&who, NodeId::ROOT, &name("d"), 0o755, NewNode::Directory).await.map(|_| ())
    });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // The sequence is asked for first: it has one already after this.
    *bench.fixture.mdt.hold.lock() = None;
    bench.create("warm");
    *bench.fixture.mdt.hold.lock() = Some(Arc::new(tokio::sync::Notify::new()));
    assert!(making.as_mut().poll(&mut context).is_pending());
    drop(making);
    // The MDT has not executed it yet.
    bench.root.lock().names.remove("d");
    *bench.fixture.mdt.hold.lock() = None;
    bench.asked();
    bench.look_up("d");
    assert_eq!(bench.asked().len(), 1, "it may have been made");
    assert!(!bench.stat().keep, "and may yet be");
    bench.revoke_all();
    bench.stat();
    bench.list();
    bench.asked();
    bench.look_up("d");
    assert_eq!(bench.asked().len(), 1);
}

#[test]
fn a_target_without_the_extension_gets_its_lock_back_with_each_change() {
    let bench = Bench::new();
    bench.fixture.mdt.own_names.store(false, Ordering::Relaxed);
    bench.stat();
    bench.look_up("f");
    bench.look_up("f");
    assert_eq!(Bench::count(&bench.asked(), "MDS_READPAGE"), 0);
    let name = name("f");
    bench
        .run(|files| async move {
            let who = Fixture::root();
            files.make_node(&who, NodeId::ROOT, &name, 0o755, NewNode::Directory).await.map(|_| ())
        })
        .unwrap();
    let asked = bench.fixture.mdt.take_asked();
    let cancels = asked.iter().find_map(|request| match request {
        Request::MdsReintCreate(create) => create.dlm_req.as_ref(),
        _ => None,
    });
    assert_ne!(cancels.unwrap().counted(), [] as [LockHandle; 0]);
}
