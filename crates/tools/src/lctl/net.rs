//! `lctl ping` and `list_nids`.

use clap::Args;
use sheen_types::{Errno, Nid};

use crate::output::{Fault, line};
use crate::processes::{command_all, command_first};

/// Options of `ping`.
#[derive(Args)]
pub(super) struct Ping {
    /// The node
    #[arg(value_name = "NID")]
    nid: Option<String>,
    /// Seconds to wait
    #[arg(value_name = "TIMEOUT")]
    timeout: Option<u32>,
}

/// Options of `list_nids`, which has none; words behind it are passed over, as in Lustre.
#[derive(Args)]
pub(super) struct ListNids {
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Seconds to wait for a node when nothing is said.
const TIMEOUT_SECONDS: u32 = 1;

/// The NIDs of the node that answered, its loopback first.
pub(super) fn ping(options: &Ping) -> Result<(), Fault> {
    let Some(text) = &options.nid else {
        return Err(Fault::new(Errno::EINVAL, "usage: ping id [timeout (secs)]"));
    };
    let Ok(nid) = text.strip_prefix("12345-").unwrap_or(text).parse::<Nid>() else {
        return Err(Fault::new(Errno::EINVAL, format!("Invalid NID argument \"{text}\"")));
    };
    let timeout = options.timeout.unwrap_or(TIMEOUT_SECONDS).to_string();
    match command_first("ping", &[&nid.to_string(), &timeout]) {
        Ok(answer) => {
            line(answer.trim_end());
            Ok(())
        }
        Err((errno, _)) => {
            line(format_args!("failed to ping {nid}: {errno}"));
            Err(Fault::reported(errno))
        }
    }
}

/// One line for each process that has a node.
pub(super) fn list_nids() -> Result<(), Fault> {
    let texts = command_all("nids", &[])
        .map_err(|(errno, text)| Fault::new(errno, format!("lctl list_nids: {text}")))?;
    texts.iter().flat_map(|text| text.lines()).for_each(line);
    Ok(())
}
