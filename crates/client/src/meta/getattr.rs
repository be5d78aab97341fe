//! Attributes of a known inode: one `LDLM_ENQUEUE` with a getattr intent by FID.

use sheen_types::Errno;

use super::{Depth, Meta};
use crate::cache::Inode;
use crate::posix::Credentials;

impl Meta {
    /// Asks for the attributes of `inode`, with a lock on them. One RPC.
    pub(crate) async fn getattr(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let (pin, _held) = self.getattr_intent(who, inode, None, Depth::Attributes).await?;
        if pin.fid == inode.fid { Ok(()) } else { Err(Errno::EPROTO) }
    }

    /// Asks for mode, owner, group and access control list of `inode`, with a lock on them that
    /// changes of a directory's names leave alone. One RPC.
    pub(crate) async fn rights(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let (pin, _held) = self.getattr_intent(who, inode, None, Depth::Name).await?;
        if pin.fid == inode.fid { Ok(()) } else { Err(Errno::EPROTO) }
    }
}
