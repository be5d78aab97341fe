//! Tests of whole operations, through a target, over a store in memory and OSTs that are not real.

mod absent_xattrs;
mod batch;
mod dom;
mod dot_lustre;
mod echo;
mod errors;
mod fake_ost;
mod fids;
mod harness;
mod holds;
mod hsm;
mod identity;
mod kept_opens;
mod known_empty;
mod layouts;
mod leases;
mod names;
mod opens;
mod placing;
mod recovery;
mod renames;
mod replays;
mod rights;
mod rmfid;
mod several;
mod vouched_sizes;
