//! Calls about the attributes of an inode, and of the file system.

use std::pin::pin;
use std::sync::Arc;

use sheen_client::posix::{May, NodeId, Operation, SetAttributes, Stat};
use sheen_fuse_wire::{
    self as wire, AttributeCalls, FileHandle as Handle, INodeNo, ReplyAttr, ReplyEmpty,
    ReplyStatfs, ReplyStatx, Request, StatFs,
};
use sheen_types::Errno;

use crate::adapter::{Adapter, Call, handle};
use crate::signals::EndedBy;
use crate::special::node;
use crate::{answer, convert};

impl AttributeCalls for Adapter {
    fn getattr(&self, request: &Request, number: INodeNo, _: Option<Handle>, reply: ReplyAttr) {
        self.attributes(request, number, move |stat| answer::stat(reply, NodeId(number.0), stat));
    }

    fn statx(&self, request: &Request, number: INodeNo, _: Option<Handle>, reply: ReplyStatx) {
        self.attributes(request, number, move |stat| answer::statx(reply, NodeId(number.0), stat));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        wanted: wire::SetAttributes,
        reply: ReplyAttr,
    ) {
        let (size, opened) = (wanted.size, wanted.opened);
        let changes = SetAttributes {
            mode: wanted.mode.map(|mode| mode & 0o7777),
            uid: wanted.uid,
            gid: wanted.gid,
            size,
            atime: wanted.atime.map(convert::set_time),
            mtime: wanted.mtime.map(convert::set_time),
            ctime: wanted.ctime,
            kill_set_id: wanted.kill_set_id,
            flags: None,
        };
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let guard = self.mark_busy(&[number]);
        let operation = if size.is_some() { Operation::Truncate } else { Operation::Setattr };
        let (backs, order) = self.order_of_all(number);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        self.counted(Call("setattr", request, number), operation, async move {
            let mut call = pin!(backs.after_earlier(
                order,
                files.setattr(&who, node(number), opened.map(handle), changes)
            ));
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::stat(reply, NodeId(number.0), done);
            waiting.late(call).await;
        });
    }

    fn access(&self, request: &Request, number: INodeNo, mask: u32, reply: ReplyEmpty) {
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let wanted = May((mask & 7) as _);
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.drive(Call("access", request, number), async move {
            let mut call = pin!(files.access(&who, node(number), wanted));
            answer::empty(reply, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }

    fn statfs(&self, request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let files = self.files.clone();
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("statfs", request, number), Operation::Statfs, async move {
            let mut call = pin!(files.statfs());
            match waiting.wait(call.as_mut()).await {
                Ok(stat) => reply.statfs(&StatFs {
                    blocks: stat.blocks,
                    bfree: stat.blocks_free,
                    bavail: stat.blocks_available,
                    files: stat.files,
                    ffree: stat.files_free,
                    bsize: stat.block_size,
                    namelen: stat.name_bytes_max,
                    frsize: stat.block_size,
                }),
                Err(errno) => reply.error(convert::errno(errno)),
            }
            waiting.late(call).await;
        });
    }
}

impl Adapter {
    /// What `getattr` and `statx` answer.
    fn attributes(
        &self,
        request: &Request,
        number: INodeNo,
        answer: impl FnOnce(Result<Stat, Errno>) + Send + 'static,
    ) {
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        // A directory's, before it is changed: the kernel holds its lock for the change already.
        let (guard, pending_sizes) = (self.mark_busy(&[number]), Arc::clone(&self.pending_sizes));
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("getattr", request, number), Operation::Getattr, async move {
            let mut call = pin!(async {
                let stat = files.getattr(&who, node(number)).await;
                match pending_sizes.wait_until_applied(number.0).await {
                    true => files.getattr(&who, node(number)).await,
                    false => stat,
                }
            });
            let stat = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer(stat);
            waiting.late(call).await;
        });
    }
}
