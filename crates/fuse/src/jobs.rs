//! Whose job a request is: `jobid_var` and `jobid_name`, for the process that the kernel names.
//!
//! What was found out of a process is cached for a short time, which grows as long as the answer stays the
//! same: a process that has just been forked is often about to become another program, so for its first 100
//! ms each request costs a file of `/proc`. A busy process that goes on costs some of them a second and no
//! system call otherwise. Switched off, a request costs the look at one flag.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sheen_types::{Errno, HashMap, JobId};

use crate::environments::{Environments, NotReadYet};

/// Requests carry no job.
const DISABLE: &str = "disable";
/// The name of the program and the user.
const PROCNAME_UID: &str = "procname_uid";
/// One job on the whole machine, which `jobid_name` names.
const NODELOCAL: &str = "nodelocal";
/// What `jobid_this_session` was set to in the process's session.
const SESSION: &str = "session";
/// Bytes of the name of a variable (`JOBSTATS_JOBID_VAR_MAX_LEN`).
const VARIABLE_BYTES_MAX: usize = 20;
/// What `jobid_name` is at first, and what `procname_uid` stands for.
const PROGRAM_AND_USER: &str = "%e.%u";
/// All sessions whose leaders are outside our PID namespace: the kernel does not distinguish them.
const OUTSIDE: u32 = 0;
/// Names of threads whose work is no job's (`jobid_name_is_valid`).
const NO_JOBS: [&str; 9] =
    ["ll_ping", "ptlrpc", "ldlm", "ll_sa", "kworker", "kswapd", "writeback", "irq", "ksoftirq"];

/// How long a process is asked anew each time: it may be about to become another program.
const YOUNG: Duration = Duration::from_millis(100);
/// How long a process is asked anew each time that has not changed.
const FRESH_MAX: Duration = Duration::from_secs(1);
/// Processes remembered; beyond this all are forgotten.
const PROCESSES_MAX: usize = 4096;

type Key = (u32, u32, u32);

/// What was found out of a process.
struct Known {
    at: Instant,
    /// When it was first seen with this job.
    since: Instant,
    job: Option<JobId>,
}

impl Known {
    /// As long as it has been the same before, but not at all at first.
    fn believed_for(&self) -> Duration {
        match self.at.duration_since(self.since) {
            age if age < YOUNG => Duration::ZERO,
            age => age.min(FRESH_MAX),
        }
    }
}

/// How jobs are named.
#[derive(Clone)]
struct Settings {
    variable: String,
    name: String,
}

/// The jobs of a machine's processes.
pub struct Jobs {
    is_on: AtomicBool,
    settings: RwLock<Settings>,
    sessions: Mutex<HashMap<u32, String>>,
    known: Mutex<HashMap<Key, Known>>,
    environments: Environments,
}

impl Default for Jobs {
    fn default() -> Self {
        let settings = Settings { variable: DISABLE.to_owned(), name: PROGRAM_AND_USER.to_owned() };
        Self {
            is_on: AtomicBool::new(false),
            settings: RwLock::new(settings),
            sessions: Mutex::default(),
            known: Mutex::default(),
            environments: Environments::default(),
        }
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "jobs by {}", self.variable())
    }
}

impl Jobs {
    /// `jobid_var`: how a job is named.
    #[must_use]
    pub fn variable(&self) -> String {
        self.settings.read().variable.clone()
    }

    /// Sets `jobid_var`: `disable`, `procname_uid`, `nodelocal`, `session`, or the name of an environment
    /// variable.
    ///
    /// # Errors
    /// `EINVAL` for nothing, or more than 20 bytes.
    pub fn set_variable(&self, text: &str) -> Result<(), Errno> {
        if text.is_empty() || text.len() > VARIABLE_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        text.trim_end_matches('\n').clone_into(&mut self.settings.write().variable);
        self.forget();
        Ok(())
    }

    /// `jobid_name`: what a job is called.
    #[must_use]
    pub fn name(&self) -> String {
        self.settings.read().name.clone()
    }

    /// Sets `jobid_name`. As in Lustre, a name without `%` counts only for `nodelocal`; otherwise what is
    /// remembered of processes of that job is forgotten.
    ///
    /// # Errors
    /// `EINVAL` for nothing, or more than 32 bytes.
    pub fn set_name(&self, text: &str) -> Result<(), Errno> {
        let name = text.trim_end_matches('\n');
        if name.is_empty() || text.len() > JobId::LENGTH_MAX + 1 {
            return Err(Errno::EINVAL);
        }
        let mut settings = self.settings.write();
        if settings.variable != NODELOCAL && !name.contains('%') {
            let ended = JobId::new(name.as_bytes());
            self.known.lock().retain(|_, known| known.job != ended);
            return Ok(());
        }
        name.clone_into(&mut settings.name);
        drop(settings);
        self.forget();
        Ok(())
    }

    /// `jobid_this_session` of the session of the process `pid`.
    #[must_use]
    pub fn of_session(&self, pid: u32) -> Option<String> {
        self.sessions.lock().get(&session_of(pid)?).cloned()
    }

    /// Sets `jobid_this_session` for the session of the process `pid`.
    ///
    /// # Errors
    /// `EINVAL` for nothing, or more than 32 bytes; `ESRCH` if there is no such process.
    pub fn set_session(&self, pid: u32, text: &str) -> Result<(), Errno> {
        if text.is_empty() || text.len() > JobId::LENGTH_MAX + 1 {
            return Err(Errno::EINVAL);
        }
        let name = text.split(['\n', ' ']).next().unwrap_or_default();
        let session = session_of(pid).ok_or(Errno::ESRCH)?;
        let mut sessions = self.sessions.lock();
        // Those whose leader is gone are over, or cannot be distinguished from new ones.
        sessions.retain(|session, _| *session == OUTSIDE || session_of(*session).is_some());
        sessions.insert(session, name.to_owned());
        drop(sessions);
        self.forget();
        Ok(())
    }

    /// The job of the thread `pid`, which asks as this user and group.
    pub(crate) fn of(&self, pid: u32, uid: u32, gid: u32) -> Option<JobId> {
        if !self.is_on.load(Ordering::Relaxed) || pid == 0 {
            return None;
        }
        self.of_key((pid, uid, gid))
    }

    #[expect(clippy::disallowed_methods, reason = "a host: the age of what /proc said")]
    fn of_key(&self, key: Key) -> Option<JobId> {
        let now = Instant::now();
        let before = match self.known.lock().get(&key) {
            Some(known) if now.duration_since(known.at) < known.believed_for() => return known.job,
            before => before.map(|known| (known.job, known.since)),
        };
        let settings = self.settings.read().clone();
        let Ok(job) = self.find_out(key, &settings) else {
            // As before; what is not known for sure is not remembered.
            return match before {
                Some((job, _)) => job,
                None => JobId::new(&interpret(&settings.name, &Process::of(key), &|| None)),
            };
        };
        let since = match before {
            Some((same, since)) if same == job => since,
            _ => now,
        };
        let mut known = self.known.lock();
        if known.len() >= PROCESSES_MAX {
            known.clear();
        }
        known.insert(key, Known { at: now, since, job });
        job
    }

    /// As `lustre_get_jobid`.
    ///
    /// # Errors
    /// [`NotReadYet`] if its environment is needed and cannot be read now.
    fn find_out(&self, key: Key, settings: &Settings) -> Result<Option<JobId>, NotReadYet> {
        let process = Process::of(key);
        let is_late = Cell::new(false);
        let own = || match settings.variable.as_str() {
            SESSION => self.of_session(key.0).map(String::into_bytes),
            variable => self.environments.of(key.0).map_or_else(
                |NotReadYet| {
                    is_late.set(true);
                    None
                },
                |environment| variable_in(&environment?, variable),
            ),
        };
        let text = match settings.variable.as_str() {
            DISABLE => return Ok(None),
            NODELOCAL => interpret(&settings.name, &process, &own),
            PROCNAME_UID => interpret(PROGRAM_AND_USER, &process, &own),
            variable if variable != SESSION && process.has_no_job() => return Ok(None),
            _ if settings.name.contains("%j") => interpret(&settings.name, &process, &own),
            _ => own().unwrap_or_else(|| interpret(&settings.name, &process, &own)),
        };
        if is_late.get() { Err(NotReadYet) } else { Ok(JobId::new(&text)) }
    }

    fn forget(&self) {
        let is_on = self.settings.read().variable != DISABLE;
        self.is_on.store(is_on, Ordering::Relaxed);
        self.known.lock().clear();
    }
}

/// The session of the process `pid`. From its `status`, as `stat` is not to be had while the process is in `execve(2)`: it
/// closes files then, and waits for what is written to them, by this very thread perhaps.
fn session_of(pid: u32) -> Option<u32> {
    // It cannot be read of a process that is gone.
    session_in(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The first of the numbers that a session has, one for each PID namespace from ours on; 0 if its leader is outside.
fn session_in(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSsid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Who asks.
struct Process {
    pid: u32,
    uid: u32,
    gid: u32,
    program: Vec<u8>,
}

impl Process {
    fn of((pid, uid, gid): Key) -> Self {
        let mut program = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        if program.last() == Some(&b'\n') {
            program.pop();
        }
        Self { pid, uid, gid, program }
    }

    /// Threads of the kernel, as far as they are known by name.
    fn has_no_job(&self) -> bool {
        self.program.is_empty()
            || NO_JOBS.iter().any(|name| self.program.starts_with(name.as_bytes()))
    }
}

/// The value of a variable in an `environ`.
fn variable_in(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let entries = environment.split(|byte| *byte == 0);
    let mut values = entries.filter_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.next().filter(|value| !value.is_empty()).map(<[u8]>::to_vec)
}

/// What a `jobid_name` says of a process; `own` is what `jobid_var` says.
fn interpret(format: &str, process: &Process, own: &dyn Fn() -> Option<Vec<u8>>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = format.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            if !first.is_ascii_whitespace() {
                text.push(*first);
            }
            continue;
        }
        let width;
        (width, rest) = width_of(rest);
        let Some((letter, behind)) = rest.split_first() else { break };
        rest = behind;
        let mut part = match letter {
            b'e' => process.program.clone(),
            b'g' => process.gid.to_string().into_bytes(),
            b'h' => host_name(),
            b'H' => host_name().split(|byte| *byte == b'.').next().unwrap_or_default().to_vec(),
            b'j' => own().unwrap_or_default(),
            b'p' => process.pid.to_string().into_bytes(),
            b'u' => process.uid.to_string().into_bytes(),
            _ => Vec::new(),
        };
        // `%j?%H` is the job, or what follows the question mark.
        if *letter == b'j' && rest.first() == Some(&b'?') {
            let skipped = if part.is_empty() { 1 } else { 3 };
            rest = rest.get(skipped..).unwrap_or_default();
        }
        part.truncate(width);
        text.extend(part);
    }
    text
}

/// How long what `%.5e` stands for may be, and what follows.
fn width_of(rest: &[u8]) -> (usize, &[u8]) {
    let Some(digits) = rest.strip_prefix(b".") else { return (usize::MAX, rest) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, behind) = digits.split_at(count);
    let width = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
    (width.filter(|width| *width > 0).unwrap_or(usize::MAX), behind)
}

fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_as_lustre_makes_them() {
        let process = Process { pid: 77, uid: 1000, gid: 5, program: b"dd".to_vec() };
        let of = |format: &str, own: &str| {
            let own = own.to_owned();
            let own = move || (!own.is_empty()).then(|| own.clone().into_bytes());
            String::from_utf8(interpret(format, &process, &own)).expect("text")
        };
        assert_eq!(of("%e.%u", ""), "dd.1000");
        assert_eq!(of("a b%p:%g%%x%", ""), "ab77:5x");
        assert_eq!(of("%.1e-%.2u", ""), "d-10");
        assert_eq!(of("%j.%e", "job9"), "job9.dd");
        assert_eq!((of("%j?%e!", "job9"), of("%j?%e!", "")), ("job9!".into(), "dd!".into()));
        assert!(!of("%h", "").is_empty() && !of("%H", "").contains('.'));
    }

    #[test]
    fn variables_are_found_in_an_environment() {
        let environment = b"A=1\0SLURM_JOB_ID=42\0SLURM_JOB=7\0EMPTY=\0";
        assert_eq!(variable_in(environment, "SLURM_JOB_ID").as_deref(), Some(&b"42"[..]));
        assert_eq!(variable_in(environment, "SLURM_JOB").as_deref(), Some(&b"7"[..]));
        assert_eq!(
            (variable_in(environment, "EMPTY"), variable_in(environment, "B")),
            (None, None)
        );
    }

    #[test]
    fn a_session_is_the_first_of_its_numbers() {
        assert_eq!(session_in("Name:\tNSsid:\nPid:\t17\nNSsid:\t9\t1\nVmSize:\t4 kB\n"), Some(9));
        assert_eq!(session_in("NSsid:\t0\n"), Some(OUTSIDE));
        assert_eq!((session_in("NSsid:\n"), session_in("")), (None, None));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    fn a_process_is_believed_longer_the_longer_it_stays_the_same() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let known = |at| Known { at: after(at), since: start, job: None }.believed_for();
        assert_eq!((known(0), known(99)), (Duration::ZERO, Duration::ZERO));
        assert_eq!((known(300), known(5000)), (Duration::from_millis(300), FRESH_MAX));
    }

    #[test]
    fn a_process_has_the_job_that_is_asked_for() {
        let (jobs, pid) = (Jobs::default(), std::process::id());
        let name = |jobs: &Jobs| {
            jobs.of(pid, 3, 4).map(|job| String::from_utf8_lossy(job.as_bytes()).into_owned())
        };
        assert_eq!(name(&jobs), None);
        assert_eq!(jobs.set_variable(PROCNAME_UID), Ok(()));
        assert!(name(&jobs).is_some_and(|it| it.ends_with(".3")), "{:?}", name(&jobs));
        // A name without a percent sign is no name of jobs but on a machine of one job.
        assert_eq!(jobs.set_name("all"), Ok(()));
        assert_eq!(jobs.name(), PROGRAM_AND_USER);
        assert_eq!((jobs.set_variable(NODELOCAL), jobs.set_name("all")), (Ok(()), Ok(())));
        assert_eq!(name(&jobs).as_deref(), Some("all"));
        assert_eq!((jobs.set_variable(SESSION), jobs.set_session(pid, "s7\n")), (Ok(()), Ok(())));
        assert_eq!(name(&jobs).as_deref(), Some("s7"));
        assert_eq!(jobs.of_session(pid).as_deref(), Some("s7"));
        assert_eq!((jobs.set_variable("PATH"), jobs.set_name("%j")), (Ok(()), Ok(())));
        assert!(name(&jobs).is_some_and(|it| it.contains('/')), "{:?}", name(&jobs));
        let wrong = ["", "a_name_of_more_than_twenty"].map(|text| jobs.set_variable(text));
        assert_eq!(wrong, [Err(Errno::EINVAL); 2]);
        assert_eq!(jobs.set_name(&"%e".repeat(17)), Err(Errno::EINVAL));
        assert_eq!(jobs.set_variable(DISABLE), Ok(()));
        assert_eq!(name(&jobs), None);
    }
}
