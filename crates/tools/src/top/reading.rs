//! One look at the parameter trees: counters of targets, clients and mounts, services, requests in work.

use std::collections::BTreeMap;

use sheen_control::{Client, ControlReply, ControlRequest};

/// What is read, each from every process; a process has those of its kind.
const PATTERNS: [&str; 9] = [
    "mdt.*.md_stats",
    "obdfilter.*.stats",
    "*.*.exports.*.stats",
    "*.*.num_exports",
    "*.*.requests_in_work",
    "osd-*.*.brw_stats",
    "*.*.*.stats",
    "llite.*.stats",
    "*.*.rpc_stats",
];
/// Lines of `md_stats` that count what other lines count as well.
const COUNTED_TWICE: [&str; 3] = ["samedir_rename", "crossdir_rename", "parallel_rename_file"];

/// Sums over the lines of a `stats` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) operations: u64,
    pub(super) time_us: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.time_us += other.time_us;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// How requests came to a service, summed since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceReading {
    /// Requests that began to be executed, and how long they had waited for that.
    pub(super) started: u64,
    pub(super) waited_us: u64,
    /// Arrivals, and how many requests waited at each.
    pub(super) arrived: u64,
    pub(super) queued: u64,
    /// Requests that were executed at each start.
    pub(super) active: u64,
    pub(super) active_samples: u64,
}

/// A request that a target works on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InWork {
    pub(super) target: String,
    pub(super) seconds: f64,
    pub(super) wait: String,
    pub(super) name: String,
    pub(super) nid: String,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetReading {
    pub(super) counters: Counters,
    pub(super) clients: u64,
    /// Accesses to the store by the milliseconds that they took at most.
    pub(super) io_times: BTreeMap<u64, u64>,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) counters: Counters,
    /// Requests that wait for an answer; `None` if the tree does not show them.
    pub(super) in_flight: Option<u64>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// Processes that answered.
    pub(super) processes: usize,
    /// Seconds of a clock that only goes forward.
    pub(super) at: f64,
    pub(super) targets: BTreeMap<String, TargetReading>,
    pub(super) services: BTreeMap<String, ServiceReading>,
    /// By NID, over all targets.
    pub(super) clients: BTreeMap<String, Counters>,
    pub(super) mounts: BTreeMap<String, Mount>,
    /// The oldest first.
    pub(super) in_work: Vec<InWork>,
}

impl Reading {
    /// Asks all processes. Those that have gone are passed over.
    pub(super) fn take(processes: Vec<Client>, at: f64) -> Self {
        let mut reading = Self { at, ..Self::default() };
        for mut process in processes {
            let mut shown: BTreeMap<String, String> = BTreeMap::new();
            for pattern in PATTERNS {
                let question = ControlRequest::Get { pattern: pattern.to_owned() };
                let Ok(ControlReply::Shown(found)) = process.ask(&question) else { break };
                shown.extend(found.into_iter().map(|one| (one.name, one.value)));
            }
            reading.processes += usize::from(!shown.is_empty());
            for (name, value) in &shown {
                reading.add(name, value);
            }
        }
        reading.in_work.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        reading
    }

    /// Takes one parameter in.
    fn add(&mut self, name: &str, value: &str) {
        // A NID has dots of its own.
        let (head, nid) = match name.split_once(".exports.") {
            Some((head, rest)) => (head, rest.strip_suffix(".stats")),
            None => (name, None),
        };
        let parts: Vec<&str> = head.split('.').collect();
        match (&parts[..], nid) {
            (["mdt" | "obdfilter", _], Some(nid)) => {
                *self.clients.entry(nid.to_owned()).or_default() += counters(value);
            }
            (["mdt", target, "md_stats"] | ["obdfilter", target, "stats"], None) => {
                self.target(target).counters = counters(value);
            }
            (["mdt" | "obdfilter", target, "num_exports"], None) => {
                self.target(target).clients = value.trim().parse().unwrap_or(0);
            }
            (["mdt" | "obdfilter", target, "requests_in_work"], None) => {
                self.in_work.extend(value.lines().filter_map(|line| in_work(target, line)));
            }
            ([osd, target, "brw_stats"], None) if osd.starts_with("osd-") => {
                self.target(target).io_times = io_times(value);
            }
            (["mds" | "ost" | "mgs" | "ldlm", _, service, "stats"], None) => {
                if let Some(found) = service_of(value) {
                    self.services.insert((*service).to_owned(), found);
                }
            }
            (["llite", mount, "stats"], None) => {
                self.mount(mount).counters = counters(value);
            }
            (["mdc" | "osc", device, "rpc_stats"], None) => self.add_in_flight(device, value),
            _ => {}
        }
    }

    fn target(&mut self, name: &str) -> &mut TargetReading {
        self.targets.entry(name.to_owned()).or_default()
    }

    fn mount(&mut self, name: &str) -> &mut Mount {
        self.mounts.entry(name.to_owned()).or_default()
    }

    /// A device is `FSNAME-MDT0000-mdc-INSTANCE`, its mount `FSNAME-INSTANCE`.
    fn add_in_flight(&mut self, device: &str, value: &str) {
        let mut parts = device.rsplit('-');
        let (Some(instance), Some(_), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
            return;
        };
        let fsname = parts.rev().collect::<Vec<_>>().join("-");
        let Some(count) = in_flight(value) else { return };
        let known = &mut self.mount(&format!("{fsname}-{instance}")).in_flight;
        *known = Some(known.unwrap_or(0) + count);
    }
}

/// Count, unit and sum of a line of a `stats` file: `NAME COUNT samples [UNIT] MIN MAX SUM SQUARES`.
fn line(text: &str) -> Option<(&str, u64, &str, u64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, count, "samples", unit, numbers @ ..] = &words[..] else { return None };
    let sum = numbers.get(2).and_then(|word| word.parse().ok()).unwrap_or(0);
    Some((name, count.parse().ok()?, unit, sum))
}

fn counters(text: &str) -> Counters {
    let mut counters = Counters::default();
    for (name, count, unit, sum) in text.lines().filter_map(line) {
        match (name, unit) {
            ("read_bytes", _) => counters.read_bytes += sum,
            ("write_bytes", _) => counters.written_bytes += sum,
            (name, "[usecs]" | "[usec]") if !COUNTED_TWICE.contains(&name) => {
                counters.operations += count;
                counters.time_us += sum;
            }
            _ => {}
        }
    }
    counters
}

/// `None` if the lines are not those of a service.
fn service_of(text: &str) -> Option<ServiceReading> {
    let mut service = ServiceReading::default();
    let mut is_one = false;
    for (name, count, _, sum) in text.lines().filter_map(line) {
        match name {
            "req_waittime" => (service.started, service.waited_us) = (count, sum),
            "req_qdepth" => (service.arrived, service.queued) = (count, sum),
            "req_active" => (service.active_samples, service.active) = (count, sum),
            _ => continue,
        }
        is_one = true;
    }
    is_one.then_some(service)
}

/// The histogram of times in `brw_stats`, reads and writes together: `CLASS: COUNT % % | COUNT % %`.
fn io_times(text: &str) -> BTreeMap<u64, u64> {
    let section = text.lines().skip_while(|line| !line.starts_with("I/O time"));
    let rows = section.skip(1).map_while(|line| line.split_once(':'));
    let row = |(class, counts): (&str, &str)| {
        let count = |half: &str| half.split_whitespace().next()?.parse::<u64>().ok();
        let (reads, writes) = counts.split_once('|')?;
        Some((magnitude(class.trim())?, count(reads)? + count(writes)?))
    };
    rows.filter_map(row).collect()
}

/// `8`, `4K`, `1M`.
fn magnitude(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

/// `SECONDS WAIT REQUEST NID CLIENT xXID`.
fn in_work(target: &str, text: &str) -> Option<InWork> {
    let mut words = text.split_whitespace();
    let seconds = words.next()?.parse().ok()?;
    let mut word = || words.next().map(str::to_owned);
    let (wait, name, nid) = (word()?, word()?, word()?);
    Some(InWork { target: target.to_owned(), seconds, wait, name, nid })
}

/// Reads and writes in flight of an OSC, or modifying requests of an MDC, as `rpc_stats` begins.
fn in_flight(text: &str) -> Option<u64> {
    let is_count = |line: &&str| line.replace('_', " ").contains("RPCs in flight:");
    let counts = text.lines().filter(is_count);
    let numbers = counts.filter_map(|line| line.rsplit(':').next()?.trim().parse::<u64>().ok());
    numbers.fold(None, |sum, number| Some(sum.unwrap_or(0) + number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD_STATS: &str = "snapshot_time   1.0 secs.nsecs\n\
        mknod     60 samples [usecs] 4 40 600 9000\n\
        rename    2 samples [usecs] 5 6 11 61\n\
        samedir_rename  2 samples [usecs] 5 6 11 61\n\
        write_bytes     3 samples [bytes] 1 4096 8192 1\n";

    #[test]
    fn counters_are_summed_and_nothing_counts_twice() {
        let wanted = Counters { operations: 62, time_us: 611, read_bytes: 0, written_bytes: 8192 };
        assert_eq!(counters(MD_STATS), wanted);
        assert_eq!(counters("garbage\nx y samples [usecs]\n"), Counters::default());
    }

    #[test]
    fn times_of_accesses_are_read_from_their_histogram() {
        let text = "                           read      |     write\n\
            disk I/Os in flight    ios   % cum % |  ios         % cum %\n\
            1:                 9 100 100   |    9 100 100\n\n\
                                       read      |     write\n\
            I/O time (1/1000s)     ios   % cum % |  ios         % cum %\n\
            1:                 3  75  75   |    0   0   0\n\
            2K:                1  25 100   |    5 100 100\n\n\
                                       read      |     write\n";
        assert_eq!(io_times(text), BTreeMap::from([(1, 3), (2048, 6)]));
        assert_eq!(io_times("nothing"), BTreeMap::new());
    }

    #[test]
    fn parameters_find_their_places() {
        let mut reading = Reading::default();
        reading.add("mdt.fs-MDT0000.md_stats", MD_STATS);
        reading.add("mdt.fs-MDT0000.num_exports", "3");
        reading.add("mdt.fs-MDT0000.exports.10.0.0.1@tcp.stats", MD_STATS);
        reading.add("obdfilter.fs-OST0000.exports.10.0.0.1@tcp.stats", MD_STATS);
        reading.add(
            "mdt.fs-MDT0000.requests_in_work",
            "1.500000 lock LDLM_INTENT_OPEN 10.0.0.1@tcp uuid x17\nbroken\n",
        );
        reading.add("llite.fs-ffff01.stats", MD_STATS);
        reading.add("mdc.fs-MDT0000-mdc-ffff01.rpc_stats", "modify_RPCs_in_flight: 2\n");
        reading.add(
            "osc.fs-OST0000-osc-ffff01.rpc_stats",
            "read RPCs in flight:  1\nwrite RPCs in flight: 4\n",
        );
        let services = "req_waittime 4 samples [usecs] 1 9 20 1\nreq_qdepth 5 samples [reqs] 0 2 3 5\n\
                        req_active 4 samples [reqs] 1 2 6 9\n";
        reading.add("ost.OSS.ost_io.stats", services);
        reading.add("mds.MDS.mdt.stats", "ldlm_intent_open 4 samples [usecs] 1 2 3 4\n");
        assert_eq!(reading.targets["fs-MDT0000"].clients, 3);
        assert_eq!(reading.clients["10.0.0.1@tcp"].operations, 124);
        assert_eq!(reading.mounts["fs-ffff01"].in_flight, Some(7));
        assert_eq!(reading.mounts["fs-ffff01"].counters.operations, 62);
        assert_eq!(reading.services.len(), 1, "a service without lines of its own shows nothing");
        let io = reading.services["ost_io"];
        assert_eq!((io.waited_us, io.queued, io.active), (20, 3, 6));
        assert_eq!(reading.in_work.len(), 1);
        assert_eq!((reading.in_work[0].wait.as_str(), reading.in_work[0].seconds), ("lock", 1.5));
    }
}
