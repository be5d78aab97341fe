//! What the MGS answers: registration and configuration.

use bytes::Bytes;

use super::Select;
use crate::llog::{LlogLogHdr, LlogdBody};
use crate::md::MdtBody;
use crate::message;
use crate::mgs::{MgsConfigBody, MgsConfigRes, MgsSendParam, MgsTargetInfo, MgsTargetNidlist};
use crate::text::Text;

message! {
    /// A target registers.
    MgsTargetReg => MgsTargetRegReply = "MGS_TARGET_REG";
    on MGS_TARGET_REG, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags MODIFYING | BULK_READ;
    request {
        mgs_target_info: MgsTargetInfo = growable,
        mgs_target_nidlist: Option<MgsTargetNidlist> = tail,
    }
    reply {
        mgs_target_info: Option<MgsTargetInfo> = growable,
    }
}

message! {
    /// Sets a parameter for good.
    MgsSetInfo => MgsSetInfoReply = "MGS_SET_INFO";
    on MGS_SET_INFO, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags MODIFYING;
    request {
        mgs_send_param: MgsSendParam,
    }
    reply {
        mgs_send_param: Option<MgsSendParam>,
    }
}

message! {
    /// Reads configuration in bulk.
    MgsConfigRead => MgsConfigReadReply = "MGS_CONFIG_READ";
    on MGS_CONFIG_READ, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags BULK_WRITE;
    request {
        mgs_config_body: MgsConfigBody,
    }
    reply {
        mgs_config_res: Option<MgsConfigRes>,
    }
}

message! {
    /// Opens a log.
    LlogOriginHandleCreate => LlogOriginHandleCreateReply = "LLOG_ORIGIN_HANDLE_CREATE";
    on LLOG_ORIGIN_HANDLE_CREATE, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags NONE;
    request {
        llogd_body: LlogdBody,
        name: Option<Text>,
        mdt_body: Option<MdtBody> = tail,
    }
    reply {
        llogd_body: Option<LlogdBody>,
    }
}

message! {
    /// Reads a log onward.
    LlogOriginHandleNextBlock => LlogOriginHandleNextBlockReply = "LLOG_ORIGIN_HANDLE_NEXT_BLOCK";
    on LLOG_ORIGIN_HANDLE_NEXT_BLOCK, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags NONE;
    request {
        llogd_body: LlogdBody,
    }
    reply {
        llogd_body: Option<LlogdBody>,
        eadata: Bytes,
    }
}

message! {
    /// Reads a log backward.
    LlogOriginHandlePrevBlock => LlogOriginHandlePrevBlockReply = "LLOG_ORIGIN_HANDLE_PREV_BLOCK";
    on LLOG_ORIGIN_HANDLE_PREV_BLOCK, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags NONE;
    request {
        llogd_body: LlogdBody,
    }
    reply {
        llogd_body: Option<LlogdBody>,
        eadata: Bytes,
    }
}

message! {
    /// Reads a log's header.
    LlogOriginHandleReadHeader => LlogOriginHandleReadHeaderReply = "LLOG_ORIGIN_HANDLE_READ_HEADER";
    on LLOG_ORIGIN_HANDLE_READ_HEADER, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags NONE;
    request {
        llogd_body: LlogdBody,
    }
    reply {
        llog_log_hdr: Option<LlogLogHdr>,
    }
}
