//! `umount.lustre`, as umount(8) calls it: unmounts, and ends when servers have all that was written and no lock is left.
//!
//! The kernel takes a mount of FUSE away at once, while its process still writes back. Lustre's umount waits for that, and
//! so does this, so that a machine that goes down unmounts before it leaves the network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::Pid;
use sheen_fuse::{KernelMount, UnmountError};
use sheen_types::Errno;

use super::progress::Progress;
use super::{daemon, io_fault, mount, mount_helper};
use sheen_tools::output::{Fault, errno, shown_path};

/// How long the mount's process may take: as long as a client waits for a server that is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often we look whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Helper of umount(8) for the types lustre and fuse.lustre: unmount, and wait until all data is on the servers
#[derive(Args)]
pub(crate) struct Unmount {
    /// Mount point
    #[arg(value_name = "MNT")]
    target: PathBuf,
    /// Force the unmount: calls that wait for servers fail, and data that is not written is lost
    #[arg(short = 'f')]
    force: bool,
    /// Lazy: detach the mount now, and unmount it when no program uses it any more
    #[arg(short = 'l')]
    lazy: bool,
    /// Do not write to /etc/mtab (Sheen never does)
    #[arg(short = 'n')]
    nomtab: bool,
    /// If it is busy, remount it read-only
    #[arg(short = 'r')]
    read_only: bool,
    /// Verbose
    #[arg(short = 'v')]
    verbose: bool,
    /// Unmount in this mount namespace: that of a process, or a file
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The type that umount(8) was asked for
    #[arg(short = 't', value_name = "TYPE", value_parser = ["lustre", "fuse.lustre"])]
    kind: Option<String>,
}

/// Unmounts; its exit codes are those of umount(8).
pub(crate) fn run(options: &Unmount) -> Result<(), Fault> {
    unmount(options).map_err(mount_helper::failed)
}

fn unmount(options: &Unmount) -> Result<(), Fault> {
    if let Some(namespace) = &options.namespace {
        mount_helper::enter(namespace)?;
    }
    let target = place(&options.target)?;
    let mount = KernelMount::newest_at(&target);
    if mount.found().is_none() {
        let text = format!("umount.lustre: {}: not mounted", shown_path(&target));
        return Err(Fault::new(Errno::EINVAL, text));
    }
    let served: Vec<Pid> = daemon::all().filter(|pid| serves(*pid, &target)).collect();
    if options.force {
        // It may be answered by no server: what waits there ends with an error.
        sheen_fuse::abort(&mount).map_err(|error| io_fault(&target, &error))?;
    }
    let unmounted = if options.lazy { mount.detach() } else { mount.unmount() };
    match unmounted {
        Err(UnmountError::Busy(_)) if options.read_only => return made_read_only(&mount, &target),
        unmounted => unmounted.map_err(|why| mount::stays(&why))?,
    }
    if options.verbose {
        println!("umount.lustre: {} unmounted", shown_path(&target));
    }
    match options.lazy {
        true => Ok(()),
        false => wait(&served),
    }
}

/// The mount point without links, asking no file system that is mounted there.
fn place(target: &Path) -> Result<PathBuf, Fault> {
    let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
        return mount::absolute(target);
    };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    Ok(mount::absolute(above)?.join(name))
}

/// Whether it is the process of a mount at `target`.
fn serves(pid: Pid, target: &Path) -> bool {
    let names_it = |words: Vec<OsString>| {
        words.iter().rev().find(|word| !word.is_empty()).is_some_and(|it| Path::new(it) == target)
    };
    daemon::runs_as(pid, "mount") && daemon::words(pid).is_some_and(names_it)
}

fn made_read_only(mount: &KernelMount, target: &Path) -> Result<(), Fault> {
    let flags = mount.flags().unwrap_or(MountFlags::empty()) | MountFlags::RDONLY;
    let refused = |error| {
        let errno = errno(error);
        Fault::new(errno, format!("umount.lustre: {}: {errno}", shown_path(target)))
    };
    mount_remount(target, flags, c"").map_err(refused)
}

/// Waits until these processes have ended. One that serves another mount namespace, too, goes on there.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn wait(served: &[Pid]) -> Result<(), Fault> {
    let (begin, mut progress) = (Instant::now(), Progress::new(""));
    while let Some(pid) = served.iter().find(|pid| daemon::runs_as(**pid, "mount")) {
        if begin.elapsed() > PATIENCE {
            let pid = pid.as_raw_nonzero();
            eprintln!(
                "umount.lustre: the mount process, pid {pid}, still writes back, or another mount namespace has the mount"
            );
            return Ok(());
        }
        progress.doing(&format!("waiting for the mount process, pid {pid}, to write back"));
        std::thread::sleep(LOOK);
    }
    Ok(())
}
