//! To which file system a process belongs, and which one a command is for.

use std::sync::Mutex;

use sheen_control::Client;
use sheen_control::api::{ORIGIN, Origin};

use crate::command::command;

/// The MGS whose processes are asked; a tool runs one command, and ends.
static CHOSEN: Mutex<Option<Home>> = Mutex::new(None);

/// What distinguishes the file systems of a machine: where their MGS is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// The NIDs of the MGS.
    pub(crate) mgs: Vec<String>,
    /// Not known of another user's mount.
    pub(crate) port: Option<u16>,
}

impl Home {
    pub(crate) fn of(origin: &Origin) -> Self {
        Self { mgs: origin.mgs.clone(), port: Some(origin.port) }
    }

    /// Processes may know more or fewer of the NIDs of one MGS.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let is_port = self.port.is_none() || other.port.is_none() || self.port == other.port;
        is_port && self.mgs.iter().any(|nid| other.mgs.contains(nid))
    }

    /// The one that `MGSNID[:MGSNID...]:/FSNAME` names.
    pub(crate) fn of_source(source: &str) -> Self {
        let nids = source.split_once(":/").map_or("", |(nids, _)| nids);
        Self { mgs: nids.split([':', ',']).map(str::to_owned).collect(), port: None }
    }
}

/// The MGS whose processes are asked, if one is chosen.
pub(crate) fn chosen() -> Option<Home> {
    CHOSEN.lock().ok()?.clone()
}

/// Chooses it: from now on no other processes are asked.
pub(crate) fn choose(home: Home) {
    if let Ok(mut chosen) = CHOSEN.lock() {
        *chosen = Some(home);
    }
}

/// What a process answers of itself.
pub(crate) fn origin(process: &mut Client) -> Option<Origin> {
    let text = command(process, ORIGIN, &[]).ok()?;
    serde_json::from_str(&text).ok()
}

/// Where a process belongs.
pub(crate) fn home(process: &mut Client) -> Option<Home> {
    origin(process).as_ref().map(Home::of)
}
