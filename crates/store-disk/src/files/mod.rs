//! The data of objects: sparse files `objects/xx/SEQ:OID:VER.INCARNATION`, made at the first write.
//!
//! Owns the table of *known files*, at most one [`File`] for each object and incarnation, which
//! remembers size and blocks, and a bounded number of open descriptors. The incarnation in the
//! name keeps the data of an object that was destroyed, but not durably, apart from that of a new
//! one of the same FID; what is left over after a crash is removed by [`Files::sweep`].
//!
//! Owner, mode and times of these files mean nothing.
//!
//! Locks: the table's shards, a file's state, a file's descriptor, that of the directories, the list of
//! open ones, the list of dirty ones, the host's free space. They nest in this order, if at all. A
//! file's own locks are held over the system calls that open and stat it, so only users of that file
//! wait for those, and that of the directories over those that make them, once; reads and writes hold
//! none.
//!
//! Cost: a read or write is one system call on an open file, the first write one more, which makes it;
//! size and blocks cost none once known, and stay known where a write lies in what was written before
//! without a gap. The host's free space is asked for ten times a second at most, or every 16 MiB. The
//! directories are made with the first file after a start: 256 calls and one sync.

mod file;
mod table;

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, Mode, OFlags, fstatvfs, mkdirat, openat, statat, unlinkat},
    io::Errno,
};
use sheen_store::StoreError;
use sheen_types::{Fid, HashMap, HashSet};

pub(crate) use file::File;

pub(crate) use crate::record::Name;
use crate::{DiskError, limits, record::Incarnation, usage::Usage};

/// What a directory in user space is on (`FUSE_SUPER_MAGIC`).
const FUSE: u64 = 0x6573_5546;
/// Parts of the table.
const SHARDS: usize = 16;

/// What was written and not synced.
#[derive(Default)]
struct Dirty {
    files: HashSet<Name>,
    /// There are more than [`limits::DIRTY_FILES_MAX`].
    overflown: bool,
}

/// Sizes of the host's file system: all, free, available to us.
pub(crate) type HostSpace = (u64, u64, u64);

/// What the host had when it was looked at last.
#[derive(Default)]
struct Look {
    at: Option<Instant>,
    space: HostSpace,
}

impl Look {
    fn is_old(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= limits::HOST_LOOK_AGE_MAX)
    }
}

/// See the module's documentation.
pub(crate) struct Files {
    objects: OwnedFd,
    /// The directories in it are all there, durably: nothing is made in one that a crash may take away.
    has_directories: Mutex<bool>,
    known: [Mutex<HashMap<Name, Arc<File>>>; SHARDS],
    /// An object of this incarnation or a later one has no file unless the table knows it: it was made
    /// since the store was opened, and the table has not forgotten any like it.
    no_file_from: AtomicU64,
    open: Mutex<VecDeque<Weak<File>>>,
    open_max: usize,
    /// What the host's file system can hold in one file.
    bytes_max: u64,
    dirty: Mutex<Dirty>,
    /// Whether syncing the host's file system makes its files durable.
    syncs_whole: bool,
    usage: Arc<Usage>,
    /// Until the host's free space is looked at again.
    unchecked_bytes: AtomicU64,
    looked: Mutex<Look>,
}

/// The path of an object's file below `objects/`.
fn path_of((fid, incarnation): Name) -> String {
    let mixed = (fid.seq ^ u64::from(fid.oid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let Fid { seq, oid, ver } = fid;
    format!("{:02x}/{seq:x}:{oid:x}:{ver:x}.{incarnation:x}", mixed >> 56)
}

/// The reverse of [`path_of`], from the last part of a path.
fn parse_name(text: &str) -> Option<Name> {
    let (fid, incarnation) = text.split_once('.')?;
    let mut parts = fid.split(':').map(|part| u64::from_str_radix(part, 16).ok());
    let (seq, oid, ver) = (parts.next()??, parts.next()??, parts.next()??);
    let fid = Fid { seq, oid: oid.try_into().ok()?, ver: ver.try_into().ok()? };
    Some((fid, u64::from_str_radix(incarnation, 16).ok()?))
}

/// What an errno of a data call means to the store's users.
fn store_error(what: &str, errno: Errno) -> StoreError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => StoreError::NoSpace,
        Errno::FBIG => StoreError::TooLarge,
        _ => StoreError::Io(format!("{what}: {errno}")),
    }
}

impl Files {
    /// The files of the store in `dir`. Objects made from now on have incarnations from `incarnations`
    /// on.
    pub(crate) fn open(
        dir: &Path,
        open_max: usize,
        usage: Arc<Usage>,
        incarnations: Incarnation,
    ) -> Result<Self, DiskError> {
        let path = dir.join("objects");
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let objects = rustix::fs::open(&path, flags, Mode::empty());
        let objects = objects.map_err(DiskError::io("open", &path))?;
        let host = rustix::fs::fstatfs(&objects).map_err(DiskError::io("look at", &path))?;
        Ok(Self {
            // Linux asks no FUSE file system to sync itself.
            syncs_whole: u64::try_from(host.f_type) != Ok(FUSE),
            objects,
            has_directories: Mutex::new(false),
            known: Default::default(),
            no_file_from: AtomicU64::new(incarnations),
            open: Mutex::default(),
            open_max: open_max.max(1),
            bytes_max: probe_bytes_max(dir)?,
            dirty: Mutex::default(),
            usage,
            unchecked_bytes: AtomicU64::new(0),
            looked: Mutex::default(),
        })
    }

    /// What one file can hold.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Opens a file's descriptor; `None` if there is no file and none is to be made.
    fn open_path(&self, name: Name, create: bool) -> Result<Option<OwnedFd>, Errno> {
        let path = path_of(name);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let (flags, mode) = match create {
            true => (flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR),
            false => (flags, Mode::empty()),
        };
        if create {
            self.make_directories()?;
        }
        match openat(&self.objects, &path, flags, mode) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(Errno::NOENT) if !create => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes all directories of files, durably, unless that was done since the store was opened: one sync
    /// for all, where one for each would be most of what the first thousand files cost.
    fn make_directories(&self) -> Result<(), Errno> {
        // Held meanwhile, so that nobody makes a file in a directory that is not durable yet.
        let mut has_directories = self.has_directories.lock();
        if *has_directories {
            return Ok(());
        }
        for number in 0..=u8::MAX {
            match mkdirat(&self.objects, format!("{number:02x}"), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        rustix::fs::fsync(&self.objects)?;
        *has_directories = true;
        Ok(())
    }

    /// Makes the name of a file durable.
    fn sync_name(&self, name: Name) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = openat(&self.objects, &path_of(name)[..2], flags, Mode::empty())?;
        rustix::fs::fsync(directory)
    }

    /// Notes that a file was written, so that the next commit syncs it.
    fn note_dirty(&self, name: Name) {
        let mut dirty = self.dirty.lock();
        if self.syncs_whole && dirty.files.len() >= limits::DIRTY_FILES_MAX {
            dirty.overflown = true;
            return;
        }
        dirty.files.insert(name);
    }

    /// Makes all data written so far durable; answers how many files it synced alone, none if it synced the host's
    /// file system.
    pub(crate) fn sync_all(&self) -> Result<Option<usize>, StoreError> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        if dirty.overflown {
            for shard in &self.known {
                shard.lock().values().for_each(|file| file.forget_dirty());
            }
            rustix::fs::syncfs(&self.objects).map_err(|e| store_error("sync", e))?;
            return Ok(None);
        }
        for name in &dirty.files {
            self.sync(&self.file(*name))?;
        }
        Ok(Some(dirty.files.len()))
    }

    /// Removes the files of destroyed objects.
    pub(crate) fn remove(&self, names: &[Name]) {
        for name in names {
            // Known or not: a writer that still holds the file must not make it again.
            let file = self.file(*name);
            let had_file = file.kill();
            self.forget(*name);
            if !had_file {
                continue;
            }
            if let Err(error) = self.unlink(&path_of(*name)) {
                tracing::warn!(object = %name.0, %error, "cannot remove a destroyed object's file");
            }
        }
        self.check_host();
    }

    fn unlink(&self, path: &str) -> Result<(), Errno> {
        let counted = self.usage.capped();
        let blocks = if counted {
            match statat(&self.objects, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat.st_blocks.cast_unsigned() * 512,
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        } else {
            0
        };
        match unlinkat(&self.objects, path, AtFlags::empty()) {
            Ok(()) => self.usage.data_freed(blocks),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Removes every file that `keep` does not know, and returns the bytes of the others.
    pub(crate) fn sweep(
        &self,
        mut keep: impl FnMut(Name) -> Result<bool, StoreError>,
    ) -> Result<u64, StoreError> {
        let failed = |error: Errno| store_error("read the directory of objects", error);
        let mut bytes = 0;
        for directory in entries(&self.objects, ".").map_err(failed)? {
            for entry in entries(&self.objects, &directory).map_err(failed)? {
                let path = format!("{directory}/{entry}");
                let Some(name) = parse_name(&entry) else {
                    tracing::warn!(path, "a file that is no object's: left alone");
                    continue;
                };
                if keep(name)? {
                    let stat = statat(&self.objects, &path, AtFlags::SYMLINK_NOFOLLOW);
                    bytes += stat.map_or(0, |stat| stat.st_blocks.cast_unsigned() * 512);
                } else {
                    tracing::debug!(path, "left over by a crash: removed");
                    unlinkat(&self.objects, &path, AtFlags::empty()).map_err(failed)?;
                }
            }
        }
        Ok(bytes)
    }

    /// Asks the host.
    pub(crate) fn host_space(&self) -> Result<HostSpace, StoreError> {
        let space = fstatvfs(&self.objects).map_err(|e| store_error("statvfs", e))?;
        let unit = space.f_frsize;
        Ok((space.f_blocks * unit, space.f_bfree * unit, space.f_bavail * unit))
    }

    /// What the host had a moment ago, and the bytes written here since. No system call, but one in
    /// [`limits::HOST_LOOK_AGE_MAX`].
    pub(crate) fn recent_host_space(&self) -> Result<(HostSpace, u64), StoreError> {
        let mut looked = self.looked.lock();
        if looked.is_old() {
            self.look(&mut looked)?;
        }
        Ok((looked.space, self.unchecked_bytes.load(Ordering::Relaxed)))
    }

    /// Asks the host, and tells the usage.
    fn look(&self, looked: &mut Look) -> Result<(), StoreError> {
        // Before the host counts: what is written meanwhile is counted twice, not forgotten.
        self.unchecked_bytes.store(0, Ordering::Relaxed);
        *looked = Look { at: Some(Instant::now()), space: self.host_space()? };
        self.usage.set_host_available(looked.space.2);
        Ok(())
    }

    /// Counts written bytes, and looks at the host's free space now and then.
    fn note_written(&self, bytes: u64) {
        let before = self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= limits::SPACE_CHECK_BYTES {
            self.check_host();
        }
    }

    /// Whether there is room; before the answer is no, the host is looked at once more, as others
    /// may have freed some.
    pub(crate) fn ask_again<T>(
        &self,
        room: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match room() {
            Err(StoreError::NoSpace) if !self.usage.capped() => {
                self.check_host();
                room()
            }
            answer => answer,
        }
    }

    /// Tells the usage what the host has left if that was asked too long ago: others fill the host
    /// too, and a batch must not meet a full disk half way. One `statvfs` per
    /// [`limits::HOST_LOOK_AGE_MAX`] at most.
    pub(crate) fn look_at_host(&self) {
        if self.usage.capped() {
            return;
        }
        let mut looked = self.looked.lock();
        if looked.is_old()
            && let Err(error) = self.look(&mut looked)
        {
            tracing::debug!(%error, "the host does not tell its free space");
        }
    }

    /// Tells the usage what the host has left.
    pub(crate) fn check_host(&self) {
        if let Err(error) = self.look(&mut self.looked.lock()) {
            tracing::debug!(%error, "the host does not tell its free space");
        }
    }
}

/// The largest size that a file in `dir` can have. No call tells it, so a file without a name is set
/// to sizes until one byte more is refused: some sixty system calls, no block used.
fn probe_bytes_max(dir: &Path) -> Result<u64, DiskError> {
    let path = dir.join("size.probe");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let probe = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let probe = probe.map_err(DiskError::io("make", &path))?;
    rustix::fs::unlink(&path).map_err(DiskError::io("remove", &path))?;
    let fits = |size| rustix::fs::ftruncate(&probe, size);
    fits(1).map_err(DiskError::io("set the size of", &path))?;
    // Trying a size beyond the process's own limit would end the process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    Ok(largest(limit.unwrap_or(u64::MAX).min(i64::MAX as u64), |size| fits(size).is_ok()))
}

/// The largest number up to `max` that fits, where all below one that fits do; 1 does.
fn largest(max: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if fits(max) {
        return max;
    }
    let (mut fitting, mut too_large) = (1, max);
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        match fits(middle) {
            true => fitting = middle,
            false => too_large = middle,
        }
    }
    fitting
}

/// Names in a directory, less `.` and `..`.
fn entries(objects: &OwnedFd, path: &str) -> Result<Vec<String>, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = openat(objects, path, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_largest_size_is_found_exactly() {
        const EXT4: u64 = (1 << 44) - 4096;
        for limit in [1, 2, 4095, EXT4, i64::MAX as u64 - 1, i64::MAX as u64] {
            assert_eq!(largest(i64::MAX as u64, |size| size <= limit), limit);
        }
        assert_eq!(largest(10, |size| size <= EXT4), 10);
    }

    /// A directory of files, gone when the test ends.
    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sheen-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("objects")).expect("a directory");
            Self(path)
        }

        fn open(&self) -> Files {
            Files::open(&self.0, 4, Arc::new(Usage::new(None)), 1).expect("files")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// What is kept of a file is what the host says, whatever was done to it in whatever order.
    #[test]
    fn blocks_stay_known_only_where_they_stay() {
        const BLOCK: u64 = 4096;
        let place = Place::new("blocks");
        let files = place.open();
        let file = files.file((Fid::new(1, 1), 1));
        let mut draw = 1u64;
        let mut kept = 0;
        for step in 0..2_000 {
            draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (offset, length) = ((draw >> 60) * BLOCK, ((draw >> 56) % 4 + 1) * BLOCK);
            match (draw >> 40) % 32 {
                0 => files.punch(&file, offset, length).expect("punched"),
                1 => files.truncate(&file, offset).expect("truncated"),
                2 => files.allocate(&file, offset, length, true).expect("allocated"),
                _ => {
                    let piece = Bytes::from(vec![1; length.try_into().expect("small")]);
                    files.write(&file, offset, &[piece]).expect("written");
                }
            }
            kept += u32::from(file.knows_blocks());
            let stat = statat(&files.objects, path_of(file.name), AtFlags::empty()).expect("there");
            let host = (stat.st_size.cast_unsigned(), stat.st_blocks.cast_unsigned());
            assert_eq!(files.size(&file), Ok(host), "step {step}");
        }
        assert!(kept > 500, "asked after {kept} of 2,000 changes less");
    }

    /// What was written since the host was asked is not taken for free, and an old answer for none.
    #[test]
    fn recent_space_lacks_what_was_written() {
        let place = Place::new("recent");
        let files = place.open();
        let space = (30 << 20, 20 << 20, 10 << 20);
        let later = Instant::now() + std::time::Duration::from_secs(60);
        *files.looked.lock() = Look { at: Some(later), space };
        files.note_written(1 << 20);
        assert_eq!(files.recent_host_space(), Ok((space, 1 << 20)));
        files.note_written(limits::SPACE_CHECK_BYTES);
        let (fresh, written) = files.recent_host_space().expect("told");
        assert_eq!((fresh.0, written), (files.host_space().expect("told").0, 0));
        *files.looked.lock() =
            Look { at: Some(later - std::time::Duration::from_secs(120)), space };
        assert_eq!(files.recent_host_space().expect("told").0.0, fresh.0);
    }

    /// Many files are synced at once, and who has written to one of them since is synced again.
    #[test]
    fn many_files_are_synced_together() {
        let place = Place::new("together");
        for (whole, count, alone) in [
            (true, 64, Some(64)),
            (true, 65, None),
            (true, 1_000, None),
            // Where syncing the file system does nothing.
            (false, 1_000, Some(1_000)),
        ] {
            let files = Files { syncs_whole: whole, ..place.open() };
            let all: Vec<_> = (0..count).map(|oid| files.file((Fid::new(1, oid), 1))).collect();
            let write =
                |file| files.write(file, 0, &[Bytes::from_static(b"data")]).expect("written");
            all.iter().for_each(write);
            assert_eq!(files.sync_all(), Ok(alone), "{count} files");
            assert_eq!(files.sync_all(), Ok(Some(0)));
            write(&all[3]);
            assert_eq!(files.sync_all(), Ok(Some(1)));
        }
    }

    #[test]
    fn names_are_read_back() {
        let name = (Fid { seq: 0x2_0000_0400, oid: u32::MAX, ver: 7 }, u64::MAX);
        let path = path_of(name);
        assert_eq!(parse_name(&path[3..]), Some(name));
        for bad in ["", "1:2:3", "1:2.3", "x:1:1.1", "1:fffffffff:1.1"] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }
}
