//! Directories that are split and merged while they are used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sheen_layout::directory::{
    DirectoryLayout, DirectoryWish, FORMER, Holder, former_with, read_former,
};
use sheen_store::{Store, Transaction};
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::futures::{BoxFuture, all};
use sheen_types::{Errno, Fid, Name};
use sheen_wire::lmv::LmvHash;
use sheen_wire::md::{AttrValid, MdtBody, RecSetattr, Valid};
use sheen_wire::messages::{MdsReintCreate, Reply};
use sheen_wire::out::UpdateType;

use super::checks::faults;
use super::harness::{Client, DIRECTORY, REGULAR, Server, run};
use super::lost_mdts::yield_times;
use super::over_mdts::Scene;
use super::striped::{wish, wishing};
use crate::coordinator::{Initiator, NameMoved};
use crate::directory::{Child, key, parse_key, value};
use crate::striped::layout_in;
use crate::xattrs::LMV;

const ROOT: Fid = Fid::ROOT;
const FNV: u32 = LmvHash::FNV_1A_64.0;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// The servers of a file system, as a look into their stores sees it.
pub(super) struct Stores<'a>(pub(super) &'a [Server]);

impl Stores<'_> {
    pub(super) fn mdt_of(&self, fid: Fid) -> usize {
        self.0[0].mdt.sequences.find(fid.seq).map_or(0, |range| range.index as usize)
    }

    fn store(&self, fid: Fid) -> &dyn Store {
        &*self.0[self.mdt_of(fid)].mdt.store
    }

    pub(super) fn child(&self, directory: Fid, text: &str) -> Option<Fid> {
        let mdt = &self.0[self.mdt_of(directory)].mdt;
        mdt.find(directory, &name(text)).expect("it can be read").map(|child| child.fid)
    }

    pub(super) fn layout(&self, directory: Fid) -> Option<DirectoryLayout> {
        layout_in(self.store(directory), directory).expect("it can be read")
    }

    pub(super) fn stripes(&self, directory: Fid) -> Vec<Fid> {
        match self.layout(directory).as_ref().map(DirectoryLayout::holder) {
            Some(Holder::Master { stripes, .. }) => stripes.to_vec(),
            _ => vec![directory],
        }
    }

    /// The names in a directory or stripe, each with its inode.
    pub(super) fn names_in(&self, stripe: Fid) -> Vec<(String, Fid)> {
        let entries = self.store(stripe).scan(stripe, &[], 10_000).expect("it can be read");
        let named = entries.into_iter().map(|entry| {
            let (_, name) = parse_key(&entry.key).expect("a name");
            let child = crate::directory::parse_value(&entry.value).expect("an inode");
            (String::from_utf8_lossy(&name).into_owned(), child.fid)
        });
        named.collect()
    }

    /// The names of a directory, each once and in the stripe to which it hashes, with inodes whose lists of names say so.
    pub(super) fn sound(&self, directory: Fid) -> BTreeMap<String, Fid> {
        let layout = self.layout(directory);
        let mut all = BTreeMap::new();
        for (number, stripe) in (0..).zip(self.stripes(directory)) {
            let mut subdirectories = 0;
            for (text, inode) in self.names_in(stripe) {
                if let Some(layout) = &layout {
                    let places = layout.places(text.as_bytes()).expect("known");
                    assert_eq!((places.now, places.before), (number, None), "{text} of {stripe}");
                }
                let mdt = &self.0[self.mdt_of(inode)].mdt;
                let links = mdt.links(inode).expect("it can be read").entries;
                let says = links.iter().any(|it| it.parent == stripe && it.name == text.as_bytes());
                assert!(says, "{text}: {inode} of {stripe} says {links:?}");
                subdirectories += u32::from(mdt.inode(inode).expect("it is there").is_directory());
                assert_eq!(all.insert(text, inode), None, "a name in two stripes");
            }
            let links = self.0[self.mdt_of(stripe)].mdt.inode(stripe).expect("it is there");
            assert_eq!(links.attributes.links, 2 + subdirectories, "{stripe}");
        }
        all
    }

    pub(super) fn are_at_rest(&self) -> bool {
        self.0.iter().all(|server| server.mdt.is_restriping() == Ok(false))
    }
}

impl Scene {
    fn stores(&self) -> Stores<'_> {
        Stores(&self.servers)
    }

    pub(super) fn allow_restripes(&self) {
        self.servers.iter().for_each(|server| server.mdt.restripe_directories(true));
    }

    /// Waits until nothing is left of any split or merge.
    async fn at_rest(&self, world: &TestWorld) {
        for _ in 0..600 {
            if self.stores().are_at_rest() {
                return;
            }
            world.sleep(Duration::from_millis(100)).await;
        }
        panic!("a split or merge does not end");
    }
}

/// mkdir of a name that is there.
pub(super) async fn restripe(
    client: &Client,
    parent: Fid,
    text: &str,
    wish: &DirectoryWish,
) -> Result<(Fid, MdtBody), (Errno, Option<MdtBody>)> {
    let request: MdsReintCreate =
        wishing(client.create_request(parent, text, DIRECTORY | 0o777), wish);
    let fid = request.rec_reint.fid2;
    let call = TestCall::new(request).tagged(client.next_tag());
    let answer = client.inner.call_with(call).await.expect("an answer");
    match (answer.errno(), answer.reply) {
        (None, Some(Reply::MdsReintCreate(reply))) => Ok((fid, reply.mdt_body.expect("a body"))),
        (Some(errno), Some(Reply::MdsReintCreate(reply))) => Err((errno, reply.mdt_body)),
        (Some(errno), _) => Err((errno, None)),
        other => panic!("{other:?}"),
    }
}

fn hash_of(layout: Option<&DirectoryLayout>) -> (u32, u32, u32) {
    let layout = layout.expect("it has one");
    (layout.hash().0, layout.version(), layout.stripe_count().get())
}

#[test]
fn a_name_moves_between_two_stripes_alone_and_once() {
    let world = TestWorld::new(900);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let request = scene.clients[0].create_request(ROOT, "d", DIRECTORY | 0o777);
        let master = request.rec_reint.fid2;
        scene.clients[0].modify(wishing(request, &wish(2))).await.expect("made");
        let stores = scene.stores();
        let at_rest = stores.layout(master).expect("it has one");
        let [first, second] = stores.stripes(master)[..] else { panic!("two") };
        let going =
            |number: &u32| at_rest.places(format!("f{number}").as_bytes()).expect("known").now == 1;
        let numbers: Vec<u32> = (0..20).filter(going).collect();
        for number in &numbers {
            let text = format!("f{number}");
            scene.clients[1].make(second, &text, REGULAR | 0o644).await.expect("made");
        }
        scene.clients[1]
            .mkdir(second, &format!("sub{}", name_to(&at_rest, "sub", 1)))
            .await
            .unwrap();
        // Written so that no task knows of it.
        let layout = at_rest.merge_to(LmvHash::FNV_1A_64, 1).expect("a merge");
        let of = |number| layout.of_stripe(number).expect("a stripe");
        for (fid, layout) in [(master, layout.clone()), (first, of(0)), (second, of(1))] {
            let mut transaction = Transaction::new();
            transaction.set_xattr(fid, LMV, layout.to_ea().encode());
            stores.store(fid).apply(transaction).expect("it is well");
        }
        let before = stores.names_in(second);
        // Either MDT may move it.
        for (index, (text, inode)) in before.iter().enumerate() {
            let server = &scene.servers[index % 2];
            let by = Initiator::Mdt(&server.node.target);
            let moved = async || server.mdt.move_name(by, master, &layout, &name(text)).await;
            let times = scene.clients[1].getattr(*inode).await.expect("there");
            assert_eq!(moved().await, Ok(NameMoved::Done));
            assert_eq!(moved().await, Ok(NameMoved::AlreadyThere));
            assert_eq!(
                (stores.child(first, text), stores.child(second, text)),
                (Some(*inode), None)
            );
            let after = scene.clients[1].getattr(*inode).await.expect("there");
            assert_eq!((times.ctime, times.nlink), (after.ctime, after.nlink));
        }
        let mdt = &scene.servers[0].mdt;
        let by = Initiator::Mdt(&scene.servers[0].node.target);
        let absent = name(&format!("no{}", name_to(&at_rest, "no", 1)));
        assert_eq!(mdt.move_name(by, master, &layout, &absent).await, Ok(NameMoved::Absent));
        let staying = name(&format!("at{}", name_to(&at_rest, "at", 0)));
        let found = mdt.move_name(by, master, &layout, &staying).await;
        assert_eq!(found, Ok(NameMoved::AlreadyThere));
        assert_eq!(scene.links(0, first).await, Ok(3));
        assert_eq!(scene.links(1, second).await, Ok(2));
        for (text, inode) in &before {
            let links = scene.servers[1].mdt.links(*inode).expect("it is there").entries;
            assert_eq!(links.len(), 1);
            assert_eq!((links[0].parent, &links[0].name[..]), (first, text.as_bytes()));
        }
        // An old layout moves nothing.
        let older = at_rest.merge_to(LmvHash::CRUSH, 1).expect("a merge").finished().expect("one");
        let older = older.split_to(LmvHash::CRUSH, &[second]).expect("a split");
        let text = before.iter().find(|(text, _)| {
            older.places(text.as_bytes()).is_ok_and(|places| places.before == Some(0))
        });
        let text = name(&text.expect("one").0);
        assert_eq!(mdt.move_name(by, master, &older, &text).await, Err(Errno::ESTALE));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// A number with which the name lies in this stripe.
fn name_to(layout: &DirectoryLayout, prefix: &str, stripe: u32) -> u32 {
    let is_there = |number: &u32| {
        let text = format!("{prefix}{number}");
        layout.places(text.as_bytes()).expect("known").now == stripe
    };
    (0..).find(is_there).expect("one")
}

#[test]
fn a_directory_is_split_and_merged_as_captured_and_keeps_its_inodes() {
    let world = TestWorld::new(901);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = scene.mkdir(0, ROOT, "d").await;
        let root_links = scene.links(0, ROOT).await.expect("the root");
        for number in 0..60 {
            here.make(d, &format!("f{number}"), REGULAR | 0o644).await.expect("made");
        }
        here.mkdir(d, "sub").await.expect("made");
        there.mkdir(d, "far").await.expect("made");
        here.setxattr(d, "user.color", Some(b"green"), 0).await.expect("set");
        // It may have been another directory once.
        let older = Fid::new(0x2_4000_0400, 0x77);
        let mut known = Transaction::new();
        known.set_xattr(d, FORMER, former_with(older, &[]));
        scene.servers[0].store.apply(known).expect("applied");
        let before = scene.stores().sound(d);
        // Off, as in Lustre.
        let refused = restripe(here, ROOT, "d", &wish(2)).await.map(drop);
        assert_eq!(refused.unwrap_err().0, Errno::EEXIST);
        scene.allow_restripes();
        // Another MDT than that of the directory names it.
        let (errno, body) = restripe(there, ROOT, "d", &wish(2)).await.unwrap_err();
        let body = body.expect("a body");
        assert_eq!((errno, body.fid1), (Errno::EREMOTE, d));
        assert!(body.valid.contains(Valid::MDS));
        assert_eq!(restripe(here, ROOT, "d", &wish(1)).await.unwrap_err().0, Errno::EALREADY);
        assert_eq!(restripe(here, ROOT, "d", &wish(3)).await.unwrap_err().0, Errno::E2BIG);
        let user = here.as_user(7, 7);
        assert_eq!(restripe(&user, ROOT, "d", &wish(2)).await.unwrap_err().0, Errno::EPERM);
        here.make(ROOT, "file", REGULAR | 0o644).await.expect("made");
        assert_eq!(restripe(here, ROOT, "file", &wish(2)).await.unwrap_err().0, Errno::ENOTDIR);

        let (asked, body) = restripe(here, ROOT, "d", &wish(2)).await.expect("begun");
        assert_eq!(body.fid1, asked, "the new master");
        let master = asked;
        let stores = scene.stores();
        let begun = stores.layout(master);
        let flags = LmvHash::MIGRATION | LmvHash::SPLIT;
        assert_eq!(hash_of(begun.as_ref()), (FNV | flags, 3, 2));
        assert_eq!(stores.stripes(master)[0], d);
        assert_eq!(stores.child(ROOT, "d"), Some(master));
        assert_eq!(restripe(here, ROOT, "d", &wish(1)).await.unwrap_err().0, Errno::EBUSY);
        assert_eq!(here.getxattr(master, "user.color").await.as_deref(), Ok(&b"green"[..]));
        assert_eq!(here.getxattr(d, "user.color").await, Err(Errno::ENODATA));
        let former = here.getxattr(master, FORMER).await.expect("it was another one");
        assert_eq!(read_former(&former), [d, older]);
        assert_eq!(here.getxattr(d, FORMER).await, Err(Errno::ENODATA));
        scene.at_rest(&inner).await;
        assert_eq!(hash_of(stores.layout(master).as_ref()), (FNV, 4, 2));
        for (number, stripe) in (0..).zip(stores.stripes(master)) {
            let of = stores.layout(stripe).expect("it has one");
            assert_eq!(*of.holder(), Holder::Stripe { number });
            assert_eq!(hash_of(Some(&of)), (FNV, 4, 2));
            assert!(stores.names_in(stripe).len() > 10, "{stripe}");
        }
        assert_eq!(stores.sound(master), before);
        assert_eq!(scene.links(0, ROOT).await, Ok(root_links));

        let (_, body) = restripe(here, ROOT, "d", &wish(1)).await.expect("begun");
        assert_eq!(body.fid1, master, "it stays");
        let left = stores.stripes(master)[1];
        let flags = LmvHash::MIGRATION | LmvHash::MERGE | LmvHash::FIXED;
        assert_eq!(hash_of(stores.layout(master).as_ref()), (FNV | flags, 5, 2));
        scene.at_rest(&inner).await;
        assert_eq!(hash_of(stores.layout(master).as_ref()), (FNV | LmvHash::FIXED, 6, 1));
        assert_eq!(stores.stripes(master), [d]);
        assert_eq!(stores.sound(master), before);
        assert_eq!(scene.links(1, left).await, Err(Errno::ENOENT));
        assert_eq!(stores.names_in(master).len(), 1, "the name of its stripe alone");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// A client that knows no locks: it looks where a name is, and asks again where an answer says that it is elsewhere.
struct Program<'a> {
    scene: &'a Scene,
    world: &'a TestWorld,
}

impl Program<'_> {
    fn places(&self, text: &str) -> Vec<Fid> {
        let stores = self.scene.stores();
        let directory = stores.child(ROOT, "d").expect("it is there");
        let Some(layout) = stores.layout(directory) else { return vec![directory] };
        let places = layout.places(text.as_bytes()).expect("known");
        let stripes = stores.stripes(directory);
        let both = [Some(places.now), places.before];
        both.into_iter().flatten().map(|number| stripes[number as usize]).collect()
    }

    async fn pause(&self) {
        self.world.sleep(Duration::from_millis(3)).await;
    }

    async fn create(&self, text: &str) -> Fid {
        loop {
            let stripe = self.places(text)[0];
            let client = &self.scene.clients[self.scene.stores().mdt_of(stripe)];
            match client.make(stripe, text, REGULAR | 0o644).await {
                Ok(_) => return self.find(text).await,
                Err(Errno::ESTALE | Errno::ENOENT) => self.pause().await,
                Err(errno) => panic!("{text}: {errno}"),
            }
        }
    }

    async fn find(&self, text: &str) -> Fid {
        loop {
            let found =
                self.places(text).into_iter().find_map(|it| self.scene.stores().child(it, text));
            match found {
                Some(fid) => return fid,
                None => self.pause().await,
            }
        }
    }

    async fn is_taken(&self, text: &str) {
        loop {
            let stripe = self.places(text)[0];
            let client = &self.scene.clients[self.scene.stores().mdt_of(stripe)];
            match client.make(stripe, text, REGULAR | 0o644).await.map(drop) {
                Err(Errno::EEXIST) => return,
                Err(Errno::ESTALE | Errno::ENOENT) => self.pause().await,
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    async fn unlink(&self, text: &str, inode: Fid) {
        loop {
            for stripe in self.places(text) {
                let mdt = self.scene.stores().mdt_of(inode);
                match self.scene.remove(mdt, (stripe, text), inode, REGULAR).await.0 {
                    None => return,
                    Some(Errno::ESTALE | Errno::ENOENT) => self.pause().await,
                    Some(errno) => panic!("{text}: {errno}"),
                }
            }
        }
    }

    async fn rename(&self, old: &str, new: &str) {
        loop {
            for from in self.places(old) {
                let to = self.places(new)[0];
                let client = &self.scene.clients[self.scene.stores().mdt_of(to)];
                match client.rename((from, old), (to, new)).await {
                    Ok(_) => return,
                    Err(Errno::ESTALE | Errno::ENOENT) => self.pause().await,
                    Err(errno) => panic!("{old}, {new}: {errno}"),
                }
            }
        }
    }

    /// Makes, renames and removes names of its own; those that are left.
    async fn work(&self, own: usize, rounds: usize) -> BTreeMap<String, Fid> {
        let mut left = BTreeMap::new();
        for round in 0..rounds {
            let text = format!("p{own}n{round}");
            let fid = self.create(&text).await;
            self.is_taken(&text).await;
            match round % 3 {
                0 => {
                    let new = format!("p{own}r{round}");
                    self.rename(&text, &new).await;
                    left.insert(new, fid);
                }
                1 => self.unlink(&text, fid).await,
                _ => drop(left.insert(text, fid)),
            }
        }
        for (text, fid) in &left {
            assert_eq!(self.find(text).await, *fid, "{text}");
        }
        left
    }
}

fn is_used_meanwhile(seed: u64, mdts: usize) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let test = async move {
        let scene = Arc::new(Scene::new(&inner, mdts).await);
        scene.allow_restripes();
        let d = scene.mkdir(0, ROOT, "d").await;
        let mut expected = BTreeMap::new();
        for number in 0..50 {
            let text = format!("f{number}");
            scene.clients[0].make(d, &text, REGULAR | 0o644).await.expect("made");
            expected.insert(text.clone(), scene.stores().child(d, &text).expect("there"));
        }
        let mut count = 0;
        for stripes in [mdts as u32, 1, 2] {
            let program = Program { scene: &scene, world: &inner };
            let works = (0..4).map(|own| {
                let program = &program;
                async move { program.work(count + own, 12).await }
            });
            let works: Vec<_> = works.collect();
            let begin = async {
                inner.sleep(Duration::from_millis(5)).await;
                restripe(&scene.clients[0], ROOT, "d", &wish(stripes)).await.expect("begun");
                BTreeMap::new()
            };
            let mut running: Vec<BoxFuture<'_, BTreeMap<String, Fid>>> = Vec::new();
            running.extend(works.into_iter().map(|work| Box::pin(work) as _));
            running.push(Box::pin(begin));
            all(running).await.into_iter().for_each(|left| expected.extend(left));
            count += 4;
            scene.at_rest(&inner).await;
            let directory = scene.stores().child(ROOT, "d").expect("it is there");
            assert_eq!(scene.stores().stripes(directory).len(), stripes as usize);
            assert_eq!(scene.stores().sound(directory), expected);
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn each_name_is_there_once_while_a_directory_in_use_is_split_and_merged() {
    (910..914).for_each(|seed| is_used_meanwhile(seed, 2));
    (914..916).for_each(|seed| is_used_meanwhile(seed, 3));
}

#[test]
fn a_directory_that_is_split_or_merged_is_removed_only_when_it_is_empty() {
    let world = TestWorld::new(902);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        scene.allow_restripes();
        let d = scene.mkdir(0, ROOT, "d").await;
        scene.clients[0].make(d, "f1", REGULAR | 0o644).await.expect("made");
        let (_, body) = restripe(&scene.clients[0], ROOT, "d", &wish(2)).await.expect("begun");
        let master = body.fid1;
        let full = scene.remove(0, (ROOT, "d"), master, DIRECTORY).await;
        assert_eq!(full.0, Some(Errno::ENOTEMPTY));
        let stripes = scene.stores().stripes(master);
        let program = Program { scene: &scene, world: &inner };
        let file = program.find("f1").await;
        program.unlink("f1", file).await;
        let gone = scene.remove(0, (ROOT, "d"), master, DIRECTORY).await;
        assert_eq!(gone.0, None);
        for fid in stripes.into_iter().chain([master]) {
            assert_eq!(scene.links(scene.mdt_of(fid), fid).await, Err(Errno::ENOENT), "{fid}");
        }
        scene.at_rest(&inner).await;
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_directory_with_many_names_is_split_by_itself() {
    let world = TestWorld::new(903);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let d = scene.mkdir(0, ROOT, "d").await;
        for server in &scene.servers {
            server.mdt.change_restripe_settings(|settings| {
                settings.set_split_count(40).expect("it may be");
                settings.set_split_delta(1).expect("it may be");
            });
        }
        let program = Program { scene: &scene, world: &inner };
        for number in 0..60 {
            program.create(&format!("a{number}")).await;
        }
        inner.sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.stores().child(ROOT, "d"), Some(d), "it is off");
        scene.servers.iter().for_each(|server| server.mdt.split_directories(true));
        let mut widths = Vec::new();
        for round in 0..4 {
            for number in 0..40 {
                program.create(&format!("b{round}x{number}")).await;
            }
            scene.at_rest(&inner).await;
            let directory = scene.stores().child(ROOT, "d").expect("it is there");
            assert_eq!(scene.stores().sound(directory).len(), 60 + 40 * (round + 1));
            widths.push(scene.stores().stripes(directory).len());
        }
        assert_eq!(widths.last(), Some(&3), "{widths:?}");
        assert!(widths.is_sorted(), "{widths:?}");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// What a check of the stores finds, as they are now.
fn found_by_a_check(scene: &Scene) {
    let stores: Vec<_> = scene.servers.iter().map(|server| Arc::clone(&server.store)).collect();
    assert_eq!(faults(&stores), []);
}

#[test]
fn a_chmod_beside_splits_and_merges_changes_all_stripes() {
    let world = TestWorld::new(905);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        scene.allow_restripes();
        let random = |below: u64| inner.world().random.number() % below;
        for round in 0..10 {
            let text = format!("d{round}");
            let d = scene.mkdir(0, ROOT, &text).await;
            for (number, stripes) in [2, 3, 1].into_iter().enumerate() {
                let mode = 0o700 + number as u32 + 1;
                let split = async {
                    yield_times(random(12)).await;
                    let begun = restripe(&scene.clients[0], ROOT, &text, &wish(stripes)).await;
                    assert_eq!(begun.map(drop).map_err(|it| it.0), Ok(()));
                };
                let change = async {
                    yield_times(random(12)).await;
                    loop {
                        let directory = scene.stores().child(ROOT, &text).expect("it is there");
                        let valid = AttrValid::MODE | AttrValid::CTIME;
                        let set = |it: &mut RecSetattr| it.mode = mode;
                        match scene.clients[0].setattr(directory, valid, set).await {
                            Ok(_) => return,
                            Err(Errno::ESTALE) => inner.sleep(Duration::from_millis(1)).await,
                            Err(errno) => panic!("{errno}"),
                        }
                    }
                };
                let both: Vec<BoxFuture<'_, ()>> = vec![Box::pin(split), Box::pin(change)];
                all(both).await;
                let directory = scene.stores().child(ROOT, &text).expect("it is there");
                let of = |fid: Fid| scene.stores().store(fid).recorded_attributes(fid);
                let stripes = scene.stores().stripes(directory);
                for fid in stripes.into_iter().chain([directory]) {
                    let permissions = of(fid).expect("it is there").permissions;
                    assert_eq!(permissions, mode, "{fid} of {directory}, once {d}");
                }
                scene.at_rest(&inner).await;
            }
        }
        scene.settle(&inner).await;
        found_by_a_check(&scene);
    };
    run(test, &world);
}

#[test]
fn nothing_is_left_of_a_directory_that_is_removed_beside_its_split() {
    let world = TestWorld::new(906);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        scene.allow_restripes();
        let random = |below: u64| inner.world().random.number() % below;
        for round in 0..24 {
            let text = format!("d{round}");
            let d = scene.mkdir(0, ROOT, &text).await;
            if round % 2 == 1 {
                restripe(&scene.clients[0], ROOT, &text, &wish(2)).await.expect("begun");
                scene.at_rest(&inner).await;
            }
            let split = async {
                yield_times(random(12)).await;
                // Without the directory it is the wish of a new one.
                let begun = restripe(&scene.clients[0], ROOT, &text, &wish(3)).await;
                assert!(matches!(begun, Ok(_) | Err((Errno::ENOENT, _))), "{begun:?}");
            };
            let remove = async {
                yield_times(random(12)).await;
                let directory = scene.stores().child(ROOT, &text).unwrap_or(d);
                let errno = scene.remove(0, (ROOT, &text), directory, DIRECTORY).await.0;
                assert_eq!(errno, None);
            };
            let both: Vec<BoxFuture<'_, ()>> = vec![Box::pin(split), Box::pin(remove)];
            all(both).await;
            scene.at_rest(&inner).await;
            if let Some(directory) = scene.stores().child(ROOT, &text) {
                let again = scene.remove(0, (ROOT, &text), directory, DIRECTORY).await;
                assert_eq!(again.0, None);
            }
        }
        scene.at_rest(&inner).await;
        scene.settle(&inner).await;
        found_by_a_check(&scene);
        assert_eq!(scene.names(0, ROOT).await, [] as [&str; 0]);
        // Its name is elsewhere: the removal has looked at two stripes when the third one comes.
        let above = scene.mkdir(1, ROOT, "above").await;
        scene.mkdir(0, above, "d").await;
        let here = &scene.clients[0];
        let (master, _) = restripe(here, above, "d", &wish(2)).await.expect("begun");
        scene.at_rest(&inner).await;
        scene.way(0, 1).hold(Some(UpdateType::EXCLUDE));
        let split = async {
            restripe(here, above, "d", &wish(3)).await.expect("begun");
        };
        let remove = async {
            inner.sleep(Duration::from_millis(100)).await;
            assert_eq!(scene.remove(0, (above, "d"), master, DIRECTORY).await.0, None);
        };
        let carry_on = async {
            inner.sleep(Duration::from_millis(200)).await;
            scene.way(0, 1).hold(None);
        };
        let three: Vec<BoxFuture<'_, ()>> =
            vec![Box::pin(split), Box::pin(remove), Box::pin(carry_on)];
        all(three).await;
        scene.at_rest(&inner).await;
        scene.settle(&inner).await;
        found_by_a_check(&scene);
        assert_eq!(scene.names(1, above).await, [] as [&str; 0]);
    };
    run(test, &world);
}

#[test]
fn names_are_added_and_found_absent_at_once_while_stripes_are_through() {
    let world = TestWorld::new(907);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        scene.allow_restripes();
        let d = scene.mkdir(0, ROOT, "d").await;
        for number in 0..20 {
            scene.clients[0].make(d, &format!("f{number}"), REGULAR | 0o644).await.expect("made");
        }
        // The MDT of the master is not answered how far the stripes elsewhere are.
        scene.way(0, 1).hold(Some(UpdateType::XATTR_GET));
        restripe(&scene.clients[0], ROOT, "d", &wish(3)).await.expect("begun");
        inner.sleep(Duration::from_secs(5)).await;
        let stores = scene.stores();
        let directory = stores.child(ROOT, "d").expect("it is there");
        let layout = stores.layout(directory).expect("it has one");
        assert!(layout.is_restriping());
        let stripes = stores.stripes(directory);
        for stripe in &stripes {
            assert!(stores.layout(*stripe).is_some_and(|layout| layout.is_through()), "{stripe}");
        }
        // Names that were in the first stripe by the layout of before, and hash to one that is new.
        let moving = (0..).map(|number| format!("new{number}")).filter(|text| {
            layout.places(text.as_bytes()).is_ok_and(|places| places.before.is_some())
        });
        let names: Vec<String> = moving.take(8).collect();
        for text in &names {
            let places = layout.places(text.as_bytes()).expect("known");
            let (now, before) = (stripes[places.now as usize], stripes[0]);
            let client = &scene.clients[stores.mdt_of(now)];
            for stripe in [before, now] {
                let (_, looked) = scene.clients[stores.mdt_of(stripe)].lookup(stripe, text).await;
                let status = looked.dlm_rep.expect("an answer").policy_res2 as u32 as i32;
                assert_eq!(Errno::from_status(status), None, "{text} in {stripe}: absent");
            }
            let wrong = scene.clients[0].make(before, text, REGULAR | 0o644).await;
            assert_eq!(wrong.map(drop), Err(Errno::ESTALE), "not where it was");
            let file = client.make(now, text, REGULAR | 0o644).await.expect("made");
            client.unlink(now, text).await.expect("removed");
            client.mkdir(now, text).await.expect("made");
            client.rmdir(now, text).await.expect("removed");
            let source = scene.clients[0].make(ROOT, "source", REGULAR | 0o644).await;
            let source = source.expect("made");
            client.link(source, now, text).await.expect("linked");
            let from = scene.clients[0].rename((ROOT, "source"), (ROOT, "renamed")).await;
            from.expect("renamed");
            scene
                .remove(0, (now, text), source, REGULAR)
                .await
                .0
                .map_or(Ok(()), Err)
                .expect("gone");
            client.rename((ROOT, "renamed"), (now, text)).await.expect("renamed");
            assert_eq!(stores.child(now, text), Some(source), "not {file}");
        }
        scene.way(0, 1).hold(None);
        scene.at_rest(&inner).await;
        assert_eq!(stores.sound(directory).len(), 28);
        scene.settle(&inner).await;
        found_by_a_check(&scene);
    };
    run(test, &world);
}

#[test]
fn a_split_ends_while_programs_make_names_without_a_pause() {
    let world = TestWorld::new(908);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        scene.allow_restripes();
        let d = scene.mkdir(0, ROOT, "d").await;
        for number in 0..20 {
            scene.clients[0].make(d, &format!("f{number}"), REGULAR | 0o644).await.expect("made");
        }
        let began = inner.world().clock.now();
        restripe(&scene.clients[0], ROOT, "d", &wish(2)).await.expect("begun");
        let program = Program { scene: &scene, world: &inner };
        let makers = (0..16).map(|own| {
            let program = &program;
            let scene = &scene;
            let inner = &inner;
            async move {
                for number in 0..4_000 {
                    if scene.stores().are_at_rest() {
                        return number;
                    }
                    program.create(&format!("p{own}n{number}")).await;
                    // A message takes a moment.
                    inner.sleep(Duration::from_micros(20)).await;
                }
                panic!("it does not end")
            }
        });
        let made: usize = all(makers.collect()).await.into_iter().sum();
        let took = inner.world().clock.now().since(began);
        assert!(took < Duration::from_secs(10), "{took:?}");
        let directory = scene.stores().child(ROOT, "d").expect("it is there");
        assert_eq!(scene.stores().sound(directory).len(), 20 + made);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_directory_is_split_by_its_owner_and_not_by_itself_where_that_was_said() {
    let world = TestWorld::new(909);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        scene.allow_restripes();
        let mdt = &scene.servers[0].mdt;
        mdt.set_remote_directories_gid(u32::MAX);
        let d = scene.mkdir(0, ROOT, "d").await;
        let user = scene.clients[0].as_user(7, 7);
        assert_eq!(restripe(&user, ROOT, "d", &wish(2)).await.unwrap_err().0, Errno::EPERM);
        let owner = AttrValid::UID | AttrValid::CTIME;
        scene.clients[0].setattr(d, owner, |it| it.uid = 7).await.expect("changed");
        restripe(&user, ROOT, "d", &wish(2)).await.expect("begun");
        scene.at_rest(&inner).await;
        restripe(&user, ROOT, "d", &wish(1)).await.expect("begun");
        scene.at_rest(&inner).await;
        scene.servers.iter().for_each(|server| {
            server.mdt.change_restripe_settings(|settings| {
                settings.set_split_count(10).expect("it may be");
                settings.splits_automatically = true;
            });
        });
        let program = Program { scene: &scene, world: &inner };
        for number in 0..40 {
            program.create(&format!("f{number}")).await;
        }
        inner.sleep(Duration::from_secs(2)).await;
        let directory = scene.stores().child(ROOT, "d").expect("it is there");
        assert_eq!(scene.stores().stripes(directory).len(), 1, "as it was wished");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn names_that_lead_nowhere_move_with_a_directory_that_is_split() {
    let world = TestWorld::new(899);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        scene.allow_restripes();
        let d = scene.mkdir(0, ROOT, "d").await;
        // One whose inode is lost, and one of a sequence that no MDT has.
        let lost = Fid { oid: 77_777, ..d };
        let unknown = Fid::new(0x7_0000_0000, 5);
        let stores = scene.stores();
        for number in 0..20 {
            let fid = if number % 2 == 0 { lost } else { unknown };
            let child = Child { fid, kind: sheen_store::FileKind::Regular };
            let mut transaction = Transaction::new();
            transaction.insert(d, key(format!("f{number}").as_bytes()), value(child));
            stores.store(d).apply(transaction).expect("it is well");
        }
        restripe(&scene.clients[0], ROOT, "d", &wish(2)).await.expect("begun");
        scene.at_rest(&inner).await;
        let directory = stores.child(ROOT, "d").expect("it is there");
        let [first, second] = stores.stripes(directory)[..] else { panic!("two") };
        let (here, there) = (stores.names_in(first), stores.names_in(second));
        assert_eq!(here.len() + there.len(), 20);
        assert!(there.iter().any(|it| it.1 == lost) && there.iter().any(|it| it.1 == unknown));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_directory_is_split_over_mdts_that_have_not_heard_of_its_sequence() {
    let world = TestWorld::new(898);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        scene.allow_restripes();
        let d = scene.mkdir(2, ROOT, "d").await;
        for number in 0..20 {
            scene.clients[2].make(d, &format!("f{number}"), REGULAR | 0o644).await.expect("made");
        }
        assert!(scene.servers[1].mdt.sequences.find(d.seq).is_none(), "it came before MDT0002");
        restripe(&scene.clients[2], ROOT, "d", &wish(3)).await.expect("begun");
        scene.at_rest(&inner).await;
        let directory = scene.stores().child(ROOT, "d").expect("it is there");
        assert_eq!(scene.stores().sound(directory).len(), 20);
        scene.settle(&inner).await;
    };
    run(test, &world);
}
