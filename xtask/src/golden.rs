//! `cargo xtask golden`: the recorded conversations, decoded and encoded again.

use clap::Args;

use crate::shell::{self, Outcome, cargo};

/// No options yet beyond which captures.
#[derive(Args)]
pub(crate) struct Options {
    /// Report on every capture, also those whose messages are not all typed yet
    #[arg(long)]
    all: bool,
}

/// Runs the golden test and shows its report.
pub(crate) fn run_golden(all: bool) -> Outcome {
    let mut test = cargo(&["test", "--package", "sheen-conformance", "--test", "golden"]);
    test.args(["--", "--nocapture"]);
    if all {
        test.env("SHEEN_GOLDEN_ALL", "1");
    }
    shell::run(test)
}

pub(crate) fn run(options: &Options) -> Outcome {
    run_golden(options.all)
}
