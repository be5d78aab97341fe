//! The machine on which something was measured: what a number means nothing without.

use std::fmt;

/// What a machine is like.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub processors: usize,
    /// What they call themselves; empty if they do not.
    pub model: String,
    /// GiB of memory.
    pub memory_gib: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        let meminfo = read("/proc/meminfo");
        let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = kib.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            model: model.unwrap_or_default().trim_start_matches([' ', '\t', ':']).to_owned(),
            memory_gib: kib.unwrap_or_default() >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processors, model, memory_gib, kernel } = self;
        let model = if model.is_empty() { "of no name" } else { model };
        write!(out, "{processors} processors ({model}), {memory_gib} GiB, Linux {kernel}")
    }
}
