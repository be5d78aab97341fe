//! `lctl ping` and `list_nids`.

use std::process::ExitCode;

use clap::Args;
use sheen_types::{Errno, Nid};

use super::{command_all, exit_code, line};

/// Options of `ping`.
#[derive(Args)]
pub(super) struct Ping {
    /// The node
    #[arg(value_name = "NID")]
    nid: String,
    /// Seconds to wait
    #[arg(value_name = "TIMEOUT")]
    timeout: Option<u32>,
}

/// The NIDs of the node that answered, its loopback first.
pub(super) fn ping(options: &Ping) -> ExitCode {
    let Ok(nid) = options.nid.parse::<Nid>() else {
        eprintln!("Can't parse process id \"{}\"", options.nid);
        return exit_code(Errno::EINVAL);
    };
    let timeout = options.timeout.unwrap_or(1).to_string();
    match command_all("ping", &[&nid.to_string(), &timeout]) {
        Ok(texts) => {
            line(texts[0].trim_end());
            ExitCode::SUCCESS
        }
        Err((errno, _)) => {
            eprintln!("failed to ping {nid}: {errno}");
            exit_code(errno)
        }
    }
}

/// One line for each process that has a node.
pub(super) fn list_nids() -> ExitCode {
    match command_all("nids", &[]) {
        Ok(texts) => {
            texts.iter().flat_map(|text| text.lines()).for_each(line);
            ExitCode::SUCCESS
        }
        Err((errno, message)) => {
            eprintln!("IOC_LIBCFS_GET_NI error: {message}");
            exit_code(errno)
        }
    }
}
