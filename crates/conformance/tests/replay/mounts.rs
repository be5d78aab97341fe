//! The mounts of a captured client node: whose request it is, and the export of ours that stands
//! for the one it came over.
//!
//! Both mounts of a node have its NID; requests of the two differ by the server's handle of the
//! export. Where a capture does not hold the connects, handles are numbered as they appear.

use sheen_types::{HashMap, HashSet, ObdHandle};
use sheen_wire::messages::Request;
use sheen_wire::text::Text;

use crate::mapping::Mapping;
use crate::player::TargetId;
use crate::script::Exchange;

/// An export of ours: of which mount, at which target.
pub(crate) type Export = (usize, TargetId);

/// See the module.
#[derive(Default)]
pub(crate) struct Mounts {
    exports: HashMap<Export, ObdHandle>,
    /// How many the captured node has.
    mounts: usize,
    /// Mounts by the real target and its handle.
    numbers: HashMap<(TargetId, u64), usize>,
    /// Exports that were left.
    left: HashSet<Export>,
    /// Handles of exports of servers that we do not have.
    elsewhere: HashSet<u64>,
    /// The captured connects, as patterns for more of them.
    patterns: HashMap<TargetId, Request>,
    /// As whom our servers know the clients.
    identities: HashMap<Export, Identity>,
}

/// What a client says of itself with each connect.
#[derive(Clone)]
struct Identity {
    uuid: Text,
    import: ObdHandle,
    /// How often it has connected.
    connects: u32,
}

impl Mounts {
    /// Our handle for the export.
    pub(crate) fn handle(&self, export: Export) -> Option<ObdHandle> {
        self.exports.get(&export).copied()
    }

    /// The export that a handle of ours is.
    pub(crate) fn export(&self, handle: u64) -> Option<Export> {
        let found = self.exports.iter().find(|(_, it)| it.0 == handle);
        found.map(|(export, _)| *export)
    }

    /// The mount that uses the real server's handle at what is `target` here: the next one, if it
    /// was not seen before. A second MDT's export counts as the last mount's.
    pub(crate) fn number(&mut self, target: TargetId, real: u64) -> usize {
        let taken = |number| {
            let mut all = self.numbers.iter();
            all.any(|((at, _), other)| *at == target && *other == number)
        };
        let next = (0..self.mounts).find(|number| !taken(*number));
        let next = next.unwrap_or(self.mounts.saturating_sub(1));
        *self.numbers.entry((target, real)).or_insert(next)
    }

    /// The mount that connects: again, with the handle that it had, or after it left; or the next one.
    pub(crate) fn connecting(&mut self, target: TargetId, real: u64) -> usize {
        if real != 0 {
            return self.number(target, real);
        }
        let left = self.left.iter().find(|(_, at)| *at == target).map(|(mount, _)| *mount);
        left.unwrap_or_else(|| self.exports.keys().filter(|(_, at)| *at == target).count())
    }

    /// The exports at a target.
    pub(crate) fn at(&self, target: TargetId) -> Vec<Export> {
        let all = self.exports.keys().filter(|(_, at)| *at == target);
        let mut all: Vec<_> = all.copied().collect();
        all.sort_unstable();
        all
    }

    /// As whom our server knows the client of an export, and how often it has connected.
    pub(crate) fn identity(&self, export: Export) -> Option<(String, u32)> {
        let identity = self.identities.get(&export)?;
        Some((identity.uuid.to_text(), identity.connects))
    }

    /// A client that reconnects names itself with the handle that our server knows.
    pub(crate) fn identify(&mut self, export: Export, request: &mut Request, mapping: &Mapping) {
        let (cluuid, conn) = match request {
            Request::MgsConnect(connect) => (&mut connect.cluuid, &mut connect.conn),
            Request::MdsConnect(connect) => {
                connect.cdata.transno = mapping.transno(export.1, connect.cdata.transno);
                (&mut connect.cluuid, &mut connect.conn)
            }
            Request::OstConnect(connect) => {
                if let TargetId::Ost(index) = export.1 {
                    connect.tgtuuid = Text::padded(format!("lustre-OST{index:04x}_UUID"), 40);
                }
                (&mut connect.cluuid, &mut connect.conn)
            }
            _ => return,
        };
        let own = Identity { uuid: cluuid.clone(), import: *conn, connects: 0 };
        let identity = self.identities.entry(export).or_insert(own);
        identity.connects += 1;
        (*cluuid, *conn) = (identity.uuid.clone(), identity.import);
    }

    /// A connect was answered, with the real server's handle and ours.
    pub(crate) fn connected(&mut self, (mount, target): Export, real: u64, ours: ObdHandle) {
        self.exports.insert((mount, target), ours);
        self.left.remove(&(mount, target));
        self.numbers.insert((target, real), mount);
    }

    /// The handle is that of an export of a server that we do not have.
    pub(crate) fn leave_out(&mut self, real: u64) {
        self.elsewhere.insert(real);
    }

    pub(crate) fn is_elsewhere(&self, real: u64) -> bool {
        real != 0 && self.elsewhere.contains(&real)
    }

    /// The export goes; `false` if it has gone already.
    pub(crate) fn leave(&mut self, export: Export) -> bool {
        self.left.insert(export)
    }

    /// A capture begins of a node with so many mounts, in which the same exports have other handles.
    pub(crate) fn begin(&mut self, mounts: usize) {
        self.numbers.clear();
        self.mounts = mounts;
    }

    /// Remembers a connect as the pattern for later connects to the same target.
    pub(crate) fn remember(&mut self, target: TargetId, exchange: &Exchange) {
        self.patterns.insert(target, exchange.request.typed.clone());
    }

    /// The connect of another mount, or of one that connects again.
    pub(crate) fn connect(
        &mut self,
        (mount, target): Export,
        mapping: &Mapping,
    ) -> Option<Request> {
        let mut request = self.patterns.get(&target)?.clone();
        let uuid = Text::padded(format!("mount-{mount}"), 40);
        let own = ObdHandle(0x5ee0_0000_0000 + mount as u64);
        let (cluuid, conn) = match &mut request {
            Request::MgsConnect(connect) => (&mut connect.cluuid, &mut connect.conn),
            Request::MdsConnect(connect) => (&mut connect.cluuid, &mut connect.conn),
            Request::OstConnect(connect) => (&mut connect.cluuid, &mut connect.conn),
            _ => return None,
        };
        (*cluuid, *conn) = (uuid, own);
        self.identify((mount, target), &mut request, mapping);
        Some(request)
    }
}
