//! At most a line a second of each kind, with a count of those left out.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sheen_types::HashMap;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// A line of a kind comes so often at most.
const SPACING: Duration = Duration::from_secs(1);

/// One kind of line.
struct Kind {
    metadata: &'static Metadata<'static>,
    /// When a line, or the count of those left out, was written.
    written: Instant,
    left_out: u64,
}

/// What was written of each kind.
#[derive(Default)]
pub(super) struct Limits {
    kinds: Mutex<HashMap<Identifier, Kind>>,
    left_out: Condvar,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// It is written, and so is that some were left out before it, within this time.
    Written(Option<(u64, Duration)>),
    LeftOut,
}

impl Limits {
    fn turn(&self, metadata: &'static Metadata<'static>, now: Instant) -> Turn {
        // What operators ask to see in detail they see in detail.
        let is_wanted =
            [sheen_parameters::EACH_LINE, sheen_store_disk::EACH_LINE, sheen_target::EACH_LINE]
                .contains(&metadata.target());
        if *metadata.level() > Level::INFO || is_wanted {
            return Turn::Written(None);
        }
        let mut kinds = self.kinds.lock();
        let Some(kind) = kinds.get_mut(&metadata.callsite()) else {
            kinds.insert(metadata.callsite(), Kind { metadata, written: now, left_out: 0 });
            return Turn::Written(None);
        };
        let time = now.saturating_duration_since(kind.written);
        if time < SPACING {
            kind.left_out += 1;
            if kind.left_out == 1 {
                self.left_out.notify_one();
            }
            return Turn::LeftOut;
        }
        kind.written = now;
        let left_out = std::mem::take(&mut kind.left_out);
        Turn::Written((left_out > 0).then_some((left_out, time)))
    }

    /// The kinds of which lines were left out and none was written for a second.
    fn due(&self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for kind in self.kinds.lock().values_mut() {
            let time = now.saturating_duration_since(kind.written);
            if kind.left_out > 0 && time >= SPACING {
                let left_out = std::mem::take(&mut kind.left_out);
                kind.written = now;
                lines.push(summary(kind.metadata, left_out, time));
            }
        }
        lines.sort();
        lines
    }

    /// Whether lines were left out whose count is not written yet.
    fn is_behind(kinds: &HashMap<Identifier, Kind>) -> bool {
        kinds.values().any(|kind| kind.left_out > 0)
    }

    /// Starts the thread that writes how many lines were left out where no further line of the kind follows. It
    /// sleeps while none is left out.
    #[expect(clippy::disallowed_methods, reason = "the log is below all that has a clock or tasks")]
    pub(super) fn write_counts_left_out(self: &Arc<Self>, mut log: impl Write + Send + 'static) {
        let limits = Arc::clone(self);
        let write = move || {
            loop {
                {
                    let mut kinds = limits.kinds.lock();
                    while !Self::is_behind(&kinds) {
                        limits.left_out.wait(&mut kinds);
                    }
                }
                std::thread::sleep(SPACING);
                for line in limits.due(Instant::now()) {
                    // There is no place to report that the log cannot be written.
                    let _ = log.write_all(line.as_bytes());
                }
            }
        };
        // Without the thread, the count comes with the next line of the kind.
        let _ = std::thread::Builder::new().name("log".to_owned()).spawn(write);
    }
}

fn summary(metadata: &Metadata<'_>, left_out: u64, time: Duration) -> String {
    let place = metadata.file().and_then(|file| file.rsplit('/').next()).unwrap_or_default();
    let line = metadata.line().unwrap_or(0);
    let mut text = String::new();
    let stamp = tracing_subscriber::fmt::time::SystemTime;
    let _ =
        tracing_subscriber::fmt::time::FormatTime::format_time(&stamp, &mut Writer::new(&mut text));
    let (level, target) = (metadata.level(), metadata.target());
    let _ = writeln!(text, " {level:>5} {target}: {} of {place}:{line}", more(left_out, time));
    text
}

fn more(left_out: u64, time: Duration) -> String {
    format!("... {left_out} more in the last {} s", time.as_secs_f64().round().max(1.0))
}

/// Writes lines as `tracing` does, but not too many of a kind.
pub(super) struct Limited {
    limits: Arc<Limits>,
    format: Format,
}

impl Limited {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Self { limits, format: tracing_subscriber::fmt::format().with_ansi(false) }
    }
}

impl<S, N> FormatEvent<S, N> for Limited
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "the log is below all that has a clock")]
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Turn::Written(before) = self.limits.turn(event.metadata(), Instant::now()) else {
            return Ok(());
        };
        let Some((left_out, time)) = before else {
            return self.format.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{} ({})", line.trim_end_matches('\n'), more(left_out, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes into a shared text.
    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Text {
        fn lines(&self) -> Vec<String> {
            String::from_utf8_lossy(&self.0.lock()).lines().map(str::to_owned).collect()
        }
    }

    fn logged(limits: &Arc<Limits>, work: impl FnOnce()) -> Vec<String> {
        use tracing_subscriber::layer::SubscriberExt as _;
        let text = Text::default();
        let writer = text.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false);
        let layer = layer.with_writer(move || writer.clone());
        let layer = layer.event_format(Limited::new(Arc::clone(limits)));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, work);
        text.lines()
    }

    #[test]
    fn a_kind_of_line_comes_once_a_second_beside_other_kinds() {
        let limits = Arc::new(Limits::default());
        let lines = logged(&limits, || {
            for peer in 0..1_000 {
                tracing::warn!(peer, "broke the protocol");
                tracing::info!(peer, "connect refused");
            }
            tracing::error!("another kind");
            (0..3).for_each(
                |lock| tracing::warn!(target: sheen_parameters::EACH_LINE, lock, "a lock"),
            );
            (0..3).for_each(
                |target| tracing::info!(target: sheen_target::EACH_LINE, target, "recovers"),
            );
            (0..3).for_each(|step| tracing::debug!(step, "in detail"));
        });
        let of = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        let counts = ["broke", "refused", "another", "a lock", "recovers", "in detail"].map(of);
        assert_eq!((counts, lines.len()), ([1, 1, 1, 3, 3, 3], 12), "{lines:#?}");
    }

    #[test]
    fn a_line_names_the_calls_that_it_belongs_to() {
        let lines = logged(&Arc::default(), || {
            let _call = tracing::debug_span!("fuse", operation = "open", unique = 7).entered();
            let _rpc = tracing::debug_span!("rpc", request = "LDLM_INTENT_OPEN").entered();
            tracing::warn!("takes long");
        });
        let calls = r#"fuse{operation="open" unique=7}:rpc{request="LDLM_INTENT_OPEN"}: "#;
        assert!(lines.len() == 1 && lines[0].contains(calls), "{lines:?}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a clock of its own")]
    fn what_was_left_out_is_counted_with_the_next_line_or_without_one() {
        let limits = Arc::new(Limits::default());
        let mut metadata = None;
        logged(&limits, || tracing::warn!("broke the protocol"));
        for (_, kind) in limits.kinds.lock().iter() {
            metadata = Some(kind.metadata);
        }
        let (metadata, start) = (metadata.expect("one kind"), Instant::now());
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        for _ in 0..7 {
            assert_eq!(limits.turn(metadata, after(500)), Turn::LeftOut);
        }
        assert!(limits.due(after(700)).is_empty(), "not yet");
        let Turn::Written(Some((7, time))) = limits.turn(metadata, after(2_900)) else {
            panic!("the next line counts seven")
        };
        assert_eq!(more(7, time), "... 7 more in the last 3 s");
        assert_eq!(limits.turn(metadata, after(3_000)), Turn::LeftOut);
        let due = limits.due(after(5_000));
        assert_eq!(due.len(), 1);
        assert!(due[0].contains("WARN") && due[0].contains("1 more in the last 2 s"), "{due:?}");
        assert!(limits.due(after(9_000)).is_empty(), "written once");
    }
}
