//! Load that checks itself: fio, stress-ng, dbench.

use std::fs;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::suites::{judged, written};
use sheen_workloads::{Context, Size};

const LIMIT: Duration = Duration::from_secs(1800);

/// What a normal run has time for, all at once.
const AT_ONCE: [&str; 18] = [
    "access",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "fallocate",
    "fcntl",
    "flock",
    "fpunch",
    "fstat",
    "iomix",
    "link",
    "lockf",
    "rename",
    "symlink",
    "touch",
    "utime",
];

/// Stressors of the class that ask for what is no part of a file system: other mounts, other kinds
/// of descriptors, and what Linux offers on few file systems and Lustre neither.
const NOT_OURS: &str =
    "bind-mount,binderfs,eventfd,fanotify,procfs,ioprio,inotify,dnotify,handle,verity";

/// Sequential and random, through pages and past them, four jobs each.
fn fio_job(cluster: &Cluster) -> String {
    let size = Size::asked().of("1m", "16m", "256m");
    let mut job = format!(
        "[global]\ndirectory={}\nsize={size}\nnumjobs=4\nverify=crc32c\nverify_fatal=1\n\
         do_verify=1\ngroup_reporting\n",
        cluster.mnt().display()
    );
    for (name, how) in [
        ("sequential", "rw=write\nbs=4k-1m"),
        ("random", "rw=randwrite\nbs=4k-128k"),
        ("sequential-direct", "rw=write\nbs=256k\ndirect=1"),
        ("random-direct", "rw=randwrite\nbs=16k\ndirect=1"),
    ] {
        job += &format!("[{name}]\nstonewall\n{how}\n");
    }
    job
}

#[test]
fn fio_verifies_what_it_wrote() {
    scene("fio", 2, LIMIT, |cluster| {
        let job = written(cluster, "verify.fio", &fio_job(cluster))?;
        let mut fio = Command::new("fio");
        fio.arg(job).current_dir(cluster.logs());
        judged(cluster, "fio", &mut fio, LIMIT).map(|_| ())
    });
}

#[test]
fn stress_ng_finds_nothing() {
    scene("stress-ng", 2, LIMIT, |cluster| {
        let top = cluster.mnt().join("stress");
        fs::create_dir(&top).context(top.display())?;
        let mut stress = Command::new("stress-ng");
        match Size::asked() {
            Size::Long => {
                stress.args(["--class", "filesystem", "--sequential", "2"]);
                stress.args(["--exclude", NOT_OURS, "--timeout", "16s"]);
            }
            Size::Normal | Size::Tiny => {
                AT_ONCE.iter().for_each(|it| _ = stress.arg(format!("--{it}")).arg("1"));
                stress.args(["--timeout", "30s"]);
            }
        }
        stress.args(["--verify", "--temp-path"]).arg(&top);
        stress.current_dir(cluster.logs());
        judged(cluster, "stress-ng", &mut stress, LIMIT).map(|_| ())
    });
}

#[test]
fn dbench_with_eight_clients() {
    scene("dbench", 2, LIMIT, |cluster| {
        let seconds = Size::asked().of("2", "10", "120");
        let mut dbench = Command::new("dbench");
        dbench.args(["-c", "/usr/share/dbench/client.txt", "-t", seconds]).arg("-D");
        dbench.arg(cluster.mnt()).arg("8");
        let output = judged(cluster, "dbench", &mut dbench, LIMIT)?;
        let throughput = output.lines().find(|line| line.starts_with("Throughput"));
        println!("{}", throughput.ok_or("dbench named no throughput")?);
        Ok(())
    });
}
