//! A server that answers as the captured ones did.
//!
//! It understands nothing: a request is answered with what the real server said to the first
//! request of the same kind and subject that has not been answered yet.

mod batch;
mod calls;
mod data;
pub(crate) mod mounts;

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
use sheen_types::{HashMap, HashSet, MatchBits, Nid, TargetName};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{LdlmReply, LockFlags, LockType};
use sheen_wire::lnet::Portal;
use sheen_wire::md::{MdsOpenFlags, RecCreate};
use sheen_wire::messages::{
    FieldKind, FormatFlags, LdlmConvertReply, ObdPingReply, Reply, Request, find_format,
};
use sheen_wire::ost::{NiobufRemote, OstBody};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};

use self::batch::Batch;
use self::calls::{Moment, ServerCall, ServerCalls};
use self::data::Bulk;
use crate::asking::mdt_of;
use crate::common::REQUEST_PORTALS;
use crate::compare::{Difference, compare_requests};
use crate::fields::{Leaves, flatten};
use crate::player::is_remote;
use crate::script::{Exchange, Script};

/// Where the number of a mount is added to handles of connections.
const MOUNT_SHIFT: u32 = 40;

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
    /// How far each of our mounts is.
    progress: Vec<Progress>,
    /// Exports whose clients await replies under match bits of their own.
    by_bits: HashSet<u64>,
    /// The targets behind the handles of connections, of which the client's requests name one each.
    targets: HashMap<u64, String>,
    /// What the captured servers said by themselves.
    calls: ServerCalls,
    /// What of that is to be said behind the answer to a batch.
    due: Vec<ServerCall>,
    /// Our mounts, by the names that they gave themselves, and the handles that each was given.
    clients: Vec<String>,
    mounts: HashMap<u64, usize>,
    heard: Heard,
}

/// How far a mount is in a script.
#[derive(Default)]
struct Progress {
    used: HashSet<usize>,
    /// Behind the last change that was played.
    reached: usize,
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
    let calls = ServerCalls::new(&mut script);
    let targets = script.exchanges.iter().filter_map(connected).collect();
    let state = ScriptState {
        script,
        targets,
        progress: Vec::new(),
        by_bits: HashSet::default(),
        calls,
        due: Vec::new(),
        clients: Vec::new(),
        mounts: HashMap::default(),
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

    /// What the captured servers said by themselves up to this packet of the last capture is said.
    pub(crate) fn pass_to(&self, packet: usize) {
        let calls = self.state.lock().pass_to(packet);
        calls.into_iter().for_each(|call| call.send(&self.lnet));
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
        match &ours.typed {
            // Whether a client asks for life depends on how long it is idle, not on what it does.
            Request::ObdPing(_) => {
                return self.agree(delivery, ours, ObdPingReply::default().into());
            }
            // Where a part of a lock is wanted the captured clients cancelled the whole.
            Request::LdlmConvert(asked) => {
                let desc = asked.dlm_req.desc.clone();
                let dlm_rep = Some(LdlmReply { desc, ..LdlmReply::default() });
                return self.agree(
                    delivery,
                    ours,
                    LdlmConvertReply { dlm_rep, ..LdlmConvertReply::default() }.into(),
                );
            }
            _ => {}
        }
        let Some(saying) = self.state.lock().answer(delivery, ours) else { return };
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
    calls: Vec<ServerCall>,
}

impl Saying {
    /// Moves the data, answers, and calls. What is different in the data that came.
    async fn say(mut self, lnet: &Arc<LNet>) -> Option<Difference> {
        let wrong = self.bulk.moved(lnet, &mut self.reply.typed).await;
        let payload = self.reply.typed.to_bytes(&self.reply.message.header, &self.reply.body);
        lnet.put_reply(self.to, self.portal, self.bits, 0, self.offset, vec![payload]);
        self.calls.into_iter().for_each(|call| call.send(lnet));
        wrong
    }
}

impl Answering {
    /// Answers with success.
    fn agree(&self, delivery: &Delivery, ours: &Rpc<Request>, reply: Reply) {
        let by_bits = self.state.lock().by_bits.contains(&ours.body.handle.0);
        let bits = if by_bits { ours.body.match_bits } else { delivery.bits };
        let body = PtlrpcBody {
            kind: MsgType::REPLY,
            version: MESSAGE_VERSION,
            opcode: ours.body.opcode,
            ..PtlrpcBody::default()
        };
        let bytes = reply.to_bytes(&MessageHeader::default(), &body);
        let portal = reply_portal(delivery.portal);
        self.lnet.put_reply(delivery.from, portal, bits, 0, EARLY_REPLY_BYTES, vec![bytes]);
    }
}

impl ScriptState {
    /// The answer to a request, and what differs in it; what could not be answered is heard as strange.
    fn answer(&mut self, delivery: &Delivery, ours: &Rpc<Request>) -> Option<Saying> {
        let mount = self.mount_of(ours);
        let Some(index) = self.find(ours, mount) else {
            self.heard.note_strange(ours, "");
            return None;
        };
        self.note_place(index, mount, ours);
        let moment = Moment { index, is_elsewhen: is_elsewhen(&ours.typed) };
        if ours.format.flags.contains(FormatFlags::MODIFYING) && !moment.is_elsewhen {
            let progress = &mut self.progress[mount];
            progress.reached = progress.reached.max(index);
        }
        let exchange = &self.script.exchanges[index];
        let (real, sent) = exchange.reply.as_ref()?;
        let of = if exchange.is_part { batch::fields } else { leaves };
        let (one, other) = (of(&exchange.request), of(ours));
        let name = exchange.request.format.name;
        let differences = compare_requests(name, &exchange.place, &one, &other);
        self.heard.answered += 1;
        self.heard.differences.extend(differences);
        let (mut reply, offset) = (agreed(real, &ours.typed), sent.offset);
        self.give_handle(mount, &mut reply);
        let by_bits = self.by_bits.contains(&ours.body.handle.0) && ours.body.match_bits.0 != 0;
        let exchange = &self.script.exchanges[index];
        let captured = data::sent(exchange, &ours.typed);
        Some(Saying {
            to: delivery.from,
            portal: reply_portal(delivery.portal),
            bits: if by_bits { ours.body.match_bits } else { delivery.bits },
            offset,
            reply,
            bulk: Bulk::of(delivery, ours, &captured, exchange.place.clone()),
            calls: self.calls.behind(moment, &exchange.request.typed, (delivery.from, &ours.typed)),
        })
    }

    /// The exchange at `index` is played by a mount; it must be of the MDT that ours asks.
    fn note_place(&mut self, index: usize, mount: usize, ours: &Rpc<Request>) {
        self.progress[mount].used.insert(index);
        let target = |handle: u64| self.targets.get(&handle);
        let real = target(self.script.exchanges[index].request.body.handle.0);
        let went = target(ours.body.handle.0);
        if let (Some(real), Some(went)) = (real, went)
            && real != went
            && is_for_one_mdt(&ours.typed)
        {
            let went = format!(" to {went}");
            self.heard.note_strange(ours, &went);
        }
    }

    /// Each mount is given a handle of its own by a connect, as the captured ones were.
    fn give_handle(&mut self, mount: usize, reply: &mut Rpc<Reply>) {
        let Some(data) = connect_data(&reply.typed) else { return };
        let by_bits = data.flags2.contains(ConnectFlags2::REP_MBITS);
        let target = self.targets.get(&reply.body.handle.0).cloned();
        reply.body.handle.0 += (mount as u64) << MOUNT_SHIFT;
        let handle = reply.body.handle.0;
        self.mounts.insert(handle, mount);
        self.targets.extend(target.map(|target| (handle, target)));
        if by_bits {
            self.by_bits.insert(handle);
        }
    }

    /// The calls up to a packet of the last capture; what was asked before it counts as played.
    fn pass_to(&mut self, packet: usize) -> Vec<ServerCall> {
        let exchanges = &self.script.exchanges;
        let Some(last) = exchanges.iter().rposition(|it| it.packet < packet) else {
            return Vec::new();
        };
        for progress in &mut self.progress {
            progress.reached = progress.reached.max(last + 1);
        }
        self.calls.due(last)
    }

    /// The number of the mount that asks; one that connects for the first time is the next one.
    fn mount_of(&mut self, ours: &Rpc<Request>) -> usize {
        let client = match &ours.typed {
            Request::MgsConnect(connect) => connect.cluuid.to_text(),
            Request::MdsConnect(connect) => connect.cluuid.to_text(),
            Request::OstConnect(connect) => connect.cluuid.to_text(),
            _ => return self.mounts.get(&ours.body.handle.0).copied().unwrap_or(0),
        };
        let known = self.clients.iter().position(|it| *it == client);
        known.unwrap_or_else(|| {
            self.clients.push(client);
            self.progress.push(Progress::default());
            self.clients.len() - 1
        })
    }

    /// The exchange to answer from: of the same kind and subject, not used yet, and behind the
    /// last change that was played; else the last one before that, as servers answer a question
    /// again.
    fn find(&self, ours: &Rpc<Request>, mount: usize) -> Option<usize> {
        let wanted = subject(&ours.typed);
        let is_part = ours.message.buffers.first().is_some_and(Bytes::is_empty);
        let is_good = |it: &Exchange| it.reply.as_ref().is_some_and(|it| it.0.body.status == 0);
        let Progress { used, reached } = self.progress.get(mount)?;
        let fits = |exchange: &Exchange| {
            exchange.request.format.kind == ours.format.kind
                && exchange.reply.is_some()
                && exchange.mount.is_none_or(|number| number == mount)
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
        let fresh = |index: &&usize| *index >= reached && !used.contains(*index);
        // What is asked for attributes is answered with the lock on them.
        let brings = |index: &usize| brings_attributes(&self.script.exchanges[*index], &ours.typed);
        if fitting.iter().filter(fresh).any(brings) {
            fitting.retain(brings);
        }
        // Of locks on parts of an object, one that was granted as wide as ours is wanted.
        let is_wide = |index: &usize| covers(&self.script.exchanges[*index], &ours.typed);
        if fitting.iter().filter(fresh).any(is_wide) {
            fitting.retain(is_wide);
        }
        let before = fitting.iter().rev().find(|index| *index < reached);
        fitting.iter().find(fresh).or(before).or(fitting.last()).copied()
    }
}

/// Whether ours asks a known inode for its attributes, and the exchange did, too.
fn brings_attributes(exchange: &Exchange, ours: &Request) -> bool {
    let (Request::LdlmIntentGetattr(real), Request::LdlmIntentGetattr(ours)) =
        (&exchange.request.typed, ours)
    else {
        return false;
    };
    let by_fid = ours.name.as_ref().is_none_or(|name| name.as_bytes().is_empty());
    by_fid && real.ldlm_intent.opc == ours.ldlm_intent.opc
}

/// Whether a lock on part of an object was asked for in the same mode and granted for all that ours asks for.
fn covers(exchange: &Exchange, ours: &Request) -> bool {
    let (Request::LdlmEnqueue(real), Request::LdlmEnqueue(ours)) = (&exchange.request.typed, ours)
    else {
        return false;
    };
    let (real, ours) = (&real.dlm_req, &ours.dlm_req);
    let is_extent = ours.desc.resource.kind == LockType::EXTENT;
    let (wide, wanted) = (&real.desc.policy.0, &ours.desc.policy.0);
    is_extent
        && real.desc.req_mode == ours.desc.req_mode
        && real.flags.contains(LockFlags::HAS_INTENT) == ours.flags.contains(LockFlags::HAS_INTENT)
        && wide[0] <= wanted[0]
        && wide[1] >= wanted[1]
}

/// Whether the exchange found by name, or beside its parent, the inode that ours asks for by FID; or where the sequence
/// is that ours asks for.
fn names(exchange: &Exchange, ours: &Request) -> bool {
    let Some((reply, _)) = &exchange.reply else { return false };
    if let (Request::FldQuery(asked), Reply::FldQuery(reply)) = (ours, &reply.typed) {
        // Another sequence of the same range.
        return reply.fld_mdfld.as_ref().is_some_and(|it| it.contains(asked.fld_mdfld.start));
    }
    if let (Request::OstWrite(asked), Request::OstWrite(real)) = (ours, &exchange.request.typed) {
        // A part of what was written at once.
        let first = asked.niobuf_remote.first().map(|range| range.offset);
        return asked.ost_body.oa.oi == real.ost_body.oa.oi
            && real.niobuf_remote.iter().any(|range| Some(range.offset) == first);
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

/// Whether the real client may have asked at another moment: it closes some time after the program did, and opens no file
/// that it kept open. To ask for a layout changes nothing.
fn is_elsewhen(request: &Request) -> bool {
    match request {
        Request::MdsClose(_) | Request::LdlmIntentLayout(_) => true,
        Request::LdlmIntentOpen(open) => open.rec_reint.fid1 == open.rec_reint.fid2,
        _ => false,
    }
}

/// A connect's answer says yes to nothing that was not offered, and a read's has no more of a page than was asked for.
fn agreed(real: &Rpc<Reply>, request: &Request) -> Rpc<Reply> {
    let mut reply = real.clone();
    if let Request::OstRead(read) = request {
        let wanted = read.niobuf_remote.iter().map(|range| range.len.cast_signed()).sum();
        reply.body.status = reply.body.status.min(wanted);
    }
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
