//! `cargo xtask test`.

use clap::Args;

use crate::shell::Outcome;

#[derive(Args)]
pub(crate) struct Options {}

pub(crate) fn run(_options: &Options) -> Outcome {
    Err("not here yet".to_owned())
}
