//! `lfs ladvise`: advice to servers about the use of a file. What is advised is checked as in Lustre; then it is
//! refused, for our servers take no advice, and programs are not to believe that they did.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::Errno;

use super::attributes;
use super::size::parse_size;
use crate::output::{Fault, errno_of, worst as outcome};

/// What may be advised.
const ADVICE: [&str; 5] = ["willread", "dontneed", "locknoexpand", "lockahead", "ahead"];
const LOCKS_AHEAD: [&str; 2] = ["lockahead", "ahead"];

/// Options of `ladvise`.
#[derive(Args)]
pub(super) struct Ladvise {
    /// Advice: willread, dontneed or lockahead
    #[arg(short, long, value_name = "ADVICE")]
    advice: Option<String>,
    /// Do not wait for the servers
    #[arg(short, long)]
    background: bool,
    /// Withdraw the advice
    #[arg(short, long)]
    unset: bool,
    /// First byte of the range
    #[arg(short, long, value_name = "START[kMGT]")]
    start: Option<String>,
    /// End of the range: the byte after the last one
    #[arg(short, long, value_name = "END[kMGT]")]
    end: Option<String>,
    /// Length of the range
    #[arg(short, long, value_name = "LENGTH[kMGT]")]
    length: Option<String>,
    /// Lock mode: READ or WRITE
    #[arg(short, long, value_name = "MODE")]
    mode: Option<String>,
    /// Files
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,
}

fn wrong(text: impl std::fmt::Display) -> Fault {
    Fault::usage(format!("ladvise: {text}"))
}

pub(super) fn run(options: &Ladvise) -> Result<(), Fault> {
    let advice = checked(options)?;
    let mut worst = None;
    for path in &options.paths {
        if let Err((errno, text)) = give(advice, path) {
            eprintln!("ladvise: {text}: {errno}");
            worst = worst.or(Some(errno));
        }
    }
    outcome(worst)
}

/// The advice, if Lustre's tool would give it.
fn checked(options: &Ladvise) -> Result<&str, Fault> {
    let valid = format!("Valid types: {}", ADVICE.join(" "));
    let advice = options.advice.as_deref();
    let advice = advice.ok_or_else(|| wrong(format!("please give an advice type. {valid}")))?;
    if !ADVICE.contains(&advice) {
        return Err(wrong(format!("invalid advice type '{advice}'. {valid}")));
    }
    if let Some(mode) = options.mode.as_deref().filter(|mode| !["READ", "WRITE"].contains(mode)) {
        return Err(wrong(format!("bad mode '{mode}', valid modes are READ or WRITE")));
    }
    if advice == "locknoexpand" {
        return Err(wrong(
            "locknoexpand applies to an open file descriptor, so it has no effect here",
        ));
    }
    if options.paths.is_empty() {
        return Err(wrong("please give one or more file names"));
    }
    check_range(options)?;
    match (LOCKS_AHEAD.contains(&advice), options.mode.is_some()) {
        (false, true) => Err(wrong("mode is only valid with lockahead")),
        (true, false) => Err(wrong("mode is required with lockahead")),
        _ => Ok(advice),
    }
}

fn check_range(options: &Ladvise) -> Result<(), Fault> {
    let number = |text: &Option<String>, what: &str| {
        let one =
            |text: &String| parse_size(text).ok_or_else(|| wrong(format!("bad {what} '{text}'")));
        text.as_ref().map(one).transpose()
    };
    let start = number(&options.start, "start offset")?.unwrap_or(0);
    let end = number(&options.end, "end offset")?;
    let length = number(&options.length, "length")?.filter(|length| *length != 0);
    let behind = length.map(|length| start.saturating_add(length));
    if let (Some(end), Some(behind)) = (end, behind)
        && end != behind
    {
        return Err(wrong("conflicting arguments of -l and -e"));
    }
    match end.or(behind).unwrap_or(u64::MAX) {
        end if end <= start => Err(wrong(format!("range [{start}, {end}] is invalid"))),
        _ => Ok(()),
    }
}

fn give(advice: &str, path: &Path) -> Result<(), (Errno, String)> {
    let shown = path.display();
    let opened = File::open(path);
    opened.map_err(|error| (errno_of(&error), format!("cannot open file '{shown}'")))?;
    let is_ours = path.is_file() && attributes::fid(path).is_ok();
    let errno = if is_ours { Errno::EOPNOTSUPP } else { Errno::ENOTTY };
    Err((errno, format!("cannot give advice '{advice}' to file '{shown}'")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Ladvise, checked};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ladvise: Ladvise,
    }

    /// The recording e11c-lfs-misc-lctl-mount-errors has most of these.
    #[test]
    fn wrong_advice_is_refused_as_in_lustre() {
        let fault = |line: &str| {
            let words = std::iter::once("ladvise").chain(line.split_whitespace());
            checked(&Line::parse_from(words).ladvise).err().map(|fault| (fault.code, fault.text))
        };
        for (line, text) in [
            ("f", "please give an advice type"),
            ("-a bogus f", "invalid advice type 'bogus'"),
            ("-a willread", "please give one or more file names"),
            ("-a willread -s 10 -e 5 f", "range [10, 5] is invalid"),
            ("-a willread -s x f", "bad start offset 'x'"),
            ("-a willread -s 1 -e 5 -l 5 f", "conflicting arguments of -l and -e"),
            ("-a willread -m READ f", "mode is only valid with lockahead"),
            ("-a lockahead f", "mode is required with lockahead"),
            ("-a lockahead -m BOGUS f", "bad mode 'BOGUS', valid modes are READ or WRITE"),
            ("-a locknoexpand f", "locknoexpand applies to an open file descriptor"),
        ] {
            let (code, said) = fault(line).unwrap_or_else(|| panic!("{line}"));
            assert!(code == 4 && said.starts_with(&format!("ladvise: {text}")), "{line}: {said}");
        }
        for line in ["-a willread f", "-a dontneed -s 1M -l 1M f g", "-a ahead -m WRITE -e 4k f"] {
            assert_eq!(fault(line), None, "{line}");
        }
    }
}
