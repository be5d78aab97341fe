//! Test executables side by side: `cargo test` runs one after the other, and where one waits for a disk or has one long
//! test, processors are idle.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde::Deserialize;

use crate::shell::{self, cargo};

/// A test executable as cargo has built it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    pub(crate) path: PathBuf,
    /// The package's folder, in which its tests run.
    pub(crate) folder: PathBuf,
    /// A package's own `src`, or a file of its `tests`.
    is_unit: bool,
}

/// What is read of cargo's messages (`--message-format=json`).
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: PathBuf,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// What one has printed, and whether it succeeded.
pub(crate) struct Finished {
    pub(crate) path: PathBuf,
    pub(crate) output: String,
    pub(crate) is_success: bool,
}

/// Builds the tests that `arguments` choose.
///
/// # Errors
/// They cannot be built.
pub(crate) fn build(arguments: &[&str]) -> Result<Vec<Executable>, String> {
    let mut command = cargo(&["test", "--no-run", "--profile", shell::Profile::Gate.name()]);
    command.arg("--message-format=json-render-diagnostics");
    command.args(arguments).stderr(Stdio::inherit());
    let shown = shell::show(&command);
    eprintln!("$ {shown}");
    let built = command.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if !built.status.success() {
        return Err(format!("{shown}: {}", built.status));
    }
    match listed(&String::from_utf8_lossy(&built.stdout)) {
        none if none.is_empty() => Err(format!("{shown}: names no test executable")),
        all => Ok(all),
    }
}

/// The test executables in cargo's messages. Those of `tests` come first: they take longest, and the end is reached
/// sooner when it is short ones that are left.
fn listed(messages: &str) -> Vec<Executable> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut all: Vec<_> = artifacts
        .filter(|artifact| artifact.profile.test)
        .map(|artifact| Executable {
            folder: artifact.manifest_path.parent().unwrap_or(Path::new("/")).to_owned(),
            is_unit: artifact.target.kind.iter().all(|kind| kind != "test"),
            path: artifact.executable,
        })
        .collect();
    all.sort_by_key(|executable| executable.is_unit);
    all
}

/// Runs `all`, `at_once` at the same time; `prepare` gives each command its arguments and environment. What one has
/// printed is shown and handed to `finished` when it has ended.
pub(crate) fn run(
    all: Vec<Executable>,
    at_once: usize,
    prepare: impl Fn(&mut Command) + Sync,
    finished: impl FnMut(Finished) + Send,
) {
    let queue = Mutex::new(VecDeque::from(all));
    let finished = Mutex::new(finished);
    let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop_front();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(executable) = next() {
                    let one = run_one(executable, &prepare);
                    let mut finished =
                        finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    // Our own output is closed: then no reader misses it.
                    let _ = writeln!(
                        std::io::stdout(),
                        "     Running {}\n{}",
                        one.path.display(),
                        one.output
                    );
                    finished(one);
                }
            });
        }
    });
}

impl Executable {
    /// What runs its tests, as cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = shell::with_default_signals(&Command::new(&self.path));
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.stdin(Stdio::null());
        command
    }
}

fn run_one(executable: Executable, prepare: impl Fn(&mut Command)) -> Finished {
    let mut command = executable.command();
    let path = executable.path;
    prepare(&mut command);
    match command.output() {
        Ok(done) => {
            let text = [done.stdout, done.stderr].concat();
            let output = String::from_utf8_lossy(&text).into_owned();
            Finished { path, output, is_success: done.status.success() }
        }
        Err(error) => Finished { path, output: format!("cannot run: {error}"), is_success: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":true},"executable":"/w/target/a-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/w/crates/b/Cargo.toml","target":{"kind":["bin"],"name":"b"},"profile":{"test":false},"executable":"/w/target/b"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"kind":["test"],"name":"long"},"profile":{"test":true},"executable":"/w/target/long-1"}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn tests_are_listed_those_of_folders_first() {
        let folder = PathBuf::from("/w/crates/a");
        let of =
            |path: &str, is_unit| Executable { path: path.into(), folder: folder.clone(), is_unit };
        assert_eq!(listed(MESSAGES), [of("/w/target/long-1", false), of("/w/target/a-1", true)]);
    }

    #[test]
    fn each_is_run_once_in_its_folder_and_its_output_is_kept() {
        let of = |path: &str| Executable { path: path.into(), folder: "/".into(), is_unit: true };
        let mut seen = Vec::new();
        let all = vec![of("/bin/pwd"), of("/bin/false"), of("/bin/pwd"), of("/nonexistent")];
        run(all, 2, |_| {}, |one| seen.push((one.output, one.is_success)));
        seen.sort();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[1..3], [("/\n".to_owned(), true), ("/\n".to_owned(), true)]);
        assert_eq!(seen[0], (String::new(), false));
        assert!(seen[3].0.contains("No such file") && !seen[3].1, "{seen:?}");
    }
}
