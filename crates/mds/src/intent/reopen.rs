//! Opens that were executed before: repeated because the answer got lost, or replayed because the
//! server restarted.

use sheen_target::{Context, EnqueueRequest, Outcome, ReplyRecord, ReplyRecording};
use sheen_types::{Errno, Fid};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::{MdsOpenFlags, OpenHandle};
use sheen_wire::messages::LdlmIntentOpen;

use super::open::{OpenProgress, OpenRequest, answer, of_intent};
use crate::directory::parse_name;
use crate::hold::{Wanted, WantedName};
use crate::open_table::OpenTable;
use crate::{Mdt, dom};

impl Mdt {
    /// Answers an open that was executed before. Its handle is there, unless we have restarted
    /// since: then the file is opened again.
    pub(crate) async fn reconstruct_open(
        &self,
        context: &Context,
        request: &LdlmIntentOpen,
        enqueue: &EnqueueRequest,
        record: &ReplyRecord,
    ) -> Result<Outcome, Errno> {
        let mut opening = of_intent(request, enqueue);
        let mut progress = OpenProgress::default();
        let before = Disposition(record.data);
        let table = context.export.role::<OpenTable>();
        if let Some((handle, file)) = table.opened_by(context.xid) {
            progress.disposition = before.without(Disposition::OPEN_LOCK);
            let inode = self.inode(file.fid)?;
            self.put_inode(context, &inode, &mut progress)?;
            progress.body.open_handle = handle;
            progress.lock = context.resent_lock(enqueue);
            if let Some(lock) = &progress.lock {
                dom::add_size_with(crate::locks::bits_of(lock), &inode, &mut progress.body)?;
            }
            return answer(context, progress, Ok(()));
        }
        if before.contains(Disposition::OPEN_CREATE) {
            // It is ours although it exists.
            opening.flags = opening.flags.without(MdsOpenFlags::EXCL);
            progress.add(Disposition::OPEN_CREATE);
        }
        opening.is_repeated = true;
        let result = self.open(context, &opening, &mut progress).await;
        answer(context, progress, result)
    }

    /// An open from before a restart, or of a client that lost its connection: the file is known by
    /// its FID, permission is not checked again. If it is not there, its creation was lost too.
    pub(super) async fn replay_open(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let fid = opening.record.fid2;
        progress.add(Disposition::IT_EXECD | Disposition::LOOKUP_EXECD);
        let table = context.export.role::<OpenTable>();
        let old = opening.record.open_handle_old;
        // The same replay once more, since the client lost its connection: the first one's answer may still
        // have reached it, and it closes by the handle in that.
        if let Some((handle, file)) = table.opened_by(context.xid)
            && file.fid == fid
            && (file.old == old || handle == old)
        {
            return self.repeat_replay(context, handle, fid, progress);
        }
        // A handle left from before the client lost its connection.
        if table.contains(old)
            && let Some(file) = table.remove(old)
        {
            self.close_for_client(&context.target, file).await?;
        }
        let name = opening.name;
        let names = [WantedName::added(opening.record.fid1, name)];
        let wanted = Wanted { names: &names, inodes: &[fid], ..Wanted::default() };
        let held = self.hold(wanted).await?;
        match self.inode(fid) {
            Ok(inode) => {
                progress.add(Disposition::LOOKUP_POS);
                let reserved = match self.layout(&inode)? {
                    None if inode.is_regular() => self.placement.restore(opening.layout, None).ok(),
                    _ => None,
                };
                self.execute_open(context, &held, opening, &inode, reserved, progress)?;
                self.put_inode(context, &inode, progress)
            }
            // Created, removed and closed before the restart.
            Err(Errno::ENOENT) if context.is_applied_already() => Err(Errno::ESTALE),
            Err(Errno::ENOENT) if opening.creates() => {
                if opening.flags.contains(MdsOpenFlags::VOLATILE) {
                    return self.open_volatile(context, &held, opening, progress).await;
                }
                progress.add(Disposition::LOOKUP_NEG);
                self.check_place(opening.record.fid1, name)?;
                self.open_new(context, &held, opening, &parse_name(name)?, progress).await
            }
            Err(Errno::ENOENT) => Err(Errno::EFAULT),
            Err(errno) => Err(errno),
        }
    }
    /// Answers a replayed open that was executed since the restart.
    fn repeat_replay(
        &self,
        context: &Context,
        handle: OpenHandle,
        fid: Fid,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let inode = self.inode(fid)?;
        self.put_inode(context, &inode, progress)?;
        progress.add(Disposition::LOOKUP_POS | Disposition::OPEN_OPEN);
        progress.body.open_handle = handle;
        let recording = ReplyRecording::Keep { result: 0, data: progress.disposition.0 };
        self.record_answer(context, recording).map(|_| ())
    }
}
