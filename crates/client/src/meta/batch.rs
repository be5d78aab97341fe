//! Many names of one directory in one request, a batch of getattr intents (`MDS_BATCH`).
//!
//! What a part brings is taken over exactly as a lookup's answer is: the same locks, under which the same is kept. The
//! MDT waits for nothing in a batch, so a part may fail where a lookup would not: it is to be asked alone then.
//!
//! Cost: one RPC to each MDT of names; up to nine names or so go in the request itself, more as bulk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::{Bulk, Call};
use sheen_types::access::May;
use sheen_types::futures;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, MdtIndex, Name};
use sheen_wire::batch::{
    self, BUFFER_BYTES, BatchHeader, ButUpdateBuffer, ButUpdateHeader, INLINE_BYTES,
    REPLY_BYTES_MIN,
};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::ldlm::{IntentOp, LdlmIntent, LdlmRequest};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatch};
use sheen_wire::ptlrpc::MessageHeader;
use sheen_wire::text::Text;

use super::lookup::{InodeSnapshot, NameSnapshot, NotedName};
use super::{LookupDepth, Meta};
use crate::cache::{Inode, NamePlace, Pin};
use crate::locks::{BatchAnswer, LockRequest, PendingBatch, PendingLock};
use crate::mdt::Mdc;
use crate::types::Credentials;

/// Bytes of a part's answer that a part makes room for, as Lustre's client: with a layout of a few stripes.
const PART_REPLY_BYTES: usize = 840;
/// Bytes of a layout that a part makes room for (`MAX_MD_SIZE_OLD`); a larger one arrives, too.
const PART_LAYOUT_BYTES: u32 = 128;

/// A name to look up, and what it stands for as far as a listing says.
#[derive(Clone, Debug)]
pub(crate) struct BatchedName {
    pub(crate) name: Name,
    pub(crate) fid: Option<Fid>,
}

/// A name with its number in the question and where it lies.
type PlacedName<'a> = (usize, NamePlace<'a>, &'a BatchedName);

/// The names of each MDT.
type MdtParts<'a> = BTreeMap<MdtIndex, (Arc<Mdc>, Vec<PlacedName<'a>>)>;

/// What is known of a part's name when it is sent.
struct PartAsked {
    known: NameSnapshot,
    about: InodeSnapshot,
}

impl Mdc {
    /// Whether the MDT takes batches: it says so, and has not refused one whole. Lustre's does that on read-only
    /// mounts.
    pub(crate) fn takes_batches(&self) -> bool {
        !self.refuses_batches.load(Ordering::Relaxed)
            && self.channel.connect_data().flags2.contains(ConnectFlags2::BATCH_RPC)
    }

    fn note_refusal(&self, errno: Errno) {
        if matches!(errno, Errno::EROFS | Errno::EOPNOTSUPP) {
            self.refuses_batches.store(true, Ordering::Relaxed);
        }
    }
}

impl Meta {
    /// Looks names of `parent` up. For each, `None` if it is not there, or an error if it must be asked alone: `ENOTCONN` if its
    /// MDT is away and those of other names are not. One RPC to
    /// each MDT that has some of them, and one for each inode that is on another MDT.
    pub(crate) async fn lookup_batch(
        &self,
        who: &Credentials,
        parent: &Inode,
        names: &[BatchedName],
    ) -> Vec<Result<Option<Pin>, Errno>> {
        let (mut found, mut by_mdt) = (Vec::with_capacity(names.len()), MdtParts::new());
        for (at, name) in names.iter().enumerate() {
            // What it is answered by now.
            found.push(Err(Errno::EAGAIN));
            let placed = async {
                let place = self.place(who, parent, &name.name).await?;
                // Two stripes may have it.
                if place.before().is_some() {
                    return Err(Errno::EAGAIN);
                }
                let mdt = self.mdt(place.holder().fid).await?;
                Ok((mdt, place))
            };
            match placed.await {
                Ok((mdt, place)) => {
                    let of_mdt = by_mdt.entry(mdt.index).or_insert_with(|| (mdt, Vec::new()));
                    of_mdt.1.push((at, place, name));
                }
                Err(errno) => found[at] = Err(errno),
            }
        }
        // A name on an MDT that is away keeps no other one waiting.
        if by_mdt.len() > 1 {
            by_mdt.retain(|_, (mdt, parts)| {
                let is_there = mdt.is_connected();
                if !is_there {
                    parts.iter().for_each(|(at, ..)| found[*at] = Err(Errno::ENOTCONN));
                }
                is_there
            });
        }
        let asked = by_mdt.into_values().map(|(mdt, parts)| async move {
            let answered = self.ask_batch(who, &mdt, &parts).await;
            let places = parts.iter().map(|(at, ..)| *at);
            let answers = match answered {
                Ok(answers) => answers,
                Err(errno) => parts.iter().map(|_| Err(errno)).collect(),
            };
            places.zip(answers).collect::<Vec<_>>()
        });
        for (at, answer) in futures::all(asked.collect()).await.into_iter().flatten() {
            found[at] = answer;
        }
        found
    }

    async fn ask_batch(
        &self,
        who: &Credentials,
        mdt: &Arc<Mdc>,
        names: &[PlacedName<'_>],
    ) -> Result<Vec<Result<Option<Pin>, Errno>>, Errno> {
        let (mut asked, mut locks, mut parts) = (Vec::new(), Vec::new(), Parts::default());
        for (_, place, name) in names {
            let known = NameSnapshot::of(place, &name.name);
            asked.push(PartAsked { about: self.inode_snapshot(known.fid()), known });
            let lock = mdt.locks.begin(part_lock(place.holder()));
            let group = who.group_for(place.directory, May::EXEC);
            let body = MdtBody {
                eadatasize: PART_LAYOUT_BYTES,
                ..who.body(place.holder().fid, self.intent_valid(), group)
            };
            parts.add(&part(&lock, &body, name));
            locks.push(lock);
        }
        let call = who.sign(parts.call());
        let answer = PendingBatch::new(locks).send(&mdt.channel, call).await;
        let BatchAnswer { parts, connection } =
            answer.inspect_err(|errno| mdt.note_refusal(*errno))?;
        let mut noted = Vec::with_capacity(names.len());
        for ((asked, (_, place, name)), (lock, answer)) in asked.iter().zip(names).zip(parts) {
            let taken = match answer {
                // The parts behind it would wait, too.
                Ok(reply) if waits(&reply) => Err(Errno::EPROTO),
                Ok(reply) => {
                    self.take_attributes(mdt, &asked.about, lock, (reply, connection)).await
                }
                Err(errno) => Err(errno),
            };
            noted.push(match taken {
                Ok(child) => Ok(Some(self.note_name(place, &name.name, child))),
                // The directory has begun to change meanwhile.
                Err(Errno::ENOENT) if self.mdts.has_several() && !place.still_counts() => {
                    Err(Errno::EAGAIN)
                }
                Err(Errno::ENOENT) => {
                    self.name_absent(place, &name.name, &asked.known);
                    Ok(None)
                }
                Err(errno) => Err(errno),
            });
        }
        // Once none of these locks is in use.
        let mut found = Vec::with_capacity(names.len());
        for (noted, (_, place, name)) in noted.into_iter().zip(names) {
            found.push(match noted {
                Ok(Some(child)) => self.find_noted(who, place, &name.name, child).await,
                Ok(None) => Ok(None),
                Err(errno) => Err(errno),
            });
        }
        Ok(found)
    }

    async fn find_noted(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        noted: NotedName,
    ) -> Result<Option<Pin>, Errno> {
        let depth = LookupDepth::Attributes;
        match self.ask_if_remote(who, place, name, (noted, depth)).await {
            // See there.
            Ok(None) => self.find_name(who, place, name, depth).await,
            found => found,
        }
    }
}

/// Whether an answer says that its lock will be granted later, which no MDT says in a batch.
fn waits(reply: &LdlmIntentGetattrReply) -> bool {
    let lock = reply.dlm_rep.as_ref().filter(|lock| lock.handle != LockHandle(0));
    lock.is_some_and(|lock| lock.desc.granted_mode.mode().is_none())
}

/// What a part asks for: as Lustre's client, and as a lookup that there are no extended attributes.
fn part_lock(parent: &Inode) -> LockRequest {
    LockRequest {
        resource: parent.resource(),
        policy: Policy::bits(InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::XATTR),
        mode: LockMode::Cr,
        flags: LockFlags::HAS_INTENT,
    }
}

fn part(lock: &PendingLock, body: &MdtBody, name: &BatchedName) -> LdlmIntentGetattr {
    LdlmIntentGetattr {
        dlm_req: LdlmRequest { count: 0, ..lock.request() },
        ldlm_intent: LdlmIntent { opc: IntentOp::GETATTR },
        mdt_body: MdtBody { fid2: name.fid.unwrap_or_default(), ..body.clone() },
        name: Some(Text::from(&name.name)),
        ..LdlmIntentGetattr::default()
    }
}

/// The parts of a request, in buffers as Lustre's client fills them.
#[derive(Default)]
struct Parts {
    /// Those that are full.
    buffers: Vec<Bytes>,
    /// Those of the buffer that is being filled, and their bytes.
    filling: Vec<Bytes>,
    filled: usize,
    count: u32,
}

impl Parts {
    fn add(&mut self, part: &LdlmIntentGetattr) {
        let header = MessageHeader {
            repsize: PART_REPLY_BYTES as u32,
            sub_opcode: batch::GETATTR,
            ..MessageHeader::default()
        };
        let part = batch::batched(&header, part);
        if BatchHeader::SIZE + self.filled + part.len() >= BUFFER_BYTES {
            self.finish_buffer();
        }
        self.filled += part.len();
        self.filling.push(part);
        self.count += 1;
    }

    fn finish_buffer(&mut self) {
        let parts = std::mem::take(&mut self.filling);
        self.filled = 0;
        self.buffers.push(batch::join(BatchHeader::REQUEST_MAGIC, &parts));
    }

    /// The request: with the parts, or with where they are to be fetched.
    fn call(mut self) -> Call {
        self.finish_buffer();
        let room = BatchHeader::SIZE + self.count as usize * PART_REPLY_BYTES;
        let room = room.max(REPLY_BYTES_MIN);
        let is_inline = matches!(&self.buffers[..],
            [only] if only.len() + ButUpdateHeader::SIZE < INLINE_BYTES);
        let call = match is_inline {
            true => Call::new(self.inline(room)),
            false => {
                let source = self.buffers.iter().map(padded).collect();
                Call::new(self.announced(room)).with_bulk(Bulk::Source(source))
            }
        };
        call.with_reply_room(room)
    }

    fn inline(&self, room: usize) -> MdsBatch {
        let parts = &self.buffers[0];
        let mut header = self.header(room, 1, parts.len());
        header.put(parts);
        MdsBatch {
            but_update_header: header.into_bytes(),
            // Lustre's client sends the field, empty.
            but_update_buf: vec![ButUpdateBuffer::default()],
            ..MdsBatch::default()
        }
    }

    fn announced(&self, room: usize) -> MdsBatch {
        let pages = |buffer: &Bytes| buffer.len().next_multiple_of(BUFFER_BYTES) as u32;
        let size = |buffer: &Bytes| ButUpdateBuffer { size: pages(buffer), padding: 0 };
        MdsBatch {
            but_update_header: self.header(room, self.buffers.len(), 0).into_bytes(),
            but_update_buf: self.buffers.iter().map(size).collect(),
            ..MdsBatch::default()
        }
    }

    fn header(&self, room: usize, buffers: usize, inline: usize) -> Writer {
        let header = ButUpdateHeader {
            magic: ButUpdateHeader::MAGIC,
            count: buffers as u32,
            inline_length: inline as u32,
            reply_size: room as u32,
            update_count: self.count,
            padding: 0,
        };
        let mut writer = Writer::with_capacity(ButUpdateHeader::SIZE + inline);
        header.encode(&mut writer);
        writer
    }
}

/// A buffer as it is fetched: a whole page, whatever of it is filled.
fn padded(buffer: &Bytes) -> Bytes {
    let mut bytes = buffer.to_vec();
    bytes.resize(buffer.len().next_multiple_of(BUFFER_BYTES), 0);
    bytes.into()
}
