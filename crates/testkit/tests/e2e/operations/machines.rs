//! Machines of a test: namespaces with a network, a name, and places of their own where the page writes.
//!
//! Each has its own `/etc`, `/run`, `/mnt` and `/var/lib`, and sees in `/usr` the programs as the package has them.
//! `/srv` is a disk that all reach. Processes are those of this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sheen_testkit::cluster::program;
use sheen_workloads::process::{self, text, wait_until};
use sheen_workloads::{Context, Outcome};

const PATIENCE: Duration = Duration::from_secs(120);
/// In the environment of all that runs on these machines.
const MARK: &str = "SHEEN_TEST_MACHINES";
/// What each machine does first; `$1` is its name and `$2` its folder.
const BEGIN: &str = "set -e
mount --bind $2/mnt /mnt
mount --bind $2/lib /var/lib
mount --bind $2/../srv /srv
mount -t overlay -o lowerdir=/etc,upperdir=$2/etc,workdir=$2/work sheen-test /etc
mount -t overlay -o lowerdir=$2/../package/usr:/usr sheen-test /usr
mount -t tmpfs sheen-test /run
hostname $1
ip link set lo up
touch $2/begun
exec sleep 100000";

/// All machines of a test and the switch between them; dropped, all that runs on them is ended.
pub(super) struct Machines {
    folder: PathBuf,
    switch: Machine,
    all: Vec<Machine>,
}

/// One machine, by the process that keeps its namespaces.
pub(super) struct Machine {
    pub(super) name: String,
    folder: PathBuf,
    keeper: Child,
}

impl Machines {
    /// Machines with these names and addresses, in a network of their own.
    pub(super) fn start(folder: &Path, wanted: &[(&str, &str)]) -> Outcome<Self> {
        for path in ["srv", "package/usr/bin", "package/usr/sbin"] {
            fs::create_dir_all(folder.join(path)).context(path)?;
        }
        install(&folder.join("package/usr"))?;
        let switch = Machine::start(folder, "switch")?;
        let mut machines = Self { folder: folder.to_owned(), switch, all: Vec::new() };
        machines.switch.must("ip link add bridge type bridge && ip link set bridge up")?;
        for (number, (name, address)) in wanted.iter().enumerate() {
            let machine = Machine::start(folder, name)?;
            let pid = machine.keeper.id();
            let plug = format!(
                "ip link add port{number} type veth peer name eth0 netns {pid} && \
                 ip link set port{number} master bridge up"
            );
            machines.switch.must(&plug)?;
            machine.must(&format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up"))?;
            machines.all.push(machine);
        }
        Ok(machines)
    }

    pub(super) fn get(&self, name: &str) -> Outcome<&Machine> {
        self.all.iter().find(|one| one.name == name).ok_or(format!("no machine {name}"))
    }

    /// Where the machines' files lie.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn mark(&self) -> String {
        format!("{MARK}={}", self.folder.display())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Mounts first: what waits for one waits no longer then.
        for _ in 0..2 {
            for pid in process::with_environment(&self.mark()) {
                if let Err(error) = process::kill(pid) {
                    eprintln!("{error}");
                }
            }
        }
        for machine in self.all.iter_mut().chain([&mut self.switch]) {
            // Killed already; only to reap it.
            let _ = machine.keeper.wait();
        }
    }
}

/// The program and its links, as the package has them.
fn install(usr: &Path) -> Outcome {
    let (program, place) = (program()?, usr.join("bin/sheen"));
    fs::hard_link(&program, &place)
        .or_else(|_| fs::copy(&program, &place).map(drop))
        .context("sheen")?;
    for (link, aim) in [
        ("bin/lfs", "sheen"),
        ("bin/lctl", "sheen"),
        ("sbin/mkfs.lustre", "../bin/sheen"),
        ("sbin/mount.lustre", "../bin/sheen"),
    ] {
        symlink(aim, usr.join(link)).context(link)?;
    }
    Ok(())
}

impl Machine {
    fn start(top: &Path, name: &str) -> Outcome<Self> {
        let folder = top.join(name);
        for path in ["mnt", "lib/sheen", "etc/sheen/servers", "etc/sheen/mounts", "work", "log"] {
            fs::create_dir_all(folder.join(path)).context(path)?;
        }
        let log = fs::File::create(folder.join("log/begin")).context("log")?;
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net", "--uts", "--propagation", "private", "sh", "-c", BEGIN]);
        unshare.arg("sh").arg(name).arg(&folder);
        unshare.env(MARK, top).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let keeper = unshare.spawn().context("unshare")?;
        let machine = Self { name: name.to_owned(), folder, keeper };
        let begun = machine.folder.join("begun");
        wait_until(&format!("the machine {name}"), PATIENCE, || begun.exists())
            .map_err(|error| format!("{error}\n{}", text(&machine.folder.join("log/begin"))))?;
        Ok(machine)
    }

    /// `words` on this machine. It is the process itself that the command starts: nothing stands between.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--uts", "--target"]).arg(self.keeper.id().to_string());
        command.arg("--").args(words).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env(MARK, self.folder.parent().unwrap_or(&self.folder));
        command
    }

    /// Types `line`; answers how it ended and what it wrote.
    pub(super) fn types(&self, line: &str) -> Outcome<process::Finished> {
        let log = self.folder.join("log/typed");
        process::run(&mut self.command(&["sh", "-c", line]), &log, PATIENCE)
    }

    /// As [`Machine::types`], and a failure is one.
    pub(super) fn must(&self, line: &str) -> Outcome<String> {
        let typed = self.types(line)?;
        if typed.status.success() {
            return Ok(typed.output);
        }
        Err(format!("{}# {line}: {}\n{}", self.name, typed.status, typed.output))
    }

    /// What the unit `name` has logged.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.join("log").join(format!("{name}.log"))
    }
}
