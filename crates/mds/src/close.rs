//! MDS_CLOSE: gives an open handle back, with the size and times that the client has seen.

use std::sync::Arc;

use bytes::Bytes;
use sheen_store::{AttributePatch, Transaction};
use sheen_target::{Context, Memo, Outcome, Target};
use sheen_types::{Errno, Timestamp};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::md::{AttrValid, Bias, MdtBody, OpenFlags, OpenHandle, RecSetattr, SomAttrs};
use sheen_wire::messages::MdsCloseReply;

use crate::exclusion::Needs;
use crate::export::{OpenFile, OpenTable};
use crate::inode::Inode;
use crate::{Mdt, xattrs};

/// `ms_valid` of a size that may be out of date.
const SOM_LAZY: u16 = 4;

impl Mdt {
    /// Closes. The last close of an orphan destroys it.
    pub(crate) async fn close(
        &self,
        context: &Context,
        handle: OpenHandle,
        record: &RecSetattr,
    ) -> Result<Outcome, Errno> {
        let table = context.export.role::<OpenTable>();
        let Some(file) = table.remove(handle) else {
            if context.is_applied_already() {
                return Ok(closed());
            }
            return Ok(Outcome { status: Errno::ESTALE.status(), ..closed() });
        };
        let _held = self.exclusion.hold(Needs::new().change_inode(file.fid)).await;
        let mut transaction = Transaction::new();
        if is_writer(&file) && tells_of_writes(record) {
            self.open_files.note_written(file.fid);
        }
        let left = self.open_files.close(file.fid, file.flags);
        if left.is_pristine {
            self.pristine.insert(file.fid);
        }
        match self.inode(file.fid) {
            Ok(inode) if left.opens == 0 && self.is_orphan(&inode)? => {
                self.destroy_orphan(&mut transaction, &inode)?;
            }
            Ok(inode) => update(self, &mut transaction, &inode, record),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let done = context.target.transact(context, transaction, Memo::Done);
        done.map_err(|error| error.errno())?;
        Ok(closed())
    }

    /// Closes what a client that is gone left open.
    pub(crate) async fn close_for(
        &self,
        target: &Arc<Target>,
        file: OpenFile,
    ) -> Result<(), Errno> {
        let _held = self.exclusion.hold(Needs::new().change_inode(file.fid)).await;
        if is_writer(&file) {
            // It may have written, and may be writing still.
            self.open_files.note_written(file.fid);
        }
        let left = self.open_files.close(file.fid, file.flags);
        if left.opens > 0 {
            return Ok(());
        }
        let inode = match self.inode(file.fid) {
            Ok(inode) if self.is_orphan(&inode)? => inode,
            Ok(_) | Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let mut transaction = Transaction::new();
        self.destroy_orphan(&mut transaction, &inode)?;
        target.transact_locally(transaction).map_err(|error| error.errno())?;
        Ok(())
    }
}

fn is_writer(file: &OpenFile) -> bool {
    file.flags.contains(OpenFlags::WRITE)
}

/// Whether a close says that data was written, or might: Lustre's clients tell a size with every
/// close of a writer.
fn tells_of_writes(record: &RecSetattr) -> bool {
    let sizes = AttrValid::SIZE | AttrValid::BLOCKS | AttrValid::LSIZE | AttrValid::LBLOCKS;
    record.bias.contains(Bias::DATA_MODIFIED) || record.valid.intersects(sizes | AttrValid::MTIME)
}

fn closed() -> Outcome {
    let mdt_body = Some(MdtBody::default());
    Outcome::ok(MdsCloseReply { mdt_body, ..MdsCloseReply::default() })
}

/// Times only move forward, and access times only when they matter; sizes are as told.
fn update(mdt: &Mdt, transaction: &mut Transaction, inode: &Inode, record: &RecSetattr) {
    let attributes = &inode.attributes;
    let newer = |flag, told: i64, known: Timestamp| {
        (record.valid.contains(flag) && told > known.seconds).then(|| Timestamp::from_seconds(told))
    };
    let changed = newer(AttrValid::CTIME, record.ctime, attributes.changed);
    let patch = AttributePatch {
        modified: newer(AttrValid::MTIME, record.mtime, attributes.modified)
            .filter(|_| changed.is_some()),
        changed,
        accessed: newer(AttrValid::ATIME, record.atime, attributes.accessed)
            .filter(|told| told.seconds > attributes.accessed.seconds.saturating_add(60)),
        ..AttributePatch::default()
    };
    if patch != AttributePatch::default() {
        transaction.patch(inode.fid, patch);
    }
    let lazy = AttrValid::LSIZE | AttrValid::LBLOCKS;
    let is_told = inode.is_regular() && record.valid.intersects(lazy);
    if is_told && !mdt.is_all_here(inode) {
        let told = mdt.told_size(inode);
        let size = told.as_ref().map_or(0, |told| told.size);
        // A client knows only of its own writes: a smaller size than another's is no news.
        let (size, blocks) = match record.valid.contains(AttrValid::LSIZE) {
            true => (size.max(record.size), record.blocks),
            false => (size, record.blocks),
        };
        transaction.set_xattr(inode.fid, xattrs::SOM, som(size, blocks));
    }
}

/// The value of `trusted.som`.
pub(crate) fn som(size: u64, blocks: u64) -> Bytes {
    let som = SomAttrs { valid: SOM_LAZY, reserved: [0; 3], size, blocks };
    let mut writer = Writer::with_capacity(SomAttrs::SIZE);
    som.encode(&mut writer);
    writer.into_bytes()
}
