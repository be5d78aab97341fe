//! `sheen completions`: what a shell completes, from the definitions that the tools' parsers are made of.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use sheen_tools::output::{Fault, text_out};

/// Write completions of a tool for a shell
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
    /// The name that the tool is called by: sheen or that of a link to it (lfs, lctl, ...)
    #[arg(value_name = "TOOL", default_value = "sheen")]
    tool: String,
}

pub(crate) fn run(
    options: &Completions,
    root: Command,
    links: &[&'static str],
) -> Result<(), Fault> {
    let tool = &options.tool;
    let command = tool_of(root, tool, links).ok_or_else(|| {
        let text = format!("sheen completions: {tool}: not sheen or one of {}", links.join(", "));
        crate::host::invalid(text)
    })?;
    text_out(&script(options.shell, command, tool));
    Ok(())
}

/// What is completed behind the word `tool`.
fn tool_of(root: Command, tool: &str, links: &[&'static str]) -> Option<Command> {
    if tool == root.get_name() {
        return Some(root);
    }
    let link = links.iter().find(|link| **link == tool)?;
    // By the name of the link, which may be another one of the command.
    Some(root.find_subcommand(link)?.clone().name(*link))
}

fn script(shell: Shell, mut command: Command, tool: &str) -> String {
    let mut text = Vec::new();
    generate(shell, &mut command, tool, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};

    use super::*;

    fn of(shell: Shell, tool: &str) -> Option<String> {
        let command = tool_of(crate::Sheen::command(), tool, &crate::LINK_NAMES)?;
        Some(script(shell, command, tool))
    }

    #[test]
    fn each_tool_has_completions_for_each_shell() {
        for shell in Shell::value_variants() {
            for tool in crate::LINK_NAMES.iter().chain(&["sheen"]) {
                assert!(of(*shell, tool).is_some_and(|text| text.contains(tool)), "{shell} {tool}");
            }
            let lfs = of(*shell, "lfs").expect("lfs");
            assert!(lfs.contains("setstripe") && lfs.contains("fid2path"), "{shell}: {lfs}");
            assert!(!lfs.contains("conf_param"), "{shell}: what lctl has is none of lfs: {lfs}");
        }
    }

    #[test]
    fn what_no_link_is_called_by_has_none() {
        assert!(of(Shell::Bash, "up").is_none() && of(Shell::Bash, "ls").is_none());
    }
}
