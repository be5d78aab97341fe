//! One run: a seed's cluster, its work, its faults, its checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Fid, Instant};
use sheen_vnet::{NetworkConditions, SeededRandom, Virtual};
use tokio::sync::Notify;

use crate::checks;
use crate::cluster::{Cluster, Shape};
use crate::damage::{self, DamagedObjects};
use crate::evicted::Evicted;
use crate::faults;
use crate::hostile;
use crate::identities::Identities;
use crate::lost_objects::LostObjects;
use crate::model::{FileLocks, Files, Log, Losses, Marks, Names, Stale, Writer};
use crate::restored::{self, Lines, Restored};
use crate::stops;
use crate::work::{self, Migration};

/// Within this time an operation ends once nothing fails any more: recovery of a target that waits for lost
/// clients, an eviction for a lock that is not cancelled, and as much again.
const OPERATION_MAX: Duration = Duration::from_secs(300);
/// How long after its reason an eviction comes: a silent client, an MDT's recovery and its end.
const EVICTS_WITHIN: Duration = Duration::from_secs(240);
/// How long after an OST was gone the MDT may still have no objects of it.
const OBJECTS_WITHIN: Duration = Duration::from_secs(120);
/// How long after a disk has answered with an error data may still be found lost: the answer may be on
/// its way.
const LOSES_WITHIN: Duration = Duration::from_secs(20);
/// How long after it an operation may still report it: the file may be open that long.
const REPORTS_WITHIN: Duration = Duration::from_secs(150);
/// How long a client may hold a lock that the server does not know: it may be disconnected, and not have
/// learnt of a restart before its next ping.
const PHANTOM_MAX: Duration = Duration::from_secs(150);
/// One seed in so many has OSTs that become full.
const SMALL_ONE_IN: u64 = 8;
/// What such an OST holds at least; the files of all clients together are some MiB.
const OST_BYTES_MIN: u64 = 256 << 10;
/// From how many names on MDTs split directories, in seeds where they do.
const SPLITS_FROM: u64 = 4;
/// One seed with several MDTs in so many has all of them on one node.
const ON_ONE_NODE_ONE_IN: u64 = 5;
/// So many things may be broken at the same time; one of them in many seeds.
const FAULTS_AT_ONCE: u64 = 3;
/// One seed in so many has each kind of [`Extras`].
const EXTRA_ONE_IN: u64 = 4;
/// Sets their numbers apart from those of everything else.
const EXTRAS: u64 = 0x0bad_d15c_0bad_c0de;
/// How often locks and grants are looked at, and while no operation is under way.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_QUIET: Duration = Duration::from_secs(1);
/// Steps of the log that a failure shows.
const LAST_LINES: usize = 40;

/// Whether all MDTs are on one node, and die together.
fn are_on_one_node(options: Options) -> bool {
    options.mdts > 1 && options.seed % ON_ONE_NODE_ONE_IN == ON_ONE_NODE_ONE_IN - 1
}

/// Whether inodes may get other FIDs: directories migrate, and are split.
pub(crate) fn changes_fids(options: Options) -> bool {
    options.moves && options.mdts > 1
}

fn is_small(seed: u64) -> bool {
    seed % SMALL_ONE_IN == SMALL_ONE_IN - 1
}

/// Faults that some seeds have beside those of all. Which they are, and when, is decided by numbers of their
/// own: a seed without them goes the same way whether or not there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Data is lost, cut or changed on disks.
    pub damage: bool,
    /// A node sends whatever a hostile client could.
    pub hostile: bool,
    /// An OST goes back in time, or is away for long.
    pub restored: bool,
    /// Servers are stopped in order while they recover.
    pub stops: bool,
}

impl Extras {
    /// Those of a seed, by default.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let random = SeededRandom::new(seed ^ EXTRAS);
        let has = || random.below(EXTRA_ONE_IN) == 0;
        Self { damage: has(), hostile: has(), restored: has(), stops: has() }
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Virtual time of work.
    pub minutes: u64,
    /// Whether anything fails.
    pub faults: bool,
    /// MDTs: with more than one, directories lie on any of them, and other things fail.
    pub mdts: u16,
    /// What else fails, if anything does; by the seed if `None`.
    pub extras: Option<Extras>,
    /// Whether files move to other layouts.
    pub moves: bool,
    /// Whether every operation is printed.
    pub verbose: bool,
}

impl Options {
    fn extras(&self) -> Extras {
        match self.faults {
            true => self.extras.unwrap_or_else(|| Extras::of(self.seed)),
            false => Extras::default(),
        }
    }
}

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All that happened, as one number.
    pub trace: u64,
    /// Operations that ended.
    pub operations: u64,
}

/// What went wrong, and what happened before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What must not be.
    pub text: String,
    /// The last steps.
    pub log: Vec<String>,
    /// Operations that had begun.
    pub operations: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.log {
            writeln!(out, "    {line}")?;
        }
        write!(out, "{}", self.text)
    }
}

/// What clients may see.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) names: Names,
    pub(crate) files: Files,
    pub(crate) logs: Log,
    pub(crate) locks: FileLocks,
    pub(crate) marks: Marks,
    pub(crate) losses: Losses,
    pub(crate) lost_objects: LostObjects,
    /// How often changes at MDTs may have been lost.
    pub(crate) changes_lost: u64,
}

impl Model {
    /// Changes at the MDT that were not durable may be lost.
    pub(crate) fn lose_changes(&mut self) {
        self.changes_lost += 1;
        self.lost_objects.note_missing_replay();
        self.names.lose();
        self.marks.lose();
    }

    /// Data that was not durable may be lost by an error, which is reported to its writers.
    pub(crate) fn shake(&mut self, now: Instant) {
        self.files.shake();
        self.logs.shake();
        self.losses.lose(None, now, LOSES_WITHIN);
    }
}

/// An operation under way.
struct Running {
    by: Writer,
    since: Instant,
    text: String,
    /// The paths of the names that it changes.
    names: Vec<String>,
}

#[derive(Default)]
struct Record {
    lines: Vec<String>,
    running: BTreeMap<u64, Running>,
    operations: u64,
    processes: u64,
    /// Processes that have not ended, and whose they are.
    working: BTreeMap<u64, Writer>,
    done: bool,
    /// Locks that only clients know, and since when.
    phantoms: BTreeMap<String, Instant>,
    may_evict: Instant,
    no_objects: Instant,
    /// Servers whose disks answer with errors, and when the last one did so.
    bad_disks: u64,
    bad_disk_until: Option<Instant>,
    /// Faults that last.
    faults: u64,
    fault: Option<String>,
    /// New operations may begin.
    open: bool,
}

/// A run, for all that take part in it.
pub(crate) struct Sim {
    pub(crate) options: Options,
    pub(crate) world: Virtual,
    pub(crate) cluster: Cluster,
    pub(crate) model: Mutex<Model>,
    pub(crate) damaged_objects: Mutex<DamagedObjects>,
    pub(crate) restored: Mutex<Restored>,
    /// Of the logs, if this run collects them.
    pub(crate) lines: Lines,
    pub(crate) captures_log: bool,
    pub(crate) evicted: Mutex<Evicted>,
    pub(crate) identities: Identities,
    /// Migrations that may not have come to their end, of each directory.
    unfinished: Mutex<BTreeMap<Fid, Vec<Migration>>>,
    pub(crate) looked: Mutex<checks::Looked>,
    /// Of the faults that not all seeds have.
    more_random: SeededRandom,
    record: Mutex<Record>,
    /// For those that look on.
    change_begun: Notify,
}

impl Sim {
    fn new(options: Options) -> Arc<Self> {
        let world = Virtual::new(options.seed, NetworkConditions::default());
        let random = world.random();
        let shape = Shape {
            mdts: options.mdts,
            on_one_node: are_on_one_node(options),
            osts: 1 + random.below(3) as u16,
            clients: 2 + random.below(2) as u16,
            ost_bytes: is_small(options.seed)
                .then(|| OST_BYTES_MIN + random.below(OST_BYTES_MIN * 4)),
            // Always, as by default, and never.
            keeps_from: [1, 5, 0][(options.seed % 3) as usize],
            squashes: options.extras().hostile,
            restripes: changes_fids(options),
            splits_from: (changes_fids(options) && options.seed.is_multiple_of(2))
                .then_some(SPLITS_FROM),
            request_cost: None,
        };
        let cluster = Cluster::new(shape);
        Arc::new(Self {
            options,
            world,
            cluster,
            model: Mutex::default(),
            damaged_objects: Mutex::default(),
            restored: Mutex::default(),
            lines: Lines::default(),
            // Unless another client reads them.
            captures_log: options.extras().restored && std::env::var_os("RUST_LOG").is_none(),
            evicted: Mutex::default(),
            identities: Identities::default(),
            unfinished: Mutex::default(),
            looked: Mutex::default(),
            more_random: SeededRandom::new(options.seed.rotate_left(32) ^ EXTRAS),
            record: Mutex::new(Record { open: true, ..Record::default() }),
            change_begun: Notify::new(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.now()
    }

    pub(crate) fn random(&self) -> &SeededRandom {
        self.world.random()
    }

    /// Decides about faults that not all seeds have, and nothing else.
    pub(crate) fn more_random(&self) -> &SeededRandom {
        &self.more_random
    }

    /// Faults that this run has beside those of all.
    pub(crate) fn extras(&self) -> Extras {
        self.options.extras()
    }

    /// Lets time pass for the caller.
    pub(crate) async fn sleep(&self, duration: Duration) {
        let clock = self.world.world().clock;
        clock.sleep_until(clock.now() + duration).await;
    }

    /// Adds to the log.
    pub(crate) fn say(&self, text: impl fmt::Display) {
        let line = format!("{:12.6} {text}", self.now().0 as f64 / 1e9);
        self.world.note(line.as_bytes());
        if self.options.verbose {
            println!("{line}");
        }
        self.record.lock().lines.push(line);
    }

    /// Something is wrong; the first counts.
    pub(crate) fn fail(&self, text: impl fmt::Display) {
        self.say(format_args!("WRONG: {text}"));
        self.record.lock().fault.get_or_insert(text.to_string());
    }

    /// Checks an answer. A client that was evicted and does not know it may see old state.
    pub(crate) fn judge(&self, client: Writer, operation: u64, judged: Result<(), Stale>) {
        if let Err(Stale(text)) = judged
            && self.trusts(client)
        {
            self.fail(format_args!("operation {operation}: {text}"));
        }
    }

    /// A directory may be between two layouts from now on, until this migration is ended. Whether it was not before.
    pub(crate) fn begins_migration(&self, directory: Fid, migration: &Migration) -> bool {
        let mut unfinished = self.unfinished.lock();
        let of_directory = unfinished.entry(directory).or_default();
        let begun = of_directory.len();
        of_directory.retain(|begun| begun != migration);
        let is_new = of_directory.len() == begun;
        of_directory.push(migration.clone());
        is_new
    }

    /// It was refused.
    pub(crate) fn does_not_migrate(&self, directory: Fid, migration: &Migration) {
        if let Some(of_directory) = self.unfinished.lock().get_mut(&directory) {
            of_directory.retain(|begun| begun != migration);
        }
    }

    /// What may have begun to migrate a directory, the last one last.
    pub(crate) fn unfinished(&self, directory: Fid) -> Vec<Migration> {
        self.unfinished.lock().get(&directory).cloned().unwrap_or_default()
    }

    /// Whether operations may still begin.
    pub(crate) fn is_open(&self) -> bool {
        let record = self.record.lock();
        record.open && record.fault.is_none()
    }

    /// An operation begins; answers its number.
    pub(crate) fn begin(&self, by: Writer, text: String) -> u64 {
        self.begin_change(by, text, Vec::new())
    }

    /// The same of one that changes names, by their paths.
    pub(crate) fn begin_change(&self, by: Writer, text: String, names: Vec<String>) -> u64 {
        let since = self.now();
        let is_change = !names.is_empty();
        let mut record = self.record.lock();
        record.operations += 1;
        let number = record.operations;
        record.running.insert(number, Running { by, since, text: text.clone(), names });
        drop(record);
        self.say(format_args!("client {by}: operation {number}: {text}"));
        if is_change {
            self.change_begun.notify_waiters();
        }
        number
    }

    /// The newest change of names that is under way, with their paths, as soon as there is one after this; `None` at the end.
    pub(crate) async fn next_change(&self, after: u64) -> Option<(u64, Vec<String>)> {
        loop {
            let mut begun = pin!(self.change_begun.notified());
            begun.as_mut().enable();
            if !self.is_open() {
                return None;
            }
            let newest = {
                let record = self.record.lock();
                let changes = record.running.range(after + 1..).rev();
                let mut changes = changes.filter(|(_, running)| !running.names.is_empty());
                changes.next().map(|(number, running)| (*number, running.names.clone()))
            };
            if newest.is_some() {
                return newest;
            }
            begun.await;
        }
    }

    /// Whether an operation is under way.
    pub(crate) fn is_running(&self, operation: u64) -> bool {
        self.record.lock().running.contains_key(&operation)
    }

    /// It has ended. When it began.
    pub(crate) fn end(&self, number: u64, outcome: impl fmt::Display) -> Instant {
        let running = self.record.lock().running.remove(&number);
        if running.is_some() {
            self.say(format_args!("operation {number} ended: {outcome}"));
        }
        running.map_or_else(|| self.now(), |running| running.since)
    }

    /// A number for a new process of `client`.
    pub(crate) fn next_process(&self, client: Writer) -> u64 {
        let mut record = self.record.lock();
        record.processes += 1;
        let number = record.processes;
        record.working.insert(number, client);
        number
    }

    /// A process has come to its end.
    pub(crate) fn process_ended(&self, number: u64) {
        self.record.lock().working.remove(&number);
    }

    /// The last client has looked at everything.
    pub(crate) fn done(&self) {
        self.record.lock().done = true;
    }

    /// Whether it has.
    pub(crate) fn is_done(&self) -> bool {
        self.record.lock().done
    }

    /// The operations of a client that died are no more.
    pub(crate) fn forget_operations(&self, client: Writer) {
        let mut record = self.record.lock();
        record.running.retain(|_, running| running.by != client);
        record.working.retain(|_, by| *by != client);
    }

    /// How long clients work.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs(60 * self.options.minutes)
    }

    /// Evictions are right until a while after something that lasts for `time` from now.
    pub(crate) fn allow_evictions(&self, time: Duration) {
        let until = self.now() + time + EVICTS_WITHIN;
        let mut record = self.record.lock();
        record.may_evict = record.may_evict.max(until);
    }

    /// An OST may be gone for `time` from now: files that want objects of it may be refused with
    /// `ENOSPC`, as by Lustre, until it has been used again.
    pub(crate) fn allow_no_objects(&self, time: Duration) {
        let until = self.now() + time + OBJECTS_WITHIN;
        let mut record = self.record.lock();
        record.no_objects = record.no_objects.max(until);
    }

    /// Whether a file may be refused for want of objects.
    pub(crate) fn may_want_objects(&self) -> bool {
        self.now() < self.record.lock().no_objects
    }

    /// Whether what was not promised may find no space.
    pub(crate) fn may_be_full(&self) -> bool {
        is_small(self.options.seed)
    }

    /// Whether an eviction may have its reason in a fault.
    pub(crate) fn may_evict(&self) -> bool {
        self.now() < self.record.lock().may_evict
    }

    /// Whether some client cannot replay now what it did a moment ago.
    pub(crate) fn is_someone_missing(&self) -> bool {
        self.may_evict()
    }

    /// A client's process has died, with all that it had not flushed.
    pub(crate) fn client_died(&self, number: Writer) {
        self.forget_operations(number);
        self.evicted.lock().ends(self.cluster.clients[usize::from(number)].nid);
        let mut model = self.model.lock();
        model.files.lose(Some(number));
        model.logs.lose(Some(number));
        model.locks.lost(number);
        // What it did before an MDT that is recovering went down is not replayed.
        let is_mdt_down =
            self.cluster.mdts().into_iter().any(|mdt| !self.cluster.servers[mdt].is_up());
        if self.evicted.lock().is_mdt_fresh(self.now()) || is_mdt_down {
            model.lose_changes();
        }
    }

    /// Notes which locks only clients know; one that is among them for long.
    pub(crate) fn note_phantoms(&self, unknown: BTreeSet<String>) -> Option<String> {
        let now = self.now();
        let mut record = self.record.lock();
        record.phantoms.retain(|lock, _| unknown.contains(lock));
        for lock in unknown {
            record.phantoms.entry(lock).or_insert(now);
        }
        let old = record.phantoms.iter().find(|(_, since)| now.since(**since) > PHANTOM_MAX);
        old.map(|(lock, _)| lock.clone())
    }

    /// A server's disks begin to answer with errors.
    pub(crate) fn disk_breaks(&self) {
        self.record.lock().bad_disks += 1;
        self.model.lock().shake(self.now());
    }

    /// They are well again. What was accepted in the meantime counts as lost though no client takes a step
    /// for a while, as when all wait for a server.
    pub(crate) fn disk_mends(&self) {
        let now = self.now();
        self.model.lock().shake(now);
        let mut record = self.record.lock();
        record.bad_disks -= 1;
        record.bad_disk_until = Some(now);
    }

    fn was_disk_bad(&self, within: Duration, before: Instant) -> bool {
        let record = self.record.lock();
        record.bad_disks > 0 || record.bad_disk_until.is_some_and(|it| before.since(it) < within)
    }

    /// Whether data may be lost now by the error of a disk.
    pub(crate) fn is_disk_bad(&self) -> bool {
        self.was_disk_bad(LOSES_WITHIN, self.now())
    }

    /// Whether an operation that began at `since` may report such an error: however long it takes then.
    pub(crate) fn may_report_errors(&self, since: Instant) -> bool {
        self.was_disk_bad(REPORTS_WITHIN, since)
    }

    /// A fault begins that lasts.
    pub(crate) fn breaks(&self) {
        self.record.lock().faults += 1;
    }

    /// It is over.
    pub(crate) fn mends(&self) {
        self.record.lock().faults -= 1;
    }

    fn is_whole(&self) -> bool {
        self.record.lock().faults == 0
    }

    fn close(&self) {
        self.record.lock().open = false;
        self.change_begun.notify_waiters();
    }

    fn fault(&self) -> Option<String> {
        self.record.lock().fault.clone()
    }

    /// Whether no operation is under way, and none has begun after that many.
    fn is_quiet_since(&self, operations: u64) -> bool {
        let record = self.record.lock();
        record.running.is_empty() && record.operations == operations
    }

    /// Whether some operation is under way that changes names.
    pub(crate) fn changes_names(&self) -> bool {
        self.record.lock().running.values().any(|running| !running.names.is_empty())
    }

    fn running(&self) -> Option<String> {
        let record = self.record.lock();
        let Some((number, running)) = record.running.first_key_value() else {
            let (number, client) = record.working.first_key_value()?;
            return Some(format!("process {number} of client {client} has not ended"));
        };
        let since = running.since.0 as f64 / 1e9;
        let Running { by, text, .. } = running;
        Some(format!("operation {number} of client {by} ({text}) has not ended since {since:.3}"))
    }
}

/// Runs a seed.
///
/// # Errors
/// Something that must hold did not.
pub fn run(options: Options) -> Result<Report, Box<Failure>> {
    let sim = Sim::new(options);
    let drive = Arc::clone(&sim);
    let _capture = sim.captures_log.then(|| restored::capture_log(&sim.lines));
    let ran = catch_unwind(AssertUnwindSafe(|| sim.world.run(drive_all(drive))));
    let text = match ran {
        Ok(outcome) => outcome.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("of no words")))
        }
    };
    let trace = sim.world.trace();
    sim.world.stop();
    sim.cluster.take_apart();
    // What that has begun ends too.
    sim.world.stop();
    let record = sim.record.lock();
    match text.or_else(|| record.fault.clone()) {
        None => Ok(Report { trace, operations: record.operations }),
        Some(text) => {
            let from = record.lines.len().saturating_sub(LAST_LINES);
            let (log, operations) = (record.lines[from..].to_vec(), record.operations);
            Err(Box::new(Failure { text, log, operations }))
        }
    }
}

async fn drive_all(sim: Arc<Sim>) -> Result<(), String> {
    sim.cluster.start(&sim.world);
    // The MDT makes objects ahead once it has found the OSTs.
    sim.allow_no_objects(Duration::ZERO);
    let clients = sim.cluster.clients.len() - 1;
    for number in 0..clients {
        work::start_client(&sim, number as Writer);
    }
    let end = sim.now() + sim.length();
    if sim.options.faults {
        for _ in 0..1 + sim.random().below(FAULTS_AT_ONCE) {
            let injecting = Arc::clone(&sim);
            let inject = async move { faults::inject(&injecting, end).await };
            sim.world.world().tasks.spawn("faults", Box::pin(inject));
        }
    }
    if sim.extras().damage {
        let damaging = Arc::clone(&sim);
        let damage = async move { damage::inject(&damaging, end).await };
        sim.world.world().tasks.spawn("damage", Box::pin(damage));
    }
    if sim.extras().restored {
        let restored = Arc::clone(&sim);
        let restore = async move { restored::inject(&restored, end).await };
        sim.world.world().tasks.spawn("restored", Box::pin(restore));
    }
    if sim.extras().stops {
        let stopped = Arc::clone(&sim);
        let stop = async move { stops::inject(&stopped, end).await };
        sim.world.world().tasks.spawn("stops", Box::pin(stop));
    }
    if sim.extras().hostile {
        let attacked = Arc::clone(&sim);
        let attack = async move { hostile::attack(&attacked, end).await };
        sim.world.world().tasks.spawn("hostile", Box::pin(attack));
    }
    let (mut looked, mut operations) = (sim.now(), 0);
    while sim.now() < end || !sim.is_whole() {
        sim.sleep(LOOK).await;
        if sim.is_quiet_since(operations) && sim.now().since(looked) < LOOK_QUIET {
            continue;
        }
        (looked, operations) = (sim.now(), sim.record.lock().operations);
        checks::look(&sim);
        if let Some(fault) = sim.fault() {
            return Err(fault);
        }
    }
    sim.close();
    settle(&sim).await?;
    checks::finish(&sim).await
}

/// Waits until all operations have ended.
async fn settle(sim: &Sim) -> Result<(), String> {
    let limit = sim.now() + OPERATION_MAX;
    while let Some(running) = sim.running() {
        if sim.now() > limit {
            return Err(running);
        }
        sim.sleep(LOOK).await;
        checks::look(sim);
        if let Some(fault) = sim.fault() {
            return Err(fault);
        }
    }
    Ok(())
}
