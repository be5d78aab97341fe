//! `mkfs.lustre`: makes a directory the store of a target.
//!
//! What Lustre calls the device is a directory here. What the target is lies in the store's
//! configuration ([`TargetConfig`]); servers read it from there and the MGS gets it at
//! registration.

mod config;

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use sheen_store_disk::{DiskError, FormatOptions, StoreDisk};
use sheen_types::{Errno, TargetKind};

pub use config::TargetConfig;

use crate::output::{Fault, errno_of, text_out};

/// Options of Lustre's `mkfs.lustre` that are not here yet, or mean nothing for a directory.
pub const REFUSED: &[&str] = &[
    "--mkfsoptions",
    "--mountfsoptions",
    "--backfs-mount-opts",
    "--backfstype",
    "--failnode",
    "--servicenode",
    "--network",
    "--stripe-count-hint",
    "--force-nohostid",
    "--skipmmp",
];

/// Characters of a comment that Lustre's label has room for.
const COMMENT_BYTES_MAX: usize = 824;
/// The index that means none.
const NO_INDEX: u16 = u16::MAX;

/// Format a directory as a Lustre target
#[derive(Args)]
pub struct Mkfs {
    /// Format a management target (MGT)
    #[arg(short = 'G', long)]
    mgs: bool,
    /// No management service (the default)
    #[arg(short = 'N', long, conflicts_with = "mgs")]
    nomgs: bool,
    /// Format a metadata target (MDT)
    #[arg(short = 'M', long)]
    mdt: bool,
    /// Format an object storage target (OST)
    #[arg(short = 'O', long)]
    ost: bool,
    /// Name of the file system: 1 to 8 of A-Z, a-z, 0-9, '-' and '_'
    #[arg(short = 'L', long, value_name = "FSNAME")]
    fsname: Option<String>,
    /// Index of the target, decimal or hexadecimal with 0x
    #[arg(short, long, value_name = "INDEX")]
    index: Option<String>,
    /// NIDs of the MGS: ',' between those of a node, ':' between nodes
    #[arg(short, long, value_name = "NID,...")]
    mgsnode: Vec<String>,
    /// Set a permanent parameter
    #[arg(short, long, value_name = "KEY=VALUE")]
    param: Vec<String>,
    /// Size of the target in KiB
    #[arg(short, long, value_name = "KB")]
    device_size: Option<u64>,
    /// Reformat a target: its data is lost
    #[arg(short, long)]
    reformat: bool,
    /// Replace a lost target with this index
    #[arg(long)]
    replace: bool,
    /// Store a comment
    #[arg(short = 'u', long, value_name = "TEXT")]
    comment: Option<String>,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    dryrun: bool,
    /// Print less
    #[arg(short, long)]
    quiet: bool,
    /// Print more
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// The directory, created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    device: PathBuf,
}

fn fatal(errno: Errno, text: impl std::fmt::Display) -> Fault {
    Fault::new(errno, format!("mkfs.lustre FATAL: {text}"))
}

fn wrong(text: impl std::fmt::Display) -> Fault {
    fatal(Errno::EINVAL, text)
}

/// Formats a target, or says what would be done.
///
/// # Errors
/// The options do not make a target, or the directory cannot be one.
pub fn run(options: &Mkfs) -> Result<(), Fault> {
    let config = config_of(options)?;
    let capacity_bytes = capacity(options)?;
    check_device(&options.device)?;
    let say = |text: String| {
        if !options.quiet {
            text_out(&text)
        }
    };
    say(permanent_data(&config));
    if options.dryrun {
        say("Dry-run mode, exiting before disk write.\n".to_owned());
        return Ok(());
    }
    if options.verbose > 0 {
        say(format!("formatting {}\n", options.device.display()));
    }
    let format = FormatOptions {
        capacity_bytes,
        label: config.name(),
        config: config.to_values(),
        reformat: options.reformat,
        memtable_bytes: config.memtable_bytes(),
    };
    StoreDisk::format(&options.device, &format)
        .map_err(|error| not_formatted(&options.device, &error))?;
    say(format!("Writing {}\n", options.device.join("CONFIG").display()));
    Ok(())
}

fn capacity(options: &Mkfs) -> Result<Option<u64>, Fault> {
    let Some(kib) = options.device_size else { return Ok(None) };
    match kib.checked_mul(1 << 10) {
        None | Some(0) => Err(wrong(format_args!("--device-size={kib} is out of range"))),
        bytes => Ok(bytes),
    }
}

/// What is wrong with a target's directory, with the exit code of Lustre's `mount` for it.
pub fn disk_fault(error: &DiskError) -> Fault {
    let errno = match error.cause() {
        DiskError::NotFormatted(_) => Errno::ENODEV,
        DiskError::AlreadyFormatted(_) => Errno::EEXIST,
        DiskError::Locked(_) => Errno::EBUSY,
        DiskError::NewerVersion { .. } => Errno::EINVAL,
        DiskError::Foreign { .. } => Errno::EPERM,
        DiskError::Io { error: cause, .. } => errno_of(cause),
        _ => Errno::EIO,
    };
    Fault::new(errno, error.to_string())
}

fn not_formatted(device: &Path, error: &DiskError) -> Fault {
    match error.cause() {
        DiskError::AlreadyFormatted(_) => {
            let name = TargetConfig::load(device).map_or_else(|why| why, |config| config.name());
            let what = format!("Device {} was previously formatted for lustre", device.display());
            fatal(Errno::EEXIST, format_args!("{what} ({name}). Use --reformat to reformat it."))
        }
        _ => {
            let Fault { code, text } = disk_fault(error);
            fatal(Errno(code.into()), text)
        }
    }
}

/// A directory, or a name that can become one.
fn check_device(device: &Path) -> Result<(), Fault> {
    let shown = device.display();
    match std::fs::metadata(device) {
        Ok(found) if found.is_dir() => check_content(device),
        Ok(_) => Err(fatal(Errno::ENOTDIR, format_args!("{shown} is not a directory"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = device.parent().filter(|parent| !parent.as_os_str().is_empty());
            match parent.is_none_or(Path::is_dir) {
                true => Ok(()),
                false => Err(fatal(Errno::ENOENT, format_args!("{shown}: {}", Errno::ENOENT))),
            }
        }
        Err(error) => {
            let errno = errno_of(&error);
            Err(fatal(errno, format_args!("{shown}: {errno}")))
        }
    }
}

/// Nothing but an earlier store is ever overwritten; a new file system's `lost+found` may stay.
fn check_content(device: &Path) -> Result<(), Fault> {
    let shown = device.display();
    let entries = std::fs::read_dir(device).map_err(|error| {
        let errno = errno_of(&error);
        fatal(errno, format_args!("{shown}: {errno}"))
    })?;
    let holds_more = entries.flatten().any(|entry| entry.file_name() != "lost+found");
    if holds_more && !device.join("format").exists() && !device.join("lock").exists() {
        let text = format!("{shown} is not empty and holds no target: use another directory");
        return Err(fatal(Errno::ENOTEMPTY, text));
    }
    Ok(())
}

fn config_of(options: &Mkfs) -> Result<TargetConfig, Fault> {
    let kind = match (options.mgs, options.mdt, options.ost) {
        (_, true, true) | (true, _, true) => {
            return Err(wrong("OST type is exclusive with MDT and MGS"));
        }
        (false, false, false) => return Err(wrong("must set target type: MDT, OST, MGS")),
        (_, true, false) => Some(TargetKind::Mdt),
        (false, false, true) => Some(TargetKind::Ost),
        (true, false, false) => None,
    };
    let mgs_nodes = config::parse_nodes(&options.mgsnode).map_err(wrong)?;
    if !options.mgs && mgs_nodes.is_empty() {
        return Err(wrong("Must specify either --mgs or --mgsnode"));
    }
    let (fsname, index) = match kind {
        None if options.fsname.is_some() || options.index.is_some() || options.replace => {
            return Err(wrong("--fsname, --index and --replace are not for an MGS alone"));
        }
        None => (String::new(), 0),
        Some(_) => (fsname(options)?, index(options)?),
    };
    if kind == Some(TargetKind::Mdt) && index > 0 && options.replace {
        let text = "--replace: one of several MDTs is not replaced by an empty one yet; restore it from a backup";
        return Err(fatal(Errno::EOPNOTSUPP, text));
    }
    let comment = options.comment.clone().unwrap_or_default();
    if comment.len() > COMMENT_BYTES_MAX || comment.contains('\n') {
        return Err(wrong(format_args!(
            "comment must be a line of at most {COMMENT_BYTES_MAX} bytes"
        )));
    }
    let params = options.param.iter().map(|text| config::parse_param(text));
    let params = params.collect::<Result<_, _>>().map_err(wrong)?;
    let (mgs, replace) = (options.mgs, options.replace);
    Ok(TargetConfig { mgs, kind, fsname, index, mgs_nodes, params, comment, replace })
}

fn fsname(options: &Mkfs) -> Result<String, Fault> {
    let Some(name) = &options.fsname else {
        return Err(wrong("Must specify --fsname for MDT and OST"));
    };
    check_fsname(name)?;
    Ok(name.clone())
}

/// Whether a file system may be called `name`.
pub fn check_fsname(name: &str) -> Result<(), Fault> {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if !(1..=8).contains(&name.len()) {
        return Err(wrong(format_args!("filesystem name '{name}' must be 1-8 chars")));
    }
    match name.chars().find(|letter| !legal(*letter)) {
        None => Ok(()),
        Some(letter) => {
            Err(wrong(format_args!("char '{letter}' not allowed in filesystem name '{name}'")))
        }
    }
}

fn index(options: &Mkfs) -> Result<u16, Fault> {
    let Some(text) = &options.index else {
        return Err(wrong("The target index must be specified with --index"));
    };
    let index = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u16::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let index = index.ok().filter(|index| *index != NO_INDEX);
    index.ok_or_else(|| wrong(format_args!("wrong index '{text}': must be 0-65534")))
}

/// What Lustre prints of the target's label, in its shape.
fn permanent_data(config: &TargetConfig) -> String {
    let (flags, names) = config.flags();
    let names: String = names.iter().map(|name| format!("{name} ")).collect();
    let index = match config.kind {
        Some(_) => config.index.to_string(),
        None => "unassigned".to_owned(),
    };
    let mut text = format!(
        "\n   Permanent disk data:\nTarget:     {}\nIndex:      {index}\nLustre FS:  {}\n\
         Mount type: sheen\nFlags:      {flags:#x}\n              ({names})\n\
         Persistent mount opts: \nParameters: {}\n",
        config.virgin_name(),
        config.fsname,
        config.parameters().join(" "),
    );
    if !config.comment.is_empty() {
        text += &format!("Comment:    {}\n", config.comment);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sheen_types::Errno;

    use super::{Mkfs, config_of, permanent_data};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        mkfs: Mkfs,
    }

    fn options(words: &str) -> Mkfs {
        let words = ["mkfs.lustre"].into_iter().chain(words.split(' ')).chain(["/d"]);
        Line::try_parse_from(words).unwrap().mkfs
    }

    #[test]
    fn the_data_are_shown_in_lustres_shape() {
        let words =
            "--ost --fsname=lustre --index=0x1f --mgsnode=10.0.0.1@tcp --param sys.timeout=40";
        let config = config_of(&options(words)).unwrap();
        let expected = "
   Permanent disk data:
Target:     lustre:OST001f
Index:      31
Lustre FS:  lustre
Mount type: sheen
Flags:      0x62
              (OST first_time update )
Persistent mount opts: 
Parameters: mgsnode=10.0.0.1@tcp sys.timeout=40

";
        assert_eq!(permanent_data(&config), expected);
        let text = permanent_data(&config_of(&options("--mgs")).unwrap());
        assert!(text.contains("Target:     MGS\nIndex:      unassigned\n"));
        assert!(text.contains("(MGS first_time update )"));
        let both = config_of(&options("--mgs --mdt --fsname=a --index=0")).unwrap();
        assert!(permanent_data(&both).contains("Flags:      0x65\n"));
    }

    #[test]
    fn a_further_mdt_has_its_number_and_the_mgs_of_the_first() {
        let words = "--mdt --mgsnode=10.0.0.1@tcp --index=0x12 --fsname=a";
        let config = config_of(&options(words)).unwrap();
        assert_eq!((config.index, config.mgs), (18, false));
        assert!(permanent_data(&config).contains("Target:     a:MDT0012\nIndex:      18\n"));
        let fault = config_of(&options("--mdt --index=1 --fsname=a")).unwrap_err();
        assert!(fault.text.contains("--mgsnode"), "{}", fault.text);
    }

    #[test]
    fn one_of_several_mdts_is_not_replaced() {
        let words =
            |index| format!("--mdt --mgsnode=10.0.0.1@tcp --index={index} --fsname=a --replace");
        assert!(config_of(&options(&words(0))).unwrap().replace);
        let fault = config_of(&options(&words(1))).unwrap_err();
        assert_eq!(fault.code, Errno::EOPNOTSUPP.0 as u8);
        assert!(fault.text.contains("--replace"), "{}", fault.text);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (words, named) in [
            ("--index=0", "target type"),
            ("--ost --mdt", "exclusive"),
            ("--ost --mgs", "exclusive"),
            ("--ost --fsname=a --index=0", "--mgsnode"),
            ("--ost --fsname=a --mgsnode=10.0.0.1@tcp", "--index"),
            ("--mdt --mgs --index=0", "--fsname"),
            ("--mdt --mgs --index=0 --fsname=ninechars", "1-8"),
            ("--mdt --mgs --index=0 --fsname=a/b", "'/'"),
            ("--mdt --mgs --index=65535 --fsname=a", "wrong index"),
            ("--mdt --index=0 --fsname=a --mgsnode=nonsense", "nonsense"),
            ("--mgs --param novalue", "novalue"),
            ("--mgs --fsname=a", "MGS alone"),
        ] {
            let fault = config_of(&options(words)).unwrap_err();
            assert_eq!(fault.code, 22);
            assert!(fault.text.contains(named), "{}", fault.text);
        }
    }
}
