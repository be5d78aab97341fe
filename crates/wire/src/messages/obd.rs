//! What every target answers: connect, disconnect, ping, keys and values, index pages.
//!
//! The portals of pings and keys are those of an OST; on other connections the request goes to
//! that target's own request portal and the reply to its reply portal. The same holds for
//! enqueues without an intent, for logs (the table says MGS), and for data on MDTs, whose reads,
//! writes and punches go to `MDS_IO`. Getattr by FID goes to `MDS_READPAGE` where that is needed
//! to get past changes that wait for locks.

use bytes::Bytes;
use sheen_types::ObdHandle;

use super::Select;
use crate::connect::ObdConnectData;
use crate::fld::LuSeqRange;
use crate::md::MdtBody;
use crate::message;
use crate::ost::OstBody;
use crate::text::Text;

message! {
    /// Am I still connected? Its answer reports what is durable.
    ObdPing => ObdPingReply = "OBD_PING";
    on OBD_PING, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {}
    reply {}
}

message! {
    /// Connects to the MGS.
    MgsConnect => MgsConnectReply = "MGS_CONNECT";
    on MGS_CONNECT, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags NONE;
    request {
        tgtuuid: Text,
        cluuid: Text,
        conn: ObdHandle,
        cdata: ObdConnectData = growable,
        selinux_pol: Option<Text>,
    }
    reply {
        cdata: Option<ObdConnectData> = growable,
    }
}

message! {
    /// Connects to an MDT.
    MdsConnect => MdsConnectReply = "MDS_CONNECT";
    on MDS_CONNECT, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        tgtuuid: Text,
        cluuid: Text,
        conn: ObdHandle,
        cdata: ObdConnectData = growable,
        selinux_pol: Option<Text>,
    }
    reply {
        cdata: Option<ObdConnectData> = growable,
    }
}

message! {
    /// Connects to an OST.
    OstConnect => OstConnectReply = "OST_CONNECT";
    on OST_CONNECT, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        tgtuuid: Text,
        cluuid: Text,
        conn: ObdHandle,
        cdata: ObdConnectData = growable,
        selinux_pol: Option<Text>,
    }
    reply {
        cdata: Option<ObdConnectData> = growable,
    }
}

message! {
    /// Leaves the MGS.
    MgsDisconnect => MgsDisconnectReply = "MGS_DISCONNECT";
    on MGS_DISCONNECT, Select::Any;
    to MGS_REQUEST, MGC_REPLY;
    flags NONE;
    request {}
    reply {}
}

message! {
    /// Leaves an MDT.
    MdsDisconnect => MdsDisconnectReply = "MDS_DISCONNECT";
    on MDS_DISCONNECT, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {}
    reply {}
}

message! {
    /// Leaves an OST.
    OstDisconnect => OstDisconnectReply = "OST_DISCONNECT";
    on OST_DISCONNECT, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {}
    reply {}
}

message! {
    /// Sets a value by key at an MDT.
    MdsSetInfo => MdsSetInfoReply = "MDT_SET_INFO";
    on MDS_SET_INFO, Select::Any;
    to MDS_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        setinfo_key: Bytes,
        setinfo_val: Bytes,
        mdt_body: Option<MdtBody> = tail,
    }
    reply {}
}

message! {
    /// Returns a grant of space.
    OstSetGrantInfo => OstSetGrantInfoReply = "OST_SET_GRANT_INFO";
    on OST_SET_INFO, Select::Key("grant_shrink");
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        setinfo_key: Bytes,
        ost_body: OstBody,
    }
    reply {
        ost_body: Option<OstBody>,
    }
}

message! {
    /// Sets a value by key at an OST.
    OstSetInfo => OstSetInfoReply = "OBD_SET_INFO";
    on OST_SET_INFO, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {
        setinfo_key: Bytes,
        setinfo_val: Bytes,
    }
    reply {}
}

message! {
    /// Sets a value by key at a client.
    LdlmSetInfo => LdlmSetInfoReply = "LDLM_SET_INFO";
    on LDLM_SET_INFO, Select::Any;
    to LDLM_CB_REQUEST, LDLM_CB_REPLY;
    flags CALLBACK;
    request {
        setinfo_key: Bytes,
        setinfo_val: Bytes,
    }
    reply {}
}

message! {
    /// Allocates FID sequences.
    SeqQuery => SeqQueryReply = "SEQ_QUERY";
    on SEQ_QUERY, Select::Any;
    to SEQ_METADATA, MDC_REPLY;
    flags MODIFYING;
    request {
        seq_opc: u32,
        seq_range: LuSeqRange,
    }
    reply {
        seq_range: Option<LuSeqRange>,
    }
}

message! {
    /// Asks which target holds a sequence.
    FldQuery => FldQueryReply = "FLD_QUERY";
    on FLD_QUERY, Select::Any;
    to FLD_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        fld_opc: u32,
        fld_mdfld: LuSeqRange,
    }
    reply {
        fld_mdfld: Option<LuSeqRange>,
    }
}

message! {
    /// Reads the table of sequences.
    FldRead => FldReadReply = "FLD_READ";
    on FLD_READ, Select::Any;
    to FLD_REQUEST, MDC_REPLY;
    flags NONE;
    request {
        fld_mdfld: LuSeqRange,
    }
    reply {
        generic_data: Bytes,
    }
}
