//! Stores that are not those of the MDTs which the other MDTs know by their numbers: of another file system, or formatted anew.
//!
//! Each MDT has an identity of its own and records those of all that it has met (decision 0016). MDTs that run refuse one of
//! another identity; at rest it counts as missing, and so nothing is redone in it, checked in it or repaired by it.

use std::collections::BTreeMap;

use sheen_store::StoreError;
use sheen_target::ChangesAtRest;
use sheen_types::{MdtIndex, Uuid};
use sheen_wire::fld::SeqRangeFlags;

use super::mdts::{MdtAtRest, Reading, Said, table_of};
use crate::identity;
use crate::other_mdts::recorded_at_rest;

/// A store in the place of an MDT that is another one's.
pub(crate) struct IdentityMismatch {
    /// In whose place.
    pub(crate) mdt: MdtIndex,
    /// What it would start with, if it has any.
    identity: Option<Uuid>,
    /// The MDT that knows another one by this number.
    known_by: MdtIndex,
    /// The identity that this one has recorded.
    recorded: Option<Uuid>,
}

impl IdentityMismatch {
    /// As a fault.
    pub(crate) fn said(&self) -> Said {
        let Self { mdt, identity, known_by, recorded } = self;
        let own = match identity {
            Some(identity) => format!("its identity is {identity}"),
            None => "it has no identity".to_owned(),
        };
        let other = match recorded {
            Some(recorded) => {
                format!("MDT{:04x} knows MDT{:04x} as {recorded}", known_by.0, mdt.0)
            }
            None => format!("MDT{:04x} has met MDT{:04x}", known_by.0, mdt.0),
        };
        let text = format!(
            "{own}, and {other}: it is another MDT, of another file system or formatted anew; put the right one back"
        );
        (*mdt, identity::IDENTITY, text)
    }
}

/// Those of `all` that other MDTs do not know by their numbers. Where two do not know each other, it is the one that fewer know,
/// and of as many the one with the higher number: what is left agrees.
///
/// # Errors
/// Those of the stores.
pub(crate) fn mismatches(
    all: &[MdtAtRest<'_>],
    reading: &Reading,
) -> Result<Vec<IdentityMismatch>, StoreError> {
    let mut mismatches = Vec::new();
    for by in all {
        for of in all.iter().filter(|of| of.mdt != by.mdt) {
            mismatches.extend(mismatch(by, of, reading)?);
        }
    }
    let mut found = Vec::new();
    while let Some(mdt) = most_mismatched(&mismatches) {
        let (of_it, of_further): (Vec<_>, Vec<_>) =
            mismatches.into_iter().partition(|it| it.mdt == mdt);
        found.extend(of_it.into_iter().next());
        mismatches = of_further.into_iter().filter(|it| it.known_by != mdt).collect();
    }
    Ok(found)
}

/// Those of `all` that match.
pub(crate) fn matching<'a>(
    all: &[MdtAtRest<'a>],
    mismatches: &[IdentityMismatch],
) -> Vec<MdtAtRest<'a>> {
    let is_one = |mdt: MdtIndex| mismatches.iter().any(|it| it.mdt == mdt);
    all.iter().filter(|it| !is_one(it.mdt)).copied().collect()
}

fn most_mismatched(mismatches: &[IdentityMismatch]) -> Option<MdtIndex> {
    let mut times: BTreeMap<MdtIndex, usize> = BTreeMap::new();
    mismatches.iter().for_each(|it| *times.entry(it.mdt).or_default() += 1);
    times.into_iter().max_by_key(|(mdt, times)| (*times, *mdt)).map(|(mdt, _)| mdt)
}

/// Whether what one MDT knows of another one's number speaks against its store.
fn mismatch(
    by: &MdtAtRest<'_>,
    of: &MdtAtRest<'_>,
    reading: &Reading,
) -> Result<Option<IdentityMismatch>, StoreError> {
    reading.note(of.mdt);
    let identity = identity::at_rest(of.store)?;
    reading.note(by.mdt);
    let recorded = recorded_at_rest(by.store, of.mdt.0)?;
    let is_another = match (&identity, &recorded) {
        (Some(own), Some(recorded)) => own != recorded,
        (Some(_), None) => false,
        (None, Some(_)) => true,
        (None, None) => has_met(by, of.mdt)?,
    };
    let (mdt, known_by) = (of.mdt, by.mdt);
    Ok(is_another.then_some(IdentityMismatch { mdt, identity, known_by, recorded }))
}

/// Whether an MDT has had to do with another one, which then had an identity.
fn has_met(by: &MdtAtRest<'_>, mdt: MdtIndex) -> Result<bool, StoreError> {
    let ranges = table_of(by, &mut Vec::new())?;
    let is_its = |index: u32| index == u32::from(mdt.0);
    if ranges.iter().any(|it| it.flags == SeqRangeFlags::MDT && is_its(it.index)) {
        return Ok(true);
    }
    let changes = ChangesAtRest::load(by.store)?;
    Ok(changes.records().any(|record| record.part_of(mdt).is_some()))
}
