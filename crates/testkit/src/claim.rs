//! What one test's file system has to itself while it lives: its folder, and the addresses that `sheen up` takes for it.
//!
//! Two tests of one name would meet in a folder unnoticed, and each would find what the other did: in one process the
//! second is refused. Other processes may have the same name and number, in a PID namespace of their own or after the end
//! of this one: they get another folder as long as this one's process lives, and what it had when it is dead, however it
//! ended, for the kernel drops its locks and closes its sockets.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use sheen_workloads::{Context, Outcome, ensure};

use crate::addresses::Block;

/// Folders beside the one that is asked for that are tried.
const BESIDE_MAX: u32 = 1000;

static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: PathBuf,
    addresses: Block,
    // In the order in which they end: the name last.
    _lock: FolderLock,
    _name: Name,
}

impl Claim {
    /// `base`, or a folder beside it where another process has that or its addresses. It is there, and holds what a process
    /// has left that was killed.
    ///
    /// # Errors
    /// Another test of this process has `base`.
    pub(crate) fn of(base: &Path) -> Outcome<Self> {
        let name = Name::of(base)?;
        let parent = base.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).context(parent.display())?;
        let parent = fs::canonicalize(parent).context(parent.display())?;
        let base = parent.join(base.file_name().unwrap_or_default());
        for number in 0..BESIDE_MAX {
            let folder = match number {
                0 => base.clone(),
                _ => PathBuf::from(format!("{}-{number}", base.display())),
            };
            let Some(addresses) = Block::of_directory(&folder.join("dir"))? else { continue };
            if let Some(lock) = FolderLock::of(&folder)? {
                return Ok(Self { folder, addresses, _lock: lock, _name: name });
            }
        }
        Err(format!("{}: other processes have it, and those beside it", base.display()))
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The addresses for `dir` in it.
    pub(crate) fn addresses(&self) -> &Block {
        &self.addresses
    }
}

/// A folder that no other test of this process has.
#[derive(Debug)]
struct Name(PathBuf);

impl Name {
    fn of(base: &Path) -> Outcome<Self> {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(claimed.insert(base.to_owned()), || {
            format!("{}: another test uses it: give one of them another name", base.display())
        })?;
        Ok(Self(base.to_owned()))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// The lock of a folder, which is the folder's own.
#[derive(Debug)]
struct FolderLock(File);

impl FolderLock {
    /// Makes the folder if it is missing, in one that is there. `None` if another process has it.
    fn of(folder: &Path) -> Outcome<Option<Self>> {
        loop {
            match fs::create_dir(folder) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made.context(folder.display())?,
            }
            let opened = match File::open(folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.context(folder.display())?,
            };
            match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                locked => locked.context(folder.display())?,
            }
            let lock = Self(opened);
            // Its former holder may have removed it meanwhile.
            if lock.is_of(folder) {
                return Ok(Some(lock));
            }
        }
    }

    fn is_of(&self, folder: &Path) -> bool {
        let numbers = |it: fs::Metadata| (it.dev(), it.ino());
        let (own, there) = (self.0.metadata().map(numbers), fs::metadata(folder).map(numbers));
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that is being started holds the file for a moment longer.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// The folder that [`child`] is to claim.
    const HOLDS: &str = "SHEEN_TEST_CLAIMS";

    /// A place for folders, which goes away with its test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("sheen-claims-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(fs::canonicalize(path).unwrap())
        }

        fn base(&self) -> PathBuf {
            self.0.join("cluster")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Claims when it is asked to, says what, and holds it until it is killed or its standard input ends. Does nothing unless
    /// started by a test below.
    #[test]
    fn child() {
        let Some(base) = std::env::var_os(HOLDS) else { return };
        let mut input = std::io::stdin();
        input.read_exact(&mut [0]).unwrap();
        let claim = Claim::of(Path::new(&base)).unwrap();
        println!("CLAIMED {} {}", claim.addresses().network(), claim.folder().display());
        input.read_to_end(&mut Vec::new()).unwrap();
    }

    /// Another process; killed when it is dropped.
    struct Other {
        process: Child,
        lines: BufReader<ChildStdout>,
    }

    impl Other {
        fn start(base: &Path) -> Self {
            let mut process = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "claim::tests::child", "--nocapture"])
                .env(HOLDS, base)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(process.stdout.take().unwrap());
            Self { process, lines }
        }

        fn asks(&mut self) {
            self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }

        /// Addresses and folder.
        fn claimed(&mut self) -> (String, PathBuf) {
            let mut line = String::new();
            loop {
                line.clear();
                assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has claimed nothing");
                // Without its end the line before is one with it.
                if let Some((_, said)) = line.trim_end().split_once("CLAIMED ") {
                    let (addresses, folder) = said.split_once(' ').unwrap();
                    return (addresses.to_owned(), PathBuf::from(folder));
                }
            }
        }

        fn holding(base: &Path) -> (Self, (String, PathBuf)) {
            let mut other = Self::start(base);
            other.asks();
            let claimed = other.claimed();
            (other, claimed)
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            self.process.kill().unwrap();
            self.process.wait().unwrap();
        }
    }

    fn what(claim: &Claim) -> (String, PathBuf) {
        (claim.addresses().network().to_string(), claim.folder().to_owned())
    }

    #[test]
    fn a_folder_is_one_tests_at_a_time() {
        let place = Place::new("name");
        let (folder, other) = (place.base(), place.0.join("other"));
        let claim = Claim::of(&folder).unwrap();
        let refused = Claim::of(&folder).map(drop).unwrap_err();
        assert!(refused.contains("cluster: another test uses it"), "{refused}");
        Claim::of(&other).unwrap();
        drop(claim);
        assert_eq!(Claim::of(&folder).unwrap().folder(), folder);
    }

    #[test]
    fn what_a_live_process_has_no_other_gets() {
        let place = Place::new("live");
        let (mut other, theirs) = Other::holding(&place.base());
        assert_eq!(theirs.1, place.base());
        let own = what(&Claim::of(&place.base()).unwrap());
        assert!(own.0 != theirs.0 && own.1 != theirs.1, "{own:?} {theirs:?}");
        assert!(other.process.try_wait().unwrap().is_none(), "it lives");
    }

    #[test]
    fn addresses_that_a_live_process_has_no_other_gets_with_another_folder() {
        let place = Place::new("addresses");
        let held = Block::of_directory(&place.base().join("dir")).unwrap().expect("free");
        let (_other, theirs) = Other::holding(&place.base());
        assert_ne!(theirs.0, held.network().to_string());
        assert_ne!(theirs.1, place.base());
    }

    #[test]
    fn what_a_killed_process_had_is_free_and_what_it_left_is_there() {
        let place = Place::new("killed");
        let (other, theirs) = Other::holding(&place.base());
        fs::write(place.base().join("left"), "").unwrap();
        drop(other);
        let claim = Claim::of(&place.base()).unwrap();
        assert_eq!(what(&claim), theirs);
        assert!(claim.folder().join("left").exists());
    }

    #[test]
    fn processes_that_claim_at_the_same_time_get_different_ones() {
        let place = Place::new("same-time");
        for round in 0..3 {
            let mut others: Vec<Other> = (0..5).map(|_| Other::start(&place.base())).collect();
            others.iter_mut().for_each(Other::asks);
            let claimed: Vec<_> = others.iter_mut().map(Other::claimed).collect();
            let addresses: BTreeSet<_> = claimed.iter().map(|(addresses, _)| addresses).collect();
            let folders: BTreeSet<_> = claimed.iter().map(|(_, folder)| folder).collect();
            assert_eq!((addresses.len(), folders.len()), (5, 5), "round {round}: {claimed:?}");
        }
    }

    /// Who locks it as its holder removes it has the lock of what is no folder any more.
    #[test]
    fn a_folder_that_its_holder_removes_is_locked_by_one() {
        let place = Place::new("removed");
        let (folder, is_held) = (place.base(), AtomicBool::new(false));
        let uses = || {
            for _ in 0..2000 {
                let Some(lock) = FolderLock::of(&folder).unwrap() else { continue };
                assert!(!is_held.swap(true, Ordering::SeqCst), "two have it");
                is_held.store(false, Ordering::SeqCst);
                fs::remove_dir(&folder).unwrap();
                drop(lock);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(uses))));
    }
}
