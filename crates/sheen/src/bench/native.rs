//! The client library as a file system to measure, without FUSE.
//!
//! A rank's thread runs each call to its end: it polls the call, and parks while a server is asked, so a
//! call that a lock covers costs no switch of threads and one that asks a server costs two. Writes are
//! copied once (the caller keeps its buffer), reads once. Each rank remembers one directory, that of its
//! last path; the names on the way to another are looked up, which asks no server while locks cover
//! them. A file's inode is forgotten when the call ends, so nothing plays the part of the kernel's
//! caches: a `stat` asks the MDT unless the client itself knows the answer.

use std::sync::Arc;

use bytes::Bytes;
use sheen_bench::Native;
use sheen_bench::backend::{Backend, File, Open, Space, Stat, Worker};
use sheen_client::posix::{
    Credentials, DirCookie, Entry, FileHandle, FileSystem, FileType, LockOwner, Lookup, NewNode,
    NodeId, OpenFlags, RenameMode, SetAttributes,
};
use sheen_io_os::Host;
use sheen_types::{Errno, Name};

use crate::host::NativeClient;
use sheen_tools::output::Fault;

/// Modes of what benchmarks make, as with system calls.
const FILE_MODE: u32 = 0o664;
const DIRECTORY_MODE: u32 = 0o775;
/// `O_RDWR`.
const READ_WRITE: u32 = 2;
/// Names asked for at once.
const NAMES_AT_ONCE: usize = 512;

/// Independent clients of one file system.
pub(super) struct NativeBackend {
    host: Arc<Host>,
    clients: Vec<NativeClient>,
    who: Credentials,
}

impl NativeBackend {
    /// Connects all clients.
    ///
    /// # Errors
    /// A line: why it cannot.
    pub(super) fn connect(options: &Native, clients: u16) -> Result<Self, String> {
        let source = options.source.as_deref();
        let source = source.ok_or("-a NATIVE needs --native.source MGSNID:/FSNAME")?;
        let host = Host::start(None).map_err(|error| format!("no threads: {error}"))?;
        let world = host.world();
        let mut backend = Self { host: Arc::new(host), clients: Vec::new(), who: credentials() };
        for _ in 0..clients {
            let connect = NativeClient::connect(&world, source, options.port);
            // Those that are connected leave when this is dropped.
            let client = backend.host.block_on(connect).map_err(|fault: Fault| fault.text)?;
            backend.clients.push(client);
        }
        Ok(backend)
    }
}

impl Drop for NativeBackend {
    fn drop(&mut self) {
        for client in &self.clients {
            self.host.block_on(client.leave());
        }
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "NATIVE"
    }

    fn nodes(&self, size: usize, processes: bool) -> usize {
        if processes { size } else { self.clients.len().min(size) }
    }

    fn worker(&self, rank: usize, size: usize) -> Result<Box<dyn Worker>, String> {
        // In blocks, as ranks are dealt to nodes.
        let in_each = size.div_ceil(self.clients.len()).max(1);
        Ok(Box::new(NativeWorker {
            host: Arc::clone(&self.host),
            files: self.clients[(rank / in_each).min(self.clients.len() - 1)].files.clone(),
            who: self.who.clone(),
            directory: (String::new(), NodeId::ROOT),
        }))
    }
}

struct NativeWorker {
    host: Arc<Host>,
    files: FileSystem,
    who: Credentials,
    /// The last path's directory, without slashes at its ends, and its node, which counts as looked up once.
    directory: (String, NodeId),
}

/// Directory and name of a path.
fn split(path: &str) -> (&str, &str) {
    let path = path.trim_matches('/');
    path.rsplit_once('/').unwrap_or(("", path))
}

impl NativeWorker {
    fn parent<'p>(&mut self, path: &'p str) -> Result<(NodeId, &'p str), Errno> {
        let (directory, name) = split(path);
        if self.directory.0 != directory {
            let node = self.walk(directory)?;
            self.files.forget(self.directory.1, 1);
            self.directory.0.clear();
            self.directory.0.push_str(directory);
            self.directory.1 = node;
        }
        Ok((self.directory.1, name))
    }

    /// Looks each name of `path` up. The node counts as looked up once.
    fn walk(&self, path: &str) -> Result<NodeId, Errno> {
        let mut node = NodeId::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.look_up(node, name);
            if node != NodeId::ROOT {
                self.files.forget(node, 1);
            }
            node = found?.node;
        }
        Ok(node)
    }

    fn look_up(&self, parent: NodeId, name: &str) -> Result<Entry, Errno> {
        let name = legal(name)?;
        match self.host.block_on(self.files.lookup(&self.who, parent, &name))? {
            Lookup::Found(entry) => Ok(entry),
            Lookup::Absent { .. } => Err(Errno::ENOENT),
        }
    }

    /// Does something at a path. If the directory has been replaced since it was remembered, again.
    fn at<T>(
        &mut self,
        path: &str,
        mut work: impl FnMut(&Self, NodeId, &str) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (parent, name) = self.parent(path)?;
        match work(self, parent, name) {
            Err(Errno::ESTALE | Errno::ENOENT) if parent != NodeId::ROOT => {
                self.files.forget(parent, 1);
                self.directory = (String::new(), NodeId::ROOT);
                let (parent, name) = self.parent(path)?;
                work(self, parent, name)
            }
            done => done,
        }
    }

    /// The node of a path, which counts as looked up once.
    fn node(&mut self, path: &str) -> Result<Entry, Errno> {
        self.at(path, |worker, parent, name| worker.look_up(parent, name))
    }

    fn open_flags(&mut self, path: &str, flags: OpenFlags) -> Result<FileHandle, Errno> {
        let node = match split(path) {
            ("", "") => NodeId::ROOT,
            _ => self.node(path)?.node,
        };
        let opened = self.host.block_on(self.files.open(&self.who, node, flags));
        if node != NodeId::ROOT {
            self.files.forget(node, 1);
        }
        Ok(opened?.handle)
    }
}

impl Drop for NativeWorker {
    fn drop(&mut self) {
        self.files.forget(self.directory.1, 1);
    }
}

fn handle(file: File) -> FileHandle {
    FileHandle(file.0 as u64)
}

fn legal(name: &str) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|_| Errno::EINVAL)
}

impl Worker for NativeWorker {
    fn open(&mut self, path: &str, how: Open) -> Result<File, Errno> {
        let handle = match how {
            Open::Read => self.open_flags(path, OpenFlags(0))?,
            Open::ReadWrite => self.open_flags(path, OpenFlags(READ_WRITE))?,
            Open::Create => self.at(path, |worker, parent, name| {
                let (name, flags) = (legal(name)?, OpenFlags(READ_WRITE | OpenFlags::CREATE));
                let create = worker.files.open_create(&worker.who, parent, &name, FILE_MODE, flags);
                let (entry, opened) = worker.host.block_on(create)?;
                worker.files.forget(entry.node, 1);
                Ok(opened.handle)
            })?,
        };
        Ok(File(handle.0 as usize))
    }

    fn write_at(&mut self, file: File, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let data = Bytes::copy_from_slice(data);
        let written = self.host.block_on(self.files.write(handle(file), offset, data))?;
        Ok(written as usize)
    }

    fn read_at(&mut self, file: File, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let length = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let pieces = self.host.block_on(self.files.read(handle(file), offset, length))?;
        let mut filled = 0;
        for piece in pieces {
            into[filled..filled + piece.len()].copy_from_slice(&piece);
            filled += piece.len();
        }
        Ok(filled)
    }

    fn fsync(&mut self, file: File) -> Result<(), Errno> {
        self.host.block_on(self.files.fsync(handle(file), false))
    }

    fn close(&mut self, file: File) -> Result<(), Errno> {
        self.host.block_on(async {
            let flushed = self.files.flush(handle(file), LockOwner(0)).await;
            self.files.release(handle(file), None).await.and(flushed)
        })
    }

    fn stat(&mut self, path: &str) -> Result<Stat, Errno> {
        let attributes = match split(path) {
            ("", "") => {
                let root = self.files.getattr(&self.who, NodeId::ROOT);
                self.host.block_on(root)?.attributes
            }
            _ => {
                let entry = self.node(path)?;
                self.files.forget(entry.node, 1);
                entry.attributes
            }
        };
        let is_directory = attributes.file_type() == FileType::Directory;
        let modified = (attributes.mtime.seconds, attributes.mtime.nanoseconds);
        Ok(Stat { size: attributes.size, is_directory, modified })
    }

    fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        self.at(path, |worker, parent, name| {
            let name = legal(name)?;
            worker.host.block_on(worker.files.unlink(&worker.who, parent, &name))
        })
    }

    fn mkdir(&mut self, path: &str) -> Result<(), Errno> {
        self.at(path, |worker, parent, name| {
            let name = legal(name)?;
            let new = NewNode::Directory;
            let create = worker.files.make_node(&worker.who, parent, &name, DIRECTORY_MODE, new);
            let entry = worker.host.block_on(create)?;
            worker.files.forget(entry.node, 1);
            Ok(())
        })
    }

    fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        self.at(path, |worker, parent, name| {
            let name = legal(name)?;
            worker.host.block_on(worker.files.rmdir(&worker.who, parent, &name))
        })
    }

    fn readdir(&mut self, path: &str, each: &mut dyn FnMut(&str, bool)) -> Result<(), Errno> {
        let directory = self.open_flags(path, OpenFlags(OpenFlags::DIRECTORY))?;
        let mut from = DirCookie::default();
        let listed = loop {
            let names = self.files.readdir(directory, from, NAMES_AT_ONCE);
            let names = match self.host.block_on(names) {
                Ok(names) => names,
                Err(errno) => break Err(errno),
            };
            let Some(last) = names.last() else { break Ok(()) };
            from = last.next;
            for entry in names.iter().filter(|entry| !matches!(&*entry.name, b"." | b"..")) {
                let name = String::from_utf8_lossy(&entry.name);
                let is_directory = match entry.file_type {
                    Some(kind) => kind == FileType::Directory,
                    None => self.stat(&format!("{path}/{name}"))?.is_directory,
                };
                each(&name, is_directory);
            }
        };
        self.host.block_on(self.files.release(directory, None)).and(listed)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let (directory, _) = split(to);
        let within = split(from).0 == directory;
        let other = if within { NodeId::ROOT } else { self.walk(directory)? };
        let renamed = self.at(from, |worker, parent, name| {
            let (name, new) = (legal(name)?, legal(split(to).1)?);
            let to = if within { parent } else { other };
            let rename =
                worker.files.rename(&worker.who, (parent, &name), (to, &new), RenameMode::Replace);
            worker.host.block_on(rename)
        });
        self.files.forget(other, u64::from(other != NodeId::ROOT));
        renamed
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Errno> {
        let node = self.node(path)?.node;
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let set = self.host.block_on(self.files.setattr(&self.who, node, None, changes));
        self.files.forget(node, 1);
        set.map(drop)
    }

    fn statfs(&mut self, _path: &str) -> Result<Space, Errno> {
        let answer = self.host.block_on(self.files.statfs())?;
        let block = u64::from(answer.block_size);
        Ok(Space {
            bytes: answer.blocks * block,
            bytes_free: answer.blocks_free * block,
            files: answer.files,
            files_free: answer.files_free,
        })
    }

    fn sync(&mut self, _path: &str) -> Result<(), Errno> {
        self.host.block_on(self.files.sync_all(&self.who))
    }
}

/// Who runs this process.
fn credentials() -> Credentials {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let groups = line("Groups:").unwrap_or_default().split_whitespace();
    let umask = line("Umask:").and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.filter_map(|group| group.parse().ok()).collect(),
        pid: std::process::id(),
        umask: umask.unwrap_or(0o022),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn paths_are_split_whatever_slashes_they_have() {
        let cases =
            [("/a/b/c", ("a/b", "c")), ("a", ("", "a")), ("/", ("", "")), ("/d/", ("", "d"))];
        for (path, parts) in cases {
            assert_eq!(split(path), parts, "{path}");
        }
    }
}
