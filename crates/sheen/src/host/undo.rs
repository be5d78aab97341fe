//! What an `up` that fails undoes: what it made itself, and nothing that was there.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use sheen_types::text::bytes_of_shown;

use super::cluster::Cluster;
use super::cluster::PATIENCE;
use super::target::is_registered;
use super::{mount_source, rediscovery};
use sheen_tools::output::Fault;

/// Lines shown of a log that is removed with its directory.
const LINES: usize = 5;

/// What to undo.
#[derive(Default)]
pub(super) struct Undo {
    /// The directory and those above it, the innermost first: they go if nothing else is in them.
    above: Vec<PathBuf>,
    /// Directories of ours: what lies in them goes with them.
    made: Vec<PathBuf>,
    /// `run/cluster` as it was; `None` if it was not there.
    before: Option<String>,
    /// Its servers were started: they may have registered the targets they were given.
    started: bool,
    /// So was the configuration that they are registered in.
    is_new: bool,
    /// Nothing is undone any more.
    stays: bool,
    /// The address that was announced first now.
    announced: Option<PathBuf>,
    /// Folders of the user's processes that were not there: they go if nothing is in them.
    folders: Vec<PathBuf>,
}

impl Undo {
    /// Before anything is made for the file system in `directory`.
    pub(super) fn of(directory: &Path) -> Self {
        let before = fs::read_to_string(directory.join("run/cluster")).ok();
        let mut undo = Self { before, ..Self::default() };
        undo.folders = vec![mount_source::links(), super::sockets()];
        undo.folders.retain(|path| !path.exists());
        let above = directory.ancestors().take_while(|path| !path.as_os_str().is_empty());
        undo.above = above.take_while(|path| !path.exists()).map(Path::to_owned).collect();
        undo.will_make(&directory.join("run"));
        undo
    }

    /// Call before a directory is made.
    pub(super) fn will_make(&mut self, path: &Path) {
        if !path.exists() {
            self.made.push(path.to_owned());
        }
    }

    /// Call before a target is formatted.
    pub(super) fn will_format(&mut self, path: &Path, is_mgt: bool) {
        self.will_make(path);
        self.is_new |= is_mgt;
    }

    /// Call before servers are started.
    pub(super) fn will_start(&mut self) {
        self.started = true;
    }

    /// Whether servers were started.
    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    /// They stay, and with them all that was made for them.
    pub(super) fn leave_servers(&mut self) {
        self.stays = true;
    }

    /// Call before an address is announced.
    pub(super) fn will_announce(&mut self, link: PathBuf) {
        if fs::symlink_metadata(&link).is_err() {
            self.announced = Some(link);
        }
    }

    /// Undoes all, because of `fault`; returns it, with the ends of the logs that are removed.
    pub(super) fn run(self, cluster: Option<&Cluster>, mut fault: Fault) -> Fault {
        if self.stays {
            return fault;
        }
        if let Some(cluster) = cluster.filter(|_| self.started) {
            cluster.server().stop(PATIENCE);
        }
        if let Some(link) = &self.announced {
            mount_source::forget(link);
        }
        for path in &self.folders {
            // Another command may use it by now.
            let _ = fs::remove_dir(path);
        }
        // What is registered by a configuration that stays has to stay, too.
        let all_goes = !self.started || self.is_new;
        let goes = |path: &&PathBuf| all_goes || is_registered(path).is_ok_and(|it| !it);
        let gone: Vec<PathBuf> = self.made.iter().filter(goes).cloned().collect();
        for path in &gone {
            keep_log(path, &mut fault);
            // What cannot be removed is where it was made, and the fault that is reported matters more.
            let _ = fs::remove_dir_all(path);
        }
        for path in self.above.iter().filter(|_| all_goes) {
            let _ = fs::remove_dir(path);
        }
        if let Some(cluster) = cluster.filter(|_| !all_goes) {
            // With the note they are asked of the MGS, which does not know them.
            let _ = rediscovery::forget(&cluster.mgt(), &gone);
        }
        if let Some(cluster) = cluster.filter(|cluster| cluster.run().exists()) {
            cluster.restore(self.before.as_deref());
        }
        fault
    }
}

/// If the fault refers to a log that is about to be removed, the end of the log becomes part of the fault.
fn keep_log(below: &Path, fault: &mut Fault) {
    let Some((said, log)) = fault.text.rsplit_once("; see ") else { return };
    let log = PathBuf::from(OsString::from_vec(bytes_of_shown(log.as_bytes())));
    if !log.starts_with(below) {
        return;
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(LINES)..];
    fault.text = format!("{said}: {}", end.join("; "));
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use sheen_store_disk::{Config, FormatOptions, StoreDisk};
    use sheen_tools::output::shown_path;
    use sheen_types::Errno;

    use super::super::folders::of_folder;
    use super::super::target::REGISTERED;
    use super::*;

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let top = std::env::temp_dir().join(format!("sheen-undo-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let directory = top.join(OsStr::from_bytes(b"a/b/f\xff\n\\s"));
        let undo = Undo::of(&directory);
        fs::create_dir_all(directory.join("run")).unwrap();
        fs::write(directory.join("run/server.log"), "one\ntwo\n").unwrap();
        let log = directory.join("run/server.log");
        let fault = Fault::new(Errno::EIO, format!("it died; see {}", shown_path(&log)));
        assert_eq!(undo.run(None, fault).text, "it died: one; two");
        assert!(!top.join("a").exists());
        let undo = Undo::of(&directory);
        fs::create_dir_all(directory.join("run")).unwrap();
        // Another user of the directory above meanwhile.
        fs::create_dir_all(top.join("a/other")).unwrap();
        undo.run(None, Fault::new(Errno::EIO, "no reason"));
        assert!(top.join("a/other").exists() && !top.join("a/b").exists());
        fs::create_dir_all(directory.join("run")).unwrap();
        let mut undo = Undo::of(&directory);
        undo.will_format(&directory.join("mgt"), true);
        fs::create_dir_all(directory.join("mgt")).unwrap();
        undo.run(None, Fault::new(Errno::EIO, "no reason"));
        assert!(directory.join("run").exists() && !directory.join("mgt").exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn of_what_an_older_file_system_got_that_goes_which_has_not_registered() {
        let top = std::env::temp_dir().join(format!("sheen-undo-added-{}", std::process::id()));
        let folders = ["mgt", "mdt0000", "mdt0001", "mdt0002"].map(|name| top.join(name));
        fs::create_dir_all(top.join("run")).unwrap();
        let mut undo = Undo::of(&top);
        undo.will_format(&folders[2], false);
        undo.will_format(&folders[3], false);
        undo.will_start();
        for folder in &folders {
            let name = folder.file_name().unwrap().to_string_lossy();
            let config = of_folder(&name, "sheen").unwrap();
            let (label, config) = (config.name(), config.to_values());
            let options = FormatOptions { label, config, ..FormatOptions::default() };
            StoreDisk::format(folder, &options).unwrap();
        }
        let mut config = Config::load(&folders[3]).unwrap();
        config.values.insert(REGISTERED.to_owned(), "1".to_owned());
        config.save(&folders[3]).unwrap();
        let address = ("10.0.0.1@tcp".parse().unwrap(), 988);
        rediscovery::note(&folders[0], address, &folders).unwrap();
        let cluster = Cluster::read(&top).unwrap();
        undo.run(Some(&cluster), Fault::new(Errno::EIO, "no reason"));
        assert_eq!(folders.each_ref().map(|it| it.exists()), [true, true, false, true]);
        let known = rediscovery::targets(&folders[0]).unwrap();
        assert_eq!(known, ["mgt", "mdt0000", "mdt0002"]);
        fs::remove_dir_all(top).unwrap();
    }
}
