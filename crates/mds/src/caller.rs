//! Who asks, and what they may (Lustre: `lu_ucred`).
//!
//! Clients are trusted to say who their user is; the server decides what that user may do.

use sheen_store::{Attributes, FileKind, Store};
use sheen_types::{Errno, Fid};
use sheen_wire::md::{
    AclEntry, MdtBody, PosixAcl, RecCreate, RecLink, RecRename, RecSetattr, RecSetxattr, RecUnlink,
};

use crate::xattrs;

/// Linux's numbers of the capabilities that count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Chown = 0,
    DacOverride = 1,
    DacReadSearch = 2,
    FileOwner = 3,
    SetId = 4,
    LinuxImmutable = 9,
    SysAdmin = 21,
    SysResource = 24,
    Mknod = 27,
}

/// What is wanted of an inode: the bits of a mode's last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct May(pub(crate) u32);

impl May {
    pub(crate) const EXEC: May = May(1);
    pub(crate) const WRITE: May = May(2);
    pub(crate) const READ: May = May(4);

    pub(crate) const fn and(self, other: May) -> May {
        May(self.0 | other.0)
    }

    const fn has(self, other: May) -> bool {
        self.0 & other.0 != 0
    }
}

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

impl Caller {
    /// Whether the user has a capability; root has all.
    pub(crate) fn can(&self, capability: Capability) -> bool {
        self.uid == 0 || self.capabilities & 1 << capability as u32 != 0
    }

    pub(crate) fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || (gid != u32::MAX && self.groups.contains(&gid))
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
        store: &dyn Store,
        fid: Fid,
        attributes: &Attributes,
        may: May,
    ) -> Result<(), Errno> {
        const IMMUTABLE: u32 = sheen_wire::md::FileFlags::IMMUTABLE.0;
        if may.has(May::WRITE) && attributes.flags & IMMUTABLE != 0 {
            return Err(Errno::EACCES);
        }
        let bits = self.bits(store, fid, attributes)?;
        if bits & may.0 == may.0 {
            return Ok(());
        }
        let is_directory = attributes.kind == FileKind::Directory;
        let executable = attributes.permissions & 0o111 != 0 || is_directory;
        if (!may.has(May::EXEC) || executable) && self.can(Capability::DacOverride) {
            return Ok(());
        }
        let only_reads = may == May::READ || (is_directory && !may.has(May::WRITE));
        if only_reads && self.can(Capability::DacReadSearch) {
            return Ok(());
        }
        Err(Errno::EACCES)
    }

    /// The three bits of the mode or of the access control list that are this user's.
    fn bits(&self, store: &dyn Store, fid: Fid, attributes: &Attributes) -> Result<u32, Errno> {
        let mode = attributes.permissions;
        if self.uid == attributes.uid {
            return Ok(mode >> 6 & 7);
        }
        if self.uid != 0 && mode & 0o070 != 0 {
            let value = store.xattr(fid, xattrs::ACL_ACCESS).map_err(|error| error.errno())?;
            if let Some(acl) = value.and_then(|value| PosixAcl::decode(&value).ok()) {
                return Ok(self.bits_of_list(&acl.entries, attributes));
            }
        }
        Ok(if self.is_in_group(attributes.gid) { mode >> 3 & 7 } else { mode & 7 })
    }

    fn bits_of_list(&self, entries: &[AclEntry], attributes: &Attributes) -> u32 {
        let of = |tag: u16| entries.iter().filter(move |entry| entry.tag == tag);
        let mask = of(16).next().map_or(7, |entry| u32::from(entry.perm));
        if let Some(entry) = of(2).find(|entry| entry.id == self.uid) {
            return u32::from(entry.perm) & mask;
        }
        let own = of(4).filter(|_| self.is_in_group(attributes.gid));
        let groups = own.chain(of(8).filter(|entry| self.is_in_group(entry.id)));
        let mut bits = None;
        for entry in groups {
            bits = Some(bits.unwrap_or(0) | u32::from(entry.perm));
        }
        match bits {
            Some(bits) => bits & mask,
            None => of(32).next().map_or(0, |entry| u32::from(entry.perm)),
        }
    }

    /// Whether the user may remove or replace an entry of `directory` that is `victim`: write
    /// permission, and in a sticky directory ownership of one of the two.
    pub(crate) fn may_remove(
        &self,
        store: &dyn Store,
        directory: (Fid, &Attributes),
        victim: &Attributes,
    ) -> Result<(), Errno> {
        const STICKY: u32 = 0o1000;
        self.may(store, directory.0, directory.1, May::WRITE.and(May::EXEC))?;
        let kept = sheen_wire::md::FileFlags::IMMUTABLE | sheen_wire::md::FileFlags::APPEND;
        if victim.flags & kept.0 != 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_before_the_group_bits() {
        let caller = Caller { uid: 7, gid: 7, groups: [u32::MAX; 2], capabilities: 0 };
        let line = |tag, perm, id| AclEntry { tag, perm, id };
        let none = u32::MAX;
        let entries = [
            line(1, 7, none),
            line(2, 6, 7),
            line(4, 1, none),
            line(16, 4, none),
            line(32, 1, none),
        ];
        let attributes = Attributes { uid: 1, gid: 1, ..Attributes::default() };
        assert_eq!(caller.bits_of_list(&entries, &attributes), 4, "the mask cuts");
        let other = Caller { uid: 8, gid: 8, ..caller.clone() };
        assert_eq!(other.bits_of_list(&entries, &attributes), 1);
        let member = Caller { uid: 8, gid: 1, ..caller };
        assert_eq!(member.bits_of_list(&entries, &attributes), 0, "1 without the mask's bits");
    }
}
