//! Extended attributes.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::directory::DirectoryWish;
use sheen_types::Errno;
use sheen_types::limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use sheen_wire::lmv::LmvEa;

use super::{Credentials, FileSystem, FileType, Mounted, NodeId, XattrMode};
use crate::boxed;
use crate::cache::{Inode, LayoutState, Xattrs, read_layout};
use crate::meta::TRUSTED_LMV;

/// A file's layout, or a directory's default one, as `lfs` and `getfattr` know it.
const LUSTRE_LOV: &[u8] = b"lustre.lov";
/// The layout as the MDT stores it.
const TRUSTED_LOV: &[u8] = b"trusted.lov";
/// The object's name, as text: what `lfs path2fid` asks for.
const LUSTRE_FID: &[u8] = b"lustre.fid";
/// Set: move the file, as the value says. Read: how far that is. No attribute of any file, but the way
/// that `lfs` has to this mount through the kernel.
const MIGRATE: &[u8] = b"sheen.migrate";
/// Set: exchange the layouts of this file and of the one with the FID that the value is.
const SWAP_LAYOUTS: &[u8] = b"sheen.swap_layouts";
/// How a directory lies on MDTs; the default of those that are made in it, to be read and set.
const STRIPES: &[u8] = b"sheen.directory_stripes";
const DEFAULT_STRIPES: &[u8] = b"sheen.directory_default";
/// The heat of a file, and its flags.
const HEAT: &[u8] = b"sheen.heat";
/// Read: the version of a file's data. A letter behind it says what clients do before, as for `lfs data_version`.
const DATA_VERSION: &[u8] = b"sheen.data_version.";
/// The names of an inode, which each inode's MDT keeps.
const LINK: &[u8] = b"trusted.link";
/// What the MDT knows of the size. Lustre's MDTs list it, and no client shows it or keeps its value.
const SOM: &[u8] = b"trusted.som";
/// A file's access control list, and a directory's for what is made in it.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// What only MDTs set: they ignore it, and `cp -a` copies each that is listed.
const RESERVED: [&[u8]; 7] = [
    b"trusted.lma",
    b"trusted.link",
    b"trusted.fid",
    b"trusted.version",
    b"trusted.hsm",
    b"trusted.lfsck_ns",
    SOM,
];
/// What a program may do though its user is not the superuser. A write takes it.
const CAPABILITY: &[u8] = b"security.capability";
/// What every user who may read the file can read.
const USER: &[u8] = b"user.";
/// What only the superuser sees.
const TRUSTED: &[u8] = b"trusted.";

impl FileSystem {
    /// The value of an extended attribute. No RPC while a lock covers the inode's, else one.
    ///
    /// # Errors
    /// As `getxattr(2)`: `ENODATA` if there is none.
    #[boxed]
    pub async fn getxattr(
        &self,
        who: &Credentials,
        node: NodeId,
        name: &[u8],
    ) -> Result<Bytes, Errno> {
        self.check_name(name)?;
        if name == MIGRATE {
            return self.migration(node);
        }
        let inode = self.0.pin(node)?;
        if name == HEAT {
            return self.0.heat(who, &inode).await;
        }
        if name == STRIPES || name == DEFAULT_STRIPES {
            let value = self.0.striping(who, &inode, name == DEFAULT_STRIPES).await;
            return self.0.answer_and_end_retry(who, value);
        }
        if let Some(flush) = name.strip_prefix(DATA_VERSION) {
            let version = self.0.data_version(who, &inode, flush).await;
            return self.0.answer_and_end_retry(who, version);
        }
        if name.starts_with(TRUSTED) && who.uid != 0 {
            return Err(Errno::ENODATA);
        }
        if name == CAPABILITY {
            inode.state().file.kernel_asked_for_capabilities = true;
        }
        let value = match name {
            SOM => self.0.meta.getxattr(who, &inode, name).await,
            name => self.0.value_of(who, &inode, name).await,
        };
        self.0.answer_and_end_retry(who, value)
    }

    /// Names of the extended attributes, each with a NUL behind it. No RPC while a lock covers them,
    /// else one.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    #[boxed]
    pub async fn listxattr(&self, who: &Credentials, node: NodeId) -> Result<Bytes, Errno> {
        let inode = self.0.pin(node)?;
        let names = match own_names(&inode) {
            Some(names) => names,
            None => self.0.answer_and_end_retry(who, self.0.names_of(who, &inode).await)?,
        };
        let has_users = self.0.settings.user_xattrs.get();
        let visible = |name: &&[u8]| {
            !name.is_empty()
                && *name != SOM
                && (who.uid == 0 || !name.starts_with(TRUSTED))
                && (has_users || !name.starts_with(USER))
        };
        let mut list = Vec::with_capacity(names.len() + LUSTRE_LOV.len() + 2);
        for name in names.split(|byte| *byte == 0).filter(visible) {
            list.extend_from_slice(name);
            list.push(0);
        }
        if has_layout(&inode) {
            list.extend_from_slice(LUSTRE_LOV);
            list.push(0);
        }
        Ok(list.into())
    }

    /// Whether setting this attribute takes long, and may be given up at any time: a move of a file.
    #[must_use]
    pub fn is_long_order(name: &[u8]) -> bool {
        name == MIGRATE
    }

    /// Sets an extended attribute. One RPC; two for the layout of a file that has none, none for what MDTs ignore.
    /// Some names are commands to this mount (`lfs migrate`, `lfs swap_layouts`, `lfs heat_set`).
    ///
    /// # Errors
    /// As `setxattr(2)`.
    #[boxed]
    pub async fn setxattr(
        &self,
        who: &Credentials,
        node: NodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), Errno> {
        self.check_name(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        if name.starts_with(TRUSTED) && who.uid != 0 {
            return Err(Errno::EPERM);
        }
        match name {
            MIGRATE => return self.migrate(who, node, &value).await,
            SWAP_LAYOUTS => return self.swap_layouts(who, node, &value).await,
            name if RESERVED.contains(&name) => return Ok(()),
            _ => {}
        }
        let inode = self.0.pin(node)?;
        if name == HEAT {
            return self.0.set_heat(who, &inode, &value).await;
        }
        if name == STRIPES {
            return Err(Errno::EOPNOTSUPP);
        }
        if name == DEFAULT_STRIPES {
            let set = self.0.set_default_striping(who, &inode, value).await;
            return self.0.answer_and_end_retry(who, set);
        }
        if name == LUSTRE_LOV || name == TRUSTED_LOV {
            return self.0.set_layout(who, &inode, value, mode).await;
        }
        if name == TRUSTED_LMV {
            // What it says of stripes ends with it, whichever way that goes.
            self.0.inodes.doubt_striping(&inode);
        }
        let set = || self.0.meta.setxattr(who, &inode, name, Some(value.clone()), mode);
        let inodes: [&Inode; 1] = [&inode];
        let set = self.0.retry_with_rights(who, &inodes, set);
        let set = self.0.changing_rights_by(name, &inode, set).await;
        self.0.answer_and_end_retry(who, set)
    }

    /// Removes an extended attribute. One RPC.
    ///
    /// # Errors
    /// As `removexattr(2)`.
    #[boxed]
    pub async fn removexattr(
        &self,
        who: &Credentials,
        node: NodeId,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.check_name(name)?;
        if name.starts_with(TRUSTED) && who.uid != 0 {
            return Err(Errno::EPERM);
        }
        let inode = self.0.pin(node)?;
        let name = if name == LUSTRE_LOV { TRUSTED_LOV } else { name };
        let remove = || self.0.meta.setxattr(who, &inode, name, None, XattrMode::Any);
        let inodes: [&Inode; 1] = [&inode];
        let remove = self.0.retry_with_rights(who, &inodes, remove);
        let removed = self.0.changing_rights_by(name, &inode, remove).await;
        self.0.answer_and_end_retry(who, removed)
    }
}

impl FileSystem {
    /// Whether it may be the name of an attribute here: `user.*` is none with `-o nouser_xattr`.
    fn check_name(&self, name: &[u8]) -> Result<(), Errno> {
        if name.starts_with(USER) && !self.0.settings.user_xattrs.get() {
            return Err(Errno::EOPNOTSUPP);
        }
        check_name(name)
    }
}

impl Mounted {
    /// Changes the attribute `name`.
    async fn changing_rights_by(
        &self,
        name: &[u8],
        inode: &Inode,
        change: impl Future<Output = Result<(), Errno>>,
    ) -> Result<(), Errno> {
        match name == ACL_ACCESS {
            true => self.changing_rights(inode, false, change).await,
            false => change.await,
        }
    }

    /// Takes a program's capabilities off a file that is written or cut, if the kernel has asked for them before: it may
    /// believe that there are none. No RPC while a lock covers the inode's extended attributes, as far as they were had
    /// at once.
    ///
    /// # Errors
    /// `EPERM` to a user whose write the MDT does not let take them.
    pub(super) async fn take_capabilities(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<(), Errno> {
        {
            if !self.kernel_cache.has_notifier() {
                return Ok(());
            }
            let state = inode.state();
            let has_none = |all: &Arc<Xattrs>| !all.contains_key(CAPABILITY);
            let caches = self.meta.caches_xattrs();
            if !state.file.kernel_asked_for_capabilities
                || state.has_no_xattrs()
                || caches && state.xattrs().is_some_and(has_none)
            {
                return Ok(());
            }
        }
        // A question that fails counts as none, as for the kernel. And of two writers one comes first.
        if self.value_of(who, inode, CAPABILITY).await.is_err() {
            return Ok(());
        }
        match self.meta.setxattr(who, inode, CAPABILITY, None, XattrMode::Any).await {
            Err(Errno::ENODATA) => Ok(()),
            taken => taken,
        }
    }

    async fn value_of(
        &self,
        who: &Credentials,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Bytes, Errno> {
        match name {
            LUSTRE_LOV | TRUSTED_LOV => return self.layout_bytes(who, inode).await,
            LUSTRE_FID => return Ok(inode.fid.to_string().into()),
            ACL_ACCESS if inode.state().has_no_access_list() => return Err(Errno::ENODATA),
            ACL_DEFAULT if has_no_defaults(inode) => return Err(Errno::ENODATA),
            // Access control lists are attributes of the inode to the MDT, and not in its list of extended
            // attributes.
            name if name.starts_with(b"system.") => {
                return self.meta.getxattr(who, inode, name).await;
            }
            _ => {}
        }
        if name.starts_with(USER) {
            self.may_read(who, inode).await?;
        }
        if inode.state().has_no_xattrs() && name != LINK {
            return Err(Errno::ENODATA);
        }
        match self.meta.xattrs(who, inode).await? {
            Some(xattrs) => xattrs.get(name).cloned().ok_or(Errno::ENODATA),
            None => self.meta.getxattr(who, inode, name).await,
        }
    }

    /// The names of all, with NULs between them.
    async fn names_of(&self, who: &Credentials, inode: &Inode) -> Result<Vec<u8>, Errno> {
        let Some(xattrs) = self.meta.xattrs(who, inode).await? else {
            return Ok(self.meta.getxattr(who, inode, b"").await?.to_vec());
        };
        let mut names: Vec<&[u8]> = xattrs.keys().map(|name| &name[..]).collect();
        names.sort_unstable();
        Ok(names.join(&0))
    }

    /// A file's layout, or a directory's default one, as the MDT has it. It is among the extended attributes, which
    /// the lock on them covers for a directory; a file's changes without it, and is current where it is the one that
    /// is known.
    async fn layout_bytes(&self, who: &Credentials, inode: &Inode) -> Result<Bytes, Errno> {
        let is_directory = inode.file_type() == Some(FileType::Directory);
        if is_directory && inode.state().has_no_xattrs() {
            return Err(Errno::ENODATA);
        }
        if let Some(xattrs) = self.meta.xattrs(who, inode).await? {
            let stored = xattrs.get(TRUSTED_LOV);
            let state = inode.state();
            let is_known = |it| state.layout() == Some(&read_layout(Some(it)));
            let is_current = is_directory || stored.is_some_and(is_known);
            if is_current {
                return stored.cloned().ok_or(Errno::ENODATA);
            }
        }
        self.meta.getxattr(who, inode, TRUSTED_LOV).await
    }

    /// How a directory lies on MDTs, or the default of those in it.
    async fn striping(
        &self,
        who: &Credentials,
        inode: &Inode,
        default: bool,
    ) -> Result<Bytes, Errno> {
        self.fetch_unknown_attributes(who, inode).await?;
        if inode.file_type() != Some(FileType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        let found = match default {
            true => self.meta.default_striping(who, inode).await?,
            false => self.meta.stripes(who, inode).await?,
        };
        found.ok_or(Errno::ENODATA)
    }

    async fn set_default_striping(
        &self,
        who: &Credentials,
        inode: &Inode,
        default: Bytes,
    ) -> Result<(), Errno> {
        self.fetch_unknown_attributes(who, inode).await?;
        if inode.file_type() != Some(FileType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        let wish = LmvEa::decode(&default).map_err(|_| Errno::EINVAL)?;
        DirectoryWish::from_ea(&wish).map_err(|_| Errno::EINVAL)?;
        self.meta.set_default_striping(who, inode, default).await
    }

    /// As in Lustre, a file that has a layout keeps it, and that is no error where the caller would replace it: `cp`
    /// and the like set what they find listed.
    async fn set_layout(
        &self,
        who: &Credentials,
        inode: &Inode,
        layout: Bytes,
        mode: XattrMode,
    ) -> Result<(), Errno> {
        if inode.file_type().is_none() {
            // It was not asked for yet.
            self.refresh(who, inode).await?;
        }
        let is_kept = mode == XattrMode::Any && inode.file_type() == Some(FileType::Regular);
        match inode.file_type() {
            Some(FileType::Regular) if !self.settings.may_lay_out(who) => Err(Errno::EACCES),
            Some(FileType::Regular) if is_kept && has_layout(inode) => Ok(()),
            Some(FileType::Directory | FileType::Regular) => {
                match self.meta.set_layout(who, inode, layout).await {
                    Err(Errno::EEXIST) if is_kept => Ok(()),
                    done => done,
                }
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// What is listed of an inode that is known to have no extended attributes but those that its MDT sets; `None` if that
/// is not known.
fn own_names(inode: &Inode) -> Option<Vec<u8>> {
    let state = inode.state();
    if !state.has_no_xattrs() {
        return None;
    }
    match (state.file_type()?, state.layout()) {
        (FileType::Regular, None) => None,
        (FileType::Regular, Some(LayoutState::Placed(_) | LayoutState::Foreign)) => {
            Some([LINK, TRUSTED_LOV].join(&0))
        }
        _ => Some(LINK.to_vec()),
    }
}

/// Whether it can have no default access control list.
fn has_no_defaults(inode: &Inode) -> bool {
    inode.file_type().is_some_and(|it| it != FileType::Directory)
}

/// Whether the layout is known to be there.
fn has_layout(inode: &Inode) -> bool {
    matches!(inode.state().layout(), Some(LayoutState::Placed(_) | LayoutState::Foreign))
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        0 => Err(Errno::EINVAL),
        length if length > XATTR_NAME_BYTES_MAX => Err(Errno::ERANGE),
        _ if name.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}
