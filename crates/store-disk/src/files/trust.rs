//! What of the kept checksums and lengths still holds after a crash.
//!
//! Time is counted in *epochs*, which end when all data of the store is synced. What the database keeps
//! of a file says in which epoch that was so. While the machine runs, all of it holds: bytes that were
//! written outlive the process. When it was another boot of the machine that wrote it, only epochs that
//! were synced hold, of later ones nothing but the lengths that were durable. Openings have epochs of
//! their own, so that none comes twice.

use parking_lot::Mutex;
use sheen_store::StoreError;

use super::sums::{DURABLE, Epoch};
use crate::limits;

/// Which boot of the machine it is (`/proc/sys/kernel/random/boot_id`), or any other text that is new
/// when memory was lost.
pub(crate) type Machine = Option<String>;

/// Epochs of one opening.
const OPENING_BITS: u32 = 32;
const VERSION: u8 = 1;

/// What the database keeps of all this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StoredTrust {
    machine: Machine,
    /// All that was written in this epoch or before is durable.
    synced: Epoch,
    /// The process that wrote it left nothing that was not synced.
    all_synced: bool,
    /// After the first, up to the second: lost with the machine's memory, or may be.
    losses: Vec<(Epoch, Epoch)>,
}

struct TrustState {
    kept: StoredTrust,
    epoch: Epoch,
    dirty: bool,
}

/// See the module's documentation.
pub(super) struct Trust {
    state: Mutex<TrustState>,
    /// An earlier process of this boot may have left data that is not synced.
    unsynced_before: bool,
}

impl Trust {
    /// `kept` is what [`Self::encode`] gave; `openings`: how many there have been, with this one. `keeps`: bytes in the host's memory
    /// can be made durable later, all at once.
    pub(super) fn open(
        kept: Option<&[u8]>,
        machine: Machine,
        openings: u64,
        keeps: bool,
    ) -> Result<Self, StoreError> {
        let corrupt = || StoreError::Corrupt("the epochs of the store".to_owned());
        let had = kept.map(|bytes| StoredTrust::decode(bytes).ok_or_else(corrupt)).transpose()?;
        let first = openings << OPENING_BITS;
        let mut kept = had.clone().unwrap_or_default();
        let is_same = keeps && machine.is_some() && kept.machine == machine;
        if had.is_some() && !is_same {
            kept.lose(first - 1);
        }
        kept.machine = machine;
        let unsynced_before = is_same && !std::mem::take(&mut kept.all_synced);
        let state = TrustState { kept, epoch: first + 1, dirty: true };
        Ok(Self { state: Mutex::new(state), unsynced_before })
    }

    /// The last epoch of an opening before this one.
    pub(super) fn last_before(openings: u64) -> Epoch {
        (openings << OPENING_BITS) - 1
    }

    /// Whether data may lie in the host's memory that an earlier process wrote.
    pub(super) fn has_unsynced(&self) -> bool {
        self.unsynced_before
    }

    /// The epoch of what is kept now.
    pub(super) fn epoch(&self) -> Epoch {
        self.state.lock().epoch
    }

    /// Before all data is synced: returns what [`Self::ended`] is given when it is.
    pub(super) fn end(&self) -> Epoch {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.epoch - 1
    }

    /// All that was written in this epoch is durable.
    pub(super) fn ended(&self, epoch: Epoch) {
        let mut state = self.state.lock();
        state.dirty |= epoch > state.kept.synced;
        state.kept.synced = state.kept.synced.max(epoch);
    }

    /// The store is closed, and all is synced.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.kept.synced = state.epoch;
        state.epoch += 1;
        (state.kept.all_synced, state.dirty) = (true, true);
    }

    /// Whether all that was written in this epoch is durable.
    pub(super) fn is_synced(&self, epoch: Epoch) -> bool {
        let state = self.state.lock();
        epoch & DURABLE != 0 || (epoch <= state.kept.synced && !state.kept.is_lost(epoch))
    }

    /// Whether all that was written in this epoch is there.
    pub(super) fn holds(&self, epoch: Epoch) -> bool {
        epoch & DURABLE != 0 || !self.state.lock().kept.is_lost(epoch)
    }

    /// What the database is to keep, if that has changed.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.dirty).then(|| state.kept.encode())
    }
}

impl StoredTrust {
    fn is_lost(&self, epoch: Epoch) -> bool {
        self.losses.iter().any(|(from, until)| (*from + 1..=*until).contains(&epoch))
    }

    fn lose(&mut self, until: Epoch) {
        self.losses.push((self.synced, until));
        if self.losses.len() > limits::LOSSES_MAX {
            let (_, until) = self.losses.remove(1);
            self.losses[0].1 = until;
        }
    }

    fn encode(&self) -> Vec<u8> {
        let machine = self.machine.as_deref().unwrap_or("");
        let mut out = vec![VERSION];
        out.extend((machine.len() as u32).to_le_bytes());
        out.extend(machine.as_bytes());
        out.extend(self.synced.to_le_bytes());
        out.push(self.all_synced.into());
        for (from, until) in &self.losses {
            out.extend(from.to_le_bytes());
            out.extend(until.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (machine, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (synced, rest) = rest.split_first_chunk()?;
        let (all_synced, rest) = rest.split_first()?;
        let wide = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let loss = |bytes: &[u8]| Some((wide(bytes.get(..8)?)?, wide(bytes.get(8..)?)?));
        let machine = str::from_utf8(machine).ok()?;
        (*version == VERSION).then_some(())?;
        Some(Self {
            machine: (!machine.is_empty()).then(|| machine.to_owned()),
            synced: u64::from_le_bytes(*synced),
            all_synced: *all_synced != 0,
            losses: rest.chunks(16).map(loss).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Machine {
        Some(name.to_owned())
    }

    #[test]
    fn what_was_not_synced_is_lost_with_the_machine_and_not_with_the_process() {
        let first = Trust::open(None, machine("a"), 1, true).expect("opens");
        let early = first.epoch();
        first.ended(first.end());
        let late = first.epoch();
        assert!(first.is_synced(early) && !first.is_synced(late));
        let kept = first.encode().expect("it has changed");
        assert_eq!(first.encode(), None);
        let killed = Trust::open(Some(&kept), machine("a"), 2, true).expect("opens");
        assert!(killed.holds(early) && killed.holds(late) && killed.has_unsynced());
        let lost = Trust::open(Some(&kept), machine("b"), 2, true).expect("opens");
        assert!(lost.holds(early) && !lost.holds(late) && !lost.has_unsynced());
        lost.ended(lost.end());
        assert!(!lost.is_synced(late), "what comes later makes it no better");
        assert!(lost.holds(lost.epoch()));
        let again = lost.encode().expect("it has changed");
        let again = Trust::open(Some(&again), machine("b"), 3, true).expect("opens");
        assert!(!again.holds(late) && again.holds(early));
        killed.close();
        let closed = killed.encode().expect("it has changed");
        let closed = Trust::open(Some(&closed), machine("a"), 3, true).expect("opens");
        assert!(!closed.has_unsynced() && closed.is_synced(late));
        let unknown = Trust::open(Some(&kept), None, 2, true).expect("opens");
        assert!(!unknown.holds(late), "a machine that does not report its boot");
    }

    #[test]
    fn the_oldest_losses_are_taken_together() {
        let mut kept = StoredTrust::default();
        for until in 1..=2 * limits::LOSSES_MAX as u64 {
            kept.synced = 10 * until;
            kept.lose(10 * until + 5);
        }
        assert_eq!(kept.losses.len(), limits::LOSSES_MAX);
        assert!(kept.is_lost(11) && kept.is_lost(30), "taken together");
        let last = 20 * limits::LOSSES_MAX as u64;
        assert!(kept.is_lost(last + 1) && !kept.is_lost(last) && !kept.is_lost(last - 3));
        assert_eq!(StoredTrust::decode(&kept.encode()), Some(kept));
        assert_eq!(StoredTrust::decode(b""), None);
    }
}
