//! A model target: applies numbers to a history, keeps reply data, commits late, can crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::budget::{ServiceBudget, ServiceLimit};
use sheen_rpc::import::EARLY_REPLY_BYTES;
use sheen_rpc::service::{Arrival, ReplyRoute, RequestId, Service, Verdict};
use sheen_types::{Errno, Instant, MatchBits, Nid, ObdHandle, Transno, Xid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{Fields, MdsConnectReply, ObdPingReply, Request};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{
    HeaderFlags, Message, MessageHeader, MsgFlags, MsgType, OpFlags, PtlrpcBody,
};
use sheen_wire::text::Chars;

/// A request whose handling ends later.
type PendingRequest = (Xid, Message, PtlrpcBody);

/// What a client gets: where in its buffer, under which bits, the message.
pub(crate) struct Answer {
    pub(crate) offset: u32,
    pub(crate) bits: MatchBits,
    pub(crate) payload: Bytes,
}

/// The model server's identity.
const IDENTITY: &str = "11111111-2222-3333-4444-555555555555";
/// What another MDT has as durable: more than the model server gets to.
const STRANGERS_HISTORY: Transno = Transno(1_000_000);

/// Another MDT in the place of the model server.
#[derive(Clone, Copy)]
pub(crate) enum Stranger {
    /// It refuses clients of other MDTs.
    Refuses,
    /// It takes everyone, and says that it is this one.
    Takes(&'static str),
}

pub(crate) struct Server {
    /// What was applied: transaction, and which call.
    pub(crate) history: BTreeMap<Transno, u64>,
    /// Locks replayed since the last crash.
    pub(crate) locks: BTreeSet<u64>,
    /// Answers by xid, as reply data.
    answers: BTreeMap<Xid, Transno>,
    pub(crate) committed: Transno,
    next: u64,
    handle: ObdHandle,
    /// Whether the record of the client survives a crash.
    client_known: bool,
    connected: bool,
    recovering: bool,
    conn_cnt: u32,
    released: Xid,
    service: Service<PendingRequest>,
    running: Vec<(Instant, RequestId, PendingRequest)>,
    pub(crate) commits: bool,
    pub(crate) work_seconds: Option<u64>,
    pub(crate) deaf_until: u64,
    /// Until when it works, but sends no answers.
    pub(crate) mute_until: u64,
    pub(crate) refuses_until: u64,
    /// Answers connects instead of this server.
    pub(crate) stranger: Option<Stranger>,
    /// Connects are refused with this.
    pub(crate) refuses_connects: Option<Errno>,
    /// So many requests for data are refused with this.
    pub(crate) refuses_data: (u32, Errno),
    /// How many came.
    pub(crate) data_requests: u32,
    /// So many answers to requests of this kind are cut off.
    pub(crate) garbles: (u32, fn(Opcode) -> bool),
}

impl Server {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            history: BTreeMap::new(),
            locks: BTreeSet::new(),
            answers: BTreeMap::new(),
            committed: Transno(0),
            next: 1,
            handle: ObdHandle(1000),
            client_known: false,
            connected: false,
            recovering: false,
            conn_cnt: 0,
            released: Xid(0),
            service: service(now),
            running: Vec::new(),
            commits: true,
            work_seconds: None,
            deaf_until: 0,
            mute_until: 0,
            refuses_until: 0,
            stranger: None,
            refuses_connects: None,
            refuses_data: (0, Errno::EAGAIN),
            data_requests: 0,
            garbles: (0, |_| false),
        }
    }

    pub(crate) fn crash(&mut self, now: Instant) {
        self.history.retain(|transno, _| *transno <= self.committed);
        self.answers.retain(|_, transno| *transno <= self.committed);
        self.next = self.history.last_key_value().map_or(0, |(transno, _)| transno.0) + 1;
        self.connected = false;
        self.recovering = self.client_known;
        self.conn_cnt = 0;
        self.released = Xid(0);
        self.service = service(now);
        self.running.clear();
        self.locks.clear();
    }

    pub(crate) fn evict(&mut self) {
        self.connected = false;
        self.client_known = false;
    }

    /// Makes half of what is not durable yet so.
    pub(crate) fn commit(&mut self) {
        let last = self.history.last_key_value().map_or(0, |(transno, _)| transno.0);
        if self.commits && !self.recovering {
            self.committed = Transno(self.committed.0 + (last - self.committed.0).div_ceil(2));
        }
    }

    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        from: Nid,
        bits: MatchBits,
        payload: &Bytes,
        work: u64,
    ) {
        let message = Message::decode(payload).expect("the client writes what can be read");
        let body = message.body().expect("with a body");
        let arrival = Arrival {
            from,
            account: from,
            portal: Portal::MDS_REQUEST,
            handle: body.handle,
            xid: Xid(bits.0),
            reply_bits: bits,
            opcode: body.opcode,
            flags: body.flags,
            timeout: body.timeout,
            early: message.header.flags.contains(HeaderFlags::AT_SUPPORT),
            arrived: now,
            bytes: payload.len(),
        };
        let work = self.work_seconds.unwrap_or(work);
        if let Verdict::Run(id, held) =
            self.service.arrive(now, arrival, (Xid(bits.0), message, body))
        {
            self.start(now, id, held, work);
        }
    }

    fn start(&mut self, now: Instant, id: RequestId, held: PendingRequest, work: u64) {
        self.service.begun(id);
        let is_work = held.2.opcode == Opcode::MDS_SET_INFO;
        let seconds = if is_work { work } else { 0 };
        self.running.push((now + std::time::Duration::from_secs(seconds), id, held));
    }

    /// Answers what is due.
    pub(crate) fn work(&mut self, now: Instant) -> Vec<Answer> {
        let mut out: Vec<Answer> = self.service.tick(now).iter().map(early_answer).collect();
        while let Some(at) = self.running.iter().position(|(due, ..)| *due <= now) {
            let (_, id, (xid, message, body)) = self.running.remove(at);
            match self.execute(xid, &message, &body) {
                Some((reply, cdata)) => {
                    if let Some(route) = self.service.finish(now, id) {
                        let mut answer = answer(&route, &reply, cdata);
                        if self.garbles.0 > 0 && (self.garbles.1)(route.arrival.opcode) {
                            self.garbles.0 -= 1;
                            answer.payload.truncate(40);
                        }
                        out.push(answer);
                    }
                }
                None => self.service.abandon(id),
            }
            while let Some((id, held)) = self.service.next(now) {
                self.start(now, id, held, 0);
            }
        }
        out
    }

    /// `None`: no answer.
    fn execute(
        &mut self,
        xid: Xid,
        message: &Message,
        body: &PtlrpcBody,
    ) -> Option<(PtlrpcBody, Option<ObdConnectData>)> {
        let request = Request::decode(body.opcode, message).expect("typed");
        if let Request::MdsConnect(connect) = request {
            return self.connect(body, connect.cdata);
        }
        if !self.connected || body.handle != self.handle {
            return Some((refusal(Errno::ENOTCONN), None));
        }
        if body.conn_cnt < self.conn_cnt {
            return None;
        }
        if matches!(request, Request::MdsDisconnect(_)) {
            assert!(self.locks.is_empty(), "locks are cancelled first");
            self.evict();
            self.answers.clear();
        }
        let done = MsgFlags::REQ_REPLAY_DONE | MsgFlags::LOCK_REPLAY_DONE;
        if body.flags.contains(done) {
            self.recovering = false;
        }
        if body.opcode == Opcode::OST_SYNC {
            self.data_requests += 1;
            let (refusals, errno) = &mut self.refuses_data;
            if *refusals > 0 {
                *refusals -= 1;
                return Some((refusal(*errno), None));
            }
        }
        let reply = PtlrpcBody { last_committed: self.committed, ..PtlrpcBody::default() };
        let Request::MdsSetInfo(set) = request else { return Some((reply, None)) };
        let value: [u8; 8] = set.setinfo_val[..].try_into().expect("a number");
        let value = u64::from_le_bytes(value);
        if set.setinfo_key == "lock" {
            // By this a target knows that it has to wait for the changes of other clients.
            assert_eq!(body.flags, MsgFlags::REQ_REPLAY_DONE);
            self.locks.insert(value);
        }
        if set.setinfo_key != "apply" {
            return Some((reply, None));
        }
        let transno = self.apply(body, xid, value)?;
        Some((PtlrpcBody { transno, last_committed: self.committed, ..reply }, None))
    }

    fn apply(&mut self, body: &PtlrpcBody, xid: Xid, value: u64) -> Option<Transno> {
        if body.flags.contains(MsgFlags::REPLAY) {
            // The network may bring a replay twice, and the second time when recovery is over.
            if let Some(before) = self.history.get(&body.transno) {
                assert_eq!(*before, value, "a transaction is replayed as it was");
                return Some(body.transno);
            }
            assert!(self.recovering, "replays come in recovery only");
            let last = self.history.last_key_value().map_or(0, |(transno, _)| transno.0);
            assert!(last < body.transno.0, "replays come in order");
            self.next = body.transno.0 + 1;
            self.history.insert(body.transno, value);
            self.answers.insert(xid, body.transno);
            return Some(body.transno);
        }
        if self.recovering {
            return None;
        }
        self.released = self.released.max(body.last_xid);
        if let Some(transno) = self.answers.get(&xid) {
            return Some(*transno);
        }
        if xid <= self.released {
            return None;
        }
        let transno = Transno(self.next);
        self.next += 1;
        self.history.insert(transno, value);
        self.answers.insert(xid, transno);
        Some(transno)
    }

    fn connect(
        &mut self,
        body: &PtlrpcBody,
        mut cdata: ObdConnectData,
    ) -> Option<(PtlrpcBody, Option<ObdConnectData>)> {
        if let Some(stranger) = self.stranger {
            return Some(stranger.connect(cdata));
        }
        if body.conn_cnt <= self.conn_cnt && self.connected {
            return None;
        }
        let said = cdata.mdt_identity().unwrap_or(IDENTITY.as_bytes());
        assert_eq!(said, IDENTITY.as_bytes(), "the client has learnt whose it is");
        cdata.identity = Chars::new(IDENTITY);
        if let Some(errno) = self.refuses_connects {
            return Some((refusal(errno), None));
        }
        self.conn_cnt = body.conn_cnt;
        cdata.flags = cdata.flags.without(ConnectFlags::BULK_MBITS);
        let mut op_flags = OpFlags::CONNECT_REPLAYABLE;
        if self.recovering {
            op_flags |= OpFlags::CONNECT_RECOVERING;
        }
        if self.connected {
            op_flags |= OpFlags::CONNECT_RECONNECT;
        } else {
            self.handle = ObdHandle(self.handle.0 + 1);
        }
        self.connected = true;
        self.client_known = true;
        let reply = PtlrpcBody {
            handle: self.handle,
            op_flags,
            last_committed: self.committed,
            ..PtlrpcBody::default()
        };
        Some((reply, Some(cdata)))
    }
}

impl Stranger {
    fn connect(self, mut cdata: ObdConnectData) -> (PtlrpcBody, Option<ObdConnectData>) {
        let last_committed = STRANGERS_HISTORY;
        let Self::Takes(identity) = self else {
            assert_eq!(cdata.mdt_identity(), Some(IDENTITY.as_bytes()));
            return (PtlrpcBody { last_committed, ..refusal(Errno::EXDEV) }, None);
        };
        cdata.identity = Chars::new(identity);
        let (handle, op_flags) = (ObdHandle(1), OpFlags::CONNECT_REPLAYABLE);
        (PtlrpcBody { handle, op_flags, last_committed, ..PtlrpcBody::default() }, Some(cdata))
    }
}

fn refusal(errno: Errno) -> PtlrpcBody {
    PtlrpcBody { kind: MsgType::ERR, status: errno.status(), ..PtlrpcBody::default() }
}

fn answer(route: &ReplyRoute, reply: &PtlrpcBody, cdata: Option<ObdConnectData>) -> Answer {
    let kind = if reply.kind == MsgType::ERR { MsgType::ERR } else { MsgType::REPLY };
    let body = PtlrpcBody {
        kind,
        opcode: route.arrival.opcode,
        timeout: route.timeout,
        service_time: route.service_time,
        ..reply.clone()
    };
    let header = MessageHeader::default();
    let payload = match cdata {
        Some(cdata) => {
            let reply = MdsConnectReply { cdata: Some(cdata), ..MdsConnectReply::default() };
            reply.to_bytes(&header, &body)
        }
        None => ObdPingReply::default().to_bytes(&header, &body),
    };
    let offset = if route.arrival.early { EARLY_REPLY_BYTES } else { 0 };
    Answer { offset, bits: route.arrival.reply_bits, payload }
}

fn early_answer(route: &ReplyRoute) -> Answer {
    let reply = answer(route, &PtlrpcBody::default(), None);
    Answer { offset: 0, ..reply }
}

fn service<T>(now: Instant) -> Service<T> {
    let budget = Arc::new(ServiceBudget::default());
    budget.set(ServiceLimit::RequestsActive, 4);
    Service::new(now, budget, 4, Arc::default())
}
