//! Surveys: load on the targets of this process, made here and asked for over the control socket (Lustre:
//! `lctl attach echo_client` and the `test_*` commands that its IO kit gives it).
//!
//! A target has one survey at a time. What a survey makes no client sees, and it is removed when the tool
//! says so, when the tool has not asked anything for a while, and when the server stops; what a server that
//! dies leaves is removed when it starts again.
//!
//! Threads of a test are tasks, which yield after each operation: clients of the same
//! process go on being served.

mod run;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_assembly::{Role, Served};
use sheen_bench::device::{Ask, LEASE_SECONDS, Progress, SurveyReply};
use sheen_io::World;
use sheen_parameters::HostedTarget;
use sheen_types::{Errno, Fid, Instant};

use run::Run;

/// How long a question for progress waits for an end.
const WATCH: Duration = Duration::from_millis(200);
/// How often it is looked whether the tool still asks.
const LOOK: Duration = Duration::from_secs(1);
/// Directories or objects that one survey may ask for.
const COUNT_MAX: u32 = 65_536;

/// Why a question is refused: an errno and a line.
type Refused = (Errno, String);

/// All surveys of this process.
pub(super) struct Echo {
    world: World,
    targets: Vec<Arc<HostedTarget>>,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    next: AtomicU64,
}

/// A survey of one target.
struct Session {
    world: World,
    served: Arc<Served>,
    /// When its tool last asked.
    heard: Mutex<Instant>,
    /// Held over each step, so that steps come one after the other.
    state: tokio::sync::Mutex<SurveyState>,
    /// The newest test.
    run: Mutex<Option<Arc<Run>>>,
}

/// What a survey has made, for its tests to work on.
#[derive(Clone, Debug, Default)]
struct SurveyState {
    directories: Vec<Fid>,
    /// First object, and how many.
    objects: (u64, u32),
    has_ended: bool,
}

impl Echo {
    pub(super) fn new(world: World, targets: &[Arc<HostedTarget>]) -> Arc<Self> {
        let (sessions, next) = (Mutex::default(), AtomicU64::new(1));
        Arc::new(Self { world, targets: targets.to_vec(), sessions, next })
    }

    /// Answers one question of a tool.
    pub(super) async fn answer(self: &Arc<Self>, ask: Ask) -> Result<SurveyReply, Refused> {
        match ask {
            Ask::Attach { target } => {
                self.attach(&target).map(|session| SurveyReply::Attached { session })
            }
            Ask::Prepare { session, count } => {
                self.session(session)?.prepare(count).await.map(|()| SurveyReply::Done)
            }
            Ask::Start { session, work } => {
                self.session(session)?.start(work).await.map(|()| SurveyReply::Done)
            }
            Ask::Watch { session } => {
                self.session(session)?.watch().await.map(SurveyReply::Progress)
            }
            Ask::Clean { session } => {
                self.session(session)?.clean().await.map(|()| SurveyReply::Done)
            }
            Ask::Detach { session } => self.detach(session).await.map(|()| SurveyReply::Done),
        }
    }

    /// Ends all surveys: the server stops.
    pub(super) async fn end(self: &Arc<Self>) {
        let all: Vec<u64> = self.sessions.lock().keys().copied().collect();
        for session in all {
            if let Err((_, line)) = self.detach(session).await {
                tracing::warn!(line, "what a survey made is left until the next start");
            }
        }
    }

    fn session(&self, number: u64) -> Result<Arc<Session>, Refused> {
        let gone = || (Errno::ENOENT, "the server has ended this survey".to_owned());
        let session = self.sessions.lock().get(&number).cloned().ok_or_else(gone)?;
        *session.heard.lock() = self.world.clock.now();
        Ok(session)
    }

    fn attach(self: &Arc<Self>, target: &str) -> Result<u64, Refused> {
        let named = |one: &&Arc<HostedTarget>| one.served.target.name() == target;
        let found = self.targets.iter().find(named);
        // Another process of this machine may have it.
        let found = found.ok_or_else(|| (Errno::EOPNOTSUPP, format!("no target {target} here")))?;
        if matches!(found.served.role, Role::Mgs(_)) {
            return Err((Errno::EINVAL, format!("{target} is neither an MDT nor an OST")));
        }
        let mut sessions = self.sessions.lock();
        if sessions.values().any(|other| Arc::ptr_eq(&other.served, &found.served)) {
            return Err((Errno::EBUSY, format!("{target} is already being surveyed")));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let session = Arc::new(Session {
            world: self.world.clone(),
            served: Arc::clone(&found.served),
            heard: Mutex::new(self.world.clock.now()),
            state: tokio::sync::Mutex::default(),
            run: Mutex::default(),
        });
        sessions.insert(number, Arc::clone(&session));
        let echo = Arc::clone(self);
        self.world.tasks.spawn("survey", Box::pin(echo.keep(number, session)));
        Ok(number)
    }

    /// Ends a survey whose tool has gone.
    async fn keep(self: Arc<Self>, number: u64, session: Arc<Session>) {
        loop {
            self.world.clock.sleep_until(self.world.clock.now() + LOOK).await;
            if !self.sessions.lock().contains_key(&number) {
                return;
            }
            let silent = self.world.clock.now().since(*session.heard.lock());
            // A step that takes long is no silence.
            let is_idle = session.state.try_lock().is_ok();
            if is_idle && silent > Duration::from_secs(LEASE_SECONDS) {
                let target = session.served.target.name();
                tracing::warn!(target, "a survey's tool has gone: removing what it made");
                if let Err((_, line)) = self.detach(number).await {
                    tracing::warn!(target, line, "what a survey made is left");
                }
                return;
            }
        }
    }

    async fn detach(&self, number: u64) -> Result<(), Refused> {
        let session = self.session(number)?;
        let cleaned = session.end().await;
        self.sessions.lock().remove(&number);
        cleaned
    }
}

/// The command through which tools ask.
pub(super) fn command(echo: &Arc<Echo>) -> sheen_control::Command {
    let (echo, runtime) = (Arc::clone(echo), tokio::runtime::Handle::current());
    Box::new(move |words| {
        let wrong = |error: serde_json::Error| (Errno::EPROTO, error.to_string());
        let ask = serde_json::from_str(words.first().map_or("", String::as_str)).map_err(wrong)?;
        let answer = runtime.block_on(echo.answer(ask))?;
        serde_json::to_string(&answer).map_err(wrong)
    })
}

impl Session {
    fn refused(&self, what: &str, errno: Errno) -> Refused {
        (errno, format!("{}: {what}: {}", self.served.target.name(), errno.message()))
    }

    async fn prepare(&self, count: u32) -> Result<(), Refused> {
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(self.refused("prepare", Errno::EINVAL));
        }
        let mut state = self.state.lock().await;
        self.settle(&mut state).await?;
        let target = &self.served.target;
        let failed = |errno| self.refused("cannot prepare", errno);
        match &self.served.role {
            Role::Mdt(mdt) => {
                state.directories = mdt.echo_directories(target, count).await.map_err(failed)?;
            }
            Role::Ost(ost) => {
                let first = ost.echo_objects(target, count).await.map_err(failed)?;
                state.objects = (first, count);
            }
            Role::Mgs(_) => return Err(failed(Errno::EINVAL)),
        }
        *self.heard.lock() = self.world.clock.now();
        Ok(())
    }

    async fn start(&self, work: sheen_bench::device::Work) -> Result<(), Refused> {
        let state = self.state.lock().await;
        let is_running = self.run.lock().as_ref().is_some_and(|run| !run.progress().ended);
        if is_running || state.has_ended {
            return Err(self.refused("a test runs", Errno::EBUSY));
        }
        let begun = work::begin(&self.world, &self.served, &state, work);
        *self.run.lock() = Some(begun.map_err(|errno| self.refused("cannot start", errno))?);
        Ok(())
    }

    async fn watch(&self) -> Result<Progress, Refused> {
        let run = self.run.lock().clone();
        let run = run.ok_or_else(|| self.refused("no test runs", Errno::EINVAL))?;
        tokio::select! {
            () = run.ended() => {}
            () = self.world.clock.sleep_until(self.world.clock.now() + WATCH) => {}
        }
        Ok(run.progress())
    }

    async fn clean(&self) -> Result<(), Refused> {
        let mut state = self.state.lock().await;
        let cleaned = self.settle(&mut state).await;
        *self.heard.lock() = self.world.clock.now();
        cleaned
    }

    async fn end(&self) -> Result<(), Refused> {
        let mut state = self.state.lock().await;
        state.has_ended = true;
        self.settle(&mut state).await
    }

    /// Ends the test that runs and removes all that was made.
    async fn settle(&self, state: &mut SurveyState) -> Result<(), Refused> {
        let run = self.run.lock().take();
        if let Some(run) = run {
            run.stop();
            run.ended().await;
        }
        let target = &self.served.target;
        let removed = match &self.served.role {
            Role::Mdt(mdt) => mdt.echo_clean(target).await,
            Role::Ost(_) => sheen_oss::echo_clean(target).await,
            Role::Mgs(_) => Ok(0),
        };
        removed.map_err(|errno| self.refused("cannot remove what was made", errno))?;
        (state.directories, state.objects) = (Vec::new(), (0, 0));
        Ok(())
    }
}
