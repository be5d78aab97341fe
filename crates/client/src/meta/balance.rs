//! How new directories are spread over MDTs: what operators set (`lmv.*.qos_*`), how full each MDT is, and how lately it was
//! chosen (Lustre: `lu_qos`, `ltd_qos_penalties_calc`, `ltd_qos_update`).
//!
//! An MDT's weight is what is free on it, less a penalty for having been chosen. The penalty is part of what is free:
//! `100 - qos_prio_free` per cent of it at most once more for each choice, and each choice of another MDT takes that off again.
//! What is left is halved for each eight times `qos_maxage` without a choice by weight.

use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::glob;
use sheen_types::{Errno, HashMap, Instant, MdtIndex};
use sheen_wire::md::ObdStatfs;

/// Times the age that free space is believed for, after which a penalty is halved.
const PENALTY_AGES: u64 = 8;
/// After so many halvings nothing is left of a penalty.
const HALVINGS_MAX: u64 = 120;
/// The longest pattern of names (`NAME_MAX`).
const PATTERN_BYTES_MAX: usize = 255;
/// A number of free blocks or inodes that is no greater, so that the products of all MDTs have a sum.
const FREE_MAX: u64 = 1 << 54;

/// What operators set; at first Lustre's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    /// How long it is believed how full MDTs are (`qos_maxage`).
    pub max_age: Duration,
    /// How many per cent free space counts, against not choosing one MDT twice (`qos_prio_free`).
    pub free_percent: u32,
    /// MDTs are about equally full if their free space differs by less than this many per cent (`qos_threshold_rr`).
    pub equal_percent: u32,
    /// Names of directories that stay on their parent's MDT, as shell patterns (`qos_exclude_patterns`).
    excluded: Vec<String>,
}

impl Default for BalanceSettings {
    fn default() -> Self {
        let excluded = ["_temporary", "_temporary.*"].map(str::to_owned).to_vec();
        Self { max_age: Duration::from_secs(60), free_percent: 90, equal_percent: 5, excluded }
    }
}

impl BalanceSettings {
    /// The patterns of names that stay on their parent's MDT; of prefixes those without what follows a dot.
    pub fn excluded(&self, are_prefixes: bool) -> impl Iterator<Item = &str> {
        let all = self.excluded.iter().map(String::as_str);
        all.filter(move |pattern| !are_prefixes || !pattern.ends_with(".*"))
    }

    /// Changes them as an operator writes it, like the shell's `PATH`: patterns between colons, in place of all, or after a
    /// `+` or `-`, which counts until the next one, added or removed. A prefix is one pattern alone and one before a dot.
    ///
    /// # Errors
    /// `ERANGE`: a pattern is longer than a name.
    pub fn change_excluded(&mut self, text: &str, are_prefixes: bool) -> Result<(), Errno> {
        let mut excluded = self.excluded.clone();
        let mut adds = None;
        for pattern in text.trim_end().split(':').filter(|pattern| !pattern.is_empty()) {
            let (sign, pattern) = match pattern.as_bytes()[0] {
                b'+' => (Some(true), &pattern[1..]),
                b'-' => (Some(false), &pattern[1..]),
                _ => (adds, pattern),
            };
            if pattern.len() > PATTERN_BYTES_MAX {
                return Err(Errno::ERANGE);
            }
            if pattern.is_empty() {
                break;
            }
            if sign.is_none() {
                excluded.clear();
            }
            // What follows the first one of a list without a sign is added to it.
            adds = Some(sign.unwrap_or(true));
            let behind_dot = are_prefixes.then(|| format!("{pattern}.*"));
            for pattern in [pattern.to_owned()].into_iter().chain(behind_dot) {
                excluded.retain(|it| *it != pattern);
                if adds == Some(true) {
                    excluded.push(pattern);
                }
            }
        }
        self.excluded = excluded;
        Ok(())
    }

    /// Whether a directory of this name stays on its parent's MDT.
    fn excludes(&self, name: &[u8]) -> bool {
        self.excluded.iter().any(|pattern| glob::matches(pattern.as_bytes(), name))
    }
}

/// What is free on an MDT: blocks and inodes, multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeSpace {
    pub(super) mdt: MdtIndex,
    pub(super) free: u128,
}

impl FreeSpace {
    pub(super) fn of(mdt: MdtIndex, stat: &ObdStatfs) -> Self {
        let kib = (u128::from(stat.bavail) * u128::from(stat.bsize)) >> 10;
        let kib = kib.min(u128::from(FREE_MAX));
        Self { mdt, free: kib * u128::from(stat.ffree.min(FREE_MAX)) }
    }
}

/// By what a directory is placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    pub(super) is_round_robin: bool,
    pub(super) depth: usize,
    /// The MDT of its name.
    pub(super) own: MdtIndex,
    pub(super) random: u64,
    pub(super) now: Instant,
}

/// What an MDT has still against it for having been chosen, and since when.
#[derive(Clone, Copy, Debug)]
struct Penalty {
    amount: u128,
    since: Instant,
}

/// Settings, the turn of round robin, and which MDTs were chosen lately.
#[derive(Default)]
pub struct DirectoryBalance {
    state: Mutex<BalanceState>,
}

#[derive(Default)]
struct BalanceState {
    settings: BalanceSettings,
    turn: u32,
    penalties: HashMap<MdtIndex, Penalty>,
}

impl DirectoryBalance {
    /// What operators have set.
    #[must_use]
    pub fn settings(&self) -> BalanceSettings {
        self.state.lock().settings.clone()
    }

    /// Changes that. Penalties begin anew.
    ///
    /// # Errors
    /// Those of `change`; nothing is changed then.
    pub fn change(
        &self,
        change: impl FnOnce(&mut BalanceSettings) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let mut settings = state.settings.clone();
        change(&mut settings)?;
        state.settings = settings;
        state.penalties.clear();
        Ok(())
    }

    /// Whose turn is next in round robin, as a number that is taken modulo that of the MDTs (`qos_rr_index`).
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.state.lock().turn
    }

    /// Sets that.
    pub fn set_turn(&self, turn: u32) {
        self.state.lock().turn = turn;
    }

    /// How long it is believed how full MDTs are.
    pub(super) fn max_age(&self) -> Duration {
        self.state.lock().settings.max_age
    }

    /// Whether a directory of this name stays on its parent's MDT. No allocation: each `mkdir` that a default places asks.
    pub(super) fn excludes(&self, name: &[u8]) -> bool {
        self.state.lock().settings.excludes(name)
    }

    /// The MDT of a new directory, of those that can take one.
    pub(super) fn choose(&self, space: &[FreeSpace], by: Chance) -> MdtIndex {
        let mut state = self.state.lock();
        if state.settings.finds_equal(space) {
            state.penalties.clear();
            return match by.is_round_robin {
                true => state.next_in_turn(space).unwrap_or(by.own),
                false => by.own,
            };
        }
        let total: u128 = space.iter().map(|it| it.free).sum();
        let own = space.iter().find(|it| it.mdt == by.own).map_or(0, |it| it.free);
        let share = total / space.len() as u128 / (by.depth as u128 + 10) * 16;
        if !by.is_round_robin && own >= share {
            return by.own;
        }
        let chosen = state.by_weight(space, by).unwrap_or(by.own);
        state.note_chosen(space, chosen, by.now);
        chosen
    }
}

impl BalanceSettings {
    fn finds_equal(&self, space: &[FreeSpace]) -> bool {
        let most = space.iter().map(|it| it.free).max().unwrap_or(0);
        let least = space.iter().map(|it| it.free).min().unwrap_or(0);
        most == 0 || most / 100 * u128::from(100 - self.equal_percent.min(100)) < least
    }

    /// What one choice counts against an MDT, of `mdts`.
    fn penalty_each(&self, free: u128, mdts: usize) -> u128 {
        let spread = u128::from(100 - self.free_percent.min(100));
        free / 100 * spread / (mdts.max(2) as u128 - 1)
    }
}

impl BalanceState {
    fn next_in_turn(&mut self, space: &[FreeSpace]) -> Option<MdtIndex> {
        let at = self.turn as usize % space.len().max(1);
        self.turn = self.turn.wrapping_add(1);
        space.get(at).map(|it| it.mdt)
    }

    /// What is still against an MDT.
    fn penalty(&self, mdt: MdtIndex, now: Instant) -> u128 {
        let Some(penalty) = self.penalties.get(&mdt) else { return 0 };
        let age = self.settings.max_age.as_secs().max(1).saturating_mul(PENALTY_AGES);
        let halvings = now.since(penalty.since).as_secs() / age;
        if halvings > HALVINGS_MAX { 0 } else { penalty.amount >> halvings }
    }

    /// One by chance, likelier the more its weight is.
    fn by_weight(&self, space: &[FreeSpace], by: Chance) -> Option<MdtIndex> {
        let weight = |it: &FreeSpace| it.free.saturating_sub(self.penalty(it.mdt, by.now));
        let total: u128 = space.iter().map(weight).sum();
        // 32 bits of chance are fine enough for so many MDTs.
        let mut left = (total >> 32) * u128::from(by.random >> 32);
        for it in space.iter().filter(|it| weight(it) > 0) {
            if left < weight(it) {
                return Some(it.mdt);
            }
            left -= weight(it);
        }
        space.iter().max_by_key(|it| it.free).map(|it| it.mdt)
    }

    fn note_chosen(&mut self, space: &[FreeSpace], chosen: MdtIndex, now: Instant) {
        for it in space {
            let each = self.settings.penalty_each(it.free, space.len());
            let mut amount = self.penalty(it.mdt, now);
            if it.mdt == chosen {
                amount = amount / 2 + each * space.len() as u128;
            }
            // What was halved by age stays so, and the rest ages from now on.
            match amount.saturating_sub(each) {
                0 => drop(self.penalties.remove(&it.mdt)),
                amount => drop(self.penalties.insert(it.mdt, Penalty { amount, since: now })),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(0);

    fn space(free: &[u128]) -> Vec<FreeSpace> {
        let of =
            |(at, free): (usize, &u128)| FreeSpace { mdt: MdtIndex(at as u16), free: *free << 64 };
        free.iter().enumerate().map(of).collect()
    }

    fn chosen(balance: &DirectoryBalance, free: &[u128], by: Chance) -> u16 {
        balance.choose(&space(free), by).0
    }

    const OWN: Chance =
        Chance { is_round_robin: false, depth: 3, own: MdtIndex(1), random: 0, now: START };

    /// A number that looks random (SplitMix64).
    fn random(at: u64) -> u64 {
        let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[test]
    fn while_mdts_are_equally_full_directories_go_round_or_stay() {
        let balance = DirectoryBalance::default();
        let turn = Chance { is_round_robin: true, ..OWN };
        let round: Vec<u16> = (0..5).map(|_| chosen(&balance, &[100, 98, 99], turn)).collect();
        assert_eq!((round, balance.turn()), (vec![0, 1, 2, 0, 1], 5));
        balance.set_turn(u32::MAX);
        let round: Vec<u16> = (0..2).map(|_| chosen(&balance, &[100, 98, 99], turn)).collect();
        assert_eq!(round, [0, 0], "the greatest is a multiple of 3");
        assert_eq!(chosen(&balance, &[100, 98, 99], OWN), 1);
        assert_eq!(chosen(&balance, &[], turn), 1, "none has answered");
        assert_eq!(chosen(&balance, &[0, 0], OWN), 1, "all are full");
    }

    #[test]
    fn else_they_go_where_space_is_unless_the_parents_mdt_has_its_share() {
        let balance = DirectoryBalance::default();
        let free = [1000, 1000, 10];
        assert_eq!(chosen(&balance, &free, OWN), 1, "it has more than its share");
        let full = Chance { own: MdtIndex(2), ..OWN };
        let spread: Vec<u16> = (0..1000)
            .map(|at| chosen(&balance, &free, Chance { random: random(at), ..full }))
            .collect();
        let on = |mdt| spread.iter().filter(|it| **it == mdt).count();
        assert!((450..=550).contains(&on(0)) && (450..=550).contains(&on(1)), "{}", on(0));
        assert!(on(2) < 20, "{}", on(2));
        // 86 is 0.83 of the mean: enough 9 levels down and more, not above.
        let deep = |depth| Chance { depth, ..OWN };
        assert_eq!(chosen(&balance, &[121, 86], deep(10)), 1);
        let balance = DirectoryBalance::default();
        assert_eq!(chosen(&balance, &[121, 86], deep(3)), 0);
    }

    #[test]
    fn operators_say_what_is_equal() {
        let balance = DirectoryBalance::default();
        let turn = Chance { is_round_robin: true, ..OWN };
        let spread = |balance: &DirectoryBalance| -> Vec<u16> {
            (0..4).map(|_| chosen(balance, &[100, 50], turn)).collect()
        };
        assert_eq!(spread(&balance), [0; 4], "the least of all chances is the first one's");
        let set = |percent| {
            balance.change(|it| {
                it.equal_percent = percent;
                Ok(())
            })
        };
        set(60).unwrap();
        assert_eq!(spread(&balance), [0, 1, 0, 1]);
        let refused = balance.change(|it| {
            it.equal_percent = 7;
            Err(Errno::EINVAL)
        });
        assert_eq!((refused, balance.settings().equal_percent), (Err(Errno::EINVAL), 60));
    }

    /// With `qos_prio_free` 0 an MDT is not chosen while another one was chosen longer ago; with 100 it may be each time.
    #[test]
    fn an_mdt_that_was_chosen_is_likelier_left_out_the_less_free_space_counts() {
        let repeats = |free_percent| {
            let balance = DirectoryBalance::default();
            let set = |it: &mut BalanceSettings| {
                it.free_percent = free_percent;
                Ok(())
            };
            balance.change(set).unwrap();
            let by = Chance { is_round_robin: true, ..OWN };
            let spread: Vec<u16> = (0..400)
                .map(|at| chosen(&balance, &[100, 90, 110], Chance { random: random(at), ..by }))
                .collect();
            spread.windows(2).filter(|pair| pair[0] == pair[1]).count()
        };
        let (wide, usual, free) = (repeats(0), repeats(90), repeats(100));
        assert!(wide < 20 && wide < usual && usual <= free, "{wide}, {usual}, {free}");
    }

    #[test]
    fn a_penalty_is_halved_with_time() {
        let balance = DirectoryBalance::default();
        let set = |it: &mut BalanceSettings| {
            it.free_percent = 0;
            Ok(())
        };
        balance.change(set).unwrap();
        let by = Chance { is_round_robin: true, ..OWN };
        assert_eq!(chosen(&balance, &[100, 90, 110], by), 0);
        let after = |seconds| {
            balance.state.lock().penalty(MdtIndex(0), START + Duration::from_secs(seconds))
        };
        assert!(after(0) > 0);
        assert_eq!((after(479), after(480)), (after(0), after(0) / 2));
        assert_eq!(after(480 * 200), 0);
    }

    #[test]
    fn names_that_stay_are_written_as_in_lustre() {
        let mut settings = BalanceSettings::default();
        let shown = |it: &BalanceSettings, are_prefixes| {
            it.excluded(are_prefixes).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&settings, false), "_temporary _temporary.*");
        assert!(settings.excludes(b"_temporary.17") && !settings.excludes(b"_temporary17"));
        for (are_prefixes, text, all) in [
            (false, "+a*:b\n", "_temporary _temporary.* a* b"),
            (true, "-_temporary", "a* b"),
            (false, "-b:+c:-a*", "c"),
            (true, "x:y", "x x.* y y.*"),
            (false, "", "x x.* y y.*"),
            (false, "z", "z"),
            (false, "+", "z"),
        ] {
            settings.change_excluded(text, are_prefixes).unwrap();
            assert_eq!(shown(&settings, false), all, "{text}");
        }
        settings.change_excluded("p", true).unwrap();
        assert_eq!(shown(&settings, true), "p");
        let long = "n".repeat(256);
        assert_eq!(settings.change_excluded(&long, false), Err(Errno::ERANGE));
        assert_eq!(shown(&settings, false), "p p.*");
    }
}
