//! The client's node and the network between it and the model server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_rpc::import::{Action, Config, Engine, Event, ImportKind, Message};
use sheen_rpc::{Answer, Call, CallKind, ImportState, RequestHook, RpcError, Timing, Xids};
use sheen_types::{Errno, Instant, MatchBits, Nid, ObdHandle, Transno, Uuid, Xid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{MdsSetInfo, OstSync};

use super::server::Server;

const CLIENT: Nid = Nid(0x2_0000_0000_0001);
const SERVER: Nid = Nid(0x2_0000_0000_0002);
/// Where the server may move to.
pub(crate) const PARTNER: Nid = Nid(0x2_0000_0000_0003);
const STEP: Duration = Duration::from_millis(20);

/// What goes wrong, in percent of messages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) double: u64,
    pub(crate) latency_ms_max: u64,
    pub(crate) work_seconds_max: u64,
}

/// A generator good enough to choose faults (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ value >> 31) % limit.max(1)
    }
}

enum Packet {
    ToServer(MatchBits, Bytes),
    ToClient(u32, MatchBits, Bytes),
    /// The client's LNet reports that the server cannot be reached.
    Down(Nid),
    /// To the engine itself, from its node.
    Node(Event),
}

pub(crate) struct Cluster {
    pub(crate) engine: Engine,
    pub(crate) timing: Arc<Timing>,
    pub(crate) server: Server,
    pub(crate) random: Random,
    pub(crate) server_at: Nid,
    faults: Faults,
    now: Instant,
    packets: BTreeMap<(Instant, u64), Packet>,
    order: u64,
    calls: u64,
    modifying: BTreeSet<u64>,
    results: BTreeMap<u64, Result<Answer, RpcError>>,
    is_connected: bool,
    /// Keys of connects and disconnects that have ended.
    pub(crate) settled: Vec<u64>,
    /// How many locks the client has to replay.
    pub(crate) locks: u64,
    /// Lock replays by connection: how many are not answered, and whether all that
    /// were are heard.
    replays: BTreeMap<u32, (u64, bool)>,
    /// Requests that may be sent a moment later.
    pub(crate) lingering: usize,
    /// What the server had reported as durable, and claimed when it came back.
    pub(crate) went_back: Vec<(Transno, Transno)>,
    /// How often it was said that the target has another MDT's objects.
    pub(crate) wrong_identities: u32,
    /// How often what it cached was void.
    pub(crate) invalidations: u32,
}

/// Lock replays are calls with keys from here on.
const LOCK_KEYS: u64 = 1 << 32;

impl Cluster {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let now = Instant(1_000_000_000);
        let config = Config {
            target: Uuid::new("lustre-MDT0000_UUID"),
            client: Uuid::new("client"),
            nids: vec![SERVER, PARTNER],
            kind: ImportKind::Mds,
            data: ObdConnectData {
                flags: ConnectFlags::AT | ConnectFlags::MULTIMODRPCS | ConnectFlags::FLAGS2,
                flags2: ConnectFlags2::MDT_IDENTITY,
                maxmodrpcs: 4,
                ..ObdConnectData::default()
            },
            handle: ObdHandle(77),
            requests_in_flight: 8,
        };
        let timing = Arc::<Timing>::default();
        Self {
            engine: Engine::new(
                now,
                config,
                Arc::new(Xids::new(Xid(1 << 40))),
                Arc::clone(&timing),
            ),
            timing,
            server: Server::new(now),
            random: Random(seed),
            server_at: SERVER,
            faults,
            now,
            packets: BTreeMap::new(),
            order: 0,
            calls: 0,
            modifying: BTreeSet::new(),
            results: BTreeMap::new(),
            is_connected: false,
            settled: Vec::new(),
            locks: 0,
            replays: BTreeMap::new(),
            lingering: 0,
            went_back: Vec::new(),
            wrong_identities: 0,
            invalidations: 0,
        }
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.now.0 / 1_000_000_000
    }

    pub(crate) fn connect(&mut self) {
        self.feed(Event::Connect(u64::MAX));
        for _ in 0..100 {
            if self.is_connected {
                return;
            }
            self.run(2);
        }
        panic!("never connected");
    }

    pub(crate) fn submit(&mut self, kind: CallKind) {
        self.submit_hooked(kind, None);
    }

    /// A change that no caller waits for.
    pub(crate) fn submit_behind(&mut self) {
        self.calls += 1;
        self.modifying.insert(self.calls);
        let call = call_of("apply", self.calls, CallKind::Modifying);
        let call = Call { may_linger: true, ..call };
        self.feed(Event::Submit(self.calls, Box::new(call)));
    }

    /// What other requests wait for.
    pub(crate) fn submit_awaited(&mut self) {
        self.calls += 1;
        let call = call_of("look", self.calls, CallKind::Normal);
        let call = Call { is_awaited: true, ..call };
        self.feed(Event::Submit(self.calls, Box::new(call)));
    }

    /// A change whose caller gives it up after so many seconds; with `ends` it is dropped then.
    pub(crate) fn submit_given_up(&mut self, ends: bool, after: u64) {
        self.calls += 1;
        let call = Call::modifying(OstSync::default());
        let call = Call { ends_with_caller: ends, ..call };
        self.feed(Event::Submit(self.calls, Box::new(call)));
        self.run(after);
        self.feed(Event::GiveUp(self.calls));
    }

    /// A request for data.
    pub(crate) fn submit_data(&mut self, kind: CallKind) {
        self.calls += 1;
        let call = Call { kind, ..Call::new(OstSync::default()) };
        self.feed(Event::Submit(self.calls, Box::new(call)));
    }

    pub(crate) fn submit_hooked(&mut self, kind: CallKind, hook: Option<Arc<dyn RequestHook>>) {
        self.calls += 1;
        let modifies = kind == CallKind::Modifying;
        if modifies {
            self.modifying.insert(self.calls);
        }
        let key = if modifies { "apply" } else { "look" };
        let call = Call { hook, ..call_of(key, self.calls, kind) };
        self.feed(Event::Submit(self.calls, Box::new(call)));
    }

    /// Replays all locks to the server; reports when it has them.
    fn replay_locks(&mut self, connection: u32) {
        if self.locks == 0 {
            self.enqueue(Packet::Node(Event::LocksReplayed(connection, true)));
            return;
        }
        let first = LOCK_KEYS + u64::from(connection) * LOCK_KEYS;
        self.replays.insert(connection, (self.locks, true));
        for lock in 0..self.locks {
            let call = call_of("lock", lock, CallKind::Recovery);
            self.enqueue(Packet::Node(Event::Submit(first + lock, Box::new(call))));
        }
    }

    fn lock_replayed(&mut self, key: u64, result: &Result<Answer, RpcError>) {
        let connection = u32::try_from(key / LOCK_KEYS - 1).expect("a connection");
        let (missing, whole) = self.replays.get_mut(&connection).expect("replays are under way");
        *missing -= 1;
        *whole &= result.is_ok();
        if *missing == 0 {
            let whole = *whole;
            self.replays.remove(&connection);
            self.enqueue(Packet::Node(Event::LocksReplayed(connection, whole)));
        }
    }

    /// The server dies and starts again at once; its connections break.
    pub(crate) fn crash(&mut self) {
        self.server.crash(self.now);
        self.break_connection();
    }

    /// What is under way is lost, and both ends notice.
    pub(crate) fn break_connection(&mut self) {
        self.packets.retain(|_, packet| matches!(packet, Packet::Node(_)));
        self.feed(Event::PeerDown(self.engine.peer()));
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn calm(&mut self) {
        self.faults = Faults::default();
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.now = self.now + STEP;
            self.deliver();
            for answer in self.server.work(self.now) {
                if self.seconds() < self.server.mute_until {
                    continue;
                }
                self.post(Packet::ToClient(answer.offset, answer.bits, answer.payload));
            }
            if self.random.below(25) == 0 {
                self.server.commit();
            }
            if self.engine.next_wake().is_some_and(|wake| wake <= self.now) {
                self.feed(Event::Tick);
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.packets.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            match entry.remove() {
                Packet::ToServer(bits, payload) if self.seconds() >= self.server.deaf_until => {
                    let work = self.random.below(self.faults.work_seconds_max + 1);
                    let work = if self.random.below(4) == 0 { work } else { 0 };
                    self.server.arrive(self.now, CLIENT, bits, &payload, work);
                }
                Packet::ToServer(..) => {}
                Packet::ToClient(offset, bits, payload) => {
                    let portal = Portal::MDC_REPLY;
                    let from = self.server_at;
                    self.feed(Event::Message(Message { from, portal, bits, offset, payload }));
                }
                Packet::Down(nid) => self.feed(Event::PeerDown(nid)),
                Packet::Node(event) => self.feed(event),
            }
        }
    }

    /// Sends through the faulty network.
    fn post(&mut self, packet: Packet) {
        if self.random.below(100) < self.faults.loss {
            return;
        }
        if self.random.below(100) < self.faults.double {
            let copy = match &packet {
                Packet::ToServer(bits, payload) => Packet::ToServer(*bits, payload.clone()),
                Packet::ToClient(offset, bits, payload) => {
                    Packet::ToClient(*offset, *bits, payload.clone())
                }
                Packet::Down(_) | Packet::Node(_) => return,
            };
            self.enqueue(copy);
        }
        self.enqueue(packet);
    }

    fn enqueue(&mut self, packet: Packet) {
        self.order += 1;
        let latency = Duration::from_millis(1 + self.random.below(self.faults.latency_ms_max));
        self.packets.insert((self.now + latency, self.order), packet);
    }

    pub(crate) fn feed(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Send(outgoing) => {
                self.lingering += usize::from(outgoing.may_linger);
                if self.seconds() < self.server.refuses_until || outgoing.to != self.server_at {
                    self.enqueue(Packet::Down(outgoing.to));
                } else {
                    self.post(Packet::ToServer(outgoing.bits, outgoing.message));
                }
            }
            Action::Complete(key, result, hook) => {
                if let (Some(hook), Ok(answer)) = (hook, &result)
                    && !hook.keep_until_release(answer)
                {
                    let xid = answer.xid;
                    self.enqueue(Packet::Node(Event::Release(xid)));
                }
                if key >= LOCK_KEYS {
                    self.lock_replayed(key, &result);
                    return;
                }
                let before = self.results.insert(key, result);
                assert!(before.is_none(), "call {key} was answered twice");
            }
            Action::Settled(key, result) => {
                // Only that is answered to a connect and not tried until it goes well.
                assert!(
                    matches!(result, Ok(()) | Err(RpcError::Errno(Errno::EXDEV))),
                    "{result:?}"
                );
                self.settled.push(key);
                self.is_connected = result.is_ok();
            }
            Action::AskUnused(connection) => {
                let is_unused = self.locks == 0;
                self.enqueue(Packet::Node(Event::Unused(connection, is_unused)));
            }
            Action::WrongIdentity => self.wrong_identities += 1,
            Action::WentBack(reported, claimed) => self.went_back.push((reported, claimed)),
            Action::VoidAll => {
                self.invalidations += 1;
                self.enqueue(Packet::Node(Event::AllVoided));
            }
            Action::ReplayLocks(connection) => self.replay_locks(connection),
            Action::Forget(_) | Action::State(_) => {}
            Action::Prepare(transno, hook, mut request, answer) => {
                hook.before_replay(&mut request, &answer);
                self.enqueue(Packet::Node(Event::Prepared(transno, request)));
            }
            Action::Replayed(hook, answer) => hook.replayed(&answer),
        }
    }

    /// The xid of a call's answer.
    pub(crate) fn release(&mut self, call: u64) {
        if let Some(Ok(answer)) = self.results.get(&call) {
            let xid = answer.xid;
            self.feed(Event::Release(xid));
        }
    }

    pub(crate) fn answered(&self) -> usize {
        self.results.values().filter(|result| result.is_ok()).count()
    }

    pub(crate) fn failures(&self) -> Vec<RpcError> {
        self.results.values().filter_map(|result| result.clone().err()).collect()
    }

    pub(crate) fn check(&self) {
        self.check_except(0);
    }

    /// Connected, or not for lack of use.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.engine.state(), ImportState::Full | ImportState::Idle)
    }

    /// Every call was answered, all but so many well; every modifying call is in the server's
    /// history once, as the transaction that its answer named.
    pub(crate) fn check_except(&self, failures: usize) {
        assert_eq!(self.results.len() as u64, self.calls, "some calls were never answered");
        assert_eq!(self.failures().len(), failures, "{:?}", self.failures());
        assert!(self.is_at_rest(), "{:?}", self.engine.history());
        let mut applied: BTreeMap<u64, Vec<Transno>> = BTreeMap::new();
        for (transno, call) in &self.server.history {
            applied.entry(*call).or_default().push(*transno);
        }
        for call in &self.modifying {
            let Ok(answer) = &self.results[call] else { continue };
            assert_eq!(applied.remove(call), Some(vec![answer.body.transno]), "call {call}");
        }
        assert!(applied.is_empty(), "applied without being asked: {applied:?}");
    }
}

fn call_of(key: &'static str, value: u64, kind: CallKind) -> Call {
    let request = MdsSetInfo {
        setinfo_key: Bytes::from_static(key.as_bytes()),
        setinfo_val: Bytes::copy_from_slice(&value.to_le_bytes()),
        ..MdsSetInfo::default()
    };
    Call { kind, ..Call::new(request) }
}
