//! Changes whose names and inodes lie on several MDTs.

use std::sync::Arc;
use std::time::Duration;

use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::Incarnation;
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, InodeBits, MdtIndex};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::{MdsOpenFlags, MdtBody, Valid};
use sheen_wire::messages::{MdsReintRename, MdsReintUnlink, Reply};
use sheen_wire::out::UpdateType;

use super::between::Between;
use super::harness::{Client, DIRECTORY, REGULAR, Server, run};
use super::several::{join_by, start};

const ROOT: Fid = Fid::ROOT;
/// The two requests that a change of one other MDT costs.
pub(super) const TWO: [&[UpdateType]; 2] =
    [&[UpdateType::EXCLUDE], &[UpdateType::RECORD, UpdateType::RELEASE]];

/// MDTs that make changes together, and a client of all.
pub(super) struct Scene {
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    /// From, to, and the way.
    ways: Vec<(usize, usize, Arc<Between>)>,
}

impl Scene {
    pub(super) async fn new(world: &TestWorld, mdts: usize) -> Self {
        let mut servers = Vec::new();
        for index in 0..mdts {
            let options = MemOptions { commits: Commits::Immediate, ..MemOptions::default() };
            servers.push(start(world, index as u16, Arc::new(StoreMem::new(options))).await);
        }
        let mut ways = Vec::new();
        for from in 0..mdts {
            for to in (0..mdts).filter(|to| *to != from) {
                ways.push((from, to, join_by(&servers[from], &servers[to]).await));
            }
        }
        let mut clients = Vec::new();
        for server in &servers {
            server.mdt.until_open().await;
            clients.push(server.client("c").await);
        }
        Self { servers, clients, ways }
    }

    /// What one MDT has asked another one since the last call.
    pub(super) fn sent(&self, from: usize, to: usize) -> Vec<Vec<UpdateType>> {
        let way = self.ways.iter().find(|(it, other, _)| (*it, *other) == (from, to));
        way.expect("a way").2.sent()
    }

    pub(super) fn way(&self, from: usize, to: usize) -> &Between {
        let way = self.ways.iter().find(|(it, other, _)| (*it, *other) == (from, to));
        &way.expect("a way").2
    }

    pub(super) fn forget_sent(&self) {
        self.ways.iter().for_each(|(.., way)| drop(way.sent()));
    }

    /// Which MDT an inode is on.
    pub(super) fn mdt_of(&self, fid: Fid) -> usize {
        // MDT0000 knows all ranges.
        let range = self.servers[0].mdt.sequences.find(fid.seq);
        range.expect("an MDT's").index as usize
    }

    /// A directory on this MDT, with a name wherever the parent is.
    pub(super) async fn mkdir(&self, mdt: usize, parent: Fid, name: &str) -> Fid {
        self.clients[mdt].mkdir(parent, name).await.expect("made")
    }

    /// Asks an MDT to remove what the client takes for this inode: the body of its answer.
    pub(super) async fn remove(
        &self,
        mdt: usize,
        (parent, name): (Fid, &str),
        inode: Fid,
        mode: u32,
    ) -> (Option<Errno>, MdtBody) {
        let client = &self.clients[mdt];
        let mut request: MdsReintUnlink = client.unlink_request(parent, name, mode);
        request.rec_reint.fid2 = inode;
        let call = TestCall::new(request).tagged(client.next_tag());
        let answer = client.inner.call_with(call).await.expect("an answer");
        match (answer.errno(), answer.reply) {
            (errno, Some(Reply::MdsReintUnlink(reply))) => (errno, reply.mdt_body.expect("one")),
            (errno, other) => panic!("{errno:?} {other:?}"),
        }
    }

    pub(super) async fn links(&self, mdt: usize, inode: Fid) -> Result<u32, Errno> {
        self.clients[mdt].getattr(inode).await.map(|body| body.nlink)
    }

    pub(super) async fn names(&self, mdt: usize, directory: Fid) -> Vec<String> {
        let entries = self.clients[mdt].readdir(directory, 1).await;
        let mut names: Vec<_> = entries.into_iter().map(|(name, _)| name).collect();
        names.retain(|name| name != "." && name != ".." && name != ".lustre");
        names.sort();
        names
    }

    /// Waits until nothing is left of any change.
    pub(super) async fn settle(&self, world: &TestWorld) {
        for _ in 0..8 {
            for client in &self.clients {
                client.wait(world, 3).await;
            }
        }
        for server in &self.servers {
            let target = &server.node.target;
            for mdt in 0..self.servers.len() {
                let incarnation = Incarnation { mdt: MdtIndex(mdt as u16), starts: 0 };
                let records = target.answer_recover(incarnation);
                assert_eq!(records.len(), 0, "{}: {records:?}", target.name());
            }
        }
    }
}

#[test]
fn a_directory_on_another_mdt_is_made_used_and_removed() {
    let world = TestWorld::new(420);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let before = scene.links(0, ROOT).await.expect("the root");
        scene.mkdir(1, ROOT, "first").await;
        scene.forget_sent();
        let directory = scene.mkdir(1, ROOT, "d").await;
        assert_eq!(scene.sent(1, 0), TWO);
        assert_eq!(scene.sent(0, 1), [] as [Vec<UpdateType>; 0]);
        assert_eq!(scene.links(1, directory).await, Ok(2));
        assert_eq!(scene.links(0, ROOT).await, Ok(before + 2));
        assert_eq!(scene.names(0, ROOT).await, ["d", "first"]);
        // MDT0000 has the name alone.
        let (_, found) = scene.clients[0].lookup(ROOT, "d").await;
        let body = found.mdt_body.expect("a body");
        assert_eq!((body.fid1, body.valid), (directory, Valid::ID | Valid::MDS));
        let lock = found.dlm_rep.expect("a lock");
        assert_eq!(lock.desc.policy.as_inode_bits().bits, InodeBits::LOOKUP.0);
        assert!(lock.policy_res1.contains(Disposition::LOOKUP_POS));
        // What is in it is MDT0001's.
        scene.clients[1].make(directory, "f", REGULAR | 0o644).await.expect("made");
        scene.mkdir(1, directory, "below").await;
        assert_eq!(scene.names(1, directory).await, ["below", "f"]);
        assert_eq!(scene.sent(1, 0), [] as [Vec<UpdateType>; 0]);
        let (errno, body) = scene.remove(0, (ROOT, "d"), Fid::ZERO, DIRECTORY).await;
        assert_eq!((errno, body.fid1), (Some(Errno::EREMOTE), directory));
        assert!(body.valid.contains(Valid::MDS));
        let full = scene.remove(1, (ROOT, "d"), directory, DIRECTORY).await;
        assert_eq!(full.0, Some(Errno::ENOTEMPTY));
        scene.clients[1].unlink(directory, "f").await.expect("removed");
        scene.clients[1].rmdir(directory, "below").await.expect("removed");
        scene.forget_sent();
        let (errno, body) = scene.remove(1, (ROOT, "d"), directory, DIRECTORY).await;
        assert_eq!((errno, body.fid1, body.nlink), (None, directory, 0));
        assert_eq!(scene.sent(1, 0), TWO);
        assert_eq!(scene.links(0, ROOT).await, Ok(before + 1));
        assert_eq!(scene.names(0, ROOT).await, ["first"]);
        assert_eq!(scene.links(1, directory).await, Err(Errno::ENOENT));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_name_is_removed_whose_inode_is_not_the_one_that_its_client_remembers() {
    let world = TestWorld::new(430);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let gone = scene.mkdir(1, ROOT, "d").await;
        assert_eq!(scene.remove(1, (ROOT, "d"), gone, DIRECTORY).await.0, None);
        let here = scene.mkdir(1, ROOT, "d").await;
        assert_eq!(scene.remove(1, (ROOT, "d"), gone, DIRECTORY).await.0, None);
        assert_eq!(scene.links(1, here).await, Err(Errno::ENOENT));
        // One of another MDT is named.
        let there = scene.mkdir(0, ROOT, "d").await;
        let (errno, body) = scene.remove(1, (ROOT, "d"), gone, DIRECTORY).await;
        assert_eq!((errno, body.fid1), (Some(Errno::EREMOTE), there));
        assert_eq!(scene.names(0, ROOT).await, ["d"]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let world = TestWorld::new(421);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        here.mkdir(ROOT, "taken").await.expect("made");
        assert_eq!(there.mkdir(ROOT, "taken").await, Err(Errno::EEXIST));
        let user = there.as_user(7, 7);
        let wished = super::striped::wish(1);
        let wished = super::striped::wishing(user.create_request(ROOT, "x", DIRECTORY), &wished);
        assert_eq!(user.modify(wished).await.map(drop), Err(Errno::EPERM));
        assert_eq!(user.mkdir(ROOT, "x").await, Err(Errno::EACCES), "placed by no wish");
        assert_eq!(there.symlink(ROOT, "x").await, Err(Errno::EOPNOTSUPP));
        assert_eq!(there.make(ROOT, "x", REGULAR | 0o644).await, Err(Errno::EOPNOTSUPP));
        let gone = here.next_fid();
        assert_eq!(there.mkdir(gone, "x").await, Err(Errno::ENOENT));
        let file = here.make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        assert_eq!(there.mkdir(file, "x").await, Err(Errno::ENOTDIR));
        let absent = scene.remove(1, (ROOT, "x"), there.next_fid(), DIRECTORY).await;
        assert_eq!(absent.0, Some(Errno::ENOENT));
        let unknown = scene.remove(1, (ROOT, "f"), Fid::ZERO, REGULAR).await;
        assert_eq!(unknown.0, Some(Errno::EREMOTE));
        // What the name stands for is not what the client thinks.
        let own = scene.mkdir(1, ROOT, "d").await;
        let (errno, body) = scene.remove(1, (ROOT, "f"), own, REGULAR).await;
        assert_eq!((errno, body.fid1), (Some(Errno::EREMOTE), file));
        let (errno, _) = scene.remove(1, (ROOT, "d"), own, REGULAR).await;
        assert_eq!(errno, Some(Errno::EISDIR));
        assert_eq!(there.link(own, ROOT, "x").await, Err(Errno::EXDEV), "not its name");
        assert_eq!(here.link(own, ROOT, "x").await, Err(Errno::EPERM));
        // All of these names are free.
        for name in ["x", "taken", "f", "d"] {
            let moved = here.rename((ROOT, name), (ROOT, "y")).await;
            let expected = if name == "x" { Err(Errno::ENOENT) } else { Ok(()) };
            assert_eq!(moved, expected, "{name}");
            if moved.is_ok() {
                here.rename((ROOT, "y"), (ROOT, name)).await.expect("moved back");
            }
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_file_has_names_on_two_mdts() {
    let world = TestWorld::new(422);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let directory = scene.mkdir(1, ROOT, "d").await;
        let file = scene.clients[0].make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        scene.forget_sent();
        scene.clients[1].link(file, directory, "g").await.expect("linked");
        assert_eq!(scene.sent(1, 0), TWO);
        assert_eq!(scene.links(0, file).await, Ok(2));
        assert_eq!(scene.clients[1].link(file, directory, "g").await, Err(Errno::EEXIST));
        assert_eq!(scene.names(1, directory).await, ["g"]);
        // Opened by the name that MDT0001 has, it is found on MDT0000.
        let opened = scene.clients[1].open(directory, "g", MdsOpenFlags::READ).await;
        let body = opened.expect("the name").body;
        assert_eq!((body.fid1, body.valid), (file, Valid::ID | Valid::MDS));
        // By either name, and then by the other one.
        let (errno, body) = scene.remove(1, (directory, "g"), Fid::ZERO, REGULAR).await;
        assert_eq!((errno, body.fid1), (Some(Errno::EREMOTE), file));
        let (errno, body) = scene.remove(0, (directory, "g"), file, REGULAR).await;
        assert_eq!((errno, body.fid1, body.nlink), (None, file, 1));
        assert_eq!(scene.names(1, directory).await, [] as [&str; 0]);
        scene.clients[1].link(file, directory, "h").await.expect("linked");
        scene.clients[0].unlink(ROOT, "f").await.expect("removed");
        assert_eq!(scene.links(0, file).await, Ok(1));
        let (errno, body) = scene.remove(0, (directory, "h"), file, REGULAR).await;
        assert_eq!((errno, body.nlink), (None, 0));
        assert_eq!(scene.links(0, file).await, Err(Errno::ENOENT));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// Asks an MDT to move a name: with a refusal, the inode that it names.
pub(super) async fn rename(
    client: &Client,
    from: (Fid, &str),
    to: (Fid, &str),
) -> Result<(), (Errno, Fid)> {
    let request: MdsReintRename = client.rename_request(from, to);
    let call = TestCall::new(request).tagged(client.next_tag());
    let answer = client.inner.call_with(call).await.expect("an answer");
    let Some(Reply::MdsReintRename(reply)) = &answer.reply else { panic!("{answer:?}") };
    let body = reply.mdt_body.clone().unwrap_or_default();
    let named = if body.valid.contains(Valid::MDS) { body.fid1 } else { Fid::ZERO };
    answer.errno().map_or(Ok(()), |errno| Err((errno, named)))
}

#[test]
fn files_move_from_mdt_to_mdt_and_replace() {
    let world = TestWorld::new(423);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let directory = scene.mkdir(1, ROOT, "d").await;
        let file = scene.clients[0].make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        let other = scene.clients[1].make(directory, "o", REGULAR | 0o644).await.expect("made");
        scene.forget_sent();
        scene.clients[1].rename((ROOT, "f"), (directory, "f")).await.expect("moved");
        let look = vec![UpdateType::INDEX_LOOKUP];
        assert_eq!(scene.sent(1, 0), [&[look][..], &TWO.map(<[_]>::to_vec)].concat());
        assert_eq!(scene.names(0, ROOT).await, ["d"]);
        assert_eq!(scene.names(1, directory).await, ["f", "o"]);
        assert_eq!(scene.links(0, file).await, Ok(1));
        // Within a directory of MDT0001, an inode of MDT0000.
        scene.clients[1].rename((directory, "f"), (directory, "g")).await.expect("moved");
        // What is replaced lies on MDT0001.
        let named = rename(&scene.clients[0], (directory, "g"), (directory, "o")).await;
        assert_eq!(named, Err((Errno::EXDEV, other)));
        scene.clients[1].rename((directory, "g"), (directory, "o")).await.expect("moved");
        assert_eq!(scene.names(1, directory).await, ["o"]);
        assert_eq!(scene.links(1, other).await, Err(Errno::ENOENT));
        // And now on MDT0000, with its name on MDT0001.
        scene.clients[0].make(ROOT, "new", REGULAR | 0o644).await.expect("made");
        let named = rename(&scene.clients[1], (ROOT, "new"), (directory, "o")).await;
        assert_eq!(named, Err((Errno::EXDEV, file)));
        scene.clients[0].rename((ROOT, "new"), (directory, "o")).await.expect("moved");
        assert_eq!(scene.links(0, file).await, Err(Errno::ENOENT));
        assert_eq!(scene.names(0, ROOT).await, ["d"]);
        let absent = rename(&scene.clients[1], (ROOT, "f"), (directory, "f")).await;
        assert_eq!(absent, Err((Errno::ENOENT, Fid::ZERO)));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn directories_move_and_never_into_themselves() {
    let world = TestWorld::new(424);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let one = scene.mkdir(1, ROOT, "one").await;
        let two = scene.mkdir(2, one, "two").await;
        let here = scene.mkdir(0, ROOT, "here").await;
        assert_eq!(scene.links(1, one).await, Ok(3));
        // A directory of MDT0002 from one of MDT0001 to one of MDT0000.
        scene.clients[0].rename((one, "two"), (here, "moved")).await.expect("moved");
        assert_eq!((scene.links(1, one).await, scene.links(0, here).await), (Ok(2), Ok(3)));
        assert_eq!(scene.names(0, here).await, ["moved"]);
        assert_eq!(scene.names(1, one).await, [] as [&str; 0]);
        let (_, up) = scene.clients[2].lookup(two, "..").await;
        assert_eq!(up.mdt_body.expect("a body").fid1, here);
        // `here` is above `two`, on whatever MDT that is asked.
        let circle = rename(&scene.clients[2], (ROOT, "here"), (two, "x")).await;
        assert_eq!(circle, Err((Errno::EINVAL, Fid::ZERO)));
        scene.clients[2].rename((ROOT, "one"), (two, "one")).await.expect("moved");
        let circle = rename(&scene.clients[1], (ROOT, "here"), (one, "x")).await;
        assert_eq!(circle, Err((Errno::EINVAL, Fid::ZERO)));
        // An empty one is replaced, a full one is not.
        let full = rename(&scene.clients[0], (here, "moved"), (ROOT, "here")).await;
        assert_eq!(full, Err((Errno::ENOTEMPTY, Fid::ZERO)));
        let empty = scene.mkdir(1, ROOT, "empty").await;
        let named = rename(&scene.clients[0], (here, "moved"), (ROOT, "empty")).await;
        assert_eq!(named, Err((Errno::EXDEV, empty)));
        scene.clients[1].rename((here, "moved"), (ROOT, "empty")).await.expect("moved");
        assert_eq!(scene.links(1, empty).await, Err(Errno::ENOENT));
        assert_eq!((scene.links(0, here).await, scene.links(2, two).await), (Ok(2), Ok(3)));
        assert_eq!(scene.names(0, ROOT).await, ["empty", "here"]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_request_that_is_sent_again_is_executed_once() {
    let world = TestWorld::new(425);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let client = &scene.clients[1];
        let request = client.create_request(ROOT, "d", DIRECTORY | 0o755);
        let fid = request.rec_reint.fid2;
        let tag = client.next_tag();
        let call = TestCall::new(request.clone()).tagged(tag);
        let answer = client.inner.call_with(call).await.expect("an answer");
        assert_eq!(answer.errno(), None);
        scene.forget_sent();
        let call = TestCall::new(request).tagged(tag).resent(answer.xid);
        let again = client.inner.call_with(call).await.expect("an answer");
        let Some(Reply::MdsReintCreate(reply)) = again.reply else { panic!("{again:?}") };
        assert_eq!(reply.mdt_body.map(|body| body.fid1), Some(fid));
        assert_eq!(again.head.transno, answer.head.transno);
        assert_eq!(scene.sent(1, 0), [] as [Vec<UpdateType>; 0]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn changes_of_the_same_names_by_way_of_two_mdts_wait_for_each_other() {
    let world = TestWorld::new(426);
    let inner = world.clone();
    let test = async move {
        let scene = Arc::new(Scene::new(&inner, 2).await);
        let there = scene.mkdir(1, ROOT, "there").await;
        let here = scene.mkdir(0, ROOT, "here").await;
        for at in 0..6 {
            scene.clients[at % 2]
                .mkdir([here, there][at % 2], &format!("n{at}"))
                .await
                .expect("made");
        }
        // Each name goes to and fro; a worker that is too late finds none.
        let mut ends = Vec::new();
        for worker in 0..8 {
            let (scene, ended) = (Arc::clone(&scene), Arc::new(tokio::sync::Notify::new()));
            ends.push(Arc::clone(&ended));
            let work = async move {
                for step in 0..12 {
                    let name = format!("n{}", (worker + step) % 6);
                    let (from, to) = if worker % 2 == 0 { (here, there) } else { (there, here) };
                    let mdt = usize::from(to == there);
                    let moved = rename(&scene.clients[mdt], (from, &name), (to, &name)).await;
                    assert!(matches!(moved, Ok(()) | Err((Errno::ENOENT, _))), "{moved:?}");
                }
                ended.notify_one();
            };
            inner.world().tasks.spawn("worker", Box::pin(work));
        }
        for ended in ends {
            ended.notified().await;
        }
        let mut names = [scene.names(0, here).await, scene.names(1, there).await].concat();
        names.sort();
        assert_eq!(names, ["n0", "n1", "n2", "n3", "n4", "n5"]);
        let links = scene.links(0, here).await.unwrap() + scene.links(1, there).await.unwrap();
        assert_eq!(links, 4 + 6);
        scene.settle(&inner).await;
        inner.sleep(Duration::from_secs(1)).await;
    };
    run(test, &world);
}

/// Exclusions wait for changes whose release must not wait behind them for a place among the requests in flight.
#[test]
fn many_changes_that_wait_for_each_other_at_another_mdt_all_end() {
    const CHANGES: usize = 24;
    let world = TestWorld::new(435);
    let inner = world.clone();
    let test = async move {
        let scene = Arc::new(Scene::new(&inner, 2).await);
        let from = scene.mkdir(1, ROOT, "from").await;
        let to = scene.mkdir(1, ROOT, "to").await;
        for at in 0..CHANGES {
            scene.clients[1].mkdir(from, &format!("d{at}")).await.expect("made");
        }
        let mut ends = Vec::new();
        for at in 0..CHANGES {
            let (scene, ended) = (Arc::clone(&scene), Arc::new(tokio::sync::Notify::new()));
            ends.push(Arc::clone(&ended));
            let work = async move {
                let (name, there) = (format!("d{at}"), &scene.clients[1]);
                // This name is MDT0000's, and so is the rename lock.
                assert_eq!(there.mkdir(ROOT, "to").await, Err(Errno::EEXIST));
                rename(there, (from, &name), (to, &name)).await.expect("moved");
                ended.notify_one();
            };
            inner.world().tasks.spawn("change", Box::pin(work));
        }
        for ended in ends {
            ended.notified().await;
        }
        assert_eq!(scene.names(1, from).await, [] as [String; 0]);
        assert_eq!(scene.names(1, to).await.len(), CHANGES);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// An MDT that has recovered without another one evicts it. That asks again, and no client hears of it.
#[test]
fn what_is_asked_of_an_mdt_that_evicts_meanwhile_is_asked_again() {
    for (at, kind) in [UpdateType::EXCLUDE, UpdateType::RELEASE].into_iter().enumerate() {
        for is_executed in [false, true] {
            let world = TestWorld::new(620 + at as u64);
            let inner = world.clone();
            let test = async move {
                let scene = Scene::new(&inner, 2).await;
                scene.mkdir(1, ROOT, "first").await;
                scene.settle(&inner).await;
                scene.way(1, 0).evict_at(kind, is_executed);
                // What is refused releases by a message of its own.
                let refused = scene.clients[1].mkdir(ROOT, "first").await;
                assert_eq!(refused.err(), Some(Errno::EEXIST), "{kind:?}");
                scene.settle(&inner).await;
                assert!(scene.way(1, 0).has_evicted(), "{kind:?}");
                for server in &scene.servers {
                    assert!(!server.mdt.has_exclusions(), "{kind:?}, executed: {is_executed}");
                }
                let made = scene.mkdir(1, ROOT, "second").await;
                let found = scene.clients[0].lookup(ROOT, "second").await;
                assert_eq!(found.1.mdt_body.expect("found").fid1, made);
            };
            run(test, &world);
        }
    }
}
