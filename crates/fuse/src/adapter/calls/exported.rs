//! `.` and `..`: what the kernel asks for an inode that it knows by a file handle only, and for the
//! directory that such a directory is in. It may have forgotten the inode long ago.

use std::ffi::OsStr;
use std::pin::pin;

use sheen_client::posix::{Entry, NodeId, Operation};
use sheen_fuse_wire::{INodeNo, ReplyEntry, Request};

use crate::adapter::{Adapter, Call};
use crate::answer;
use crate::signals::EndedBy;
use crate::special;

/// Which inode is meant.
#[derive(Clone, Copy)]
pub(super) enum Relative {
    Itself,
    Parent,
}

impl Relative {
    /// `None` for an ordinary name.
    pub(super) fn of(name: &OsStr) -> Option<Self> {
        match name.as_encoded_bytes() {
            b"." => Some(Self::Itself),
            b".." => Some(Self::Parent),
            _ => None,
        }
    }
}

impl Adapter {
    pub(super) fn look_up_exported(
        &self,
        request: &Request,
        number: INodeNo,
        relative: Relative,
        reply: ReplyEntry,
    ) {
        let (files, who, node) =
            (self.files.clone(), self.credentials_of(request, 0), special::node(number));
        let special = self.special;
        let mut waiting = self.waits.call(request, EndedBy::Fatal);
        self.counted(Call("lookup", request, number), Operation::Getattr, async move {
            let mut call = pin!(async {
                match relative {
                    // As whose inode the kernel knows it.
                    Relative::Itself => {
                        let found = files.by_number(&who, node).await?;
                        Ok(Entry { node: NodeId(number.0), ..special.made(found) })
                    }
                    Relative::Parent => files.parent_of(&who, node).await,
                }
            });
            answer::entry(reply, waiting.wait(call.as_mut()).await);
            if let Some(late) = waiting.late(call).await {
                files.forget(special::own(late.node), 1);
            }
        });
    }
}
