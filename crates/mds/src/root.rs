//! The root: made once, and what it says of the file system.

use bytes::Bytes;
use sheen_store::{Attributes, FileKind, Store, StoreError, Transaction};
use sheen_target::{Context, Outcome};
use sheen_types::limits::PATH_BYTES_MAX;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetRoot, MdsGetRootReply};

use crate::directory::Step;
use crate::inode::DIRECTORY_BYTES;
use crate::{Mdt, MdtConfig, dot_lustre};

/// Makes the root directory in an empty store, and `.lustre` in one that has none. The root has no default layout: until an administrator sets one,
/// that of the MDT's parameters (`lod.*`) is reported in its place.
pub(crate) fn format(store: &dyn Store, config: &MdtConfig) -> Result<(), StoreError> {
    if config.index != 0 {
        return Ok(());
    }
    match store.attributes(Fid::ROOT) {
        Ok(_) => {}
        Err(StoreError::NoObject(_)) => make(store, config)?,
        Err(error) => return Err(error),
    }
    dot_lustre::format(store, config.now)
}

fn make(store: &dyn Store, config: &MdtConfig) -> Result<(), StoreError> {
    let attributes = Attributes {
        kind: FileKind::Directory,
        permissions: 0o755,
        links: 2,
        size: DIRECTORY_BYTES,
        blocks: DIRECTORY_BYTES / 512,
        // Lustre's root has no other time either before something is made in it.
        born: config.now,
        ..Attributes::default()
    };
    let mut transaction = Transaction::new();
    transaction.create(Fid::ROOT, attributes);
    store.apply(transaction).map(|_| ())
}

impl Mdt {
    /// MDS_GET_ROOT: the root's FID, or that of the directory a client wants to mount.
    pub(crate) fn get_root(&self, _: &Context, request: &MdsGetRoot) -> Result<Outcome, Errno> {
        let path = request.name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        if path.len() >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut at = self.inode(Fid::ROOT)?;
        for step in path.split(|byte| *byte == b'/').filter(|step| !step.is_empty()) {
            if !at.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            // What is mounted is named by the way down to it alone.
            let step = match Step::parse(step) {
                Ok(Step::DotDot) => return Err(Errno::EINVAL),
                step => step?,
            };
            let found = self.child(&at, &step)?.ok_or(Errno::ENOENT)?;
            at = self.inode(found.fid)?;
        }
        if !at.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let body = MdtBody { fid1: at.fid, valid: Valid::ID, ..MdtBody::default() };
        Ok(Outcome::ok(MdsGetRootReply {
            mdt_body: Some(body),
            capa1: Bytes::new(),
            ..MdsGetRootReply::default()
        }))
    }
}
