//! Programs of other projects that judge a file system for long, run on whole mounted ones.
//!
//! `cargo xtask test` installs them, and asks for full sizes with `SHEEN_TEST_LONG`. What they say is in
//! docs/CONFORMANCE.md. A short one, pjdfstest, is among the tests of `tests/e2e`.

mod fsx;
mod load;
