//! The promises, one function each. As tests they use threads, which the contract itself does not.

mod cases;
mod data;
mod durable;
mod random;

pub use cases::*;
pub use data::*;
pub use durable::*;
pub use random::*;
