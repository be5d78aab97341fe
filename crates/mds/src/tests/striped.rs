//! Directories with stripes on several MDTs.

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder, WishedStripes};
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, MdtIndex, ResourceName};
use sheen_wire::dir::DirPage;
use sheen_wire::lmv::{LmvEa, LmvHash, LmvMagic};
use sheen_wire::md::{AttrValid, MdsOpenFlags, MdtBody, RecSetattr, ReintOp, Valid};
use sheen_wire::messages::{MdsGetattr, MdsReadpage, MdsReintCreate, MdsReintSetattr, Reply};
use sheen_wire::out::UpdateType;

use super::harness::{Client, DIRECTORY, REGULAR, run};
use super::over_mdts::Scene;
use super::rights::acl;

const ROOT: Fid = Fid::ROOT;

pub(super) fn wish(count: u32) -> DirectoryWish {
    let count = std::num::NonZeroU32::new(count).expect("some");
    DirectoryWish { stripes: WishedStripes::Count(count), ..DirectoryWish::default() }
}

pub(super) fn wishing(mut request: MdsReintCreate, wish: &DirectoryWish) -> MdsReintCreate {
    request.eadata = wish.to_ea().encode();
    // MDS_MKDIR_LMV.
    request.rec_reint.set_flags(MdsOpenFlags::RESYNC);
    request
}

/// Makes a directory with a wish: its FID, and the answer.
async fn make(
    client: &Client,
    parent: Fid,
    name: &str,
    wish: &DirectoryWish,
) -> Result<(Fid, MdtBody, Bytes), Errno> {
    let request = wishing(client.create_request(parent, name, DIRECTORY | 0o777), wish);
    let fid = request.rec_reint.fid2;
    match client.modify(request).await? {
        Reply::MdsReintCreate(reply) => Ok((fid, reply.mdt_body.expect("a body"), reply.mdt_md)),
        other => panic!("{other:?}"),
    }
}

fn layout(bytes: &Bytes) -> DirectoryLayout {
    DirectoryLayout::from_ea(&LmvEa::decode(bytes).expect("a layout")).expect("a layout")
}

fn stripes(layout: &DirectoryLayout) -> Vec<Fid> {
    match layout.holder() {
        Holder::Master { stripes, .. } => stripes.to_vec(),
        Holder::Stripe { .. } => panic!("a stripe"),
    }
}

/// A directory with stripes, and on which MDT each is.
struct Striped {
    master: Fid,
    layout: DirectoryLayout,
    stripes: Vec<(usize, Fid)>,
}

impl Striped {
    async fn make(
        scene: &Scene,
        mdt: usize,
        parent: Fid,
        name: &str,
        wish: &DirectoryWish,
    ) -> Self {
        let made = make(&scene.clients[mdt], parent, name, wish).await.expect("made");
        let (master, _, bytes) = made;
        let layout = layout(&bytes);
        let of = |fid: &Fid| (scene.mdt_of(*fid), *fid);
        let stripes = stripes(&layout).iter().map(of).collect();
        Self { master, layout, stripes }
    }

    fn place(&self, name: &str) -> (usize, Fid) {
        self.stripes[self.layout.places(name.as_bytes()).expect("known").now as usize]
    }

    /// A name that lies on this MDT.
    fn name_on(&self, mdt: usize, prefix: &str) -> String {
        let names = (0..).map(|n| format!("{prefix}{n}"));
        let mut found = names.filter(|name| self.place(name).0 == mdt);
        found.next().expect("a name")
    }
}

/// What an MDT answers who asks for the layout, without a lock.
async fn getattr(client: &Client, fid: Fid, valid: Valid) -> (MdtBody, Bytes) {
    let mdt_body = MdtBody { fid1: fid, valid, eadatasize: 448, ..MdtBody::default() };
    let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
    let answer = client.inner.call_with(TestCall::new(request)).await.expect("an answer");
    match answer.reply {
        Some(Reply::MdsGetattr(reply)) => (reply.mdt_body.expect("a body"), reply.mdt_md),
        other => panic!("{other:?}"),
    }
}

/// What a listing of a directory says that `..` is.
async fn dot_dot(client: &Client, directory: Fid) -> Fid {
    let mdt_body = MdtBody { nlink: 4096, ..client.body(directory) };
    let answer = client.inner.call(MdsReadpage { mdt_body, ..Default::default() }).await;
    let page = DirPage::decode(&answer.bulk.slice(..4096)).expect("a page");
    page.entries.iter().find(|entry| &entry.name[..] == b"..").expect("it is there").fid
}

#[test]
fn a_directory_with_stripes_is_made_and_its_layout_is_answered() {
    let world = TestWorld::new(460);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let before = scene.links(0, ROOT).await.expect("the root");
        let (client, asked) = (&scene.clients[1], wish(2));
        let (master, body, bytes) = make(client, ROOT, "d", &asked).await.expect("made");
        assert!(body.valid.contains(Valid::MEA | Valid::DIREA) && body.fid1 == master);
        assert_eq!((body.eadatasize, bytes.len()), (88, 88));
        let found = layout(&bytes);
        assert_eq!((found.hash(), found.version()), (LmvHash::FNV_1A_64, 1));
        let Holder::Master { mdt, stripes } = found.holder() else { panic!("{found:?}") };
        assert_eq!((*mdt, stripes.len()), (MdtIndex(1), 2));
        // The first one is beside the master, an object of its own.
        assert_eq!(stripes.iter().map(|fid| scene.mdt_of(*fid)).collect::<Vec<_>>(), [1, 0]);
        assert!(!stripes.contains(&master));
        // By a getattr, an intent and an open.
        let (body, md) = getattr(client, master, Valid::ID | Valid::MEA | Valid::DEFAULT_MEA).await;
        assert_eq!((body.eadatasize, &md), (88, &bytes));
        let (_, silent) = getattr(client, master, Valid::ID).await;
        assert!(silent.is_empty(), "not asked for");
        let opened = client.open_fid(master, MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY).await;
        let opened = opened.expect("opened");
        assert_eq!((opened.layout, opened.body.eadatasize), (bytes.clone(), 88));
        assert!(opened.body.valid.contains(Valid::MEA));
        assert_eq!(client.getxattr(master, "trusted.lmv").await, Ok(bytes));
        for (number, stripe) in (0..).zip(stripes) {
            let mdt = scene.mdt_of(*stripe);
            let (body, md) = getattr(&scene.clients[mdt], *stripe, Valid::ID | Valid::MEA).await;
            assert_eq!((body.nlink, body.mode, md.len()), (2, 0o040_755, 56));
            let LmvEa::Stripes { header, fids } = LmvEa::decode(&md).expect("one") else {
                panic!("{md:?}")
            };
            assert_eq!((header.magic, header.master_mdt_index), (LmvMagic::STRIPE, number));
            assert!(fids.is_empty() && header.stripe_count == 2);
            let link = scene.servers[mdt].mdt.links(*stripe).expect("it is there");
            assert_eq!(link.entries.len(), 1);
            assert_eq!(link.entries[0].parent, master);
            assert_eq!(&link.entries[0].name[..], format!("{stripe}:{number}").as_bytes());
        }
        assert_eq!(scene.links(0, ROOT).await, Ok(before + 1));
        assert_eq!(scene.links(1, master).await, Ok(2));
        // The master shows nothing of itself.
        assert_eq!(scene.names(1, master).await, [] as [&str; 0]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn stripes_elsewhere_cost_one_request_each_and_what_is_in_them_none() {
    let world = TestWorld::new(461);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        Striped::make(&scene, 0, ROOT, "first", &wish(3)).await;
        scene.forget_sent();
        // The name and the master are here.
        let own = Striped::make(&scene, 0, ROOT, "own", &wish(3)).await;
        let record = vec![vec![UpdateType::RECORD]];
        assert_eq!((scene.sent(0, 1), scene.sent(0, 2)), (record.clone(), record.clone()));
        // And now the name is elsewhere.
        scene.mkdir(2, ROOT, "warm").await;
        scene.forget_sent();
        Striped::make(&scene, 1, ROOT, "far", &wish(2)).await;
        // Where the name is elsewhere, two there; and one to the other MDT, if that has the second stripe.
        let far = (scene.sent(1, 0), scene.sent(1, 2));
        let two = super::over_mdts::TWO.map(<[_]>::to_vec).to_vec();
        assert!(far == (two.clone(), Vec::new()) || far == (two, record.clone()), "{far:?}");
        scene.forget_sent();
        for number in 0..20 {
            let name = format!("f{number}");
            let (mdt, stripe) = own.place(&name);
            let client = &scene.clients[mdt];
            client.make(stripe, &name, REGULAR | 0o644).await.expect("made");
            client.open(stripe, &name, MdsOpenFlags::READ).await.expect("opened");
            client.mkdir(stripe, &own.name_on(mdt, &format!("d{number}x"))).await.expect("made");
            client.unlink(stripe, &name).await.expect("removed");
        }
        for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            assert_eq!(scene.sent(from, to), [] as [Vec<UpdateType>; 0]);
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_name_is_in_its_stripe_alone() {
    let world = TestWorld::new(462);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let d = Striped::make(&scene, 0, ROOT, "d", &wish(2)).await;
        for name in ["a", "b", "c", "d", "e"] {
            let (mdt, stripe) = d.place(name);
            let (other_mdt, other) = *d.stripes.iter().find(|(it, _)| *it != mdt).expect("one");
            let (client, wrong) = (&scene.clients[mdt], &scene.clients[other_mdt]);
            assert_eq!(wrong.make(other, name, REGULAR | 0o644).await, Err(Errno::ESTALE));
            assert_eq!(wrong.mkdir(other, name).await, Err(Errno::ESTALE));
            assert_eq!(wrong.unlink(other, name).await, Err(Errno::ESTALE));
            client.make(stripe, name, REGULAR | 0o644).await.expect("made");
            let file = client.lookup(stripe, name).await.1.mdt_body.expect("found").fid1;
            assert_eq!(wrong.link(file, other, name).await, Err(Errno::ESTALE));
            let moved = wrong.rename((stripe, name), (other, name)).await;
            assert_eq!(moved, Err(Errno::ESTALE));
            let moved = wrong.rename((other, name), (stripe, "x")).await;
            assert_eq!(moved, Err(Errno::ESTALE));
            let (_, looked) = wrong.lookup(other, name).await;
            let status = looked.dlm_rep.expect("an answer").policy_res2 as u32 as i32;
            assert_eq!(Errno::from_status(status), Some(Errno::ESTALE));
        }
        // Nothing is in the master, as old clients may think, nor are the names of its stripes.
        let (here, stripe) = (&scene.clients[0], d.stripes[0].1);
        let listed = format!("{stripe}:0");
        for name in ["a", listed.as_str()] {
            assert_eq!(here.make(d.master, name, REGULAR | 0o644).await, Err(Errno::ESTALE));
            assert_eq!(here.rmdir(d.master, name).await, Err(Errno::ESTALE));
            assert_eq!(here.rename((d.master, name), (ROOT, "y")).await, Err(Errno::ESTALE));
            let (_, looked) = here.lookup(d.master, name).await;
            let status = looked.dlm_rep.expect("an answer").policy_res2 as u32 as i32;
            assert_eq!(Errno::from_status(status), Some(Errno::ESTALE));
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn wishes_that_cannot_be_are_refused_by_name() {
    let world = TestWorld::new(463);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let client = &scene.clients[1];
        let refused = |wish: DirectoryWish| async move {
            make(client, ROOT, "x", &wish).await.map(|(fid, ..)| fid)
        };
        let nowhere = DirectoryWish { first: Some(MdtIndex(9)), ..wish(2) };
        assert_eq!(refused(nowhere).await, Err(Errno::ENODEV));
        let unknown = DirectoryWish { hash: LmvHash(77), ..wish(2) };
        assert_eq!(refused(unknown).await, Err(Errno::EINVAL));
        let user = client.as_user(7, 7);
        assert_eq!(make(&user, ROOT, "x", &wish(2)).await.map(|it| it.0), Err(Errno::EPERM));
        scene.servers[1].mdt.make_striped_directories(false);
        assert_eq!(refused(wish(2)).await, Err(Errno::EPERM));
        scene.servers[1].mdt.make_striped_directories(true);
        let mut foreign: MdsReintCreate = client.create_request(ROOT, "x", DIRECTORY | 0o777);
        foreign.eadata = Bytes::from_static(b"no wish at all");
        assert_eq!(client.modify(foreign).await.map(drop), Err(Errno::EINVAL));
        let there = scene.clients[0].mkdir(ROOT, "there").await.expect("made");
        assert_eq!(make(client, ROOT, "there", &wish(2)).await.map(|it| it.0), Err(Errno::EEXIST));
        assert_eq!(make(client, there, ".", &wish(2)).await.map(|it| it.0), Err(Errno::EINVAL));
        assert_eq!(scene.names(0, ROOT).await, ["there"]);
        // More than there are are cut; one stripe is a plain directory; a file with a wish gets none.
        let cut = Striped::make(&scene, 1, ROOT, "cut", &wish(9)).await;
        assert_eq!(cut.stripes.len(), 2);
        let (_, body, md) = make(client, ROOT, "one", &wish(1)).await.expect("made");
        assert!(md.is_empty() && !body.valid.contains(Valid::MEA));
        let over = LmvHash(LmvHash::CRUSH.0 | LmvHash::OVERSTRIPED);
        let over = DirectoryWish { hash: over, ..wish(4) };
        let over = Striped::make(&scene, 1, ROOT, "over", &over).await;
        assert_eq!(over.stripes.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 0, 1, 0]);
        assert_eq!(over.layout.hash().0, LmvHash::CRUSH.0 | LmvHash::OVERSTRIPED);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn what_is_in_a_stripe_has_the_master_above_it() {
    let world = TestWorld::new(464);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let d = Striped::make(&scene, 0, ROOT, "d", &wish(2)).await;
        for mdt in [0, 1] {
            let name = d.name_on(mdt, "s");
            let (_, stripe) = d.place(&name);
            let client = &scene.clients[mdt];
            let below = client.mkdir(stripe, &name).await.expect("made");
            assert_eq!(scene.links(mdt, stripe).await, Ok(3));
            let (_, up) = client.lookup(below, "..").await;
            assert_eq!(up.mdt_body.expect("a body").fid1, d.master);
            assert_eq!(dot_dot(client, below).await, d.master);
            assert_eq!(dot_dot(client, stripe).await, d.master);
            // A directory that lies on the other MDT, with its name in this stripe.
            let other = 1 - mdt;
            let far = d.name_on(mdt, "far");
            let far = scene.clients[other].mkdir(stripe, &far).await.expect("made");
            let (_, up) = scene.clients[other].lookup(far, "..").await;
            assert_eq!(up.mdt_body.expect("a body").fid1, d.master);
            // The path has no stripe in it, as far as one MDT knows it.
            let (path, above) = scene.servers[mdt].mdt.path(below, ROOT, 0).expect("a path");
            match mdt {
                0 => assert_eq!((path, above), (format!("d/{name}").into_bytes(), None)),
                _ => assert_eq!((path, above), (name.into_bytes(), Some(d.master))),
            }
            // It cannot be moved into itself: the way up leads through stripes.
            let circle = scene.clients[0].rename((ROOT, "d"), (below, "d")).await;
            assert_eq!(circle, Err(Errno::EINVAL));
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// The mode of the directory and of its stripes.
async fn modes(scene: &Scene, d: &Striped) -> Vec<(u32, u32, i64)> {
    let mut found = Vec::new();
    let master = (scene.mdt_of(d.master), d.master);
    for (mdt, fid) in d.stripes.iter().copied().chain([master]) {
        let body = scene.clients[mdt].getattr(fid).await.expect("it is there");
        found.push((body.mode & 0o7777, body.uid, body.mtime));
    }
    found
}

#[test]
fn what_is_changed_of_a_directory_is_changed_of_its_stripes() {
    let world = TestWorld::new(465);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let d = Striped::make(&scene, 1, ROOT, "d", &wish(3)).await;
        let client = &scene.clients[1];
        let mode = AttrValid::MODE | AttrValid::CTIME;
        scene.forget_sent();
        let body = client.setattr(d.master, mode, |it| (it.mode, it.ctime) = (0o700, 1_500)).await;
        assert_eq!(body.map(|it| (it.fid1, it.mode & 0o7777)), Ok((d.master, 0o700)));
        // To each of two other MDTs; its release rides behind.
        let sent = |from, to| scene.sent(from, to).concat();
        let three = vec![UpdateType::EXCLUDE, UpdateType::RECORD, UpdateType::RELEASE];
        assert_eq!((sent(1, 0), sent(1, 2)), (three.clone(), three));
        let owner = AttrValid::UID | AttrValid::MTIME | AttrValid::MTIME_SET | AttrValid::CTIME;
        let change = |it: &mut RecSetattr| (it.uid, it.mtime, it.ctime) = (7, 77, 1_600);
        client.setattr(d.master, owner, change).await.expect("changed");
        assert_eq!(modes(&scene, &d).await, [(0o700, 7, 77); 4]);
        // Who may not, changes nothing of any, and a user of the stripe is held to the new mode.
        let other = client.as_user(9, 9);
        let refused = other.setattr(d.master, mode, |it| it.mode = 0o777).await;
        assert_eq!(refused.map(drop), Err(Errno::EPERM));
        let (mdt, stripe) = d.place("x");
        let stranger = scene.clients[mdt].as_user(9, 9);
        assert_eq!(stranger.make(stripe, "x", REGULAR | 0o644).await, Err(Errno::EACCES));
        let theirs = scene.clients[mdt].as_user(7, 7);
        theirs.make(stripe, "x", REGULAR | 0o644).await.expect("made");
        assert_eq!(modes(&scene, &d).await.iter().map(|it| it.0).collect::<Vec<_>>(), [0o700; 4]);
        // Access lists and default layouts decide in stripes, too; what users keep does not.
        let none = u32::MAX;
        let list = acl(&[(1, 7, none), (2, 7, 42), (4, 0, none), (16, 7, none), (32, 0, none)]);
        client.setxattr(d.master, "system.posix_acl_access", Some(&list), 0).await.expect("set");
        client.setxattr(d.master, "system.posix_acl_default", Some(&list), 0).await.expect("set");
        client.setxattr(d.master, "user.x", Some(b"1"), 0).await.expect("set");
        for (mdt, stripe) in d.stripes.iter().copied() {
            let own = &scene.clients[mdt];
            for name in ["system.posix_acl_access", "system.posix_acl_default"] {
                assert!(own.getxattr(stripe, name).await.is_ok_and(|it| !it.is_empty()), "{name}");
            }
            assert_eq!(own.getxattr(stripe, "user.x").await, Err(Errno::ENODATA));
        }
        let invited = scene.clients[mdt].as_user(42, 42);
        let name = d.name_on(mdt, "invited");
        let below = invited.mkdir(stripe, &name).await.expect("made");
        let inherited = scene.clients[mdt].getxattr(below, "system.posix_acl_access").await;
        assert!(inherited.is_ok_and(|it| !it.is_empty()));
        client.setxattr(d.master, "system.posix_acl_access", None, 0).await.expect("removed");
        let gone = scene.clients[mdt].getxattr(stripe, "system.posix_acl_access").await;
        assert_eq!(gone, Err(Errno::ENODATA));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_directory_goes_with_its_stripes_when_all_are_empty() {
    let world = TestWorld::new(466);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        for mdt in 0..3 {
            let before = scene.links(0, ROOT).await.expect("the root");
            let d = Striped::make(&scene, mdt, ROOT, "d", &wish(3)).await;
            for (at, stripe) in d.stripes.iter().copied() {
                let name = d.name_on(at, "f");
                scene.clients[at].make(stripe, &name, REGULAR | 0o644).await.expect("made");
                let (full, _) = scene.remove(mdt, (ROOT, "d"), d.master, DIRECTORY).await;
                assert_eq!(full, Some(Errno::ENOTEMPTY));
                scene.clients[at].unlink(stripe, &name).await.expect("removed");
            }
            let (errno, _) = scene.remove(mdt, (ROOT, "d"), d.master, REGULAR).await;
            assert_eq!(errno, Some(Errno::EISDIR));
            let (errno, body) = scene.remove(mdt, (ROOT, "d"), d.master, DIRECTORY).await;
            assert_eq!((errno, body.fid1, body.nlink), (None, d.master, 0));
            for (at, fid) in d.stripes.iter().copied().chain([(mdt, d.master)]) {
                assert_eq!(scene.links(at, fid).await, Err(Errno::ENOENT));
                assert_eq!(scene.servers[at].mdt.is_empty(fid), Ok(true), "nothing is left");
            }
            assert_eq!(scene.links(0, ROOT).await, Ok(before));
            assert_eq!(scene.names(0, ROOT).await, [] as [&str; 0]);
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn striped_directories_move_and_are_replaced_when_they_are_empty() {
    let world = TestWorld::new(467);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        for mdt in [0, 1] {
            let d = Striped::make(&scene, mdt, ROOT, "d", &wish(2)).await;
            let (at, stripe) = d.place("f");
            let file = scene.clients[at].make(stripe, "f", REGULAR | 0o644).await.expect("made");
            let plain = scene.mkdir(mdt, ROOT, "plain").await;
            // A directory with stripes moves as it is.
            scene.clients[mdt].rename((ROOT, "d"), (plain, "e")).await.expect("moved");
            assert_eq!(scene.clients[at].lookup(stripe, "f").await.1.mdt_body.unwrap().fid1, file);
            assert_eq!(dot_dot(&scene.clients[at], stripe).await, d.master);
            // One that has a name in some stripe is not replaced.
            let other = scene.mkdir(mdt, ROOT, "other").await;
            let full = scene.clients[mdt].rename((ROOT, "other"), (plain, "e")).await;
            assert_eq!(full, Err(Errno::ENOTEMPTY));
            scene.clients[at].unlink(stripe, "f").await.expect("removed");
            scene.clients[mdt].rename((ROOT, "other"), (plain, "e")).await.expect("replaced");
            for (at, fid) in d.stripes.iter().copied().chain([(mdt, d.master)]) {
                assert_eq!(scene.links(at, fid).await, Err(Errno::ENOENT));
            }
            // And a striped one in the place of another one, of which one stripe was in use.
            let one = Striped::make(&scene, mdt, ROOT, "one", &wish(2)).await;
            let two = Striped::make(&scene, mdt, ROOT, "two", &wish(2)).await;
            scene.clients[mdt].rename((ROOT, "one"), (ROOT, "two")).await.expect("replaced");
            assert_eq!(scene.links(mdt, two.master).await, Err(Errno::ENOENT));
            assert_eq!(scene.names(0, ROOT).await, ["plain", "two"]);
            let (errno, _) = scene.remove(mdt, (ROOT, "two"), one.master, DIRECTORY).await;
            assert_eq!(errno, None);
            let (errno, _) = scene.remove(mdt, (plain, "e"), other, DIRECTORY).await;
            assert_eq!(errno, None);
            let (errno, _) = scene.remove(mdt, (ROOT, "plain"), plain, DIRECTORY).await;
            assert_eq!(errno, None);
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn names_move_between_stripes_and_links_are_counted() {
    let world = TestWorld::new(468);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let d = Striped::make(&scene, 0, ROOT, "d", &wish(2)).await;
        let (here, there) = (d.name_on(0, "a"), d.name_on(1, "b"));
        let (from, to) = (d.place(&here).1, d.place(&there).1);
        let file = scene.clients[0].make(from, &here, REGULAR | 0o644).await.expect("made");
        scene.clients[1].rename((from, &here), (to, &there)).await.expect("moved");
        assert_eq!(scene.names(0, from).await, [] as [&str; 0]);
        assert_eq!(scene.names(1, to).await, std::slice::from_ref(&there));
        assert_eq!(scene.links(0, file).await, Ok(1));
        scene.clients[0].link(file, from, &here).await.expect("linked");
        assert_eq!(scene.links(0, file).await, Ok(2));
        // A user moves a directory that is another's within one directory: its `..` stays.
        let (dir, moved) = (d.name_on(0, "dir"), d.name_on(1, "moved"));
        let directory = scene.clients[0].mkdir(from, &dir).await.expect("made");
        let mode = AttrValid::MODE | AttrValid::CTIME;
        scene.clients[0].setattr(d.master, mode, |it| it.mode = 0o777).await.expect("changed");
        let user = scene.clients[1].as_user(7, 7);
        user.rename((from, &dir), (to, &moved)).await.expect("moved");
        assert_eq!((scene.links(0, from).await, scene.links(1, to).await), (Ok(2), Ok(3)));
        let (_, up) = scene.clients[0].lookup(directory, "..").await;
        assert_eq!(up.mdt_body.expect("a body").fid1, d.master);
        // Out of it is another matter.
        let out = user.rename((to, &moved), (ROOT, "out")).await;
        assert_eq!(out, Err(Errno::EACCES));
        scene.clients[0].rename((to, &moved), (ROOT, "out")).await.expect("moved");
        assert_eq!(scene.links(1, to).await, Ok(2));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn clients_give_up_what_they_keep_of_what_changes() {
    let world = TestWorld::new(469);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let d = Striped::make(&scene, 0, ROOT, "d", &wish(2)).await;
        let clients = [scene.servers[0].client("o").await, scene.servers[1].client("o").await];
        let all: Vec<_> = d.stripes.iter().copied().chain([(0, d.master)]).collect();
        let held = |mdt: usize, fid: Fid| {
            let namespace = scene.servers[mdt].node.target.namespace();
            let locks = namespace.dump(ResourceName::of_fid(fid));
            locks.iter().filter(|lock| lock.desc.granted.is_some()).count()
        };
        let keep = async || {
            for (mdt, fid) in &all {
                let mut request = clients[*mdt].lookup_request(*fid, "");
                request.mdt_body.fid2 = *fid;
                let (answer, _) = clients[*mdt].ask_lock(request).await;
                assert_eq!(answer.errno(), None);
                assert_eq!(held(*mdt, *fid), 1);
            }
        };
        keep().await;
        let mode = AttrValid::MODE | AttrValid::CTIME;
        scene.clients[0].setattr(d.master, mode, |it| it.mode = 0o700).await.expect("changed");
        for (mdt, fid) in &all {
            assert_eq!(held(*mdt, *fid), 0, "{fid} after a chmod");
        }
        keep().await;
        let (errno, _) = scene.remove(0, (ROOT, "d"), d.master, DIRECTORY).await;
        assert_eq!(errno, None);
        for (mdt, fid) in &all {
            assert_eq!(held(*mdt, *fid), 0, "{fid} after its end");
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn defaults_are_set_answered_and_handed_down() {
    let world = TestWorld::new(470);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let client = &scene.clients[1];
        let top = scene.mkdir(1, ROOT, "top").await;
        let default = DirectoryWish { max_inherit: 3, ..wish(2) };
        let set = async |client: &Client, fid, wish: &DirectoryWish| {
            let rec_reint = RecSetattr {
                opcode: ReintOp::SETATTR,
                fsuid: client.user.uid,
                fsgid: client.user.gid,
                suppgid: u32::MAX,
                fid,
                ..RecSetattr::default()
            };
            let eadata = wish.to_ea().encode();
            let request = MdsReintSetattr { rec_reint, eadata, ..Default::default() };
            client.modify(request).await.map(drop)
        };
        let file = client.make(top, "file", REGULAR | 0o644).await.expect("made");
        assert_eq!(set(client, file, &default).await, Err(Errno::ENOTDIR));
        assert_eq!(set(&client.as_user(7, 7), top, &default).await, Err(Errno::EPERM));
        let nowhere = DirectoryWish { first: Some(MdtIndex(9)), ..wish(2) };
        assert_eq!(set(client, top, &nowhere).await, Err(Errno::ENODEV));
        // Who may choose MDTs does so in his own directories.
        scene.servers[1].mdt.set_remote_directories_gid(u32::MAX);
        assert_eq!(set(&client.as_user(7, 7), top, &default).await, Err(Errno::EPERM));
        set(client, top, &default).await.expect("set");
        let value = default.to_ea().encode();
        let (body, md) = getattr(client, top, Valid::ID | Valid::DEFAULT_MEA).await;
        assert_eq!((&md, body.eadatasize), (&value, 48));
        assert!(body.valid.contains(Valid::DEFAULT_MEA | Valid::DIREA));
        let mut request = client.lookup_request(top, "");
        request.mdt_body.fid2 = top;
        request.mdt_body.valid = Valid::MEA | Valid::DEFAULT_MEA;
        let (_, reply) = client.ask_lock(request).await;
        // As captured, there is room for a layout of that length.
        assert_eq!((&reply.default_mdt_md, reply.mdt_md), (&value, Bytes::from(vec![0; 48])));
        let opened = client.open_fid(top, MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY).await;
        let opened = opened.expect("opened");
        assert_eq!((opened.body.eadatasize, opened.layout.len()), (0, 0));
        assert!(opened.body.valid.contains(Valid::DEFAULT_MEA));
        let (body, md) = getattr(client, top, Valid::ID | Valid::MEA | Valid::DEFAULT_MEA).await;
        assert!(md.is_empty() && !body.valid.contains(Valid::DEFAULT_MEA));
        // A directory in it has stripes without being asked, and the rest of the levels; and its directories, too.
        let mut at = (1, top);
        for levels in [Some(2), Some(1), None] {
            let request = client_request(&scene.clients[at.0], at.1, "k");
            let below = request.rec_reint.fid2;
            let reply = scene.clients[at.0].modify(request).await.expect("made");
            let Reply::MdsReintCreate(reply) = reply else { panic!("{reply:?}") };
            let made = layout(&reply.mdt_md);
            assert_eq!(stripes(&made).len(), 2);
            let expected = levels.map(|max_inherit| DirectoryWish { max_inherit, ..wish(2) });
            let expected = expected.map(|wish| wish.to_ea().encode());
            let got = scene.clients[at.0].getxattr(below, "trusted.dmv").await;
            assert_eq!(got.ok(), expected);
            let now = made.places(b"k").expect("known").now as usize;
            let stripe = stripes(&made)[now];
            at = (scene.mdt_of(stripe), stripe);
            let got = scene.clients[at.0].getxattr(stripe, "trusted.dmv").await;
            assert_eq!(got.ok(), expected, "the stripe's");
        }
        let last = scene.mkdir(at.0, at.1, "k").await;
        assert_eq!(scene.clients[at.0].getxattr(last, "trusted.lmv").await, Err(Errno::ENODATA));
        // With a wish of its own it inherits none; and none is what removes it.
        let (own, ..) = make(client, top, "own", &wish(1)).await.expect("made");
        assert_eq!(client.getxattr(own, "trusted.dmv").await, Err(Errno::ENODATA));
        set(client, top, &DirectoryWish::default()).await.expect("removed");
        assert_eq!(client.getxattr(top, "trusted.dmv").await, Err(Errno::ENODATA));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// A mkdir without a wish, of a client that wants to know the layout.
fn client_request(client: &Client, parent: Fid, name: &str) -> MdsReintCreate {
    let mut request: MdsReintCreate = client.create_request(parent, name, DIRECTORY | 0o777);
    request.rec_reint.set_flags(MdsOpenFlags::RESYNC);
    request
}

#[test]
fn stripes_are_changed_by_their_master_alone_and_names_of_what_is_gone_not_at_all() {
    let world = TestWorld::new(471);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let d = Striped::make(&scene, 0, ROOT, "d", &wish(2)).await;
        let (mdt, stripe) = d.stripes[1];
        let mode = AttrValid::MODE | AttrValid::CTIME;
        let refused = scene.clients[mdt].setattr(stripe, mode, |it| it.mode = 0o777).await;
        assert_eq!(refused.map(drop), Err(Errno::ESTALE));
        let list = b"no matter";
        let access = "system.posix_acl_access";
        let refused = scene.clients[mdt].setxattr(stripe, access, Some(list), 0).await;
        assert_eq!(refused, Err(Errno::ESTALE));
        // A default layout is its owner's to set, also of a directory with stripes.
        let owner = AttrValid::UID | AttrValid::CTIME;
        scene.clients[0].setattr(d.master, owner, |it| it.uid = 7).await.expect("changed");
        let plan = sheen_layout::plan::Plan::default().encode();
        let user = scene.clients[0].as_user(7, 7);
        let set = user.setxattr(d.master, "lustre.lov", Some(&plan), 0).await;
        assert_ne!(set, Err(Errno::EPERM));
        // What is open and removed gets no names any more.
        let client = &scene.clients[0];
        let plain = client.mkdir(ROOT, "plain").await.expect("made");
        let flags = MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY;
        let opened = client.open_fid(plain, flags).await.expect("opened");
        client.rmdir(ROOT, "plain").await.expect("removed");
        assert_eq!(client.make(plain, "x", REGULAR | 0o644).await, Err(Errno::ENOENT));
        let file = client.make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        assert_eq!(client.link(file, plain, "x").await, Err(Errno::ENOENT));
        assert_eq!(client.rename((ROOT, "f"), (plain, "x")).await, Err(Errno::ENOENT));
        client.close(&opened).await.expect("closed");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn what_cannot_be_sent_is_refused_before_anything_is_made() {
    let world = TestWorld::new(472);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let client = &scene.clients[0];
        let home = client.mkdir(ROOT, "home").await.expect("made");
        let none = u32::MAX;
        let users = (0..7_000).map(|uid| (2, 7, 100 + uid));
        let lines =
            [vec![(1, 7, none)], users.collect(), vec![(4, 0, none), (16, 7, none), (32, 0, none)]];
        let list = acl(&lines.concat());
        client.setxattr(home, "system.posix_acl_default", Some(&list), 0).await.expect("set");
        let over = LmvHash(LmvHash::OVERSTRIPED);
        let many = DirectoryWish { hash: over, ..wish(10) };
        assert_eq!(make(client, home, "d", &many).await.map(|it| it.0), Err(Errno::E2BIG));
        assert_eq!(scene.names(0, home).await, [] as [&str; 0]);
        make(client, home, "d", &wish(2)).await.expect("made");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn an_mdt_that_takes_no_changes_gets_no_stripe() {
    let world = TestWorld::new(473);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        scene.servers[2].mdt.set_read_only(true);
        let d = Striped::make(&scene, 0, ROOT, "d", &wish(3)).await;
        assert_eq!(d.stripes.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 1]);
        let listed = [0, 2].map(MdtIndex);
        let listed = DirectoryWish { first: Some(MdtIndex(0)), mdts: listed.into(), ..wish(2) };
        let refused = make(&scene.clients[0], ROOT, "e", &listed).await.map(|it| it.0);
        assert_eq!(refused, Err(Errno::ENOSPC));
        scene.servers[2].mdt.set_read_only(false);
        inner.sleep(std::time::Duration::from_secs(4)).await;
        let e = Striped::make(&scene, 0, ROOT, "e", &wish(3)).await;
        assert_eq!(e.stripes.len(), 3);
        scene.settle(&inner).await;
    };
    run(test, &world);
}
