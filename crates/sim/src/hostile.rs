//! A hostile node beside the clients: an admitted client that is squashed, and knows their exports' handles.
//!
//! It sends garbage, halves of messages, forged and random requests of every kind (`sheen_hostile`), takes
//! locks that it never cancels, connects as many clients, replays what it likes after restarts, dies and
//! comes back. Data of objects it names only in a sequence that has none: who is admitted may change any
//! (docs/SECURITY.md). Before the work ends it falls silent, and nothing of it may be left then.

use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{Role, Served};
use sheen_hostile::{Known, Range, Requests, ServerKind};
use sheen_node::net::{LNet, NetConfig};
use sheen_rpc::REPLY_PORTALS;
use sheen_types::{Fid, Instant, MatchBits, fid_seq};
use sheen_vnet::{Scope, SeededRandom};
use sheen_wire::lnet::Portal;

use crate::cluster::{FSNAME, PORT, hostile_nid};
use crate::faults;
use crate::run::Sim;

/// How its clients call themselves.
const HOSTILE: &str = "hostile-";
/// Messages of one burst, at most: what follows garbage on a connection is lost with it.
const BURST: u64 = 8;
/// Longest pause between two bursts.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// One burst in so many is the last of its process, which is another one some time later.
const DIES_ONE_IN: u64 = 100;
const DOWN_MAX: Duration = Duration::from_secs(100);
/// One message in so many goes to any server.
const ASTRAY_ONE_IN: u64 = 8;
/// A sequence that no file's objects are in.
const UNUSED_SEQUENCE: u64 = fid_seq::NORMAL + 0x00ff_ffff;
/// How long what it had may be left: a silent client is evicted, after a restart at the end of recovery.
const LEFT_MAX: Duration = Duration::from_secs(300);

/// Where requests arrive.
const PORTALS: [Portal; 11] = [
    Portal::MGS_REQUEST,
    Portal::MDS_REQUEST,
    Portal::MDS_READPAGE,
    Portal::MDS_IO,
    Portal::SEQ_METADATA,
    Portal::FLD_REQUEST,
    Portal::OST_REQUEST,
    Portal::OST_CREATE,
    Portal::OST_IO,
    Portal::LDLM_CANCEL_REQUEST,
    Portal::OUT,
];

const RANGE: Range = Range {
    services: &[ServerKind::Mgs, ServerKind::Mdt, ServerKind::Ost],
    without: &[],
    portals: &PORTALS,
    client: HOSTILE,
    fsname: FSNAME,
    objects: Some(UNUSED_SEQUENCE),
};

/// Whether a client's name is one of its.
pub(crate) fn is_hostile(uuid: &str) -> bool {
    uuid.starts_with(HOSTILE)
}

/// One process of it.
struct Process {
    scope: Scope,
    lnet: Arc<LNet>,
    known: Arc<Known>,
}

impl Process {
    async fn start(sim: &Sim) -> Self {
        let scope = sim.world.scope();
        let config = NetConfig::new(hostile_nid(), PORT);
        let lnet = LNet::start(sim.world.world_of(scope), config).await;
        let lnet = lnet.expect("no other node has the address");
        let known = Arc::new(Known::default());
        for portal in REPLY_PORTALS {
            lnet.serve(portal, Arc::clone(&known) as _);
        }
        known.add_fid(Fid::ROOT);
        Self { scope, lnet, known }
    }

    /// The exports of clients, and the files that they use, as if they had leaked.
    fn leak(&self, sim: &Sim) {
        for served in sim.cluster.served() {
            let service = match &served.role {
                Role::Mgs(_) => ServerKind::Mgs,
                Role::Mdt(_) => ServerKind::Mdt,
                Role::Ost(_) => ServerKind::Ost,
            };
            for export in served.target.exports() {
                let is_clients = sim.cluster.clients.iter().any(|it| it.nid == export.nid());
                if is_clients {
                    self.known.steal_handle(service, export.handle());
                }
            }
        }
        let files: Vec<Fid> = sim.model.lock().files.fids().collect();
        if !files.is_empty() {
            self.known.add_fid(files[sim.more_random().below(files.len() as u64) as usize]);
        }
    }

    fn end(&self, sim: &Sim) {
        sim.world.break_connections(hostile_nid().address());
        sim.world.end(self.scope);
        self.lnet.shutdown();
    }
}

/// Sends until `end`.
pub(crate) async fn attack(sim: &Arc<Sim>, end: Instant) {
    sim.sleep(faults::PEACE).await;
    let random = SeededRandom::new(sim.more_random().draw());
    while !faults::are_over(sim, end) {
        let process = Process::start(sim).await;
        let known = Arc::clone(&process.known);
        let mut requests = Requests::new(SeededRandom::new(random.draw()), known, RANGE);
        sim.say("FAULT: a hostile node attacks");
        sim.breaks();
        while !faults::are_over(sim, end) && random.below(DIES_ONE_IN) > 0 {
            process.leak(sim);
            for _ in 0..=random.below(BURST) {
                let packet = requests.next_packet();
                let servers = &sim.cluster.servers;
                let any_of =
                    |numbers: &[usize]| numbers[random.below(numbers.len() as u64) as usize];
                let number = match ServerKind::of(packet.portal) {
                    _ if random.below(ASTRAY_ONE_IN) == 0 => {
                        random.below(servers.len() as u64) as usize
                    }
                    ServerKind::Ost => any_of(&sim.cluster.osts()),
                    ServerKind::Mdt if sim.options.mdts > 1 => any_of(&sim.cluster.mdts()),
                    ServerKind::Mgs | ServerKind::Mdt => 0,
                };
                let (to, bits) = (servers[number].nid, MatchBits(packet.xid));
                process.lnet.put(to, packet.portal, bits, 0, vec![packet.bytes]);
            }
            let pause = Duration::from_millis(random.below(PAUSE_MAX.as_millis() as u64));
            sim.sleep(pause).await;
        }
        process.end(sim);
        sim.mends();
        sim.say(format_args!("the hostile node is gone; {:?}", process.known.statuses()));
        sim.sleep(Duration::from_millis(random.below(DOWN_MAX.as_millis() as u64))).await;
    }
}

/// Waits until nothing is left of it.
///
/// # Errors
/// Something is.
pub(crate) async fn is_gone(sim: &Sim) -> Result<(), String> {
    let limit = sim.now() + LEFT_MAX;
    loop {
        let left: Vec<String> = sim.cluster.served().iter().flat_map(|it| exports(it)).collect();
        if left.is_empty() {
            return Ok(());
        }
        if sim.now() > limit {
            return Err(format!("left of a hostile node: {}", left.join(", ")));
        }
        sim.sleep(Duration::from_secs(1)).await;
    }
}

fn exports(served: &Served) -> Vec<String> {
    let view = served.target.view();
    let hostile = view.exports.iter().map(|export| export.uuid.to_string());
    let hostile = hostile.filter(|uuid| is_hostile(uuid));
    hostile.map(|uuid| format!("{uuid} at {}", view.name)).collect()
}

/// Waits until no client's lock and no grant is left, once all clients have disconnected.
///
/// # Errors
/// There is one.
pub(crate) async fn leaves_nothing(sim: &Sim) -> Result<(), String> {
    let limit = sim.now() + LEFT_MAX;
    while let Some(left) = sim.cluster.served().iter().find_map(|it| rest(it)) {
        if sim.now() > limit {
            return Err(left);
        }
        sim.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn rest(served: &Served) -> Option<String> {
    let view = served.target.view();
    let locks: u64 = view.locks.granted.iter().chain(&view.locks.waiting).sum();
    let promised = match &served.role {
        Role::Ost(ost) => ost.grant_view().total,
        Role::Mgs(_) | Role::Mdt(_) => 0,
    };
    let is_clean = (locks, view.locks.resources, promised) == (0, 0, 0);
    (!is_clean).then(|| {
        let resources = view.locks.resources;
        format!("{}: {locks} locks on {resources} resources, {promised} bytes are left", view.name)
    })
}
