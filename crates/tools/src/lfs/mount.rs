//! The mounts of this machine, as their processes report them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sheen_control::Client;
use sheen_types::Errno;
use sheen_types::text::bytes_of_shown;

use crate::home::{self, Home};
use crate::origins;
use crate::output::{Fault, errno_of, shown, shown_path, worst};
use crate::processes::{self, Failure, command};
use sheen_control::api::{MOUNT_INFO, MountInfo};

/// How to ask a mount.
enum Way {
    /// Over the control socket of its process, which is ours, or we are root.
    Process(Client),
    /// Through the mount itself, which is another user's.
    Inside(PathBuf),
}

/// A mount and the process behind it.
pub(super) struct Mount {
    way: Way,
    /// What the process reports.
    pub(super) info: MountInfo,
}

/// How long a mount may take to say who it is, for which it asks no other process.
const SIGN_WAIT: Duration = Duration::from_secs(15);
/// How long it may take for another answer, for which it may have to ask a server that is away.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// The mounts that a command is for.
pub(super) struct Mounts {
    answering: Vec<Mount>,
    /// Why the first of those that do not answer does not. A line has named each.
    failed: Option<Errno>,
}

impl Mounts {
    /// Whether there are none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.answering.is_empty() && self.failed.is_none()
    }

    /// Does `work` with each. One that fails gets a line, and the other ones are done.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn each(
        self,
        command: &str,
        mut work: impl FnMut(&mut Mount) -> Result<(), Failure>,
    ) -> Result<(), Fault> {
        let mut first = self.failed;
        for mut mount in self.answering {
            if let Err((errno, text)) = work(&mut mount) {
                eprintln!("lfs {command}: {text}");
                first = first.or(Some(errno));
            }
        }
        worst(first)
    }
}

/// Who answers a question through a mount.
type Ask = fn(&Path, &str) -> Result<String, Errno>;

/// Asks mounts through themselves, all at once, and waits `patience` for each answer after the one before it. The kernel
/// waits for a process that stands still as long as that does: this does not.
fn ask_inside(
    paths: &[PathBuf],
    question: &str,
    patience: Duration,
    ask: Ask,
) -> Vec<Result<String, Errno>> {
    let mut answers = vec![Err(Errno::ETIMEDOUT); paths.len()];
    let (sender, answered) = mpsc::channel();
    for (number, path) in paths.iter().enumerate() {
        let (path, question, sender) = (path.clone(), question.to_owned(), sender.clone());
        let work = move || _ = sender.send((number, ask(&path, &question)));
        if let Err(error) = std::thread::Builder::new().spawn(work) {
            answers[number] = Err(errno_of(&error));
        }
    }
    drop(sender);
    // It ends with the last answer, or without one for so long.
    while let Ok((number, answer)) = answered.recv_timeout(patience) {
        answers[number] = answer;
    }
    answers
}

/// Asks mounts through themselves who they are, all at once. Those of other users that do not let us in, and what is
/// no mount of ours, are left out without a word.
fn sign_inside(paths: Vec<PathBuf>, patience: Duration, ask: Ask) -> Mounts {
    let answers = ask_inside(&paths, MOUNT_INFO, patience, ask);
    let mut mounts = Mounts { answering: Vec::new(), failed: None };
    for (path, answer) in paths.into_iter().zip(answers) {
        match answer {
            Ok(text) => {
                let info: Option<MountInfo> = serde_json::from_str(&text).ok();
                // Another user's process may claim to be elsewhere; the kernel does not.
                let info = info.map(|info| MountInfo { path: shown_path(&path), ..info });
                mounts.answering.extend(info.map(|info| Mount { info, way: Way::Inside(path) }));
            }
            Err(errno @ (Errno::ENOTCONN | Errno::ECONNABORTED | Errno::ETIMEDOUT)) => {
                eprintln!("{}: {errno}: the mount is left out", shown_path(&path));
                mounts.failed = mounts.failed.or(Some(errno));
            }
            Err(_) => {}
        }
    }
    mounts
}

impl Mount {
    /// Every mount that answers: those whose processes we may ask, and those of other users that we may use.
    pub(super) fn all() -> Mounts {
        Self::all_at(|_| true)
    }

    /// As [`Mounts::all`], of those mount points that are `wanted`.
    fn all_at(wanted: impl Fn(&Path) -> bool) -> Mounts {
        let mount = |mut process: Client| {
            let text = command(&mut process, MOUNT_INFO, &[]).ok()?;
            let mut info: MountInfo = serde_json::from_str(&text).ok()?;
            // The process of an earlier version has it as it is.
            info.path = sheen_types::text::shown(&bytes_of_shown(info.path.as_bytes()));
            Some(Self { info, way: Way::Process(process) })
        };
        let mut all: Vec<Self> = processes::all().into_iter().filter_map(mount).collect();
        // Root's processes answer root, and the kernel keeps root out of what a user keeps for himself.
        let is_root = rustix::process::geteuid().is_root();
        let table = if is_root {
            Vec::new()
        } else {
            std::fs::read("/proc/self/mounts").unwrap_or_default()
        };
        let mut paths = mounted(&table);
        paths.retain(|path| wanted(path) && all.iter().all(|it| it.info.point() != *path));
        let Mounts { answering, failed } = sign_inside(paths, SIGN_WAIT, sheen_fuse::question);
        all.extend(answering);
        if let Some(home) = home::chosen() {
            all.retain(|mount| home.is(&Home::of_source(&mount.info.source)));
        }
        Mounts { answering: all, failed }
    }

    /// A mount of the file system of this name, if there is one.
    ///
    /// # Errors
    /// Several file systems have the name: which is meant.
    pub(super) fn named(command: &str, fsname: &str) -> Result<Option<Self>, Fault> {
        let mut mounts = Self::all().answering;
        mounts.retain(|mount| mount.info.fsname == fsname);
        let homes = origins::distinct(mounts.iter_mut().map(Self::home));
        match homes.len() {
            0 | 1 => Ok(mounts.into_iter().next()),
            _ => Err(origins::ask(command, &homes)),
        }
    }

    fn home(&mut self) -> Option<Home> {
        match &mut self.way {
            Way::Process(process) => home::home(process),
            Way::Inside(_) => Some(Home::of_source(&self.info.source)),
        }
    }

    /// The mount that `path` lies on.
    ///
    /// # Errors
    /// What resolving the path met; ENODEV if it lies on no mount of ours.
    pub(super) fn of(path: &Path) -> Result<Self, Errno> {
        let path = std::fs::canonicalize(path).map_err(|error| errno_of(&error))?;
        let mounts = Self::all_at(|point| path.starts_with(point));
        let (mut mounts, failed) = (mounts.answering, mounts.failed);
        let paths: Vec<PathBuf> = mounts.iter().map(|mount| mount.info.point()).collect();
        let number = longest_prefix(&paths, &path);
        let number = number.ok_or(failed.unwrap_or(Errno::ENODEV))?;
        Ok(mounts.swap_remove(number))
    }

    /// The mount that `path` lies on; without one, all.
    pub(super) fn chosen(path: Option<&Path>) -> Result<Mounts, Errno> {
        match path {
            Some(path) => {
                Self::of(path).map(|mount| Mounts { answering: vec![mount], failed: None })
            }
            None => Ok(Self::all()),
        }
    }

    /// Runs a command in the mount's process.
    pub(super) fn command(&mut self, name: &str, arguments: &[&str]) -> Result<String, Failure> {
        match &mut self.way {
            // Another user's process may say anything to root.
            Way::Process(process) => {
                command(process, name, arguments).map_err(|(errno, text)| (errno, shown(&text)))
            }
            Way::Inside(path) => {
                let failed = |errno: Errno| (errno, format!("{}: {errno}", shown_path(&*path)));
                let words: Vec<&str> = [name].iter().chain(arguments).copied().collect();
                let question = words.join(" ");
                let asked = [path.clone()];
                let mut answers = ask_inside(&asked, &question, ANSWER_WAIT, sheen_fuse::question);
                answers.pop().unwrap_or(Err(Errno::EIO)).map_err(failed)
            }
        }
    }

    /// Runs a command whose answer is JSON.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        name: &str,
        arguments: &[&str],
    ) -> Result<T, Failure> {
        let text = self.command(name, arguments)?;
        let odd = |error| (Errno::EPROTO, format!("cannot read the answer to {name}: {error}"));
        let answer = serde_json::from_str(&text).map_err(odd)?;
        serde_json::from_value(shown_in(answer)).map_err(odd)
    }
}

/// What another user's process may have answered, with all its texts as they are shown: names of targets and pools.
fn shown_in(answer: Value) -> Value {
    match answer {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(shown_in).collect()),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(name, value)| (shown(&name), shown_in(value))).collect(),
        ),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

/// The mount points in `/proc/self/mounts` that may be ours: those of our type, and of older
/// versions those of FUSE whose device is `NID:/FSNAME`.
fn mounted(table: &[u8]) -> Vec<PathBuf> {
    let point = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let (source, path, kind) = (words.next()?, words.next()?, words.next()?);
        let (source, kind) = (str::from_utf8(source).ok()?, str::from_utf8(kind).ok()?);
        let (nids, _) = source.split_once(":/")?;
        let is_ours = kind == "fuse.lustre" || kind.starts_with("fuse") && nids.contains('@');
        is_ours.then(|| OsString::from_vec(bytes_of_shown(path)).into())
    };
    table.split(|byte| *byte == b'\n').filter_map(point).collect()
}

/// A mount may lie below another one: the longest path wins.
fn longest_prefix(mounts: &[PathBuf], path: &Path) -> Option<usize> {
    let above = (0..mounts.len()).filter(|number| path.starts_with(&mounts[*number]));
    above.max_by_key(|number| mounts[*number].components().count())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Stands for the kernel: a mount whose process stands still, one whose connection was aborted, one of another
    /// user's, one that answers.
    fn kernel(path: &Path, _: &str) -> Result<String, Errno> {
        let info = r#"{"path":"/good","fsname":"l","uuid":"u","instance":"i","source":"1@tcp:/l"}"#;
        match path.to_str() {
            Some("/stopped") => loop {
                std::thread::park();
            },
            Some("/aborted") => Err(Errno::ENOTCONN),
            Some("/private") => Err(Errno::EACCES),
            _ => Ok(info.to_owned()),
        }
    }

    #[test]
    fn mounts_that_do_not_answer_are_left_out_and_are_the_first_error() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let asked = |of: &[&str]| sign_inside(paths(of), Duration::from_millis(200), kernel);
        let shown = |mounts: Mounts| {
            let mut shown = Vec::new();
            let done = mounts.each("df", |mount| {
                shown.push(mount.info.path.clone());
                Ok(())
            });
            (shown, done.err().map(|fault| fault.code))
        };
        let good = vec!["/good".to_owned()];
        let code = |errno: Errno| u8::try_from(errno.0).ok();
        let all = asked(&["/stopped", "/private", "/aborted", "/good"]);
        assert_eq!(shown(all), (good.clone(), code(Errno::ETIMEDOUT)));
        assert_eq!(shown(asked(&["/aborted", "/good"])), (good.clone(), code(Errno::ENOTCONN)));
        assert_eq!(shown(asked(&["/private", "/good"])), (good, None));
        assert!(asked(&["/private"]).is_empty() && !asked(&["/aborted"]).is_empty());
    }

    #[test]
    fn what_another_users_mount_answers_commands_no_terminal() {
        let answer = r#"[{"uuid":"fs-OST0000\u001b[2J","pools":{"a\nb":["\u0007",1,null,true]}}]"#;
        let shown = shown_in(serde_json::from_str(answer).unwrap());
        let text = r#"[{"uuid":"fs-OST0000\\033[2J","pools":{"a\\012b":["\\007",1,null,true]}}]"#;
        assert_eq!(shown, serde_json::from_str::<Value>(text).unwrap());
        // It is where the kernel has it, whatever it claims.
        let mounts = sign_inside(vec!["/good\u{1b}".into()], SIGN_WAIT, kernel);
        let info = &mounts.answering[0].info;
        assert_eq!((&*info.path, info.point()), ("/good\\033", "/good\u{1b}".into()));
    }

    #[test]
    fn one_mount_that_fails_does_not_keep_the_next_one_from_being_shown() {
        let mounts = sign_inside(vec!["/a".into(), "/b".into()], SIGN_WAIT, kernel);
        let mut count = 0;
        let done = mounts.each("df", |_| {
            count += 1;
            Err((if count == 1 { Errno::EIO } else { Errno::ENODEV }, "it fails".to_owned()))
        });
        assert_eq!((count, done), (2, Err(Fault::reported(Errno::EIO))));
    }

    #[test]
    fn mounts_are_found_in_the_kernels_table() {
        let table = b"proc /proc proc rw 0 0\nme@host:/ /mnt/ssh fuse.sshfs rw 0 0\n\
                     1@tcp:/l /mnt/my\\040files fuse rw,nosuid 0 0\nserver1:/l /mnt/\xe9 fuse.lustre rw 0 0\n";
        let found: [&[u8]; 3] = [b"/mnt/ssh", b"/mnt/my files", b"/mnt/\xe9"];
        assert_eq!(mounted(table), found.map(|bytes| PathBuf::from(OsStr::from_bytes(bytes))));
    }

    #[test]
    fn the_innermost_mount_is_taken() {
        let mounts = ["/mnt/l".into(), "/mnt/l/inner".into(), "/mnt/lustre".into()];
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/l/inner/f")), Some(1));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/l/inn")), Some(0));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/lustre")), Some(2));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt")), None);
    }
}
