//! `sheen up`: formats what is missing, starts what does not run, mounts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Pid;
use sheen_fuse::KernelMount;
use sheen_io_os::SocketFolder;
use sheen_store_disk::StoreDisk;
use sheen_types::{Errno, Nid, TargetKind};

use super::cluster::{Cluster, MOUNT_OPTIONS, PATIENCE};
use super::first_layout::FirstLayout;
use super::liveness::{self, Health};
use super::progress::Progress;
use super::server::{Accept, OPENED_WITHIN};
use super::undo::Undo;
use super::{
    PORT, addresses, folder_fault, holders, invalid, io_fault, missing, mount, mount_source,
    other_mounts, private, rediscovery, status,
};
use sheen_tools::mkfs;
use sheen_tools::output::{self, Fault, shown_path};

/// Port for those who may not use Lustre's.
const PORT_UNPRIVILEGED: u16 = 9988;
/// The server's `obd_timeout`, in seconds: no peer on one machine is far away.
const TIMEOUT: u64 = 20;
/// Seconds that a restarted server waits for clients where all are on this machine: those that live come back within
/// two.
const RECOVERY: u64 = 15;
/// Seconds that a restarted server waits where clients on other machines may be: a client of Lustre tries again every 25 seconds once the servers
/// are gone for long. Less than a mount waits (`mount::TIMEOUT`), which is let in only after that.
const RECOVERY_LISTENING: u64 = 45;

/// Most MDTs of one server process: each is connected to each other one, so that costs grow with the square.
const MDTS_MAX: i64 = 32;

/// How long the process of a mount that is not here may take to end, once its servers run.
const DETACHED_ENDS: Duration = Duration::from_secs(10);
/// How long a server may take to serve that another `up` has started. It ends by itself before, if its MDTs are what it
/// waits for.
const SERVER_BEGINS: Duration = OPENED_WITHIN.saturating_add(Duration::from_secs(20));
/// How long after the kernel has connected a mount it may take to be seen. It is a moment; a mount that is not here at
/// all, whose next process waits for servers, looks the same for as long as that waits.
const MOUNT_SEEN: Duration = Duration::from_secs(2);
/// How often we look.
const LOOK: Duration = Duration::from_millis(100);
/// How long the next process of a mount may take to find servers that were restarted: it is let in when they have
/// recovered, and tries for a minute.
const MOUNT_GOES_ON: Duration = Duration::from_secs(100);

/// Start a whole file system on this machine and mount it, formatting it first if there is none
///
/// On failure, everything that was created is removed again.
/// If the directory's `run` is lost, the name and the address are taken from the targets.
///
/// The server and the mount log to run/server.log and run/mount.log in the directory: connections, recovery and errors.
/// SHEEN_LOG sets another level (warn, debug). A message of one kind is logged at most once a second, with the number
/// of those left out. A log that reaches 16 MiB is renamed to .1, older ones to .2 and so on; four are kept.
#[derive(Args)]
pub(crate) struct Up {
    /// Directory of the file system: its targets, logs and sockets
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Mount point
    #[arg(long, value_name = "MNT")]
    mount: PathBuf,
    /// Number of metadata targets (MDTs) [default: 1, or as many as exist]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MDTS_MAX))]
    mdts: Option<u16>,
    /// Number of object storage targets (OSTs) [default: 4, or as many as exist]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    osts: Option<u16>,
    /// Name of the file system [default: sheen, or the name of the existing one]
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    /// TCP port of LNet [default: 988 for root, 9988 for other users]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Also accept TCP connections, from other machines and users, at this NID or at the file system's own loopback
    /// address; `none` turns that off. Kept for later starts [default: as before; initially off: only through sockets in
    /// the directory]
    #[arg(long, value_name = "NID", num_args = 0..=1, default_missing_value = "own")]
    #[arg(value_parser = Listen::parse)]
    listen: Option<Listen>,
    /// Peers that may connect by TCP, as for `sheen server --accept`. Kept for later starts [default: as before]. With
    /// `all`, ordinary users can mount too: their clients need not listen on the port, which may be privileged
    #[arg(long, value_enum, value_name = "WHOM")]
    accept: Option<Accept>,
    /// Size of each new target in KiB [default: the size of the disk]
    #[arg(long, value_name = "KB")]
    device_size: Option<u64>,
    /// Default layout of files, for a new file system [default: small-files; lustre with
    /// --device-size]
    #[arg(long, value_enum, value_name = "LAYOUT")]
    layout: Option<FirstLayout>,
    /// Serve metrics of the servers, as `sheen server --metrics` does; `none` turns that off. Kept for later starts
    /// [default: as before]
    #[arg(long, value_name = "ADDR", value_parser = Metrics::parse)]
    metrics: Option<Metrics>,
    /// Memory for the servers' caches, as `sheen server --store-memory` has it. Kept for later starts [default: as before;
    /// initially by the machine's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    store_memory: Option<u64>,
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

/// Formats what is missing, starts what does not run, mounts.
pub(crate) fn up(options: &Up) -> Result<(), Fault> {
    mount::check_point(&options.mount)?;
    sheen_fuse::check_device().map_err(|error| Fault::new(error.errno(), error.to_string()))?;
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
    if cluster.is_served_elsewhere() {
        return Err(cluster.served_elsewhere());
    }
    cluster.report_copies();
    cluster.check_targets()?;
    settle(cluster, options)?;
    let (mdts, osts, size_kib) = (options.mdts, options.osts, options.device_size);
    let layout = FirstLayout::settle(cluster, options.layout, size_kib.is_some())?;
    let wanted = missing::Wanted { mdts, osts, size_kib, layout };
    missing::format(cluster, wanted, undo)?;
    report_lost_marks(cluster);
    start_server(cluster, options, undo)?;
    if undo.has_started() && !other_mounts::mounted(cluster).is_empty() {
        undo.leave_servers();
    }
    wait_for_mount(cluster, undo);
    serve_detached(cluster, undo);
    start_mount(cluster, options)?;
    status::report_refusals(cluster);
    Ok(())
}

/// A mount whose process ended with the servers goes on when its next process has found these: they recover first, and
/// know nothing of that process. One that was unmounted while they were stopped ends when it has closed its files there.
/// Whatever becomes of it, it needs them: they are not stopped for it.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn wait_for_mount(cluster: &Cluster, undo: &mut Undo) {
    let health = cluster.health();
    let has_left = undo.has_started() && holders::has_left(cluster);
    if health != Health::Waits && !(undo.has_started() && health.hangs()) && !has_left {
        return;
    }
    undo.leave_servers();
    let begin = Instant::now();
    let mut progress = Progress::new("waiting for the mount's process to go on");
    let waits = || cluster.health().hangs() || has_left && holders::has_left(cluster);
    while begin.elapsed() < MOUNT_GOES_ON && waits() {
        progress.look();
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What was unmounted while programs used it, or has copies in other mount namespaces, needs the servers as it was:
/// programs there that waited for them go on, and with the last one its process ends. Until then there is no other mount.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn serve_detached(cluster: &Cluster, undo: &mut Undo) {
    if !undo.has_started() || !holders::is_detached(cluster) {
        return;
    }
    undo.leave_servers();
    let pid = liveness::number(&cluster.mount());
    let what = format!("the servers run; waiting for the mount process, pid {pid}, to end");
    let (begin, mut progress) = (Instant::now(), Progress::new(what));
    // Behind its last program it closes its files.
    let runs = || holders::is_detached(cluster) || holders::has_left(cluster);
    while begin.elapsed() < DETACHED_ENDS && runs() {
        progress.look();
        std::thread::sleep(LOOK);
    }
}

/// The server that runs. Of one that another `up` has begun, which was killed, it is waited for that it serves, or ends.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn running_server(cluster: &Cluster) -> Result<Option<Pid>, Fault> {
    let (begin, mut progress) = (Instant::now(), Progress::new(""));
    loop {
        let Some(pid) = cluster.server().settled(PATIENCE)? else { return Ok(None) };
        // What is mounted has found it, though its socket is gone.
        let serves = !liveness::is_server_to_serve(pid) || cluster.kernel_mount().found().is_some();
        if serves && !liveness::is_server_to_be_ready(pid) {
            return Ok(Some(pid));
        }
        if begin.elapsed() > SERVER_BEGINS {
            return Err(liveness::does_not_serve(&cluster.server(), pid, SERVER_BEGINS));
        }
        let pid = pid.as_raw_nonzero();
        progress.doing(&format!("waiting for the server process, pid {pid}, to start"));
        std::thread::sleep(LOOK);
    }
}

/// A mount that another `up` has begun, which was killed, is there soon, or ends for that.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn await_begun_mount(cluster: &Cluster) {
    let (begin, mut progress) = (Instant::now(), Progress::new(""));
    let begins = |elapsed| {
        elapsed < PATIENCE && liveness::is_to_mount(cluster)
            || elapsed < MOUNT_SEEN && liveness::is_to_be_seen(cluster)
    };
    while begins(begin.elapsed()) {
        progress.doing("waiting for the mount process that another `sheen up` has started");
        std::thread::sleep(LOOK);
    }
}

/// Name and number of targets: what was decided earlier stays.
fn settle(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    let known = cluster.get("fsname").map(str::to_owned);
    let name = match (&known, &options.fsname) {
        (Some(known), Some(asked)) if known != asked => {
            let place = shown_path(&cluster.directory);
            let text = format!("{place} holds file system {known}, not {asked}");
            return Err(invalid(text));
        }
        (Some(known), _) => known.clone(),
        (None, asked) => asked.clone().unwrap_or_else(|| "sheen".to_owned()),
    };
    mkfs::check_fsname(&name)?;
    let of_kinds = [(TargetKind::Mdt, options.mdts), (TargetKind::Ost, options.osts)];
    for (kind, asked) in of_kinds {
        let there = cluster.count(kind);
        if let Some(asked) = asked.filter(|asked| *asked < there) {
            let (place, (option, noun)) = (shown_path(&cluster.directory), words_of_kind(kind));
            let text = format!("{place} has {there} {noun}; {option} {asked} would leave some out");
            return Err(invalid(text));
        }
    }
    if cluster.server().pid().is_some() {
        refuse_to_change(cluster, options.port, &of_kinds)?;
    }
    cluster.values.insert("fsname".to_owned(), name);
    Ok(())
}

/// The option for the number of targets of a kind, and what they are called.
pub(super) fn words_of_kind(kind: TargetKind) -> (&'static str, &'static str) {
    match kind {
        TargetKind::Mdt => ("--mdts", "MDTs"),
        TargetKind::Ost => ("--osts", "OSTs"),
    }
}

/// What a server that runs does not take.
fn refuse_to_change(
    cluster: &Cluster,
    port: Option<u16>,
    of_kinds: &[(TargetKind, Option<u16>)],
) -> Result<(), Fault> {
    let more = of_kinds.iter().find_map(|(kind, asked)| {
        let there = cluster.count(*kind);
        asked.filter(|asked| *asked > there).map(|asked| (words_of_kind(*kind).0, asked, there))
    });
    let port = port.filter(|asked| cluster.address().is_some_and(|it| it.1 != *asked));
    let asked = match (more, port) {
        (Some((option, asked, there)), _) => {
            format!("{option} {asked}: its server is running with {there}")
        }
        (None, Some(port)) => format!("--port {port}: its server is running on another port"),
        (None, None) => return Ok(()),
    };
    Err(Fault::new(Errno::EBUSY, format!("{asked}; run `sheen down` first")))
}

/// Reports targets of which it is unknown whether all is there that was acknowledged as durable.
fn report_lost_marks(cluster: &Cluster) {
    for folder in
        cluster.targets().iter().filter(|path| StoreDisk::lacks_mark(path).is_ok_and(|lacks| lacks))
    {
        output::line(format_args!(
            "{}: missing or damaged: cannot verify that all that was acknowledged as durable is there",
            shown_path(folder.join("committed"))
        ));
    }
}

/// Starts the server process unless it runs; at the NID it had, so that clients find it again.
fn start_server(cluster: &mut Cluster, options: &Up, undo: &mut Undo) -> Result<(), Fault> {
    let before = cluster.values.clone();
    remember(cluster, options)?;
    if let Some(pid) = running_server(cluster)? {
        if !cluster.sockets().exists() {
            let text = format!(
                "{} is missing, and without it no client reaches its server, pid {}: run `sheen down` first",
                shown_path(cluster.sockets()),
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
                let text = "its server is running with its former options; run `sheen down` first";
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
    undo.will_announce(mount_source::link(nid, port));
    mount_source::announce(nid, port, folder.path())?;
    undo.will_start();
    rediscovery::note(&cluster.mgt(), (nid, port), &cluster.targets())?;
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
    if let Some(mib) = options.store_memory {
        set("store_memory", Some(mib.to_string()));
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
                "its configuration has {known}, which cannot be changed: --listen {asked} is for a new file system"
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
        taken(format!("another file system of `sheen up` uses its address and port {port}"))
    })?;
    cluster.values.insert("nid".to_owned(), nid.to_string());
    cluster.values.insert("port".to_owned(), port.to_string());
    Ok((nid, port))
}

fn server_arguments(cluster: &Cluster, nid: Nid, port: u16) -> Vec<OsString> {
    let mut arguments = vec![OsString::from("server")];
    let mut add = |option: &str, value: &str| arguments.extend([option.into(), value.into()]);
    add("--nid", &nid.to_string());
    add("--port", &port.to_string());
    add("--timeout", &TIMEOUT.to_string());
    let recovery = if cluster.get("listen").is_some() { RECOVERY_LISTENING } else { RECOVERY };
    add("--recovery-time-soft", &recovery.to_string());
    match (cluster.get("listen"), cluster.get("accept")) {
        (None, _) => add("--accept", Accept::None.word()),
        (Some(_), Some(accept)) => add("--accept", accept),
        (Some(_), None) => {}
    }
    if let Some(address) = cluster.get("metrics") {
        add("--metrics", address);
    }
    if let Some(mib) = cluster.get("store_memory") {
        add("--store-memory", mib);
    }
    arguments.extend(["--sockets".into(), cluster.sockets().into()]);
    // All its targets are in this one process.
    arguments.push("--no-new-targets".into());
    arguments.extend(cluster.targets().into_iter().map(OsString::from));
    arguments
}

/// Mounts unless it is mounted there already.
fn start_mount(cluster: &mut Cluster, options: &Up) -> Result<(), Fault> {
    let path = mount::absolute(&options.mount)?;
    await_begun_mount(cluster);
    let known = || cluster.mount_point().unwrap_or_else(|| path.clone());
    match cluster.health() {
        Health::Hangs(what) => return Err(liveness::hangs(&cluster.mount(), &known(), &what)),
        Health::Waits => return Err(liveness::waits(&cluster.mount(), &known())),
        Health::Alive(_) => return keep_mount(cluster, &path, options.options.as_deref()),
        Health::Dead => {}
    }
    // A mount process that was killed leaves a mount point that answers nothing.
    if cluster.mount_point().as_ref() == Some(&path) {
        liveness::detach_dead(&cluster.kernel_mount())?;
    }
    // By the directory, as another file system may have taken its place at the address by now.
    let settings = options.options.as_deref().unwrap_or_default();
    let mut arguments = ["mount", "--foreground", "-o", settings].map(OsString::from).to_vec();
    arguments.extend([cluster.directory.clone().into(), path.clone().into()]);
    cluster.mount().start(&arguments)?;
    let place = KernelMount::newest_at(&path);
    cluster.forget_mount();
    cluster.mark_mount(place.marks());
    cluster.set_mount_point(&path);
    let known = options.options.clone().map(|options| (MOUNT_OPTIONS.to_owned(), options));
    cluster.values.extend(known);
    if !place.is_seen_at(&path) {
        let fault = holders::elsewhere(cluster, &place);
        cluster.mount().stop(PATIENCE);
        return Err(fault);
    }
    cluster.save()
}

/// That the mount which runs is the one that is asked for, and is seen at its mount point: programs would write into
/// the directory below.
fn keep_mount(cluster: &Cluster, path: &Path, options: Option<&str>) -> Result<(), Fault> {
    let place = cluster.kernel_mount();
    let busy = |text: String| Err(Fault::new(Errno::EBUSY, text));
    match (cluster.mount_point(), place.found()) {
        (Some(known), found) if known == path => match found {
            None => return Err(holders::elsewhere(cluster, &place)),
            Some(_) if place.is_seen_at(path) => {}
            Some(at) => {
                let (path, at) = (shown_path(path), shown_path(&at));
                return busy(format!(
                    "{path} does not show the file system, which is mounted on {at}: something else is mounted over \
                     it, or it was moved; undo that, or run `sheen down` first"
                ));
            }
        },
        (known, _) => {
            let known = known.map_or("elsewhere".to_owned(), shown_path);
            return busy(format!("it is mounted on {known}; run `sheen down` first"));
        }
    }
    let known = cluster.get(MOUNT_OPTIONS).unwrap_or_default();
    match options.filter(|asked| words_of(asked) != words_of(known)) {
        Some(asked) => busy(format!(
            "-o {asked}: it is mounted with {}; run `sheen down` first",
            if known.is_empty() { "no options".to_owned() } else { format!("-o {known}") }
        )),
        None => Ok(()),
    }
}

/// The options in a list; their order makes no difference unless they contradict each other.
fn words_of(options: &str) -> BTreeSet<&str> {
    options.split(',').filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_other_machines_have_time_to_come_back_and_mounts_wait_longer() {
        let mut cluster = Cluster::read(&std::env::temp_dir()).expect("a directory");
        let nid = "10.0.0.1@tcp".parse().expect("a NID");
        let window = |cluster: &Cluster| {
            let arguments = server_arguments(cluster, nid, 988);
            let at = arguments.iter().position(|it| it == "--recovery-time-soft").expect("said");
            arguments[at + 1].to_str().expect("text").parse::<u64>().expect("seconds")
        };
        assert_eq!(window(&cluster), 15, "all are on this machine");
        cluster.values.insert("listen".to_owned(), "10.0.0.1@tcp".to_owned());
        assert!((30..mount::TIMEOUT.as_secs() - 10).contains(&window(&cluster)));
    }
}
