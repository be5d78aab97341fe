//! A file system of two MDTs on nodes of their own, in virtual time: they find each other, whichever starts first, and
//! again after deaths.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_assembly::{Registrar, Role, Served, TargetLabel};
use sheen_io::World;
use sheen_mds::{Mdt, MdtView};
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_rpc::ImportState;
use sheen_store::Store;
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_target::Timeouts;
use sheen_types::Nid;
use sheen_vnet::{NetworkConditions, Scope, Virtual, for_seeds};

const PORT: u16 = 988;
const BASE: Duration = Duration::from_secs(10);
/// Longer than any start or recovery takes here.
const PATIENCE: Duration = Duration::from_secs(200);

fn nid(node: u8) -> Nid {
    Nid::tcp([10, 0, 0, node].into())
}

fn target(name: &str) -> TargetLabel {
    TargetLabel::Target(format!("lustre-{name}").parse().expect("a name"))
}

/// The targets of a process, as far as they have started.
type Started = Arc<Mutex<Vec<Arc<Served>>>>;

/// A process that serves targets at a node, and what it has on disk.
struct Process {
    node: u8,
    disks: Vec<(TargetLabel, Arc<StoreMem>)>,
    up: Option<(Scope, Started)>,
}

impl Process {
    fn new(node: u8, kinds: Vec<TargetLabel>) -> Self {
        let disk = || Arc::new(StoreMem::new(MemOptions::default()));
        Self { node, disks: kinds.into_iter().map(|kind| (kind, disk())).collect(), up: None }
    }

    /// Its targets may be known to the MGS, from an earlier start or as another one's replacement.
    fn start(&mut self, world: &Virtual, is_known: bool) {
        let scope = world.scope();
        let (io, started) = (world.world_of(scope), Started::default());
        self.up = Some((scope, Arc::clone(&started)));
        let serving = serve(io.clone(), self.node, self.disks.clone(), is_known, started);
        io.tasks.spawn("server", Box::pin(serving));
    }

    fn kill(&mut self, world: &Virtual) {
        let (scope, _) = self.up.take().expect("it runs");
        world.break_connections(nid(self.node).address());
        world.end(scope);
        for (_, disk) in &mut self.disks {
            *disk = Arc::new(disk.crash());
        }
    }

    fn mdt(&self) -> Arc<Mdt> {
        let (_, started) = self.up.as_ref().expect("it runs");
        let mdt = |one: &Arc<Served>| match &one.role {
            Role::Mdt(mdt) => Some(Arc::clone(mdt)),
            _ => None,
        };
        started.lock().iter().find_map(mdt).expect("it serves an MDT")
    }
}

async fn serve(
    world: World,
    node: u8,
    disks: Vec<(TargetLabel, Arc<StoreMem>)>,
    is_known: bool,
    started: Started,
) {
    let lnet = LNet::start(world.clone(), NetConfig::new(nid(node), PORT)).await;
    let rpc = RpcNode::start(world.clone(), lnet.expect("the address is free"));
    disks.iter().for_each(|(kind, _)| rpc.answer_at(kind.portals()));
    for (kind, disk) in disks {
        let timeouts = Timeouts::from_base(BASE);
        let served =
            Served::start(kind, disk as Arc<dyn Store>, &rpc, world.clone(), timeouts).await;
        started.lock().push(Arc::new(served.expect("it starts")));
    }
    let registrar = Arc::new(Registrar::new(&rpc, &world, vec![nid(1)]));
    registrar.connect().await.expect("the MGS takes it");
    let all = started.lock().clone();
    for one in &all {
        registrar.register(one, "", is_known).await.expect("the MGS takes it");
    }
    for one in all {
        let keep = Arc::clone(&registrar).keep_connections(one);
        world.tasks.spawn("connections", Box::pin(keep));
    }
}

fn first() -> Process {
    Process::new(1, vec![TargetLabel::Mgs, target("MDT0000"), target("OST0000")])
}

/// Each MDT has the other one as a partner, and objects ahead in a sequence of its own.
fn all_is_connected(first: &Mdt, second: &Mdt) -> bool {
    let partner = |index| [MdtView { index, state: ImportState::Full, is_partner: true }];
    let has_objects = |mdt: &Mdt| {
        let osts = mdt.osts();
        osts.iter().any(|ost| ost.state == ImportState::Full && ost.last_created > ost.last_used)
    };
    second.is_open()
        && first.other_mdts() == partner(second.index())
        && second.other_mdts() == partner(first.index())
        && has_objects(first)
        && has_objects(second)
}

#[test]
fn two_mdts_find_each_other_and_again_after_deaths() {
    for_seeds(3, |seed| {
        let world = Virtual::new(seed, NetworkConditions::default());
        let (mut one, mut two) = (first(), Process::new(2, vec![target("MDT0001")]));
        two.start(&world, false);
        world.pass(Duration::from_secs(60));
        assert!(!two.mdt().is_open(), "there is no MDT0000");
        assert!(!two.mdt().agrees_with(0), "what it offers is no agreement");
        one.start(&world, false);
        world.pass(PATIENCE);
        assert!(all_is_connected(&one.mdt(), &two.mdt()), "{:?}", two.mdt().other_mdts());
        let sequences = [one.mdt(), two.mdt()].map(|mdt| mdt.osts()[0].sequence);
        assert_eq!(sequences[1], sequences[0] + 1);
        for (kills_first, kills_second) in [(false, true), (true, false), (true, true)] {
            if kills_first {
                one.kill(&world);
            }
            if kills_second {
                two.kill(&world);
                two.start(&world, true);
            }
            world.pass(Duration::from_secs(3));
            if kills_first {
                one.start(&world, true);
            }
            world.pass(PATIENCE);
            assert!(all_is_connected(&one.mdt(), &two.mdt()), "{kills_first} {kills_second}");
            let again = [one.mdt(), two.mdt()].map(|mdt| mdt.osts()[0].sequence);
            assert_eq!(again, sequences);
        }
        world.stop();
    });
}

#[test]
fn another_mdt_in_the_place_of_a_known_one_gets_nothing() {
    let world = Virtual::new(7, NetworkConditions::default());
    let (mut one, mut two) = (first(), Process::new(2, vec![target("MDT0001")]));
    one.start(&world, false);
    two.start(&world, false);
    world.pass(PATIENCE);
    assert!(all_is_connected(&one.mdt(), &two.mdt()));
    two.kill(&world);
    let mut stranger = Process::new(2, vec![target("MDT0001")]);
    stranger.start(&world, true);
    world.pass(PATIENCE);
    assert!(!stranger.mdt().is_open());
    assert!(one.mdt().other_mdts().iter().all(|other| !other.is_partner));
    assert!(one.mdt().has_refused(&stranger.mdt()) && !one.mdt().agrees_with(1));
    one.kill(&world);
    one.start(&world, true);
    world.pass(PATIENCE);
    assert!(!one.mdt().agrees_with(1), "nor where it is the first one that answers");
    stranger.kill(&world);
    two.start(&world, true);
    world.pass(PATIENCE);
    assert!(all_is_connected(&one.mdt(), &two.mdt()), "the right one is back");
    world.stop();
}
