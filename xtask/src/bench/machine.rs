//! Date, processors, memory, kernel and commit: what a number means nothing without.

use crate::shell::command;

/// All of it in one line.
pub(super) fn machine() -> String {
    format!(
        "{}, commit {}: {}",
        first_line("date", &["-u", "+%Y-%m-%d"]),
        commit(),
        sheen_bench::machine::Machine::here()
    )
}

/// The commit that is measured.
pub(super) fn commit() -> String {
    first_line("git", &["describe", "--always", "--dirty"])
}

/// What a program says first; nothing if it is not there.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = command(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// How many processes wanted to run in the last minute: what else goes on here.
pub(super) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or_default().to_owned()
}
