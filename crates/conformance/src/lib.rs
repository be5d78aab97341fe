//! Captures of a real Lustre, read, decoded and compared.
//!
//! A capture file goes through four steps, each a module: packets ([`pcap`]), byte streams of TCP
//! connections ([`tcp`]), LNet messages ([`session`]), RPCs and bulk data ([`rpc`]). On top of
//! them [`golden`] proves that our structures say what Lustre's do, and [`dump`] shows a capture
//! to people. Everything works on a file that lies in memory as a whole; nothing here panics on
//! what a file contains.

mod batch;
pub mod dump;
mod facts;
pub mod golden;
mod opaque;
pub mod pcap;
pub mod rpc;
pub mod session;
pub mod tcp;

pub use batch::attributes;
pub use opaque::{Content, explain, explain_bulk};

use std::path::PathBuf;

/// The folder of the captures of a real Lustre: `SHEEN_CAPTURES`, or where they lie beside the tree.
/// `None` if there are none and `SHEEN_NO_CAPTURES=1` allows that.
///
/// # Panics
/// If there are none and nobody has allowed that: a proof that is left out must be left out on purpose.
#[must_use]
pub fn captures() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    let path = std::env::var_os("SHEEN_CAPTURES").map_or_else(|| default.into(), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    let allowed = std::env::var_os("SHEEN_NO_CAPTURES").is_some_and(|value| value == "1");
    assert!(
        allowed,
        "no captures in {}; set SHEEN_CAPTURES or SHEEN_NO_CAPTURES=1",
        path.display()
    );
    eprintln!("skipped: no captures in {}", path.display());
    None
}
