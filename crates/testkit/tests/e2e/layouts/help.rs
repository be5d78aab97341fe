//! What the tools say of themselves: every recorded question for help is answered here, too, with the
//! recorded exit code and in our own words.

use std::path::Path;

use sheen_testkit::cluster::Cluster;
use sheen_workloads::{Context, Outcome, ensure};

use super::recorded::{Command, commands};
use super::transcripts::{Judge, read, shell, with_recordings};

/// `EOPNOTSUPP`: a command of Lustre's that is refused by its name.
const REFUSED: i32 = 95;

/// The exit code, and all that was written.
fn asked(cluster: &Cluster, line: &str) -> Outcome<(i32, String)> {
    let output = shell(cluster, line)?.output().context(line)?;
    let written = [output.stdout, output.stderr].concat();
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&written).into_owned()))
}

/// The words of `lfs --list-commands`.
fn listed(lines: &str) -> Vec<String> {
    lines.split_whitespace().map(str::to_owned).collect()
}

/// Whether `line` asks about one of `names`, the commands that work here.
fn is_about(line: &str, names: &[String]) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = match words[..] {
        ["lfs", "help", word, ..] => word,
        ["lfs", word, ..] => word,
        _ => return false,
    };
    names.iter().any(|name| name == word)
}

fn ask(cluster: &Cluster, judge: &mut Judge, command: &Command, names: &[String]) -> Outcome {
    let (line, wanted) = (&command.text, command.code.unwrap_or(0));
    let (code, said) = asked(cluster, line)?;
    if !is_about(line, names) {
        return ensure(code == REFUSED && !said.is_empty(), || format!("{line}: {code}: {said}"));
    }
    // One line of the table for all: they differ in one and the same way.
    let label = if line.ends_with("--help") { "lfs SUBCOMMAND --help" } else { line };
    if code != wanted {
        judge.differs(label, format!("{line}: exit {code} instead of {wanted}: {said}"));
    }
    if said.is_empty() && command.says {
        judge.differs(line, "says nothing".to_owned());
    }
    Ok(())
}

fn ask_all(cluster: &Cluster, file: &Path) -> Outcome {
    let name = file.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into_owned());
    let text = read(file)?;
    let names = listed(&asked(cluster, "lfs --list-commands")?.1);
    ensure(names.iter().any(|name| name == "setstripe"), || format!("listed: {names:?}"))?;
    let mut judge = Judge::new(&name)?;
    for command in commands(&text) {
        if command.text != "lfs --list-commands" {
            ask(cluster, &mut judge, &command, &names)?;
            continue;
        }
        for theirs in listed(&command.out.join(" ")) {
            let refused = || asked(cluster, &format!("lfs {theirs} x"));
            if !names.contains(&theirs) && refused()?.0 != REFUSED {
                judge.differs(&command.text, format!("{theirs}: neither listed nor refused"));
            }
        }
    }
    judge.verdict()
}

#[test]
fn help_is_there_for_whatever_it_is_asked_of() {
    with_recordings("transcript-help", |cluster, captures| {
        ask_all(cluster, &captures.join("more/u1-lfs-help.txt"))?;
        ask_all(cluster, &captures.join("more/u2-lfs-subcommand-help-option.txt"))
    });
}
