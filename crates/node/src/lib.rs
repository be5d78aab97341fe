//! The pump: owns the engines, turns events of the world into theirs and their actions into io.
//!
//! Costs of a request and its reply without a bulk, counted: at each end one `writev`, one receive and one
//! wait, and four allocations.

pub mod net;
pub mod rpc;
