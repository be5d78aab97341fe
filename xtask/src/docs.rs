//! `cargo xtask docs`: the documents that are made from the code.

use crate::shell::{self, Outcome, cargo};

/// Writes `docs/protocol/messages.md`; the test that otherwise compares it does so.
pub(crate) fn run() -> Outcome {
    let mut test = cargo(&["test", "--quiet", "--package", "sheen-wire", "--test", "document"]);
    test.env("SHEEN_WRITE_DOCS", "1");
    shell::run(test)
}
