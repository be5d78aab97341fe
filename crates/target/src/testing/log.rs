//! What is logged, for tests of what operators read.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The lines of this thread's log.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap_or_default();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// Those that contain this.
    #[must_use]
    pub fn with(&self, part: &str) -> Vec<String> {
        self.0.lock().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

/// Does some work in this thread, which sees what has been logged of it.
pub fn logged(work: impl FnOnce(Lines)) {
    // Where there is one subscriber, a line that a thread without it reaches first is off for all threads.
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(Lines::default()));
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || work(lines));
}
