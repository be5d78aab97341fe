//! Calls about extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use sheen_client::posix::{FileSystem, Operation, XattrMode};
use sheen_fuse_wire::{INodeNo, ReplyEmpty, ReplyXattr, Request, XattrCalls};
use sheen_types::Errno;

use crate::adapter::{Adapter, Call, resent::Resent};
use crate::signals::EndedBy;
use crate::special::node;
use crate::{alive, answer, convert, questions};

impl XattrCalls for Adapter {
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
}
