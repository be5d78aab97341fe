//! `lctl dl`: the devices of all processes, numbered through.

use clap::Args;

use crate::output::line;
use crate::processes::command_all;

/// Options of `dl`.
#[derive(Args)]
pub(super) struct Devices {
    /// Show the NID that each device is connected to
    #[arg(short = 't', long = "target")]
    with_nid: bool,
}

/// Each process answers lines of state, type, name, UUID, references and NID. Nothing running
/// is an empty list, as on a node where Lustre is not started.
pub(super) fn show(options: &Devices) {
    let texts = command_all("devices", &[]).unwrap_or_default();
    for (number, device) in texts.iter().flat_map(|text| text.lines()).enumerate() {
        line(numbered(number, device, options.with_nid));
    }
}

fn numbered(number: usize, device: &str, with_nid: bool) -> String {
    let kept = if with_nid { 6 } else { 5 };
    let words: Vec<&str> = device.split_whitespace().take(kept).collect();
    format!("{number:>3} {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn lines_are_lustres() {
        let device = "UP osc lustre-OST0000-osc-ff11 07e4c342-d91b 5 10.77.0.11@tcp";
        let short = "  5 UP osc lustre-OST0000-osc-ff11 07e4c342-d91b 5";
        assert_eq!(numbered(5, device, false), short);
        assert_eq!(numbered(5, device, true), format!("{short} 10.77.0.11@tcp"));
    }
}
