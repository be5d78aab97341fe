//! Verifying the data of targets that run: one task for each, which reads all objects at a limited
//! rate, has the store compare them, and keeps what it finds for the tool that asks (Lustre: LFSCK, which
//! knows no checksums).
//!
//! A scrub goes on if its tool dies, until it ends or is stopped, by a tool or with the server. One that
//! was cut off by the end of its server is not resumed: the tool says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::World;
use sheen_parameters::HostedTarget;
use sheen_store::{Store, StoreError};
use sheen_types::{Errno, Fid};

use sheen_control::api::{ScrubAnswer, ScrubRequest, ScrubState};

/// Objects asked for at once.
const OBJECTS_STEP: usize = 64;
/// What one job reads, about, before other jobs get the thread.
const JOB_BYTES: u64 = 1 << 20;
/// Findings kept; beyond, they are counted alone, and logged.
const FINDINGS_MAX: usize = 10_000;

/// Why a question is refused: an errno and a line.
type Refused = (Errno, String);

/// All scrubs of this process.
pub(super) struct Scrubs {
    world: World,
    targets: Vec<Arc<HostedTarget>>,
    newest: Mutex<BTreeMap<String, Arc<Scrub>>>,
}

/// One target's scrub, under way or ended.
#[derive(Default)]
struct Scrub {
    state: Mutex<ScrubState>,
    findings: Mutex<Vec<String>>,
    stopped: std::sync::atomic::AtomicBool,
}

/// Where it is.
#[derive(Clone, Copy, Default)]
struct Place {
    last: Option<Fid>,
    /// The object under way, and how far.
    within: Option<(Fid, u64)>,
}

impl Scrubs {
    pub(super) fn new(world: World, targets: &[Arc<HostedTarget>]) -> Arc<Self> {
        Arc::new(Self { world, targets: targets.to_vec(), newest: Mutex::default() })
    }

    /// Answers one question of a tool.
    fn answer(&self, ask: ScrubRequest) -> Result<ScrubAnswer, Refused> {
        match ask {
            ScrubRequest::Targets => {
                let name = |one: &Arc<HostedTarget>| one.served.target.name().to_owned();
                let directory = |one: &Arc<HostedTarget>| one.directory.display().to_string();
                let all = self.targets.iter().map(|one| (name(one), directory(one)));
                Ok(ScrubAnswer::Targets(all.collect()))
            }
            ScrubRequest::Start { target, rate } => {
                self.start(&target, rate).map(|()| ScrubAnswer::Done)
            }
            ScrubRequest::Watch { target, from } => {
                let scrub = self.newest(&target)?;
                let findings = scrub.findings.lock();
                let new = findings.get(from..).unwrap_or(&[]).iter().take(1000);
                Ok(ScrubAnswer::State {
                    state: scrub.state.lock().clone(),
                    new: new.cloned().collect(),
                })
            }
            ScrubRequest::Stop { target } => {
                let scrub = self.newest(&target)?;
                scrub.stopped.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(ScrubAnswer::Done)
            }
        }
    }

    fn newest(&self, target: &str) -> Result<Arc<Scrub>, Refused> {
        self.target(target)?;
        let none = || (Errno::ENOENT, format!("{target}: no scrub since the server started"));
        self.newest.lock().get(target).cloned().ok_or_else(none)
    }

    fn target(&self, target: &str) -> Result<&Arc<HostedTarget>, Refused> {
        let found = self.targets.iter().find(|one| one.served.target.name() == target);
        found.ok_or_else(|| (Errno::EOPNOTSUPP, format!("no target {target} here")))
    }

    /// `rate` are bytes a second; 0 is as fast as it goes.
    fn start(&self, target: &str, rate: u64) -> Result<(), Refused> {
        let store = Arc::clone(self.target(target)?.served.target.store());
        let mut newest = self.newest.lock();
        if newest.get(target).is_some_and(|scrub| !scrub.state.lock().ended) {
            return Err((Errno::EBUSY, format!("{target} is already being scrubbed")));
        }
        let scrub = Arc::new(Scrub::default());
        newest.insert(target.to_owned(), Arc::clone(&scrub));
        let world = self.world.clone();
        let task = async move { scrub.run(&world, store, rate).await };
        self.world.tasks.spawn("scrub", Box::pin(task));
        Ok(())
    }

    /// Ends all: the server stops.
    pub(super) fn end(&self) {
        for scrub in self.newest.lock().values() {
            scrub.stopped.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// The command through which tools ask.
pub(super) fn command(scrubs: &Arc<Scrubs>) -> sheen_control::Command {
    let (scrubs, runtime) = (Arc::clone(scrubs), tokio::runtime::Handle::current());
    Box::new(move |words| {
        let _inside = runtime.enter();
        let wrong = |error: serde_json::Error| (Errno::EPROTO, error.to_string());
        let ask = serde_json::from_str(words.first().map_or("", String::as_str)).map_err(wrong)?;
        serde_json::to_string(&scrubs.answer(ask)?).map_err(wrong)
    })
}

impl Scrub {
    fn is_stopped(&self) -> bool {
        self.stopped.load(std::sync::atomic::Ordering::Relaxed)
    }

    async fn run(self: Arc<Self>, world: &World, store: Arc<dyn Store>, rate: u64) {
        let begun = world.clock.now();
        let place = Arc::new(Mutex::new(Some(Place::default())));
        while !self.is_stopped() && place.lock().is_some() {
            let (scrub, store, at) = (Arc::clone(&self), Arc::clone(&store), Arc::clone(&place));
            let job = move || {
                let Some(from) = *at.lock() else { return };
                let next = scrub.step(&*store, from).unwrap_or_else(|error| {
                    scrub.state.lock().failed = Some(error.to_string());
                    None
                });
                *at.lock() = next;
            };
            world.tasks.blocking(Box::new(job)).await;
            let bytes = self.state.lock().bytes;
            if let Some(due) = bytes.saturating_mul(1_000_000).checked_div(rate) {
                world.clock.sleep_until(begun + Duration::from_micros(due)).await;
            }
            self.state.lock().milliseconds =
                u64::try_from(world.clock.now().since(begun).as_millis()).unwrap_or(u64::MAX);
        }
        let mut state = self.state.lock();
        state.stopped = place.lock().is_some();
        state.ended = true;
    }

    /// Goes through some MiB or objects from a place; answers the next.
    fn step(&self, store: &dyn Store, mut place: Place) -> Result<Option<Place>, StoreError> {
        let mut bytes = 0;
        if let Some((object, offset)) = place.within {
            let next;
            (next, bytes) = self.look(store, object, offset)?;
            place.within = next.map(|next| (object, next));
            if place.within.is_some() {
                return Ok(Some(place));
            }
        }
        let objects = store.data_objects(place.last, OBJECTS_STEP)?;
        if objects.is_empty() {
            return Ok(None);
        }
        for object in objects {
            let (next, more) = self.look(store, object, 0)?;
            bytes += more;
            place = Place { last: Some(object), within: next.map(|next| (object, next)) };
            self.state.lock().objects += 1;
            if place.within.is_some() || bytes >= JOB_BYTES || self.is_stopped() {
                break;
            }
        }
        Ok(Some(place))
    }

    /// One step through an object: where the next begins, and what was read.
    fn look(
        &self,
        store: &dyn Store,
        object: Fid,
        offset: u64,
    ) -> Result<(Option<u64>, u64), StoreError> {
        let verified = match store.verify(object, offset) {
            // Destroyed meanwhile.
            Err(StoreError::NoObject(_)) => return Ok((None, 0)),
            verified => verified?,
        };
        self.state.lock().bytes += verified.bytes;
        for finding in &verified.findings {
            self.state.lock().damaged += 1;
            let mut findings = self.findings.lock();
            if findings.len() < FINDINGS_MAX {
                findings.push(finding.to_string());
            }
        }
        Ok((verified.next, verified.bytes))
    }
}
