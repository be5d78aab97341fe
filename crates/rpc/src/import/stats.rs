//! What an import counts of its requests, by kind, as Lustre's `mdc.*.stats` and `osc.*.stats` do.

use std::collections::BTreeMap;
use std::time::Duration;

use sheen_types::{Instant, Nid, Transno};
use sheen_wire::ldlm::{LockFlags, LockType};
use sheen_wire::messages::{Kind, Request};
use sheen_wire::opcode::Opcode;

use crate::adaptive::Expected;
use crate::import_state::Counters;
use crate::service::Tally;

/// One kind of requests that were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Lustre's name of the kind, in capitals.
    pub name: &'static str,
    /// Microseconds from sending to the answer; only the count means something for the kinds that
    /// Lustre only counts.
    pub time_us: Tally,
    /// Whether the times are reported.
    pub is_timed: bool,
}

/// Modifying requests under way at once that are counted apart (`OBD_HIST_MAX`).
const MODIFYING_CLASSES: usize = 32;

/// All that operators see of an import's requests.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Microseconds from sending to the answer, of all requests.
    pub waited_us: Tally,
    /// How many requests were under way whenever one was sent, that one included.
    pub active: Tally,
    /// Requests that were answered, by kind.
    pub answered: Vec<Answered>,
    /// How often so many modifying requests were under way when one was sent, that one included.
    pub modifying: Vec<u64>,
    /// Modifying requests under way now.
    pub modifying_now: usize,
    /// Modifying requests under way at most.
    pub modifying_max: usize,
    /// Bytes of bulk that were written and that the target has not said to be durable.
    pub unstable_bytes: u64,
    /// When the last reply came.
    pub last_reply: Option<Instant>,
    /// When a request was sent last.
    pub last_sent: Option<Instant>,
    /// The last transaction that was replayed.
    pub last_replay: Transno,
    /// How far the target's history is durable.
    pub committed: Transno,
    /// Nodes that serve the target, the best first, and the connects to each.
    pub nids: Vec<(Nid, NidTries)>,
    /// Seconds to expect of the network.
    pub network: Expected,
    /// Seconds to expect of the target.
    pub service: Expected,
}

/// Connects to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NidTries {
    /// Sent.
    pub connects: u32,
    /// Answered.
    pub replied: u32,
    /// When the last one was sent.
    pub last: Option<Instant>,
}

/// What is counted of an import's requests.
#[derive(Default)]
pub(super) struct Stats {
    /// Since the import was made.
    pub(super) counters: Counters,
    /// When the last reply came.
    pub(super) last_reply: Option<Instant>,
    /// When a request was sent last.
    pub(super) last_sent: Option<Instant>,
    /// By whether they are timed, opcode and name.
    answered: BTreeMap<(bool, u32, &'static str), Tally>,
    waited_us: Tally,
    active: Tally,
    modifying: [u64; MODIFYING_CLASSES],
}

impl Stats {
    /// Counts anew what operators clear.
    pub(super) fn clear(&mut self) {
        let Self { counters, last_reply, last_sent, .. } = *self;
        *self = Self { counters, last_reply, last_sent, ..Self::default() };
    }

    /// A request was answered after `time`. One short search among some ten kinds.
    pub(super) fn add(&mut self, request: &Request, time: Duration) {
        let opcode = request.format().opcode;
        let (name, is_timed) = match opcode {
            Opcode::LDLM_ENQUEUE => (enqueue(request), false),
            Opcode::MDS_REINT => (reint(request.kind()), false),
            _ => (opcode.name().unwrap_or("UNKNOWN"), true),
        };
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.waited_us.add(time);
        self.answered.entry((is_timed, opcode.0, name)).or_default().add(time);
    }

    /// A request was sent, the last of so many that are under way.
    pub(super) fn sent(&mut self, active: usize) {
        self.active.add(active as u64);
    }

    /// A modifying request got its slot, the last of so many.
    pub(super) fn modifies(&mut self, under_way: usize) {
        self.modifying[under_way.min(MODIFYING_CLASSES - 1)] += 1;
    }

    /// What was counted.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            waited_us: self.waited_us,
            active: self.active,
            answered: self.all(),
            modifying: self.modifying.to_vec(),
            last_reply: self.last_reply,
            last_sent: self.last_sent,
            ..Traffic::default()
        }
    }

    /// All kinds, those that are only counted first, as Lustre lists them.
    fn all(&self) -> Vec<Answered> {
        let all = self.answered.iter();
        all.map(|((is_timed, _, name), tally)| Answered {
            name,
            time_us: *tally,
            is_timed: *is_timed,
        })
        .collect()
    }
}

/// Enqueues go by the kind of lock; those with an intent are all of inode bits, but for the glimpse.
fn enqueue(request: &Request) -> &'static str {
    let Request::LdlmEnqueue(enqueue) = request else { return "LDLM_IBITS_ENQUEUE" };
    let lock = &enqueue.dlm_req;
    match lock.desc.resource.kind {
        LockType::EXTENT if lock.flags.contains(LockFlags::HAS_INTENT) => "LDLM_GLIMPSE_ENQUEUE",
        LockType::EXTENT => "LDLM_EXTENT_ENQUEUE",
        LockType::FLOCK => "LDLM_FLOCK_ENQUEUE",
        LockType::IBITS => "LDLM_IBITS_ENQUEUE",
        _ => "LDLM_PLAIN_ENQUEUE",
    }
}

/// Changes go by what is changed.
fn reint(kind: Kind) -> &'static str {
    match kind {
        Kind::MdsReintCreate | Kind::MdsReintCreateSym => "MDS_REINT_CREATE",
        kind => kind.format().name,
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::messages::{LdlmEnqueue, LdlmIntentOpen, MdsClose, MdsReintCreateSym};

    use super::*;

    #[test]
    fn kinds_have_lustres_names_and_order() {
        let mut stats = Stats::default();
        let mut glimpse = LdlmEnqueue::default();
        glimpse.dlm_req.desc.resource.kind = LockType::EXTENT;
        glimpse.dlm_req.flags = LockFlags::HAS_INTENT;
        for micros in [5, 7] {
            stats.add(&MdsClose::default().into(), Duration::from_micros(micros));
        }
        stats.add(&MdsReintCreateSym::default().into(), Duration::from_micros(1));
        stats.add(&glimpse.into(), Duration::from_micros(1));
        stats.add(&LdlmIntentOpen::default().into(), Duration::from_micros(1));
        let all = stats.all();
        let names: Vec<_> = all.iter().map(|one| (one.name, one.time_us.count)).collect();
        assert_eq!(
            names,
            [
                ("MDS_REINT_CREATE", 1),
                ("LDLM_GLIMPSE_ENQUEUE", 1),
                ("LDLM_IBITS_ENQUEUE", 1),
                ("MDS_CLOSE", 2),
            ]
        );
        let close = all[3].time_us;
        assert!(all[3].is_timed);
        assert_eq!((close.min, close.max, close.sum, close.sum_squared), (5, 7, 12, 74));
    }
}
