//! `sheen dump`: the Lustre messages of a packet capture, one line each.

use std::io::{BufWriter, stdout};
use std::path::PathBuf;

use clap::Args;
use sheen_conformance::dump::{Detail, dump_file};

use crate::output::Fault;

/// Show the Lustre messages in a packet capture
#[derive(Args)]
pub struct Dump {
    /// Show each structure with all its fields
    #[arg(short, long)]
    verbose: bool,
    /// A file written by tcpdump or Wireshark
    #[arg(value_name = "FILE.pcap")]
    file: PathBuf,
}

/// Writes a line for each message of the file, or all its fields.
///
/// # Errors
/// The file cannot be read, or is no capture.
pub fn run(options: &Dump) -> Result<(), Fault> {
    let detail = if options.verbose { Detail::Fields } else { Detail::Line };
    let mut out = BufWriter::new(stdout().lock());
    dump_file(&options.file, detail, &mut out)
        .map_err(|text| Fault { code: 1, text: format!("sheen dump: {text}") })
}
