//! The log of a process: at most a line a second of each kind, in files that do not grow for ever.
//!
//! Owns the rate limit ([`limited`]), the rotation ([`rotating`]) and what the journal of systemd wants otherwise
//! ([`journal`]). What always holds: a kind of line,
//! which is a place in the source, is written at once if none of it was within the last second; the rest of
//! them are counted, and the count is written within two seconds, also if nothing more comes.

mod journal;
mod limited;
mod rotating;

use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub(crate) use rotating::FILE_VARIABLE;

use limited::{Limited, Limits};
use rotating::Log;

/// Logs to standard error: from `info` on, or what `SHEEN_LOG` says (`warn`, `debug`, `sheen_mds=trace`, ...). Where a
/// file is named in [`FILE_VARIABLE`], standard error is that file, and is rotated.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("SHEEN_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let (log, limits) = (Log::start(), Arc::new(Limits::default()));
    let lines = Limited::new(Arc::clone(&limits));
    let written = log.clone();
    let layer =
        tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || written.clone());
    // Where the log cannot be written, because its disk is full, that cannot be reported either: the attempt
    // would panic, and the thread that logged would never end.
    let layer = layer.log_internal_errors(false).event_format(lines);
    // A second start in one process keeps the first.
    if tracing_subscriber::registry().with(filter).with(layer).try_init().is_ok() {
        limits.write_counts_left_out(log);
    }
}
