//! Which exports are servers', whose word counts more than a client's.
//!
//! A connect that offers `MDS`, `MDS_MDS` or `LIGHTWEIGHT` claims to come from a server, and so does a
//! UUID that ends as those of targets do. The claim is believed of this very node, and of a node at
//! which a target of the file system is registered; the host says which ([`ServerNodes`]). A UUID that names
//! a target is believed of that target's nodes alone: otherwise each server could come in another one's place, and
//! have that one evicted. It is settled when the connect comes, once (`connect`): [`Export::is_server`](crate::Export::is_server).
//!
//! What always holds: no claim that is not believed is admitted, not even as a client. Connects of
//! clients, which claim nothing, ask no node.

#[cfg(test)]
mod tests;

use sheen_io::BoxFuture;
use sheen_types::{Errno, Nid, TargetKind, TargetName, Uuid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::Request;

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
pub(crate) fn claims(request: &Request, offered: &ObdConnectData, client: &Uuid) -> bool {
    let flags = ConnectFlags::MDS | ConnectFlags::MDS_MDS | ConnectFlags::LIGHTWEIGHT;
    let by_name = client.as_str().ends_with(SERVER_UUID_END);
    !matches!(request, Request::MgsConnect(_)) && (offered.flags.intersects(flags) || by_name)
}
