//! The tools of users and administrators: [`lfs`], [`lctl`], [`lnetctl`], [`mkfs`], [`scrub`], [`top`] and [`dump`], and what every
//! tool does with its output, its faults ([`output`]) and signals ([`interrupt`]).
//!
//! A tool asks running processes over their control sockets ([`processes`]), or a mount through the file that it
//! is given; it has no node, no target and no client of its own. `sheen` parses the command line and calls
//! the `run` of the tool.

mod command;
pub mod dump;
mod home;
pub mod interrupt;
pub mod lctl;
pub mod lfs;
pub mod lnetctl;
pub mod mkfs;
mod origins;
pub mod output;
pub mod processes;
pub mod scrub;
pub mod top;
