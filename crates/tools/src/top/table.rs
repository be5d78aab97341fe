//! From two readings to lines: rates, means, the oldest requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::reading::{Counters, InWork, Reading, ServiceReading};

/// Bytes of what `MB/s` counts in.
const MEGABYTE: f64 = 1e6;
/// A request older than this is shown as slow.
const SLOW_SECONDS: f64 = 0.1;

/// By what rows are sorted, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Operations,
    Bytes,
    Latency,
}

impl Sort {
    /// The next one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Operations,
            Self::Operations => Self::Bytes,
            Self::Bytes => Self::Latency,
            Self::Latency => Self::Name,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Operations => "operations",
            Self::Bytes => "bytes",
            Self::Latency => "latency",
        }
    }
}

/// What happened in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    operations: f64,
    read: f64,
    written: f64,
    /// Mean of an operation; `None` if there was none.
    milliseconds: Option<f64>,
}

impl Rates {
    /// Counters that went back were started anew: what they show now is what happened since.
    fn between(old: Counters, new: Counters, seconds: f64) -> Self {
        let is_anew = new.operations < old.operations || new.time_us < old.time_us;
        let old = if is_anew { Counters::default() } else { old };
        let operations = new.operations - old.operations;
        let bytes = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds / MEGABYTE;
        let time = (new.time_us - old.time_us) as f64 / 1e3;
        Self {
            operations: operations as f64 / seconds,
            read: bytes(old.read_bytes, new.read_bytes),
            written: bytes(old.written_bytes, new.written_bytes),
            milliseconds: (operations > 0).then(|| time / operations as f64),
        }
    }
}

struct Row {
    name: String,
    rates: Rates,
    /// What only this kind of row has.
    rest: String,
}

/// The lines of everything between two readings.
pub(super) fn lines(old: &Reading, new: &Reading, sort: Sort) -> Vec<String> {
    let seconds = (new.at - old.at).max(1e-3);
    let mut lines = vec![head(new, seconds)];
    let rows = new.targets.iter().map(|(name, target)| {
        let before = old.targets.get(name).map(|target| target.counters).unwrap_or_default();
        let of_target = |request: &&InWork| request.target == *name;
        let requests: Vec<&InWork> = new.in_work.iter().filter(of_target).collect();
        let oldest = requests.iter().map(|request| request.seconds).fold(0.0, f64::max);
        let (count, clients) = (requests.len(), target.clients);
        let times = old.targets.get(name).map(|target| &target.io_times);
        let slowest = percentile(times, &target.io_times);
        let slowest = slowest.map_or_else(|| "-".to_owned(), |time| format!("<={time}"));
        let rest = format!("{count:>8} {oldest:>9.3} {slowest:>9} {clients:>8}");
        Row { name: name.clone(), rates: Rates::between(before, target.counters, seconds), rest }
    });
    section(&mut lines, "TARGET", " IN WORK  OLDEST s IO P99 ms  CLIENTS", rows.collect(), sort);
    let rows = new.clients.iter().map(|(name, counters)| {
        let before = old.clients.get(name).copied().unwrap_or_default();
        let requests = new.in_work.iter().filter(|request| request.nid == *name);
        let rest = format!("{:>8}", requests.count());
        Row { name: name.clone(), rates: Rates::between(before, *counters, seconds), rest }
    });
    section(&mut lines, "CLIENT", " IN WORK", rows.collect(), sort);
    let rows = new.mounts.iter().map(|(name, mount)| {
        let before = old.mounts.get(name).map(|mount| mount.counters).unwrap_or_default();
        let rest = mount.in_flight.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let rates = Rates::between(before, mount.counters, seconds);
        Row { name: name.clone(), rates, rest: format!("{rest:>9}") }
    });
    section(&mut lines, "MOUNT", "IN FLIGHT", rows.collect(), sort);
    services(&mut lines, old, new);
    slow(&mut lines, &new.in_work);
    lines
}

fn head(new: &Reading, seconds: f64) -> String {
    let (processes, targets) = (new.processes, new.targets.len());
    let (clients, mounts) = (new.clients.len(), new.mounts.len());
    let in_work = new.in_work.len();
    format!(
        "processes {processes}, targets {targets}, clients {clients}, mounts {mounts}, requests in \
         work {in_work}, {seconds:.1} s"
    )
}

/// What 99 of 100 accesses between two readings took at most; `None` if there were none.
fn percentile(old: Option<&BTreeMap<u64, u64>>, new: &BTreeMap<u64, u64>) -> Option<u64> {
    let before = |class: &u64| old.and_then(|old| old.get(class)).copied().unwrap_or(0);
    let is_anew = new.iter().any(|(class, count)| *count < before(class));
    let more = |(class, count): (&u64, &u64)| {
        (*class, if is_anew { *count } else { count - before(class) })
    };
    let counts: Vec<(u64, u64)> = new.iter().map(more).collect();
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let wanted = (all * 99).div_ceil(100);
    let mut sum = 0;
    let reaches = |(class, count): &(u64, u64)| {
        sum += count;
        (sum >= wanted).then_some(*class)
    };
    (all > 0).then(|| counts.iter().find_map(reaches)).flatten()
}

fn section(lines: &mut Vec<String>, kind: &str, rest: &str, mut rows: Vec<Row>, sort: Sort) {
    if rows.is_empty() {
        return;
    }
    let value = |row: &Row| match sort {
        Sort::Name => 0.0,
        Sort::Operations => row.rates.operations,
        Sort::Bytes => row.rates.read + row.rates.written,
        Sort::Latency => row.rates.milliseconds.unwrap_or(0.0),
    };
    // Stable: what is equal stays in the order of names.
    rows.sort_by(|a, b| value(b).total_cmp(&value(a)));
    let columns = ["OPS/s", "READ MB/s", "WRITE MB/s", "MEAN ms"];
    let [operations, read, written, mean] = columns;
    lines.push(String::new());
    lines.push(format!("{kind:<28} {operations:>10} {read:>10} {written:>10} {mean:>9} {rest}"));
    for row in rows {
        let Rates { operations, read, written, milliseconds } = row.rates;
        let mean = milliseconds.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.3}"));
        let (name, rest) = (row.name, row.rest);
        lines.push(format!(
            "{name:<28} {operations:>10.1} {read:>10.1} {written:>10.1} {mean:>9} {rest}"
        ));
    }
}

/// What came to each service, how long it waited to be begun, and how much of it there was.
fn services(lines: &mut Vec<String>, old: &Reading, new: &Reading) {
    if new.services.is_empty() {
        return;
    }
    lines.push(String::new());
    let columns = ["REQS/s", "WAIT us", "QUEUED", "ACTIVE"];
    let [requests, wait, queued, active] = columns;
    lines.push(format!("{:<28} {requests:>10} {wait:>10} {queued:>10} {active:>9}", "SERVICE"));
    let seconds = (new.at - old.at).max(1e-3);
    for (name, now) in &new.services {
        let before = old.services.get(name).copied().unwrap_or_default();
        let is_anew = now.started < before.started || now.arrived < before.arrived;
        let before = if is_anew { ServiceReading::default() } else { before };
        let rate = (now.started - before.started) as f64 / seconds;
        let mean = |count: u64, sum: u64| match count {
            0 => "-".to_owned(),
            count => format!("{:.1}", sum as f64 / count as f64),
        };
        let wait =
            mean(now.started - before.started, now.waited_us.saturating_sub(before.waited_us));
        let queued = mean(now.arrived - before.arrived, now.queued.saturating_sub(before.queued));
        let active = mean(
            now.active_samples.saturating_sub(before.active_samples),
            now.active.saturating_sub(before.active),
        );
        lines.push(format!("{name:<28} {rate:>10.1} {wait:>10} {queued:>10} {active:>9}"));
    }
}

/// Requests that take long, and what each waits for.
fn slow(lines: &mut Vec<String>, in_work: &[InWork]) {
    let slow: Vec<&InWork> =
        in_work.iter().filter(|request| request.seconds >= SLOW_SECONDS).collect();
    if slow.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(format!(
        "{:<28} {:>10} {:<10} {:<24} {}",
        "SLOW AT", "AGE s", "WAITS FOR", "REQUEST", "CLIENT"
    ));
    for request in slow {
        let InWork { target, seconds, wait, name, nid } = request;
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(line, "{target:<28} {seconds:>10.3} {wait:<10} {name:<24} {nid}");
        lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::{Mount, TargetReading};
    use super::*;

    fn counters(operations: u64, time_us: u64, bytes: u64) -> Counters {
        Counters { operations, time_us, read_bytes: bytes, written_bytes: 2 * bytes }
    }

    fn reading(at: f64, first: Counters, second: Counters) -> Reading {
        let mut reading = Reading { at, processes: 2, ..Reading::default() };
        let target = |counters| TargetReading { counters, clients: 3, io_times: BTreeMap::new() };
        reading.targets.insert("fs-MDT0000".to_owned(), target(first));
        reading.targets.insert("fs-OST0000".to_owned(), target(second));
        reading.clients.insert("10.0.0.1@tcp".to_owned(), first);
        reading.mounts.insert("fs-ff".to_owned(), Mount { counters: second, in_flight: None });
        reading
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn rates_are_of_the_time_between_and_means_of_what_was_done() {
        let old = reading(10.0, counters(100, 1000, 0), counters(0, 0, 0));
        let mut new = reading(12.0, counters(300, 101_000, 0), counters(10, 0, 4_000_000));
        new.in_work.push(InWork {
            target: "fs-MDT0000".to_owned(),
            seconds: 2.25,
            wait: "lock".to_owned(),
            name: "LDLM_INTENT_OPEN".to_owned(),
            nid: "10.0.0.1@tcp".to_owned(),
        });
        let lines = lines(&old, &new, Sort::Name);
        assert!(
            lines[0].starts_with("processes 2, targets 2, clients 1, mounts 1, requests in work 1")
        );
        let row = words(&lines[3]);
        assert_eq!(row, ["fs-MDT0000", "100.0", "0.0", "0.0", "0.500", "1", "2.250", "-", "3"]);
        let row = words(&lines[4]);
        assert_eq!(row, ["fs-OST0000", "5.0", "2.0", "4.0", "0.000", "0", "0.000", "-", "3"]);
        let client = lines.iter().find(|line| line.starts_with("10.0.0.1@tcp")).unwrap();
        assert_eq!(words(client), ["10.0.0.1@tcp", "100.0", "0.0", "0.0", "0.500", "1"]);
        let mount = lines.iter().find(|line| line.starts_with("fs-ff")).unwrap();
        assert_eq!(words(mount)[5], "-");
        let slow = words(lines.last().unwrap());
        assert_eq!(slow, ["fs-MDT0000", "2.250", "lock", "LDLM_INTENT_OPEN", "10.0.0.1@tcp"]);
    }

    #[test]
    fn rows_are_sorted_and_columns_stay_in_their_places() {
        let old = reading(0.0, Counters::default(), Counters::default());
        let new = reading(1.0, counters(1, 9000, 0), counters(5, 1, 1_000_000));
        let first = |sort: Sort| words(&lines(&old, &new, sort)[3])[0].to_owned();
        assert_eq!(first(Sort::Name), "fs-MDT0000");
        assert_eq!(first(Sort::Operations), "fs-OST0000");
        assert_eq!(first(Sort::Bytes), "fs-OST0000");
        assert_eq!(first(Sort::Latency), "fs-MDT0000");
        let all = lines(&old, &new, Sort::Name);
        assert_eq!(all[2].len(), all[3].len());
        let mut sort = Sort::Name;
        for _ in 0..4 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }

    #[test]
    fn a_percentile_is_of_the_time_between() {
        let (old, new) = (BTreeMap::from([(1, 500), (64, 5)]), BTreeMap::from([(1, 599), (64, 6)]));
        assert_eq!(percentile(Some(&old), &new), Some(1));
        assert_eq!(percentile(Some(&old), &BTreeMap::from([(1, 598), (64, 7)])), Some(64));
        assert_eq!(percentile(Some(&new), &old), Some(1), "cleared since");
        assert_eq!(percentile(Some(&new), &new), None);
        assert_eq!(percentile(None, &new), Some(1));
    }

    #[test]
    fn counters_that_were_cleared_count_from_nothing() {
        let rates = Rates::between(counters(1000, 50_000, 9), counters(10, 2000, 0), 1.0);
        assert_eq!((rates.operations, rates.milliseconds), (10.0, Some(0.2)));
        assert_eq!(Rates::between(counters(5, 5, 0), counters(5, 5, 0), 1.0).milliseconds, None);
    }

    #[test]
    fn services_show_means_of_the_time_between() {
        let service = |started, waited_us| ServiceReading {
            started,
            waited_us,
            arrived: started,
            queued: 3 * started,
            active: started,
            active_samples: started,
        };
        let (mut old, mut new) = (Reading::default(), Reading { at: 2.0, ..Reading::default() });
        old.services.insert("ost_io".to_owned(), service(10, 100));
        new.services.insert("ost_io".to_owned(), service(30, 500));
        let lines = lines(&old, &new, Sort::Name);
        assert_eq!(words(&lines[3]), ["ost_io", "10.0", "20.0", "3.0", "1.0"]);
    }
}
