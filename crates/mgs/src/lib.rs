//! The management service (Lustre's MGS): which targets belong to which file system, and how
//! clients and servers learn it.
//!
//! [`Mgs`] is the role on top of [`sheen_target::Target`]: targets register, clients and servers
//! read configuration logs under configuration locks which are revoked when a log changes. It has
//! no recovery and no transactions of clients; what it writes is durable before it is answered.
//!
//! What always holds: a log only grows, save that markers are cancelled; everything that is shown
//! to a reader is in the store; no lock is held while the store syncs or a lock is revoked. Nothing
//! here is on a hot path: every call may copy a log.

mod admission;
mod check;
mod limits;
mod logs;
mod nidtable;
mod parameters;
mod pools;
mod registration;
mod service;
mod state;
#[cfg(test)]
mod tests;

pub use check::{Checked, check};
pub use registration::Registration;
pub use service::{Mgs, MgsConfig, config_resource};
pub use sheen_llog::PoolChange;
