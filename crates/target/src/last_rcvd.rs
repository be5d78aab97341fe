//! What outlives the process: which clients were connected, and what was answered (Lustre's
//! `last_rcvd` and `reply_data` files).
//!
//! Two indexes of the target's store. The first holds the target's own record, the epoch of this
//! incarnation, the last transaction number, and a record per client under its UUID. The second holds a record per
//! client and slot: the newest modifying request that the client sent with this tag. A tag is
//! used again only when its reply has arrived, so a slot is overwritten, never cleaned.

use bytes::Bytes;
use sheen_store::{Entry, Store, StoreError, Transaction, all_entries};
use sheen_types::{Fid, HashMap, Transno, Uuid, fid_seq};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
pub use sheen_wire::reply_data::ReplyRecord;
use sheen_wire::wire_struct;

use crate::epoch::Epoch;

/// `LAST_RECV_OID`.
const CLIENTS: Fid = Fid::new(fid_seq::LOCAL_FILE, 11);
/// `REPLY_DATA_OID`.
const REPLIES: Fid = Fid::new(fid_seq::LOCAL_FILE, 21);
/// Key of the target's own record.
const SERVER_KEY: &[u8] = b"server";
/// Key of the last transaction number.
const TRANSNO_KEY: &[u8] = b"transno";
/// Key of the epoch of transaction numbers.
const EPOCH_KEY: &[u8] = b"epoch";
/// Keys that are there while a recovery is not over that has lost clients, and changes of theirs. Two, so that of
/// evictions at the same time none overwrites what another one says.
const LOST_CLIENTS_KEY: &[u8] = b"lost/clients";
const LOST_CHANGES_KEY: &[u8] = b"lost/changes";
/// Before the UUID in a client's key.
const CLIENT_PREFIX: &[u8] = b"client/";
/// What we write and read.
const FORMAT: u32 = 1;

/// What a client may ask for again.
type ReplyRecords = Vec<(Slot, ReplyRecord)>;

/// What is stored of a request's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyRecording {
    /// Nothing: executing the request twice does no harm (writes, setattr with absolute values).
    Idempotent,
    /// Success, and nothing more to say.
    #[default]
    Done,
    /// What the role needs to answer again.
    Keep {
        /// The reply's status.
        result: i32,
        /// The role's own: an open's disposition.
        data: u64,
    },
}

wire_struct! {
    /// A client that may come back (`struct lsd_client_data`).
    pub struct ClientRecord {
        /// The client's UUID.
        uuid: Uuid,
        /// Its number on this target.
        number: u32,
        /// The incarnation of the target that saw it first.
        instance: u32,
    }
}

wire_struct! {
    /// The target's own record (`struct lr_server_data`).
    pub struct ServerRecord {
        /// Version of these records.
        format: u32,
        /// How often the target has been started.
        instance: u32,
    }
}

/// What recoveries have lost since the last one that came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryLosses {
    /// Clients: what they had open is not known.
    pub clients: bool,
    /// What clients had to replay: other clients may keep what they have seen of it.
    pub changes: bool,
}

impl RecoveryLosses {
    fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let has = |key: &[u8]| store.lookup(CLIENTS, key).map(|value| value.is_some());
        Ok(Self { clients: has(LOST_CLIENTS_KEY)?, changes: has(LOST_CHANGES_KEY)? })
    }

    fn keys(self) -> impl Iterator<Item = &'static [u8]> {
        let keys = [(LOST_CLIENTS_KEY, self.clients), (LOST_CHANGES_KEY, self.changes)];
        keys.into_iter().filter(|(_, is_lost)| *is_lost).map(|(key, _)| key)
    }

    /// Adds a record of them.
    pub(crate) fn put(self, transaction: &mut Transaction) {
        for key in self.keys() {
            transaction.put(CLIENTS, Bytes::from_static(key), Bytes::new());
        }
    }

    /// What forgets those of which the store has a record.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn forget(store: &dyn Store) -> Result<Transaction, StoreError> {
        let mut transaction = Transaction::new();
        for key in Self::load(store)?.keys() {
            transaction.delete(CLIENTS, Bytes::from_static(key));
        }
        Ok(transaction)
    }
}

/// A client's slot. The order is that of the store's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    /// The slot's number on the wire; 0 for a client without tags.
    pub(crate) tag: u16,
    /// The place for the closes of a client without tags, which has one more for all else.
    pub(crate) is_close: bool,
}

impl Slot {
    /// The slot of a client with tags.
    pub(crate) fn of_tag(tag: u16) -> Self {
        Self { tag, is_close: false }
    }
}

/// What a store holds of the target's past.
#[derive(Debug, Default)]
pub(crate) struct LastRcvd {
    /// `None`: the target has never been started.
    pub(crate) server: Option<ServerRecord>,
    /// The last durable transaction.
    pub(crate) transno: Transno,
    /// The epoch of the incarnation before; `None` if that kept no record of it.
    pub(crate) epoch: Option<Epoch>,
    /// What earlier recoveries have lost that did not come to their end.
    pub(crate) losses: RecoveryLosses,
    /// Which clients were connected, and what each may ask for again.
    pub(crate) clients: Vec<(ClientRecord, ReplyRecords)>,
}

impl LastRcvd {
    /// Reads all records.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] for a record that is none, or a format that is newer.
    pub(crate) fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let server = lookup::<ServerRecord>(store, SERVER_KEY)?;
        if let Some(server) = server.as_ref().filter(|server| server.format != FORMAT) {
            let text = format!("client records of format {}, we know {FORMAT}", server.format);
            return Err(StoreError::Corrupt(text));
        }
        let transno = lookup(store, TRANSNO_KEY)?.unwrap_or_default();
        let mut replies = replies_by_client(store)?;
        let clients = records::<ClientRecord>(store, CLIENTS, CLIENT_PREFIX)?.into_iter();
        let clients = clients.map(|(_, record)| {
            let slots = replies.remove(&record.number.to_be_bytes()).unwrap_or_default();
            (record, slots)
        });
        let clients = clients.collect();
        let epoch = lookup(store, EPOCH_KEY)?.map(Epoch);
        let losses = RecoveryLosses::load(store)?;
        Ok(Self { server, transno, epoch, losses, clients })
    }

    /// How often the target has been started, this start included.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a count that cannot be.
    pub(crate) fn next_instance(&self) -> Result<u32, StoreError> {
        let before = self.server.as_ref().map_or(0, |server| server.instance);
        let text = || StoreError::Corrupt(format!("a count of {before} starts"));
        before.checked_add(1).ok_or_else(text)
    }

    /// The epoch of the incarnation that starts; `None` if the numbers are used up.
    pub(crate) fn next_epoch(&self) -> Option<Epoch> {
        let Some(server) = &self.server else { return Some(Epoch::FIRST) };
        // Where there is no record of it, each start began the epoch after the one before.
        Epoch::after(self.epoch.unwrap_or(Epoch(server.instance)), self.transno)
    }

    /// Makes numbers start anew, as of a target that has been started `instance` times and changed nothing.
    /// No client may replay what had other numbers: all are forgotten. The new epoch.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] if there is no way to start anew.
    pub(crate) fn renumber(
        &mut self,
        store: &dyn Store,
        instance: u32,
        transaction: &mut Transaction,
    ) -> Result<Epoch, StoreError> {
        let epoch = Epoch::after(Epoch(instance), Transno(0));
        let epoch =
            epoch.ok_or_else(|| StoreError::Corrupt("no transaction numbers".to_owned()))?;
        for (record, _) in self.clients.drain(..) {
            // Its reply records then belong to no client: [`remove_strays`].
            let none = std::iter::empty();
            let mut forgotten = remove_client(store, &record.uuid, record.number, none)?;
            transaction.changes.append(&mut forgotten.changes);
        }
        self.transno = Transno(0);
        put_transno(transaction, self.transno);
        Ok(epoch)
    }
}

pub(crate) fn put_server(transaction: &mut Transaction, instance: u32) {
    let record = ServerRecord { format: FORMAT, instance };
    transaction.put(CLIENTS, Bytes::from_static(SERVER_KEY), encode(&record));
}

pub(crate) fn put_epoch(transaction: &mut Transaction, epoch: Epoch) {
    transaction.put(CLIENTS, Bytes::from_static(EPOCH_KEY), encode(&epoch.0));
}

/// The newest transaction of the store of a target at rest: all there is of it is durable.
///
/// # Errors
/// Those of the store.
pub fn transno_at_rest(store: &dyn Store) -> Result<Transno, StoreError> {
    Ok(lookup(store, TRANSNO_KEY)?.unwrap_or_default())
}

pub(crate) fn put_transno(transaction: &mut Transaction, transno: Transno) {
    transaction.put(CLIENTS, Bytes::from_static(TRANSNO_KEY), encode(&transno));
}

pub(crate) fn put_client(transaction: &mut Transaction, record: &ClientRecord) {
    transaction.put(CLIENTS, client_key(&record.uuid), encode(record));
}

pub(crate) fn put_reply(
    transaction: &mut Transaction,
    number: u32,
    slot: Slot,
    record: &ReplyRecord,
) {
    transaction.put(REPLIES, slot_key(number, slot), encode(record));
}

/// Forgets reply records that belong to no known client: left by a request that was executed while
/// its client was evicted.
pub(crate) fn remove_strays(
    store: &dyn Store,
    known: &[u32],
    transaction: &mut Transaction,
) -> Result<(), StoreError> {
    for (key, _) in records::<ReplyRecord>(store, REPLIES, &[])? {
        let is_known = known.iter().any(|number| key.starts_with(&number.to_be_bytes()));
        if !is_known {
            transaction.delete(REPLIES, key);
        }
    }
    Ok(())
}

/// What forgets a client and the replies in `slots`; nothing if there is no record of it, as of one that
/// connected for a moment only (`LIGHTWEIGHT`), whatever it has said since.
pub(crate) fn remove_client(
    store: &dyn Store,
    uuid: &Uuid,
    number: u32,
    slots: impl Iterator<Item = Slot>,
) -> Result<Transaction, StoreError> {
    let mut transaction = Transaction::new();
    let replies = slots.map(|slot| (REPLIES, slot_key(number, slot)));
    for (table, key) in std::iter::once((CLIENTS, client_key(uuid))).chain(replies) {
        if store.lookup(table, &key)?.is_some() {
            transaction.delete(table, key);
        }
    }
    Ok(transaction)
}

fn client_key(uuid: &Uuid) -> Bytes {
    [CLIENT_PREFIX, uuid.as_str().as_bytes()].concat().into()
}

fn slot_key(number: u32, Slot { tag, is_close }: Slot) -> Bytes {
    let [c0, c1, c2, c3] = number.to_be_bytes();
    let [t0, t1] = tag.to_be_bytes();
    Bytes::copy_from_slice(&[c0, c1, c2, c3, t0, t1, u8::from(is_close)])
}

fn encode<T: Wire>(value: &T) -> Bytes {
    let mut writer = Writer::with_capacity(T::SIZE);
    value.encode(&mut writer);
    writer.into_bytes()
}

fn decode<T: Wire>(bytes: &Bytes) -> Result<T, StoreError> {
    let mut reader = Reader::new(bytes, ByteOrder::Little);
    let value = T::decode(&mut reader).and_then(|value| {
        reader.finish("record")?;
        Ok(value)
    });
    value.map_err(|error| StoreError::Corrupt(format!("record of a client: {error}")))
}

fn lookup<T: Wire>(store: &dyn Store, key: &[u8]) -> Result<Option<T>, StoreError> {
    store.lookup(CLIENTS, key)?.as_ref().map(decode).transpose()
}

/// What each client may ask for again, by its number, with which its keys begin.
fn replies_by_client(store: &dyn Store) -> Result<HashMap<[u8; 4], ReplyRecords>, StoreError> {
    let mut replies: HashMap<[u8; 4], ReplyRecords> = HashMap::default();
    for (key, reply) in records::<ReplyRecord>(store, REPLIES, &[])? {
        if let Some(number) = key.first_chunk() {
            let is_close = key.get(6).is_some_and(|close| *close != 0);
            replies.entry(*number).or_default().push((Slot { tag: reply.tag, is_close }, reply));
        }
    }
    Ok(replies)
}

/// All records of an index whose keys start with `prefix`.
fn records<T: Wire>(
    store: &dyn Store,
    index: Fid,
    prefix: &[u8],
) -> Result<Vec<(Bytes, T)>, StoreError> {
    let within = |entry: &Result<Entry, StoreError>| {
        entry.as_ref().map_or(true, |entry| entry.key.starts_with(prefix))
    };
    let entries = all_entries(store, index, prefix).take_while(within);
    let record = |entry: Entry| Ok((entry.key, decode(&entry.value)?));
    entries.map(|entry| entry.and_then(record)).collect()
}
