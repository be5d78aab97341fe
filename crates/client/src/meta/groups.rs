//! Which of the caller's groups the MDT must count in to judge a request.

use sheen_types::access::May;

use crate::cache::Inode;
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

impl Credentials {
    /// The one group that the server must count in to judge whether the caller may do `wanted` to
    /// `inode`.
    pub(super) fn group_for(&self, inode: &Inode, wanted: May) -> u32 {
        inode.state().deciding_groups(self, wanted).0.unwrap_or(NO_GROUP)
    }

    /// As [`Credentials::group_for`], and the group of `inode` if the caller is in it: set-id bits
    /// depend on that one.
    pub(super) fn groups_for(&self, inode: &Inode, wanted: May) -> (u32, u32) {
        let (deciding, owning) = inode.state().deciding_groups(self, wanted);
        let owning = owning.filter(|group| Some(*group) != deciding);
        (deciding.unwrap_or(NO_GROUP), owning.unwrap_or(NO_GROUP))
    }
}
