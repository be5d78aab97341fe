//! The service of a mount: how its process begins it, anew or where an earlier one has ended, and how it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sheen_client::posix::{Credentials, FileSystem};
use sheen_fuse::{FuseMount, FuseMountOptions, Handover, KeeperMemory};
use sheen_io::World;
use sheen_types::Nid;

use super::keeper::{self, FormerProcess, FromKeeper};
use super::notify;
use super::server::EndSignals;
use super::upgrade::{self, HandOver};
use sheen_tools::output::{Fault, errno_of, shown_path};

/// How often a mount that is in use is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The memory in which it is kept what the next process needs, if a keeper can have one go on.
pub(super) fn memory(
    from_keeper: &Option<FromKeeper>,
    former: Option<&FormerProcess>,
    nid: Nid,
) -> Result<Option<Arc<KeeperMemory>>, Fault> {
    if from_keeper.is_none() {
        return Ok(None);
    }
    let memory = KeeperMemory::new(former.map(|it| &it.memory)).map_err(|error| {
        Fault::new(errno_of(&error), format!("no memory for the mount's keeper: {error}"))
    })?;
    memory.set_address(nid.address());
    Ok(Some(Arc::new(memory)))
}

/// Mounts, or goes on with the mount that an earlier process has left. Answers the keeper, too, if it can have
/// another process go on with it.
pub(super) async fn attach<'a>(
    files: &FileSystem,
    target: &Path,
    options: &FuseMountOptions,
    (keeper, former): (Option<&'a FromKeeper>, Option<FormerProcess>),
) -> Result<(FuseMount, Option<&'a FromKeeper>), Fault> {
    let runtime = tokio::runtime::Handle::current();
    let kept = keeper.zip(options.memory.as_deref());
    let mounted = match former {
        None => sheen_fuse::mount(files.clone(), target, options, runtime),
        Some(former) => {
            let is_in_order = former.is_in_order();
            let FormerProcess { device, memory, why } = former;
            let found = memory.found();
            let restored = files.restore(&found.records, found.handles_end).await;
            let goes_on = format!(
                "goes on with the mount: {why}; opens={} stale={} locks_lost={} files_with_lost_data={} inodes={}",
                restored.opens,
                restored.opens_lost,
                restored.locks_lost,
                restored.files_unflushed,
                restored.nodes.len(),
            );
            match is_in_order {
                true => tracing::info!("{goes_on}"),
                false => tracing::warn!("{goes_on}"),
            }
            if let Some((keeper, memory)) = kept {
                keeper.keep(&device, memory)?;
            }
            let resumed = sheen_fuse::Resumed { device, nodes: restored.nodes };
            sheen_fuse::resume(files.clone(), target, options, resumed, runtime)
        }
    };
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error) => {
            files.unmount().await;
            return Err(Fault::new(error.errno(), error.to_string()));
        }
    };
    let kept = kept.filter(|(_, memory)| sheen_fuse::can_resume(memory));
    if let Some((keeper, memory)) = kept {
        keeper.keep(mounted.device(), memory)?;
    }
    Ok((mounted, kept.map(|(keeper, _)| keeper)))
}

/// Ends this process, so that `program` goes on: what calls under way do is done, and what was written is flushed.
pub(super) async fn leave_to(
    keeper: &FromKeeper,
    program: &Path,
    files: &FileSystem,
    handover: &Handover,
) -> Result<(), Fault> {
    keeper.next(program)?;
    if !handover.quiesce(upgrade::DRAIN).await {
        tracing::info!("calls under way go on in the next process");
    }
    if let Err(errno) = files.sync_all(&Credentials::root()).await {
        tracing::warn!(%errno, "not everything could be flushed");
    }
    tracing::info!(program = %shown_path(program), "hands over");
    // No destructor runs: the next process needs what they would give up.
    std::process::exit(keeper::HANDED_OVER.into())
}

/// How the service of a mount ends.
pub(super) enum Ended {
    Unmounted,
    /// This program goes on.
    HandsOver(PathBuf),
}

/// Waits until it is unmounted, or another program is to go on. A signal to end unmounts.
///
/// A service manager that asks for the end waits for it, and kills in the end what does not come to one: for it a
/// mount that is in use is tried again until no program uses it.
pub(super) async fn until_ended(
    world: &World,
    mounted: FuseMount,
    hand_over: &HandOver,
    mut signals: EndSignals,
) -> Result<Ended, Fault> {
    let kernel_mount = mounted.kernel_mount().clone();
    let connection = mounted.device().try_clone_to_owned();
    let connection = connection.map_err(|error| {
        Fault::new(errno_of(&error), format!("the mount's connection: {error}"))
    })?;
    let mut ended = tokio::task::spawn_blocking(move || mounted.wait());
    let mut is_waited_for = false;
    loop {
        tokio::select! {
            _ = &mut ended => return Ok(Ended::Unmounted),
            program = hand_over.asked() => return Ok(Ended::HandsOver(program)),
            () = signals.wait() => {}
            () = world.clock.sleep_until(world.clock.now() + AGAIN), if is_waited_for => {}
        }
        // It may be gone while what programs stored is written back: then its device may be the next mount's.
        if !keeper::is_live(&connection) {
            is_waited_for = false;
            continue;
        }
        let kernel_mount = kernel_mount.clone();
        let unmounted = tokio::task::spawn_blocking(move || kernel_mount.unmount()).await;
        let Ok(Err(why)) = unmounted else {
            is_waited_for = false;
            continue;
        };
        if !is_waited_for {
            tracing::warn!("{why}");
            is_waited_for = notify::has_manager();
            notify::status(&format!("unmounts when no program uses it: {why}"));
        }
    }
}
