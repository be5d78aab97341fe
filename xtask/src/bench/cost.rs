//! What the processes of a file system spent: CPU time, RPCs, memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// CPU seconds of all processes and requests sent by the clients, since their starts.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Cost {
    pub(super) server_seconds: f64,
    pub(super) mount_seconds: f64,
    /// `None` where nothing counts them.
    pub(super) requests: Option<u64>,
    /// Those that were answered, by kind.
    pub(super) kinds: BTreeMap<String, u64>,
}

impl Cost {
    /// What was spent after `before`.
    pub(super) fn since(self, before: &Self) -> Self {
        let less = |(kind, count): (String, u64)| {
            let before = before.kinds.get(&kind).copied().unwrap_or_default();
            (kind, count.saturating_sub(before))
        };
        Self {
            server_seconds: self.server_seconds - before.server_seconds,
            mount_seconds: self.mount_seconds - before.mount_seconds,
            requests: self
                .requests
                .zip(before.requests)
                .map(|(now, then)| now.saturating_sub(then)),
            kinds: self.kinds.into_iter().map(less).collect(),
        }
    }

    /// Requests per operation, and which; the many kinds of which there are next to none left out.
    pub(super) fn requests_each(&self, operations: u64) -> String {
        let Some(sent) = self.requests else { return "-".to_owned() };
        let each = |count: u64| count as f64 / operations.max(1) as f64;
        let mut kinds: Vec<_> =
            self.kinds.iter().map(|(name, count)| (each(*count), short(name))).collect();
        kinds.retain(|(count, _)| *count >= 0.01);
        kinds.sort_by(|one, other| other.0.total_cmp(&one.0));
        let kinds: Vec<_> =
            kinds.into_iter().map(|(count, name)| format!("{count:.2} {name}")).collect();
        match kinds.is_empty() {
            true => format!("{:.2}", each(sent)),
            false => format!("{:.2}: {}", each(sent), kinds.join(" + ")),
        }
    }
}

/// A kind of request without the words that say whose it is.
fn short(name: &str) -> String {
    let name = ["mds_reint_", "ldlm_ibits_", "mds_", "ost_", "ldlm_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    name.replace('_', " ")
}

/// The processes of a file system.
#[derive(Debug, Clone, Default)]
pub(super) struct Processes {
    pub(super) server: u32,
    /// One for each mount.
    pub(super) mounts: Vec<u32>,
}

/// What the kernel counts in towards user space, whatever its own clock does (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time of a process, in seconds.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // Fields 14 and 15 of proc(5); the second may hold blanks and ends with the last bracket.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<f64, _>>().map_err(|error| format!("{path}: {error}"))?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// Resident KiB of the server and of all mounts.
pub(super) fn resident(processes: &Processes) -> Result<[u64; 2], String> {
    let mounts = processes.mounts.iter().map(|pid| resident_of(*pid));
    Ok([resident_of(processes.server)?, mounts.sum::<Result<u64, _>>()?])
}

fn resident_of(pid: u32) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    number.ok_or(format!("{path}: no resident memory"))
}

/// All requests to the MDT and OSTs that were answered, and those by kind.
pub(super) fn requests(
    program: &Path,
    sockets: &Path,
) -> Option<(Option<u64>, BTreeMap<String, u64>)> {
    let mut lctl = Command::new(program);
    lctl.args(["lctl", "get_param", "-n", "mdc.*.stats", "osc.*.stats"]);
    let output = lctl.env("SHEEN_RUN_DIR", sockets).output().ok()?;
    let mut kinds = sum_samples(&String::from_utf8_lossy(&output.stdout));
    let sent = kinds.remove("req_waittime");
    kinds.retain(|name, _| !name.starts_with("req_") && !name.ends_with("_bytes"));
    Some((sent, kinds))
}

/// Samples of each line of all `stats`. Every answered request is one of `req_waittime` and one of its
/// kind.
fn sum_samples(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(count), Some("samples")) =
            (words.next(), words.next(), words.next())
            && let Ok(count) = count.parse::<u64>()
        {
            *sums.entry(name.to_owned()).or_default() += count;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_all_imports_are_summed() {
        let text = "snapshot_time 1.5 secs.nsecs\nreq_waittime   12 samples [reqs]\n\
                    req_active   3 samples [reqs]\n\
                    mds_close   4 samples [usecs] 5 7 12 74\n\
                    snapshot_time 1.5 secs.nsecs\nreq_waittime   30 samples [reqs]\n";
        let sums = sum_samples(text);
        assert_eq!(sums["req_waittime"], 42);
        assert_eq!(sums["mds_close"], 4);
        assert_eq!(sum_samples("snapshot_time 1.5\n").len(), 0);
    }

    #[test]
    fn this_process_has_used_memory_and_time() {
        let own = std::process::id();
        let processes = Processes { server: own, mounts: vec![own, own] };
        let [server, mounts] = resident(&processes).expect("own status");
        assert!(server > 100 && mounts > server);
        assert!(cpu_seconds(own).expect("own stat") >= 0.0);
    }
}
