//! The MDTs, each with the channel to it, the locks and FIDs that this client has from it, and the files open there.
//!
//! What always holds: a handle that the MDT has opened is closed once, with the value that the MDT has for it
//! at that time (a restart replays the open and gives another).

mod credentials;
mod fids;
mod handle;
mod mdts;
mod open_file;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sheen_rpc::{Channel, ImportState};
use sheen_types::{Errno, MdtIndex};

pub(crate) use credentials::NO_GROUP;
pub(crate) use fids::FidSource;
pub(crate) use handle::HandleCell;
pub(crate) use mdts::Mdts;
pub(crate) use open_file::{CloseAttributes, MdtOpen};

use crate::data::InodeData;
use crate::locks::ClientNamespace;

/// One MDT as this client has it, as Lustre's MDC.
pub(crate) struct Mdc {
    /// Its number.
    pub(crate) index: MdtIndex,
    /// The channel to it.
    pub(crate) channel: Arc<dyn Channel>,
    /// What it has granted to us.
    pub(crate) locks: Arc<ClientNamespace>,
    /// New FIDs on it.
    pub(crate) fids: FidSource,
    /// File data that lies on it.
    pub(crate) data: Arc<dyn InodeData>,
    /// Whether it has refused a batch, though it says that it takes them.
    pub(crate) refuses_batches: AtomicBool,
}

impl Mdc {
    /// Whether it is there, as far as is known: connected, or not asked for so long that the connection was given up.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.channel.state(), ImportState::Full | ImportState::Idle)
    }
}

/// The errno in an intent's result; `None` for success.
pub(crate) fn intent_status(result: u64) -> Option<Errno> {
    Errno::from_status(result as u32 as i32)
}
