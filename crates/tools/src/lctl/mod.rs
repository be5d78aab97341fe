//! `lctl`: parameters, devices and networks of the Sheen processes on this machine.
//!
//! Options, output and exit codes follow Lustre's `lctl`, so that scripts written for it work.

mod conf_param;
mod device;
mod devices;
mod llog;
mod net;
mod params;
pub(crate) mod pools;
mod replace_nids;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::origins;
use crate::output::Fault;

/// Control the servers and mounts of this machine
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Lctl {
    /// Directory of the file system, as for `sheen up`, if this machine has several
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// Device for the command, by number or name as `lctl dl` shows it
    #[arg(long, value_name = "DEVICE", global = true)]
    device: Option<String>,
    /// Network for the command: tcp
    #[arg(long, value_name = "NET", global = true)]
    net: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Get the values of parameters
    #[command(name = "get_param")]
    GetParam(params::Get),
    /// Set the values of parameters
    #[command(name = "set_param")]
    SetParam(params::Set),
    /// List the names of parameters
    #[command(name = "list_param")]
    ListParam(params::List),
    /// Set a permanent parameter of a file system or target
    #[command(name = "conf_param")]
    ConfParam(conf_param::Conf),
    /// Create a pool of OSTs
    #[command(name = "pool_new")]
    PoolNew(pools::Pool),
    /// Add OSTs to a pool
    #[command(name = "pool_add")]
    PoolAdd(pools::Members),
    /// Remove OSTs from a pool
    #[command(name = "pool_remove")]
    PoolRemove(pools::Members),
    /// Destroy a pool
    #[command(name = "pool_destroy")]
    PoolDestroy(pools::Pool),
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    PoolList(pools::List),
    /// Show all local devices
    #[command(name = "dl", alias = "device_list")]
    Devices(devices::Devices),
    /// Activate an import: a mount's MDC or OSC, or an MDT's OSP
    Activate(device::Nothing),
    /// Deactivate an import
    Deactivate(device::Nothing),
    /// Restore a lost connection immediately
    Recover(device::Recover),
    /// Abort recovery of a restarting target: clients that have not finished it are evicted
    #[command(name = "abort_recovery")]
    AbortRecovery(device::Nothing),
    /// Abort recovery of the MDTs that are clients of a restarting target
    #[command(name = "abort_recovery_mdt")]
    AbortRecoveryMdt(device::Nothing),
    /// Check that a device exists
    #[command(name = "device", alias = "cfg_device")]
    Device(device::Choose),
    /// List the configuration logs of the MGS
    #[command(name = "llog_catlist")]
    LlogCatlist(llog::CatList),
    /// Print the effective records of a configuration log
    #[command(name = "llog_print")]
    LlogPrint(llog::Print),
    /// Replace the NIDs of a target in the configuration
    #[command(name = "replace_nids")]
    ReplaceNids(replace_nids::Replace),
    /// Show the local NID that is nearest to the given NIDs
    #[command(name = "which_nid")]
    WhichNid(net::WhichNid),
    /// Start or stop LNet; here each process has its own, while it runs
    #[command(name = "network", alias = "net")]
    Network(net::Configure),
    /// Print the interfaces of a network
    #[command(name = "interface_list")]
    InterfaceList(net::OfNet),
    /// Print the peers of a network
    #[command(name = "peer_list")]
    PeerList(net::OfNet),
    /// Print the connections of a network
    #[command(name = "conn_list")]
    ConnList(net::OfNet),
    /// Check whether a node answers
    Ping(net::Ping),
    /// Show the NIDs of the processes on this machine
    #[command(name = "list_nids")]
    ListNids(net::ListNids),
}

/// Commands of Lustre's `lctl` that are not here yet.
pub const REFUSED_COMMANDS: &[&str] = &[
    "--threads",
    "add_conn",
    "add_interface",
    "add_peer",
    "add_route",
    "add_uuid",
    "apply_yaml",
    "attach",
    "barrier",
    "barrier_freeze",
    "barrier_rescan",
    "barrier_stat",
    "barrier_thaw",
    "changelog",
    "changelog_deregister",
    "changelog_register",
    "cleanup",
    "clear",
    "clear_conf",
    "create",
    "debug_daemon",
    "debug_file",
    "debug_kernel",
    "debug_list",
    "del_conn",
    "del_interface",
    "del_ost",
    "del_peer",
    "del_route",
    "del_uuid",
    "destroy",
    "detach",
    "df",
    "disconnect",
    "dk",
    "erase_lcfg",
    "fail",
    "filter",
    "find_param",
    "fork_lcfg",
    "getattr",
    "getobjversion",
    "help_param",
    "lcfg_clear",
    "lcfg_erase",
    "lcfg_fork",
    "lfsck",
    "lfsck_query",
    "lfsck_start",
    "lfsck_stop",
    "llog",
    "llog_cancel",
    "llog_check",
    "llog_info",
    "llog_remove",
    "lookup",
    "lqa",
    "lqa_add",
    "lqa_destroy",
    "lqa_list",
    "lqa_new",
    "lqa_remove",
    "lustre_build_version",
    "mark",
    "modules",
    "mynid",
    "net_delay",
    "net_delay_add",
    "net_delay_del",
    "net_delay_list",
    "net_delay_reset",
    "net_drop",
    "net_drop_add",
    "net_drop_del",
    "net_drop_list",
    "net_drop_reset",
    "nodemap",
    "nodemap_activate",
    "nodemap_add",
    "nodemap_add_idmap",
    "nodemap_add_offset",
    "nodemap_add_range",
    "nodemap_banlist_add",
    "nodemap_banlist_del",
    "nodemap_del",
    "nodemap_del_idmap",
    "nodemap_del_offset",
    "nodemap_del_range",
    "nodemap_fileset_add",
    "nodemap_fileset_del",
    "nodemap_fileset_modify",
    "nodemap_info",
    "nodemap_modify",
    "nodemap_new",
    "nodemap_set_cap",
    "nodemap_set_fileset",
    "nodemap_set_sepol",
    "nodemap_test_id",
    "nodemap_test_nid",
    "notransno",
    "pcc",
    "push",
    "readonly",
    "route_list",
    "set_route",
    "setattr",
    "setup",
    "show",
    "show_route",
    "snapshot",
    "snapshot_create",
    "snapshot_destroy",
    "snapshot_list",
    "snapshot_modify",
    "snapshot_mount",
    "snapshot_umount",
    "test_brw",
    "test_create",
    "test_destroy",
    "test_getattr",
    "test_lookup",
    "test_md_getattr",
    "test_mkdir",
    "test_rmdir",
    "test_setattr",
    "test_setxattr",
];

/// Options of Lustre's `lctl` that are not here yet.
pub fn refused(command: &str) -> &'static [&'static str] {
    match command {
        "get_param" | "list_param" => params::REFUSED_READING,
        "set_param" => params::REFUSED_SETTING,
        "dl" => &["-y", "--yaml"],
        _ => &[],
    }
}

/// Runs one command of `lctl`.
///
/// # Errors
/// As Lustre's command: the exit code is an errno.
pub fn run(arguments: &Lctl) -> Result<(), Fault> {
    if let Some(dir) = &arguments.dir {
        origins::choose_directory("lctl", dir)?;
    }
    let device = arguments.device.as_deref();
    match &arguments.command {
        Command::GetParam(options) => params::get(options),
        Command::SetParam(options) => params::set(options),
        Command::ListParam(options) => params::list(options),
        Command::ConfParam(options) => conf_param::run(options),
        Command::PoolNew(options) => pools::create(options),
        Command::PoolAdd(options) => pools::add(options),
        Command::PoolRemove(options) => pools::remove(options),
        Command::PoolDestroy(options) => pools::destroy(options),
        Command::PoolList(options) => pools::list(options),
        Command::Devices(options) => {
            devices::show(options);
            Ok(())
        }
        Command::Activate(_) => device::set_active(device, true),
        Command::Deactivate(_) => device::set_active(device, false),
        Command::Recover(options) => device::recover(device, options),
        Command::AbortRecovery(_) => device::abort_recovery(device),
        Command::AbortRecoveryMdt(_) => device::abort_recovery_mdt(device),
        Command::Device(options) => device::choose(options),
        Command::LlogCatlist(_) => llog::list(device),
        Command::LlogPrint(options) => llog::print(device, options),
        Command::ReplaceNids(options) => replace_nids::run(options),
        Command::WhichNid(options) => net::which_nid(options),
        Command::Network(options) => net::configure(options),
        Command::InterfaceList(_) => net::interface_list(arguments.net.as_deref()),
        Command::PeerList(_) => net::peer_list(arguments.net.as_deref()),
        Command::ConnList(_) => net::conn_list(arguments.net.as_deref()),
        Command::Ping(options) => net::ping(options),
        Command::ListNids(_) => net::list_nids(),
    }
}
