//! Puts roles on nodes: a target with its store, role and portals; its registration with the MGS;
//! an MDT's connections to OSTs; the imports of a mount; and the check of a whole file system at rest.
//!
//! The program and the simulator build what they run from here, so both run the same. Owns nothing
//! of the operating system: the world and the stores are given.

mod connector;
mod consistency;
mod directory;
mod registrar;
mod served;

pub use connector::{NodeConnector, ReportingConnector};
pub use consistency::{
    CheckError, Consistency, Depth, Findings, Problem, ProblemKind, StoreContents, Watch,
};
pub use registrar::{NotRegistered, Registrar};
pub use served::{Role, Served, TargetLabel};
