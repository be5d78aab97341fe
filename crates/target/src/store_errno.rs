//! Where an error of a store becomes the errno of an answer, and its cause would be lost.

use sheen_store::StoreError;
use sheen_types::Errno;

/// The errno for the client. `EIO` says nothing of what is wrong with which file of the host, so that is logged here,
/// once; a name that is not there or a full disk is an ordinary answer, and the store itself has logged an object
/// that is damaged. A store that is closed has not failed: its server ends, and the answer goes nowhere.
pub fn store_errno(error: StoreError) -> Errno {
    if let StoreError::Corrupt(_) | StoreError::Io(_) = error {
        tracing::error!(%error, "the store fails a request");
    }
    error.errno()
}
