//! pjdfstest: each call of POSIX, its effects and its errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::{Outcome, Told, ensure};

use crate::{installed, judged, written};

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
allow_remount = true
expected_failures = ["utimensat::subsecond"]

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// What the suite skips: the C library does not know what FUSE allows. A test of the MDT counts
/// links instead.
const SKIPPED: &str = "link::link_count_max";

#[test]
fn pjdfstest_passes() {
    scene("pjdfstest", 2, LIMIT, |cluster| {
        let program = installed("pjdfstest")?;
        let configuration = written(cluster, "pjdfstest.toml", CONFIGURATION)?;
        let other = cluster.logs().join("other");
        fs::create_dir(&other).told("a folder on another file system")?;
        let mut suite = Command::new(program);
        suite.arg("-c").arg(configuration).arg("-p").arg(cluster.mnt()).arg("-s").arg(other);
        suite.env("PATH", path_with_mount(cluster)?);
        let output = judged(cluster, "pjdfstest", &mut suite, LIMIT)?;
        let summary = output.lines().find(|line| line.contains("total")).unwrap_or_default();
        println!("{summary}");
        let skipped: Vec<&str> = output
            .lines()
            .filter(|line| line.contains("skipped") && !line.contains("total"))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        ensure(skipped == [SKIPPED], || format!("skipped: {skipped:?}"))?;
        ensure(output.lines().count() > 350, || format!("few cases: {summary}"))
    });
}

/// A path where `mount` is the system's without its helpers: `mount.fuse` takes a remount for a
/// first mount, while the kernel remounts by itself.
fn path_with_mount(cluster: &Cluster) -> Outcome<String> {
    let folder: PathBuf = cluster.logs().join("bin");
    fs::create_dir(&folder).told(folder.display())?;
    let script = folder.join("mount");
    fs::write(&script, "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").told(script.display())?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).told(script.display())?;
    let path = std::env::var("PATH").told("PATH")?;
    Ok(format!("{}:{path}", folder.display()))
}
