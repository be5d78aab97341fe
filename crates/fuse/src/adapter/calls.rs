//! One method for each kind of request: unpack, call the facade, answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use sheen_client::posix::{
    DirCookie, Fallocate, FileLockMode, FileSystem, FileType, ListingRoom, Lookup, May, NewNode,
    NodeId, OpenFlags, Operation, RenameMode, Seek, SetAttributes, XattrMode,
};
use sheen_fuse_wire::{
    self as wire, FileHandle as Handle, Filesystem, INodeNo, KernelConfig, LockOwner as Owner,
    OpenFlags as KernelFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, StatFs, WriteFlags,
};
use sheen_types::{Errno, Name};

use crate::control::{self, CalledBy, Control};
use crate::mount::FileLocks;
use crate::signals::EndedBy;
use crate::special::{self, node};
use crate::{alive, answer, convert, exported, questions};

use super::{Adapter, Call, NAMES_AT_ONCE, bypasses_page_cache, handle, owner, resent::Resent};

impl Filesystem for Adapter {
    fn init(&self, config: &mut KernelConfig) {
        config.take(self.wanted(config.offered()));
    }

    fn interrupt(&self, unique: u64) {
        self.waits.interrupt(unique);
    }

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

    fn forget(&self, number: INodeNo, lookups: u64) {
        self.files.forget(node(number), lookups);
    }

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

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        let mode = match flags {
            0 => XattrMode::Any,
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        if self.is_unsupported(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let (name, value) = (name.as_bytes().to_vec(), Bytes::copy_from_slice(value));
        let guard = self.mark_busy(&[number]);
        let is_long = FileSystem::is_long_order(&name);
        let ended_by = if is_long { EndedBy::Any } else { EndedBy::Killed };
        let mut waiting = self.waits.call(request, ended_by);
        let resent = Resent::of(request);
        self.counted(Call("setxattr", request, number), Operation::Setxattr, async move {
            let mut call = pin!(async {
                let set = files.setxattr(&who, node(number), &name, value.clone(), mode).await;
                let (of, what) = ((node(number), mode), (&name[..], &value[..]));
                resent.attribute_set((&files, &who), of, what, set).await
            });
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::empty(reply, done);
            // A long command ends when its caller stops waiting for it.
            if !is_long {
                waiting.late(call).await;
            }
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        if name == alive::ATTRIBUTE {
            return reply.error(convert::errno(Errno::ENODATA));
        }
        if self.is_unsupported(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if name == alive::STATE {
            // A worker answers, or none does.
            let looks = alive::look(self.files.clone(), Arc::clone(&self.kernel));
            let answers = async move {
                answer::xattr(reply, size, Ok(looks.await.into()));
            };
            drop(self.runtime.spawn(answers));
            return;
        }
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        if let Some(name) = questions::named(name) {
            let mut call = Box::pin(self.questions.clone().ask(name));
            return self.counted(
                Call("getxattr", request, number),
                Operation::Getxattr,
                async move {
                    answer::xattr(reply, size, waiting.wait(call.as_mut()).await);
                },
            );
        }
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let name = name.as_bytes().to_vec();
        self.counted(Call("getxattr", request, number), Operation::Getxattr, async move {
            let mut call = pin!(files.getxattr(&who, node(number), &name));
            answer::xattr(reply, size, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("listxattr", request, number), Operation::Listxattr, async move {
            let mut call = pin!(files.listxattr(&who, node(number)));
            answer::xattr(reply, size, waiting.wait(call.as_mut()).await);
            waiting.late(call).await;
        });
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.is_unsupported(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (files, who) = (self.files.clone(), self.credentials_of(request, 0));
        let name = name.as_bytes().to_vec();
        let guard = self.mark_busy(&[number]);
        let mut waiting = self.waits.call(request, EndedBy::Killed);
        let resent = Resent::of(request);
        self.counted(Call("removexattr", request, number), Operation::Removexattr, async move {
            let mut call = pin!(async {
                let removed = files.removexattr(&who, node(number), &name).await;
                resent.removed(removed, Errno::ENODATA)
            });
            let done = waiting.wait(call.as_mut()).await;
            drop(guard);
            answer::empty(reply, done);
            waiting.late(call).await;
        });
    }

    fn getlk(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        by: Owner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        if self.locks == FileLocks::Refused {
            return reply.error(Errno::ENOSYS);
        }
        let (files, uid) = (self.files.clone(), request.uid());
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("getlk", request, number), Operation::Flock, async move {
            let wanted = convert::lock(start, end, kind, (pid, uid));
            let mut call = pin!(async { files.get_lock(handle(opened), owner(by), wanted?).await });
            match waiting.wait(call.as_mut()).await {
                Ok(Some(other)) => {
                    let end = other.end.min(i64::MAX as u64);
                    let kind = i32::from(other.mode == FileLockMode::Write);
                    reply.locked((other.start, end), kind, other.pid);
                }
                Ok(None) => reply.locked((start, end), 2, 0),
                Err(errno) => reply.error(convert::errno(errno)),
            }
            waiting.late(call).await;
        });
    }

    fn setlk(
        &self,
        request: &Request,
        number: INodeNo,
        opened: Handle,
        by: Owner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        if self.locks == FileLocks::Refused {
            return reply.error(Errno::ENOSYS);
        }
        let (files, uid) = (self.files.clone(), request.uid());
        let ended_by = if sleep { EndedBy::Any } else { EndedBy::Killed };
        let mut waiting = self.waits.call(request, ended_by);
        self.counted(Call("setlk", request, number), Operation::Flock, async move {
            let wanted = convert::lock(start, end, kind, (pid, uid));
            // A request whose wait ends is withdrawn before the call is answered: a lock granted later would
            // never be released.
            let done = {
                let mut call =
                    pin!(async { files.set_lock(handle(opened), owner(by), wanted?, sleep).await });
                waiting.wait(call.as_mut()).await
            };
            answer::empty(reply, done);
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
