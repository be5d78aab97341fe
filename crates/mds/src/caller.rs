//! The caller of a request, and what it may do (Lustre: `lu_ucred`).
//!
//! Clients are trusted to name their user; the server decides what that user may do.

use sheen_store::{Attributes, FileKind, StoreError};
use sheen_target::store_errno;
use sheen_types::access::{AccessList, Guarded, Subject};
use sheen_types::{Errno, Fid};
use sheen_wire::md::{
    MdtBody, PosixAcl, RecCreate, RecLink, RecRename, RecSetattr, RecSetxattr, RecUnlink,
};

pub(crate) use sheen_types::access::{Capability, May};

use crate::xattrs::{ACL_ACCESS, XattrsOf};

/// A user on a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups that the client found to matter; -1 for none.
    groups: [u32; 2],
    capabilities: u32,
}

macro_rules! callers {
    ($($record:ty),*) => {$(
        impl From<&$record> for Caller {
            fn from(record: &$record) -> Self {
                Self {
                    uid: record.fsuid,
                    gid: record.fsgid,
                    groups: [record.suppgid1, record.suppgid2],
                    capabilities: record.cap,
                }
            }
        }
    )*};
}

callers!(RecCreate, RecLink, RecUnlink, RecRename, RecSetxattr);

impl From<&RecSetattr> for Caller {
    fn from(record: &RecSetattr) -> Self {
        Self {
            uid: record.fsuid,
            gid: record.fsgid,
            groups: [record.suppgid, u32::MAX],
            capabilities: record.cap,
        }
    }
}

impl From<&MdtBody> for Caller {
    fn from(body: &MdtBody) -> Self {
        Self {
            uid: body.fsuid,
            gid: body.fsgid,
            groups: [body.suppgid, u32::MAX],
            capabilities: body.capability,
        }
    }
}

impl Subject for Caller {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || (gid != u32::MAX && self.groups.contains(&gid))
    }

    /// Root has all.
    fn can(&self, capability: Capability) -> bool {
        self.uid == 0 || self.capabilities & 1 << capability as u32 != 0
    }
}

impl Caller {
    /// Whether the user has a capability; root has all.
    pub(crate) fn can(&self, capability: Capability) -> bool {
        Subject::can(self, capability)
    }

    pub(crate) fn is_in_group(&self, gid: u32) -> bool {
        Subject::is_in_group(self, gid)
    }

    pub(crate) fn owns(&self, attributes: &Attributes) -> bool {
        self.uid == attributes.uid || self.can(Capability::FileOwner)
    }

    /// Whether the user may do `may` to an inode.
    ///
    /// # Errors
    /// [`Errno::EACCES`], or those of the store.
    pub(crate) fn may(
        &self,
        xattrs: &(impl XattrsOf + ?Sized),
        fid: Fid,
        attributes: &Attributes,
        may: May,
    ) -> Result<(), Errno> {
        const IMMUTABLE: u32 = sheen_wire::md::FileFlags::IMMUTABLE.0;
        if may.has(May::WRITE) && attributes.flags & IMMUTABLE != 0 {
            // What Linux says of its own inodes. Lustre's MDT says EACCES, which no program sees:
            // its clients have looked at the flag before.
            return Err(Errno::EPERM);
        }
        let mut guarded = Guarded {
            mode: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
            is_directory: attributes.kind == FileKind::Directory,
            list: None,
        };
        if guarded.is_overridden(self, may) {
            return Ok(());
        }
        let list = match guarded.asks_list(self.uid) {
            true => access_list(xattrs, fid)?,
            false => None,
        };
        guarded.list = list.as_ref();
        if guarded.permits(self, may) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether the user may remove or replace an entry of `directory` that is `victim`: write
    /// permission, in a sticky directory ownership of one of the two, and never from a directory that is
    /// append-only.
    pub(crate) fn may_remove(
        &self,
        xattrs: &(impl XattrsOf + ?Sized),
        directory: (Fid, &Attributes),
        victim: &Attributes,
    ) -> Result<(), Errno> {
        const STICKY: u32 = 0o1000;
        self.may(xattrs, directory.0, directory.1, May::WRITE.and(May::EXEC))?;
        let appends = sheen_wire::md::FileFlags::APPEND;
        let kept = sheen_wire::md::FileFlags::IMMUTABLE | appends;
        if directory.1.flags & appends.0 != 0 || victim.flags & kept.0 != 0 {
            return Err(Errno::EPERM);
        }
        let sticky = directory.1.permissions & STICKY != 0;
        let owner = self.uid == victim.uid || self.uid == directory.1.uid;
        match sticky && !owner && !self.can(Capability::FileOwner) {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }
}

/// An inode's access control list, if it has one beyond its mode.
///
/// # Errors
/// [`Errno::EIO`] for one that cannot be read, or those of the store.
pub(crate) fn access_list(
    xattrs: &(impl XattrsOf + ?Sized),
    fid: Fid,
) -> Result<Option<AccessList>, Errno> {
    let value = xattrs.xattr_of(fid, ACL_ACCESS)?;
    value.map(|value| stored_list(fid, &value)).transpose()
}

/// The rules in the value of an attribute that `fid` has.
///
/// # Errors
/// [`Errno::EIO`] if they cannot be read.
pub(crate) fn stored_list(fid: Fid, value: &bytes::Bytes) -> Result<AccessList, Errno> {
    parse_list(value)
        .ok_or_else(|| store_errno(StoreError::Corrupt(format!("an access control list of {fid}"))))
}

/// The rules in an attribute's value, if it has the form of one.
pub(crate) fn parse_list(value: &bytes::Bytes) -> Option<AccessList> {
    PosixAcl::decode(value).ok().and_then(|list| list.rules().ok())
}
