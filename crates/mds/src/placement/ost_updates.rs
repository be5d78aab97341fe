//! Updates that the MDT sends to OSTs after a transaction of its own (Lustre's OSP sync): destroying the
//! objects of removed files, setting the owner of objects.
//!
//! An OST update is a record in the store, written in the transaction that causes it. It is sent when
//! that transaction is durable (else a crash could bring the file back without its objects), and
//! the record is removed when the OST has answered, which it does when its disk has the change. Both
//! kinds are idempotent, so a crash in between does no harm.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::{Call, CallKind, Channel, RpcError};
use sheen_store::{Entry, Store, StoreError, Transaction, all_entries};
use sheen_target::{Target, store_errno};
use sheen_types::futures::all_pinned;
use sheen_types::{Errno, Fid, Transno, fid_seq};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstDestroy, OstSetattr};
use sheen_wire::ost::{Obdo, OstBody, OstId};

/// Index of OST updates: OST, kind and object, all big-endian, to the new owner if the kind sets one.
pub(crate) const OST_UPDATES: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x203);
/// Updates read at a time.
const STEP: usize = 512;
/// Bytes of a key.
const KEY_BYTES: usize = 19;

/// Kinds of OST updates.
const SET_OWNER: u8 = 1;
const DESTROY: u8 = 2;

/// The owner of a file, for its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) project: u32,
}

/// Adds the update that destroys an object.
pub(super) fn destroy(transaction: &mut Transaction, ost: u16, object: OstId) {
    transaction.put(OST_UPDATES, key(ost, DESTROY, object), Bytes::new());
}

/// Adds the update that sets an object's owner.
pub(super) fn set_owner(transaction: &mut Transaction, ost: u16, object: OstId, owner: Owner) {
    let mut value = Vec::with_capacity(12);
    for number in [owner.uid, owner.gid, owner.project] {
        value.extend_from_slice(&number.to_le_bytes());
    }
    transaction.put(OST_UPDATES, key(ost, SET_OWNER, object), value.into());
}

/// Objects that wait to be destroyed, for checks of a whole file system.
pub(crate) fn destroys(store: &dyn sheen_store::Store) -> Result<Vec<(u16, OstId)>, Errno> {
    let mut found = Vec::new();
    let mut from = Vec::new();
    loop {
        let entries = store.scan(OST_UPDATES, &from, STEP).map_err(store_errno)?;
        let Some(last) = entries.last() else { return Ok(found) };
        from = [&last.key[..], &[0]].concat();
        for key in entries.iter().filter_map(|entry| UpdateKey::parse(&entry.key)) {
            if key.kind == DESTROY {
                found.push((key.ost, key.object));
            }
        }
    }
}

/// What the key of an update names.
#[derive(Clone, Copy)]
struct UpdateKey {
    ost: u16,
    kind: u8,
    object: OstId,
}

impl UpdateKey {
    fn parse(key: &[u8]) -> Option<Self> {
        let (ost, rest) = key.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let (word0, rest) = rest.split_first_chunk()?;
        let word1 = rest.try_into().ok()?;
        let object = OstId { word0: u64::from_be_bytes(*word0), word1: u64::from_be_bytes(word1) };
        Some(Self { ost: u16::from_be_bytes(*ost), kind: *kind, object })
    }
}

fn key(ost: u16, kind: u8, object: OstId) -> Bytes {
    let mut key = Vec::with_capacity(KEY_BYTES);
    key.extend_from_slice(&ost.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(&object.word0.to_be_bytes());
    key.extend_from_slice(&object.word1.to_be_bytes());
    key.into()
}

/// The updates of one OST.
pub(super) struct OstUpdates {
    ost: u16,
    /// Read from the store, to be sent when this transaction is durable.
    ready: Mutex<Option<(Transno, Vec<Entry>)>>,
    /// How many are being sent, in how many requests.
    sending: Mutex<(u64, u64)>,
}

/// The updates of one OST that are not done there, for the parameter tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OstUpdateView {
    /// Those that are not sent.
    pub waiting: u64,
    /// Requests under way.
    pub in_flight: u64,
}

impl OstUpdates {
    pub(super) fn new(ost: u16) -> Self {
        Self { ost, ready: Mutex::new(None), sending: Mutex::default() }
    }

    /// Counts them in the store.
    pub(super) fn view(&self, store: &dyn Store) -> Result<OstUpdateView, StoreError> {
        let (sent, in_flight) = *self.sending.lock();
        let prefix = self.ost.to_be_bytes();
        let mut all: u64 = 0;
        for entry in all_entries(store, OST_UPDATES, &prefix) {
            if !entry?.key.starts_with(&prefix) {
                break;
            }
            all += 1;
        }
        Ok(OstUpdateView { waiting: all.saturating_sub(sent), in_flight })
    }

    /// Whether there are some in the store.
    pub(super) fn any(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let prefix = self.ost.to_be_bytes();
        let first = store.scan(OST_UPDATES, &prefix, 1)?;
        Ok(first.first().is_some_and(|entry| entry.key.starts_with(&prefix)))
    }

    /// Sends the updates whose cause is durable; returns whether some are left.
    pub(super) async fn send_durable(
        &self,
        channel: &Arc<dyn Channel>,
        target: &Arc<Target>,
    ) -> bool {
        loop {
            let ready = self.ready.lock().take();
            let (cause, entries) = match ready {
                Some(ready) => ready,
                None => match self.read_next(target) {
                    Ok(Some(ready)) => ready,
                    Ok(None) => return false,
                    Err(error) => {
                        let target = target.name();
                        tracing::error!(target, ost = self.ost, %error, "the pending OST updates cannot be read");
                        return false;
                    }
                },
            };
            if target.last_committed() < cause {
                *self.ready.lock() = Some((cause, entries));
                return true;
            }
            if let Err(error) = self.send(channel, target, &entries).await {
                tracing::debug!(ost = self.ost, %error, "OST updates are put off");
                return true;
            }
        }
    }

    fn read_next(&self, target: &Arc<Target>) -> Result<Option<(Transno, Vec<Entry>)>, StoreError> {
        let prefix = self.ost.to_be_bytes();
        let mut entries = target.store().scan(OST_UPDATES, &prefix, STEP)?;
        entries.retain(|entry| entry.key.starts_with(&prefix));
        if entries.is_empty() {
            return Ok(None);
        }
        // Behind all that the scan saw: when this is durable, so are the causes.
        let cause = target.transact_locally(Transaction::new())?;
        Ok(Some((cause, entries)))
    }

    async fn send(
        &self,
        channel: &Arc<dyn Channel>,
        target: &Arc<Target>,
        entries: &[Entry],
    ) -> Result<(), RpcError> {
        let mut runs = Vec::new();
        let mut calls = Vec::new();
        let mut at = 0;
        while let Some(entry) = entries.get(at) {
            let Some(UpdateKey { kind, object, .. }) = UpdateKey::parse(&entry.key) else {
                at += 1;
                continue;
            };
            let run = if kind == DESTROY { run_length(&entries[at..]) } else { 1 };
            calls.push(channel.call(match kind {
                DESTROY => destroy_call(object, run as u32),
                _ => owner_call(object, &entry.value),
            }));
            runs.push(&entries[at..at + run]);
            at += run;
        }
        let mut done = Transaction::new();
        *self.sending.lock() = (entries.len() as u64, calls.len() as u64);
        let _sending = Sending(&self.sending);
        // The OST answers when its disk has it: side by side, so that many share one commit.
        for (run, answer) in runs.into_iter().zip(all_pinned(calls).await) {
            match answer {
                Ok(_) | Err(RpcError::Errno(Errno::ENOENT)) => {}
                Err(error) => return Err(error),
            }
            for entry in run {
                done.delete(OST_UPDATES, entry.key.clone());
            }
        }
        let done = target.transact_locally(done);
        done.map(|_| ()).map_err(|error| RpcError::Errno(error.errno()))
    }
}

/// Nothing is being sent any more when this is dropped.
struct Sending<'a>(&'a Mutex<(u64, u64)>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        *self.0.lock() = (0, 0);
    }
}

/// How many updates from the first on destroy consecutive objects.
fn run_length(entries: &[Entry]) -> usize {
    let keys: Vec<_> = entries.iter().map_while(|entry| UpdateKey::parse(&entry.key)).collect();
    let Some(first) = keys.first().map(|key| key.object) else { return 1 };
    let follows = |(at, key): &(usize, &UpdateKey)| {
        let (object, expected) = (key.object, first.word1 + *at as u64);
        key.kind == DESTROY && object.word0 == first.word0 && object.word1 == expected
    };
    keys.iter().enumerate().take_while(follows).count().max(1)
}

fn destroy_call(object: OstId, count: u32) -> Call {
    let mut oa = Obdo { valid: Valid::ID | Valid::GROUP, oi: object, ..Obdo::default() };
    oa.set_object_count(count);
    let request = OstDestroy { ost_body: OstBody { oa }, ..OstDestroy::default() };
    Call { kind: CallKind::Idempotent, ..Call::new(request) }
}

fn owner_call(object: OstId, value: &[u8]) -> Call {
    let number = |at: usize| {
        let bytes = value.get(at * 4..at * 4 + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let valid = Valid::ID | Valid::GROUP | Valid::UID | Valid::GID | Valid::PROJID;
    let oa = Obdo {
        valid,
        oi: object,
        uid: number(0),
        gid: number(1),
        projid: number(2),
        ..Obdo::default()
    };
    let request = OstSetattr { ost_body: OstBody { oa }, ..OstSetattr::default() };
    Call { kind: CallKind::Idempotent, ..Call::new(request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_objects_go_in_one_request() {
        let entry = |kind, id| Entry {
            key: key(3, kind, OstId { word0: 9, word1: id }),
            value: Bytes::new(),
        };
        let entries = [entry(DESTROY, 4), entry(DESTROY, 5), entry(DESTROY, 7)];
        assert_eq!(run_length(&entries), 2);
        assert_eq!(run_length(&entries[2..]), 1);
        let key = UpdateKey::parse(&entries[0].key).unwrap();
        assert_eq!((key.ost, key.kind, key.object.word1), (3, DESTROY, 4));
    }
}
