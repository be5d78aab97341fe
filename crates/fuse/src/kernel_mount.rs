//! Which mount is ours, among all that are, were and come to be at its path.
//!
//! A path is no name for a mount: another file system may be mounted over it or in its place, and a user
//! who may rename a directory above it has it lead elsewhere. The number of the device that the kernel made for the
//! mount is one, for as long as it is mounted or its process serves it. So what is unmounted is first looked
//! for by that number, and looked at where it is found.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use sheen_types::Nid;

use crate::mount::{KIND, mounts};

/// A mount as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMount {
    path: PathBuf,
    /// `MAJOR:MINOR`; not known of what an older version mounted.
    device: Option<String>,
}

/// The kernel's names of its flags.
const FLAGS: [(&str, MountFlags); 10] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("lazytime", MountFlags::LAZYTIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
];

/// Why a mount stays.
#[derive(Debug)]
pub enum UnmountError {
    /// Programs use it.
    Busy(PathBuf),
    /// Something else is mounted over it, or is at its path by now.
    Covered(PathBuf),
    /// What the kernel or `fusermount3` says.
    Failed(PathBuf, io::Error),
}

impl fmt::Display for UnmountError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(path) => {
                let path = path.display();
                write!(out, "{path} is in use: a program works in it; end it and try again")
            }
            Self::Covered(path) => {
                let path = path.display();
                write!(
                    out,
                    "{path}: another file system is mounted over the mount; unmount that first"
                )
            }
            Self::Failed(path, error) => write!(out, "{}: {error}", path.display()),
        }
    }
}

/// The kernel's table, of our kind of mounts alone: numbers of devices are used again.
fn table() -> String {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    ours(&table)
}

fn ours(mountinfo: &str) -> String {
    let is_ours = |line: &&str| {
        let Some((_, made)) = line.split_once(" - ") else { return false };
        let mut words = made.split(' ');
        let (kind, source) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let nid = source.split_once(":/").and_then(|(nids, _)| nids.split([',', ':']).next());
        // Older versions had other types; the source is what a user says, with names of hosts perhaps.
        kind == KIND
            || kind.starts_with("fuse") && nid.is_some_and(|nid| nid.parse::<Nid>().is_ok())
    };
    mountinfo.lines().filter(is_ours).map(|line| format!("{line}\n")).collect()
}

impl KernelMount {
    /// The mount at `path` (canonical), as the newest there.
    #[must_use]
    pub fn newest_at(path: &Path) -> Self {
        Self::new(path, newest_at(&table(), path))
    }

    /// A mount that was made at `path`, as [`KernelMount::device`] said of it.
    #[must_use]
    pub fn new(path: &Path, device: Option<String>) -> Self {
        Self { path: path.to_owned(), device }
    }

    /// Where it was mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `MAJOR:MINOR` of its device.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Where it is mounted now in this process's namespace; asks no file system.
    #[must_use]
    pub fn found(&self) -> Option<PathBuf> {
        self.found_in(&table()).map(|(_, point)| point)
    }

    /// Whether it is in `mountinfo`, that of a process.
    #[must_use]
    pub fn is_in(&self, mountinfo: &str) -> bool {
        self.found_in(&ours(mountinfo)).is_some()
    }

    /// Whether `path` (canonical) leads to it: it is mounted there, and nothing over it.
    #[must_use]
    pub fn is_seen_at(&self, path: &Path) -> bool {
        let table = table();
        let Some(device) = self.device.clone().or_else(|| newest_at(&table, &self.path)) else {
            return false;
        };
        let mut points = mounts(&table).filter(|(known, _)| *known == device);
        points.any(|(_, point)| point == path)
            && look(&device, path).is_ok_and(|above| above.is_some())
    }

    /// The flags that it has now, which `mount -o remount` changes; `None` if it is not mounted here.
    #[must_use]
    pub fn flags(&self) -> Option<MountFlags> {
        let table = table();
        let (device, point) = self.found_in(&table)?;
        let line = table
            .lines()
            .rfind(|line| mounts(line).any(|(known, at)| known == device && at == point))?;
        Some(flags_of(line))
    }

    /// The number of its FUSE connection, if it is mounted here.
    pub(crate) fn minor(&self) -> Option<String> {
        let (device, _) = self.found_in(&table())?;
        Some(device.split_once(':')?.1.to_owned())
    }

    /// The device and the mount point. Of several the one where it was mounted first.
    fn found_in(&self, table: &str) -> Option<(String, PathBuf)> {
        let device = self.device.clone().or_else(|| newest_at(table, &self.path))?;
        let points = || mounts(table).filter(|(known, _)| *known == device).map(|(_, point)| point);
        let point = points().find(|point| *point == self.path).or_else(|| points().next());
        point.map(|point| (device, point))
    }

    /// Unmounts it; `Ok` if it is not mounted.
    ///
    /// # Errors
    /// See [`UnmountError`].
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.end(UnmountFlags::empty(), "-u")
    }

    /// Takes it away from its path, even if it is in use.
    ///
    /// # Errors
    /// See [`UnmountError`].
    pub fn detach(&self) -> Result<(), UnmountError> {
        self.end(UnmountFlags::DETACH, "-uz")
    }

    /// The same of one whose process is dead: another mount may have its device's number by now.
    ///
    /// # Errors
    /// See [`UnmountError`].
    pub fn detach_dead(&self) -> Result<(), UnmountError> {
        match self.found() {
            Some(point) if point == self.path => self.detach(),
            _ => Ok(()),
        }
    }

    fn end(&self, flags: UnmountFlags, helper: &str) -> Result<(), UnmountError> {
        let Some((device, point)) = self.found_in(&table()) else { return Ok(()) };
        let failed = |error: io::Error| UnmountError::Failed(point.clone(), error);
        let above = look(&device, &point)
            .map_err(|error| failed(error.into()))?
            .ok_or_else(|| UnmountError::Covered(point.clone()))?;
        if !rustix::process::geteuid().is_root() {
            return by_helper(helper, &point);
        }
        // By its directory as it was looked at: a mount point cannot be renamed.
        let name = point.file_name().unwrap_or_default();
        let path = Path::new("/proc/self/fd").join(above.as_raw_fd().to_string()).join(name);
        match rustix::mount::unmount(&path, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(Errno::BUSY) => Err(UnmountError::Busy(point)),
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// The directory in which `point` is, if that is the mount of `device`. Follows no link, and asks no file
/// system that is mounted there.
fn look(device: &str, point: &Path) -> Result<Option<OwnedFd>, Errno> {
    let (Some(above), Some(name)) = (point.parent(), point.file_name()) else {
        return Err(Errno::INVAL);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, above, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let above = match opened {
        // The path leads to another mount by now.
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        opened => opened?,
    };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(&above, name, flags, StatxFlags::empty())?;
    let is_it = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor) == device;
    Ok(is_it.then_some(above))
}

/// The flags in a line of `mountinfo`: those of the mount are its sixth word, those of the file system the last.
fn flags_of(line: &str) -> MountFlags {
    let of_mount = line.split(' ').nth(5).unwrap_or_default();
    let of_device = line.rsplit(' ').next().unwrap_or_default();
    let words = of_mount.split(',').chain(of_device.split(','));
    let known = words.filter_map(|word| FLAGS.iter().find(|(name, _)| *name == word));
    let flags = known.fold(MountFlags::empty(), |all, (_, flag)| all | *flag);
    match flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
        true => flags,
        // It is shown by what is not shown.
        false => flags | MountFlags::STRICTATIME,
    }
}

fn by_helper(option: &str, point: &Path) -> Result<(), UnmountError> {
    let failed = |error| UnmountError::Failed(point.to_owned(), error);
    let done = Command::new("fusermount3").arg(option).arg(point).output().map_err(failed)?;
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(UnmountError::Busy(point.to_owned())),
        false => Err(failed(io::Error::other(said.trim().to_owned()))),
    }
}

/// The device, `MAJOR:MINOR`, of the newest mount at `path` in a table like `/proc/self/mountinfo`.
pub(crate) fn newest_at(mountinfo: &str, path: &Path) -> Option<String> {
    let found = mounts(mountinfo).filter(|(_, point)| point == path).last();
    found.map(|(device, _)| device.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
40 22 0:35 / /mnt/my\\040files rw - fuse.sheen 10.0.0.1@tcp:/one rw
41 22 0:36 / /mnt/my\\040files rw - fuse 10.0.0.1@tcp:/two rw
42 22 0:37 / /mnt/other rw - tmpfs none rw
43 22 0:35 / /copy rw - fuse.sheen 10.0.0.1@tcp:/one rw
44 22 0:38 / /mnt/other rw - fuse.sshfs me@host:/home rw
";

    #[test]
    fn a_mount_is_found_by_its_device_wherever_it_is() {
        let found = |path: &str, device: Option<&str>| {
            let mount = KernelMount::new(Path::new(path), device.map(str::to_owned));
            mount
                .found_in(&ours(TABLE))
                .map(|(device, point)| (device, point.display().to_string()))
        };
        let at = |device: &str, point: &str| Some((device.to_owned(), point.to_owned()));
        assert_eq!(found("/mnt/my files", None), at("0:36", "/mnt/my files"), "the newest");
        assert_eq!(found("/mnt/my files", Some("0:35")), at("0:35", "/mnt/my files"));
        assert_eq!(found("/mnt/other", Some("0:36")), at("0:36", "/mnt/my files"), "moved");
        assert_eq!(found("/mnt/other", Some("0:99")), None, "another is there");
        assert_eq!(found("/mnt/other", Some("0:37")), None, "of another kind");
        assert_eq!(found("/mnt/other", None), None);
        assert_eq!(found("/mnt", None), None);
    }

    #[test]
    fn a_mount_of_our_type_may_name_its_servers_by_names() {
        let line = "45 22 0:40 / /mnt/named rw - fuse.lustre server1:server2:/fs rw\n";
        let mount = KernelMount::new(Path::new("/mnt/named"), None);
        assert_eq!(mount.found_in(&ours(line)).map(|(device, _)| device).as_deref(), Some("0:40"));
        assert_eq!(mount.found_in(&ours(&line.replace("lustre", "sshfs"))), None);
    }

    #[test]
    fn flags_are_read_as_the_kernel_shows_them() {
        let flags = |of_mount: &str, of_device: &str| {
            flags_of(&format!("45 22 0:40 / /m {of_mount} shared:1 - fuse.lustre a:/b {of_device}"))
        };
        let secure = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(
            flags("rw,nosuid,nodev,relatime", "rw,sync,user_id=0"),
            secure | MountFlags::RELATIME | MountFlags::SYNCHRONOUS
        );
        assert_eq!(
            flags("ro,nodiratime", "rw"),
            MountFlags::RDONLY | MountFlags::NODIRATIME | MountFlags::STRICTATIME
        );
        assert_eq!(
            flags("rw,noatime,noexec", "ro"),
            MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NOEXEC
        );
    }

    #[test]
    fn what_is_no_mount_of_that_device_is_not_touched() {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a table");
        let mut proc = mounts(&table).filter(|(_, point)| point == Path::new("/proc"));
        let device = proc.next().expect("/proc is mounted").0.to_owned();
        assert!(look(&device, Path::new("/proc")).expect("looked").is_some());
        assert!(look("0:999999", Path::new("/proc")).expect("looked").is_none());
        assert!(look(&device, Path::new("/proc/self/fd")).expect("looked").is_none(), "a link");
        assert!(look(&device, Path::new("/no-such-folder/x")).expect("looked").is_none());
    }
}
