//! OSTs whose journal is gone: the administrator puts an older copy in its place, and the OST goes back in
//! time; or the administrator needs long until the right one is back, for a store that misses what it
//! acknowledged is refused (store-disk), and nothing of it is lost.
//!
//! What went to an OST since its copy was taken may be lost, durable or not, and its objects with it: reads
//! may show what was there since then, or `EIO` where the object is missing, and never another file's bytes.
//! An object that the copy lacks is never made again, empty: that would be a silent loss. The target counts
//! clients that know more, and says so in its log, and the clients do in theirs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_assembly::Problem;
use sheen_store_mem::StoreMem;
use sheen_types::{Fid, Instant, TargetName, Transno};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::damage;
use crate::faults::{self, Ending};
use crate::run::{Model, Sim};

/// Longest pause before the copy is taken.
const PAUSE_MAX: Duration = Duration::from_secs(120);
/// How old the copy is when it is needed.
const AGE_MIN: Duration = Duration::from_secs(30);
const AGE_MAX: Duration = Duration::from_secs(150);
/// Longest time without the OST: with an old copy, and until the right one is found.
const DOWN_MAX: Duration = Duration::from_secs(30);
const LONG_MAX: Duration = Duration::from_secs(240);
/// Every connected client has learnt of a commit by then: with its next ping.
const HEARD_WITHIN: Duration = Duration::from_secs(60);
/// How long after it has come back all that were connected have connected again.
const BACK_WITHIN: Duration = Duration::from_secs(100);
/// How long after it has come back the MDT agrees with it on what objects there are: its recovery, and a while.
const SETTLES_WITHIN: Duration = Duration::from_secs(150);
/// How often it is looked at afterwards which files got objects that are not there.
const NOTED_TIMES: u32 = 15;
/// How long a client may keep what it has accepted before it writes it.
const UNWRITTEN_MAX: Duration = Duration::from_secs(60);

/// What both logs are searched for.
const WORDS: &str = "went back in time";

/// What was put back.
#[derive(Default)]
pub(crate) struct Restored {
    targets: Vec<TargetName>,
    /// File, target and object.
    objects: Vec<(Fid, TargetName, Fid)>,
    /// Those that the copy lacks.
    lost: Vec<(Fid, TargetName, Fid)>,
    /// From when until when new files may get objects that are not there again yet.
    unsettled: Option<(Instant, Instant)>,
}

/// Lines of the logs of all nodes of a run that report it.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if line.contains(WORDS) {
            self.0.lock().push(line.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// Which side logged it of a target: a server, a client.
    fn said(&self, target: &TargetName) -> (bool, bool) {
        let (lines, name) = (self.0.lock(), target.to_string());
        let of_it = || lines.iter().filter(|line| line.contains(&name));
        (of_it().any(|line| line.contains("client=")), of_it().any(|line| line.contains("peer=")))
    }
}

/// Collects what the nodes of this thread log as errors, until the returned value is dropped.
pub(crate) fn capture_log(lines: &Lines) -> tracing::subscriber::DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
        .with_ansi(false)
        .without_time()
        .with_writer(lines.clone())
        .finish();
    subscriber.set_default()
}

impl Restored {
    pub(crate) fn is_any(&self) -> bool {
        self.unsettled.is_some()
    }

    fn is_unsettled(&self, now: Instant) -> bool {
        self.unsettled.is_some_and(|(_, until)| now < until)
    }

    /// What is written to files whose objects are missing is lost, and its writers get an error.
    pub(crate) fn doubt(&self, sim: &Sim, model: &mut Model) {
        if let Some((since, until)) = self.unsettled
            && sim.now() < until
        {
            let files: Vec<Fid> = model.files.fids().chain(model.logs.fids()).collect();
            for file in files {
                model.files.doubt_since(file, since);
                model.logs.doubt_since(file, since);
            }
        }
        for (file, target, object) in &self.objects {
            if sim.store_of(target).is_some_and(|store| !store.has(*object)) {
                model.files.doubt_since(*file, Instant(0));
                model.logs.doubt_since(*file, Instant(0));
            }
        }
    }
}

impl Sim {
    /// Whether data of a file lay on an OST that went back in time.
    pub(crate) fn was_restored(&self, file: Fid) -> bool {
        let restored = self.restored.lock();
        restored.is_unsettled(self.now()) || restored.objects.iter().any(|(of, ..)| *of == file)
    }

    /// Whether a file has an object that its OST lacks since it went back in time.
    pub(crate) fn lacks_objects(&self, file: Fid) -> bool {
        let restored = self.restored.lock();
        let mut of_file = restored.objects.iter().filter(|(of, ..)| *of == file);
        restored.is_unsettled(self.now())
            || of_file.any(|(_, target, object)| {
                self.store_of(target).is_some_and(|store| !store.has(*object))
            })
    }
}

/// Takes one copy of an OST, and puts it back; or lets the OST be away for long.
pub(crate) async fn inject(sim: &Arc<Sim>, end: Instant) {
    let random = sim.more_random();
    let part = |most: Duration| Duration::from_millis(random.below(most.as_millis() as u64));
    sim.sleep(faults::PEACE + part(PAUSE_MAX)).await;
    let osts = sim.cluster.osts();
    let number = osts[random.below(osts.len() as u64) as usize];
    let age = AGE_MIN + part(AGE_MAX - AGE_MIN);
    let is_refused = random.below(3) == 0;
    let time = part(if is_refused { LONG_MAX } else { DOWN_MAX });
    let is_late = faults::are_over_in(sim, age + time, end);
    if is_late || !sim.cluster.servers[number].is_serving() {
        return;
    }
    sim.breaks();
    if is_refused {
        sim.say(format_args!("FAULT: the journal of the server {number} is refused for {time:?}"));
        sim.allow_evictions(time);
        faults::outage(sim, number, Ending::Killed, time, || ()).await;
    } else {
        restore(sim, number, age, time).await;
    }
    sim.mends();
}

fn committed(sim: &Sim, number: usize) -> Transno {
    let served = sim.cluster.servers[number].served();
    served.first().map_or(Transno(0), |served| served.target.view().last_committed)
}

async fn restore(sim: &Arc<Sim>, number: usize, age: Duration, time: Duration) {
    let hosted = &sim.cluster.servers[number].hosted[0];
    let (copy, since) = (hosted.disk.store().kill(), sim.now());
    let (of_copy, restarts) = (committed(sim, number), sim.cluster.servers[number].starts());
    let (mdt_starts, _) = sim.cluster.mdts_state();
    sim.say(format_args!("a copy of {:?} is taken", hosted.kind));
    sim.sleep(age.saturating_sub(HEARD_WITHIN)).await;
    let reported = committed(sim, number);
    sim.sleep(age.min(HEARD_WITHIN)).await;
    let server = &sim.cluster.servers[number];
    // A client that learnt of it was connected all the time.
    let is_steady = server.is_serving() && server.starts() == restarts && age > HEARD_WITHIN;
    let must_be_reported = is_steady && reported > of_copy && sim.cluster.mdts_state().1;
    if !server.is_up() {
        return;
    }
    sim.allow_evictions(time);
    sim.allow_no_objects(time + BACK_WITHIN);
    faults::outage(sim, number, Ending::Killed, time, || put_back(sim, number, copy, since)).await;
    let later = Arc::clone(sim);
    let note = async move {
        // The MDT asks the OST when both are there, which other faults may put off.
        for _ in 0..NOTED_TIMES {
            later.sleep(SETTLES_WITHIN / 5).await;
            note_later_files(&later, number);
        }
    };
    sim.world.world().tasks.spawn("restored", Box::pin(note));
    let starts = server.starts();
    sim.sleep(BACK_WITHIN).await;
    // An MDT that restarted meanwhile has forgotten what was reported to it, and may be the only one that knew.
    let mdt_remembers = sim.cluster.mdts_state().0 == mdt_starts;
    if must_be_reported && mdt_remembers && server.is_serving() && server.starts() == starts {
        check_reported(sim, number, (of_copy, reported));
    }
}

fn put_back(sim: &Sim, number: usize, copy: StoreMem, since: Instant) {
    let Some(target) = sim.cluster.servers[number].target() else { return };
    let files: Vec<_> =
        damage::all_objects(sim).into_iter().filter(|(_, of, _)| *of == target).collect();
    sim.say(format_args!("FAULT: {target} is put back to what it was at {since:?}"));
    let mut model = sim.model.lock();
    let since = Instant(since.0.saturating_sub(UNWRITTEN_MAX.as_nanos() as u64));
    for (file, ..) in &files {
        model.files.restore(*file, since);
        model.logs.restore(*file);
    }
    drop(model);
    let mut restored = sim.restored.lock();
    restored.targets.push(target);
    let lost = files.iter().filter(|(.., object)| !copy.has(*object));
    restored.lost.extend(lost.cloned());
    restored.objects.extend(files);
    // Until the MDT has learned it, it gives out what was made ahead.
    restored.unsettled = Some((sim.now(), sim.now() + DOWN_MAX + SETTLES_WITHIN));
    sim.cluster.servers[number].hosted[0].disk.restore(copy);
}

/// Files that got objects which are not there, before the MDT had asked what is: they lack them for good.
fn note_later_files(sim: &Sim, number: usize) {
    let Some(target) = sim.cluster.servers[number].target() else { return };
    let lacks = |object: Fid| sim.store_of(&target).is_some_and(|store| !store.has(object));
    let files: Vec<_> = damage::all_objects(sim)
        .into_iter()
        .filter(|(_, of, object)| *of == target && lacks(*object))
        .collect();
    let mut restored = sim.restored.lock();
    for file in files {
        if !restored.objects.contains(&file) {
            restored.objects.push(file.clone());
            restored.lost.push(file);
        }
    }
}

/// Both sides have logged it.
fn check_reported(sim: &Sim, number: usize, (of_copy, reported): (Transno, Transno)) {
    let server = &sim.cluster.servers[number];
    let (Some(target), Some(served)) = (server.target(), server.served().pop()) else { return };
    let counted = served.target.view().recovery.went_back;
    let (by_server, by_client) = sim.lines.said(&target);
    sim.say(format_args!("{counted} clients of {target} knew of later transactions"));
    let is_logged = !sim.captures_log || by_server && by_client;
    if counted == 0 || !is_logged {
        sim.fail(format_args!(
            "{target} went back from {reported} to {of_copy} and {counted} clients were counted; said \
             by server {by_server}, by client {by_client}"
        ));
    }
}

/// An object of a file that was lost and is there again, empty.
pub(crate) fn made_again(sim: &Sim) -> Option<String> {
    let of_files = damage::objects(sim);
    let restored = sim.restored.lock();
    let is_there = |lost: &&(Fid, TargetName, Fid)| {
        let has = |store: Arc<StoreMem>| store.has(lost.2);
        of_files.contains(lost) && sim.store_of(&lost.1).is_some_and(has)
    };
    let mut again = restored.lost.iter().filter(is_there);
    let (file, target, object) = again.next()?;
    let rest = again.count();
    Some(format!(
        "{target}: object {object} of {file} was lost and is there again, and {rest} more"
    ))
}

/// Whether a problem that the check of the disks names is of an OST that went back in time.
pub(crate) fn explains(sim: &Sim, problem: &Problem) -> bool {
    let restored = sim.restored.lock();
    restored.targets.iter().any(|target| problem.target == target.to_string())
}
