//! One object's file: what is known of it, and its descriptor.

use std::{
    ops::Range,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, Stat, fstat, statat},
    io::Errno,
};
use sheen_store::{Damage, StoreError};

use super::{DataFileId, Files, is_file, path_of, store_error, sums::Sums};

/// What is known of a file's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownSize {
    /// The file system must be asked.
    #[default]
    Nothing,
    /// There is no file: the object is empty.
    NoFile,
    /// The end of the file; the blocks unless something was written since they were read.
    Size { size: u64, blocks: Option<u64> },
}

#[derive(Debug, Default)]
pub(super) struct FileState {
    pub(super) known: KnownSize,
    /// Counts starts and ends of operations that may shrink the file. A writer that saw another
    /// number before its write than after does not know the size.
    pub(super) shrinks: u64,
    /// Written since anything shrank, without a gap: writing here again takes no new block.
    filled: Range<u64>,
    /// Bytes counted in the store's usage.
    pub(super) counted: Option<u64>,
}

/// See the module's documentation.
pub(crate) struct File {
    pub(super) name: DataFileId,
    /// Held by the operation that changes the file's bytes.
    pub(super) changes: Mutex<()>,
    pub(super) state: Mutex<FileState>,
    /// What the file must be.
    pub(super) sums: Mutex<Sums>,
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// Opened since the list of open files was swept last.
    pub(super) used: AtomicBool,
    /// Written since the last sync.
    pub(super) unsynced: AtomicBool,
    /// The file's name is known to be durable.
    pub(super) named: AtomicBool,
    /// There is no file, and there was none when it got its place in the table. Changes under the lock
    /// of the descriptor.
    has_none: AtomicBool,
    /// The object is destroyed: no file may be made any more.
    dead: AtomicBool,
}

impl File {
    pub(super) fn new(name: DataFileId, known: KnownSize) -> Self {
        Self {
            name,
            changes: Mutex::default(),
            state: Mutex::new(FileState { known, ..FileState::default() }),
            sums: Mutex::new(Sums::new(known == KnownSize::NoFile)),
            has_none: AtomicBool::new(known == KnownSize::NoFile),
            descriptor: Mutex::default(),
            used: AtomicBool::new(true),
            unsynced: AtomicBool::new(false),
            named: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        }
    }

    /// No file is made from now on; whether there may be one.
    pub(super) fn kill(&self) -> bool {
        // Under the lock that makers hold, so that none is at it afterwards.
        let mut descriptor = self.descriptor.lock();
        self.dead.store(true, Ordering::Relaxed);
        *descriptor = None;
        !self.has_none.load(Ordering::Relaxed)
    }

    /// There was no file when it got its place in the table, and none has been made.
    pub(super) fn was_never_made(&self) -> bool {
        self.has_none.load(Ordering::Relaxed)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        *self.descriptor.lock() = None;
    }

    pub(super) fn forget_unsynced(&self) {
        self.unsynced.store(false, Ordering::Release);
    }

    /// What was changed may be smaller now or not: the next caller finds out.
    pub(super) fn note_shrink(&self) {
        let mut state = self.state.lock();
        state.shrinks += 1;
        state.known = KnownSize::Nothing;
        state.filled = 0..0;
    }

    #[cfg(test)]
    pub(super) fn knows_blocks(&self) -> bool {
        matches!(self.state.lock().known, KnownSize::Size { blocks: Some(_), .. })
    }

    /// Takes the size from what was written, and that the blocks are the same if that was filled before;
    /// unless a shrink came between.
    pub(super) fn note_written(&self, written: Range<u64>, shrinks: u64) {
        let mut state = self.state.lock();
        if state.shrinks != shrinks {
            state.known = KnownSize::Nothing;
            return;
        }
        let filled = state.filled.start <= written.start && written.end <= state.filled.end;
        state.known = match state.known {
            KnownSize::Size { size, blocks } => {
                KnownSize::Size { size: size.max(written.end), blocks: blocks.filter(|_| filled) }
            }
            _ => KnownSize::Nothing,
        };
        state.filled = longer(&state.filled, &written);
    }
}

/// Both ranges if they touch, else the longer one.
fn longer(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    if one.start <= other.end && other.start <= one.end {
        return one.start.min(other.start)..one.end.max(other.end);
    }
    let is_longer = other.end - other.start > one.end - one.start;
    if is_longer { other.clone() } else { one.clone() }
}

impl Files {
    /// The descriptor; `None` if there is no file and none is to be made.
    pub(super) fn descriptor(
        &self,
        file: &Arc<File>,
        create: bool,
    ) -> Result<Option<Arc<OwnedFd>>, StoreError> {
        file.used.store(true, Ordering::Relaxed);
        let mut held = file.descriptor.lock();
        if let Some(descriptor) = &*held {
            return Ok(Some(descriptor.clone()));
        }
        if file.dead.load(Ordering::Relaxed) {
            return Err(StoreError::NoObject(file.name.0));
        }
        if file.has_none.load(Ordering::Relaxed) {
            if !create {
                return Ok(None);
            }
            // Whether or not it succeeds.
            file.has_none.store(false, Ordering::Relaxed);
        }
        let opened = self.open_path(file.name, create);
        let opened = opened.map_err(|errno| match errno {
            Errno::ISDIR | Errno::NXIO => self.damaged(file, Damage::NoFile),
            errno => store_error("open an object's file", errno),
        })?;
        let Some(opened) = opened else { return Ok(None) };
        let opened = Arc::new(opened);
        *held = Some(opened.clone());
        drop(held);
        self.note_open(file);
        Ok(Some(opened))
    }

    /// Size and 512-byte blocks; no system call once known.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for a file that is gone, or not as long as it must be.
    pub(crate) fn size(&self, file: &File) -> Result<(u64, u64), StoreError> {
        let known = |state: &FileState| match state.known {
            KnownSize::NoFile => Some((0, 0)),
            KnownSize::Size { size, blocks: Some(blocks) } => Some((size, blocks)),
            _ => None,
        };
        if let Some(known) = known(&file.state.lock()) {
            return Ok(known);
        }
        self.size_on_disk(file)
    }

    /// As [`Self::size`]; asks the host in any case: another hand may have cut the file since.
    pub(super) fn size_on_disk(&self, file: &File) -> Result<(u64, u64), StoreError> {
        self.load(file)?;
        if let Ok(length) = self.length(file)? {
            return Ok(length);
        }
        // A change may have come between.
        let _turn = file.changes.lock();
        self.length_now(file)
    }

    /// As [`Self::size`], under the lock of changes; asks the host.
    pub(super) fn length_now(&self, file: &File) -> Result<(u64, u64), StoreError> {
        self.length(file)?.map_err(|damage| self.damaged(file, damage))
    }

    /// What the host says, and whether that can be if nothing changed meanwhile.
    fn length(&self, file: &File) -> Result<Result<(u64, u64), Damage>, StoreError> {
        let (has_file, length) = {
            let sums = file.sums.lock();
            (sums.has_file, sums.length())
        };
        let mut state = file.state.lock();
        let (found, blocks) = self.ask_size(file, &mut state)?;
        let damage = match state.known {
            KnownSize::NoFile if has_file => Damage::Lost,
            _ => match length.wrong(found) {
                Some(damage) => damage,
                None => return Ok(Ok((found, blocks))),
            },
        };
        state.known = KnownSize::Nothing;
        Ok(Err(damage))
    }

    pub(super) fn ask_size(
        &self,
        file: &File,
        state: &mut FileState,
    ) -> Result<(u64, u64), StoreError> {
        // Not through `descriptor`: a stat needs no place among the open files.
        let open = file.descriptor.lock().clone();
        let stat: Result<Stat, Errno> = match open {
            Some(descriptor) => fstat(descriptor),
            None => {
                let path = path_of(file.name);
                statat(self.objects(), path, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        let (size, blocks) = match stat {
            Ok(stat) if !is_file(&stat) => return Err(self.damaged(file, Damage::NoFile)),
            Ok(stat) => (stat.st_size.cast_unsigned(), stat.st_blocks.cast_unsigned()),
            Err(Errno::NOENT) => {
                state.known = KnownSize::NoFile;
                return Ok((0, 0));
            }
            Err(errno) => return Err(store_error("stat an object's file", errno)),
        };
        state.known = KnownSize::Size { size, blocks: Some(blocks) };
        Ok((size, blocks))
    }

    /// The end of the object; blocks may be stale.
    pub(super) fn end(&self, file: &File) -> Result<u64, StoreError> {
        match self.known_end(file) {
            Some(end) => Ok(end),
            None => Ok(self.size(file)?.0),
        }
    }

    /// As [`Self::end`], under the lock of changes.
    pub(super) fn end_now(&self, file: &File) -> Result<u64, StoreError> {
        match self.known_end(file) {
            Some(end) => Ok(end),
            None => Ok(self.length_now(file)?.0),
        }
    }

    fn known_end(&self, file: &File) -> Option<u64> {
        match file.state.lock().known {
            KnownSize::NoFile => Some(0),
            KnownSize::Size { size, .. } => Some(size),
            KnownSize::Nothing => None,
        }
    }

    /// Counts what the file uses, where there is a capacity.
    pub(super) fn count_usage(&self, file: &File) -> Result<(), StoreError> {
        if !self.usage().capped() {
            return Ok(());
        }
        let mut state = file.state.lock();
        let blocks = match state.known {
            KnownSize::Size { blocks: Some(blocks), .. } => blocks,
            _ => self.ask_size(file, &mut state)?.1,
        };
        let before = state.counted.replace(blocks * 512);
        self.usage().data_changed(before.unwrap_or(0), blocks * 512);
        Ok(())
    }

    /// Before the first change of a file its bytes so far are noted as counted.
    pub(super) fn note_counted(&self, file: &File) -> Result<(), StoreError> {
        if !self.usage().capped() {
            return Ok(());
        }
        let mut state = file.state.lock();
        if state.counted.is_none() {
            let (_, blocks) = self.ask_size(file, &mut state)?;
            state.counted = Some(blocks * 512);
        }
        Ok(())
    }
}
