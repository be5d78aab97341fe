//! `lfs ladvise`: advice to servers about the use of a file, and locks that are acquired ahead. What is advised is
//! checked as in Lustre.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::Errno;
use sheen_wire::ost::{LadviseFlags, LadviseHdr, LuLadvise};

use super::size::parse_size;
use crate::output::{Fault, errno_of, shown_path, worst as outcome};

/// What may be advised; `ahead` is for directories, and OSTs refuse it.
const ADVICE: [(&str, u16); 5] = [
    ("willread", LuLadvise::WILLREAD),
    ("dontneed", LuLadvise::DONTNEED),
    ("locknoexpand", LuLadvise::LOCKNOEXPAND),
    ("lockahead", LuLadvise::LOCKAHEAD),
    ("ahead", 5),
];
/// `MODE_READ_USER` and what follows it.
const MODES: [&str; 2] = ["READ", "WRITE"];
/// What Lustre's tool exits with where advice is refused, whatever the reason.
const REFUSED: Errno = Errno::EPERM;

/// Options of `ladvise`.
#[derive(Args)]
pub(super) struct Ladvise {
    /// Advice: willread, dontneed, locknoexpand, lockahead or ahead
    #[arg(short, long, value_name = "ADVICE")]
    advice: Option<String>,
    /// Do not wait for the servers
    #[arg(short, long)]
    background: bool,
    /// Withdraw the advice (no effect on a file that is opened for it)
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
    let checked = Checked::of(options)?;
    let mut worst = None;
    for path in &options.paths {
        if let Err(errno) = give(&checked, path) {
            worst = worst.or(Some(errno));
        }
    }
    outcome(worst)
}

/// Advice that Lustre's tool would give.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Checked {
    name: &'static str,
    flags: LadviseFlags,
    advice: LuLadvise,
}

impl Checked {
    fn of(options: &Ladvise) -> Result<Self, Fault> {
        let valid = || format!("Valid types: {}", ADVICE.map(|(name, _)| name).join(" "));
        let advice = options.advice.as_deref();
        let advice =
            advice.ok_or_else(|| wrong(format!("please give an advice type\n{}", valid())))?;
        let known = ADVICE.into_iter().find(|(name, _)| *name == advice);
        let (name, advice) = known.ok_or_else(|| {
            Fault::usage(format!("lfs: invalid advice type '{advice}'\n{}", valid()))
        })?;
        let mode = mode(options.mode.as_deref())?;
        if advice == LuLadvise::LOCKNOEXPAND {
            return Err(wrong(
                "Lock no expand advice is a per file descriptor advice, so when called from lfs, it does nothing.",
            ));
        }
        if options.paths.is_empty() {
            return Err(wrong("please give one or more file names"));
        }
        let (start, end) = range(options)?;
        let locks = advice == LuLadvise::LOCKAHEAD;
        match (locks, mode) {
            (false, 1..) => return Err(wrong("mode is only valid with lockahead")),
            (true, 0) => return Err(wrong("mode is required with lockahead")),
            _ => {}
        }
        let (background, unset) = (LadviseFlags::ASYNC, LadviseFlags::UNSET);
        let flags = if options.background { background } else { LadviseFlags::NONE };
        let flags = if options.unset { flags | unset } else { flags };
        let value2 = if locks { flags.0 as u32 } else { 0 };
        let advice = LuLadvise { advice, value1: mode, value2, start, end, ..LuLadvise::default() };
        Ok(Self { name, flags, advice })
    }
}

/// The mode's number, 0 for none.
fn mode(name: Option<&str>) -> Result<u16, Fault> {
    let Some(name) = name else { return Ok(0) };
    let at = MODES.iter().position(|known| *known == name);
    at.map(|at| at as u16 + 1)
        .ok_or_else(|| wrong(format!("bad mode '{name}', valid modes are READ or WRITE")))
}

/// The first byte and the one behind the last.
fn range(options: &Ladvise) -> Result<(u64, u64), Fault> {
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
        end => Ok((start, end)),
    }
}

/// Says what is wrong, as Lustre's library and its tool do each.
fn give(checked: &Checked, path: &Path) -> Result<(), Errno> {
    let shown = shown_path(path);
    let opened = File::open(path).map_err(|error| {
        let errno = errno_of(&error);
        eprintln!("ladvise: cannot open file '{shown}': {errno}");
        errno
    })?;
    let header = LadviseHdr {
        magic: LadviseHdr::MAGIC,
        count: 1,
        flags: checked.flags,
        ..LadviseHdr::default()
    };
    let given = sheen_fuse::advise(&opened, &header, &checked.advice);
    given.map(|_| ()).map_err(|errno| {
        eprintln!("lfs ladvise: cannot give advice: {errno} ({})", errno.0);
        eprintln!("ladvise: cannot give advice '{}' to file '{shown}': {errno}", checked.name);
        REFUSED
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{ADVICE, Checked, Ladvise};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ladvise: Ladvise,
    }

    #[test]
    fn the_help_names_all_advice_and_refuses_nothing_that_works() {
        let help = Line::command().render_long_help().to_string();
        for (name, _) in ADVICE {
            assert!(help.contains(name), "{name}: {help}");
        }
        #[derive(Parser)]
        struct Tool {
            #[command(flatten)]
            lfs: crate::lfs::Lfs,
        }
        let tool = Tool::command();
        for name in ["ladvise", "data_version"] {
            let about = tool.find_subcommand(name).and_then(|it| it.get_about());
            let about = about.expect("it is there").to_string();
            assert!(!about.contains("refused"), "{about}");
        }
    }

    /// The recording e11c-lfs-misc-lctl-mount-errors has most of these.
    #[test]
    fn wrong_advice_is_refused_as_in_lustre() {
        let fault = |line: &str| {
            let words = std::iter::once("ladvise").chain(line.split_whitespace());
            Checked::of(&Line::parse_from(words).ladvise)
                .err()
                .map(|fault| (fault.code, fault.text))
        };
        for (line, text) in [
            ("f", "please give an advice type"),
            ("-a willread", "please give one or more file names"),
            ("-a willread -s 10 -e 5 f", "range [10, 5] is invalid"),
            ("-a willread -s x f", "bad start offset 'x'"),
            ("-a willread -s 1 -e 5 -l 5 f", "conflicting arguments of -l and -e"),
            ("-a willread -m READ f", "mode is only valid with lockahead"),
            ("-a lockahead f", "mode is required with lockahead"),
            ("-a lockahead -m BOGUS f", "bad mode 'BOGUS', valid modes are READ or WRITE"),
            ("-a ahead -m READ f", "mode is only valid with lockahead"),
            ("-a locknoexpand f", "Lock no expand advice is a per file descriptor advice"),
        ] {
            let (code, said) = fault(line).unwrap_or_else(|| panic!("{line}"));
            assert!(code == 4 && said.starts_with(&format!("ladvise: {text}")), "{line}: {said}");
        }
        let (code, said) = fault("-a lockexpand f").expect("refused");
        assert!(
            code == 4
                && said.starts_with("lfs: invalid advice type 'lockexpand'\nValid types: willread")
        );
        for line in [
            "-a willread f",
            "-a dontneed -s 1M -l 1M f g",
            "-a lockahead -m WRITE -e 4k f",
            "-a ahead f",
        ] {
            assert_eq!(fault(line), None, "{line}");
        }
    }
}
