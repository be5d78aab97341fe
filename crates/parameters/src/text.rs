//! Statistics and times as `lctl get_param` shows them, in Lustre's shape byte for byte.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sheen_control::Tree;
use sheen_types::{Instant, Samples, Unit};

use super::values;

/// Columns of the names in a `stats` file.
pub(super) const NAME_WIDTH: usize = 35;

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "shown to operators, and nothing depends on it")]
pub(super) fn today() -> SystemTime {
    SystemTime::now()
}

/// Since when something is counted.
pub(super) struct Since(Mutex<SystemTime>);

impl Since {
    /// Since now.
    pub(super) fn now() -> Self {
        Self(Mutex::new(today()))
    }

    /// Counting starts anew.
    pub(super) fn restart(&self) {
        *self.0.lock() = today();
    }

    /// A `stats` file: when it was read, since when it counts, and a line for each counter that
    /// has samples.
    pub(super) fn stats(&self, samples: &[Samples]) -> String {
        let start = *self.0.lock();
        stats_between(start, today(), samples)
    }

    /// The first lines of a `brw_stats` file: when it was read, and since when it counts.
    pub(super) fn times(&self, width: usize) -> String {
        let start = *self.0.lock();
        times_between(start, today(), width, ":", " secs.nsecs")
    }

    /// The three lines of times at the head of a table.
    pub(super) fn header_with_colons(&self) -> String {
        self.times(25)
    }

    /// The times at the head of a table, as YAML has them.
    pub(super) fn header_in_yaml(&self) -> String {
        times_between(*self.0.lock(), today(), 13, ":", "")
    }
}

fn stats_between(start: SystemTime, now: SystemTime, samples: &[Samples]) -> String {
    let mut text = times_between(start, now, NAME_WIDTH, "", " secs.nsecs");
    text.extend(samples.iter().map(sample));
    text
}

/// When something was read, and since when it counts.
fn times_between(
    start: SystemTime,
    now: SystemTime,
    width: usize,
    colon: &str,
    unit: &str,
) -> String {
    let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let all = HAS_HEADER.load(Ordering::Relaxed) != 0;
    let times = [
        ("snapshot_time", since_epoch(now)),
        ("start_time", since_epoch(start)),
        ("elapsed_time", now.duration_since(start).unwrap_or_default()),
    ];
    let line = |(name, time): (&str, Duration)| {
        let (name, seconds, rest) = (format!("{name}{colon}"), time.as_secs(), time.subsec_nanos());
        format!("{name:<width$} {seconds}.{rest:09}{unit}\n")
    };
    times.into_iter().take(if all { 3 } else { 1 }).map(line).collect()
}

/// `enable_stats_header`: whether statistics say since when they count, and not only when they were read.
static HAS_HEADER: AtomicU32 = AtomicU32::new(1);

/// Adds that switch of the process.
pub(super) fn add_header(tree: &Tree) {
    tree.add_writable(
        "enable_stats_header",
        || HAS_HEADER.load(Ordering::Relaxed).to_string(),
        |text| {
            let value = values::number_within(text, 0, u32::MAX.into())?;
            HAS_HEADER.store(value as u32, Ordering::Relaxed);
            Ok(())
        },
    );
}

/// One line of a `stats` file.
pub(super) fn sample(samples: &Samples) -> String {
    let Samples { line, count, min, max, sum, squared } = samples;
    let unit = line.unit.name();
    let head = format!("{:<NAME_WIDTH$} {count} samples [{unit}]", line.name);
    match line.unit {
        Unit::Requests | Unit::Pages => format!("{head}\n"),
        Unit::PageSums => format!("{head} {min} {max} {sum}\n"),
        _ => format!("{head} {min} {max} {sum} {squared}\n"),
    }
}

/// The time of day of a moment of the monotonic clock.
pub(super) struct Clock {
    /// The monotonic clock, in nanoseconds, and the time of day, at one moment.
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
}

impl Clock {
    /// Whole seconds since then.
    pub(super) fn ago(&self, at: Instant) -> u64 {
        Duration::from_nanos(self.now.0.saturating_sub(at.0)).as_secs()
    }

    /// The time of day then, in seconds since 1970.
    pub(super) fn seconds(&self, at: Instant) -> u64 {
        let ago = Duration::from_nanos(self.now.0.saturating_sub(at.0));
        let then = self.wall.checked_sub(ago).unwrap_or(UNIX_EPOCH);
        then.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::CounterLine;

    use super::*;

    #[test]
    fn stats_are_lustres() {
        let at = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        let (start, now) = (at(1_795_234_657_684_560_430), at(1_795_234_719_608_708_310));
        let samples =
            |line, count, min, max, sum, squared| Samples { line, count, min, max, sum, squared };
        let bytes = CounterLine::bytes("read_bytes");
        let ioctl = CounterLine { name: "ioctl", unit: Unit::Requests };
        let samples = [
            samples(bytes, 3, 2, 2_097_152, 2_097_159, 4_398_046_511_133),
            samples(ioctl, 1413, 1, 1, 1413, 1413),
        ];
        // As a client of Lustre 2.17 showed them.
        let expected = "\
snapshot_time                       1795234719.608708310 secs.nsecs
start_time                          1795234657.684560430 secs.nsecs
elapsed_time                        61.924147880 secs.nsecs
read_bytes                          3 samples [bytes] 2 2097152 2097159 4398046511133
ioctl                               1413 samples [reqs]
";
        assert_eq!(stats_between(start, now, &samples), expected);
    }
}
