//! Connecting, losing the connection, connecting again, and the end.

use sheen_types::{Errno, Instant, Nid, ObdHandle, Transno, Xid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::{
    MdsConnect, MdsDisconnect, MgsConnect, MgsDisconnect, OstConnect, OstDisconnect, Reply, Request,
};
use sheen_wire::ptlrpc::{Message as Wire, MsgType, OpFlags, PtlrpcBody};
use sheen_wire::text::Text;

use super::flight::{Flight, Owner};
use super::{Action, Engine, ImportKind};
use crate::channel::{Call, RpcError};
use crate::limits;
use crate::state::ImportState;

/// Bytes of a UUID's buffer in a connect: `struct obd_uuid` less one.
const UUID_BYTES: usize = 39;

impl Engine {
    pub(super) fn connect_wanted(&mut self, now: Instant, key: u64, actions: &mut Vec<Action>) {
        if self.state == ImportState::Closed {
            actions.push(Action::Settled(key, Err(RpcError::Shutdown)));
            return;
        }
        if self.state == ImportState::Full {
            actions.push(Action::Settled(key, Ok(())));
            return;
        }
        if !self.policy.active {
            actions.push(Action::Settled(key, Err(RpcError::Errno(Errno::EIO))));
            return;
        }
        self.waiting.connects.push(key);
        self.denied = None;
        let idle =
            matches!(self.state, ImportState::New | ImportState::Disconn | ImportState::Idle);
        if idle && (!self.wanted || self.next_connect.is_none()) {
            self.wanted = true;
            self.connect(now, actions);
        }
    }

    /// Sends a connect.
    pub(super) fn connect(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.next_connect = None;
        let rests =
            matches!(self.state, ImportState::New | ImportState::Disconn | ImportState::Idle);
        if !self.wanted || !self.policy.active || !rests {
            return;
        }
        self.enter(now, ImportState::Connecting, actions);
        self.connection += 1;
        self.tries += 1;
        self.stats.counters.connects += 1;
        let peer = self.peer();
        let tries = self.tried.entry(peer).or_default();
        (tries.connects, tries.last) = (tries.connects + 1, Some(now));
        let request = self.connect_request();
        self.launch(now, Flight::new(Owner::Connect, Call::new(request)), actions);
    }

    fn connect_request(&self) -> Request {
        let tgtuuid = Text::padded(self.config.target.as_str(), UUID_BYTES);
        let cluuid = Text::padded(self.config.client.as_str(), UUID_BYTES);
        let conn = self.config.handle;
        let mut cdata = self.config.data.clone();
        let first = self.kept.first();
        if first != Transno(0) {
            cdata.transno = first;
        }
        match self.config.kind {
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
        let peer = self.peer();
        self.put_off.take_if(|nid| *nid == peer);
        self.nid = (self.nid + 1) % self.config.nids.len();
        self.enter(now, ImportState::Disconn, actions);
        self.tried_to_connect();
        self.fail_impatient(actions);
        self.schedule_connect(now);
    }

    fn schedule_connect(&mut self, now: Instant) {
        let doubled = self.tries.saturating_sub(1).min(16);
        let pause = match self.tries {
            0 => std::time::Duration::ZERO,
            _ => (limits::RECONNECT_PAUSE_MIN * (1 << doubled)).min(limits::RECONNECT_PAUSE_MAX),
        };
        self.next_connect = self.seeks_connection().then(|| now + pause);
    }

    /// The connection is gone: back to DISCONN, and connect again soon.
    pub(super) fn disconnected(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if matches!(self.state, ImportState::Closed | ImportState::Idle) {
            return;
        }
        self.abandon_flights(actions);
        if self.is_reverse() {
            return;
        }
        if matches!(
            self.state,
            ImportState::Replay | ImportState::ReplayLocks | ImportState::ReplayWait
        ) {
            self.replay_stage = self.state;
        }
        // What an eviction took is not given back by a new connection.
        if self.state != ImportState::Evicted {
            self.enter(now, ImportState::Disconn, actions);
            self.schedule_connect(now);
        }
    }

    /// The target answered that it does not know us.
    pub(super) fn unknown_to_target(&mut self, now: Instant, _xid: Xid, actions: &mut Vec<Action>) {
        self.disconnected(now, actions);
        self.connect(now, actions);
    }

    pub(super) fn peer_down(&mut self, now: Instant, nid: Nid, actions: &mut Vec<Action>) {
        if nid != self.peer() {
            return;
        }
        match self.state {
            // It heard the good-bye or will not: the connection is gone either way.
            ImportState::Connecting if self.is_parking() => {
                self.abandon_flights(actions);
                self.parked(now, actions);
            }
            ImportState::Connecting => {
                self.abandon_flights(actions);
                self.connect_failed(now, actions);
            }
            state if state.is_connected() => self.disconnected(now, actions),
            _ if self.flights.by_xid.values().any(is_disconnect) => self.close(now, actions),
            _ => {}
        }
    }

    pub(super) fn reconnect(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_over = matches!(self.state, ImportState::Closed | ImportState::Evicted);
        if self.is_reverse() || is_over || !self.policy.active || self.is_parking() {
            return;
        }
        self.wanted = true;
        self.denied = None;
        self.tries = 0;
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
        self.land(xid, actions);
        if self.state != ImportState::Connecting {
            return;
        }
        let peer = self.peer();
        self.tried.entry(peer).or_default().replied += 1;
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
            Some(data) => self.connected(now, body, data, actions),
            None => {
                let text = "the target agreed to what was not offered".to_owned();
                self.deny(now, &RpcError::Protocol(text), actions);
            }
        }
    }

    /// A target may agree to less than we offered, never to more.
    fn is_subset(&self, data: &ObdConnectData) -> bool {
        let offered = &self.config.data;
        let second =
            !data.flags.contains(ConnectFlags::FLAGS2) || offered.flags2.contains(data.flags2);
        offered.flags.contains(data.flags) && second
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
            _ => {
                let peer = self.peer();
                self.connect_failed(now, actions);
                self.put_off = self.put_off.or((errno == Errno::EBUSY).then_some(peer));
            }
        }
    }

    /// The target refuses us: waiting callers get the error, and nothing is tried until asked for. As in Lustre
    /// what it gave us is void: it may evict us without notice, and a caller of a lock would wait for ever.
    fn deny(&mut self, now: Instant, error: &RpcError, actions: &mut Vec<Action>) {
        self.wanted = false;
        self.next_connect = None;
        self.denied = Some(error.clone());
        self.enter(now, ImportState::Disconn, actions);
        self.fail_all(error, actions);
        if self.remote != ObdHandle(0) {
            self.lose_all();
            self.forget_target();
            actions.push(Action::Invalidate);
        }
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Err(error.clone())));
        }
    }

    /// The target took us. Which way to FULL depends on what it remembers of us.
    fn connected(
        &mut self,
        now: Instant,
        body: &PtlrpcBody,
        data: ObdConnectData,
        actions: &mut Vec<Action>,
    ) {
        self.put_off = None;
        self.agree(data);
        self.check_history(body.last_committed, actions);
        let before = std::mem::replace(&mut self.remote, body.handle);
        let recovering = body.op_flags.contains(OpFlags::CONNECT_RECOVERING);
        let known = body.op_flags.contains(OpFlags::CONNECT_RECONNECT);
        let state = if before == ObdHandle(0) {
            if recovering { ImportState::ReplayLocks } else { ImportState::Recover }
        } else if known && recovering && before == body.handle {
            self.replay_again = true;
            self.replay_stage
        } else if known && !recovering {
            if before == body.handle { ImportState::Recover } else { ImportState::Evicted }
        } else if recovering {
            // With another handle it has started again, though it knows us from a connect whose
            // answer was lost: nothing that was sent to the one before it is there.
            self.kept.replayed = Transno(0);
            self.replay_again = false;
            self.replay_stage = ImportState::Replay;
            ImportState::Replay
        } else if self.used {
            ImportState::Evicted
        } else {
            ImportState::Recover
        };
        self.enter(now, state, actions);
        self.advance(now, actions);
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

    fn agree(&mut self, data: ObdConnectData) {
        self.agreed = data;
        let numbered = self.agreed.flags.contains(ConnectFlags::MULTIMODRPCS);
        let count = match self.agreed.maxmodrpcs {
            _ if !numbered => 1,
            0 => limits::MODIFYING_IN_FLIGHT,
            count => count.min(limits::MODIFYING_IN_FLIGHT_MAX),
        };
        self.slots.resize(count, numbered);
    }

    pub(super) fn disconnect(&mut self, now: Instant, key: u64, actions: &mut Vec<Action>) {
        self.wanted = false;
        self.next_connect = None;
        let connected = self.state == ImportState::Full && !self.is_reverse();
        self.fail_all(&RpcError::Shutdown, actions);
        if !connected {
            self.close(now, actions);
            actions.push(Action::Settled(key, Ok(())));
            return;
        }
        let request = self.disconnect_request();
        // Calls that come from now on wait, and end with the import.
        self.enter(now, ImportState::Disconn, actions);
        self.launch(now, Flight::new(Owner::Disconnect(key), Call::new(request)), actions);
    }

    pub(super) fn disconnect_request(&self) -> Request {
        match self.config.kind {
            ImportKind::Mgs => MgsDisconnect::default().into(),
            ImportKind::Mds => MdsDisconnect::default().into(),
            ImportKind::Ost | ImportKind::Reverse => OstDisconnect::default().into(),
        }
    }

    pub(super) fn close(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.wanted = false;
        self.next_connect = None;
        let keys: Vec<u64> = self.flights.by_xid.values()
            .filter_map(|flight| match flight.owner {
                Owner::Disconnect(key) => Some(key),
                _ => None,
            })
            .collect();
        self.fail_all(&RpcError::Shutdown, actions);
        self.kept.clear();
        self.enter(now, ImportState::Closed, actions);
        for key in keys {
            actions.push(Action::Settled(key, Ok(())));
        }
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Err(RpcError::Shutdown)));
        }
    }
}

fn is_disconnect(flight: &Flight) -> bool {
    matches!(flight.owner, Owner::Disconnect(_))
}
