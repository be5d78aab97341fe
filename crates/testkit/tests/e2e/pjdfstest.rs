//! pjdfstest: each call of POSIX, its effects and its errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{scene, striped_scene};
use sheen_testkit::suites::{folder, installed, judged, written};
use sheen_workloads::{Context, Outcome, Size, ensure};

const LIMIT: Duration = Duration::from_secs(900);

/// Two users that every Debian has. Times have whole seconds, so a nap is a little longer; what
/// fails is one line of docs/SEMANTICS.md, and passing unexpectedly is a failure too.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 1.1
expected_failures = ["utimensat::subsecond"]

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// A part of the suite.
struct Part {
    name: &'static str,
    settings: &'static str,
    arguments: &'static [&'static str],
    cases_min: usize,
    may_skip: fn(&str) -> bool,
}

/// All that needs no remount. The C library does not know how many links FUSE allows; a test of the
/// MDT counts them instead.
const ALL: Part = Part {
    name: "all",
    settings: "allow_remount = false",
    arguments: &[],
    cases_min: 380,
    may_skip: |case| case.contains("::erofs_") || case == "link::link_count_max",
};

/// What remounts read-only, which the kernel refuses while a case before has left a file open.
const READ_ONLY: Part = Part {
    name: "read-only",
    settings: "allow_remount = true",
    arguments: &["erofs_"],
    cases_min: 13,
    may_skip: |_| false,
};

#[test]
fn pjdfstest_passes() {
    if folder().is_none() {
        return sheen_skip::skip(
            "pjdfstest is not installed: `cargo xtask test --only e2e` does so",
        );
    }
    scene("pjdfstest", 2, LIMIT, |cluster| {
        // What remounts needs a mount point.
        let parts = if cluster.is_striped() { &[ALL][..] } else { &[READ_ONLY, ALL] };
        run_all(cluster, parts)
    });
}

/// In a long run: on four MDTs, and in two stripes on each of two.
#[test]
fn pjdfstest_passes_in_a_directory_in_stripes() {
    if folder().is_none() || Size::asked().of(0, 0, 1) == 0 {
        return println!("it takes two minutes each, for a long run that has pjdfstest");
    }
    for striping in ["4", "4/2"] {
        // As short a name as the other one's: sockets have paths of at most 107 bytes.
        striped_scene("pjdstripe", striping, LIMIT, |cluster| run_all(cluster, &[ALL]));
    }
}

fn run_all(cluster: &Cluster, parts: &[Part]) -> Outcome {
    let path = path_with_mount(cluster)?;
    let other = cluster.logs().join("other");
    fs::create_dir(&other).context("a folder on another file system")?;
    parts.iter().try_for_each(|part| run(cluster, part, &path, &other))
}

fn run(cluster: &Cluster, part: &Part, path: &str, other: &Path) -> Outcome {
    let text = CONFIGURATION.replace("[settings]", &format!("[settings]\n{}", part.settings));
    let configuration = written(cluster, &format!("{}.toml", part.name), &text)?;
    let mut suite = Command::new(installed("pjdfstest")?);
    suite.arg("-c").arg(configuration).arg("-p").arg(cluster.mnt()).arg("-s").arg(other);
    suite.args(part.arguments).env("PATH", path);
    let output = judged(cluster, part.name, &mut suite, LIMIT)?;
    println!("{}", output.lines().find(|line| line.contains("total")).unwrap_or_default());
    let cases = output.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first().is_some_and(|it| it.contains("::")).then_some(words)
    });
    let (skipped, done): (Vec<_>, Vec<_>) = cases.partition(|words| words.ends_with(&["skipped"]));
    ensure(skipped.iter().all(|words| (part.may_skip)(words[0])), || format!("{skipped:?}"))?;
    ensure(done.len() >= part.cases_min, || format!("only {} cases", done.len()))
}

/// A path where `mount` is the system's without its helpers: `mount.fuse` takes a remount for a
/// first mount, while the kernel remounts by itself.
fn path_with_mount(cluster: &Cluster) -> Outcome<String> {
    let folder: PathBuf = cluster.logs().join("bin");
    fs::create_dir(&folder).context(folder.display())?;
    let script = folder.join("mount");
    fs::write(&script, "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").context(script.display())?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).context(script.display())?;
    let path = std::env::var("PATH").context("PATH")?;
    Ok(format!("{}:{path}", folder.display()))
}
