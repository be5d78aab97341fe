//! The client as a library: configuration, metadata, data, caches, a POSIX facade.
//!
//! [`posix::FileSystem`] is what hosts use. Below it: `config` learns from the MGS which targets
//! there are and connects to them; `meta` has one file per metadata operation; `data` reads and
//! writes objects; `cache` keeps what locks cover, and `locks` keeps the locks.

pub mod cache;
mod call;
pub mod config;
pub mod data;
mod join;
pub mod locks;
mod meta;
pub mod posix;
#[cfg(test)]
mod testing;
