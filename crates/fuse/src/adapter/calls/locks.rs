//! Calls about the locks of `fcntl(2)` and `flock(2)`.

use std::pin::pin;

use sheen_client::posix::{FileLockMode, Operation};
use sheen_fuse_wire::{
    FileHandle as Handle, INodeNo, LockCalls, LockOwner as Owner, ReplyEmpty, ReplyLock, Request,
};
use sheen_types::Errno;

use crate::adapter::{Adapter, Call, handle, owner};
use crate::mount_options::FileLocks;
use crate::signals::EndedBy;
use crate::{answer, convert};

impl LockCalls for Adapter {
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
}
