//! The layouts of a directory that is being changed, made from that of before: each step is one version higher.
//!
//! Lustre's names: `lod_dir_layout_attach`, `lod_dir_layout_shrink`.

use std::ops::Range;

use sheen_types::{Fid, MdtIndex};
use sheen_wire::lmv::{LmvHash, LmvMagic, LmvMdsMd};

use super::{DirectoryLayout, FIRST_VERSION, Holder, LayoutChange};
use crate::LayoutError;

/// What a directory migrates to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationTarget {
    /// The MDT that was wished for the first stripe.
    pub mdt: MdtIndex,
    /// How names choose a stripe; may have flags that say of no change.
    pub hash: LmvHash,
    /// In order.
    pub stripes: Vec<Fid>,
}

impl DirectoryLayout {
    /// The new master's, while names migrate to new stripes from those of this one, a master that is not being changed.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for no stripes, too many, or what is no such master.
    pub fn migration_to(&self, target: MigrationTarget) -> Result<Self, LayoutError> {
        match (self.change(), &self.holder) {
            (None, Holder::Master { stripes, .. }) => migration(target, stripes, self.hash),
            _ => Err(LayoutError::Illegal("directory that cannot migrate")),
        }
    }

    /// The layout of a migration of a directory without stripes, which becomes the one stripe that names migrate from.
    ///
    /// # Errors
    /// As [`Self::migration_to`].
    pub fn migration_of_plain(source: Fid, target: MigrationTarget) -> Result<Self, LayoutError> {
        // Of one stripe no hash counts; Lustre writes its default.
        migration(target, &[source], LmvHash::FNV_1A_64)
    }

    /// The master's when all names have been moved: [`Self::leaving`] are gone.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for one that is not being changed, or no master.
    pub fn finished(&self) -> Result<Self, LayoutError> {
        let nothing = LayoutError::Illegal("directory that is not being changed");
        let (Some(change), Holder::Master { mdt, stripes }) = (self.change(), &self.holder) else {
            return Err(nothing);
        };
        let LmvHash(hash) = match change {
            LayoutChange::Split => self.hash,
            // Where stripes go, no flag but that one stays, as in Lustre: it may be overstriped no more.
            LayoutChange::Migration => LmvHash(self.hash.0 & (LmvHash::TYPE_MASK | LmvHash::FIXED)),
            // The flag is the directory's, not that of how names choose.
            LayoutChange::Merge => {
                LmvHash(self.hash.0 & LmvHash::FIXED | self.moving.1.0 & LmvHash::TYPE_MASK)
            }
        };
        let left = &stripes[..self.leaving().start as usize];
        let header = LmvMdsMd {
            magic: LmvMagic::V1,
            stripe_count: left.len() as u32,
            master_mdt_index: mdt.0.into(),
            hash_type: LmvHash(hash & !LmvHash::CHANGE),
            layout_version: self.version.saturating_add(1),
            pool: self.pool,
            ..LmvMdsMd::default()
        };
        Self::read(&header, left)
    }

    /// The numbers of the stripes that are left without names by a change; empty if there is none, or a split.
    #[must_use]
    pub fn leaving(&self) -> Range<u32> {
        let count = self.count.get();
        match self.change() {
            Some(LayoutChange::Migration | LayoutChange::Merge) => self.moving.0..count,
            Some(LayoutChange::Split) | None => count..count,
        }
    }

    /// The layout by which a name is looked for before it is added. A stripe whose own part of a split or merge is through says
    /// that none of its names moves any more, but names of other stripes may still be on their way to it.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for one that contradicts itself.
    pub fn for_new_names(&self) -> Result<Self, LayoutError> {
        if self.hash.0 & (LmvHash::SPLIT | LmvHash::MERGE) == 0 || self.change().is_some() {
            return Ok(self.clone());
        }
        let hash = LmvHash(self.hash.0 | LmvHash::MIGRATION);
        let (now, before) = super::stripings(hash, self.count, self.moving)?;
        Ok(Self { hash, now, before, ..self.clone() })
    }

    /// How names choose a stripe from now on, with flags that say of no change; and how many stripes those are, the first ones.
    #[must_use]
    pub fn wanted(&self) -> (LmvHash, u32) {
        let hash = LmvHash(self.now.hash.0 & !LmvHash::CHANGE);
        (hash, self.now.count.get())
    }
}

fn migration(
    target: MigrationTarget,
    sources: &[Fid],
    source_hash: LmvHash,
) -> Result<DirectoryLayout, LayoutError> {
    let MigrationTarget { mdt, hash, mut stripes } = target;
    let offset = u32::try_from(stripes.len()).unwrap_or(u32::MAX);
    stripes.extend_from_slice(sources);
    let header = LmvMdsMd {
        magic: LmvMagic::V1,
        stripe_count: u32::try_from(stripes.len()).unwrap_or(u32::MAX),
        master_mdt_index: mdt.0.into(),
        hash_type: LmvHash(hash.0 & !LmvHash::CHANGE | LmvHash::MIGRATION),
        // The new master's own first one has no names.
        layout_version: FIRST_VERSION + 1,
        migrate_offset: offset,
        migrate_hash: source_hash,
        ..LmvMdsMd::default()
    };
    DirectoryLayout::read(&header, &stripes)
}
