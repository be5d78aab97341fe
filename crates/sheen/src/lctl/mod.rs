//! `lctl`: parameters, devices and networks of the Sheen processes on this machine.
//!
//! Options, output and exit codes follow Lustre's `lctl`, so that scripts written for it work.

mod devices;
mod net;
mod params;

use clap::{Args, Subcommand};

use crate::output::Fault;

/// Look at and set what runs on this machine
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Lctl {
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
    /// Show all local devices
    #[command(name = "dl", alias = "device_list")]
    Devices(devices::Devices),
    /// Check whether a node answers
    Ping(net::Ping),
    /// Show the NIDs of this machine's processes
    #[command(name = "list_nids")]
    ListNids(net::ListNids),
}

/// Commands of Lustre's `lctl` that are not here yet.
pub(crate) const REFUSED_COMMANDS: &[&str] = &[
    "abort_recovery",
    "activate",
    "barrier_freeze",
    "barrier_rescan",
    "barrier_stat",
    "barrier_thaw",
    "changelog_clear",
    "changelog_deregister",
    "changelog_register",
    "clear_conf",
    "conf_param",
    "conn_list",
    "daemon_file",
    "deactivate",
    "debug_daemon",
    "debug_file",
    "debug_kernel",
    "--device",
    "device",
    "dk",
    "erase_lcfg",
    "filter",
    "fork_lcfg",
    "get_session",
    "interface_list",
    "lfsck_query",
    "lfsck_start",
    "lfsck_stop",
    "llog_cancel",
    "llog_catlist",
    "llog_check",
    "llog_info",
    "llog_print",
    "llog_remove",
    "mark",
    "net",
    "network",
    "nodemap_activate",
    "nodemap_add",
    "nodemap_add_idmap",
    "nodemap_add_range",
    "nodemap_del",
    "nodemap_del_idmap",
    "nodemap_del_range",
    "nodemap_info",
    "nodemap_modify",
    "nodemap_test_id",
    "nodemap_test_nid",
    "pcc",
    "peer_list",
    "pool_add",
    "pool_destroy",
    "pool_list",
    "pool_new",
    "pool_remove",
    "recover",
    "replace_nids",
    "route_list",
    "snapshot_create",
    "snapshot_destroy",
    "snapshot_list",
    "snapshot_mount",
    "snapshot_umount",
    "which_nid",
];

/// Options of Lustre's `lctl` that are not here yet.
pub(crate) fn refused(command: &str) -> &'static [&'static str] {
    match command {
        "get_param" | "list_param" => params::REFUSED_READING,
        "set_param" => params::REFUSED_SETTING,
        "dl" => &["-y", "--yaml"],
        _ => &[],
    }
}

pub(crate) fn run(arguments: &Lctl) -> Result<(), Fault> {
    match &arguments.command {
        Command::GetParam(options) => params::get(options),
        Command::SetParam(options) => params::set(options),
        Command::ListParam(options) => params::list(options),
        Command::Devices(options) => {
            devices::show(options);
            Ok(())
        }
        Command::Ping(options) => net::ping(options),
        Command::ListNids(_) => net::list_nids(),
    }
}
