//! Whole file systems, started by `sheen up` and mounted: what is promised, shown.
//!
//! `cargo xtask test` runs this with the binary it built (`SHEEN_BIN`); `SHEEN_TEST_LONG` asks for
//! full sizes, `SHEEN_TEST_KEEP` keeps each file system's folder below `target/e2e`.

mod bench;
mod collectors;
mod compare;
mod deaths;
mod dom;
mod dom_deaths;
mod effects;
mod faults;
mod flags;
mod full;
mod kills;
mod layouts;
mod metrics;
mod moves;
mod pairs;
mod parameters;
mod posix;
mod rights;
mod servers;
mod settings;
mod sqlite;
mod statistics;
mod storm;
mod surveys;
mod top;
mod tree;
mod wire;
mod workloads;
