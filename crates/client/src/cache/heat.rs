//! How much a file is read and written lately (`file_heat`, `lfs heat_get`).
//!
//! What is done within a period is counted; when it ends, that becomes part of the heat, and part of the heat
//! before is lost. Reads that the kernel serves from its own pages are not counted.

/// How heat grows and decays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The part of the new count in the heat, in parts of 256.
    pub(crate) weight: u64,
    /// Seconds; at least one.
    pub(crate) period: u64,
}

/// A file's heat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heat {
    /// Whether nothing is to be counted of this file.
    pub(crate) is_off: bool,
    reads: Instance,
    writes: Instance,
    read_bytes: Instance,
    written_bytes: Instance,
}

/// One of the numbers that make up the heat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Instance {
    heat: u64,
    /// Within the period that began at `since`, in seconds of the calendar; 0 before the first.
    count: u64,
    since: u64,
}

impl Heat {
    /// Counts that so many bytes were read or written.
    pub(crate) fn add(&mut self, rules: Rules, now: u64, is_write: bool, bytes: u64) {
        if self.is_off {
            return;
        }
        let (calls, sum) = match is_write {
            true => (&mut self.writes, &mut self.written_bytes),
            false => (&mut self.reads, &mut self.read_bytes),
        };
        calls.add(rules, now, 1);
        sum.add(rules, now, bytes);
    }

    /// Reads, writes, bytes read, bytes written: the heat of each.
    pub(crate) fn now(&mut self, rules: Rules, now: u64) -> [u64; 4] {
        let all =
            [&mut self.reads, &mut self.writes, &mut self.read_bytes, &mut self.written_bytes];
        all.map(|instance| instance.now(rules, now))
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&mut self) {
        *self = Self { is_off: self.is_off, ..Self::default() };
    }
}

impl Instance {
    fn mixed(&self, rules: Rules) -> u64 {
        let part = |value: u64, weight: u64| u128::from(value) * u128::from(weight) / 256;
        let sum = part(self.heat, 256 - rules.weight) + part(self.count, rules.weight);
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// Ends the periods that are over.
    fn decay(&mut self, rules: Rules, now: u64) {
        if self.since > now {
            // The clock was set back.
            *self = Self::default();
        }
        if self.since == 0 {
            return;
        }
        while self.since.saturating_add(rules.period) < now {
            let before = (self.heat, self.count);
            (self.heat, self.count) = (self.mixed(rules), 0);
            self.since += rules.period;
            if before == (self.heat, self.count) {
                // Nothing changes any more, however many periods there were.
                self.since += (now - 1 - self.since) / rules.period * rules.period;
                return;
            }
        }
    }

    fn add(&mut self, rules: Rules, now: u64, count: u64) {
        self.decay(rules, now);
        if self.since == 0 {
            *self = Self { since: now, ..Self::default() };
        }
        self.count = self.count.saturating_add(count);
    }

    fn now(&mut self, rules: Rules, now: u64) -> u64 {
        self.decay(rules, now);
        if self.count == 0 { self.heat } else { self.mixed(rules) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { weight: 205, period: 60 };

    #[test]
    fn heat_is_what_was_counted_and_fades() {
        let mut heat = Heat::default();
        for at in 0..10 {
            heat.add(RULES, 1000 + at, false, 4096);
        }
        heat.add(RULES, 1010, true, 100);
        // Of the period that has not ended the weight counts already.
        assert_eq!(heat.now(RULES, 1011), [8, 0, 32800, 80]);
        assert_eq!(heat.now(RULES, 1061), [8, 0, 32800, 80]);
        // The period of the write has not ended.
        assert_eq!(heat.now(RULES, 1121), [1, 0, 6534, 80]);
        heat.add(RULES, 1122, false, 4096);
        assert_eq!(heat.now(RULES, 1123), [0, 0, 4581, 80]);
        assert_eq!(heat.now(RULES, u64::MAX), [0; 4]);
        heat.clear();
        assert_eq!(heat, Heat::default());
    }

    #[test]
    fn a_clock_that_is_set_back_or_a_weight_of_nothing_does_no_harm() {
        let mut heat = Heat::default();
        heat.add(RULES, 1000, true, u64::MAX);
        heat.add(RULES, 1000, true, u64::MAX);
        assert_eq!(heat.now(RULES, 1001)[3], u64::MAX / 256 * 205 + 204);
        assert_eq!(heat.now(RULES, 999), [0; 4]);
        let rules = Rules { weight: 0, period: 1 };
        heat.add(rules, 2000, true, 1000);
        assert_eq!(heat.now(rules, u64::MAX), [0; 4]);
        heat.is_off = true;
        heat.add(RULES, 3000, true, 1000);
        assert_eq!(heat.now(RULES, 3000), [0; 4]);
    }
}
