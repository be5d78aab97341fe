//! Hostile peers, kernels and disks: the bodies of fuzz targets, one function each, and the generator of
//! requests that they share with the tests in virtual time.
//!
//! What must hold for every input: no panic, no wait without end, no memory that the input does not
//! warrant. The same bytes always do the same, except in [`fuse_requests`], whose requests are read by a
//! thread of its own. `tests/seeds.rs` runs each function on inputs from seeds; `fuzz` hands them to
//! libFuzzer.

mod answers;
#[path = "../../conformance/tests/common/mod.rs"]
#[allow(dead_code, reason = "the tests that it comes from use all of it")]
mod common;
mod disks;
mod ends;
mod fields;
mod kernel;
mod known;
mod requests;
mod source;
mod targets;

pub use answers::client_replies;
pub use disks::store_files;
pub use kernel::fuse_requests;
pub use known::{Known, ServerKind};
pub use requests::{Packet, Range, Requests};
pub use source::{Input, Source};
pub use targets::{mdt_requests, mgs_requests, ost_requests};
