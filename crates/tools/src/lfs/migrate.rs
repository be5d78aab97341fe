//! `lfs migrate`, `lfs swap_layouts`: other objects for the data of files.
//!
//! The mount does it (`sheen.migrate`, an extended attribute that is an order): the data moves in one
//! process, under the mount's locks, and does not pass through this one. On Lustre's own mounts there
//! is no such order; that is said in a line.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use sheen_types::Errno;
use sheen_wire::lov::LovEa;

use super::components::LIBRARY_CODE;
use super::layout_request::{self, fault_of};
use super::layout_source::{self, RequestedLayout, copied, folder_of, for_each};
use super::options::{Dashes, Grammar, HELP, Opt, Part, Takes, Words, refused, wants_help};
use super::size::parse_with_unit;
use super::{attributes, migrate_mdt, pools};
use crate::output::{Fault, errno, errno_of, line, line_out, shown_path, text_out};

pub(super) const GRAMMAR: Grammar = Grammar {
    command: "lfs migrate",
    usage: "Move the data of files to other objects, or directories to other MDTs\n\n\
        Usage: lfs migrate [LAYOUT OPTIONS] [OPTIONS] FILENAME...\n       \
        lfs migrate -m INDEX,... [-c|-C COUNT] [-H HASH] [-d] [-v] DIRECTORY...\n       \
        lfs migrate [LAYOUT OPTIONS] [OPTIONS] -0|--files-from LIST\n\n\
        Without layout options a file keeps its layout, and its data moves to new objects.",
    tables: &[layout_request::OPTIONS, layout_source::OPTIONS, OPTIONS],
    dashes: Dashes::Two,
};

const OPTIONS: &[Opt] = &[
    Opt {
        short: Some('b'),
        names: &["block"],
        takes: Takes::Nothing,
        help: "Block I/O of other processes while the data moves (the default)",
    },
    Opt {
        short: Some('n'),
        names: &["non-block"],
        takes: Takes::Nothing,
        help: "Abort if another process changes the file meanwhile",
    },
    Opt {
        short: Some('D'),
        names: &["non-direct"],
        takes: Takes::Nothing,
        help: "Do not use direct I/O",
    },
    Opt {
        short: Some('W'),
        names: &["bandwidth-limit", "bandwidth"],
        takes: Takes::Value("MIB_PER_SECOND"),
        help: "Limit the bandwidth, in MiB per second unless k, M or G is given",
    },
    Opt {
        short: None,
        names: &["stats"],
        takes: Takes::Nothing,
        help: "Print progress every 5 seconds",
    },
    Opt {
        short: None,
        names: &["stats-interval"],
        takes: Takes::Value("SECONDS"),
        help: "Print progress every SECONDS",
    },
    Opt {
        short: Some('v'),
        names: &["verbose"],
        takes: Takes::Nothing,
        help: "Print the name of each file",
    },
    Opt {
        short: None,
        names: &["restripe"],
        takes: Takes::Nothing,
        help: "Use the default layout of the file's directory",
    },
    Opt {
        short: Some('0'),
        names: &["null"],
        takes: Takes::Nothing,
        help: "Names are terminated by NUL, and read from stdin unless --files-from is given",
    },
    Opt {
        short: None,
        names: &["files-from"],
        takes: Takes::Value("LIST"),
        help: "Read names from a file, one per line; - for stdin",
    },
    Opt {
        short: Some('m'),
        names: &["mdt-index", "mdt", "mdt_index"],
        takes: Takes::Value("INDEX,..."),
        help: "Move directories with all that is in them to these MDTs, -1 for any; with -m, -c and -C count MDTs",
    },
    Opt {
        short: Some('H'),
        names: &["mdt-hash"],
        takes: Takes::Value("HASH"),
        help: "With -m: hash type by which names are spread over MDTs",
    },
    Opt {
        short: None,
        names: &["clear-fixed"],
        takes: Takes::Nothing,
        help: "With -m: automatic splits may change the layout of the directories afterwards",
    },
    refused(Some('A'), &["auto-stripe"], Takes::Nothing),
    refused(Some('K'), &["auto-cap"], Takes::Value("CAP")),
    refused(Some('M'), &["min-free"], Takes::Value("KIB")),
    refused(Some('X'), &["max-free"], Takes::Value("KIB")),
    refused(Some('F'), &["fid"], Takes::Nothing),
    refused(None, &["lustre-dir"], Takes::Value("DIRECTORY")),
    Opt {
        short: Some('d'),
        names: &["directory", "delete", "destroy"],
        takes: Takes::Nothing,
        help: "With -m: the directory and the files in it alone; directories in it stay where they are",
    },
    refused(Some('I'), &["component-id", "comp-id"], Takes::Value("ID")),
    refused(None, &["component-add", "comp-add"], Takes::Nothing),
    refused(None, &["component-del", "comp-del"], Takes::Nothing),
    refused(None, &["component-set", "comp-set"], Takes::Nothing),
    refused(None, &["component-flags", "comp-flags"], Takes::Value("FLAGS")),
    HELP,
];

/// How often `--stats` prints progress.
const STATS_SECONDS: u64 = 5;
/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// The command line.
#[derive(Debug)]
struct Migrate {
    layout: RequestedLayout,
    /// The default layout of the file's directory.
    restripe: bool,
    block: bool,
    non_block: bool,
    direct: bool,
    bandwidth: u64,
    stats: Option<Duration>,
    verbose: bool,
    null: bool,
    files_from: Option<PathBuf>,
    paths: Vec<PathBuf>,
}

pub(super) fn run(words: &Words) -> Result<(), Fault> {
    let parts = GRAMMAR.read(&words.words)?;
    if wants_help(&parts) {
        text_out(&GRAMMAR.help());
        return Ok(());
    }
    if migrate_mdt::is_wanted(&parts) {
        return migrate_mdt::run(parts);
    }
    let only = parts.iter().find_map(|part| match part {
        Part::Option { name: "mdt-hash" | "clear-fixed" | "directory", spelled, .. } => {
            Some(spelled)
        }
        _ => None,
    });
    if let Some(spelled) = only {
        return Err(usage(&format!("option '{spelled}' needs -m")));
    }
    let command = Migrate::read(parts)?;
    let fixed = command.layout()?;
    for_each(&command.names()?, |path| {
        let request = command.layout_for(path, fixed.as_ref())?;
        pools::check(path, &request, GRAMMAR.command)?;
        command.one(path, &request)
    })
}

fn usage(text: &str) -> Fault {
    Fault::usage(format!("lfs migrate: {text}"))
}

impl Migrate {
    fn read(parts: Vec<Part>) -> Result<Self, Fault> {
        let mut command = Self {
            layout: RequestedLayout::new(GRAMMAR.command),
            restripe: false,
            block: false,
            non_block: false,
            direct: true,
            bandwidth: 0,
            stats: None,
            verbose: false,
            null: false,
            files_from: None,
            paths: Vec::new(),
        };
        let (layout, paths) = RequestedLayout::read(GRAMMAR.command, parts, |name, value| {
            command.option(name, value)
        })?;
        let command = Self { layout, paths, ..command };
        command.check()?;
        Ok(command)
    }

    fn option(&mut self, name: &str, value: String) -> Result<(), Fault> {
        match name {
            "block" => self.block = true,
            "non-block" => self.non_block = true,
            "non-direct" => self.direct = false,
            "verbose" => self.verbose = true,
            "null" => self.null = true,
            "files-from" => self.files_from = Some(OsString::from(value).into()),
            "stats" => self.stats = Some(Duration::from_secs(STATS_SECONDS)),
            "stats-interval" => {
                let seconds = value.parse::<u64>().ok().filter(|seconds| *seconds > 0);
                let wrong = || usage(&format!("invalid stats interval {value}"));
                self.stats = Some(Duration::from_secs(seconds.ok_or_else(wrong)?));
            }
            "bandwidth-limit" => {
                let wrong = || usage(&format!("bad value for bandwidth '{value}'"));
                self.bandwidth = parse_with_unit(&value, MIB).ok_or_else(wrong)?.0;
            }
            "restripe" => self.restripe = true,
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        if self.block && self.non_block {
            return Err(usage("options --non-block and --block are mutually exclusive"));
        }
        if self.layout.source.is_some() && self.layout.request.is_given() {
            return Err(usage(layout_source::NOT_WITH_OPTIONS));
        }
        if self.restripe && self.layout.is_given() {
            return Err(usage("can't specify --restripe with another layout"));
        }
        if self.paths.is_empty() && !self.null && self.files_from.is_none() {
            return Err(GRAMMAR
                .fault("at least one of FILE/--null/--files-from=LIST_FILE must be specified"));
        }
        Ok(())
    }

    /// The layout that all files shall have, if it is one for all.
    fn layout(&self) -> Result<Option<LovEa>, Fault> {
        if !self.layout.is_given() {
            return Ok(None);
        }
        let request = self.layout.layout()?;
        if let LovEa::Composite(all) = &request
            && let Some(what) = fault_of(&all.components)
        {
            let text = format!("lfs migrate: Invalid layout: {what}: {}", Errno::EINVAL);
            return Err(Fault { code: LIBRARY_CODE, text });
        }
        Ok(Some(request))
    }

    fn layout_for(&self, path: &Path, fixed: Option<&LovEa>) -> Result<LovEa, Fault> {
        match fixed {
            Some(request) => Ok(request.clone()),
            None if self.restripe => copied(folder_of(path), GRAMMAR.command),
            None => copied(path, GRAMMAR.command),
        }
    }

    /// The files: those of the command line, or of the list.
    fn names(&self) -> Result<Vec<PathBuf>, Fault> {
        let list = match &self.files_from {
            None if !self.null => return Ok(self.paths.clone()),
            Some(path) if path.as_os_str() != "-" => std::fs::read(path),
            _ => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
            }
        };
        let list = list.map_err(|error| {
            let errno = errno_of(&error);
            let name = shown_path(self.files_from.as_deref().unwrap_or(Path::new("-")));
            Fault::new(
                errno,
                format!("lfs migrate: failed to open filelist file '{name}': {errno}"),
            )
        })?;
        Ok(listed(&list, self.null))
    }

    fn one(&self, path: &Path, request: &LovEa) -> Result<(), Fault> {
        let failed = |errno: Errno| {
            let why = match errno {
                Errno::EOPNOTSUPP | Errno::ENOTTY => {
                    "this mount is none of Sheen's, which alone moves data in its own process"
                        .to_owned()
                }
                Errno::EBUSY if self.non_block => {
                    format!("the file was changed meanwhile: {errno}")
                }
                errno => errno.to_string(),
            };
            let name = shown_path(path);
            Fault::new(errno, format!("lfs migrate: cannot migrate '{name}': {why} ({})", errno.0))
        };
        let found = std::fs::metadata(path).map_err(|error| {
            let errno = errno_of(&error);
            let name = shown_path(path);
            Fault::new(errno, format!("lfs migrate: cannot open '{name}': {errno} ({})", errno.0))
        })?;
        if found.is_dir() {
            return Err(failed(Errno::EISDIR));
        }
        let order = format!(
            "block={} bandwidth={} direct={}\n",
            u8::from(!self.non_block),
            self.bandwidth,
            u8::from(self.direct)
        );
        let order = [order.as_bytes(), &request.encode()].concat();
        let moved = match self.stats {
            None => attributes::order_migration(path, &order),
            Some(interval) => with_stats(path, &order, interval),
        };
        moved.map_err(failed)?;
        if self.verbose {
            line_out([path.as_os_str().as_bytes(), b": migrated"].concat());
        }
        Ok(())
    }
}

/// The names in a list; empty ones and comments are none.
fn listed(list: &[u8], null: bool) -> Vec<PathBuf> {
    let end = if null { 0 } else { b'\n' };
    let names =
        list.split(|byte| *byte == end).map(|name| name.strip_suffix(b"\n").unwrap_or(name));
    let names = names.filter(|name| !name.is_empty() && !name.starts_with(b"#"));
    names.map(|name| OsString::from_vec(name.to_vec()).into()).collect()
}

/// Orders the migration and prints its progress.
#[expect(clippy::disallowed_methods, reason = "a tool that shows its user the time")]
fn with_stats(path: &Path, order: &[u8], interval: Duration) -> Result<(), Errno> {
    let begin = Instant::now();
    let (done, changed) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut done = done.lock();
            while !*done {
                let waited = changed.wait_for(&mut done, interval);
                if waited.timed_out()
                    && let Ok((moved, total)) = attributes::migration(path)
                {
                    line(progress(begin.elapsed().as_secs_f64(), moved, total));
                }
            }
        });
        let moved = attributes::order_migration(path, order);
        *done.lock() = true;
        changed.notify_all();
        moved
    })
}

/// A line of progress, as Lustre's tool has it.
fn progress(seconds: f64, moved: u64, total: u64) -> String {
    let rate = moved as f64 / seconds.max(0.001) / MIB as f64;
    let percent = (moved * 100).checked_div(total).unwrap_or(100);
    format!(
        "- {{ seconds: {seconds:.0}, rmbps: {rate:.2}, wmbps: {rate:.2}, copied: {}, size: {}, \
         pct: {percent}% }}",
        moved / MIB,
        total.div_ceil(MIB)
    )
}

/// Options of `swap_layouts`.
#[derive(Args)]
pub(super) struct Swap {
    /// A file
    #[arg(required = true)]
    first: PathBuf,
    /// Another file of the same file system
    #[arg(required = true)]
    second: PathBuf,
}

/// Exchanges the layouts, and so the data, of two files.
pub(super) fn swap(options: &Swap) -> Result<(), Fault> {
    for path in [&options.first, &options.second] {
        // Opening a pipe without a reader would wait for ever.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        opened.map(drop).map_err(|error| {
            let errno = errno(error);
            let text =
                format!("cannot open '{}' for write: {errno} ({})", shown_path(path), errno.0);
            Fault::new(errno, format!("lfs swap_layouts: error: {text}"))
        })?;
    }
    let failed = |errno: Errno| {
        let (first, second) = (shown_path(&options.first), shown_path(&options.second));
        let text = format!("cannot swap layouts between '{first}' and '{second}'");
        Fault::new(errno, format!("lfs swap_layouts: error: {text}: {errno} ({})", errno.0))
    };
    let fids = attributes::fid(&options.first)
        .and_then(|first| attributes::fid(&options.second).map(|second| (first, second)));
    let (first, second) = fids.map_err(|errno| match errno {
        Errno::ENODATA => failed(Errno::ENOTTY),
        errno => failed(errno),
    })?;
    if first == second {
        return Ok(());
    }
    attributes::order_swap(&options.first, &second).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{GRAMMAR, Migrate, Swap, listed, progress, swap};
    use crate::output::Fault;

    fn read(line: &str) -> Result<Migrate, Fault> {
        let words: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
        Migrate::read(GRAMMAR.read(&words)?)
    }

    #[test]
    fn options_are_those_of_lustre() {
        let command = read("-n -D -W 10 --stats -v -c 2 a b").unwrap();
        assert!(command.non_block && !command.direct && command.verbose);
        assert_eq!((command.bandwidth, command.stats), (10 << 20, Some(Duration::from_secs(5))));
        assert_eq!(command.paths, [PathBuf::from("a"), PathBuf::from("b")]);
        assert!(command.layout.request.is_given() && !command.restripe);
        assert_eq!(read("-W 512k --stats-interval 2 f").unwrap().bandwidth, 512 << 10);
        let command = read("--restripe f").unwrap();
        assert!(command.restripe && !command.layout.is_given());
        assert!(
            !read("f").unwrap().layout.is_given() && read("--copy a f").unwrap().layout.is_given()
        );
    }

    #[test]
    fn what_disagrees_is_refused() {
        for (line, code, text) in [
            ("-n -b f", 4, "options --non-block and --block are mutually exclusive"),
            ("--copy a --yaml b f", 4, "can't specify --yaml and --copy together"),
            ("--copy a --restripe f", 4, "can't specify --restripe with another layout"),
            ("--restripe -c 2 f", 4, "can't specify --restripe with another layout"),
            ("-W fast f", 4, "bad value for bandwidth 'fast'"),
            ("--stats-interval 0 f", 4, "invalid stats interval 0"),
            ("-A f", 95, "option '-A' is not supported by Sheen yet"),
            ("-L bogus f", 22, "layout 'bogus' is unknown, supported layouts are: 'mdt', 'raid0'"),
        ] {
            let fault = read(line).unwrap_err();
            assert_eq!((fault.code, fault.text), (code, format!("lfs migrate: {text}")), "{line}");
        }
        assert_eq!(read("-c 2").unwrap_err().code, 4);
        assert_eq!(read("--copy a -c 1 f").unwrap_err().code, 4);
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "what would wait for ever gets a thread of its own"
    )]
    fn a_pipe_without_a_reader_is_refused_at_once() {
        let pipe = std::env::temp_dir().join(format!("sheen-swap-{}", std::process::id()));
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let both = Swap { first: pipe.clone(), second: pipe.clone() };
        std::thread::spawn(move || sender.send(swap(&both)));
        let answered = receiver.recv_timeout(Duration::from_secs(10));
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(answered.unwrap().unwrap_err().code, 6);
    }

    #[test]
    fn lists_have_names_in_lines_or_behind_nuls() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(listed(b"a\n# no\n\nb c\n", false), paths(&["a", "b c"]));
        assert_eq!(listed(b"a\nb\0c\0", true), paths(&["a\nb", "c"]));
    }

    #[test]
    fn progress_is_a_line() {
        let expected =
            "- { seconds: 5, rmbps: 8.00, wmbps: 8.00, copied: 40, size: 100, pct: 40% }";
        assert_eq!(progress(5.0, 40 << 20, 100 << 20), expected);
        assert!(progress(0.0, 0, 0).ends_with("pct: 100% }"));
    }
}
