//! `sheen upgrade`: another process, of this program, goes on with a mount, and programs with files open there see a
//! pause.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use sheen_control::api::{MOUNT_INFO, MountInfo};
use sheen_control::{Client, Command, ControlReply, ControlRequest};
use sheen_types::Errno;
use tokio::sync::Notify;

use super::keeper;
use sheen_tools::output::{self, Fault, errno_of, shown_path};

/// Command of a mount: `PROGRAM` goes on with it; the answer is the number of the process that ends.
const HAND_OVER: &str = "hand_over";
/// How long calls under way may take to end; those that take longer are sent to the next process, too.
pub(super) const DRAIN: Duration = Duration::from_secs(10);
/// How long the next process may take to serve the mount.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);

/// Replace the process of a mount by one of this program, without unmounting: open files stay open
#[derive(Args)]
pub(crate) struct Upgrade {
    /// Mount point
    #[arg(value_name = "MNT")]
    mount: PathBuf,
}

/// Where a mount's process hears that it is to hand over.
#[derive(Default)]
pub(super) struct HandOver {
    program: Mutex<Option<PathBuf>>,
    asked: Notify,
}

impl HandOver {
    /// Waits until it is asked; the program that goes on.
    pub(super) async fn asked(&self) -> PathBuf {
        loop {
            let asked = self.asked.notified();
            let program = self.program.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(program) = program {
                return program;
            }
            asked.await;
        }
    }

    /// The command's name, and what it does.
    pub(super) fn command(this: &Arc<Self>, has_keeper: bool) -> (String, Command) {
        let this = Arc::clone(this);
        let run = move |arguments: &[String]| {
            let [program] = arguments else { return Err((Errno::EINVAL, String::new())) };
            if !has_keeper {
                let fault = keeper::keeps_nothing();
                return Err((Errno::EOPNOTSUPP, fault.text));
            }
            let mut asked = this.program.lock().unwrap_or_else(PoisonError::into_inner);
            *asked = Some(PathBuf::from(program));
            this.asked.notify_one();
            Ok(std::process::id().to_string())
        };
        (HAND_OVER.to_owned(), Box::new(run))
    }
}

/// Asks the process of the mount, and waits until another one serves it.
///
/// # Errors
/// `ENODEV` if nothing of this user is mounted there; `EOPNOTSUPP` if it has no keeper; `ETIMEDOUT`.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
pub(crate) fn upgrade(options: &Upgrade) -> Result<(), Fault> {
    let path = super::mount::absolute(&options.mount)?;
    let program = std::env::current_exe().map_err(|error| {
        Fault::new(errno_of(&error), format!("cannot find this program: {error}"))
    })?;
    let Some(mut process) = process_of(&path) else {
        let text = format!("{}: no mount of this user's is there that answers", shown_path(&path));
        return Err(Fault::new(Errno::ENODEV, text));
    };
    let arguments = vec![program.to_string_lossy().into_owned()];
    let former = match ask(&mut process, HAND_OVER, arguments) {
        Some(ControlReply::Text(number)) => number,
        Some(ControlReply::Failed { errno, message }) => {
            return Err(Fault::new(Errno(errno), message));
        }
        _ => return Err(Fault::new(Errno::EIO, "the mount's process does not answer")),
    };
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let now = process_of(&path).and_then(|process| number_of(&process));
        match now.filter(|now| *now != former) {
            Some(now) => return served(&path, &program, &now),
            None => std::thread::sleep(LOOK),
        }
    }
    let text =
        format!("{}: no process goes on with it yet; see the mount's log", shown_path(&path));
    Err(Fault::new(Errno::ETIMEDOUT, text))
}

/// What the number of the process that serves the mount now means: one that could not leaves it to the program of
/// before.
fn served(path: &Path, program: &Path, number: &str) -> Result<(), Fault> {
    let path = shown_path(path);
    if std::fs::read_link(format!("/proc/{number}/exe")).is_ok_and(|served| served != program) {
        let program = shown_path(program);
        let text = format!(
            "{path}: {program} could not go on with it, and the program of before does; see the mount's log"
        );
        return Err(Fault::new(Errno::EPROTO, text));
    }
    output::line(format_args!("{path}: served by {}, pid {number}", shown_path(program)));
    Ok(())
}

/// The number of a process, as the name of its socket has it.
fn number_of(process: &Client) -> Option<String> {
    let name = process.path().file_stem()?.to_str()?;
    Some(name.strip_prefix("mount-")?.to_owned())
}

/// The process of the mount at `path`.
fn process_of(path: &Path) -> Option<Client> {
    Client::all(&super::sockets()).into_iter().find_map(|mut process| {
        let Some(ControlReply::Text(text)) = ask(&mut process, MOUNT_INFO, Vec::new()) else {
            return None;
        };
        let info: MountInfo = serde_json::from_str(&text).ok()?;
        (info.point() == path).then_some(process)
    })
}

fn ask(process: &mut Client, name: &str, arguments: Vec<String>) -> Option<ControlReply> {
    process.ask(&ControlRequest::Command { name: name.to_owned(), arguments }).ok()
}
