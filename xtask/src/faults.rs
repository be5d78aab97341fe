//! Which tests failed and why, from what `cargo test` prints: a line each, for the end of a run, where
//! logs of whole file systems do not hide it.

/// Characters of a line of a fault that are shown.
const SHOWN_MAX: usize = 300;

/// Lines of a fault that are shown: a command that failed, and what it says.
const LINES_MAX: u8 = 2;

/// Reads the output line by line.
#[derive(Default)]
pub(crate) struct Faults {
    /// The test whose output this is.
    test: Option<String>,
    /// So many further lines are what a panic says.
    said_next: u8,
    found: Vec<(String, String)>,
}

impl Faults {
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("---- ") {
            self.test = rest.strip_suffix(" stdout ----").map(str::to_owned);
            self.said_next = 0;
            self.found.extend(self.test.clone().map(|test| (test, String::new())));
        } else if line.starts_with("failures:") {
            self.test = None;
        } else if self.test.is_none() {
            // What tests print while they run is not distinguished.
        } else if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.said_next = LINES_MAX;
        } else if self.said_next > 0 && (line.starts_with("--- ") || line.starts_with("note: ")) {
            // Logs follow.
            self.said_next = 0;
        } else if self.said_next > 0 && !line.trim().is_empty() {
            self.said_next -= 1;
            self.note(line);
        } else if let Some((_, error)) =
            line.split_once("Error: ").filter(|(left, _)| left.is_empty())
        {
            self.note(error);
        }
    }

    /// One more thing that the test says: a helper's panic, then its own.
    fn note(&mut self, said: &str) {
        let Some((_, fault)) = self.found.last_mut() else { return };
        if !fault.is_empty() {
            fault.push_str("; ");
        }
        fault.extend(said.trim().chars().take(SHOWN_MAX));
    }

    /// `TEST: FAULT` of each.
    pub(crate) fn lines(self) -> impl Iterator<Item = String> {
        self.found.into_iter().map(|(test, fault)| match fault.as_str() {
            "" => format!("{test}: its output says more"),
            _ => format!("{test}: {fault}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_that_failed_is_reported_in_a_line() {
        const OUTPUT: &str = "\
test good ... ok
test effects::server ... FAILED
thread 'noise' panicked at src/noise.rs:1:1:
not of a test that failed

failures:

---- effects::server stdout ----

thread '<unnamed>' (7) panicked at crates/a.rs:3:9:
left is 1

thread 'effects::server' (8) panicked at crates/testkit/src/scene.rs:68:9:
syncing: osd-*.force_sync: 1 instead of 0
--- /somewhere/run/server.log
thread 'tokio' does something
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- full stdout ----

thread 'full' (9) panicked at crates/testkit/src/scene.rs:68:9:
sheen up --osts 1: exit status: 28
sheen: run: No space left on device
--- /somewhere/run/server.log
server starts

---- answers stdout ----
Error: \"no such file\"


failures:
    answers
    effects::server

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
";
        let mut faults = Faults::default();
        OUTPUT.lines().for_each(|line| faults.read(line));
        assert_eq!(
            faults.lines().collect::<Vec<_>>(),
            [
                "effects::server: left is 1; syncing: osd-*.force_sync: 1 instead of 0",
                "full: sheen up --osts 1: exit status: 28; sheen: run: No space left on device",
                "answers: \"no such file\"",
            ]
        );
    }
}
