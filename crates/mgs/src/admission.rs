//! Which nodes may register what, and change parameters.
//!
//! What always holds: only a known target's own nodes and the MGS's node can register it: no client can
//! move a target to itself, make the MGS forget one, or announce that one has moved. A target that is new
//! may come from any node while `allow_register` says so, as in Lustre; at the latest then its node is
//! one of the file system's servers, and a line of the log says so. A node sets no parameters but those of
//! its own targets, and makes so many targets and file systems ([`crate::limits`]).

use sheen_target::{Context, EACH_LINE, Target};
use sheen_types::{Errno, Nid, TargetKind};
use sheen_wire::mgs::TargetFlags;

use crate::limits::{FILE_SYSTEMS_MAX, TARGETS_PER_NODE_MAX};
use crate::parameters;
use crate::registration::Registration;
use crate::service::Mgs;

impl Mgs {
    /// Whether a request to register, or to say that a target is ready, is executed.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for a node that registers a target of another, [`Errno::EACCES`] while no new
    /// targets are wanted.
    pub(crate) fn may_register(
        &self,
        context: &Context,
        registration: &Registration,
    ) -> Result<(), Errno> {
        let peer = context.export.nid();
        if context.target.is_own_node(peer) {
            return Ok(());
        }
        let refuse = |errno, why: &str| {
            let name = &registration.name;
            tracing::warn!(target = %name, nid = %peer, why, "registration refused");
            Err(errno)
        };
        if context.export.proven_nid().is_none() {
            return refuse(Errno::EPERM, "it comes from another address than its NID's");
        }
        let named = || registration.nodes().into_iter().flatten();
        if !named().any(|nid| nid == peer) {
            return refuse(
                Errno::EPERM,
                "the registration names another node than the one that sent it",
            );
        }
        match self.nids_of(registration) {
            Some(known) if !known.contains(&peer) => refuse(
                Errno::EPERM,
                "the target is known at other nodes: see `lctl replace_nids`, and `failover.node`",
            ),
            Some(known) if !named().all(|nid| known.contains(&nid)) => {
                refuse(Errno::EPERM, "it names nodes that are not known for the target")
            }
            _ if !registration.params.iter().all(|param| parameters::is_of_target(param)) => {
                refuse(
                    Errno::EPERM,
                    "it sets parameters of more than itself: see `lctl conf_param`",
                )
            }
            Some(_) => Ok(()),
            None if registration.flags.contains(TargetFlags::OPC_READY) => {
                refuse(Errno::ENOENT, "it is said to be ready, and has not registered")
            }
            None if !registration.nids.contains(&peer) => refuse(
                Errno::EPERM,
                "it is new, and the node that sent it is not its own but only one that takes over",
            ),
            None if !self.allows_register() && !self.serves(registration, peer) => {
                refuse(Errno::EACCES, "no new targets are wanted: `allow_register` is 0")
            }
            None => self
                .has_room(&registration.name.fsname, peer)
                .or_else(|why| refuse(Errno::EDQUOT, why)),
        }
    }

    /// A line for operators about a target that has just registered for the first time: from now on its node is a server
    /// of the file system, and clients connect to it.
    pub(crate) fn note_new(context: &Context, registration: &Registration) {
        let Registration { name, nids, failover, .. } = registration;
        let nid = context.export.nid();
        tracing::info!(target: EACH_LINE, target = %name, %nid, ?nids, ?failover, "a new target has registered");
    }

    /// Whether a node may register one more target; why not.
    fn has_room(&self, fsname: &str, peer: Nid) -> Result<(), &'static str> {
        let known = self.state.file_systems();
        if known.len() >= FILE_SYSTEMS_MAX && !self.state.knows(fsname) {
            return Err("there are as many file systems as other nodes may make");
        }
        let maps = known.iter().filter_map(|fsname| self.cluster_map(fsname));
        let targets = maps.flat_map(|map| map.mdts.into_iter().chain(map.osts));
        let its = targets.filter(|target| target.nids.contains(&peer)).count();
        match its >= TARGETS_PER_NODE_MAX {
            true => Err("its node serves as many targets as one node may register"),
            false => Ok(()),
        }
    }

    /// Whether a client may change parameters: only from the MGS's own node.
    ///
    /// # Errors
    /// [`Errno::EPERM`]
    pub(crate) fn may_configure(context: &Context) -> Result<(), Errno> {
        let nid = context.export.nid();
        if Target::is_own_node(&context.target, nid) {
            return Ok(());
        }
        tracing::warn!(%nid, "a change of parameters refused: it comes from another node");
        Err(Errno::EPERM)
    }

    /// Where the logs say that the target is; `None` for a new one.
    pub(crate) fn nids_of(&self, registration: &Registration) -> Option<Vec<Nid>> {
        let name = &registration.name;
        if registration.flags.contains(TargetFlags::NEED_INDEX) {
            return None;
        }
        let map = self.cluster_map(&name.fsname)?;
        let targets = match name.kind {
            TargetKind::Mdt => map.mdts,
            TargetKind::Ost => map.osts,
        };
        let found = targets.into_iter().find(|target| target.index == u32::from(name.index));
        found.map(|target| target.nids)
    }

    /// Whether a target of the file system is known at a node.
    fn serves(&self, registration: &Registration, nid: Nid) -> bool {
        let map = self.cluster_map(&registration.name.fsname);
        let targets = map.into_iter().flat_map(|map| map.mdts.into_iter().chain(map.osts));
        targets.into_iter().any(|target| target.nids.contains(&nid))
    }
}
