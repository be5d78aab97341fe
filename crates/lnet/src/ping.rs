//! What a ping is answered with, and what its answer says.

use bytes::Bytes;
use sheen_types::Nid;
use sheen_wire::DecodeError;
use sheen_wire::lnet::{LUSTRE_PID, NiStatus, PingFeatures, PingInfo};

/// Our ping information (`struct lnet_ping_info`): two interfaces, the loopback and `nid`.
#[must_use]
pub fn ping_answer(nid: Nid) -> Bytes {
    let interface = |nid: Nid| NiStatus { nid: nid.0, status: NiStatus::UP, message_size: 0 };
    PingInfo {
        features: PingFeatures::NI_STATUS
            | PingFeatures::RTE_DISABLED
            | PingFeatures::MULTI_RAIL
            | PingFeatures::DISCOVERY,
        pid: LUSTRE_PID,
        interfaces: vec![interface(Nid::LOOPBACK), interface(nid)],
        rest: Bytes::new(),
    }
    .encode()
}

/// The NIDs that a ping's answer lists, the loopback first.
///
/// # Errors
/// The answer is no ping information.
pub fn ping_nids(answer: &Bytes) -> Result<Vec<Nid>, DecodeError> {
    Ok(PingInfo::decode(answer)?.interfaces.iter().map(|interface| Nid(interface.nid)).collect())
}
