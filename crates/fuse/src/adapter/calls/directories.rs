//! Calls about the listing of a directory.

use std::pin::pin;

use sheen_client::posix::{DirCookie, ListingRoom, OpenFlags, Operation};
use sheen_fuse_wire::{
    DirectoryCalls, FileCalls, FileHandle as Handle, INodeNo, OpenFlags as KernelFlags,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyOpen, Request,
};

use crate::adapter::{Adapter, Call, NAMES_AT_ONCE, handle};
use crate::answer;
use crate::signals::EndedBy;

impl DirectoryCalls for Adapter {
    fn opendir(&self, request: &Request, number: INodeNo, flags: KernelFlags, reply: ReplyOpen) {
        let flags = KernelFlags(flags.0 | OpenFlags::DIRECTORY);
        self.open(request, number, flags, reply);
    }

    fn readdir(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let files = self.files.clone();
        let guard = self.mark_busy(&[number]);
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("readdir", request, number), Operation::Readdir, async move {
            let mut call = pin!(files.readdir(handle(opened), DirCookie(offset), NAMES_AT_ONCE));
            let names = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::directory(reply, names);
            waiting.late(call).await;
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let (guard, special) = (self.mark_busy(&[number]), self.special);
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("readdirplus", request, number), Operation::Readdir, async move {
            let from = DirCookie(offset);
            let entry_bytes = ReplyDirectoryPlus::entry_bytes;
            let room = ListingRoom { bytes: reply.room(), entry_bytes };
            let mut call = pin!(files.readdir_plus(&who, handle(opened), from, room));
            let names = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::directory_plus((&files, special), reply, names);
            let late = waiting.late(call).await.unwrap_or_default();
            late.into_iter().filter_map(|it| it.found).for_each(|it| files.forget(it.node, 1));
        });
    }

    fn releasedir(&self, request: &Request, number: INodeNo, opened: Handle, reply: ReplyEmpty) {
        let files = self.files.clone();
        self.counted(Call("releasedir", request, number), Operation::Close, async move {
            answer::empty(reply, files.release(handle(opened), None).await);
        });
    }

    fn fsyncdir(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        data: bool,
        reply: ReplyEmpty,
    ) {
        let files = self.files.clone();
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        self.counted(Call("fsyncdir", request, number), Operation::Fsync, async move {
            let mut call = pin!(files.fsync(handle(opened), data));
            answer::empty(reply, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }
}
