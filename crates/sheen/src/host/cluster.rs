//! A file system of `sheen up`: its directory, and what is known of its processes.
//!
//! A directory holds everything of it: a folder for each target (`mgt`, `mdt0000`, `ost0000` ...), and
//! `run` with what the running processes need: `cluster` (name, NID, port), pids and logs, which are rotated
//! ([`super::log`]), and `lnet` with the sockets through which they reach each other. All of it is closed to
//! other users.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use sheen_fuse::{KernelMount, Marks};
use sheen_io_os::SocketFolder;
use sheen_types::text::bytes_of_shown;
use sheen_types::{Errno, Nid, TargetKind};

use super::daemon::Daemon;
use super::folders::of_folder;
use super::liveness::{self, Health};
use super::{io_fault, keeper, private, rediscovery};
use sheen_tools::mkfs::TargetConfig;
use sheen_tools::output::{Fault, shown_path};

/// The keys of what the mount is known by: its device, its source, its number, and the mount namespace in which that is
/// its number.
const MOUNT_MARKS: [&str; 4] = ["mount.device", "mount.source", "mount.id", "mount.namespace"];
/// The key of the options of `-o` that it was mounted with.
pub(super) const MOUNT_OPTIONS: &str = "mount.options";
/// How long a process may take to end by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What `run/cluster` says.
pub(super) struct Cluster {
    pub(super) directory: PathBuf,
    pub(super) values: BTreeMap<String, String>,
    /// It says nothing: the values come from the targets' directories.
    is_traced: bool,
}

impl Cluster {
    pub(super) fn open(directory: &Path) -> Result<Self, Fault> {
        // Whose it is says more than that another user may not read it.
        private::check(&directory.join("run"))?;
        let cluster = Self::read(directory)?;
        for target in cluster.targets().iter().filter(|_| cluster.is_traced) {
            private::check(target)?;
        }
        Ok(cluster)
    }

    /// As [`Cluster::open`], with no other process at work in the directory while the file lives, and with the
    /// processes that run.
    pub(super) fn locked(directory: &Path) -> Result<(Self, OwnedFd), Fault> {
        loop {
            private::directory(&directory.join("run"))?;
            let lock = Self::open(directory)?.lock()?;
            // The former holder may have changed `run/cluster`, or have removed the directory with the lock.
            let held = rustix::fs::fstat(&lock).map(|it| it.st_ino);
            let there = rustix::fs::stat(directory.join("run/lock")).map(|it| it.st_ino);
            if held.is_ok() && held == there {
                let mut cluster = Self::open(directory)?;
                cluster.say_traced();
                cluster.adopt()?;
                return Ok((cluster, lock));
            }
        }
    }

    /// Reports on stderr which options are lost.
    pub(super) fn say_traced(&self) {
        if let Some(fsname) = self.fsname().filter(|_| self.is_traced) {
            eprintln!(
                "{}/cluster is gone: file system {fsname}, as its targets say; the options --listen, --accept, \
                 --metrics and --store-memory of earlier starts are lost",
                shown_path(self.run())
            );
        }
    }

    /// As [`Cluster::open`], to look at it only: it may be another user's, who says then what is in it.
    pub(super) fn read(directory: &Path) -> Result<Self, Fault> {
        let directory = directory.canonicalize().map_err(|error| io_fault(directory, &error))?;
        let text = match fs::read_to_string(directory.join("run/cluster")) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(io_fault(&directory, &error));
            }
            text => text.unwrap_or_default(),
        };
        let pair = |line: &str| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        let values = text.lines().filter_map(pair).collect();
        let mut cluster = Self { values, directory, is_traced: false };
        if cluster.fsname().is_none() {
            cluster.trace()?;
        }
        Ok(cluster)
    }

    /// Finds out what `run/cluster` said that is gone.
    fn trace(&mut self) -> Result<(), Fault> {
        let targets = self.targets();
        let Some(fsname) = rediscovery::fsname(&targets)? else { return Ok(()) };
        self.is_traced = true;
        self.values.insert("fsname".to_owned(), fsname);
        if let Some((nid, port)) = rediscovery::address(&self.mgt()) {
            self.values.insert("nid".to_owned(), nid.to_string());
            self.values.insert("port".to_owned(), port.to_string());
        }
        Ok(())
    }

    /// Finds processes of the file system that run though no file says so: the `up` that started them was
    /// killed, or the directory with the files is gone.
    pub(super) fn adopt(&mut self) -> Result<(), Fault> {
        let run = self.run();
        let failed = |error: std::io::Error| io_fault(&run, &error);
        if self.server().pid().is_none()
            && let Some((pid, words)) = rediscovery::process("server", &self.mgt())
        {
            self.server().adopt(pid).map_err(failed)?;
            for (key, option) in [("nid", "--nid"), ("port", "--port")] {
                let value = rediscovery::value_of(&words, option).map(str::to_owned);
                self.values.extend(value.map(|value| (key.to_owned(), value)));
            }
        }
        let mount = self.mount();
        if let Some(pid) = mount.pid().filter(|_| !mount.pid_file().exists()) {
            mount.adopt(pid).map_err(failed)?;
        }
        // An `up` that was killed may have begun a mount and not said where.
        if (self.mount().pid().is_none() || self.get("mount").is_none())
            && let Some((pid, words)) = rediscovery::mount(&self.directory)
        {
            self.mount().adopt(keeper::keeper_of(pid)).map_err(failed)?;
            let options = rediscovery::value_of(&words, "-o").map(str::to_owned);
            self.values.extend(options.map(|options| (MOUNT_OPTIONS.to_owned(), options)));
            if let Some(point) = words.iter().rev().find(|word| !word.is_empty()) {
                self.set_mount_point(Path::new(point));
            }
            self.mark_mount(Marks::default());
        }
        Ok(())
    }

    pub(super) fn nothing(&self) -> Fault {
        let text = format!("{}: no file system of `sheen up`", shown_path(&self.directory));
        Fault::new(Errno::ENOENT, text)
    }

    /// A target is not there; what can be done about it.
    pub(super) fn gone(&self, name: &str) -> Fault {
        let path = self.directory.join(name);
        let (path, fsname) = (shown_path(&path), self.fsname().unwrap_or_default());
        let otherwise = match of_folder(name, fsname) {
            Some(TargetConfig { kind: Some(TargetKind::Ost), index, .. }) => {
                let nid = self.get("nid").unwrap_or("NID");
                format!(
                    ", or, if it is lost for good with the data of its files, put an empty one in its place: \
                     sheen mkfs.lustre --ost --fsname {fsname} --index {index} --mgsnode {nid} --replace {path}"
                )
            }
            Some(TargetConfig { kind: Some(TargetKind::Mdt), index, .. })
                if index > 0 || self.has_several_mdts() =>
            {
                " from a backup: one of several metadata targets is neither rebuilt by `sheen salvage` nor replaced by an \
                 empty one yet"
                    .to_owned()
            }
            _ => ", or rebuild it from what is left (`sheen salvage`)".to_owned(),
        };
        let text = format!(
            "{path}: this target of the file system is gone, or its `format` file: restore it{otherwise} \
             (a new file system needs a directory of its own)"
        );
        Fault::new(Errno::ENOENT, text)
    }

    pub(super) fn mgt(&self) -> PathBuf {
        self.directory.join("mgt")
    }

    /// Makes `run/cluster` again what it was.
    pub(super) fn restore(&self, before: Option<&str>) {
        let path = self.run().join("cluster");
        let restored = match before {
            Some(text) => fs::write(&path, text),
            None => fs::remove_file(&path),
        };
        if let Err(error) = restored
            && error.kind() != ErrorKind::NotFound
        {
            eprintln!("{}: {error}", shown_path(&path));
        }
    }

    /// NID and port of its servers, if it was ever started.
    pub(super) fn address(&self) -> Option<(Nid, u16)> {
        Some((self.get("nid")?.parse().ok()?, self.get("port")?.parse().ok()?))
    }

    pub(super) fn fsname(&self) -> Option<&str> {
        self.get("fsname")
    }

    /// The folder of the sockets through which its processes reach each other.
    pub(super) fn sockets(&self) -> PathBuf {
        self.run().join("lnet")
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub(super) fn save(&self) -> Result<(), Fault> {
        let run = self.run();
        let path = run.join("cluster");
        let text: String = self.values.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
        let temporary = run.join("cluster.new");
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|error| io_fault(&path, &error))
    }

    pub(super) fn run(&self) -> PathBuf {
        self.directory.join("run")
    }

    pub(super) fn server(&self) -> Daemon {
        Daemon::new(&self.run(), "server")
    }

    pub(super) fn mount(&self) -> Daemon {
        Daemon::new(&self.run(), "mount")
    }

    /// Whether a server answers for it whose process cannot be seen from here.
    pub(super) fn is_served_elsewhere(&self) -> bool {
        let Some((nid, port)) = self.address() else { return false };
        let node = SocketAddrV4::new(nid.address(), port);
        self.server().pid().is_none()
            && SocketFolder::open(&self.sockets()).is_ok_and(|folder| folder.is_live(node))
    }

    /// The error where that keeps a command from its work.
    pub(super) fn served_elsewhere(&self) -> Fault {
        let text = format!(
            "{}: its server runs in another PID namespace, perhaps that of a container: run this command there",
            shown_path(&self.directory)
        );
        Fault::new(Errno::EBUSY, text)
    }

    /// The state of the mount process.
    pub(super) fn health(&self) -> Health {
        liveness::health(&self.mount(), &self.kernel_mount())
    }

    /// Which mount it is. Its device is its own while its process is connected to the kernel, and the next mount's when
    /// it is gone.
    pub(super) fn kernel_mount(&self) -> KernelMount {
        let connection = self.mount().pid().and_then(keeper::connection_of);
        let [device, source, id, namespace] =
            MOUNT_MARKS.map(|key| self.get(key).map(str::to_owned));
        let device = device.or_else(|| connection.as_ref()?.device.clone());
        // A copy of it in another namespace has another number.
        let id = id.filter(|_| namespace == namespace_here());
        let marks = Marks { device, source, id: id.and_then(|id| id.parse().ok()) };
        let path = self.mount_point().unwrap_or_default();
        KernelMount::marked(&path, marks, connection.is_some())
    }

    /// Where it was mounted, if it was.
    pub(super) fn mount_point(&self) -> Option<PathBuf> {
        let bytes = bytes_of_shown(self.get("mount")?.as_bytes());
        Some(OsString::from_vec(bytes).into())
    }

    /// Keeps where it is mounted. A path is written as the kernel's tables have it: one with the end of a line in it would
    /// set other values.
    pub(super) fn set_mount_point(&mut self, path: &Path) {
        self.values.insert("mount".to_owned(), shown_path(path));
    }

    /// Keeps what the mount is known by, and nothing of an earlier one.
    pub(super) fn mark_mount(&mut self, marks: Marks) {
        let namespace = marks.id.and_then(|_| namespace_here());
        let values = [marks.device, marks.source, marks.id.map(|id| id.to_string()), namespace];
        for (key, value) in MOUNT_MARKS.into_iter().zip(values) {
            self.values.remove(key);
            self.values.extend(value.map(|value| (key.to_owned(), value)));
        }
    }

    /// Forgets the mount.
    pub(super) fn forget_mount(&mut self) {
        self.mark_mount(Marks::default());
        self.values.retain(|key, _| !["mount", MOUNT_OPTIONS].contains(&&**key));
    }

    /// No other process works on the directory while this lives.
    pub(super) fn lock(&self) -> Result<OwnedFd, Fault> {
        if !self.targets().is_empty() {
            private::directory(&self.run())?;
        }
        let path = self.run().join("lock");
        let failed = |error: rustix::io::Errno| io_fault(&path, &error.into());
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let place = shown_path(&self.directory);
            eprintln!("waiting for another `sheen up`, `down` or `fsck` on {place} ...");
            rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(failed)?;
        }
        Ok(file)
    }
}

/// The mount namespace of this process.
fn namespace_here() -> Option<String> {
    let name = fs::read_link("/proc/self/ns/mnt").ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// The processes of the file system in `directory`, those that answer.
pub(crate) fn processes_of(directory: &Path) -> Vec<sheen_control::Client> {
    let Ok(cluster) = Cluster::open(directory) else { return Vec::new() };
    let socket = |(name, daemon): (&str, Daemon)| {
        let pid = keeper::served_by(daemon.pid()?);
        let path = super::sockets().join(format!("{name}-{pid}.sock"));
        sheen_control::Client::connect(&path).ok()
    };
    [("server", cluster.server()), ("mount", cluster.mount())]
        .into_iter()
        .filter_map(socket)
        .collect()
}
