//! `docs/protocol/messages.md` says what the message table says.

use std::fs;
use std::path::Path;

use sheen_wire::messages::markdown_table;

/// Set by `cargo xtask docs`: write the document instead of comparing it.
const WRITE: &str = "SHEEN_WRITE_DOCS";

const HEAD: &str = "\
# Messages

Every request, reply and callback that Sheen speaks. This file is made from the message table in
`crates/wire/src/messages` by `cargo xtask docs`; a test compares the two.

Buffers come in the order of the message, behind the PtlRPC body, which is buffer 0. A number in
parentheses is a structure's size in bytes, with `+` if a newer peer may send a longer one; `each`
marks an array. A buffer in brackets may be absent or empty, or its contents depend on the message.
A reply leaves out what a request that failed has no answer for.

";

#[test]
fn the_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/messages.md");
    let wanted = format!("{HEAD}{}", markdown_table());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &wanted).expect("the document can be written");
    }
    let found = fs::read_to_string(&path).expect("the document is there");
    assert!(found == wanted, "docs/protocol/messages.md is out of date; run `cargo xtask docs`");
}
