//! A whole cluster in one process: MGS, MDT, OSTs and clients on one thread and in virtual time.
//!
//! The code of the roles, of RPC and of LNet is the one that serves; only the world below is
//! `sheen_vnet`, and the disks are stores in memory that lose what disks lose. One number, the
//! seed, decides the order of tasks, how long bytes travel, what clients do, what fails and when. The
//! same seed gives the same run, step by step ([`Report::trace`]).
//!
//! What is checked while it runs, and at the end:
//!
//! - every read, lookup and listing against a model (`model`): nothing stale, nothing torn, nothing
//!   lost that was made durable, through a kernel that keeps all it may keep;
//! - the locks of every target: no two granted locks conflict;
//! - the grants of every OST: never more than its free space;
//! - every operation ends in bounded time once faults have stopped;
//! - at the end names, inodes and objects agree, and a fresh client sees what must be there.
//!
//! Some seeds have faults of other kinds beside ([`Extras`]): damaged data (`damage`), OSTs that go back in
//! time (`restored`), a hostile node (`hostile`). With several MDTs ([`Options::mdts`]) any of them die at the same moment,
//! or do not reach each other (`several_mdts`). docs/CONFORMANCE.md says what must hold then.
//!
//! [`scaling`] asks another question of such a cluster: how much more several MDTs do than one, where each request costs the
//! same.
//!
//! `cargo xtask sim --seed N` replays a seed; `-v` shows its operations and faults.

mod changing;
mod checks;
mod cluster;
mod damage;
mod evicted;
mod faults;
mod hostile;
mod identities;
mod lost_objects;
mod model;
mod restored;
mod run;
pub mod scaling;
mod several_mdts;
mod stops;
mod work;

pub use run::{Extras, Failure, Options, Report, run};
