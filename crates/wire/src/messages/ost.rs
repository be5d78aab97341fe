//! What an OST answers: objects and their data.

use bytes::Bytes;
use sheen_types::Fid;

use super::Select;
use crate::ldlm::LdlmRequest;
use crate::md::ObdStatfs;
use crate::message;
use crate::ost::{FiemapInfoKey, LadviseHdr, LuLadvise, NiobufRemote, ObdIoobj, OstBody};
use crate::quota::{ObdQuotactl, QuotaBody};

message! {
    /// Attributes of an object.
    OstGetattr => OstGetattrReply = "OST_GETATTR";
    on OST_GETATTR, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        ost_body: OstBody,
        capa1: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Changes an object's attributes.
    OstSetattr => OstSetattrReply = "OST_SETATTR";
    on OST_SETATTR, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        ost_body: OstBody,
        capa1: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Creates objects ahead of use, or removes orphans.
    OstCreate => OstCreateReply = "OST_CREATE";
    on OST_CREATE, Select::Any;
    to OST_CREATE, OSC_REPLY;
    flags MODIFYING | REPLAYABLE | SERVER;
    request {
        ost_body: OstBody,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Removes an object.
    OstDestroy => OstDestroyReply = "OST_DESTROY";
    on OST_DESTROY, Select::Any;
    to OST_IO, OSC_REPLY;
    flags MODIFYING | REPLAYABLE | SERVER;
    request {
        ost_body: OstBody,
        dlm_req: Option<LdlmRequest>,
        capa1: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Truncates, or frees a range.
    OstPunch => OstPunchReply = "OST_PUNCH";
    on OST_PUNCH, Select::Any;
    to OST_IO, OSC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        ost_body: OstBody,
        capa1: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Allocates or frees a range.
    OstFallocate => OstFallocateReply = "OST_FALLOCATE";
    on OST_FALLOCATE, Select::Any;
    to OST_IO, OSC_REPLY;
    flags MODIFYING | REPLAYABLE;
    request {
        ost_body: OstBody,
        capa1: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Finds data or a hole.
    OstSeek => OstSeekReply = "OST_SEEK";
    on OST_SEEK, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        ost_body: OstBody,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Makes an object's range durable.
    OstSync => OstSyncReply = "OST_SYNC";
    on OST_SYNC, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        ost_body: OstBody,
        capa1: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Reads; small data comes in the reply.
    OstRead => OstReadReply = "OST_BRW_READ";
    on OST_READ, Select::Any;
    to OST_IO, OSC_REPLY;
    flags BULK_WRITE;
    request {
        ost_body: OstBody,
        obd_ioobj: Vec<ObdIoobj>,
        niobuf_remote: Vec<NiobufRemote>,
        capa1: Bytes,
        short_io: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
        short_io: Bytes,
    }
}

message! {
    /// Writes; small data goes in the request.
    OstWrite => OstWriteReply = "OST_BRW_WRITE";
    on OST_WRITE, Select::Any;
    to OST_IO, OSC_REPLY;
    flags MODIFYING | REPLAYABLE | BULK_READ;
    request {
        ost_body: OstBody,
        obd_ioobj: Vec<ObdIoobj>,
        niobuf_remote: Vec<NiobufRemote>,
        capa1: Bytes,
        short_io: Bytes,
    }
    reply {
        ost_body: Option<OstBody>,
        rcs: Vec<u32>,
    }
}

message! {
    /// Space and objects.
    OstStatfs => OstStatfsReply = "OST_STATFS";
    on OST_STATFS, Select::Any;
    to OST_CREATE, OSC_REPLY;
    flags NONE;
    request {}
    reply {
        obd_statfs: Option<ObdStatfs>,
    }
}

message! {
    /// Last object id in use.
    OstGetInfoLastId => OstGetInfoLastIdReply = "OST_GET_INFO_LAST_ID";
    on OST_GET_INFO, Select::Key("last_id");
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        getinfo_key: Bytes,
    }
    reply {
        obd_id: Option<u64>,
    }
}

message! {
    /// Last object in use of a sequence.
    OstGetInfoLastFid => OstGetInfoLastFidReply = "OST_GET_INFO_LAST_FID";
    on OST_GET_INFO, Select::Key("last_fid");
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        getinfo_key: Bytes,
        fid: Option<Fid>,
    }
    reply {
        fid: Option<Fid>,
    }
}

message! {
    /// Extents of an object's data.
    OstGetInfoFiemap => OstGetInfoFiemapReply = "OST_GET_INFO_FIEMAP";
    on OST_GET_INFO, Select::Key("fiemap");
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        fiemap_key: FiemapInfoKey = growable,
        fiemap_val: Bytes,
    }
    reply {
        fiemap_val: Bytes,
    }
}

message! {
    /// Asks an OST for a value by key.
    OstGetInfo => OstGetInfoReply = "OST_GET_INFO";
    on OST_GET_INFO, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        getinfo_key: Bytes,
    }
    reply {
        generic_data: Bytes,
    }
}

message! {
    /// Advice about coming access.
    OstLadvise => OstLadviseReply = "OST_LADVISE";
    on OST_LADVISE, Select::Any;
    to OST_IO, OSC_REPLY;
    flags NONE;
    request {
        ost_body: OstBody,
        ladvise_hdr: LadviseHdr,
        ladvise: Vec<LuLadvise>,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Quota of one OST.
    OstQuotactl => OstQuotactlReply = "OST_QUOTACTL";
    on OST_QUOTACTL, Select::Any;
    to OST_REQUEST, OSC_REPLY;
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
    /// A target acquires or reports quota.
    QuotaDqacq => QuotaDqacqReply = "QUOTA_DQACQ";
    on QUOTA_DQACQ, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        quota_body: QuotaBody,
    }
    reply {
        quota_body: Option<QuotaBody>,
    }
}
