//! The only entrance.
fn main() {}
