//! A server that answers as the captured ones did.
//!
//! It understands nothing: a request is answered with what the real server said to the first
//! request of the same kind and subject that has not been answered yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_conformance::rpc::Rpc;
use sheen_conformance::{Content, explain};
use sheen_node::net::{Delivery, LNet, Receiver};
use sheen_rpc::import::EARLY_REPLY_BYTES;
use sheen_rpc::{bulk_portal, reply_portal};
use sheen_types::{HashSet, MatchBits};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::messages::{FieldKind, FormatFlags, ObdPingReply, Reply, Request, find_format};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};

use crate::common::REQUEST_PORTALS;
use crate::compare::{Difference, compare_requests};
use crate::fields::{Leaves, flatten};
use crate::script::{Exchange, Script};

/// What was asked and answered.
#[derive(Default)]
pub(crate) struct Heard {
    /// Requests that were answered.
    pub(crate) answered: usize,
    /// Where our client asked otherwise.
    pub(crate) differences: Vec<Difference>,
    /// Requests that the real client never sent.
    pub(crate) strange: BTreeMap<String, usize>,
}

struct State {
    script: Script,
    used: HashSet<usize>,
    /// Behind the last change that was played.
    reached: usize,
    /// Exports whose clients await replies under match bits of their own.
    by_bits: HashSet<u64>,
    heard: Heard,
}

/// The servers of a capture.
pub(crate) struct Answering {
    lnet: Arc<LNet>,
    state: Mutex<State>,
}

/// Answers at `lnet` from now on.
pub(crate) fn serve(lnet: &Arc<LNet>, script: Script) -> Arc<Answering> {
    let state = State {
        script,
        used: HashSet::default(),
        reached: 0,
        by_bits: HashSet::default(),
        heard: Heard::default(),
    };
    let answering = Arc::new(Answering { lnet: Arc::clone(lnet), state: Mutex::new(state) });
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
        self.answer(&delivery, &ours);
    }
}

impl Answering {
    /// What was heard since the start.
    pub(crate) fn heard(&self) -> Heard {
        std::mem::take(&mut self.state.lock().heard)
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
        if ours.format.flags.contains(FormatFlags::MUTATING) {
            state.reached = state.reached.max(index);
        }
        let State { script, by_bits, heard, .. } = &mut *state;
        let exchange = &script.exchanges[index];
        let Some((real, sent)) = &exchange.reply else { return };
        heard.answered += 1;
        let place = exchange.place.clone();
        let (one, other) = (leaves(&exchange.request), leaves(ours));
        let name = exchange.request.format.name;
        heard.differences.extend(compare_requests(name, &place, &one, &other));
        let reply = agreed(real, &ours.typed);
        if let Some(data) = connect_data(&reply.typed)
            && data.flags2.contains(ConnectFlags2::REP_MBITS)
        {
            by_bits.insert(real.body.handle.0);
        }
        let by_bits = by_bits.contains(&ours.body.handle.0) && ours.body.match_bits.0 != 0;
        let bits = if by_bits { ours.body.match_bits } else { delivery.bits };
        let data: Vec<_> = exchange.bulk.iter().map(|(_, data)| data.clone()).collect();
        let payload = reply.typed.to_bytes(&reply.message.header, &reply.body);
        let offset = sent.offset;
        drop(state);
        let bulk_bits = match ours.body.match_bits.0 {
            0 => delivery.bits.0,
            bits => bits,
        };
        for (part, data) in data.into_iter().enumerate() {
            let bits = MatchBits(bulk_bits + part as u64);
            let portal = bulk_portal(ours.body.opcode);
            self.lnet.put(delivery.from, portal, bits, 0, vec![data]);
        }
        let portal = reply_portal(delivery.portal);
        self.lnet.put_at(delivery.from, portal, bits, 0, offset, vec![payload]);
    }
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
        self.lnet.put_at(delivery.from, portal, bits, 0, EARLY_REPLY_BYTES, vec![bytes]);
    }
}

impl State {
    /// The exchange to answer from: of the same kind and subject, not used yet, and behind the
    /// last change that was played; else the last one before that, as servers answer a question
    /// again.
    fn find(&self, ours: &Rpc<Request>) -> Option<usize> {
        let wanted = subject(&ours.typed);
        let fits = |exchange: &Exchange| {
            exchange.request.format.kind == ours.format.kind
                && exchange.reply.is_some()
                && (subject(&exchange.request.typed) == wanted || names(exchange, &ours.typed))
        };
        let all = self.script.exchanges.iter().enumerate();
        let fitting: Vec<_> = all.filter(|(_, it)| fits(it)).map(|(index, _)| index).collect();
        let fresh = |index: &&usize| **index >= self.reached && !self.used.contains(*index);
        let before = fitting.iter().rev().find(|index| **index < self.reached);
        fitting.iter().find(fresh).or(before).or(fitting.last()).copied()
    }
}

/// Whether the exchange was about a name, and found the inode that ours asks for by FID.
fn names(exchange: &Exchange, ours: &Request) -> bool {
    let Request::LdlmIntentGetattr(asked) = ours else { return false };
    let Some((reply, _)) = &exchange.reply else { return false };
    let Reply::LdlmIntentGetattr(reply) = &reply.typed else { return false };
    let by_fid = asked.name.as_ref().is_none_or(|name| name.as_bytes().is_empty());
    by_fid && reply.mdt_body.as_ref().is_some_and(|body| body.fid1 == asked.mdt_body.fid1)
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
        Request::OstSetattr(set) => format!("{:?}", set.ost_body.oa.oi),
        Request::MdsGetattr(getattr) => format!("{:?}", getattr.mdt_body.fid1),
        Request::MdsReadpage(page) => {
            format!("{:?} {:#x}", page.mdt_body.fid1, page.mdt_body.size)
        }
        _ => String::new(),
    }
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
