//! Standard error as a file that is rotated by size.
//!
//! The process that starts another one in the background opens its log as its standard error and passes the name. When
//! the log is full the process itself renames it, opens a new one, and makes that its standard error: one
//! step for the kernel, so a line, and be it that of a panic, is in the one or in the other.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::journal;

/// Names the file that standard error is, in the environment of a process that is to rotate it.
pub(crate) const FILE_VARIABLE: &str = "SHEEN_LOG_FILE";
/// A log is renamed when it is as long as this: some 100,000 lines.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// So many older ones are kept, `.1` the newest.
const KEPT: usize = 4;

struct LogFile {
    /// `None`: standard error is not ours to rotate.
    path: Option<PathBuf>,
    written: u64,
    bytes_max: u64,
    is_journal: bool,
}

/// Where lines go: standard error. Clones share it.
#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<LogFile>>);

impl Log {
    pub(super) fn start() -> Self {
        let path = std::env::var_os(FILE_VARIABLE).map(PathBuf::from);
        Self::at(path.filter(|path| is_standard_error(path)), LOG_BYTES_MAX)
    }

    fn at(path: Option<PathBuf>, bytes_max: u64) -> Self {
        let written =
            path.as_ref().and_then(|path| fs::metadata(path).ok()).map_or(0, |it| it.len());
        let is_journal = path.is_none() && journal::is_standard_error();
        Self(Arc::new(Mutex::new(LogFile { path, written, bytes_max, is_journal })))
    }
}

/// Whether a file is what this process has as its standard error.
fn is_standard_error(path: &Path) -> bool {
    let Ok(own) = rustix::fs::fstat(io::stderr()) else { return false };
    fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.st_dev, own.st_ino))
}

impl LogFile {
    fn write(
        &mut self,
        line: &[u8],
        mut out: impl Write,
        adopt: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.written > 0
            && self.written + line.len() as u64 > self.bytes_max
            && let Some(path) = &self.path
        {
            // A log that cannot be rotated grows on; it is tried again when as much has come once more.
            let _ = rotate(path, adopt);
            self.written = 0;
        }
        self.written += line.len() as u64;
        if self.is_journal {
            return journal::write(line, &mut out);
        }
        out.write_all(line)
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let adopt = |file: &File| rustix::stdio::dup2_stderr(file).map_err(io::Error::from);
        self.0.lock().write(line, io::stderr().lock(), adopt)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Renames `log` to `log.1` and so on, and begins a new one, which it hands to `adopt`.
fn rotate(path: &Path, adopt: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    // First the new one, for which there may be no room: then all stays as it is.
    let next = PathBuf::from({
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        name
    });
    let file = File::options().create(true).append(true).mode(0o600).open(&next)?;
    for number in (1..KEPT).rev() {
        // Not all are there before there were many.
        let _ = fs::rename(numbered(number), numbered(number + 1));
    }
    // An operator may have removed it.
    let _ = fs::rename(path, numbered(1));
    fs::rename(&next, path)?;
    adopt(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_kept_in_so_many_files_and_no_line_is_lost_around_the_switch() {
        let name = format!("sheen-log-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("server.log");
        fs::write(&path, "from before the restart\n").expect("written");
        let current = Mutex::new(File::options().append(true).open(&path).expect("opened"));
        let log = Log::at(Some(path.clone()), 1_000);
        let adopt = |file: &File| {
            *current.lock() = file.try_clone()?;
            Ok(())
        };
        for number in 0..150 {
            // What is written is looked up behind the switch, as a descriptor's number is.
            let out = Through(&current);
            log.0
                .lock()
                .write(format!("line {number:>10}\n").as_bytes(), out, adopt)
                .expect("written");
        }
        let names = ["server.log.2", "server.log.1", "server.log"];
        let mut all = String::new();
        for name in names {
            let text = fs::read_to_string(folder.join(name)).expect(name);
            assert!(text.len() <= 1_000, "{name} has {} bytes", text.len());
            all += &text;
        }
        let expected: String = (0..150).map(|number| format!("line {number:>10}\n")).collect();
        assert_eq!(all, format!("from before the restart\n{expected}"));
        for number in 0..1_000 {
            let out = Through(&current);
            log.0
                .lock()
                .write(format!("line {number:>10}\n").as_bytes(), out, adopt)
                .expect("written");
        }
        let files = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(files, KEPT + 1);
        fs::remove_dir_all(&folder).expect("it goes");
    }

    #[test]
    fn a_log_that_is_gone_begins_anew_and_one_that_cannot_be_rotated_stays() {
        let name = format!("sheen-log-gone-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("server.log");
        fs::write(&path, "older").expect("written");
        fs::write(folder.join("server.log.1"), "oldest").expect("written");
        // A directory where the new log is to be.
        fs::create_dir(folder.join("server.log.new")).expect("made");
        rotate(&path, |_| panic!("no new one")).expect_err("a directory has its name");
        assert_eq!(fs::read_to_string(&path).expect("it stays"), "older");
        assert_eq!(fs::read_to_string(folder.join("server.log.1")).expect("it stays"), "oldest");
        fs::remove_dir(folder.join("server.log.new")).expect("removed");
        fs::remove_file(&path).expect("removed");
        rotate(&path, |mut file| file.write_all(b"new")).expect("rotated");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
        fs::remove_dir_all(&folder).expect("it goes");
    }

    struct Through<'a>(&'a Mutex<File>);

    impl Write for Through<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
