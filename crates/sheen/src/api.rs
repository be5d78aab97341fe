//! What a mount process answers to the commands of `lfs`, as JSON over the control socket.
//!
//! | command | answer |
//! |---|---|
//! | [`MOUNT_INFO`] | [`MountInfo`] |
//! | [`TARGETS`] | list of [`Target`] |
//! | [`TARGET_STATFS`] `[lazy]` | list of [`TargetStatfs`] |
//! | [`POOLS`] | map of pools' names to their OSTs' UUIDs |
//! | [`FID_TO_PATH`] `FID [LINKNO]` | lines of `LINKNO PATH` |
//!
//! With `lazy` nobody waits for a target that is away. Paths are relative to the mount, `/` is its
//! root; an unknown FID is ENOENT.

use serde::{Deserialize, Serialize};

/// Command: what is mounted here.
pub(crate) const MOUNT_INFO: &str = "mount_info";
/// Command: the targets of the file system.
pub(crate) const TARGETS: &str = "targets";
/// Command: how full the MDTs and OSTs are.
pub(crate) const TARGET_STATFS: &str = "target_statfs";
/// Command: the pools of OSTs.
pub(crate) const POOLS: &str = "pools";
/// Command: the paths of a FID.
pub(crate) const FID_TO_PATH: &str = "fid2path";

/// Command of an MGS: sets `NAME=VALUE` for good, everywhere; `NAME=` deletes it.
pub(crate) const SET_PARAM: &str = "set_param";
/// Command of an MGS: `new|add|remove|destroy FSNAME POOL [OST]` changes a pool.
pub(crate) const POOL: &str = "pool";
/// Command of an MGS: the pools of a file system, as [`POOLS`] answers.
pub(crate) const MGS_POOLS: &str = "mgs_pools";
/// Command of an MGS: sets `DEVICE.NAME=VALUE` for good; `DEVICE.NAME=` deletes it.
pub(crate) const CONF_PARAM: &str = "conf_param";

/// Command of a server: a survey's question, as JSON, is answered as JSON.
pub(crate) const ECHO: &str = "echo";
/// Command of a server: a line on what of it does not get on, and one on what fails; each may be empty.
pub(crate) const STATE: &str = "state";
/// Command of a server: a [`ScrubAsk`], as JSON, is answered with a [`ScrubTold`].
pub(crate) const SCRUB: &str = "scrub";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountInfo {
    /// Where, as an absolute path without links.
    pub(crate) path: String,
    /// The file system.
    pub(crate) fsname: String,
    /// Sixteen hex digits that tell this mount from others of the machine.
    pub(crate) instance: String,
    /// The client's UUID.
    pub(crate) uuid: String,
    /// `MGSNID:/FSNAME`.
    pub(crate) source: String,
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Kind {
    /// Configuration.
    Mgs,
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// A target as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// What it serves.
    pub(crate) kind: Kind,
    /// Its number among those of its kind; 0 for the MGS.
    #[serde(default)]
    pub(crate) index: u16,
    /// Its UUID; empty for the MGS.
    #[serde(default)]
    pub(crate) uuid: String,
    /// The client's device for it, as `lustre-OST0000-osc-ffff...` or `MGC10.0.0.1@tcp`.
    pub(crate) device: String,
    /// Whether the connection to it stands.
    pub(crate) active: bool,
}

/// How full a target is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetStatfs {
    /// MDT or OST.
    pub(crate) kind: Kind,
    /// Its number among those of its kind.
    pub(crate) index: u16,
    /// Its UUID.
    pub(crate) uuid: String,
    /// Blocks of `bsize` bytes.
    pub(crate) blocks: u64,
    /// Free ones.
    pub(crate) bfree: u64,
    /// Those that may be used without privilege.
    pub(crate) bavail: u64,
    /// Bytes of a block.
    pub(crate) bsize: u64,
    /// Inodes or objects.
    pub(crate) files: u64,
    /// Free ones.
    pub(crate) ffree: u64,
    /// `OS_STATFS_*` bits.
    #[serde(default)]
    pub(crate) state: u32,
    /// 0, or why the numbers are none: ENODATA for a deactivated target, else a positive errno.
    #[serde(default)]
    pub(crate) errno: u16,
}

/// What `sheen scrub` asks a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ScrubAsk {
    /// Which targets it has.
    Targets,
    /// Begin with a target, at so many bytes a second; 0 is without limit.
    Start { target: String, rate: u64 },
    /// How far it is, with the findings from this number on.
    Watch { target: String, from: usize },
    /// End it early.
    Stop { target: String },
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ScrubTold {
    /// It is done.
    Done,
    /// Names and directories.
    Targets(Vec<(String, String)>),
    /// How far it is, and new findings.
    State { state: ScrubState, new: Vec<String> },
}

/// How far the scrub of a target is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScrubState {
    /// Objects looked at.
    pub(crate) objects: u64,
    /// Bytes read.
    pub(crate) bytes: u64,
    /// Findings.
    pub(crate) damaged: u64,
    /// Since it began.
    pub(crate) milliseconds: u64,
    /// It has ended.
    pub(crate) ended: bool,
    /// Before it was through.
    pub(crate) stopped: bool,
    /// Because of this.
    pub(crate) failed: Option<String>,
}
