//! `lfs find -printf`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::FileType;
use sheen_types::{Errno, Fid};
use sheen_wire::lov::{CompFlags, LovEa, LovMd, LovPattern};

use super::predicates::{File, Time};
use super::times::{self, NANOSECONDS};
use super::values::ATTRIBUTES;

/// What `--ls` prints.
pub(super) const LS: &str = "%i\\t%k\\t%M\\t%n\\t%u\\t%g\\t%s\\t%t\\t%p\\n";

/// A format, cut up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pieces: Vec<Piece>,
    /// What stands behind a `%` and is no directive.
    pub(super) unknown: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Letters of the directive, and the columns to fill: negative for the left side.
    Directive(String, i32),
}

impl Format {
    /// Reads a format. Unknown escapes and directives stand for themselves.
    pub(super) fn read(text: &str) -> Self {
        let (mut pieces, mut plain, mut unknown) = (Vec::new(), String::new(), Vec::new());
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => plain.push_str(&escape(letters.next())),
                '%' => {
                    let mut width = String::new();
                    while let Some(digit) =
                        letters.next_if(|next| *next == '-' || next.is_ascii_digit())
                    {
                        width.push(digit);
                    }
                    let mut name = String::new();
                    name.extend(letters.next());
                    match name.as_str() {
                        "L" => name.extend(letters.next()),
                        "A" | "C" | "T" | "W" => name.extend(letters.next_if_eq(&'@')),
                        _ => {}
                    }
                    if name == "%" {
                        plain.push('%');
                    } else if is_known(&name) {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                        pieces.push(Piece::Directive(name, width.parse().unwrap_or(0)));
                    } else {
                        let text = format!("%{width}{name}");
                        plain.push_str(&text);
                        unknown.push(text);
                    }
                }
                letter => plain.push(letter),
            }
        }
        pieces.push(Piece::Text(plain));
        Self { pieces, unknown }
    }

    /// The text for a file.
    ///
    /// # Errors
    /// What asking for its attributes or layout met.
    pub(super) fn text(&self, path: &Path, file: &dyn File) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.extend_from_slice(plain.as_bytes()),
                Piece::Directive(name, width) => {
                    let value = match name.as_str() {
                        "p" => path.as_os_str().as_bytes().to_vec(),
                        name => value(name, path, file)?.into_bytes(),
                    };
                    let missing = (width.unsigned_abs() as usize).saturating_sub(value.len());
                    let gap = vec![b' '; missing];
                    match width {
                        ..0 => text.extend([value, gap].concat()),
                        _ => text.extend([gap, value].concat()),
                    }
                }
            }
        }
        Ok(text)
    }
}

fn escape(letter: Option<char>) -> String {
    match letter {
        Some('n') => "\n".to_owned(),
        Some('t') => "\t".to_owned(),
        Some('\\') => "\\".to_owned(),
        Some(other) => format!("\\{other}"),
        None => "\\".to_owned(),
    }
}

fn is_known(name: &str) -> bool {
    const NAMES: [&str; 33] = [
        "a", "A@", "b", "c", "C@", "g", "G", "i", "k", "m", "M", "n", "p", "s", "t", "T@", "u",
        "U", "w", "W@", "y", "La", "LA", "Lc", "LF", "Lh", "Li", "Lo", "Lp", "LP", "LS", "AA",
        "CC",
    ];
    NAMES.contains(&name)
}

fn value(name: &str, path: &Path, file: &dyn File) -> Result<String, Errno> {
    if let Some(letter) = name.strip_prefix('L') {
        return of_lustre(letter, path, file);
    }
    let found = file.attributes()?;
    let mode = u32::from(found.stx_mode);
    let time = |time| times::of(found, time).ok_or(Errno::EOPNOTSUPP);
    let in_words = |kind| time(kind).map(times::in_words);
    let seconds = |kind| {
        let nanoseconds = time(kind)?;
        Ok(format!("{}.{:09}", nanoseconds / NANOSECONDS, nanoseconds % NANOSECONDS))
    };
    Ok(match name {
        "a" => in_words(Time::Access)?,
        "c" => in_words(Time::Change)?,
        "t" => in_words(Time::Modification)?,
        "w" => in_words(Time::Birth)?,
        "A@" => seconds(Time::Access)?,
        "C@" => seconds(Time::Change)?,
        "T@" => seconds(Time::Modification)?,
        "W@" => seconds(Time::Birth)?,
        "b" => found.stx_blocks.to_string(),
        "k" => found.stx_blocks.div_ceil(2).to_string(),
        "g" => times::name_of("/etc/group", found.stx_gid),
        "G" => found.stx_gid.to_string(),
        "u" => times::name_of("/etc/passwd", found.stx_uid),
        "U" => found.stx_uid.to_string(),
        "i" => found.stx_ino.to_string(),
        "m" => format!("{:o}", mode & 0o7777),
        "M" => mode_text(mode),
        "n" => found.stx_nlink.to_string(),
        "s" => found.stx_size.to_string(),
        "y" => type_letter(FileType::from_raw_mode(mode), 'f').to_string(),
        _ => String::new(),
    })
}

fn type_letter(kind: FileType, file: char) -> char {
    match kind {
        FileType::RegularFile => file,
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::BlockDevice => 'b',
        FileType::CharacterDevice => 'c',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        _ => '?',
    }
}

/// `-rwxr-xr-x`.
fn mode_text(mode: u32) -> String {
    let mut text = type_letter(FileType::from_raw_mode(mode), '-').to_string();
    for (shift, special, small, large) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => small,
            (false, true) => large,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// What is Lustre's: attributes, FID, project, layout.
fn of_lustre(letter: &str, path: &Path, file: &dyn File) -> Result<String, Errno> {
    match letter {
        "a" | "A" => {
            let found = file.attributes()?;
            let bits = found.stx_attributes.bits() & found.stx_attributes_mask.bits();
            return Ok(attributes(bits, letter == "A"));
        }
        "F" => {
            let fid: Fid = crate::lfs::attributes::fid(path)?;
            return Ok(fid.to_string().trim_matches(['[', ']']).to_owned());
        }
        "P" => return Ok("0".to_owned()),
        _ => {}
    }
    if file.kind()? == FileType::Directory {
        let mdt = || file.mdt().map(|index| index.to_string());
        return match letter {
            "c" => Ok("0".to_owned()),
            "h" => Ok("none".to_owned()),
            "i" => mdt(),
            "o" => mdt().map(|index| format!("[{index}]")),
            _ => Ok(String::new()),
        };
    }
    let layout = file.layout()?;
    let Some(last) = last_made(layout) else { return Ok(String::new()) };
    Ok(match letter {
        "c" => (last.header.stripe_count as i16).to_string(),
        "i" if last.header.pattern.contains(LovPattern::MDT) => last.header.layout_gen.to_string(),
        "i" => last.stripes.first().map(|stripe| stripe.ost_idx.to_string()).unwrap_or_default(),
        "o" => osts(layout),
        "p" => String::from_utf8_lossy(last.pool.as_bytes()).into_owned(),
        "S" => last.header.stripe_size.to_string(),
        _ => String::new(),
    })
}

fn attributes(mut bits: u64, long: bool) -> String {
    if bits == 0 {
        return "---".to_owned();
    }
    let mut words = Vec::new();
    for (letter, name, bit) in ATTRIBUTES {
        if bits & bit != 0 {
            words.push(if long { (*name).to_owned() } else { letter.to_string() });
            bits &= !bit;
        }
    }
    let known = words.join(if long { "," } else { "" });
    match (bits, known.is_empty()) {
        (0, _) => known,
        (bits, true) => format!("{bits:#x}"),
        (bits, false) => format!("{known},{bits:#x}"),
    }
}

fn last_made(layout: Option<&LovEa>) -> Option<&LovMd> {
    match layout? {
        LovEa::Plain(plain) => Some(plain),
        LovEa::Composite(all) => {
            let made = |flags: CompFlags| flags.contains(CompFlags::INIT);
            let last = all.components.iter().rfind(|part| made(part.entry.flags));
            last.or(all.components.first()).map(|part| &part.layout)
        }
        LovEa::Foreign(_) => None,
    }
}

/// The OSTs of each component that has objects: `[0,1][2]`.
fn osts(layout: Option<&LovEa>) -> String {
    let list = |plain: &LovMd| {
        let indexes: Vec<String> =
            plain.stripes.iter().map(|stripe| stripe.ost_idx.to_string()).collect();
        format!("[{}]", indexes.join(","))
    };
    match layout {
        Some(LovEa::Plain(plain)) => list(plain),
        Some(LovEa::Composite(all)) => {
            let made = all.components.iter().filter(|part| {
                part.entry.flags.contains(CompFlags::INIT) && !part.layout.stripes.is_empty()
            });
            made.map(|part| list(&part.layout)).collect()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};
    use sheen_wire::lov::LovEa;

    use super::*;
    use crate::lfs::attributes::Xattr;

    #[test]
    fn formats_are_cut_up() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let directive = |name: &str, width| Piece::Directive(name.to_owned(), width);
        let Format { pieces, unknown } = Format::read("a\\tb%%%s|%-10u%Lc%T@%Q\\q\\n");
        let expected = [
            text("a\tb%"),
            directive("s", 0),
            text("|"),
            directive("u", -10),
            text(""),
            directive("Lc", 0),
            text(""),
            directive("T@", 0),
            text("%Q\\q\n"),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(unknown, ["%Q"]);
    }

    /// A file of a mount, which does not report when it was made.
    struct Unborn(Statx);

    impl File for Unborn {
        fn name(&self) -> &OsStr {
            OsStr::new("f")
        }

        fn kind(&self) -> Result<FileType, Errno> {
            Ok(FileType::RegularFile)
        }

        fn attributes(&self) -> Result<&Statx, Errno> {
            Ok(&self.0)
        }

        fn layout(&self) -> Result<Option<&LovEa>, Errno> {
            Ok(None)
        }

        fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
            Ok(Vec::new())
        }

        fn stripes(&self) -> Result<(u64, sheen_wire::lmv::LmvHash), Errno> {
            Ok((0, sheen_wire::lmv::LmvHash::UNKNOWN))
        }

        fn mdt(&self) -> Result<u32, Errno> {
            Ok(0)
        }
    }

    #[test]
    fn no_birth_is_made_up() {
        let basic = StatxFlags::BASIC_STATS;
        let mut found = rustix::fs::statx(CWD, "/", AtFlags::empty(), basic).unwrap();
        found.stx_mask &= !StatxFlags::BTIME.bits();
        let file = Unborn(found);
        for (format, known) in [("%t", true), ("%w", false), ("%W@", false)] {
            let text = Format::read(format).text(Path::new("f"), &file);
            assert_eq!(text.err(), (!known).then_some(Errno::EOPNOTSUPP), "{format}");
        }
    }

    #[test]
    fn modes_and_attributes_are_written_out() {
        assert_eq!(mode_text(0o100_644), "-rw-r--r--");
        assert_eq!(mode_text(0o041_777), "drwxrwxrwt");
        assert_eq!(mode_text(0o104_711), "-rws--x--x");
        assert_eq!(attributes(0, true), "---");
        assert_eq!(attributes(0x30, false), "ia");
        assert_eq!(attributes(0x8010, true), "Immutable,0x8000");
    }
}
