//! Which portals a request, its reply and its bulk use.

use sheen_wire::lnet::Portal;
use sheen_wire::messages::Request;
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::MESSAGE_VERSION;

/// The portal that a request's bulk moves through.
#[must_use]
pub fn bulk_portal(opcode: Opcode) -> Portal {
    match opcode {
        Opcode::OST_READ | Opcode::OST_WRITE => Portal::OST_BULK,
        Opcode::MGS_CONFIG_READ | Opcode::MGS_TARGET_REG => Portal::MGS_BULK,
        _ => Portal::MDS_BULK,
    }
}

/// All portals that bulk moves through.
pub const BULK_PORTALS: [Portal; 3] = [Portal::OST_BULK, Portal::MDS_BULK, Portal::MGS_BULK];

/// All portals that replies arrive at.
pub const REPLY_PORTALS: [Portal; 5] = [
    Portal::OSC_REPLY,
    Portal::MDC_REPLY,
    Portal::MGC_REPLY,
    Portal::LDLM_CB_REPLY,
    Portal::LDLM_CANCEL_REPLY,
];

/// The portal that replies to requests at `request` go to: a service has one.
#[must_use]
pub fn reply_portal(request: Portal) -> Portal {
    match request {
        Portal::OST_IO
        | Portal::OST_CREATE
        | Portal::OST_REQUEST
        | Portal::SEQ_DATA
        | Portal::OUT => Portal::OSC_REPLY,
        Portal::MGS_REQUEST => Portal::MGC_REPLY,
        Portal::LDLM_CB_REQUEST => Portal::LDLM_CB_REPLY,
        Portal::LDLM_CANCEL_REQUEST => Portal::LDLM_CANCEL_REPLY,
        _ => Portal::MDC_REPLY,
    }
}

/// Where a request goes on an import whose target takes most requests at `own`: the table names
/// one service per message, but every target answers pings, keys and locks at its own portal.
#[must_use]
pub fn request_portal(request: &Request, own: Portal) -> Portal {
    match (request.format().request_portal, own) {
        // The controller of sequences has a service of its own.
        (Portal::SEQ_METADATA, _) if is_for_controller(request) => Portal::SEQ_CONTROLLER,
        (Portal::OST_REQUEST | Portal::MDS_REQUEST | Portal::MGS_REQUEST, own) => own,
        (Portal::OST_IO, Portal::MDS_REQUEST) => Portal::MDS_IO,
        (portal, _) => portal,
    }
}

/// Whether a server asks for a super-range of sequences (`SEQ_ALLOC_SUPER`).
fn is_for_controller(request: &Request) -> bool {
    matches!(request, Request::SeqQuery(query) if query.seq_opc == 0)
}

/// Requests that may wait for another client, or that other requests wait for: they do not count against
/// the requests in flight.
#[must_use]
pub(crate) fn is_exempt(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::LDLM_ENQUEUE
            | Opcode::LDLM_CONVERT
            | Opcode::LDLM_CANCEL
            | Opcode::OBD_PING
            | Opcode::FLD_QUERY
            | Opcode::SEQ_QUERY
    )
}

/// Requests that a service starts ahead of other requests.
#[must_use]
pub(crate) fn is_urgent(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::OBD_PING
            | Opcode::LDLM_CANCEL
            | Opcode::LDLM_CONVERT
            | Opcode::LDLM_BL_CALLBACK
            | Opcode::LDLM_CP_CALLBACK
            | Opcode::LDLM_GL_CALLBACK
            | Opcode::MDS_DISCONNECT
            | Opcode::OST_DISCONNECT
            | Opcode::MGS_DISCONNECT
    )
}

/// `pb_version` of a request: the service's version and the message's.
#[must_use]
pub(crate) fn version(opcode: Opcode) -> u32 {
    let service: u32 = match opcode.0 {
        0..=7 | 10..=23 => 3,
        33..=37 | 40..=64 => 2,
        // Quota, sequences, their table and updates belong to MDTs; those refuse any other version.
        601 | 700 | 900 | 901 | 1000 => 2,
        101..=199 => 4,
        501..=599 => 5,
        252..=256 => 6,
        _ => 1,
    };
    service << 16 | MESSAGE_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server refuses a request whose service is not the one it has for the opcode.
    #[test]
    fn versions_are_those_of_the_service_that_lustre_names() {
        for (opcode, service) in [
            (Opcode::OBD_PING, 1),
            (Opcode::MDS_REINT, 2),
            (Opcode::SEQ_QUERY, 2),
            (Opcode::FLD_QUERY, 2),
            (Opcode::FLD_READ, 2),
            (Opcode::OUT_UPDATE, 2),
            (Opcode::QUOTA_DQACQ, 2),
            (Opcode::OST_WRITE, 3),
            (Opcode::LDLM_ENQUEUE, 4),
            (Opcode::LLOG_ORIGIN_HANDLE_NEXT_BLOCK, 5),
            (Opcode::MGS_TARGET_REG, 6),
        ] {
            assert_eq!(version(opcode), service << 16 | MESSAGE_VERSION, "{opcode:?}");
        }
    }

    #[test]
    fn sequences_for_clients_and_ranges_for_servers_are_asked_for_at_portals_of_their_own() {
        use sheen_wire::messages::{ObdPing, SeqQuery};
        let portal = |request: Request| request_portal(&request, Portal::MDS_REQUEST);
        let query = |seq_opc| Request::from(SeqQuery { seq_opc, ..SeqQuery::default() });
        assert_eq!(portal(query(0)), Portal::SEQ_CONTROLLER);
        assert_eq!(portal(query(1)), Portal::SEQ_METADATA);
        assert_eq!(portal(ObdPing::default().into()), Portal::MDS_REQUEST);
        assert_eq!(reply_portal(Portal::SEQ_CONTROLLER), Portal::MDC_REPLY);
    }
}
