//! Load on an OST without a client (what Lustre's `echo_client` does on top of the OFD).
//!
//! A survey's objects lie in the sequence that Lustre keeps for them (`FID_SEQ_ECHO`), which no file's
//! objects are in. What is in it when the target starts was left by a process that died in a survey, and
//! is removed then.
//!
//! Reads and writes are the requests that clients send, their data in the request and in the answer as
//! with short IO, whatever its size: neither is copied.

use std::sync::Arc;

use bytes::Bytes;
use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{LocalClient, Target, store_errno};
use sheen_types::{Errno, Fid, fid_seq};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstRead, OstWrite, Reply};
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstBody, OstId};

use crate::{Ost, objects};

/// Objects made or removed in one transaction.
const STEP: usize = 512;

/// Whether an object is a survey's.
#[must_use]
pub fn is_survey(object: Fid) -> bool {
    object.seq == fid_seq::ECHO
}

impl Ost {
    /// Makes `count` objects for a survey and returns the number of the first; the rest follows it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn echo_objects(&self, target: &Arc<Target>, count: u32) -> Result<u64, Errno> {
        let sequence = self.sequences.of(fid_seq::ECHO);
        let mut last = sequence.last.lock().await;
        let before = match *last {
            Some(last) => last,
            None => objects::last_id(&*self.store, fid_seq::ECHO)?,
        };
        let now = target.world().clock.wall();
        let after = before + u64::from(count);
        for first in (before + 1..=after).step_by(STEP) {
            let end = after.min(first + STEP as u64 - 1);
            let mut transaction = Transaction::new();
            for id in first..=end {
                let object = objects::fid_in(fid_seq::ECHO, id, self.index)?;
                objects::create(&mut transaction, object, now);
            }
            objects::put_last_id(&mut transaction, fid_seq::ECHO, end);
            target.transact_locally(transaction).map_err(store_errno)?;
            *last = Some(end);
        }
        Ok(before + 1)
    }

    /// Completes when the bytes of a survey's objects are durable.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn echo_sync(
        &self,
        target: &Arc<Target>,
        first: u64,
        count: u32,
    ) -> Result<(), Errno> {
        for id in first..first + u64::from(count) {
            let object = objects::fid_in(fid_seq::ECHO, id, self.index)?;
            let store = Arc::clone(&self.store);
            let failed = Arc::new(parking_lot::Mutex::new(None));
            let result = Arc::clone(&failed);
            let job = move || *result.lock() = store.sync_data(object).err();
            target.world().tasks.blocking(Box::new(job)).await;
            let failed = failed.lock().take();
            failed.map_or(Ok(()), |error| Err(store_errno(error)))?;
        }
        Ok(())
    }
}

/// Removes the objects of all surveys; returns how many. No survey may work on them meanwhile.
///
/// # Errors
/// Those of the store: what is left is removed the next time.
pub async fn echo_clean(target: &Arc<Target>) -> Result<u64, Errno> {
    let store = target.store();
    let mut removed = 0;
    // Onwards: to pass over what is removed from the beginning takes longer each time.
    let mut from = Fid::new(fid_seq::ECHO, 0);
    loop {
        let found = surveys(&**store, from, STEP).map_err(store_errno)?;
        let Some(last) = found.last() else { return Ok(removed) };
        from = Fid { ver: 1, ..*last };
        removed += found.len() as u64;
        let mut transaction = Transaction::new();
        found.into_iter().for_each(|object| objects::destroy(&mut transaction, object));
        target.transact_locally(transaction).map_err(store_errno)?;
        sheen_io::yield_once().await;
    }
}

/// Recovery has ended: removes, beside other work, what a process that died left of a survey.
pub(crate) fn clean_soon(target: &Arc<Target>) {
    let first = Fid::new(fid_seq::ECHO, 0);
    if surveys(&**target.store(), first, 1).map_or(true, |found| found.is_empty()) {
        return;
    }
    let tasks = Arc::clone(&target.world().tasks);
    let target = Arc::clone(target);
    let clean = async move {
        match echo_clean(&target).await {
            Ok(objects) => tracing::info!(objects, "removed what a survey had left"),
            Err(errno) => tracing::warn!(%errno, "a survey's objects are left"),
        }
    };
    tasks.spawn("survey", Box::pin(clean));
}

/// Up to `limit` objects of surveys, from one on.
fn surveys(store: &dyn Store, from: Fid, limit: usize) -> Result<Vec<Fid>, StoreError> {
    let found = objects::list_from(store, from, limit)?;
    Ok(found.into_iter().filter(|object| is_survey(*object)).collect())
}

/// One task of a survey, which does one transfer after the other.
pub struct EchoWorker {
    client: LocalClient,
}

impl EchoWorker {
    /// A worker on an OST.
    ///
    /// # Errors
    /// Those of [`LocalClient::new`].
    pub fn new(target: &Arc<Target>) -> Result<Self, Errno> {
        Ok(Self { client: LocalClient::new(target, "ECHO_UUID")? })
    }

    /// Writes at a place of an object.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`], [`Errno::ENOENT`], or those of the store.
    pub async fn write(&self, object: u64, offset: u64, data: Bytes) -> Result<(), Errno> {
        let (oa, oid) = named(object);
        let (obd_ioobj, niobuf_remote) = span(oid, offset, data.len());
        let ost_body = OstBody { oa };
        let request =
            OstWrite { ost_body, obd_ioobj, niobuf_remote, short_io: data, ..OstWrite::default() };
        self.client.ask(request).await.map(drop)
    }

    /// Reads `length` bytes at a place of an object; fewer at its end.
    ///
    /// # Errors
    /// [`Errno::ENOENT`], or those of the store.
    pub async fn read(&self, object: u64, offset: u64, length: usize) -> Result<Bytes, Errno> {
        let (oa, oid) = named(object);
        let (obd_ioobj, niobuf_remote) = span(oid, offset, length);
        let ost_body = OstBody { oa };
        let request = OstRead { ost_body, obd_ioobj, niobuf_remote, ..OstRead::default() };
        match self.client.ask(request).await?.reply {
            Some(Reply::OstRead(reply)) => Ok(reply.short_io),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Ends; what it wrote stays until [`echo_clean`].
    pub async fn disconnect(self) {
        self.client.disconnect().await;
    }
}

fn named(object: u64) -> (Obdo, OstId) {
    let oi = OstId { word0: fid_seq::ECHO, word1: object };
    let valid = Valid::ID | Valid::GROUP | Valid::FLAGS;
    (Obdo { oi, valid, flags: ObdoFlags::SHORT_IO, ..Obdo::default() }, oi)
}

/// One object, one piece.
fn span(oid: OstId, offset: u64, length: usize) -> (Vec<ObdIoobj>, Vec<NiobufRemote>) {
    let piece = NiobufRemote { offset, len: length as u32, flags: BrwFlags::NONE };
    (vec![ObdIoobj { oid, max_brw: 0, bufcnt: 1 }], vec![piece])
}
