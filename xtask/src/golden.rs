//! `cargo xtask golden`: the recorded conversations, decoded and encoded again, and played.

use clap::Args;

use crate::shell::{self, Outcome, cargo};

/// Nothing to choose: all captures are read.
#[derive(Args)]
pub(crate) struct Options {}

/// Runs the tests of the captures and shows their reports.
pub(crate) fn run(_: &Options) -> Outcome {
    let mut test = cargo(&["test", "--package", "sheen-conformance", "--tests"]);
    test.args(["--", "--nocapture"]);
    shell::run(test)
}
