//! Locks: enqueues with and without intents, cancels, and the callbacks to clients.

use bytes::Bytes;

use super::{Reply, Request, Select};
use crate::ldlm::{IntentOp, LdlmGlDesc, LdlmIntent, LdlmReply, LdlmRequest};
use crate::md::{LayoutIntent, MdtBody, RecCreate};
use crate::message;
use crate::quota::QuotaBody;
use crate::text::Text;

message! {
    /// Opens, perhaps creating, and asks for a lock.
    LdlmIntentOpen => LdlmIntentOpenReply = "LDLM_INTENT_OPEN";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::OPEN);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
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
        dlm_rep: Option<LdlmReply>,
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        capa2: Bytes,
        niobuf_inline: Bytes,
        file_secctx: Bytes,
        file_encctx: Bytes,
        default_mdt_md: Bytes,
    }
}

message! {
    /// Creates without opening, and asks for a lock.
    LdlmIntentCreate => LdlmIntentCreateReply = "LDLM_INTENT_CREATE";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::CREAT);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
        rec_reint: RecCreate,
        capa1: Bytes,
        name: Option<Text>,
        eadata: Bytes,
        file_secctx_name: Option<Text>,
        file_secctx: Bytes,
        selinux_pol: Option<Text>,
        file_encctx: Bytes,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        file_secctx: Bytes,
        default_mdt_md: Bytes,
        file_encctx: Bytes,
    }
}

message! {
    /// Looks a name up, or reads attributes, and asks for a lock.
    LdlmIntentGetattr => LdlmIntentGetattrReply = "LDLM_INTENT_GETATTR";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::GETATTR.union(IntentOp::LOOKUP));
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
        mdt_body: MdtBody,
        capa1: Bytes,
        name: Option<Text>,
        file_secctx_name: Option<Text> = tail,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        file_secctx: Bytes,
        default_mdt_md: Bytes,
        file_encctx: Bytes,
    }
}

message! {
    /// Reads all extended attributes under a lock.
    LdlmIntentGetxattr => LdlmIntentGetxattrReply = "LDLM_INTENT_GETXATTR";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::GETXATTR);
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
        mdt_body: MdtBody,
        capa1: Bytes,
        selinux_pol: Option<Text>,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        eadata: Bytes,
        eavals: Bytes,
        eavals_lens: Vec<u32>,
    }
}

message! {
    /// Reads or changes the layout under a lock; `dlm_lvb` is the layout.
    LdlmIntentLayout => LdlmIntentLayoutReply = "LDLM_INTENT_LAYOUT";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::LAYOUT);
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
        layout_intent: LayoutIntent,
        eadata: Bytes,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        dlm_lvb: Bytes,
    }
}

message! {
    /// A target asks its quota master.
    LdlmIntentQuota => LdlmIntentQuotaReply = "LDLM_INTENT_QUOTA";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::QUOTA_DQACQ.union(IntentOp::QUOTA_CONN));
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
        quota_body: QuotaBody,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        dlm_lvb: Bytes,
        quota_body: Option<QuotaBody>,
    }
}

message! {
    /// Asks for a lock and size, as old peers do for data on MDTs.
    LdlmIntentBasic => LdlmIntentBasicReply = "LDLM_INTENT";
    on LDLM_ENQUEUE, Select::Intent(IntentOp::GLIMPSE.union(IntentOp::BRW));
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
        ldlm_intent: LdlmIntent,
        rec_reint: Bytes = tail,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
    }
}

message! {
    /// Asks for a lock; `dlm_lvb` is an `ost_lvb` for extents and data on MDTs. Goes to the portal of
    /// the target that owns the resource.
    LdlmEnqueue => LdlmEnqueueReply = "LDLM_ENQUEUE";
    on LDLM_ENQUEUE, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
        dlm_lvb: Bytes,
    }
}

message! {
    /// Changes a lock's mode or bits.
    LdlmConvert => LdlmConvertReply = "LDLM_CONVERT";
    on LDLM_CONVERT, Select::Any;
    to LDLM_CANCEL_REQUEST, LDLM_CANCEL_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
    }
    reply {
        dlm_rep: Option<LdlmReply>,
    }
}

message! {
    /// Cancels locks.
    LdlmCancel => LdlmCancelReply = "LDLM_CANCEL";
    on LDLM_CANCEL, Select::Any;
    to LDLM_CANCEL_REQUEST, LDLM_CANCEL_REPLY;
    flags NONE;
    request {
        dlm_req: LdlmRequest,
    }
    reply {}
}

message! {
    /// To a client: a lock of it is in another's way.
    LdlmBlCallback => LdlmBlCallbackReply = "LDLM_BL_CALLBACK";
    on LDLM_BL_CALLBACK, Select::Any;
    to LDLM_CB_REQUEST, LDLM_CB_REPLY;
    flags CALLBACK;
    request {
        dlm_req: LdlmRequest,
    }
    reply {}
}

message! {
    /// To a client: a lock is granted.
    LdlmCpCallback => LdlmCpCallbackReply = "LDLM_CP_CALLBACK";
    on LDLM_CP_CALLBACK, Select::Any;
    to LDLM_CB_REQUEST, LDLM_CB_REPLY;
    flags CALLBACK;
    request {
        dlm_req: LdlmRequest,
        dlm_lvb: Bytes,
    }
    reply {}
}

message! {
    /// To a client: what is the size under this lock?
    LdlmGlCallback => LdlmGlCallbackReply = "LDLM_GL_CALLBACK";
    on LDLM_GL_CALLBACK, Select::Any;
    to LDLM_CB_REQUEST, LDLM_CB_REPLY;
    flags CALLBACK;
    request {
        dlm_req: LdlmRequest,
        dlm_gl_desc: Option<LdlmGlDesc> = tail,
    }
    reply {
        dlm_lvb: Bytes,
    }
}

impl Request {
    /// The lock that an enqueue asks for, with an intent or without.
    #[must_use]
    pub fn enqueued_lock(&self) -> Option<&LdlmRequest> {
        Some(match self {
            Self::LdlmEnqueue(it) => &it.dlm_req,
            Self::LdlmIntentOpen(it) => &it.dlm_req,
            Self::LdlmIntentCreate(it) => &it.dlm_req,
            Self::LdlmIntentGetattr(it) => &it.dlm_req,
            Self::LdlmIntentGetxattr(it) => &it.dlm_req,
            Self::LdlmIntentLayout(it) => &it.dlm_req,
            Self::LdlmIntentQuota(it) => &it.dlm_req,
            Self::LdlmIntentBasic(it) => &it.dlm_req,
            _ => return None,
        })
    }
}

impl Reply {
    /// The lock that answers an enqueue, with an intent or without.
    #[must_use]
    pub fn enqueued_lock(&self) -> Option<&LdlmReply> {
        match self {
            Self::LdlmEnqueue(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentOpen(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentCreate(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentGetattr(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentGetxattr(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentLayout(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentQuota(it) => it.dlm_rep.as_ref(),
            Self::LdlmIntentBasic(it) => it.dlm_rep.as_ref(),
            _ => None,
        }
    }
}
