//! Directories with stripes on several MDTs.

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder, WishedStripes};
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::dir::DirPage;
use sheen_wire::lmv::{LmvEa, LmvHash, LmvMagic};
use sheen_wire::md::{MdsOpenFlags, MdtBody, Valid};
use sheen_wire::messages::{MdsGetattr, MdsReadpage, MdsReintCreate, Reply};
use sheen_wire::out::UpdateType;

use super::harness::{Client, DIRECTORY, REGULAR, run};
use super::over_mdts::Scene;

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
