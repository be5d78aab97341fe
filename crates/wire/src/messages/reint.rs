//! Changes of the namespace: `MDS_REINT`, distinguished by the record's first number.

use bytes::Bytes;

use super::Select;
use crate::ldlm::LdlmRequest;
use crate::md::{
    CloseData, MdtBody, MdtIoepoch, RecCreate, RecLink, RecRename, RecResync, RecSetattr,
    RecSetxattr, RecUnlink,
};
use crate::message;
use crate::opcode::ReintOp;
use crate::text::Text;

message! {
    /// Changes attributes.
    MdsReintSetattr => MdsReintSetattrReply = "MDS_REINT_SETATTR";
    on MDS_REINT, Select::Reint(ReintOp::SETATTR);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecSetattr,
        capa1: Bytes,
        mdt_ioepoch: Option<MdtIoepoch>,
        eadata: Bytes,
        logcookies: Bytes,
        dlm_req: Option<LdlmRequest>,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        capa2: Bytes,
    }
}

message! {
    /// Makes a symbolic link; the target ends with a NUL.
    MdsReintCreateSym => MdsReintCreateSymReply = "MDS_REINT_CREATE_SYM";
    on MDS_REINT, Select::ReintSymlink;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecCreate,
        capa1: Bytes,
        name: Option<Text>,
        symtgt: Bytes,
        dlm_req: Option<LdlmRequest>,
        file_secctx_name: Option<Text>,
        file_secctx: Bytes,
        selinux_pol: Option<Text>,
        file_encctx: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        capa1: Bytes,
        mdt_md: Bytes = tail,
    }
}

message! {
    /// Makes a directory or special file.
    MdsReintCreate => MdsReintCreateReply = "MDS_REINT_CREATE_ACL";
    on MDS_REINT, Select::Reint(ReintOp::CREATE);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecCreate,
        capa1: Bytes,
        name: Option<Text>,
        eadata: Bytes,
        dlm_req: Option<LdlmRequest>,
        file_secctx_name: Option<Text>,
        file_secctx: Bytes,
        selinux_pol: Option<Text>,
        file_encctx: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        capa1: Bytes,
        mdt_md: Bytes,
    }
}

message! {
    /// Makes a hard link.
    MdsReintLink => MdsReintLinkReply = "MDS_REINT_LINK";
    on MDS_REINT, Select::Reint(ReintOp::LINK);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecLink,
        capa1: Bytes,
        capa2: Bytes,
        name: Option<Text>,
        dlm_req: Option<LdlmRequest>,
        selinux_pol: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
    }
}

message! {
    /// Removes a name.
    MdsReintUnlink => MdsReintUnlinkReply = "MDS_REINT_UNLINK";
    on MDS_REINT, Select::Reint(ReintOp::UNLINK);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecUnlink,
        capa1: Bytes,
        name: Option<Text>,
        dlm_req: Option<LdlmRequest>,
        selinux_pol: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        logcookies: Bytes,
        capa1: Bytes,
        capa2: Bytes,
    }
}

message! {
    /// Removes a name, and does not look at its inode (`lfs rm_entry`).
    MdsReintRmentry => MdsReintRmentryReply = "MDS_REINT_RMENTRY";
    on MDS_REINT, Select::Reint(ReintOp::RMENTRY);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecUnlink,
        capa1: Bytes,
        name: Option<Text>,
        dlm_req: Option<LdlmRequest>,
        selinux_pol: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        logcookies: Bytes,
        capa1: Bytes,
        capa2: Bytes,
    }
}

message! {
    /// Moves a name; `symtgt` is the new one.
    MdsReintRename => MdsReintRenameReply = "MDS_REINT_RENAME";
    on MDS_REINT, Select::Reint(ReintOp::RENAME);
    to MDS_IO, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecRename,
        capa1: Bytes,
        capa2: Bytes,
        name: Option<Text>,
        symtgt: Option<Text>,
        dlm_req: Option<LdlmRequest>,
        selinux_pol: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        logcookies: Bytes,
        capa1: Bytes,
        capa2: Bytes,
    }
}

message! {
    /// Opens without a lock: replay of an open.
    MdsReintOpen => MdsReintOpenReply = "MDS_REINT_OPEN";
    on MDS_REINT, Select::Reint(ReintOp::OPEN);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecCreate,
        capa1: Bytes,
        capa2: Bytes,
        name: Option<Text>,
        eadata: Bytes,
        file_secctx_name: Option<Text>,
        file_secctx: Bytes,
        selinux_pol: Option<Text>,
        file_encctx: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        capa2: Bytes,
    }
}

message! {
    /// Sets or removes an extended attribute.
    MdsReintSetxattr => MdsReintSetxattrReply = "MDS_REINT_SETXATTR";
    on MDS_REINT, Select::Reint(ReintOp::SETXATTR);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecSetxattr,
        capa1: Bytes,
        name: Option<Text>,
        eadata: Bytes,
        dlm_req: Option<LdlmRequest>,
        selinux_pol: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
    }
}

message! {
    /// Moves an inode to another MDT.
    MdsReintMigrate => MdsReintMigrateReply = "MDS_REINT_MIGRATE";
    on MDS_REINT, Select::Reint(ReintOp::MIGRATE);
    to MDS_IO, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecRename,
        capa1: Bytes,
        capa2: Bytes,
        name: Option<Text>,
        symtgt: Option<Text>,
        dlm_req: Option<LdlmRequest>,
        selinux_pol: Option<Text>,
        mdt_ioepoch: Option<MdtIoepoch>,
        close_data: Option<CloseData>,
        eadata: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        logcookies: Bytes,
        capa1: Bytes,
        capa2: Bytes,
    }
}

message! {
    /// Prepares to resynchronise mirrors.
    MdsReintResync => MdsReintResyncReply = "MDS_REINT_RESYNC";
    on MDS_REINT, Select::Reint(ReintOp::RESYNC);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: RecResync,
        dlm_req: Option<LdlmRequest>,
    }
    reply {
        mdt_body: Option<MdtBody>,
    }
}

message! {
    /// Any other change.
    MdsReint => MdsReintReply = "MDS_REINT";
    on MDS_REINT, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        rec_reint: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
    }
}
