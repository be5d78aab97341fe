//! Which of the caller's groups the MDT must count in to judge a request.

use std::sync::Arc;

use sheen_types::access::May;

use crate::cache::Inode;
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

/// The groups that a request names as the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestGroups {
    /// The first one, by which nothing is made.
    pub(super) fsgid: u32,
    /// Two more.
    pub(super) supplementary: (u32, u32),
}

impl Credentials {
    /// The one group that the server must count in to judge whether the caller may do `wanted` to
    /// `inode`.
    pub(super) fn group_for(&self, inode: &Inode, wanted: May) -> u32 {
        inode.state().deciding_groups(self, wanted).0.unwrap_or(NO_GROUP)
    }

    /// The groups that the server must count in to judge up to three inodes at once, of a request that makes no inode.
    /// If each needs another supplementary group, one takes the place of the first group, which none of them needs then.
    pub(super) fn groups_for_all(&self, wanted: &[(&Inode, May)]) -> RequestGroups {
        let decide = |(inode, may): &(&Inode, May)| inode.state().deciding_groups(self, *may).0;
        let mut groups = distinct(wanted.iter().filter_map(decide));
        if groups.len() > 2 {
            let needs_one = |asked: &&(&Inode, May)| self.depends_on_groups(asked.0, asked.1);
            groups = distinct(wanted.iter().filter(needs_one).filter_map(decide));
            groups.retain(|group| *group != self.gid);
        }
        let at = |number: usize| groups.get(number).copied();
        let of = |number: usize| wanted.get(number).and_then(decide);
        // Those of the first two inodes in their places, as a client of Lustre names them, if they are all.
        let (first, second) =
            match groups.iter().all(|group| [of(0), of(1)].contains(&Some(*group))) {
                true => (of(0), of(1)),
                false => (at(0), at(1)),
            };
        let supplementary = (first.unwrap_or(NO_GROUP), second.unwrap_or(NO_GROUP));
        RequestGroups { fsgid: at(2).unwrap_or(self.gid), supplementary }
    }

    /// Whether the supplementary groups make a difference to `wanted`, by what is known.
    fn depends_on_groups(&self, inode: &Inode, wanted: May) -> bool {
        let alone = Self { groups: Arc::from([]), ..self.clone() };
        let state = inode.state();
        state.permits(self, wanted) != state.permits(&alone, wanted)
    }

    /// As [`Credentials::group_for`], and the group of `inode` if the caller is in it: set-id bits
    /// depend on that one.
    pub(super) fn groups_for(&self, inode: &Inode, wanted: May) -> (u32, u32) {
        let (deciding, owning) = inode.state().deciding_groups(self, wanted);
        let owning = owning.filter(|group| Some(*group) != deciding);
        (deciding.unwrap_or(NO_GROUP), owning.unwrap_or(NO_GROUP))
    }
}

fn distinct(groups: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut found = Vec::new();
    for group in groups {
        if !found.contains(&group) {
            found.push(group);
        }
    }
    found
}
