//! Why the names of several MDTs cannot be put in order: what is missing would be taken for lost.

use std::fmt;

use sheen_store::StoreError;
use sheen_types::MdtIndex;

use crate::check::{FailedStore, MdtAtRest, Mdts, Reading, mismatches};

/// Why no names are put in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The store of an MDT that any of them knows is not among them, or that of MDT0000. Its number is as the
    /// tables of sequences have it: no MDT has one above 65,535.
    Missing(u32),
    /// The store in the place of this MDT is not the one that another of them knows by its identity.
    IdentityMismatch(MdtIndex),
    /// What this MDT has of sequences cannot be read, or gives those of an MDT to another target, too: where an inode belongs
    /// is not certain.
    Sequences(MdtIndex, String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(mdt) => write!(out, "MDT{mdt:04x} is not here"),
            Self::IdentityMismatch(mdt) => write!(out, "MDT{:04x} is another one", mdt.0),
            Self::Sequences(mdt, what) => write!(out, "MDT{:04x}: {what}", mdt.0),
        }
    }
}

/// What keeps [`crate::rebuild_all`] from putting the names of these MDTs in order.
///
/// # Errors
/// Those of the stores.
pub fn repair_obstacle(mdts: &[MdtAtRest<'_>]) -> Result<Option<Obstacle>, FailedStore> {
    let reading = Reading::default();
    obstacle(mdts, &reading).map_err(|error| FailedStore { mdt: reading.mdt(), error })
}

pub(super) fn obstacle(
    mdts: &[MdtAtRest<'_>],
    reading: &Reading,
) -> Result<Option<Obstacle>, StoreError> {
    if let Some(mismatch) = mismatches(mdts, reading)?.first() {
        return Ok(Some(Obstacle::IdentityMismatch(mismatch.mdt)));
    }
    let (known, _) = Mdts::load(mdts, reading)?;
    if let Some(mdt) = known.missing().first() {
        return Ok(Some(Obstacle::Missing(*mdt)));
    }
    // All that a single one has is its own.
    let uncertainty = known.uncertainty().filter(|_| mdts.len() > 1);
    Ok(uncertainty.map(|(mdt, what)| Obstacle::Sequences(mdt, what)))
}
