//! The data of objects: sparse files `objects/xx/SEQ:OID:VER.GENERATION`, made at the first write.
//!
//! Owns the table of *known files*, at most one [`File`] for each object and generation, which
//! remembers size and blocks, and a bounded number of open descriptors. The generation in the
//! name keeps the data of an object that was destroyed, but not durably, apart from that of a new
//! one of the same FID; what is left over after a crash is removed by [`Files::sweep`].
//!
//! Owner, mode and times of these files mean nothing.
//!
//! What is known of a file's bytes and length is in `checked`, `sums`, `trust` and `marks`.
//!
//! Locks: that of a file's changes, the table's shards, a file's state, a file's descriptor, what is known
//! of its bytes, the list of those that wait for a group, the epochs, that of the directories, the list of
//! open ones, the list of unsynced ones, the host's free space. They nest in this order, if at all. A
//! file's own locks are held over the system calls that change, open and stat it, so only users of that
//! file wait for those, and that of the directories over those that make them, once; reads hold none.
//!
//! Cost: a read or write is one system call on an open file, the first write one more, which makes it;
//! size and blocks cost none once known, and stay known where a write lies in what was written before
//! without a gap. The host's free space is asked for ten times a second at most, or every 16 MiB. The
//! directories are made with the first file after a start: 256 calls and one sync.

mod checked;
mod file;
mod marks;
mod sums;
mod table;
mod trust;
mod verify;

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Stat, fstat, fstatvfs, mkdirat, openat, renameat, statat,
        unlinkat,
    },
    io::Errno,
};
use sheen_store::{Damage, Integrity, StoreError};
use sheen_types::{Fid, HashMap, HashSet};

pub(crate) use checked::{EPOCHS, SumsGroup, SumsSource};
pub(crate) use file::File;
pub(crate) use trust::Machine;
use {marks::Marks, trust::Trust};

pub(crate) use crate::record::DataFileId;
use crate::{DiskError, limits, record::DataGeneration, usage::Usage};

/// Where files go whose object may have been lost.
const ASIDE: &str = "../lost+found";
/// What a directory in user space is on (`FUSE_SUPER_MAGIC`).
const FUSE: u64 = 0x6573_5546;
/// Parts of the table.
const SHARDS: usize = 16;

/// What was written and not synced.
#[derive(Default)]
struct Unsynced {
    files: HashSet<DataFileId>,
    /// There are more than [`limits::UNSYNCED_FILES_MAX`].
    overflown: bool,
}

/// Sizes of the host's file system: all, free, available to us.
pub(crate) type HostSpace = (u64, u64, u64);

/// What the host had when it was looked at last.
#[derive(Default)]
struct HostSpaceReading {
    at: Option<Instant>,
    space: HostSpace,
}

impl HostSpaceReading {
    fn is_old(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= limits::HOST_LOOK_AGE_MAX)
    }
}

/// See the module's documentation.
pub(crate) struct Files {
    objects: OwnedFd,
    /// The directories in it are all there, durably: nothing is made in one that a crash may take away.
    has_directories: Mutex<bool>,
    known: [Mutex<HashMap<DataFileId, Arc<File>>>; SHARDS],
    /// An object of this generation or a later one has no file unless the table knows it: it was made
    /// since the store was opened, and the table has not forgotten any like it.
    no_file_from: AtomicU64,
    open: Mutex<VecDeque<Weak<File>>>,
    open_max: usize,
    /// What the host's file system can hold in one file.
    bytes_max: u64,
    unsynced: Mutex<Unsynced>,
    /// Whether syncing the host's file system makes its files durable.
    syncs_whole: bool,
    usage: Arc<Usage>,
    /// Until the host's free space is looked at again.
    unchecked_bytes: AtomicU64,
    looked: Mutex<HostSpaceReading>,
    /// The directory that holds them.
    dir: PathBuf,
    /// The store is only looked at: files that [`Files::sweep`] would remove stay on disk, and count as removed.
    only_looks: bool,
    passed_over: Mutex<HashSet<DataFileId>>,
    /// The target's name.
    label: String,
    /// Where checksums lie.
    kept: Arc<dyn SumsSource>,
    trust: Trust,
    /// When all was synced.
    synced_at: Mutex<Instant>,
    marks: Marks,
    /// Files of which more is known than the database has.
    pending: Mutex<Vec<Arc<File>>>,
    /// Files that were removed because no object had them: what is kept of them goes.
    swept: Mutex<Vec<DataFileId>>,
    /// Damaged objects that the log has a line of.
    reported: Mutex<HashSet<Fid>>,
    /// Whether blocks get checksums, and theirs are compared.
    checksums: AtomicBool,
    counts: Counts,
    /// No file is changed any more. An operation that changes one holds this, so that what the database gets
    /// at last is all.
    ended: RwLock<bool>,
    /// Chunks of checksums seen since memory was last looked through.
    chunks_seen: AtomicUsize,
}

/// What was compared since the store was opened.
#[derive(Default)]
struct Counts {
    checked: AtomicU64,
    failed: AtomicU64,
    files: AtomicU64,
    unknown: AtomicU64,
}

impl Counts {
    fn count(&self, damage: &Damage) {
        if !matches!(damage, Damage::Checksum { .. }) {
            self.files.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add(&self, compared: &checked::Compared) {
        self.checked.fetch_add(compared.checked, Ordering::Relaxed);
        self.unknown.fetch_add(compared.unknown, Ordering::Relaxed);
    }

    fn add_checked(&self, checked: u64, failed: u64) {
        self.checked.fetch_add(checked, Ordering::Relaxed);
        self.fail(failed);
    }

    fn fail(&self, blocks: u64) {
        self.failed.fetch_add(blocks, Ordering::Relaxed);
    }
}

/// What [`Files::open`] is given.
pub(crate) struct FilesOptions {
    /// Objects made from now on have generations from here on.
    pub(crate) generations: DataGeneration,
    /// How many times the store was opened.
    pub(crate) openings: u64,
    /// It was not closed properly.
    pub(crate) has_crashed: bool,
    /// Which boot of the machine it is.
    pub(crate) machine: Machine,
    /// Whether blocks get checksums.
    pub(crate) checksums: bool,
    /// The target's name.
    pub(crate) label: String,
    /// The directory that holds the files.
    pub(crate) data: PathBuf,
    /// No file is made, removed or moved.
    pub(crate) only_looks: bool,
}

/// The path of an object's file below `objects/`.
fn path_of((fid, generation): DataFileId) -> String {
    let mixed = (fid.seq ^ u64::from(fid.oid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let Fid { seq, oid, ver } = fid;
    format!("{:02x}/{seq:x}:{oid:x}:{ver:x}.{generation:x}", mixed >> 56)
}

/// The reverse of [`path_of`], from the last part of a path.
pub(crate) fn parse_name(text: &str) -> Option<DataFileId> {
    let (fid, generation) = text.split_once('.')?;
    let mut parts = fid.split(':').map(|part| u64::from_str_radix(part, 16).ok());
    let (seq, oid, ver) = (parts.next()??, parts.next()??, parts.next()??);
    let fid = Fid { seq, oid: oid.try_into().ok()?, ver: ver.try_into().ok()? };
    Some((fid, u64::from_str_radix(generation, 16).ok()?))
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
    /// The files of the store in `dir`, with what the database keeps of them.
    pub(crate) fn open(
        dir: &Path,
        open_max: usize,
        usage: Arc<Usage>,
        kept: Arc<dyn SumsSource>,
        opening: FilesOptions,
    ) -> Result<Self, DiskError> {
        let path = opening.data.join("objects");
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let objects = rustix::fs::open(&path, flags, Mode::empty());
        let objects = objects.map_err(DiskError::io("open", &path))?;
        let host = rustix::fs::fstatfs(&objects).map_err(DiskError::io("look at", &path))?;
        // Linux asks no FUSE file system to sync itself.
        let syncs_whole = u64::try_from(host.f_type) != Ok(FUSE);
        let broken = crate::inspect::fault(dir);
        let epochs = kept.sums(EPOCHS).map_err(&broken)?;
        let trust = Trust::open(epochs.as_deref(), opening.machine, opening.openings, syncs_whole);
        let trust = trust.map_err(&broken)?;
        let last = Trust::last_before(opening.openings);
        let marks = Marks::open(dir, opening.has_crashed, epochs.is_some(), last)?;
        // What an earlier process wrote is in no list of ours.
        let unsynced = Unsynced { overflown: trust.has_unsynced(), ..Unsynced::default() };
        Ok(Self {
            syncs_whole,
            objects,
            has_directories: Mutex::new(false),
            known: Default::default(),
            no_file_from: AtomicU64::new(opening.generations),
            open: Mutex::default(),
            open_max: open_max.max(1),
            bytes_max: probe_bytes_max(dir)?,
            unsynced: Mutex::new(unsynced),
            usage,
            unchecked_bytes: AtomicU64::new(0),
            looked: Mutex::default(),
            dir: opening.data,
            only_looks: opening.only_looks,
            passed_over: Mutex::default(),
            label: opening.label,
            kept,
            trust,
            synced_at: Mutex::new(Instant::now()),
            marks,
            pending: Mutex::default(),
            swept: Mutex::default(),
            reported: Mutex::default(),
            checksums: AtomicBool::new(opening.checksums),
            counts: Counts::default(),
            ended: RwLock::new(false),
            chunks_seen: AtomicUsize::new(0),
        })
    }

    /// What one file can hold.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Opens a file's descriptor; `None` if there is no file and none is to be made. `NXIO` or `ISDIR` for what is no
    /// file: reading a FIFO would wait for ever.
    fn open_path(&self, name: DataFileId, create: bool) -> Result<Option<OwnedFd>, Errno> {
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
            Ok(descriptor) => match is_file(&fstat(&descriptor)?) {
                true => Ok(Some(descriptor)),
                false => Err(Errno::NXIO),
            },
            Err(Errno::NOENT) if !create => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes all directories of files, durably, unless that was done since the store was opened: one sync
    /// for all, where one for each would be most of what the first thousand files cost.
    fn make_directories(&self) -> Result<(), Errno> {
        // Held meanwhile, so that no file is made in a directory that is not durable yet.
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
    fn sync_name(&self, name: DataFileId) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = openat(&self.objects, &path_of(name)[..2], flags, Mode::empty())?;
        rustix::fs::fsync(directory)
    }

    /// Notes that a file was written, so that the next commit syncs it.
    fn note_unsynced(&self, name: DataFileId) {
        let mut unsynced = self.unsynced.lock();
        if self.syncs_whole && unsynced.files.len() >= limits::UNSYNCED_FILES_MAX {
            unsynced.overflown = true;
            return;
        }
        unsynced.files.insert(name);
    }

    /// Makes all data written so far durable; returns how many files it synced alone, none if it synced the host's
    /// file system.
    pub(crate) fn sync_all(&self) -> Result<Option<usize>, StoreError> {
        // Before the list is taken: what is noted later is of the next epoch.
        let epoch = self.trust.end();
        let synced = self.sync_listed()?;
        self.trust.ended(epoch);
        *self.synced_at.lock() = Instant::now();
        Ok(synced)
    }

    /// Whether anything was written that is not known to be durable.
    pub(crate) fn has_unsynced(&self) -> bool {
        let unsynced = self.unsynced.lock();
        unsynced.overflown || !unsynced.files.is_empty()
    }

    /// The store is about to be closed: changes under way end, and no new ones begin.
    pub(crate) fn end_changes(&self) {
        *self.ended.write() = true;
    }

    /// Before the store is closed: the next process need not sync what is synced.
    pub(crate) fn close_epoch(&self) {
        if !self.has_unsynced() {
            self.trust.close();
        }
    }

    /// How long ago all was synced, or the store opened.
    pub(crate) fn epoch_age(&self) -> std::time::Duration {
        self.synced_at.lock().elapsed()
    }

    fn sync_listed(&self) -> Result<Option<usize>, StoreError> {
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        if unsynced.overflown {
            for shard in &self.known {
                shard.lock().values().for_each(|file| file.forget_unsynced());
            }
            rustix::fs::syncfs(&self.objects).map_err(|e| store_error("sync", e))?;
            return Ok(None);
        }
        for name in &unsynced.files {
            match self.sync(&self.file(*name)) {
                // Lost by other hands: no reason to change nothing more.
                Err(StoreError::Damaged(finding)) => self.log(&finding),
                synced => synced?,
            }
        }
        Ok(Some(unsynced.files.len()))
    }

    /// Removes the files of destroyed objects.
    pub(crate) fn remove(&self, names: &[DataFileId]) {
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

    /// Puts a file of data that no object has where nothing removes it: `lost+found`, beside all objects.
    pub(crate) fn set_aside(&self, path: &str) -> Result<(), Errno> {
        match mkdirat(&self.objects, ASIDE, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        renameat(&self.objects, path, &self.objects, format!("{ASIDE}/{name}"))
    }

    /// What becomes of a file that no object has: without doubt a crash left it, and it goes; else those
    /// go that are empty.
    fn leave(&self, path: &str, is_sure: bool) -> Result<(), Errno> {
        let has_bytes = || statat(&self.objects, path, AtFlags::SYMLINK_NOFOLLOW);
        if !is_sure && has_bytes().is_ok_and(|stat| stat.st_size > 0) {
            tracing::warn!(target = %self.label, path, "no object has this file: it is in lost+found");
            return self.set_aside(path);
        }
        tracing::debug!(path, "left over by a crash: removed");
        unlinkat(&self.objects, path, AtFlags::empty())
    }

    /// Removes every file that `keep` does not know, and returns the bytes of the rest. Unless it
    /// `is_sure` that no record was lost, what has bytes is set aside instead.
    pub(crate) fn sweep(
        &self,
        is_sure: bool,
        mut keep: impl FnMut(DataFileId) -> Result<bool, StoreError>,
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
                    if let Ok(stat) = stat {
                        bytes += stat.st_blocks.cast_unsigned() * 512;
                        self.take_length(name, stat.st_size.cast_unsigned())?;
                    }
                } else {
                    match self.only_looks {
                        true => drop(self.passed_over.lock().insert(name)),
                        false => self.leave(&path, is_sure).map_err(failed)?,
                    }
                    self.swept.lock().push(name);
                }
            }
        }
        Ok(bytes)
    }

    /// After a crash: what was written after the last group made the file longer than the database says. From
    /// here on nothing else may.
    fn take_length(&self, name: DataFileId, found: u64) -> Result<(), StoreError> {
        let kept = self.kept.sums(&crate::record::name_key(name))?;
        let is_longer = kept.is_some_and(|kept| sums::is_longer(&kept, found));
        if !is_longer {
            return Ok(());
        }
        let file = self.file(name);
        self.load(&file)?;
        if !file.unsynced.swap(true, Ordering::AcqRel) {
            self.note_unsynced(name);
        }
        self.note(&file, |sums| sums.grow(found));
        Ok(())
    }

    /// What was compared since the store was opened.
    pub(crate) fn integrity(&self) -> Integrity {
        let Counts { checked, failed, files, unknown } = &self.counts;
        Integrity {
            blocks_checked: checked.load(Ordering::Relaxed),
            blocks_failed: failed.load(Ordering::Relaxed),
            files_failed: files.load(Ordering::Relaxed),
            blocks_unknown: unknown.load(Ordering::Relaxed),
        }
    }

    /// Sets whether blocks get checksums from now on.
    pub(crate) fn keep_checksums(&self, keep: bool) {
        self.checksums.store(keep, Ordering::Relaxed);
    }

    /// Reports a damage to operators. The first line about each object is of a kind that no log leaves out
    /// for being one of many.
    pub(crate) fn log(&self, finding: &sheen_store::Finding) {
        let sheen_store::Finding { object, path, damage } = finding;
        let is_first = {
            let mut reported = self.reported.lock();
            reported.len() < limits::DAMAGED_REPORTED_MAX && reported.insert(*object)
        };
        match is_first {
            true => {
                tracing::error!(target: crate::EACH_LINE, target = %self.label, %object, path,
                "{damage}")
            }
            false => tracing::error!(target = %self.label, %object, path, "{damage}"),
        }
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

    /// Asks the host, and passes the answer to the usage.
    fn look(&self, looked: &mut HostSpaceReading) -> Result<(), StoreError> {
        // Before the host counts: what is written meanwhile is counted twice, not forgotten.
        self.unchecked_bytes.store(0, Ordering::Relaxed);
        *looked = HostSpaceReading { at: Some(Instant::now()), space: self.host_space()? };
        self.usage.set_host_available(looked.space.2);
        Ok(())
    }

    /// Counts written bytes, and looks at the host's free space now and then.
    fn count_written(&self, bytes: u64) {
        let before = self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= limits::SPACE_CHECK_BYTES {
            self.check_host();
        }
    }

    /// Whether there is room; before the answer is no, the host is looked at once more, as other
    /// programs may have freed some.
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

    /// Passes on to the usage what the host has left if that was asked too long ago: other programs
    /// fill the host too, and a batch must not meet a full disk half way. One `statvfs` per
    /// [`limits::HOST_LOOK_AGE_MAX`] at most.
    pub(crate) fn look_at_host(&self) {
        if self.usage.capped() {
            return;
        }
        let mut looked = self.looked.lock();
        if looked.is_old()
            && let Err(error) = self.look(&mut looked)
        {
            tracing::debug!(%error, "the host does not report its free space");
        }
    }

    /// Passes on to the usage what the host has left.
    pub(crate) fn check_host(&self) {
        if let Err(error) = self.look(&mut self.looked.lock()) {
            tracing::debug!(%error, "the host does not report its free space");
        }
    }
}

/// The largest size that a file in `dir` can have. No call returns it, so a file without a name is
/// set to sizes until one byte more is refused: some sixty system calls, no block used.
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

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
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
    struct TestDir(std::path::PathBuf);

    impl TestDir {
        fn new(name: &str) -> Self {
            Self::below(&std::env::temp_dir(), name)
        }

        /// In memory, where a file's blocks change by calls alone: disk file systems add and remove blocks for
        /// their own records when they write back.
        fn in_memory(name: &str) -> Self {
            let memory = Path::new("/dev/shm");
            if memory.is_dir() { Self::below(memory, name) } else { Self::new(name) }
        }

        fn below(folder: &Path, name: &str) -> Self {
            let path = folder.join(format!("sheen-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("objects")).expect("a directory");
            Self(path)
        }

        fn open(&self) -> Files {
            let opening = FilesOptions {
                generations: 1,
                openings: 1,
                has_crashed: false,
                machine: None,
                checksums: true,
                label: String::new(),
                data: self.0.clone(),
                only_looks: false,
            };
            let usage = Arc::new(Usage::new(None));
            Files::open(&self.0, 4, usage, Arc::new(checked::NoSums), opening).expect("files")
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// What is kept of a file is what the host says, whatever was done to it in whatever order.
    #[test]
    fn blocks_stay_known_only_where_they_stay() {
        const BLOCK: u64 = 4096;
        let place = TestDir::in_memory("blocks");
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
                    files.write(&file, offset, &[piece], None).expect("written");
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
        let place = TestDir::new("recent");
        let files = place.open();
        let space = (30 << 20, 20 << 20, 10 << 20);
        let later = Instant::now() + std::time::Duration::from_secs(60);
        *files.looked.lock() = HostSpaceReading { at: Some(later), space };
        files.count_written(1 << 20);
        assert_eq!(files.recent_host_space(), Ok((space, 1 << 20)));
        files.count_written(limits::SPACE_CHECK_BYTES);
        let (fresh, written) = files.recent_host_space().expect("the host reports it");
        assert_eq!((fresh.0, written), (files.host_space().expect("the host reports it").0, 0));
        *files.looked.lock() =
            HostSpaceReading { at: Some(later - std::time::Duration::from_secs(120)), space };
        assert_eq!(files.recent_host_space().expect("the host reports it").0.0, fresh.0);
    }

    /// Many files are synced at once, and one that was written since is synced again.
    #[test]
    fn many_files_are_synced_together() {
        let place = TestDir::new("together");
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
                |file| files.write(file, 0, &[Bytes::from_static(b"data")], None).expect("written");
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
