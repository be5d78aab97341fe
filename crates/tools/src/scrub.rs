//! `sheen scrub`: the data of running targets compared with what their stores know of it, and what is
//! damaged, a line each.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use sheen_control::Client;
use sheen_types::Errno;

use crate::home::{self, Home};
use crate::origins;
use crate::output::{self, Fault};
use crate::{interrupt, processes};
use sheen_control::api::{self, ScrubAnswer, ScrubRequest, ScrubState};

/// The exit code if anything is damaged.
const DAMAGED: u8 = 1;
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(200);
const MIB: u64 = 1 << 20;

/// Verify the data of running targets: presence, length and checksums
#[derive(Args)]
pub struct Scrub {
    /// Targets, for example `lustre-OST0000` [default: all on this machine, or in --dir]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Only targets of the file system in this directory, as for `sheen up`
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Read at most this many MiB per second from each target; 0 for no limit
    #[arg(long, value_name = "MIB", default_value_t = 100)]
    rate: u64,
    /// Print the progress of scrubs and exit
    #[arg(long, conflicts_with = "stop")]
    status: bool,
    /// Stop running scrubs
    #[arg(long)]
    stop: bool,
}

/// A target, and the process that has it.
struct Place {
    name: String,
    process: Client,
    heard: usize,
    state: ScrubState,
}

/// Scrubs, and leaves with 1 if anything is damaged.
pub fn run(options: &Scrub) -> Result<(), Fault> {
    let mut places = places(options)?;
    if options.stop {
        let stop = |place: &mut Place| {
            let target = place.name.clone();
            put(&mut place.process, &ScrubRequest::Stop { target }).map(drop)
        };
        return places.iter_mut().try_for_each(|place| passed_over(stop(place)));
    }
    if options.status {
        return status(&mut places);
    }
    let rate = options.rate.saturating_mul(MIB);
    let stop = interrupt::listen()?;
    for place in &mut places {
        let ask = ScrubRequest::Start { target: place.name.clone(), rate };
        put(&mut place.process, &ask).map_err(fault)?;
    }
    follow(&mut places, stop)?;
    let damaged: u64 = places.iter().map(|place| place.state.damaged).sum();
    let failed = places.iter().any(|place| place.state.failed.is_some());
    if stop.load(Ordering::Relaxed) {
        return Err(Fault { code: interrupt::interrupted_code(), text: String::new() });
    }
    match (damaged, failed) {
        (0, false) => Ok(()),
        (0, true) => Err(Fault::reported(Errno::EIO)),
        _ => Err(Fault { code: DAMAGED, text: String::new() }),
    }
}

/// The targets that are meant.
fn places(options: &Scrub) -> Result<Vec<Place>, Fault> {
    let within = options.dir.as_deref().map(std::path::absolute).transpose();
    let within = within.map_err(|error| Fault::new(Errno::EINVAL, error.to_string()))?;
    let is_meant = |name: &String, directory: &String| {
        let is_named = options.targets.is_empty() || options.targets.contains(name);
        is_named && within.as_ref().is_none_or(|dir| PathBuf::from(directory).starts_with(dir))
    };
    let mut found = BTreeMap::new();
    for mut process in processes::all() {
        // Mounts answer that they do no such thing.
        let Ok(ScrubAnswer::Targets(targets)) = put(&mut process, &ScrubRequest::Targets) else {
            continue;
        };
        let socket = process.path().to_owned();
        for (name, directory) in targets {
            if is_meant(&name, &directory)
                && let Ok(mut process) = Client::connect(&socket)
            {
                let home = home::home(&mut process);
                let place =
                    Place { name: name.clone(), process, heard: 0, state: ScrubState::default() };
                found.entry(name).or_insert_with(Vec::new).push((home, place));
            }
        }
    }
    let missing = options.targets.iter().find(|name| !found.contains_key(*name));
    let none = match (missing, &options.dir) {
        (Some(name), _) => format!("scrub: target {name} is not running on this machine"),
        (None, Some(dir)) if owner_of_run(dir).is_some() => {
            let (dir, uid) = (dir.display(), owner_of_run(dir).unwrap_or_default());
            format!(
                "scrub: {dir} belongs to uid {uid}: only that user can ask its server (run this as that user)"
            )
        }
        (None, Some(dir)) => {
            let dir = dir.display();
            format!("scrub: the server of {dir} is not running: start it (sheen up --dir {dir})")
        }
        (None, None) => "scrub: no target is running on this machine".to_owned(),
    };
    match missing.is_some() || found.is_empty() {
        true => Err(Fault::new(Errno::ENODEV, none)),
        false => found.into_values().map(only).collect(),
    }
}

/// The one target of a name; of those of several file systems it asks which is meant.
fn only(mut places: Vec<(Option<Home>, Place)>) -> Result<Place, Fault> {
    let homes = origins::distinct(places.iter().map(|(home, _)| home.clone()));
    match (homes.len(), places.pop()) {
        (0 | 1, Some((_, place))) => Ok(place),
        _ => Err(origins::ask("sheen scrub", &homes)),
    }
}

/// The owner of the directory, if it is another user, whose sockets are closed to us.
fn owner_of_run(dir: &Path) -> Option<u32> {
    let uid = std::fs::metadata(dir).ok()?.uid();
    (uid != rustix::process::geteuid().as_raw()).then_some(uid)
}

fn put(process: &mut Client, ask: &ScrubRequest) -> Result<ScrubAnswer, processes::Failure> {
    let wrong = |error: serde_json::Error| (Errno::EPROTO, error.to_string());
    let text = serde_json::to_string(ask).map_err(wrong)?;
    let answer = processes::command(process, api::SCRUB, &[&text])?;
    serde_json::from_str(&answer).map_err(wrong)
}

fn fault((errno, line): processes::Failure) -> Fault {
    Fault::new(errno, format!("scrub: {line}"))
}

/// What was never scrubbed needs no stop, and has no status.
fn passed_over(outcome: Result<(), processes::Failure>) -> Result<(), Fault> {
    match outcome {
        Err((Errno::ENOENT, _)) => Ok(()),
        outcome => outcome.map_err(fault),
    }
}

/// Asks for the progress of a scrub, and prints what it has found since.
fn hear(place: &mut Place) -> Result<(), processes::Failure> {
    let ask = ScrubRequest::Watch { target: place.name.clone(), from: place.heard };
    let ScrubAnswer::State { state, new } = put(&mut place.process, &ask)? else {
        return Err((Errno::EPROTO, "unexpected answer".to_owned()));
    };
    place.heard += new.len();
    for finding in new {
        progress("");
        output::line(format_args!("{}: {finding}", place.name));
    }
    place.state = state;
    Ok(())
}

fn status(places: &mut [Place]) -> Result<(), Fault> {
    for place in places {
        passed_over(hear(place))?;
        summary(place);
    }
    Ok(())
}

/// Until all have ended.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for time to pass")]
fn follow(places: &mut [Place], stop: &AtomicBool) -> Result<(), Fault> {
    let mut was_stopped = false;
    loop {
        for place in places.iter_mut().filter(|place| !place.state.ended) {
            let heard = hear(place).map_err(|(errno, line)| {
                progress("");
                let name = &place.name;
                let text = format!(
                    "scrub: {name}: its server stopped before all was looked through; run it again \
                     when it is back ({line})"
                );
                Fault::new(errno, text)
            });
            heard?;
            if place.state.ended {
                progress("");
                summary(place);
            }
        }
        if places.iter().all(|place| place.state.ended) {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut was_stopped, true) {
            for place in places.iter_mut() {
                let target = place.name.clone();
                put(&mut place.process, &ScrubRequest::Stop { target }).map_err(fault)?;
            }
        }
        show(places);
        std::thread::sleep(PAUSE);
    }
}

fn summary(place: &Place) {
    let ScrubState { objects, bytes, damaged, milliseconds, ended, stopped, failed } = &place.state;
    let how = match (failed, ended, stopped) {
        (Some(why), ..) => format!("failed: {why}"),
        (None, false, _) if *objects == 0 && *bytes == 0 => "nothing scrubbed yet".to_owned(),
        (None, false, _) => "under way".to_owned(),
        (None, true, true) => "stopped".to_owned(),
        (None, true, false) => "done".to_owned(),
    };
    output::line(format_args!(
        "{}: {how}: {objects} objects, {} MiB in {:.1} s, {damaged} damaged",
        place.name,
        bytes / MIB,
        *milliseconds as f64 / 1000.0,
    ));
}

/// A line of progress for the terminal.
fn show(places: &[Place]) {
    let sum = |of: fn(&ScrubState) -> u64| places.iter().map(|place| of(&place.state)).sum::<u64>();
    let under_way: Vec<&str> =
        places.iter().filter(|place| !place.state.ended).map(|place| &place.name[..]).collect();
    progress(&format!(
        "scrub: {} objects, {} MiB, {} damaged; {} of {} targets under way: {}",
        sum(|state| state.objects),
        sum(|state| state.bytes) / MIB,
        sum(|state| state.damaged),
        under_way.len(),
        places.len(),
        under_way.join(" "),
    ));
}

/// On a terminal alone; an empty text erases it.
fn progress(text: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        // Progress is not worth a failure.
        let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
    }
}
