//! What a benchmark asks of a file system.
//!
//! A [`Backend`] is a file system; each rank gets a [`Worker`] of its own from it, so that nothing is
//! shared, and no lock taken, between ranks on the way to the file system. Paths are text: benchmarks
//! make their own names. An operation answers the errno of the system call of its name.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sheen_types::Errno;

/// Bytes to which buffers are aligned: what `O_DIRECT` asks for on every file system.
pub const ALIGNMENT: usize = 4096;

/// A file system.
pub trait Backend: Send + Sync {
    /// What results call it: `POSIX`, `NATIVE`.
    fn name(&self) -> &'static str;

    /// How many independent clients of the file system `size` ranks have, each rank being a process or
    /// not: what nodes are to MPI benchmarks. Ranks are dealt to them in blocks.
    fn nodes(&self, size: usize, processes: bool) -> usize;

    /// The way in for one of `size` ranks.
    ///
    /// # Errors
    /// Why there is none, in a line.
    fn worker(&self, rank: usize, size: usize) -> Result<Box<dyn Worker>, String>;
}

/// An open file of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File(pub usize);

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// To read what is there.
    Read,
    /// To write and read what is there.
    ReadWrite,
    /// To write and read, made if it is absent, with mode 0664.
    Create,
}

/// What `stat` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Last change of data: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// What `statfs` returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the file system.
    pub bytes: u64,
    /// Free ones.
    pub bytes_free: u64,
    /// Inodes.
    pub files: u64,
    /// Free ones.
    pub files_free: u64,
}

/// One rank's way to the file system. Every call waits until it is done.
pub trait Worker: Send {
    /// Opens a file.
    ///
    /// # Errors
    /// As `open(2)`.
    fn open(&mut self, path: &str, how: Open) -> Result<File, Errno>;

    /// Writes `data` at `offset`; answers how many bytes were taken.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    fn write_at(&mut self, file: File, offset: u64, data: &[u8]) -> Result<usize, Errno>;

    /// Reads at `offset`; 0 is the end of the file.
    ///
    /// # Errors
    /// As `pread(2)`.
    fn read_at(&mut self, file: File, offset: u64, into: &mut [u8]) -> Result<usize, Errno>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// As `fsync(2)`.
    fn fsync(&mut self, file: File) -> Result<(), Errno>;

    /// Closes; the handle is gone, whatever the answer.
    ///
    /// # Errors
    /// As `close(2)`.
    fn close(&mut self, file: File) -> Result<(), Errno>;

    /// What stands at `path`.
    ///
    /// # Errors
    /// As `stat(2)`.
    fn stat(&mut self, path: &str) -> Result<Stat, Errno>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// As `unlink(2)`.
    fn unlink(&mut self, path: &str) -> Result<(), Errno>;

    /// Makes a directory.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    fn mkdir(&mut self, path: &str) -> Result<(), Errno>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    fn rmdir(&mut self, path: &str) -> Result<(), Errno>;

    /// Reports every name in a directory but `.` and `..`, and whether it is a directory.
    ///
    /// # Errors
    /// As `getdents(2)`.
    fn readdir(&mut self, path: &str, each: &mut dyn FnMut(&str, bool)) -> Result<(), Errno>;

    /// Gives what stands at `from` the name `to`.
    ///
    /// # Errors
    /// As `rename(2)`.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno>;

    /// Sets a file's size.
    ///
    /// # Errors
    /// As `truncate(2)`.
    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Errno>;

    /// The space of the file system that `path`, or if it is absent its directory, lies on.
    ///
    /// # Errors
    /// As `statfs(2)`.
    fn statfs(&mut self, path: &str) -> Result<Space, Errno>;

    /// Makes everything durable that this node has changed in the file system of `path`.
    ///
    /// # Errors
    /// As `syncfs(2)`.
    fn sync(&mut self, path: &str) -> Result<(), Errno>;
}

/// One backend of several owners.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<dyn Backend>);

impl Backend for Shared {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn nodes(&self, size: usize, processes: bool) -> usize {
        self.0.nodes(size, processes)
    }

    fn worker(&self, rank: usize, size: usize) -> Result<Box<dyn Worker>, String> {
        self.0.worker(rank, size)
    }
}

/// Makes the directory `path` and those on the way to it, as far as they are not there; answers which it made,
/// the highest first.
///
/// # Errors
/// As `mkdir(2)`.
pub fn make_all(worker: &mut dyn Worker, path: &str) -> Result<Vec<String>, Errno> {
    match worker.mkdir(path) {
        Ok(()) => Ok(vec![path.to_owned()]),
        Err(Errno::ENOENT) => {
            let above = parent(path);
            if above == path || above == "." {
                return Err(Errno::ENOENT);
            }
            let mut made = make_all(worker, above)?;
            worker.mkdir(path)?;
            made.push(path.to_owned());
            Ok(made)
        }
        Err(errno) => match worker.stat(path) {
            Ok(stat) if stat.is_directory => Ok(Vec::new()),
            _ => Err(errno),
        },
    }
}

/// Removes `path` and all below it. What is not there is no failure.
///
/// # Errors
/// The first that was met; it goes on with the rest.
pub fn remove_all(worker: &mut dyn Worker, path: &str) -> Result<(), Errno> {
    let is_directory = match worker.stat(path) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno),
        Ok(stat) => stat.is_directory,
    };
    if !is_directory {
        return worker.unlink(path);
    }
    let mut names = Vec::new();
    worker.readdir(path, &mut |name, is_directory| names.push((name.to_owned(), is_directory)))?;
    let mut first = Ok(());
    for (name, is_directory) in names {
        let path = format!("{path}/{name}");
        let removed = match is_directory {
            true => remove_all(worker, &path),
            false => worker.unlink(&path),
        };
        first = first.and(removed);
    }
    first.and_then(|()| worker.rmdir(path))
}

/// Room for `count` values. What is asked of a benchmark may be more than the machine has, which is for the
/// user to hear and no bug.
///
/// # Errors
/// The line for the user.
pub fn room<T>(count: u64) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    let reserved = usize::try_from(count).is_ok_and(|count| all.try_reserve_exact(count).is_ok());
    let bytes = u128::from(count) * size_of::<T>() as u128;
    if reserved { Ok(all) } else { Err(format!("not enough memory for {bytes} bytes")) }
}

/// Memory that begins at a multiple of [`ALIGNMENT`]. Allocated once and zeroed.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// `length` bytes of zeros.
    ///
    /// # Errors
    /// The line for the user, of [`room`].
    pub fn new(length: u64) -> Result<Self, String> {
        let mut memory = room(length.saturating_add(ALIGNMENT as u64))?;
        memory.resize(memory.capacity(), 0);
        let address = memory.as_ptr().addr();
        let start = address.next_multiple_of(ALIGNMENT) - address;
        // No more than there is room for.
        Ok(Self { start, memory, length: length as usize })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// The directory of `path`.
pub(crate) fn parent(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        None => ".",
        Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        for length in [0, 1, 4096, 47_008] {
            let mut buffer = Buffer::new(length).unwrap();
            assert_eq!((buffer.as_ptr().addr() % ALIGNMENT, buffer.len() as u64), (0, length));
            buffer.fill(7);
        }
        for length in [1 << 50, u64::MAX] {
            let line = Buffer::new(length).expect_err("a petabyte");
            assert!(line.starts_with("not enough memory for "), "{line}");
        }
    }
}
