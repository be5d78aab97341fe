//! The update log: three indexes of the store (Lustre: the catalogs `update_log`).
//!
//! The first has the records of changes that are not complete, as far as this MDT knows, under their names. The second has a
//! *note* for each coordinator: up to where its changes are complete, and so have no record any more. The third has the
//! [partners](super::partners).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sheen_store::{Store, StoreError, Transaction, all_entries};
use sheen_types::{ChangeId, Fid, LogicalTime, MdtIndex, Transno, fid_seq};
use sheen_wire::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use sheen_wire::update_record::UpdateRecord;

pub(super) const RECORDS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x300);
const NOTES: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x301);
const PARTNERS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x302);

/// Up to where a coordinator's changes are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CompletionNote {
    /// All of them.
    pub(super) upto: Transno,
    /// But these.
    pub(super) except: BTreeSet<Transno>,
    /// No less than the logical time of any whose record was removed.
    pub(super) time: LogicalTime,
}

impl CompletionNote {
    pub(super) fn has(&self, transno: Transno) -> bool {
        transno <= self.upto && !self.except.contains(&transno)
    }

    fn encode(&self) -> Bytes {
        let mut writer = Writer::default();
        self.upto.encode(&mut writer);
        self.time.encode(&mut writer);
        self.except.iter().for_each(|transno| transno.encode(&mut writer));
        writer.into_bytes()
    }

    fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let (upto, time) = (Transno::decode(&mut reader)?, LogicalTime::decode(&mut reader)?);
        let mut except = BTreeSet::new();
        while reader.remaining() > 0 {
            except.insert(Transno::decode(&mut reader)?);
        }
        Ok(Self { upto, except, time })
    }
}

/// What a store has of changes over several MDTs.
#[derive(Default)]
pub(super) struct DistributedLog {
    pub(super) records: Vec<UpdateRecord>,
    /// Of changes whose part is here; nothing more is known of them.
    pub(super) unreadable: Vec<ChangeId>,
    pub(super) notes: BTreeMap<MdtIndex, CompletionNote>,
    pub(super) partners: Vec<MdtIndex>,
}

impl DistributedLog {
    /// Reads all of it. A record that cannot be read is left where it is, and reported: other participants have it.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] for a note that is none.
    pub(super) fn load(store: &dyn Store, name: &str) -> Result<Self, StoreError> {
        let (log, errors) = Self::read(store)?;
        for (record, error) in errors {
            tracing::error!(
                target = name,
                record,
                error,
                "a record of a change over several MDTs cannot be read: this MDT redoes nothing from it; \
                check the file system with sheen fsck"
            );
        }
        Ok(log)
    }

    /// The log as far as it can be read, and which records cannot be read, and why.
    pub(super) fn read(store: &dyn Store) -> Result<(Self, Vec<(String, String)>), StoreError> {
        let (mut log, mut errors) = (Self::default(), Vec::new());
        for entry in all_entries(store, RECORDS, &[]) {
            let entry = entry?;
            let error = match UpdateRecord::decode(&entry.value) {
                Ok(record) => {
                    log.records.push(record);
                    continue;
                }
                Err(error) => error,
            };
            let id = id_of(&entry.key);
            let record = id.map_or_else(|| format!("{:?}", entry.key), |id| id.to_string());
            errors.push((record, error.to_string()));
            log.unreadable.extend(id);
        }
        for entry in all_entries(store, NOTES, &[]) {
            let entry = entry?;
            let note = CompletionNote::decode(&entry.value).map_err(|error| error.to_string());
            let (Ok(note), Some(index)) = (note, mdt_of(&entry.key)) else {
                return Err(StoreError::Corrupt("a note of complete changes".to_owned()));
            };
            log.notes.insert(index, note);
        }
        for entry in all_entries(store, PARTNERS, &[]) {
            log.partners.extend(mdt_of(&entry?.key));
        }
        Ok((log, errors))
    }
}

/// Adds a record, already encoded.
pub(super) fn put_record(transaction: &mut Transaction, id: ChangeId, record: Bytes) {
    transaction.put(RECORDS, key_of(id), record);
}

pub(super) fn delete_record(transaction: &mut Transaction, id: ChangeId) {
    transaction.delete(RECORDS, key_of(id));
}

pub(super) fn put_note(
    transaction: &mut Transaction,
    coordinator: MdtIndex,
    note: &CompletionNote,
) {
    transaction.put(NOTES, mdt_key(coordinator), note.encode());
}

pub(super) fn put_partner(transaction: &mut Transaction, mdt: MdtIndex) {
    transaction.put(PARTNERS, mdt_key(mdt), Bytes::new());
}

pub(super) fn delete_partner(transaction: &mut Transaction, mdt: MdtIndex) {
    transaction.delete(PARTNERS, mdt_key(mdt));
}

fn mdt_key(mdt: MdtIndex) -> Bytes {
    Bytes::copy_from_slice(&mdt.0.to_be_bytes())
}

fn mdt_of(key: &Bytes) -> Option<MdtIndex> {
    key.first_chunk().map(|index| MdtIndex(u16::from_be_bytes(*index)))
}

/// In the order of coordinators, and of each one's numbers.
fn key_of(id: ChangeId) -> Bytes {
    let [c0, c1] = id.coordinator.0.to_be_bytes();
    let mut key = vec![c0, c1];
    key.extend(id.transno.0.to_be_bytes());
    key.into()
}

fn id_of(key: &Bytes) -> Option<ChangeId> {
    let (coordinator, transno) = key.split_first_chunk()?;
    let transno = transno.first_chunk()?;
    Some(ChangeId {
        coordinator: MdtIndex(u16::from_be_bytes(*coordinator)),
        transno: Transno(u64::from_be_bytes(*transno)),
    })
}
