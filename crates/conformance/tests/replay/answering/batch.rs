//! Batches of the captured servers (`MDS_BATCH`). A part is answered as the captured servers answered the same name, in
//! whichever batch the real client had it, or asked for it alone; and a name that ours asks for alone as that part was.

use bytes::Bytes;
use sheen_conformance::batched;
use sheen_conformance::rpc::Rpc;
use sheen_types::{Errno, MatchBits, Nid};
use sheen_wire::batch::{self, BatchHeader, BatchedMessages, ButUpdateHeader};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{
    Fields, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatch, MdsBatchReply, Reply, Request,
    RequestFormat,
};
use sheen_wire::ptlrpc::{Message, MessageHeader, PtlrpcBody};

use super::calls::Moment;
use super::data::Bulk;
use super::{Answering, Saying, ScriptState, leaves};
use crate::compare::compare_requests;
use crate::fields::Leaves;
use crate::script::{Exchange, Script};

/// What a part is called where its fields are compared.
const PART: &str = "LDLM_INTENT_GETATTR of MDS_BATCH";

/// Puts the parts of each batch behind it, as exchanges of their own.
pub(super) fn add_parts(script: &mut Script) {
    let mut all = Vec::with_capacity(script.exchanges.len());
    // Where each exchange is now.
    let mut places = Vec::with_capacity(script.exchanges.len() + 1);
    for exchange in std::mem::take(&mut script.exchanges) {
        places.push(all.len());
        let parts = parts(&exchange);
        all.push(exchange);
        all.extend(parts);
    }
    places.push(all.len());
    let calls = script.revoked.iter_mut().map(|(at, _)| at);
    for at in calls.chain(script.completions.values_mut().map(|(at, _)| at)) {
        *at = places.get(*at).copied().unwrap_or(all.len());
    }
    script.exchanges = all;
}

/// The parts of a batch that was answered. The one that failed lies behind those that did not, uncounted; what followed it
/// has no answer.
fn parts(exchange: &Exchange) -> Vec<Exchange> {
    let Request::MdsBatch(asked) = &exchange.request.typed else { return Vec::new() };
    let Some((reply, sent)) = &exchange.reply else { return Vec::new() };
    let Reply::MdsBatch(answers) = &reply.typed else { return Vec::new() };
    let bulk: Vec<_> = exchange.bulk.iter().map(|(_, data)| data.clone()).collect();
    let answers = BatchedMessages::of_reply(&answers.batch_update_reply).into_iter().flatten();
    let pairs = batched(asked, &bulk).into_iter().zip(answers.map_while(Result::ok)).enumerate();
    let part = |(number, (asked, answer)): (usize, (Message, Message))| {
        let fields = LdlmIntentGetattrReply::from_message(&answer).ok()?;
        let status = answer.header.sub_opcode.cast_signed();
        let body = PtlrpcBody { status, ..reply.body.clone() };
        let typed = Reply::from(fields);
        let answer = Rpc { message: answer, body, format: &LdlmIntentGetattr::FORMAT, typed };
        Some(Exchange {
            request: Box::new(question(asked, &exchange.request.body)?),
            portal: exchange.portal,
            bits: exchange.bits,
            reply: Some((Box::new(answer), *sent)),
            bulk: Vec::new(),
            took: exchange.took,
            sent: exchange.sent,
            packet: exchange.packet,
            place: format!("{}, part {}", exchange.place, number + 1),
            is_cut: exchange.is_cut,
            is_part: true,
            mount: exchange.mount,
        })
    };
    pairs.filter_map(part).collect()
}

fn question(message: Message, body: &PtlrpcBody) -> Option<Rpc<Request>> {
    let typed = Request::from(LdlmIntentGetattr::from_message(&message).ok()?);
    Some(Rpc { message, body: body.clone(), format: &LdlmIntentGetattr::FORMAT, typed })
}

/// A batch of our client's whose parts, if they lie beside it, are to be fetched.
pub(super) struct Batch {
    pub(super) ours: Box<Rpc<Request>>,
    pub(super) to: Nid,
    pub(super) portal: Portal,
    pub(super) bits: MatchBits,
    pub(super) bulk: Bulk,
}

impl Batch {
    /// Fetches the parts and answers; what could not be answered is heard as strange.
    pub(super) async fn answer(self, answering: &Answering) {
        let Request::MdsBatch(asked) = &self.ours.typed else { return };
        let Some(data) = self.bulk.fetched(&answering.lnet).await else { return };
        let messages = batched(asked, &data);
        let saying = answering.state.lock().answer_batch(&self, asked, messages);
        let Some(saying) = saying else { return };
        saying.say(&answering.lnet).await;
    }
}

impl ScriptState {
    /// The answer to a batch, and what differs in it.
    fn answer_batch(
        &mut self,
        batch: &Batch,
        asked: &MdsBatch,
        messages: Vec<Message>,
    ) -> Option<Saying> {
        let mount = self.mount_of(&batch.ours);
        let Some(pattern) = self.pattern(asked, mount) else {
            self.heard.note_strange(&batch.ours, "");
            return None;
        };
        let (mut answers, mut status) = (Vec::new(), 0);
        for message in messages {
            let part = question(message, &batch.ours.body)?;
            let Some(index) = self.find(&part, mount) else {
                self.heard.note_strange(&part, "");
                return None;
            };
            let answer = self.answer_part((index, mount), &part, batch.to);
            let Some((failed, answer)) = answer else { continue };
            answers.push(answer);
            // Lustre's MDT stops there.
            if let Some(errno) = failed {
                status = -i32::from(errno.0);
                break;
            }
        }
        let exchange = &self.script.exchanges[pattern];
        let (real, sent) = exchange.reply.as_ref()?;
        let (one, other) = (leaves(&exchange.request), leaves(&batch.ours));
        let differences = compare_requests("MDS_BATCH", &exchange.place, &one, &other);
        self.heard.answered += 1;
        self.heard.differences.extend(differences);
        let mut reply = Rpc::clone(real);
        reply.body.status = status;
        let counted = answers.len() - usize::from(status != 0);
        let batch_update_reply = joined(&answers, counted);
        reply.typed = MdsBatchReply { batch_update_reply, ..MdsBatchReply::default() }.into();
        let by_bits = self.by_bits.contains(&batch.ours.body.handle.0);
        let by_bits = by_bits && batch.ours.body.match_bits.0 != 0;
        Some(Saying {
            to: batch.to,
            portal: batch.portal,
            bits: if by_bits { batch.ours.body.match_bits } else { batch.bits },
            offset: sent.offset,
            reply,
            bulk: Bulk::none(batch.to),
            calls: std::mem::take(&mut self.due),
        })
    }

    /// The captured batch that ours is compared with: the next one of as many names, or else the first.
    fn pattern(&mut self, asked: &MdsBatch, mount: usize) -> Option<usize> {
        let count = |request: &MdsBatch| {
            let header = ButUpdateHeader::split(&request.but_update_header);
            header.map(|(header, _)| header.update_count).ok()
        };
        let wanted = count(asked);
        let batches = self.script.exchanges.iter().enumerate().filter_map(|(index, exchange)| {
            let Request::MdsBatch(request) = &exchange.request.typed else { return None };
            let is_own = exchange.mount.is_none_or(|number| number == mount);
            (is_own && exchange.reply.is_some()).then(|| (index, count(request)))
        });
        let batches: Vec<_> = batches.collect();
        let same = batches
            .iter()
            .find(|(index, it)| *it == wanted && !self.progress[mount].used.contains(index))
            .copied();
        let (index, _) = same.or(batches.first().copied())?;
        self.progress[mount].used.insert(index);
        Some(index)
    }

    /// The answer to a part from the exchange at `index`, and why it failed, if it did.
    fn answer_part(
        &mut self,
        (index, mount): (usize, usize),
        ours: &Rpc<Request>,
        from: Nid,
    ) -> Option<(Option<Errno>, Bytes)> {
        self.progress[mount].used.insert(index);
        let ScriptState { script, calls, heard, .. } = self;
        let exchange = &script.exchanges[index];
        let (reply, _) = exchange.reply.as_ref()?;
        let Reply::LdlmIntentGetattr(answer) = &reply.typed else { return None };
        let (one, other) = (fields(&exchange.request), fields(ours));
        // A name that the real client asked for alone is compared with that.
        let name = if exchange.is_part { PART } else { LdlmIntentGetattr::FORMAT.name };
        heard.differences.extend(compare_requests(name, &exchange.place, &one, &other));
        heard.parts += 1;
        self.due.extend(calls.behind(
            Moment { index, is_elsewhen: false },
            &exchange.request.typed,
            (from, &ours.typed),
        ));
        // What is refused alone is refused with its lock, and says why beside that.
        let result = answer.dlm_rep.as_ref().map_or(0, |reply| reply.policy_res2 as i32);
        let status = if exchange.is_part { reply.body.status } else { result };
        let header =
            MessageHeader { sub_opcode: status.cast_unsigned(), ..MessageHeader::default() };
        Some((Errno::from_status(status), batch::batched(&header, answer.as_ref())))
    }
}

/// The messages of an answer, of which `count` are said to be there.
fn joined(messages: &[Bytes], count: usize) -> Bytes {
    let whole = batch::join(BatchHeader::REPLY_MAGIC, &messages[..count]);
    [&whole[..], &messages[count..].concat()].concat().into()
}

/// The fields of a part, which has no body, and of its header.
pub(super) fn fields(part: &Rpc<Request>) -> Leaves {
    let mut leaves = leaves(part);
    leaves.retain(|path, _| !path.starts_with("body."));
    let MessageHeader { repsize, sub_opcode, .. } = &part.message.header;
    // Of a name that is asked for alone they are another message's.
    if part.message.buffers.first().is_some_and(Bytes::is_empty) {
        leaves.insert("part.repsize".to_owned(), repsize.to_string());
        leaves.insert("part.opcode".to_owned(), sub_opcode.to_string());
    }
    leaves
}

impl super::Heard {
    /// A request that the real client never sent, and where it went if that is strange.
    pub(super) fn note_strange(&mut self, ours: &Rpc<Request>, went: &str) {
        let what = format!("{} {}{went}", ours.format.name, super::subject(&ours.typed));
        *self.strange.entry(what).or_default() += 1;
    }
}
