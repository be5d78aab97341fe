//! What an MDT answers besides locks and changes of the namespace.

use bytes::Bytes;
use sheen_types::Fid;

use super::Select;
use crate::md::{CloseData, MdtBody, MdtIoepoch, ObdStatfs, RecSetattr};
use crate::message;
use crate::quota::ObdQuotactl;
use crate::text::Text;

message! {
    /// FID of the root, or of a directory to mount.
    MdsGetRoot => MdsGetRootReply = "MDS_GET_ROOT";
    on MDS_GET_ROOT, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        name: Option<Text> = tail,
    }
    reply {
        mdt_body: Option<MdtBody>,
        capa1: Bytes,
    }
}

message! {
    /// Space and inodes.
    MdsStatfs => MdsStatfsReply = "MDS_STATFS";
    on MDS_STATFS, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: Option<MdtBody> = tail,
    }
    reply {
        obd_statfs: Option<ObdStatfs>,
    }
}

message! {
    /// Attributes of an inode.
    MdsGetattr => MdsGetattrReply = "MDS_GETATTR";
    on MDS_GETATTR, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        capa2: Bytes,
        file_encctx: Bytes,
    }
}

message! {
    /// Attributes of a name in a directory.
    MdsGetattrName => MdsGetattrNameReply = "MDS_GETATTR_NAME";
    on MDS_GETATTR_NAME, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
        name: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
        mdt_md: Bytes,
        acl: Bytes,
        capa1: Bytes,
        capa2: Bytes,
        file_encctx: Bytes,
    }
}

message! {
    /// One extended attribute, or their names.
    MdsGetxattr => MdsGetxattrReply = "MDS_GETXATTR";
    on MDS_GETXATTR, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
        name: Option<Text>,
        eadata: Bytes,
        selinux_pol: Option<Text>,
    }
    reply {
        mdt_body: Option<MdtBody>,
        eadata: Bytes,
    }
}

message! {
    /// Makes an inode, or everything, durable.
    MdsSync => MdsSyncReply = "MDS_SYNC";
    on MDS_SYNC, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
    }
}

message! {
    /// Pages of a directory.
    MdsReadpage => MdsReadpageReply = "MDS_READPAGE";
    on MDS_READPAGE, Select::Any;
    to MDS_READPAGE, MDC_REPLY;
    flags BULK_WRITE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
    }
}

message! {
    /// Closes, and changes the layout with it.
    MdsCloseIntent => MdsCloseIntentReply = "MDS_CLOSE_INTENT";
    on MDS_CLOSE, Select::Buffers(4);
    to MDS_READPAGE, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        mdt_ioepoch: MdtIoepoch,
        rec_reint: RecSetattr,
        capa1: Bytes,
        close_data: Option<CloseData>,
        u32: Vec<u32> = tail,
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
    /// Closes an open handle.
    MdsClose => MdsCloseReply = "MDS_CLOSE";
    on MDS_CLOSE, Select::Any;
    to MDS_READPAGE, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        mdt_ioepoch: MdtIoepoch,
        rec_reint: RecSetattr,
        capa1: Bytes,
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
    /// Path of a FID.
    MdsFid2path => MdsFid2pathReply = "MDS_FID2PATH";
    on MDS_GET_INFO, Select::Key("fid2path");
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        getinfo_key: Bytes,
        getinfo_vallen: u32,
    }
    reply {
        getinfo_val: Bytes,
    }
}

message! {
    /// Asks an MDT for a value by key.
    MdsGetInfo => MdsGetInfoReply = "MDS_GET_INFO";
    on MDS_GET_INFO, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        getinfo_key: Bytes,
        getinfo_val: Bytes,
    }
    reply {
        getinfo_val: Bytes,
    }
}

message! {
    /// Quota.
    MdsQuotactl => MdsQuotactlReply = "MDS_QUOTACTL";
    on MDS_QUOTACTL, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        obd_quotactl: ObdQuotactl = growable,
    }
    reply {
        obd_quotactl: Option<ObdQuotactl> = growable,
        quota_iter: Bytes = tail,
    }
}

message! {
    /// Removes files by FID.
    MdsRmfid => MdsRmfidReply = "MDS_RMFID";
    on MDS_RMFID, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING;
    request {
        mdt_body: MdtBody,
        fid_array: Vec<Fid>,
        capa1: Bytes,
        capa2: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        fid_array: Vec<Fid>,
        rcs: Vec<u32>,
    }
}

message! {
    /// Exchanges two files' layouts.
    MdsSwapLayouts => MdsSwapLayoutsReply = "MDS_SWAP_LAYOUTS";
    on MDS_SWAP_LAYOUTS, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        mdt_body: MdtBody,
        swap_layouts: Bytes,
        capa1: Bytes,
        capa2: Bytes,
        dlm_req: Option<crate::ldlm::LdlmRequest>,
    }
    reply {}
}

message! {
    /// Several operations in one request.
    MdsBatch => MdsBatchReply = "MDS_BATCH";
    on MDS_BATCH, Select::Any;
    to OUT, OSC_REPLY;
    flags BULK_READ;
    request {
        but_update_header: Bytes,
        but_update_buf: Vec<crate::batch::ButUpdateBuffer>,
    }
    reply {
        batch_update_reply: Bytes,
    }
}

message! {
    /// HSM state of a file.
    MdsHsmStateGet => MdsHsmStateGetReply = "MDS_HSM_STATE_GET";
    on MDS_HSM_STATE_GET, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        hsm_user_state: Bytes,
    }
}

message! {
    /// Changes the HSM state of a file.
    MdsHsmStateSet => MdsHsmStateSetReply = "MDS_HSM_STATE_SET";
    on MDS_HSM_STATE_SET, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
        hsm_state_set: Bytes,
    }
    reply {}
}

message! {
    /// The HSM action in progress on a file.
    MdsHsmAction => MdsHsmActionReply = "MDS_HSM_ACTION";
    on MDS_HSM_ACTION, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        capa1: Bytes,
    }
    reply {
        mdt_body: Option<MdtBody>,
        hsm_current_action: Bytes,
    }
}

message! {
    /// A copytool's progress.
    MdsHsmProgress => MdsHsmProgressReply = "MDS_HSM_PROGRESS";
    on MDS_HSM_PROGRESS, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING;
    request {
        mdt_body: MdtBody,
        hsm_progress: Bytes,
    }
    reply {}
}

message! {
    /// A copytool begins.
    MdsHsmCtRegister => MdsHsmCtRegisterReply = "MDS_HSM_CT_REGISTER";
    on MDS_HSM_CT_REGISTER, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
        hsm_archive: Vec<u32>,
    }
    reply {}
}

message! {
    /// A copytool ends.
    MdsHsmCtUnregister => MdsHsmCtUnregisterReply = "MDS_HSM_CT_UNREGISTER";
    on MDS_HSM_CT_UNREGISTER, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        mdt_body: MdtBody,
    }
    reply {}
}

message! {
    /// Asks for HSM actions.
    MdsHsmRequest => MdsHsmRequestReply = "MDS_HSM_REQUEST";
    on MDS_HSM_REQUEST, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING;
    request {
        mdt_body: MdtBody,
        hsm_request: Bytes,
        hsm_user_item: Bytes,
        generic_data: Bytes,
    }
    reply {}
}

message! {
    /// Sets a file's data version.
    MdsHsmDataVersion => MdsHsmDataVersionReply = "MDS_HSM_DATA_VERSION";
    on MDS_HSM_DATA_VERSION, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags MODIFYING;
    request {
        mdt_body: MdtBody,
    }
    reply {}
}
