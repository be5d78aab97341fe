//! Calls about files, most of them by an open handle.

use std::ffi::OsStr;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use sheen_client::posix::{Fallocate, OpenFlags, Operation, Seek};
use sheen_fuse_wire::{
    FileCalls, FileHandle as Handle, INodeNo, LockOwner as Owner, OpenFlags as KernelFlags,
    ReplyCreate, ReplyData, ReplyEmpty, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use sheen_types::Errno;

use crate::adapter::{Adapter, Call, bypasses_page_cache, handle, owner, resent::Resent};
use crate::control::{self, CalledBy, Control};
use crate::signals::EndedBy;
use crate::special::node;
use crate::{answer, convert};

impl FileCalls for Adapter {
    fn open(&self, request: &Request, number: INodeNo, flags: KernelFlags, reply: ReplyOpen) {
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let kernel = Arc::clone(&self.kernel);
        let tracked = self.is_tracked(request);
        let flags = self.opened_as(flags.0);
        let changes = flags.writes() || flags.has(OpenFlags::TRUNCATE);
        let (backs, order) = self.order_of_all(number);
        let ended_by = if changes { EndedBy::Killed } else { EndedBy::Fatal };
        let mut waiting = self.waits.call(request, ended_by);
        self.counted(Call("open", request, number), Operation::Open, async move {
            let mut call = pin!(backs.after_earlier(order, files.open(&who, node(number), flags)));
            let opened = waiting.wait(call.as_mut()).await;
            if let (true, Ok(opened)) = (tracked, &opened) {
                files.statistics().opened(opened.tally);
            }
            let give = |bytes: &Bytes| kernel.store(node(number), bytes);
            answer::opened(reply, opened.map(|opened| files.hand_off_pages(opened, give)));
            if let Some(late) = waiting.late(call).await {
                // No program waits for it any more.
                _ = files.release(late.handle, None).await;
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: KernelFlags,
        reply: ReplyCreate,
    ) {
        let (files, name) = (self.files.clone(), convert::name(name));
        let who = self.credentials_of(request, umask);
        let flags = self.opened_as(flags.0 | OpenFlags::CREATE);
        if let Some(known) =
            name.as_ref().ok().and_then(|it| self.files.known_child(node(parent), it))
        {
            self.pending_sizes.note_reply(request.pid(), known.0);
        }
        let (guard, tracked) = (self.mark_busy(&[parent]), self.is_tracked(request));
        let resent = Resent::of(request);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        self.counted(Call("create", request, parent), Operation::Create, async move {
            let (parent, mode) = (node(parent), mode & 0o7777);
            let mut call = pin!(async {
                let name = name?;
                let made = files.open_create(&who, parent, &name, mode, flags).await;
                resent.created((&files, &who), (parent, &name), flags, made).await
            });
            let made = waiting.wait(call.as_mut()).await;
            drop(guard);
            if let (true, Ok((_, opened))) = (tracked, &made) {
                files.statistics().opened(opened.tally);
            }
            answer::created(reply, made);
            if let Some((entry, late)) = waiting.late(call).await {
                // No program waits for it any more.
                _ = files.release(late.handle, None).await;
                files.forget(entry.node, 1);
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        offset: u64,
        size: u32,
        flags: KernelFlags,
        owner: Option<Owner>,
        reply: ReplyData,
    ) {
        let (files, pending_sizes, thread) =
            (self.files.clone(), Arc::clone(&self.pending_sizes), request.pid());
        let is_tracked = self.is_tracked(request);
        let (backs, order) = self.order(number, offset, size.into());
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("read", request, number), Operation::Read, async move {
            let opened_as = handle(opened);
            let read = async {
                // The kernel names no lock owner in reads that fill its page cache.
                match owner {
                    None => files.read(opened_as, offset, size).await,
                    Some(_) => files.read_bypassing_page_cache(opened_as, offset, size).await,
                }
            };
            let mut call = pin!(backs.after_earlier(order, read));
            let read = waiting.wait(call.as_mut()).await;
            if let Ok(pieces) = &read {
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                let statistics = files.statistics();
                if is_tracked {
                    statistics.add(Operation::ReadBytes, bytes as u64);
                }
                statistics.extents().moved(thread, opened.0, false, (offset, bytes as u64));
                if bytes < size as usize && !bypasses_page_cache(&files, opened, flags) {
                    pending_sizes.note_reply(thread, number.0);
                }
            }
            answer::data(reply, read);
            waiting.late(call).await;
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: KernelFlags,
        reply: ReplyWrite,
    ) {
        let (files, data) = (self.files.clone(), Bytes::copy_from_slice(data));
        let pending_sizes = Arc::clone(&self.pending_sizes);
        pending_sizes.note_call(request.pid());
        let (is_tracked, thread) = (self.is_tracked(request), request.pid());
        let is_of_mapping = how.contains(WriteFlags::CACHE);
        let takes_set_id = how.contains(WriteFlags::KILL_SUIDGID);
        let (backs, order) = self.order(number, offset, data.len() as u64);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call("write", request, number), Operation::Write, async move {
            let answer = |written: Result<u32, Errno>| match written {
                Ok(written) => {
                    let statistics = files.statistics();
                    if is_tracked {
                        statistics.add(Operation::WriteBytes, written.into());
                    }
                    statistics.extents().moved(thread, opened.0, true, (offset, written.into()));
                    reply.written(written);
                }
                Err(errno) => reply.error(convert::errno(errno)),
            };
            if is_of_mapping {
                // Not a program's call: no signal ends it, because its result would be lost.
                let length = data.len();
                let call = pin!(
                    backs.after_earlier(order, files.write_back(handle(opened), offset, data))
                );
                let record = || files.record_unflushed(node(number));
                return backs.write(order, length, (call, record), answer).await;
            }
            let mut call = pin!(backs.after_earlier(order, async {
                resent.may_write(&files, handle(opened), offset).await?;
                match takes_set_id {
                    true => files.write_and_take_set_id(handle(opened), offset, data).await,
                    false => files.write(handle(opened), offset, data).await,
                }
            }));
            let written = waiting.wait(call.as_mut()).await;
            if pending_sizes.any() && bypasses_page_cache(&files, opened, flags) {
                pending_sizes.wait_until_applied(number.0).await;
            }
            answer(written);
            waiting.late(call).await;
        });
    }

    fn flush(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        by: Owner,
        reply: ReplyEmpty,
    ) {
        self.pending_sizes.note_call(request.pid());
        let files = self.files.clone();
        let mut waiting = self.waits.call(request, EndedBy::Gone);
        self.drive(Call("flush", request, number), async move {
            let mut call = pin!(files.flush(handle(opened), owner(by)));
            answer::empty(reply, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }

    fn release(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        by: Option<Owner>,
        reply: ReplyEmpty,
    ) {
        let (files, (backs, order)) = (self.files.clone(), self.order_of_all(number));
        self.counted(Call("release", request, number), Operation::Close, async move {
            // A write-back that goes on behind its answer uses the handle.
            let mut last_use = pin!(backs.wait_for_earlier(order));
            let released = files.release_after(handle(opened), by.map(owner), &mut last_use);
            answer::empty(reply, released.await);
        });
    }

    fn fsync(&self, request: &Request, of: INodeNo, opened: Handle, data: bool, reply: ReplyEmpty) {
        let (files, (backs, order)) = (self.files.clone(), self.order_of_all(of));
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        self.counted(Call("fsync", request, of), Operation::Fsync, async move {
            let mut call = pin!(async {
                let stored = backs.wait_and_take_failure(order).await;
                files.fsync(handle(opened), data).await.and(stored)
            });
            answer::empty(reply, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        offset: u64,
        length: u64,
        mode: u32,
        reply: ReplyEmpty,
    ) {
        let Some(what) = Fallocate::of_mode(mode) else {
            return reply.error(convert::errno(Errno::EOPNOTSUPP));
        };
        let (files, (backs, order)) = (self.files.clone(), self.order_of_all(number));
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        self.counted(Call("fallocate", request, number), Operation::Fallocate, async move {
            let mut call = pin!(
                backs.after_earlier(order, files.fallocate(handle(opened), what, offset, length))
            );
            answer::empty(reply, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }

    fn lseek(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const DATA: i32 = 3;
        const HOLE: i32 = 4;
        let what = match whence {
            DATA => Seek::Data,
            HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let (files, (backs, order)) = (self.files.clone(), self.order_of_all(number));
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("lseek", request, number), Operation::Seek, async move {
            let mut call =
                pin!(backs.after_earlier(order, files.seek(handle(opened), offset, what)));
            match waiting.wait(call.as_mut()).await {
                Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
                Err(errno) => reply.error(convert::errno(errno)),
            }
            waiting.late(call).await;
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        command: u32,
        argument: u64,
        data: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        let asked = match Control::of(command, argument, data) {
            Ok(asked) => asked,
            Err(errno) => return reply.error(convert::errno(errno)),
        };
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let by = CalledBy { handle: handle(opened), pid: request.pid() };
        let guard = asked.may_hold_lock().then(|| self.mark_busy(&[number]));
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        self.counted(Call("ioctl", request, number), Operation::Ioctl, async move {
            let mut call = pin!(asked.perform(&files, &who, node(number), by));
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            control::answer(reply, room, done);
            waiting.late(call).await;
        });
    }
}
