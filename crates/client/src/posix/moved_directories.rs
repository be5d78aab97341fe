//! Calls on directories whose place another inode takes meanwhile (`meta::moving` follows them): the rule by which they are
//! made again.
//!
//! What looks a name up asks the MDT until it knows where the name is, a few times. It may give up while a migration moves
//! what is above at that moment. So at the end of a call that was `ESTALE` the directory is followed once more, and if another
//! inode is there by now the call is made on that.
//!
//! Nothing is done twice: `ESTALE` is the answer of an MDT that has done nothing, as it does not have the directory, and a
//! request that is resent is answered by what was done at first. Only the call that changes the directory is made again, not
//! what is done with its answer.

use std::sync::Arc;

use sheen_types::Errno;

use super::{Credentials, FileType, Mounted, NodeId};
use crate::cache::{Inode, Pin};

/// How often a call is made again: each time another inode has taken the place of a directory of it.
const MOVES_MAX: usize = 16;

impl Mounted {
    /// Whether another inode has taken the place of the directory `node` since this call was answered so; [`Self::pin`]
    /// leads to it then. No RPC for what was answered, and is no directory.
    pub(super) async fn was_moved<T>(
        &self,
        who: &Credentials,
        (node, inode): (NodeId, &Inode),
        answer: &Result<T, Errno>,
    ) -> bool {
        let is_refused = matches!(answer, Err(Errno::ENOENT | Errno::ESTALE));
        let is_stripe = inode.state().is_stripe_of_unknown();
        if !is_refused && !is_stripe || inode.file_type() != Some(FileType::Directory) {
            return false;
        }
        self.meta.follow_moved(who, inode).await;
        self.pin(node).is_ok_and(|current| current.fid != inode.fid)
    }

    /// Makes a call that changes names of the directory `node`; again if it was `ESTALE` as another inode has taken the place
    /// of that meanwhile. Answers also the directory, as it was when the call succeeded. No RPC more for another answer.
    ///
    /// # Errors
    /// Those of the call; `ESTALE` if nothing is known of the node.
    pub(super) async fn in_directory<T, F>(
        &self,
        who: &Credentials,
        node: NodeId,
        call: impl Fn(Arc<Inode>) -> F,
    ) -> Result<(Pin, T), Errno>
    where
        F: Future<Output = Result<T, Errno>>,
    {
        let ((parent, _), done) =
            self.in_two_directories(who, (node, node), |parent, _| call(parent)).await?;
        Ok((parent, done))
    }

    /// As [`Self::in_directory`], of a call that changes names of two directories, which may be the same.
    ///
    /// # Errors
    /// As [`Self::in_directory`].
    pub(super) async fn in_two_directories<T, F>(
        &self,
        who: &Credentials,
        nodes: (NodeId, NodeId),
        call: impl Fn(Arc<Inode>, Arc<Inode>) -> F,
    ) -> Result<((Pin, Pin), T), Errno>
    where
        F: Future<Output = Result<T, Errno>>,
    {
        let mut moves = 0;
        loop {
            let pins = (self.pin(nodes.0)?, self.pin(nodes.1)?);
            let answer = call(Arc::clone(&pins.0), Arc::clone(&pins.1)).await;
            if !matches!(answer, Err(Errno::ESTALE)) || moves == MOVES_MAX {
                return answer.map(|done| (pins, done));
            }
            moves += 1;
            let mut was_moved = self.was_moved(who, (nodes.0, &pins.0), &answer).await;
            if nodes.0 != nodes.1 {
                was_moved |= self.was_moved(who, (nodes.1, &pins.1), &answer).await;
            }
            if !was_moved {
                return answer.map(|done| (pins, done));
            }
            let (directory, other) = (pins.0.fid, pins.1.fid);
            tracing::debug!(%directory, %other, moves, "a call is made again where its directory is now");
        }
    }
}
