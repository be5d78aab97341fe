//! Where answers name things: sequences and locks.

use sheen_types::LockHandle;
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use sheen_wire::messages::{Reply, Request};

use crate::mapping::Mapping;

/// Learns sequences and open handles.
pub(crate) fn names(mapping: &mut Mapping, real: &Reply, ours: &Reply) {
    match (real, ours) {
        (Reply::SeqQuery(real), Reply::SeqQuery(ours)) => {
            if let (Some(real), Some(ours)) = (&real.seq_range, &ours.seq_range) {
                mapping.learn(real.end, ours.end);
                mapping.learn(real.start, ours.start);
            }
        }
        (Reply::LdlmIntentOpen(real), Reply::LdlmIntentOpen(ours)) => {
            if let (Some(real), Some(ours)) = (&real.mdt_body, &ours.mdt_body) {
                mapping.learn(real.open_handle.0, ours.open_handle.0);
            }
        }
        _ => {}
    }
}

/// The client's name of a lock that was granted, the real server's and ours.
pub(crate) fn lock(
    request: &Request,
    real: &Reply,
    ours: &Reply,
) -> Option<(LockHandle, LockHandle, LockHandle)> {
    let client = *asked(request)?.handles.first()?;
    let (real, ours) = (answered(real)?.handle, answered(ours)?.handle);
    (real.0 != 0 && ours.0 != 0).then_some((client, real, ours))
}

fn asked(request: &Request) -> Option<&LdlmRequest> {
    Some(match request {
        Request::LdlmEnqueue(request) => &request.dlm_req,
        Request::LdlmIntentOpen(request) => &request.dlm_req,
        Request::LdlmIntentCreate(request) => &request.dlm_req,
        Request::LdlmIntentGetattr(request) => &request.dlm_req,
        Request::LdlmIntentGetxattr(request) => &request.dlm_req,
        Request::LdlmIntentLayout(request) => &request.dlm_req,
        Request::LdlmIntentBasic(request) => &request.dlm_req,
        _ => return None,
    })
}

fn answered(reply: &Reply) -> Option<&LdlmReply> {
    match reply {
        Reply::LdlmEnqueue(reply) => reply.dlm_rep.as_ref(),
        Reply::LdlmIntentOpen(reply) => reply.dlm_rep.as_ref(),
        Reply::LdlmIntentCreate(reply) => reply.dlm_rep.as_ref(),
        Reply::LdlmIntentGetattr(reply) => reply.dlm_rep.as_ref(),
        Reply::LdlmIntentGetxattr(reply) => reply.dlm_rep.as_ref(),
        Reply::LdlmIntentLayout(reply) => reply.dlm_rep.as_ref(),
        Reply::LdlmIntentBasic(reply) => reply.dlm_rep.as_ref(),
        _ => None,
    }
}
