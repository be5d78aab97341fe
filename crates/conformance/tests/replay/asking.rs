//! Our client against a server that answers as captured: the requests must be those of the real
//! client.

use std::path::PathBuf;

use sheen_client::posix::{
    Credentials, DirCookie, FileSystem, LockOwner, NewNode, NodeId, OpenFlags, RenameMode,
    SetAttributes, SetTime,
};
use sheen_node::net::{LNet, NetConfig};
use sheen_testkit::vnet::{Virtual, Weather};
use sheen_types::{Errno, Name};

use crate::answering::{Heard, serve};
use crate::common::{PORT, client_nid, mounted, server_nid};
use crate::script::{self, Script};

/// What the captured sessions did, as far as it needs one MDT only: `lfs df`, `stat` and `ls` of
/// the root; directories and files in `b`, moved, linked and removed; `umount`.
async fn session(files: FileSystem) -> Result<(), Errno> {
    let who = root();
    let root = files.getattr(&who, NodeId::ROOT).await?;
    assert_eq!(root.attributes.mode & 0o7777, 0o755);
    files.statfs().await?;
    let opened = files.open(&who, NodeId::ROOT, OpenFlags(OpenFlags::DIRECTORY)).await?;
    let names = files.readdir(opened.handle, DirCookie::default(), 100).await?;
    let names: Vec<_> = names.iter().map(|entry| entry.name.to_vec()).collect();
    assert!(names.contains(&b".".to_vec()), "{names:?}");
    files.release(opened.handle, None).await?;
    let directory = make(&files, NodeId::ROOT, "b", NewNode::Directory).await?;
    let file = touch(&files, directory, "f1").await?;
    assert_eq!(files.getattr(&who, file).await?.attributes.size, 0);
    make(&files, directory, "d2", NewNode::Directory).await?;
    files.rmdir(&who, directory, &name("d2")).await?;
    let file = touch(&files, directory, "r1").await?;
    let to = name("r2");
    files.rename(&who, (directory, &name("r1")), (directory, &to), RenameMode::Replace).await?;
    let linked = files.link(&who, file, directory, &name("hard")).await?;
    assert_eq!(linked.node, file);
    let target = b"rd/r3"[..].into();
    let link = make(&files, directory, "sym", NewNode::Symlink(target)).await?;
    assert_eq!(&files.readlink(&who, link).await?[..], b"rd/r3");
    make(&files, directory, "rd2", NewNode::Directory).await?;
    touch(&files, directory, "o1").await?;
    touch(&files, directory, "o2").await?;
    let to = name("o2");
    files.rename(&who, (directory, &name("o1")), (directory, &to), RenameMode::Replace).await?;
    files.unlink(&who, directory, &name("hard")).await?;
    files.unmount().await;
    Ok(())
}

/// The user of the sessions.
fn root() -> Credentials {
    Credentials { umask: 0o22, ..Credentials::root() }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

async fn make(
    files: &FileSystem,
    parent: NodeId,
    text: &str,
    new: NewNode,
) -> Result<NodeId, Errno> {
    let who = root();
    Ok(files.make(&who, parent, &name(text), 0o777, new).await?.node)
}

/// As touch(1) does: creates, sets the times, closes.
async fn touch(files: &FileSystem, parent: NodeId, text: &str) -> Result<NodeId, Errno> {
    let who = root();
    let flags = OpenFlags(OpenFlags::CREATE | 1);
    let (entry, opened) = files.create(&who, parent, &name(text), 0o666, flags).await?;
    let now = Some(SetTime::Now);
    let times = SetAttributes { atime: now, mtime: now, ..SetAttributes::default() };
    files.setattr(&who, entry.node, Some(opened.handle), times).await?;
    files.flush(opened.handle, LockOwner(1)).await?;
    files.release(opened.handle, None).await?;
    Ok(entry.node)
}

/// Runs the session against the captures' servers.
pub(crate) fn run(paths: &[PathBuf]) -> Heard {
    let world = Virtual::new(1, Weather { chunks: false, ..Weather::default() });
    let io = world.world();
    let mut script = Script::default();
    for path in paths {
        script.exchanges.extend(script::read(path, client_nid()).exchanges);
    }
    let answering = world.run(async move {
        let lnet = LNet::start(io.clone(), NetConfig::new(server_nid(), PORT)).await;
        let answering = serve(&lnet.expect("the address is free"), script);
        let files = mounted(&io, client_nid()).await;
        let ended = session(files).await;
        (answering, ended)
    });
    let (answering, ended) = answering;
    let heard = answering.heard();
    assert_eq!(ended, Ok(()), "asked for what was never answered: {:?}", heard.strange);
    heard
}
