//! `sheen mount`: a client and its FUSE mount, and the end of one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use rustix::fs::OFlags;
use sheen_assembly::{NodeConnector, ReportingConnector};
use sheen_client::config::{self, MountOptions};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::FileSystem;
use sheen_client::records::Recorder;
use sheen_control::VERSION;
use sheen_fuse::{FuseMountOptions, Jobs, KeeperMemory, Questions, UnmountError};
use sheen_io::World;
use sheen_io_os::Host;
use sheen_node::rpc::{ImportConfig, ImportKind, RpcNode};
use sheen_parameters::{self as parameters, Follower, MountState, ShownOptions};
use sheen_types::text::bytes_of_shown;
use sheen_types::{Errno, Nid};

use super::daemon::{self, Daemon};
use super::keeper::{self, FormerProcess, FromKeeper};
use super::mount_options::{self, Settings};
use super::mount_service::{Ended, attach, leave_to, memory, until_ended};
use super::mount_source::{self, MountSource, OwnNode};
use super::server::EndSignals;
use super::upgrade::HandOver;
use super::{
    io_fault, liveness, mount_helper, mount_parameters, notify, origin, private, remount, server,
};
use sheen_tools::output::{Fault, errno_of, shown_path};

/// How long to wait for the MGS and the MDT.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Mount a Lustre file system (of Sheen or of Lustre servers) without a kernel module
#[derive(Args)]
#[command(after_help = mount_options::help())]
pub(crate) struct Mount {
    /// NIDs or host names of the MGS, the file system, and if wanted a directory of it; or the directory of a file
    /// system of `sheen up` on this machine
    #[arg(value_name = "MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]")]
    source: OsString,
    /// Mount point
    #[arg(value_name = "MNT")]
    target: PathBuf,
    /// Options, separated by commas
    #[arg(short = 'o', long, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
    /// Do everything but the mount itself
    #[arg(long, short = 'f')]
    fake: bool,
    /// Mount even if this or another file system is mounted there already
    #[arg(long)]
    force: bool,
    /// What /proc/mounts shows in place of the MGS's NIDs
    #[arg(long, short = 'M', value_name = "NAME")]
    mgsname: Option<String>,
    /// Ignore unknown options
    #[arg(short = 's')]
    sloppy: bool,
    /// Do not write to /etc/mtab (Sheen never does)
    #[arg(long, short = 'n')]
    nomtab: bool,
    /// Verbose
    #[arg(long, short = 'v')]
    verbose: bool,
    /// Mount in this mount namespace: that of a process, or a file
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The type that mount(8) was asked for
    #[arg(short = 't', value_name = "TYPE", value_parser = ["lustre", "fuse.lustre"])]
    kind: Option<String>,
}

impl Mount {
    /// All options, as one text.
    fn options(&self) -> String {
        let mut all = self.options.clone();
        all.extend(self.force.then(|| "force".to_owned()));
        all.extend(self.mgsname.iter().map(|name| format!("mgsname={name}")));
        all.join(",")
    }

    /// The arguments of a process that serves it at `target`.
    fn in_foreground(&self, target: &Path) -> Vec<OsString> {
        let mut arguments = ["mount", "--foreground", "-o"].map(OsString::from).to_vec();
        arguments.push(self.options().into());
        arguments.extend(self.sloppy.then(|| "-s".into()));
        let source = mount_source::from_anywhere(&self.source);
        arguments.extend([source, target.into()]);
        arguments
    }

    /// What the options say.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    fn settings(&self) -> Result<Settings, Fault> {
        let is_root = rustix::process::geteuid().is_root();
        match self.sloppy {
            true => Settings::parse_sloppy(&self.options(), is_root),
            false => Settings::parse(&self.options(), is_root),
        }
    }
}

/// Mounts; in the background unless asked otherwise.
pub(crate) fn run(options: &Mount) -> Result<(), Fault> {
    let settings = options.settings().inspect_err(|fault| daemon::say_failed(&fault.text))?;
    perform(options, &settings)
}

/// Mounts as mount(8) wants it of the programs that it calls.
pub(crate) fn run_as_helper(options: &Mount) -> Result<(), Fault> {
    let settings = options.settings().map_err(mount_helper::misused)?;
    perform(options, &settings).map_err(mount_helper::failed)
}

fn perform(options: &Mount, settings: &Settings) -> Result<(), Fault> {
    settings.ignored.iter().for_each(|line| eprintln!("{line}"));
    if let Some(namespace) = &options.namespace {
        mount_helper::enter(namespace)?;
    }
    if options.verbose {
        let (source, target) = (shown_path(&options.source), shown_path(&options.target));
        println!("source = {source}, target = {target}\noptions = {}", options.options());
    }
    if settings.remount {
        return remount(options, settings);
    }
    if options.fake {
        return check(options, settings).map(|_| ());
    }
    if options.foreground {
        return in_foreground(options, settings);
    }
    mount_helper::attempts(settings.retries, options.verbose, || start(options))
}

/// Serves the mount, or keeps it where the kernel lets a next process go on with it.
fn in_foreground(options: &Mount, settings: &Settings) -> Result<(), Fault> {
    let from_keeper = match FromKeeper::take() {
        Ok(None) if keeper::is_possible() => return keep(options),
        taken => taken,
    };
    super::log::start();
    super::raise_file_limit();
    let served = from_keeper.and_then(|mut from_keeper| {
        let mut former = from_keeper.as_mut().and_then(|keeper| keeper.former.take());
        let retries =
            if daemon::is_supervised() || former.is_some() { 0 } else { settings.retries };
        mount_helper::attempts(retries, options.verbose, || {
            serve(options, settings, (&from_keeper, former.take()))
        })
    });
    if let Err(fault) = &served {
        daemon::say_failed(&fault.text);
    }
    // What failed keeps its log; the reason of one that was abandoned interests no one.
    if served.as_ref().err().is_none_or(daemon::is_abandonment) {
        forget_own_folder();
    }
    served
}

/// Keeps the mount that a process of its own serves, and leaves with that one's exit code.
fn keep(options: &Mount) -> Result<(), Fault> {
    let target = absolute(&options.target)?;
    let arguments = options.in_foreground(&target);
    match keeper::run(arguments)? {
        0 => Ok(()),
        code => std::process::exit(code.into()),
    }
}

/// Mounts in the background.
fn start(options: &Mount) -> Result<(), Fault> {
    let target = absolute(&options.target)?;
    let folder = super::sockets();
    private::directory(&folder)?;
    let arguments = options.in_foreground(&target);
    sweep(&folder);
    let daemon = Daemon::unnamed(&folder);
    daemon.start(&arguments).inspect_err(|fault| {
        let place = daemon.folder();
        if !fault.text.contains(&shown_path(place)) {
            // All is said, and a next mount sweeps it.
            let _ = std::fs::remove_dir_all(place);
        }
    })
}

fn source(options: &Mount, settings: &Settings) -> Result<MountSource, Fault> {
    let mut source = MountSource::resolve(&options.source, settings.port, settings.nid)?;
    source.keep_only(settings.network)?;
    Ok(source)
}

/// What is mounted where, if it can be.
fn check(options: &Mount, settings: &Settings) -> Result<(MountSource, PathBuf), Fault> {
    let source = source(options, settings)?;
    let target = absolute(&options.target)?;
    liveness::detach_ended(&target)?;
    if !settings.force {
        refuse_twice(&source.shown(settings.mgs_name.as_deref()), &target)?;
    }
    Ok((source, target))
}

/// Changes the flags of a mount that is there.
fn remount(options: &Mount, settings: &Settings) -> Result<(), Fault> {
    let source = MountSource::resolve(&options.source, settings.port, settings.nid)?;
    let (shown, target) = (source.shown(settings.mgs_name.as_deref()), absolute(&options.target)?);
    if !is_mounted(&shown, &target) {
        let target = shown_path(target);
        let text = format!(
            "mount.lustre: according to {TABLE} {shown} is not already mounted on {target}"
        );
        return Err(Fault::new(Errno::ENOENT, text));
    }
    remount::change(&target, &options.options(), options.fake)
}

/// Removes the folder of a mount in the background that has ended well: no one will read its log.
fn forget_own_folder() {
    let log = std::env::var_os(super::log::FILE_VARIABLE).map(PathBuf::from);
    let folder = log.as_deref().and_then(Path::parent);
    let is_unnamed = |folder: &&Path| {
        folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("mount-"))
    };
    if let Some(folder) = folder.filter(is_unnamed) {
        // A next mount sweeps it otherwise.
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Takes away what mounts in the background left that have ended: their logs were there to be read till now.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let starter =
            name.to_str().and_then(|name| name.strip_prefix("mount-")?.parse::<u32>().ok());
        let Some(starter) = starter else { continue };
        let is_starting = Path::new(&format!("/proc/{starter}")).exists();
        if !is_starting && Daemon::new(&entry.path(), "mount").pid().is_none() {
            // Another mount may sweep, too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn serve(
    options: &Mount,
    settings: &Settings,
    (from_keeper, former): (&Option<FromKeeper>, Option<FormerProcess>),
) -> Result<(), Fault> {
    let (source, target) = match &former {
        // The mount answers nothing yet.
        Some(_) => (source(options, settings)?, options.target.clone()),
        None => check(options, settings)?,
    };
    let host = Host::start(None)
        .map_err(|error| Fault::new(Errno::EAGAIN, format!("no threads: {error}")))?;
    host.block_on(async {
        // One that is to go on is not ended before it does: the mount would stay, dead.
        let is_resumed = former.is_some();
        let signals = is_resumed.then(EndSignals::new).transpose()?;
        let own = start_node(&source, &host.world(), (settings.nid, former.as_ref())).await?;
        let (world, node) = (own.world.clone(), Arc::clone(&own.rpc));
        let source_name = &source.name;
        if settings.verbose {
            tracing::info!(version = VERSION, nid = %node.lnet().nid(), source = source_name,
                at = %shown_path(&target), "mount starts");
        }
        let memory = memory(from_keeper, former.as_ref(), node.lnet().nid())?;
        let follower = Arc::new(Follower::default());
        let place = (&source, target.as_path());
        let (files, osts) = tokio::select! {
            connected = connect(&world, &node, place, &memory, &follower) => connected?,
            refused = source.refused(&world, node.lnet()) => return Err(refused),
            fault = daemon::abandoned(&world), if !is_resumed => return Err(fault),
        };
        files.set_access_times(settings.access_times());
        files.settings().user_xattrs.set(settings.user_xattrs);
        let (jobs, questions) = (Arc::<Jobs>::default(), Questions::default());
        let fuse = fuse_options(&source, settings, (&jobs, &questions), memory);
        let (mounted, keeper) =
            attach(&files, &target, &fuse, (from_keeper.as_ref(), former)).await?;
        let (locks, users_resolve_fids) = (settings.locks, settings.users_resolve_fids);
        let (parts, shown) = ((&files, &osts), ShownOptions { locks, users_resolve_fids });
        let place = (&source_name[..], &source.fsname[..], target.as_path());
        let state = MountState::new(place, (&world, &node), parts, (&jobs, shown));
        follower.start(&state);
        mount_parameters::apply(state.tree(), &settings.parameters, &source.fsname);
        parameters::answer_users(&state, &questions);
        let hand_over = Arc::<HandOver>::default();
        let _control =
            answer_tools(&state, &source, HandOver::command(&hand_over, keeper.is_some()))?;
        remount::follow(mounted.kernel_mount().clone(), files.clone());
        if !is_resumed {
            daemon::say_ready();
        }
        notify::status(&format!("{source_name} is mounted on {}", shown_path(&target)));
        if settings.verbose {
            tracing::info!(source = source_name, at = %shown_path(&target), "mounted");
        }
        let handover = mounted.handover();
        let signals = signals.map_or_else(EndSignals::new, Ok)?;
        let ended = until_ended(&world, mounted, &hand_over, signals).await?;
        if let (Ended::HandsOver(program), Some(keeper)) = (ended, keeper) {
            leave_to(keeper, &program, &files, &handover).await?;
        }
        notify::stopping();
        if settings.verbose {
            tracing::info!(source = source_name, at = %shown_path(&target), "unmounted");
        }
        files.unmount().await;
        node.shutdown();
        node.lnet().shutdown();
        Ok(())
    })
}

/// The control socket of this mount.
fn answer_tools(
    state: &Arc<MountState>,
    source: &MountSource,
    hand_over: (String, sheen_control::Command),
) -> Result<sheen_control::Server, Fault> {
    let mut commands = parameters::mount_commands(state);
    let origin = origin::of_mount(&source.mgs, source.port, &source.fsname);
    commands.extend([(sheen_control::api::ORIGIN.to_owned(), origin), hand_over]);
    server::control("mount", Arc::clone(state.tree()), commands)
}

fn fuse_options(
    source: &MountSource,
    settings: &Settings,
    (jobs, questions): (&Arc<Jobs>, &Questions),
    memory: Option<Arc<KeeperMemory>>,
) -> FuseMountOptions {
    FuseMountOptions {
        source: source.shown(settings.mgs_name.as_deref()),
        flags: settings.flags,
        contexts: settings.contexts.clone(),
        over: settings.force,
        allow_other: settings.allow_other,
        judge: settings.judge,
        locks: settings.locks,
        jobs: Arc::clone(jobs),
        questions: questions.clone(),
        memory,
    }
}

/// Starts the client's node, at the address of an earlier process if there was one: what that was to servers they
/// forget for no other.
async fn start_node(
    source: &MountSource,
    world: &World,
    (asked, former): (Option<Nid>, Option<&FormerProcess>),
) -> Result<OwnNode, Fault> {
    match former {
        Some(former) if asked.is_none() => {
            source.start_node_again(world, Nid::tcp(former.memory.address())).await
        }
        _ => source.start_node(world, asked).await,
    }
}

/// The kernel's table of mounts.
const TABLE: &str = "/proc/self/mounts";

/// Whether it is listed there.
fn is_mounted(source: &str, target: &Path) -> bool {
    let table = std::fs::read(TABLE).unwrap_or_default();
    let is_same = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').map(bytes_of_shown);
        words.next().is_some_and(|word| word == source.as_bytes())
            && words.next().is_some_and(|word| word == target.as_os_str().as_bytes())
    };
    table.split(|byte| *byte == b'\n').any(is_same)
}

/// As Lustre's mount command: the same file system is not mounted on the same place again.
fn refuse_twice(source: &str, target: &Path) -> Result<(), Fault> {
    if !is_mounted(source, target) {
        return Ok(());
    }
    let shown = shown_path(target);
    let text = format!("mount.lustre: according to {TABLE} {source} is already mounted on {shown}");
    Err(Fault::new(Errno::EEXIST, text))
}

/// Connects, and says what is wrong as `mount.lustre` does, on one line.
async fn connect(
    world: &World,
    node: &Arc<RpcNode>,
    (source, target): (&MountSource, &Path),
    memory: &Option<Arc<KeeperMemory>>,
    follower: &Arc<Follower>,
) -> Result<(FileSystem, Arc<DataTargets>), Fault> {
    let router = Arc::new(CallbackRouter::default());
    node.register_callbacks(Arc::clone(&router) as _);
    let plan = MountOptions {
        fsname: source.fsname.clone(),
        mgs: source.mgs.clone(),
        fileset: source.fileset.clone(),
        timeout: TIMEOUT,
    };
    let is_mounted = Arc::new(AtomicBool::new(false));
    let connector = NodeConnector(Arc::clone(node));
    let connector = Arc::new(ReportingConnector(connector, reports(&is_mounted)));
    let data = DataTargets::new(world.clone());
    if let Some(memory) = memory {
        data.record_in(Recorder::new(Arc::clone(memory) as _));
    }
    let path = Arc::clone(&data) as _;
    let hook = Some(follower.hook());
    let files = config::mount(world.clone(), connector, router, path, plan, hook).await;
    is_mounted.store(true, Ordering::Relaxed);
    files.map(|files| (files, data)).map_err(|error| {
        let mut hints = error.hints().join(" ");
        if error == config::MountError::MgsUnreachable {
            hints = format!("{hints} {}", source.hint());
        }
        let (source, target) = (&source.name, shown_path(target));
        let text = format!("mount.lustre: mount {source} at {target} failed: {error}. {hints}");
        Fault::new(error.errno(), text.trim_end().to_owned())
    })
}

/// Reports what a mount waits for, until it is one: of OSTs that are away it waits for no single one.
fn reports(is_mounted: &Arc<AtomicBool>) -> impl Fn(&ImportConfig) + Send + Sync + use<> {
    let is_mounted = Arc::clone(is_mounted);
    move |config| {
        if !is_mounted.load(Ordering::Relaxed) {
            let what = awaited(config);
            tracing::info!("{what}");
            daemon::say_doing(&what);
        }
    }
}

fn awaited(config: &ImportConfig) -> String {
    let nids = config.nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (target, seconds) = (config.target.to_string(), TIMEOUT.as_secs());
    let name = target.strip_suffix("_UUID").unwrap_or(&target);
    match config.kind {
        ImportKind::Mgs => format!("waiting up to {seconds} s for the MGS at {nids}"),
        ImportKind::Mds => format!(
            "waiting up to {seconds} s for {name} at {nids}; after a crash it first waits for its former clients"
        ),
        ImportKind::Ost | ImportKind::Reverse => "waiting for the OSTs".to_owned(),
    }
}

/// `path` without links and dots.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let (path, errno) = (shown_path(&*path), Errno::ENOENT);
            Fault::new(errno, format!("mount point {path}: {errno}; make the directory first"))
        }
        _ => io_fault(path, &error),
    })
}

/// Whether one can mount at `path`, asking no file system: what is mounted there may not answer.
pub(super) fn check_point(path: &Path) -> Result<(), Fault> {
    let full = absolute(path)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = rustix::fs::open(&full, flags, rustix::fs::Mode::empty());
    match found {
        Err(rustix::io::Errno::NOTDIR) => {
            let text = format!("mount point {}: {}", shown_path(path), Errno::ENOTDIR);
            Err(Fault::new(Errno::ENOTDIR, text))
        }
        _ => Ok(()),
    }
}

/// Why a mount could not be unmounted.
pub(super) fn stays(why: &UnmountError) -> Fault {
    let errno = match why {
        UnmountError::Busy(_) | UnmountError::Covered(_) => Errno::EBUSY,
        UnmountError::Failed(_, error) => errno_of(error),
    };
    Fault::new(errno, why.to_string())
}

impl Daemon {
    /// A mount without a pid file: it ends when it is unmounted.
    fn unnamed(folder: &Path) -> Self {
        Self::new(&folder.join(format!("mount-{}", std::process::id())), "mount")
    }
}
