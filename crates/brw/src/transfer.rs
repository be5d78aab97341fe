//! What reads and writes share: which object, which pieces, which lock, which checksum.

use std::time::Duration;

use sheen_ldlm::LockFlags;
use sheen_rpc::RpcError;
use sheen_target::{Context, LockGuard};
use sheen_types::limits::BULK_BYTES_MAX;
use sheen_types::{Errno, Extent, Fid, LockMode};
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstId};

use crate::{Brw, Objects};

/// Pieces of one transfer; Lustre's clients send at most one per page.
const PIECES_MAX: usize = BULK_BYTES_MAX / 4096;
/// How much longer a client may keep a lock under which it still reads or writes.
const PROLONG: Duration = Duration::from_secs(30);

/// Why a bulk has failed. Where no more is known than that it did not come, that is no answer: the client, who would
/// drop its bytes for it, sends the request again.
#[must_use]
pub fn bulk_errno(context: &Context, error: &RpcError) -> Errno {
    match error {
        RpcError::TimedOut | RpcError::Disconnected => context.leave_unanswered(error.errno()),
        _ => error.errno(),
    }
}

/// A checked transfer.
pub(crate) struct Transfer {
    pub(crate) object: Fid,
    /// Its name in the request.
    pub(crate) oi: OstId,
    pub(crate) pieces: Vec<NiobufRemote>,
    /// Bytes of all pieces.
    pub(crate) length: usize,
    /// From the first byte of the first piece to the last of the last.
    pub(crate) extent: Extent,
}

impl<O: Objects> Brw<O> {
    /// Checks what a peer says it will transfer: one object, at least one piece, in ascending order
    /// without overlap, no more bytes than a bulk may have, none behind the largest object.
    pub(crate) fn transfer(
        &self,
        objects: &[ObdIoobj],
        pieces: Vec<NiobufRemote>,
    ) -> Result<Transfer, Errno> {
        let [object] = objects else { return Err(Errno::EPROTO) };
        if object.bufcnt as usize != pieces.len() || pieces.len() > PIECES_MAX {
            return Err(Errno::EPROTO);
        }
        let first = pieces.first().ok_or(Errno::EPROTO)?.offset;
        let mut next = 0;
        let mut length = 0_usize;
        for piece in &pieces {
            let end = piece.offset.checked_add(u64::from(piece.len)).ok_or(Errno::EFBIG)?;
            if piece.len == 0 || piece.offset < next {
                return Err(Errno::EPROTO);
            }
            (next, length) = (end, length + piece.len as usize);
        }
        if length > BULK_BYTES_MAX {
            return Err(Errno::EPROTO);
        }
        if next > self.store.object_bytes_max() {
            return Err(Errno::EFBIG);
        }
        let oi = object.oid;
        let object = self.objects.find(oi)?;
        let extent = Extent { start: first, end: next - 1 };
        Ok(Transfer { object, oi, pieces, length, extent })
    }

    /// The lock of a transfer: one of the server's own if the client says that it has none;
    /// otherwise the client's lock is seen to be in use by those that wait for it.
    pub(crate) async fn transfer_lock(
        &self,
        context: &Context,
        transfer: &Transfer,
        mode: LockMode,
    ) -> Result<Option<LockGuard>, Errno> {
        let (resource, policy) = self.objects.cover(transfer.oi, transfer.extent);
        if transfer.pieces[0].flags.contains(BrwFlags::SRVLOCK) {
            return context.target.lock(resource, policy, mode).await.map(Some).map_err(try_later);
        }
        let now = context.target.world().clock.now();
        let export = context.export.handle().0;
        context.target.namespace().prolong(now, export, resource, transfer.extent, PROLONG);
        Ok(None)
    }

    /// A lock of the server's own on all bytes of an object.
    ///
    /// # Errors
    /// Those of the lock.
    pub async fn lock_all(
        &self,
        context: &Context,
        oi: OstId,
        mode: LockMode,
    ) -> Result<LockGuard, Errno> {
        let (resource, policy) = self.objects.cover(oi, Extent::ALL);
        context.target.lock(resource, policy, mode).await
    }

    /// A lock of the server's own on some bytes, for a client that says that it has none.
    /// `discarding`: what clients have not written back yet need not be, it is going to be cut.
    pub(crate) async fn lock_if_asked(
        &self,
        context: &Context,
        asked: &Obdo,
        extent: Extent,
        mode: LockMode,
        discarding: bool,
    ) -> Result<Option<LockGuard>, Errno> {
        if !asked.has_flag(ObdoFlags::SRVLOCK) {
            return Ok(None);
        }
        let (resource, policy) = self.objects.cover(asked.oi, extent);
        let flags = LockFlags::AST_DISCARD_DATA.when(discarding);
        let lock = context.target.lock_with_flags(resource, policy, mode, flags).await;
        lock.map(Some).map_err(try_later)
    }
}

/// What a client hears whose request needs a lock of the server's own that a group holds up: it asks again, as often as
/// that takes, and takes no place meanwhile. `EAGAIN` Lustre's clients take for an end after some tries.
fn try_later(errno: Errno) -> Errno {
    if errno == Errno::EAGAIN { Errno::EINPROGRESS } else { errno }
}
