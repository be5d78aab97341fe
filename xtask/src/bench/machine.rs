//! Date, processors, memory, kernel and commit: what a number means nothing without.

use std::path::Path;

use crate::shell::command;

/// All of it in one line.
pub(super) fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let meminfo = read("/proc/meminfo");
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    format!(
        "{}, commit {}: {processors} processors ({}), {} GiB, Linux {}",
        first_line("date", &["-u", "+%Y-%m-%d"]),
        first_line("git", &["describe", "--always", "--dirty"]),
        model.trim_start_matches([' ', '\t', ':']),
        kib.unwrap_or_default() >> 20,
        read("/proc/sys/kernel/osrelease").trim()
    )
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
