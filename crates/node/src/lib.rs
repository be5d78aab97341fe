//! The pump: owns the engines, turns events of the world into theirs and their actions into io.

pub mod net;
pub mod rpc;
