//! `sheen up`, `down`, `status`: a whole file system on one machine.
//!
//! A directory holds everything of it: a folder for each target (`mgt`, `mdt0000`, `ost0000` ...), and
//! `run` with what the running processes need: `cluster` (name, NID, port), pids and logs, which are rotated
//! ([`super::log`]), and `lnet` with the sockets through which they reach each other. All of it is closed to
//! other users.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{FlockOperation, Mode, OFlags};
use sheen_fuse::KernelMount;
use sheen_io_os::SocketFolder;
use sheen_store_disk::{Config, FormatOptions, StoreDisk};
use sheen_types::{Errno, Nid, TargetKind};

use super::daemon::Daemon;
use super::liveness::{self, Health};
use super::server::Accept;
use super::undo::Undo;
use super::{
    PORT, addresses, folder_fault, invalid, io_fault, mount, mount_source, private, rediscovery,
};
use sheen_tools::mkfs::{self, TargetConfig};
use sheen_tools::output::{self, Fault};

/// OSTs of a new file system by default.
const OSTS: u16 = 4;
/// Port for those who may not use Lustre's.
const PORT_UNPRIVILEGED: u16 = 9988;
/// The server's `obd_timeout`, in seconds: no peer on one machine is far away.
const TIMEOUT: u64 = 20;
/// Seconds that a restarted server waits for clients: those that live come back within two.
const RECOVERY: u64 = 15;
/// The key of the number of the mount's device.
const MOUNT_DEVICE: &str = "mount.device";
/// How long a process that makes no progress may take to end.
const PATIENCE_FORCED: Duration = Duration::from_secs(1);
/// How long a process may take to end by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Start a whole file system on this machine and mount it; format it if there is none
///
/// If that fails, everything that it created is removed again.
/// If the directory's `run` is lost, name and address are taken from the targets.
///
/// The server and the mount log to run/server.log and run/mount.log in the directory: who connects, what recovers and
/// what is wrong, or what SHEEN_LOG says (warn, debug), at most a line a second of each kind, with a count of those left out. A log of 16 MiB is renamed
/// to .1, the older ones to .2 and so on; four are kept.
#[derive(Args)]
pub(crate) struct Up {
    /// The directory that holds it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to mount it
    #[arg(long, value_name = "MNT")]
    mount: PathBuf,
    /// Metadata targets
    #[arg(long, value_name = "N", default_value_t = 1)]
    mdts: u16,
    /// Object storage targets [default: 4, or those that are there]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    osts: Option<u16>,
    /// Name of the file system [default: sheen, or its name]
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    /// TCP port of LNet [default: 988 for root, 9988 for other users]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Let other machines and users connect by TCP too, at this address or at its own of this machine, from now
    /// on; `none` for no longer [default: as before, at first only through sockets in the directory]
    #[arg(long, value_name = "NID", num_args = 0..=1, default_missing_value = "own")]
    #[arg(value_parser = Listen::parse)]
    listen: Option<Listen>,
    /// Whom to let connect by TCP, as `sheen server --accept`, from now on [default: as before]. With `all`
    /// other users mount, too: their clients need not listen at the port, which may be root's
    #[arg(long, value_enum, value_name = "WHOM")]
    accept: Option<Accept>,
    /// Size of new targets in KiB [default: that of the disk]
    #[arg(long, value_name = "KB")]
    device_size: Option<u64>,
    /// Serve the servers' OpenMetrics, as `sheen server --metrics`, from now on; `none` for no longer
    /// [default: as before]
    #[arg(long, value_name = "ADDR", value_parser = Metrics::parse)]
    metrics: Option<Metrics>,
    /// Mount options, as for `sheen mount`
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Option<String>,
}

/// Where the servers' counts are to be had.
#[derive(Clone, Copy)]
struct Metrics(Option<SocketAddr>);

impl Metrics {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            text => sheen_control::page_address(text).map(|address| Self(Some(address))),
        }
    }
}

/// By TCP, beside the sockets in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listen {
    /// At the address on the loopback network that the directory's name gives.
    Own,
    At(Nid),
    None,
}

impl Listen {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self::Own),
            "none" => Ok(Self::None),
            text => text.parse().map(Self::At).map_err(|_| format!("{text}: not a NID")),
        }
    }
}

/// Unmount and stop a file system that `up` started; its data stays
#[derive(Args)]
pub(crate) struct Down {
    /// The directory that holds it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Stop the mount and the server even if programs use it or they do not answer: calls fail, and data that
    /// programs have not synced may be lost
    #[arg(long)]
    force: bool,
}

/// Show whether a file system of `up` runs, where it is mounted, and its targets
#[derive(Args)]
pub(crate) struct Status {
    /// The directory that holds it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// What `run/cluster` says.
pub(super) struct Cluster {
    directory: PathBuf,
    values: BTreeMap<String, String>,
    /// It says nothing: the values come from the targets' directories.
    is_traced: bool,
}

impl Cluster {
    pub(super) fn open(directory: &Path) -> Result<Self, Fault> {
        let cluster = Self::read(directory)?;
        private::check(&cluster.run())?;
        for target in cluster.targets().iter().filter(|_| cluster.is_traced) {
            private::check(target)?;
        }
        Ok(cluster)
    }

    /// As [`Cluster::open`], with no other process at work in the directory while the file lives, and with the
    /// processes that run.
    fn locked(directory: &Path) -> Result<(Self, OwnedFd), Fault> {
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
    fn say_traced(&self) {
        if let Some(fsname) = self.fsname().filter(|_| self.is_traced) {
            eprintln!(
                "{}/cluster is gone: file system {fsname}, as its targets say; the options --listen, --accept \
                 and --metrics of earlier starts are lost",
                self.run().display()
            );
        }
    }

    /// As [`Cluster::open`], to look at it only: it may be another user's, who says then what is in it.
    pub(super) fn read(directory: &Path) -> Result<Self, Fault> {
        let directory = directory.canonicalize().map_err(|error| io_fault(directory, &error))?;
        let text = fs::read_to_string(directory.join("run/cluster")).unwrap_or_default();
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
    fn adopt(&mut self) -> Result<(), Fault> {
        let failed = |error: std::io::Error| io_fault(&self.run(), &error);
        if self.server().pid().is_none()
            && let Some((pid, words)) = rediscovery::process("server", &self.mgt())
        {
            self.server().adopt(pid).map_err(failed)?;
            for (key, option) in [("nid", "--nid"), ("port", "--port")] {
                let value = rediscovery::value_of(&words, option).map(str::to_owned);
                self.values.extend(value.map(|value| (key.to_owned(), value)));
            }
        }
        // An `up` that was killed may have begun a mount and not said where.
        if (self.mount().pid().is_none() || self.get("mount").is_none())
            && let Some((pid, words)) = rediscovery::process("mount", &self.directory)
        {
            self.mount().adopt(pid).map_err(|error| io_fault(&self.run(), &error))?;
            let point = words.into_iter().rev().find(|word| !word.is_empty());
            self.values.extend(point.map(|point| ("mount".to_owned(), point)));
            self.values.remove(MOUNT_DEVICE);
        }
        Ok(())
    }

    fn nothing(&self) -> Fault {
        let text = format!("{}: no file system of `sheen up`", self.directory.display());
        Fault::new(Errno::ENOENT, text)
    }

    /// A target is not there; what can be done about it.
    pub(super) fn gone(&self, name: &str) -> Fault {
        let path = self.directory.join(name);
        let (path, fsname) = (path.display(), self.fsname().unwrap_or_default());
        let otherwise = match of_folder(name, fsname) {
            Some(TargetConfig { kind: Some(TargetKind::Ost), index, .. }) => {
                let nid = self.get("nid").unwrap_or("NID");
                format!(
                    "or, if it is lost for good with the data of its files, put an empty one in its place: \
                     sheen mkfs.lustre --ost --fsname {fsname} --index {index} --mgsnode {nid} --replace {path}"
                )
            }
            _ => "or have it made again of what is left (`sheen salvage`)".to_owned(),
        };
        let text = format!(
            "{path}: this target of the file system is gone, or its `format` file: restore it, {otherwise} \
             (a new file system needs a directory of its own)"
        );
        Fault::new(Errno::ENOENT, text)
    }

    fn mgt(&self) -> PathBuf {
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
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("{}: {error}", path.display());
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

    fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    fn save(&self) -> Result<(), Fault> {
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

    fn mount(&self) -> Daemon {
        Daemon::new(&self.run(), "mount")
    }

    /// The state of the mount process.
    fn health(&self) -> Health {
        liveness::health(&self.mount(), &self.kernel_mount())
    }

    /// Which mount it is.
    fn kernel_mount(&self) -> KernelMount {
        let device = self.get(MOUNT_DEVICE).map(str::to_owned);
        KernelMount::new(Path::new(self.get("mount").unwrap_or_default()), device)
    }

    /// The targets that are there, MGT first.
    pub(super) fn targets(&self) -> Vec<PathBuf> {
        let mut folders = self.folders();
        folders.retain(|folder| folder.join("format").exists());
        folders
    }

    /// The folders of targets, whatever they hold.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let rank =
            |name: &str| ["mgt", "mdt", "ost"].iter().position(|kind| name.starts_with(kind));
        names.retain(|name| rank(name).is_some());
        names.sort_by_key(|name| (rank(name), name.clone()));
        names.iter().map(|name| self.directory.join(name)).collect()
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
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(failed)?;
        Ok(file)
    }
}

/// What the target in a folder of a file system of `sheen up` is, by the folder's name alone.
pub(super) fn of_folder(folder: &str, fsname: &str) -> Option<TargetConfig> {
    if folder == "mgt" {
        return Some(TargetConfig { mgs: true, ..TargetConfig::default() });
    }
    let (kind, index) = folder.split_at_checked(3)?;
    let kind = match kind {
        "mdt" => TargetKind::Mdt,
        "ost" => TargetKind::Ost,
        _ => return None,
    };
    let index = u16::from_str_radix(index, 16).ok()?;
    let fsname = fsname.to_owned();
    Some(TargetConfig { kind: Some(kind), fsname, index, ..TargetConfig::default() })
}

/// Formats what is missing, starts what does not run, mounts.
pub(crate) fn up(options: &Up) -> Result<(), Fault> {
    if options.mdts != 1 {
        let text = format!(
            "--mdts {}: only one metadata target is supported yet; use --mdts 1",
            options.mdts
        );
        return Err(invalid(text));
    }
    mount::check_point(&options.mount)?;
    let mut undo = Undo::of(&options.dir);
    let begun = private::top(&options.dir).and_then(|()| Cluster::locked(&options.dir));
    let (cluster, done) = match begun {
        Err(fault) => (None, Err(fault)),
        Ok((mut cluster, lock)) => {
            let done = bring_up(&mut cluster, options, &mut undo);
            (Some((cluster, lock)), done)
        }
    };
    // The lock is held until all is taken back.
    done.map_err(|fault| undo.run(cluster.as_ref().map(|(cluster, _)| cluster), fault))
}

fn bring_up(cluster: &mut Cluster, options: &Up, undo: &mut Undo) -> Result<(), Fault> {
    settle(cluster, options)?;
    format_missing(cluster, options, undo)?;
    report_lost_marks(cluster);
    start_server(cluster, options, undo)?;
    start_mount(cluster, options)
}

/// Name and number of targets: what was decided earlier stays.
fn settle(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    let known = cluster.get("fsname").map(str::to_owned);
    let name = match (&known, &options.fsname) {
        (Some(known), Some(asked)) if known != asked => {
            let place = cluster.directory.display();
            let text = format!("{place} holds file system {known}, not {asked}");
            return Err(invalid(text));
        }
        (Some(known), _) => known.clone(),
        (None, asked) => asked.clone().unwrap_or_else(|| "sheen".to_owned()),
    };
    mkfs::check_fsname(&name)?;
    let there = cluster.targets().iter().filter(|path| is_ost(path)).count() as u16;
    if let Some(asked) = options.osts.filter(|asked| *asked < there) {
        let place = cluster.directory.display();
        let text = format!("{place} has {there} OSTs; --osts {asked} would leave some out");
        return Err(invalid(text));
    }
    if cluster.server().pid().is_some() {
        refuse_to_change(cluster, options, there)?;
    }
    cluster.values.insert("fsname".to_owned(), name);
    Ok(())
}

/// What a server that runs does not take.
fn refuse_to_change(cluster: &Cluster, options: &Up, there: u16) -> Result<(), Fault> {
    let more = options.osts.filter(|asked| *asked > there);
    let port = options.port.filter(|asked| cluster.address().is_some_and(|it| it.1 != *asked));
    let asked = match (more, port) {
        (Some(osts), _) => format!("--osts {osts}: its server runs with {there}"),
        (None, Some(port)) => format!("--port {port}: its server runs at another one"),
        (None, None) => return Ok(()),
    };
    Err(Fault::new(Errno::EBUSY, format!("{asked}; run `sheen down` first")))
}

fn is_ost(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ost"))
}

fn format_missing(cluster: &mut Cluster, options: &Up, undo: &mut Undo) -> Result<(), Fault> {
    let there = cluster.targets();
    let has = |name: &str| there.iter().any(|path| path.ends_with(name));
    let known = there.iter().filter(|path| is_ost(path)).count() as u16;
    let wanted = options.osts.unwrap_or(if known == 0 { OSTS } else { known });
    let fsname = cluster.get("fsname").unwrap_or_default().to_owned();
    let target = |kind, index| TargetConfig {
        kind: Some(kind),
        fsname: fsname.clone(),
        index,
        ..TargetConfig::default()
    };
    let mgs = TargetConfig { mgs: true, ..TargetConfig::default() };
    let mut missing =
        vec![("mgt".to_owned(), mgs), ("mdt0000".to_owned(), target(TargetKind::Mdt, 0))];
    missing.extend(
        (0..wanted).map(|index| (format!("ost{index:04x}"), target(TargetKind::Ost, index))),
    );
    // They are made in this order: a gap is no beginning that was cut short.
    let last = missing.iter().rposition(|(name, _)| has(name)).unwrap_or(0);
    if let Some((name, _)) = missing[..last].iter().find(|(name, _)| !has(name)) {
        return Err(cluster.gone(name));
    }
    missing.retain(|(name, _)| !has(name));
    for (name, config) in missing {
        let capacity_bytes = options.device_size.filter(|_| !config.mgs).map(|size| size << 10);
        let format = FormatOptions {
            capacity_bytes,
            label: config.name(),
            config: config.to_values(),
            reformat: false,
        };
        let path = cluster.directory.join(name);
        undo.will_format(&path, config.mgs);
        StoreDisk::format(&path, &format).map_err(|error| mkfs::disk_fault(&error))?;
    }
    cluster.save()
}

/// Reports targets of which it is unknown whether all is there that was acknowledged as durable.
fn report_lost_marks(cluster: &Cluster) {
    for folder in
        cluster.targets().iter().filter(|path| StoreDisk::lacks_mark(path).is_ok_and(|lacks| lacks))
    {
        output::line(format_args!(
            "{}: missing or damaged: cannot verify that all that was acknowledged as durable is there",
            folder.join("committed").display()
        ));
    }
}

/// Starts the server process unless it runs; at the NID it had, so that clients find it again.
fn start_server(cluster: &mut Cluster, options: &Up, undo: &mut Undo) -> Result<(), Fault> {
    let before = cluster.values.clone();
    remember(cluster, options)?;
    if let Some(pid) = cluster.server().settled(PATIENCE)? {
        if !cluster.sockets().exists() {
            let text = format!(
                "{} is missing, and without it no client reaches its server, pid {}: run `sheen down` first",
                cluster.sockets().display(),
                pid.as_raw_nonzero()
            );
            return Err(Fault::new(Errno::EBUSY, text));
        }
        let health = liveness::server_health(&cluster.server());
        if health.hangs() {
            return Err(liveness::server_hangs(&cluster.server(), &health));
        }
        return match cluster.values == before {
            true => Ok(()),
            false => {
                let text = "its server runs with its former options; run `sheen down` first";
                Err(Fault::new(Errno::EBUSY, text))
            }
        };
    }
    private::directory(&cluster.sockets())?;
    let folder = SocketFolder::open(&cluster.sockets());
    let folder = folder.map_err(|error| folder_fault(&cluster.sockets(), &error))?;
    let (nid, port) = settle_address(cluster, options, &folder)?;
    cluster.save()?;
    fs::write(cluster.run().join("mgs.nid"), format!("{nid}\n"))
        .map_err(|error| io_fault(&cluster.run(), &error))?;
    rediscovery::note(&cluster.mgt(), nid, port)?;
    undo.will_announce(mount_source::link(nid, port));
    mount_source::announce(nid, port, folder.path())?;
    undo.will_start();
    cluster.server().start(&server_arguments(cluster, nid, port))
}

/// Keeps the options of `up` that hold for later starts of the server, too.
fn remember(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    let mut set = |key: &str, value: Option<String>| match value {
        Some(value) => drop(cluster.values.insert(key.to_owned(), value)),
        None => drop(cluster.values.remove(key)),
    };
    if let Some(Metrics(address)) = options.metrics {
        set("metrics", address.map(|address| address.to_string()));
    }
    match options.listen {
        Some(Listen::None) => set("listen", None),
        Some(Listen::Own | Listen::At(_)) => set("listen", Some("tcp".to_owned())),
        None => {}
    }
    if let Some(accept) = options.accept {
        set("accept", Some(accept.word().to_owned()));
    }
    let known: Option<Nid> = cluster.get("nid").and_then(|nid| nid.parse().ok());
    match (options.listen, known) {
        (Some(Listen::At(asked)), Some(known)) if asked != known => {
            let text = format!(
                "its configuration names {known}, which stays: --listen {asked} is for a new file system"
            );
            Err(invalid(text))
        }
        _ => Ok(()),
    }
}

/// NID and port: those it had, or those it gets.
fn settle_address(
    cluster: &mut Cluster,
    options: &Up,
    folder: &SocketFolder,
) -> Result<(Nid, u16), Fault> {
    let default = if rustix::process::geteuid().is_root() { PORT } else { PORT_UNPRIVILEGED };
    let known = cluster.get("port").and_then(|port| port.parse().ok());
    let port = options.port.or(known).unwrap_or(default);
    let known: Option<Nid> = cluster.get("nid").and_then(|nid| nid.parse().ok());
    let block = addresses::block_of(&cluster.directory.to_string_lossy());
    let taken = |text: String| Fault::new(Errno::EADDRINUSE, text);
    let is_free = |nid: &Nid| !mount_source::is_of_another(*nid, port, folder.path());
    let nid = match (known, options.listen) {
        (Some(nid), _) | (None, Some(Listen::At(nid))) => Some(nid).filter(is_free),
        (None, Some(Listen::Own)) => Some(addresses::free_in(block, port).map_err(taken)?),
        (None, _) => addresses::all_in(block).find(is_free),
    };
    let nid = nid.ok_or_else(|| {
        taken(format!("another file system of `sheen up` is in use at its address and port {port}"))
    })?;
    cluster.values.insert("nid".to_owned(), nid.to_string());
    cluster.values.insert("port".to_owned(), port.to_string());
    Ok((nid, port))
}

fn server_arguments(cluster: &Cluster, nid: Nid, port: u16) -> Vec<String> {
    let mut arguments = vec!["server".to_owned()];
    let mut add = |option: &str, value: &str| {
        arguments.extend([option.to_owned(), value.to_owned()]);
    };
    add("--nid", &nid.to_string());
    add("--port", &port.to_string());
    add("--timeout", &TIMEOUT.to_string());
    add("--recovery-time-soft", &RECOVERY.to_string());
    add("--sockets", &cluster.sockets().to_string_lossy());
    match (cluster.get("listen"), cluster.get("accept")) {
        (None, _) => add("--accept", Accept::None.word()),
        (Some(_), Some(accept)) => add("--accept", accept),
        (Some(_), None) => {}
    }
    if let Some(address) = cluster.get("metrics") {
        add("--metrics", address);
    }
    // All its targets are in this one process.
    arguments.push("--no-new-targets".to_owned());
    arguments.extend(cluster.targets().iter().map(|path| path.to_string_lossy().into_owned()));
    arguments
}

/// Mounts unless it is mounted there already.
fn start_mount(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    let path = mount::absolute(&options.mount)?;
    let path_text = path.to_string_lossy().into_owned();
    let health = cluster.health();
    if let Health::Hangs(what) = &health {
        let known = cluster.get("mount").map_or(path, PathBuf::from);
        return Err(liveness::hangs(&cluster.mount(), &known, what));
    }
    if health != Health::Dead {
        return match cluster.get("mount") {
            Some(known) if known == path_text && cluster.kernel_mount().found().is_none() => {
                Err(liveness::elsewhere(&cluster.mount(), &path))
            }
            Some(known) if known == path_text => Ok(()),
            known => {
                let known = known.unwrap_or("elsewhere");
                let text = format!("it is mounted on {known}; run `sheen down` first");
                Err(Fault::new(Errno::EBUSY, text))
            }
        };
    }
    // A mount process that was killed leaves a mount point that answers nothing.
    if cluster.get("mount") == Some(&path_text) {
        liveness::detach_dead(&cluster.kernel_mount())?;
    }
    // By the directory, as another file system may have taken its place at the address by now.
    let source = cluster.directory.to_string_lossy().into_owned();
    let settings = options.options.as_deref().unwrap_or_default();
    let arguments =
        ["mount", "--foreground", "-o", settings, &source, &path_text].map(str::to_owned);
    cluster.mount().start(&arguments)?;
    let device = KernelMount::newest_at(&path).device().map(str::to_owned);
    cluster.values.insert("mount".to_owned(), path_text);
    cluster.values.extend(device.map(|device| (MOUNT_DEVICE.to_owned(), device)));
    cluster.save()
}

/// Unmounts, then stops the servers. A busy mount is left as it is.
pub(crate) fn down(options: &Down) -> Result<(), Fault> {
    let cluster = Cluster::open(&options.dir)?;
    if cluster.get("fsname").is_none() {
        return Err(cluster.nothing());
    }
    let (mut cluster, _lock) = Cluster::locked(&options.dir)?;
    let mut health = cluster.health();
    let of_server = liveness::server_health(&cluster.server());
    let is_still = of_server.hangs();
    match (is_still, &health) {
        (true, _) if !options.force => {
            return Err(liveness::server_hangs(&cluster.server(), &of_server));
        }
        // It would wait for the server to write back its dirty data.
        (true, Health::Alive(_)) => health = Health::Hangs(String::new()),
        _ => {}
    }
    if cluster.get("mount").is_some() {
        end_mount(&cluster.mount(), health, (&cluster.kernel_mount(), options.force))?;
        cluster.values.retain(|key, _| key != "mount" && key != MOUNT_DEVICE);
    }
    let patience = if is_still { PATIENCE_FORCED } else { PATIENCE };
    cluster.mount().stop(patience);
    cluster.server().stop(patience);
    if let Some((nid, port)) = cluster.address() {
        mount_source::forget_of(nid, port, &cluster.sockets());
    }
    cluster.save()
}

fn end_mount(
    daemon: &Daemon,
    health: Health,
    (mount, force): (&KernelMount, bool),
) -> Result<(), Fault> {
    let unmounted = match health {
        Health::Dead => return liveness::detach_dead(mount),
        Health::Hangs(what) => Err(liveness::hangs(daemon, mount.path(), &what)),
        // Its process ends it where it is, unless programs use it.
        Health::Alive(_) if mount.found().is_none() => match daemon.ends(PATIENCE) {
            true => Ok(()),
            false if force => return Ok(()),
            false => Err(liveness::elsewhere(daemon, mount.path())),
        },
        Health::Alive(_) => mount.unmount().map_err(|why| mount::stays(&why)),
    };
    match unmounted {
        Ok(()) => {
            daemon.wait(PATIENCE);
            Ok(())
        }
        Err(_) if force => liveness::force(daemon, mount),
        Err(fault) => Err(fault),
    }
}

/// One line each: the file system, the mount, every target.
pub(crate) fn status(options: &Status) -> Result<(), Fault> {
    let mut cluster = Cluster::open(&options.dir)?;
    cluster.adopt()?;
    cluster.say_traced();
    let Some(fsname) = cluster.get("fsname") else { return Err(cluster.nothing()) };
    let state = |daemon: Daemon| match daemon.pid() {
        Some(pid) => format!("running, pid {}", pid.as_raw_nonzero()),
        None => "stopped".to_owned(),
    };
    output::line(format_args!("file system: {fsname}"));
    let hint = liveness::server_health(&cluster.server()).hint();
    output::line(format_args!("server:      {}{hint}", state(cluster.server())));
    output::line(format_args!("mgs:         {}", cluster.get("nid").unwrap_or("not started yet")));
    let hint = match cluster.health() {
        Health::Alive(_) if cluster.kernel_mount().found().is_none() => {
            ", not mounted here: in another mount namespace, or unmounted while programs used it"
                .to_owned()
        }
        health => health.hint(),
    };
    output::line(format_args!("mount:       {}{hint}", state(cluster.mount())));
    output::line(format_args!("mounted on:  {}", cluster.get("mount").unwrap_or("nothing")));
    for path in cluster.targets() {
        let label = Config::load(&path).ok().and_then(|config| config.values.get("label").cloned());
        let label = label.unwrap_or_default();
        output::line(format_args!("target:      {label:<16} {}", path.display()));
    }
    Ok(())
}

/// The processes of the file system in `directory`, those that answer.
pub(crate) fn processes_of(directory: &Path) -> Vec<sheen_control::Client> {
    let Ok(cluster) = Cluster::open(directory) else { return Vec::new() };
    let socket = |(name, daemon): (&str, Daemon)| {
        let path = super::sockets().join(format!("{name}-{}.sock", daemon.pid()?));
        sheen_control::Client::connect(&path).ok()
    };
    [("server", cluster.server()), ("mount", cluster.mount())]
        .into_iter()
        .filter_map(socket)
        .collect()
}
