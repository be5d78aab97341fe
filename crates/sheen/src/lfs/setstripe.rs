//! `lfs setstripe`: files with a layout of their own, defaults of directories.
//!
//! A new file is made without objects, then told its layout; the MDT allocates the objects. If
//! the layout is refused, the file goes away again.

use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sheen_types::Errno;
use sheen_types::limits::STRIPE_COUNT_MAX;
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovOstData, LovPattern};

use super::attributes::{fid, remove_layout, set_layout};
use super::size::parse_size;
use crate::output::{Fault, errno, worst as outcome};

/// Options of Lustre's `setstripe` that are not here yet.
pub(super) const REFUSED: &[&str] = &[
    "-C",
    "--overstripe-count",
    "-E",
    "--component-end",
    "--comp-end",
    "--component-add",
    "--comp-add",
    "--component-del",
    "--comp-del",
    "--component-set",
    "--comp-set",
    "-I",
    "--component-id",
    "--comp-id",
    "-F",
    "--component-flags",
    "--comp-flags",
    "--copy",
    "-y",
    "--yaml",
    "--ec",
    "--ec-stripe-count",
    "--ec-expert",
    "-z",
    "--extension-size",
    "--ext-size",
    "--foreign",
    "-x",
    "--xattr",
    "--flags",
    "-L",
    "--layout",
    "--mode",
    "-N",
    "--mirror-count",
    "-p",
    "--pool",
];

/// Stripes begin and end on multiples of this (`LOV_MIN_STRIPE_SIZE`).
const STRIPE_SIZE_UNIT: u64 = 64 << 10;
/// "Any OST", as the first OST of a wish.
const ANY_OST: u16 = u16::MAX;

/// Options of `setstripe`.
#[derive(Args, Default)]
pub(super) struct SetStripe {
    /// Number of stripes; 0 for the default, -1 for all OSTs
    #[arg(
        short = 'c',
        long = "stripe-count",
        value_name = "STRIPE_COUNT",
        allow_hyphen_values = true
    )]
    count: Option<String>,
    /// Bytes of a stripe, with k, m or g; 0 for the default
    #[arg(
        short = 'S',
        long = "stripe-size",
        value_name = "STRIPE_SIZE",
        allow_hyphen_values = true
    )]
    size: Option<String>,
    /// The first OST; -1 for any
    #[arg(
        short = 'i',
        long = "stripe-index",
        value_name = "START_OST_IDX",
        allow_hyphen_values = true
    )]
    index: Option<String>,
    /// The OSTs, as 0,2-4
    #[arg(short = 'o', long = "ost", value_name = "OST_INDEX,...", allow_hyphen_values = true)]
    osts: Option<String>,
    /// Remove a directory's default layout
    #[arg(short = 'd', long = "delete")]
    delete: bool,
    /// New files, or directories
    #[arg(required = true, value_name = "FILENAME|DIRECTORY")]
    paths: Vec<PathBuf>,
}

pub(super) fn run(options: &SetStripe) -> Result<(), Fault> {
    let wish = wish(options)?;
    let mut worst = None;
    for path in &options.paths {
        let done = if options.delete { delete(path) } else { set(path, &wish) };
        if let Err((errno, text)) = done {
            eprintln!("lfs setstripe: {text}");
            worst = Some(errno);
        }
    }
    outcome(worst)
}

/// What the options say, as the MDT understands it.
fn wish(options: &SetStripe) -> Result<LovEa, Fault> {
    let given = [&options.count, &options.size, &options.index, &options.osts];
    if options.delete && given.iter().any(|option| option.is_some()) {
        let text = "lfs setstripe: option -d is mutually exclusive with -S, -c, -i and -o options";
        return Err(Fault::usage(text));
    }
    let count = options.count.as_deref().map_or(Ok(0), stripe_count)?;
    let stripe_size = options.size.as_deref().map_or(Ok(0), stripe_size)?;
    let first = options.index.as_deref().map_or(Ok(ANY_OST), first_ost)?;
    let Some(text) = &options.osts else {
        let header = LovMdHeader {
            magic: LovMagic::V1,
            pattern: LovPattern::RAID0,
            stripe_size,
            stripe_count: count,
            layout_gen: first,
            ..LovMdHeader::default()
        };
        return Ok(LovEa::Plain(LovMd { header, ..LovMd::default() }));
    };
    let osts = ost_list(text)?;
    if options.count.is_some() && usize::from(count) != osts.len() {
        let text = format!("stripe_count({}) != nr_tgts({})", count as i16, osts.len());
        return Err(Fault::usage(format!("lfs setstripe: {text}")));
    }
    let header = LovMdHeader {
        magic: LovMagic::SPECIFIC,
        pattern: pattern(&osts),
        stripe_size,
        stripe_count: osts.len() as u16,
        layout_gen: if options.index.is_some() { first } else { osts[0] },
        ..LovMdHeader::default()
    };
    let stripe = |ost: &u16| LovOstData { ost_idx: u32::from(*ost), ..LovOstData::default() };
    Ok(LovEa::Plain(LovMd {
        header,
        stripes: osts.iter().map(stripe).collect(),
        ..LovMd::default()
    }))
}

/// An OST named twice is overstriping.
fn pattern(osts: &[u16]) -> LovPattern {
    let mut sorted = osts.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    match sorted.len() == osts.len() {
        true => LovPattern::RAID0,
        false => LovPattern::RAID0 | LovPattern::OVERSTRIPING,
    }
}

fn stripe_count(text: &str) -> Result<u16, Fault> {
    let count = match text.parse::<i32>() {
        Ok(-1) => Some(u16::MAX),
        Ok(count) => {
            u16::try_from(count).ok().filter(|count| usize::from(*count) <= STRIPE_COUNT_MAX)
        }
        Err(_) => None,
    };
    count.ok_or_else(|| Fault::usage(format!("lfs setstripe: invalid stripe count '{text}'")))
}

fn stripe_size(text: &str) -> Result<u32, Fault> {
    let size = parse_size(text).filter(|size| size % STRIPE_SIZE_UNIT == 0);
    let size =
        size.ok_or_else(|| Fault::usage(format!("lfs setstripe: invalid stripe size '{text}'")))?;
    u32::try_from(size).map_err(|_| {
        let errno = Errno::EINVAL;
        let text = format!("stripe size '{size}' over 4GB limit: {errno} ({})", errno.0);
        Fault::new(errno, format!("lfs setstripe: error: {text}"))
    })
}

fn first_ost(text: &str) -> Result<u16, Fault> {
    let index = match text.parse::<i32>() {
        Ok(-1) => Some(ANY_OST),
        Ok(index) => u16::try_from(index).ok().filter(|index| *index != ANY_OST),
        Err(_) => None,
    };
    index.ok_or_else(|| Fault::usage(format!("lfs setstripe: invalid stripe offset '{text}'")))
}

/// `0,2-4`, numbers decimal or hexadecimal with 0x.
fn ost_list(text: &str) -> Result<Vec<u16>, Fault> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse::<u16>().ok(),
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first)?..=number(last)?;
        (!range.is_empty() && *range.end() != ANY_OST).then_some(range)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let osts: Vec<u16> = ranges.unwrap_or_default().into_iter().flatten().collect();
    if osts.is_empty() || osts.len() > STRIPE_COUNT_MAX {
        return Err(Fault::usage(format!("lfs setstripe: invalid OST target(s) '{text}'")));
    }
    Ok(osts)
}

type Failure = (Errno, String);

fn cannot_set(path: &Path, errno: Errno) -> Failure {
    let why = match errno {
        Errno::EEXIST => "stripe already set".to_owned(),
        errno => errno.to_string(),
    };
    (errno, format!("setstripe error for '{}': {why}", path.display()))
}

fn cannot_open(path: &Path, errno: Errno) -> Failure {
    (errno, format!("unable to open '{}': {errno} ({})", path.display(), errno.0))
}

fn set(path: &Path, wish: &LovEa) -> Result<(), Failure> {
    match rustix::fs::stat(path).map_err(errno) {
        Ok(_) => return set_layout(path, wish).map_err(|errno| cannot_set(path, errno)),
        Err(Errno::ENOENT) => {}
        Err(errno) => return Err(cannot_open(path, errno)),
    }
    on_our_file_system(path)?;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    mknodat(CWD, path, FileType::RegularFile, mode, 0)
        .map_err(|error| cannot_open(path, errno(error)))?;
    set_layout(path, wish).map_err(|failed| {
        if let Err(error) = rustix::fs::unlink(path) {
            eprintln!("lfs setstripe: cannot remove '{}': {}", path.display(), errno(error));
        }
        cannot_set(path, failed)
    })
}

/// Leaves nothing behind on file systems that know no layouts.
fn on_our_file_system(path: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match fid(folder) {
        Ok(_) => Ok(()),
        Err(Errno::ENODATA) => Err(cannot_set(path, Errno::ENOTTY)),
        Err(errno) => Err(cannot_open(path, errno)),
    }
}

fn delete(path: &Path) -> Result<(), Failure> {
    let status = rustix::fs::stat(path).map_err(|error| cannot_open(path, errno(error)))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
        return Err(cannot_set(path, Errno::EEXIST));
    }
    remove_layout(path).map_err(|errno| cannot_set(path, errno))
}

#[cfg(test)]
mod tests {
    use super::{SetStripe, wish};

    fn options(count: &str, size: &str, index: &str, osts: &str) -> SetStripe {
        let option = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        SetStripe {
            count: option(count),
            size: option(size),
            index: option(index),
            osts: option(osts),
            ..SetStripe::default()
        }
    }

    fn hex(options: &SetStripe) -> String {
        let bytes = wish(options).unwrap().encode();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn fault(count: &str, size: &str, index: &str, osts: &str) -> (u8, String) {
        let fault = wish(&options(count, size, index, osts)).unwrap_err();
        (fault.code, fault.text.strip_prefix("lfs setstripe: ").unwrap().to_owned())
    }

    /// The bytes are what a real client sent for these commands.
    #[test]
    fn wishes_are_lustres_bytes() {
        let zero = "00".repeat(16);
        let expected = format!("d00bd10b01000000{zero}0000080004000000");
        assert_eq!(hex(&options("4", "512k", "0", "")), expected);
        assert_eq!(
            hex(&options("", "", "", "")),
            format!("d00bd10b01000000{zero}000000000000ffff")
        );
        let stripe = |index: u32| format!("{zero}00000000{:08x}", index.swap_bytes());
        let stripes = [0, 1, 0, 1].map(stripe).concat();
        let expected = format!("d00bd50b01020000{zero}0000000004000000{zero}{stripes}");
        assert_eq!(hex(&options("", "", "", "0,1,0,1")), expected);
        assert_eq!(
            hex(&options("", "", "", "1-0x2")),
            format!("d00bd50b01000000{zero}0000000002000100{zero}{}{}", stripe(1), stripe(2))
        );
    }

    #[test]
    fn wrong_values_are_refused_as_in_lustre() {
        for bad in ["abc", "-3", "2001", "65536"] {
            assert_eq!(fault(bad, "", "", ""), (4, format!("invalid stripe count '{bad}'")));
        }
        for bad in ["1", "1000", "65535", "96k", "-1", "64x"] {
            assert_eq!(fault("", bad, "", ""), (4, format!("invalid stripe size '{bad}'")));
        }
        let text = "error: stripe size '4294967296' over 4GB limit: Invalid argument (22)";
        assert_eq!(fault("", "4G", "", ""), (22, text.to_owned()));
        for bad in ["-2", "abc", "65535"] {
            assert_eq!(fault("", "", bad, ""), (4, format!("invalid stripe offset '{bad}'")));
        }
        for bad in ["0,a", "1-0", ",", "65535", "0-70000"] {
            assert_eq!(fault("", "", "", bad), (4, format!("invalid OST target(s) '{bad}'")));
        }
        assert_eq!(fault("3", "", "", "0,1"), (4, "stripe_count(3) != nr_tgts(2)".to_owned()));
        let both = SetStripe { delete: true, ..options("1", "", "", "") };
        assert_eq!(wish(&both).unwrap_err().code, 4);
    }
}
