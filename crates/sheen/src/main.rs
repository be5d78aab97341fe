//! One binary, called by subcommand or by link name.
//!
//! Called as `lfs`, `lctl`, `lnetctl`, `mkfs.lustre`, `mount.lustre` or `umount.lustre`, it is that tool; called by any other
//! name, its first word names the tool. Every tool answers `--help`, says what is wrong in one
//! line on stderr, and leaves with the exit code of Lustre's tool of that name.

mod bench;
mod commands;
mod completions;
mod host;
mod man;
mod usage;

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sheen_tools::{dump, lctl, lfs, lnetctl, mkfs, output, scrub, top};

/// Names of links to this binary that choose the tool.
const LINK_NAMES: [&str; 8] = [
    "lfs",
    "lctl",
    "lnetctl",
    "mkfs.lustre",
    "mount.lustre",
    "mount.fuse.lustre",
    "umount.lustre",
    "umount.fuse.lustre",
];

/// Lustre in user space: servers, client and tools in one binary
#[derive(Parser)]
#[command(name = "sheen", version = output::VERSION, propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Sheen {
    #[command(subcommand)]
    tool: Tool,
}

/// Every subcommand; one line here and one in [`run`] adds a tool.
#[derive(Subcommand)]
enum Tool {
    Up(host::Up),
    Down(host::Down),
    Status(host::Status),
    Fsck(host::Fsck),
    Scrub(scrub::Scrub),
    Salvage(host::Salvage),
    Server(host::Server),
    Mount(host::Mount),
    /// Helper of mount(8) for the types lustre and fuse.lustre: `sheen mount` with mount(8)'s exit codes
    #[command(name = "mount.lustre", alias = "mount.fuse.lustre")]
    MountHelper(host::Mount),
    #[command(name = "umount.lustre", alias = "umount.fuse.lustre")]
    UnmountHelper(host::Unmount),
    Upgrade(host::Upgrade),
    Lfs(lfs::Lfs),
    Lctl(lctl::Lctl),
    Lnetctl(lnetctl::Lnetctl),
    #[command(name = "mkfs.lustre", alias = "mkfs")]
    Mkfs(mkfs::Mkfs),
    Dump(dump::Dump),
    Bench(sheen_bench::Bench),
    Man(man::Pages),
    Completions(completions::Completions),
    Top(top::Top),
    /// For the tools themselves.
    #[command(hide = true)]
    Sign(host::Sign),
}

fn main() -> ExitCode {
    sheen_types::set_hash_key(RandomState::new().hash_one(0));
    let words = lfs::df_indexes_apart(with_tool(std::env::args_os().collect()));
    let words = bench::ranks_apart(words);
    let outcome = match commands::answer::<Sheen>(&words) {
        Some(answered) => answered,
        None => match usage::parse::<Sheen>(words) {
            Ok(sheen) => run(&sheen.tool),
            Err(code) => return code,
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.report(),
    }
}

fn run(tool: &Tool) -> Result<(), output::Fault> {
    if let Tool::Up(_)
    | Tool::Down(_)
    | Tool::Server(_)
    | Tool::Mount(_)
    | Tool::MountHelper(_)
    | Tool::Mkfs(_)
    | Tool::Fsck(_) = tool
    {
        host::set_umask();
    }
    match tool {
        Tool::Up(arguments) => host::up(arguments),
        Tool::Down(arguments) => host::down(arguments),
        Tool::Status(arguments) => host::status(arguments),
        Tool::Fsck(arguments) => host::fsck(arguments),
        Tool::Scrub(arguments) => scrub::run(arguments),
        Tool::Salvage(arguments) => host::salvage(arguments),
        Tool::Server(arguments) => host::server(arguments),
        Tool::Mount(arguments) => host::mount(arguments),
        Tool::MountHelper(arguments) => host::mount_as_helper(arguments),
        Tool::UnmountHelper(arguments) => host::unmount(arguments),
        Tool::Upgrade(arguments) => host::upgrade(arguments),
        Tool::Lfs(arguments) => lfs::run(arguments),
        Tool::Lctl(arguments) => lctl::run(arguments),
        Tool::Lnetctl(arguments) => lnetctl::run(arguments),
        Tool::Mkfs(arguments) => mkfs::run(arguments),
        Tool::Dump(arguments) => dump::run(arguments),
        Tool::Bench(arguments) => bench::run(arguments),
        Tool::Man(arguments) => man::run(arguments, Sheen::command()),
        Tool::Completions(arguments) => completions::run(arguments, Sheen::command(), &LINK_NAMES),
        Tool::Top(arguments) => top::run(arguments, host::processes_of),
        Tool::Sign(arguments) => host::sign(arguments),
    }
}

/// The command line as if called by `sheen`: a link's name becomes the first word.
fn with_tool(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let link = LINK_NAMES.iter().find(|link| name.is_some_and(|name| name == **link));
    if let Some(link) = link {
        words.insert(1, link.into());
        words[0] = "sheen".into();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory as _;

    use super::{Sheen, with_tool};

    #[test]
    fn the_command_line_is_consistent() {
        Sheen::command().debug_assert();
    }

    #[test]
    fn a_link_name_chooses_the_tool() {
        let words = |texts: &[&str]| texts.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(with_tool(words(&["/usr/bin/lfs", "df"])), words(&["sheen", "lfs", "df"]));
        assert_eq!(with_tool(words(&["/x/sheen", "lfs"])), words(&["/x/sheen", "lfs"]));
        assert_eq!(with_tool(Vec::new()), Vec::<OsString>::new());
    }
}
