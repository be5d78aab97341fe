//! Tests that cannot run where they are, for want of root, of a tool or of a recording, call [`skip`] before
//! they return: a proof that is left out must not look like one that was made.
//!
//! `cargo test` shows nothing of a test that passes, so the reason goes to the file that [`LIST`] names; `cargo
//! xtask test` counts its lines, and `.ci/run` fails if there is one.
#![allow(clippy::disallowed_methods, reason = "a test's own thread and the list of xtask")]

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// The environment variable with the path of the file to which each skipped test adds `TEST: REASON`.
pub const LIST: &str = "SHEEN_TEST_SKIPPED";

/// Counts the test of this thread as skipped, because of `reason`.
///
/// # Panics
/// If there is a list and it cannot be written.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    let Some(list) = std::env::var_os(LIST) else { return };
    let written = File::options().append(true).create(true).open(&list);
    written
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", list.display()));
}

/// Whether this process is root's; the test is skipped where it is not.
#[must_use]
pub fn needs_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can do this");
    }
    is_root
}

/// The folder of the captures of a real Lustre: `SHEEN_CAPTURES`, or where they lie beside the tree. The test is
/// skipped where there are none.
#[must_use]
pub fn needs_captures() -> Option<PathBuf> {
    folder(captures())
}

/// The folder `captures-2` beside that of the captures: of a real Lustre under faults. The test is skipped where
/// there are none.
#[must_use]
pub fn needs_captures_of_faults() -> Option<PathBuf> {
    folder(captures().join("../captures-2"))
}

fn captures() -> PathBuf {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    std::env::var_os("SHEEN_CAPTURES").map_or_else(|| default.into(), PathBuf::from)
}

fn folder(path: PathBuf) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path);
    }
    skip(&format!("no captures in {}; SHEEN_CAPTURES is for another place", path.display()));
    None
}
