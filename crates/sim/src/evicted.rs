//! Which clients were evicted, as the servers know it: the client learns it later.
//!
//! Until then it may show what it kept, and accept what it will lose; nothing of that is judged, and
//! what it had not made durable may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::Role;
use sheen_target::{Export, Target};
use sheen_types::{Instant, Nid, Uuid};

use crate::hostile::is_hostile;
use crate::model::Writer;
use crate::run::Sim;

/// How long a client may take until it has learnt it and invalidated everything: it may be disconnected.
const LEARNS_WITHIN: Duration = Duration::from_secs(150);
/// So long after the start of an MDT an eviction may lose what was to be replayed.
const RECOVERS_WITHIN: Duration = Duration::from_secs(300);

/// What was seen of one target.
#[derive(Default)]
struct Seen {
    instance: u32,
    evictions: u64,
    /// Exports by handle.
    exports: BTreeMap<u64, (Uuid, Nid)>,
}

impl Seen {
    /// Whether nothing has changed: asked with every operation, and then nearly always so.
    fn is_of(&self, target: &Target, exports: &[Arc<Export>]) -> bool {
        let known = |export: &Arc<Export>| {
            self.exports.get(&export.handle().0).is_some_and(|(_, nid)| *nid == export.nid())
        };
        self.instance == target.instance()
            && self.evictions == target.evictions()
            && self.exports.len() == exports.len()
            && exports.iter().all(known)
    }
}

/// What is known. See the module.
#[derive(Default)]
pub(crate) struct Evicted {
    targets: BTreeMap<String, Seen>,
    nids: BTreeMap<String, Nid>,
    /// UUIDs of processes that died, or are about to unmount.
    ended: BTreeSet<String>,
    since: BTreeMap<Writer, Instant>,
    /// When the MDT was started last.
    mdt_started: Instant,
}

impl Evicted {
    /// A client's process has died, or unmounts: its later evictions do not matter.
    pub(crate) fn ends(&mut self, nid: Nid) {
        let of_it = self.nids.iter().filter(|(_, at)| **at == nid);
        let uuids: Vec<String> = of_it.map(|(uuid, _)| uuid.clone()).collect();
        self.ended.extend(uuids);
    }

    /// Whether the MDT may still be recovering.
    pub(crate) fn is_mdt_fresh(&self, now: Instant) -> bool {
        self.mdt_started > Instant(0) && now.since(self.mdt_started) < RECOVERS_WITHIN
    }

    /// A server was away: a client that has not learnt of its eviction needs time again.
    pub(crate) fn delays(&mut self, now: Instant) {
        let learning = self.since.values_mut().filter(|since| now.since(**since) <= LEARNS_WITHIN);
        learning.for_each(|since| *since = now);
    }

    /// The MDT starts again.
    pub(crate) fn mdt_starts(&mut self, now: Instant) {
        self.mdt_started = now;
    }
}

impl Sim {
    /// Whether what a client sees counts.
    pub(crate) fn trusts(&self, client: Writer) -> bool {
        self.look_for_evictions();
        let since = self.evicted.lock().since.get(&client).copied();
        since.is_none_or(|since| self.now().since(since) > LEARNS_WITHIN)
    }

    /// Asks all targets.
    pub(crate) fn look_for_evictions(&self) {
        let mut lost = Vec::new();
        let mut names_lost = false;
        {
            let evicted = &mut *self.evicted.lock();
            for served in self.cluster.served() {
                let target = &served.target;
                let exports = target.exports();
                if evicted.targets.get(target.name()).is_some_and(|it| it.is_of(target, &exports)) {
                    continue;
                }
                let seen = evicted.targets.entry(target.name().to_owned()).or_default();
                if seen.instance != target.instance() {
                    *seen = Seen { instance: target.instance(), ..Seen::default() };
                }
                let now: BTreeMap<u64, (Uuid, Nid)> = exports
                    .iter()
                    .map(|export| (export.handle().0, (export.uuid().clone(), export.nid())))
                    .collect();
                let known = now.values().filter(|(_, nid)| *nid != Nid::ANY);
                evicted.nids.extend(known.map(|(uuid, nid)| (uuid.to_string(), *nid)));
                let count = target.evictions();
                if count > seen.evictions {
                    let gone = seen.exports.iter().filter(|(it, _)| !now.contains_key(it));
                    let gone = gone.map(|(_, (uuid, _))| uuid.to_string());
                    // A hostile client has changed nothing that other clients would miss.
                    let all_hostile = count - seen.evictions <= gone.clone().count() as u64
                        && gone.clone().all(|uuid| is_hostile(&uuid));
                    lost.extend(gone);
                    let since = self.world.now().since(evicted.mdt_started);
                    let of_mdt = matches!(served.role, Role::Mdt(_)) && since < RECOVERS_WITHIN;
                    names_lost |= of_mdt && !all_hostile;
                }
                (seen.evictions, seen.exports) = (count, now);
            }
        }
        if names_lost {
            self.model.lock().lose_changes();
        }
        for uuid in lost {
            self.evict(&uuid);
        }
    }

    fn evict(&self, uuid: &str) {
        let now = self.now();
        let client = {
            let evicted = &mut *self.evicted.lock();
            if evicted.ended.contains(uuid) {
                return;
            }
            let Some(nid) = evicted.nids.get(uuid) else { return };
            let client = self.cluster.clients.iter().position(|client| client.nid == *nid);
            let Some(client) = client else { return };
            evicted.since.insert(client as Writer, now);
            client as Writer
        };
        self.say(format_args!("client {client} is evicted"));
        if !self.may_evict() {
            self.fail(format_args!("client {client} is evicted, and nothing had failed"));
        }
        let mut model = self.model.lock();
        model.files.lose(Some(client));
        model.logs.lose(Some(client));
        model.losses.lose(Some(client), now, LEARNS_WITHIN);
        model.locks.lost(client);
    }
}
