//! What a hostile client has learned: handles, FIDs, objects, locks and numbers of answers.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_node::net::{Delivery, Receiver};
use sheen_types::{Fid, HashMap, LockHandle, MatchBits, ObdHandle, Transno};
use sheen_wire::lnet::Portal;
use sheen_wire::md::{MdtBody, OpenHandle};
use sheen_wire::messages::{Kind, Reply};
use sheen_wire::opcode::Opcode;
use sheen_wire::ost::OstId;
use sheen_wire::ptlrpc::{Message, OpFlags, PtlrpcBody};

/// Of each kind of value so many are remembered; older ones are mostly gone.
const REMEMBERED: usize = 6;
/// Exports remembered for each service.
const HANDLES: usize = 3;
/// Requests whose answers may still come.
const PENDING: usize = 4_096;

/// What kind of server executes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerKind {
    /// Configuration.
    Mgs,
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

impl ServerKind {
    /// The kind of target that takes most of what arrives at `portal`.
    #[must_use]
    pub fn of(portal: Portal) -> Self {
        match portal {
            Portal::MGS_REQUEST => Self::Mgs,
            Portal::OST_REQUEST | Portal::OST_CREATE | Portal::OST_IO => Self::Ost,
            _ => Self::Mdt,
        }
    }

    /// The kind of target that a connect asks for.
    #[must_use]
    pub fn of_connect(opcode: Opcode) -> Option<Self> {
        match opcode {
            Opcode::MGS_CONNECT => Some(Self::Mgs),
            Opcode::MDS_CONNECT => Some(Self::Mdt),
            Opcode::OST_CONNECT => Some(Self::Ost),
            _ => None,
        }
    }
}

/// The last few of something.
#[derive(Debug)]
pub(crate) struct Recent<T>(VecDeque<T>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy + PartialEq> Recent<T> {
    fn push(&mut self, value: T, room: usize) {
        if self.0.contains(&value) {
            return;
        }
        self.0.push_back(value);
        if self.0.len() > room {
            self.0.pop_front();
        }
    }

    pub(crate) fn list(&self) -> Vec<T> {
        self.0.iter().copied().collect()
    }
}

/// All values that can be put into requests.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) handles: BTreeMap<ServerKind, Recent<ObdHandle>>,
    /// Exports of another client.
    pub(crate) stolen: BTreeMap<ServerKind, Recent<ObdHandle>>,
    /// Transaction numbers in answers of each service.
    pub(crate) transnos: BTreeMap<ServerKind, Recent<Transno>>,
    /// Services that said they are in recovery when they were connected to.
    pub(crate) recovering: BTreeMap<ServerKind, bool>,
    pub(crate) fids: Recent<Fid>,
    pub(crate) objects: Recent<OstId>,
    pub(crate) locks: Recent<LockHandle>,
    pub(crate) opens: Recent<OpenHandle>,
    /// Layouts and other values, as they came.
    pub(crate) blobs: VecDeque<Bytes>,
}

/// Takes answers: counts them by status, and learns from them.
#[derive(Debug, Default)]
pub struct Known {
    pub(crate) values: Mutex<Values>,
    kinds: Mutex<HashMap<u64, Kind>>,
    statuses: Mutex<BTreeMap<i32, u64>>,
}

impl Known {
    /// How many answers had which status.
    #[must_use]
    pub fn statuses(&self) -> BTreeMap<i32, u64> {
        self.statuses.lock().clone()
    }

    /// The exports that a connect of this kind has given, the newest last; `None` if there are none.
    #[must_use]
    pub fn handles_of(&self, connect: Opcode) -> Option<Vec<ObdHandle>> {
        let service = ServerKind::of_connect(connect)?;
        self.values.lock().handles.get(&service).map(Recent::list)
    }

    /// A FID that there is.
    pub fn add_fid(&self, fid: Fid) {
        self.values.lock().fids.push(fid, REMEMBERED);
    }

    /// An object that there is.
    pub fn add_object(&self, object: OstId) {
        self.values.lock().objects.push(object, REMEMBERED);
    }

    /// An export of another client.
    pub fn steal_handle(&self, service: ServerKind, handle: ObdHandle) {
        self.values.lock().stolen.entry(service).or_default().push(handle, HANDLES);
    }

    /// A request of this kind was sent.
    pub(crate) fn sent(&self, xid: u64, kind: Kind) {
        let mut kinds = self.kinds.lock();
        if kinds.len() >= PENDING {
            kinds.clear();
        }
        kinds.insert(xid, kind);
    }

    fn learn_body(&self, body: &PtlrpcBody, service: ServerKind) {
        let mut values = self.values.lock();
        let numbers = values.transnos.entry(service).or_default();
        for number in [body.transno, body.last_committed] {
            if number != Transno(0) {
                numbers.push(number, REMEMBERED);
            }
        }
        if ServerKind::of_connect(body.opcode).is_some() && body.status == 0 {
            values.handles.entry(service).or_default().push(body.handle, HANDLES);
            let recovers = body.op_flags.contains(OpFlags::CONNECT_RECOVERING);
            values.recovering.insert(service, recovers);
        }
    }

    fn learn_inode(&self, body: Option<MdtBody>, layout: &Bytes) {
        let mut values = self.values.lock();
        if let Some(body) = body {
            values.fids.push(body.fid1, REMEMBERED);
            values.opens.push(body.open_handle, REMEMBERED);
        }
        if !layout.is_empty() {
            values.blobs.push_back(layout.clone());
            if values.blobs.len() > REMEMBERED {
                values.blobs.pop_front();
            }
        }
    }

    fn learn(&self, reply: &Reply) {
        match reply {
            Reply::LdlmIntentOpen(reply) => {
                if let Some(lock) = &reply.dlm_rep {
                    self.values.lock().locks.push(lock.handle, REMEMBERED);
                }
                self.learn_inode(reply.mdt_body.clone(), &reply.mdt_md);
            }
            Reply::LdlmEnqueue(reply) => {
                if let Some(lock) = &reply.dlm_rep {
                    self.values.lock().locks.push(lock.handle, REMEMBERED);
                }
            }
            Reply::MdsGetattr(reply) => self.learn_inode(reply.mdt_body.clone(), &reply.mdt_md),
            Reply::MdsGetattrName(reply) => {
                self.learn_inode(reply.mdt_body.clone(), &reply.mdt_md);
            }
            Reply::MdsReintCreate(reply) => {
                self.learn_inode(reply.mdt_body.clone(), &reply.mdt_md);
            }
            Reply::OstCreate(reply) => {
                if let Some(body) = &reply.ost_body {
                    self.add_object(body.oa.oi);
                }
            }
            _ => {}
        }
    }
}

impl Receiver for Known {
    fn receive(&self, delivery: Delivery) {
        let MatchBits(xid) = delivery.bits;
        let kind = self.kinds.lock().remove(&xid);
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Ok(body) = message.body() else { return };
        *self.statuses.lock().entry(body.status).or_default() += 1;
        let service = match (ServerKind::of_connect(body.opcode), kind) {
            (Some(service), _) => service,
            (None, Some(kind)) => ServerKind::of(kind.format().request_portal),
            (None, None) => return,
        };
        self.learn_body(&body, service);
        if let Some(reply) = kind.and_then(|kind| Reply::decode(kind, &message).ok()) {
            self.learn(&reply);
        }
    }
}
