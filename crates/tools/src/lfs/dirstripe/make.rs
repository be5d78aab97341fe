//! `lfs mkdir` and `setdirstripe`: directories as they are wished, and the defaults of those to come.

use std::fs::{DirBuilder, File};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_types::{Errno, MdtIndex, Name};
use sheen_wire::lmv::LmvHash;

use super::hash_type;
use crate::lfs::attributes;
use crate::lfs::layout_source::folder_of;
use crate::lfs::mdt_of::MdtsOf;
use crate::lfs::migrate_mdt::OF_ROOT;
use crate::lfs::permission::{Refused, reason};
use crate::output::{Fault, errno_of, shown_path, worst as outcome};

/// Options of `mkdir` and `setdirstripe` that are not here.
pub(in crate::lfs) const REFUSED: &[&str] = &["--flags", "--foreign", "-x", "--xattr"];

/// Most stripes of a directory (`LMV_MAX_STRIPE_COUNT`), and most on each MDT (`LMV_MAX_STRIPES_PER_MDT`).
const COUNT_MAX: i64 = 2000;
const EACH_MAX: i64 = 5;
/// Most levels that inherit a default (`LMV_INHERIT_MAX`), and what says all or none.
const INHERIT_MAX: i64 = 250;
const INHERIT_ALL: u8 = 0;
const INHERIT_NONE: u8 = 255;
const INHERIT_RR_ALL: u8 = 255;
/// Levels that inherit a default of several stripes unless more is said, and one of overstriped directories.
const INHERIT_STRIPED: u8 = 3;
const INHERIT_OVERSTRIPED: u8 = 2;

/// The command that splits and merges directories that exist.
const SETDIRSTRIPE: &str = "setdirstripe";

/// Options of `mkdir` and `setdirstripe`.
#[derive(Args)]
pub(in crate::lfs) struct Make {
    /// Number of MDTs to stripe the directory over; as many as exist are used
    #[arg(
        short = 'c',
        short_alias = 'T',
        long = "mdt-count",
        alias = "count",
        value_name = "COUNT"
    )]
    #[arg(allow_hyphen_values = true)]
    count: Option<String>,
    /// Number of stripes, several on an MDT if need be; -N for N on each MDT
    #[arg(short = 'C', long = "mdt-overcount", value_name = "COUNT", conflicts_with = "count")]
    #[arg(allow_hyphen_values = true)]
    overcount: Option<String>,
    /// Remove the default layout of new directories
    #[arg(short = 'd', long, conflicts_with_all = ["count", "overcount", "index"])]
    delete: bool,
    /// Set the default layout of new directories, and create none
    #[arg(short = 'D', long, alias = "default_stripe")]
    default: bool,
    /// Hash type by which names are spread over MDTs
    #[arg(
        short = 'H',
        short_alias = 't',
        long = "mdt-hash",
        alias = "hash-type",
        value_name = "HASH"
    )]
    hash: Option<String>,
    /// Index of the first MDT, of each one, or -1 for any
    #[arg(short = 'i', short_alias = 'm', long = "mdt-index", aliases = ["mdt", "index"])]
    #[arg(value_name = "INDEX,...", allow_hyphen_values = true)]
    index: Option<String>,
    /// Permissions of the directory, octal
    #[arg(short = 'o', long, value_name = "MODE")]
    mode: Option<String>,
    /// How many levels deep the default layout is inherited; -1 for all
    #[arg(short = 'X', long = "max-inherit", value_name = "LEVELS", allow_hyphen_values = true)]
    inherit: Option<String>,
    /// How many levels deep new directories are spread round-robin over MDTs; -1 for all
    #[arg(long = "max-inherit-rr", value_name = "LEVELS", allow_hyphen_values = true)]
    inherit_rr: Option<String>,
    /// Directories
    #[arg(required = true, value_name = "DIRECTORY")]
    paths: Vec<PathBuf>,
}

/// What the options ask for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// `None` where nothing was said of MDTs.
    wish: Option<DirectoryWish>,
    mode: Option<u32>,
}

/// Makes directories, or sets their defaults.
pub(in crate::lfs) fn make(command: &str, options: &Make) -> Result<(), Fault> {
    let wanted = options.read(command)?;
    let mut worst = None;
    for path in &options.paths {
        let done = match options.is_of_defaults() {
            true => set_default(path, wanted.wish.clone().unwrap_or_default()),
            false => make_one(path, &wanted, command == SETDIRSTRIPE),
        };
        let Err(errno) = done else { continue };
        let shown = shown_path(path);
        let what = match options.is_of_defaults() {
            true => format!("cannot set default stripe on dir '{shown}': {errno}"),
            false => format!("cannot create dir '{shown}': {errno}"),
        };
        let text = match errno {
            Errno::ENOTTY => format!("'{shown}' is not on a Lustre filesystem: {errno}"),
            _ => match options.reason(command, path, &wanted, errno) {
                Some(why) => format!("{what}: {why}"),
                None => what,
            },
        };
        eprintln!("lfs {command}: {text}");
        worst = worst.or(Some(if errno == Errno::ENOTTY { Errno::ENODEV } else { errno }));
    }
    outcome(worst)
}

impl Make {
    fn is_of_defaults(&self) -> bool {
        self.default || self.delete
    }

    /// Why it has failed, where the errno alone does not say it.
    fn reason(
        &self,
        command: &str,
        path: &Path,
        wanted: &Wanted,
        errno: Errno,
    ) -> Option<&'static str> {
        if matches!(errno, Errno::EINVAL | Errno::EEXIST) && is_mount_point(path) {
            return Some(OF_ROOT);
        }
        let wish = wanted.wish.as_ref()?;
        let is_striped = !wish.mdts.is_empty() || wish.stripes != WishedStripes::Unsaid;
        match errno {
            Errno::EPERM if self.is_of_defaults() => Some(reason(Refused::SetDefault)),
            Errno::EPERM => Some(reason(Refused::Make { is_striped })),
            Errno::EOPNOTSUPP => {
                Some("refused, or the mount's process is of an earlier version (mount again)")
            }
            Errno::EEXIST if path.is_dir() => existing(command == SETDIRSTRIPE, path, wish),
            _ => None,
        }
    }

    /// Reads the values, and refuses those that Lustre refuses.
    fn read(&self, command: &str) -> Result<Wanted, Fault> {
        let usage = |text: String| Fault::usage(format!("lfs {command}: {text}"));
        let mode = match self.mode.as_deref().map(|text| (text, u32::from_str_radix(text, 8))) {
            None => None,
            Some((_, Ok(mode))) if mode <= 0o7777 => Some(mode),
            Some((text, _)) => return Err(usage(format!("invalid MODE '{text}'"))),
        };
        if self.delete {
            return Ok(Wanted { wish: Some(DirectoryWish::default()), mode });
        }
        let count = self.count(&usage)?;
        let indexes = self.indexes(&usage)?;
        let hash = match &self.hash {
            None => LmvHash::UNKNOWN,
            Some(text) => hash_type(text)
                .ok_or_else(|| usage(format!("invalid directory hash type '{text}'")))?,
        };
        let (inherit, inherit_rr) = self.levels(&usage)?;
        if self.inherit_rr.is_some() && !indexes.is_empty() {
            let first = indexes[0].0;
            return Err(usage(format!("max-inherit-rr needs mdt-index=-1, not {first}")));
        }
        if self.default && indexes.len() > 1 && count.is_none() {
            return Err(usage(
                "'-D -i x,y,z' would stripe every new directory over all of these MDTs: add -c with their number to do that"
                    .to_owned(),
            ));
        }
        if indexes.len() > 1
            && count.is_some_and(|count| count > 0 && count != indexes.len() as i64)
        {
            let (count, mdts) = (count.unwrap_or_default(), indexes.len());
            return Err(usage(format!(
                "stripe count {count} doesn't match the number of MDTs: {mdts}"
            )));
        }
        let is_said = count.is_some() || self.index.is_some() || self.hash.is_some();
        if !is_said && !self.default {
            return Ok(Wanted { wish: None, mode });
        }
        let count = match (count, indexes.len()) {
            (_, several @ 2..) => several as i64,
            // Of any MDT: in one piece.
            (None | Some(0), 0) if self.default => 1,
            (count, _) => count.unwrap_or(0),
        };
        let (mut hash, mut usual) =
            (hash, if (0..=1).contains(&count) { INHERIT_ALL } else { INHERIT_STRIPED });
        if self.overcount.is_some() {
            (hash, usual) = (LmvHash(hash.0 | LmvHash::OVERSTRIPED), INHERIT_OVERSTRIPED);
        }
        let wish = DirectoryWish {
            stripes: stripes(count),
            first: indexes.first().copied(),
            hash,
            max_inherit: inherit.unwrap_or(usual),
            max_inherit_rr: inherit_rr.unwrap_or(0),
            mdts: if indexes.len() > 1 { indexes.into() } else { Box::default() },
            ..DirectoryWish::default()
        };
        Ok(Wanted { wish: Some(wish), mode })
    }

    fn count(&self, usage: &dyn Fn(String) -> Fault) -> Result<Option<i64>, Fault> {
        let (text, least) = match (&self.count, &self.overcount) {
            (_, Some(text)) => (text, -EACH_MAX),
            (Some(text), None) => (text, -1),
            (None, None) => return Ok(None),
        };
        let count = text.parse().ok().filter(|count| (least..=COUNT_MAX).contains(count));
        count.map(Some).ok_or_else(|| usage(format!("invalid stripe count '{text}'")))
    }

    /// The MDTs that are asked for; none for any.
    fn indexes(&self, usage: &dyn Fn(String) -> Fault) -> Result<Vec<MdtIndex>, Fault> {
        let Some(text) = self.index.as_deref().filter(|text| *text != "-1") else {
            return Ok(Vec::new());
        };
        let indexes: Result<Vec<u16>, _> = text.split(',').map(str::parse).collect();
        let indexes = indexes.map_err(|_| usage(format!("invalid MDT target(s) '{text}'")))?;
        Ok(indexes.into_iter().map(MdtIndex).collect())
    }

    /// How deep a default is inherited, and how deep directories are spread.
    fn levels(&self, usage: &dyn Fn(String) -> Fault) -> Result<(Option<u8>, Option<u8>), Fault> {
        let read = |what: &str, text: &Option<String>, none: u8, all: u8| {
            let Some(text) = text else { return Ok(None) };
            match text.parse::<i64>() {
                Ok(0) => Ok(Some(none)),
                Ok(-1) => Ok(Some(all)),
                Ok(levels @ 1..=INHERIT_MAX) => Ok(Some(levels as u8)),
                Ok(levels) if levels > INHERIT_MAX => {
                    Err(usage(format!("{what} {levels} exceeds maximum {INHERIT_MAX}")))
                }
                _ => Err(usage(format!("invalid {what} '{text}'"))),
            }
        };
        if self.inherit_rr.is_some() && !self.default {
            return Err(usage("'--max-inherit-rr' must be specified with '-D'".to_owned()));
        }
        let inherit = read("max-inherit", &self.inherit, INHERIT_NONE, INHERIT_ALL)?;
        Ok((inherit, read("max-inherit-rr", &self.inherit_rr, 0, INHERIT_RR_ALL)?))
    }
}

/// What is to be done about a directory that is there.
fn existing(restripes: bool, path: &Path, wish: &DirectoryWish) -> Option<&'static str> {
    if mdts(path).ok()?.len() < 2 && is_plain_on_one(wish) {
        return None;
    }
    Some(match restripes {
        _ if wish.first.is_some() || !wish.mdts.is_empty() => {
            "lfs migrate -m moves a directory that exists to other MDTs"
        }
        true => {
            "mdt.*.enable_dir_restripe is 0: 'lctl set_param mdt.*.enable_dir_restripe=1' on the MDSs lets directories \
             that exist be split and merged"
        }
        false => "lfs setdirstripe -c splits or merges a directory that exists",
    })
}

/// Whether a path is that of the directory that is mounted.
fn is_mount_point(path: &Path) -> bool {
    let point = MdtsOf::at(path).map(|mdts| mdts.mount_point());
    path.canonicalize().is_ok_and(|whole| point == Ok(whole))
}

/// A count as it is checked.
fn stripes(count: i64) -> WishedStripes {
    let Some(stripes) = NonZeroU32::new(u32::try_from(count.unsigned_abs()).unwrap_or(0)) else {
        return WishedStripes::Unsaid;
    };
    if count < 0 { WishedStripes::OnEachMdt(stripes) } else { WishedStripes::Count(stripes) }
}

/// Whether a directory in one piece, on the MDT of its name, is what is wished where there is one MDT.
fn is_plain_on_one(wish: &DirectoryWish) -> bool {
    wish.hash.0 & LmvHash::OVERSTRIPED == 0 || wish.stripes == WishedStripes::Unsaid
}

fn make_one(path: &Path, wanted: &Wanted, restripes: bool) -> Result<(), Errno> {
    if path.is_dir() && is_mount_point(path) {
        return Err(if restripes { Errno::EINVAL } else { Errno::EEXIST });
    }
    // `.` and `..` have names of their own.
    let whole = match path.file_name() {
        None => path.canonicalize().map_err(|error| errno_of(&error))?,
        Some(_) => path.to_owned(),
    };
    let path = &*whole;
    let known = mdts(folder_of(path))?;
    let wish = match &wanted.wish {
        Some(wish) => {
            let named = wish.mdts.iter().chain(&wish.first);
            if named.into_iter().any(|mdt| !known.contains(&mdt.0)) {
                return Err(Errno::ENODEV);
            }
            Some(wish).filter(|wish| known.len() > 1 || !is_plain_on_one(wish))
        }
        None => None,
    };
    match wish {
        Some(wish) => make_wished(path, wish, (wanted.mode.unwrap_or(0o777), restripes))?,
        None => {
            let made = DirBuilder::new().mode(wanted.mode.unwrap_or(0o777)).create(path);
            made.map_err(|error| errno_of(&error))?;
        }
    }
    // A mode that is named is meant, whatever the umask.
    let Some(mode) = wanted.mode else { return Ok(()) };
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).map_err(|error| errno_of(&error))
}

/// Makes a directory on MDTs that are wished; with `restripes` one that exists is split or merged.
fn make_wished(
    path: &Path,
    wish: &DirectoryWish,
    (mode, restripes): (u32, bool),
) -> Result<(), Errno> {
    let name = path.file_name().ok_or(Errno::EEXIST)?;
    let name = Name::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let parent = File::open(folder_of(path)).map_err(|error| errno_of(&error))?;
    // The kernel does not take it off, as it takes this for no mkdir.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let how = (mode & !umask.bits(), restripes);
    let made = sheen_fuse::make_directory(&parent, &name, how, wish.clone());
    made.map_err(|errno| match errno {
        // It is a mount of ours, by a process that does not know the call.
        Errno::ENOTTY => Errno::EOPNOTSUPP,
        errno => errno,
    })
}

fn set_default(path: &Path, default: DirectoryWish) -> Result<(), Errno> {
    let known = mdts(path)?;
    if default.mdts.iter().chain(&default.first).any(|mdt| !known.contains(&mdt.0)) {
        return Err(Errno::ENODEV);
    }
    attributes::set_default_stripes(path, &default.to_ea())
}

/// The MDTs of the file system at `path`.
fn mdts(path: &Path) -> Result<Vec<u16>, Errno> {
    match MdtsOf::at(path) {
        Err(Errno::ENODEV) => Err(Errno::ENOTTY),
        mdts => Ok(mdts?.all().iter().map(|mdt| mdt.index).collect()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Making {
        #[command(flatten)]
        make: Make,
    }

    fn read(line: &str) -> Result<Wanted, Fault> {
        let words = std::iter::once("lfs").chain(line.split_whitespace()).chain(["d"]);
        Making::parse_from(words).make.read("mkdir")
    }

    /// The bytes of a wish without its end, as captures have them.
    fn bytes(line: &str) -> String {
        let wish = read(line).ok().and_then(|wanted| wanted.wish).expect("a wish");
        let bytes = wish.to_ea().encode();
        bytes[..24].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the captures e1, e2, e3, d2 and d5 have.
    #[test]
    fn a_wish_is_sent_as_lustre_sends_it() {
        for (line, wish) in [
            ("-i 1", "d00cd30c0000000001000000000000000000000000000000"),
            ("-c 2", "d00cd30c02000000ffffffff000000000000000003000000"),
            ("-c -1 -H fnv_1a_64", "d00cd30cffffffffffffffff020000000000000003000000"),
            ("-c 2 -H crush", "d00cd30c02000000ffffffff030000000000000003000000"),
            ("-C 4", "d00cd30c04000000ffffffff000000010000000002000000"),
            (
                "-D -i -1 -c 1 -X -1 --max-inherit-rr 3",
                "d00cd30c01000000ffffffff000000000000000000030000",
            ),
            ("-D -c 2 -i -1", "d00cd30c02000000ffffffff000000000000000003000000"),
            ("-d", "d00cd30c00000000ffffffff000000000000000000000000"),
        ] {
            assert_eq!(bytes(line), wish, "{line}");
        }
        let listed = read("-i 1,0").expect("MDTs").wish.expect("a wish");
        assert_eq!(&listed.to_ea().encode()[..8], b"\xd0\x0c\xd4\x0c\x02\0\0\0");
    }

    #[test]
    fn what_lustre_refuses_is_refused() {
        for (line, what) in [
            ("-c x", "invalid stripe count 'x'"),
            ("-c 2001", "invalid stripe count '2001'"),
            ("-c -2", "invalid stripe count '-2'"),
            ("-C -6", "invalid stripe count '-6'"),
            ("-H bogus", "invalid directory hash type 'bogus'"),
            ("-H none", "invalid directory hash type 'none'"),
            ("-o 9", "invalid MODE '9'"),
            ("-i x", "invalid MDT target(s) 'x'"),
            ("-D -X 251", "max-inherit 251 exceeds maximum 250"),
            ("-D -X -2", "invalid max-inherit '-2'"),
            ("--max-inherit-rr 2", "'--max-inherit-rr' must be specified with '-D'"),
            ("-D -i 1 -c 1 -X 3 --max-inherit-rr 2", "max-inherit-rr needs mdt-index=-1, not 1"),
            ("-c 3 -i 0,1", "stripe count 3 doesn't match the number of MDTs: 2"),
        ] {
            let fault = read(line).err().unwrap_or_else(|| panic!("{line}"));
            assert_eq!((fault.code, fault.text), (4, format!("lfs mkdir: {what}")));
        }
        for line in ["-i 0", "-i -1", "-c 1", "-c 4 -H crush", "-H 4", "-i 0,1", "-C -5"] {
            assert!(read(line).is_ok_and(|wanted| wanted.wish.is_some()), "{line}");
        }
        for (line, mode) in [("", None), ("-o 1777", Some(0o1777))] {
            assert_eq!(read(line).ok(), Some(Wanted { wish: None, mode }), "{line}");
        }
    }

    #[test]
    fn where_there_is_one_mdt_only_several_stripes_on_it_are_wished_of_it() {
        let is_plain =
            |line| is_plain_on_one(&read(line).ok().and_then(|it| it.wish).expect("one"));
        assert!(["-i 0", "-c 4", "-c -1", "-C 0"].into_iter().all(is_plain));
        assert!(!is_plain("-C 4") && !is_plain("-C -2"));
    }
}
