//! Which exports are servers', whose word counts more than a client's.
//!
//! A connect that offers `MDS`, `MDS_MDS` or `LIGHTWEIGHT` claims to come from a server, and so does a
//! UUID that ends as those of targets do. The claim is believed of this very node, and of a node at
//! which a target of the file system is registered; the host says which ([`ServerNodes`]). A UUID that names
//! a target is believed of that target's nodes alone: otherwise each server could come in another one's place, and
//! have that one evicted. It is settled when the connect comes, once: [`Export::is_server`](crate::Export::is_server).
//!
//! What always holds: no claim that is not believed is admitted, not even as a client. Connects of
//! clients, which claim nothing, ask no node.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sheen_io::BoxFuture;
use sheen_types::{Errno, Nid, TargetKind, TargetName, Uuid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::Request;

use crate::target::Target;

/// What the UUIDs of targets end with, and so those by which servers connect.
const SERVER_UUID_END: &str = "_UUID";

/// At which nodes there are servers of a target's file system: the host's, which asks the MGS.
pub trait ServerNodes: Send + Sync {
    /// Whether `owner`, or any server if there is none, is registered at `nid`; not asked of this very node. Of the
    /// owner's file system name nothing is believed.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] if that cannot be found out now.
    fn is_server(
        &self,
        nid: Nid,
        owner: Option<TargetName>,
    ) -> BoxFuture<'static, Result<bool, Errno>>;
}

/// Which target connects under a UUID, if that names one: the last one that is named in it, as in
/// `lustre-MDT0001-mdtlov_UUID` and `lustre-MDT0000-lwp-OST0001_UUID`.
pub(crate) fn owner(client: &Uuid) -> Option<TargetName> {
    let name = client.as_str().strip_suffix(SERVER_UUID_END)?;
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    ends.filter_map(|end| name[..end].parse().ok()).next_back()
}

/// Whether the client of this UUID is an MDT.
pub(crate) fn is_mdt(client: &Uuid) -> bool {
    owner(client).is_some_and(|owner| owner.kind == TargetKind::Mdt)
}

/// Whether a connect claims to come from a server. Connects to the MGS make no such claims: the bit
/// means something else there.
fn claims(request: &Request, offered: &ObdConnectData, client: &Uuid) -> bool {
    let flags = ConnectFlags::MDS | ConnectFlags::MDS_MDS | ConnectFlags::LIGHTWEIGHT;
    let by_name = client.as_str().ends_with(SERVER_UUID_END);
    !matches!(request, Request::MgsConnect(_)) && (offered.flags.intersects(flags) || by_name)
}

impl Target {
    /// From now on the target believes servers at these nodes. Until then only those of its own node.
    pub fn know_servers(&self, nodes: Arc<dyn ServerNodes>) {
        *self.server_nodes.lock() = Some(nodes);
    }

    /// Whether requests from `nid` come from this very node, which no other can claim to be.
    #[must_use]
    pub fn is_own_node(&self, nid: Nid) -> bool {
        self.reverse.is_own_node(nid)
    }

    /// Whether a connect is of the kind of this target. One of another kind makes other claims, or none: as an MGS's, that of an
    /// MDT or OST would come past what is looked at here.
    pub(crate) fn is_of_kind(&self, request: &Request) -> bool {
        let kind = self.name().parse().ok().map(|name: TargetName| name.kind);
        match request {
            Request::MgsConnect(_) => kind.is_none(),
            Request::MdsConnect(_) => kind == Some(TargetKind::Mdt),
            Request::OstConnect(_) => kind == Some(TargetKind::Ost),
            _ => false,
        }
    }

    /// Whether a connect comes from a server.
    ///
    /// # Errors
    /// [`Errno::EPERM`] if it claims so and does not, [`Errno::EAGAIN`] if that cannot be found out
    /// now.
    pub(crate) async fn comes_from_server(
        &self,
        request: &Request,
        offered: &ObdConnectData,
        client: &Uuid,
        (from, is_proven): (Nid, bool),
    ) -> Result<bool, Errno> {
        if !claims(request, offered, client) {
            return Ok(false);
        }
        if self.is_own_node(from) {
            return Ok(true);
        }
        if !is_proven {
            self.refusals.warn(self.world.clock.now(), |more| {
                tracing::warn!(target = self.name(), %client, nid = %from, more,
                    "it claims to be a server, and comes from another address than its NID's: connect \
                     refused (`sheen server --believe-nids` takes its word)");
            });
            return Err(Errno::EPERM);
        }
        let nodes = self.server_nodes.lock().clone().ok_or(Errno::EAGAIN)?;
        match nodes.is_server(from, owner(client)).await? {
            true => Ok(true),
            false => {
                self.refusals.warn(self.world.clock.now(), |more| {
                    tracing::warn!(target = self.name(), %client, nid = %from, more,
                        "it claims to be a server, and no target, or not the one it names, is registered at \
                         its NID: connect refused");
                });
                Err(Errno::EPERM)
            }
        }
    }
}
