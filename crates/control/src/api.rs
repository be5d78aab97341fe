//! What the commands over the control socket carry, as JSON: what tools ask, and what mounts and servers answer.
//!
//! | command of a mount | answer |
//! |---|---|
//! | [`MOUNT_INFO`] | [`MountInfo`] |
//! | [`TARGETS`] | list of [`MountTarget`] |
//! | [`TARGET_STATFS`] `[lazy]` | list of [`TargetStatfs`] |
//! | [`POOLS`] | map of pools' names to their OSTs' UUIDs |
//! | [`FID_TO_MDT`] `FID` | the index of the MDT that has it |
//! | [`FID_TO_PATH`] `FID [LINKNO]` | lines of `LINKNO PATH`, the path as [`shown`] has its bytes |
//!
//! With `lazy` the mount does not wait for a target that is not connected. Paths are relative to the mount, `/` is its
//! root; an unknown FID is ENOENT.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sheen_types::text::bytes_of_shown;
#[cfg(doc)]
use sheen_types::text::shown;

/// Command: what is mounted here.
pub const MOUNT_INFO: &str = "mount_info";
/// Command: the targets of the file system.
pub const TARGETS: &str = "targets";
/// Command: how full the MDTs and OSTs are.
pub const TARGET_STATFS: &str = "target_statfs";
/// Command: the pools of OSTs.
pub const POOLS: &str = "pools";
/// Command: which MDT has a FID.
pub const FID_TO_MDT: &str = "fid2mdt";
/// Command: the paths of a FID.
pub const FID_TO_PATH: &str = "fid2path";

/// Command of every process: which file systems it serves or mounts, an [`Origin`].
pub const ORIGIN: &str = "origin";

/// Command of an MGS: sets `NAME=VALUE` for good, everywhere; `NAME=` deletes it.
pub const SET_PARAM: &str = "set_param";
/// Command of an MGS: `new|add|remove|destroy FSNAME POOL [OST]` changes a pool.
pub const POOL: &str = "pool";
/// Command of an MGS: the pools of a file system, as [`POOLS`] answers.
pub const MGS_POOLS: &str = "mgs_pools";
/// Command of an MGS: sets `DEVICE.NAME=VALUE` for good; `DEVICE.NAME=` deletes it.
pub const CONF_PARAM: &str = "conf_param";

/// Command of an MGS: `TARGET NODE...`: the target is at these nodes, NIDs of each with commas between.
pub const REPLACE_NIDS: &str = "replace_nids";
/// Command of an MGS: the names of its logs, a line each.
pub const LLOG_CATLIST: &str = "llog_catlist";
/// Command of an MGS: `LOG [raw]`: its records as a list of [`LogLine`].
pub const LLOG_PRINT: &str = "llog_print";

/// Command of a server: `TARGET`: ends the recovery of the target now; `TARGET mdt`: gives up the MDTs that have not
/// finished it.
pub const ABORT_RECOVERY: &str = "abort_recovery";
/// Command of every process: its LNet, a [`Network`].
pub const NETWORK: &str = "network";
/// Command of a server: a survey's question, as JSON, is answered as JSON.
pub const ECHO: &str = "echo";
/// Command of a server: a line on what makes no progress, and one on what fails; each may be empty.
pub const STATE: &str = "state";
/// Command of a server: whether all its targets serve, [`IS_READY`] or [`STARTS`].
pub const READY: &str = "ready";
/// The answer to [`READY`] of one whose targets all serve.
pub const IS_READY: &str = "ready";
/// The answer to [`READY`] of one that waits for some of them.
pub const STARTS: &str = "starts";
/// Command of a server: a [`ScrubRequest`], as JSON, is answered with a [`ScrubAnswer`].
pub const SCRUB: &str = "scrub";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountInfo {
    /// Where, as an absolute path without links, as [`shown`] has its bytes.
    pub path: String,
    /// The file system.
    pub fsname: String,
    /// Sixteen hex digits that distinguish this mount from the other mounts of the machine.
    pub instance: String,
    /// The client's UUID.
    pub uuid: String,
    /// `MGSNID:/FSNAME`.
    pub source: String,
}

impl MountInfo {
    /// Where it is.
    #[must_use]
    pub fn point(&self) -> PathBuf {
        OsString::from_vec(bytes_of_shown(self.path.as_bytes())).into()
    }
}

/// Where the file systems of a process come from. Of one name there may be several on a machine: the MGS distinguishes
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// NIDs of the MGS.
    pub mgs: Vec<String>,
    /// TCP port of LNet.
    pub port: u16,
    /// The file systems' names.
    pub names: Vec<String>,
    /// Directories of its targets; of a mount none.
    pub directories: Vec<String>,
    /// Whether the MGS runs in this process.
    pub has_mgs: bool,
}

/// A record of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Its index.
    pub index: u32,
    /// As `lctl llog_print` shows it.
    pub text: String,
}

/// The LNet of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its NID.
    pub nid: String,
    /// The port of its peers.
    pub port: u16,
    /// Messages sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Messages that could not be sent.
    pub send_dropped: u64,
    /// Messages that no receiver expected.
    pub receive_dropped: u64,
    /// Connections that broke.
    pub errors: u64,
    /// Messages sent, received, and received without being expected: PUT, GET, REPLY, ACK and HELLO of each.
    pub kinds: [[u64; 5]; 3],
    /// The nodes that it has to do with.
    pub peers: Vec<NetworkPeer>,
}

/// A node that a process has to do with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPeer {
    /// Its NID.
    pub nid: String,
    /// A letter for each connection: `C`ontrol, bulk `I`n, bulk `O`ut, `A`ny.
    pub connections: String,
    /// Messages that wait for a connection.
    pub waiting: u64,
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// Configuration.
    Mgs,
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// A target as a mount has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountTarget {
    /// What it serves.
    pub kind: Kind,
    /// Its number among those of its kind; 0 for the MGS.
    #[serde(default)]
    pub index: u16,
    /// Its UUID; empty for the MGS.
    #[serde(default)]
    pub uuid: String,
    /// The client's device for it, as `lustre-OST0000-osc-ffff...` or `MGC10.0.0.1@tcp`.
    pub device: String,
    /// Whether the connection to it stands.
    pub active: bool,
}

/// How full a target is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatfs {
    /// MDT or OST.
    pub kind: Kind,
    /// Its number among those of its kind.
    pub index: u16,
    /// Its UUID.
    pub uuid: String,
    /// Blocks of `bsize` bytes.
    pub blocks: u64,
    /// Free ones.
    pub bfree: u64,
    /// Those that may be used without privilege.
    pub bavail: u64,
    /// Bytes of a block.
    pub bsize: u64,
    /// Inodes or objects.
    pub files: u64,
    /// Free ones.
    pub ffree: u64,
    /// `OS_STATFS_*` bits.
    #[serde(default)]
    pub state: u32,
    /// 0, or why the numbers are none: ENODATA for a deactivated target, else a positive errno.
    #[serde(default)]
    pub errno: u16,
}

/// What `sheen scrub` asks a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubRequest {
    /// Which targets it has.
    Targets,
    /// Begin with a target, at so many bytes a second; 0 is without limit.
    Start {
        /// The target's name.
        target: String,
        /// Bytes a second.
        rate: u64,
    },
    /// How far it is, with the findings from this number on.
    Watch {
        /// The target's name.
        target: String,
        /// How many findings the tool has already.
        from: usize,
    },
    /// End it early.
    Stop {
        /// The target's name.
        target: String,
    },
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubAnswer {
    /// It is done.
    Done,
    /// Names and directories.
    Targets(Vec<(String, String)>),
    /// How far it is, and new findings.
    State {
        /// How far it is.
        state: ScrubState,
        /// Findings that the tool has not had, a line each.
        new: Vec<String>,
    },
}

/// How far the scrub of a target is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubState {
    /// Objects looked at.
    pub objects: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Findings.
    pub damaged: u64,
    /// Since it began.
    pub milliseconds: u64,
    /// It has ended.
    pub ended: bool,
    /// Before it was through.
    pub stopped: bool,
    /// Because of this.
    pub failed: Option<String>,
}
