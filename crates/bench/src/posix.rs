//! Any directory of any file system, through system calls.
//!
//! One system call for each operation. Paths below 256 bytes are copied to the stack and allocate nothing;
//! descriptors stand in a table that grows once.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use sheen_types::Errno;

use crate::backend::{Backend, File, Open, Space, Stat, Worker, parent};

/// Modes of what benchmarks make: those of mdtest and IOR.
const FILE_MODE: Mode = Mode::from_raw_mode(0o664);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o775);

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posix {
    /// Open files with `O_DIRECT`.
    pub direct: bool,
}

impl Backend for Posix {
    fn name(&self) -> &'static str {
        "POSIX"
    }

    fn nodes(&self, _size: usize, _processes: bool) -> usize {
        1
    }

    fn worker(&self, _rank: usize, _size: usize) -> Result<Box<dyn Worker>, String> {
        Ok(Box::new(PosixWorker { direct: self.direct, files: Vec::new() }))
    }
}

struct PosixWorker {
    direct: bool,
    files: Vec<Option<OwnedFd>>,
}

impl PosixWorker {
    fn keep(&mut self, descriptor: OwnedFd) -> File {
        let free = self.files.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.files.push(None);
            self.files.len() - 1
        });
        self.files[number] = Some(descriptor);
        File(number)
    }

    fn file(&self, file: File) -> Result<&OwnedFd, Errno> {
        self.files.get(file.0).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }
}

impl Worker for PosixWorker {
    fn open(&mut self, path: &str, how: Open) -> Result<File, Errno> {
        let mut flags = OFlags::CLOEXEC
            | match how {
                Open::Read => OFlags::RDONLY,
                Open::ReadWrite => OFlags::RDWR,
                Open::Create => OFlags::RDWR | OFlags::CREATE,
            };
        flags.set(OFlags::DIRECT, self.direct);
        let opened = rustix::fs::open(path, flags, FILE_MODE).map_err(errno)?;
        Ok(self.keep(opened))
    }

    fn write_at(&mut self, file: File, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        rustix::io::pwrite(self.file(file)?, data, offset).map_err(errno)
    }

    fn read_at(&mut self, file: File, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::pread(self.file(file)?, into, offset).map_err(errno)
    }

    fn fsync(&mut self, file: File) -> Result<(), Errno> {
        rustix::fs::fsync(self.file(file)?).map_err(errno)
    }

    fn close(&mut self, file: File) -> Result<(), Errno> {
        let gone = self.files.get_mut(file.0).and_then(Option::take);
        gone.map(drop).ok_or(Errno::EBADF)
    }

    fn stat(&mut self, path: &str) -> Result<Stat, Errno> {
        let stat = rustix::fs::stat(path).map_err(errno)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let modified = (stat.st_mtime, stat.st_mtime_nsec as u32);
        Ok(Stat { size: stat.st_size.unsigned_abs(), is_directory, modified })
    }

    fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        rustix::fs::unlink(path).map_err(errno)
    }

    fn mkdir(&mut self, path: &str) -> Result<(), Errno> {
        rustix::fs::mkdir(path, DIRECTORY_MODE).map_err(errno)
    }

    fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(errno)
    }

    fn readdir(&mut self, path: &str, each: &mut dyn FnMut(&str, bool)) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        for entry in Dir::new(directory).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let name = entry.file_name().to_string_lossy();
            if name == "." || name == ".." {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Unknown => self.stat(&format!("{path}/{name}"))?.is_directory,
                kind => kind == FileType::Directory,
            };
            each(&name, is_directory);
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        rustix::fs::rename(from, to).map_err(errno)
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Errno> {
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        rustix::fs::ftruncate(file.map_err(errno)?, size).map_err(errno)
    }

    fn statfs(&mut self, path: &str) -> Result<Space, Errno> {
        let found = match rustix::fs::statvfs(path) {
            Err(rustix::io::Errno::NOENT) => rustix::fs::statvfs(parent(path)),
            found => found,
        };
        let found = found.map_err(errno)?;
        Ok(Space {
            bytes: found.f_blocks * found.f_frsize,
            bytes_free: found.f_bfree * found.f_frsize,
            files: found.f_files,
            files_free: found.f_ffree,
        })
    }

    fn sync(&mut self, path: &str) -> Result<(), Errno> {
        // Not sync(2), which waits for every file system of the machine.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let there = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        rustix::fs::syncfs(there).map_err(errno)
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(u16::try_from(error.raw_os_error()).unwrap_or(Errno::EIO.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Buffer, make_all, remove_all};
    use crate::testing::Folder;

    #[test]
    fn what_is_written_is_there() {
        let folder = Folder::new("posix");
        for direct in [false, true] {
            let mut worker = Posix { direct }.worker(0, 1).unwrap();
            let (directory, path) = (folder.path("d"), folder.path("d/f"));
            worker.mkdir(&directory).unwrap();
            assert_eq!(worker.mkdir(&directory), Err(Errno::EEXIST));
            let Ok(file) = worker.open(&path, Open::Create) else {
                assert!(direct, "a file system without O_DIRECT");
                return;
            };
            let mut data = Buffer::new(8192).unwrap();
            data.fill(9);
            assert_eq!(worker.write_at(file, 4096, &data), Ok(8192));
            assert_eq!(worker.fsync(file), Ok(()));
            let mut back = Buffer::new(8192).unwrap();
            assert_eq!(worker.read_at(file, 4096, &mut back), Ok(8192));
            assert_eq!(back[..], data[..]);
            assert_eq!(worker.close(file), Ok(()));
            assert_eq!(worker.close(file), Err(Errno::EBADF));
            let stat = worker.stat(&path).unwrap();
            assert_eq!((stat.size, stat.is_directory), (12_288, false));
            assert!(stat.modified > (1_700_000_000, 0));
            worker.truncate(&path, 5).unwrap();
            worker.rename(&path, &folder.path("d/g")).unwrap();
            assert_eq!(worker.stat(&path), Err(Errno::ENOENT));
            let mut names = Vec::new();
            worker
                .readdir(&directory, &mut |name, dir| names.push((name.to_owned(), dir)))
                .unwrap();
            assert_eq!(names, [("g".to_owned(), false)]);
            assert!(worker.statfs(&folder.path("no/such")).is_err());
            assert!(worker.statfs(&path).unwrap().bytes > 0);
            assert_eq!(worker.sync(&directory), Ok(()));
            assert_eq!(worker.sync(&folder.path("no")), Err(Errno::ENOENT));
            assert_eq!(worker.rmdir(&directory), Err(Errno::ENOTEMPTY));
            let made = ["d/x", "d/x/y", "d/x/y/z"].map(|path| folder.path(path));
            assert_eq!(make_all(&mut *worker, &made[2]), Ok(made.to_vec()));
            assert_eq!(make_all(&mut *worker, &made[2]), Ok(Vec::new()));
            assert_eq!(make_all(&mut *worker, &folder.path("d/g/z")), Err(Errno::ENOTDIR));
            remove_all(&mut *worker, &directory).unwrap();
            assert_eq!(worker.stat(&directory), Err(Errno::ENOENT));
        }
    }

    #[test]
    fn a_path_has_a_directory() {
        assert_eq!(["/a/b", "/a", "a", "a/b/"].map(parent), ["/a", "/", ".", "a"]);
    }
}
