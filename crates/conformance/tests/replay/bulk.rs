//! The fields of bulk data.

use bytes::Bytes;
use sheen_conformance::{Content, explain_bulk};
use sheen_wire::dir::{DirPage, PAGE_SIZE};
use sheen_wire::messages::Format;
use sheen_wire::opcode::Opcode;

use crate::fields::{Leaves, flatten};

/// What the bulk of a request says.
pub(crate) fn leaves(format: Option<&Format>, bytes: &Bytes) -> Leaves {
    let mut leaves = Leaves::new();
    if format.is_some_and(|format| format.opcode == Opcode::MDS_READPAGE) {
        names(bytes, &mut leaves);
        return leaves;
    }
    match explain_bulk(format, bytes) {
        Content::Typed { shown, .. } => flatten("bulk", &shown, &mut leaves),
        Content::Plain(kind) => {
            leaves.insert(format!("bulk ({kind})"), digest(bytes));
        }
        Content::Untyped => {
            leaves.insert("bulk".to_owned(), digest(bytes));
        }
    }
    leaves
}

/// The names of directory pages, whatever their order: that is a matter of the server's hash.
fn names(bytes: &Bytes, leaves: &mut Leaves) {
    for at in (0..bytes.len() / PAGE_SIZE).map(|page| page * PAGE_SIZE) {
        let Ok(page) = DirPage::decode(&bytes.slice(at..at + PAGE_SIZE)) else {
            leaves.insert("bulk".to_owned(), "no directory page".to_owned());
            return;
        };
        leaves.insert(format!("bulk.flags[{at}]"), format!("{:?}", page.header.flags));
        for entry in &page.entries {
            let name = entry.name.escape_ascii().to_string().replace(['[', ']'], "_");
            leaves.insert(format!("bulk.names[{name}].fid"), entry.fid.to_string());
            leaves.insert(format!("bulk.names[{name}].kind"), format!("{:?}", entry.kind));
        }
    }
}

/// Length and a checksum: enough to distinguish data from other data.
fn digest(bytes: &Bytes) -> String {
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{} bytes, {sum:#x}", bytes.len())
}
