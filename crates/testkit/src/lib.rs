//! Clusters of processes for the tests of whole file systems, and the scenes that these tests play on them.
//!
//! The tests are in `tests/e2e`, on a mount, and `tests/suites`, which runs long test suites of other projects.
//! What they do on a file system is in `sheen-workloads`.

pub mod addresses;
pub mod browser;
mod claim;
pub mod cluster;
pub mod scene;
pub mod suites;
