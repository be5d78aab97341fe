//! One OST's process is dead and the other OSTs live: who waits for it can be killed, who does not goes on, and
//! all that waited goes on when it is back.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_workloads::process::{is_alive, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::nodes::{Node, PORT, format, nid, spawn};

const LIMIT: Duration = Duration::from_secs(300);
/// Longer than any start or recovery takes here.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than a process that is killed may stay.
const SOON: Duration = Duration::from_secs(1);
/// Longer than anything takes that asks live servers alone, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Long enough for a program to reach the call in which it waits, on a machine that has nothing else to do.
const BEGUN: Duration = Duration::from_millis(1500);
/// The same on a busy one.
const BEGUN_LATE: Duration = Duration::from_secs(30);
const BYTES: usize = 300_000;
/// What programs store there.
const STORED: u8 = 9;

/// A file system with its OSTs in processes of their own.
struct Apart<'a> {
    cluster: &'a Cluster,
    mdt: PathBuf,
    osts: [PathBuf; 2],
    servers: Mutex<Vec<Option<Node>>>,
    mount: Mutex<Option<Node>>,
    /// Which file system of this process it is: addresses are by it.
    base: u32,
}

impl<'a> Apart<'a> {
    /// With a folder `alive` whose files lie on the first OST, and `dead` on the second.
    fn start(cluster: &'a Cluster, base: u32) -> Outcome<Self> {
        let mdt = format(cluster, "mdt", &["--mgs", "--mdt", "--index", "0"])?;
        let ost = |index: &str| {
            format(
                cluster,
                &format!("ost{index}"),
                &["--ost", "--index", index, "--mgsnode", &nid(base)],
            )
        };
        let osts = [ost("0")?, ost("1")?];
        let (servers, mount) = (Mutex::new(vec![None, None, None]), Mutex::default());
        let apart = Self { cluster, mdt, osts, servers, mount, base };
        (0..3).try_for_each(|number| apart.serve(number))?;
        apart.mount()?;
        for (name, index) in [("alive", "0"), ("dead", "1")] {
            let folder = apart.at(name);
            fs::create_dir(&folder).context("mkdir")?;
            let path = folder.to_string_lossy();
            wait_until("an OST", PATIENCE, || {
                cluster
                    .run(&["lfs", "setstripe", "-c", "1", "-i", index, &path])
                    .is_ok_and(|it| it.status.success())
                    && fs::write(folder.join("first"), "1").is_ok()
            })?;
        }
        Ok(apart)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.cluster.mnt().join(path)
    }

    /// Starts the server of the MDT (0) or of an OST.
    fn serve(&self, number: usize) -> Outcome {
        let target = if number == 0 { &self.mdt } else { &self.osts[number - 1] };
        let log = self.cluster.logs().join(format!("server{number}.log"));
        let (nid, target) = (nid(self.base + number as u32), target.to_string_lossy());
        let arguments = ["server", "--nid", &nid, "--port", PORT, &target];
        self.servers.lock()[number] = Some(spawn(self.cluster, &arguments, &log)?);
        Ok(())
    }

    /// Kills the second OST's process.
    fn kill(&self) {
        drop(self.servers.lock()[2].take());
    }

    fn mount(&self) -> Outcome {
        let (source, mnt) = (format!("{}:/nodes", nid(self.base)), self.cluster.mnt());
        let (options, path) =
            (format!("port={PORT},nid={}", nid(self.base + 3)), mnt.to_string_lossy());
        let log = self.cluster.logs().join("mount.log");
        let arguments = ["mount", "--foreground", "-o", &options, &source, &path];
        wait_until("the mount", PATIENCE, || {
            let mut mount = self.mount.lock();
            let is_gone = |node: &mut Node| node.0.try_wait().is_ok_and(|it| it.is_some());
            if mount.as_mut().is_none_or(is_gone) {
                *mount = spawn(self.cluster, &arguments, &log).ok();
            }
            text(Path::new("/proc/mounts")).contains(&*path)
        })
    }

    /// Everything is on the disks, and the mount knows nothing of it.
    fn forget(&self) -> Outcome {
        self.unmount()?;
        self.mount()
    }

    fn unmount(&self) -> Outcome {
        let mnt = self.cluster.mnt();
        wait_until("an unused mount", PATIENCE, || {
            let status =
                Command::new("fusermount3").arg("-u").arg(&mnt).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        })?;
        let mut mount = self.mount.lock().take().ok_or("not mounted")?;
        wait_until("the end of the mount", PATIENCE, || {
            mount.0.try_wait().is_ok_and(|it| it.is_some())
        })
    }

    /// A program whose arguments name files of the mount by `@`.
    fn begin(&self, program: &str, arguments: &[&str]) -> Outcome<Child> {
        self.command(program, arguments).spawn().context(program)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mnt = format!("{}/", self.cluster.mnt().display());
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|it| it.replace('@', &mnt)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// A program that waits for nothing dead.
    fn at_once(&self, program: &str, arguments: &[&str]) -> Outcome {
        let begin = Instant::now();
        let mut child = self.begin(program, arguments)?;
        let what = format!("{program} {}", arguments.join(" "));
        let ended = end_of(&mut child, AT_ONCE);
        if ended.is_none() {
            child.kill().context("kill")?;
            child.wait().context("wait")?;
        }
        let status = ended.ok_or_else(|| format!("{what} waits for a dead OST"))?;
        println!("one_ost: {what}: {} ms", begin.elapsed().as_millis());
        ensure(status, || format!("{what} fails"))
    }
}

/// How it ended within `limit`: whether well.
fn end_of(child: &mut Child, limit: Duration) -> Option<bool> {
    let begin = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        if begin.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An `xfs_io` that does what it reads. Dropped, it is killed, and not waited for.
struct Orders {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Orders {
    fn begin(path: &Path, options: &[&str]) -> Outcome<Self> {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "xfs_io"]).args(options).arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("xfs_io")?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("asked for a pipe")?);
        Ok(Self { child, orders, answers })
    }

    fn order(&mut self, order: &str) -> Outcome {
        let orders = self.orders.as_mut().ok_or("its orders have ended")?;
        writeln!(orders, "{order}").context(order)
    }

    /// Returns when it has done what it was sent before, and shown its first bytes by `read`.
    fn done(&mut self, read: &str) -> Outcome {
        self.order(read)?;
        loop {
            let mut line = String::new();
            let length = self.answers.read_line(&mut line).context("xfs_io")?;
            ensure(length > 0, || format!("xfs_io ended before {read}"))?;
            if line.contains(":  ") {
                return Ok(());
            }
        }
    }

    /// Whether it is in a call to a file system, and not in one that reads its next order.
    fn is_waiting(&self) -> bool {
        let call = text(Path::new(&format!("/proc/{}/syscall", self.child.id())));
        // Of what it does here only read(2) of its orders has a first argument of 0.
        call.split(' ').nth(1) != Some("0x0")
    }

    /// It is to end by itself when it has done all.
    fn finish(&mut self) {
        self.orders = None;
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
    }
}

/// Whether a thread of the process waits in a call to the mount, as far as the kernel lets that be seen.
fn is_in_call(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| text(&thread.path().join("stack"))).any(|stack| stack.contains("fuse"))
}

/// Gives programs the time to reach the call in which they wait: until all of them are in it, on a busy machine.
fn let_begin(pids: impl Fn() -> Vec<u32>) {
    std::thread::sleep(BEGUN);
    let all_wait = || {
        let pids = pids();
        !pids.is_empty() && pids.into_iter().all(is_in_call)
    };
    // What does not wait after all is found by what the test does next.
    let _ = wait_until("programs in their calls", BEGUN_LATE, all_wait);
}

/// What the process has started.
fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = text(Path::new(&format!("/proc/{pid}/stat")));
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

/// The processes of programs that wait.
fn pids_of(waiting: &Waiting) -> Vec<u32> {
    waiting.iter().map(|(_, child)| child.id()).collect()
}

/// Names and programs that wait.
type Waiting = Vec<(String, Child)>;

/// Ends each of them, which must all wait, with `with`; each is gone a second after its signal.
fn end_all(waiting: &mut Waiting, with: Signal) -> Outcome {
    let mut late = Vec::new();
    let mut slowest = Duration::ZERO;
    for (name, child) in waiting.iter_mut() {
        let ended = child.try_wait().context(&name)?;
        ensure(ended.is_none(), || format!("{name} did not wait: {ended:?}"))?;
        let begin = Instant::now();
        kill_process(Pid::from_child(child), with).context("kill")?;
        let gone = end_of(child, SOON * 5).is_some();
        let took = begin.elapsed();
        slowest = slowest.max(took);
        if !gone || took > SOON {
            let stack = text(Path::new(&format!("/proc/{}/stack", child.id())));
            late.push(format!("{name}, after {} ms: {stack}", took.as_millis()));
        }
    }
    println!("one_ost: {} ended by {with:?}, the slowest after {slowest:?}", waiting.len());
    ensure(late.is_empty(), || format!("still there after {with:?}:\n{}", late.join("\n")))
}

const NAMES: [&str; 8] = ["cold", "old", "direct", "mapped", "synced", "shut", "unmapped", "left"];

fn prepare(apart: &Apart<'_>) -> Outcome {
    for folder in ["alive", "dead"] {
        fs::create_dir(apart.at(folder).join("folder")).context("mkdir")?;
        for name in NAMES.iter().copied().chain(["gone", "named", "moving", "folder/a", "folder/b"])
        {
            fs::write(apart.at(folder).join(name), vec![7; BYTES]).context(name)?;
        }
    }
    apart.forget()
}

/// Each of them waits for the dead OST.
const PROGRAMS: [(&str, &[&str]); 11] = [
    ("ls", &["-l", "@dead/folder"]),
    ("cat", &["@dead/cold"]),
    ("rm", &["@dead/gone"]),
    ("stat", &["@dead/cold"]),
    ("dd", &["if=/dev/zero", "of=@dead/old", "bs=64k", "count=4", "conv=notrunc"]),
    (
        "dd",
        &["if=/dev/zero", "of=@dead/direct", "bs=64k", "count=4", "conv=notrunc", "oflag=direct"],
    ),
    ("dd", &["if=@dead/direct", "of=/dev/null", "bs=64k", "iflag=direct"]),
    ("cp", &["@dead/cold", "@alive/copy"]),
    ("truncate", &["-s", "1000", "@dead/cold"]),
    ("fallocate", &["-l", "1m", "@dead/cold"]),
    ("sha256sum", &["@dead/folder/a"]),
];

/// What needs no object of the dead OST, and is done at once.
const OTHER_PROGRAMS: [(&str, &[&str]); 16] = [
    ("ls", &["-l", "@alive/folder"]),
    ("ls", &["@dead"]),
    ("ls", &["-l", "@"]),
    ("cat", &["@alive/cold"]),
    ("stat", &["@alive/old"]),
    ("touch", &["@alive/new"]),
    ("dd", &["if=/dev/zero", "of=@alive/written", "bs=64k", "count=4", "conv=fsync"]),
    ("dd", &["if=/dev/zero", "of=@alive/direct", "bs=64k", "count=4", "oflag=direct"]),
    ("sync", &["@alive/written"]),
    ("rm", &["@alive/gone"]),
    ("unlink", &["@dead/named"]),
    ("mv", &["@dead/moving", "@alive/moved"]),
    ("chmod", &["600", "@dead"]),
    ("mkdir", &["@dead/made"]),
    ("df", &["@"]),
    ("xfs_io", &["-c", "mmap -rw 0 64k", "-c", "mwrite 0 4k", "-c", "msync -s", "@alive/mapped"]),
];

fn waiting(apart: &Apart<'_>, programs: &[(&str, &[&str])]) -> Outcome<Waiting> {
    let begin = |(program, arguments): &(&str, &[&str])| {
        let name = format!("{program} {}", arguments.join(" "));
        Ok((name, apart.begin(program, arguments)?))
    };
    programs.iter().map(begin).collect()
}

/// What programs that have their file open do with it when the OST is dead, and whether they must wait.
type Opened = Vec<(&'static str, bool, Orders)>;

fn opened(apart: &Apart<'_>) -> Outcome<Opened> {
    let mut all = Vec::new();
    let open = |name: &str| Orders::begin(&apart.at("dead").join(name), &[]);
    let mut reader = open("folder/a")?;
    reader.order("mmap -r 0 256k")?;
    reader.done("mread -v 0 2")?;
    all.push(("mread 200k 2", true, reader));
    // Its pages go with its lock, and so do those that are read ahead for the other programs.
    apart.cluster.must(&["lctl", "set_param", "-n", "ldlm.namespaces.*.lru_size=clear"])?;
    let mapped =
        [("mapped", "msync -s"), ("unmapped", "munmap"), ("left", "quit"), ("shut", "close")];
    for (name, order) in mapped {
        let mut writer = open(name)?;
        writer.order("mmap -rw 0 64k")?;
        writer.order(&format!("mwrite -S {STORED} 0 8k"))?;
        writer.done("mread -v 0 2")?;
        all.push((order, order == "msync -s", writer));
    }
    let mut writer = open("synced")?;
    writer.order(&format!("pwrite -S {STORED} 0 8k"))?;
    writer.done("pread -v 0 2")?;
    all.push(("fsync", true, writer));
    Ok(all)
}

/// Every byte that programs stored is there, whether they were killed or not.
fn all_is_there(apart: &Apart<'_>) -> Outcome {
    for name in ["mapped", "unmapped", "left", "shut", "synced"] {
        let found = fs::read(apart.at("dead").join(name)).context(name)?;
        let is_right = found.len() == BYTES
            && found[..8192].iter().all(|byte| *byte == STORED)
            && found[8192..].iter().all(|byte| *byte == 7);
        ensure(is_right, || {
            format!("{name}: {} bytes that begin with {:?}", found.len(), found.get(..4))
        })?;
    }
    Ok(())
}

fn comes_back(apart: &Apart<'_>) -> Outcome {
    apart.serve(2)?;
    let read = || fs::read(apart.at("dead/folder/a")).is_ok_and(|it| it == [7; BYTES]);
    wait_until("a read after the recovery", PATIENCE, read)
}

/// Processes of the group that are there, but for dead ones that are not reaped yet.
fn members(group: u32) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_member = |pid: &i32| {
        let stat = text(Path::new(&format!("/proc/{pid}/stat")));
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split_whitespace().nth(2) == Some(&group.to_string()) && is_alive(*pid)
    };
    pids.filter(is_member).count()
}

/// A process group as a shell has it for a job, and threads of one process.
fn groups_end(apart: &Apart<'_>) -> Outcome {
    let script = "cat \"$0\" & stat \"$0\" & (ls -l \"$1\"; true) & wait";
    let mut command = apart.command("sh", &["-c", script, "@dead/cold", "@dead/folder"]);
    let mut leader = command.process_group(0).spawn().context("sh")?;
    let probe = env!("CARGO_BIN_EXE_sheen-probe");
    let mut threads = waiting(apart, &[(probe, &["threads", "read", "@dead/old"])])?;
    let_begin(|| pids_of(&threads));
    // The programs of the group were started before.
    let count = members(leader.id());
    ensure(count >= 4, || format!("{count} processes in the group"))?;
    let begin = Instant::now();
    kill_process_group(Pid::from_child(&leader), Signal::KILL).context("kill")?;
    let group = leader.id();
    let is_gone = end_of(&mut leader, SOON * 5).is_some();
    wait_until("the end of the group", SOON * 5, || members(group) == 0)?;
    let took = begin.elapsed();
    ensure(is_gone && took <= SOON, || format!("the group ended after {took:?}"))?;
    end_all(&mut threads, Signal::KILL)
}

/// Ctrl-C at a terminal, as the kernel makes a signal of it.
fn typed_interrupts_end(apart: &Apart<'_>) -> Outcome {
    let mnt = apart.at("dead");
    let lines = ["cat cold", "ls -l folder", "cat /etc/passwd 1<>old", "truncate -s 1000 direct"];
    for line in lines {
        let shown = format!("cd {} && exec {line}", mnt.display());
        let mut terminal = Command::new("script");
        terminal.args(["-qefc", &shown, "/dev/null"]).env("SHELL", "/bin/sh");
        terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = terminal.spawn().context("script")?;
        let script = child.id();
        let_begin(|| children(script));
        ensure(end_of(&mut child, Duration::ZERO).is_none(), || format!("{line} did not wait"))?;
        let begin = Instant::now();
        let keys = child.stdin.as_mut().ok_or("asked for a pipe")?;
        keys.write_all(b"\x03").context("Ctrl-C")?;
        let gone = end_of(&mut child, SOON * 5).is_some();
        let took = begin.elapsed();
        println!("one_ost: Ctrl-C ends {line} after {} ms", took.as_millis());
        if !gone {
            child.kill().context("kill")?;
        }
        ensure(gone && took <= SOON, || format!("{line} is there {took:?} after Ctrl-C"))?;
    }
    Ok(())
}

#[test]
fn whatever_waits_for_one_dead_ost_can_be_killed_and_nothing_is_lost() {
    run("one-ost-killed", 10, |apart| {
        let mut opened = opened(apart)?;
        apart.kill();
        let mut waiting = waiting(apart, &PROGRAMS)?;
        for (order, _, program) in &mut opened {
            program.order(order)?;
        }
        let_begin(|| pids_of(&waiting));
        end_all(&mut waiting, Signal::KILL)?;
        let mut late = Vec::new();
        for (order, must_wait, program) in &mut opened {
            if *must_wait {
                ensure(program.is_waiting(), || format!("{order} did not wait"))?;
            }
            let begin = Instant::now();
            program.child.kill().context("kill")?;
            if end_of(&mut program.child, SOON).is_none() {
                let stack = text(Path::new(&format!("/proc/{}/stack", program.child.id())));
                late.push(format!("{order}: {stack}"));
            }
            println!("one_ost: {order} killed, gone after {} ms", begin.elapsed().as_millis());
        }
        ensure(late.is_empty(), || format!("still there:\n{}", late.join("\n")))?;
        groups_end(apart)?;
        typed_interrupts_end(apart)?;
        comes_back(apart)?;
        apart.forget()?;
        all_is_there(apart)?;
        apart.unmount()
    });
}

#[test]
fn what_needs_no_dead_ost_goes_on_and_all_that_waited_ends_well_when_it_is_back() {
    run("one-ost-back", 20, |apart| {
        let mut opened = opened(apart)?;
        apart.kill();
        // What cuts files is left out: other programs compare them.
        let mut waiting = waiting(apart, &PROGRAMS[..8])?;
        for (order, _, program) in &mut opened {
            program.order(order)?;
            program.finish();
        }
        let_begin(|| pids_of(&waiting));
        for (program, arguments) in OTHER_PROGRAMS {
            apart.at_once(program, arguments)?;
        }
        let df = Instant::now();
        let mnt = apart.cluster.mnt();
        apart.cluster.must(&["lfs", "df", &mnt.to_string_lossy()])?;
        println!("one_ost: lfs df: {} ms", df.elapsed().as_millis());
        ensure(df.elapsed() < AT_ONCE, || format!("lfs df took {:?}", df.elapsed()))?;
        comes_back(apart)?;
        for (name, child) in &mut waiting {
            let ended = end_of(child, PATIENCE);
            ensure(ended == Some(true), || format!("{name}: {ended:?}"))?;
        }
        for (order, _, program) in &mut opened {
            let ended = end_of(&mut program.child, PATIENCE);
            ensure(ended == Some(true), || format!("{order}: {ended:?}"))?;
        }
        let zeros = |name: &str| {
            let found = fs::read(apart.at("dead").join(name)).context(name)?;
            let zeros = found.iter().take_while(|byte| **byte == 0).count();
            ensure((zeros, found.len()) == (4 << 16, BYTES), || format!("{name}: {zeros} zeros"))
        };
        all_is_there(apart)?;
        apart.forget()?;
        ["old", "direct"].into_iter().try_for_each(zeros)?;
        all_is_there(apart)?;
        let copy = fs::read(apart.at("alive/copy")).context("copy")?;
        ensure(copy == [7; BYTES], || "the copy is another".to_owned())?;
        apart.unmount()
    });
}
fn run(name: &str, base: u32, body: impl FnOnce(&Apart<'_>) -> Outcome + Send + 'static) {
    let cluster = Arc::new(Cluster::prepare(name, 2, &[]).unwrap_or_else(|e| panic!("{e}")));
    play(&cluster, LIMIT, move |cluster| {
        let apart = Apart::start(cluster, base)?;
        prepare(&apart)?;
        body(&apart)
    });
}
