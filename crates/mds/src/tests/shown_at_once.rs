//! When clients see changes over several MDTs: on no MDT before all have applied their parts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::MdsOpenFlags;
use sheen_wire::out::UpdateType;

use super::harness::{Client, Opened, REGULAR, run};
use super::over_mdts::Scene;

const ROOT: Fid = Fid::ROOT;
/// Longer than anything here takes that waits for nothing.
const LONG: Duration = Duration::from_secs(1);

/// What something comes to, once it has.
type Pending<T> = Arc<Mutex<Option<T>>>;

fn begin<T: Send + 'static>(
    world: &TestWorld,
    work: impl Future<Output = T> + Send + 'static,
) -> Pending<T> {
    let pending = Pending::<T>::default();
    let place = Arc::clone(&pending);
    let work = async move {
        let done = work.await;
        *place.lock() = Some(done);
    };
    world.world().tasks.spawn("beside", Box::pin(work));
    pending
}

/// What is looked at, on one MDT.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// Whether a directory has the name: by a lookup, a listing and an open.
    Name(usize, Fid, &'static str),
    /// Whether the inode is there: by its attributes and an open.
    Inode(usize, Fid),
}

/// A look, and what it shows when all parts are applied.
type Expected = (Look, bool);

/// Another client than the one that changes something, at each MDT.
struct Readers(Vec<Client>);

impl Readers {
    async fn new(scene: &Scene) -> Self {
        let mut readers = Vec::new();
        for server in &scene.servers {
            readers.push(server.client("reader").await);
        }
        Self(readers)
    }

    /// Looks in each way, at once.
    fn look(&self, world: &TestWorld, look: Look) -> Vec<Pending<bool>> {
        let (Look::Name(mdt, fid, _) | Look::Inode(mdt, fid)) = look;
        let [one, two, three] = [0; 3].map(|_| self.0[mdt].clone());
        let open = MdsOpenFlags::READ;
        match look {
            Look::Name(_, _, name) => vec![
                begin(world, async move {
                    let body = one.lookup(fid, name).await.1.mdt_body;
                    body.is_some_and(|body| !body.fid1.is_zero())
                }),
                begin(
                    world,
                    async move { two.readdir(fid, 1).await.iter().any(|(it, _)| it == name) },
                ),
                begin(world, async move { is_found(three.open(fid, name, open).await) }),
            ],
            Look::Inode(..) => vec![
                begin(world, async move { one.getattr(fid).await.is_ok() }),
                begin(world, async move { is_found(two.open_fid(fid, open).await) }),
            ],
        }
    }
}

fn is_found(opened: Result<Opened, Errno>) -> bool {
    opened.is_ok_and(|opened| opened.disposition.contains(Disposition::LOOKUP_POS))
}

/// A change while one MDT does not get its part. Everything `hidden` waits, and all of `as_before` is as it was, until that has
/// it; then each is as it says.
async fn is_shown_at_once(
    world: &TestWorld,
    scene: &Scene,
    (coordinator, late): (usize, usize),
    change: impl Future<Output = Result<(), Errno>> + Send + 'static,
    (hidden, as_before): (&[Expected], &[Expected]),
) {
    let readers = Readers::new(scene).await;
    let way = scene.way(coordinator, late);
    way.hold(Some(UpdateType::RECORD));
    let change = begin(world, change);
    world.sleep(LONG).await;
    assert_eq!(*change.lock(), None);
    let waiting: Vec<_> = hidden.iter().map(|(look, _)| readers.look(world, *look)).collect();
    let now: Vec<_> = as_before.iter().map(|(look, _)| readers.look(world, *look)).collect();
    world.sleep(LONG).await;
    let seen = |looked: &[Pending<bool>]| looked.iter().map(|it| *it.lock()).collect::<Vec<_>>();
    for ((look, _), looked) in hidden.iter().zip(&waiting) {
        assert_eq!(seen(looked), vec![None; looked.len()], "{look:?} while {late} lacks its part");
    }
    for ((look, after), looked) in as_before.iter().zip(&now) {
        assert_eq!(seen(looked), vec![Some(!after); looked.len()], "{look:?} is as before");
    }
    way.hold(None);
    world.sleep(LONG).await;
    assert_eq!(*change.lock(), Some(Ok(())));
    for ((look, after), looked) in hidden.iter().zip(&waiting) {
        assert_eq!(seen(looked), vec![Some(*after); looked.len()], "{look:?}, which has waited");
    }
    for (look, after) in as_before {
        let looked = readers.look(world, *look);
        world.sleep(LONG).await;
        assert_eq!(seen(&looked), vec![Some(*after); looked.len()], "{look:?} afterwards");
    }
}

#[test]
fn of_two_other_mdts_none_shows_its_part_before_both_have_applied_theirs() {
    for late in [0, 2] {
        let world = TestWorld::new(640 + late as u64);
        let inner = world.clone();
        let test = async move {
            let scene = Scene::new(&inner, 3).await;
            let near = scene.mkdir(1, ROOT, "near").await;
            let far = scene.mkdir(2, ROOT, "far").await;
            let there = scene.clients[1].clone();
            let file = there.make(near, "f", REGULAR | 0o644).await.expect("made");
            there.rename((near, "f"), (ROOT, "f")).await.expect("moved");
            // MDT0001 has the inode alone.
            let change = async move { there.rename((ROOT, "f"), (far, "f")).await };
            let (gone, come) = ((Look::Name(0, ROOT, "f"), false), (Look::Name(2, far, "f"), true));
            let (applied, lacking) = if late == 2 { (gone, come) } else { (come, gone) };
            let hidden = [applied, (Look::Inode(1, file), true)];
            is_shown_at_once(&inner, &scene, (1, late), change, (&hidden, &[lacking])).await;
            scene.settle(&inner).await;
        };
        run(test, &world);
    }
}

#[test]
fn a_coordinator_shows_what_moved_when_the_other_mdt_has_applied_its_part() {
    let world = TestWorld::new(643);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let near = scene.mkdir(1, ROOT, "near").await;
        let there = scene.clients[1].clone();
        let file = there.make(near, "f", REGULAR | 0o644).await.expect("made");
        let change = async move { there.rename((near, "f"), (ROOT, "f")).await };
        let hidden = [(Look::Name(1, near, "f"), false), (Look::Inode(1, file), true)];
        let as_before = [(Look::Name(0, ROOT, "f"), true)];
        is_shown_at_once(&inner, &scene, (1, 0), change, (&hidden, &as_before)).await;
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_coordinator_shows_a_new_name_when_the_other_mdt_has_applied_its_part() {
    let world = TestWorld::new(644);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let near = scene.mkdir(1, ROOT, "near").await;
        let file = scene.clients[0].make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        let there = scene.clients[1].clone();
        let change = async move { there.link(file, near, "l").await };
        let hidden = [(Look::Name(1, near, "l"), true)];
        is_shown_at_once(&inner, &scene, (1, 0), change, (&hidden, &[])).await;
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_coordinator_shows_that_an_inode_is_gone_when_the_other_mdt_has_removed_the_name() {
    let world = TestWorld::new(645);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let near = scene.mkdir(1, ROOT, "near").await;
        let there = scene.clients[1].clone();
        let file = there.make(near, "f", REGULAR | 0o644).await.expect("made");
        there.rename((near, "f"), (ROOT, "f")).await.expect("moved");
        let mut request = there.unlink_request(ROOT, "f", REGULAR);
        request.rec_reint.fid2 = file;
        let change = async move { there.modify(request).await.map(drop) };
        let hidden = [(Look::Inode(1, file), false)];
        let as_before = [(Look::Name(0, ROOT, "f"), false)];
        is_shown_at_once(&inner, &scene, (1, 0), change, (&hidden, &as_before)).await;
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// What a change has taken is there for other changes until it is taken everywhere: none may say that it is absent.
#[test]
fn other_changes_of_a_name_wait_until_it_is_gone_on_all_mdts() {
    let world = TestWorld::new(646);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let near = scene.mkdir(1, ROOT, "near").await;
        let far = scene.mkdir(2, ROOT, "far").await;
        let there = scene.clients[1].clone();
        let file = there.make(near, "f", REGULAR | 0o644).await.expect("made");
        there.rename((near, "f"), (ROOT, "f")).await.expect("moved");
        let readers = Readers::new(&scene).await;
        let way = scene.way(1, 2);
        way.hold(Some(UpdateType::RECORD));
        let change = begin(&inner, async move { there.rename((ROOT, "f"), (far, "f")).await });
        inner.sleep(LONG).await;
        let [local, remote, moves] = [0, 1, 0].map(|mdt| readers.0[mdt].clone());
        let removed = |client: Client, fid| {
            let mut request = client.unlink_request(ROOT, "f", REGULAR);
            request.rec_reint.fid2 = fid;
            begin(&inner, async move { client.modify(request).await.map(drop) })
        };
        let beside = [
            removed(local, Fid::ZERO),
            removed(remote, file),
            begin(&inner, async move { moves.rename((ROOT, "f"), (far, "g")).await }),
        ];
        inner.sleep(LONG).await;
        for other in &beside {
            assert_eq!(*other.lock(), None);
        }
        way.hold(None);
        inner.sleep(LONG).await;
        assert_eq!(*change.lock(), Some(Ok(())));
        for other in &beside {
            assert_eq!(*other.lock(), Some(Err(Errno::ENOENT)));
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}
