//! A client that wants everything: it connects under ever new names, takes lock after lock and takes no
//! answers; a mounted client works beside it, and both its rate and what the server keeps are looked at.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sheen_client::data::DataTargets;
use sheen_client::posix::{FileSystem, NodeId};
use sheen_node::net::LNet;
use sheen_rpc::REPLY_PORTALS;
use sheen_target::budget::Limit;
use sheen_types::{Fid, InodeBits, LockHandle, LockMode, MatchBits, Nid, ObdHandle, ResourceName};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags, LockType, Policy};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{LdlmEnqueue, MdsConnect, ObdPing, Request};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{MESSAGE_VERSION, MessageHeader, MsgType, PtlrpcBody};
use sheen_wire::text::Text;

use super::common::{Servers, mounted, server_nid, start};
use sheen_hostile::Known;

use super::{HOSTILE, work};

/// How long the good client works, alone and beside the other.
const TIME: Duration = Duration::from_millis(200);
/// Of each, so that a short run meets the limits.
const EXPORTS: usize = 20;
const LOCKS: usize = 1_000;

struct Greedy {
    lnet: Arc<LNet>,
    learned: Arc<Known>,
    number: AtomicU64,
    /// Of its first export.
    first: OnceLock<ObdHandle>,
}

impl Greedy {
    fn send(&self, portal: Portal, opcode: Opcode, handle: ObdHandle, request: Request) {
        let xid = self.number.fetch_add(64, Ordering::Relaxed);
        let body = PtlrpcBody {
            handle,
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode,
            conn_cnt: 1,
            timeout: 20,
            match_bits: MatchBits(xid),
            ..PtlrpcBody::default()
        };
        let bytes = request.to_bytes(&MessageHeader::default(), &body);
        self.lnet.put(server_nid(), portal, MatchBits(xid), 0, vec![bytes]);
    }

    /// As a client that has not been there before.
    fn connect(&self) {
        let number = self.number.load(Ordering::Relaxed);
        let cdata = ObdConnectData {
            flags: ConnectFlags::FULL20
                | ConnectFlags::VERSION
                | ConnectFlags::IBITS
                | ConnectFlags::FID,
            flags2: ConnectFlags2::NONE,
            version: 0x0211_0000,
            ibits_known: 0x7f,
            ..ObdConnectData::default()
        };
        let connect = MdsConnect {
            tgtuuid: Text::padded("lustre-MDT0000_UUID", 40),
            cluuid: Text::padded(format!("{HOSTILE}{number}"), 40),
            conn: ObdHandle(number | 1),
            cdata,
            ..MdsConnect::default()
        };
        self.send(Portal::MDS_REQUEST, Opcode::MDS_CONNECT, ObdHandle(0), connect.into());
    }

    fn handle(&self) -> ObdHandle {
        let first = || self.learned.handles_of(Opcode::MDS_CONNECT)?.first().copied();
        *self.first.get_or_init(|| first().expect("it is connected"))
    }

    /// On a file that no other client uses.
    fn take_lock(&self) {
        let number = self.number.load(Ordering::Relaxed);
        let fid = Fid::new(0x2_0000_0f00, (number / 64) as u32);
        let desc = LdlmLockDesc {
            resource: LdlmResourceDesc {
                kind: LockType::IBITS,
                padding: 0,
                name: ResourceName::of_fid(fid),
            },
            req_mode: LockMode::Pr.into(),
            policy: Policy::of_inode_bits(InodeBits::LOOKUP, InodeBits(0)),
            ..LdlmLockDesc::default()
        };
        let dlm_req = LdlmRequest::enqueue(LockFlags::NONE, desc, LockHandle(number | 1));
        let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
        self.send(Portal::MDS_REQUEST, Opcode::LDLM_ENQUEUE, self.handle(), request.into());
    }

    fn harm(&self) {
        (0..60).for_each(|_| self.take_lock());
        (0..20).for_each(|_| self.connect());
        for _ in 0..20 {
            self.send(
                Portal::MDS_REQUEST,
                Opcode::OBD_PING,
                self.handle(),
                ObdPing::default().into(),
            );
        }
    }
}

/// Rounds of work that a client gets done in [`TIME`].
async fn rounds(world: &sheen_io::World, files: &FileSystem, first: u64) -> u64 {
    let (end, mut round) = (world.clock.now() + TIME, first);
    while world.clock.now() < end {
        work(files, NodeId::ROOT, round).await;
        round += 1;
    }
    round - first
}

#[test]
fn a_client_that_wants_everything_costs_another_one_a_tenth_at_most() {
    let Servers { world, client, cluster } = start(1);
    let io = world.world();
    let neighbour = Nid::tcp(Ipv4Addr::new(10, 77, 0, 14));
    let mount = io.clone();
    let files =
        world.run(async move { mounted(&mount, neighbour, DataTargets::new(mount.clone())).await });
    let files = Arc::new(files);
    let mdt = Arc::clone(&cluster.places[1].served.target);
    mdt.budget().set(Limit::Exports, EXPORTS);
    mdt.budget().set(Limit::Locks, LOCKS);
    let (good, at) = (Arc::clone(&files), io.clone());
    let alone = world.run(async move { rounds(&at, &good, 0).await });

    let learned = Arc::new(Known::default());
    for portal in REPLY_PORTALS {
        client.serve(portal, Arc::clone(&learned) as _);
    }
    let greedy = Arc::new(Greedy {
        lnet: client,
        learned,
        number: AtomicU64::new(1 << 40),
        first: OnceLock::new(),
    });
    greedy.connect();
    world.pass(Duration::from_secs(10));
    let statuses = greedy.learned.statuses();
    assert_eq!(statuses.keys().collect::<Vec<_>>(), [&0], "it is connected");
    greedy.handle();
    let goes_on = Arc::new(AtomicBool::new(true));
    let (clock, hostile, flag) = (Arc::clone(&io.clock), Arc::clone(&greedy), Arc::clone(&goes_on));
    let flood = async move {
        while flag.load(Ordering::Relaxed) {
            hostile.harm();
            clock.sleep_until(clock.now() + Duration::from_millis(20)).await;
        }
    };
    io.tasks.spawn("flood", Box::pin(flood));
    world.pass(Duration::from_millis(500));
    let (good, at) = (Arc::clone(&files), io.clone());
    let beside = world.run(async move { rounds(&at, &good, 1 << 20).await });
    goes_on.store(false, Ordering::Relaxed);
    println!("{alone} rounds alone, {beside} beside the greedy client");
    assert!(beside * 10 >= alone * 9, "{beside} rounds, {alone} without the greedy client");

    let view = mdt.view();
    let hostile = view.exports.iter().filter(|it| it.uuid.to_string().starts_with(HOSTILE)).count();
    assert_eq!(hostile, EXPORTS, "and no more are kept");
    let locks = view.locks.granted.iter().sum::<u64>() as usize;
    assert!((LOCKS / 2..LOCKS + 500).contains(&locks), "{locks} locks");
    for limit in [Limit::Exports, Limit::Locks] {
        assert!(mdt.budget().refused(limit) > 100, "{limit:?} was never met");
    }
}
