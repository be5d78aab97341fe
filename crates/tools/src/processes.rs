//! Asking the Sheen processes of this machine over their control sockets.

use sheen_control::{Client, ControlReply, ControlRequest, run_folder};
use sheen_types::Errno;

pub use crate::command::{Failure, command};
use crate::home::{self, Home};

/// All processes of this machine that we may talk to; if one MGS's are meant (`origins`), those.
pub fn all() -> Vec<Client> {
    let uid = rustix::process::geteuid();
    let mut all = Client::all(&run_folder(uid.is_root(), uid.as_raw()));
    if let Some(chosen) = home::chosen() {
        all.retain_mut(|process| home::home(process).is_some_and(|home| home.is(&chosen)));
    }
    all
}

/// Asks every process; those that went away are passed over.
pub fn ask_all(question: &ControlRequest) -> Vec<ControlReply> {
    let answer = |mut process: Client| process.ask(question).ok();
    all().into_iter().filter_map(answer).collect()
}

/// As [`ask_all`], with where each process belongs.
pub(crate) fn ask_each(question: &ControlRequest) -> Vec<(Option<Home>, ControlReply)> {
    let answer = |mut process: Client| {
        let home = home::home(&mut process);
        Some((home, process.ask(question).ok()?))
    };
    all().into_iter().filter_map(answer).collect()
}

/// The values of parameters in each process that has some.
pub(crate) fn parameters(pattern: &str) -> Vec<Vec<(String, String)>> {
    let shown = |answer| match answer {
        ControlReply::Shown(shown) => {
            shown.into_iter().map(|shown| (shown.name, shown.value)).collect()
        }
        _ => Vec::new(),
    };
    ask_all(&ControlRequest::Get { pattern: pattern.to_owned() }).into_iter().map(shown).collect()
}

/// Runs a named command in every process that has it: its texts, or the first failure if no
/// process succeeded.
pub fn command_all(name: &str, arguments: &[&str]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    let mut failure = None;
    for mut process in all() {
        match command(&mut process, name, arguments) {
            Ok(text) => texts.push(text),
            Err((Errno::EOPNOTSUPP, _)) => {}
            Err(failed) => failure = failure.or(Some(failed)),
        }
    }
    outcome(texts, failure)
}

/// Runs a named command in one process after the other until one succeeds.
pub fn command_first(name: &str, arguments: &[&str]) -> Result<String, Failure> {
    let mut failure = None;
    for mut process in all() {
        match command(&mut process, name, arguments) {
            Ok(text) => return Ok(text),
            Err((Errno::EOPNOTSUPP, _)) => {}
            Err(failed) => failure = failure.or(Some(failed)),
        }
    }
    outcome(Vec::new(), failure).map(|_: Vec<String>| String::new())
}

fn outcome(texts: Vec<String>, failure: Option<Failure>) -> Result<Vec<String>, Failure> {
    match failure {
        _ if !texts.is_empty() => Ok(texts),
        Some(failure) => Err(failure),
        None => Err((Errno::ENODEV, "no Sheen process on this machine does that".to_owned())),
    }
}
