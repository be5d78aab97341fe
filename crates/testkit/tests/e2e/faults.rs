//! Wrong use: one clear line, the right exit code, nothing lost.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{play, scene};
use sheen_workloads::{Context, Outcome, ensure, plant, process, tree};

const LIMIT: Duration = Duration::from_secs(300);

/// Usage that the command line itself refuses.
const USAGE: i32 = 2;
/// A tool that Lustre has not.
const FAILED: i32 = 1;
// What fails when it is tried ends with the error's number, as Lustre's own tools do.
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ENAMETOOLONG: i32 = 36;
const EADDRINUSE: i32 = 98;

/// Words of a command, its exit code, and what one line of its output must hold. `DIR` and `MNT`
/// stand for the test's own, `EMPTY` for an empty folder, `FILE` for a file, `MGS` for the NID.
type Case = (&'static str, i32, &'static [&'static str]);

/// With nothing started.
const COLD: &[Case] = &[
    ("up --dir DIR --mount MNT --frobnicate", USAGE, &["--frobnicate"]),
    ("up --mount MNT", USAGE, &["--dir"]),
    ("frobnicate", USAGE, &["frobnicate"]),
    ("up --dir DIR --mount MNT --osts 0", USAGE, &["--osts"]),
    ("up --dir DIR --mount MNT --osts many", USAGE, &["--osts"]),
    ("up --dir DIR --mount MNT --mdts 0", USAGE, &["--mdts", "0 is not in 1..=32"]),
    ("up --dir DIR --mount MNT --mdts 33", USAGE, &["--mdts", "33 is not in 1..=32"]),
    ("up --dir DIR --mount MNT --fsname toolongname", EINVAL, &["toolongname", "1-8"]),
    ("up --dir DIR --mount MNT --fsname a/b", EINVAL, &["a/b", "not allowed"]),
    ("up --dir DIR --mount FILE", ENOTDIR, &["FILE", "directory"]),
    ("up --dir FILE --mount MNT", ENOTDIR, &["FILE", "directory"]),
    ("up --dir DIR --mount EMPTY/none/none", ENOENT, &["EMPTY/none/none", "make the directory"]),
    ("down --dir EMPTY", ENOENT, &["EMPTY", "sheen up"]),
    ("status --dir EMPTY", ENOENT, &["EMPTY", "sheen up"]),
    ("server --nid 127.0.0.98@tcp EMPTY", ENODEV, &["EMPTY", "mkfs.lustre"]),
    ("mount 127.0.0.99@tcp:sheen MNT", ENODEV, &["no ':/'", "expected"]),
    ("mount 127.0.0.99@bogus:/sheen MNT", EINVAL, &["Can't parse NID '127.0.0.99@bogus'"]),
    ("mount -o bogus 127.0.0.99@tcp:/sheen MNT", EINVAL, &["mount option 'bogus'"]),
    ("mount 127.0.0.99@tcp:/averylongname MNT", ENAMETOOLONG, &["File name too long"]),
    ("mount 127.0.0.99@tcp:/sheen", EINVAL, &["must be specified", "--help"]),
    ("mkfs.lustre --mgs FILE", ENOTDIR, &["FILE", "not a directory"]),
    ("mkfs.lustre --mgs --bogus EMPTY", EINVAL, &["--bogus"]),
    ("dump EMPTY/none.pcap", FAILED, &["EMPTY/none.pcap"]),
];

/// While a file system runs; it is unharmed after.
const RUNNING: &[Case] = &[
    ("mount MGS:/nosuchfs EMPTY", ENOENT, &["nosuchfs", "filesystem name"]),
    ("mount MGS:/sheen/nosuchdir EMPTY", ENOENT, &["nosuchdir", "No such file or directory"]),
    ("mount MGS:/sheen MNT", EEXIST, &["MGS:/sheen is already mounted on MNT"]),
    ("mkfs.lustre --mgs DIR/mgt", EBUSY, &["in use"]),
    ("mkfs.lustre --mgs --reformat DIR/mgt", EBUSY, &["in use"]),
    ("server --nid 127.0.0.98@tcp DIR/mgt", EBUSY, &["DIR/mgt", "in use"]),
    ("up --dir EMPTY --mount MNT", EBUSY, &["MNT", "already a mount point"]),
    ("up --dir DIR --mount EMPTY", EBUSY, &["MNT", "sheen down"]),
    ("up --dir DIR --mount MNT --fsname other", EINVAL, &["other", "sheen"]),
];

fn try_all(cluster: &Cluster, cases: &[Case]) -> Outcome {
    let empty = cluster.logs().join("empty");
    std::fs::create_dir_all(&empty).context(empty.display())?;
    let file = cluster.logs().join("file");
    std::fs::write(&file, b"a file").context(file.display())?;
    let (dir, mnt) = (cluster.dir(), cluster.mnt());
    let nid = process::text(&dir.join("run/mgs.nid"));
    let places = [("DIR", &dir), ("MNT", &mnt), ("EMPTY", &empty), ("FILE", &file)];
    let fill = |word: &str| {
        let word = word.replace("MGS", nid.trim());
        places.iter().fold(word, |word, (name, path)| word.replace(name, &path.to_string_lossy()))
    };
    let mut faults = Vec::new();
    for (line, code, wanted_words) in cases {
        let words: Vec<String> = line.split(' ').map(fill).collect();
        let finished = cluster.run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let wanted_words: Vec<String> = wanted_words.iter().map(|word| fill(word)).collect();
        let clear =
            finished.output.lines().any(|line| wanted_words.iter().all(|word| line.contains(word)));
        if finished.status.code() != Some(*code) || !clear {
            let status = finished.status;
            faults.push(format!(
                "sheen {line}\n  {status}, wanted {code} and {wanted_words:?}:\n{}",
                finished.output
            ));
        }
    }
    ensure(faults.is_empty(), || {
        format!("{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"))
    })
}

fn cold(name: &str) -> Arc<Cluster> {
    Arc::new(Cluster::prepare(name, 1, &[]).unwrap_or_else(|fault| panic!("{fault}")))
}

#[test]
fn wrong_use_is_refused_in_one_line() {
    play(&cold("faults-cold"), LIMIT, |cluster| try_all(cluster, COLD));
}

#[test]
fn wrong_use_leaves_a_running_file_system_alone() {
    scene("faults-running", 1, LIMIT, |cluster| {
        plant::run(&cluster.mnt())?;
        let before = tree::read(&cluster.mnt())?;
        try_all(cluster, RUNNING)?;
        tree::must_equal(&before, &tree::read(&cluster.mnt())?)
    });
}

#[test]
fn a_taken_port_is_named() {
    play(&cold("faults-port"), LIMIT, |cluster| {
        let taken = TcpListener::bind("0.0.0.0:0").context("a free port")?;
        let port = taken.local_addr().context("bound")?.port().to_string();
        let (dir, mnt) = (cluster.dir(), cluster.mnt());
        let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
        let words =
            ["up", "--dir", &dir, "--mount", &mnt, "--osts", "1", "--listen", "--port", &port];
        refused(cluster, &words, EADDRINUSE, &[&port, "--port"])?;
        drop(taken);
        cluster.up()
    });
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    scene("faults-format", 1, LIMIT, |cluster| {
        plant::run(&cluster.mnt())?;
        let before = tree::read(&cluster.mnt())?;
        cluster.down()?;
        let marks = format_marks(&cluster.dir())?;
        ensure(!marks.is_empty(), || "no target has a format version".to_owned())?;
        let (path, text) = &marks[0];
        let newer = text.replacen(|letter: char| letter.is_ascii_digit(), "99", 1);
        std::fs::write(path, newer).context(path.display())?;
        let (dir, mnt) = (cluster.dir(), cluster.mnt());
        let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
        refused(
            cluster,
            &["up", "--dir", &dir, "--mount", &mnt, "--osts", "1"],
            EINVAL,
            &["99", "format"],
        )?;
        std::fs::write(path, text).context(path.display())?;
        cluster.up()?;
        tree::must_equal(&before, &tree::read(&cluster.mnt())?)
    });
}

/// The files named like a format version, two levels below the directory of the targets.
fn format_marks(dir: &Path) -> Outcome<Vec<(std::path::PathBuf, String)>> {
    let mut found = Vec::new();
    for target in std::fs::read_dir(dir).context(dir.display())?.flatten() {
        for file in std::fs::read_dir(target.path()).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().to_lowercase();
            let text = process::text(&file.path());
            if (name.contains("format") || name.contains("version")) && !text.is_empty() {
                found.push((file.path(), text));
            }
        }
    }
    Ok(found)
}

#[test]
fn a_missing_fuse_device_is_named() {
    play(&cold("faults-fuse"), LIMIT, |cluster| {
        ensure(rustix::process::geteuid().is_root(), || {
            "hiding /dev/fuse needs root: run the tests as root".to_owned()
        })?;
        let (dir, mnt) = (cluster.dir(), cluster.mnt());
        let line = format!(
            "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && \
             exec {} up --dir {} --mount {} --osts 1",
            program()?.display(),
            dir.display(),
            mnt.display()
        );
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", &line]);
        command
            .envs(cluster.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let finished = process::run(&mut command, &cluster.logs().join("unshare"), LIMIT / 2)?;
        must_say(&finished, ENODEV, &["/dev/fuse"])?;
        cluster.up()
    });
}

fn refused(cluster: &Cluster, words: &[&str], code: i32, wanted_words: &[&str]) -> Outcome {
    must_say(&cluster.run(words)?, code, wanted_words)
}

fn must_say(finished: &process::Finished, code: i32, wanted_words: &[&str]) -> Outcome {
    let clear =
        finished.output.lines().any(|line| wanted_words.iter().all(|word| line.contains(word)));
    ensure(finished.status.code() == Some(code) && clear, || {
        format!("{}, wanted {code} and {wanted_words:?}:\n{}", finished.status, finished.output)
    })
}
