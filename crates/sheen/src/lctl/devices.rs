//! `lctl dl`: the devices of all processes, numbered through.

use std::process::ExitCode;

use clap::Args;

use super::{command_all, line};

/// Options of `dl`.
#[derive(Args)]
pub(super) struct Devices {
    /// Show the NID that each device is connected to
    #[arg(short = 't')]
    with_nid: bool,
}

/// Each process answers lines of state, type, name, UUID, references and NID.
pub(super) fn show(options: &Devices) -> ExitCode {
    let texts = command_all("devices", &[]).unwrap_or_default();
    for (number, device) in texts.iter().flat_map(|text| text.lines()).enumerate() {
        let words: Vec<&str> = device.split(' ').collect();
        let kept = if options.with_nid { words.len() } else { words.len().min(5) };
        line(format_args!("{number:>3} {}", words[..kept].join(" ")));
    }
    ExitCode::SUCCESS
}
