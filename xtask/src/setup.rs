//! What a fresh Debian 12 lacks: system packages.

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
    ("chattr", "e2fsprogs"),
    ("setfacl", "acl"),
];

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
