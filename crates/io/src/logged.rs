//! Errors that become errnos, which have no room for their cause.

/// For `map_err`: writes the error to the log, as a warning, before `$instead` takes its place. For what must not be: bytes
/// of a server or a store that cannot be read, a task that is gone. Each place has a line of the log of its own.
#[macro_export]
macro_rules! logged {
    ($instead:expr, $what:literal) => {
        |error| {
            ::tracing::warn!(%error, $what);
            $instead
        }
    };
}
