//! Our client against a server that answers as captured: the requests must be those of the real
//! client.

mod sessions;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use sheen_client::data::Osts;
use sheen_client::posix::{
    Credentials, DirCookie, FileHandle, FileSystem, LockOwner, NewNode, NodeId, OpenFlags,
    SetAttributes, SetTime,
};
use sheen_io::World;
use sheen_node::net::{LNet, NetConfig};
use sheen_testkit::vnet::{Virtual, Weather};
use sheen_types::{Errno, Name};

use crate::answering::{Heard, serve};
use crate::common::{PORT, client_nid, mounted, server_nid};
use crate::script::{self, Script};

/// `O_WRONLY`.
const WRITE: u32 = 1;
/// `O_RDWR`.
const READ_WRITE: u32 = 2;

/// What a kernel asks of our client for the programs of the captured sessions, as root.
struct Caller {
    files: FileSystem,
    data: Arc<Osts>,
    who: Credentials,
    world: World,
    /// What the captured client wrote first, which came from `/dev/urandom`.
    random: Bytes,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Caller {
    async fn make(&self, parent: NodeId, text: &str, new: NewNode) -> Result<NodeId, Errno> {
        Ok(self.files.make(&self.who, parent, &name(text), 0o777, new).await?.node)
    }

    /// Creates or, if it is there, opens.
    async fn create(
        &self,
        parent: NodeId,
        text: &str,
        mode: u32,
        flags: u32,
    ) -> Result<(NodeId, FileHandle), Errno> {
        let flags = OpenFlags(OpenFlags::CREATE | flags);
        let (entry, opened) =
            self.files.create(&self.who, parent, &name(text), mode, flags).await?;
        Ok((entry.node, opened.handle))
    }

    async fn open(&self, node: NodeId, flags: u32) -> Result<FileHandle, Errno> {
        Ok(self.files.open(&self.who, node, OpenFlags(flags)).await?.handle)
    }

    async fn set(&self, node: NodeId, changes: SetAttributes) -> Result<(), Errno> {
        self.files.setattr(&self.who, node, None, changes).await.map(|_| ())
    }

    /// As truncate(1) does.
    async fn truncate(&self, node: NodeId, size: u64) -> Result<(), Errno> {
        let handle = self.open(node, WRITE).await?;
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.files.setattr(&self.who, node, Some(handle), changes).await?;
        self.close(handle).await
    }

    async fn close(&self, handle: FileHandle) -> Result<(), Errno> {
        self.files.flush(handle, LockOwner(1)).await?;
        self.files.release(handle, None).await
    }

    async fn read(&self, handle: FileHandle, offset: u64, length: u32) -> Result<Bytes, Errno> {
        Ok(self.files.read(handle, offset, length).await?.concat().into())
    }

    /// As touch(1) does: creates, sets the times, closes.
    async fn touch(&self, parent: NodeId, text: &str) -> Result<NodeId, Errno> {
        let (node, handle) = self.create(parent, text, 0o666, WRITE).await?;
        let now = Some(SetTime::Now);
        let times = SetAttributes { atime: now, mtime: now, ..SetAttributes::default() };
        self.files.setattr(&self.who, node, Some(handle), times).await?;
        self.close(handle).await?;
        Ok(node)
    }

    /// The names of a directory, without `.` and `..`; as `ls` does, which asks what it is first.
    async fn list(&self, directory: NodeId) -> Result<Vec<Name>, Errno> {
        self.files.getattr(&self.who, directory).await?;
        let handle = self.open(directory, OpenFlags::DIRECTORY).await?;
        let (mut names, mut from) = (Vec::new(), DirCookie::default());
        loop {
            let some = self.files.readdir(handle, from, 100).await?;
            let Some(last) = some.last() else { break };
            from = last.next;
            let is_dot = |name: &[u8]| [&b"."[..], b".."].contains(&name);
            let new = some.iter().filter(|entry| !is_dot(&entry.name));
            names.extend(new.filter_map(|entry| Name::new(&entry.name).ok()));
        }
        self.files.release(handle, None).await?;
        Ok(names)
    }

    /// As `lctl set_param ldlm.namespaces.*KIND*.lru_size=clear` does.
    async fn clear_locks(&self, kind: &str) {
        for space in self.files.lock_spaces() {
            if space.name().contains(kind) {
                space.clear_unused();
            }
        }
        let soon = self.world.clock.now() + std::time::Duration::from_millis(100);
        self.world.clock.sleep_until(soon).await;
    }
}

/// Runs the sessions against the captures' servers.
pub(crate) fn run(paths: &[PathBuf]) -> Heard {
    let world = Virtual::new(1, Weather { chunks: false, ..Weather::default() });
    let io = world.world();
    let mut script = Script::default();
    for path in paths {
        let one = script::read(path);
        let before = script.exchanges.len();
        script.exchanges.extend(one.exchanges);
        script.completions.extend(one.completions);
        script.discards.extend(one.discards.into_iter().map(|(at, call)| (before + at, call)));
    }
    let random = sessions::first_written(&script);
    let answering = world.run(async move {
        let lnet = LNet::start(io.clone(), NetConfig::new(server_nid(), PORT)).await;
        let answering = serve(&lnet.expect("the address is free"), io.clone(), script);
        let data = Osts::new(io.clone());
        let files = mounted(&io, client_nid(), Arc::clone(&data)).await;
        let who = Credentials { umask: 0o22, ..Credentials::root() };
        let ended = sessions::all(&Caller { files, data, who, world: io, random }).await;
        (answering, ended)
    });
    let (answering, ended) = answering;
    let heard = answering.heard();
    assert_eq!(ended, Ok(()), "asked for what was never answered: {:?}", heard.strange);
    heard
}
