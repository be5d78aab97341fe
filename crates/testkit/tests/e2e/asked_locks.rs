//! Locks that programs ask for: group locks, and locks ahead of use. The programs are scripts in Perl, whose `ioctl`
//! passes a pointer to a string.
#![allow(clippy::disallowed_methods, reason = "programs run side by side, in real time")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, chown};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(20);

/// As the recorded n7-lockahead-group-two-mounts has it.
const GROUPS: &str = r#"
use Fcntl;
use IO::Handle;
sub report { my ($what, $done) = @_; print "$what: ", $done ? "ok" : "errno " . ($!+0), "\n"; }
sub get { my ($file, $gid) = @_; return ioctl($file, 0x4008669e, my $arg = pack("Q", $gid)); }
sub put { my ($file, $gid) = @_; return ioctl($file, 0x4008669f, my $arg = pack("Q", $gid)); }
sysopen(my $m1, "$ARGV[0]/g", O_RDWR | O_CREAT) or die $!;
sysopen(my $m2, "$ARGV[1]/g", O_RDWR) or die $!;
sysopen(my $m2n, "$ARGV[1]/g", O_RDWR | O_NONBLOCK) or die $!;
report("m1 gid 7", get($m1, 7));
report("m1 gid 7 again", get($m1, 7));
report("m2 nonblock gid 8", get($m2n, 8));
report("m2 nonblock gid 7", get($m2n, 7));
syswrite($m1, "1" x 8192) == 8192 or die $!;
sysseek($m2n, 8192, 0);
syswrite($m2n, "2" x 8192) == 8192 or die $!;
print "m1 size: ", -s $m1, "\n";
# Members agree among themselves: what one has not flushed another cannot cut.
$m2n->sync or die $!;
truncate($m1, 12288) or die $!;
report("m2 put 7", put($m2n, 7));
report("m1 put 8", put($m1, 8));
report("m1 put 7", put($m1, 7));
report("m2 blocking gid 9", get($m2, 9));
report("m2 put 9", put($m2, 9));
report("m1 put 7 again", put($m1, 7));
report("m1 gid 0", get($m1, 0));
sysopen(my $dir, $ARGV[0], O_RDONLY) or die $!;
report("directory", get($dir, 7));
"#;

const GROUPS_SAY: &str = "\
m1 gid 7: ok
m1 gid 7 again: errno 22
m2 nonblock gid 8: errno 11
m2 nonblock gid 7: ok
m1 size: 16384
m2 put 7: ok
m1 put 8: errno 22
m1 put 7: ok
m2 blocking gid 9: ok
m2 put 9: ok
m1 put 7 again: errno 22
m1 gid 0: errno 22
directory: errno 25
";

/// Takes the group lock 7, and writes and ends when a line comes.
const HOLDER: &str = r#"
use Fcntl;
sysopen(my $file, $ARGV[0], O_RDWR) or die $!;
ioctl($file, 0x4008669e, my $arg = pack("Q", 7)) or die $!;
$| = 1;
print "held\n";
<STDIN>;
syswrite($file, "g" x 4096) == 4096 or die $!;
"#;

fn perl(script: &str, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new("perl").args(["-e", script]).args(arguments).output();
    let output = output.context("perl")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure(output.status.success(), || format!("{}: {said}{errors}", output.status))?;
    Ok(said)
}

#[test]
fn group_locks_are_shared_by_group_as_recorded() {
    scene("asked-group", 2, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let (first, second) = (cluster.mnt(), other);
        cluster.must(&[
            "lfs",
            "setstripe",
            "-c",
            "2",
            "-S",
            "64k",
            &format!("{}/g", first.display()),
        ])?;
        let said = perl(GROUPS, &[&first.to_string_lossy(), &second.to_string_lossy()])?;
        ensure(said == GROUPS_SAY, || said.clone())?;
        for mount in [&first, &second] {
            let read = fs::read(mount.join("g")).context("read")?;
            let expected = [vec![b'1'; 8192], vec![b'2'; 4096]].concat();
            ensure(read == expected, || format!("other bytes at {}", mount.display()))?;
        }
        same_after_restart(cluster)
    });
}

#[test]
fn other_users_wait_for_a_group_lock_that_ends_with_its_open_file() {
    scene("asked-group-users", 2, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let (path, theirs) = (cluster.mnt().join("g"), other.join("g"));
        fs::write(&path, [b'0'; 8192]).context("write")?;
        let mut holder = Command::new("perl");
        holder.args(["-e", HOLDER]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().context("perl")?;
        let mut line = [0; 5];
        let out = holder.stdout.as_mut().ok_or("no output")?;
        std::io::Read::read_exact(out, &mut line).context("held")?;
        for blocked in [&path, &theirs] {
            let mut dd = Command::new("timeout");
            // What a killed program has begun may be done nevertheless.
            dd.args(["2", "dd", "if=/dev/zero", "bs=4k", "count=1", "seek=1", "conv=notrunc"]);
            let dd = dd.arg(format!("of={}", blocked.display())).stderr(Stdio::null()).status();
            let code = dd.context("dd")?.code();
            ensure(code == Some(124), || format!("{}: {code:?}", blocked.display()))?;
        }
        let reader = thread::spawn(move || fs::read(theirs));
        thread::sleep(Duration::from_secs(1));
        ensure(!reader.is_finished(), || "a reader did not wait".to_owned())?;
        drop(holder.stdin.take());
        ensure(holder.wait().context("wait")?.success(), || "the holder failed".to_owned())?;
        let read = reader.join().map_err(|_| "the reader")?.context("read")?;
        ensure(read.len() == 8192 && read[..4096] == [b'g'; 4096], || "other bytes".to_owned())?;
        same_after_restart(cluster)
    });
}

/// The group lock 7 through a descriptor that reads, and one that writes, without waiting; errno, or 0.
const LOCKS: &str = r#"
use Fcntl;
for my $flags (O_RDONLY, O_RDONLY | O_NONBLOCK, O_WRONLY) {
    my $file;
    if (!sysopen($file, $ARGV[0], $flags)) { print "not opened\n"; next; }
    print ioctl($file, 0x4008669e, my $arg = pack("Q", 7)) ? 0 : $!+0, "\n";
}
"#;

/// One who could only read a file kept it from root for as long as he liked.
#[test]
fn a_group_lock_is_for_who_may_write() {
    scene("asked-group-rights", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        let user = User { cluster, folder: &mnt, uid: UNPRIVILEGED, groups: &[] };
        fs::write(mnt.join("theirs"), "text").context("write")?;
        fs::write(mnt.join("own"), "text").context("write")?;
        chown(mnt.join("own"), Some(UNPRIVILEGED), None).context("chown")?;
        let line = |name: &str| format!("perl -e '{}' {name}", LOCKS.replace('\n', " "));
        for (name, mode, expected) in [
            ("theirs", 0o644, "1 1 not opened"),
            ("theirs", 0o666, "1 1 0"),
            ("own", 0o644, "0 0 0"),
        ] {
            set_mode(&mnt.join(name), mode)?;
            let said = user.can(&line(name))?;
            let said = said.split('\n').collect::<Vec<_>>().join(" ");
            ensure(said == expected, || format!("{name} {mode:o}: {said}"))?;
        }
        let root = perl(LOCKS, &[&mnt.join("own").to_string_lossy()])?;
        ensure(root == "0\n0\n0\n", || format!("root: {root}"))
    });
}

/// Holds the group lock 7 on one mount; when a line comes, after an eviction, another group gets the file, and the lock
/// is released and acquired as any other. The first calls after an eviction may fail.
const EVICTED: &str = r#"
use Fcntl;
sub get { my ($file, $gid) = @_; return ioctl($file, 0x4008669e, my $arg = pack("Q", $gid)); }
sub put { my ($file, $gid) = @_; return ioctl($file, 0x4008669f, my $arg = pack("Q", $gid)); }
sub again { my ($call, @arguments) = @_; for (1 .. 40) {
    return if $call->(@arguments); select(undef, undef, undef, 0.5); } die $!; }
sysopen(my $m1, $ARGV[0], O_RDWR) or die $!;
sysopen(my $m2, $ARGV[1], O_RDWR) or die $!;
get($m1, 7) or die $!;
$| = 1;
print "held\n";
<STDIN>;
again(\&get, $m2, 9);
put($m1, 7) or die $!;
put($m2, 9) or die $!;
again(\&get, $m1, 7);
syswrite($m1, "g" x 4096) == 4096 or die $!;
put($m1, 7) or die $!;
"#;

#[test]
fn a_group_lock_ends_with_an_eviction_and_its_open_file_gets_another() {
    scene("asked-evicted", 1, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let (path, theirs) = (cluster.mnt().join("g"), other.join("g"));
        fs::write(&path, [b'0'; 8192]).context("write")?;
        let mut holder = Command::new("perl");
        holder.args(["-e", EVICTED]).args([&path, &theirs]);
        let mut holder =
            holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("perl")?;
        let mut line = [0; 5];
        let out = holder.stdout.as_mut().ok_or("no output")?;
        std::io::Read::read_exact(out, &mut line).context("held")?;
        let uuids = cluster.must(&["lctl", "get_param", "-n", "llite.*.uuid"])?;
        for uuid in uuids.lines() {
            let evict = format!("obdfilter.*.evict_client={}", uuid.trim());
            cluster.must(&["lctl", "set_param", &evict])?;
        }
        drop(holder.stdin.take());
        ensure(holder.wait().context("wait")?.success(), || "the holder failed".to_owned())?;
        let read = fs::read(&theirs).context("read")?;
        ensure(read == [[b'g'; 4096], [b'0'; 4096]].concat(), || "other bytes".to_owned())?;
        same_after_restart(cluster)
    });
}

/// Asks ahead for every other block of 64 KiB, by Lustre's own number, with the memory that a program for Lustre would
/// pass; asks again in the background when a line comes, shows the results, and writes the blocks.
const AHEAD: &str = r#"
use Fcntl;
use IO::Handle;
my ($path, $first, $blocks) = @ARGV;
sysopen(my $file, $path, O_RDWR) or die $!;
sub ahead {
    my ($flags) = @_;
    my $request = pack("LLQLLQ", 0x1ADF1CE0, $blocks, 0, 0, 0, 0);
    for my $block (0 .. $blocks - 1) {
        my $start = ($first + 2 * $block) * 65536;
        $request .= pack("SSLQQLL", 4, 2, $flags, $start, $start + 65535, 0, 0);
    }
    ioctl($file, 0x802066fa, $request) or die $!;
    return $request;
}
$| = 1;
# Waits for the lock on all of it with which it was looked at.
ahead(0);
print "asked\n";
<STDIN>;
my $request = ahead(1);
for my $block (0 .. $blocks - 1) {
    print unpack("L", substr($request, 32 + 32 * $block + 24, 4));
}
print "\n";
for my $block (0 .. $blocks - 1) {
    sysseek($file, ($first + 2 * $block) * 65536, 0);
    syswrite($file, chr(65 + $first) x 65536) == 65536 or die $!;
}
$file->sync or die $!;
"#;

const BLOCKS: usize = 8;

/// How many locks on objects each mount has.
fn lock_counts(cluster: &Cluster) -> Outcome<Vec<usize>> {
    let shown =
        cluster.must(&["lctl", "get_param", "-n", "ldlm.namespaces.*-osc-ff*.lock_count"])?;
    shown.lines().map(|line| line.trim().parse().map_err(|_| line.to_owned())).collect()
}

#[test]
fn writers_beside_each_other_take_no_lock_back_that_was_asked_for_ahead() {
    scene("asked-ahead", 1, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let (path, theirs) = (cluster.mnt().join("f"), other.join("f"));
        fs::write(&path, "").context("create")?;
        let mut writers = Vec::new();
        for (path, first) in [(&path, "0"), (&theirs, "1")] {
            let mut writer = Command::new("perl");
            writer.args(["-e", AHEAD]).arg(path).args([first, &BLOCKS.to_string()]);
            let writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            writers.push(writer.context("perl")?);
        }
        let counts = || lock_counts(cluster).is_ok_and(|counts| counts == [BLOCKS; 2]);
        wait_until("the locks", SOON, counts)?;
        let before = cancels(cluster)?;
        // Both write at the same time.
        for writer in &mut writers {
            drop(writer.stdin.take());
        }
        for writer in writers {
            let output = writer.wait_with_output().context("wait")?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let results = format!("asked\n{}\n", "2".repeat(BLOCKS));
            ensure(output.status.success() && said == results, || said.clone())?;
        }
        let counts = lock_counts(cluster)?;
        ensure(counts == [BLOCKS; 2], || format!("locks in the end: {counts:?}"))?;
        let after = cancels(cluster)?;
        ensure(before == after, || format!("cancelled before: {before}, after: {after}"))?;
        let read = fs::read(&path).context("read")?;
        let expected = (0..2 * BLOCKS).flat_map(|block| vec![b'A' + (block % 2) as u8; 65536]);
        ensure(read == expected.collect::<Vec<u8>>(), || "other bytes".to_owned())?;
        same_after_restart(cluster)
    });
}

/// How many locks on objects were ever cancelled.
fn cancels(cluster: &Cluster) -> Outcome<String> {
    cluster.must(&["lctl", "get_param", "-n", "ldlm.namespaces.filter-*.pool.cancels"])
}

const EXACT: &str = r#"
use Fcntl;
sysopen(my $file, $ARGV[0], O_RDWR | O_CREAT) or die $!;
my $request = pack("LLQLLQ", 0x1ADF1CE0, 1, 0, 0, 0, 0) . pack("SSLQQLL", 3, 0, 0, 0, 0, 0, 0);
ioctl($file, 0xc04066fa, $request) or die $!;
for my $at (0, 1 << 20, 2 << 20) {
    sysseek($file, $at, 0);
    syswrite($file, "x" x 4096) == 4096 or die $!;
}
"#;

#[test]
fn locks_of_a_file_that_asks_for_no_growth_do_not_grow() {
    scene("asked-exact", 1, LIMIT, |cluster| {
        let path = cluster.mnt().join("f");
        perl(EXACT, &[&path.to_string_lossy()])?;
        let counts = lock_counts(cluster)?;
        ensure(counts == [3], || format!("{counts:?}"))?;
        // Another open file's grow over what is free, which is one more.
        let file = File::options().write(true).open(&path).context("open")?;
        let begin = Instant::now();
        file.write_all_at(b"y", 4 << 20).context("write")?;
        file.write_all_at(b"y", 8 << 20).context("write")?;
        let counts = lock_counts(cluster)?;
        ensure(counts == [4], || format!("{counts:?} after {:?}", begin.elapsed()))?;
        drop(file);
        same_after_restart(cluster)
    });
}
