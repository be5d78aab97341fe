//! Ctrl-C and other signals, for tools that must clean up before they end.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::Fault;

/// To which shells add the number of the signal that ended a program.
const SIGNALLED_CODE: u8 = 128;
/// Numbers of signals, on all Linux.
const HANGUP: u8 = 1;
const INTERRUPT: u8 = 2;
const TERMINATE: u8 = 15;
/// Exit code of a tool that cannot listen.
const FAILED_CODE: u8 = 1;

/// Set when the user wants to end.
static STOP: AtomicBool = AtomicBool::new(false);
/// The signal that said so.
static SIGNAL: AtomicU8 = AtomicU8::new(INTERRUPT);

/// Exit code of a tool that a signal ended, as shells have it: 130 after Ctrl-C.
pub fn interrupted_code() -> u8 {
    SIGNALLED_CODE + SIGNAL.load(Ordering::Acquire)
}

/// From now on the first signal sets the returned flag, and the second ends the program at once.
#[expect(clippy::disallowed_methods, reason = "a host: signals have a thread of their own")]
pub fn listen() -> Result<&'static AtomicBool, Fault> {
    let fault =
        |error| Fault { code: FAILED_CODE, text: format!("sheen: cannot handle signals: {error}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(fault)?;
    let inside = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    // Its terminal was closed; under nohup that is nothing to it.
    let mut hangup = match ignores_hangup() {
        true => None,
        false => Some(signal(SignalKind::hangup()).map_err(fault)?),
    };
    drop(inside);
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let number = tokio::select! {
                    _ = interrupt.recv() => INTERRUPT,
                    _ = terminate.recv() => TERMINATE,
                    () = of(&mut hangup) => HANGUP,
                };
                SIGNAL.store(number, Ordering::Release);
                if STOP.swap(true, Ordering::AcqRel) {
                    std::process::exit(interrupted_code().into());
                }
            }
        });
    });
    Ok(&STOP)
}

/// Whether a signal has come since [`listen`].
#[must_use]
pub fn is_asked() -> bool {
    STOP.load(Ordering::Acquire)
}

/// Waits for the signal; for ever, if it is ignored.
async fn of(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP was to be ignored when this process began.
fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, 1))
}

/// Whether the process of this `/proc/PID/status` ignores the signal `number`.
fn ignores(status: &str, number: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores;

    #[test]
    fn nohup_is_seen() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t02\n";
        assert_eq!(
            [1, 2, 13, 14].map(|number| ignores(status, number)),
            [true, false, true, false]
        );
        assert!(!ignores("SigCgt:\t01\n", 1));
    }
}
