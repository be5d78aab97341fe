//! From a new connection back to FULL: replay, lock replay, resend; or eviction.

use std::sync::Arc;

use sheen_types::{Instant, Transno, Xid};
use sheen_wire::messages::{ObdPing, Request};
use sheen_wire::ptlrpc::PtlrpcBody;

use super::flight::{Flight, FlightOwner};
use super::kept::KeptRequest;
use super::state::{EngineState, Full};
use super::{Action, Engine};
use crate::channel::{Answer, Bulk, Call, CallKind, RequestHook, RpcError};

impl Engine {
    /// Does what the state demands, until something has to be waited for.
    pub(super) fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match &self.state {
            EngineState::Evicted => self.evicted(actions),
            EngineState::Replay(_) => self.replay_next(now, actions),
            EngineState::ReplayLocks => actions.push(Action::ReplayLocks(self.connects.connection)),
            EngineState::ReplayWait => self.send_final_ping(now, actions),
            EngineState::Recover => self.enter_full(now, actions),
            _ => {}
        }
    }

    /// Nothing is left to be done but to resend what was under way: after that the import is FULL.
    fn enter_full(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.resend(now, actions);
        self.connects.settled();
        let full = Full { next_ping: self.ping_after(now), used_at: now };
        self.enter(now, EngineState::Full(full), actions);
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Ok(())));
        }
        self.pump(now, actions);
    }

    /// Keeps a request whose transaction is not durable yet, or whose owner wants it kept. Answers
    /// the owner that is to be asked.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        xid: Xid,
        tag: u16,
        call: Call,
        body: &PtlrpcBody,
    ) -> Option<Arc<dyn RequestHook>> {
        if !call.kind.may_modify() || body.transno == Transno(0) {
            return None;
        }
        // What was refused opened nothing.
        let hook = call.hook.clone().filter(|_| body.status >= 0);
        if body.transno <= self.kept.committed && hook.is_none() {
            return None;
        }
        let until_release = hook.is_some();
        let kept = KeptRequest { xid, tag, call, answer: body.clone(), until_release };
        self.kept.insert(body.transno, kept);
        // What is kept is memory: ask soon whether it is durable.
        self.ping_by(now + self.timing.ping_intervals().1);
        hook
    }

    /// Replays the next request, one at a time, in order of transactions.
    fn replay_next(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some((transno, kept)) = self.kept.next_to_replay() else {
            self.enter(now, EngineState::ReplayLocks, actions);
            self.advance(now, actions);
            return;
        };
        let Some(hook) = &kept.call.hook else { return self.replay(now, transno, actions) };
        let request = Box::new(kept.call.request.clone());
        let answer = Box::new(kept.answer.clone());
        actions.push(Action::Prepare(transno, Arc::clone(hook), request, answer));
        if let EngineState::Replay(replay) = &mut self.state {
            replay.preparing = Some(transno);
        }
    }

    pub(super) fn prepared(
        &mut self,
        now: Instant,
        transno: Transno,
        request: Request,
        actions: &mut Vec<Action>,
    ) {
        let EngineState::Replay(replay) = &mut self.state else { return };
        if replay.preparing.take_if(|preparing| *preparing == transno).is_none() {
            return;
        }
        match self.kept.get_mut(transno) {
            Some(kept) => {
                kept.call.request = request;
                self.replay(now, transno, actions);
            }
            // Released meanwhile.
            None => self.replay_next(now, actions),
        }
    }

    fn replay(&mut self, now: Instant, transno: Transno, actions: &mut Vec<Action>) {
        let EngineState::Replay(replay) = &mut self.state else { return };
        let Some(kept) = self.kept.get(transno) else { return };
        let xid = kept.xid;
        let mut call = kept.call.clone();
        call.body.pre_versions = kept.answer.pre_versions;
        call.kind = CallKind::Recovery;
        if let Bulk::Sink(_) = call.bulk {
            call.bulk = Bulk::None;
        }
        let owner = FlightOwner::Replay { transno, again: std::mem::take(&mut replay.again) };
        let flight = Flight { tag: kept.tag, ..Flight::new(owner, call) };
        self.stats.counters.replayed += 1;
        self.transmit(now, xid, flight, actions);
    }

    /// The target has executed a replay, or refused it; either way the next one follows.
    pub(super) fn replay_answered(
        &mut self,
        now: Instant,
        transno: Transno,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        if let Some(hook) = self.kept.get(transno).and_then(|kept| kept.call.hook.clone()) {
            actions.push(Action::Replayed(hook, Box::new(answer)));
        }
        self.one_replay_ended(now, transno, actions);
    }

    /// Replays the next one, if there is one.
    pub(super) fn one_replay_ended(
        &mut self,
        now: Instant,
        transno: Transno,
        actions: &mut Vec<Action>,
    ) {
        self.kept.replayed = self.kept.replayed.max(transno);
        if matches!(self.state, EngineState::Replay(_)) {
            self.replay_next(now, actions);
        }
    }

    /// Whether the target still waits for the replay of our locks over this connection.
    #[must_use]
    pub fn awaits_locks(&self, connection: u32) -> bool {
        matches!(self.state, EngineState::ReplayLocks) && connection == self.connects.connection
    }

    pub(super) fn locks_replayed(
        &mut self,
        now: Instant,
        connection: u32,
        whole: bool,
        actions: &mut Vec<Action>,
    ) {
        if !self.awaits_locks(connection) {
            return;
        }
        if !whole {
            self.disconnected(now, actions);
            return;
        }
        self.enter(now, EngineState::ReplayWait, actions);
        self.advance(now, actions);
    }

    fn send_final_ping(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let flight = Flight::new(FlightOwner::FinalPing, Call::new(ObdPing::default()));
        self.start_flight(now, flight, actions);
    }

    /// The target's recovery is over: it has answered [`FlightOwner::FinalPing`].
    pub(super) fn recovery_ended(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if matches!(self.state, EngineState::ReplayWait) {
            self.enter(now, EngineState::Recover, actions);
            self.advance(now, actions);
        }
    }

    /// All is lost: calls under way end, and the owner is notified before new ones go out.
    fn evicted(&mut self, actions: &mut Vec<Action>) {
        self.stats.counters.evictions += 1;
        self.fail_all(&RpcError::Evicted, actions);
        self.discard_replays();
        actions.push(Action::VoidAll);
    }

    pub(super) fn all_voided(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if matches!(self.state, EngineState::Evicted) {
            self.enter(now, EngineState::Recover, actions);
            self.advance(now, actions);
        }
    }
}
