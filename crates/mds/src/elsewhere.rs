//! What concerns inodes of other MDTs, as far as it is not built: refused by name, and never done halfway.
//!
//! Changes over several MDTs come with step 7 of `docs/design/many-mdts-work.md`. Until then no name leads to another
//! MDT, and an MDT n has only what is made by its FID alone.

use sheen_store::StoreError;
use sheen_target::store_errno;
use sheen_types::{Errno, Fid};
use sheen_wire::messages::Request;

use crate::Mdt;

impl Mdt {
    /// Whether an inode is another MDT's, as far as this one knows.
    pub(crate) fn is_elsewhere(&self, fid: Fid) -> bool {
        self.sequences.is_other_mdts(fid.seq)
    }

    /// The errno for an inode that could not be read: [`Errno::EREMOTE`] for one that is not here because it is another
    /// MDT's.
    pub(crate) fn inode_errno(&self, fid: Fid, error: StoreError) -> Errno {
        match error {
            StoreError::NoObject(_) if self.is_elsewhere(fid) => Errno::EREMOTE,
            error => store_errno(error),
        }
    }

    /// Refuses a change of names or inodes of which some are another MDT's.
    ///
    /// # Errors
    /// [`Errno::EXDEV`] for a link and a rename, as between file systems: programs copy then. [`Errno::EOPNOTSUPP`] for
    /// what makes an inode, [`Errno::EREMOTE`] for the rest.
    pub(crate) fn refuse_elsewhere(&self, request: &Request) -> Result<(), Errno> {
        let (inodes, errno) = match request {
            Request::MdsReintCreate(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], Errno::EOPNOTSUPP)
            }
            Request::MdsReintCreateSym(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], Errno::EOPNOTSUPP)
            }
            Request::MdsReintOpen(it) => ([it.rec_reint.fid1, it.rec_reint.fid2], Errno::EREMOTE),
            Request::MdsReintLink(it) => ([it.rec_reint.fid1, it.rec_reint.fid2], Errno::EXDEV),
            Request::MdsReintRename(it) => ([it.rec_reint.fid1, it.rec_reint.fid2], Errno::EXDEV),
            Request::MdsReintUnlink(it) => ([it.rec_reint.fid1, Fid::ZERO], Errno::EREMOTE),
            Request::MdsReintSetattr(it) => ([it.rec_reint.fid, Fid::ZERO], Errno::EREMOTE),
            Request::MdsReintSetxattr(it) => ([it.rec_reint.fid, Fid::ZERO], Errno::EREMOTE),
            _ => return Ok(()),
        };
        match inodes.iter().any(|fid| self.is_elsewhere(*fid)) {
            true => Err(errno),
            false => Ok(()),
        }
    }
}
