//! The one list of how our servers' answers and our client's requests differ from the captured
//! ones, with the reason of each.
//!
//! `docs/COMPAT.md` shows it. A difference that is not here fails the test, and so does an entry
//! that no capture shows any more.

use std::fmt::Write as _;

use crate::compare::Difference;

/// Fields of a message that may differ.
pub(crate) struct Known {
    /// The message; `*` for all.
    pub(crate) message: &'static str,
    /// Its fields; `*` at the end stands for the rest of a name.
    pub(crate) fields: &'static [&'static str],
    /// Why.
    pub(crate) why: &'static str,
}

const fn known(message: &'static str, fields: &'static [&'static str], why: &'static str) -> Known {
    Known { message, fields, why }
}

/// How our servers' answers differ from the captured servers'.
pub(crate) const ANSWERED: &[Known] = &[
    known(
        "*",
        &["body.slv", "body.limit"],
        "the server does not tell clients how many unused locks to keep; 0 leaves it to them",
    ),
    known("*", &["body.pre_versions[]"], "no version based recovery, and the connect says so"),
    known("*", &["mdt_body.flags"], "ldiskfs shows that a file has extents; our store has none"),
    known(
        "*",
        &["mdt_body.max_mdsize"],
        "room for a layout that names a pool: 16 bytes more; in LDLM_INTENT_GETXATTR the number \
         of attributes, of which we have others",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_lvb"],
        "an object's size and times come with the grant, not with the answer that it must wait",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_rep.desc.granted_mode", "dlm_rep.desc.policy[]"],
        "there the lock in the way was given back before the answer was written, here after",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_rep.flags"],
        "a glimpse is not answered with LOCK_CHANGED and HAS_INTENT when nothing changed",
    ),
    known(
        "LDLM_INTENT_GETXATTR reply",
        &["dlm_rep.flags"],
        "LOCK_CHANGED is not said when nothing changed",
    ),
    known(
        "LDLM_INTENT_GETXATTR reply",
        &["eadata (xattr names)", "eavals*", "mdt_body.aclsize", "mdt_body.eadatasize"],
        "trusted.lma, trusted.link and trusted.dmv are not stored as attributes here",
    ),
    known(
        "LDLM_INTENT_GETXATTR reply",
        &["dlm_rep.desc.policy[]"],
        "DNE: the second MDT's index in the lock",
    ),
    known("LDLM_INTENT_OPEN reply", &["dlm_rep.desc.policy[]"], "DNE: as before"),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["default_mdt_md", "mdt_body.eadatasize", "mdt_body.valid"],
        "DNE: the root has a default layout of directories, which we do not have",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["dlm_rep.desc.policy[]"],
        "DNE: there the lock on the name of a remote directory is with the parent's MDT",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["mdt_body.size"],
        "a directory's size is that of its blocks on ldiskfs; here it is always 4096",
    ),
    known("LDLM_INTENT_OPEN reply", &["mdt_body.size"], "as before"),
    known("MDS_REINT_UNLINK reply", &["mdt_body.size"], "as before"),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["mdt_body.nlink"],
        "Lustre's root holds a directory .lustre that it does not list",
    ),
    known("MDS_GETATTR reply", &["mdt_body.nlink"], "as before"),
    known(
        "LDLM_INTENT_OPEN reply",
        &["body.status"],
        "an open is answered without a lock where another is in the way, instead of with a \
         smaller one",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["dlm_rep.policy_res1"],
        "objects are made with the file, so no open makes them; OPEN_STRIPE is not said",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["mdt_body.valid"],
        "the layout's size is said of directories too; it is 0 there",
    ),
    known("LDLM_INTENT_OPEN reply", &["niobuf_inline"], "no data on the MDT"),
    known(
        "LLOG_ORIGIN_HANDLE_CREATE reply",
        &["llogd_body.logid.id"],
        "the captured MGS has one log more",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_READ_HEADER reply",
        &["llog_log_hdr.*"],
        "one MDT less in the log; its size and time differ",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_NEXT_BLOCK reply",
        &["eadata*", "llogd_body.*"],
        "one MDT less in the log; llog `capture` shows equal logs for equal clusters",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_NEXT_BLOCK reply",
        &["body.status"],
        "the captured client asks behind the end of our log, which is shorter",
    ),
    known("SEQ_QUERY reply", &["body.transno"], "a range is handed out in a transaction"),
    known(
        "*",
        &["mdt_body.btime"],
        "the root has no birth time: it is made before the clock is known",
    ),
    known("FLD_QUERY reply", &["fld_mdfld.*"], "DNE: a sequence of the second MDT"),
    known(
        "MGS_CONNECT reply",
        &["cdata.flags", "cdata.instance"],
        "BARRIER is not offered; the instance is told",
    ),
    known(
        "MDS_CONNECT reply",
        &["cdata.*"],
        "what is not offered is listed above: DNE, data on the MDT and its grants, and more",
    ),
    known(
        "OST_CONNECT reply",
        &["cdata.*"],
        "T10 checksums, locks ahead and encryption are not offered; files may be larger",
    ),
    known(
        "MGS_CONFIG_READ reply",
        &["mgs_config_res.*"],
        "one MDT less in the table of targets, and the other in another place",
    ),
    known("MGS_CONFIG_READ bulk", &["bulk*"], "as before"),
    known("MDS_STATFS reply", &["obd_statfs.*"], "another disk; files may be larger"),
    known("OST_STATFS reply", &["obd_statfs.*"], "as before"),
    known(
        "MDS_READPAGE reply",
        &["mdt_body.*"],
        "the directory's FID and size are told; nothing there",
    ),
    known(
        "MDS_READPAGE bulk",
        &["bulk.flags[]"],
        "the flag COLLIDE is for hashes of which two are equal; ours never are",
    ),
    known(
        "MDS_REINT_CREATE_ACL reply",
        &["body.kind", "mdt_body"],
        "a refusal is an error message without buffers; there it is a reply with empty ones",
    ),
    known("MDS_REINT_UNLINK reply", &["body.kind", "mdt_body"], "as before"),
    known(
        "MDS_REINT_LINK reply",
        &["mdt_body.*"],
        "the inode's attributes are told; nothing there",
    ),
    known(
        "MDS_REINT_SETATTR reply",
        &["mdt_body.valid"],
        "a file's last known size is told with its other attributes",
    ),
    known("MDS_REINT_UNLINK reply", &["mdt_body.valid"], "as before"),
    known("MDS_SYNC reply", &["mdt_body.valid"], "as before"),
    known(
        "OST_BRW_READ reply",
        &["ost_body.oa.*"],
        "all attributes of the object are told; no checksum, as the captured one is of a kind \
         that is not offered and is left out of the request",
    ),
    known(
        "OST_BRW_WRITE reply",
        &["ost_body.oa.*", "body.transno"],
        "all attributes of the object are told; no checksum (see before); no transaction",
    ),
    known(
        "OST_PUNCH reply",
        &["ost_body.oa.*", "body.transno"],
        "all attributes of the object are told; no transaction (decision 0001)",
    ),
    known("OST_FALLOCATE reply", &["ost_body.oa.*", "body.transno"], "as before"),
    known("OST_SETATTR reply", &["ost_body.oa.*"], "all attributes of the object are told"),
    known("OST_SYNC reply", &["ost_body.oa.*"], "as before"),
];

/// How our client's requests differ from the captured client's.
pub(crate) const ASKED: &[Known] = &[
    known(
        "*",
        &["body.flags"],
        "the user is not packed into requests that ask for no rights, the project into none",
    ),
    known("*", &["body.service_time"], "the first guess of a server's speed is a second more"),
    known("*", &["cdata.*"], "what the client does not do it does not offer"),
    known("LDLM_ENQUEUE", &["dlm_req.count"], "a glimpse names its one lock without counting it"),
    known(
        "LDLM_INTENT_GETATTR",
        &["dlm_req.desc.resource.name", "mdt_body.fid*", "mdt_body.flags", "name"],
        "a known inode is asked for by FID; there by name",
    ),
    known(
        "LDLM_INTENT_GETATTR",
        &["mdt_body.eadatasize", "mdt_body.suppgid", "mdt_body.valid"],
        "more room for a layout, and blocks are asked for as well",
    ),
    known(
        "LDLM_INTENT_OPEN",
        &["dlm_req.desc.policy[]", "rec_reint.flags_h"],
        "the lock on extended attributes is asked for with the inode, and a security context is \
         not",
    ),
    known("*", &["rec_reint.layout_ver"], "DNE: the version of the default layout"),
    known(
        "MDS_REINT_CREATE_ACL",
        &["eadata", "rec_reint.bias", "rec_reint.flags_h"],
        "DNE: the default layout of directories",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_CREATE",
        &["mdt_body.capability", "mdt_body.suppgid"],
        "who asks for a log is not said",
    ),
    known(
        "MDS_CLOSE",
        &["rec_reint.mode", "rec_reint.suppgid", "rec_reint.valid"],
        "a close says times and size only if they changed since the last setattr",
    ),
    known("MDS_READPAGE", &["mdt_body.nlink"], "fewer bytes are asked for at once"),
    known(
        "*",
        &["dlm_req", "dlm_req.count"],
        "other locks are held at that moment, so others are given back with the request",
    ),
    known("MDS_REINT_RENAME", &["rec_reint.mode"], "only the type is said, not the rights"),
    known(
        "MDS_REINT_SETATTR",
        &["rec_reint.valid"],
        "touch asks for now, which the server then sets; there the client sends its own time",
    ),
    known("MDS_REINT_UNLINK", &["rec_reint.fid2.*"], "the name alone says what is removed"),
    known(
        "OST_SETATTR",
        &["ost_body.oa.*"],
        "the object's file and layout are not told again; they come with its data",
    ),
];

/// Captures that are not played yet, and why.
pub(crate) const NOT_PLAYED: &[(&str, &str)] = &[
    ("c4", "cut at 512 bytes per packet: its requests are not whole"),
    ("d*, o*, e*, v*, p*, more/d*", "DNE, PFL, DoM, overstriping and pools"),
    ("g*, more/g*", "migration, mirrors, job statistics, changelogs"),
    ("f*, l*, i*, s*, m*, more/i*", "sessions of their own with more than one mount: next"),
    ("r*", "restarts of servers: next"),
];

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Sorts differences into those that are not known and the entries that nothing showed.
pub(crate) fn sort<'a>(
    list: &[Known],
    differences: &'a [Difference],
) -> (Vec<&'a Difference>, Vec<String>) {
    let is = |known: &Known, field: &str, difference: &Difference| {
        fits(known.message, &difference.message) && fits(field, &difference.field)
    };
    let unknown = differences.iter().filter(|difference| {
        let mut all = list.iter();
        !all.any(|known| known.fields.iter().any(|field| is(known, field, difference)))
    });
    let mut unseen = Vec::new();
    for known in list {
        for field in known.fields {
            if !differences.iter().any(|difference| is(known, field, difference)) {
                unseen.push(format!("{}: {field}", known.message));
            }
        }
    }
    (unknown.collect(), unseen)
}

/// A list for people.
pub(crate) fn table(list: &[Known]) -> String {
    let mut text = String::from("| message | fields | why |\n|---|---|---|\n");
    let mut last = "";
    for known in list {
        let fields: Vec<_> = known.fields.iter().map(|field| format!("`{field}`")).collect();
        let message = known.message.strip_suffix(" reply").unwrap_or(known.message);
        let message = if message == "*" { "all" } else { message };
        let why = if known.why == "as before" { last } else { known.why };
        last = why;
        let _ = writeln!(text, "| {message} | {} | {why} |", fields.join(", "));
    }
    text
}

/// What is not played, for people.
pub(crate) fn table_of_the_rest() -> String {
    let mut text = String::from("| captures | why |\n|---|---|\n");
    for (captures, why) in NOT_PLAYED {
        let captures = captures.replace('*', "\\*");
        let _ = writeln!(text, "| {captures} | {why} |");
    }
    text
}
