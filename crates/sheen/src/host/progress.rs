//! What a command waits for: a line on stderr once that has lasted a second.
//!
//! A process that is started in the background reports what it does to the command that started it (`daemon::say_doing`,
//! [`Lines`]), and that shows it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a command waits without a line.
const QUIET: Duration = Duration::from_secs(1);

/// What is waited for.
pub(super) struct Progress {
    since: Instant,
    what: String,
    is_shown: bool,
    /// When the last line was shown, after `since`.
    shown: Duration,
}

impl Progress {
    /// Nothing is shown before a second has passed.
    #[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { since: Instant::now(), what: what.into(), is_shown: false, shown: Duration::ZERO }
    }

    /// What is waited for from now on.
    pub(super) fn doing(&mut self, what: &str) {
        if self.what != what {
            what.clone_into(&mut self.what);
            self.is_shown = false;
        }
        self.look();
    }

    /// Shows it if it is time. Call it now and then.
    pub(super) fn look(&mut self) {
        if let Some(line) = self.line(self.since.elapsed()) {
            eprintln!("{line}");
        }
    }

    /// The line to show when `waited` has passed; each once, and one a second.
    fn line(&mut self, waited: Duration) -> Option<String> {
        let is_time = waited >= self.shown + QUIET && !self.is_shown && !self.what.is_empty();
        if !is_time {
            return None;
        }
        (self.is_shown, self.shown) = (true, waited);
        Some(format!("{} ...", self.what))
    }

    /// When there is something to show; `None` if there is nothing more.
    fn due(&self) -> Option<Duration> {
        let is_open = !self.is_shown && !self.what.is_empty();
        is_open.then(|| (self.shown + QUIET).saturating_sub(self.since.elapsed()))
    }
}

/// The lines of another process's output.
pub(super) struct Lines<R> {
    from: R,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, bytes: Vec::new() }
    }

    /// The next line, or what is there at the end; meanwhile `progress` is shown.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn next(&mut self, progress: &mut Progress) -> io::Result<String> {
        loop {
            if let Some(at) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=at).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            let due = progress.due().map(|due| Timespec::try_from(due + Duration::from_millis(1)));
            let due = due.and_then(Result::ok);
            let mut asked = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut asked, due.as_ref()) {
                Ok(0) => progress.look(),
                Ok(_) => {
                    let mut more = [0; 4096];
                    let length = self.from.read(&mut more)?;
                    if length == 0 {
                        let rest = std::mem::take(&mut self.bytes);
                        return Ok(String::from_utf8_lossy(&rest).into_owned());
                    }
                    self.bytes.extend_from_slice(&more[..length]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_lasts_is_shown_once_and_what_is_short_never() {
        let mut progress = Progress::new("waiting for a");
        assert_eq!(progress.line(QUIET / 2), None);
        assert_eq!(progress.line(QUIET).as_deref(), Some("waiting for a ..."));
        assert_eq!(progress.line(QUIET * 9), None, "it was shown");
        progress.doing("waiting for a");
        assert_eq!(progress.line(QUIET * 9), None, "the same");
        progress.doing("waiting for b");
        assert_eq!(progress.line(QUIET * 3 / 2), None, "too soon after the last one");
        assert_eq!(progress.line(QUIET * 9).as_deref(), Some("waiting for b ..."));
        assert!(progress.due().is_none());
        progress.doing("");
        assert!(progress.due().is_none() && progress.line(QUIET * 9).is_none());
    }

    #[test]
    fn lines_come_whole_and_the_end_is_an_end() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut lines = Lines::new(reader);
        let mut progress = Progress::new("");
        writer.write_all(b"doing a\nrea").expect("write");
        assert_eq!(lines.next(&mut progress).expect("a line"), "doing a");
        writer.write_all(b"dy\n").expect("write");
        assert_eq!(lines.next(&mut progress).expect("a line"), "ready");
        writer.write_all(b"torn").expect("write");
        drop(writer);
        assert_eq!(lines.next(&mut progress).expect("a line"), "torn");
        assert_eq!(lines.next(&mut progress).expect("the end"), "");
    }
}
