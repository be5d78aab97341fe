//! The answering end of the control socket.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheen_types::Errno;

use crate::folder::{make_private, short_path};
use crate::protocol::LINE_BYTES_MAX;
use crate::{ControlReply, ControlRequest, Listed, Pattern, Shown, Tree};

/// A command beside the parameters: takes arguments, answers text or an errno with one line.
pub type Command = Box<dyn Fn(&[String]) -> Result<String, (Errno, String)> + Send + Sync>;

/// The socket; removed when dropped.
pub struct Server {
    path: PathBuf,
    stopped: Arc<AtomicBool>,
}

struct Shared {
    tree: Arc<Tree>,
    commands: BTreeMap<String, Command>,
}

impl Server {
    /// Listens at `path` on a thread of its own, a thread for each tool that comes: tools are few
    /// and short-lived. A socket left by a dead process is replaced.
    ///
    /// # Errors
    /// If the folder cannot be made or is another user's, or the socket cannot be bound.
    pub fn start(
        path: &Path,
        tree: Arc<Tree>,
        commands: BTreeMap<String, Command>,
    ) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            make_private(folder)?;
            sweep(folder);
        }
        let (_folder, short) = short_path(path)?;
        if UnixStream::connect(&short).is_err() {
            let _ = std::fs::remove_file(path);
        }
        let listener = UnixListener::bind(&short)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared { tree, commands });
        let stop = Arc::clone(&stopped);
        let name = std::thread::Builder::new().name("control".to_owned());
        name.spawn(move || accept(&listener, &shared, &stop))?;
        Ok(Self { path: path.to_owned(), stopped })
    }
}

/// Takes away the sockets of processes that were killed: `NAME-PID.sock` where no process listens and none has
/// the number. One of a container with numbers of its own may, but it listens.
fn sweep(folder: &Path) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let pid = name.strip_suffix(".sock").and_then(|name| name.rsplit_once('-'));
        let pid = pid.and_then(|(_, pid)| pid.parse::<u32>().ok());
        let is_dead = pid.is_some_and(|pid| !runs(pid));
        if is_dead
            && short_path(&path).is_ok_and(|(_folder, short)| UnixStream::connect(short).is_err())
        {
            // Another process may sweep, too.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Whether there is such a process, and not only what its parent has not waited for.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        !rest.trim_start().starts_with('Z')
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Ok((_folder, short)) = short_path(&self.path) {
            let _ = UnixStream::connect(short);
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, stopped: &AtomicBool) {
    for stream in listener.incoming() {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        let (Ok(stream), shared) = (stream, Arc::clone(shared)) else { continue };
        let name = std::thread::Builder::new().name("control-tool".to_owned());
        let served = name.spawn(move || {
            if let Err(error) = serve(&stream, &shared) {
                tracing::debug!(%error, "a tool went away");
            }
        });
        if let Err(error) = served {
            tracing::warn!(%error, "no thread for a tool");
        }
    }
}

thread_local! {
    static ASKER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The process whose question this thread answers: what a parameter holds may depend on it.
#[must_use]
pub fn asker() -> Option<u32> {
    ASKER.get()
}

fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    // The folder is closed to other users; should it be open after all, they still set and run nothing.
    if !(peer.uid.is_root() || peer.uid == rustix::process::geteuid()) {
        let uid = peer.uid.as_raw();
        tracing::warn!("refused a tool of uid {uid}: neither our user nor root");
        return Ok(());
    }
    ASKER.set(Some(peer.pid.as_raw_nonzero().get().cast_unsigned()));
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? > 0 {
        let answer = match serde_json::from_str(&line) {
            Ok(question) => shared.answer(question),
            Err(error) => failed(Errno::EPROTO, error.to_string()),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        (&*stream).write_all(&text)?;
        line.clear();
    }
    Ok(())
}

fn failed(errno: Errno, message: String) -> ControlReply {
    ControlReply::Failed { errno: errno.0, message }
}

impl Shared {
    fn answer(&self, question: ControlRequest) -> ControlReply {
        match question {
            ControlRequest::List { pattern } => {
                let listed: Vec<Listed> = self.tree.list(&Pattern::new(&pattern));
                ControlReply::Listed(listed)
            }
            ControlRequest::Get { pattern } => {
                let values = self.tree.get(&Pattern::new(&pattern)).into_iter();
                let shown = |(name, value)| Shown { name, value, errno: 0 };
                ControlReply::Shown(values.map(shown).collect())
            }
            ControlRequest::Set { pattern, value } => {
                let fates = self.tree.set(&Pattern::new(&pattern), &value).into_iter();
                let shown = |(name, fate): (String, Result<(), Errno>)| Shown {
                    name,
                    value: String::new(),
                    errno: fate.err().map_or(0, |errno| errno.0),
                };
                ControlReply::Shown(fates.map(shown).collect())
            }
            ControlRequest::Command { name, arguments } => match self.commands.get(&name) {
                None => failed(Errno::EOPNOTSUPP, format!("no command {name} here")),
                Some(command) => match command(&arguments) {
                    Ok(text) => ControlReply::Text(text),
                    Err((errno, message)) => failed(errno, message),
                },
            },
        }
    }
}
