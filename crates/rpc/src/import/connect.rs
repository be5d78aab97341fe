//! Connecting, losing the connection, connecting again, and the end.

use sheen_types::{Errno, Instant, Nid, ObdHandle, Transno, Xid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::messages::{
    MdsConnect, MdsDisconnect, MgsConnect, MgsDisconnect, OstConnect, OstDisconnect, Reply, Request,
};
use sheen_wire::ptlrpc::{Message as Wire, MsgType, OpFlags, PtlrpcBody};
use sheen_wire::text::Text;

use super::flight::{Flight, FlightOwner};
use super::state::{Connecting, Disconn, EngineState, RequestReplay, Stage};
use super::{Action, Engine, ImportKind};
use crate::channel::{Call, RpcError};
use crate::limits;

/// Bytes of a UUID's buffer in a connect: `struct obd_uuid` less one.
const UUID_BYTES: usize = 39;

impl Engine {
    pub(super) fn connect_wanted(&mut self, now: Instant, key: u64, actions: &mut Vec<Action>) {
        let answer = match &self.state {
            EngineState::Closed => Some(Err(RpcError::Shutdown)),
            EngineState::Full(_) => Some(Ok(())),
            _ if !self.policy.active => Some(Err(RpcError::Errno(Errno::EIO))),
            _ => None,
        };
        if let Some(answer) = answer {
            actions.push(Action::Settled(key, answer));
            return;
        }
        self.waiting.connects.push(key);
        if self.state.next_connect().is_none() {
            self.connect(now, actions);
        }
    }

    /// Sends a connect, unless there is a connection, or something on its way.
    pub(super) fn connect(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let resume = match &self.state {
            EngineState::New | EngineState::Idle | EngineState::Disconn(Disconn::Denied(_)) => {
                Stage::Replay
            }
            EngineState::Disconn(Disconn::LostConnection(lost)) => lost.resume,
            _ => return,
        };
        self.enter(now, EngineState::Connecting(Connecting::Connect(resume)), actions);
        self.connects.begin(now);
        self.stats.counters.connects += 1;
        let request = self.connect_request();
        self.start_flight(now, Flight::new(FlightOwner::Connect, Call::new(request)), actions);
    }

    fn connect_request(&self) -> Request {
        let tgtuuid = Text::padded(self.identity.target.as_str(), UUID_BYTES);
        let cluuid = Text::padded(self.identity.client.as_str(), UUID_BYTES);
        let conn = self.identity.handle;
        let mut cdata = self.identity.offered.clone();
        let first = self.kept.first();
        if first != Transno(0) {
            cdata.transno = first;
        }
        match self.identity.kind {
            ImportKind::Mgs => {
                MgsConnect { tgtuuid, cluuid, conn, cdata, ..MgsConnect::default() }.into()
            }
            ImportKind::Mds => {
                MdsConnect { tgtuuid, cluuid, conn, cdata, ..MdsConnect::default() }.into()
            }
            ImportKind::Ost | ImportKind::Reverse => {
                OstConnect { tgtuuid, cluuid, conn, cdata, ..OstConnect::default() }.into()
            }
        }
    }

    /// The connect was not answered, or answered with "later".
    pub(super) fn connect_failed(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.connects.failed();
        self.enter(now, EngineState::lost(self.state.stage()), actions);
        self.fail_impatient(actions);
        self.schedule_connect(now);
    }

    fn schedule_connect(&mut self, now: Instant) {
        let doubled = self.connects.tries.saturating_sub(1).min(16);
        let pause = match self.connects.tries {
            0 => std::time::Duration::ZERO,
            _ => (limits::RECONNECT_PAUSE_MIN * (1 << doubled)).min(limits::RECONNECT_PAUSE_MAX),
        };
        let retry = self.should_reconnect().then(|| now + pause);
        if let EngineState::Disconn(Disconn::LostConnection(lost)) = &mut self.state {
            lost.retry = retry;
        }
    }

    /// The connection is gone: back to DISCONN, and connect again soon.
    pub(super) fn disconnected(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.state.is_over() || matches!(self.state, EngineState::Idle) {
            return;
        }
        self.abandon_flights(actions);
        // A new connection does not restore what an eviction took.
        if !self.is_reverse() && !matches!(self.state, EngineState::Evicted) {
            self.enter(now, EngineState::lost(self.state.stage()), actions);
            self.schedule_connect(now);
        }
    }

    /// The target answered that it does not know us.
    pub(super) fn unknown_to_target(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.disconnected(now, actions);
        self.connect(now, actions);
    }

    pub(super) fn peer_down(&mut self, now: Instant, nid: Nid, actions: &mut Vec<Action>) {
        if nid != self.peer() {
            return;
        }
        match &self.state {
            // It heard the good-bye or will not: the connection is gone either way.
            EngineState::Connecting(Connecting::Suspending) => {
                self.abandon_flights(actions);
                self.suspended(now, actions);
            }
            EngineState::Connecting(Connecting::Connect(_)) => {
                self.abandon_flights(actions);
                self.connect_failed(now, actions);
            }
            EngineState::Disconn(Disconn::Leaving(_)) => self.close(now, actions),
            state if state.shown().is_connected() => self.disconnected(now, actions),
            _ => {}
        }
    }

    pub(super) fn reconnect(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_over = self.state.is_over() || matches!(self.state, EngineState::Evicted);
        if self.is_reverse() || is_over || !self.policy.active || self.state.is_suspending() {
            return;
        }
        self.connects.tries = 0;
        self.disconnected(now, actions);
        self.connect(now, actions);
    }

    pub(super) fn connect_reply(
        &mut self,
        now: Instant,
        xid: Xid,
        wire: &Wire,
        body: &PtlrpcBody,
        actions: &mut Vec<Action>,
    ) {
        let kind = self.flights.by_xid[&xid].call.request.kind();
        self.take_flight(xid, actions);
        if !matches!(self.state, EngineState::Connecting(Connecting::Connect(_))) {
            return;
        }
        self.connects.replied();
        if body.kind == MsgType::ERR || body.status < 0 {
            let errno = Errno::from_status(body.status).unwrap_or(Errno::EINVAL);
            self.connect_refused(now, errno, actions);
            return;
        }
        let data = match Reply::decode(kind, wire) {
            Ok(Reply::MgsConnect(reply)) => reply.cdata,
            Ok(Reply::MdsConnect(reply)) => reply.cdata,
            Ok(Reply::OstConnect(reply)) => reply.cdata,
            _ => None,
        };
        match data.filter(|data| self.is_subset(data)) {
            Some(data) if self.has_wrong_mdt_identity(&data) => self.wrong_identity(now, actions),
            Some(data) => self.connected(now, body, data, actions),
            None => {
                let text = "the target agreed to what was not offered".to_owned();
                self.deny(now, &RpcError::Protocol(text), actions);
            }
        }
    }

    /// A target may agree to less than we offered, never to more.
    fn is_subset(&self, data: &ObdConnectData) -> bool {
        let offered = &self.identity.offered;
        let second =
            !data.flags.contains(ConnectFlags::FLAGS2) || offered.flags2.contains(data.flags2);
        offered.flags.contains(data.flags) && second
    }

    /// Whether another MDT answers than the one that our names and open files come from, or one that does not say
    /// which it is. Those that know of identities refuse us themselves; an older one has taken us for its client.
    fn has_wrong_mdt_identity(&self, data: &ObdConnectData) -> bool {
        let known = self.identity.offered.mdt_identity().filter(|_| self.is_to_mdt());
        known.is_some() && known != data.mdt_identity()
    }

    /// Whether what is offered says of which MDT our names are. Another MDT offers its own identity, as it does to OSTs.
    fn is_to_mdt(&self) -> bool {
        self.identity.kind == ImportKind::Mds && !self.is_between_mdts()
    }

    fn connect_refused(&mut self, now: Instant, errno: Errno, actions: &mut Vec<Action>) {
        match errno {
            Errno::EACCES
            | Errno::EROFS
            | Errno::EPERM
            | Errno::EPROTO
            | Errno::EINVAL
            | Errno::EOPNOTSUPP
            | Errno::ENOTSUPP => self.deny(now, &RpcError::Errno(errno), actions),
            Errno::EXDEV if self.sends_identity() => self.wrong_identity(now, actions),
            _ => {
                let peer = self.peer();
                self.connect_failed(now, actions);
                let is_refused_in_recovery = errno == Errno::EBUSY;
                self.connects.refused_in_recovery =
                    self.connects.refused_in_recovery.or(is_refused_in_recovery.then_some(peer));
            }
        }
    }

    /// The target is another MDT than the one that this client's names come from, or its objects are those of another MDT
    /// than that, or than this one is. An administrator may put the right one in its place, so we ask again. Callers wait for that where it has
    /// been ours before, as they would if it were away: they may have what must not be lost.
    fn wrong_identity(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.connects.has_wrong_identity, true) {
            actions.push(Action::WrongIdentity);
        }
        if self.negotiated.export == ObdHandle(0) {
            self.fail_all(&RpcError::Errno(Errno::EIO), actions);
            for key in self.waiting.connects.drain(..) {
                let refusal = RpcError::Errno(Errno::EXDEV);
                actions.push(Action::Settled(key, Err(refusal)));
            }
        }
        self.connect_failed(now, actions);
    }

    /// Whether we say which MDT we are, or have our names from.
    fn sends_identity(&self) -> bool {
        self.identity.offered.flags2.contains(ConnectFlags2::MDT_IDENTITY)
    }

    /// The target refuses us: waiting callers get the error, and nothing is tried until asked for. As in Lustre
    /// what it gave us is void: it may evict us without notice, and a caller of a lock would wait for ever.
    fn deny(&mut self, now: Instant, error: &RpcError, actions: &mut Vec<Action>) {
        self.enter(now, EngineState::Disconn(Disconn::Denied(error.clone())), actions);
        self.fail_all(error, actions);
        if self.negotiated.export != ObdHandle(0) {
            self.discard_replays();
            self.negotiated.forget_target();
            actions.push(Action::VoidAll);
        }
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Err(error.clone())));
        }
    }

    /// The target took us.
    fn connected(
        &mut self,
        now: Instant,
        body: &PtlrpcBody,
        data: ObdConnectData,
        actions: &mut Vec<Action>,
    ) {
        (self.connects.refused_in_recovery, self.connects.has_wrong_identity) = (None, false);
        self.negotiate(data);
        self.kept.commit(body.last_committed);
        self.check_history(body.last_committed, actions);
        let before = std::mem::replace(&mut self.negotiated.export, body.handle);
        let state = self.state_after_connect(before, body);
        self.enter(now, state, actions);
        self.advance(now, actions);
    }

    /// The state that a connect leads to: it depends on what the target remembers of us.
    fn state_after_connect(&mut self, before: ObdHandle, body: &PtlrpcBody) -> EngineState {
        let recovering = body.op_flags.contains(OpFlags::CONNECT_RECOVERING);
        let known = body.op_flags.contains(OpFlags::CONNECT_RECONNECT);
        let is_same = before == body.handle;
        if before == ObdHandle(0) {
            return if recovering { EngineState::ReplayLocks } else { EngineState::Recover };
        }
        match (recovering, known) {
            (true, true) if is_same => self.state.stage().resumed(),
            // With another handle it has started again, though it may know us from a connect whose answer
            // was lost: nothing that was sent to the one before it is there.
            (true, _) => {
                self.kept.replayed = Transno(0);
                EngineState::Replay(RequestReplay::default())
            }
            (false, true) if is_same => EngineState::Recover,
            (false, false) if !self.negotiated.has_state_there => EngineState::Recover,
            (false, _) => EngineState::Evicted,
        }
    }

    /// The target may claim less than it once reported: its store was cut, or is an older one. As in
    /// Lustre the import goes on and replays what it has, but it says so. And from here on it believes
    /// only the new claim: with the old one it would drop changes that are not durable at all. A claim
    /// of 0 is none: Lustre's targets give it to a client that they take for a new one. Ours, where they are
    /// empty, claim more than that (`sheen_target`).
    fn check_history(&mut self, claimed: Transno, actions: &mut Vec<Action>) {
        if claimed != Transno(0) && claimed < self.kept.committed {
            actions.push(Action::WentBack(self.kept.committed, claimed));
            self.kept.committed = claimed;
        }
    }

    fn negotiate(&mut self, data: ObdConnectData) {
        // From the first answer on the import is one to this MDT, and to no other.
        if self.is_to_mdt() && data.mdt_identity().is_some() {
            self.identity.offered.identity = data.identity.clone();
        }
        self.negotiated.data = data;
        let numbered = self.negotiated.data.flags.contains(ConnectFlags::MULTIMODRPCS);
        let count = match self.negotiated.data.maxmodrpcs {
            _ if !numbered => 1,
            0 => limits::MODIFYING_IN_FLIGHT,
            count => count.min(limits::MODIFYING_IN_FLIGHT_MAX),
        };
        self.slots.resize(count, numbered);
    }

    pub(super) fn disconnect(&mut self, now: Instant, key: u64, actions: &mut Vec<Action>) {
        let is_connected = self.state.is_full() && !self.is_reverse();
        self.fail_all(&RpcError::Shutdown, actions);
        if !is_connected {
            self.close(now, actions);
            actions.push(Action::Settled(key, Ok(())));
            return;
        }
        let request = self.disconnect_request();
        // Calls that come from now on wait, and end with the import.
        self.enter(now, EngineState::Disconn(Disconn::Leaving(key)), actions);
        self.start_flight(now, Flight::new(FlightOwner::Disconnect, Call::new(request)), actions);
    }

    pub(super) fn disconnect_request(&self) -> Request {
        match self.identity.kind {
            ImportKind::Mgs => MgsDisconnect::default().into(),
            ImportKind::Mds => MdsDisconnect::default().into(),
            ImportKind::Ost | ImportKind::Reverse => OstDisconnect::default().into(),
        }
    }

    pub(super) fn close(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let leaving = match &self.state {
            EngineState::Disconn(Disconn::Leaving(key)) => Some(*key),
            _ => None,
        };
        self.fail_all(&RpcError::Shutdown, actions);
        self.kept.clear();
        self.enter(now, EngineState::Closed, actions);
        if let Some(key) = leaving {
            actions.push(Action::Settled(key, Ok(())));
        }
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Err(RpcError::Shutdown)));
        }
    }
}
