//! `sheen up`, `down`, `status`: a whole file system on one machine.
//!
//! A directory holds everything of it: a folder for each target (`mgt`, `mdt0000`, `ost0000` ...), and
//! `run` with what the running processes need: `cluster` (name, NID, port), pids and logs.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{FlockOperation, Mode, OFlags};
use sheen_store_disk::{Config, FormatOptions, StoreDisk};
use sheen_types::{Errno, Nid, TargetKind};

use super::daemon::Daemon;
use super::{PORT, addresses, invalid, io_fault, mount};
use crate::mkfs::{self, TargetConfig};
use crate::output::{self, Fault};

/// OSTs of a new file system if nobody says.
const OSTS: u16 = 4;
/// Port for those who may not use Lustre's.
const PORT_UNPRIVILEGED: u16 = 9988;
/// The server's `obd_timeout`, in seconds: nobody on one machine is far away.
const TIMEOUT: u64 = 20;
/// Seconds that a restarted server waits for clients: those that live come back within two.
const RECOVERY: u64 = 15;
/// How long a process may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Start a whole file system on this machine and mount it; format it if there is none
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
    /// TCP port of LNet [default: 988 for root, 9988 for others]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// KiB that a new target may hold [default: what the disk has]
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

/// Unmount and stop a file system that `up` started; its data stays
#[derive(Args)]
pub(crate) struct Down {
    /// The directory that holds it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
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
}

impl Cluster {
    pub(super) fn open(directory: &Path) -> Result<Self, Fault> {
        let directory = directory.canonicalize().map_err(|error| io_fault(directory, &error))?;
        let text = fs::read_to_string(directory.join("run/cluster")).unwrap_or_default();
        let pair = |line: &str| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        Ok(Self { values: text.lines().filter_map(pair).collect(), directory })
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

    fn run(&self) -> PathBuf {
        self.directory.join("run")
    }

    pub(super) fn server(&self) -> Daemon {
        Daemon::new(&self.run(), "server")
    }

    fn mount(&self) -> Daemon {
        Daemon::new(&self.run(), "mount")
    }

    /// The targets that are there, MGT first.
    pub(super) fn targets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let rank =
            |name: &str| ["mgt", "mdt", "ost"].iter().position(|kind| name.starts_with(kind));
        names.retain(|name| {
            rank(name).is_some() && self.directory.join(name).join("format").exists()
        });
        names.sort_by_key(|name| (rank(name), name.clone()));
        names.iter().map(|name| self.directory.join(name)).collect()
    }

    /// Nobody else works on the directory while this lives.
    pub(super) fn lock(&self) -> Result<OwnedFd, Fault> {
        let path = self.run().join("lock");
        let failed = |error: rustix::io::Errno| io_fault(&path, &error.into());
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(failed)?;
        Ok(file)
    }
}

/// Formats what is missing, starts what does not run, mounts.
pub(crate) fn up(options: &Up) -> Result<(), Fault> {
    if options.mdts != 1 {
        let text =
            format!("--mdts {}: one metadata target works so far; use --mdts 1", options.mdts);
        return Err(invalid(text));
    }
    let run = options.dir.join("run");
    fs::create_dir_all(&run).map_err(|error| io_fault(&run, &error))?;
    let mut cluster = Cluster::open(&options.dir)?;
    let _lock = cluster.lock()?;
    settle(&mut cluster, options)?;
    format_missing(&mut cluster, options)?;
    start_server(&mut cluster, options)?;
    start_mount(&mut cluster, options)
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
    cluster.values.insert("fsname".to_owned(), name);
    Ok(())
}

fn is_ost(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ost"))
}

fn format_missing(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
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
        StoreDisk::format(&path, &format).map_err(|error| mkfs::disk_fault(&error))?;
    }
    cluster.save()
}

/// Starts the server process unless it runs; at the NID it had, so that clients find it again.
fn start_server(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    if cluster.server().lasting_pid().is_some() {
        return Ok(());
    }
    let default = if rustix::process::geteuid().is_root() { PORT } else { PORT_UNPRIVILEGED };
    let known = cluster.get("port").and_then(|port| port.parse().ok());
    let port = options.port.or(known).unwrap_or(default);
    let nid: Nid = match cluster.get("nid").and_then(|nid| nid.parse().ok()) {
        Some(nid) => nid,
        None => {
            let block = addresses::block_of(&cluster.directory.to_string_lossy());
            addresses::free_in(block, port).map_err(|text| Fault::new(Errno::EADDRINUSE, text))?
        }
    };
    cluster.values.insert("nid".to_owned(), nid.to_string());
    cluster.values.insert("port".to_owned(), port.to_string());
    match options.metrics {
        Some(Metrics(Some(address))) => {
            cluster.values.insert("metrics".to_owned(), address.to_string());
        }
        Some(Metrics(None)) => drop(cluster.values.remove("metrics")),
        None => {}
    }
    cluster.save()?;
    fs::write(cluster.run().join("mgs.nid"), format!("{nid}\n"))
        .map_err(|error| io_fault(&cluster.run(), &error))?;
    let mut arguments = vec!["server".to_owned(), "--nid".to_owned(), nid.to_string()];
    arguments.extend(["--port".to_owned(), port.to_string()]);
    arguments.extend(["--timeout".to_owned(), TIMEOUT.to_string()]);
    arguments.extend(["--recovery-time-soft".to_owned(), RECOVERY.to_string()]);
    if let Some(address) = cluster.get("metrics") {
        arguments.extend(["--metrics".to_owned(), address.to_owned()]);
    }
    arguments.extend(cluster.targets().iter().map(|path| path.to_string_lossy().into_owned()));
    cluster.server().start(&arguments)
}

/// Mounts unless it is mounted there already.
fn start_mount(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    let path = mount::absolute(&options.mount)?;
    let path_text = path.to_string_lossy().into_owned();
    if cluster.mount().lasting_pid().is_some() {
        return match cluster.get("mount") {
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
        mount::detach(&path);
    }
    let nid = cluster.get("nid").unwrap_or_default().to_owned();
    let source = format!("{nid}:/{}", cluster.get("fsname").unwrap_or_default());
    let port = cluster.get("port").unwrap_or_default().to_owned();
    let mut settings = format!("port={port}");
    if let Some(more) = &options.options {
        settings = format!("{settings},{more}");
    }
    let arguments =
        ["mount", "--foreground", "-o", &settings, &source, &path_text].map(str::to_owned);
    cluster.mount().start(&arguments)?;
    cluster.values.insert("mount".to_owned(), path_text);
    cluster.save()
}

/// Unmounts, then stops the servers. A busy mount is left as it is.
pub(crate) fn down(options: &Down) -> Result<(), Fault> {
    let mut cluster = Cluster::open(&options.dir)?;
    if cluster.get("fsname").is_none() {
        let text = format!("{}: no file system of `sheen up`", cluster.directory.display());
        return Err(Fault::new(Errno::ENOENT, text));
    }
    let _lock = cluster.lock()?;
    if let Some(path) = cluster.values.remove("mount") {
        let path = PathBuf::from(path);
        if cluster.mount().pid().is_some() {
            mount::unmount(&path)?;
            cluster.mount().wait(PATIENCE);
        } else {
            mount::detach(&path);
        }
    }
    cluster.mount().stop(PATIENCE);
    cluster.server().stop(PATIENCE);
    cluster.save()
}

/// One line each: the file system, the mount, every target.
pub(crate) fn status(options: &Status) -> Result<(), Fault> {
    let cluster = Cluster::open(&options.dir)?;
    let Some(fsname) = cluster.get("fsname") else {
        let text = format!("{}: no file system of `sheen up`", cluster.directory.display());
        return Err(Fault::new(Errno::ENOENT, text));
    };
    let state = |daemon: Daemon| match daemon.pid() {
        Some(pid) => format!("running, pid {}", pid.as_raw_nonzero()),
        None => "stopped".to_owned(),
    };
    output::line(format_args!("file system: {fsname}"));
    output::line(format_args!("server:      {}", state(cluster.server())));
    output::line(format_args!("mgs:         {}", cluster.get("nid").unwrap_or("not started yet")));
    output::line(format_args!("mount:       {}", state(cluster.mount())));
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
