//! Keeping up with the MGS: configuration is read under a lock, and read again when the MGS takes
//! that lock away because something has changed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::Channel;
use sheen_types::{Errno, LockMode, ResourceName};
use tokio::sync::Notify;

use sheen_llog::{ClusterMap, LogRecord, Param};

use super::log::read_log;
use super::targets::Targets;
use crate::data::DataPath;
use crate::locks::{Ask, LockSpace, Lost, Protected};

/// Changes come in bursts; Lustre waits as long before it reads again.
const SETTLE: Duration = Duration::from_secs(1);
/// How long to wait before trying again when the MGS did not answer.
const RETRY: Duration = Duration::from_secs(10);
/// Longest name of a file system.
pub(super) const FSNAME_BYTES_MAX: usize = 8;
/// `MGS_CFG_T_PARAMS`, as lock names have it.
const PARAMS: u64 = 3;

/// Who hears of parameters that `lctl conf_param` and `lctl set_param -P` set.
pub type ParameterHook = Box<dyn Fn(&[Param]) + Send + Sync>;

/// Told when the MGS wants a configuration lock back.
#[derive(Default)]
pub(super) struct Changed(Notify);

impl Protected for Changed {
    fn lose(&self, _locks: &Arc<LockSpace>, _lost: Lost) -> BoxFuture<'static, ()> {
        self.0.notify_one();
        Box::pin(std::future::ready(()))
    }

    fn void(&self, locks: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        self.lose(locks, lost)
    }

    fn glimpse(&self, _resource: ResourceName) -> Option<Bytes> {
        None
    }
}

/// Reads the configuration of one file system.
pub(super) struct Config {
    pub(super) fsname: String,
    pub(super) mgs: Arc<dyn Channel>,
    pub(super) locks: Arc<LockSpace>,
}

impl Config {
    /// Takes the locks and reads the logs: `FSNAME-client` and `params`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such file system.
    pub(super) async fn read(&self) -> Result<ClusterMap, Errno> {
        let mut map = ClusterMap::new(&self.fsname);
        self.lock(name_number(&self.fsname), 0).await?;
        let records = read_log(&*self.mgs, &format!("{}-client", self.fsname)).await?;
        understand(&mut map, &records)?;
        self.lock(name_number("params"), PARAMS).await?;
        match read_log(&*self.mgs, "params").await {
            Ok(records) => {
                let mut more = ClusterMap::new(&self.fsname);
                understand(&mut more, &records)?;
                map.params.extend(more.params);
            }
            // Nobody has ever set one.
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(map)
    }

    async fn lock(&self, name: u64, kind: u64) -> Result<(), Errno> {
        let ask = Ask {
            resource: ResourceName([name, kind, 0, 0]),
            policy: Policy::Plain,
            mode: LockMode::Cr,
            flags: LockFlags::NONE,
        };
        if self.locks.covers(ask.resource, ask.policy, ask.mode) {
            return Ok(());
        }
        // Dropped at once: it stays, unused, until the MGS wants it.
        self.locks.enqueue(ask).await.map(|_held| ())
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
    changed: Arc<Changed>,
    targets: Weak<Targets>,
    data: Arc<dyn DataPath>,
    parameters: Arc<Mutex<Option<ParameterHook>>>,
) {
    loop {
        changed.0.notified().await;
        loop {
            let Some(targets) = targets.upgrade() else { return };
            let clock = Arc::clone(&targets.world.clock);
            clock.sleep_until(clock.now() + SETTLE).await;
            match config.read().await {
                Ok(map) => {
                    targets.update(&map, &data);
                    if let Some(hook) = &*parameters.lock() {
                        hook(&map.params);
                    }
                    break;
                }
                Err(Errno::ESHUTDOWN) => return,
                Err(errno) => {
                    tracing::warn!(%errno, "configuration cannot be read; trying again");
                    drop(targets);
                    clock.sleep_until(clock.now() + RETRY).await;
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
