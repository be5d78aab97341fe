//! `cargo xtask docs`: the documents that are made from the code.

use crate::shell::{self, Outcome, cargo};

/// Writes `docs/protocol/messages.md` and the list of differences in `docs/COMPAT.md`; the tests
/// that otherwise compare them do so.
pub(crate) fn run() -> Outcome {
    for (package, test) in [("sheen-wire", "document"), ("sheen-conformance", "replay")] {
        let mut command = cargo(&["test", "--quiet", "--package", package, "--test", test]);
        command.args(["--", "the_document"]);
        command.env("SHEEN_WRITE_DOCS", "1");
        shell::run(command)?;
    }
    Ok(())
}
