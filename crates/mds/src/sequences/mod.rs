//! Sequences of FIDs: the controller that allocates them, and the table of which client has which
//! (Lustre: `fid`, `fld`).
//!
//! MDT0000 is the [controller](controller). Each target gets a super-range of 2^30 sequences, recorded under its
//! first in the [table](table); from its own, an MDT gives each client one sequence at a time. How far it has got is
//! written ahead by a batch, so a crash skips numbers and repeats none.
//!
//! What always holds: an inode that a client makes lies in a sequence that was allocated, and as far as this run of
//! the MDT allocated it, to this client or its node. Which clients had the sequences of earlier runs is not known,
//! nor, behind the 65,536th, which had the oldest of the node that took most. No sequence is allocated out of
//! another target's range. An MDT without a range of its own, which is one that has never reached the controller, is
//! not [open](Sequences::is_open). Cost: a create reads a lock that only the allocation of a sequence writes.

mod controller;
mod join;
mod requests;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use sheen_io::within;
use sheen_rpc::Channel;
use sheen_store::{Store, StoreError, Transaction, all_entries};
use sheen_target::{Context, Export, Target, store_errno};
use sheen_types::{Errno, Fid, HashMap, MdtIndex, Nid, Uuid, fid_seq};
use sheen_wire::codec::{ByteOrder, Reader, Wire};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::ost::OstId;

use self::controller::{RemoteController, SequenceController};
use self::table::{SUPER_WIDTH, Table};

pub(crate) use self::join::Joining;
use self::join::TableReadings;
pub(crate) use self::table::{NEXT_KEY, RANGES};

/// Sequences reserved on disk at a time (`LUSTRE_SEQ_BATCH_WIDTH`).
const BATCH: u64 = 1000;
/// Sequences whose owners are remembered: some MiB. A client takes one for 2^17 inodes.
const OWNERS_MAX: usize = 1 << 16;
/// `SEQ_ALLOC_SUPER`, `SEQ_ALLOC_META`.
const ALLOC_SUPER: u32 = 0;
pub(crate) const ALLOC_META: u32 = 1;
/// `FLD_LOOKUP`.
const FLD_LOOKUP: u32 = 2;
/// How long a request waits for the controller. Its client asks again.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub(crate) struct Sequences {
    index: u16,
    table: Arc<Table>,
    controller: Controller,
    given: RwLock<Allocated>,
    /// Held while a reservation is written: no sequence is taken from it before it is durable.
    counter: tokio::sync::Mutex<Counter>,
    readings: TableReadings,
}

/// Where the controller is.
enum Controller {
    Here(Arc<Table>),
    Remote(RemoteController),
}

impl Controller {
    fn get(&self) -> &dyn SequenceController {
        match self {
            Self::Here(table) => table,
            Self::Remote(remote) => remote,
        }
    }
}

/// The sequences that clients may use: those that this run gave out are each one's own.
struct Allocated {
    /// Ranges of this MDT. The first sequence of the first is its own, no client's.
    own: Vec<LuSeqRange>,
    /// Nothing from here on was given out.
    next: u64,
    owners: BTreeMap<u64, Owner>,
    /// Those that MDTs make stripes in: no client's.
    of_mdts: BTreeSet<u64>,
    /// Those of each node, the oldest first.
    of_node: HashMap<Nid, VecDeque<u64>>,
}

type Owner = (Uuid, Nid);

impl Allocated {
    fn new(own: Vec<LuSeqRange>, next: u64) -> Self {
        let (owners, of_mdts) = (BTreeMap::new(), BTreeSet::new());
        Self { own, next, owners, of_mdts, of_node: HashMap::default() }
    }

    fn give(&mut self, sequence: u64, owner: Owner) {
        if self.owners.len() >= OWNERS_MAX {
            self.forget_one();
        }
        debug_assert!(sequence >= self.next, "given in order");
        self.next = sequence.saturating_add(1);
        self.of_node.entry(owner.1).or_default().push_back(sequence);
        self.owners.insert(sequence, owner);
    }

    fn give_to_mdt(&mut self, sequence: u64) {
        self.next = sequence.saturating_add(1);
        self.of_mdts.insert(sequence);
    }

    /// Forgets the oldest of the node that has most: a node that takes thousands does not make those of
    /// other nodes forgotten.
    fn forget_one(&mut self) {
        let most = self.of_node.iter().max_by_key(|(nid, theirs)| (theirs.len(), **nid));
        let Some(nid) = most.map(|(nid, _)| *nid) else { return };
        let Some(theirs) = self.of_node.get_mut(&nid) else { return };
        if let Some(oldest) = theirs.pop_front() {
            self.owners.remove(&oldest);
        }
        if theirs.is_empty() {
            self.of_node.remove(&nid);
        }
    }

    /// A client may go to another node, and one of the same node may go on with what another had.
    fn may_use(&self, sequence: u64, uuid: &Uuid, nid: Nid) -> bool {
        if self.of_mdts.contains(&sequence) {
            return false;
        }
        if let Some(owner) = self.owners.get(&sequence) {
            return owner.0 == *uuid || owner.1 == nid;
        }
        let is_own = self.own.first().is_some_and(|first| first.start == sequence);
        sequence < self.next && !is_own && self.own.iter().any(|range| range.contains(sequence))
    }
}

struct Counter {
    next: u64,
    reserved: u64,
}

impl Counter {
    /// The first sequence to be given out of these ranges. Their very first is the MDT's own, as Lustre keeps it.
    fn begin(&mut self, own: &[LuSeqRange]) -> u64 {
        let first = own.first().map_or(0, |own| own.start.saturating_add(1));
        self.next = self.next.max(first);
        self.reserved = self.next;
        self.next
    }
}

impl Sequences {
    pub(crate) fn load(store: Arc<dyn Store>, index: u16) -> Result<Self, StoreError> {
        let wrong = || StoreError::Corrupt("how far sequences have been given out".to_owned());
        let parse = |value: Bytes| Some(u64::from_le_bytes(value[..].try_into().ok()?));
        let next = store.lookup(RANGES, NEXT_KEY)?;
        let next = next.map(|value| parse(value).ok_or_else(wrong)).transpose()?.unwrap_or(0);
        let table = Arc::new(Table::load(store, index)?);
        let controller = match index {
            0 => Controller::Here(Arc::clone(&table)),
            _ => Controller::Remote(RemoteController::default()),
        };
        let counter = tokio::sync::Mutex::new(Counter { next, reserved: next });
        let given = RwLock::new(Allocated::new(Vec::new(), 0));
        let readings = TableReadings::default();
        let mut this = Self { index, table, controller, given, counter, readings };
        if this.is_controller() {
            this.of(u32::from(index), SeqRangeFlags::MDT)?;
        }
        let own = this.own_ranges();
        let next = this.counter.get_mut().begin(&own);
        *this.given.get_mut() = Allocated::new(own, next);
        Ok(this)
    }

    /// Whether this MDT gives out super-ranges.
    pub(crate) fn is_controller(&self) -> bool {
        matches!(self.controller, Controller::Here(_))
    }

    /// From now on MDT0000 is behind `channel`.
    pub(crate) fn set_controller(&self, channel: Arc<dyn Channel>) {
        if let Controller::Remote(remote) = &self.controller {
            remote.set_channel(channel);
        }
    }

    /// Whether there is a range to give sequences out of, which is durable: from then on always.
    pub(crate) fn is_open(&self) -> bool {
        !self.given.read().own.is_empty()
    }

    /// Goes over to the own ranges that the table has, which are durable.
    async fn open(&self) {
        let own = self.own_ranges();
        let next = self.counter.lock().await.begin(&own);
        *self.given.write() = Allocated::new(own, next);
    }

    /// The super-range of a target as the controller has it; a new one if it has none yet.
    pub(crate) fn of(&self, index: u32, kind: SeqRangeFlags) -> Result<LuSeqRange, StoreError> {
        debug_assert!(self.is_controller(), "other MDTs ask the controller");
        self.table.allocate(index, kind, None)
    }

    /// The super-range of an OST; `None` if the controller must be asked first.
    pub(crate) fn of_ost(&self, ost: u16) -> Result<Option<LuSeqRange>, StoreError> {
        let (index, kind) = (u32::from(ost), SeqRangeFlags::OST);
        match self.is_controller() {
            true => self.of(index, kind).map(Some),
            false => Ok(self.table.known(index, kind)),
        }
    }

    /// Whether the inodes of a sequence are another MDT's, as far as is known here.
    pub(crate) fn is_other_mdts(&self, sequence: u64) -> bool {
        self.table.is_other_mdts(sequence)
    }

    /// Whether there is another MDT, as far as is known here.
    pub(crate) fn knows_other_mdts(&self) -> bool {
        self.table.knows_other_mdts()
    }

    /// The other MDTs that have ranges, as far as is known here.
    pub(crate) fn other_mdts(&self) -> BTreeSet<MdtIndex> {
        let is_mdts = |range: &LuSeqRange| range.flags == SeqRangeFlags::MDT;
        let all = self.table.behind(0, usize::MAX, is_mdts).into_iter();
        let indexes = all.filter_map(|range| u16::try_from(range.index).ok());
        indexes.filter(|index| *index != self.index).map(MdtIndex).collect()
    }

    /// The ranges of this MDT, in the order in which it got them.
    fn own_ranges(&self) -> Vec<LuSeqRange> {
        self.table.all_of(u32::from(self.index), SeqRangeFlags::MDT)
    }

    /// Where the next sequences come from: the own range that has `next`, or begins behind it; a new one if
    /// all are used up. Behind the end of a range begins another target's.
    async fn range_with(&self, target: &Target, next: u64) -> Result<LuSeqRange, Errno> {
        let own = self.own_ranges();
        let last = own.last().cloned().ok_or(Errno::EAGAIN)?;
        let found = own.into_iter().find(|range| next < range.end);
        let is_half_used = next >= last.start.saturating_add(SUPER_WIDTH / 2);
        match found {
            Some(range) if self.is_controller() || !is_half_used => return Ok(range),
            // Asked for early: the controller may be away when it is needed.
            Some(range) => {
                if let Err(errno) = self.take_another_range(target, last.end).await {
                    tracing::warn!(%errno, "half of the sequences of FIDs are used up, and MDT0000 gives no more yet");
                }
                return Ok(range);
            }
            None => {}
        }
        let range = self.take_another_range(target, last.end).await?;
        tracing::warn!(
            start = range.start,
            "all sequences of FIDs are used up; took another range"
        );
        Ok(range)
    }

    /// The own range behind the last one.
    async fn take_another_range(&self, target: &Target, last: u64) -> Result<LuSeqRange, Errno> {
        let (index, kind) = (u32::from(self.index), SeqRangeFlags::MDT);
        let asked = self.controller.get().super_range(index, kind, Some(last));
        let clock = &*target.world().clock;
        let range = within(clock, PATIENCE, asked).await.ok_or(Errno::EINPROGRESS)??;
        self.table.learn(std::slice::from_ref(&range))?;
        Ok(range)
    }

    /// The super-range that holds a sequence, if it is known here.
    pub(crate) fn find(&self, sequence: u64) -> Option<LuSeqRange> {
        self.table.find(sequence)
    }

    /// The next sequence for a client.
    pub(crate) async fn next(&self, context: &Context) -> Result<u64, Errno> {
        let client = &context.export;
        let owner = (client.uuid().clone(), client.account_nid());
        self.take_next(&context.target, |given, sequence| given.give(sequence, owner)).await
    }

    /// The next sequence for this MDT, or another one: each takes one in a start, for stripes of directories.
    pub(crate) async fn next_for_mdt(&self, target: &Target) -> Result<u64, Errno> {
        self.take_next(target, Allocated::give_to_mdt).await
    }

    async fn take_next(
        &self,
        target: &Target,
        give: impl FnOnce(&mut Allocated, u64),
    ) -> Result<u64, Errno> {
        let mut counter = self.counter.lock().await;
        if counter.next >= counter.reserved {
            let range = self.range_with(target, counter.next).await?;
            let next = counter.next.max(range.start);
            let reserved = next.saturating_add(BATCH).min(range.end);
            let mut transaction = Transaction::new();
            let value = Bytes::copy_from_slice(&reserved.to_le_bytes());
            transaction.put(RANGES, Bytes::from_static(NEXT_KEY), value);
            // Not the client's: whatever it claims to repeat, this is written before `reserved` says so.
            target.transact_locally(transaction).map_err(store_errno)?;
            // A sequence that is used must stay used: the one write that cannot wait.
            target.sync().await?;
            (counter.next, counter.reserved) = (next, reserved);
            self.given.write().own = self.own_ranges();
        }
        let sequence = counter.next;
        counter.next += 1;
        give(&mut self.given.write(), sequence);
        Ok(sequence)
    }

    /// Whether a client may make an inode with this FID.
    pub(crate) fn may_make(&self, fid: Fid, client: &Export) -> bool {
        let is_sane = fid.is_normal() && fid.oid != 0 && fid.ver == 0;
        is_sane && self.given.read().may_use(fid.seq, client.uuid(), client.account_nid())
    }
}

/// The first sequence that was not given out, of a store that no target runs on; `None` if none was.
pub(crate) fn next(store: &dyn Store) -> Result<Option<u64>, StoreError> {
    let known = store.lookup(RANGES, NEXT_KEY)?;
    Ok(known.as_ref().and_then(|value| value.first_chunk().copied()).map(u64::from_le_bytes))
}

/// The OSTs that have a range of sequences for their objects, of a store that no target runs on.
pub(crate) fn osts(store: &dyn Store) -> Result<Vec<u16>, StoreError> {
    let mut found = Vec::new();
    for entry in all_entries(store, RANGES, &[]) {
        let entry = entry?;
        let mut reader = Reader::new(&entry.value, ByteOrder::Little);
        // What a salvage has restored broken is reported when the target starts.
        let range = LuSeqRange::decode(&mut reader).ok();
        let range = range.filter(|it| entry.key != NEXT_KEY && it.flags == SeqRangeFlags::OST);
        found.extend(range.and_then(|range| u16::try_from(range.index).ok()));
    }
    Ok(found)
}

/// Whether the MDT of a store, on which no target runs, knows another MDT: it has a range of sequences.
///
/// # Errors
/// Those of the store.
pub fn has_other_mdts(store: &dyn Store, index: u16) -> Result<bool, StoreError> {
    for entry in all_entries(store, RANGES, &[]) {
        let entry = entry?;
        let mut reader = Reader::new(&entry.value, ByteOrder::Little);
        let range = LuSeqRange::decode(&mut reader).ok().filter(|_| entry.key != NEXT_KEY);
        if range.is_some_and(|it| it.flags == SeqRangeFlags::MDT && it.index != index.into()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The MDT in whose sequence an object lies: the one of its number in the range of the OST, behind the OST's own.
pub(crate) fn mdt_of_objects(object: &OstId) -> Option<MdtIndex> {
    if object.word1 == fid_seq::OST_MDT0 {
        return Some(MdtIndex(0));
    }
    let place = object.word0.checked_sub(fid_seq::NORMAL)? % SUPER_WIDTH;
    u16::try_from(place.checked_sub(1)?).ok().map(MdtIndex)
}

/// Takes a whole sequence for new inodes, of a store that no target runs on.
pub(crate) fn take(store: &dyn Store) -> Result<u64, StoreError> {
    // The first of all is the MDT's own.
    let sequence = next(store)?.unwrap_or(fid_seq::NORMAL + 1);
    note_used(store, sequence).map(|()| sequence)
}

/// Notes in a store that no target runs on that sequences up to `sequence` are in use.
pub(crate) fn note_used(store: &dyn Store, sequence: u64) -> Result<(), StoreError> {
    let first = sequence.saturating_add(1);
    if next(store)?.is_some_and(|known| known >= first) {
        return Ok(());
    }
    let mut transaction = Transaction::new();
    let value = Bytes::copy_from_slice(&first.to_le_bytes());
    transaction.put(RANGES, Bytes::from_static(NEXT_KEY), value);
    store.apply(transaction).map(drop)
}

#[cfg(test)]
mod tests {
    use sheen_store_mem::{MemOptions, StoreMem};
    use sheen_wire::codec::Writer;

    use super::*;

    fn record(transaction: &mut Transaction, start: u64, index: u32) {
        let flags = SeqRangeFlags::OST;
        let range = LuSeqRange { start, end: start + SUPER_WIDTH, index, flags };
        let mut writer = Writer::with_capacity(LuSeqRange::SIZE);
        range.encode(&mut writer);
        let key = Bytes::copy_from_slice(&start.to_be_bytes());
        transaction.put(RANGES, key, writer.into_bytes());
    }

    #[test]
    fn no_range_is_given_twice_however_many_there_are() {
        const COUNT: u32 = 66_000;
        let store: Arc<dyn Store> = Arc::new(StoreMem::new(MemOptions::default()));
        let mut transaction = Transaction::new();
        for index in 0..COUNT {
            let start = fid_seq::NORMAL + u64::from(index) * SUPER_WIDTH;
            record(&mut transaction, start, index);
        }
        store.apply(transaction).unwrap();
        let end = fid_seq::NORMAL + u64::from(COUNT) * SUPER_WIDTH;
        let sequences = Sequences::load(Arc::clone(&store), 0).unwrap();
        // That of the MDT itself is made by the load.
        let own = sequences.of(0, SeqRangeFlags::MDT).unwrap();
        assert_eq!(own.start, end);
        assert_eq!(sequences.find(end - 1).unwrap().index, COUNT - 1);
        let again = Sequences::load(store, 0).unwrap();
        assert_eq!(again.of(0, SeqRangeFlags::MDT).unwrap(), own);
        assert_eq!(again.of(COUNT, SeqRangeFlags::OST).unwrap().start, own.end);
    }

    #[test]
    fn a_client_that_takes_many_sequences_makes_none_of_another_forgotten() {
        let of = |name: &str, host: u64| (Uuid::new(name), Nid(0x2_0000_0a00_0000 + host));
        let (one, hog, other) = (of("one", 1), of("hog", 2), of("other", 3));
        let start = fid_seq::NORMAL;
        let flags = SeqRangeFlags::MDT;
        let range = LuSeqRange { start, end: start + SUPER_WIDTH, index: 0, flags };
        let mut given = Allocated::new(vec![range], start + 1);
        given.give(start + 1, one.clone());
        let many = OWNERS_MAX as u64 + 100;
        (0..many).for_each(|n| given.give(start + 2 + n, hog.clone()));
        let may = |given: &Allocated, sequence, who: &Owner| given.may_use(sequence, &who.0, who.1);
        assert!(may(&given, start + 1, &one) && !may(&given, start + 1, &other));
        assert!(!may(&given, start + 1 + many, &other) && may(&given, start + 1 + many, &hog));
        assert!(may(&given, start + 2, &other), "the hog's oldest is forgotten");
        assert!(!may(&given, start + 2 + many, &hog), "no client has it yet");
        assert!(!may(&given, start, &hog), "the MDT's own");
        assert!(given.owners.len() <= OWNERS_MAX);
    }
}
