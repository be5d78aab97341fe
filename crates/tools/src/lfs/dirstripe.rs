//! `lfs getdirstripe`, `mkdir` and `setdirstripe`: each directory lies on one MDT, whole.
//!
//! What would lie on several MDTs, or say where new directories are to be made, is refused by name.

use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use sheen_types::{Errno, Fid, MdtIndex, Name};

use super::attributes;
use super::layout_source::folder_of;
use super::mdt_of::MdtsOf;
use crate::output::{Fault, errno_of, line_out, shown_path, text_out, worst as outcome};
use sheen_control::api::Target;

/// Options of `mkdir` and `setdirstripe` that only a file system with more MDTs could take.
pub(super) const REFUSED: &[&str] = &[
    "-C",
    "--mdt-overcount",
    "-d",
    "--delete",
    "-D",
    "--default",
    "--default_stripe",
    "--flags",
    "--foreign",
    "-x",
    "--xattr",
    "-X",
    "--max-inherit",
    "--max-inherit-rr",
];

/// Most MDTs that Lustre stripes a directory over.
const COUNT_MAX: i64 = 2000;
/// How Lustre spreads names over MDTs.
const HASHES: [&str; 4] = ["all_char", "fnv_1a_64", "crush", "crush2"];
/// `LMV_MAGIC_V1` and `LMV_USER_MAGIC`.
const MAGIC: u32 = 0x0cd2_0cd0;
const MAGIC_DEFAULT: u32 = 0x0cd3_0cd0;

/// Options of `mkdir` and `setdirstripe`.
#[derive(Args)]
pub(super) struct Make {
    /// Number of MDTs to stripe the directory over; as many as exist are used
    #[arg(short = 'c', short_alias = 'T', long = "mdt-count", value_name = "COUNT")]
    #[arg(allow_hyphen_values = true)]
    count: Option<String>,
    /// Hash type by which names are spread over MDTs
    #[arg(
        short = 'H',
        short_alias = 't',
        long = "mdt-hash",
        alias = "hash-type",
        value_name = "HASH"
    )]
    hash: Option<String>,
    /// Index of the MDT, or -1 for any
    #[arg(short = 'i', short_alias = 'm', long = "mdt-index", aliases = ["mdt", "index"])]
    #[arg(value_name = "INDEX", allow_hyphen_values = true)]
    index: Option<String>,
    /// Permissions of the directory, octal
    #[arg(short = 'o', long, value_name = "MODE")]
    mode: Option<String>,
    /// Directories
    #[arg(required = true, value_name = "DIRECTORY")]
    paths: Vec<PathBuf>,
}

/// Makes directories.
pub(super) fn make(command: &str, options: &Make) -> Result<(), Fault> {
    let mode = checked(command, options)?;
    let indexes = indexes(command, options.index.as_deref())?;
    // "As many as exist" is one of one.
    let count = options.count.as_deref().map_or(Ok(1), str::parse::<u32>).unwrap_or(1);
    let mut worst = None;
    for path in &options.paths {
        if let Err(errno) = make_one(path, (&indexes, count), mode) {
            let text = match errno {
                Errno::ENOTTY => format!("'{}' is not on a Lustre filesystem", shown_path(path)),
                Errno::EPERM if !indexes.is_empty() => format!(
                    "cannot create dir '{}': MDTs are for root and the group mdt.*.enable_remote_dir_gid to choose, where \
                     mdt.*.enable_remote_dir is 1",
                    shown_path(path)
                ),
                _ => format!("cannot create dir '{}'", shown_path(path)),
            };
            eprintln!("lfs {command}: {text}: {errno}");
            worst = worst.or(Some(if errno == Errno::ENOTTY { Errno::ENODEV } else { errno }));
        }
    }
    outcome(worst)
}

/// Refuses values that Lustre refuses; answers the mode.
fn checked(command: &str, options: &Make) -> Result<Option<u32>, Fault> {
    let wrong = |what: &str, text: &str| {
        Err(Fault::usage(format!("lfs {command}: invalid {what} '{text}'")))
    };
    if let Some(text) = &options.count
        && !text.parse::<i64>().is_ok_and(|count| (0..=COUNT_MAX).contains(&count))
    {
        return wrong("stripe count", text);
    }
    if let Some(hash) = &options.hash
        && !HASHES.contains(&hash.as_str())
    {
        return wrong("directory hash type", hash);
    }
    let Some(text) = &options.mode else { return Ok(None) };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(Some(mode)),
        _ => wrong("MODE", text),
    }
}

/// The MDTs that are asked for; none for any.
fn indexes(command: &str, text: Option<&str>) -> Result<Vec<u16>, Fault> {
    let Some(text) = text.filter(|text| *text != "-1") else { return Ok(Vec::new()) };
    let indexes: Result<Vec<u16>, _> = text.split(',').map(str::parse).collect();
    indexes.map_err(|_| Fault::usage(format!("lfs {command}: invalid MDT target(s) '{text}'")))
}

fn make_one(path: &Path, (indexes, count): (&[u16], u32), mode: Option<u32>) -> Result<(), Errno> {
    let known = match mdts(folder_of(path)) {
        Err(Errno::ENODEV) => return Err(Errno::ENOTTY),
        known => known?,
    };
    if indexes.iter().any(|index| !known.contains(index)) {
        return Err(Errno::ENODEV);
    }
    // Directories in stripes are not there yet.
    if known.len() > 1 && (count != 1 || indexes.len() > 1) {
        return Err(Errno::EOPNOTSUPP);
    }
    match indexes {
        [mdt] if known.len() > 1 => make_on(path, MdtIndex(*mdt), mode.unwrap_or(0o777))?,
        _ => {
            let made = DirBuilder::new().mode(mode.unwrap_or(0o777)).create(path);
            made.map_err(|error| errno_of(&error))?;
        }
    }
    // A mode that is named is meant, whatever the umask.
    let Some(mode) = mode else { return Ok(()) };
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).map_err(|error| errno_of(&error))
}

/// Makes a directory on an MDT.
fn make_on(path: &Path, mdt: MdtIndex, mode: u32) -> Result<(), Errno> {
    let name = path.file_name().ok_or(Errno::EEXIST)?;
    let name = Name::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let parent = File::open(folder_of(path)).map_err(|error| errno_of(&error))?;
    // The kernel does not take it off, as it takes this for no mkdir.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    sheen_fuse::make_directory(&parent, &name, mode & !umask.bits(), mdt)
}

/// The MDTs of the file system at `path`.
fn mdts(path: &Path) -> Result<Vec<u16>, Errno> {
    Ok(MdtsOf::at(path)?.all().iter().map(|mdt| mdt.index).collect())
}

/// Options of `getdirstripe`.
#[derive(Args)]
pub(super) struct Get {
    /// Print the number of MDTs
    #[arg(short = 'c', short_alias = 'T', long = "mdt-count")]
    count: bool,
    /// Print the default layout of new directories
    #[arg(short = 'D', long)]
    default: bool,
    /// Print the FID
    #[arg(short = 'F', long)]
    fid: bool,
    /// Print the hash type
    #[arg(short = 'H', short_alias = 't', long = "mdt-hash")]
    hash: bool,
    /// Print indexes in hexadecimal
    #[arg(long = "hex-idx")]
    hex: bool,
    /// Print the index of the MDT
    #[arg(short = 'i', short_alias = 'm', long = "mdt-index")]
    index: bool,
    /// Only directories on this MDT
    #[arg(short = 'O', long = "obd", value_name = "UUID")]
    mdt: Option<String>,
    /// Descend into subdirectories
    #[arg(short, long)]
    recursive: bool,
    /// Print nothing for a directory without a default layout of its own
    #[arg(short = 'R', long)]
    raw: bool,
    /// Also print magic and FID
    #[arg(short, long, action = ArgAction::SetTrue)]
    verbose: bool,
    /// Print how many levels deep a default layout is inherited
    #[arg(short = 'X', long = "max-inherit")]
    inherit: bool,
    /// Print how many levels deep new directories are spread round-robin over MDTs
    #[arg(long = "max-inherit-rr")]
    inherit_rr: bool,
    /// Print YAML
    #[arg(short, long)]
    yaml: bool,
    /// Directories
    #[arg(required = true, value_name = "DIRECTORY")]
    paths: Vec<PathBuf>,
}

impl Get {
    /// Whether nothing is chosen, so that the usual fields are shown.
    fn is_usual(&self) -> bool {
        let chosen = self.count || self.fid || self.hash || self.index;
        self.verbose || !(chosen || self.inherit || self.inherit_rr)
    }

    /// Names and values of the fields that are shown.
    fn fields(&self, fid: Fid, mdt: u16) -> Vec<(&'static str, String)> {
        let usual = self.is_usual();
        let index = match (self.default, self.hex) {
            (true, false) => "-1".to_owned(),
            (true, true) => format!("{:#x}", u32::MAX),
            (false, true) => format!("{mdt:#x}"),
            (false, false) => mdt.to_string(),
        };
        let magic = if self.default { MAGIC_DEFAULT } else { MAGIC };
        let fid = fid.to_string();
        let all = [
            (self.fid || self.verbose, "lmv_fid", fid.trim_matches(['[', ']']).to_owned()),
            (self.verbose, "lmv_magic", format!("{magic:#x}")),
            (self.count || usual, "lmv_stripe_count", "0".to_owned()),
            (self.index || usual, "lmv_stripe_offset", index),
            (self.hash || usual, "lmv_hash_type", "none".to_owned()),
            (self.default && (self.inherit || usual), "lmv_max_inherit", "-1".to_owned()),
            (self.default && (self.inherit_rr || usual), "lmv_max_inherit_rr", "0".to_owned()),
        ];
        let shown = all.into_iter().filter(|(is_shown, ..)| *is_shown);
        shown.map(|(_, name, value)| (name, value)).collect()
    }

    fn text(&self, fid: Fid, mdt: u16) -> String {
        let fields = self.fields(fid, mdt);
        if let [(_, value)] = &fields[..] {
            return format!("{value}\n");
        }
        if !self.yaml {
            let words: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            return words.join(" ") + "\n";
        }
        let mut text = String::new();
        for (name, value) in &fields {
            text += &format!("{:<19}{value}\n", format!("{name}: "));
        }
        if !self.default && self.is_usual() {
            let fid = fid.to_string();
            let fid = fid.trim_matches(['[', ']']);
            text += &format!("lmv_objects:\n      - l_mdt_idx: {mdt}\n        l_fid:     {fid}\n");
        }
        text
    }
}

/// Shows how directories lie on MDTs.
pub(super) fn get(options: &Get) -> Result<(), Fault> {
    let mut worst = None;
    for path in &options.paths {
        let mut below = vec![path.clone()];
        while let Some(folder) = below.pop() {
            if let Err(errno) = show(options, &folder) {
                eprintln!("lfs: getdirstripe for '{}' failed: {errno}", shown_path(folder));
                worst = worst.or(Some(errno));
            } else if options.recursive {
                below.extend(folders_in(&folder));
            }
        }
    }
    outcome(worst)
}

/// The directories in `folder`, the first by name last.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut paths: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    paths.sort();
    paths.reverse();
    paths
}

fn show(options: &Get, path: &Path) -> Result<(), Errno> {
    let found = std::fs::metadata(path).map_err(|error| errno_of(&error))?;
    if !found.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    let fid = attributes::fid(path).map_err(|errno| match errno {
        Errno::ENODATA | Errno::EOPNOTSUPP => Errno::ENOTTY,
        errno => errno,
    })?;
    let mut mdts = MdtsOf::at(path)?;
    let mdt = mdts.find(fid)?;
    if let Some(wanted) = &options.mdt {
        let is_wanted = |mdt: &&Target| {
            *wanted == mdt.uuid || Some(wanted.as_str()) == mdt.uuid.strip_suffix("_UUID")
        };
        match mdts.all().iter().find(is_wanted) {
            Some(wanted) if wanted.index == mdt => {}
            Some(_) => return Ok(()),
            None => {
                eprintln!("lfs getdirstripe: unknown obduuid: {wanted}");
                return Err(Errno::EINVAL);
            }
        }
    }
    if options.default && options.raw {
        return Ok(());
    }
    if options.recursive {
        line_out(path.as_os_str().as_bytes().to_vec());
    }
    text_out(&options.text(fid, mdt));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sheen_types::Fid;

    use super::{Get, checked, indexes};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        get: Get,
    }

    #[derive(Parser)]
    struct Making {
        #[command(flatten)]
        make: super::Make,
    }

    fn text(line: &str) -> String {
        let words = std::iter::once("lfs").chain(line.split_whitespace()).chain(["d"]);
        Line::parse_from(words).get.text(Fid::new(0x2_0000_0400, 15), 0)
    }

    /// As the recording d3-dirstripe-get-set-options has it, of a directory on one MDT.
    #[test]
    fn a_directory_on_one_mdt_is_shown_as_lustre_shows_it() {
        assert_eq!(text(""), "lmv_stripe_count: 0 lmv_stripe_offset: 0 lmv_hash_type: none\n");
        assert_eq!(
            (text("-c"), text("-i"), text("-m")),
            ("0\n".into(), "0\n".into(), "0\n".into())
        );
        assert_eq!((text("-T"), text("-H")), ("0\n".into(), "none\n".into()));
        assert_eq!(
            text("-v"),
            "lmv_fid: 0x200000400:0xf:0x0 lmv_magic: 0xcd20cd0 lmv_stripe_count: 0 \
             lmv_stripe_offset: 0 lmv_hash_type: none\n"
        );
        assert_eq!(
            text("-y"),
            "lmv_stripe_count:  0\nlmv_stripe_offset: 0\nlmv_hash_type:     none\nlmv_objects:\n      \
             - l_mdt_idx: 0\n        l_fid:     0x200000400:0xf:0x0\n"
        );
        assert_eq!(
            text("-D"),
            "lmv_stripe_count: 0 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 \
             lmv_max_inherit_rr: 0\n"
        );
        assert_eq!((text("-D -i"), text("-D -X")), ("-1\n".into(), "-1\n".into()));
    }

    #[test]
    fn what_lustre_refuses_is_refused() {
        let wrong = |line: &str| {
            let words = std::iter::once("lfs").chain(line.split_whitespace()).chain(["d"]);
            let make = Making::parse_from(words).make;
            let fault = checked("mkdir", &make).map(drop);
            fault.and_then(|()| indexes("mkdir", make.index.as_deref()).map(drop)).err()
        };
        for (line, what) in [
            ("-c x", "stripe count 'x'"),
            ("-c 2001", "stripe count '2001'"),
            ("-H bogus", "directory hash type 'bogus'"),
            ("-o 9", "MODE '9'"),
            ("-i x", "MDT target(s) 'x'"),
        ] {
            let fault = wrong(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((fault.code, fault.text), (4, format!("lfs mkdir: invalid {what}")));
        }
        for line in ["", "-i 0", "-i -1", "-c 1", "-c 4 -H crush", "-i 0,1", "-o 1777"] {
            assert_eq!(wrong(line), None, "{line}");
        }
    }
}
