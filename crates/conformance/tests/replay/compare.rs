//! Two answers to the same request, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use sheen_conformance::rpc::Rpc;
use sheen_conformance::{Content, explain};
use sheen_types::Fid;
use sheen_wire::batch::BatchedMessages;
use sheen_wire::messages::{
    FieldKind, Fields, Format, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatchReply, Reply,
    RequestFormat,
};
use sheen_wire::ptlrpc::{Message, MsgType, PtlrpcBody};

use crate::fields::{Leaves, flatten, without_indices};
use crate::mapping::{Mapping, number};
use crate::script::Sent;

/// Fields whose values are a server's own affair: which handle, transaction or time it is. That
/// there is one, or none, must agree.
pub(crate) const OWN: &[(&str, &str)] = &[
    ("body.handle", "a cookie of the server's own"),
    ("body.transno", "the server's own count of transactions"),
    ("body.pre_versions", "versions are transactions"),
    ("body.timeout", "the server's estimate of its own speed"),
    ("body.service_time", "how long this answer took"),
    ("body.slv", "the server's own measure of its locks"),
    ("body.limit", "the server's own measure of its locks"),
    (".open_handle", "a cookie of the server's own"),
    ("dlm_rep.handle", "a cookie of the server's own"),
    (".atime", "when it was played"),
    (".mtime", "when it was played"),
    (".ctime", "when it was played"),
    (".btime", "when it was played"),
    (".atime_ns", "when it was played"),
    (".mtime_ns", "when it was played"),
    (".ctime_ns", "when it was played"),
    (".version", "versions are transactions"),
    (".bavail", "another disk"),
    (".bfree", "another disk"),
    ("cdata.transno", "the server's own count of transactions"),
    ("cdata.instance", "how often the server was started"),
    ("statfs.blocks", "another disk"),
    (".files", "another disk"),
    (".ffree", "another disk"),
    (".grant", "how much the server has left"),
    ("ost_body.oa.nlink", "a checksum, of the kind that is agreed on"),
];

/// Fields that may differ in any way.
pub(crate) const FREE: &[(&str, &str)] = &[
    (".ost_idx", "the MDT's choice"),
    (".oi.word0", "the MDT's choice, and sequences of its own"),
    (".oi.word1", "the MDT's choice"),
    ("body.last_committed", "how far the server's disk is"),
    (".blocks", "another disk, and another way to use it"),
];

/// Fields of requests that are a client's own.
const ASKED: &[(&str, &str)] = &[
    ("body.handle", "a cookie of the server's own"),
    ("body.timeout", "the client's estimate of the server's speed"),
    ("body.conn_cnt", "how often the client has connected"),
    ("body.last_xid", "where the client's numbers start"),
    ("body.match_bits", "where the client's numbers start"),
    ("conn", "a cookie of the client's own"),
    ("cluuid", "the client's name for itself"),
    (".handles", "cookies of either side's own"),
    (".open_handle", "of which open file, where the real client keeps them open for later opens"),
    ("oa.handle", "a cookie of the server's own"),
    ("rec_reint.fid2.oid", "where the client's numbers start"),
    ("oa.grant", "how much the client was given before"),
    ("oa.mode", "how much more the client would like, in requests that report its grant"),
    ("oa.blocks", "how much the client has not written yet, in requests that report its grant"),
    ("oa.misc", "how much grant was lost"),
    (".time", "when it was played"),
    (".atime", "when it was played"),
    (".mtime", "when it was played"),
    (".ctime", "when it was played"),
];

/// A place where our answer is not the real one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The message.
    pub(crate) message: String,
    /// The field.
    pub(crate) field: String,
    /// The real server's value.
    pub(crate) real: String,
    /// Ours.
    pub(crate) ours: String,
    /// Capture and packet.
    pub(crate) place: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, field, real, ours, place } = self;
        write!(out, "{place}: {message}: {field}: {real}, ours {ours}")
    }
}

/// The fields of an answer.
pub(crate) fn leaves(reply: &Rpc<Reply>, sent: Sent) -> Leaves {
    let mut leaves = Leaves::new();
    flatten("sent", &format!("{sent:?}"), &mut leaves);
    body(&reply.body, &mut leaves);
    add_buffers(reply.format, reply.typed.dump(), &reply.message, &mut leaves);
    leaves
}

fn add_buffers(
    format: &Format,
    dumped: Vec<(&'static str, String)>,
    message: &Message,
    leaves: &mut Leaves,
) {
    let buffers = format.reply;
    for (name, text) in dumped {
        // Its parts are compared each.
        if name == "batch_update_reply" {
            continue;
        }
        let index = buffers.iter().position(|field| field.name == name);
        let opaque = index.filter(|index| buffers[*index].kind == FieldKind::Opaque);
        let bytes = opaque.and_then(|index| message.buffers.get(index + 1));
        match bytes.map(|bytes| (bytes, explain(format, true, name, bytes))) {
            Some((bytes, content)) => opaque_field(name, bytes, content, leaves),
            None => flatten(name, &text, leaves),
        }
    }
}

/// What differs in the parts of a batch's answer, each as if it were an answer of its own; of those that both have.
pub(crate) fn compare_parts(
    place: &str,
    real: &MdsBatchReply,
    ours: &MdsBatchReply,
    mapping: &Mapping,
) -> Vec<Difference> {
    let (real, ours) = (parts(real), parts(ours));
    let name = format!("{} reply", LdlmIntentGetattr::FORMAT.name);
    let pairs = real.iter().zip(&ours);
    pairs.flat_map(|(real, ours)| compare(&name, place, real, ours, mapping)).collect()
}

fn parts(reply: &MdsBatchReply) -> Vec<Leaves> {
    let messages = BatchedMessages::of_reply(&reply.batch_update_reply).into_iter().flatten();
    let leaves = messages.map_while(Result::ok).map(|message| {
        let mut leaves = Leaves::new();
        // As a request of its own says it.
        leaves
            .insert("body.status".to_owned(), message.header.sub_opcode.cast_signed().to_string());
        let part = LdlmIntentGetattrReply::from_message(&message).unwrap_or_default();
        add_buffers(&LdlmIntentGetattr::FORMAT, part.dump(), &message, &mut leaves);
        leaves
    });
    leaves.collect()
}

fn body(body: &PtlrpcBody, leaves: &mut Leaves) {
    let kind = if body.kind == MsgType::REPLY { "REPLY" } else { "ERR" };
    let shown = format!("{body:?}");
    flatten("body", &shown, leaves);
    leaves.insert("body.kind".to_owned(), kind.to_owned());
    leaves.insert("body.status".to_owned(), body.status.to_string());
}

fn opaque_field(name: &str, bytes: &Bytes, content: Content, leaves: &mut Leaves) {
    match content {
        Content::Typed { shown, .. } => flatten(name, &shown, leaves),
        Content::Plain("room not used") => {}
        Content::Plain(kind) => {
            leaves.insert(format!("{name} ({kind})"), bytes.escape_ascii().to_string());
        }
        Content::Untyped => {
            leaves.insert(name.to_owned(), bytes.escape_ascii().to_string());
        }
    }
}

/// What differs; `place` says where.
pub(crate) fn compare(
    message: &str,
    place: &str,
    real: &Leaves,
    ours: &Leaves,
    mapping: &Mapping,
) -> Vec<Difference> {
    let same = |path: &str, one: &str, other: &str| {
        mapping.same(one, other)
            || is_own(path, one, other)
            || !is_said(path, real, ours)
            || is_same_inode(path, real, ours, mapping)
    };
    compare_by(message, place, real, ours, same)
}

/// Whether a field is a part of the name of an inode that servers have named, each in its own way.
fn is_same_inode(path: &str, real: &Leaves, ours: &Leaves, mapping: &Mapping) -> bool {
    let Some((whole, "seq" | "oid" | "ver")) = path.rsplit_once('.') else { return false };
    let part = |leaves: &Leaves, name: &str| number(leaves.get(&format!("{whole}.{name}"))?);
    let fid = |leaves: &Leaves| {
        let small = |name| u32::try_from(part(leaves, name)?).ok();
        Some(Fid { seq: part(leaves, "seq")?, oid: small("oid")?, ver: small("ver")? })
    };
    fid(real).zip(fid(ours)).is_some_and(|(real, ours)| mapping.is_inode(real, ours))
}

/// What our client asked otherwise than the real one.
pub(crate) fn compare_requests(
    message: &str,
    place: &str,
    real: &Leaves,
    ours: &Leaves,
) -> Vec<Difference> {
    let same = |path_with_indices: &str, one: &str, other: &str| {
        let path = without_indices(path_with_indices);
        let path = path.trim_end_matches("[]");
        let own = ASKED.iter().any(|(name, _)| path.ends_with(name));
        // In requests the bits of an `mdt_body` say what is asked for, not what is there.
        let asks = path.starts_with("mdt_body.");
        one == other || own || !asks && !is_said(path_with_indices, real, ours)
    };
    compare_by(message, place, real, ours, same)
}

fn compare_by(
    message: &str,
    place: &str,
    real: &Leaves,
    ours: &Leaves,
    same: impl Fn(&str, &str, &str) -> bool,
) -> Vec<Difference> {
    let mut found: BTreeMap<String, Difference> = BTreeMap::new();
    let mut note = |field: String, real: String, ours: String| {
        let (message, place) = (message.to_owned(), place.to_owned());
        let entry = Difference { message, field: field.clone(), real, ours, place };
        found.entry(field).or_insert(entry);
    };
    let status = |leaves: &Leaves| leaves.get("body.status").cloned().unwrap_or_default();
    if status(real) != status(ours) {
        // Whatever else differs follows from that.
        note("body.status".to_owned(), status(real), status(ours));
        return found.into_values().collect();
    }
    let (roots, our_roots) = (roots(real), roots(ours));
    for buffer in roots.symmetric_difference(&our_roots) {
        let is = |there: bool| if there { "there" } else { "absent" }.to_owned();
        note((*buffer).to_owned(), is(roots.contains(buffer)), is(our_roots.contains(buffer)));
    }
    let absent = |leaves: &Leaves| -> BTreeSet<String> {
        let none = leaves.iter().filter(|(_, value)| *value == "None");
        none.map(|(path, _)| path.clone()).collect()
    };
    let (not_real, not_ours) = (absent(real), absent(ours));
    let paths: BTreeSet<&String> = real.keys().chain(ours.keys()).collect();
    for path in paths {
        let below = |absent: &BTreeSet<String>| {
            absent.iter().any(|none| path.starts_with(none.as_str()) && path != none)
        };
        let buffer = root(path);
        let absent = !roots.contains(buffer) || !our_roots.contains(buffer);
        if absent || below(&not_real) || below(&not_ours) {
            continue;
        }
        let value = |leaves: &Leaves| leaves.get(path).cloned().unwrap_or_else(|| "-".to_owned());
        let (one, other) = (value(real), value(ours));
        if same(path, &one, &other) {
            continue;
        }
        match (bits(&one), bits(&other)) {
            (Some(one), Some(other)) => {
                for bit in one.symmetric_difference(&other) {
                    let is = |there: bool| if there { "set" } else { "not set" }.to_owned();
                    let field = format!("{}.{bit}", without_indices(path));
                    note(field, is(one.contains(bit)), is(other.contains(bit)));
                }
            }
            _ => note(without_indices(path), one, other),
        }
    }
    found.into_values().collect()
}

/// Which bits say that a field means something, where a `valid` beside it holds them. What is not
/// said is whatever the memory held.
const SAID_BY: &[(&str, &[&str])] = &[
    ("fid1", &["ID"]),
    ("atime", &["ATIME"]),
    ("mtime", &["MTIME"]),
    ("ctime", &["CTIME"]),
    ("btime", &["BTIME"]),
    ("size", &["SIZE", "LAZYSIZE"]),
    ("blocks", &["BLOCKS", "LAZYBLOCKS"]),
    ("mode", &["MODE", "TYPE"]),
    ("uid", &["UID"]),
    ("gid", &["GID"]),
    ("projid", &["PROJID"]),
    ("flags", &["FLAGS"]),
    ("nlink", &["NLINK", "CKSUM"]),
    ("rdev", &["RDEV"]),
    ("max_mdsize", &["MODEASIZE", "XATTR"]),
    ("grant", &["GRANT"]),
    ("handle", &["HANDLE"]),
    ("parent_seq", &["FID"]),
    ("parent_oid", &["FID"]),
    ("stripe_idx", &["FID"]),
    ("layout", &["OSTLAYOUT"]),
    ("data_version", &["DATAVERSION"]),
];

/// Whether both sides say that the field at `path` means something.
fn is_said(path: &str, real: &Leaves, ours: &Leaves) -> bool {
    let mut said = true;
    for (at, _) in path.match_indices('.') {
        let (structure, field) = (&path[..at], &path[at + 1..]);
        let field = field.split('.').next().unwrap_or(field);
        let valid = format!("{structure}.valid");
        let (Some(real), Some(ours)) = (real.get(&valid), ours.get(&valid)) else { continue };
        let by = SAID_BY.iter().find(|(name, _)| *name == field);
        let has = |valid: &str, by: &[&str]| valid.split('|').any(|bit| by.contains(&bit));
        said &= by.is_none_or(|(_, by)| has(real, by) && has(ours, by));
    }
    said
}

/// The names of bits that a text is made of; none in a number.
fn bits(text: &str) -> Option<BTreeSet<&str>> {
    let is_bit = |bit: &str| {
        bit.starts_with(|first: char| first.is_ascii_uppercase())
            && bit.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_')
    };
    match text {
        "0x0" => Some(BTreeSet::new()),
        _ => text
            .split('|')
            .map(|bit| (is_bit(bit) || bit.starts_with("0x")).then_some(bit))
            .collect(),
    }
}

/// The buffer that a field is in.
fn root(path: &str) -> &str {
    path.split(['.', '[', ' ']).next().unwrap_or(path)
}

fn roots(leaves: &Leaves) -> BTreeSet<&str> {
    leaves.keys().map(|path| root(path)).collect()
}

/// Whether a field's value is the server's own, and both have one or none.
fn is_own(path: &str, real: &str, ours: &str) -> bool {
    let path = without_indices(path);
    let path = path.trim_end_matches("[]");
    if FREE.iter().any(|(name, _)| path.ends_with(name)) {
        return true;
    }
    let own = OWN.iter().any(|(name, _)| path.ends_with(name));
    let is_zero = |text: &str| number(text) == Some(0);
    own && number(real).is_some() && number(ours).is_some() && is_zero(real) == is_zero(ours)
}
