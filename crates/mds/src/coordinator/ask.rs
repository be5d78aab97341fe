//! Asking another MDT: `OUT_UPDATE`.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::logged;
use sheen_rpc::{Answer, Bulk, Call, Channel, RpcError};
use sheen_target::{Target, Wait, while_waiting};
use sheen_types::{Errno, Fid, MdtIndex, Name};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::messages::{OutUpdate, Reply};
use sheen_wire::out::{
    INLINE_BYTES, NamedInode, ObjectUpdate, OutUpdateBuffer, OutUpdateHeader, PARAM_BYTES_MAX,
    Parents, TooMuch, UpdateResult, UpdateResults, encode_updates,
};

use crate::Mdt;
use crate::directory::Child;
use crate::participant::KeyRef;
use crate::xattrs::XattrsOf;

/// Bytes set aside for results: of an exclusion, with access lists and layouts; of anything else.
pub(super) const EXCLUSION_BYTES: u32 = 32 << 10;
pub(super) const RESULT_BYTES: u32 = 4 << 10;

/// How a request goes out, as to what waits for what.
///
/// Exclusions of names and lookups may wait for changes that other requests of this MDT are to end. They go in turn, as many at
/// a time as an import sends; those requests go past them: else all places could be taken by what waits for a request that waits
/// for a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// In a slot of modifying requests.
    Part,
    /// In its turn. It may wait for other changes.
    InTurn,
    /// At once: of a change that has excluded something, for whose end other requests wait.
    Awaited,
}

/// Why another MDT has not done what it was asked for.
pub(super) enum NotDone {
    /// It has refused.
    Refused(Errno),
    /// No answer, or one that is none: whether it has done it is not known.
    Unknown,
}

impl From<NotDone> for Errno {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Refused(errno) => errno,
            NotDone::Unknown => Self::EIO,
        }
    }
}

/// A request with these updates.
///
/// # Errors
/// [`TooMuch`] of anything.
pub(super) fn request_of(
    updates: &[ObjectUpdate],
    result_bytes: u32,
    order: Order,
) -> Result<Call, TooMuch> {
    let encoded = encode_updates(updates)?;
    let is_inline = OutUpdateHeader::SIZE + encoded.len() < INLINE_BYTES;
    let header = OutUpdateHeader {
        magic: OutUpdateHeader::MAGIC,
        count: 1,
        inline_length: if is_inline { encoded.len() as u32 } else { 0 },
        reply_size: result_bytes,
    };
    let mut writer = Writer::default();
    header.encode(&mut writer);
    let mut update_buf = Vec::new();
    let mut bulk = Bulk::None;
    match is_inline {
        true => writer.put(&encoded),
        false => {
            let size = u32::try_from(encoded.len());
            let much = |_| TooMuch { what: "updates", value: encoded.len() };
            update_buf.push(OutUpdateBuffer { size: size.map_err(much)?, padding: 0 });
            bulk = Bulk::Source(vec![encoded]);
        }
    }
    let out_update_header = writer.into_bytes();
    let request = OutUpdate { out_update_header, update_buf, ..OutUpdate::default() };
    let call = match order {
        Order::Part => Call::modifying(request),
        Order::InTurn | Order::Awaited => Call::new(request),
    };
    let call = Call { is_awaited: order == Order::Awaited, ..call };
    Ok(call.with_reply_room(result_bytes as usize).with_bulk(bulk))
}

/// The results of an answer: all were executed.
///
/// # Errors
/// [`NotDone`].
pub(super) fn results_of(
    answer: Result<Answer, RpcError>,
    asked: usize,
) -> Result<Vec<UpdateResult>, NotDone> {
    let answer = answer.map_err(|error| match error {
        RpcError::Errno(errno) => NotDone::Refused(errno),
        lost => {
            tracing::warn!(error = %lost, "no answer of another MDT: whether it has done it is not known");
            NotDone::Unknown
        }
    })?;
    let Reply::OutUpdate(reply) = answer.reply else { return Err(NotDone::Unknown) };
    let results = UpdateResults::decode(&reply.object_update_reply);
    let results =
        results.map_err(logged!(NotDone::Unknown, "another MDT's results cannot be read"))?.results;
    let refused = results.iter().find_map(|result| Errno::from_status(result.status));
    match refused {
        Some(errno) => Err(NotDone::Refused(errno)),
        None if results.len() == asked => Ok(results),
        None => Err(NotDone::Unknown),
    }
}

/// Reads a result that has one form.
pub(super) fn read<T: Wire>(result: Option<&UpdateResult>) -> Result<T, Errno> {
    let data = &result.ok_or(Errno::EPROTO)?.data;
    T::decode(&mut Reader::new(data, ByteOrder::Little))
        .map_err(logged!(Errno::EPROTO, "another MDT's answer cannot be read"))
}

impl Mdt {
    /// The way to another MDT with which changes are made together.
    ///
    /// # Errors
    /// [`Errno::EREMOTE`] if there is none.
    pub(crate) fn partner(&self, mdt: MdtIndex) -> Result<Arc<dyn Channel>, Errno> {
        self.other_mdts.partner(mdt.0).ok_or(Errno::EREMOTE)
    }

    /// The partner at an MDT, for what its answer is believed of: before its first one it is not known which MDT will answer.
    ///
    /// # Errors
    /// [`Errno::EREMOTE`] if there is none, or none yet.
    pub(super) fn known_partner(&self, mdt: MdtIndex) -> Result<Arc<dyn Channel>, Errno> {
        self.other_mdts.known_partner(mdt.0).ok_or(Errno::EREMOTE)
    }

    /// Has another MDT do what changes nothing that lasts, and waits for it as long as it takes. Where that has evicted this
    /// MDT, which it does if it has recovered without it, it is asked again: what it was asked before it has not lost, and
    /// an exclusion that it has is the same one.
    ///
    /// # Errors
    /// What that has answered, those of [`Mdt::until_configured`].
    pub(super) async fn ask(
        &self,
        mdt: MdtIndex,
        updates: &[ObjectUpdate],
        result_bytes: u32,
        order: Order,
    ) -> Result<Vec<UpdateResult>, Errno> {
        self.until_configured(mdt).await?;
        let channel = self.partner(mdt)?;
        let request = || {
            request_of(updates, result_bytes, order).map_err(logged!(
                Errno::E2BIG,
                "a question for another MDT is larger than a message"
            ))
        };
        let answer = call_until_let_in(&*channel, request()?, request);
        let answer = while_waiting(Wait::Mdt, answer).await;
        Ok(results_of(answer, updates.len())?)
    }

    /// What a name stands for, on whatever MDT it lies. It may change the next moment.
    ///
    /// # Errors
    /// Those of the store, and of the MDT.
    pub(crate) async fn find_on_any_mdt(
        &self,
        target: &Target,
        directory: Fid,
        name: &Name,
    ) -> Result<Option<Child>, Errno> {
        let mdt = self.mdt_of(target, directory).await?;
        if mdt.0 == self.index {
            let read = || {
                self.directory(directory)?;
                self.check_place(directory, name.as_bytes())?;
                self.find(directory, name)
            };
            let key = KeyRef::Name(directory, name.as_bytes());
            return self.exclusion.distributed.shown(key, read).await;
        }
        let asked = ObjectUpdate::index_lookup(directory, name);
        match self.ask(mdt, &[asked], RESULT_BYTES, Order::InTurn).await {
            Ok(results) => {
                let found: NamedInode = read(results.first())?;
                child_of(&found)
            }
            // The directory is gone, too, or the name alone: the same to who asks.
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// An extended attribute of an inode of this MDT, as other MDTs see it: of a change, when all of it is applied. Never called by an
    /// operation that holds something.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn shown_xattr(&self, inode: Fid, name: &str) -> Result<Option<Bytes>, Errno> {
        let read = || self.store.xattr_of(inode, name);
        self.exclusion.distributed.shown(KeyRef::Inode(inode), read).await
    }

    /// An extended attribute of an inode of another MDT, which is excluded; or that never changes, of one that is not.
    ///
    /// # Errors
    /// Those of the MDT.
    pub(crate) async fn remote_xattr(
        &self,
        mdt: MdtIndex,
        inode: Fid,
        name: &str,
        order: Order,
    ) -> Result<Option<Bytes>, Errno> {
        let asked = ObjectUpdate::xattr_get(inode, name);
        let room = PARAM_BYTES_MAX as u32 + RESULT_BYTES;
        match self.ask(mdt, &[asked], room, order).await {
            Ok(results) => Ok(results.first().map(|result| result.data.clone())),
            Err(Errno::ENODATA) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The way up from a directory, as far as one MDT knows it: its parent first. Under the rename lock.
    ///
    /// # Errors
    /// Those of the store, and of the MDT.
    pub(super) async fn parents_of(
        &self,
        target: &Target,
        directory: Fid,
    ) -> Result<Vec<Fid>, Errno> {
        let mdt = self.mdt_of(target, directory).await?;
        if mdt.0 == self.index {
            return Ok(vec![self.parent(directory)?]);
        }
        let asked = ObjectUpdate::parents(directory);
        let results = self.ask(mdt, &[asked], EXCLUSION_BYTES, Order::Awaited).await?;
        let data: &Bytes = &results.first().ok_or(Errno::EPROTO)?.data;
        Ok(Parents::decode(data)
            .map_err(logged!(Errno::EPROTO, "another MDT's answer about parents cannot be read"))?
            .above)
    }
}

/// Calls another MDT, and again as often as that has evicted this one.
pub(super) async fn call_until_let_in<E>(
    channel: &dyn Channel,
    first: Call,
    again: impl Fn() -> Result<Call, E>,
) -> Result<Answer, RpcError> {
    let mut answer = channel.call(first).await;
    while matches!(answer, Err(RpcError::Evicted)) {
        let Ok(call) = again() else { break };
        answer = channel.call(call).await;
    }
    answer
}

/// What an MDT says that a name stands for.
///
/// # Errors
/// [`Errno::EPROTO`] for what is no inode.
pub(super) fn child_of(found: &NamedInode) -> Result<Option<Child>, Errno> {
    if found.fid.is_zero() {
        return Ok(None);
    }
    let kind = sheen_store::FileKind::from_mode(found.mode).ok_or(Errno::EPROTO)?;
    Ok(Some(Child { fid: found.fid, kind }))
}

#[cfg(test)]
mod tests {
    use sheen_target::testing::logged as lines_of;
    use sheen_types::Xid;
    use sheen_wire::messages::OutUpdateReply;
    use sheen_wire::ptlrpc::PtlrpcBody;

    use super::*;

    #[test]
    fn why_it_is_not_known_whether_another_mdt_has_done_something_is_logged() {
        lines_of(|lines| {
            assert!(matches!(results_of(Err(RpcError::Evicted), 1), Err(NotDone::Unknown)));
            assert_eq!(lines.with(&RpcError::Evicted.to_string()).len(), 1);
            let object_update_reply = Bytes::from_static(b"no results");
            let reply = OutUpdateReply { object_update_reply, ..OutUpdateReply::default() };
            let answer = Answer {
                xid: Xid(1),
                body: PtlrpcBody::default(),
                reply: Reply::OutUpdate(Box::new(reply)),
                bulk: Vec::new(),
                connection: 1,
            };
            assert!(matches!(results_of(Ok(answer), 1), Err(NotDone::Unknown)));
            assert_eq!(lines.with("another MDT's results cannot be read").len(), 1);
        });
    }
}
