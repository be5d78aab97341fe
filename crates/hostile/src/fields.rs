//! Fields of requests: well formed, with values that there are, that there were, and that cannot be.

use bytes::Bytes;
use sheen_types::{Fid, LockHandle, LockMode, ResourceName, fid_seq};
use sheen_wire::Writer;
use sheen_wire::batch::{self, BatchHeader, ButUpdateHeader};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::ldlm::{
    IntentOp, LdlmIntent, LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags, LockType,
    ModeNumber, Policy,
};
use sheen_wire::llog::LlogdBody;
use sheen_wire::lov::LovEa;
use sheen_wire::md::{
    AttrValid, Bias, CloseData, FileFlags, LayoutIntent, MdtBody, MdtIoepoch, OpenHandle,
    RecCreate, RecLink, RecRename, RecSetattr, RecSetxattr, RecUnlink, Valid,
};
use sheen_wire::messages::{FieldInfo, LdlmIntentGetattr, Part};
use sheen_wire::mgs::{ConfigType, MgsConfigBody, MgsSendParam, MgsTargetInfo, TargetFlags};
use sheen_wire::opcode::ReintOp;
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstBody, OstId};
use sheen_wire::out::{ObjectUpdate, OutUpdateHeader, UpdateType, encode_updates};
use sheen_wire::ptlrpc::MessageHeader;
use sheen_wire::text::{Chars, Text};

use crate::known::Values;
use crate::source::Source;

/// Names of files and of extended attributes, legal and not.
const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b".",
    b"..",
    b"",
    b"a/b",
    b"\xff\xfe",
    b"trusted.lov",
    b"lustre.lov",
    b"trusted.link",
    b"user.a",
    b"system.posix_acl_access",
    b"security.capability",
    &[b'x'; 300],
];
/// Numbers at the edges of their types.
const EDGES: [u64; 14] = [
    0,
    1,
    4_095,
    4_096,
    1 << 20,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];
const USERS: [u32; 5] = [0, 1_000, 1_001, 65_534, u32::MAX];
/// Sequences of objects that are not a client's to name, beside those that are.
const SEQUENCES: [u64; 8] = [
    fid_seq::OST_MDT0,
    fid_seq::LLOG,
    fid_seq::ECHO,
    fid_seq::IDIF,
    fid_seq::LOCAL_FILE,
    fid_seq::DOT_LUSTRE,
    fid_seq::ROOT,
    u64::MAX,
];

/// Makes fields out of a source's decisions.
pub(crate) struct Fields<'a, S> {
    pub(crate) source: &'a S,
    pub(crate) values: &'a Values,
    /// See [`crate::Range::objects`].
    pub(crate) objects: Option<u64>,
}

fn encoded(part: &impl Part) -> Bytes {
    let mut writer = Writer::default();
    part.encode_part(&mut writer);
    writer.into_bytes()
}

impl<S: Source> Fields<'_, S> {
    /// One of what was learned, if anything was.
    fn learned<T: Copy>(&self, known: &[T]) -> Option<T> {
        (!known.is_empty()).then(|| self.source.pick(known))
    }

    pub(crate) fn number(&self) -> u64 {
        match self.source.below(4) {
            0 => self.source.pick(&EDGES),
            1 => self.source.draw(),
            _ => self.source.below(256),
        }
    }

    fn bits(&self) -> u64 {
        match self.source.below(4) {
            0 => u64::MAX,
            1 => self.source.draw(),
            2 => 1 << self.source.below(64),
            _ => 0,
        }
    }

    fn user(&self) -> u32 {
        self.source.pick(&USERS)
    }

    fn capabilities(&self) -> u32 {
        match self.source.below(4) {
            0 => u32::MAX,
            1 => 1 << self.source.below(32),
            _ => 0,
        }
    }

    pub(crate) fn fid(&self) -> Fid {
        let fids = self.values.fids.list();
        match self.source.below(16) {
            0 => Fid::ROOT,
            1 => Fid::default(),
            2 | 3 => Fid::new(fid_seq::NORMAL + self.source.below(4), self.source.below(32) as u32),
            4 => Fid::new(self.source.pick(&SEQUENCES), self.number() as u32),
            5 => Fid { seq: self.number(), oid: self.number() as u32, ver: self.number() as u32 },
            6 => {
                let known = self.learned(&fids).unwrap_or(Fid::ROOT);
                Fid { oid: known.oid.wrapping_add(1), ..known }
            }
            _ => self.learned(&fids).unwrap_or(Fid::ROOT),
        }
    }

    fn object(&self) -> OstId {
        let objects = self.values.objects.list();
        match (self.source.below(8), self.learned(&objects)) {
            (0, _) => OstId { word0: self.source.pick(&SEQUENCES), word1: self.number() },
            (1, _) => OstId { word0: self.number(), word1: self.number() },
            (2, _) => OstId::of_fid(self.fid()),
            (3, Some(known)) => OstId { word1: known.word1.wrapping_add(self.number()), ..known },
            (_, Some(known)) => known,
            (_, None) => OstId::of_id(1 + self.source.below(32)),
        }
    }

    /// One whose data is asked for or changed.
    fn data_object(&self) -> OstId {
        match self.objects {
            None => self.object(),
            Some(sequence) => OstId::of_fid(Fid::new(sequence, 1 + self.source.below(64) as u32)),
        }
    }

    fn lock(&self) -> LockHandle {
        match (self.source.below(8), self.learned(&self.values.locks.list())) {
            (0, _) => LockHandle(self.source.draw()),
            (1, _) | (_, None) => LockHandle(0),
            (_, Some(known)) => known,
        }
    }

    fn open_handle(&self) -> OpenHandle {
        match (self.source.below(8), self.learned(&self.values.opens.list())) {
            (0, _) => OpenHandle(self.source.draw()),
            (1, _) | (_, None) => OpenHandle(0),
            (_, Some(known)) => known,
        }
    }

    fn mode(&self) -> u32 {
        let kinds =
            [0o100_000, 0o040_000, 0o120_000, 0o010_000, 0o020_000, 0o140_000, 0, 0o170_000];
        self.source.pick(&kinds) | self.source.below(0o10_000) as u32
    }

    fn range(&self) -> (u64, u64) {
        let start = self.number();
        match self.source.below(4) {
            0 => (start, u64::MAX),
            1 => (start, self.number()),
            _ => (start, start.saturating_add(self.source.below(8_192))),
        }
    }

    fn mdt_body(&self) -> MdtBody {
        MdtBody {
            fid1: self.fid(),
            fid2: self.fid(),
            open_handle: self.open_handle(),
            valid: Valid(self.bits()),
            size: self.number(),
            fsuid: self.user(),
            fsgid: self.user(),
            capability: self.capabilities(),
            mode: self.source.below(16) as u32,
            nlink: self.number() as u32,
            suppgid: self.user(),
            eadatasize: self.number() as u32,
            ..MdtBody::default()
        }
    }

    fn setattr(&self) -> RecSetattr {
        RecSetattr {
            opcode: ReintOp::SETATTR,
            cap: self.capabilities(),
            fsuid: self.user(),
            fsgid: self.user(),
            suppgid: self.user(),
            fid: self.fid(),
            valid: AttrValid(self.bits()),
            uid: self.user(),
            gid: self.user(),
            size: self.number(),
            blocks: self.number(),
            mtime: self.number().cast_signed(),
            atime: self.number().cast_signed(),
            ctime: self.number().cast_signed(),
            attr_flags: FileFlags(self.bits() as u32),
            mode: self.mode(),
            bias: Bias(self.bits() as u32),
            projid: self.number() as u32,
            ..RecSetattr::default()
        }
    }

    fn create(&self, open: bool) -> RecCreate {
        let often = [0o1, 0o3, 0o102, 0o302, 0o1_002, 0o20_0000];
        RecCreate {
            opcode: if open { ReintOp::OPEN } else { ReintOp::CREATE },
            cap: self.capabilities(),
            fsuid: self.user(),
            fsgid: self.user(),
            suppgid1: self.user(),
            fid1: self.fid(),
            fid2: self.fid(),
            open_handle_old: self.open_handle(),
            time: self.number().cast_signed(),
            rdev: self.number(),
            mode: self.mode(),
            bias: Bias(if self.source.one_in(4) { self.bits() as u32 } else { 0 }),
            flags_l: match self.source.one_in(4) {
                true => self.bits() as u32,
                false => self.source.pick(&often),
            },
            flags_h: if self.source.one_in(4) { self.bits() as u32 } else { 0 },
            umask: self.source.below(512) as u32,
            ..RecCreate::default()
        }
    }

    fn rename(&self) -> RecRename {
        RecRename {
            opcode: ReintOp::RENAME,
            cap: self.capabilities(),
            fsuid: self.user(),
            fsgid: self.user(),
            fid1: self.fid(),
            fid2: self.fid(),
            time: self.number().cast_signed(),
            bias: Bias(self.bits() as u32),
            mode: self.mode(),
            ..RecRename::default()
        }
    }

    fn lock_request(&self) -> LdlmRequest {
        let kind = self.source.pick(&[
            LockType::IBITS,
            LockType::IBITS,
            LockType::EXTENT,
            LockType::EXTENT,
            LockType::FLOCK,
            LockType::PLAIN,
            LockType(self.source.below(32) as u32),
        ]);
        let name = match (self.source.below(4), kind) {
            (0, _) => ResourceName([self.number(), self.number(), self.number(), self.number()]),
            (1, _) | (_, LockType::EXTENT) => {
                let object = self.object();
                ResourceName([object.word1, object.word0, 0, 0])
            }
            (_, LockType::FLOCK) => ResourceName::of_flocks(self.fid()),
            _ => ResourceName::of_fid(self.fid()),
        };
        let modes = [1, 2, 4, 8, 16, 32, 64, 3, 0, u32::MAX];
        let (start, end) = self.range();
        let policy = match kind {
            LockType::IBITS => [self.inode_bits(), self.inode_bits(), self.inode_bits(), 0],
            _ => [start, end, self.number(), self.number()],
        };
        let desc = LdlmLockDesc {
            resource: LdlmResourceDesc { kind, name, ..LdlmResourceDesc::default() },
            req_mode: ModeNumber(self.source.pick(&modes)),
            granted_mode: match self.source.below(4) {
                0 => ModeNumber::from(LockMode::from_wire(2).unwrap_or(LockMode::Ex)),
                1 => ModeNumber(self.source.pick(&modes)),
                _ => ModeNumber(0),
            },
            policy: Policy(policy),
        };
        let handles: Vec<LockHandle> =
            (0..self.source.below(5).max(2)).map(|_| self.lock()).collect();
        LdlmRequest {
            flags: LockFlags(if self.source.one_in(3) { self.bits() as _ } else { 0 }),
            count: match self.source.below(8) {
                0 => self.number() as u32,
                _ => self.source.below(1 + handles.len() as u64) as u32,
            },
            desc,
            handles,
        }
    }

    /// Bits of an inode, now and then with some that mean nothing.
    fn inode_bits(&self) -> u64 {
        if self.source.one_in(8) { self.bits() } else { self.source.below(128) }
    }

    fn ost_body(&self) -> OstBody {
        let oa = Obdo {
            valid: Valid(self.bits()),
            oi: self.data_object(),
            parent_seq: self.number(),
            size: self.number(),
            mtime: self.number().cast_signed(),
            blocks: self.number(),
            grant: self.number(),
            uid: self.user(),
            gid: self.user(),
            mode: self.mode(),
            flags: ObdoFlags(self.bits() as u32),
            handle: self.lock(),
            layout_version: self.number() as u32,
            data_version: self.number(),
            ..Obdo::default()
        };
        OstBody { oa }
    }

    fn remote_buffers(&self) -> Bytes {
        let mut writer = Writer::default();
        let mut offset = self.number() & !4_095;
        for _ in 0..=self.source.below(3) {
            let len = if self.source.one_in(4) { self.number() as u32 } else { 4_096 };
            let flags = BrwFlags(if self.source.one_in(3) { self.bits() as u32 } else { 0 });
            NiobufRemote { offset, len, flags }.encode_part(&mut writer);
            offset = offset.wrapping_add(len.into());
        }
        writer.into_bytes()
    }

    fn range_of_sequences(&self) -> LuSeqRange {
        LuSeqRange {
            start: self.number(),
            end: self.number(),
            index: self.number() as u32,
            flags: SeqRangeFlags(self.source.below(5) as _),
        }
    }

    fn target_info(&self) -> MgsTargetInfo {
        let names =
            ["lustre-OST0000", "lustre-MDT0000", "lustre-OST0009", "other-OST0000", "", "MGS"];
        let name = self.source.pick(&names);
        let mut nids = [0; 32];
        nids.iter_mut().take(3).for_each(|nid| *nid = self.number());
        MgsTargetInfo {
            version: self.number() as u32,
            index: self.number() as u32,
            config_version: self.number() as u32,
            flags: TargetFlags(self.bits() as u32),
            nid_count: self.number() as u32,
            instance: self.number() as u32,
            fsname: Chars::new(self.source.pick(&["lustre", "other", "", "a b/c"])),
            service_name: Chars::new(name),
            uuid: Chars::new(format!("{name}_UUID")),
            nids,
            params: Chars::new(self.source.pick(&["", "sys.timeout=0", "x", "a=b c=d ="])),
        }
    }

    fn config_body(&self) -> MgsConfigBody {
        let names =
            ["lustre-client", "lustre-MDT0000", "lustre", "params", "", "nodemap", "x/../y"];
        MgsConfigBody {
            name: Chars::new(self.source.pick(&names)),
            offset: self.number(),
            kind: ConfigType(self.source.below(7) as _),
            pass: 0,
            bits: self.source.below(32) as u8,
            units: self.number() as u32,
        }
    }

    pub(crate) fn name(&self) -> Text {
        Text::new(self.source.pick(&NAMES))
    }

    /// Bytes that a message does not explain: layouts that were heard, small ones, none.
    fn opaque(&self) -> Bytes {
        let blobs: Vec<&Bytes> = self.values.blobs.iter().collect();
        match self.source.below(6) {
            0 => encoded(&LuSeqRange::default()),
            1 => (0..self.source.below(64)).map(|_| self.source.below(256) as u8).collect(),
            2 if !blobs.is_empty() => {
                let mut blob = blobs[self.source.below(blobs.len() as u64) as usize].to_vec();
                if self.source.one_in(2) && !blob.is_empty() {
                    let at = self.source.below(blob.len() as u64) as usize;
                    blob[at] = self.source.below(256) as u8;
                }
                blob.into()
            }
            3 => LovEa::decode(&Bytes::new()).map(|layout| layout.encode()).unwrap_or_default(),
            _ => Bytes::new(),
        }
    }

    /// The bytes of a field whose type is known here.
    pub(crate) fn structure(&self, field: &FieldInfo) -> Option<Bytes> {
        let name = field.type_name.trim_start_matches("Option<").trim_start_matches("Vec<");
        let name = name.trim_end_matches('>').rsplit("::").next().unwrap_or(name);
        Some(match name {
            "Bytes" if field.name == "but_update_header" => self.batch(),
            "Bytes" if field.name == "out_update_header" => self.updates(),
            "MdtBody" => encoded(&self.mdt_body()),
            "RecSetattr" => encoded(&self.setattr()),
            "RecCreate" => {
                encoded(&self.create(field.name == "rec_reint" && self.source.one_in(2)))
            }
            "RecUnlink" => encoded(&self.unlink()),
            "RecLink" => encoded(&self.link()),
            "RecRename" => encoded(&self.rename()),
            "RecSetxattr" => encoded(&self.setxattr()),
            "LdlmRequest" => encoded(&self.lock_request()),
            "LdlmIntent" => encoded(&LdlmIntent { opc: IntentOp(1 << self.source.below(16)) }),
            "LayoutIntent" => {
                let (start, end) = self.range();
                let op = sheen_wire::md::LayoutIntentOp(self.source.below(10) as _);
                encoded(&LayoutIntent { op, flags: self.number() as u32, start, end })
            }
            "MdtIoepoch" => {
                encoded(&MdtIoepoch { open_handle: self.open_handle(), ..MdtIoepoch::default() })
            }
            "CloseData" => encoded(&self.close_data()),
            "OstBody" => encoded(&self.ost_body()),
            "ObdIoobj" => encoded(&ObdIoobj {
                oid: self.data_object(),
                max_brw: self.number() as u32,
                bufcnt: self.source.below(5) as u32,
            }),
            "NiobufRemote" => self.remote_buffers(),
            "LuSeqRange" => encoded(&self.range_of_sequences()),
            "Fid" => encoded(&self.fid()),
            "MgsTargetInfo" => encoded(&self.target_info()),
            "MgsConfigBody" => encoded(&self.config_body()),
            "MgsSendParam" => encoded(&MgsSendParam {
                param: Chars::new(self.source.pick(&["lustre.sys.timeout=0", "", "=", "a.b.c=d"])),
            }),
            "LlogdBody" => encoded(&self.llogd_body()),
            "Text" => self.name().buffer().clone(),
            "Bytes" => self.opaque(),
            "u32" | "u64" => {
                Bytes::copy_from_slice(&self.number().to_le_bytes()[..field.size.min(8)])
            }
            _ => return None,
        })
    }

    /// A batch of getattrs, its parts within it, of which some number is wrong now and then.
    fn batch(&self) -> Bytes {
        let parts: Vec<Bytes> = (0..=self.source.below(6)).map(|_| self.batched()).collect();
        let mut bytes = batch::join(BatchHeader::REQUEST_MAGIC, &parts).to_vec();
        let rarely = |wrong: u64| if self.source.one_in(16) { self.number() } else { wrong };
        let header = ButUpdateHeader {
            magic: ButUpdateHeader::MAGIC,
            count: rarely(1) as u32,
            inline_length: rarely(bytes.len() as u64) as u32,
            reply_size: self.number() as u32,
            update_count: rarely(parts.len() as u64) as u32,
            padding: 0,
        };
        if self.source.one_in(8) {
            let at = self.source.below(bytes.len() as u64) as usize;
            bytes[at] = self.source.below(256) as u8;
        }
        [encoded(&header), bytes.into()].concat().into()
    }

    fn batched(&self) -> Bytes {
        let opcode = if self.source.one_in(16) { self.number() as u32 } else { batch::GETATTR };
        let header = MessageHeader { sub_opcode: opcode, ..MessageHeader::default() };
        let mut dlm_req = self.lock_request();
        if !self.source.one_in(4) {
            dlm_req.flags |= LockFlags::HAS_INTENT;
            dlm_req.desc.resource.kind = LockType::IBITS;
        }
        let part = LdlmIntentGetattr {
            dlm_req,
            ldlm_intent: LdlmIntent { opc: IntentOp(1 << self.source.below(16)) },
            mdt_body: self.mdt_body(),
            name: Some(self.name()),
            ..LdlmIntentGetattr::default()
        };
        batch::batched(&header, &part)
    }

    /// Updates of one MDT for another, of which some number is wrong now and then.
    fn updates(&self) -> Bytes {
        let update = |_| ObjectUpdate {
            kind: UpdateType(self.source.below(18) as u16 + 0x100 * self.source.below(2) as u16),
            fid: self.fid(),
            params: (0..self.source.below(4)).map(|_| self.name().buffer().clone()).collect(),
            result_bytes: self.number() as u32,
            ..ObjectUpdate::default()
        };
        let updates = (0..=self.source.below(6)).map(update).collect::<Vec<_>>();
        let mut bytes = encode_updates(&updates).unwrap_or_default().to_vec();
        let rarely = |wrong: u64| if self.source.one_in(16) { self.number() } else { wrong };
        let header = OutUpdateHeader {
            magic: OutUpdateHeader::MAGIC,
            count: rarely(1) as u32,
            inline_length: rarely(bytes.len() as u64) as u32,
            reply_size: self.number() as u32,
        };
        if self.source.one_in(8) {
            let at = self.source.below(bytes.len() as u64) as usize;
            bytes[at] = self.source.below(256) as u8;
        }
        [encoded(&header), bytes.into()].concat().into()
    }

    /// A file of any directory is removed.
    fn unlink(&self) -> RecUnlink {
        RecUnlink {
            opcode: ReintOp::UNLINK,
            cap: self.capabilities(),
            fsuid: self.user(),
            fid1: self.fid(),
            fid2: self.fid(),
            time: self.number().cast_signed(),
            bias: Bias(self.bits() as u32),
            mode: self.mode(),
            ..RecUnlink::default()
        }
    }

    /// A file gets another name.
    fn link(&self) -> RecLink {
        RecLink {
            opcode: ReintOp::LINK,
            cap: self.capabilities(),
            fsuid: self.user(),
            fid1: self.fid(),
            fid2: self.fid(),
            time: self.number().cast_signed(),
            ..RecLink::default()
        }
    }

    /// An extended attribute is set or removed.
    fn setxattr(&self) -> RecSetxattr {
        RecSetxattr {
            opcode: ReintOp::SETXATTR,
            cap: self.capabilities(),
            fsuid: self.user(),
            fid: self.fid(),
            valid: Valid(self.bits()),
            size: self.number() as u32,
            flags: self.source.below(4) as u32,
            ..RecSetxattr::default()
        }
    }

    /// What a close says of the lock that goes with it.
    fn close_data(&self) -> CloseData {
        CloseData {
            handle: self.lock(),
            fid: self.fid(),
            data_version: self.number(),
            ..CloseData::default()
        }
    }

    /// A place in a log.
    fn llogd_body(&self) -> LlogdBody {
        LlogdBody {
            index: self.number() as u32,
            saved_index: self.number() as u32,
            length: self.number() as u32,
            offset: self.number(),
            ..LlogdBody::default()
        }
    }
}
