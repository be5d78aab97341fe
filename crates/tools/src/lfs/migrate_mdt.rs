//! `lfs migrate -m`: a directory, and all that is in it, moves to other MDTs.
//!
//! The tool walks the tree, as Lustre's does, and moves it name by name, by calls on the directories (`sheen_fuse::migrate_name`).
//! What is broken off in between (an interrupt, an MDT that is away) is whole, and the same command ends it: what lies where it belongs
//! is passed over.

use std::cell::Cell;
use std::fs::File;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sheen_fuse::MoveName;
use sheen_layout::directory::{DirectoryWish, WishedStripes, finishing_command};
use sheen_types::text::shell_word;
use sheen_types::{Errno, MdtIndex, Name};
use sheen_wire::lmv::LmvHash;
use sheen_wire::lov::PoolName;

use super::attributes;
use super::dirstripe::hash_type;
use super::layout_source::folder_of;
use super::mdt_of::MdtsOf;
use super::options::Part;
use super::permission::{Refused, reason};
use crate::interrupt;
use crate::output::{Fault, errno, errno_of, line, shown_path, worst};

/// The options that are of it alone, and those that it shares with the migration of data.
pub(super) const INDEX: &str = "mdt-index";
const OPTIONS: [&str; 8] = [
    INDEX,
    "mdt-hash",
    "clear-fixed",
    "directory",
    "stripe-count",
    "overstripe-count",
    "pool",
    "verbose",
];
/// Most stripes of a directory (`LMV_MAX_STRIPE_COUNT`), and most on each MDT (`LMV_MAX_STRIPES_PER_MDT`).
const COUNT_MAX: i64 = 2000;
const EACH_MAX: i64 = 5;
/// How often a directory is read for names that other programs have made in it before all knew that it moves.
const PASSES_MAX: u32 = 3;
/// How often a name is sent again that changes each time.
const STALE_MAX: u32 = 8;
/// Why the directory that is mounted does not move: nothing has its name.
pub(super) const OF_ROOT: &str = "the root of the file system stays where it is";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Migrate {
    wish: DirectoryWish,
    /// Only the directory itself, and the names in it (`-d`).
    is_shallow: bool,
    verbose: bool,
    paths: Vec<PathBuf>,
    /// Why it has failed is said already, and what to do.
    is_explained: Cell<bool>,
}

/// Whether a command line is of this.
pub(super) fn is_wanted(parts: &[Part]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Option { name: INDEX, .. }))
}

/// Moves directories.
///
/// # Errors
/// As Lustre's command: the first errno; 4 for a wrong command line; as for a signal if one ended it.
pub(super) fn run(parts: Vec<Part>) -> Result<(), Fault> {
    let command = Migrate::read(parts)?;
    let mut first = None;
    interrupt::listen()?;
    for path in &command.paths {
        command.is_explained.set(false);
        if let Err(errno) = command.top(path) {
            if interrupt::is_asked() {
                eprintln!("{}", interrupted(path));
                return Err(Fault { code: interrupt::interrupted_code(), text: String::new() });
            }
            command.explain(path, errno);
            first = first.or(Some(errno));
        }
    }
    worst(first)
}

fn usage(text: &str) -> Fault {
    Fault::usage(format!("lfs migrate: {text}"))
}

impl Migrate {
    fn read(parts: Vec<Part>) -> Result<Self, Fault> {
        let (mut mdts, mut count, mut hash) = (Vec::new(), None, LmvHash::UNKNOWN);
        let (mut flags, mut is_fixed) = (0, true);
        let mut command = Self {
            wish: DirectoryWish::default(),
            is_shallow: false,
            verbose: false,
            paths: Vec::new(),
            is_explained: Cell::new(false),
        };
        for part in parts {
            let (name, value, spelled) = match part {
                Part::Operand(path) => {
                    command.paths.push(path.into());
                    continue;
                }
                Part::Option { name, value, spelled } => (name, value.unwrap_or_default(), spelled),
            };
            match name {
                INDEX => mdts.extend(targets(&value).ok_or_else(|| {
                    Fault::usage(format!("lfs: invalid MDT target(s) '{value}'"))
                })?),
                "mdt-hash" => {
                    let wrong = || usage(&format!("bad MDT hash type '{value}'"));
                    hash = hash_type(&value).ok_or_else(wrong)?;
                }
                "clear-fixed" => is_fixed = false,
                "directory" => command.is_shallow = true,
                "verbose" => command.verbose = true,
                "stripe-count" => count = Some(counted(&value, -1)?),
                "overstripe-count" => {
                    count = Some(counted(&value, -EACH_MAX)?);
                    flags |= LmvHash::OVERSTRIPED;
                }
                "pool" => {
                    let wrong = || usage(&format!("invalid pool name '{value}'"));
                    command.wish.pool = PoolName::new(&value).ok_or_else(wrong)?;
                }
                _ if !OPTIONS.contains(&name) => {
                    return Err(usage(&format!("option '{spelled}' is of files, not of -m")));
                }
                _ => {}
            }
        }
        if command.paths.is_empty() {
            return Err(usage("FILE must be specified"));
        }
        command.wish_on(mdts, count)?;
        let fixed = if is_fixed { LmvHash::FIXED } else { 0 };
        command.wish.hash = LmvHash(hash.0 | flags | fixed);
        Ok(command)
    }

    /// Which MDTs, and how many stripes.
    fn wish_on(&mut self, mdts: Vec<Option<MdtIndex>>, count: Option<i64>) -> Result<(), Fault> {
        let listed = mdts.len();
        self.wish.first = mdts.first().copied().flatten();
        if listed > 1 {
            if count.is_some_and(|count| count > 0 && count != listed as i64) {
                let count = count.unwrap_or(0);
                return Err(usage(&format!(
                    "stripe count {count} doesn't match the number of MDTs: {listed}"
                )));
            }
            let all: Option<Vec<MdtIndex>> = mdts.into_iter().collect();
            let all = all.ok_or_else(|| usage("-1 is no MDT of a list"))?;
            self.wish.mdts = all.into();
        }
        let count = if listed > 1 { listed as i64 } else { count.unwrap_or(0) };
        let stripes = NonZeroU32::new(u32::try_from(count.unsigned_abs()).unwrap_or(0));
        self.wish.stripes = match stripes {
            None => WishedStripes::Unsaid,
            Some(stripes) if count < 0 => WishedStripes::OnEachMdt(stripes),
            Some(stripes) => WishedStripes::Count(stripes),
        };
        Ok(())
    }

    /// Moves the directory of the command line.
    fn top(&self, path: &Path) -> Result<(), Errno> {
        let found = std::fs::symlink_metadata(path).map_err(|error| {
            failed(&format!("cannot open '{}'", shown_path(path)), errno_of(&error))
        })?;
        if !found.is_dir() {
            let what = format!("cb_migrate_mdt_init: Failed to open '{}'", shown_path(path));
            return Err(failed(&what, Errno::ENOTDIR));
        }
        let failed_here = |errno| failed(&format!("{} migrate failed", shown_path(path)), errno);
        let whole = path.canonicalize().map_err(|error| failed_here(errno_of(&error)))?;
        let known = match MdtsOf::at(&whole) {
            Err(Errno::ENODEV) => Err(Errno::ENOTTY),
            known => known,
        };
        let known = known.map_err(failed_here)?;
        let named = self.wish.mdts.iter().chain(&self.wish.first);
        if named.into_iter().any(|mdt| known.all().iter().all(|it| it.index != mdt.0)) {
            return Err(failed_here(Errno::ENODEV));
        }
        let Some(name) = whole.file_name().filter(|_| whole != known.mount_point()) else {
            self.is_explained.set(true);
            return Err(failed_for(path, Errno::EINVAL, OF_ROOT));
        };
        let name = Name::new(name.as_bytes()).map_err(|_| failed_here(Errno::EINVAL))?;
        let parent =
            File::open(folder_of(&whole)).map_err(|error| failed_here(errno_of(&error)))?;
        match self.directory(&parent, path, &name) {
            Err(Errno::ENOENT) => Err(failed_here(Errno::ENOENT)),
            moved => moved,
        }
    }

    /// Moves a directory with all that is in it.
    fn directory(&self, parent: &File, path: &Path, name: &Name) -> Result<(), Errno> {
        self.one(parent, path, name, MoveName::Whole)?;
        let ended = |errno| {
            failed_below(
                &format!("cb_migrate_mdt_fini: error completing migration of {}", shown_path(path)),
                errno,
            )
        };
        for pass in 1.. {
            self.names_in(path)?;
            let end = || sheen_fuse::migrate_name(parent, name, MoveName::End, self.wish.clone());
            match sent_as_it_is(path, end) {
                Ok(()) | Err(Errno::EALREADY) => break,
                // Names have come since it was read.
                Err(Errno::ENOTEMPTY | Errno::EBUSY) if pass < PASSES_MAX => {}
                Err(errno) => {
                    for left in lost_in(path) {
                        let (left, word) =
                            (shown_path(&left), shell_word(left.as_os_str().as_bytes()));
                        eprintln!(
                            "lfs migrate: the inode of '{left}' is lost; to remove its name, run: lfs rm_entry {word}"
                        );
                    }
                    return Err(ended(errno));
                }
            }
        }
        Ok(())
    }

    fn names_in(&self, path: &Path) -> Result<(), Errno> {
        let opened = |errno| {
            failed_below(
                &format!("cb_migrate_mdt_init: Failed to open '{}'", shown_path(path)),
                errno,
            )
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty());
        let directory = File::from(directory.map_err(|error| opened(errno(error)))?);
        let entries = std::fs::read_dir(path).map_err(|error| opened(errno_of(&error)))?;
        for entry in entries {
            let entry = entry.map_err(|error| opened(errno_of(&error)))?;
            let (path, text) = (entry.path(), entry.file_name());
            let Ok(name) = Name::new(text.as_bytes()) else { continue };
            let is_directory = entry.file_type().is_ok_and(|it| it.is_dir());
            let moved = match (is_directory, self.is_shallow) {
                (true, false) => self.directory(&directory, &path, &name),
                (true, true) => self.one(&directory, &path, &name, MoveName::NameOnly),
                (false, _) => self.one(&directory, &path, &name, MoveName::Whole),
            };
            match moved {
                // It was removed or renamed meanwhile; if one of that name comes, it does where names move.
                Err(Errno::ENOENT) | Ok(()) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Moves a name.
    fn one(&self, parent: &File, path: &Path, name: &Name, how: MoveName) -> Result<(), Errno> {
        if interrupt::is_asked() {
            return Err(Errno::EINTR);
        }
        let send = || {
            sent_as_it_is(path, || sheen_fuse::migrate_name(parent, name, how, self.wish.clone()))
        };
        let fid = || self.verbose.then(|| attributes::fid_of_link(path).ok()).flatten();
        let before = fid();
        let sent = match send() {
            // What holds locks until it is durable.
            Err(Errno::EBUSY) => {
                rustix::fs::sync();
                send()
            }
            sent => sent,
        };
        match sent {
            Ok(()) if self.verbose => {
                let is_bare = before.is_some() && before == fid();
                line(self.moved(path, if is_bare { Moved::Name } else { Moved::Inode }));
            }
            Err(Errno::EALREADY) if self.verbose => line(self.moved(path, Moved::Nothing)),
            Ok(()) | Err(Errno::EALREADY) => {}
            Err(Errno::EPERM) => {
                self.explain(path, Errno::EPERM);
                let is_said = self.is_explained.replace(true);
                return Err(match is_said {
                    true => {
                        failed_below(&format!("{} migrate failed", shown_path(path)), Errno::EPERM)
                    }
                    false => failed_for(path, Errno::EPERM, reason(Refused::Migrate)),
                });
            }
            Err(errno) => {
                return Err(failed_below(&format!("{} migrate failed", shown_path(path)), errno));
            }
        }
        Ok(())
    }

    /// What `-v` says of a name.
    fn moved(&self, path: &Path, what: Moved) -> String {
        let (path, mdt) = (shown_path(path), self.wish.first.map_or(-1, |mdt| i32::from(mdt.0)));
        let count = count_of(&self.wish);
        match what {
            Moved::Inode => format!("migrate {path} to MDT{mdt} stripe count {count}"),
            Moved::Name => format!("migrate {path} to MDT{mdt} stripe count {count}, name only"),
            Moved::Nothing => format!("{path} migrated to MDT{mdt} already"),
        }
    }

    /// Says once how a migration that was broken off is ended.
    fn explain(&self, path: &Path, errno: Errno) {
        if errno == Errno::EOPNOTSUPP || errno == Errno::ENOTTY || self.is_explained.get() {
            return;
        }
        if let Some(text) = ending_of(path) {
            eprintln!("{text}");
            self.is_explained.set(true);
        }
    }
}

/// What has become of a name.
#[derive(Clone, Copy)]
enum Moved {
    Inode,
    Name,
    Nothing,
}

/// Sends what is about a name again where that changed meanwhile: removed, or replaced, by a program that works there.
///
/// # Errors
/// Those of `send`; [`Errno::ENOENT`] if the name is gone by now.
fn sent_as_it_is(path: &Path, send: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 0..STALE_MAX {
        match send() {
            Err(Errno::ESTALE) => {}
            sent => return sent,
        }
        if std::fs::symlink_metadata(path).is_err_and(|error| errno_of(&error) == Errno::ENOENT) {
            return Err(Errno::ENOENT);
        }
    }
    send()
}

/// The names in a directory that stand for nothing.
fn lost_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let is_lost = |path: &PathBuf| {
        let found = std::fs::symlink_metadata(path).map_err(|error| errno_of(&error));
        found.is_err_and(|errno| errno == Errno::ENOENT)
    };
    entries.map(|entry| entry.path()).filter(is_lost).collect()
}

/// A count of stripes as it is written and shown.
fn count_of(wish: &DirectoryWish) -> i64 {
    match wish.stripes {
        WishedStripes::Unsaid => 0,
        WishedStripes::Count(count) => count.get().into(),
        WishedStripes::OnEachMdt(count) => -i64::from(count.get()),
    }
}

fn counted(text: &str, least: i64) -> Result<i64, Fault> {
    let count = text.parse().ok().filter(|count| (least..=COUNT_MAX).contains(count));
    count.ok_or_else(|| usage(&format!("invalid stripe count '{text}'")))
}

/// MDTs by number or range; -1 is any.
fn targets(text: &str) -> Option<Vec<Option<MdtIndex>>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        if part == "-1" {
            all.push(None);
            continue;
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || usize::from(last - first) + all.len() >= COUNT_MAX as usize {
            return None;
        }
        all.extend((first..=last).map(|index| Some(MdtIndex(index))));
    }
    Some(all)
}

/// Says what failed in a tree, as Lustre's library does; but of what was removed meanwhile, which need not move.
fn failed_below(what: &str, errno: Errno) -> Errno {
    if errno == Errno::ENOENT { errno } else { failed(what, errno) }
}

/// Says what failed, as Lustre's library does. Of what a signal ended a line of its own is said in the end.
fn failed(what: &str, errno: Errno) -> Errno {
    if !interrupt::is_asked() {
        eprintln!("lfs migrate: {what}: {errno} ({})", errno.0);
    }
    errno
}

/// Says what failed, and why.
fn failed_for(path: &Path, errno: Errno, why: &str) -> Errno {
    eprintln!("lfs migrate: {} migrate failed: {errno} ({}): {why}", shown_path(path), errno.0);
    errno
}

/// How the migration of a directory is ended; `None` if it is not being migrated.
fn ending_of(path: &Path) -> Option<String> {
    let (layout, fids) = attributes::stripes(path).ok()??;
    if layout.hash_type.0 & LmvHash::CHANGE != LmvHash::MIGRATION {
        return None;
    }
    let mut mdts = MdtsOf::at(path).ok()?;
    let to = fids.iter().take(layout.migrate_offset as usize);
    let to: Result<Vec<u16>, Errno> = to.map(|fid| mdts.find(*fid)).collect();
    Some(ending(path, &to.ok()?, layout.hash_type))
}

/// What is said of a directory whose migration a signal has ended. Where an MDT is away, nothing is asked, as that would wait for it.
fn interrupted(path: &Path) -> String {
    let mdts = MdtsOf::at(path);
    let are_here = mdts.is_ok_and(|mdts| mdts.all().iter().all(|mdt| mdt.active));
    are_here.then(|| ending_of(path)).flatten().unwrap_or_else(|| {
        format!(
            "lfs migrate: interrupted: '{}' may be moved in part; the same command finishes it",
            shown_path(path)
        )
    })
}

fn ending(path: &Path, mdts: &[u16], hash: LmvHash) -> String {
    let command = finishing_command(mdts, hash, path.as_os_str().as_bytes());
    format!("lfs migrate: '{}' is being migrated; to finish it, run: {command}", shown_path(path))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::migrate::GRAMMAR;
    use super::*;

    fn read(words: &str) -> Result<Migrate, Fault> {
        let words: Vec<OsString> = words.split_whitespace().map(Into::into).collect();
        Migrate::read(GRAMMAR.read(&words)?)
    }

    /// What the capture d4 has.
    #[test]
    fn a_wish_is_sent_as_lustre_sends_it() {
        for (line, bytes) in [
            ("-m 1 dm", "d00cd30c000000000100000000000002"),
            ("-m 0,1 -H fnv_1a_64 dm", "d00cd40c020000000000000002000002"),
            ("-m 0 -c 2 dm", "d00cd30c020000000000000000000002"),
            ("-m -1 -c 1 --clear-fixed dm", "d00cd30c01000000ffffffff00000000"),
            ("-m 0 -C 4 -H crush dm", "d00cd30c040000000000000003000003"),
            ("-m 0-1 dm", "d00cd40c020000000000000000000002"),
        ] {
            let command = read(line).unwrap_or_else(|fault| panic!("{line}: {}", fault.text));
            let sent = command.wish.to_ea().encode();
            let sent: String = sent[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(sent, bytes, "{line}");
        }
        let command = read("-d -v -m 1 a b").expect("a command");
        assert!(command.is_shallow && command.verbose && command.paths.len() == 2);
    }

    #[test]
    fn what_lustre_refuses_is_refused() {
        for (line, what) in [
            ("-m 1", "lfs migrate: FILE must be specified"),
            ("-m x d", "lfs: invalid MDT target(s) 'x'"),
            ("-m 3-1 d", "lfs: invalid MDT target(s) '3-1'"),
            ("-m 0 -H bogus d", "lfs migrate: bad MDT hash type 'bogus'"),
            ("-m 0 -c x d", "lfs migrate: invalid stripe count 'x'"),
            ("-m 0,1 -c 3 d", "lfs migrate: stripe count 3 doesn't match the number of MDTs: 2"),
            ("-m 0 -S 1M d", "lfs migrate: option '-S' is of files, not of -m"),
        ] {
            let fault = read(line).err().unwrap_or_else(|| panic!("{line}"));
            assert_eq!((fault.code, &fault.text[..]), (4, what), "{line}");
        }
    }

    #[test]
    fn what_is_removed_meanwhile_is_passed_over_and_what_only_changes_is_sent_again() {
        let sent = std::cell::Cell::new(0);
        let stale_for = |times| {
            sent.set(0);
            let sent = &sent;
            move || {
                sent.set(sent.get() + 1);
                if sent.get() <= times { Err(Errno::ESTALE) } else { Ok(()) }
            }
        };
        let (there, gone) = (Path::new("/"), Path::new("/no such name"));
        assert_eq!(sent_as_it_is(there, stale_for(3)), Ok(()));
        assert_eq!(sent.get(), 4);
        assert_eq!(sent_as_it_is(gone, stale_for(u32::MAX)), Err(Errno::ENOENT));
        assert_eq!(sent.get(), 1);
        assert_eq!(sent_as_it_is(there, stale_for(u32::MAX)), Err(Errno::ESTALE));
        assert_eq!(sent.get(), STALE_MAX + 1, "it ends");
        assert_eq!(sent_as_it_is(gone, || Err(Errno::EPERM)), Err(Errno::EPERM));
    }

    #[test]
    fn a_name_that_moves_without_its_inode_is_said_so() {
        let command = read("-v -m 1 d").unwrap_or_else(|fault| panic!("{}", fault.text));
        let said = |what| command.moved(Path::new("d"), what);
        assert_eq!(said(Moved::Inode), "migrate d to MDT1 stripe count 0");
        assert_eq!(said(Moved::Name), "migrate d to MDT1 stripe count 0, name only");
        assert_eq!(said(Moved::Nothing), "d migrated to MDT1 already");
    }

    #[test]
    fn the_command_that_ends_a_migration_is_said() {
        let text =
            ending(Path::new("/mnt/d"), &[1, 0], LmvHash(LmvHash::CRUSH.0 | LmvHash::MIGRATION));
        assert_eq!(
            text,
            "lfs migrate: '/mnt/d' is being migrated; to finish it, run: lfs migrate -m 1,0 -H crush /mnt/d"
        );
    }
}
