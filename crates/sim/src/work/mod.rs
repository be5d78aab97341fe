//! What clients do: some processes on each, over a few shared names and files.

mod data;
mod layouts;
mod marks;
mod migrations;
mod names;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use sheen_types::{Errno, Fid, Instant, Name};
use sheen_vnet::SeededRandom;

use crate::cluster::{Found, Kernel};
use crate::model::{Seen, Writer};
use crate::run::{Model, Sim};

pub(crate) use migrations::Migration;

/// Processes on each client.
const PROCESSES: u64 = 2;
/// Directories in the root, files in each directory, logs in the root.
const DIRECTORIES: u64 = 3;
const FILES: u64 = 4;
const LOGS: u64 = 2;
/// One operation in so many moves a file, if files move at all.
const MOVES_ONE_IN: u64 = 30;
/// One operation in so many spreads a directory anew, where there are several MDTs besides.
const SPREADS_ONE_IN: u64 = 15;
/// Longest pause between two bursts of operations.
const PAUSE_MAX: Duration = Duration::from_secs(12);

/// A process.
pub(crate) struct Process {
    pub(crate) sim: Arc<Sim>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) client: Writer,
    /// Its number among all processes that ever were.
    pub(crate) number: u64,
}

/// A name in a directory that was found.
pub(crate) struct NameInDirectory {
    pub(crate) parent: Found,
    pub(crate) name: Name,
    /// As the log shows it.
    pub(crate) path: String,
}

impl NameInDirectory {
    /// What the model knows it by.
    pub(crate) fn key(&self) -> (Fid, &str) {
        (self.parent.fid, text(&self.name))
    }
}

pub(crate) fn text(name: &Name) -> &str {
    std::str::from_utf8(name.as_bytes()).unwrap_or("?")
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("names here are legal")
}

/// Starts a client and its processes.
pub(crate) fn start_client(sim: &Arc<Sim>, number: Writer) {
    let client = &sim.cluster.clients[usize::from(number)];
    client.start(&sim.world);
    let Some(scope) = client.scope() else { return };
    let world = sim.world.world_of(scope);
    for _ in 0..PROCESSES {
        let sim = Arc::clone(sim);
        let work = async move {
            let process = Process::start(&sim, number).await;
            process.work().await;
            process.sim.process_ended(process.number);
        };
        world.tasks.spawn("process", Box::pin(work));
    }
    if sim.options.mdts > 1 {
        let sim = Arc::clone(sim);
        let watch = async move {
            let process = Process::start(&sim, number).await;
            process.watch().await;
            process.sim.process_ended(process.number);
        };
        world.tasks.spawn("watcher", Box::pin(watch));
    }
}

/// Starts the client that looks at everything in the end.
pub(crate) fn start_last(sim: &Arc<Sim>, number: Writer) {
    let client = &sim.cluster.clients[usize::from(number)];
    client.start(&sim.world);
    let Some(scope) = client.scope() else { return };
    let looking = Arc::clone(sim);
    let work = async move {
        let process = Process::start(&looking, number).await;
        process.look_at_everything().await;
        if looking.changes_fids() {
            process.end_everything().await;
            process.look_at_everything().await;
        }
        looking.done();
    };
    sim.world.world_of(scope).tasks.spawn("last look", Box::pin(work));
}

impl Process {
    async fn start(sim: &Arc<Sim>, client: Writer) -> Self {
        loop {
            if let Some(kernel) = sim.cluster.clients[usize::from(client)].kernel() {
                let number = sim.next_process(client);
                return Self { sim: Arc::clone(sim), kernel, client, number };
            }
            sim.sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn random(&self) -> &SeededRandom {
        self.sim.random()
    }

    pub(crate) fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Whether the client knows what it holds: it was not evicted a moment ago.
    pub(crate) fn is_trusted(&self) -> bool {
        self.sim.trusts(self.client)
    }

    /// The model, for one step.
    pub(crate) fn model<T>(&self, step: impl FnOnce(&mut Model) -> T) -> T {
        let mut model = self.sim.model.lock();
        if self.sim.is_disk_bad() {
            model.shake(self.now());
        }
        self.sim.doubt_lost(&mut model);
        let done = step(&mut model);
        self.sim.doubt_lost(&mut model);
        done
    }

    pub(crate) fn one_in(&self, count: u64) -> bool {
        self.random().below(count) == 0
    }

    /// Bursts of operations, so that clients meet, and pauses, so that locks are kept.
    async fn work(&self) {
        while self.sim.is_open() {
            let pause = self.random().below(PAUSE_MAX.as_millis() as u64 + 1);
            self.sim.sleep(Duration::from_millis(pause)).await;
            for _ in 0..=self.random().below(5) {
                if !self.sim.is_open() {
                    return;
                }
                self.operate().await;
                if self.one_in(8) {
                    self.kernel.shrink();
                }
                let pause = self.random().below(2000);
                self.sim.sleep(Duration::from_micros(pause)).await;
            }
        }
    }

    async fn operate(&self) {
        if self.sim.options.moves && self.one_in(MOVES_ONE_IN) {
            return self.move_file().await;
        }
        if self.sim.changes_fids() && self.one_in(SPREADS_ONE_IN) {
            return self.spread_anew().await;
        }
        // Where there are several MDTs, half of all operations are those that several may take part in.
        let first = if self.sim.options.mdts > 1 && self.one_in(2) { 65 } else { 0 };
        let last = if first == 0 { 100 } else { 86 };
        match first + self.random().below(last - first) {
            0..22 => self.write().await,
            22..39 => self.read().await,
            39..41 => self.chmod().await,
            41..44 => self.xattr().await,
            44..46 => self.symlink().await,
            46..52 => self.append().await,
            52..56 => self.read_log().await,
            56..61 => self.truncate().await,
            61..65 => self.create().await,
            65..71 => self.unlink().await,
            71..77 => self.rename().await,
            77..81 => self.link().await,
            81..84 => self.make_directory().await,
            84..86 => self.remove_directory().await,
            86..88 => self.list().await,
            88..89 => self.set_default_layout().await,
            89..94 => self.stat().await,
            94..97 => self.lock().await,
            _ => self.punch().await,
        }
    }

    /// An operation ends; an error that its caller could not expect is a failure.
    pub(crate) fn ended<T>(&self, operation: u64, outcome: &Result<T, Errno>) {
        self.ended_with(operation, outcome, "done");
    }

    /// Records the end of an operation that may meet damaged data, if `damaged` says so.
    pub(crate) fn ended_at<T>(&self, operation: u64, outcome: &Result<T, Errno>, damaged: bool) {
        match outcome {
            Err(Errno::EIO) if damaged => _ = self.sim.end(operation, "the data is damaged"),
            outcome => self.ended(operation, outcome),
        }
    }

    /// Records the end of an operation, with what there is to say of its success.
    pub(crate) fn ended_with<T>(
        &self,
        operation: u64,
        outcome: &Result<T, Errno>,
        done: impl std::fmt::Display,
    ) {
        match outcome {
            Ok(_) => _ = self.sim.end(operation, done),
            Err(errno) => {
                let since = self.sim.end(operation, errno);
                let wanting = *errno == Errno::ENOSPC
                    && (self.sim.may_want_objects() || self.sim.may_be_full());
                let broken = *errno == Errno::EIO && self.sim.may_report_errors(since);
                // An MDT registers after the first one has started: a client that mounts meanwhile hears of it a moment later.
                let unheard = *errno == Errno::ENODEV
                    && self.sim.options.mdts > 1
                    && self.now() < Instant(0) + MDTS_HEARD;
                let excused = wanting || broken || unheard;
                if !is_answer(*errno) && !excused && self.sim.trusts(self.client) {
                    self.sim.fail(format_args!(
                        "operation {operation}: {errno}, and the client was not evicted"
                    ));
                }
            }
        }
    }

    /// What was accepted is flushed: the space for it was granted, so that it must be there.
    pub(crate) fn judge_promise<T>(&self, operation: u64, outcome: &Result<T, Errno>) {
        if matches!(outcome, Err(Errno::ENOSPC)) && self.sim.trusts(self.client) {
            self.sim.fail(format_args!("operation {operation}: promised space is not there"));
        }
    }

    /// Looks a name up.
    pub(crate) async fn look_up(&self, place: &NameInDirectory) -> Result<Option<Found>, Errno> {
        let old_since = self.kernel.is_old_since(place.parent.node, &place.name);
        let begin = old_since.unwrap_or_else(|| self.now());
        let operation = self.sim.begin(self.client, format!("lookup {}", place.path));
        let mut found = self.kernel.lookup(place.parent.node, &place.name).await;
        if let Ok(Some(found)) = &mut found {
            found.fid = self.sim.identity(found.fid);
        }
        if let Ok(found) = &found
            && self.is_trusted()
        {
            let seen = found.as_ref().map_or(Seen::Absent, |found| Seen::Is(found.fid));
            let end = self.now();
            let judged = self.model(|model| model.names.saw(place.key(), begin, end, seen));
            self.sim.judge(self.client, operation, judged);
        }
        let seen = found.as_ref().ok().and_then(Option::as_ref).map(|found| found.fid);
        if matches!(found, Err(Errno::EIO)) && self.may_name_sizeless(place, begin) {
            self.sim.end(operation, "its size is lost");
            return found;
        }
        self.ended_with(operation, &found, format_args!("{}", seen.unwrap_or_default()));
        found
    }

    /// Whether a name may be that of a file whose size cannot be known. A lookup of a file that is open here
    /// wants it.
    pub(crate) fn may_name_sizeless(&self, place: &NameInDirectory, begin: Instant) -> bool {
        if !self.sim.has_damage() {
            return false;
        }
        let sizeless = |file| self.sim.is_size_lost(file, begin);
        let time = (begin, self.now());
        self.model(|model| model.names.may_name(place.key(), time, sizeless))
    }

    /// The root, or one of the directories in it.
    pub(crate) async fn directory(&self) -> Option<(Found, String)> {
        let root = self.kernel.root().ok()?;
        let number = self.random().below(DIRECTORIES + 2);
        if number >= DIRECTORIES {
            return Some((root, String::new()));
        }
        let path = format!("d{number}");
        let place = NameInDirectory { parent: root, name: name(&path), path: path.clone() };
        let found = self.look_up(&place).await.ok()??;
        Some((found, format!("{path}/")))
    }

    /// A name that files have, in some directory.
    pub(crate) async fn file_place(&self) -> Option<NameInDirectory> {
        let (parent, above) = self.directory().await?;
        let text = format!("f{}", self.random().below(FILES));
        Some(NameInDirectory { parent, name: name(&text), path: format!("{above}{text}") })
    }

    /// A name of a log.
    pub(crate) fn log_place(&self) -> Option<NameInDirectory> {
        let text = format!("log{}", self.random().below(LOGS));
        Some(NameInDirectory { parent: self.kernel.root().ok()?, name: name(&text), path: text })
    }

    /// A name of a directory: in the root, and where there are several MDTs in any of those there, too.
    pub(crate) async fn directory_place(&self) -> Option<NameInDirectory> {
        let (parent, above) = match self.sim.options.mdts > 1 && self.one_in(4) {
            true => self.directory().await?,
            false => (self.kernel.root().ok()?, String::new()),
        };
        let text = format!("d{}", self.random().below(DIRECTORIES));
        Some(NameInDirectory { parent, name: name(&text), path: format!("{above}{text}") })
    }
}

/// After so long, from the begin of a seed, every client has heard of all MDTs.
const MDTS_HEARD: Duration = Duration::from_secs(10);

/// Errors that POSIX knows for what is done here: nothing was changed then.
pub(crate) fn is_answer(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOENT
            | Errno::EEXIST
            | Errno::ENOTEMPTY
            | Errno::ESTALE
            | Errno::ENOTDIR
            | Errno::EISDIR
            | Errno::EINVAL
            | Errno::EAGAIN
            | Errno::EDEADLK
    )
}
