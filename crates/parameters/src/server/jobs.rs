//! `job_stats` of MDTs and OSTs: YAML of Lustre's shape, to the blank.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sheen_control::Tree;
use sheen_target::JobView;
use sheen_types::{Errno, Samples, Timestamp, Unit};

use super::values;
use crate::HostedTarget;

/// Columns of a counter's name with its colon.
const NAME_WIDTH: usize = 17;
/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// Adds the jobs of a target and how long they are remembered.
pub(super) fn add(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    let (reader, writer) = (Arc::clone(one), Arc::clone(one));
    tree.add_writable(
        &format!("{root}.job_stats"),
        move || text(&reader.served.target.jobs()),
        move |asked| {
            let name = unescaped(asked.trim_end_matches('\n'))?;
            match &name[..] {
                b"clear" => writer.served.target.clear_jobs(),
                name => writer.served.target.remove_job(name)?,
            }
            Ok(())
        },
    );
    let (reader, writer) = (Arc::clone(one), Arc::clone(one));
    tree.add_writable(
        &format!("{root}.job_cleanup_interval"),
        move || reader.served.target.job_cleanup_interval().as_secs().to_string(),
        move |asked| {
            let seconds = values::number_of_any_base(asked)?;
            let seconds = values::within(seconds, 0, u32::MAX.into())?;
            writer.served.target.set_job_cleanup_interval(Duration::from_secs(seconds));
            Ok(())
        },
    );
}

/// Nothing where there are no jobs, not even the head.
fn text(jobs: &[JobView]) -> String {
    let mut text = String::new();
    for job in jobs {
        if text.is_empty() {
            text += "job_stats:\n";
        }
        let _ = writeln!(text, "- {:<16} {}", "job_id:", escaped(&job.name));
        let elapsed = nanoseconds(job.latest) - nanoseconds(job.first);
        for (key, time) in [
            ("snapshot_time:", nanoseconds(job.latest)),
            ("start_time:", nanoseconds(job.first)),
            ("elapsed_time:", elapsed.max(0)),
        ] {
            let (seconds, rest) = (time / SECOND, time % SECOND);
            let _ = writeln!(text, "  {key:<16} {seconds}.{rest:09} secs.nsecs");
        }
        job.lines.iter().for_each(|(samples, sizes)| line(&mut text, samples, sizes.as_ref()));
    }
    text
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds)
}

fn line(text: &mut String, samples: &Samples, sizes: Option<&[u64; 32]>) {
    let Samples { line, count, min, max, sum, squared } = samples;
    let name = format!("{}:", line.name);
    let _ = write!(
        text,
        "  {name:<width$}{{ samples: {count:>11}, unit: {unit:>5}",
        width = NAME_WIDTH.max(name.len() + 1),
        unit = line.unit.name(),
    );
    if line.unit != Unit::Requests {
        let _ =
            write!(text, ", min: {min:>8}, max: {max:>8}, sum: {sum:>16}, sumsq: {squared:>18}");
    }
    if let Some(sizes) = sizes {
        let used = sizes.iter().enumerate().filter(|(_, count)| **count > 0);
        let used = used.map(|(power, count)| format!("{}: {count}", magnitude(power)));
        let _ = write!(text, ", hist: {{ {} }}", used.collect::<Vec<_>>().join(", "));
    }
    *text += " }\n";
}

/// 2^`power` with the letter of its unit.
pub(super) fn magnitude(power: usize) -> String {
    let (power, letter) = match power {
        0..=9 => (power, ""),
        10..=19 => (power - 10, "K"),
        20..=29 => (power - 20, "M"),
        _ => (power - 30, "G"),
    };
    format!("{}{letter}", 1u64 << power)
}

/// A name as YAML takes it on one line: bytes that are not of plain words become `\xHH`, in quotes.
pub(crate) fn escaped(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".@-_:/".contains(byte);
    let mut text = String::new();
    for byte in name {
        match is_plain(byte) {
            true => text.push(char::from(*byte)),
            false => text += &format!("\\x{byte:02X}"),
        }
    }
    let is_bare = name.iter().all(is_plain) && !name.contains(&b':') && !name.starts_with(b"@");
    if is_bare { text } else { format!("\"{text}\"") }
}

/// The name that `escaped` made a text of.
fn unescaped(text: &str) -> Result<Vec<u8>, Errno> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let Some(inner) = inner else { return Ok(text.as_bytes().to_vec()) };
    let mut name = Vec::new();
    let mut rest = inner.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        name.push(match (byte, tail) {
            (b'\\', [b'x', high, low, tail @ ..]) => {
                rest = tail;
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or(Errno::EINVAL);
                (digit(high)? << 4 | digit(low)?) as u8
            }
            (b'\\', _) => return Err(Errno::EINVAL),
            (byte, _) => *byte,
        });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use sheen_types::CounterLine;

    use super::*;

    fn samples(line: CounterLine, value: u64) -> Samples {
        let count = u64::from(value > 0);
        Samples { line, count, min: value, max: value, sum: value, squared: value * value }
    }

    #[test]
    fn jobs_are_listed_to_the_blank_as_lustre_lists_them() {
        let at = |nanoseconds| Timestamp { seconds: 1_795_234_608, nanoseconds };
        let mut sizes = [0; 32];
        let none = sizes;
        sizes[17] = 1;
        let job = JobView {
            name: b"dd.0".to_vec(),
            first: at(242_105_530),
            latest: at(268_204_890),
            lines: vec![
                (samples(CounterLine::bytes("read_bytes"), 0), Some(none)),
                (samples(CounterLine::bytes("write_bytes"), 131_072), Some(sizes)),
                (samples(CounterLine::time("write"), 6425), None),
                (samples(CounterLine::time("parallel_rename_file"), 0), None),
            ],
        };
        // As Lustre 2.17 showed them.
        let expected = "\
job_stats:
- job_id:          dd.0
  snapshot_time:   1795234608.268204890 secs.nsecs
  start_time:      1795234608.242105530 secs.nsecs
  elapsed_time:    0.026099360 secs.nsecs
  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, \
sum:                0, sumsq:                  0, hist: {  } }
  write_bytes:     { samples:           1, unit: bytes, min:   131072, max:   131072, \
sum:           131072, sumsq:        17179869184, hist: { 128K: 1 } }
  write:           { samples:           1, unit: usecs, min:     6425, max:     6425, \
sum:             6425, sumsq:           41280625 }
  parallel_rename_file: { samples:           0, unit: usecs, min:        0, max:        0, \
sum:                0, sumsq:                  0 }
";
        assert_eq!(text(&[job]), expected);
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn names_stay_on_their_line_and_are_found_again() {
        for (name, shown) in [
            (&b"dd.0"[..], "dd.0"),
            (b"SLURM_77@node-1/a", "SLURM_77@node-1/a"),
            (b"a:b", "\"a:b\""),
            (b"@x", "\"@x\""),
            (b"my job\n", "\"my\\x20job\\x0A\""),
            (b"\xff\"", "\"\\xFF\\x22\""),
        ] {
            assert_eq!(escaped(name), shown);
            assert_eq!(unescaped(shown).as_deref(), Ok(name));
        }
        assert_eq!(unescaped("\"a\\n\""), Err(Errno::EINVAL));
        assert_eq!(unescaped("\"\\xg0\""), Err(Errno::EINVAL));
        let powers = [0, 9, 10, 19, 20, 31].map(magnitude);
        assert_eq!(powers, ["1", "512", "1K", "512K", "1M", "2G"]);
    }
}
