//! Commands of `lfs` and `lctl` about themselves, and the refusal of Lustre's commands that are not implemented.
//!
//! Every command of Lustre's tools either works or is refused by name: the tables beside the
//! commands ([`sheen_tools::lfs::REFUSED_COMMANDS`], [`sheen_tools::lctl::REFUSED_COMMANDS`]) hold the rest.

use std::ffi::OsString;

use clap::Parser;
use sheen_types::Errno;

use sheen_tools::output::{Fault, line};
use sheen_tools::{lctl, lfs, lnetctl, output};

/// Columns of a list of commands, and the width of one, as Lustre prints them.
const COLUMNS: usize = 4;
const COLUMN_WIDTH: usize = 20;
/// Commands of the tools' parser itself, with what `help` says of them.
const OWN: [(&str, &str); 10] = [
    ("quit", QUIT),
    ("exit", QUIT),
    ("help", HELP),
    ("--help", HELP),
    ("version", VERSION),
    ("--version", VERSION),
    ("list-commands", LIST),
    ("--list-commands", LIST),
    ("ignore_errors", ERRORS),
    ("--ignore_errors", ERRORS),
];
const QUIT: &str = "does nothing: commands are not read from stdin here";
const HELP: &str = "show what a command does, or list the commands";
const VERSION: &str = "show the version";
const LIST: &str = "list all commands";
const ERRORS: &str = "does nothing: there is no interactive mode in which to continue after errors";

/// Answers what needs no command: `--list-commands`, `version`, `exit` and `help` of a command that
/// is refused. `None` if the words are for a command.
pub(crate) fn answer<T: Parser>(words: &[OsString]) -> Option<Result<(), Fault>> {
    let words: Vec<&str> = words.iter().skip(1).map(|word| word.to_str().unwrap_or("")).collect();
    let [tool @ ("lfs" | "lctl"), command, rest @ ..] = &words[..] else { return None };
    match *command {
        "--list-commands" | "list-commands" => list(&commands(&T::command(), tool)),
        "version" => line(format_args!("{tool} {}", output::VERSION)),
        // What Lustre's interactive mode takes.
        "exit" | "quit" | "ignore_errors" | "--ignore_errors" => {}
        "help" => {
            let word = rest.first()?;
            let of_own = OWN.iter().find(|(name, _)| name == word);
            let of_own = of_own.map(|(name, what)| format!("{name}: {what}\n"));
            if let Some(help) = of_own.or_else(|| lfs::help(word).filter(|_| *tool == "lfs")) {
                output::text_out(&help);
                return Some(Ok(()));
            }
            return refused(tool, word).map(Err);
        }
        _ => return None,
    }
    Some(Ok(()))
}

/// The commands of `tool` that work.
fn commands(root: &clap::Command, tool: &str) -> Vec<String> {
    let own = OWN.iter().map(|(name, _)| (*name).to_owned());
    let tool = root.find_subcommand(tool);
    // Options that stand before a command, which Lustre's tools call commands, too.
    let options = tool.into_iter().flat_map(clap::Command::get_arguments);
    let options = options.filter_map(clap::Arg::get_long).map(|name| format!("--{name}"));
    let options: Vec<String> = options.filter(|name| OWN.iter().all(|own| own.0 != name)).collect();
    let names = tool.into_iter().flat_map(|tool| {
        tool.get_subcommands().flat_map(|command| {
            let aliases = command.get_all_aliases().map(str::to_owned);
            std::iter::once(command.get_name().to_owned()).chain(aliases).collect::<Vec<_>>()
        })
    });
    own.chain(options).chain(names).collect()
}

fn list(names: &[String]) {
    for row in names.chunks(COLUMNS) {
        line(row.iter().map(|name| format!("{name:<COLUMN_WIDTH$}")).collect::<String>());
    }
}

/// The error for a command that Lustre has and Sheen does not; `None` for any other word.
pub(crate) fn refused(tool: &str, word: &str) -> Option<Fault> {
    let is_lustres = match tool {
        "lfs" => lfs::REFUSED_COMMANDS.contains(&word),
        "lctl" => lctl::REFUSED_COMMANDS.contains(&word),
        "lnetctl" => lnetctl::REFUSED_COMMANDS.contains(&word),
        _ => false,
    };
    is_lustres.then(|| {
        let see = if tool == "lnetctl" { "--help" } else { "--list-commands" };
        let text = format!("{tool}: '{word}' is not supported by Sheen yet. See '{tool} {see}'.");
        Fault::new(Errno::EOPNOTSUPP, text)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{commands, refused};

    /// What Lustre 2.17 has: `lfs --list-commands`.
    const LFS: &str = "quit exit help version list-commands setstripe getstripe setdirstripe \
        getdirstripe mkdir rm_entry rmentry unlink_foreign pool_list find check osts mdts df \
        getname setquota quota project flushctx changelog changelog_clear fid2path path2fid rmfid \
        data_version hsm_state hsm_set hsm_clear hsm_action hsm_archive hsm_restore hsm_release \
        hsm_remove hsm_cancel hsm swap_layouts migrate mv ladvise mirror getsom somsync heat_get \
        heat_set pcc";
    /// And `lctl --list-commands`.
    const LCTL: &str = "--device lustre_build_version --net network net list_nids which_nid \
        replace_nids interface_list peer_list conn_list route_list show_route ping net_drop_add \
        net_drop_del net_drop_reset net_drop_list net_drop net_delay_add net_delay_del \
        net_delay_reset net_delay_list net_delay device cfg_device device_list dl activate \
        deactivate abort_recovery abort_recovery_mdt recover conf_param get_param set_param \
        apply_yaml list_param find_param help_param del_ost debug_daemon debug_kernel dk debug_file \
        df clear mark filter show debug_list modules pool_new pool_add pool_remove pool_destroy \
        pool_list lqa_new lqa_add lqa_remove lqa_destroy lqa_list lqa barrier_freeze barrier_thaw \
        barrier_stat barrier_rescan barrier snapshot_create snapshot_destroy snapshot_modify \
        snapshot_list snapshot_mount snapshot_umount snapshot nodemap_activate nodemap_add \
        nodemap_new nodemap_del nodemap_add_range nodemap_del_range nodemap_banlist_add \
        nodemap_banlist_del nodemap_fileset_add nodemap_fileset_del nodemap_fileset_modify \
        nodemap_modify nodemap_add_offset nodemap_del_offset nodemap_add_idmap nodemap_del_idmap \
        nodemap_set_fileset nodemap_set_sepol nodemap_set_cap nodemap_test_nid nodemap_test_id \
        nodemap_info nodemap changelog_register changelog_deregister changelog pcc attach detach \
        setup cleanup lfsck_start lfsck_stop lfsck_query lfsck llog_catlist llog_info llog_print \
        llog_cancel llog_check llog_remove llog lcfg_clear clear_conf lcfg_fork fork_lcfg \
        lcfg_erase erase_lcfg add_interface del_interface add_route del_route set_route --threads \
        lookup readonly notransno add_uuid del_uuid add_peer del_peer add_conn del_conn disconnect \
        push mynid fail test_create test_mkdir test_destroy test_rmdir test_lookup test_setxattr \
        test_md_getattr getattr setattr create destroy test_getattr test_setattr test_brw \
        getobjversion";

    #[test]
    fn every_command_of_lustre_works_or_is_refused_by_name() {
        let root = crate::Sheen::command();
        for (tool, names) in [("lfs", LFS), ("lctl", LCTL)] {
            let ours = commands(&root, tool);
            for name in names.split_whitespace() {
                let works = ours.iter().any(|known| known == name);
                let refused = refused(tool, name).is_some();
                assert!(works != refused, "{tool} {name}: works {works}, refused {refused}");
            }
        }
    }
}
