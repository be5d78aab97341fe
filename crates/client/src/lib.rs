//! The client as a library: configuration, metadata, data, caches, a POSIX facade.
//!
//! Modules use only those below them; `layers.toml` has the order, from the top:
//!
//! - `config` mounts: it learns from the MGS which targets there are, and makes a [`posix::FileSystem`].
//! - [`posix`] is what hosts use.
//! - `meta` has one file per metadata operation.
//! - `cache` keeps what locks cover of an inode, and notifies the kernel of what they no longer cover.
//! - `mdt` is one MDT, with the FIDs allocated on it and the files open there.
//! - `targets` keeps the connections to all targets.
//! - `data` reads and writes objects, under their own locks.
//! - `locks` keeps the locks of one target.
//! - [`records`] is what the mount's next process needs of this one.
//! - `call` takes replies apart; `types` has the nouns.

pub mod cache;
mod call;
pub mod config;
pub mod data;
pub mod locks;
mod mdt;
mod meta;
pub mod posix;
pub mod records;
mod targets;
#[cfg(test)]
mod testing;
mod types;

// On each `async` method that hosts call: its future is boxed, so that it is compiled once, here. Without that
// rustc compiles the whole client again in every crate that awaits it. Costs one allocation a call.
use async_recursion::async_recursion as boxed;
