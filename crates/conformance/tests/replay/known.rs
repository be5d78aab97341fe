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
    /// Which of them, by capture and packet; all, if none is named.
    pub(crate) places: &'static [&'static str],
    /// Its fields, some with the captured value; `*` at the end stands for the rest of a name.
    pub(crate) fields: &'static [&'static str],
    /// Why.
    pub(crate) why: &'static str,
}

const fn known(message: &'static str, fields: &'static [&'static str], why: &'static str) -> Known {
    Known { message, places: &[], fields, why }
}

/// As [`known`], of these requests alone.
const fn known_of(
    places: &'static [&'static str],
    message: &'static str,
    fields: &'static [&'static str],
    why: &'static str,
) -> Known {
    Known { message, places, fields, why }
}

/// Directories that the real client makes with a default layout.
const WITH_DEFAULT: &[&str] = &[
    "b1-mkdir-create-stat-unlink, packet 8",
    "b4-readdir-many, packet 2",
    "b5-open-excl-errors, packet 513",
    "c1-io-4k-1stripe, packet 1",
    "e1-dne-remote-dir, packet 1",
    "e3-dne-default-dirstripe, packet 40",
    "d3-dirstripe-get-set-options, packet 38",
    "d1-rename-link-across-mdts, packet 107",
];

/// Directories that are asked for on the second MDT, where the real client made them.
const ON_SECOND: &[&str] = &[
    "b4-readdir-many, packet 2",
    "b5-open-excl-errors, packet 523",
    "c1-io-4k-1stripe, packet 1",
    "d1-rename-link-across-mdts, packet 4",
    "e3-dne-default-dirstripe, packet 1",
    "d3-dirstripe-get-set-options, packet 155",
];

/// Directories in stripes whose first MDT the real client left open, and chose itself.
const ANY_FIRST: &[&str] = &[
    "e2-dne-striped-dir, packet 12",
    "e2-dne-striped-dir, packet 180",
    "d2-striped-dir-hashes, packet 19",
    "d2-striped-dir-hashes, packet 201",
    "d2-striped-dir-hashes, packet 372",
    "d5-mkdir-overstripe-unlink, packet 6",
];

/// How our servers' answers differ from the captured servers'.
pub(crate) const ANSWERED: &[Known] = &[
    known(
        "*",
        &["body.slv", "body.limit"],
        "the server does not send clients how many unused locks to keep; 0 leaves it to them",
    ),
    known("*", &["body.pre_versions[]"], "no version based recovery, and the connect says so"),
    known("*", &["mdt_body.flags"], "ldiskfs shows that a file has extents; our store has none"),
    known(
        "*",
        &["mdt_body.max_mdsize"],
        "room for a layout that names a pool: 16 bytes more; in LDLM_INTENT_GETXATTR the number \
         of attributes, of which ours differ",
    ),
    known(
        "*",
        &["mdt_body.size"],
        "a directory's size is that of its blocks on ldiskfs; here it is always 4096",
    ),
    known(
        "*",
        // Of files none.
        &[
            "mdt_body.nlink = 3",
            "mdt_body.nlink = 4",
            "mdt_body.nlink = 5",
            "mdt_body.nlink = 6",
            "mdt_body.nlink = 7",
            "mdt_body.nlink = 8",
            "mdt_body.nlink = 9",
            "mdt_body.nlink = 12",
            "mdt_body.nlink = 13",
            "mdt_body.nlink = 14",
            "mdt_body.nlink = 15",
            "mdt_body.nlink = 16",
            "mdt_body.nlink = 17",
            "mdt_body.nlink = 18",
            "mdt_body.nlink = 19",
            "mdt_body.nlink = 22",
            "mdt_body.nlink = 23",
        ],
        "Lustre counts the directory .lustre, which the root does not list",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &[
            "dlm_rep.desc.granted_mode",
            "dlm_rep.desc.policy[]",
            "dlm_rep.flags.BLOCK_GRANTED",
            "dlm_rep.flags.NO_TIMEOUT",
        ],
        "there the conflicting lock was cancelled before the answer was written, here after",
    ),
    known(
        "LDLM_INTENT_GETXATTR reply",
        &[
            "eadata (xattr names)",
            "eadata = there",
            "eavals*",
            "mdt_body.aclsize",
            "mdt_body.eadatasize",
        ],
        "trusted.lma, trusted.som and trusted.dmv are not shown as attributes here, so that a new \
         root has none",
    ),
    known(
        "MDS_GETATTR reply",
        &["mdt_md", "mdt_body.valid.DIREA"],
        "the root has the file system's default layout here; there it has none",
    ),
    known(
        "*",
        &["dlm_rep.desc.policy[] = 4294967296"],
        "the number of the MDT that made a lock (`li_initiator_id`), which no client reads, is not said",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["dlm_rep.desc.policy[] = 16", "dlm_rep.desc.policy[] = 18", "dlm_rep.desc.policy[] = 26"],
        "LOOKUP is locked with a stripe, and with an inode whose name another MDT has; there with the name alone",
    ),
    known("LDLM_INTENT_OPEN reply", &["dlm_rep.desc.policy[] = 26"], "as before"),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["dlm_rep.desc.policy[] = 19"],
        "a lookup locks no attributes",
    ),
    known(
        "LDLM_INTENT_LAYOUT reply",
        &["dlm_rep.desc.policy[] = 10"],
        "a layout is locked without attributes",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &[
            "default_mdt_md = there",
            "mdt_body.eadatasize = 48",
            "mdt_body.valid.DEFAULT_MEA = set",
            "mdt_body.valid.DIREA",
        ],
        "what `lfs mkdir` wishes of one stripe or of all MDTs is the directory's default, too; here it is not",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["default_mdt_md = there", "mdt_body.valid.DEFAULT_MEA = set", "mdt_body.valid.DIREA"],
        "as before",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["default_mdt_md = absent", "mdt_body.valid.DEFAULT_MEA = not set"],
        "what a directory inherits as its default is kept with it; there clients know it by themselves \
         (`DMV_IMP_INHERIT`)",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["default_mdt_md = absent", "mdt_body.valid.DEFAULT_MEA = not set"],
        "as before",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["body.status"],
        "an open is answered without a lock where another conflicts, instead of with a \
         smaller one",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["mdt_body.valid.SIZE", "mdt_body.valid.BLOCKS"],
        "the size of a file that was never written is reported once its writers have closed it; there \
         while it is opened again",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["mdt_md = absent"],
        "a replayed open is answered with the layout, as any other",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &["dlm_rep.policy_res2 = 18446744073709551614"],
        "ENOENT of a FID that has gone: here in 32 bits, as all errors there are otherwise",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["dlm_rep.policy_res2 = 18446744073709551596"],
        "ENOTDIR: here in 32 bits, as all errors there are otherwise",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["dlm_rep.policy_res1.LOOKUP_POS", "dlm_rep.policy_res2 = 18446744073709551595"],
        "EISDIR of a directory that another MDT has found: here in 32 bits, and what was found is not said again",
    ),
    known(
        "MDS_GETATTR reply",
        &["mdt_body.eadatasize", "mdt_body.valid.DEFAULT_MEA"],
        "a client that asks for the default of a directory without one gets none; there room for one",
    ),
    known(
        "FLD_QUERY reply",
        &["fld_mdfld.start", "fld_mdfld.end"],
        "ranges of sequences are given out in the order in which MDTs and OSTs come",
    ),
    known(
        "SEQ_QUERY reply",
        &["seq_range.index = 0"],
        "the MDT that gives a sequence out is named; there 0, whichever it is",
    ),
    known(
        "MDS_REINT_MIGRATE",
        &["rec_reint.fid2"],
        "what moves and is no directory is named by the MDT here, not by the client, which looks up its name again either way",
    ),
    known(
        "MDS_FID2PATH reply",
        &["body.kind.*", "getinfo_val"],
        "a path that goes on at another MDT is answered by the error alone; there with room for one",
    ),
    known(
        "*",
        &[
            "mdt_md.components[].entry.layout_gen",
            "mdt_md.components[].layout.stripes[].ost_gen",
            "dlm_lvb.components[].entry.layout_gen",
            "dlm_lvb.components[].layout.stripes[].ost_gen",
        ],
        "a component without objects: there old memory",
    ),
    known(
        "OST_BRW_READ reply",
        &["ost_body.oa.nlink = 1"],
        "a T10 checksum of no bytes, of a kind that is not built",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["body.status = -115"],
        "the object of a file that has gone: there in progress for ever, here not destroyed yet",
    ),
    known(
        "OST_BRW_WRITE reply",
        &["ost_body.oa.grant"],
        "there the client held less than it wished for; here its connect brought that much",
    ),
    known(
        "MGS_CONNECT reply",
        &["body.op_flags.CONNECT_RECONNECT"],
        "there an MGS that was started again knows the client that it gives another handle",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_CREATE reply",
        &["llogd_body.logid.id"],
        "the captured MGS has one log more",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_READ_HEADER reply",
        &["llog_log_hdr.*"],
        "the captured logs are older and have been changed; size and time differ",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_NEXT_BLOCK reply",
        &["eadata*", "llogd_body.*"],
        "the same; llog `capture` shows equal logs for equal clusters",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_NEXT_BLOCK reply",
        &["body.status"],
        "the captured client asks behind the end of our log, which is shorter",
    ),
    known(
        "MDS_FID2PATH reply",
        &["getinfo_val (path)"],
        "zeros lie behind the path; there old memory",
    ),
    known("MGS_CONNECT reply", &["cdata.flags.BARRIER"], "no barriers for snapshots"),
    known("MGS_CONNECT reply", &["cdata.instance"], "the MGS sends its instance, too"),
    known(
        "MDS_CONNECT reply",
        &[
            "cdata.flags.GRANT_PARAM",
            "cdata.cksum_types.*",
            "cdata.grant_*",
            "cdata.flags2.UNALIGNED_DIO",
        ],
        "other checksums, and grants without Lustre's reckoning of extents",
    ),
    known(
        "MDS_CONNECT reply",
        &["cdata.flags2.DMV_IMP_INHERIT"],
        "what a directory inherits is kept with it",
    ),
    known("MDS_CONNECT reply", &["cdata.flags2.FLR", "cdata.flags2.MIRROR_ID_FIX"], "no mirrors"),
    known(
        "MDS_CONNECT reply",
        &["cdata.flags2.ARCHIVE_ID_ARRAY", "cdata.flags2.PCC", "cdata.flags2.PCCRO"],
        "no HSM, no caches on clients",
    ),
    known("*", &["cdata.flags2.ENCRYPT*"], "no encryption"),
    known(
        "MDS_CONNECT reply",
        &["cdata.flags2.FILE_SECCTX", "cdata.flags2.SELINUX_POLICY"],
        "no security contexts",
    ),
    known(
        "MDS_CONNECT reply",
        &["cdata.flags2.READDIR_OPEN"],
        "opens that bring names of directories are not understood",
    ),
    known("*", &["cdata.flags.LFSCK"], "no LFSCK"),
    known("*", &["cdata.flags.VBR"], "no version based recovery"),
    known(
        "*",
        &["cdata.flags.HPREQ_CHECK1"],
        "for a server that puts some requests before other requests; ours takes them as they come",
    ),
    known(
        "OST_CONNECT reply",
        &["cdata.flags2.UNALIGNED_DIO"],
        "unaligned direct IO is copied by the client",
    ),
    known("OST_CONNECT reply", &["cdata.cksum_types.*"], "CRC32C in place of the T10 kinds"),
    known(
        "OST_CONNECT reply",
        &["cdata.flags.GRANT_PARAM", "cdata.grant_*"],
        "grants are counted in blocks and nothing beside them",
    ),
    known(
        "OST_CONNECT reply",
        &[
            "cdata.flags.CANCELSET",
            "cdata.flags.HASH64",
            "cdata.flags.LAYOUTLOCK",
            "cdata.ibits_known",
            "cdata.max_easize",
            "cdata.maxmodrpcs",
        ],
        "of use with an MDT only; Lustre repeats them",
    ),
    known("OST_CONNECT reply", &["cdata.maxbytes"], "another disk; files may be larger"),
    known(
        "MGS_CONFIG_READ reply",
        &["mgs_config_res.offset", "mgs_config_res.size"],
        "the captured targets have been started more often, in another order",
    ),
    known("MGS_CONFIG_READ bulk", &["bulk*"], "as before"),
    known(
        "*",
        &["obd_statfs.maxbytes", "obd_statfs.state.NONROT"],
        "another disk; files may be larger",
    ),
    known(
        "MDS_STATFS reply",
        &["obd_statfs.state.SUM", "obd_statfs.granted"],
        "the sum over the OSTs is not called one, so clients ask the OSTs, who know it best",
    ),
    known(
        "MDS_READPAGE bulk",
        &["bulk.flags[].COLLIDE"],
        "the flag COLLIDE is for hashes of which two are equal; ours never are",
    ),
    known(
        "*",
        &["ost_body.oa.flags.CKSUM_ADLER"],
        "T10 checksums, whose name this is a part of, are not offered; played with CRC32C",
    ),
    known(
        "OST_BRW_WRITE reply",
        &["ost_body.oa.valid.USRQUOTA", "ost_body.oa.valid.GRPQUOTA", "ost_body.oa.valid.PRJQUOTA"],
        "no quotas",
    ),
    known("*", &["body.transno"], "writes and cuts of data need no replay (decision 0001)"),
    known(
        "OST_SETATTR reply",
        &["ost_body.oa.mode", "ost_body.oa.size", "ost_body.oa.atime", "ost_body.oa.mtime"],
        "the object's own; there what the request said, and 0 where it said nothing",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_rep"],
        "a lock that is refused is not described; there it is, with zeros",
    ),
    known("LDLM_ENQUEUE reply", &["dlm_rep.handle"], "a test leaves no lock, so none is named"),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_lvb[].size", "dlm_lvb[].atime", "dlm_lvb[].mtime", "dlm_lvb[].ctime"],
        "the value of an object whose lock must wait is what the disk has; there what the last \
         client was heard to say",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_rep.flags.LOCK_CHANGED"],
        "there a client that was not captured had a conflicting lock, and the change came later",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_rep.flags.AST_SENT"],
        "whether the next client's wish came before the answer or after it",
    ),
    known(
        "OST_BRW_READ reply",
        &["body.status"],
        "what lies behind the end of an object is not sent; there zeros up to the end of the page",
    ),
    known("OST_BRW_READ bulk", &["bulk (file data)"], "as before"),
    known(
        "OST_GETATTR reply",
        &["ost_body.oa.data_version"],
        "data is written outside of transactions, and its versions are no numbers of such",
    ),
    known(
        "MDS_GETATTR reply",
        &["mdt_body.mtime", "mdt_body.ctime"],
        "there something was made in the root before the capture",
    ),
];

/// How else they differ in the captures of a Lustre under faults.
pub(crate) const ANSWERED_UNDER_FAULTS: &[Known] = &[
    known(
        "LDLM_INTENT_GETATTR reply",
        &["mdt_body.nlink = 11"],
        "there the root had directories that the capture does not name",
    ),
    known(
        "LDLM_INTENT_OPEN reply",
        &["dlm_rep.policy_res2 = 18446744073709551600"],
        "EBUSY: here in 32 bits, as all errors there are otherwise",
    ),
    known(
        "MDS_REINT_CREATE_ACL reply",
        &[
            "mdt_body.eadatasize = 0",
            "mdt_body.valid.DIREA = not set",
            "mdt_body.valid.MEA = not set",
            "mdt_md = absent",
        ],
        "a directory that begins to be split or merged is answered with its new layout, as a new one is",
    ),
    known(
        "LDLM_INTENT_GETATTR reply",
        &[
            "mdt_md.header.hash_type.0x86000002 = set",
            "mdt_md.header.hash_type.0x6000002 = not set",
        ],
        "a stripe that no name leaves is not said to migrate (its highest bit); there each one is until its MDT has listed it",
    ),
    known(
        "*",
        &[
            "mdt_md.header.hash_type.0x88000002 = set",
            "mdt_md.header.hash_type.0x8000002 = set",
            "mdt_md.header.hash_type.FNV_1A_64 = not set",
            "mdt_md.header.layout_version = 3",
            "mdt_md.header.migrate_hash.0x2000002 = set",
            "mdt_md.header.migrate_hash.UNKNOWN = not set",
            "mdt_md.header.migrate_offset = 1",
        ],
        "a split has come to its end; there that takes one second or two, in which the MDT has nothing to move",
    ),
    known_of(
        &["n4-dir-restripe, packet 80"],
        "LDLM_INTENT_GETATTR reply",
        &["mdt_body.nlink = 2"],
        "the split has moved the directory among the names already",
    ),
    known(
        "MDS_GETATTR reply",
        &[
            "mdt_md.fids*",
            "mdt_md.header.hash_type.0x86000002 = set",
            "mdt_md.header.hash_type.0x2000002 = not set",
            "mdt_md.header.layout_version = 5",
            "mdt_md.header.stripe_count = 2",
        ],
        "the same of a merge",
    ),
    known(
        "OST_GETATTR reply",
        &["ost_body.oa.layout_version", "ost_body.oa.valid.LAYOUT_VERSION"],
        "objects know no version of their file's layout: it is for mirrors",
    ),
    known(
        "OST_GETATTR reply",
        &["ost_body.oa.ctime", "ost_body.oa.mtime"],
        "an object from before the capture",
    ),
    known(
        "LDLM_ENQUEUE reply",
        &["dlm_lvb"],
        "a lock of another group that is refused is not described; there its object is",
    ),
    known_of(
        &["n3b-crash-rename-replay, packet 372"],
        "MDS_REINT_CREATE_ACL reply",
        &["mdt_body.valid.*"],
        "a mkdir that was executed before is answered with the directory's attributes; there, from the records of another MDT, \
         without",
    ),
    known(
        "OST_CONNECT reply",
        &["body.op_flags.CONNECT_RECOVERING"],
        "there the OSTs were started again, too; ours stay",
    ),
    known(
        "MDS_CONNECT reply",
        &["body.op_flags.CONNECT_RECONNECT"],
        "the client's first connect is not in the capture",
    ),
    known(
        "OST_CONNECT reply",
        &["body.op_flags.CONNECT_RECONNECT"],
        "two OSTs there are one here, and the client connects to both; or its first connect is not in the capture",
    ),
];

/// How our client's requests differ from the captured client's.
pub(crate) const ASKED: &[Known] = &[
    known(
        "*",
        &["body.flags.PACK_UID_GID", "body.flags.PACK_PROJID"],
        "the user is not packed into requests that ask for no rights, the project into none",
    ),
    known(
        "MDS_GET_ROOT",
        &["body.flags.LAST_REPLAY", "body.flags.0x8"],
        "the first request after a connect is not marked as the end of a recovery that was none",
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
        &[
            "mdt_body.eadatasize",
            "mdt_body.suppgid",
            "mdt_body.valid.GROUP",
            "mdt_body.valid.BLOCKS",
        ],
        "more room for a layout, and blocks are asked for as well",
    ),
    known(
        "FLD_QUERY",
        &["fld_mdfld.start"],
        "another sequence of the same range: the client of d1 knew already where it is",
    ),
    known(
        "LDLM_INTENT_OPEN",
        &["dlm_req.desc.policy[]", "rec_reint.flags_h"],
        "the lock on extended attributes is asked for with the inode, and a security context is \
         not",
    ),
    known(
        "*",
        &["rec_reint.layout_ver"],
        "which version of the parent's default was known is not said",
    ),
    known_of(
        WITH_DEFAULT,
        "MDS_REINT_CREATE_ACL",
        &["eadata = there", "rec_reint.bias.CREATE_DEFAULT_LMV = set", "rec_reint.flags_h = 576"],
        "the choice by a default of the parent is left to the MDT here",
    ),
    known_of(
        ON_SECOND,
        "MDS_REINT_CREATE_ACL",
        &[
            "eadata = absent",
            "eadata.header.max_inherit_rr = 3",
            "eadata.header.stripe_count = 1",
            "eadata.header.stripe_offset = 4294967295",
            "rec_reint.bias.SETSTRIPE_CREATE = not set",
            "rec_reint.flags_l = 0",
        ],
        "where a directory is to be is asked for as `lfs mkdir` does, and not chosen by round robin",
    ),
    known_of(
        ANY_FIRST,
        "MDS_REINT_CREATE_ACL",
        &["eadata.header.stripe_offset = 4294967295"],
        "as before",
    ),
    known(
        "LLOG_ORIGIN_HANDLE_CREATE",
        &["mdt_body.capability", "mdt_body.suppgid"],
        "who asks for a log is not said",
    ),
    known(
        "MDS_CLOSE",
        &["rec_reint.suppgid", "rec_reint.valid.*"],
        "a close says times and size only if they changed since the last setattr",
    ),
    known("MDS_READPAGE", &["mdt_body.nlink"], "fewer bytes are asked for at once"),
    known(
        "*",
        &["dlm_req", "dlm_req.count"],
        "other locks are held at that moment, so other locks are cancelled with the request",
    ),
    known("MDS_REINT_RENAME", &["rec_reint.mode"], "only the type is said, not the rights"),
    known(
        "MDS_REINT_SETATTR",
        &["rec_reint.valid.ATIME_SET", "rec_reint.valid.MTIME_SET"],
        "touch sends the client's time as that of now; there as one that was chosen",
    ),
    known("MDS_REINT_UNLINK", &["rec_reint.fid2.*"], "the name alone says what is removed"),
    known(
        "LDLM_INTENT_OPEN",
        &[
            "dlm_req.desc.req_mode",
            "dlm_req.desc.resource.name",
            "ldlm_intent.opc.CREAT",
            "name",
            "rec_reint.fid1.*",
            "rec_reint.flags_l",
            "rec_reint.mode",
        ],
        "a known file is opened by its FID, as open(2) was called; there by name and to be created, \
         or kept open for later opens (`lfs setstripe` makes its file with mknod(2))",
    ),
    known(
        "LDLM_INTENT_OPEN",
        &["rec_reint.suppgid1", "rec_reint.suppgid2"],
        "groups are sent where the right to do it may depend on them",
    ),
    known(
        "LDLM_INTENT_OPEN",
        &["eadata.stripes*"],
        "a wish for a layout has no stripes; there old memory",
    ),
    known("*", &["rec_reint.fid2.seq"], "the sequence of the MDT on which our client makes it"),
    known(
        "LDLM_INTENT_GETATTR",
        &["mdt_body.valid.CROSSREF"],
        "asks the MDT of an inode for what a name on another one leads to",
    ),
    known(
        "MDS_REINT_SETATTR",
        &["rec_reint.valid.BLOCKS"],
        "chown: it changes no blocks, and we name none",
    ),
    known(
        "MDS_CLOSE",
        &["rec_reint.bias.DATA_MODIFIED"],
        "the handle that wrote says so; there one that was kept open for later opens",
    ),
    known(
        "LDLM_ENQUEUE",
        &["body.tag"],
        "a flock request takes no slot: nothing is to be repeated",
    ),
    known(
        "LDLM_ENQUEUE",
        &["dlm_req.desc.policy[]"],
        "the bytes that are used are asked for, not their pages, and of a cut file what goes; \
         servers round up",
    ),
    known(
        "LDLM_ENQUEUE",
        &["dlm_req.flags.AST_DISCARD_DATA"],
        "a lock to cut or to write directly covers nothing that could be written back",
    ),
    known(
        "OST_BRW_WRITE",
        &["ost_body.oa.flags.CKSUM_CRC32C", "ost_body.oa.nlink"],
        "T10 checksums, whose name this is a part of, are not offered; Adler is agreed on",
    ),
    known("OST_BRW_READ", &["ost_body.oa.flags.CKSUM_CRC32C"], "as before"),
    known(
        "*",
        &["obd_ioobj[].max_brw"],
        "of a request that holds its data itself there is -1 where parts are counted",
    ),
    known(
        "*",
        &["niobuf_remote[].flags.SYS_RESOURCE"],
        "that the caller may exceed quotas is not sent",
    ),
    known(
        "OST_BRW_READ",
        &["niobuf_remote[].flags.READ", "niobuf_remote[].flags.SYNC"],
        "the kind of request says so",
    ),
    known("OST_BRW_WRITE", &["niobuf_remote[].flags.WRITE"], "as before"),
    known(
        "*",
        &[
            "niobuf_remote[].flags.FROM_GRANT",
            "niobuf_remote[].flags.NOCACHE",
            "niobuf_remote[].flags.SRVLOCK",
            "niobuf_remote[].flags.SYNC",
        ],
        "direct IO goes under a lock of the client's and needs no grant; there the server locks",
    ),
    known(
        "OST_BRW_READ",
        &[
            "ost_body.oa.valid.ATIME",
            "ost_body.oa.valid.BLOCKS",
            "ost_body.oa.valid.CTIME",
            "ost_body.oa.valid.GID",
            "ost_body.oa.valid.GRANT",
            "ost_body.oa.valid.MTIME",
            "ost_body.oa.valid.TYPE",
            "ost_body.oa.valid.UID",
        ],
        "a read returns no attributes and no grant",
    ),
    known(
        "*",
        &["ost_body.oa.valid.HANDLE"],
        "the lock is not named with the data; servers find it by its extent",
    ),
    known(
        "OST_BRW_WRITE",
        &["ost_body.oa.valid.ATIME", "ost_body.oa.valid.PROJID", "ost_body.oa.valid.TYPE"],
        "a write returns owner and times of change; no projects",
    ),
    known(
        "*",
        &["ost_body.oa.valid.FLAGS"],
        "that there are no flags is said; there it is not said",
    ),
    known(
        "*",
        &["ost_body.oa.valid.UID", "ost_body.oa.valid.GID", "ost_body.oa.valid.PROJID"],
        "a cut object's owner is sent with the next write",
    ),
    known(
        "OST_FALLOCATE",
        &["ost_body.oa.valid.CTIME", "ost_body.oa.valid.MTIME"],
        "the object is changed at the client's time",
    ),
    known(
        "*",
        &["ost_body.oa.valid.PARENT", "ost_body.oa.stripe_idx"],
        "the object's file is sent with its data, and not again",
    ),
    known(
        "*",
        &["ost_body.oa.valid.OSTLAYOUT"],
        "the file's layout is not sent to its objects; LFSCK alone reads it there",
    ),
    known(
        "LDLM_INTENT_GETATTR",
        &["dlm_req.desc.policy[]", "ldlm_intent.opc.GETATTR", "ldlm_intent.opc.LOOKUP"],
        "a name is looked up with its attributes, and the lock on extended attributes is asked for: our MDT then says in \
         `mdt_body.xattr_absent` (its highest bit, which Lustre leaves unused) that there are none, and no request asks for \
         them",
    ),
    known(
        "MDS_BATCH",
        &["but_update_buf[]*", "but_update_header.*"],
        "other names go into a request, and hence other numbers of them, with room for an answer of a part as below",
    ),
    known(
        "LDLM_INTENT_GETATTR of MDS_BATCH",
        &["part.repsize = 968"],
        "no security context is asked for, and no room made for one",
    ),
    known(
        "LDLM_INTENT_GETATTR of MDS_BATCH",
        &["dlm_req.desc.policy[]", "mdt_body.valid.GROUP", "mdt_body.valid.BLOCKS"],
        "the lock on extended attributes, groups and blocks as where a name is asked for alone",
    ),
    known(
        "LDLM_INTENT_GETATTR",
        &["part"],
        "what stat-ahead asks for together it asks for alone there, once too few names were used",
    ),
    known(
        "LDLM_ENQUEUE",
        &["dlm_req.flags.SPECULATIVE", "dlm_req.flags.BLOCK_NOWAIT"],
        "sizes that are asked for ahead are glimpsed as any, which waits for no lock; there they are refused where one conflicts",
    ),
];

/// How else they differ in the captures of a Lustre under faults.
pub(crate) const ASKED_UNDER_FAULTS: &[Known] = &[
    known(
        "LDLM_INTENT_GETATTR of MDS_BATCH",
        &["mdt_body.fid2.seq", "mdt_body.fid2.oid"],
        "the inode that a name is expected to stand for is named where a listing said it, and not where it was known before",
    ),
    known(
        "LDLM_ENQUEUE",
        &["dlm_req.flags.HAS_INTENT"],
        "a read acquires its lock; there a question for the size, shortly before, had brought one",
    ),
    known(
        "OST_BRW_WRITE",
        &["niobuf_remote[]*", "obd_ioobj[].bufcnt"],
        "for a lock that is revoked what lies under it is written back; there all that is dirty of the object",
    ),
];

impl Known {
    /// Whether the message at this place is one of those that are meant.
    fn has(&self, place: &str) -> bool {
        self.places.is_empty() || self.places.contains(&place)
    }
}

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
        let (field, value) = field.split_once(" = ").unwrap_or((field, "*"));
        known.has(&difference.place)
            && fits(known.message, &difference.message)
            && fits(field, &difference.field)
            && fits(value, &difference.real)
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
        let shows = |place: &str, it: &Difference| {
            it.place == place && known.fields.iter().any(|field| is(known, field, it))
        };
        let silent =
            known.places.iter().filter(|place| !differences.iter().any(|it| shows(place, it)));
        unseen.extend(silent.map(|place| format!("{}: {place}", known.message)));
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
