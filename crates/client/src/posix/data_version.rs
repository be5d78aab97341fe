//! The version of a file's data, for `lfs data_version`: read as the attribute `sheen.data_version.r` and its kin.

use std::sync::Arc;

use bytes::Bytes;
use sheen_types::Errno;

use super::{Credentials, Mounted};
use crate::cache::Inode;
use crate::data::DataFile;
use crate::types::VersionFlush;

impl Mounted {
    /// The version, as text; 0 of a file without objects. `flush` is what clients do before: nothing (`n`), flush what
    /// is dirty (`r`), and drop what is cached, too (`w`).
    ///
    /// # Errors
    /// [`Errno::ENOTTY`] of what is no regular file, [`Errno::EACCES`] for those who may not read it.
    pub(super) async fn data_version(
        &self,
        who: &Credentials,
        inode: &Inode,
        flush: &[u8],
    ) -> Result<Bytes, Errno> {
        let flush = match flush {
            b"n" => VersionFlush::None,
            b"r" => VersionFlush::Dirty,
            b"w" => VersionFlush::All,
            _ => return Err(Errno::ENODATA),
        };
        self.may_ask_of_data(who, inode).await?;
        let ask = |data: Arc<dyn DataFile>| async move { data.data_version(flush).await };
        let version = self.with_data(who, inode, ask).await?.unwrap_or(0);
        Ok(version.to_string().into())
    }
}
