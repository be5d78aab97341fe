//! Calls about names in a directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::sync::Arc;

use sheen_client::posix::{FileType, Lookup, NewNode, NodeId, Operation, RenameMode};
use sheen_fuse_wire::{
    INodeNo, NameCalls, RenameFlags, ReplyData, ReplyEmpty, ReplyEntry, Request,
};
use sheen_types::{Errno, Name};

use super::exported;
use crate::adapter::{Adapter, Call, resent::Resent};
use crate::signals::EndedBy;
use crate::special::{self, node};
use crate::{answer, convert};

impl NameCalls for Adapter {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(relative) = exported::Relative::of(name) {
            return self.look_up_exported(request, parent, relative, reply);
        }
        let (files, who, name) =
            (self.files.clone(), self.credentials_of(request, 0), convert::name(name));
        let (guard, pending_sizes) = (self.mark_busy(&[parent]), Arc::clone(&self.pending_sizes));
        let special = self.special;
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("lookup", request, parent), Operation::Getattr, async move {
            let mut call = pin!(async {
                let found = files.lookup(&who, node(parent), &name?).await?;
                Ok(special.found(&files, &who, found).await)
            });
            let found = waiting.wait(call.as_mut()).await;
            if let Ok(Lookup::Found(entry)) = &found {
                pending_sizes.wait_until_applied(entry.node.0).await;
            }
            drop(guard);
            answer::lookup(reply, found);
            if let Some(Lookup::Found(late)) = waiting.late(call).await {
                files.forget(special::own(late.node), 1);
            }
        });
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.drive(Call("readlink", request, number), async move {
            let mut call = pin!(files.readlink(&who, node(number)));
            let target = waiting.wait(call.as_mut()).await;
            answer::data(reply, target.map(|target| vec![target]));
            waiting.late(call).await;
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(file_type) = FileType::from_mode(mode) else {
            return reply.error(Errno::EINVAL);
        };
        let new = NewNode::Node { file_type, rdev };
        self.create_node((request, umask), parent, name, mode & 0o7777, new, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.create_node((request, umask), parent, name, mode & 0o7777, NewNode::Directory, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        reply: ReplyEntry,
    ) {
        let new = NewNode::Symlink(target.as_bytes().into());
        self.create_node((request, 0), parent, name, 0o777, new, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (files, who, name) =
            (self.files.clone(), self.credentials_of(request, 0), convert::name(name));
        let guard = self.mark_busy(&[parent]);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call("unlink", request, parent), Operation::Unlink, async move {
            let mut call = pin!(async {
                let removed = files.unlink(&who, node(parent), &name?).await;
                resent.removed(removed, Errno::ENOENT)
            });
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::empty(reply, done);
            waiting.late(call).await;
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (files, who, name) =
            (self.files.clone(), self.credentials_of(request, 0), convert::name(name));
        let guard = self.mark_busy_child(parent, &name);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call("rmdir", request, parent), Operation::Rmdir, async move {
            let mut call = pin!(async {
                let removed = files.rmdir(&who, node(parent), &name?).await;
                resent.removed(removed, Errno::ENOENT)
            });
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::empty(reply, done);
            waiting.late(call).await;
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let names: Result<(Name, Name), Errno> =
            convert::name(name).and_then(|old| Ok((old, convert::name(new_name)?)));
        let (moved, replaced) = match &names {
            Ok((old, new)) => (
                self.files.known_child(node(parent), old),
                self.files.known_child(node(new_parent), new),
            ),
            // The call itself refuses it.
            Err(_) => (None, None),
        };
        let known = |child: Option<NodeId>| child.map_or(parent, |child| INodeNo(child.0));
        let guard = self.mark_busy(&[parent, new_parent, known(moved), known(replaced)]);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call("rename", request, parent), Operation::Rename, async move {
            let mut call = pin!(async {
                let (old, new) = names?;
                let (old, new) = ((node(parent), &old), (node(new_parent), &new));
                let renamed = files.rename(&who, old, new, mode).await;
                resent.renamed((&files, &who), old, new, renamed).await
            });
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::empty(reply, done);
            waiting.late(call).await;
        });
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (files, who, name) =
            (self.files.clone(), self.credentials_of(request, 0), convert::name(name));
        self.pending_sizes.note_reply(request.pid(), number.0);
        let (guard, special) = (self.mark_busy(&[parent]), self.special);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call("link", request, number), Operation::Link, async move {
            let (number, parent) = (node(number), node(parent));
            let mut call = pin!(async {
                let name = name?;
                let linked = files.link(&who, number, parent, &name).await;
                let linked = resent.linked((&files, &who), number, (parent, &name), linked).await?;
                Ok(special.entry(&files, &who, linked).await)
            });
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::entry(reply, done);
            if let Some(late) = waiting.late(call).await {
                files.forget(special::own(late.node), 1);
            }
        });
    }
}

impl Adapter {
    /// What `mknod`, `mkdir` and `symlink` do.
    fn create_node(
        &self,
        (request, umask): (&Request, u32),
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        new: NewNode,
        reply: ReplyEntry,
    ) {
        let who = self.credentials_of(request, umask);
        let (files, name) = (self.files.clone(), convert::name(name));
        let (guard, special) = (self.mark_busy(&[parent]), self.special);
        let (called, operation) = match &new {
            NewNode::Directory
            | NewNode::DirectoryOn(_)
            | NewNode::WishedDirectory(_)
            | NewNode::RestripedDirectory(_) => ("mkdir", Operation::Mkdir),
            NewNode::Symlink(_) => ("symlink", Operation::Symlink),
            NewNode::Node { .. } => ("mknod", Operation::Mknod),
        };
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call(called, request, parent), operation, async move {
            let mut call = pin!(async {
                let (parent, name) = (node(parent), name?);
                let made = files.make_node(&who, parent, &name, mode, new).await;
                let made = resent.made((&files, &who), (parent, &name), made).await?;
                Ok(special.made(made))
            });
            let made = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::entry(reply, made);
            if let Some(late) = waiting.late(call).await {
                files.forget(late.node, 1);
            }
        });
    }
}
