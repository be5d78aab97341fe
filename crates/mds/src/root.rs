//! The root: made once, and what it says of the file system.

use bytes::Bytes;
use sheen_layout::plan::{END_OF_FILE, Part, Plan, STRIPES_ALL, Striping};
use sheen_store::{Attributes, FileKind, Store, StoreError, Transaction};
use sheen_target::{Context, Outcome};
use sheen_types::limits::PATH_BYTES_MAX;
use sheen_types::{Errno, Fid, Timestamp};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetRoot, MdsGetRootReply};

use crate::directory::Step;
use crate::inode::DIRECTORY_BYTES;
use crate::{Mdt, MdtConfig, dot_lustre, identity, xattrs};

/// Makes the root directory in an empty store, and `.lustre` in one that has none. The root has no default layout: until an administrator or `sheen up` sets one,
/// that of the MDT's parameters (`lod.*`) is reported in its place.
pub(crate) fn format(store: &dyn Store, config: &MdtConfig) -> Result<(), StoreError> {
    if config.index != 0 {
        return Ok(());
    }
    match store.attributes(Fid::ROOT) {
        Ok(_) => {}
        Err(StoreError::NoObject(_)) => store.apply(made(config.now)).map(|_| ())?,
        Err(error) => return Err(error),
    }
    dot_lustre::format(store, config.now)
}

/// Makes the root in the store of a new MDT0000, with the default layout that `sheen up` gives a new file system: small files, and
/// the beginning of large ones, lie on the MDT, where an open brings them; then one object; very large files use all
/// OSTs.
///
/// The store gets its identity before, as at a first start: of `random`.
///
/// # Errors
/// Those of the store, as if there is a root already.
pub fn format_for_small_files(
    store: &dyn Store,
    born: Timestamp,
    random: [u8; 16],
) -> Result<(), StoreError> {
    identity::load(store, 0, random)?;
    let mut transaction = made(born);
    transaction.set_xattr(Fid::ROOT, xattrs::LOV, small_files_first().encode());
    store.apply(transaction).map(|_| ())
}

/// Bytes of each file that lie on the MDT.
const ON_MDT: u32 = 64 << 10;
/// From where on a file lies on all OSTs.
const ON_ALL: u64 = 256 << 20;

fn small_files_first() -> Plan {
    let on_mdt = Striping { on_mdt: true, stripe_size: ON_MDT, ..Striping::default() };
    let on_one = Striping { stripe_count: 1, ..Striping::default() };
    let on_all = Striping { stripe_count: STRIPES_ALL, ..Striping::default() };
    Plan::Composite(vec![
        Part { start: 0, end: ON_MDT.into(), striping: on_mdt },
        Part { start: ON_MDT.into(), end: ON_ALL, striping: on_one },
        Part { start: ON_ALL, end: END_OF_FILE, striping: on_all },
    ])
}

fn made(born: Timestamp) -> Transaction {
    let attributes = Attributes {
        kind: FileKind::Directory,
        permissions: 0o755,
        links: 2,
        size: DIRECTORY_BYTES,
        blocks: DIRECTORY_BYTES / 512,
        // Lustre's root has no other time either before something is made in it.
        born,
        ..Attributes::default()
    };
    let mut transaction = Transaction::new();
    transaction.create(Fid::ROOT, attributes);
    transaction
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
            let (directory, before) = match &step {
                Step::Name(name) => self.directories_with(at.fid, name.as_bytes())?,
                Step::Dot | Step::DotDot => (at.fid, None),
            };
            let found = match (self.child(&self.inode(directory)?, &step)?, before) {
                (None, Some(before)) => self.child(&self.inode(before)?, &step)?,
                (found, _) => found,
            };
            let found = found.ok_or(Errno::ENOENT)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_a_new_file_system_is_one_that_a_client_could_set() {
        let plan = small_files_first();
        assert_eq!(Plan::parse(&plan.encode()).as_ref(), Ok(&plan));
    }
}
