//! The inode cache: what is known of each inode, valid exactly while a lock covers it.
//!
//! Owns the table of inodes that the kernel has looked up or opened, and what is known of each: attributes,
//! names, layout, extended attributes, symbolic link target, directory pages. What always holds:
//! `InodeState::covered` holds only bits that some granted lock covers; a lock's bits are dropped there, with all
//! that they covered, before the lock is cancelled, and the kernel is notified of what it may no longer keep
//! before that.
//!
//! Costs: a hit costs one map access and one short mutex; nothing is asked of the lock manager.

mod changes;
mod covered;
mod dir_pages;
mod directory;
mod failures;
mod file;
mod file_lock_records;
mod heat;
mod inode;
mod inode_names;
mod inode_table;
mod kernel_cache;
mod kernel_notifier;
mod kernel_size;
mod limits;
mod lock_loss;
mod names;
mod open_cache;
mod own_changes;
mod page_estimates;
mod replies;
mod rights;
mod striping;

pub(crate) use dir_pages::{Chunk, DirPages, Position, StripeChunks};
pub(crate) use file_lock_records::FileLockRecords;
pub(crate) use heat::{Heat, Rules as HeatRules};
pub(crate) use inode::{Inode, InodeState, LayoutState, Xattrs};
pub(crate) use inode_table::{InodeTable, Pin};
pub(crate) use kernel_cache::KernelCache;
pub(crate) use kernel_notifier::NAME_TIMEOUT_SLACK;
pub use kernel_notifier::{KernelNotifier, NAME_TIMEOUT};
pub use kernel_size::SizeRaise;
pub(crate) use kernel_size::{SizeEpoch, SizeReply};
pub(crate) use lock_loss::{CoveredByMdt, CoveredMetadata, DataEventHandler};
pub(crate) use names::{CacheEpoch, ChangeOutcome, DirectoryRead, NameChange, NameHasher};
pub(crate) use open_cache::{Access, CachedOpen, OpenCacheRules};
pub use page_estimates::PagesKept;
pub(crate) use replies::{ReplyAttributes, read_layout};
pub(crate) use striping::{DefaultStriping, NamePlace, Striping};

use sheen_types::{Fid, fid_seq};

use crate::types::NodeId;

/// The inode number of a FID, as Lustre shows it (`fid_flatten64`).
#[must_use]
pub fn inode_number(fid: Fid) -> u64 {
    let number =
        (fid.seq << 24).wrapping_add((fid.seq >> 24) & 0xff_ffff_0000).wrapping_add(fid.oid.into());
    if number == 0 { fid.oid.into() } else { number }
}

/// Sequences and objects below these have inode numbers of their own. No server allocates any beyond them.
const SEQUENCE_END: u64 = 1 << 39;
const OBJECT_END: u32 = 1 << 24;

/// Whether no other such FID has its inode number.
fn is_plain(fid: Fid) -> bool {
    fid.seq < SEQUENCE_END && fid.oid < OBJECT_END && fid.ver == 0
}

/// The FID of an inode number; `None` if it is not that of a file, or may be that of several.
pub(crate) fn fid_of_number(number: u64) -> Option<Fid> {
    let fid = Fid::new(number >> 24, (number & u64::from(OBJECT_END - 1)) as u32);
    let is_files = fid == Fid::ROOT || fid.seq >= fid_seq::NORMAL;
    (is_plain(fid) && is_files && inode_number(fid) == number).then_some(fid)
}

/// The generation of an inode that the kernel knows by a number: a directory that has moved has those of what it was first.
pub(crate) fn generation_of(node: NodeId, fid: Fid) -> u64 {
    let has_moved = node.0 != inode_number(fid);
    generation(fid_of_number(node.0).filter(|_| has_moved).unwrap_or(fid))
}

/// The generation of a FID's inode: Lustre's (`cl_fid_build_gen`), but a different one for each of the FIDs
/// that share an inode number.
fn generation(fid: Fid) -> u64 {
    let lustres = inode_number(fid) >> 32;
    if is_plain(fid) {
        return lustres;
    }
    let all = fid.seq ^ (u64::from(fid.oid) << 32 | u64::from(fid.ver));
    lustres ^ (all.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_leads_back_to_its_file_or_to_none() {
        let first = fid_seq::NORMAL;
        for fid in [Fid::ROOT, Fid::new(first, 1), Fid::new(0x2_0000_0401, 0x1_ffff)] {
            assert_eq!(fid_of_number(inode_number(fid)), Some(fid));
            assert_eq!(generation(fid), inode_number(fid) >> 32);
        }
        for number in [0, 1, 77, 1 << 63, u64::MAX, inode_number(Fid::new(0x1_0000_0000, 5))] {
            assert_eq!(fid_of_number(number), None, "{number:#x}");
        }
        // No server makes such a one: it is not taken for the file whose number it has.
        let (one, other) = (Fid::new(0x2_0000_0401, 1 << 24), Fid::new(0x2_0000_0402, 0));
        assert_eq!(inode_number(one), inode_number(other));
        assert_ne!(generation(one), generation(other));
    }
}
