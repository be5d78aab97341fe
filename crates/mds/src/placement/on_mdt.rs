//! How much of a file may lie on the MDT at this moment: what operators allow at most, and less the fuller
//! the MDT is (Lustre: `dom_threshold_free_mb`, `dom_stripesize_cur_kb`).

use std::time::Duration;

use parking_lot::Mutex;
use sheen_store::Store;
use sheen_target::store_errno;
use sheen_types::limits::STRIPE_SIZE_MIN;
use sheen_types::{Errno, Instant};

/// How long a look at the MDT's space is believed (`LOD_DOM_SFS_MAX_AGE`).
const BELIEVED: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// See the module's documentation. Costs a lock that is never held for long; and a look at the space
/// every ten seconds, if there is a threshold.
#[derive(Debug, Default)]
pub(crate) struct OnMdt(Mutex<OnMdtState>);

#[derive(Debug, Default)]
struct OnMdtState {
    /// Free MiB below which less may lie here; 0 for never.
    threshold: u64,
    /// Bytes of a file that may lie here now.
    now: u32,
    /// Free MiB, and when that was.
    free: u64,
    looked: Option<Instant>,
}

impl OnMdt {
    /// Bytes of a file that may lie here now, of `most`.
    pub(super) fn limit(
        &self,
        store: &dyn Store,
        most: u32,
        now: impl FnOnce() -> Option<Instant>,
    ) -> u32 {
        let mut state = self.0.lock();
        if state.threshold == 0 {
            return most;
        }
        let now = now();
        let is_old = |at: Instant| now.is_some_and(|now| now.since(at) >= BELIEVED);
        if state.looked.is_none_or(is_old) {
            state.looked = now;
            drop(state);
            let space = store.space();
            state = self.0.lock();
            // Without an answer nothing is known better than before.
            if let Ok(space) = space {
                state.free = space.free / MIB;
                state.adapt(most);
            }
        }
        state.now.min(most)
    }

    /// As [`Self::limit`], without a look at the space.
    pub(super) fn limit_known(&self, most: u32) -> u32 {
        let state = self.0.lock();
        if state.threshold == 0 { most } else { state.now.min(most) }
    }

    /// Free MiB below which less may lie here.
    pub(super) fn threshold(&self) -> u64 {
        self.0.lock().threshold
    }

    /// Sets that, and looks at the space: at first all may lie here that operators allow.
    ///
    /// # Errors
    /// Those of the store, and of `wanted`, which is given the MiB of the MDT in all.
    pub(super) fn set_threshold(
        &self,
        store: &dyn Store,
        most: u32,
        wanted: impl FnOnce(u64) -> Result<u64, Errno>,
    ) -> Result<(), Errno> {
        let space = store.space().map_err(store_errno)?;
        let wanted = wanted(space.total / MIB)?;
        let mut state = self.0.lock();
        if state.threshold == 0 {
            state.now = most;
        }
        (state.threshold, state.free) = (wanted, space.free / MIB);
        state.adapt(most);
        Ok(())
    }

    /// Operators allow so much at most from now on.
    pub(super) fn set_most(&self, most: u32) {
        self.0.lock().adapt(most);
    }
}

impl OnMdtState {
    fn adapt(&mut self, most: u32) {
        self.now = adapted(self.now, most, self.free, self.threshold);
    }
}

/// Lustre's rule. With enough space, `most`. Below, half as much as `now` if not even the part of the
/// threshold is free that `now` is of `most`, and twice as much if more than twice that is.
fn adapted(now: u32, most: u32, free: u64, threshold: u64) -> u32 {
    let least = STRIPE_SIZE_MIN as u32;
    if free >= threshold {
        return most;
    }
    if free == 0 || most <= least {
        return 0;
    }
    let threshold = (u128::from(threshold) * u128::from(now) / u128::from(most)) as u64;
    if free < threshold {
        let half = now / 2;
        half - half % least
    } else if free > threshold.saturating_mul(2) {
        now.saturating_mul(2).max(least)
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1 << 10;

    #[test]
    fn less_lies_on_an_mdt_the_fuller_it_is_as_in_lustre() {
        // Half free of the threshold: half as much is in keeping with that, whenever it is looked at.
        let mut now = 1 << 20;
        for expected in [512 * KIB, 512 * KIB, 512 * KIB] {
            now = adapted(now, 1 << 20, 500, 1000);
            assert_eq!(now, expected);
        }
        for (free, expected) in
            [(100, 256), (100, 128), (100, 64), (100, 64), (150, 128), (150, 128), (1000, 1024)]
        {
            now = adapted(now, 1 << 20, free, 1000);
            assert_eq!(now, expected * KIB, "{free} MiB free");
        }
        assert_eq!(adapted(now, 1 << 20, 10, 1000), 512 * KIB);
        assert_eq!(adapted(64 * KIB, 1 << 20, 10, 1000), 0);
        assert_eq!(adapted(0, 1 << 20, 10, 1000), 64 * KIB);
        assert_eq!(adapted(1 << 20, 1 << 20, 0, 1000), 0);
        assert_eq!(adapted(64 * KIB, 64 * KIB, 10, 1000), 0);
        assert_eq!(adapted(1 << 20, 0, 2000, 1000), 0);
    }
}
