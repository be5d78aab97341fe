//! Where answers name things: sequences, locks, and inodes that have moved.

use bytes::Bytes;
use sheen_types::{Fid, HashMap, LockHandle};
use sheen_wire::dir::{DirPage, PAGE_SIZE};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use sheen_wire::messages::{Reply, Request};

use crate::mapping::Mapping;
use crate::script::Exchange;

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

/// The inode that two answers are about.
pub(crate) fn inodes(real: &Reply, ours: &Reply) -> Option<(Fid, Fid)> {
    let body = |reply: &Reply| match reply {
        Reply::LdlmIntentGetattr(reply) => reply.mdt_body.as_ref().map(|body| body.fid1),
        Reply::LdlmIntentOpen(reply) => reply.mdt_body.as_ref().map(|body| body.fid1),
        Reply::MdsGetattrName(reply) => reply.mdt_body.as_ref().map(|body| body.fid1),
        _ => None,
    };
    body(real).zip(body(ours))
}

/// The inodes that two directory pages name alike.
pub(crate) fn listed(real: &Bytes, ours: &Bytes) -> Vec<(Fid, Fid)> {
    let entries = |bytes: &Bytes| {
        let pages = (0..bytes.len() / PAGE_SIZE).map(|page| page * PAGE_SIZE);
        let pages = pages.filter_map(|at| DirPage::decode(&bytes.slice(at..at + PAGE_SIZE)).ok());
        let entries = pages.flat_map(|page| page.entries);
        entries.map(|entry| (entry.name, entry.fid)).collect::<HashMap<_, _>>()
    };
    let (real, ours) = (entries(real), entries(ours));
    real.iter().filter_map(|(name, fid)| Some((*fid, *ours.get(name)?))).collect()
}

/// The locks that were granted: the client's name of each, the real server's and ours.
pub(crate) fn locks(
    exchange: &Exchange,
    real: &Reply,
    ours: &Reply,
) -> Vec<(LockHandle, LockHandle, LockHandle)> {
    let request = &exchange.request.typed;
    if let (Request::MdsBatch(request), Reply::MdsBatch(real), Reply::MdsBatch(ours)) =
        (request, real, ours)
    {
        let bulk: Vec<_> = exchange.bulk.iter().map(|(_, data)| data.clone()).collect();
        let asked = sheen_conformance::questions(request, &bulk);
        let answers = [real, ours].map(|it| sheen_conformance::attributes(&it.batch_update_reply));
        let [real, ours] = answers.each_ref().map(|it| it.iter().map(|it| it.dlm_rep.as_ref()));
        let parts = asked.iter().zip(real.zip(ours));
        return parts
            .filter_map(|(asked, (real, ours))| granted(&asked.dlm_req, real?, ours?))
            .collect();
    }
    let whole = || granted(asked(request)?, answered(real)?, answered(ours)?);
    whole().into_iter().collect()
}

fn granted(
    asked: &LdlmRequest,
    real: &LdlmReply,
    ours: &LdlmReply,
) -> Option<(LockHandle, LockHandle, LockHandle)> {
    let client = *asked.handles.first()?;
    let is_lock = real.handle.0 != 0 && ours.handle.0 != 0;
    is_lock.then_some((client, real.handle, ours.handle))
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
