//! A POSIX file system in memory, and two clients of a whole cluster held to it.
//!
//! The model knows what POSIX says and nothing of locks, caches or the wire. [`run`] does a sequence
//! of operations, each by one of two clients of a cluster in one process and in virtual time, and
//! on the model; both must answer the same errno, and after each step both clients must see the
//! model's whole tree: names, types, modes, owners, links, sizes, bytes, targets, attributes.
//! [`operations`] makes such sequences, which shrink when they fail; [`run_many`] does many of them.

mod cluster;
mod compare;
mod driver;
mod many;
mod model;
mod operation;
mod run;

pub use cluster::Home;
pub use many::run_many;
pub use operation::{Operation, Step, operations};
pub use run::run;
