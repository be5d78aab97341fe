//! The flags of `lsattr(1)` and `chattr(1)`.

use sheen_types::Errno;
use sheen_wire::md::FileFlags;

use super::{Credentials, FileSystem, NodeId, SetAttributes};
use crate::boxed;
use crate::data::Locking;
use crate::meta::SetattrRight;

/// The flags that the mount honours: immutable, append-only, and two that ask for what is so anyway. Flags
/// that ask for more (`S`, `D`) would be accepted and have no effect.
const SETTABLE: FileFlags = FileFlags(
    FileFlags::IMMUTABLE.0 | FileFlags::APPEND.0 | FileFlags::NODUMP.0 | FileFlags::NOATIME.0,
);

impl FileSystem {
    /// The flags, in ext4's numbers. No RPC if locks cover the attributes.
    ///
    /// # Errors
    /// As `fstat(2)`.
    #[boxed]
    pub async fn flags(&self, who: &Credentials, node: NodeId) -> Result<u32, Errno> {
        let inode = self.0.pin(node)?;
        self.0.stale_if_absent(who, self.0.refresh(who, &inode).await)?;
        inode.state().last_attributes().map(|attributes| attributes.flags).ok_or(Errno::EIO)
    }

    /// Sets the flags, all at once. One RPC, and one if the attributes are not covered.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a flag that would not be honoured; `EPERM` as `chattr(1)`.
    #[boxed]
    pub async fn set_flags(
        &self,
        who: &Credentials,
        node: NodeId,
        flags: u32,
    ) -> Result<(), Errno> {
        let now = self.flags(who, node).await?;
        if (now ^ flags) & !SETTABLE.0 != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let inode = self.0.pin(node)?;
        let changes = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
        self.0.change(who, &inode, &changes, (SetattrRight::Mode, Locking::default())).await
    }
}
