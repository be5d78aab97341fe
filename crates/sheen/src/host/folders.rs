//! The directories of targets beside each other: which are of the file system, by their names, and that each holds the
//! target that its name says.
//!
//! A copy that an operator made of a target (`cp -a mdt0000 mdt0000.bak`) says of itself that it is the target. Served
//! in the target's place it would take all changes, and lose them when it is removed.

use std::fs;
use std::path::{Path, PathBuf};

use sheen_types::{TargetKind, TargetName};

use super::cluster::Cluster;
use super::invalid;
use super::target::Plan;
use sheen_tools::mkfs::TargetConfig;
use sheen_tools::output::{Fault, shown_path};

/// What the names of directories of targets begin with, in the order in which targets start.
const KINDS: [&str; 3] = ["mgt", "mdt", "ost"];

/// What the target in a folder of a file system of `sheen up` is, by the folder's name alone.
pub(super) fn of_folder(folder: &str, fsname: &str) -> Option<TargetConfig> {
    if folder == "mgt" {
        return Some(TargetConfig { mgs: true, ..TargetConfig::default() });
    }
    let (kind, index) = folder.split_at_checked(3)?;
    let kind = match kind {
        "mdt" => TargetKind::Mdt,
        "ost" => TargetKind::Ost,
        _ => return None,
    };
    let index = u16::from_str_radix(index, 16).ok()?;
    let name = TargetName { fsname: fsname.to_owned(), kind, index };
    // Signs, capitals and other lengths are names of something else.
    let is_exact = folder_of(&name) == folder;
    let TargetName { fsname, .. } = name;
    let config = TargetConfig { kind: Some(kind), fsname, index, ..TargetConfig::default() };
    is_exact.then_some(config)
}

/// The folder of a target.
pub(super) fn folder_of(name: &TargetName) -> String {
    let kind = if name.kind == TargetKind::Mdt { "mdt" } else { "ost" };
    format!("{kind}{:04x}", name.index)
}

/// Whether a store lies in `folder`.
pub(super) fn is_there(folder: &Path) -> bool {
    folder.join("format").exists()
}

/// The index of the target of this kind in the folder at `path`, by its name.
pub(super) fn index_of(path: &Path, kind: TargetKind) -> Option<u16> {
    let config = of_folder(&path.file_name()?.to_string_lossy(), "")?;
    (config.kind == Some(kind)).then_some(config.index)
}

/// Refuses directories of which two say that they are the same target.
///
/// # Errors
/// `EINVAL` with the paths of both.
pub(super) fn refuse_doubles(plans: &[Plan]) -> Result<(), Fault> {
    for (at, second) in plans.iter().enumerate() {
        let Some(first) = plans[..at].iter().find(|plan| plan.kind == second.kind) else {
            continue;
        };
        let (first, second, name) =
            (shown_path(&first.directory), shown_path(&second.directory), &second.kind);
        return Err(invalid(format!(
            "{first} and {second} both say that they are {name}: only one of them can be served"
        )));
    }
    Ok(())
}

impl Cluster {
    /// The folders of targets, whatever they hold, MGT first.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        self.folders_where(|name| of_folder(name, "").is_some())
    }

    /// Stores that lie beside the targets under names that begin like theirs: no targets of the file system.
    fn copies(&self) -> Vec<PathBuf> {
        let mut folders = self.folders_where(|name| of_folder(name, "").is_none());
        folders.retain(|folder| is_there(folder));
        folders
    }

    fn folders_where(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let rank = |name: &str| KINDS.iter().position(|kind| name.starts_with(kind));
        names.retain(|name| rank(name).is_some() && is_wanted(name));
        names.sort_by_key(|name| (rank(name), name.clone()));
        names.iter().map(|name| self.directory.join(name)).collect()
    }

    /// The targets that are there, MGT first.
    pub(super) fn targets(&self) -> Vec<PathBuf> {
        let mut folders = self.folders();
        folders.retain(|folder| is_there(folder));
        folders
    }

    /// All that `fsck` looks at: the targets, or, where there are none of such names, stores of whatever names, as mkfs.lustre
    /// makes them.
    pub(super) fn stores(&self) -> Vec<PathBuf> {
        let targets = self.targets();
        if !targets.is_empty() {
            return targets;
        }
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.retain(|folder| is_there(folder));
        folders.sort();
        folders
    }

    /// What they are, by their names alone.
    pub(super) fn folders_there(&self) -> Vec<TargetConfig> {
        let names = self.targets();
        let names = names.iter().filter_map(|path| path.file_name());
        names.filter_map(|name| of_folder(&name.to_string_lossy(), "")).collect()
    }

    /// How many targets of a kind it has, as their indices say.
    pub(super) fn count(&self, kind: TargetKind) -> u16 {
        let indices = self.targets().into_iter().filter_map(|path| index_of(&path, kind));
        indices.max().map_or(0, |last| last.saturating_add(1))
    }

    /// Reports on stderr which stores are left alone.
    pub(super) fn report_copies(&self) {
        for copy in self.copies() {
            eprintln!(
                "{}: left alone: its name is none of a target (mgt, mdt0000, ost0000 ...)",
                shown_path(&copy)
            );
        }
    }

    /// Refuses a target's directory that says it is another target. What is wrong with one that cannot be read says
    /// who opens it.
    ///
    /// # Errors
    /// `EINVAL` with the paths of the directory and of the one that it should be.
    pub(super) fn check_targets(&self) -> Result<(), Fault> {
        for path in self.targets() {
            let folder = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((named, found)) = of_folder(&folder, "").zip(TargetConfig::load(&path).ok())
            else {
                continue;
            };
            let known = self.fsname().unwrap_or(&found.fsname);
            let is_same = (named.kind, named.index) == (found.kind, found.index);
            if !is_same || (found.kind.is_some() && found.fsname != known) {
                return Err(self.mixed_up(&path, &found));
            }
        }
        Ok(())
    }

    /// The error for a directory that says it is the target `found`.
    fn mixed_up(&self, path: &Path, found: &TargetConfig) -> Fault {
        let (name, path) = (found.name(), shown_path(path));
        let place = match found.kind {
            _ if self
                .fsname()
                .is_some_and(|fsname| found.kind.is_some() && fsname != found.fsname) =>
            {
                format!("of another file system than {}", shown_path(&self.directory))
            }
            Some(kind) => {
                let target = TargetName { fsname: String::new(), kind, index: found.index };
                format!(
                    "whose directory is {}",
                    shown_path(self.directory.join(folder_of(&target)))
                )
            }
            None => format!("whose directory is {}", shown_path(self.mgt())),
        };
        invalid(format!(
            "{path}: its CONFIG says that it is {name}, {place}: put its own there again (CONFIG.copy, unless that \
             says the same), or the target's own directory"
        ))
    }
}

#[cfg(test)]
mod tests {
    use sheen_store_disk::{FormatOptions, StoreDisk};

    use super::*;
    use crate::host::target::plans;

    /// A directory with stores that say what is on the right of each name.
    struct TestDir(PathBuf);

    impl TestDir {
        fn with(name: &str, folders: &[(&str, &str)]) -> Self {
            let dir = std::env::temp_dir().join(format!("sheen-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            for (folder, says) in folders {
                let config = of_folder(says, "sheen").unwrap().to_values();
                let options = FormatOptions { config, ..FormatOptions::default() };
                StoreDisk::format(&dir.join(folder), &options).unwrap();
            }
            Self(dir)
        }

        fn cluster(&self) -> Cluster {
            Cluster::read(&self.0).unwrap()
        }

        fn refused(&self) -> String {
            self.cluster().check_targets().expect_err("refused").text
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    fn names(paths: &[PathBuf]) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        paths.iter().map(name).collect()
    }

    #[test]
    fn only_the_exact_names_are_targets_and_copies_beside_them_are_none() {
        let copies =
            ["mgt.old", "mdt0000-salvaged", "mdt0000.bak", "ost+001", "ost0001~", "ost001"];
        let targets = ["mgt", "mdt0000", "ost0000", "ost0001", "ost000a"];
        let all = copies.iter().map(|name| (*name, "ost0001"));
        let all: Vec<_> = all.chain(targets.iter().map(|name| (*name, *name))).collect();
        let dir = TestDir::with("copies", &all);
        fs::create_dir(dir.0.join("ostrich")).unwrap();
        let cluster = dir.cluster();
        assert_eq!(names(&cluster.targets()), targets);
        assert_eq!(names(&cluster.copies()), copies);
        let count = [TargetKind::Mdt, TargetKind::Ost].map(|kind| cluster.count(kind));
        assert_eq!(count, [1, 11], "as the indices say");
        cluster.check_targets().map_err(|fault| fault.text).unwrap();
    }

    #[test]
    fn a_directory_that_says_it_is_another_target_is_refused_with_both_paths() {
        for (folder, says) in [("ost0000", "ost0001"), ("mdt0000", "ost0000"), ("ost0002", "mgt")] {
            let dir = TestDir::with("mixed", &[("mgt", "mgt"), (folder, says)]);
            let said = dir.refused();
            for path in [folder, says] {
                let path = dir.0.canonicalize().unwrap().join(path);
                assert!(said.contains(&*path.to_string_lossy()), "{path:?}: {said}");
            }
        }
        let dir = TestDir::with("mixed", &[("mgt", "mgt"), ("mdt0000", "mdt0000")]);
        let mut cluster = dir.cluster();
        cluster.values.insert("fsname".to_owned(), "other".to_owned());
        let said = cluster.check_targets().expect_err("refused").text;
        assert!(said.contains("sheen-MDT0000, of another file system"), "{said}");
    }

    #[test]
    fn two_directories_of_one_target_are_refused_whatever_their_names() {
        let dir = TestDir::with("doubles", &[("a", "ost0001"), ("b", "ost0000"), ("c", "ost0001")]);
        let of = |names: &[&str]| {
            let plans = names.iter().map(|name| plans(&dir.0.join(name)).map_err(|it| it.text));
            let plans: Vec<Vec<Plan>> = plans.collect::<Result<_, _>>().unwrap();
            refuse_doubles(&plans.concat()).map_err(|fault| fault.text)
        };
        of(&["a", "b"]).unwrap();
        let said = of(&["a", "b", "c"]).expect_err("refused");
        for word in [&*dir.0.join("a").to_string_lossy(), &dir.0.join("c").to_string_lossy()] {
            assert!(said.contains(word) && said.contains("sheen-OST0001"), "{said}");
        }
    }
}
