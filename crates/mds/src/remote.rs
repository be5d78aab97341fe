//! Which inodes are other MDTs', what is said of those, and what this MDT refuses because another one is to be asked.

use sheen_store::{FileKind, StoreError};
use sheen_target::{Context, store_errno};
use sheen_types::{Errno, Fid, MdtIndex, fid_seq};
use sheen_wire::md::{Bias, MdtBody, Valid};
use sheen_wire::messages::Request;

use crate::Mdt;

/// The body that says only that an inode is another MDT's: that one is to be asked (`OBD_MD_MDS`).
pub(crate) fn named(fid: Fid) -> MdtBody {
    MdtBody { fid1: fid, valid: Valid::ID | Valid::MDS, ..MdtBody::default() }
}

impl Mdt {
    /// Whether an inode is on another MDT, as far as this one knows.
    pub(crate) fn is_remote(&self, fid: Fid) -> bool {
        self.sequences.is_other_mdts(fid.seq)
    }

    /// The errno for an inode that could not be read: [`Errno::EREMOTE`] for one that is not here because it is another
    /// MDT's.
    pub(crate) fn inode_errno(&self, fid: Fid, error: StoreError) -> Errno {
        match error {
            StoreError::NoObject(_) if self.is_remote(fid) => Errno::EREMOTE,
            error => store_errno(error),
        }
    }

    /// Refuses a change that this MDT does not coordinate. Learns first which MDTs have what the request names.
    ///
    /// # Errors
    /// [`Errno::EXDEV`] for a link and a rename, as between file systems: programs copy then. [`Errno::EOPNOTSUPP`] for
    /// what makes an inode, [`Errno::EREMOTE`] for the rest; [`Errno::EINPROGRESS`] where the other MDT is not known yet.
    pub(crate) async fn refuse_remote(
        &self,
        context: &Context,
        request: &Request,
    ) -> Result<(), Errno> {
        let (inodes, must_be_here, errno) = match request {
            // A directory may have its name on another MDT.
            Request::MdsReintCreate(it) if is_directory(it.rec_reint.mode) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [false, true], Errno::EOPNOTSUPP)
            }
            Request::MdsReintCreate(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [true; 2], Errno::EOPNOTSUPP)
            }
            Request::MdsReintCreateSym(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [true; 2], Errno::EOPNOTSUPP)
            }
            // The inode is here, and the name is on another MDT.
            Request::MdsReintOpen(it) if it.rec_reint.bias.contains(Bias::CROSS_REF) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [true, false], Errno::EREMOTE)
            }
            Request::MdsReintOpen(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [true; 2], Errno::EREMOTE)
            }
            Request::MdsReintLink(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [false, true], Errno::EXDEV)
            }
            Request::MdsReintRename(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [false; 2], Errno::EXDEV)
            }
            // Where the layout of the parent, and what it stands for, is looked up, each MDT is learnt.
            Request::MdsReintMigrate(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [false; 2], Errno::EREMOTE)
            }
            Request::MdsReintRmentry(it) => {
                ([it.rec_reint.fid1, Fid::ZERO], [true; 2], Errno::EREMOTE)
            }
            Request::MdsReintUnlink(it) => {
                ([it.rec_reint.fid1, it.rec_reint.fid2], [false; 2], Errno::EREMOTE)
            }
            Request::MdsReintSetattr(it) => {
                ([it.rec_reint.fid, Fid::ZERO], [true; 2], Errno::EREMOTE)
            }
            Request::MdsReintSetxattr(it) => {
                ([it.rec_reint.fid, Fid::ZERO], [true; 2], Errno::EREMOTE)
            }
            _ => return Ok(()),
        };
        for (fid, must_be_here) in inodes.into_iter().zip(must_be_here) {
            self.learn_mdt_of(context, fid).await?;
            let mdt = self.known_mdt_of(fid).filter(|mdt| mdt.0 != self.index);
            let Some(mdt) = mdt else { continue };
            if must_be_here {
                return Err(errno);
            }
            self.until_configured(mdt).await?;
            if self.other_mdts.partner(mdt.0).is_none() {
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Asks MDT0000 which MDT has an inode, where that is not known. Nothing is asked where there is one MDT.
    async fn learn_mdt_of(&self, context: &Context, inode: Fid) -> Result<(), Errno> {
        let is_known = || self.sequences.find(inode.seq).is_some();
        if self.has_other_mdts() && inode.seq >= fid_seq::NORMAL && !is_known() {
            match self.holder(&context.target, inode.seq).await {
                // What has no holder is refused by the operation.
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Which MDT has an inode, as far as is known here.
    fn known_mdt_of(&self, inode: Fid) -> Option<MdtIndex> {
        if !self.is_remote(inode) {
            return None;
        }
        match self.sequences.find(inode.seq) {
            Some(range) => u16::try_from(range.index).ok().map(MdtIndex),
            None => Some(MdtIndex(0)),
        }
    }
}

fn is_directory(mode: u32) -> bool {
    FileKind::from_mode(mode) == Some(FileKind::Directory)
}
