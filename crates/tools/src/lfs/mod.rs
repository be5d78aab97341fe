//! `lfs`: files, layouts and targets of mounted file systems.
//!
//! What belongs to a file goes through the mount itself (extended attributes `lustre.lov` and
//! `lustre.fid`), so permissions are the file's; what belongs to the mount is asked of its process
//! over the control socket ([`sheen_control::api`]).

mod attributes;
mod check;
mod compare;
mod components;
mod data_version;
mod df;
mod dirstripe;
mod fid2path;
mod find;
mod getname;
mod getstripe;
mod heat;
mod ladvise;
mod layout_request;
mod layout_source;
mod layout_text;
mod layout_yaml;
mod mdt_of;
mod migrate;
mod migrate_mdt;
mod mount;
mod options;
mod path2fid;
mod permission;
mod pools;
mod rm_entry;
mod rmfid;
mod setstripe;
mod size;
mod som;
mod targets;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use pools::{print as print_pools, shown as pool_names};
pub use size::human;

use crate::origins;
use crate::output::Fault;

/// Show and set layouts and other attributes of files and mounts
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Lfs {
    /// Directory of the file system, as for `sheen up`, if this machine has several
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create files with a layout, or set the default layout of directories
    Setstripe(options::Words),
    /// Show the layout of files
    Getstripe(options::Words),
    /// Move the data of files to other objects
    Migrate(options::Words),
    /// Swap the layouts, and so the data, of two files
    #[command(name = "swap_layouts")]
    SwapLayouts(migrate::Swap),
    /// Find files by their attributes and layouts
    Find(options::Words),
    /// Show the space usage of MDTs and OSTs
    Df(df::Df),
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    PoolList(pools::List),
    /// List the OSTs of mounted file systems
    Osts(targets::List),
    /// List the MDTs of mounted file systems
    Mdts(targets::List),
    /// Check whether servers answer
    Check(check::Check),
    /// Show the FIDs of files
    Path2fid(path2fid::PathToFid),
    /// Show the paths of FIDs
    Fid2path(fid2path::FidToPath),
    /// Give servers advice on how files will be used
    Ladvise(ladvise::Ladvise),
    /// Show the size and blocks of a file that the MDT has (SOM)
    Getsom(som::GetSom),
    /// Show the version of a file's data
    #[command(name = "data_version")]
    DataVersion(data_version::DataVersion),
    /// Remove files by their FIDs
    Rmfid(rmfid::RemoveFid),
    /// Show the layout of directories on MDTs
    Getdirstripe(dirstripe::Get),
    /// Create directories, on an MDT given by its index
    Mkdir(dirstripe::Make),
    /// Create directories, on an MDT given by its index; split or merge those that exist
    Setdirstripe(dirstripe::Make),
    /// Remove directory entries whose inodes are lost, without their inodes
    #[command(name = "rm_entry", alias = "rmentry")]
    RmEntry(rm_entry::RemoveEntry),
    /// Show how much files are accessed (file heat)
    #[command(name = "heat_get")]
    HeatGet(heat::Get),
    /// Turn file heat on or off, or clear it
    #[command(name = "heat_set")]
    HeatSet(heat::Set),
    /// Show the names and instances of mounted file systems
    Getname(getname::GetName),
}

/// Commands of Lustre's `lfs` that are not here yet.
pub const REFUSED_COMMANDS: &[&str] = &[
    "changelog",
    "changelog_clear",
    "flushctx",
    "hsm",
    "hsm_action",
    "hsm_archive",
    "hsm_cancel",
    "hsm_clear",
    "hsm_release",
    "hsm_remove",
    "hsm_restore",
    "hsm_set",
    "hsm_state",
    "mirror",
    "mv",
    "pcc",
    "project",
    "quota",
    "setquota",
    "somsync",
    "unlink_foreign",
];

/// Options of Lustre's `lfs` that are not here yet.
pub fn refused(command: &str) -> &'static [&'static str] {
    match command {
        "df" => df::REFUSED,
        "mkdir" | "setdirstripe" => dirstripe::REFUSED,
        _ => &[],
    }
}

/// The help of a command that reads its words by itself.
pub fn help(command: &str) -> Option<String> {
    match command {
        "setstripe" => Some(setstripe::GRAMMAR.help()),
        "migrate" => Some(migrate::GRAMMAR.help()),
        "find" => Some(find::GRAMMAR.help()),
        "getstripe" => Some(getstripe::GRAMMAR.help()),
        _ => None,
    }
}

/// Runs one command of `lfs`.
///
/// # Errors
/// As Lustre's command: the exit code is an errno.
pub fn run(arguments: &Lfs) -> Result<(), Fault> {
    if let Some(dir) = &arguments.dir {
        origins::choose_directory("lfs", dir)?;
    }
    match &arguments.command {
        Command::Setstripe(options) => setstripe::run(options),
        Command::Getstripe(options) => getstripe::run(options),
        Command::Migrate(options) => migrate::run(options),
        Command::SwapLayouts(options) => migrate::swap(options),
        Command::Find(options) => find::run(options),
        Command::Df(options) => df::run(options),
        Command::PoolList(options) => pools::run(options),
        Command::Osts(options) => targets::osts(options),
        Command::Mdts(options) => targets::mdts(options),
        Command::Check(options) => check::run(options),
        Command::Path2fid(options) => path2fid::run(options),
        Command::Fid2path(options) => fid2path::run(options),
        Command::Ladvise(options) => ladvise::run(options),
        Command::Getsom(options) => som::run(options),
        Command::DataVersion(options) => data_version::run(options),
        Command::Rmfid(options) => rmfid::run(options),
        Command::Getdirstripe(options) => dirstripe::get(options),
        Command::Mkdir(options) => dirstripe::make("mkdir", options),
        Command::Setdirstripe(options) => dirstripe::make("setdirstripe", options),
        Command::RmEntry(options) => rm_entry::run(options),
        Command::HeatGet(options) => heat::get(options),
        Command::HeatSet(options) => heat::set(options),
        Command::Getname(options) => getname::run(options),
    }
}

/// `lfs df` takes `-o3` for one OST and `-o` for all; the second must not swallow the path
/// behind it. What clap offers for that is `-o=3`, so the first is rewritten to it.
pub fn df_indexes_apart(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "lfs")
        && words.get(2).is_some_and(|word| word == "df")
    {
        for word in &mut words[3..] {
            let Some(text) = word.to_str() else { continue };
            let index = text.strip_prefix("-o").or_else(|| text.strip_prefix("-m"));
            if index.is_some_and(|index| index.starts_with(|digit: char| digit.is_ascii_digit())) {
                *word = format!("{}={}", &text[..2], &text[2..]).into();
            }
        }
    }
    words
}
