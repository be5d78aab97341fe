//! The inode cache: what is known of each inode, valid exactly while a lock covers it.
//!
//! Owns the table of inodes that somebody has looked up or opened, and what is known of each:
//! attributes, names, layout, extended attributes, symbolic link target, directory pages. What
//! always holds: `State::covered` names only bits that some granted lock covers; a lock's bits are
//! taken off it before the lock goes back, and whoever was told that it may keep something is told
//! first.
//!
//! Costs: a hit costs one map access and one short mutex; nothing is asked of the lock manager.

mod failures;
mod heat;
mod inode;
mod kept;
mod limits;
mod lost;
mod names;
mod observers;
mod pages;
mod rights;
mod size_told;
mod table;

pub(crate) use heat::{Heat, Rules as HeatRules};
pub(crate) use inode::{Inode, LayoutState, State, Xattrs};
pub use kept::Tally;
pub(crate) use kept::{Access, KeepRules, KeptOpen};
pub(crate) use lost::{DataWatch, MetaCache};
pub(crate) use names::{Change, Done, Moment, NameBook, Reading};
pub(crate) use observers::Observers;
pub use pages::PagesKept;
pub use size_told::Raise;
pub(crate) use size_told::{AskedAt, Due};
pub(crate) use table::{Inodes, Pin};

use sheen_types::Fid;

/// The inode number of a FID, as Lustre shows it (`fid_flatten64`).
#[must_use]
pub fn inode_number(fid: Fid) -> u64 {
    let number =
        (fid.seq << 24).wrapping_add((fid.seq >> 24) & 0xff_ffff_0000).wrapping_add(fid.oid.into());
    if number == 0 { fid.oid.into() } else { number }
}
