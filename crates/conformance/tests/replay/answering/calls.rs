//! What the captured servers said of locks by themselves, said again of the locks of ours that stand for the captured ones: that
//! another client wants a lock, and that one that waited is granted.
//!
//! A call is made when what came before it in the capture has been played. A lock that waited is granted when our clients
//! have cancelled the locks in front of it.

use std::ops::Range;
use std::sync::Arc;

use sheen_conformance::rpc::Rpc;
use sheen_node::net::LNet;
use sheen_types::{HashMap, HashSet, LockHandle, MatchBits, Nid, ResourceName};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{Reply, Request};

use crate::script::{Exchange, Script};

/// A call on its way to a client.
pub(super) struct ServerCall {
    pub(super) to: Nid,
    pub(super) request: Box<Rpc<Request>>,
    /// Its number among the calls.
    number: u64,
}

impl ServerCall {
    /// Sends it.
    pub(super) fn send(self, lnet: &Arc<LNet>) {
        let Rpc { typed, message, body, .. } = *self.request;
        let payload = typed.to_bytes(&message.header, &body);
        lnet.put(self.to, Portal::LDLM_CB_REQUEST, MatchBits(self.number), 0, vec![payload]);
    }
}

/// Where in the capture a client of ours is.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) index: usize,
    /// Whether the captured client may have asked that at another moment.
    pub(super) is_elsewhen: bool,
}

/// See the module.
pub(super) struct ServerCalls {
    /// Our clients' locks, and where they are, by the captured client's handles.
    locks: HashMap<u64, (Nid, LockHandle)>,
    /// The captured servers' handles of locks, which are ours', too, and what they lock, by the captured client's.
    of_servers: HashMap<u64, (u64, ResourceName)>,
    /// The servers' handles of locks that were cancelled, by the request that did; none where locks are not revoked.
    ends: Vec<(usize, Vec<u64>)>,
    /// The servers' handles, and what they lock, of locks that our clients have asked for and not cancelled.
    held: HashMap<u64, ResourceName>,
    /// What was said of locks that had waited, by the captured client's handles, and behind how many requests.
    completions: HashMap<u64, (usize, Box<Rpc<Request>>)>,
    /// Locks that servers revoked, behind how many requests.
    revoked: Vec<(usize, Box<Rpc<Request>>)>,
    waiting: Vec<Waiting>,
    /// Calls so far.
    count: u64,
}

/// A lock that is granted once those in front of it are cancelled.
struct Waiting {
    conflicts: HashSet<u64>,
    call: ServerCall,
}

impl ServerCalls {
    /// Those of a script.
    pub(super) fn new(script: &mut Script) -> Self {
        let exchanges = script.exchanges.iter().enumerate();
        let ends = exchanges.filter(|_| script.revokes);
        Self {
            ends: ends.map(|(at, it)| (at, cancelled_by(&it.request.typed))).collect(),
            held: HashMap::default(),
            locks: HashMap::default(),
            of_servers: script.exchanges.iter().filter_map(granted).collect(),
            completions: std::mem::take(&mut script.completions),
            revoked: std::mem::take(&mut script.revoked),
            waiting: Vec::new(),
            count: 0,
        }
    }

    /// The client at `from` has asked `ours`, which was answered as `real`, the request at this moment. What is to be said behind the answer.
    pub(super) fn behind(
        &mut self,
        moment: Moment,
        real: &Request,
        (from, ours): (Nid, &Request),
    ) -> Vec<ServerCall> {
        let mut calls = self.cancelled(ours);
        calls.extend(self.asked(moment.index, real, (from, ours)));
        if !moment.is_elsewhen {
            calls.extend(self.due(moment.index));
        }
        calls
    }

    /// Remembers which lock of ours stands for a captured one. What is said of it when it is granted after all, if nothing is in
    /// front of it.
    fn asked(
        &mut self,
        index: usize,
        real: &Request,
        (from, ours): (Nid, &Request),
    ) -> Option<ServerCall> {
        let (real, own) = (lock_of(real)?, lock_of(ours)?);
        let (handle, own) = (real.handles.first()?.0, *own.handles.first()?);
        self.locks.insert(handle, (from, own));
        let own_lock = self.of_servers.get(&handle).copied();
        let waits = self.completions.remove(&handle);
        let conflicts = waits
            .as_ref()
            .map(|(until, _)| self.conflicts(index..*until, &real.desc.resource.name));
        self.held.extend(own_lock);
        let ((_, mut request), conflicts) = waits.zip(conflicts)?;
        *handle_of(&mut request.typed)? = own;
        self.count += 1;
        let call = ServerCall { to: from, request, number: self.count };
        if conflicts.is_empty() {
            return Some(call);
        }
        self.waiting.push(Waiting { conflicts, call });
        None
    }

    /// The servers' handles of our clients' locks on a resource that the captured clients cancelled in these requests.
    fn conflicts(&self, requests: Range<usize>, resource: &ResourceName) -> HashSet<u64> {
        let ends = self.ends.iter().filter(|(at, _)| requests.contains(at));
        let handles = ends.flat_map(|(_, handles)| handles.iter().copied());
        handles.filter(|handle| self.held.get(handle) == Some(resource)).collect()
    }

    /// What is said as soon as the request at `index` has been answered.
    pub(super) fn due(&mut self, index: usize) -> Vec<ServerCall> {
        let all = std::mem::take(&mut self.revoked);
        let (due, later) = all.into_iter().partition(|(behind, _)| *behind <= index + 1);
        self.revoked = later;
        let due: Vec<(usize, Box<Rpc<Request>>)> = due;
        let ours = due.into_iter().filter_map(|(_, mut request)| {
            let handle = handle_of(&mut request.typed)?;
            let (to, own) = *self.locks.get(&handle.0)?;
            *handle = own;
            self.count += 1;
            Some(ServerCall { to, request, number: self.count })
        });
        ours.collect()
    }

    /// Our client cancels locks: those that waited for them alone are granted.
    fn cancelled(&mut self, ours: &Request) -> Vec<ServerCall> {
        let gone = cancelled_by(ours);
        self.held.retain(|handle, _| !gone.contains(handle));
        for waiting in &mut self.waiting {
            waiting.conflicts.retain(|handle| !gone.contains(handle));
        }
        let all = std::mem::take(&mut self.waiting);
        let (free, still): (Vec<_>, _) = all.into_iter().partition(|it| it.conflicts.is_empty());
        self.waiting = still;
        free.into_iter().map(|waiting| waiting.call).collect()
    }
}

/// The servers' handles of locks that a request cancels, also beside what it asks for.
fn cancelled_by(request: &Request) -> Vec<u64> {
    let handles = match (request, lock_of(request)) {
        (Request::LdlmCancel(cancel), _) => &cancel.dlm_req.handles[..],
        (_, Some(lock)) => lock.handles.get(1..).unwrap_or_default(),
        _ => &[],
    };
    handles.iter().map(|handle| handle.0).filter(|handle| *handle != 0).collect()
}

/// The lock that a request asks for.
fn lock_of(request: &Request) -> Option<&LdlmRequest> {
    Some(match request {
        Request::LdlmEnqueue(it) => &it.dlm_req,
        Request::LdlmIntentGetattr(it) => &it.dlm_req,
        Request::LdlmIntentOpen(it) => &it.dlm_req,
        Request::LdlmIntentLayout(it) => &it.dlm_req,
        Request::LdlmIntentGetxattr(it) => &it.dlm_req,
        _ => return None,
    })
}

/// The client's and the server's handle of a lock that was asked for, and what it locks.
fn granted(exchange: &Exchange) -> Option<(u64, (u64, ResourceName))> {
    let asked = lock_of(&exchange.request.typed)?.handles.first()?.0;
    let granted = match &exchange.reply.as_ref()?.0.typed {
        Reply::LdlmEnqueue(it) => it.dlm_rep.as_ref(),
        Reply::LdlmIntentGetattr(it) => it.dlm_rep.as_ref(),
        Reply::LdlmIntentOpen(it) => it.dlm_rep.as_ref(),
        Reply::LdlmIntentLayout(it) => it.dlm_rep.as_ref(),
        Reply::LdlmIntentGetxattr(it) => it.dlm_rep.as_ref(),
        _ => None,
    };
    let granted = granted?;
    Some((asked, (granted.handle.0, granted.desc.resource.name)))
}

/// The client's handle of the lock that a server calls for.
fn handle_of(request: &mut Request) -> Option<&mut LockHandle> {
    let lock = match request {
        Request::LdlmBlCallback(call) => &mut call.dlm_req,
        Request::LdlmCpCallback(call) => &mut call.dlm_req,
        _ => return None,
    };
    lock.handles.first_mut()
}
