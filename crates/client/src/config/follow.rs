//! Keeping up with the MGS: configuration is read under a lock, and read again when the MGS revokes that lock
//! because something has changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_io::{BoxFuture, World};
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::{Channel, Import, ImportOwner};
use sheen_types::{Errno, LockMode, ResourceName};
use tokio::sync::Notify;

use sheen_llog::{ClusterMap, LogRecord};

use super::log::read_log;
use super::{LOCK_AGE_MAX, LOCKS_UNUSED_MAX, MGS_UUID, MoreMdts};
use crate::data::DataPath;
use crate::locks::{CallbackRouter, ClientNamespace, CoveredCache, LockRequest, LostLock};
use crate::records::Recorder;
use crate::targets::ImportEvents;

/// Changes come in bursts; Lustre waits as long before it reads again.
const SETTLE: Duration = Duration::from_secs(1);
/// How long to wait before trying again when the MGS did not answer.
const RETRY: Duration = Duration::from_secs(10);
/// Longest name of a file system.
pub(super) const FSNAME_BYTES_MAX: usize = 8;
/// The log of `set_param -P`, and the first half of its lock's name.
const PARAMS: &str = "params";
/// `MGS_CFG_T_PARAMS`, as lock names have it.
const PARAMS_KIND: u64 = 3;

/// Called with the configuration whenever it was read: for the parameters that `lctl conf_param` and `lctl
/// set_param -P` set, and of pools.
pub type ParameterHook = Box<dyn Fn(&ClusterMap) + Send + Sync>;

/// What a configuration lock of the MGS covers: notified when it is revoked.
#[derive(Default)]
pub(super) struct CoveredConfiguration(Notify);

impl CoveredCache for CoveredConfiguration {
    fn flush_and_invalidate(
        &self,
        _locks: &Arc<ClientNamespace>,
        _lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        self.0.notify_one();
        Box::pin(std::future::ready(()))
    }

    fn invalidate_evicted(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        self.flush_and_invalidate(locks, lost)
    }

    fn glimpse(&self, _resource: ResourceName) -> Option<Bytes> {
        None
    }
}

/// Reads configuration logs under their locks, and knows when one has changed (Lustre: mgc).
pub struct LogReader {
    mgs: Arc<dyn Channel>,
    locks: Arc<ClientNamespace>,
    changed: Arc<CoveredConfiguration>,
    world: World,
}

impl LogReader {
    /// A connection to the MGS, not connected yet, and what reads logs over it. `import` makes the connection
    /// and reports its states to `owner`; `router` must get the node's lock callbacks.
    pub fn new(
        world: &World,
        router: &CallbackRouter,
        import: impl FnOnce(Arc<dyn ImportOwner>) -> Arc<dyn Import>,
    ) -> (Arc<dyn Import>, Arc<Self>) {
        Self::recording(world, router, &Recorder::default(), import)
    }

    /// As [`Self::new`], of a mount whose next process needs to know of the connection.
    pub(super) fn recording(
        world: &World,
        router: &CallbackRouter,
        recorder: &Recorder,
        import: impl FnOnce(Arc<dyn ImportOwner>) -> Arc<dyn Import>,
    ) -> (Arc<dyn Import>, Arc<Self>) {
        let events = Arc::new(ImportEvents::recording(recorder.clone()));
        let import = import(Arc::clone(&events) as Arc<dyn ImportOwner>);
        let mgs = Arc::clone(&import) as Arc<dyn Channel>;
        let changed = Arc::new(CoveredConfiguration::default());
        let config = sheen_ldlm::client::Config {
            seed: world.random.number(),
            lru_size: LOCKS_UNUSED_MAX,
            lru_max_age: LOCK_AGE_MAX,
        };
        let locks = ClientNamespace::new(
            MGS_UUID.to_owned(),
            world.clone(),
            Arc::clone(&mgs),
            config,
            Arc::clone(&changed) as Arc<dyn CoveredCache>,
        );
        events.attach(&locks, None);
        router.add(&locks);
        (import, Arc::new(Self { mgs, locks, changed, world: world.clone() }))
    }

    /// The log `name` of the file system `fsname`, its lock taken.
    ///
    /// # Errors
    /// `ENOENT` if there is no such log.
    pub async fn read(&self, fsname: &str, name: &str) -> Result<Vec<LogRecord>, Errno> {
        self.lock(name_number(fsname), 0).await?;
        read_log(&*self.mgs, name).await
    }

    /// What `set_param -P` has set, its lock taken; nothing if no parameter was ever set.
    ///
    /// # Errors
    /// As [`read_log`].
    pub async fn read_params(&self) -> Result<Vec<LogRecord>, Errno> {
        self.lock(name_number(PARAMS), PARAMS_KIND).await?;
        match read_log(&*self.mgs, PARAMS).await {
            Err(Errno::ENOENT) => Ok(Vec::new()),
            read => read,
        }
    }

    /// Waits until a log that was read has changed and a little longer: changes come in bursts.
    pub async fn changed(&self) {
        self.changed.0.notified().await;
        self.pause(SETTLE).await;
    }

    /// Waits before trying again after a failure.
    pub async fn pause_after_failure(&self) {
        self.pause(RETRY).await;
    }

    pub(super) fn locks(&self) -> &Arc<ClientNamespace> {
        &self.locks
    }

    async fn pause(&self, duration: Duration) {
        let clock = &self.world.clock;
        clock.sleep_until(clock.now() + duration).await;
    }

    async fn lock(&self, name: u64, kind: u64) -> Result<(), Errno> {
        let ask = LockRequest {
            resource: ResourceName([name, kind, 0, 0]),
            policy: Policy::Plain,
            mode: LockMode::Cr,
            flags: LockFlags::NONE,
        };
        if self.locks.covers(ask.resource, ask.policy, ask.mode) {
            return Ok(());
        }
        // Dropped at once: it stays cached, unused, until the MGS revokes it.
        self.locks.enqueue(ask).await.map(|_held| ())
    }
}

/// Reads the configuration of one file system.
pub(super) struct Config {
    pub(super) fsname: String,
    pub(super) reader: Arc<LogReader>,
}

impl Config {
    /// Takes the locks and reads the logs: `FSNAME-client` and `params`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such file system.
    pub(super) async fn read(&self) -> Result<ClusterMap, Errno> {
        let mut map = ClusterMap::new(&self.fsname);
        let records = self.reader.read(&self.fsname, &format!("{}-client", self.fsname)).await?;
        understand(&mut map, &records)?;
        let mut more = ClusterMap::new(&self.fsname);
        understand(&mut more, &self.reader.read_params().await?)?;
        map.params.extend(more.params);
        Ok(map)
    }
}

fn understand(map: &mut ClusterMap, records: &[LogRecord]) -> Result<(), Errno> {
    map.read(records).map_err(|error| {
        tracing::warn!(fsname = map.fsname, %error, "configuration makes no sense");
        Errno::EPROTO
    })
}

/// The first eight bytes of a name, as lock names have them.
fn name_number(name: &str) -> u64 {
    let mut bytes = [0; FSNAME_BYTES_MAX];
    let length = name.len().min(FSNAME_BYTES_MAX);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    u64::from_le_bytes(bytes)
}

/// Reads again whenever something has changed, for as long as the mount lives.
pub(super) async fn follow(
    config: Config,
    more: MoreMdts,
    data: Arc<dyn DataPath>,
    parameters: Option<ParameterHook>,
) {
    loop {
        config.reader.changed().await;
        loop {
            let Some(targets) = more.targets.upgrade() else { return };
            match config.read().await {
                Ok(map) => {
                    // Before anything needs them: OSTs may have objects of theirs.
                    let added = more.add(&map.mdts, &data);
                    added.into_iter().for_each(|import| targets.connect_later(import));
                    targets.update(&map, &data);
                    if let Some(hook) = &parameters {
                        hook(&map);
                    }
                    break;
                }
                Err(Errno::ESHUTDOWN) => return,
                Err(errno) => {
                    // A damaged log is reported where it is read; else the MGS is away.
                    tracing::info!(%errno, "configuration cannot be read now; trying again");
                    drop(targets);
                    config.reader.pause_after_failure().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name_number;

    #[test]
    fn lock_names_are_the_bytes_of_the_name() {
        assert_eq!(name_number("lustre"), 0x6572_7473_756c);
        assert_eq!(name_number("params"), 0x736d_6172_6170);
    }
}
