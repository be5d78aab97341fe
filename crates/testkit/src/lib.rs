//! What the tests share: virtual time, seeded networks, temporary clusters.

pub mod browser;
pub mod bytes;
pub mod cluster;
pub mod process;
pub mod scene;
pub mod tree;
pub mod vnet;
pub mod workload;

use std::fmt::Display;
use std::path::PathBuf;

/// What a workload or a step of a test answers: its value, or one text on what went wrong.
pub type Outcome<T = ()> = Result<T, String>;

/// Adds to an error what the test was doing when it came.
pub trait Context<T> {
    /// The value, or `what` in front of the error's text.
    fn context(self, what: impl Display) -> Outcome<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Fails with `fault` unless `holds`.
pub fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(fault()) }
}

/// The workspace's root folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
        .to_owned()
}
