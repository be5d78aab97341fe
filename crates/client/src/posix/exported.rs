//! Inodes that the kernel knows by a file handle (`name_to_handle_at(2)`, NFS): its node number and
//! generation, long after it has forgotten the inode itself.
//!
//! The number of a node is that of its FID ([`crate::cache::inode_number`]), so it leads back to the file
//! without anything being kept, after another mount, too. A number that no file has, that another inode has
//! in its place, or that may be that of several FIDs, is `ESTALE`; by the generation the kernel distinguishes
//! FIDs of one number. A directory that has moved while the kernel knew it keeps the number that it had: the mount leads that
//! to it as long as it lasts.

use sheen_types::{Errno, Fid};

use super::{Credentials, Entry, FileSystem, NodeId};
use crate::boxed;
use crate::cache::fid_of_number;

impl FileSystem {
    /// The entry of the inode with this number, known or not. Counts as one lookup. One RPC unless locks
    /// cover its attributes.
    ///
    /// # Errors
    /// `ESTALE` if there is no such inode, or no more.
    #[boxed]
    pub async fn by_number(&self, who: &Credentials, node: NodeId) -> Result<Entry, Errno> {
        let known = self.0.inodes.by_node(node).map(|inode| inode.fid);
        let moved = || self.0.inodes.fid_of_moved(node);
        let fid = known.or_else(moved).or_else(|| fid_of_number(node.0)).ok_or(Errno::ESTALE)?;
        self.by_fid(who, fid, Some(node)).await
    }

    /// The entry of the directory that the directory `node` is in. Counts as one lookup. Two RPCs, one where
    /// locks cover that directory's attributes.
    ///
    /// # Errors
    /// `ESTALE` if either is no more.
    #[boxed]
    pub async fn parent_of(&self, who: &Credentials, node: NodeId) -> Result<Entry, Errno> {
        let known = self.0.inodes.by_node(node).map(|inode| inode.fid);
        let moved = || self.0.inodes.fid_of_moved(node);
        let fid = known.or_else(moved).or_else(|| fid_of_number(node.0)).ok_or(Errno::ESTALE)?;
        if fid == Fid::ROOT {
            return Err(Errno::ESTALE);
        }
        let parent = self.0.meta.parent(who, fid).await.map_err(stale)?;
        self.by_fid(who, parent, None).await
    }

    async fn by_fid(
        &self,
        who: &Credentials,
        fid: Fid,
        wanted: Option<NodeId>,
    ) -> Result<Entry, Errno> {
        let inode = self.0.inodes.pin(fid);
        if wanted.is_some_and(|wanted| wanted != inode.node()) {
            return Err(Errno::ESTALE);
        }
        self.0.refresh(who, &inode).await.map_err(stale)?;
        self.0.entry_without_name(who, &inode).await
    }
}

fn stale(errno: Errno) -> Errno {
    if errno == Errno::ENOENT { Errno::ESTALE } else { errno }
}
