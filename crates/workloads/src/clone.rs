//! The project's own repository, cloned and checked by git.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::must;
use crate::{Context, Outcome, ensure, root};

/// Clones the repository at the workspace's root into `top`, through git's own transport.
pub fn run(top: &Path) -> Outcome {
    let target = top.join("clone");
    let source = format!("file://{}", root().display());
    git(&["clone", "--quiet", &source, &target.to_string_lossy()], top)?;
    check(top)?;
    git(&["gc", "--quiet"], &target)?;
    check(top)
}

/// Checks every object of the clone below `top`, and its files against them.
pub fn check(top: &Path) -> Outcome {
    let target = top.join("clone");
    git(&["fsck", "--full", "--strict"], &target)?;
    let changed = git(&["status", "--porcelain"], &target)?;
    ensure(changed.is_empty(), || format!("files differ from what was cloned:\n{changed}"))?;
    let (own, theirs) =
        (git(&["rev-parse", "HEAD"], &target)?, git(&["rev-parse", "HEAD"], &root())?);
    ensure(own == theirs, || format!("cloned {own}, the source has {theirs}"))
}

fn git(arguments: &[&str], folder: &Path) -> Outcome<String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder);
    // The owner of a checkout in a container is often another user.
    command.env("GIT_CONFIG_COUNT", "1");
    command.env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    let log = tempfile("git")?;
    must(&mut command, &log, Duration::from_secs(900))
}

/// A name for the outputs of a program, outside the file system under test.
pub(super) fn tempfile(name: &str) -> Outcome<std::path::PathBuf> {
    let folder = root().join("target/e2e/logs");
    std::fs::create_dir_all(&folder).context(folder.display())?;
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    Ok(folder.join(format!("{name}-{}-{thread}", std::process::id())))
}
