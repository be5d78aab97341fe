//! What every tool does with its output and its faults.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use sheen_types::{Errno, text};

pub use sheen_control::VERSION;

/// Exit code of Lustre's tools for a wrong command line.
pub const USAGE_CODE: u8 = 4;

/// Why a tool leaves with an exit code other than 0.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The exit code.
    pub code: u8,
    /// One line for stderr; empty if it is written already.
    pub text: String,
}

impl Fault {
    /// The command line is wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { code: USAGE_CODE, text: text.into() }
    }

    /// Something failed; the exit code is the errno, as with Lustre's tools.
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { code: u8::try_from(errno.0).unwrap_or(u8::MAX), text: text.into() }
    }

    /// As [`Fault::new`], when the line is written already.
    pub fn reported(errno: Errno) -> Self {
        Self::new(errno, "")
    }

    /// Writes the line to stderr and returns the exit code.
    pub fn report(&self) -> ExitCode {
        if !self.text.is_empty() {
            eprintln!("{}", self.text);
        }
        ExitCode::from(self.code)
    }
}

/// Ok, or a fault whose line is written already.
pub fn worst(errno: Option<Errno>) -> Result<(), Fault> {
    errno.map_or(Ok(()), |errno| Err(Fault::reported(errno)))
}

/// Writes a line to stdout; a reader that went away ends the program quietly.
pub fn line(text: impl Display) {
    text_out(&format!("{text}\n"));
}

/// Writes text to stdout; a reader that went away ends the program quietly.
pub fn text_out(text: &str) {
    write_out(text.as_bytes());
}

/// Writes bytes to stdout in one piece; a reader that went away ends the program quietly.
pub fn write_out(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("cannot write to stdout: {error}");
            std::process::exit(1);
        }
    }
}

/// Text that another user may have chosen, for a terminal: see [`text::shown`].
pub fn shown(text: &str) -> String {
    text::shown(text.as_bytes())
}

/// A path that another user may have chosen, for messages. What scripts read has its bytes as they are.
pub fn shown_path(path: impl AsRef<OsStr>) -> String {
    text::shown(path.as_ref().as_bytes())
}

/// Writes a line of bytes to stdout; a reader that went away ends the program quietly.
pub fn line_out(mut bytes: Vec<u8>) {
    bytes.push(b'\n');
    write_out(&bytes);
}

/// The system's errno as ours.
pub fn errno(error: rustix::io::Errno) -> Errno {
    Errno(u16::try_from(error.raw_os_error()).unwrap_or(Errno::EIO.0))
}

/// The errno in an error of the standard library.
pub fn errno_of(error: &io::Error) -> Errno {
    rustix::io::Errno::from_io_error(error).map_or(Errno::EIO, errno)
}
