//! The layouts of a directory that is split or merged, made from that of before: each step is one version higher.
//!
//! Each stripe has the flag `MIGRATION` until all names in it are where they belong; then it is *through*, and the master keeps
//! the flag until all of them are.
//!
//! Lustre's names: `lod_dir_layout_split`, `mdt_restripe_internal`, `mdt_restripe_migrate_finish`.

use sheen_types::{Fid, MdtIndex};
use sheen_wire::lmv::{LmvHash, LmvMagic, LmvMdsMd};

use super::{DirectoryLayout, FIRST_VERSION, Holder, LayoutChange};
use crate::LayoutError;

/// As Lustre has it for a directory without stripes: of one stripe no hash counts.
const OF_PLAIN: LmvHash = LmvHash(LmvHash::FNV_1A_64.0 | LmvHash::FIXED);

impl DirectoryLayout {
    /// The master's, while names move from its stripes to these more, chosen by `hash` from now on.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for no more stripes, too many, or what is no master at rest.
    pub fn split_to(&self, hash: LmvHash, added: &[Fid]) -> Result<Self, LayoutError> {
        let (mdt, stripes) = self.master_at_rest()?;
        let before = (stripes, self.hash);
        let version = self.version.saturating_add(1);
        Ok(Self { pool: self.pool, ..split(mdt, before, (hash, added), version)? })
    }

    /// The layout of a split of a directory without stripes, for the new master of which it becomes the first stripe.
    ///
    /// # Errors
    /// As [`Self::split_to`].
    pub fn split_of_plain(
        mdt: MdtIndex,
        source: Fid,
        hash: LmvHash,
        added: &[Fid],
    ) -> Result<Self, LayoutError> {
        // Its first versions would have been the directory alone, and as the one stripe.
        split(mdt, (&[source], OF_PLAIN), (hash, added), FIRST_VERSION + 2)
    }

    /// The master's, while names move to the first `count` of its stripes, chosen by `hash` from now on.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for no stripe or more than there are, and for what is no master at rest.
    pub fn merge_to(&self, hash: LmvHash, count: u32) -> Result<Self, LayoutError> {
        let (mdt, stripes) = self.master_at_rest()?;
        let flags = LmvHash::MIGRATION | LmvHash::MERGE | hash.0 & LmvHash::FIXED;
        let header = LmvMdsMd {
            magic: LmvMagic::V1,
            stripe_count: self.count.get(),
            master_mdt_index: mdt.0.into(),
            hash_type: LmvHash(self.hash.0 | flags),
            layout_version: self.version.saturating_add(1),
            migrate_offset: count,
            migrate_hash: LmvHash(hash.0 & !LmvHash::CHANGE),
            pool: self.pool,
            ..LmvMdsMd::default()
        };
        Self::read(&header, stripes)
    }

    /// A stripe's when all names in it are where a split or merge wants them.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for what is no stripe of a directory that is split or merged.
    pub fn without_migration(&self) -> Result<Self, LayoutError> {
        match (self.change(), &self.holder) {
            (Some(LayoutChange::Split | LayoutChange::Merge), Holder::Stripe { number }) => {
                let header = LmvMdsMd {
                    magic: LmvMagic::STRIPE,
                    stripe_count: self.count.get(),
                    master_mdt_index: *number,
                    hash_type: LmvHash(self.hash.0 & !LmvHash::MIGRATION),
                    layout_version: self.version,
                    migrate_offset: self.moving.0,
                    migrate_hash: self.moving.1,
                    pool: self.pool,
                    ..LmvMdsMd::default()
                };
                Self::read(&header, &[])
            }
            _ => Err(LayoutError::Illegal("stripe of a directory that is not split or merged")),
        }
    }

    /// The master's of which this is a stripe's; while it changes, with names still to be moved.
    ///
    /// # Errors
    /// [`LayoutError::Illegal`] for not as many stripes as it says.
    pub fn of_master(&self, mdt: MdtIndex, stripes: Vec<Fid>) -> Result<Self, LayoutError> {
        if stripes.len() != self.count.get() as usize {
            return Err(LayoutError::Illegal("a FID for each stripe of a directory"));
        }
        let holder = Holder::Master { mdt, stripes: stripes.into() };
        Ok(Self { holder, ..self.for_new_names()? })
    }

    /// Whether it says of a change, its own part of which may be through.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.hash.0 & LmvHash::CHANGE != 0
    }

    /// Whether names in it are being moved by a split or merge: a stripe of which this is not true any more is through.
    #[must_use]
    pub fn is_restriping(&self) -> bool {
        matches!(self.change(), Some(LayoutChange::Split | LayoutChange::Merge))
    }

    /// Whether it is a stripe that is through, of a directory whose split or merge has not ended.
    #[must_use]
    pub fn is_through(&self) -> bool {
        let flags = self.hash.0 & LmvHash::CHANGE;
        flags & LmvHash::MIGRATION == 0 && flags != 0
    }

    fn master_at_rest(&self) -> Result<(MdtIndex, &[Fid]), LayoutError> {
        match &self.holder {
            Holder::Master { mdt, stripes } if self.hash.0 & LmvHash::CHANGE == 0 => {
                Ok((*mdt, stripes))
            }
            _ => Err(LayoutError::Illegal("directory that cannot be split or merged")),
        }
    }
}

fn split(
    mdt: MdtIndex,
    (stripes, hash_before): (&[Fid], LmvHash),
    (hash, added): (LmvHash, &[Fid]),
    version: u32,
) -> Result<DirectoryLayout, LayoutError> {
    if added.is_empty() {
        return Err(LayoutError::Illegal("directory that is split into no more stripes"));
    }
    let all = [stripes, added].concat();
    let hash = hash.0 & !LmvHash::CHANGE | LmvHash::MIGRATION | LmvHash::SPLIT;
    let header = LmvMdsMd {
        magic: LmvMagic::V1,
        stripe_count: u32::try_from(all.len()).unwrap_or(u32::MAX),
        master_mdt_index: mdt.0.into(),
        hash_type: LmvHash(hash),
        layout_version: version,
        migrate_offset: u32::try_from(stripes.len()).unwrap_or(u32::MAX),
        migrate_hash: hash_before,
        ..LmvMdsMd::default()
    };
    DirectoryLayout::read(&header, &all)
}

#[cfg(test)]
mod tests {
    use sheen_wire::lmv::LmvEa;

    use super::super::captured::{MASTERS, MERGE, SPLIT, STRIPES};
    use super::*;
    use crate::directory::NamePlaces;

    const STRIPE_OF_SPLIT: usize = 4;

    fn parse(hex: &str) -> DirectoryLayout {
        let bytes: Vec<u8> = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        DirectoryLayout::from_ea(&LmvEa::decode(&bytes.into()).unwrap()).unwrap()
    }

    fn fids(layout: &DirectoryLayout) -> Vec<Fid> {
        match layout.holder() {
            Holder::Master { stripes, .. } => stripes.to_vec(),
            Holder::Stripe { .. } => panic!("a stripe"),
        }
    }

    #[test]
    fn a_split_and_a_merge_are_written_as_captured() {
        let split = parse(MASTERS[SPLIT]);
        let stripes = fids(&split);
        let (mdt, hash) = (MdtIndex(0), LmvHash::FNV_1A_64);
        let made = DirectoryLayout::split_of_plain(mdt, stripes[0], hash, &stripes[1..]);
        assert_eq!(made.as_ref(), Ok(&split));
        let stripe = split.of_stripe(1).unwrap();
        assert_eq!(stripe, parse(STRIPES[STRIPE_OF_SPLIT]));
        let through = stripe.without_migration().unwrap();
        assert_eq!(through, parse(STRIPES[STRIPE_OF_SPLIT + 1]));
        assert!(through.is_through() && !through.is_restriping() && stripe.is_restriping());
        let at_rest = split.finished().unwrap();
        assert_eq!(at_rest, parse(MASTERS[SPLIT + 1]));
        let merge = at_rest.merge_to(LmvHash(LmvHash::FNV_1A_64.0 | LmvHash::FIXED), 1).unwrap();
        assert_eq!(merge, parse(MASTERS[MERGE]));
        assert_eq!(merge.of_stripe(1).unwrap(), parse(STRIPES[STRIPE_OF_SPLIT + 2]));
        let merged = merge.finished().unwrap();
        assert_eq!(merged, parse(MASTERS[MERGE + 1]));
        assert_eq!(merged.of_stripe(0).unwrap(), parse(STRIPES[STRIPE_OF_SPLIT + 3]));
    }

    #[test]
    fn a_directory_with_stripes_is_split_into_more_and_keeps_how_names_were_chosen() {
        let [a, b, c] = [1, 2, 3].map(|oid| Fid::new(0x2_0000_0400, oid));
        let layout = DirectoryLayout::new(MdtIndex(0), LmvHash::CRUSH, vec![a, b]).unwrap();
        let split = layout.split_to(LmvHash::FNV_1A_64, &[c]).unwrap();
        assert_eq!((split.version(), split.stripe_count().get()), (2, 3));
        for name in (0..100).map(|number| format!("f{number}")) {
            let before = layout.places(name.as_bytes()).unwrap().now;
            let found = split.places(name.as_bytes()).unwrap();
            assert_eq!(found.before, (before != found.now).then_some(before), "{name}");
        }
        assert!(layout.split_to(LmvHash::CRUSH, &[]).is_err());
        assert!(split.split_to(LmvHash::CRUSH, &[a]).is_err(), "it changes");
        assert!(split.merge_to(LmvHash::CRUSH, 1).is_err(), "it changes");
        assert!(layout.merge_to(LmvHash::CRUSH, 3).is_err(), "that is no merge");
        assert!(layout.of_stripe(0).unwrap().without_migration().is_err());
    }

    #[test]
    fn a_stripe_that_is_through_has_the_names_of_the_layout_to_come_alone() {
        let [a, b, c] = [1, 2, 3].map(|oid| Fid::new(0x2_0000_0400, oid));
        let hash = LmvHash::FNV_1A_64;
        let layout = DirectoryLayout::new(MdtIndex(0), hash, vec![a, b, c]).unwrap();
        let split = layout.split_to(hash, &[Fid::new(0x2_0000_0400, 4)]).unwrap();
        for changing in [split, layout.merge_to(hash, 2).unwrap()] {
            let through = changing.of_stripe(0).unwrap().without_migration().unwrap();
            for name in (0..100).map(|number| format!("f{number}")) {
                let now = changing.places(name.as_bytes()).unwrap().now;
                let found = through.places(name.as_bytes()).unwrap();
                assert_eq!(found, NamePlaces { now, before: None }, "{name}");
            }
        }
    }
}
