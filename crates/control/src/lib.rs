//! The parameter tree, and the socket through which `lctl` and `lfs` reach a running process.
//!
//! Every process of Sheen owns one [`Tree`] of parameters under Lustre's names and one
//! [`Server`] that answers on a UNIX socket in the run folder. A tool asks all sockets there
//! ([`Client`]) and joins the answers, as `lctl` on a Lustre node sees all devices of that node. The folder
//! is closed to other users ([`make_private`]), and a process answers only its own user and root.
//! [`PageServer`] is for collectors that scrape over HTTP.
//!
//! The hot paths of servers and client never come here: parameters read counters that those keep.

pub mod api;
mod client;
mod folder;
mod glob;
mod page;
mod protocol;
mod server;
mod tree;

/// What `--version` and the parameter `version` say: the Lustre whose tools these are like, and ours.
pub const VERSION: &str = concat!("2.17.0 (Sheen ", env!("CARGO_PKG_VERSION"), ")");

pub use client::{Client, run_folder};
pub use folder::{check_owner, make_private};
pub use glob::Pattern;
pub use page::{PageServer, page_address};
pub use protocol::{ControlReply, ControlRequest, Shown};
pub use server::{Command, Server, asker};
pub use tree::{Access, Leaf, Leaves, Listed, Tree};
