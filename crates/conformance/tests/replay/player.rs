//! Plays a capture's client to our servers.

mod own;
mod returning;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_conformance::rpc::Rpc;
use sheen_io::{World, within};
use sheen_node::net::{Delivery, Expectation, LNet, Offer, Receiver};
use sheen_rpc::{bulk_portal, reply_portal};
use sheen_types::{
    Errno, Fid, HashMap, HashSet, LockHandle, MatchBits, Nid, ResourceName, fid_seq,
};
use sheen_wire::checksum::Checksum;
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::lnet::Portal;
use sheen_wire::md::Valid;
use sheen_wire::messages::Part;
use sheen_wire::messages::{ObdPingReply, Reply, Request};
use sheen_wire::opcode::Opcode;
use sheen_wire::ost::{ObdoFlags, OstBody};
use sheen_wire::ptlrpc::{
    HeaderFlags, MESSAGE_VERSION, Message, MessageHeader, MsgFlags, MsgType, PtlrpcBody,
};
use sheen_wire::{ByteOrder, Reader, Wire, Writer};

use self::returning::{Opened, Reopened};
use crate::MDTS;
use crate::cluster::Machines;
use crate::common::server_nid;
use crate::compare::{Difference, compare, compare_parts, leaves};
use crate::mapping::Mapping;
use crate::mounts::{Export, Mounts};
use crate::script::{Exchange, Script, Sent, Step};

/// How long an answer may take, unless a lock is waited for that the capture does not cancel.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than a message is on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// How long a lock that is revoked in a pause stays.
const SLICE: Duration = Duration::from_millis(10);
/// How often such locks are cancelled before an answer is given up.
const ROUNDS: usize = 4;
/// The largest answer or part of a bulk.
const BYTES_MAX: usize = 4 << 20;
/// Where xids of our own start: above those of all captures.
const OWN_XIDS: u64 = 1 << 60;

/// Which of our targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TargetId {
    Mgs,
    Mdt(u16),
    Ost(u32),
}

/// A lock that the capture's client holds at our servers.
#[derive(Clone, Copy)]
struct LockReference {
    export: Export,
    handle: LockHandle,
}

/// What was played and what came of it.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Requests sent and answered.
    pub(crate) played: usize,
    /// Requests left out, by reason.
    pub(crate) skipped: BTreeMap<&'static str, usize>,
    /// What our servers answered otherwise.
    pub(crate) differences: Vec<Difference>,
}

/// Servers' calls, as they come.
#[derive(Default)]
struct Calls {
    came: Mutex<Vec<(Portal, Message, PtlrpcBody)>>,
    /// What the captured client answered to glimpses.
    glimpses: Mutex<HashMap<u64, VecDeque<Bytes>>>,
}

impl Calls {
    /// The captured answer to a glimpse, if there is one.
    fn answer_of(&self, message: &Message, body: &PtlrpcBody) -> Option<Bytes> {
        let Ok(Request::LdlmGlCallback(call)) = Request::decode(body.opcode, message) else {
            return None;
        };
        let lock = call.dlm_req.handles.first()?;
        self.glimpses.lock().get_mut(&lock.0)?.pop_front()
    }
}

struct Answering {
    lnet: Arc<LNet>,
    calls: Arc<Calls>,
}

impl Receiver for Answering {
    /// Says yes at once; what it asks for is done by the script, or by the player if the script
    /// does not.
    fn receive(&self, delivery: Delivery) {
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Ok(body) = message.body() else { return };
        let answer = PtlrpcBody {
            kind: MsgType::REPLY,
            version: MESSAGE_VERSION,
            opcode: body.opcode,
            ..PtlrpcBody::default()
        };
        let yes = || Reply::from(ObdPingReply::default());
        let bytes = self.calls.answer_of(&message, &body);
        let bytes = bytes.unwrap_or_else(|| yes().to_bytes(&MessageHeader::default(), &answer));
        let bits = if body.match_bits.0 == 0 { delivery.bits } else { body.match_bits };
        let early = message.header.flags.contains(HeaderFlags::AT_SUPPORT);
        let offset = if early { sheen_rpc::import::EARLY_REPLY_BYTES } else { 0 };
        let portal = reply_portal(delivery.portal);
        self.lnet.put_reply(delivery.from, portal, bits, 0, offset, vec![bytes]);
        self.calls.came.lock().push((delivery.portal, message, body));
    }
}

/// A request under way.
struct Pending {
    answer: Expectation,
    /// Dropping them withdraws the data.
    _offers: Vec<Offer>,
    sinks: Vec<Expectation>,
    export: Export,
    /// As it was sent.
    message: Message,
}

/// The client of a capture, talking to our servers.
pub(crate) struct Player {
    lnet: Arc<LNet>,
    world: World,
    server: Nid,
    calls: Arc<Calls>,
    mounts: Mounts,
    machines: Machines,
    /// The MDTs of exports, by the real servers' handles.
    mdt_of: HashMap<u64, u16>,
    /// Targets that are not there, and the handle of the client that noticed.
    down: HashMap<TargetId, u64>,
    pub(crate) mapping: Mapping,
    /// By the real servers' handles.
    locks: HashMap<u64, LockReference>,
    /// By the client's own names for its locks.
    by_client: HashMap<u64, LockReference>,
    /// What is open, by the real servers' handles.
    opens: HashMap<u64, Opened>,
    reopened: Reopened,
    /// Resources that locks were asked for on.
    asked_for: HashSet<ResourceName>,
    next_xid: u64,
    /// Whether what servers do meanwhile has the time that it had there.
    keeps_pauses: bool,
}

impl Player {
    pub(crate) fn new(lnet: &Arc<LNet>, world: World, machines: Machines) -> Self {
        let calls = Arc::new(Calls::default());
        let answering = Answering { lnet: Arc::clone(lnet), calls: Arc::clone(&calls) };
        lnet.serve(Portal::LDLM_CB_REQUEST, Arc::new(answering));
        Self {
            lnet: Arc::clone(lnet),
            world,
            server: server_nid(),
            calls,
            mounts: Mounts::default(),
            machines,
            mdt_of: HashMap::default(),
            down: HashMap::default(),
            mapping: Mapping::default(),
            locks: HashMap::default(),
            by_client: HashMap::default(),
            opens: HashMap::default(),
            reopened: Reopened::default(),
            asked_for: HashSet::default(),
            next_xid: OWN_XIDS,
            keeps_pauses: false,
        }
    }

    /// From now on waits as long as the captured client did.
    pub(crate) fn keep_pauses(&mut self) {
        self.keeps_pauses = true;
    }

    /// Another capture begins, of a node with so many mounts.
    pub(crate) fn begin(&mut self, mounts: usize) {
        self.mounts.begin(mounts);
    }

    /// Plays a script, all of it or as far as `until` allows.
    pub(crate) async fn play(
        &mut self,
        script: &Script,
        until: impl Fn(&Exchange) -> bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut pending: HashMap<usize, Pending> = HashMap::default();
        // What our servers have not answered when the captured ones had: one that recovers may wait for another one.
        let mut late: Vec<(&Exchange, Pending)> = Vec::new();
        self.calls.glimpses.lock().clone_from(&script.glimpses);
        self.mdt_of.extend(mdts_of(script));
        self.connect_all_that_return(script).await;
        let mut last = None;
        for step in &script.steps {
            match *step {
                Step::Send(index) => {
                    let exchange = &script.exchanges[index];
                    if until(exchange) {
                        break;
                    }
                    if let (true, Some(before)) = (self.keeps_pauses, last.replace(exchange.sent)) {
                        self.pause(exchange.sent.saturating_sub(before)).await;
                    }
                    match self.send(exchange).await {
                        Ok(sent) => {
                            pending.insert(index, sent);
                        }
                        Err(reason) => *outcome.skipped.entry(reason).or_default() += 1,
                    }
                }
                Step::Answer(index) => {
                    let Some(sent) = pending.remove(&index) else { continue };
                    outcome.played += 1;
                    let exchange = &script.exchanges[index];
                    if let Some(sent) = self.answer(exchange, sent, &mut outcome).await {
                        late.push((exchange, sent));
                        continue;
                    }
                    // What it waited for may have come.
                    for (exchange, sent) in std::mem::take(&mut late) {
                        let still = self.answer(exchange, sent, &mut outcome).await;
                        late.extend(still.map(|sent| (exchange, sent)));
                    }
                }
                Step::Remember(target) => self.machines.remember(self.here(target)),
                Step::Stop(target, handle) => {
                    let target = self.here(target);
                    self.settle().await;
                    self.down.insert(target, handle);
                    self.machines.stop(target).await;
                }
                Step::Start(target, _) => {
                    let returning = script.returning.iter().filter(|(at, _)| *at == target);
                    let returning = returning.map(|(_, handle)| *handle).collect();
                    self.start(self.here(target), returning).await;
                }
                Step::Evict(target, handle) => {
                    self.settle().await;
                    self.evict(self.here(target), handle).await;
                }
            }
        }
        for (exchange, sent) in late {
            if self.answer(exchange, sent, &mut outcome).await.is_some() {
                let name = format!("{} reply", exchange.request.format.name);
                let place = &exchange.place;
                outcome.differences.push(difference(&name, "answer", "an answer", "none", place));
            }
        }
        outcome
    }

    /// Lets as much time pass. What servers do meanwhile may need locks one after the other that theirs did not.
    async fn pause(&mut self, time: Duration) {
        let end = self.world.clock.now() + time;
        while time > ON_ITS_WAY && self.world.clock.now() + SLICE < end {
            self.world.clock.sleep_until(self.world.clock.now() + SLICE).await;
            self.cancel_revoked().await;
        }
        self.world.clock.sleep_until(end).await;
    }

    /// Lets what is on its way arrive.
    async fn settle(&self) {
        self.world.clock.sleep_until(self.world.clock.now() + ON_ITS_WAY).await;
    }

    /// The target of ours that stands for a captured one.
    fn here(&self, target: TargetId) -> TargetId {
        match target {
            TargetId::Ost(index) => TargetId::Ost(self.mapping.ost(index)),
            other => other,
        }
    }

    /// The export that a request goes to: whose it is, and which of our targets has what it is about.
    fn export_of(&mut self, exchange: &Exchange, ost: Option<u32>) -> Result<Export, &'static str> {
        if self.mounts.is_elsewhere(exchange.request.body.handle.0) {
            return Err("goes to a second MDT");
        }
        let target = match &exchange.request.typed {
            Request::MdsClose(close)
                if self.mapping.word(close.mdt_ioepoch.open_handle.0).is_none() =>
            {
                return Err("closes what was opened before the capture");
            }
            Request::MdsConnect(_) if Self::is_further_mdt(&exchange.request.typed) => {
                let handle = exchange.reply.as_ref().map(|(reply, _)| reply.body.handle.0);
                self.mounts.leave_out(handle.unwrap_or_default());
                return Err("connects to a second MDT");
            }
            connect if is_connect(connect) => {
                let target = target_of_connect(connect).ok_or("connects to no server of ours")?;
                self.here(target)
            }
            Request::LdlmCancel(cancel) => return self.export_of_locks(&cancel.dlm_req),
            _ => match (exchange.portal, ost) {
                (Portal::MGS_REQUEST, _) => TargetId::Mgs,
                (Portal::OST_REQUEST | Portal::OST_CREATE | Portal::OST_IO, Some(index)) => {
                    TargetId::Ost(index)
                }
                (Portal::OST_REQUEST | Portal::OST_CREATE | Portal::OST_IO, None) => {
                    return self.export_without_object(exchange);
                }
                _ => {
                    let mdt = self.mdt_of.get(&exchange.request.body.handle.0);
                    TargetId::Mdt(mdt.copied().unwrap_or_default())
                }
            },
        };
        if is_ping(exchange) && self.mapping.word(exchange.request.body.handle.0).is_none() {
            return Err("asks for life where nothing was asked for yet");
        }
        let handle = exchange.request.body.handle.0;
        if self.down.get(&target).is_some_and(|noticed| *noticed != handle) {
            return Err("goes to a second MDT");
        }
        if is_connect(&exchange.request.typed) {
            self.mounts.remember(target, exchange);
            return Ok((self.mounts.connecting(target, handle), target));
        }
        Ok((self.mounts.number(target, handle), target))
    }

    /// Whether a connect is to an MDT that we do not have.
    fn is_further_mdt(connect: &Request) -> bool {
        !matches!(target_of_connect(connect), Some(TargetId::Mdt(index)) if index < MDTS)
    }

    fn export_without_object(&mut self, exchange: &Exchange) -> Result<Export, &'static str> {
        let known = self.mapping.word(exchange.request.body.handle.0);
        match known.and_then(|handle| self.mounts.export(handle)) {
            Some(export) if is_leaving(&exchange.request.typed) && !self.mounts.leave(export) => {
                Err("leaves an OST that is another one here")
            }
            Some(_) if names_object(&exchange.request.typed) => {
                Err("is about an object from before the capture")
            }
            Some(export) => Ok(export),
            None if exchange.request.body.opcode == Opcode::OST_STATFS => Ok((0, TargetId::Ost(0))),
            None => Err("is about an object from before the capture"),
        }
    }

    fn export_of_locks(&self, request: &LdlmRequest) -> Result<Export, &'static str> {
        let known = request.counted().iter().find_map(|handle| self.locks.get(&handle.0));
        known.map(|held| held.export).ok_or("cancels a lock from before the capture")
    }

    /// The locks of a cancel that one of our targets holds. The other locks, whose objects are on one
    /// OST there and on several here, stay until they are revoked.
    fn of_export(&mut self, request: &LdlmRequest, export: Export) -> Bytes {
        let known = request.counted().iter().filter_map(|handle| self.locks.get(&handle.0));
        let held = known.filter(|held| held.export == export).map(|held| held.handle);
        encoded(&LdlmRequest::cancel(held.collect()))
    }

    async fn send(&mut self, exchange: &Exchange) -> Result<Pending, &'static str> {
        if exchange.is_cut {
            return Err("was not captured whole");
        }
        if is_leaving(&exchange.request.typed) && exchange.reply.is_none() {
            return Err("leaves a server that was not there");
        }
        if is_batch_refused(exchange) {
            // Ours executes it, and the client that has no answer there would never cancel its locks.
            return Err("is a batch that was refused");
        }
        self.note_reopened();
        let request = &exchange.request;
        if let Some(fid) = crate::stage::new_fid(exchange) {
            let export = self.export_of(exchange, None)?;
            self.have_sequence(export, fid.seq).await;
        }
        if let Request::MdsReintMigrate(migrate) = &request.typed
            && !crate::stage::is_directory(migrate.rec_reint.mode)
        {
            self.mapping.note_moved(migrate.rec_reint.fid2);
        }
        let mut message = request.message.clone();
        let mut ost = None;
        for (field, bytes) in request.format.request.iter().zip(message.buffers.iter_mut().skip(1))
        {
            let again = (field.name == "eadata").then(|| self.mapping.sent_layout(bytes)).flatten();
            let translated = self.mapping.translate(bytes);
            ost = ost.or(translated.ost);
            *bytes = again.unwrap_or(translated.bytes);
        }
        let export = self.export_of(exchange, ost)?;
        if request.body.flags.contains(MsgFlags::REPLAY) && matches!(export.1, TargetId::Ost(_)) {
            return Err("is replayed to an OST that did not go away here");
        }
        if !is_connect(&request.typed) && self.mounts.handle(export).is_none() {
            self.connect(export).await;
        }
        if let Request::LdlmCancel(cancel) = &request.typed {
            message.buffers[1] = self.of_export(&cancel.dlm_req, export);
        }
        if matches!(request.body.opcode, Opcode::OST_READ | Opcode::OST_WRITE) {
            let data: Vec<_> = match &request.typed {
                Request::OstWrite(write) if !write.short_io.is_empty() => {
                    vec![write.short_io.clone()]
                }
                _ => exchange.bulk.iter().map(|(_, data)| data.clone()).collect(),
            };
            message.buffers[1] = with_our_checksum(&message.buffers[1], &data);
        }
        let mut connect = is_connect(&request.typed).then(|| request.typed.clone());
        if let Some(connect) = &mut connect {
            self.mounts.identify(export, connect, &self.mapping);
        }
        let body = self.body(export, &request.body);
        message.buffers[0] = encoded(&body);
        let bytes = match connect {
            Some(connect) => connect.to_bytes(&message.header, &body),
            None => message.encode(),
        };
        let bits = MatchBits(exchange.bits);
        let portal = reply_portal(exchange.portal);
        let own = request.body.match_bits;
        let awaited = if own.0 == 0 { bits } else { own };
        let answer = self.lnet.expect_puts(self.server, portal, awaited, BYTES_MAX);
        let bulk = bulk_portal(body.opcode);
        let (mut offers, mut sinks) = (Vec::new(), Vec::new());
        for (bits, data) in &exchange.bulk {
            let bits = MatchBits(*bits);
            if matches!(body.opcode, Opcode::OST_WRITE | Opcode::MDS_BATCH) {
                // The parts of a batch name what is called otherwise here.
                let pieces = vec![match body.opcode {
                    Opcode::MDS_BATCH => self.mapping.translate(data).bytes,
                    _ => data.clone(),
                }];
                offers.push(self.lnet.offer_get(self.server, bulk, bits, pieces));
            } else {
                sinks.push(self.lnet.expect_put(self.server, bulk, bits, BYTES_MAX));
            }
        }
        self.lnet.put(self.server, exchange.portal, bits, 0, vec![bytes]);
        Ok(Pending { answer, _offers: offers, sinks, export, message })
    }

    /// Awaits the answer and compares it; the request again if there is none.
    async fn answer(
        &mut self,
        exchange: &Exchange,
        mut sent: Pending,
        outcome: &mut Outcome,
    ) -> Option<Pending> {
        let place = &exchange.place;
        let name = format!("{} reply", exchange.request.format.name);
        let mut delivery = None;
        for _ in 0..ROUNDS {
            delivery = within(&*self.world.clock, PATIENCE, proper(&mut sent.answer)).await;
            if delivery.is_some() {
                break;
            }
            self.cancel_revoked().await;
        }
        let Some(Some(delivery)) = delivery else { return Some(sent) };
        let (real, real_sent) = exchange.reply.as_ref()?;
        let elsewhere = self.elsewhere(exchange, real);
        if let Some(reason) = elsewhere {
            *outcome.skipped.entry(reason).or_default() += 1;
            outcome.played -= 1;
        }
        let Some(ours) = self.decode(exchange, &delivery) else {
            outcome.differences.push(difference(&name, "message", "", "undecodable", place));
            return None;
        };
        self.learn(exchange, real, &ours, sent.export);
        let inodes = crate::learn::inodes(&real.typed, &ours.typed);
        self.learn_moved(inodes.as_slice(), place, outcome);
        self.note_open(exchange, real, &ours, sent.export, sent.message);
        if elsewhere.is_some() {
            return None;
        }
        let ours_sent = Sent { portal: delivery.portal, offset: delivery.offset };
        let one = leaves(real, *real_sent);
        let other = leaves(&ours, ours_sent);
        outcome.differences.extend(compare(&name, place, &one, &other, &self.mapping));
        if let (Reply::MdsBatch(real), Reply::MdsBatch(ours)) = (&real.typed, &ours.typed) {
            let found = compare_parts(place, real, ours, &self.mapping);
            outcome.differences.extend(found);
        }
        self.bulk(exchange, sent.sinks, place, outcome).await;
        None
    }

    /// Why an answer is not compared: it depends on what is not here.
    fn elsewhere(&mut self, exchange: &Exchange, real: &Rpc<Reply>) -> Option<&'static str> {
        let Request::LdlmEnqueue(asked) = &exchange.request.typed else { return None };
        let aborted = real.body.status == i32::from(Errno::ELDLM_LOCK_ABORTED.0);
        let is_new = self.asked_for.insert(asked.dlm_req.desc.resource.name);
        (aborted && is_new).then_some("finds a lock from before the capture")
    }

    /// Compares what the server put into the client's memory.
    async fn bulk(
        &mut self,
        exchange: &Exchange,
        sinks: Vec<Expectation>,
        place: &str,
        outcome: &mut Outcome,
    ) {
        let name = format!("{} bulk", exchange.request.format.name);
        for (sink, (_, real)) in sinks.into_iter().zip(&exchange.bulk) {
            match within(&*self.world.clock, PATIENCE, sink).await {
                Some(Ok(delivery)) => {
                    if matches!(exchange.request.typed, Request::MdsReadpage(_)) {
                        let inodes = crate::learn::listed(real, &delivery.payload);
                        self.learn_moved(&inodes, place, outcome);
                    }
                    let format = Some(exchange.request.format);
                    let text = |bytes: &Bytes| crate::bulk::leaves(format, bytes);
                    let (one, other) = (text(real), text(&delivery.payload));
                    let found = compare(&name, place, &one, &other, &self.mapping);
                    outcome.differences.extend(found);
                }
                _ => outcome.differences.push(difference(&name, "data", "there", "none", place)),
            }
        }
    }

    fn decode(&self, exchange: &Exchange, delivery: &Delivery) -> Option<Rpc<Reply>> {
        let message = Message::decode(&delivery.payload).ok()?;
        let body = message.body().ok()?;
        let format = exchange.request.format;
        let typed = Reply::decode(format.kind, &message).ok()?;
        Some(Rpc { message, body, format, typed })
    }

    /// Remembers what is open now, and what is not any more.
    fn note_open(
        &mut self,
        exchange: &Exchange,
        real: &Rpc<Reply>,
        ours: &Rpc<Reply>,
        export: Export,
        message: Message,
    ) {
        if let Request::MdsClose(close) = &exchange.request.typed {
            self.opens.remove(&close.mdt_ioepoch.open_handle.0);
        }
        let Reply::LdlmIntentOpen(reply) = &real.typed else { return };
        let handle = reply.mdt_body.as_ref().map_or(0, |body| body.open_handle.0);
        if handle != 0 {
            let (portal, bits) = (exchange.portal, MatchBits(exchange.bits));
            let transno = ours.body.transno;
            self.opens.insert(handle, Opened { export, portal, bits, message, transno });
        }
    }

    /// Learns what inodes that have moved are called here.
    fn learn_moved(&mut self, inodes: &[(Fid, Fid)], place: &str, outcome: &mut Outcome) {
        for (real, ours) in inodes {
            if self.mapping.learn_moved(*real, *ours) {
                let (real, ours) = (real.to_string(), ours.to_string());
                let moved = difference("MDS_REINT_MIGRATE", "rec_reint.fid2", &real, &ours, place);
                outcome.differences.push(moved);
            }
        }
    }

    /// Learns what the real answer's names are in ours.
    fn learn(&mut self, exchange: &Exchange, real: &Rpc<Reply>, ours: &Rpc<Reply>, export: Export) {
        if exchange.request.body.handle.0 != 0
            && let Some(handle) = self.mounts.handle(export)
        {
            self.mapping.learn(exchange.request.body.handle.0, handle.0);
        }
        if is_connect(&exchange.request.typed) && ours.body.handle.0 != 0 {
            self.mounts.connected(export, real.body.handle.0, ours.body.handle);
            self.mapping.learn(real.body.handle.0, ours.body.handle.0);
        }
        if matches!(export.1, TargetId::Mdt(_)) {
            self.mapping.learn_transno(export.1, real.body.transno, ours.body.transno);
        }
        crate::learn::names(&mut self.mapping, &real.typed, &ours.typed);
        for (client, real, ours) in crate::learn::locks(exchange, &real.typed, &ours.typed) {
            let held = LockReference { export, handle: ours };
            self.mapping.learn(real.0, ours.0);
            self.locks.insert(real.0, held);
            self.by_client.insert(client.0, held);
        }
        for ((real, one), other) in exchange
            .request
            .format
            .reply
            .iter()
            .zip(real.message.buffers.iter().skip(1))
            .zip(ours.message.buffers.iter().skip(1))
        {
            if ["mdt_md", "dlm_lvb", "eadata"].contains(&real.name) {
                self.mapping.learn_layouts(one, other);
                self.mapping.learn_stripes(one, other);
            }
        }
    }
}

pub(crate) fn is_leaving(request: &Request) -> bool {
    matches!(
        request,
        Request::OstDisconnect(_) | Request::MdsDisconnect(_) | Request::MgsDisconnect(_)
    )
}

/// Whether a request moves a file to another name. Ours revokes the file's attributes from other clients then,
/// because its time of change is another; Lustre its extended attributes. The two go different ways.
pub(crate) fn is_rename(request: &Request) -> bool {
    matches!(request, Request::MdsReintRename(_))
}

/// Whether a request to an OST is about one object.
fn names_object(request: &Request) -> bool {
    matches!(
        request,
        Request::LdlmEnqueue(_)
            | Request::OstGetattr(_)
            | Request::OstSetattr(_)
            | Request::OstRead(_)
            | Request::OstWrite(_)
            | Request::OstPunch(_)
            | Request::OstFallocate(_)
            | Request::OstSeek(_)
            | Request::OstLadvise(_)
            | Request::OstSync(_)
    )
}

fn is_ping(exchange: &Exchange) -> bool {
    exchange.request.body.opcode == Opcode::OBD_PING
}

/// The second MDT of the captured file system has the range behind that of the first.
fn is_of_second_mdt(fid: Fid) -> bool {
    fid.seq >= fid_seq::NORMAL + (1 << 30)
}

/// Whether attributes were asked for in a batch that was not answered.
fn is_batch_refused(exchange: &Exchange) -> bool {
    let is_refused = exchange.reply.as_ref().is_some_and(|(reply, ..)| reply.body.status < 0);
    matches!(exchange.request.typed, Request::MdsBatch(_)) && is_refused
}

/// Which MDT each export of a script is of, by the inodes whose attributes were answered there.
fn mdts_of(script: &Script) -> HashMap<u64, u16> {
    let of = |exchange: &Exchange| {
        let body = match &exchange.reply.as_ref()?.0.typed {
            Reply::LdlmIntentGetattr(it) => it.mdt_body.as_ref(),
            Reply::LdlmIntentOpen(it) => it.mdt_body.as_ref(),
            Reply::MdsReintCreate(it) => it.mdt_body.as_ref(),
            _ => return None,
        };
        let fid = body.filter(|body| body.valid.contains(Valid::TYPE))?.fid1;
        Some((exchange.request.body.handle.0, u16::from(is_of_second_mdt(fid))))
    };
    let connected = |exchange: &Exchange| {
        let Some(TargetId::Mdt(index)) = target_of_connect(&exchange.request.typed) else {
            return None;
        };
        Some((exchange.reply.as_ref()?.0.body.handle.0, index))
    };
    let all = script.exchanges.iter();
    let said = all.clone().filter_map(connected);
    all.filter_map(of).chain(said).collect()
}

/// The target that a connect names.
pub(crate) fn target_of_connect(request: &Request) -> Option<TargetId> {
    let name = match request {
        Request::MgsConnect(_) => return Some(TargetId::Mgs),
        Request::MdsConnect(connect) => connect.tgtuuid.to_text(),
        Request::OstConnect(connect) => connect.tgtuuid.to_text(),
        _ => return None,
    };
    if let Some(index) = name.strip_prefix("lustre-MDT").and_then(|rest| rest.get(..4)) {
        return u16::from_str_radix(index, 16).ok().map(TargetId::Mdt);
    }
    let index = name.strip_prefix("lustre-OST").and_then(|rest| rest.get(..4))?;
    u32::from_str_radix(index, 16).ok().map(TargetId::Ost)
}

pub(crate) fn is_connect(request: &Request) -> bool {
    matches!(request, Request::MgsConnect(_) | Request::MdsConnect(_) | Request::OstConnect(_))
}

/// Whether an answer says no more than that the inode is on another MDT.
pub(crate) fn is_remote(reply: &Reply) -> bool {
    let body = match reply {
        Reply::LdlmIntentGetattr(reply) => reply.mdt_body.as_ref(),
        Reply::LdlmIntentOpen(reply) => reply.mdt_body.as_ref(),
        Reply::MdsGetattrName(reply) => reply.mdt_body.as_ref(),
        _ => None,
    };
    body.is_some_and(|body| body.valid.contains(Valid::MDS))
}

/// The answer behind all early replies, which ask for patience.
async fn proper(answers: &mut Expectation) -> Option<Delivery> {
    loop {
        let delivery = answers.next().await.ok()?;
        let message = Message::decode(&delivery.payload);
        let early = message.is_ok_and(|it| it.header.flags.contains(HeaderFlags::AT_SUPPORT));
        if !early {
            return Some(delivery);
        }
    }
}

fn difference(message: &str, field: &str, real: &str, ours: &str, place: &str) -> Difference {
    Difference {
        message: message.to_owned(),
        field: field.to_owned(),
        real: real.to_owned(),
        ours: ours.to_owned(),
        place: place.to_owned(),
    }
}

fn encoded(value: &impl Part) -> Bytes {
    let mut writer = Writer::default();
    value.encode_part(&mut writer);
    writer.into_bytes()
}

/// Asks for a checksum that our servers compute, and computes it for `data` that is written: the
/// captured client agreed with the captured server on kinds that ours does not offer.
fn with_our_checksum(bytes: &Bytes, data: &[Bytes]) -> Bytes {
    let Ok(mut body) = OstBody::decode(&mut Reader::new(bytes, ByteOrder::Little)) else {
        return bytes.clone();
    };
    const KINDS: ObdoFlags =
        ObdoFlags::CKSUM_CRC32.union(ObdoFlags::CKSUM_ADLER).union(ObdoFlags::CKSUM_CRC32C);
    if body.oa.valid.contains(Valid::CKSUM) {
        body.oa.flags = body.oa.flags.without(KINDS) | ObdoFlags::of_checksum(Checksum::Crc32c);
        body.oa.nlink = Checksum::Crc32c.of(data);
    }
    encoded(&body)
}
