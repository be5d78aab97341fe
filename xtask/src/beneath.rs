//! Work that computes, beneath work that waits: together they take little longer than the longer of both.

use std::thread;

/// The weakest `nice` value: beside a process that computes, 1.5 % of the time.
const LOWEST: i32 = 19;

/// Runs both; what `beneath` starts has the processor time that `main` leaves.
pub(crate) fn run<T: Send>(main: impl FnOnce() -> T, beneath: impl FnOnce() -> T + Send) -> (T, T) {
    thread::scope(|scope| {
        let lower = scope.spawn(|| {
            // Linux lowers the calling thread alone, and what it starts inherits that.
            if let Err(error) = rustix::process::nice(LOWEST) {
                eprintln!("xtask: nice: {error}: both have the same share");
            }
            beneath()
        });
        let upper = main();
        match lower.join() {
            Ok(lower) => (upper, lower),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_runs_beneath_is_lowered_alone() {
        let nice = || {
            let output = Command::new("nice").output().expect("coreutils");
            String::from_utf8_lossy(&output.stdout).trim().parse::<i32>().expect("a number")
        };
        let before = nice();
        let (upper, lower) = run(nice, nice);
        assert_eq!((upper, lower), (before, LOWEST));
        assert_eq!(nice(), before);
    }
}
