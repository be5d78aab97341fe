//! The page as a script: what it types on which machine, and what it says is shown then.
//!
//! A step is a line `MACHINE# COMMAND` of a block that begins with ```` ```sh ````, with its here document if it has
//! one. The lines behind it are the command's output, in their order, `...` for what may be anything.

use sheen_workloads::{Outcome, ensure};

/// Something to type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// In the page.
    pub(super) line: usize,
    pub(super) machine: String,
    pub(super) command: String,
    pub(super) shown: Vec<String>,
}

pub(super) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut is_block, mut document_ends) = (false, None);
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            (is_block, document_ends) = (line == "```sh", None);
            continue;
        }
        if !is_block {
            continue;
        }
        if let (Some(end), Some(step)) = (document_ends, steps.last_mut()) {
            step.command += &format!("\n{line}");
            document_ends = (line != end).then_some(end);
        } else if let Some((machine, command)) = prompt(line) {
            document_ends = command.split_once("<<").map(|(_, end)| end);
            let (machine, command) = (machine.to_owned(), command.to_owned());
            steps.push(Step { line: number + 1, machine, command, shown: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.shown.push(line.to_owned());
        }
    }
    steps
}

fn prompt(line: &str) -> Option<(&str, &str)> {
    let (machine, command) = line.split_once("# ")?;
    let is_name = !machine.is_empty() && machine.chars().all(|it| it.is_ascii_alphanumeric());
    is_name.then_some((machine, command))
}

/// That `output` shows the lines `wanted`, in their order.
pub(super) fn shows(output: &str, wanted: &[String]) -> Outcome {
    let mut lines = output.lines();
    for line in wanted.iter().filter(|line| *line != "...") {
        ensure(lines.any(|found| matches(found, line)), || format!("no line '{line}'"))?;
    }
    Ok(())
}

/// Whether `line` is `pattern`, whose `...` stand for anything; columns may be of any width.
fn matches(line: &str, pattern: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, pattern) = (words(line), words(pattern));
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut is_open = false;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        (rest, is_open) = (behind, part.is_empty());
    }
    rest.is_empty() || is_open
}

#[test]
fn a_page_is_read_as_steps() {
    let page = "text\n```text\nmds1# no\n```\n```sh\nmds1# cat > f <<EOF\na\nEOF\noss1# cat f\na ... b\nc\n```\n";
    let step = |line, machine: &str, command: &str, shown: &[&str]| Step {
        line,
        machine: machine.to_owned(),
        command: command.to_owned(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    let wanted = [
        step(6, "mds1", "cat > f <<EOF\na\nEOF", &[]),
        step(9, "oss1", "cat f", &["a ... b", "c"]),
    ];
    assert_eq!(steps(page), wanted);
}

#[test]
fn what_is_shown_is_compared_line_by_line() {
    assert!(matches("a  1 2  b", "a ... b") && matches("a b", "a b") && matches("a b", "... b"));
    assert!(matches("at 12:00 ready", "...ready") && matches("x=1 y=2", "x=1 ..."));
    assert!(!matches("a 1", "a ... b") && !matches("ab", "a") && !matches("a b c", "a ... b"));
    let wanted = ["two".to_owned(), "...".to_owned(), "four".to_owned()];
    assert!(shows("one\ntwo\nthree\nfour", &wanted).is_ok());
    assert!(shows("four\ntwo", &wanted).is_err());
}
