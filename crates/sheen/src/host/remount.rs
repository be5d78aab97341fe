//! `mount -o remount`: the kernel changes the flags of a mount, and its process follows.
//!
//! The process looks at the kernel's table and not at what a tool sends it, so that it follows whichever program
//! changes the flags. Options of Lustre stay as they were, as Lustre's do.

use std::fs::File;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::mount::mount_remount;
use sheen_client::posix::FileSystem;
use sheen_fuse::KernelMount;
use sheen_types::Errno;

use super::mount_options::{Settings, access_times};
use sheen_tools::output::{Fault, errno, shown_path};

/// Has the mount at `target` the flags that `options` say, and those that it has where they say nothing. With
/// `fake` the kernel is not asked.
///
/// # Errors
/// As [`Settings::parse`], or what the kernel says.
pub(super) fn change(target: &Path, options: &str, fake: bool) -> Result<(), Fault> {
    let failed = |errno: Errno| {
        let text = format!("mount.lustre: remount of {} failed: {errno}", shown_path(target));
        Fault::new(errno, text)
    };
    let flags = KernelMount::newest_at(target).flags().ok_or_else(|| failed(Errno::ENOENT))?;
    let flags = Settings::changed(flags, options)?.flags;
    match fake {
        true => Ok(()),
        false => mount_remount(target, flags, c"").map_err(|error| failed(errno(error))),
    }
}

/// Follows the flags of `mount` until it is unmounted.
///
/// A thread of its own waits: what says that the table has changed is no readiness that a runtime knows.
#[expect(clippy::disallowed_methods, reason = "it waits for the kernel alone")]
pub(super) fn follow(mount: KernelMount, files: FileSystem) {
    let follows = move || {
        if let Err(error) = follow_table(&mount, &files) {
            tracing::warn!(%error, "a remount with other times of access will not be noticed");
        }
    };
    drop(std::thread::spawn(follows));
}

fn follow_table(mount: &KernelMount, files: &FileSystem) -> std::io::Result<()> {
    let table = File::open("/proc/self/mountinfo")?;
    while let Some(flags) = mount.flags() {
        files.set_access_times(access_times(flags));
        retry_on_intr(|| poll(&mut [PollFd::new(&table, PollFlags::PRI)], None))?;
    }
    Ok(())
}
