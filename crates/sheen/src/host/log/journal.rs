//! Lines for the journal of systemd, which has the time of each itself and asks for its priority in front.

use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Says which file standard error is where it leads to the journal, as `DEVICE:INODE`.
const VARIABLE: &str = "JOURNAL_STREAM";

/// Whether standard error leads to the journal.
pub(super) fn is_standard_error() -> bool {
    let Ok(own) = std::fs::metadata("/proc/self/fd/2") else { return false };
    std::env::var(VARIABLE).is_ok_and(|journal| journal == format!("{}:{}", own.dev(), own.ino()))
}

/// Writes `line` without its time and behind its priority; what is no line of the log, as it is.
pub(super) fn write(line: &[u8], out: &mut impl io::Write) -> io::Result<()> {
    match split(line) {
        Some((priority, rest)) => out.write_all(&[priority, rest].concat()),
        None => out.write_all(line),
    }
}

/// The priority of a line that begins with a time and a level, and what follows the time.
fn split(line: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let time = line.iter().position(|byte| *byte == b' ')?;
    let rest = line[time..].trim_ascii_start();
    let level = rest.split(|byte| *byte == b' ').next()?;
    let priority: &[u8] = match level {
        b"ERROR" => b"<3>",
        b"WARN" => b"<4>",
        b"INFO" => b"<6>",
        b"DEBUG" | b"TRACE" => b"<7>",
        _ => return None,
    };
    Some((priority, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_priority_in_front_and_no_time() {
        let written = |line: &str| {
            let mut out = Vec::new();
            write(line.as_bytes(), &mut out).expect("memory takes all");
            String::from_utf8(out).expect("text")
        };
        let time = "2026-11-25T23:43:16.982789Z";
        assert_eq!(written(&format!("{time}  WARN a::b: c d\n")), "<4>WARN a::b: c d\n");
        assert_eq!(written(&format!("{time} ERROR a: b\n")), "<3>ERROR a: b\n");
        assert_eq!(written(&format!("{time}  INFO a: ... 3 more\n")), "<6>INFO a: ... 3 more\n");
        for line in ["thread 'x' panicked at y\n", "ready\n", ""] {
            assert_eq!(written(line), line);
        }
    }
}
