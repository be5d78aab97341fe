//! `OUT_UPDATE`: from the request of another MDT to its results.

use bytes::Bytes;
use sheen_brw::bulk_errno;
use sheen_io::logged;
use sheen_target::{Context, Incarnation, Outcome, Wait, while_waiting};
use sheen_types::{Errno, MdtIndex, TargetKind};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::messages::{OutUpdate, OutUpdateReply};
use sheen_wire::out::{
    BUFFER_BYTES_MAX, ObjectUpdate, ObjectUpdateRequest, ObjectUpdateResult, OutUpdateBuffer,
    OutUpdateHeader, PARAM_BYTES_MAX, PartAnswer, Release, ReleaseFlags, Update, UpdateResult,
    UpdateResults, decode_updates,
};
use sheen_wire::{DecodeError, Wire, Writer};

use super::recover;
use crate::Mdt;

/// Updates of one message. Those of parts are in records.
const UPDATES_MAX: usize = 64;
/// Bytes that one result can say.
pub(crate) const RESULT_BYTES_MAX: usize = PARAM_BYTES_MAX - ObjectUpdateResult::SIZE;

impl Mdt {
    /// OUT_UPDATE: does what another MDT asks for, in order, until something fails. Sent again it does no harm: a part is
    /// applied once, and an exclusion that is there is answered.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for who is no MDT with which changes are made together, [`Errno::EPROTO`] for what cannot be read:
    /// then nothing was done. All else is said in the results.
    pub(crate) async fn out_update(
        &self,
        context: &Context,
        request: &OutUpdate,
    ) -> Result<Outcome, Errno> {
        let coordinator = coordinator_of(context)?;
        let updates = updates_of(context, request).await?;
        let asked = u16::try_from(updates.len()).map_err(logged!(
            Errno::EPROTO,
            "a message has more updates than an answer has results"
        ))?;
        let mut results = UpdateResults { asked, results: Vec::with_capacity(updates.len()) };
        for update in updates {
            let result = match self.update(context, coordinator, update).await {
                // More than the length of a result can say: an attribute, which is only read.
                Ok(data) if data.len() > RESULT_BYTES_MAX => refused(Errno::E2BIG),
                Ok(data) => UpdateResult { status: 0, data },
                Err(errno) => refused(errno),
            };
            let has_failed = result.status < 0;
            results.results.push(result);
            if has_failed {
                break;
            }
        }
        let object_update_reply =
            results.encode().map_err(logged!(Errno::E2BIG, "results are larger than a message"))?;
        let reply = OutUpdateReply { object_update_reply, ..OutUpdateReply::default() };
        Ok(Outcome::ok(reply))
    }

    /// Does one of the updates of a message; what it is answered.
    async fn update(
        &self,
        context: &Context,
        mdt: MdtIndex,
        update: Update,
    ) -> Result<Bytes, Errno> {
        let target = &context.target;
        let since = |starts| Incarnation { mdt, starts };
        match update {
            Update::Exclude(wanted) => {
                if self.must_not_change(context) {
                    return Err(Errno::EROFS);
                }
                let excluded = self.exclude(target, since(wanted.starts), &wanted).await?;
                excluded.encode().map_err(logged!(
                    Errno::E2BIG,
                    "an answer to an exclusion is larger than a message"
                ))
            }
            Update::Release(Release { starts, flags, number }) => {
                match flags.contains(ReleaseFlags::EARLIER) {
                    true => self.exclusion.distributed.release_earlier(since(starts)),
                    false => self.release(since(starts), number),
                }
                Ok(Bytes::new())
            }
            Update::Record(sent) => {
                let transno = self.apply_part(context, since(sent.starts), *sent).await?;
                Ok(encoded(&PartAnswer { transno }))
            }
            Update::Complete(said) => {
                if said.except.len() > sheen_target::COMPLETION_EXCEPTIONS_MAX {
                    return Err(Errno::EPROTO);
                }
                let said = sheen_target::Completion { upto: said.upto, except: said.except };
                target.complete(mdt, &said).map_err(sheen_target::store_errno)?;
                Ok(Bytes::new())
            }
            Update::Recover(asked) => {
                let under_way = |id| self.coordinator.exclusion_under_way(id, mdt);
                let said = recover::answer(target, since(asked.starts), &asked, under_way)?;
                said.encode().map_err(logged!(
                    Errno::E2BIG,
                    "an answer in recovery is larger than a message"
                ))
            }
            Update::IndexLookup(directory, name) => {
                Ok(encoded(&self.read_name(directory, &name).await?))
            }
            Update::AttrGet(fid) => Ok(encoded(&self.read_attributes(fid).await?)),
            Update::XattrGet(fid, name) => self.read_xattr(fid, &name).await,
            Update::XattrList(fid) => self.read_xattr_names(fid),
            Update::Parents(fid) => {
                let parents = self.read_parents(target, fid).await?;
                parents.encode().map_err(logged!(
                    Errno::E2BIG,
                    "an answer about parents is larger than a message"
                ))
            }
            // What changes something is a part, in a record; all else is not built.
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// Which MDT asks.
///
/// # Errors
/// [`Errno::EPERM`] if it is none, or one that has agreed on no format of records.
fn coordinator_of(context: &Context) -> Result<MdtIndex, Errno> {
    let owner = context.export.owner().filter(|owner| owner.kind == TargetKind::Mdt);
    let owner = owner.filter(|_| context.has2(ConnectFlags2::MDT_CHANGES));
    match owner.map(|owner| MdtIndex(owner.index)) {
        Some(mdt) if mdt != context.target.mdt_index() => Ok(mdt),
        _ => Err(Errno::EPERM),
    }
}

/// The updates of a request, all of them read before the first is done.
async fn updates_of(context: &Context, request: &OutUpdate) -> Result<Vec<Update>, Errno> {
    let split = OutUpdateHeader::split(&request.out_update_header);
    let (header, inline) = split.map_err(malformed)?;
    let buffers = match header.inline_length {
        0 => pull(context, &request.update_buf, header.count).await?,
        _ if header.count == 1 => vec![inline],
        _ => return Err(Errno::EPROTO),
    };
    let mut updates: Vec<ObjectUpdate> = Vec::new();
    for buffer in &buffers {
        updates.extend(decode_updates(buffer).map_err(malformed)?);
    }
    let said = updates.iter().map(Update::read).collect::<Result<Vec<_>, _>>();
    let said = said.map_err(malformed)?;
    // A request becomes one transaction, and nothing of it waits for what it excludes itself.
    let count = |is: fn(&Update) -> bool| said.iter().filter(|update| is(update)).count();
    let parts = count(|update| matches!(update, Update::Record(_)));
    let exclusions = count(|update| matches!(update, Update::Exclude(_)));
    match said.len() <= UPDATES_MAX && parts + exclusions <= 1 {
        true => Ok(said),
        false => Err(Errno::EPROTO),
    }
}

/// The buffers of a request whose updates are bulk.
async fn pull(
    context: &Context,
    buffers: &[OutUpdateBuffer],
    count: u32,
) -> Result<Vec<Bytes>, Errno> {
    let sizes: Vec<usize> = buffers.iter().map(|buffer| buffer.size as usize).collect();
    let is_sound = |size: &usize| (ObjectUpdateRequest::SIZE..BUFFER_BYTES_MAX).contains(size);
    let length = sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size));
    let is_too_long = length >= BUFFER_BYTES_MAX;
    if sizes.len() != count as usize
        || sizes.is_empty()
        || !sizes.iter().all(is_sound)
        || is_too_long
    {
        return Err(Errno::EPROTO);
    }
    let _memory = while_waiting(Wait::Bulk, context.bulk.reserve(length)).await;
    let pulled = while_waiting(Wait::Bulk, context.bulk.pull(length)).await;
    let pieces = pulled.map_err(|error| bulk_errno(context, &error))?;
    let mut bytes = Bytes::from(pieces.concat());
    if bytes.len() < length {
        return Err(Errno::EPROTO);
    }
    Ok(sizes.into_iter().map(|size| bytes.split_to(size)).collect())
}

fn refused(errno: Errno) -> UpdateResult {
    UpdateResult { status: errno.status(), data: Bytes::new() }
}

fn malformed(_: DecodeError) -> Errno {
    Errno::EPROTO
}

fn encoded(value: &impl Wire) -> Bytes {
    let mut writer = Writer::default();
    value.encode(&mut writer);
    writer.into_bytes()
}
