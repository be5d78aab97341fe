//! The parameter trees of servers and mounts, as `lctl get_param` and `set_param` see them, the commands that `lfs` and
//! `lctl` give to a process, and the page of OpenMetrics ([`metrics`]).
//!
//! Owns the names and the texts, which are Lustre's, and the bounds of what may be set. Counters and settings lie with
//! those who use them: what is read is their state at that moment, and nothing is counted here.

mod balance;
mod client;
mod data;
mod device;
mod dump;
mod features;
mod folder;
mod follow;
mod garbled;
mod imports;
mod in_work;
mod jobs;
mod llite;
mod locks;
mod lod;
mod lov;
pub mod metrics;
mod mount;
mod network;
mod orders;
mod server;
mod statahead;
mod stripes;
mod tables;
mod text;
mod timing;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::Served;
use sheen_control::{Command, Tree, VERSION};
use sheen_fuse::Jobs;
use sheen_node::rpc::RpcNode;
use sheen_types::{Errno, Nid, PAGE_BYTES};

pub use client::Follower;
pub use follow::{Applied, Followed, follow_servers};
pub use in_work::add_in_work;
pub use lod::{MdtPools, add as add_lod};
pub use mount::{MountState, ShownOptions, answer_users, mount_commands};
pub use server::{add_server, follow_osts, server_commands};

/// The log target of a line that an operator requested (`ldlm.dump_namespaces`): a log leaves none of them out.
pub const EACH_LINE: &str = "sheen_asked";

/// A target that serves in this process.
pub struct HostedTarget {
    /// The target and its role.
    pub served: Arc<Served>,
    /// The directory of its store.
    pub directory: PathBuf,
}

/// The named commands of a process.
pub type Commands = BTreeMap<String, Command>;

/// What every process shows.
fn add_common(tree: &Tree, jobs: &Arc<Jobs>) {
    jobs::add(tree, jobs);
    tree.add("version", || VERSION.to_owned());
    tree.add("health_check", || "healthy".to_owned());
    text::add_header(tree);
    tree.add("memused", || resident_bytes().to_string());
    tree.add("memused_max", || resident_bytes_max().to_string());
}

/// Memory of the machine.
fn memory_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The most memory that the process ever had.
fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Memory that this process holds.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// Pools as parameters: under each one's name the UUIDs of its OSTs, a line each.
fn pool_leaves(pools: BTreeMap<String, Vec<String>>) -> sheen_control::Leaves {
    let leaf = |(name, osts): (String, Vec<String>)| {
        let text = osts.join("\n");
        let read: Box<dyn Fn() -> String + Send + Sync> = Box::new(move || text.clone());
        (name, read)
    };
    pools.into_iter().map(leaf).collect()
}

/// The UUIDs of the OSTs in each pool of a file system.
fn pools_of(fsname: &str, pools: &BTreeMap<String, Vec<u16>>) -> BTreeMap<String, Vec<String>> {
    let uuid = |index: &u16| format!("{fsname}-OST{index:04x}_UUID");
    pools.iter().map(|(name, osts)| (name.clone(), osts.iter().map(uuid).collect())).collect()
}

/// Commands of every process with a node.
fn node_commands(node: &Arc<RpcNode>) -> Commands {
    let mut commands = Commands::new();
    let own = node.lnet().nid();
    commands.insert("nids".to_owned(), Box::new(move |_| Ok(format!("{own}\n"))));
    network::add(&mut commands, node);
    let node = Arc::clone(node);
    let handle = tokio::runtime::Handle::current();
    let ping = move |arguments: &[String]| {
        let wrong = || (Errno::EINVAL, "ping NID SECONDS".to_owned());
        let nid: Nid = arguments.first().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let seconds = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
        let answer = node.lnet().ping(nid);
        let answer = handle
            .block_on(async { tokio::time::timeout(Duration::from_secs(seconds), answer).await });
        match answer {
            Ok(Ok(nids)) => Ok(nids.iter().map(|nid| format!("12345-{nid}\n")).collect()),
            Ok(Err(_)) | Err(_) => Err((Errno::EIO, format!("no answer from {nid}"))),
        }
    };
    commands.insert("ping".to_owned(), Box::new(ping));
    commands
}
