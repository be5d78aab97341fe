//! `sheen mount`: a client and its FUSE mount, and the end of one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use rustix::fs::OFlags;
use sheen_assembly::{NodeConnector, ReportingConnector};
use sheen_client::config::{self, ImportPlan, MountOptions, ServerKind};
use sheen_client::data::Osts;
use sheen_client::kept::Keeper;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::{AccessTimes, FileSystem};
use sheen_control::VERSION;
use sheen_fuse::{FuseMountOptions, Jobs, KeptMemory, Questions, UnmountError};
use sheen_io::World;
use sheen_io_os::Host;
use sheen_node::rpc::RpcNode;
use sheen_parameters::{self as parameters, Follower, MountState};
use sheen_types::{Errno, Nid};

use super::daemon::{self, Daemon};
use super::keeper::{self, Former, FromKeeper};
use super::mount_service::{Ended, attach, leave_to, memory, until_ended};
use super::mount_source::{MountSource, OwnNode};
use super::server::EndSignals;
use super::upgrade::HandOver;
use super::{invalid, io_fault, liveness, origin, private, server};
use sheen_tools::output::{Fault, errno_of};

/// How long to wait for the MGS and the MDT.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Mount a Lustre file system (of Sheen or of Lustre servers) without a kernel module
#[derive(Args)]
pub(crate) struct Mount {
    /// NIDs of the MGS, the file system, and if wanted a directory of it; or the directory of a file system of
    /// `sheen up` on this machine
    #[arg(value_name = "MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]")]
    source: String,
    /// Where to mount it
    #[arg(value_name = "MNT")]
    target: PathBuf,
    /// Options, separated by commas: ro, rw, flock, localflock, user_xattr, noatime, relatime, strictatime,
    /// allow_other, suid, nosuid, dev, nodev (nosuid and nodev unless root says suid or dev),
    /// default_permissions (the kernel judges modes, too), port=N, nid=NID
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(long, short = 'f')]
    foreground: bool,
}

/// What `-o` said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    read_only: bool,
    local_locks: bool,
    allow_other: bool,
    access_times: AccessTimes,
    set_id: bool,
    devices: bool,
    judge: bool,
    port: Option<u16>,
    nid: Option<Nid>,
}

impl Settings {
    fn parse(options: &[String], is_root: bool) -> Result<Self, Fault> {
        let mut settings = Self {
            read_only: false,
            local_locks: false,
            allow_other: is_root,
            access_times: AccessTimes::Relative,
            set_id: false,
            devices: false,
            judge: false,
            port: None,
            nid: None,
        };
        for option in options.iter().filter(|option| !option.is_empty()) {
            let wrong =
                || invalid(format!("mount.lustre: mount option '{option}': not a legal value"));
            match option.split_once('=').map_or((option.as_str(), None), |(k, v)| (k, Some(v))) {
                ("ro", None) => settings.read_only = true,
                ("rw", None) => settings.read_only = false,
                ("flock", None) => settings.local_locks = false,
                ("localflock", None) => settings.local_locks = true,
                ("allow_other", None) => settings.allow_other = true,
                ("noatime", None) => settings.access_times = AccessTimes::Never,
                ("relatime", None) => settings.access_times = AccessTimes::Relative,
                ("suid" | "dev", None) if !is_root => {
                    let text = format!("mount.lustre: mount option '{option}' is for root alone");
                    return Err(Fault::new(Errno::EPERM, text));
                }
                ("suid", None) => settings.set_id = true,
                ("nosuid", None) => settings.set_id = false,
                ("dev", None) => settings.devices = true,
                ("nodev", None) => settings.devices = false,
                ("default_permissions", None) => settings.judge = true,
                ("nodefault_permissions", None) => settings.judge = false,
                ("strictatime", None) => settings.access_times = AccessTimes::Always,
                // What is always so, and what only the real mount command looks at.
                ("user_xattr" | "defaults" | "_netdev" | "auto" | "noauto" | "nouser", None) => {}
                ("port", Some(port)) => settings.port = Some(port.parse().map_err(|_| wrong())?),
                ("nid", Some(nid)) => settings.nid = Some(nid.parse().map_err(|_| wrong())?),
                _ => {
                    let text = format!("mount.lustre: mount option '{option}' is not supported");
                    return Err(invalid(text));
                }
            }
        }
        Ok(settings)
    }

    /// What of that FUSE needs to know, and what it shares with the rest of the mount.
    fn fuse_options(
        &self,
        source: &str,
        (jobs, questions): (Arc<Jobs>, Questions),
        memory: Option<Arc<KeptMemory>>,
    ) -> FuseMountOptions {
        FuseMountOptions {
            source: source.to_owned(),
            read_only: self.read_only,
            allow_other: self.allow_other,
            set_id: self.set_id,
            devices: self.devices,
            judge: self.judge,
            local_locks: self.local_locks,
            no_access_times: self.access_times == AccessTimes::Never,
            jobs,
            questions,
            memory,
        }
    }
}

/// Mounts; in the background unless asked otherwise.
pub(crate) fn run(options: &Mount) -> Result<(), Fault> {
    if options.foreground {
        return in_foreground(options);
    }
    let target = absolute(&options.target)?;
    let folder = super::sockets();
    private::directory(&folder)?;
    let mut arguments = ["mount", "--foreground", "-o"].map(str::to_owned).to_vec();
    arguments.push(options.options.join(","));
    arguments.extend([options.source.clone(), target.to_string_lossy().into_owned()]);
    sweep(&folder);
    let daemon = Daemon::unnamed(&folder);
    daemon.start(&arguments).inspect_err(|fault| {
        let place = daemon.folder();
        if !fault.text.contains(&*place.to_string_lossy()) {
            // All is said, and a next mount sweeps it.
            let _ = std::fs::remove_dir_all(place);
        }
    })
}

/// Serves the mount, or keeps it where the kernel lets a next process go on with it.
fn in_foreground(options: &Mount) -> Result<(), Fault> {
    let from_keeper = match FromKeeper::take() {
        Ok(None) if keeper::is_possible() => return keep(options),
        taken => taken,
    };
    super::log::start();
    super::raise_file_limit();
    let served = from_keeper.and_then(|from_keeper| serve(options, from_keeper));
    if let Err(fault) = &served {
        daemon::say_failed(&fault.text);
    }
    if served.is_ok() {
        forget_own_folder();
    }
    served
}

/// Keeps the mount that a process of its own serves, and leaves with that one's exit code.
fn keep(options: &Mount) -> Result<(), Fault> {
    let mut arguments: Vec<OsString> = ["mount", "--foreground"].map(OsString::from).to_vec();
    if !options.options.is_empty() {
        arguments.extend(["-o".into(), options.options.join(",").into()]);
    }
    arguments.extend([(&options.source).into(), absolute(&options.target)?.into()]);
    match keeper::run(arguments)? {
        0 => Ok(()),
        code => std::process::exit(code.into()),
    }
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

fn serve(options: &Mount, mut from_keeper: Option<FromKeeper>) -> Result<(), Fault> {
    let is_root = rustix::process::geteuid().is_root();
    let settings = Settings::parse(&options.options, is_root)?;
    let source = MountSource::resolve(&options.source, settings.port, settings.nid)?;
    let former = from_keeper.as_mut().and_then(|keeper| keeper.former.take());
    let target = match &former {
        // It answers nothing yet.
        Some(_) => options.target.clone(),
        None => absolute(&options.target)?,
    };
    if former.is_none() {
        liveness::detach_ended(&target)?;
        refuse_twice(&source.name, &target)?;
    }
    let host = Host::start(None)
        .map_err(|error| Fault::new(Errno::EAGAIN, format!("no threads: {error}")))?;
    host.block_on(async {
        // One that is to go on is not ended before it does: the mount would stay, dead.
        let signals = former.is_some().then(EndSignals::new).transpose()?;
        let own = start_node(&source, &host.world(), (settings.nid, former.as_ref())).await?;
        let (world, node) = (own.world.clone(), Arc::clone(&own.rpc));
        tracing::info!(version = VERSION, nid = %node.lnet().nid(), source = source.name,
            at = %target.display(), "mount starts");
        let memory = memory(&from_keeper, former.as_ref(), node.lnet().nid())?;
        let follower = Arc::new(Follower::default());
        let place = (&source, target.as_path());
        let (files, osts) = tokio::select! {
            connected = connect(&world, &node, place, &memory, &follower) => connected?,
            refused = source.refused(&world, node.lnet()) => return Err(refused),
        };
        let access_times =
            if settings.read_only { AccessTimes::Never } else { settings.access_times };
        files.set_access_times(access_times);
        let (jobs, questions) = (Arc::<Jobs>::default(), Questions::default());
        let shared = (Arc::clone(&jobs), questions.clone());
        let fuse_options = settings.fuse_options(&source.name, shared, memory);
        let keeper = from_keeper.as_ref();
        let is_resumed = former.is_some();
        let (mounted, keeper) = attach(&files, &target, &fuse_options, (keeper, former)).await?;
        let (parts, has_flock) = ((&files, &osts), !settings.local_locks);
        let place = (&source.name[..], &source.fsname[..], target.as_path());
        let state = MountState::new(place, (&world, &node), parts, (&jobs, has_flock));
        follower.start(&state);
        parameters::answer_users(&state, &questions);
        let mut commands = parameters::mount_commands(&state);
        let origin = origin::of_mount(&source.mgs, source.port, &source.fsname);
        commands.insert(sheen_control::api::ORIGIN.to_owned(), origin);
        let hand_over = Arc::<HandOver>::default();
        commands.extend([HandOver::command(&hand_over, keeper.is_some())]);
        let _control = server::control("mount", Arc::clone(state.tree()), commands)?;
        if !is_resumed {
            daemon::say_ready();
        }
        tracing::info!(source = source.name, at = %target.display(), "mounted");
        let handover = mounted.handover();
        let signals = signals.map_or_else(EndSignals::new, Ok)?;
        let ended = until_ended(mounted, &hand_over, signals).await?;
        if let (Ended::HandsOver(program), Some(keeper)) = (ended, keeper) {
            leave_to(keeper, &program, &files, &handover).await?;
        }
        tracing::info!(source = source.name, at = %target.display(), "unmounted");
        files.unmount().await;
        node.shutdown();
        node.lnet().shutdown();
        Ok(())
    })
}

/// Starts the client's node, at the address of an earlier process if there was one: what that was to servers they
/// forget for no other.
async fn start_node(
    source: &MountSource,
    world: &World,
    (asked, former): (Option<Nid>, Option<&Former>),
) -> Result<OwnNode, Fault> {
    match former {
        Some(former) if asked.is_none() => {
            source.start_node_again(world, Nid::tcp(former.memory.address())).await
        }
        _ => source.start_node(world, asked).await,
    }
}

/// As Lustre's mount command: the same file system is not mounted on the same place again.
fn refuse_twice(source: &str, target: &Path) -> Result<(), Fault> {
    const TABLE: &str = "/proc/self/mounts";
    let shown = target.display().to_string();
    let table = std::fs::read_to_string(TABLE).unwrap_or_default();
    let is_same = |line: &str| {
        let mut words = line.split(' ');
        words.next() == Some(source) && words.next() == Some(&shown)
    };
    if !table.lines().any(is_same) {
        return Ok(());
    }
    let text = format!("mount.lustre: according to {TABLE} {source} is already mounted on {shown}");
    Err(Fault::new(Errno::EEXIST, text))
}

/// Connects, and says what is wrong as `mount.lustre` does, on one line.
async fn connect(
    world: &World,
    node: &Arc<RpcNode>,
    (source, target): (&MountSource, &Path),
    memory: &Option<Arc<KeptMemory>>,
    follower: &Arc<Follower>,
) -> Result<(FileSystem, Arc<Osts>), Fault> {
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
    let data = Osts::new(world.clone());
    if let Some(memory) = memory {
        data.keep_in(Keeper::new(Arc::clone(memory) as _));
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
        let (source, target) = (&source.name, target.display());
        let text = format!("mount.lustre: mount {source} at {target} failed: {error}. {hints}");
        Fault::new(error.errno(), text.trim_end().to_owned())
    })
}

/// Reports what a mount waits for, until it is one: of OSTs that are away it waits for no single one.
fn reports(is_mounted: &Arc<AtomicBool>) -> impl Fn(&ImportPlan) + Send + Sync + use<> {
    let is_mounted = Arc::clone(is_mounted);
    move |plan| {
        if !is_mounted.load(Ordering::Relaxed) {
            let what = awaited(plan);
            tracing::info!("{what}");
            daemon::say_doing(&what);
        }
    }
}

fn awaited(plan: &ImportPlan) -> String {
    let nids = plan.nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (target, seconds) = (plan.target.to_string(), TIMEOUT.as_secs());
    let name = target.strip_suffix("_UUID").unwrap_or(&target);
    match plan.service {
        ServerKind::Mgs => format!("waits up to {seconds} s for the MGS at {nids}"),
        ServerKind::Mdt => format!(
            "waits up to {seconds} s for {name} at {nids}; after a crash it waits for its clients of before first"
        ),
        ServerKind::Ost => "waits for the OSTs".to_owned(),
    }
}

/// `path` without links and dots.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let (path, errno) = (path.display(), Errno::ENOENT);
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
            let text = format!("mount point {}: {}", path.display(), Errno::ENOTDIR);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_access_times_counts() {
        let access_times = |text: &str| {
            let options: Vec<String> = text.split(',').map(str::to_owned).collect();
            Settings::parse(&options, true).map(|settings| settings.access_times).ok()
        };
        assert_eq!(access_times(""), Some(AccessTimes::Relative));
        assert_eq!(access_times("noatime"), Some(AccessTimes::Never));
        assert_eq!(access_times("noatime,strictatime"), Some(AccessTimes::Always));
        assert_eq!(access_times("strictatime,relatime"), Some(AccessTimes::Relative));
        assert_eq!(access_times("noatime=1"), None);
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let options = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let settings = Settings::parse(&options("ro,port=1234,flock"), false).unwrap();
        assert_eq!((settings.read_only, settings.port), (true, Some(1234)));
        let fault = Settings::parse(&options("bogus"), false).unwrap_err();
        assert!(fault.text.contains("'bogus'"));
        assert!(Settings::parse(&options("port=x"), false).is_err());
    }

    #[test]
    fn set_id_bits_and_devices_work_only_where_root_says_so() {
        let rights = |text: &str, is_root| {
            let options: Vec<String> = text.split(',').map(str::to_owned).collect();
            Settings::parse(&options, is_root)
                .map(|it| (it.set_id, it.devices))
                .map_err(|it| it.code)
        };
        assert_eq!(rights("", true), Ok((false, false)));
        assert_eq!(rights("suid,dev", true), Ok((true, true)));
        assert_eq!(rights("suid,dev,nosuid,nodev", true), Ok((false, false)));
        assert_eq!((rights("suid", false), rights("dev", false)), (Err(1), Err(1)));
        assert_eq!(rights("nosuid,nodev", false), Ok((false, false)));
        let judges = |text: &str| {
            let options: Vec<String> = text.split(',').map(str::to_owned).collect();
            Settings::parse(&options, false).map(|it| it.judge).ok()
        };
        assert_eq!((judges("ro"), judges("ro,default_permissions")), (Some(false), Some(true)));
        assert_eq!(judges("default_permissions,nodefault_permissions"), Some(false));
    }
}
