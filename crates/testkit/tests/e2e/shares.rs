//! What the users of one mount leave each other, and root.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(30);
const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;
/// `ENFILE`
const TOO_MANY: i32 = 23;
/// `ENOLCK`
const NO_LOCKS: i32 = 37;
/// What a mount's users share of an MDT's file locks.
const LOCKS: usize = 65_536;

/// Opens files of its own until one is refused, says how many there are and why there is no more, and holds them.
const OPENS: &str = r#"
$| = 1;
my @open;
for my $number (1 .. $ARGV[1]) {
    open(my $file, ">", "$ARGV[0].$number") or last;
    push @open, $file;
    $! = 0;
}
printf "%05d %03d", scalar(@open), $!+0;
<STDIN>;
"#;

/// Locks every other byte of a file of its own in the same way.
const LOCKS_BYTES: &str = r#"
use Fcntl;
$| = 1;
open(my $file, ">", $ARGV[0]) or die;
my $has = 0;
for my $number (1 .. $ARGV[1]) {
    fcntl($file, F_SETLK, pack("s s x4 l! l! i x4", F_WRLCK, 0, 2 * $number, 1, 0)) or last;
    $has = $number;
    $! = 0;
}
printf "%05d %03d", $has, $!+0;
<STDIN>;
"#;

/// A program that holds what it has until this is dropped.
struct Holder(Child);

impl Holder {
    /// As a user; how many files or locks it has, and the number of the error, or 0.
    fn start(program: &str, folder: &Path, uid: u32, most: usize) -> Outcome<(Self, usize, i32)> {
        let id = uid.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "perl", "-e", program]);
        command.args([format!("of-{uid}"), most.to_string()]).current_dir(folder);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut holder = Self(child.context("start perl")?);
        let mut line = [0; 9];
        let out = holder.0.stdout.as_mut().ok_or("no output")?;
        out.read_exact(&mut line).context("what it has")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let (has, why) = line.split_once(' ').ok_or_else(|| line.clone())?;
        Ok((holder, has.parse().context("a count")?, why.parse().context("a number")?))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        _ = self.0.wait();
    }
}

/// One user's programs had all open files of the mount, and no other user, nor root, opened one.
#[test]
fn a_user_that_opens_all_it_can_leaves_other_users_and_root_theirs() {
    scene("open-shares", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        set_mode(&mnt, 0o777)?;
        cluster.must(&["lctl", "set_param", "mdt.*.opens_per_client=64"])?;
        let (alices, had, why) = Holder::start(OPENS, &mnt, ALICE, 100)?;
        ensure((had, why) == (32, TOO_MANY), || format!("a user has {had}, then error {why}"))?;
        let (_bobs, had, why) = Holder::start(OPENS, &mnt, BOB, 20)?;
        ensure((had, why) == (20, 0), || format!("another has {had}, then error {why}"))?;
        let (_roots, had, why) = Holder::start(OPENS, &mnt, 0, 10)?;
        ensure((had, why) == (10, 0), || format!("root has {had}, then error {why}"))?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let (done, said) = alice.tries("echo text > more")?;
        ensure(!done && said.contains("Too many open files in system"), || said.clone())?;
        let stats = cluster.must(&["lctl", "get_param", "-n", "mdt.*.budget_stats"])?;
        let refused = stats.lines().find(|line| line.starts_with("opens_per_client"));
        ensure(refused.is_some_and(|line| !line.ends_with(' ') && !line.ends_with(" 0")), || {
            format!("what was refused is not counted: {stats}")
        })?;
        drop(alices);
        // A close goes out a few milliseconds later.
        wait_until("the user's files are closed", PATIENCE, || {
            alice.tries("echo text > more").is_ok_and(|(done, _)| done)
        })
    })
}

/// One user's program had all file locks of the mount, and no other user, nor root, locked one.
#[test]
fn a_user_that_locks_all_it_can_leaves_other_users_and_root_theirs() {
    scene("lock-shares", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        set_mode(&mnt, 0o777)?;
        let (alices, had, why) = Holder::start(LOCKS_BYTES, &mnt, ALICE, LOCKS)?;
        ensure((had, why) == (LOCKS / 2, NO_LOCKS), || format!("a user has {had}, error {why}"))?;
        let (_bobs, had, why) = Holder::start(LOCKS_BYTES, &mnt, BOB, 100)?;
        ensure((had, why) == (100, 0), || format!("another has {had}, then error {why}"))?;
        let (_roots, had, why) = Holder::start(LOCKS_BYTES, &mnt, 0, 100)?;
        ensure((had, why) == (100, 0), || format!("root has {had}, then error {why}"))?;
        drop(alices);
        let (_more, had, why) = Holder::start(LOCKS_BYTES, &mnt, ALICE, 100)?;
        ensure((had, why) == (100, 0), || format!("the user has {had}, then error {why}"))
    })
}
