//! Requests: from their arrival through the service to their target, and back. The steps of a request, each the
//! function of that name:
//!
//! 1. `receive` ([`RequestReceiver`]) gets it from LNet, on the task that reads from its sender's connection. One of a
//!    client that does not take its answers is dropped (`slow_down`).
//! 2. `arrived` decodes its head. What cannot be decoded costs the sender its connection.
//! 3. `start_or_queue` gives it to the service of its client ([`sheen_rpc::service`]), which says whether it begins,
//!    waits for other requests, only brings a newer route for the reply of one that runs, or is dropped.
//! 4. `run_in_turn` polls what follows in turns of its sender ([`PeerTurns`]): inline, on the reader's task until it first
//!    waits, if it is of a kind that `may_begin_inline`, else as a task of its own. When it has been polled for the first
//!    time, `run_waiting` begins the next that waits.
//! 5. `decode_and_handle` decodes all of it, has `find_handler` find its target, by the export's handle or, of a connect,
//!    by the name, and hands it over ([`Handler::handle`]; the steps there are those of `target::dispatch`).
//! 6. The target answers through the [`Replier`], which is `Pending::answer`: the service ends the request and says by
//!    which route `send_reply` sends the reply, and `run_waiting` begins the next. Dropped unanswered, a request ends
//!    without a reply, and a copy that has come meanwhile is executed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::import::EARLY_REPLY_BYTES;
use sheen_rpc::service::{Arrival, ReplyRoute, RequestId, Service, Verdict};
use sheen_rpc::{
    BulkPort, Handler, IncomingRequest, OwnTimes, Replier, ReplyHead, bulk_portal, connect_target,
    limits, reply_portal, subject_of,
};
use sheen_types::limits::{LNET_PAYLOAD_BYTES_MAX, MESSAGE_BYTES_MAX};
use sheen_types::{Errno, MatchBits, Nid, Transno, Uuid, Xid};
use sheen_wire::codec::Wire;
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{ObdPingReply, Reply, Request};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{
    HeaderFlags, MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody, early_reply_checksum,
};
use tracing::{Instrument as _, field};

use super::RpcNode;
use super::bulk::Mover;
use crate::net::{Delivery, PeerTurns, Receiver};

/// A target and where requests to it arrive.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) target: Uuid,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) portals: Vec<Portal>,
    /// Timeouts as its clients get them, where those of the process do not apply.
    pub(super) own_times: OwnTimes,
}

/// A request whose body is decoded.
pub(super) struct Arrived {
    arrival: Arrival,
    message: Message,
    body: PtlrpcBody,
    pub(super) bulk_bits: MatchBits,
    /// Whether it begins inline: on the task that has read it.
    inline: bool,
    /// More than the sender's word shows that it is at its NID.
    is_proven: bool,
    /// The sender's part of the processors.
    turns: PeerTurns,
}

/// Whether a request of this kind rarely moves much data and waits for no disk: such a one begins inline, where it
/// was read, and goes on there until it first waits, without the switch to another thread.
fn may_begin_inline(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::LDLM_ENQUEUE
            | Opcode::LDLM_CANCEL
            | Opcode::LDLM_CONVERT
            | Opcode::MDS_CLOSE
            | Opcode::MDS_GETATTR
            | Opcode::MDS_GETXATTR
            | Opcode::MDS_REINT
            | Opcode::OBD_PING
    )
}

/// A client whose requests are dropped because it takes no answers is sent none, either.
const _: () =
    assert!(limits::CLIENT_BACKLOG_BYTES == sheen_lnet::limits::ANSWERS_WAITING_BYTES_MAX);

/// From so many on, the exports with match bits of their own are looked through for some that have gone.
const EXPORTS_LOOKED_AT: usize = 1024;

/// Copies a request out of the read buffer that it shares with other messages.
pub(super) fn compact(arrived: &mut Box<Arrived>) {
    for buffer in &mut arrived.message.buffers {
        *buffer = Bytes::copy_from_slice(buffer);
    }
}

/// Takes requests; works on the reader's task, where it decodes the body and starts a task, or begins
/// the request inline.
pub(super) struct RequestReceiver(pub(super) Weak<RpcNode>);

impl Receiver for RequestReceiver {
    fn receive(&self, delivery: Delivery) {
        let Some(node) = self.0.upgrade() else { return };
        // A server that sends a callback is no client: it may well be behind with what it takes.
        let is_client = delivery.portal != Portal::LDLM_CB_REQUEST;
        if is_client && delivery.backlog > limits::CLIENT_BACKLOG_BYTES {
            return node.slow_down(delivery.from);
        }
        if is_client && !delivery.may_ask {
            let from = delivery.from;
            tracing::warn!(%from, "refused a request over a connection that we opened to a port which any user of that \
                 machine may listen at (accept=secure)");
            return node.lnet.expel(from);
        }
        match node.arrived(&delivery) {
            Ok(arrived) => node.start_or_queue(arrived),
            Err(error) => {
                node.refused.fetch_add(1, Ordering::Relaxed);
                let (from, portal) = (delivery.from, delivery.portal);
                tracing::warn!(%from, ?portal, %error, "undecodable request: connection closed");
                node.lnet.expel(from);
            }
        }
    }
}

impl RpcNode {
    fn arrived(&self, delivery: &Delivery) -> Result<Box<Arrived>, sheen_wire::DecodeError> {
        let length = delivery.payload.len();
        if length > MESSAGE_BYTES_MAX {
            let value = length as u64;
            return Err(sheen_wire::DecodeError::Illegal { what: "length of a request", value });
        }
        let message = Message::decode(&delivery.payload)?;
        let body = message.body()?;
        let by_bits = body.match_bits.0 != 0;
        let bulk_bits = if by_bits { body.match_bits } else { delivery.bits };
        let arrival = Arrival {
            from: delivery.from,
            account: delivery.account,
            portal: delivery.portal,
            handle: body.handle,
            xid: Xid(delivery.bits.0),
            // Settled when the target is known: see `reply_bits`.
            reply_bits: delivery.bits,
            opcode: body.opcode,
            flags: body.flags,
            timeout: body.timeout,
            early: message.header.flags.contains(HeaderFlags::AT_SUPPORT),
            arrived: self.now(),
            bytes: length + limits::REQUEST_OVERHEAD_BYTES,
        };
        let inline = delivery.inline && may_begin_inline(body.opcode);
        let (is_proven, turns) = (delivery.is_proven, delivery.turns.clone());
        Ok(Box::new(Arrived { arrival, message, body, bulk_bits, inline, is_proven, turns }))
    }

    /// Counts a request with those of its client: it begins now, waits for them, or is dropped.
    fn start_or_queue(self: &Arc<Self>, mut arrived: Box<Arrived>) {
        arrived.arrival.reply_bits = self.reply_bits(&arrived);
        let now = self.now();
        let Arrival { from, account, .. } = arrived.arrival;
        let (verdict, wake, has_many) = {
            let mut service = self.service(account).lock();
            let arrival = arrived.arrival.clone();
            let verdict = service.arrive(now, arrival, arrived);
            (verdict, service.next_wake(), service.has_many(account))
        };
        self.timer.want(wake);
        if has_many {
            // Nothing of it is lost: its connection fills up instead of our memory.
            self.lnet.pause(from, limits::MANY_WAIT_PAUSE);
        }
        match verdict {
            Verdict::Run(id, arrived) => {
                let inline = arrived.inline;
                let work = Box::pin(Arc::clone(self).run_in_turn(id, arrived, inline));
                match inline {
                    true => self.world.tasks.begin("rpc request", work),
                    false => self.world.tasks.spawn("rpc request", work),
                }
            }
            Verdict::Dropped => self.slow_down(from),
            Verdict::Queued | Verdict::Attached => {}
        }
    }

    /// A peer sends more than may wait, or takes no answers: its requests are dropped, and it is read
    /// slowly.
    fn slow_down(&self, from: Nid) {
        self.over_budget.fetch_add(1, Ordering::Relaxed);
        self.lnet.pause(from, limits::OVER_BUDGET_PAUSE);
    }

    /// Runs a request in its client's turns, and lets another begin when it waits for the first time.
    /// `inline`: its first poll is the reader's of its connection.
    async fn run_in_turn(self: Arc<Self>, id: RequestId, arrived: Box<Arrived>, inline: bool) {
        let account = arrived.arrival.account;
        let turns = arrived.turns.clone();
        let execution = Arc::clone(&self).decode_and_handle(id, arrived);
        let mut execution = pin!(turns.run(inline, execution));
        let mut is_begun = false;
        poll_fn(|context| {
            let polled = execution.as_mut().poll(context);
            // That it waits for a turn of its client counts, too: another client's does not wait for that.
            if !std::mem::replace(&mut is_begun, true) {
                self.service(account).lock().begun(id);
                self.run_waiting(account);
            }
            polled
        })
        .await;
    }

    /// A client that agreed on it awaits its reply under the body's match bits, other clients under the
    /// xid. Callbacks have no bulk, and so no other reason to set the bits.
    fn reply_bits(&self, arrived: &Arrived) -> MatchBits {
        let (xid, bits) = (MatchBits(arrived.arrival.xid.0), arrived.body.match_bits);
        let is_callback = arrived.arrival.portal == Portal::LDLM_CB_REQUEST;
        let agreed = || self.exports_by_bits.read().contains(&arrived.arrival.handle);
        if bits.0 != 0 && bits != xid && (is_callback || agreed()) { bits } else { xid }
    }

    /// Learns from a reply to a connect how that client awaits its replies.
    fn note_export(&self, head: &ReplyHead, reply: Option<&Reply>) {
        let data = match reply {
            Some(Reply::MgsConnect(reply)) => &reply.cdata,
            Some(Reply::MdsConnect(reply)) => &reply.cdata,
            Some(Reply::OstConnect(reply)) => &reply.cdata,
            _ => return,
        };
        let by_bits = data.as_ref().is_some_and(|data| {
            data.flags.contains(ConnectFlags::FLAGS2)
                && data.flags2.contains(ConnectFlags2::REP_MBITS)
        });
        if by_bits {
            let mut exports = self.exports_by_bits.write();
            exports.insert(head.handle);
            // Those that have gone are found when there are many.
            if exports.len() >= EXPORTS_LOOKED_AT && exports.len().is_power_of_two() {
                let targets = Arc::clone(&self.targets.read());
                exports.retain(|handle| targets.iter().any(|it| it.handler.owns(*handle)));
            }
        }
    }

    /// Decodes a request and has its target execute it; refuses what cannot be decoded or is for no target.
    async fn decode_and_handle(self: Arc<Self>, id: RequestId, arrived: Box<Arrived>) {
        let Arrived { arrival, message, body, bulk_bits, is_proven, .. } = *arrived;
        let Arrival { from, account, .. } = arrival;
        let mover = Arc::new(Mover::new(Arc::clone(&self), account, id, bulk_bits));
        let pending = Pending {
            node: Arc::clone(&self),
            account,
            id,
            mover: Arc::clone(&mover),
            body: Some(body.clone()),
        };
        let request = match Request::decode(body.opcode, &message) {
            Ok(request) => request,
            Err(error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let known = sheen_wire::messages::find_format(body.opcode, &message).is_some();
                let errno = if known { Errno::EPROTO } else { Errno::EOPNOTSUPP };
                let opcode = body.opcode;
                tracing::warn!(%from, ?opcode, %error, "refused request");
                pending.send(errno.into(), None);
                // What we do not know is no fault. What we do know has a form.
                if known {
                    self.lnet.expel(from);
                }
                return;
            }
        };
        let named = connect_target(&request);
        let Some((handler, own_times)) = self.find_handler(&arrival, named.as_ref()) else {
            // A target that is not here, or an export that it does not know (any more).
            self.exports_by_bits.write().remove(&arrival.handle);
            let errno = if named.is_some() { Errno::ENODEV } else { Errno::ENOTCONN };
            return pending.refuse(errno);
        };
        if own_times != OwnTimes::default() {
            self.service(account).lock().set_own_times(id, own_times);
        }
        // The target knows its own name and who its client is.
        let span = tracing::debug_span!("serve", request = request.format().name,
            xid = arrival.xid.0, nid = %from, target = field::Empty, client = field::Empty,
            fid = subject_of(&request).map(field::display));
        let portal = bulk_portal(body.opcode);
        let incoming = IncomingRequest {
            from: arrival.from,
            is_proven,
            account,
            portal: arrival.portal,
            xid: arrival.xid,
            reply_bytes_max: message.header.repsize as usize,
            header_flags: message.header.flags,
            bulk: BulkPort::new(arrival.from, portal, bulk_bits, mover),
            deadline: arrival.arrived + Duration::from_secs(u64::from(arrival.timeout)),
            arrived: arrival.arrived,
            body,
            request,
            replier: Replier::new(move |head, reply| pending.send(head, reply)),
        };
        handler.handle(incoming).instrument(span).await;
    }

    /// Who executes a request, and the times that this target has of its own.
    fn find_handler(
        &self,
        arrival: &Arrival,
        named: Option<&Uuid>,
    ) -> Option<(Arc<dyn Handler>, OwnTimes)> {
        if arrival.portal == Portal::LDLM_CB_REQUEST {
            return self.callbacks.read().clone().map(|handler| (handler, OwnTimes::default()));
        }
        // Handlers are asked with no lock held.
        let targets = Arc::clone(&self.targets.read());
        let fits = |registered: &&Registered| {
            registered.portals.contains(&arrival.portal)
                && match named {
                    Some(named) => registered.target == *named,
                    None => registered.handler.owns(arrival.handle),
                }
        };
        let found = targets.iter().find(fits);
        found.map(|registered| (Arc::clone(&registered.handler), registered.own_times))
    }

    fn send_reply(
        self: &Arc<Self>,
        route: &ReplyRoute,
        request: &PtlrpcBody,
        head: &ReplyHead,
        reply: Option<&Reply>,
    ) {
        self.note_export(head, reply);
        let refused = head.status < 0 && reply.is_none();
        let body = PtlrpcBody {
            handle: head.handle,
            kind: if refused { MsgType::ERR } else { MsgType::REPLY },
            version: MESSAGE_VERSION,
            opcode: request.opcode,
            status: head.status,
            last_committed: head.last_committed,
            transno: head.transno,
            flags: head.flags,
            op_flags: head.op_flags,
            timeout: route.timeout,
            service_time: route.service_time,
            limit: head.limit,
            slv: head.slv,
            pre_versions: head.pre_versions,
            ..PtlrpcBody::default()
        };
        let message = reply_within_payload(body, reply);
        // A client with early replies takes what comes at the front for one of those.
        let offset = if route.arrival.early { EARLY_REPLY_BYTES } else { 0 };
        let (to, portal) = (route.arrival.from, reply_portal(route.arrival.portal));
        self.lnet.put_reply(to, portal, route.arrival.reply_bits, 0, offset, vec![message]);
    }

    /// Asks a client for patience.
    pub(super) fn send_early_reply(self: &Arc<Self>, route: &ReplyRoute) {
        let body = PtlrpcBody {
            kind: MsgType::REPLY,
            version: MESSAGE_VERSION,
            opcode: route.arrival.opcode,
            timeout: route.timeout,
            service_time: route.service_time,
            ..PtlrpcBody::default()
        };
        let mut encoded = sheen_wire::codec::Writer::with_capacity(PtlrpcBody::SIZE);
        body.encode(&mut encoded);
        let header = MessageHeader {
            flags: HeaderFlags::AT_SUPPORT,
            cksum: early_reply_checksum(&encoded.into_bytes()),
            ..MessageHeader::default()
        };
        let message = Reply::from(ObdPingReply::default()).to_bytes(&header, &body);
        let (to, portal) = (route.arrival.from, reply_portal(route.arrival.portal));
        self.lnet.put_reply(to, portal, route.arrival.reply_bits, 0, 0, vec![message]);
    }

    /// Whether a request that is being executed has come again.
    pub(super) fn has_copy(&self, account: Nid, id: RequestId) -> bool {
        self.service(account).lock().copy(id).is_some()
    }

    /// The service that has all requests of a client: it must not have more of them for claiming to be
    /// several exports.
    fn service(&self, account: Nid) -> &Mutex<Service<Box<Arrived>>> {
        let spread = account.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.services[spread as usize % self.services.len()]
    }

    /// Starts what waited for other requests to end or to begin.
    fn run_waiting(self: &Arc<Self>, account: Nid) {
        loop {
            let next = self.service(account).lock().next(self.now());
            let Some((id, arrived)) = next else { return };
            let work = Box::pin(Arc::clone(self).run_in_turn(id, arrived, false));
            self.world.tasks.spawn("rpc request", work);
        }
    }
}

/// A request that the service counts as running. Dropped unsent, it ends without an answer.
struct Pending {
    node: Arc<RpcNode>,
    account: Nid,
    id: RequestId,
    mover: Arc<Mover>,
    body: Option<PtlrpcBody>,
}

impl Pending {
    fn send(self, head: ReplyHead, reply: Option<Reply>) {
        self.answer(head, reply, true);
    }

    /// To peers that no target knows. Our own estimates are no business of theirs: 0 has them
    /// keep their own.
    fn refuse(self, errno: Errno) {
        self.answer(errno.into(), None, false);
    }

    fn answer(mut self, head: ReplyHead, reply: Option<Reply>, known: bool) {
        let Some(body) = self.body.take() else { return };
        let now = self.node.now();
        let route = {
            let mut service = self.node.service(self.account).lock();
            if self.mover.has_missed(&service) {
                service.abandon(self.id);
                None
            } else {
                service.finish(now, self.id)
            }
        };
        if let Some(route) = route {
            tracing::debug!(status = head.status, transno = head.transno.0, "answered");
            let route = if known { route } else { ReplyRoute { timeout: 0, ..route } };
            self.node.send_reply(&route, &body, &head, reply.as_ref());
        }
        self.node.run_waiting(self.account);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.body.take().is_some() {
            self.node.service(self.account).lock().abandon(self.id);
            self.node.run_waiting(self.account);
        }
    }
}

/// A reply's message. What LNet does not carry in one message is refused by name: the client, whose request made it so
/// long, would ask again for ever. The error names no transaction, for a client of Lustre's panics at one with one.
fn reply_within_payload(body: PtlrpcBody, reply: Option<&Reply>) -> Bytes {
    let header = MessageHeader::default();
    let alone = |body: &PtlrpcBody| Reply::from(ObdPingReply::default()).to_bytes(&header, body);
    let Some(reply) = reply else { return alone(&body) };
    let message = reply.to_bytes(&header, &body);
    if message.len() <= LNET_PAYLOAD_BYTES_MAX {
        return message;
    }
    tracing::warn!(
        opcode = ?body.opcode,
        bytes = message.len(),
        "a reply is longer than LNet carries: refused"
    );
    let (kind, status) = (MsgType::ERR, Errno::EOVERFLOW.status());
    alone(&PtlrpcBody { kind, status, transno: Transno(0), ..body })
}

#[cfg(test)]
mod tests {
    use sheen_wire::messages::OstReadReply;

    use super::*;

    #[test]
    fn a_reply_longer_than_a_message_is_refused_by_name() {
        let body = || PtlrpcBody {
            kind: MsgType::REPLY,
            version: MESSAGE_VERSION,
            transno: Transno(7),
            ..PtlrpcBody::default()
        };
        let said = |length: usize| {
            let short_io = vec![0; length].into();
            let reply = Reply::from(OstReadReply { short_io, ..OstReadReply::default() });
            let bytes = reply_within_payload(body(), Some(&reply));
            assert!(bytes.len() <= LNET_PAYLOAD_BYTES_MAX, "{length}");
            let said = Message::decode(&bytes).unwrap().body().unwrap();
            (said.kind, said.status, said.transno)
        };
        assert_eq!(said(LNET_PAYLOAD_BYTES_MAX - 4096), (MsgType::REPLY, 0, Transno(7)));
        let refused = (MsgType::ERR, Errno::EOVERFLOW.status(), Transno(0));
        assert_eq!(said(LNET_PAYLOAD_BYTES_MAX), refused);
        assert_eq!(said(4 << 20), refused);
    }
}
