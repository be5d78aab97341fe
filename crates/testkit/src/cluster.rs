//! A whole file system for one test: its own directory, addresses, control sockets and mounts.
//!
//! Everything is done through the command line, as a user does it: `sheen up`, `mount`, `down`.
//! What was started carries `SHEEN_RUN_DIR` of this test alone in its environment; that is how the
//! end of a test finds and ends exactly its own processes, also after a failure.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sheen_workloads::process::{self, Finished, tail, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure, root};

use crate::addresses::Block;
use crate::claim::Claim;

/// How long a process may take to end whose keeper was killed.
const DEAD_WITHIN: Duration = Duration::from_secs(10);

/// Longer than any start, stop or recovery takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Longer than a process takes from its fork to its own program, and than a test beside this one keeps a mount namespace, with
/// a copy of each mount.
const FORKED: Duration = Duration::from_secs(180);

/// The exit code of `sheen down` where a program uses the mount.
const EBUSY: i32 = 16;

/// Lines of each log that a failure shows.
const LOG_LINES: usize = 40;

/// The working directory of a test that runs in stripes: short, as a socket in it has a path of at most 107 bytes.
const STRIPED: &str = "s";

/// The working directory that `SHEEN_TEST_STRIPED` asks for: `4` is one in stripes on four MDTs, one on each, and `4/2` one
/// of four stripes on two MDTs. What is made in it is the same.
#[derive(Debug, PartialEq, Eq)]
struct Striping {
    mdts: u32,
    /// The option of `lfs mkdir`, and its value.
    count: [String; 2],
}

impl Striping {
    /// # Errors
    /// A line where the variable says something else.
    fn asked() -> Outcome<Option<Self>> {
        let asked = std::env::var("SHEEN_TEST_STRIPED").ok().filter(|asked| !asked.is_empty());
        asked.map(|asked| Self::read(&asked)).transpose()
    }

    fn read(asked: &str) -> Outcome<Self> {
        let number = |text: &str| text.parse::<u32>().context("SHEEN_TEST_STRIPED");
        Ok(match asked.split_once('/') {
            Some((stripes, mdts)) => {
                let count = ["-C".to_owned(), number(stripes)?.to_string()];
                Self { mdts: number(mdts)?, count }
            }
            None => Self { mdts: number(asked)?, count: ["-c".to_owned(), asked.to_owned()] },
        })
    }
}

/// A running file system. Dropped, it is unmounted, stopped and removed.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    sockets: PathBuf,
    osts: u32,
    options: Vec<String>,
    striping: Option<Striping>,
    mounts: Mutex<Vec<(PathBuf, Child)>>,
    /// Ends after its folder is removed.
    claim: Claim,
}

impl Cluster {
    /// Formats, starts and mounts a file system with two OSTs.
    pub fn start(name: &str) -> Outcome<Self> {
        Self::start_with(name, 2, &[])
    }

    /// The same with `osts` OSTs and further `options` of `sheen up`.
    pub fn start_with(name: &str, osts: u32, options: &[&str]) -> Outcome<Self> {
        let cluster = Self::prepare(name, osts, options)?;
        cluster.up()?;
        Ok(cluster)
    }

    /// The same with a working directory in stripes, whatever is asked for of all tests: `striping` as in
    /// `SHEEN_TEST_STRIPED`.
    pub fn start_striped(name: &str, osts: u32, striping: &str) -> Outcome<Self> {
        let cluster = Self::prepare_in(name, osts, &[], Some(Striping::read(striping)?))?;
        cluster.up()?;
        Ok(cluster)
    }

    /// All of it but the start: for tests of the start. Its folder and its addresses are no other cluster's as long as it
    /// lives.
    pub fn prepare(name: &str, osts: u32, options: &[&str]) -> Outcome<Self> {
        // A test of MDTs says itself where its directories lie.
        let is_of_mdts = options.contains(&"--mdts");
        let striping = if is_of_mdts { None } else { Striping::asked()? };
        Self::prepare_in(name, osts, options, striping)
    }

    fn prepare_in(
        name: &str,
        osts: u32,
        options: &[&str],
        striping: Option<Striping>,
    ) -> Outcome<Self> {
        ensure(Path::new("/dev/fuse").exists(), || {
            "/dev/fuse is missing: load the module (modprobe fuse), or give it to the container \
             (--device /dev/fuse)"
                .to_owned()
        })?;
        let folder = format!("{name}-{}", std::process::id());
        let claim = Claim::of(&root().join("target/e2e").join(folder))?;
        let mut options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        if let Some(striping) = &striping {
            options.extend(["--mdts".to_owned(), striping.mdts.to_string()]);
        }
        let cluster = Self {
            program: program()?,
            sockets: run_folder()?,
            osts,
            options,
            striping,
            mounts: Mutex::default(),
            claim,
        };
        cluster.clear()?;
        for path in [cluster.dir(), cluster.mount_point(), cluster.logs()] {
            fs::create_dir_all(&path).context(path.display())?;
        }
        Ok(cluster)
    }

    /// Ends and removes what a process that was killed has left in the folder.
    fn clear(&self) -> Outcome {
        let folder = self.folder();
        let entries = fs::read_dir(folder).context(folder.display())?;
        let left: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        if self.dir().join("run").exists() {
            let dir = self.dir();
            let mut down = self.command(&["down", "--force", "--dir", &dir.to_string_lossy()]);
            // Of what it could not end the files go all the same.
            let _ = process::run(&mut down, &self.sockets.join("clear"), PATIENCE);
        }
        for path in left {
            unmount_lazily(&path);
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir());
            let removed =
                if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.context(path.display())?;
        }
        Ok(())
    }

    fn folder(&self) -> &Path {
        self.claim.folder()
    }

    /// The addresses that `sheen up` takes for it.
    pub fn addresses(&self) -> &Block {
        self.claim.addresses()
    }

    /// The directory of the targets.
    pub fn dir(&self) -> PathBuf {
        self.folder().join("dir")
    }

    /// The mount point.
    pub fn mount_point(&self) -> PathBuf {
        self.folder().join("mnt")
    }

    /// Where tests work: the mount point, or a directory in stripes there if `SHEEN_TEST_STRIPED` asks for one.
    pub fn mnt(&self) -> PathBuf {
        self.working_directory(&self.mount_point())
    }

    /// Whether the working directory is in stripes; it is no mount point then.
    pub fn is_striped(&self) -> bool {
        self.striping.is_some()
    }

    fn working_directory(&self, mount_point: &Path) -> PathBuf {
        let striped = self.striping.as_ref().map(|_| mount_point.join(STRIPED));
        striped.unwrap_or_else(|| mount_point.to_owned())
    }

    /// Where the outputs of its commands go.
    pub fn logs(&self) -> PathBuf {
        self.folder().join("logs")
    }

    /// `sheen ARGUMENTS`, in this file system's surroundings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("SHEEN_RUN_DIR", &self.sockets);
        command
    }

    /// Runs `sheen ARGUMENTS` to its end, however it ends.
    pub fn run(&self, arguments: &[&str]) -> Outcome<Finished> {
        let log = self.logs().join(arguments.first().copied().unwrap_or("sheen"));
        process::run(&mut self.command(arguments), &log, PATIENCE)
    }

    /// Runs `sheen ARGUMENTS`, answers its output, and fails if it does.
    pub fn must(&self, arguments: &[&str]) -> Outcome<String> {
        let finished = self.run(arguments)?;
        if finished.status.success() {
            return Ok(finished.output);
        }
        let output = tail(&finished.output, LOG_LINES);
        Err(format!(
            "sheen {}: {}\n{output}\n{}",
            arguments.join(" "),
            finished.status,
            self.report()
        ))
    }

    /// Has all mounts drop what they cache below locks, and the locks: also those that a request of a moment ago
    /// still used when the first order came. Locks of open files of the MDT stay, as with Lustre.
    pub fn drop_locks(&self) -> Outcome {
        let is_none_left = || {
            let space = "ldlm.namespaces";
            let ordered =
                self.run(&["lctl", "set_param", "-n", &format!("{space}.*.lru_size=clear")]);
            let of_osts = format!("{space}.*-osc-*.lock_count");
            let unused = format!("{space}.*-mdc-*.lock_unused_count");
            let left = self.run(&["lctl", "get_param", "-n", &of_osts, &unused]);
            let is_none = |left: Finished| left.output.lines().all(|count| count == "0");
            ordered.is_ok_and(|it| it.status.success()) && left.is_ok_and(is_none)
        };
        wait_until("locks to go", PATIENCE, is_none_left)
    }

    /// `sheen up`: starts what does not run.
    pub fn up(&self) -> Outcome {
        let (dir, mnt) = (self.dir(), self.mount_point());
        let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
        let osts = self.osts.to_string();
        let mut arguments = vec!["up", "--dir", &dir, "--mount", &mnt, "--osts", &osts];
        // Most tests are about files on OSTs; those about another layout ask for it.
        let is_made = self.dir().join("run/cluster").exists();
        if !is_made && !self.options.iter().any(|option| option == "--layout") {
            arguments.extend(["--layout", "lustre"]);
        }
        arguments.extend(self.options.iter().map(String::as_str));
        self.must(&arguments)?;
        ensure(is_mounted(&self.mount_point()), || format!("{mnt}: `sheen up` did not mount it"))?;
        match &self.striping {
            Some(striping) if !is_made => self.stripe(striping),
            _ => Ok(()),
        }
    }

    /// Makes the working directory, and has all that is made in it be in stripes, too.
    fn stripe(&self, striping: &Striping) -> Outcome {
        let path = self.mnt();
        let path = path.to_string_lossy();
        let [option, count] = &striping.count;
        self.must(&["lfs", "mkdir", option, count, &path])?;
        let default = ["lfs", "setdirstripe", "-D", option, count, "--max-inherit", "-1", &path];
        self.must(&default).map(|_| ())
    }

    /// `sheen down`: unmounts and stops everything.
    ///
    /// A process that another test is about to start holds all files that this one has open, closed since
    /// or not, until it runs its own program: so a mount that is in use is tried again for a moment.
    pub fn down(&self) -> Outcome {
        let mounts = self.take_mounts();
        for (path, child) in mounts {
            unmount_second(&path, child)?;
        }
        let dir = self.dir();
        let down = ["down", "--dir", &dir.to_string_lossy()];
        wait_until("an unused mount", FORKED, || {
            let is_done = self.run(&down).is_ok_and(|down| down.status.code() != Some(EBUSY));
            // Of a mount that another test's namespace had a copy of the servers are stopped, and its process waits for
            // them, to close its files there.
            if !is_done && self.server_pid().is_err() {
                let _ = self.up();
            }
            is_done
        })?;
        self.must(&down)?;
        ensure(!is_mounted(&self.mount_point()), || "`sheen down` left the mount".to_owned())
    }

    /// A further mount of the file system, by a process of its own.
    pub fn mount_again(&self) -> Outcome<PathBuf> {
        self.mount_with(&[])
    }

    /// A further mount that knows nothing of this machine's sockets, as one on another machine; the file
    /// system must listen.
    pub fn mount_by_tcp(&self) -> Outcome<PathBuf> {
        self.mount_by(self.elsewhere(), &[])
    }

    /// As [`Cluster::mount_again`], with options of `-o`.
    pub fn mount_with(&self, options: &[&str]) -> Outcome<PathBuf> {
        self.mount_by(self.sockets.clone(), options)
    }

    /// As [`Cluster::mount_again`], by a process of a PID namespace of its own, in which no process of this one is seen.
    pub fn mount_in_pid_namespace(&self) -> Outcome<PathBuf> {
        let namespace = ["unshare", "--pid", "--fork", "--kill-child"];
        self.mount_under(&namespace, self.sockets.clone(), &[])
    }

    fn mount_by(&self, sockets: PathBuf, options: &[&str]) -> Outcome<PathBuf> {
        self.mount_under(&[], sockets, options)
    }

    /// `wrapper` is what runs the program, with its own arguments.
    fn mount_under(
        &self,
        wrapper: &[&str],
        sockets: PathBuf,
        options: &[&str],
    ) -> Outcome<PathBuf> {
        let number = self.lock_mounts().len() + 2;
        let path = self.folder().join(format!("mnt{number}"));
        fs::create_dir_all(&path).context(path.display())?;
        let source = self.source();
        let log = self.logs().join(format!("mount{number}.log"));
        let out = fs::File::create(&log).context(log.display())?;
        // In the foreground: a mount in the background leaves its file system after `umount` has returned, and
        // servers that stop meanwhile keep its open files for its return.
        let mut command = self.command(&["mount", "--foreground", &source]);
        let port = self.port().map(|port| format!("port={port}"));
        for option in options.iter().copied().chain(port.as_deref()) {
            command.args(["-o", option]);
        }
        command.env("SHEEN_RUN_DIR", sockets);
        command.arg(&path);
        let mut command = wrapped(wrapper, command);
        command.stdin(std::process::Stdio::null());
        command.stderr(out.try_clone().context(log.display())?).stdout(out);
        let child = command.spawn().context("sheen mount")?;
        self.lock_mounts().push((path.clone(), child));
        let mounted = wait_until("the second mount", PATIENCE, || is_mounted(&path));
        mounted.map_err(|error| format!("{error}\n{}", self.report()))?;
        Ok(self.working_directory(&path))
    }

    /// What a client mounts: `MGSNID:/FSNAME`.
    pub fn source(&self) -> String {
        let nid = text(&self.dir().join("run/mgs.nid"));
        format!("{}:/{}", nid.trim(), self.setting("fsname").unwrap_or_default())
    }

    /// Where the control sockets of its processes lie.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Control sockets of processes that know nothing of the cluster's.
    pub fn elsewhere(&self) -> PathBuf {
        self.sockets.join("elsewhere")
    }

    /// The port of its servers, if it is not Lustre's.
    pub fn port(&self) -> Option<String> {
        self.setting("port")
    }

    /// Kills the server process as a power cut would.
    pub fn kill_server(&self) -> Outcome {
        process::kill(self.server_pid()?)
    }

    /// Kills the mount's keeper, and with it the mount process.
    pub fn kill_mount(&self) -> Outcome {
        let (keeper, served) = (self.keeper_pid()?, self.mount_pid()?);
        unmount_lazily(&self.mount_point());
        kill_keeper(keeper, served)
    }

    /// The process of all servers.
    pub fn server_pid(&self) -> Outcome<i32> {
        self.pid("server.pid")
    }

    /// The process that serves the mount.
    pub fn mount_pid(&self) -> Outcome<i32> {
        Ok(served_by(self.keeper_pid()?))
    }

    /// The process that starts another one when that ends; the mount's own where the kernel allows none.
    pub fn keeper_pid(&self) -> Outcome<i32> {
        self.pid("keeper.pid").or_else(|_| self.pid("mount.pid"))
    }

    /// What the stores say about themselves; the file system must be down.
    pub fn fsck(&self) -> Outcome {
        let finished = self.run(&["fsck", "--dir", &self.dir().to_string_lossy()])?;
        ensure(finished.status.success(), || format!("sheen fsck:\n{}", finished.output))
    }

    /// The last lines of all logs, for a message of failure.
    pub fn report(&self) -> String {
        let mut report = String::new();
        for folder in [self.logs(), self.dir().join("run")] {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()).filter(|path| is_log(path)) {
                let lines = tail(&text(&path), LOG_LINES);
                if !lines.is_empty() {
                    report += &format!("--- {}\n{lines}\n", path.display());
                }
            }
        }
        report
    }

    /// Unmounts and ends all that runs here, by asking first and by force then.
    pub fn end(&self) {
        let dir = self.dir();
        let mut down = self.command(&["down", "--dir", &dir.to_string_lossy()]);
        // What does not go down by asking is ended below.
        let _ = process::run(&mut down, &self.logs().join("last-down"), Duration::from_secs(30));
        let mut more_mounts = self.take_mounts();
        let paths = more_mounts.iter().map(|(path, _)| path.clone()).chain([self.mount_point()]);
        paths.for_each(|path| unmount_lazily(&path));
        for sockets in [self.sockets.clone(), self.elsewhere()] {
            for pid in process::with_environment(&format!("SHEEN_RUN_DIR={}", sockets.display())) {
                if let Err(error) = process::kill(pid) {
                    eprintln!("{error}");
                }
            }
        }
        for (_, child) in &mut more_mounts {
            // Already killed; only to reap it.
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.sockets);
    }

    fn lock_mounts(&self) -> MutexGuard<'_, Vec<(PathBuf, Child)>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_mounts(&self) -> Vec<(PathBuf, Child)> {
        std::mem::take(&mut *self.lock_mounts())
    }

    /// What `up` remembers about the file system.
    fn setting(&self, name: &str) -> Option<String> {
        let settings = text(&self.dir().join("run/cluster"));
        let pairs = settings.lines().filter_map(|line| line.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
    }

    fn pid(&self, name: &str) -> Outcome<i32> {
        let path = self.dir().join("run").join(name);
        // The process's number and when it started.
        let text = text(&path);
        text.split_whitespace().next().unwrap_or_default().parse().context(path.display())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
        if !std::thread::panicking() && std::env::var_os("SHEEN_TEST_KEEP").is_none() {
            // What is left lies below target/ and does no harm.
            let _ = fs::remove_dir_all(self.folder());
        }
    }
}

/// Kills the keeper of a mount, with which the process ends that serves it.
pub fn kill_keeper(keeper: i32, served: i32) -> Outcome {
    process::kill(keeper)?;
    process::wait_until("the end of a mount", DEAD_WITHIN, || !process::is_alive(served))
}

/// The process that a mount's keeper has started; that itself if it has none.
pub fn served_by(keeper: i32) -> i32 {
    let children = text(Path::new(&format!("/proc/{keeper}/task/{keeper}/children")));
    // One that was killed may not have ended.
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).next_back().unwrap_or(keeper)
}

/// A folder for control sockets that no other cluster has, also of a process of the same number.
fn run_folder() -> Outcome<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Short, because a socket's path has at most 107 bytes.
        let path = std::env::temp_dir().join(format!("sheen-{}-{number}", std::process::id()));
        // As a run folder is made; one that is wider is closed with a line.
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            // Another process has it, or one that was killed has left it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path.clone()).context(path.display()),
        }
    }
}

/// The program under test: `$SHEEN_BIN`, or what was built last.
pub fn program() -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("SHEEN_BIN").map(PathBuf::from) {
        let missing = || format!("SHEEN_BIN={}: no such file", path.display());
        return ensure(path.is_file(), missing).map(|()| path);
    }
    let built = ["release", "debug"].map(|kind| root().join("target").join(kind).join("sheen"));
    let found = built.into_iter().find(|path| path.is_file());
    found.ok_or("no sheen here: run `cargo build --release` or set SHEEN_BIN".to_owned())
}

/// `command` as it is run by `wrapper`.
fn wrapped(wrapper: &[&str], command: Command) -> Command {
    let [program, arguments @ ..] = wrapper else { return command };
    let mut outer = Command::new(program);
    outer.args(arguments).arg(command.get_program()).args(command.get_args());
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    outer.envs(set);
    outer
}

/// Whether something is mounted at `path`.
pub fn is_mounted(path: &Path) -> bool {
    let shown = path.display().to_string();
    let table = text(Path::new("/proc/self/mountinfo"));
    table.lines().any(|line| line.split(' ').nth(4) == Some(&shown))
}

/// Takes the mount out of the tree at once, whatever still uses it.
///
/// As root it ends the mount's connection first: else a call that waits for a mount process which
/// waits for that call's page keeps both from ending, killed or not.
fn unmount_lazily(path: &Path) {
    while is_mounted(path) {
        abort_connection(path);
        let gone = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).is_ok()
            || Command::new("fusermount3")
                .args(["-u", "-z"])
                .arg(path)
                .status()
                .is_ok_and(|s| s.success());
        if !gone {
            eprintln!("{}: cannot be unmounted", path.display());
            return;
        }
    }
}

/// Has the kernel answer all waiting calls of a FUSE mount with an error.
fn abort_connection(path: &Path) {
    let control = Path::new("/sys/fs/fuse/connections");
    let shown = path.display().to_string();
    let table = text(Path::new("/proc/self/mountinfo"));
    let mut rows = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let row = rows.find(|row| row.get(4) == Some(&shown.as_str()));
    let Some(minor) = row.and_then(|row| Some(row.get(2)?.split_once(':')?.1.to_owned())) else {
        return;
    };
    if !is_mounted(control) {
        let flags = rustix::mount::MountFlags::empty();
        // Without root there is no such control; then only the unmount helps.
        let _ = rustix::mount::mount("fusectl", control, "fusectl", flags, None);
    }
    let _ = fs::write(control.join(minor).join("abort"), "1");
}

fn unmount_second(path: &Path, mut child: Child) -> Outcome {
    // As with `Cluster::down`: for a moment it may be in use by a process that another test starts.
    wait_until(&format!("fusermount3 -u {}", path.display()), FORKED, || {
        let status = Command::new("fusermount3").arg("-u").arg(path).status();
        status.is_ok_and(|status| status.success())
    })?;
    wait_until("the end of the second mount", PATIENCE, || {
        child.try_wait().is_ok_and(|status| status.is_some())
    })
}

fn is_log(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["log", "out", "err"].iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_asked_for_on_so_many_mdts() {
        let read = |asked| Striping::read(asked).map(|it| (it.mdts, it.count.join(" ")));
        assert_eq!(read("4"), Ok((4, "-c 4".to_owned())));
        assert_eq!(read("4/2"), Ok((2, "-C 4".to_owned())));
        assert!(read("four").is_err());
    }
}
