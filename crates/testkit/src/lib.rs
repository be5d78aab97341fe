//! What the tests share: virtual time, seeded networks, temporary clusters.

pub mod vnet;
