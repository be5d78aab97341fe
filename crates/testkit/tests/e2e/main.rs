//! Whole file systems, started by `sheen up` and mounted: what is promised, shown.
//!
//! `cargo xtask test` runs this with the binary it built (`SHEEN_BIN`); `SHEEN_TEST_LONG` asks for
//! full sizes, `SHEEN_TEST_KEEP` keeps each file system's folder below `target/e2e`.

mod administration;
mod admission;
mod bench;
mod collectors;
mod commands;
mod compare;
mod damage;
mod deaths;
mod dom;
mod dom_deaths;
mod effects;
mod faults;
mod flags;
mod fsck;
mod full;
mod greedy;
mod handles;
mod hangs;
mod journals;
mod keeper;
mod kills;
mod layouts;
mod leftovers;
mod logs;
mod memory;
mod metrics;
mod mounting;
mod moves;
mod nodes;
mod one_ost;
mod operations;
mod pages;
mod pairs;
mod parameters;
mod pjdfstest;
mod posix;
mod postgres;
mod private;
mod rights;
mod servers;
mod settings;
mod several;
mod special;
mod sqlite;
mod statistics;
mod storm;
mod strangers;
mod surveys;
mod top;
mod tree;
mod waits;
mod wire;
mod workloads;
