//! Configuration logs (Lustre's obdclass llog and the reading half of mgc): how the MGS writes
//! them, how their blocks look to a remote reader, and the cluster map that they describe.
//!
//! Owns no storage: a [`ConfigLog`] is records in memory, with the places in a file that they would
//! have in a real Lustre. What always holds: a record's index and place never change once it was
//! appended, so that a reader may go on where it stopped; only a marker's flags and times do.

mod cluster;
mod log;
mod section;
mod show;

pub use cluster::{ClusterMap, MapError, MapTarget, Param, Position};
pub use log::{Block, ConfigLog, LogError, LogRecord, RECORDS_MAX};
pub use section::{
    LovDesc, PoolChange, Section, add_failover, add_mdc, add_mdt, add_osc, add_osp, add_ost,
    client_name, lmv_setup, lov_setup, mdt_lov, mount_options, parameter, pool_change,
    set_parameter, system_timeout,
};
pub use show::shown;
