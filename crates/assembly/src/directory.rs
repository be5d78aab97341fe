//! Which nodes serve targets of a file system, as its configuration says: asked of the MGS when a peer
//! claims to be a server at a node that is not known yet.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_client::config::{ClusterMap, read_log};
use sheen_io::{BoxFuture, World, logged, within};
use sheen_llog::MapTarget;
use sheen_rpc::Import;
use sheen_target::ServerNodes;
use sheen_types::{Errno, Instant, Nid, TargetKind, TargetName};

/// How often the MGS is asked at most, whatever peers claim.
const PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The servers of one file system. The answers last until another question is asked of the MGS: a node
/// that the configuration does not name any more is forgotten then.
pub(crate) struct Directory(Arc<Inner>);

struct Inner {
    world: World,
    fsname: String,
    mgs: Arc<dyn Import>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    servers: Vec<(TargetKind, u32, Vec<Nid>)>,
    asked: Option<Instant>,
}

impl Directory {
    pub(crate) fn new(world: &World, fsname: &str, mgs: &Arc<dyn Import>) -> Self {
        let (world, fsname, mgs) = (world.clone(), fsname.to_owned(), Arc::clone(mgs));
        Self(Arc::new(Inner { world, fsname, mgs, known: Mutex::default() }))
    }
}

impl ServerNodes for Directory {
    fn is_server(
        &self,
        nid: Nid,
        owner: Option<TargetName>,
    ) -> BoxFuture<'static, Result<bool, Errno>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            if inner.known.lock().has(nid, owner.as_ref()) {
                return Ok(true);
            }
            inner.ask().await?;
            Ok(inner.known.lock().has(nid, owner.as_ref()))
        })
    }
}

impl Known {
    fn has(&self, nid: Nid, owner: Option<&TargetName>) -> bool {
        self.servers.iter().any(|(kind, index, nids)| {
            let is_owner = owner.is_none_or(|it| it.kind == *kind && u32::from(it.index) == *index);
            is_owner && nids.contains(&nid)
        })
    }
}

impl Inner {
    /// Reads what the MGS says now.
    async fn ask(&self) -> Result<(), Errno> {
        let now = self.world.clock.now();
        {
            let mut known = self.known.lock();
            if known.asked.is_some_and(|asked| now.since(asked) < PAUSE) {
                return Err(Errno::EAGAIN);
            }
            known.asked = Some(now);
        }
        let servers =
            within(&*self.world.clock, PATIENCE, self.servers()).await.ok_or(Errno::EAGAIN)?;
        self.known.lock().servers = servers.map_err(|error| {
            // At each start before the MGS's: no fault.
            tracing::debug!(%error, "the MGS does not say which servers there are");
            Errno::EAGAIN
        })?;
        Ok(())
    }

    async fn servers(&self) -> Result<Vec<(TargetKind, u32, Vec<Nid>)>, Errno> {
        let records = read_log(&*self.mgs, &sheen_llog::client_name(&self.fsname)).await?;
        let mut map = ClusterMap::new(&self.fsname);
        map.read(&records)
            .map_err(logged!(Errno::EPROTO, "the client's configuration log cannot be read"))?;
        let of = |kind: TargetKind| move |target: MapTarget| (kind, target);
        let mdts = map.mdts.into_iter().map(of(TargetKind::Mdt));
        let targets = mdts.chain(map.osts.into_iter().map(of(TargetKind::Ost)));
        let used = targets.filter(|(_, target)| !target.is_excluded);
        Ok(used.map(|(kind, target)| (kind, target.index, target.nids)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_at_its_own_nodes_and_a_server_at_any() {
        let nid = |last: u8| Nid::tcp([10, 0, 0, last].into());
        let servers = vec![
            (TargetKind::Mdt, 0, vec![nid(1)]),
            (TargetKind::Ost, 0, vec![nid(2), nid(3)]),
            (TargetKind::Ost, 1, vec![nid(4)]),
        ];
        let known = Known { servers, asked: None };
        let has = |last: u8, owner: Option<&str>| {
            let owner = owner.map(|name| name.parse().expect("a target"));
            known.has(nid(last), owner.as_ref())
        };
        assert!(has(4, None) && !has(5, None));
        assert!(has(3, Some("lustre-OST0000")), "a failover node");
        assert!(!has(4, Some("lustre-OST0000")), "another server's place");
        assert!(!has(2, Some("lustre-MDT0000")));
        assert!(!has(1, Some("lustre-MDT0001")), "one that is not registered");
    }
}
