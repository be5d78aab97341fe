//! Histograms as `lctl get_param` shows them, in Lustre's shape byte for byte.

use std::fmt::Write as _;

use sheen_client::data::{Direction, IoCounts};
use sheen_client::posix::{ExtentsCounted, Range, SIZES, Sizes};
use sheen_types::Histogram;

use super::text::Since;

/// What is shown while counting is off.
pub(super) const DISABLED: &str = "disabled\n write anything to this file to activate, then '0' or \
    'disable' to deactivate\n";

/// How many of a hundred.
fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

/// The lower end of a class that is given by magnitude.
fn at_least(class: usize) -> u64 {
    if class == 0 { 0 } else { 1 << (class - 1) }
}

/// How a class of a histogram is called.
type Label = fn(usize) -> u64;

/// A table with a column of reads and one of writes, from the class `first` on and up to the last that
/// has any. `percent` is how the MDC and the OSC write the sign.
fn table(
    text: &mut String,
    (title, unit, percent_sign): (&str, &str, &str),
    (first, label): (usize, Label),
    (reads, writes): (&Histogram, &Histogram),
) {
    let (reads, writes) = (reads.counts(), writes.counts());
    let (read_total, write_total) = (reads.iter().sum(), writes.iter().sum());
    let _ = writeln!(text, "\n\t\t\tread\t\t\twrite");
    let column = format!("{unit}   {percent_sign} cum {percent_sign}");
    let _ = writeln!(text, "{title:<21} {column} |       {column}");
    let (mut read_sum, mut write_sum) = (0, 0);
    for class in first..Histogram::CLASSES {
        let (read, write) = (reads[class], writes[class]);
        read_sum += read;
        write_sum += write;
        let _ = writeln!(
            text,
            "{}:\t\t{read:>10} {:>3} {:>3}   | {write:>10} {:>3} {:>3}",
            label(class),
            percent(read, read_total),
            percent(read_sum, read_total),
            percent(write, write_total),
            percent(write_sum, write_total),
        );
        if read_sum == read_total && write_sum == write_total {
            break;
        }
    }
}

/// The four tables that `osc.*.rpc_stats` and `mdc.*.rpc_stats` share; the last is the OSC's alone.
fn io_tables(text: &mut String, io: &IoCounts, is_osc: bool) {
    let sign = if is_osc { "%" } else { "%%" };
    let (read, write) = (&io.read, &io.write);
    type Table<'a> = (&'a str, (usize, Label), (&'a Histogram, &'a Histogram));
    let tables: [Table<'_>; 3] = [
        ("pages per rpc", (0, |class| 1 << class), (&read.pages, &write.pages)),
        ("rpcs in flight", (1, |class| class as u64), (&read.in_flight, &write.in_flight)),
        ("offset", (0, at_least), (&read.offsets, &write.offsets)),
    ];
    for (title, classes, columns) in tables {
        table(text, (title, "rpcs", sign), classes, columns);
    }
    if is_osc {
        let title = ("RPC latency (us)      ", "count", sign);
        table(text, title, (0, at_least), (&read.latency, &write.latency));
    }
}

/// `osc.*.rpc_stats`; `pending` are pages that wait to be written.
pub(super) fn osc_rpcs(since: &Since, io: &IoCounts, pending: u64) -> String {
    let mut text = since.header_with_colons();
    let _ = writeln!(text, "read RPCs in flight:  {}", io.read.under_way());
    let _ = writeln!(text, "write RPCs in flight: {}", io.write.under_way());
    let _ = writeln!(text, "DIO RPCs in flight: {}", io.direct());
    let _ = writeln!(text, "pending write pages:  {pending}");
    // A read waits for nothing before it is sent.
    let _ = writeln!(text, "pending read pages:   0");
    io_tables(&mut text, io, true);
    text
}

/// `mdc.*.rpc_stats`: how often so many changes were under way, how many are now, and what is written
/// and read there of files.
pub(super) fn mdc_rpcs(
    since: &Since,
    (modifying, now): (&[u64], usize),
    io: &IoCounts,
    pending: u64,
) -> String {
    let mut text = since.header_with_colons();
    let _ = writeln!(text, "modify_RPCs_in_flight:  {now}\n\n\t\t\tmodify");
    text += "rpcs in flight        rpcs   %% cum %%\n";
    let total = modifying.iter().sum();
    let mut sum = 0;
    for (class, count) in modifying.iter().enumerate() {
        sum += count;
        let (part, whole) = (percent(*count, total), percent(sum, total));
        let _ = writeln!(text, "{class}:\t\t{count:>10} {part:>3} {whole:>3}");
        if sum == total {
            break;
        }
    }
    let _ = writeln!(text, "\nread RPCs in flight:  {}", io.read.under_way());
    let _ = writeln!(text, "write RPCs in flight: {}", io.write.under_way());
    let _ = writeln!(text, "pending write pages:  {pending}");
    let _ = writeln!(text, "pending read pages:   0");
    io_tables(&mut text, io, false);
    text
}

/// `osc.*.io_latency_stats`: by size, how many took how long.
pub(super) fn latencies(since: &Since, io: &IoCounts) -> String {
    let mut text = format!("io_latency_by_size:\n{}", since.header_in_yaml());
    for (name, direction) in [("rd", &io.read), ("wr", &io.write)] {
        latencies_of(&mut text, name, direction);
    }
    text
}

fn latencies_of(text: &mut String, name: &str, direction: &Direction) {
    for (size, histogram) in direction.latency_by_size.iter().enumerate() {
        let counts = histogram.counts();
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let _ = write!(text, "{name}_{}K: {{ ", 4u64 << size);
        for (class, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let _ = write!(text, "{}us: {count}, ", at_least(class));
        }
        text.push_str("}\n");
    }
}

/// `llite.*.extents_stats`, or of each process by itself.
pub(super) fn extents(since: &Since, counted: Option<ExtentsCounted>, by_process: bool) -> String {
    let Some(counted) = counted else { return DISABLED.to_owned() };
    let mut text = since.header_with_colons();
    let _ = writeln!(text, "{:>15} {:>19}       | {:>20}", " ", "read", "write");
    let calls = format!("{:>14} {:>4} {:>4}", "calls", "%", "cum%");
    let _ = writeln!(text, "{:>13}   {calls}  | {calls}", "extents");
    if !by_process {
        sizes(&mut text, &counted.all);
        return text;
    }
    for (pid, counts) in &counted.processes {
        let _ = writeln!(text, "\nPID: {pid}");
        sizes(&mut text, counts);
    }
    text
}

fn sizes(text: &mut String, counts: &Sizes) {
    let (read_total, write_total) = (counts.reads.iter().sum(), counts.writes.iter().sum());
    let (mut read_sum, mut write_sum) = (0, 0);
    let mut start = "   0K".to_owned();
    for class in 0..SIZES {
        let (read, write) = (counts.reads[class], counts.writes[class]);
        read_sum += read;
        write_sum += write;
        // The end of one class and the beginning of the next have different units at 1024.
        let (mantissa, unit) = (1u64 << ((class + 2) % 10), (class + 2) / 10);
        let end = match mantissa {
            1 => format!("{:>4}{}", 1024, letter(unit - 1)),
            _ => format!("{mantissa:>4}{}", letter(unit)),
        };
        let last = if class == SIZES - 1 { '+' } else { ' ' };
        let _ = writeln!(
            text,
            "{start} - {end}{last}: {read:>14} {:>4} {:>4}  | {write:>14} {:>4} {:>4}",
            percent(read, read_total),
            percent(read_sum, read_total),
            percent(write, write_total),
            percent(write_sum, write_total),
        );
        if read_sum == read_total && write_sum == write_total {
            break;
        }
        start = format!("{mantissa:>4}{}", letter(unit));
    }
}

fn letter(unit: usize) -> char {
    char::from(b"KMGTPEZY"[unit.min(7)])
}

/// `llite.*.offset_stats`: ranges that were read or written in order, and how far each lay behind the
/// one before.
pub(super) fn offsets(since: &Since, counted: Option<ExtentsCounted>) -> String {
    let Some(counted) = counted else { return DISABLED.to_owned() };
    let mut text = since.header_with_colons();
    let _ = writeln!(
        text,
        "{:>3} {:>10} {:>14} {:>14} {:>17} {:>17} {:>14}",
        "R/W", "PID", "RANGE START", "RANGE END", "SMALLEST EXTENT", "LARGEST EXTENT", "OFFSET"
    );
    for range in counted.ended.iter().chain(&counted.current) {
        let Range { is_write, pid, start, end, smallest, largest, offset, .. } = range;
        let letter = if *is_write { 'W' } else { 'R' };
        let _ = writeln!(
            text,
            "{letter:>3} {pid:>10} {start:>14} {end:>14} {smallest:>17} {largest:>17} {offset:>14}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text behind the times of its head.
    fn body(text: &str) -> String {
        text.lines().skip(3).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn rpcs_stand_in_lustres_columns() {
        let histogram = |values: &[u64]| {
            let histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add_magnitude(*value));
            histogram
        };
        let mut text = String::new();
        let (reads, writes) = (histogram(&[]), histogram(&[1, 1]));
        table(
            &mut text,
            ("pages per rpc", "rpcs", "%"),
            (0, |class| 1 << class),
            (&reads, &writes),
        );
        // As a client of Lustre 2.17 showed them.
        let expected = "
\t\t\tread\t\t\twrite
pages per rpc         rpcs   % cum % |       rpcs   % cum %
1:\t\t         0   0   0   |          2 100 100
";
        assert_eq!(text, expected);
        let mut text = String::new();
        let writes = histogram(&[7611, 24015]);
        let title = ("RPC latency (us)      ", "count", "%");
        table(&mut text, title, (0, at_least), (&reads, &writes));
        assert!(
            text.contains("\nRPC latency (us)       count   % cum % |       count   % cum %\n"),
            "{text}"
        );
        assert!(text.contains("\n4096:\t\t         0   0   0   |          1  50  50\n"), "{text}");
        assert!(
            text.ends_with("\n16384:\t\t         0   0   0   |          1  50 100\n"),
            "{text}"
        );
        let text = mdc_rpcs(&Since::now(), (&[0, 88], 0), &IoCounts::default(), 0);
        let expected = "modify_RPCs_in_flight:  0

\t\t\tmodify
rpcs in flight        rpcs   %% cum %%
0:\t\t         0   0   0
1:\t\t        88 100 100

read RPCs in flight:  0
write RPCs in flight: 0
pending write pages:  0
pending read pages:   0

\t\t\tread\t\t\twrite
pages per rpc         rpcs   %% cum %% |       rpcs   %% cum %%
1:\t\t         0   0   0   |          0   0   0
";
        assert!(body(&text).starts_with(expected), "{text}");
    }

    #[test]
    fn extents_have_lustres_classes() {
        let extents_of = |length: u64| {
            let extents = sheen_client::posix::ExtentsStats::default();
            extents.set(true);
            extents.moved(7, 1, true, (0, length));
            body(&extents_text(extents.counted()))
        };
        fn extents_text(counted: Option<ExtentsCounted>) -> String {
            extents(&Since::now(), counted, false)
        }
        let text = extents_of(2 << 20);
        let line = |number: usize| text.lines().nth(number).unwrap_or_default();
        assert_eq!(line(1), "      extents            calls    % cum%  |          calls    % cum%");
        let zeros = "             0    0    0  |              0    0    0";
        assert_eq!(line(2), format!("   0K -    4K : {zeros}"));
        assert_eq!(line(10), format!(" 512K - 1024K : {zeros}"));
        assert_eq!(line(11), format!("   1M -    2M : {zeros}"));
        assert!(
            line(12).starts_with("   2M -    4M : ") && line(12).ends_with(" 1  100  100"),
            "{text}"
        );
        assert_eq!(extents_text(None), DISABLED);
    }
}
