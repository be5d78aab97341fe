//! The few words that distinguish requests of one kind.

use std::fmt::Display;

use bytes::Bytes;
use sheen_wire::ldlm::{LdlmReply, LdlmRequest, LockType};
use sheen_wire::md::{MdtBody, RecCreate, Valid};
use sheen_wire::messages::{Reply, Request};
use sheen_wire::ost::{NiobufRemote, ObdIoobj, OstBody};
use sheen_wire::text::Text;

/// Words with blanks in between.
#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn say(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(format!("{name}={value}"));
        self
    }

    fn name(self, name: &Option<Text>) -> Self {
        match name {
            Some(name) => self.say("name", format_args!("\"{}\"", name.as_bytes().escape_ascii())),
            None => self,
        }
    }

    /// What is locked, how, and how many locks are cancelled.
    fn lock(self, request: &LdlmRequest) -> Self {
        let desc = &request.desc;
        let mode = desc.req_mode.mode().map_or("none".to_string(), |mode| mode.to_string());
        let words = self.say("lock", mode).say("res", desc.resource.name);
        match desc.resource.kind {
            LockType::EXTENT => {
                let extent = desc.policy.as_extent();
                words.say("range", format_args!("{}..={}", extent.start, extent.end))
            }
            LockType::IBITS => {
                let bits = desc.policy.as_inode_bits();
                words.say("bits", format_args!("{:#x}/{:#x}", bits.bits, bits.try_bits))
            }
            LockType::FLOCK => {
                let flock = desc.policy.as_flock();
                words.say("range", format_args!("{}..={}", flock.start, flock.end))
            }
            _ => words,
        }
    }

    fn handles(self, request: &LdlmRequest) -> Self {
        let mut words = self;
        for handle in request.counted() {
            words = words.say("handle", format_args!("{:#x}", handle.0));
        }
        words
    }

    fn cancels(self, request: &Option<LdlmRequest>) -> Self {
        match request {
            Some(request) if request.count > 0 => self.say("cancels", request.count),
            _ => self,
        }
    }

    fn create(self, record: &RecCreate) -> Self {
        self.say("parent", record.fid1)
            .say("fid", record.fid2)
            .say("mode", format_args!("{:o}", record.mode))
    }

    fn body(self, body: &Option<MdtBody>) -> Self {
        let Some(body) = body else { return self };
        let mut words = self;
        if body.valid.contains(Valid::ID) {
            words = words.say("fid", body.fid1);
        }
        if body.valid.contains(Valid::MODE) {
            words = words.say("mode", format_args!("{:o}", body.mode));
        }
        if body.valid.contains(Valid::SIZE) {
            words = words.say("size", body.size);
        }
        if body.open_handle.0 != 0 {
            words = words.say("open", format_args!("{:#x}", body.open_handle.0));
        }
        words
    }

    fn granted(self, reply: &Option<LdlmReply>) -> Self {
        let Some(reply) = reply else { return self };
        let mut words = self;
        if reply.policy_res1.0 != 0 {
            words = words.say("disposition", format_args!("{:?}", reply.policy_res1));
        }
        if reply.policy_res2 != 0 {
            words = words.say("result", reply.policy_res2 as i64);
        }
        if reply.handle.0 != 0 {
            let mode = reply.desc.granted_mode.mode();
            let mode = mode.map_or("none".to_string(), |mode| mode.to_string());
            words = words.say("granted", mode).say("handle", format_args!("{:#x}", reply.handle.0));
        }
        words
    }

    fn object(self, body: &OstBody) -> Self {
        let oi = body.oa.oi;
        self.say("object", format_args!("{:#x}:{}", oi.seq(), oi.id()))
    }

    fn io(self, objects: &[ObdIoobj], pieces: &[NiobufRemote]) -> Self {
        let mut words = self;
        for object in objects {
            let oi = object.oid;
            words = words.say("object", format_args!("{:#x}:{}", oi.seq(), oi.id()));
        }
        match (pieces.first(), pieces.last()) {
            (Some(first), Some(last)) => {
                let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
                let end = last.offset.saturating_add(last.len.into());
                words.say("range", format_args!("{}..{end}", first.offset)).say("bytes", bytes)
            }
            _ => words,
        }
    }

    /// What is done to which object, unless it comes as bulk.
    fn updates(self, header: &Bytes) -> Self {
        let updates = crate::out::inline(header).into_iter();
        updates.fold(self, |words, update| {
            words.say("update", format_args!("{:?}:{}", update.kind, update.fid))
        })
    }

    fn join(self) -> String {
        self.0.join(" ")
    }
}

/// What a request is about.
pub(crate) fn of_request(request: &Request) -> String {
    let words = Words::default();
    match request {
        Request::LdlmIntentOpen(open) => words
            .name(&open.name)
            .create(&open.rec_reint)
            .say("flags", format_args!("{:?}", open.rec_reint.flags()))
            .lock(&open.dlm_req),
        Request::LdlmIntentCreate(create) => {
            words.name(&create.name).create(&create.rec_reint).lock(&create.dlm_req)
        }
        Request::LdlmIntentGetattr(getattr) => words
            .name(&getattr.name)
            .say("intent", format_args!("{:?}", getattr.ldlm_intent.opc))
            .say("fid", getattr.mdt_body.fid1)
            .lock(&getattr.dlm_req),
        Request::LdlmIntentGetxattr(getxattr) => {
            words.say("fid", getxattr.mdt_body.fid1).lock(&getxattr.dlm_req)
        }
        Request::LdlmIntentLayout(layout) => {
            words.say("intent", format_args!("{:?}", layout.layout_intent.op)).lock(&layout.dlm_req)
        }
        Request::LdlmEnqueue(enqueue) => words.lock(&enqueue.dlm_req),
        Request::LdlmConvert(convert) => words.lock(&convert.dlm_req).handles(&convert.dlm_req),
        Request::LdlmCancel(cancel) => words.handles(&cancel.dlm_req),
        Request::LdlmBlCallback(call) => words.lock(&call.dlm_req).handles(&call.dlm_req),
        Request::LdlmCpCallback(call) => words.lock(&call.dlm_req).handles(&call.dlm_req),
        Request::LdlmGlCallback(call) => words.lock(&call.dlm_req).handles(&call.dlm_req),
        _ => return of_metadata(request, words),
    }
    .join()
}

fn of_metadata(request: &Request, words: Words) -> String {
    match request {
        Request::MdsReintSetattr(setattr) => words
            .say("fid", setattr.rec_reint.fid)
            .say("valid", format_args!("{:?}", setattr.rec_reint.valid))
            .cancels(&setattr.dlm_req),
        Request::MdsReintCreate(create) => {
            words.name(&create.name).create(&create.rec_reint).cancels(&create.dlm_req)
        }
        Request::MdsReintCreateSym(create) => words
            .name(&create.name)
            .create(&create.rec_reint)
            .say("target", format_args!("\"{}\"", create.symtgt.escape_ascii()))
            .cancels(&create.dlm_req),
        Request::MdsReintLink(link) => words
            .name(&link.name)
            .say("fid", link.rec_reint.fid1)
            .say("parent", link.rec_reint.fid2)
            .cancels(&link.dlm_req),
        Request::MdsReintUnlink(unlink) => words
            .name(&unlink.name)
            .say("parent", unlink.rec_reint.fid1)
            .say("fid", unlink.rec_reint.fid2)
            .cancels(&unlink.dlm_req),
        Request::MdsReintRename(rename) => words
            .name(&rename.name)
            .say("from", rename.rec_reint.fid1)
            .name(&rename.symtgt)
            .say("to", rename.rec_reint.fid2)
            .cancels(&rename.dlm_req),
        Request::MdsReintSetxattr(setxattr) => {
            words.name(&setxattr.name).say("fid", setxattr.rec_reint.fid).cancels(&setxattr.dlm_req)
        }
        Request::MdsGetattr(getattr) => words.say("fid", getattr.mdt_body.fid1),
        Request::MdsGetattrName(getattr) => {
            words.name(&getattr.name).say("fid", getattr.mdt_body.fid1)
        }
        Request::MdsGetxattr(getxattr) => {
            words.name(&getxattr.name).say("fid", getxattr.mdt_body.fid1)
        }
        Request::MdsReadpage(page) => words
            .say("fid", page.mdt_body.fid1)
            .say("hash", format_args!("{:#x}", page.mdt_body.size)),
        Request::MdsSync(sync) => words.say("fid", sync.mdt_body.fid1),
        Request::MdsClose(close) => words
            .say("fid", close.rec_reint.fid)
            .say("open", format_args!("{:#x}", close.mdt_ioepoch.open_handle.0)),
        Request::MdsCloseIntent(close) => words
            .say("fid", close.rec_reint.fid)
            .say("open", format_args!("{:#x}", close.mdt_ioepoch.open_handle.0))
            .say("bias", format_args!("{:?}", close.rec_reint.bias)),
        _ => return of_objects(request, words),
    }
    .join()
}

fn of_objects(request: &Request, words: Words) -> String {
    let text = |text: &Text| text.to_text();
    match request {
        Request::OstRead(read) => words.io(&read.obd_ioobj, &read.niobuf_remote),
        Request::OstWrite(write) => words.io(&write.obd_ioobj, &write.niobuf_remote),
        Request::OstSetattr(setattr) => words.object(&setattr.ost_body),
        Request::OstGetattr(getattr) => words.object(&getattr.ost_body),
        Request::OstCreate(create) => words.object(&create.ost_body),
        Request::OstDestroy(destroy) => words.object(&destroy.ost_body),
        Request::OstSync(sync) => words.object(&sync.ost_body),
        Request::OstPunch(punch) => words
            .object(&punch.ost_body)
            .say("range", format_args!("{}..{}", punch.ost_body.oa.size, punch.ost_body.oa.blocks)),
        Request::MgsConnect(connect) => words.say("target", text(&connect.tgtuuid)),
        Request::MdsConnect(connect) => words.say("target", text(&connect.tgtuuid)),
        Request::OstConnect(connect) => words.say("target", text(&connect.tgtuuid)),
        Request::LlogOriginHandleCreate(open) => words.name(&open.name),
        Request::OutUpdate(update) => words.updates(&update.out_update_header),
        _ => words,
    }
    .join()
}

/// What a reply says, besides status and transaction.
pub(crate) fn of_reply(reply: &Reply) -> String {
    let words = Words::default();
    match reply {
        Reply::LdlmIntentOpen(open) => words.granted(&open.dlm_rep).body(&open.mdt_body),
        Reply::LdlmIntentCreate(create) => words.granted(&create.dlm_rep).body(&create.mdt_body),
        Reply::LdlmIntentGetattr(attr) => words.granted(&attr.dlm_rep).body(&attr.mdt_body),
        Reply::LdlmIntentGetxattr(attr) => words.granted(&attr.dlm_rep).body(&attr.mdt_body),
        Reply::LdlmIntentLayout(layout) => words.granted(&layout.dlm_rep),
        Reply::LdlmEnqueue(enqueue) => words.granted(&enqueue.dlm_rep),
        Reply::MdsReintCreate(create) => words.body(&create.mdt_body),
        Reply::MdsReintSetattr(setattr) => words.body(&setattr.mdt_body),
        Reply::MdsReintUnlink(unlink) => words.body(&unlink.mdt_body),
        Reply::MdsGetattr(getattr) => words.body(&getattr.mdt_body),
        Reply::MdsGetRoot(root) => words.body(&root.mdt_body),
        Reply::MdsClose(close) => words.body(&close.mdt_body),
        Reply::OstWrite(write) => match &write.ost_body {
            Some(body) => words.object(body),
            None => words,
        },
        Reply::OstRead(read) => match &read.ost_body {
            Some(body) => words.object(body),
            None => words,
        },
        _ => words,
    }
    .join()
}
