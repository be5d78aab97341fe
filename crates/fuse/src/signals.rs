//! Calls that a signal ends while they wait.
//!
//! fuser refuses the kernel's interrupts, so a thread that waits for a file lock cannot even be
//! killed. Whether a signal is waiting for the thread is looked up in `/proc` instead.
//!
//! Cost: a small read four times a second for each call that has waited that long.

use std::time::Duration;

use sheen_types::Errno;

/// How often signals are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Gives `work` up with `EINTR` when a signal waits for `thread`, or the thread is gone.
pub(crate) async fn unless_interrupted<T>(
    thread: u32,
    work: impl Future<Output = Result<T, Errno>>,
) -> Result<T, Errno> {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(LOOK_EVERY, &mut work).await {
            return done;
        }
        // A thread of another namespace has number 0: nothing is known of it.
        if thread != 0 && is_interrupted(thread) {
            return Err(Errno::EINTR);
        }
    }
}

fn is_interrupted(thread: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_signal(&status),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Whether a signal waits that the thread does not block.
fn has_signal(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_do_not_count() {
        let status = |own, shared, blocked| {
            format!(
                "SigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        assert!(!has_signal(&status(0, 0, 0)));
        assert!(has_signal(&status(0x100, 0, 0)));
        assert!(has_signal(&status(0, 0x4000, 0x100)));
        assert!(!has_signal(&status(0x4000, 0x4000, 0x4000)));
        assert!(!has_signal(""));
    }
}
