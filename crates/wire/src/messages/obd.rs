//! What every target answers: connect, disconnect, ping, keys and values, index pages.

use super::Select;
use crate::message;

message! {
    /// Am I still connected? Also tells the client what is durable.
    ObdPing => ObdPingReply = "OBD_PING";
    on OBD_PING, Select::Any;
    to OST_REQUEST, OSC_REPLY;
    flags NONE;
    request {}
    reply {}
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
