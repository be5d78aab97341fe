//! A client of its own for the tests of roles: no network, no real time.
//!
//! [`TestWorld`] runs tasks in virtual time on the calling thread; [`TestTarget`] is a target on
//! any store; a [`TestClient`] connects to it, sends requests, holds bulk, and answers callbacks.
//!
//! ```ignore
//! let world = TestWorld::new(1);
//! world.run(async {
//!     let node = TestTarget::start(&world, store, config, operations).await;
//!     let client = node.connect("client-1").await;
//!     let answer = client.call(MdsGetRoot::default()).await;
//!     assert_eq!(answer.head.status, 0);
//! });
//! ```

mod client;
mod log;
mod world;

pub use client::{
    Callback, TestAnswer, TestBulk, TestCall, TestClient, TestTarget, client_offer, server_offer,
};
pub use log::{Lines, logged};
pub use world::TestWorld;
