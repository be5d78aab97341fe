//! Which unused locks are kept for longest (Lustre: `ldlm_cache_policy`, `lock_cache_policy`).
//!
//! A lock scores each time it becomes unused. One that scores more than other locks did lately is
//! privileged: when there are too many unused locks, those without privilege go first, so that many locks
//! of which each is needed once do not drive out those that are needed again and again. What is much used
//! now must not shut out what is used later, so the score to reach sinks to what is seen, and the oldest
//! of too many privileged locks lose their privilege. Age ends a privileged lock as any other.

/// How unused locks are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// By their last use alone (`LRU`).
    Lru,
    /// By that, but those that are used often last (`LFRU`).
    #[default]
    Lfru,
}

/// The least score to reach (`LDLM_LFRU_MIN_PRIV_THRESH`).
const SCORE_MIN: u8 = 1;
/// The most that a lock scores (`LDLM_LFRU_PRIV_THRESH_CAP`).
const SCORE_MAX: u8 = 254;
/// Share of privileged locks that is not too many, in percent (`LDLM_LFRU_PRIV_LIST_RATIO_LIMIT`).
const RATIO_LIMIT: u32 = 30;
/// So many are never too many: an eighth of Lustre's default `lru_size` on eight processors.
const PRIVILEGED_FREE: usize = 100;
/// After so many scores the one to reach is set anew: a tenth of that size.
const WINDOW: u32 = 80;
/// Privileges that end at once when there are too many (`LDLM_LFRU_PRIV_PER_ROUND_LIMIT`).
pub(super) const DEMOTED_AT_ONCE: usize = 10;

/// Which locks are privileged.
pub(super) struct Privilege {
    policy: CachePolicy,
    /// A score above it is a privilege.
    threshold: i32,
    /// In parts of 256, as Lustre has it and shows it, rounded down.
    ratio_limit: u32,
    /// The highest score of the window, and how many scores it has.
    highest: u8,
    seen: u32,
}

impl Default for Privilege {
    fn default() -> Self {
        Self {
            policy: CachePolicy::default(),
            threshold: SCORE_MIN.into(),
            ratio_limit: RATIO_LIMIT * 256 / 100,
            highest: SCORE_MIN,
            seen: 0,
        }
    }
}

impl Privilege {
    pub(super) fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// Whether that is another policy.
    pub(super) fn set_policy(&mut self, policy: CachePolicy) -> bool {
        let is_other = policy != self.policy;
        if is_other && policy == CachePolicy::Lfru {
            self.set_threshold(SCORE_MIN.into());
        }
        self.policy = policy;
        is_other
    }

    pub(super) fn threshold(&self) -> i32 {
        self.threshold
    }

    pub(super) fn set_threshold(&mut self, threshold: i32) {
        self.threshold = threshold;
        self.restart();
    }

    /// In percent.
    pub(super) fn ratio_limit(&self) -> u32 {
        self.ratio_limit * 100 / 256
    }

    pub(super) fn set_ratio_limit(&mut self, percent: u32) {
        self.ratio_limit = percent * 256 / 100;
    }

    /// Begins a new window.
    pub(super) fn restart(&mut self) {
        (self.highest, self.seen) = (SCORE_MIN, 0);
    }

    /// A lock becomes unused: counts that in its score, and says whether it is privileged.
    pub(super) fn scored(&mut self, score: &mut u8, was_privileged: bool) -> bool {
        if self.policy == CachePolicy::Lru {
            return false;
        }
        *score = score.saturating_add(1).min(SCORE_MAX);
        let is_high = i32::from(*score) > self.threshold || *score == SCORE_MAX;
        if !was_privileged {
            self.adjust(*score, is_high);
        }
        was_privileged || is_high
    }

    fn adjust(&mut self, score: u8, is_high: bool) {
        if is_high {
            return self.set_threshold(score.into());
        }
        self.highest = self.highest.max(score);
        self.seen += 1;
        if self.seen == WINDOW {
            self.set_threshold(self.highest.into());
        } else if self.seen == WINDOW / 2 {
            self.highest = (u16::from(self.highest) * 3 / 4) as u8;
        }
    }

    /// Whether so many of the unused locks may not be privileged.
    pub(super) fn is_too_much(&self, privileged: usize, unused: usize) -> bool {
        privileged >= PRIVILEGED_FREE
            && privileged as u64 >= (unused as u64 * u64::from(self.ratio_limit)) >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_to_reach_rises_with_the_best_and_sinks_to_what_is_seen() {
        let mut it = Privilege::default();
        let mut best = 0;
        assert!(!it.scored(&mut best, false), "used once");
        for threshold in 2..9 {
            assert!(it.scored(&mut best, false));
            assert_eq!(it.threshold(), threshold);
        }
        assert!(it.scored(&mut 1, true), "a privilege stays");
        assert!(!it.scored(&mut 1, false), "other locks did better");
        for _ in 0..WINDOW {
            it.scored(&mut 3, false);
        }
        assert!(it.threshold() < 8, "{}", it.threshold());
        assert!(it.scored(&mut 7, false));
    }

    #[test]
    fn scores_end_somewhere() {
        let mut it = Privilege::default();
        let mut score = 0;
        (0..1000).for_each(|_| assert_eq!(it.scored(&mut score, false), score > 1));
        assert_eq!((score, it.threshold()), (SCORE_MAX, SCORE_MAX.into()));
    }
}
