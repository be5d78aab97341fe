//! `sheen man`: manual pages of every tool, from the definitions that their parsers are made of.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use sheen_tools::output::{Fault, errno_of, line};

/// Write manual pages of all tools into a directory, for man -l or MANPATH
#[derive(Args)]
pub(crate) struct Pages {
    /// Directory, created if it does not exist; the pages go into its subdirectory man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(pages: &Pages, root: Command) -> Result<(), Fault> {
    let folder = pages.directory.join("man1");
    let all = write(&folder, root).map_err(|error| {
        Fault::new(errno_of(&error), format!("sheen man: {}: {error}", folder.display()))
    })?;
    line(format_args!("{all} pages in {}", folder.display()));
    Ok(())
}

/// Writes a page for the command and for each below it; answers how many.
fn write(folder: &Path, mut root: Command) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    root.build();
    let mut count = 0;
    for (name, command) in pages(&root) {
        let mut page = Vec::new();
        Man::new(command).title(name.clone()).render(&mut page)?;
        fs::write(folder.join(format!("{name}.1")), page)?;
        count += 1;
    }
    Ok(count)
}

/// What has a page, by the page's name: all commands that are shown, and no `help`.
fn pages(root: &Command) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    let mut ahead = vec![(root.get_name().to_owned(), root)];
    while let Some((name, command)) = ahead.pop() {
        let below = command.get_subcommands();
        let below = below.filter(|one| one.get_name() != "help" && !one.is_hide_set());
        ahead.extend(below.map(|one| (format!("{name}-{}", one.get_name()), one)));
        let shown = command.clone().disable_help_subcommand(true);
        found.push((name, shown));
    }
    found
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// What roff makes of a dash in bold text.
    fn in_roff(text: &str) -> String {
        text.replace('-', "\\-")
    }

    #[test]
    fn every_option_of_every_tool_is_in_its_page() {
        let folder = std::env::temp_dir().join(format!("sheen-man-{}", std::process::id()));
        let mut root = crate::Sheen::command();
        root.build();
        let count = write(&folder, root.clone()).unwrap();
        let all = pages(&root);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), count);
        let mut options = 0;
        for (name, command) in &all {
            let page = fs::read_to_string(folder.join(format!("{name}.1"))).expect(name);
            assert!(
                page.contains(".SH NAME") && page.contains(".SH DESCRIPTION"),
                "{name}: {page}"
            );
            for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                options += 1;
                let long = option.get_long().map(|long| format!("--{long}"));
                let short = option.get_short().map(|short| format!("-{short}"));
                for word in long.into_iter().chain(short) {
                    assert!(page.contains(&in_roff(&word)), "{word} is not in {name}.1");
                }
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let first = help.split_whitespace().next().unwrap_or_default();
                assert!(page.contains(&in_roff(first)), "no help of {option} in {name}.1");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
        let some =
            ["sheen", "sheen-bench-mdtest", "sheen-bench-md-workbench", "sheen-lfs-setstripe"];
        for name in some {
            assert!(all.iter().any(|(page, _)| page == name), "{name}");
        }
        assert!(options > 300, "{options}");
    }
}
