//! The asking end of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::folder::{check_owner, short_path};
use crate::protocol::LINE_BYTES_MAX;
use crate::{ControlReply, ControlRequest};

/// How long a tool waits for one answer; a command may have to ask a server that is away.
const ANSWER_SECONDS_MAX: u64 = 120;
/// How long a process may take to answer a question for which it asks no other process.
const SIGN_SECONDS_MAX: u64 = 15;

/// One process, reached through its socket.
pub struct Client {
    path: PathBuf,
    stream: UnixStream,
}

/// Where root's sockets lie.
const ROOTS: &str = "/run/sheen";

/// Where the sockets lie: `$SHEEN_RUN_DIR`, else `/run/sheen` for root, else below
/// `$XDG_RUNTIME_DIR`, else a folder of the user's own in `/tmp`. Root of a user namespace that shares the machine's
/// `/run` may not write there, and takes the folder of the user who it is outside.
#[must_use]
pub fn run_folder(is_root: bool, uid: u32) -> PathBuf {
    if let Some(folder) = std::env::var_os("SHEEN_RUN_DIR") {
        return folder.into();
    }
    let outside = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let uid = match (is_root, outer(&outside)) {
        (false, _) => uid,
        (true, Some(uid)) if !may_write(ROOTS) && !may_write("/run") => uid,
        (true, _) => return ROOTS.into(),
    };
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => Path::new(&folder).join("sheen"),
        None => format!("/tmp/sheen-{uid}").into(),
    }
}

fn may_write(path: &str) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Who root of a namespace is outside of it, by its `uid_map`; `None` if root is root there, too.
fn outer(uid_map: &str) -> Option<u32> {
    let uid = uid_map.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "0").then(|| words.next()?.parse().ok()).flatten()
    });
    uid.filter(|uid| *uid != 0)
}

impl Client {
    /// Every live process with a socket in `folder`, by name of the socket. Sockets of dead
    /// processes are passed over; a folder that is another user's has none of ours.
    #[must_use]
    pub fn all(folder: &Path) -> Vec<Client> {
        if check_owner(folder).is_err() {
            return Vec::new();
        }
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
        paths.sort();
        let patience = Duration::from_secs(SIGN_SECONDS_MAX);
        let connected = paths.iter().filter_map(|path| Self::connect(path).ok());
        connected.filter(|client| client.answers_within(patience)).collect()
    }

    /// Whether its process answers questions. A process that hangs would delay every tool that asks all processes, so it
    /// is passed over, and a line on standard error names it.
    fn answers_within(&self, patience: Duration) -> bool {
        let question = ControlRequest::Get { pattern: "version".to_owned() };
        let asked = Self::connect_within(&self.path, patience).and_then(|mut it| it.ask(&question));
        let stands = asked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if stands {
            let name = self.path.file_stem().unwrap_or_default().to_string_lossy();
            let seconds = patience.as_secs();
            eprintln!("{name} does not answer within {seconds} s, and is left out");
        }
        !stands
    }

    /// The process behind one socket.
    ///
    /// # Errors
    /// If no process answers there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Self::connect_within(path, Duration::from_secs(ANSWER_SECONDS_MAX))
    }

    /// As [`Self::connect`], and neither connecting nor an answer is waited for any longer than `patience`:
    /// `WouldBlock` then. A process that stands still answers nothing, and takes no connection when many wait.
    ///
    /// # Errors
    /// If no process answers there.
    pub fn connect_within(path: &Path, patience: Duration) -> io::Result<Self> {
        let (_folder, short) = short_path(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for which in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, which, Some(patience))?;
        }
        rustix::net::connect(&socket, &SocketAddrUnix::new(short)?)?;
        Ok(Self { path: path.to_owned(), stream: UnixStream::from(socket) })
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If the process goes away, does not answer in time or answers no JSON.
    pub fn ask(&mut self, question: &ControlRequest) -> io::Result<ControlReply> {
        let mut text = serde_json::to_vec(question)?;
        text.push(b'\n');
        self.stream.write_all(&text)?;
        let mut line = String::new();
        let mut reader = BufReader::new(&self.stream).take(LINE_BYTES_MAX);
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use sheen_types::Errno;

    use crate::{Client, Command, ControlReply, ControlRequest, Server, Tree};

    #[test]
    fn root_of_a_namespace_is_a_user_outside() {
        assert_eq!(super::outer("         0          0 4294967295\n"), None);
        assert_eq!(super::outer("         0      65534          1\n"), Some(65_534));
        assert_eq!(super::outer("      1000          5          1\n"), None);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a socket is waited for in real time")]
    fn a_process_that_does_not_answer_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("sheen-silent-{}", std::process::id()));
        crate::make_private(&folder).unwrap();
        let path = folder.join("silent.sock");
        let (_folder, short) = crate::folder::short_path(&path).unwrap();
        // Its backlog takes connections, and no process accepts them.
        let listener = std::os::unix::net::UnixListener::bind(short).unwrap();
        let client = Client::connect(&path).unwrap();
        let began = std::time::Instant::now();
        assert!(!client.answers_within(Duration::from_millis(100)));
        assert!(began.elapsed() < Duration::from_secs(10));
        drop(listener);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_tool_reaches_a_process_and_not_a_dead_one() {
        // Longer than a socket's path may be.
        let top = std::env::temp_dir().join(format!("sheen-control-{}", std::process::id()));
        let folder = top.join("a-name-of-thirty-letters-or-so/".repeat(5));
        crate::make_private(&folder).unwrap();
        let (_folder, short) = crate::folder::short_path(&folder.join("dead.sock")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(short).unwrap());
        let tree = Arc::new(Tree::new());
        tree.add("version", || "2.17.0".to_owned());
        let fail: Command = Box::new(|_| Err((Errno::ENODEV, "none".to_owned())));
        let commands = BTreeMap::from([("fail".to_owned(), fail)]);
        let server = Server::start(&folder.join("live.sock"), tree, commands).unwrap();
        let mut clients = Client::all(&folder);
        assert_eq!(clients.len(), 1);
        let answer = clients[0].ask(&ControlRequest::Get { pattern: "vers*".to_owned() }).unwrap();
        let ControlReply::Shown(shown) = answer else { panic!("{answer:?}") };
        assert_eq!(shown[0].value, "2.17.0");
        let question = ControlRequest::Command { name: "fail".to_owned(), arguments: vec![] };
        let answer = clients[0].ask(&question).unwrap();
        assert_eq!(answer, ControlReply::Failed { errno: 19, message: "none".to_owned() });
        drop(server);
        assert!(Client::all(&folder).is_empty());
        std::fs::remove_dir_all(&top).unwrap();
    }
}
