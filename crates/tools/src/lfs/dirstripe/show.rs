//! `lfs getdirstripe`: how directories lie on MDTs, and what is set for those to come.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use rustix::fs::{Mode, OFlags};
use sheen_control::api::Target;
use sheen_layout::directory::HASH_NAMES;
use sheen_types::{Errno, Fid};
use sheen_wire::lmv::{LmvHash, LmvMagic, LmvUserMd};

use crate::lfs::attributes;
use crate::lfs::mdt_of::MdtsOf;
use crate::output::{Fault, errno, errno_of, line_out, shown_path, text_out, worst as outcome};

/// Options of `getdirstripe`.
#[derive(Args)]
pub(in crate::lfs) struct Get {
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

/// What there is to show of a directory.
struct Shown {
    fid: Fid,
    magic: u32,
    count: i64,
    /// The MDT of the first stripe, or the directory's; -1 for any.
    offset: i64,
    hash: LmvHash,
    /// Of a default.
    inherit: Option<(u8, u8)>,
    /// MDTs and FIDs of stripes.
    stripes: Vec<(u16, Fid)>,
}

impl Shown {
    /// A directory in one piece.
    fn whole(fid: Fid, mdt: u16) -> Self {
        Self {
            fid,
            magic: LmvMagic::V1.0,
            count: 0,
            offset: mdt.into(),
            hash: LmvHash::UNKNOWN,
            inherit: None,
            stripes: Vec::new(),
        }
    }

    /// One in stripes.
    fn striped(fid: Fid, hash: LmvHash, stripes: Vec<(u16, Fid)>) -> Self {
        let first = stripes.first().map_or(0, |(mdt, _)| *mdt);
        let count = stripes.len() as i64;
        Self { count, hash, stripes, ..Self::whole(fid, first) }
    }

    /// The default of a directory; `None` for what holds where there is none.
    fn default_of(fid: Fid, default: Option<&LmvUserMd>) -> Self {
        let header =
            LmvUserMd { magic: LmvMagic::USER, stripe_offset: u32::MAX, ..LmvUserMd::default() };
        let header = default.unwrap_or(&header);
        Self {
            fid,
            magic: header.magic.0,
            count: header.stripe_count.into(),
            offset: header.stripe_offset.cast_signed().into(),
            hash: header.hash_type,
            inherit: Some((header.max_inherit, header.max_inherit_rr)),
            stripes: Vec::new(),
        }
    }
}

/// The name of a hash with its flags.
fn hash_text(hash: LmvHash) -> String {
    const FLAGS: [(u32, &str); 5] = [
        (LmvHash::OVERSTRIPED, "overstriped"),
        (LmvHash::MIGRATION, "migrating"),
        (LmvHash::BAD_TYPE, "bad_type"),
        (LmvHash::LOST_LMV, "lost_lmv"),
        (LmvHash::FIXED, "fixed"),
    ];
    let (kind, mut left) = (hash.without_flags().0, hash.0 & !LmvHash::TYPE_MASK);
    let mut text = match HASH_NAMES.get(kind as usize) {
        Some(name) => (*name).to_owned(),
        None => format!("{kind:#x}"),
    };
    for (flag, name) in FLAGS.into_iter().filter(|(flag, _)| hash.0 & flag != 0) {
        text += &format!(",{name}");
        left &= !flag;
    }
    left &= !(LmvHash::SPLIT | LmvHash::MERGE);
    if left != 0 {
        text += &format!(",unknown_{left:04x}");
    }
    text
}

/// Levels as a default has them: none and all have values of their own.
fn levels(value: u8, none: u8, all: u8) -> String {
    match value {
        value if value == none => "0".to_owned(),
        value if value == all => "-1".to_owned(),
        value => value.to_string(),
    }
}

impl Get {
    /// Whether nothing is chosen, so that the usual fields are shown.
    fn is_usual(&self) -> bool {
        let chosen = self.count || self.fid || self.hash || self.index;
        self.verbose || !(chosen || self.inherit || self.inherit_rr)
    }

    /// Names and values of the fields that are shown.
    fn fields(&self, shown: &Shown) -> Vec<(&'static str, String)> {
        let usual = self.is_usual();
        let offset = match self.hex {
            true => format!("{:#x}", shown.offset as i32),
            false => shown.offset.to_string(),
        };
        let fid = shown.fid.to_string();
        let (inherit, inherit_rr) = shown.inherit.unwrap_or_default();
        let is_default = shown.inherit.is_some();
        let all = [
            (self.fid || self.verbose, "lmv_fid", fid.trim_matches(['[', ']']).to_owned()),
            (self.verbose, "lmv_magic", format!("{:#x}", shown.magic)),
            (self.count || usual, "lmv_stripe_count", shown.count.to_string()),
            (self.index || usual, "lmv_stripe_offset", offset),
            (self.hash || usual, "lmv_hash_type", hash_text(shown.hash)),
            (is_default && (self.inherit || usual), "lmv_max_inherit", levels(inherit, 255, 0)),
            (
                is_default && (self.inherit_rr || usual),
                "lmv_max_inherit_rr",
                levels(inherit_rr, 0, 255),
            ),
        ];
        let shown = all.into_iter().filter(|(is_shown, ..)| *is_shown);
        shown.map(|(_, name, value)| (name, value)).collect()
    }

    /// `wanted` is the only MDT of which stripes are shown.
    fn text(&self, shown: &Shown, wanted: Option<u16>) -> String {
        let fields = self.fields(shown);
        if let [(_, value)] = &fields[..] {
            return format!("{value}\n");
        }
        let mut text = String::new();
        match self.yaml {
            true => {
                for (name, value) in &fields {
                    text += &format!("{:<19}{value}\n", format!("{name}: "));
                }
            }
            false => {
                let words: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                text = words.join(" ") + "\n";
            }
        }
        if shown.inherit.is_none() && self.is_usual() {
            text += &self.stripes_text(shown, wanted);
        }
        text
    }

    fn stripes_text(&self, shown: &Shown, wanted: Option<u16>) -> String {
        let index = |mdt: &u16| if self.hex { format!("{mdt:#x}") } else { mdt.to_string() };
        let stripes = shown.stripes.iter().filter(|(mdt, _)| wanted.is_none_or(|it| it == *mdt));
        if !self.yaml {
            let mut text = String::new();
            if !shown.stripes.is_empty() {
                text += "mdtidx\t\t FID[seq:oid:ver]\n";
            }
            let mark = if wanted.is_some() { " *" } else { "" };
            for (mdt, fid) in stripes {
                text += &format!("{:>6}\t\t {fid}\t\t{mark}\n", index(mdt));
            }
            return text;
        }
        let mut text = "lmv_objects:\n".to_owned();
        let whole = (shown.offset as u16, shown.fid);
        let only = Some(&whole).filter(|_| shown.stripes.is_empty());
        for (mdt, fid) in only.into_iter().chain(stripes) {
            let fid = fid.to_string();
            let fid = fid.trim_matches(['[', ']']);
            text += &format!("      - l_mdt_idx: {}\n        l_fid:     {fid}\n", index(mdt));
        }
        text
    }
}

/// Shows how directories lie on MDTs.
pub(in crate::lfs) fn get(options: &Get) -> Result<(), Fault> {
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
    // Its attributes would be those of all stripes, of which one may be away.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
    let fid = attributes::fid(path).map_err(|errno| match errno {
        Errno::ENODATA | Errno::EOPNOTSUPP => Errno::ENOTTY,
        errno => errno,
    })?;
    let mut mdts = MdtsOf::at(path)?;
    let mdt = mdts.find(fid)?;
    let wanted = wanted_mdt(options, &mdts)?;
    let shown = match options.default {
        true => {
            let own = attributes::default_stripes(path)?;
            if own.is_none() && options.raw {
                return Ok(());
            }
            let default = match own {
                Some(own) => Some(own),
                None => inherited(path, &mdts)?,
            };
            Shown::default_of(fid, default.as_ref())
        }
        false => match attributes::stripes(path)? {
            None => Shown::whole(fid, mdt),
            Some((header, stripes)) => {
                // One that was lost is on none.
                let found = stripes.into_iter().map(|stripe| match stripe.is_of_mdt() {
                    true => Ok((mdts.find(stripe)?, stripe)),
                    false => Ok((u16::MAX, stripe)),
                });
                Shown::striped(fid, header.hash_type, found.collect::<Result<_, Errno>>()?)
            }
        },
    };
    let is_on = |wanted: u16| match shown.stripes.is_empty() {
        true => mdt == wanted,
        false => shown.stripes.iter().any(|(mdt, _)| *mdt == wanted),
    };
    if wanted.is_some_and(|wanted| !is_on(wanted)) {
        return Ok(());
    }
    if options.recursive {
        line_out(path.as_os_str().as_bytes().to_vec());
    }
    text_out(&options.text(&shown, wanted));
    Ok(())
}

/// The MDT that `-O` names.
fn wanted_mdt(options: &Get, mdts: &MdtsOf) -> Result<Option<u16>, Errno> {
    let Some(wanted) = &options.mdt else { return Ok(None) };
    let is_wanted = |mdt: &&Target| {
        *wanted == mdt.uuid || Some(wanted.as_str()) == mdt.uuid.strip_suffix("_UUID")
    };
    match mdts.all().iter().find(is_wanted) {
        Some(wanted) => Ok(Some(wanted.index)),
        None => {
            eprintln!("lfs getdirstripe: unknown obduuid: {wanted}");
            Err(Errno::EINVAL)
        }
    }
}

/// The root's default as it holds in a directory below that has none of its own, as Lustre's client has it.
fn inherited(path: &Path, mdts: &MdtsOf) -> Result<Option<LmvUserMd>, Errno> {
    let root = mdts.mount_point();
    let path = std::fs::canonicalize(path).map_err(|error| errno_of(&error))?;
    let Ok(below) = path.strip_prefix(&root) else { return Ok(None) };
    let Some(default) = attributes::default_stripes(&root)? else { return Ok(None) };
    Ok(inherited_by(default, below.components().count()))
}

/// A default so many levels below the directory that has it.
fn inherited_by(mut default: LmvUserMd, levels: usize) -> Option<LmvUserMd> {
    for _ in 0..levels {
        default.max_inherit = match default.max_inherit {
            // The last level, and none at all (`LMV_INHERIT_END`, `LMV_INHERIT_NONE`).
            1 | 255 => return None,
            0 => 0,
            levels => levels - 1,
        };
        default.max_inherit_rr = match default.max_inherit_rr {
            255 => 255,
            levels => levels.saturating_sub(1),
        };
    }
    Some(default)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sheen_types::Fid;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        get: Get,
    }

    fn text_of(line: &str, shown: &Shown, wanted: Option<u16>) -> String {
        let words = std::iter::once("lfs").chain(line.split_whitespace()).chain(["d"]);
        Line::parse_from(words).get.text(shown, wanted)
    }

    fn text(line: &str) -> String {
        let fid = Fid::new(0x2_0000_0400, 15);
        let is_default = line.starts_with("-D");
        let shown = if is_default { Shown::default_of(fid, None) } else { Shown::whole(fid, 0) };
        text_of(line, &shown, None)
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

    /// As d3-dirstripe-get-set-options and d5-mkdir-overstripe-unlink have them.
    #[test]
    fn stripes_are_shown_as_lustre_shows_them() {
        let stripes = vec![(0, Fid::new(0x2_0000_0400, 15)), (1, Fid::new(0x2_4000_0401, 10))];
        let fid = Fid::new(0x2_0000_0403, 0x248);
        let shown = Shown::striped(fid, LmvHash::FNV_1A_64, stripes);
        let list = "mdtidx\t\t FID[seq:oid:ver]\n     0\t\t [0x200000400:0xf:0x0]\t\t\n     \
                    1\t\t [0x240000401:0xa:0x0]\t\t\n";
        let usual = "lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64\n";
        assert_eq!(text_of("", &shown, None), format!("{usual}{list}"));
        let detail = "lmv_fid: 0x200000403:0x248:0x0 lmv_magic: 0xcd20cd0 ";
        assert_eq!(text_of("-v", &shown, None), format!("{detail}{usual}{list}"));
        assert_eq!(
            text_of("-y", &shown, None),
            "lmv_stripe_count:  2\nlmv_stripe_offset: 0\nlmv_hash_type:     fnv_1a_64\nlmv_objects:\n      \
             - l_mdt_idx: 0\n        l_fid:     0x200000400:0xf:0x0\n      - l_mdt_idx: 1\n        l_fid:     \
             0x240000401:0xa:0x0\n"
        );
        let one = |line| text_of(line, &shown, None);
        assert_eq!([one("-c"), one("-i"), one("-H")], ["2\n", "0\n", "fnv_1a_64\n"]);
        let of_second = text_of("", &shown, Some(1));
        assert!(of_second.ends_with("     1\t\t [0x240000401:0xa:0x0]\t\t *\n"), "{of_second}");
        assert!(!of_second.contains("[0x200000400"), "{of_second}");
        let over = LmvHash(LmvHash::FNV_1A_64.0 | LmvHash::OVERSTRIPED);
        assert_eq!(hash_text(over), "fnv_1a_64,overstriped");
        assert_eq!(hash_text(LmvHash(LmvHash::CRUSH.0 | LmvHash::FIXED)), "crush,fixed");
        assert_eq!(hash_text(LmvHash(77)), "0x4d");
    }

    /// As d3-dirstripe-get-set-options has them.
    #[test]
    fn a_default_is_shown_as_lustre_shows_it() {
        let header = |stripe_count, max_inherit, max_inherit_rr| LmvUserMd {
            magic: LmvMagic::USER,
            stripe_count,
            stripe_offset: u32::MAX,
            max_inherit,
            max_inherit_rr,
            ..LmvUserMd::default()
        };
        let fid = Fid::ROOT;
        let show =
            |header: &LmvUserMd, line| text_of(line, &Shown::default_of(fid, Some(header)), None);
        let own = header(2, 3, 0);
        assert_eq!(
            show(&own, "-D"),
            "lmv_stripe_count: 2 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: 3 \
             lmv_max_inherit_rr: 0\n"
        );
        assert_eq!(
            show(&own, "-D -y"),
            "lmv_stripe_count:  2\nlmv_stripe_offset: -1\nlmv_hash_type:     none\nlmv_max_inherit:   \
             3\nlmv_max_inherit_rr: 0\n"
        );
        assert_eq!([show(&own, "-D -X"), show(&own, "-D --max-inherit-rr")], ["3\n", "0\n"]);
        // What the root has, and what holds two levels below.
        let root = header(1, 0, 3);
        let text = |rr| {
            format!(
                "lmv_stripe_count: 1 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 lmv_max_inherit_rr: {rr}\n"
            )
        };
        assert_eq!(show(&root, "-D"), text(3));
        let below = inherited_by(root, 2).expect("it is inherited");
        assert_eq!(show(&below, "-D"), text(1));
        assert_eq!(inherited_by(header(2, 2, 0), 1).map(|it| it.max_inherit), Some(1));
        assert_eq!(inherited_by(header(2, 2, 0), 2), None);
        assert_eq!(inherited_by(header(2, 255, 0), 1), None);
    }
}
