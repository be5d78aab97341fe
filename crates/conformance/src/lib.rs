//! Captures of a real Lustre, read, decoded and compared.
//!
//! A capture file goes through four steps, each a module: packets ([`pcap`]), byte streams of TCP
//! connections ([`tcp`]), LNet messages ([`session`]), RPCs and bulk data ([`rpc`]). On top of
//! them [`golden`] proves that our structures say what Lustre's do, and [`dump`] shows a capture
//! to people. Everything works on a file that lies in memory as a whole; nothing here panics on
//! what a file contains.

mod batch;
mod content;
pub mod dump;
mod facts;
pub mod golden;
mod opaque;
mod out;
pub mod pcap;
pub mod rpc;
pub mod session;
pub mod tcp;

pub use batch::{attributes, batched, questions};
pub use content::Content;
pub use opaque::{explain, explain_bulk};
