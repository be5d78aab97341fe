//! Layouts of directories: on which MDT's stripe a name lies. Pure functions, for MDTs and clients.
//!
//! A directory whose names lie in *stripes* has a *master*, the inode that programs see. Stripes are directories of their
//! own; each name is in that to which it hashes ([`stripe_of`]). The master and each stripe have the same layout in
//! their `trusted.lmv`, but that only the master knows the stripes' FIDs and that each stripe knows its number.
//!
//! While names are being moved (migration, split, merge) the layout has two ways of finding one, that of before and
//! the one from now on, and a name is in one of two stripes ([`DirectoryLayout::places`]).
//!
//! What an operator wishes for a new directory, or sets as a default for those to come, is a [`DirectoryWish`].
//!
//! A layout of a hash that is unknown here can be read: its stripes can be listed, and no name be found.
//!
//! Lustre's names: `lmv_mds_md_v1`, `lmv_user_md`, `lustre_lmv.h`.

mod changing;
mod command;
mod former;
mod hash;
mod restriping;
mod stripe_name;
mod temporary;
mod wish;

#[cfg(test)]
mod captured;
#[cfg(test)]
mod tests;

pub use changing::MigrationTarget;
pub use command::{HASH_NAMES, finishing_command};
pub use former::{FORMER, former_with, read_former};
pub use hash::{UnknownHash, stripe_of};
pub use stripe_name::{parse_stripe_name, stripe_name};
pub use wish::{DirectoryWish, WishedStripes};

use std::num::NonZeroU32;

use sheen_types::limits::DIRECTORY_STRIPES_MAX;
use sheen_types::{Fid, MdtIndex};
use sheen_wire::lmv::{LmvEa, LmvHash, LmvMagic, LmvMdsMd};
use sheen_wire::lov::PoolName;

use crate::LayoutError;

/// The layout of a new directory.
const FIRST_VERSION: u32 = 1;

/// Whose attribute a layout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The inode that programs see.
    Master {
        /// The MDT that was wished for the first stripe.
        mdt: MdtIndex,
        /// The stripes in order. What is no FID of the namespace is a stripe that was lost.
        stripes: Box<[Fid]>,
    },
    /// One of its stripes.
    Stripe {
        /// Which.
        number: u32,
    },
}

/// Why names are being moved between stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutChange {
    /// To other MDTs: the stripes to which they move are the first ones, those of before follow.
    Migration,
    /// To more stripes.
    Split,
    /// To fewer stripes.
    Merge,
}

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePlaces {
    /// The stripe that a new name goes to, and in which an old one is unless it has not been moved yet.
    pub now: u32,
    /// The stripe in which it may still be; `None` if that is the same.
    pub before: Option<u32>,
}

/// One way to find a name's stripe: some of the stripes, that follow each other, and a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Striping {
    hash: LmvHash,
    first: u32,
    count: NonZeroU32,
}

impl Striping {
    fn stripe_of(&self, name: &[u8]) -> Result<u32, UnknownHash> {
        Ok(self.first + stripe_of(self.hash, self.count, name)?)
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryLayout {
    holder: Holder,
    hash: LmvHash,
    count: NonZeroU32,
    version: u32,
    /// `lmv_migrate_offset` and `lmv_migrate_hash`: by [`Self::change`], how many stripes there were or will be,
    /// and how names chose one or will.
    moving: (u32, LmvHash),
    pool: PoolName,
    now: Striping,
    before: Option<Striping>,
}

impl DirectoryLayout {
    /// The master's, of a new directory of these stripes; `hash` may have flags that say of no change.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for no stripes or too many.
    pub fn new(mdt: MdtIndex, hash: LmvHash, stripes: Vec<Fid>) -> Result<Self, LayoutError> {
        let header = LmvMdsMd {
            magic: LmvMagic::V1,
            stripe_count: u32::try_from(stripes.len()).unwrap_or(u32::MAX),
            master_mdt_index: mdt.0.into(),
            hash_type: hash,
            layout_version: FIRST_VERSION,
            ..LmvMdsMd::default()
        };
        Self::read(&header, &stripes)
    }

    /// Reads a `trusted.lmv`.
    ///
    /// # Errors
    /// [`LayoutError::Unsupported`] for what is no layout but a wish, or foreign; [`LayoutError::Illegal`] for one that
    /// contradicts itself.
    pub fn from_ea(ea: &LmvEa) -> Result<Self, LayoutError> {
        match ea {
            LmvEa::Stripes { header, fids } => Self::read(header, fids),
            LmvEa::User { .. } => Err(LayoutError::Unsupported("a wish for a directory")),
            LmvEa::Foreign { .. } => Err(LayoutError::Unsupported("foreign directory")),
        }
    }

    fn read(header: &LmvMdsMd, fids: &[Fid]) -> Result<Self, LayoutError> {
        let count = NonZeroU32::new(header.stripe_count)
            .ok_or(LayoutError::Illegal("directory without stripes"))?;
        if count.get() > DIRECTORY_STRIPES_MAX {
            return Err(LayoutError::Illegal("too many stripes of a directory"));
        }
        let holder = holder(header, fids, count)?;
        let moving = (header.migrate_offset, header.migrate_hash);
        let (now, before) = stripings(header.hash_type, count, moving)?;
        Ok(Self {
            holder,
            hash: header.hash_type,
            count,
            version: header.layout_version,
            moving,
            pool: header.pool,
            now,
            before,
        })
    }

    /// The `trusted.lmv`.
    #[must_use]
    pub fn to_ea(&self) -> LmvEa {
        let (magic, index, fids) = match &self.holder {
            Holder::Master { mdt, stripes } => (LmvMagic::V1, mdt.0.into(), stripes.to_vec()),
            Holder::Stripe { number } => (LmvMagic::STRIPE, *number, Vec::new()),
        };
        let header = LmvMdsMd {
            magic,
            stripe_count: self.count.get(),
            master_mdt_index: index,
            hash_type: self.hash,
            layout_version: self.version,
            migrate_offset: self.moving.0,
            migrate_hash: self.moving.1,
            pool: self.pool,
            ..LmvMdsMd::default()
        };
        LmvEa::Stripes { header, fids }
    }

    /// What the stripe with this number has in its own attribute; `None` if there is none.
    #[must_use]
    pub fn of_stripe(&self, number: u32) -> Option<Self> {
        let is_there = number < self.count.get();
        is_there.then(|| Self { holder: Holder::Stripe { number }, ..self.clone() })
    }

    /// Whose it is.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// How names choose a stripe, with flags.
    #[must_use]
    pub fn hash(&self) -> LmvHash {
        self.hash
    }

    /// How many stripes there are, those of before included while names move.
    #[must_use]
    pub fn stripe_count(&self) -> NonZeroU32 {
        self.count
    }

    /// Goes up with each step of a change.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether names are being moved, and why.
    #[must_use]
    pub fn change(&self) -> Option<LayoutChange> {
        change_of(self.hash).ok().flatten()
    }

    /// Where a name is, and, while the layout changes, where it was.
    ///
    /// # Errors
    /// [`UnknownHash`] of either.
    pub fn places(&self, name: &[u8]) -> Result<NamePlaces, UnknownHash> {
        let now = self.now.stripe_of(name)?;
        let before = self.before.map(|before| before.stripe_of(name)).transpose()?;
        Ok(NamePlaces { now, before: before.filter(|before| *before != now) })
    }
}

fn holder(header: &LmvMdsMd, fids: &[Fid], count: NonZeroU32) -> Result<Holder, LayoutError> {
    let index = header.master_mdt_index;
    match header.magic {
        LmvMagic::V1 if fids.len() != count.get() as usize => {
            Err(LayoutError::Illegal("a FID for each stripe of a directory"))
        }
        LmvMagic::V1 => {
            let mdt = u16::try_from(index).map_err(|_| LayoutError::Illegal("MDT of a master"))?;
            Ok(Holder::Master { mdt: MdtIndex(mdt), stripes: fids.into() })
        }
        LmvMagic::STRIPE if index >= count.get() => Err(LayoutError::Illegal("number of a stripe")),
        LmvMagic::STRIPE => Ok(Holder::Stripe { number: index }),
        _ => Err(LayoutError::Illegal("magic of a striped directory")),
    }
}

/// `None` also where a stripe's own part of a split or merge is through: it has no [`LmvHash::MIGRATION`] any more.
fn change_of(hash: LmvHash) -> Result<Option<LayoutChange>, LayoutError> {
    const MIGRATION: u32 = LmvHash::MIGRATION;
    const SPLIT: u32 = LmvHash::MIGRATION | LmvHash::SPLIT;
    const MERGE: u32 = LmvHash::MIGRATION | LmvHash::MERGE;
    match hash.0 & LmvHash::CHANGE {
        MIGRATION => Ok(Some(LayoutChange::Migration)),
        SPLIT => Ok(Some(LayoutChange::Split)),
        MERGE => Ok(Some(LayoutChange::Merge)),
        flags if flags & LmvHash::SPLIT != 0 && flags & LmvHash::MERGE != 0 => {
            Err(LayoutError::Illegal("directory split and merged at once"))
        }
        _ => Ok(None),
    }
}

/// How names find their stripe from now on, and how they did.
fn stripings(
    hash: LmvHash,
    count: NonZeroU32,
    (offset, other_hash): (u32, LmvHash),
) -> Result<(Striping, Option<Striping>), LayoutError> {
    let all = Striping { hash, first: 0, count };
    let offset = NonZeroU32::new(offset).filter(|offset| *offset <= count);
    let offset = offset.ok_or(LayoutError::Illegal("stripes of a directory that changes"));
    let other = |offset| Striping { hash: other_hash, first: 0, count: offset };
    let Some(change) = change_of(hash)? else {
        // A stripe that is through has the names of the layout to come.
        let is_merged = hash.0 & LmvHash::MERGE != 0;
        return Ok((if is_merged { other(offset?) } else { all }, None));
    };
    let offset = offset?;
    let other = other(offset);
    match change {
        LayoutChange::Split => Ok((all, Some(other))),
        LayoutChange::Merge => Ok((other, Some(all))),
        LayoutChange::Migration => {
            let left = NonZeroU32::new(count.get() - offset.get())
                .ok_or(LayoutError::Illegal("no stripe that a directory migrates from"))?;
            let target = Striping { hash, first: 0, count: offset };
            let source = Striping { hash: other_hash, first: offset.get(), count: left };
            Ok((target, Some(source)))
        }
    }
}
