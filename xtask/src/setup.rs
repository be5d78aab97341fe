//! What a fresh Debian 12 lacks: system packages.

use std::path::PathBuf;

use crate::shell::{Outcome, command, exists, run};

/// A program that is needed, the Debian package that has it.
type Need = (&'static str, &'static str);

/// To mount.
const MOUNT: &[Need] = &[("fusermount3", "fuse3")];

/// To run all tests besides.
const TEST: &[Need] = &[
    ("fusermount3", "fuse3"),
    ("cc", "gcc"),
    ("make", "make"),
    ("git", "git"),
    ("tshark", "tshark"),
    ("xz", "xz-utils"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("chattr", "e2fsprogs"),
    ("setfacl", "acl"),
    ("getfattr", "attr"),
    ("xfs_io", "xfsprogs"),
    ("fio", "fio"),
    ("pgbench", "postgresql"),
    ("stress-ng", "stress-ng"),
    ("dbench", "dbench"),
    ("chromium", "chromium"),
];

/// To build packages, and to look at their units.
const DIST: &[Need] = &[
    ("strip", "binutils"),
    ("git", "git"),
    ("dpkg-deb", "dpkg"),
    ("rpmbuild", "rpm"),
    ("systemd-analyze", "systemd"),
];

/// A suite that `cargo install` builds: its program and crate, and its version.
pub(crate) struct Suite(&'static str, &'static str);

/// Each call of POSIX, its effects and its errors.
pub(crate) const PJDFSTEST: Suite = Suite("pjdfstest", "0.2.2");
/// Random operations on one file.
pub(crate) const FSX: Suite = Suite("fsx", "0.3.2");

/// To measure: a FUSE file system that passes everything through, as the reference.
const BENCH: &[Need] = &[("fusermount3", "fuse3"), ("bindfs", "bindfs")];

/// Installs what `demo` needs, or says how.
pub(crate) fn for_mount() -> Outcome {
    install(MOUNT)
}

/// Installs what `test` needs, or says how.
pub(crate) fn for_test() -> Outcome {
    install(TEST)
}

/// Installs what `dist` needs, or says how.
pub(crate) fn for_dist() -> Outcome {
    install(DIST)
}

/// Installs suites of other projects that judge a file system; answers where their programs are.
///
/// They are built once, outside of this tree, in a folder named after their versions.
pub(crate) fn suites(wanted: &[Suite]) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let cache = cache.unwrap_or_else(std::env::temp_dir).join("sheen-suites");
    let versions = [PJDFSTEST, FSX].map(|Suite(name, version)| format!("{name}-{version}"));
    let root = cache.join(versions.join("-"));
    let bin = root.join("bin");
    for Suite(name, version) in wanted.iter().filter(|Suite(name, _)| !bin.join(name).is_file()) {
        let mut install = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        install.args(["install", "--quiet", "--locked", "--root"]).arg(&root);
        install.arg("--target-dir").arg(cache.join("target")).arg(format!("{name}@{version}"));
        // Not from this tree, whose toolchain and settings are not those of the suites.
        install.current_dir(std::env::temp_dir());
        run(install)?;
    }
    Ok(bin)
}

/// Installs what `bench` needs, or says how.
pub(crate) fn for_bench() -> Outcome {
    install(BENCH)
}

fn install(needs: &[Need]) -> Outcome {
    let missing: Vec<&str> =
        needs.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !rustix::process::geteuid().is_root() {
        return Err(format!("missing programs; run: sudo {line}"));
    }
    if !exists("apt-get") {
        return Err(format!(
            "missing programs, and no apt-get here; install: {}",
            missing.join(" ")
        ));
    }
    let mut update = command("apt-get");
    update.args(["-qq", "update"]);
    run(update)?;
    let mut install = command("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(line.split(' ').skip(1));
    run(install)
}
