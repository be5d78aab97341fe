//! Which mount is ours, among all that are, were and come to be at its path.
//!
//! A path is no name for a mount: another file system may be mounted over it or in its place, and a user
//! who may rename a directory above it has it lead elsewhere. The number of the device that the kernel made for the
//! mount is one, for as long as it is mounted: then the kernel gives it to the next mount. So what is unmounted is first
//! looked for by that number, and looked at where it is found; and the number alone says which mount it is only while
//! the connection of its process to the kernel lives ([`Marks`]).

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use sheen_types::Nid;

use crate::mount_table::{KIND, mounts, shown_path, table_of};

/// A mount as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMount {
    path: PathBuf,
    marks: Marks,
    /// Its process has a connection to the kernel that lives: no other mount has its device.
    is_connected: bool,
}

/// By what a mount is known, beside its path; what an older version or kernel did not say is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `MAJOR:MINOR` of its device, which other mounts get when it is gone.
    pub device: Option<String>,
    /// Its source as `mountinfo` has it.
    pub source: Option<String>,
    /// Its number that no other mount ever gets (Linux 6.8); a copy of it made by `mount --bind` has one of its own.
    pub id: Option<u64>,
}

/// `STATX_MNT_ID_UNIQUE`.
const UNIQUE_ID: StatxFlags = StatxFlags::from_bits_retain(0x4000);

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
                let path = shown_path(path);
                write!(out, "{path} is in use: a program works in it; end it and try again")
            }
            Self::Covered(path) => {
                let path = shown_path(path);
                write!(
                    out,
                    "{path}: another file system is mounted over the mount; unmount that first"
                )
            }
            Self::Failed(path, error) => write!(out, "{}: {error}", shown_path(path)),
        }
    }
}

/// The kernel's table, of our kind of mounts alone: numbers of devices are used again.
fn table() -> String {
    ours(&table_of("self"))
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

    /// A mount that was made at `path`, whose process is known to be connected.
    #[must_use]
    pub fn new(path: &Path, device: Option<String>) -> Self {
        Self::marked(path, Marks { device, ..Marks::default() }, true)
    }

    /// A mount that was made at `path` with these marks. Of one whose process is not connected another mount may have
    /// the device: then it is only one that has its number, or where that is not known, one at its path.
    #[must_use]
    pub fn marked(path: &Path, marks: Marks, is_connected: bool) -> Self {
        Self { path: path.to_owned(), marks, is_connected }
    }

    /// By what it is known from now on; it is mounted here.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let table = table();
        let Some((device, point)) = self.found_in(&table, unique_id) else {
            return Marks::default();
        };
        let line = table
            .lines()
            .rfind(|line| mounts(line).any(|(known, at)| known == device && at == point));
        let source = line.and_then(source_of).map(str::to_owned);
        Marks { id: unique_id(&device, &point), device: Some(device), source }
    }

    /// Where it was mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is mounted now in this process's namespace; asks no file system.
    #[must_use]
    pub fn found(&self) -> Option<PathBuf> {
        self.found_in(&table(), unique_id).map(|(_, point)| point)
    }

    /// Whether it is in `mountinfo`, that of a process.
    #[must_use]
    pub fn is_in(&self, mountinfo: &str) -> bool {
        // In another namespace its number is another one.
        self.is_connected && self.found_in(&ours(mountinfo), |_, _| None).is_some()
    }

    /// Whether `path` (canonical) leads to it: it is mounted there, and nothing over it.
    #[must_use]
    pub fn is_seen_at(&self, path: &Path) -> bool {
        let table = table();
        let Some((device, found)) = self.found_in(&table, unique_id) else { return false };
        let is_there = found == path
            || self.is_connected && self.points(&table, &device).iter().any(|at| at == path);
        is_there && look(&device, path).is_ok_and(|seen| seen.is_some())
    }

    /// The flags that it has now, which `mount -o remount` changes; `None` if it is not mounted here.
    #[must_use]
    pub fn flags(&self) -> Option<MountFlags> {
        let table = table();
        let (device, point) = self.found_in(&table, unique_id)?;
        let line = table
            .lines()
            .rfind(|line| mounts(line).any(|(known, at)| known == device && at == point))?;
        Some(flags_of(line))
    }

    /// The mount's device, if that is its own: its process is connected. It may be mounted nowhere here.
    #[must_use]
    pub fn live_device(&self) -> Option<&str> {
        self.marks.device.as_deref().filter(|_| self.is_connected)
    }

    /// The number of its FUSE connection, if it is mounted here or its process is connected.
    pub(crate) fn minor(&self) -> Option<String> {
        let found = self.found_in(&table(), unique_id).map(|(device, _)| device);
        let device = found.or_else(|| self.live_device().map(str::to_owned))?;
        Some(device.split_once(':')?.1.to_owned())
    }

    /// The device and the mount point. Of several the one where it was mounted first. `id_at` says which number the
    /// mount of a device at a path has.
    fn found_in(
        &self,
        table: &str,
        id_at: impl Fn(&str, &Path) -> Option<u64>,
    ) -> Option<(String, PathBuf)> {
        let device = self.marks.device.clone().or_else(|| newest_at(table, &self.path))?;
        let mut points = self.points(table, &device);
        // Where it was mounted comes first.
        points.sort_by_key(|point| *point != self.path);
        let point = match self.is_connected {
            true => points.into_iter().next(),
            false => self.confirmed_point(points, |point| id_at(&device, point)),
        };
        point.map(|point| (device, point))
    }

    /// The one of `points` that is certainly this mount, though the device may be another mount's by now.
    fn confirmed_point(
        &self,
        points: Vec<PathBuf>,
        id_at: impl Fn(&Path) -> Option<u64>,
    ) -> Option<PathBuf> {
        let with_id = |point: PathBuf| (self.marks.id.and_then(|_| id_at(&point)), point);
        let points: Vec<_> = points.into_iter().map(with_id).collect();
        let has_its = |(id, _): &&(Option<u64>, PathBuf)| id.is_some() && *id == self.marks.id;
        let may_be = |(id, point): &&(Option<u64>, PathBuf)| id.is_none() && *point == self.path;
        let found = points.iter().find(has_its).or_else(|| points.iter().find(may_be));
        found.map(|(_, point)| point.clone())
    }

    /// Where something of its device and its source is mounted.
    fn points(&self, table: &str, device: &str) -> Vec<PathBuf> {
        let source = self.marks.source.as_deref();
        let lines = table.lines().filter(|line| source.is_none() || source_of(line) == source);
        let found = lines.flat_map(mounts).filter(|(known, _)| *known == device);
        found.map(|(_, point)| point).collect()
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

    /// As [`Self::detach`], of a mount whose process is dead: another mount may have its device's number by now.
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
        let Some((device, point)) = self.found_in(&table(), unique_id) else { return Ok(()) };
        let failed = |error: io::Error| UnmountError::Failed(point.clone(), error);
        let (above, _) = look(&device, &point)
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

/// The number of the mount of `device` that is seen at `point`.
fn unique_id(device: &str, point: &Path) -> Option<u64> {
    look(device, point).ok().flatten().and_then(|(_, id)| id)
}

/// The directory in which `point` is, if that is the mount of `device`, and the number of this mount. Follows no link,
/// and asks no file system that is mounted there.
fn look(device: &str, point: &Path) -> Result<Option<(OwnedFd, Option<u64>)>, Errno> {
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
    let found = rustix::fs::statx(&above, name, flags, UNIQUE_ID)?;
    let is_it = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor) == device;
    let is_unique = found.stx_mask & UNIQUE_ID.bits() != 0;
    Ok(is_it.then_some((above, is_unique.then_some(found.stx_mnt_id))))
}

/// The source in a line of `mountinfo`.
fn source_of(line: &str) -> Option<&str> {
    line.split_once(" - ")?.1.split(' ').nth(1)
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
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

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
    fn a_place_that_is_shown_commands_no_terminal() {
        let place = || Path::new("/mnt/\x1b[2J\n").to_owned();
        let failed = UnmountError::Failed(place(), io::ErrorKind::NotFound.into());
        for why in [UnmountError::Busy(place()), UnmountError::Covered(place()), failed] {
            let text = why.to_string();
            assert!(text.starts_with("/mnt/\\033[2J\\012"), "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn a_mount_is_found_by_its_device_wherever_it_is() {
        let found = |path: &str, device: Option<&str>| {
            let mount = KernelMount::new(Path::new(path), device.map(str::to_owned));
            mount
                .found_in(&ours(TABLE), |_, _| None)
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

    /// Any user may mount at such a place, and nothing was found by a process that could not read the table for that.
    #[test]
    fn a_mount_point_of_any_bytes_is_one_and_hides_no_other_mount() {
        let line = b"45 22 0:39 / /mnt/\xff\\134 rw - fuse.sheen 10.0.0.1@tcp:/odd rw\n";
        let table = sheen_types::text::with_octal(&[TABLE.as_bytes(), line].concat());
        let found = |path: &[u8]| {
            let path = Path::new(OsStr::from_bytes(path));
            KernelMount::new(path, None).found_in(&ours(&table), |_, _| None)
        };
        let odd = PathBuf::from(OsStr::from_bytes(b"/mnt/\xff\\"));
        assert_eq!(found(b"/mnt/\xff\\"), Some(("0:39".to_owned(), odd)));
        assert_eq!(found(b"/copy"), Some(("0:35".to_owned(), "/copy".into())));
    }

    /// Where a mount is found that was made at `/mnt/my files` of device 0:35, where the mounts of this have these
    /// numbers.
    fn found_of(
        source: &str,
        id: Option<u64>,
        is_connected: bool,
        ids: [Option<u64>; 2],
    ) -> Option<PathBuf> {
        let (device, source) = (Some("0:35".to_owned()), Some(source.to_owned()));
        let path = Path::new("/mnt/my files");
        let mount = KernelMount::marked(path, Marks { device, source, id }, is_connected);
        let id_at = |_: &str, point: &Path| ids[usize::from(point != path)];
        mount.found_in(&ours(TABLE), id_at).map(|(_, point)| point)
    }

    #[test]
    fn a_mount_that_got_the_device_of_one_that_is_gone_is_not_taken_for_it() {
        let (own, copy) = (Some(PathBuf::from("/mnt/my files")), Some(PathBuf::from("/copy")));
        let one = "10.0.0.1@tcp:/one";
        for is_connected in [false, true] {
            let of_another = found_of("10.0.0.1@tcp:/other", None, is_connected, [None; 2]);
            assert_eq!(of_another, None, "of another file system");
        }
        let ids = [Some(7), Some(8)];
        assert_eq!(found_of(one, Some(5), false, ids), None, "both came later");
        assert_eq!(found_of(one, Some(5), true, ids), own, "its device is its own");
        assert_eq!(found_of(one, Some(7), false, ids), own);
        assert_eq!(found_of(one, Some(8), false, ids), copy, "moved");
        assert_eq!(found_of(one, Some(5), false, [None, Some(8)]), own, "covered");
        assert_eq!(found_of(one, Some(5), false, [Some(7), None]), None, "at another path");
        assert_eq!(found_of(one, None, false, ids), own, "an older kernel");
    }

    #[test]
    fn a_mount_at_another_path_is_none_whose_process_is_gone() {
        let found = |is_connected| {
            let marks = Marks { device: Some("0:36".to_owned()), ..Marks::default() };
            let mount = KernelMount::marked(Path::new("/mnt/other"), marks, is_connected);
            mount.found_in(&ours(TABLE), |_, _| None).map(|(_, point)| point)
        };
        assert_eq!(found(false), None);
        assert_eq!(found(true), Some(PathBuf::from("/mnt/my files")), "moved");
    }

    #[test]
    fn a_mount_has_a_number_where_the_kernel_gives_one() {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a table");
        let device_of = |path: &str| newest_at(&table, Path::new(path)).expect("mounted");
        let id = |path: &str| unique_id(&device_of(path), Path::new(path));
        // Of a kernel without them both are unknown.
        assert!(id("/proc").is_none() || id("/proc") != id("/dev"), "{:?}", id("/proc"));
        assert_eq!(id("/proc"), id("/proc"));
    }

    #[test]
    fn a_mount_of_our_type_may_name_its_servers_by_names() {
        let line = "45 22 0:40 / /mnt/named rw - fuse.lustre server1:server2:/fs rw\n";
        let mount = KernelMount::new(Path::new("/mnt/named"), None);
        assert_eq!(
            mount.found_in(&ours(line), |_, _| None).map(|(device, _)| device).as_deref(),
            Some("0:40")
        );
        assert_eq!(mount.found_in(&ours(&line.replace("lustre", "sshfs")), |_, _| None), None);
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
