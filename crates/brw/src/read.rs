//! OST_READ: data from an object to the client.

use bytes::Bytes;
use sheen_target::{Context, Outcome, Wait, store_errno, while_waiting};
use sheen_types::{Errno, LockMode};
use sheen_wire::checksum::Checksum;
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstRead, OstReadReply};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody};

use crate::transfer::{Transfer, bulk_errno};
use crate::{Brw, Objects};

/// Bytes of a read that come inside the message: `OST_MAX_SHORT_IO_BYTES` of a client with pages of 4 KiB, the
/// largest there is. An answer with 1 MiB would be longer than what LNet carries, through which a client of this
/// process does not go.
const INLINE_BYTES_MAX: usize = 256 << 10;

impl<O: Objects> Brw<O> {
    /// Reads up to the object's end; what lies behind it is not sent, the status says how much is.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for pieces that make no sense, and for more bytes inside the message than Lustre's clients
    /// ask for; those of locks and the store.
    pub async fn read(&self, context: &Context, request: OstRead) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let transfer = self.transfer(&request.obd_ioobj, request.niobuf_remote)?;
        let inline = asked.has_flag(ObdoFlags::SHORT_IO);
        if inline && !context.export.is_local() && transfer.length > INLINE_BYTES_MAX {
            return Err(Errno::EPROTO);
        }
        let room = while_waiting(Wait::Bulk, context.bulk.reserve(transfer.length)).await;
        let lock = self.transfer_lock(context, &transfer, LockMode::Pr).await?;
        let (data, sum) = self.get(context, &transfer)?;
        let length: usize = data.iter().map(Bytes::len).sum();
        self.grants.reclaim(&context.export, &asked);
        let oa = answer(&asked, &data, sum);
        let mut reply = OstReadReply { ost_body: Some(OstBody { oa }), ..OstReadReply::default() };
        if inline {
            reply.short_io = joined(data);
        } else {
            while_waiting(Wait::Bulk, context.bulk.push(data))
                .await
                .map_err(|error| bulk_errno(context, &error))?;
        }
        drop((lock, room));
        context.count(O::READ_BYTES, length as u64);
        // At most BULK_BYTES_MAX, so it fits.
        Ok(Outcome { status: length as i32, reply: Some(reply.into()) })
    }

    /// The bytes of all pieces; a piece is short only if the object ends in it or before it, and a
    /// gap inside (a piece behind the end, followed by none) cannot be.
    /// With the CRC-32C of all if the store has worked it out.
    fn get(
        &self,
        context: &Context,
        transfer: &Transfer,
    ) -> Result<(Vec<Bytes>, Option<u32>), Errno> {
        let clock = &*context.target.world().clock;
        let mut data = Vec::with_capacity(transfer.pieces.len());
        let (mut accesses, mut all) = (0, None);
        for piece in &transfer.pieces {
            let wanted = piece.len as usize;
            let read = || self.store.read_summed(transfer.object, piece.offset, wanted);
            let read = self.reads.access(clock, wanted, read);
            let (read, sum) = read.map_err(store_errno)?;
            all = sum.filter(|_| accesses == 0);
            accesses += 1;
            let is_short = read.len() < wanted;
            if !read.is_empty() {
                data.push(read);
            }
            if is_short {
                break;
            }
        }
        self.reads.transferred(transfer, accesses);
        Ok((data, all))
    }
}

/// The checksum, if the client named one (`sum` if it is the one that the store worked out when it
/// compared the blocks), and no grant: the client adds the answer's grant to what it has.
fn answer(asked: &Obdo, data: &[Bytes], sum: Option<u32>) -> Obdo {
    let mut oa = Obdo { oi: asked.oi, ..Obdo::default() };
    let wanted = asked.valid.contains(Valid::CKSUM | Valid::FLAGS);
    if let Some(checksum) = asked.flags.checksum().filter(|_| wanted) {
        let known = sum.filter(|_| checksum == Checksum::Crc32c);
        oa.set_checksum(checksum, known.unwrap_or_else(|| checksum.of(data)));
    }
    if asked.valid.contains(Valid::GRANT) {
        oa.valid |= Valid::GRANT;
    }
    oa
}

fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        0 => Bytes::new(),
        1 => pieces.swap_remove(0),
        _ => pieces.concat().into(),
    }
}
