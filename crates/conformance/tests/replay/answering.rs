//! A server that answers as the captured ones did.
//!
//! It understands nothing: a request is answered with what the real server said to the first
//! request of the same kind and subject that has not been answered yet.

mod batch;
mod data;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_conformance::rpc::Rpc;
use sheen_conformance::{Content, explain};
use sheen_io::World;
use sheen_node::net::{Delivery, LNet, Receiver};
use sheen_rpc::import::EARLY_REPLY_BYTES;
use sheen_rpc::reply_portal;
use sheen_types::{HashMap, HashSet, LockHandle, MatchBits, Nid, TargetName};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::lnet::Portal;
use sheen_wire::md::{MdsOpenFlags, RecCreate};
use sheen_wire::messages::{FieldKind, FormatFlags, ObdPingReply, Reply, Request, find_format};
use sheen_wire::ost::{NiobufRemote, OstBody};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};

use self::batch::Batch;
use self::data::Bulk;
use crate::asking::mdt_of;
use crate::common::REQUEST_PORTALS;
use crate::compare::{Difference, compare_requests};
use crate::fields::{Leaves, flatten};
use crate::player::is_remote;
use crate::script::{Exchange, Script};

/// What was asked and answered.
#[derive(Default)]
pub(crate) struct Heard {
    /// Requests that were answered.
    pub(crate) answered: usize,
    /// Names in batches among them that were answered each for itself.
    pub(crate) parts: usize,
    /// Where our client asked otherwise.
    pub(crate) differences: Vec<Difference>,
    /// Requests that the real client never sent.
    pub(crate) strange: BTreeMap<String, usize>,
}

struct ScriptState {
    script: Script,
    used: HashSet<usize>,
    /// Behind the last change that was played.
    reached: usize,
    /// Exports whose clients await replies under match bits of their own.
    by_bits: HashSet<u64>,
    /// The targets behind the handles of connections, of which the client's requests name one each.
    targets: HashMap<u64, String>,
    /// Our client's locks, by the captured client's handles.
    locks: HashMap<u64, LockHandle>,
    heard: Heard,
}

/// The servers of a capture.
#[derive(Clone)]
pub(crate) struct Answering {
    lnet: Arc<LNet>,
    world: World,
    state: Arc<Mutex<ScriptState>>,
}

/// Answers at `lnet` from now on.
pub(crate) fn serve(lnet: &Arc<LNet>, world: World, mut script: Script) -> Arc<Answering> {
    batch::add_parts(&mut script);
    let targets = script.exchanges.iter().filter_map(connected).collect();
    let state = ScriptState {
        script,
        targets,
        used: HashSet::default(),
        reached: 0,
        by_bits: HashSet::default(),
        locks: HashMap::default(),
        heard: Heard::default(),
    };
    let answering =
        Arc::new(Answering { lnet: Arc::clone(lnet), world, state: Arc::new(Mutex::new(state)) });
    for portal in REQUEST_PORTALS {
        lnet.serve(portal, Arc::clone(&answering) as _);
    }
    answering
}

impl Receiver for Answering {
    fn receive(&self, delivery: Delivery) {
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Ok(body) = message.body() else { return };
        let Some(format) = find_format(body.opcode, &message) else { return };
        let Ok(request) = Request::decode(body.opcode, &message) else { return };
        let ours = Rpc { message, body, format, typed: request };
        if matches!(ours.typed, Request::MdsBatch(_)) {
            return self.answer_batch(&delivery, ours);
        }
        self.answer(&delivery, &ours);
    }
}

impl Answering {
    /// What was heard since the start.
    pub(crate) fn heard(&self) -> Heard {
        std::mem::take(&mut self.state.lock().heard)
    }

    fn answer_batch(&self, delivery: &Delivery, ours: Rpc<Request>) {
        let batch = Batch {
            to: delivery.from,
            portal: reply_portal(delivery.portal),
            bits: delivery.bits,
            bulk: Bulk::of(delivery, &ours, &[], String::new()),
            ours: Box::new(ours),
        };
        let answering = self.clone();
        let answered = async move { batch.answer(&answering).await };
        self.world.tasks.spawn("captured server", Box::pin(answered));
    }

    fn answer(&self, delivery: &Delivery, ours: &Rpc<Request>) {
        if matches!(ours.typed, Request::ObdPing(_)) {
            return self.pong(delivery, ours);
        }
        let mut state = self.state.lock();
        let Some(index) = state.find(ours) else {
            let what = format!("{} {}", ours.format.name, subject(&ours.typed));
            *state.heard.strange.entry(what).or_default() += 1;
            return;
        };
        state.used.insert(index);
        let target = |handle: u64| state.targets.get(&handle);
        let real = target(state.script.exchanges[index].request.body.handle.0);
        let went = target(ours.body.handle.0);
        if let (Some(real), Some(went)) = (real, went)
            && real != went
            && is_for_one_mdt(&ours.typed)
        {
            let what = format!("{} {} to {went}", ours.format.name, subject(&ours.typed));
            *state.heard.strange.entry(what).or_default() += 1;
        }
        // The real client closes some time after the program did. To ask for a layout changes nothing.
        let elsewhen = matches!(ours.typed, Request::MdsClose(_) | Request::LdlmIntentLayout(_));
        if ours.format.flags.contains(FormatFlags::MODIFYING) && !elsewhen {
            state.reached = state.reached.max(index);
        }
        let discards = state.discarded_by(index);
        let ScriptState { script, by_bits, locks, heard, .. } = &mut *state;
        let exchange = &script.exchanges[index];
        let Some((real, sent)) = &exchange.reply else { return };
        heard.answered += 1;
        let of = if exchange.is_part { batch::fields } else { leaves };
        let (one, other) = (of(&exchange.request), of(ours));
        let name = exchange.request.format.name;
        heard.differences.extend(compare_requests(name, &exchange.place, &one, &other));
        let reply = agreed(real, &ours.typed);
        if let Some(data) = connect_data(&reply.typed)
            && data.flags2.contains(ConnectFlags2::REP_MBITS)
        {
            by_bits.insert(real.body.handle.0);
        }
        let by_bits = by_bits.contains(&ours.body.handle.0) && ours.body.match_bits.0 != 0;
        let saying = Saying {
            to: delivery.from,
            portal: reply_portal(delivery.portal),
            bits: if by_bits { ours.body.match_bits } else { delivery.bits },
            offset: sent.offset,
            reply,
            bulk: Bulk::of(delivery, ours, &exchange.bulk, exchange.place.clone()),
            calls: granted(script, locks, &exchange.request.typed, &ours.typed)
                .into_iter()
                .chain(discards)
                .collect(),
        };
        drop(state);
        let (lnet, state) = (Arc::clone(&self.lnet), Arc::clone(&self.state));
        let said = async move {
            let wrong = saying.say(&lnet).await;
            state.lock().heard.differences.extend(wrong);
        };
        self.world.tasks.spawn("captured server", Box::pin(said));
    }
}

/// An answer on its way.
struct Saying {
    to: Nid,
    portal: Portal,
    bits: MatchBits,
    offset: u32,
    reply: Rpc<Reply>,
    bulk: Bulk,
    /// What is said afterwards of locks.
    calls: Vec<Rpc<Request>>,
}

impl Saying {
    /// Moves the data, answers, and calls. What is different in the data that came.
    async fn say(mut self, lnet: &Arc<LNet>) -> Option<Difference> {
        let wrong = self.bulk.moved(lnet, &mut self.reply.typed).await;
        let payload = self.reply.typed.to_bytes(&self.reply.message.header, &self.reply.body);
        lnet.put_reply(self.to, self.portal, self.bits, 0, self.offset, vec![payload]);
        for call in self.calls {
            let payload = call.typed.to_bytes(&call.message.header, &call.body);
            lnet.put(self.to, Portal::LDLM_CB_REQUEST, self.bits, 0, vec![payload]);
        }
        wrong
    }
}

/// Remembers which lock of ours stands for which captured one; and what was said of that when it was
/// granted after all, as said of ours.
fn granted(
    script: &Script,
    locks: &mut HashMap<u64, LockHandle>,
    real: &Request,
    ours: &Request,
) -> Option<Rpc<Request>> {
    let (real, own) = (lock_of(real)?, lock_of(ours)?);
    locks.insert(real.0, own);
    let mut call = script.completions.get(&real.0)?.as_ref().clone();
    if let Request::LdlmCpCallback(call) = &mut call.typed {
        *call.dlm_req.handles.first_mut()? = own;
    }
    Some(call)
}

/// The client's handle of the lock that a request asks for.
fn lock_of(request: &Request) -> Option<LockHandle> {
    let lock = match request {
        Request::LdlmEnqueue(it) => &it.dlm_req,
        Request::LdlmIntentGetattr(it) => &it.dlm_req,
        Request::LdlmIntentOpen(it) => &it.dlm_req,
        Request::LdlmIntentLayout(it) => &it.dlm_req,
        Request::LdlmIntentGetxattr(it) => &it.dlm_req,
        _ => return None,
    };
    lock.handles.first().copied()
}

impl Answering {
    /// Whether a client asks for life depends on how long it is idle, not on what it does.
    fn pong(&self, delivery: &Delivery, ours: &Rpc<Request>) {
        let by_bits = self.state.lock().by_bits.contains(&ours.body.handle.0);
        let bits = if by_bits { ours.body.match_bits } else { delivery.bits };
        let body = PtlrpcBody {
            kind: MsgType::REPLY,
            version: MESSAGE_VERSION,
            opcode: ours.body.opcode,
            ..PtlrpcBody::default()
        };
        let reply = Reply::from(ObdPingReply::default());
        let bytes = reply.to_bytes(&MessageHeader::default(), &body);
        let portal = reply_portal(delivery.portal);
        self.lnet.put_reply(delivery.from, portal, bits, 0, EARLY_REPLY_BYTES, vec![bytes]);
    }
}

impl ScriptState {
    /// The calls for locks of objects that had gone when the exchange at `index` was answered, for
    /// the locks of ours that stand for them.
    fn discarded_by(&mut self, index: usize) -> Vec<Rpc<Request>> {
        let all = std::mem::take(&mut self.script.discards);
        let (due, later) = all.into_iter().partition(|(behind, _)| *behind <= index + 1);
        self.script.discards = later;
        let ours = due.into_iter().filter_map(|(_, mut call): (_, Box<Rpc<Request>>)| {
            let Request::LdlmBlCallback(callback) = &mut call.typed else { return None };
            let first = callback.dlm_req.handles.first_mut()?;
            *first = *self.locks.get(&first.0)?;
            Some(*call)
        });
        ours.collect()
    }

    /// The exchange to answer from: of the same kind and subject, not used yet, and behind the
    /// last change that was played; else the last one before that, as servers answer a question
    /// again.
    fn find(&self, ours: &Rpc<Request>) -> Option<usize> {
        let wanted = subject(&ours.typed);
        let is_part = ours.message.buffers.first().is_some_and(Bytes::is_empty);
        let is_good = |it: &Exchange| it.reply.as_ref().is_some_and(|it| it.0.body.status == 0);
        let fits = |exchange: &Exchange| {
            exchange.request.format.kind == ours.format.kind
                && exchange.reply.is_some()
                && (!exchange.is_part || is_part || is_good(exchange))
                && (subject(&exchange.request.typed) == wanted || names(exchange, &ours.typed))
        };
        let all = self.script.exchanges.iter().enumerate();
        let mut fitting: Vec<_> = all.filter(|(_, it)| fits(it)).map(|(index, _)| index).collect();
        // Only where it was sent says which MDT is asked for FIDs, and only what was given who gave it: the captured
        // client may have asked under another mount's handle.
        let asked = self.targets.get(&ours.body.handle.0).and_then(|target| mdt_number(target));
        let same_target =
            |index: &usize| asked.is_some() && given_by(&self.script.exchanges[*index]) == asked;
        if matches!(ours.typed, Request::SeqQuery(_)) && fitting.iter().any(same_target) {
            fitting.retain(same_target);
        }
        let fresh = |index: &&usize| **index >= self.reached && !self.used.contains(*index);
        let before = fitting.iter().rev().find(|index| **index < self.reached);
        fitting.iter().find(fresh).or(before).or(fitting.last()).copied()
    }
}

/// Whether the exchange found by name, or beside its parent, the inode that ours asks for by FID; or where the sequence
/// is that ours asks for.
fn names(exchange: &Exchange, ours: &Request) -> bool {
    let Some((reply, _)) = &exchange.reply else { return false };
    if let (Request::FldQuery(asked), Reply::FldQuery(reply)) = (ours, &reply.typed) {
        // Another sequence of the same range.
        return reply.fld_mdfld.as_ref().is_some_and(|it| it.contains(asked.fld_mdfld.start));
    }
    let (by_fid, found, wanted) = match (ours, &reply.typed) {
        (Request::LdlmIntentGetattr(asked), Reply::LdlmIntentGetattr(reply)) => {
            let by_fid = asked.name.as_ref().is_none_or(|name| name.as_bytes().is_empty());
            (by_fid, &reply.mdt_body, asked.mdt_body.fid1)
        }
        (Request::LdlmIntentOpen(asked), Reply::LdlmIntentOpen(reply)) => {
            let by_fid = asked.rec_reint.fid1 == asked.rec_reint.fid2;
            let Request::LdlmIntentOpen(real) = &exchange.request.typed else { return false };
            let same = how(&real.rec_reint) == how(&asked.rec_reint);
            (by_fid && same, &reply.mdt_body, asked.rec_reint.fid1)
        }
        _ => return false,
    };
    by_fid && !is_remote(&reply.typed) && found.as_ref().is_some_and(|body| body.fid1 == wanted)
}

/// What an open is for, as far as both clients say it: the real one keeps files open, and asks for
/// more than a program did.
fn how(open: &RecCreate) -> MdsOpenFlags {
    let flags = MdsOpenFlags(u64::from(open.flags_h) << 32 | u64::from(open.flags_l));
    flags & (MdsOpenFlags::WRITE | MdsOpenFlags::HAS_EA)
}

/// What a request is about, in words that both clients use.
fn subject(request: &Request) -> String {
    match request {
        Request::MdsConnect(connect) => connect.tgtuuid.to_text(),
        Request::OstConnect(connect) => connect.tgtuuid.to_text(),
        Request::LdlmEnqueue(enqueue) => format!("{:?}", enqueue.dlm_req.desc.resource.name),
        Request::LlogOriginHandleCreate(create) => format!("{:?}", create.name),
        Request::LdlmIntentGetattr(getattr) => {
            format!("{:?} {:?}", getattr.mdt_body.fid1, getattr.name)
        }
        Request::LdlmIntentOpen(open) => format!("{:?} {:?}", open.rec_reint.fid1, open.name),
        Request::LdlmIntentLayout(layout) => format!("{:?}", layout.dlm_req.desc.resource.name),
        Request::LdlmIntentGetxattr(get) => format!("{:?}", get.mdt_body.fid1),
        Request::MdsClose(close) => format!("{:?}", close.rec_reint.fid),
        Request::MdsReintSetattr(set) => format!("{:?}", set.rec_reint.fid),
        Request::MdsReintCreate(create) => {
            format!("{:?} {:?}", create.rec_reint.fid1, create.name)
        }
        Request::MdsReintCreateSym(create) => {
            format!("{:?} {:?}", create.rec_reint.fid1, create.name)
        }
        Request::MdsReintLink(link) => format!("{:?} {:?}", link.rec_reint.fid1, link.name),
        Request::MdsReintUnlink(unlink) => {
            format!("{:?} {:?}", unlink.rec_reint.fid1, unlink.name)
        }
        Request::MdsReintRename(rename) => format!("{:?} {:?}", rename.name, rename.symtgt),
        Request::OstSetattr(it) => format!("{:?}", it.ost_body.oa.oi),
        Request::OstPunch(it) => format!("{:?}", it.ost_body.oa.oi),
        Request::OstFallocate(it) => format!("{:?}", it.ost_body.oa.oi),
        Request::OstSync(it) => format!("{:?}", it.ost_body.oa.oi),
        Request::OstRead(it) => place_of(&it.ost_body, &it.niobuf_remote),
        Request::OstWrite(it) => place_of(&it.ost_body, &it.niobuf_remote),
        Request::MdsSync(it) => format!("{:?}", it.mdt_body.fid1),
        Request::MdsReintSetxattr(it) => format!("{:?} {:?}", it.rec_reint.fid, it.name),
        Request::MdsGetattr(getattr) => format!("{:?}", getattr.mdt_body.fid1),
        Request::FldQuery(query) => format!("{:#x}", query.fld_mdfld.start),
        Request::MdsReadpage(page) => {
            format!("{:?} {:#x}", page.mdt_body.fid1, page.mdt_body.size)
        }
        _ => String::new(),
    }
}

/// The handle by which a client knows a target that it has connected to, and the target.
fn connected(exchange: &Exchange) -> Option<(u64, String)> {
    let (reply, _) = exchange.reply.as_ref()?;
    let is_connect = matches!(exchange.request.typed, Request::MdsConnect(_));
    is_connect.then(|| (reply.body.handle.0, subject(&exchange.request.typed)))
}

/// The number of an MDT, by its UUID.
fn mdt_number(uuid: &str) -> Option<u64> {
    uuid.parse::<TargetName>().ok().map(|name| u64::from(name.index))
}

/// The number of the MDT that gave the sequence of an answer.
fn given_by(exchange: &Exchange) -> Option<u64> {
    let (reply, _) = exchange.reply.as_ref()?;
    let Reply::SeqQuery(reply) = &reply.typed else { return None };
    Some(mdt_of(reply.seq_range.as_ref()?.start))
}

/// Whether it matters which MDT a request goes to: not where clients differ in placing what is new, ask any, or
/// leave one after the other.
fn is_for_one_mdt(request: &Request) -> bool {
    !matches!(
        request,
        Request::MdsReintCreate(_)
            | Request::MdsStatfs(_)
            | Request::MdsConnect(_)
            | Request::MdsDisconnect(_)
    )
}

/// The first byte of the object that is read or written.
fn place_of(body: &OstBody, ranges: &[NiobufRemote]) -> String {
    format!("{:?} {:?}", body.oa.oi, ranges.first().map(|range| range.offset))
}

/// A connect's answer says yes to nothing that was not offered.
fn agreed(real: &Rpc<Reply>, request: &Request) -> Rpc<Reply> {
    let mut reply = real.clone();
    let offered = match request {
        Request::MgsConnect(connect) => &connect.cdata,
        Request::MdsConnect(connect) => &connect.cdata,
        Request::OstConnect(connect) => &connect.cdata,
        _ => return reply,
    };
    let data = match &mut reply.typed {
        Reply::MgsConnect(reply) => &mut reply.cdata,
        Reply::MdsConnect(reply) => &mut reply.cdata,
        Reply::OstConnect(reply) => &mut reply.cdata,
        _ => return reply,
    };
    if let Some(data) = data {
        data.flags = ConnectFlags(data.flags.0 & offered.flags.0);
        data.flags2 = ConnectFlags2(data.flags2.0 & offered.flags2.0);
        data.cksum_types.0 &= offered.cksum_types.0;
    }
    reply
}

fn connect_data(reply: &Reply) -> Option<&ObdConnectData> {
    match reply {
        Reply::MgsConnect(reply) => reply.cdata.as_ref(),
        Reply::MdsConnect(reply) => reply.cdata.as_ref(),
        Reply::OstConnect(reply) => reply.cdata.as_ref(),
        _ => None,
    }
}

/// The fields of a request.
fn leaves(request: &Rpc<Request>) -> Leaves {
    let mut leaves = Leaves::new();
    let body = PtlrpcBody { status: 0, ..request.body.clone() };
    flatten("body", &format!("{body:?}"), &mut leaves);
    let buffers = request.format.request;
    for (name, text) in request.typed.dump() {
        let index = buffers.iter().position(|field| field.name == name);
        let opaque = index.filter(|index| buffers[*index].kind == FieldKind::Opaque);
        let bytes = opaque.and_then(|index| request.message.buffers.get(index + 1));
        match bytes.map(|bytes| explain(request.format, false, name, bytes)) {
            Some(Content::Typed { shown, .. }) => flatten(name, &shown, &mut leaves),
            Some(Content::Plain("room not used")) => {}
            _ => flatten(name, &text, &mut leaves),
        }
    }
    leaves
}
