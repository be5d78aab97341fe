//! Ctrl-C and its like, for tools that have something to put away before they end.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::output::Fault;

/// Exit code after Ctrl-C, as shells tell it.
pub(crate) const INTERRUPTED_CODE: u8 = 130;
/// Exit code of a tool that cannot listen.
const FAILED_CODE: u8 = 1;

/// Set when the user wants to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// From now on the first signal sets what this answers, and the second ends the program at once.
#[expect(clippy::disallowed_methods, reason = "a host: signals have a thread of their own")]
pub(crate) fn listen() -> Result<&'static AtomicBool, Fault> {
    let fault = |error| Fault { code: FAILED_CODE, text: format!("sheen: no signals: {error}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(fault)?;
    let inside = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    drop(inside);
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if STOP.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED_CODE.into());
                }
            }
        });
    });
    Ok(&STOP)
}
