//! Makes files of objects that no file has: their bytes come back, their names and owners do not.

use sheen_layout::plan::{Plan, Striping};
use sheen_layout::stored::Stored;
use sheen_store::{Attributes, FileKind, Store, StoreError, Transaction};
use sheen_types::{Fid, Timestamp};

use crate::{sequences, xattrs};

/// Permissions of such a file: root's alone, for its owner is not known.
const PERMISSIONS: u32 = 0o600;
/// Bytes of a stripe: there is but one.
const STRIPE_BYTES: u32 = 1 << 20;

/// Makes an inode without a name, root's alone, for each of these objects (OST, object), which no layout
/// names. [`crate::rebuild`] then gives them names in `lost+found`. Each is one transaction, and all
/// are durable when it returns. Their FIDs lie in a sequence of their own. The target must not run.
///
/// # Errors
/// Those of the store.
pub fn adopt(
    store: &dyn Store,
    objects: &[(u16, Fid)],
    now: Timestamp,
) -> Result<Vec<Fid>, StoreError> {
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    let sequence = sequences::take(store)?;
    let attributes = Attributes {
        kind: FileKind::Regular,
        permissions: PERMISSIONS,
        accessed: now,
        modified: now,
        changed: now,
        born: now,
        ..Attributes::default()
    };
    let mut made = Vec::new();
    for (number, object) in (1..).zip(objects) {
        let fid = Fid::new(sequence, number);
        let striping =
            Striping { stripe_count: 1, stripe_size: STRIPE_BYTES, ..Striping::default() };
        let mut layout = Stored::new(fid, &Plan::Plain(striping));
        layout.place(0, &[*object]);
        let mut change = Transaction::new();
        change.create(fid, attributes.clone()).set_xattr(fid, xattrs::LOV, layout.encode());
        store.apply(change)?;
        made.push(fid);
    }
    store.commit()?;
    Ok(made)
}
