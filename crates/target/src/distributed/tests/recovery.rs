//! MDTs that are lost, of several, and say to each other what that was.

use std::collections::BTreeMap;
use std::sync::Weak;

use super::*;
use crate::RecoveryStatus;

const M2: MdtIndex = MdtIndex(2);
/// Between two tries to reach an MDT that is away.
const PAUSE: Duration = Duration::from_secs(1);

/// The MDTs that run, by the way from each to each.
#[derive(Clone, Default)]
pub(super) struct OtherMdts(Arc<Mutex<BTreeMap<MdtIndex, Weak<Target>>>>);

impl OtherMdts {
    /// It is found from now on; one that it replaces is dead.
    fn has(&self, mdt: &Mdt) {
        self.0.lock().insert(mdt.target().mdt_index(), Arc::downgrade(mdt.target()));
    }

    fn is_away(&self, mdt: MdtIndex) {
        self.0.lock().remove(&mdt);
    }

    /// Once it runs.
    async fn wait_for(&self, target: &Target, mdt: MdtIndex) -> Arc<Target> {
        loop {
            let other = self.0.lock().get(&mdt).and_then(Weak::upgrade);
            if let Some(other) = other {
                return other;
            }
            target.world.clock.sleep_until(target.now() + PAUSE).await;
        }
    }
}

impl TwoKeys {
    fn other_mdts(&self) -> &OtherMdts {
        self.other_mdts.as_ref().expect("there are some")
    }
}

impl Redo for TwoKeys {
    fn changes_of(&self, updates: &[ObjectUpdate]) -> Result<Transaction, Errno> {
        let mut transaction = Transaction::new();
        updates.iter().for_each(|update| add_update(&mut transaction, update));
        Ok(transaction)
    }

    fn recover<'a>(
        &'a self,
        target: &'a Arc<Target>,
        mdt: MdtIndex,
    ) -> BoxFuture<'a, Vec<UpdateRecord>> {
        Box::pin(async move {
            let other = self.other_mdts().wait_for(target, mdt).await;
            let found = other.answer_recover(target.incarnation());
            found.iter().map(|record| UpdateRecord::clone(record)).collect()
        })
    }

    fn send_parts<'a>(&'a self, target: &'a Arc<Target>, mdt: MdtIndex) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let other = self.other_mdts().wait_for(target, mdt).await;
            other.until_redone().await;
            for record in target.missing_parts(mdt) {
                let (sender, changes) = (target.incarnation(), changes(&record, mdt));
                let applied = other.transact_part(None, sender, &record, changes).unwrap();
                let (PartApplied::Now(there) | PartApplied::Before(there)) = applied else {
                    panic!("{applied:?}")
                };
                target.part_applied(record.id, mdt, there);
            }
        })
    }

    fn release_earlier<'a>(&'a self, _: &'a Arc<Target>, _: MdtIndex) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// MDTs that know each other, and commit when they are asked to.
struct Several {
    world: TestWorld,
    other_mdts: OtherMdts,
    mdts: BTreeMap<MdtIndex, Mdt>,
}

/// Commits whenever it is asked for. Without a look at the clock: time in which nothing happens costs nothing.
fn commit_when_asked(world: &TestWorld, store: &Arc<StoreMem>) {
    let store = Arc::clone(store);
    let commit = async move {
        loop {
            std::future::poll_fn(|context| store.poll_commit_wanted(context)).await;
            store.commit().expect("it is well");
        }
    };
    world.world().tasks.spawn("commit", Box::pin(commit));
}

impl Several {
    /// All of them are each other's partners.
    async fn new(world: &TestWorld, mdts: &[MdtIndex]) -> Self {
        let mut several =
            Self { world: world.clone(), other_mdts: OtherMdts::default(), mdts: BTreeMap::new() };
        for mdt in mdts {
            several.start(*mdt, manual_store()).await;
        }
        for mdt in mdts {
            for other in mdts.iter().filter(|other| *other != mdt) {
                assert_eq!(several.of(*mdt).target().note_partner(*other).await, Ok(()));
            }
        }
        several
    }

    async fn start(&mut self, mdt: MdtIndex, store: Arc<StoreMem>) {
        commit_when_asked(&self.world, &store);
        let other_mdts = Some(self.other_mdts.clone());
        let started = Mdt::start_with(&self.world, mdt, store, other_mdts).await;
        self.other_mdts.has(&started);
        self.mdts.insert(mdt, started);
    }

    fn of(&self, mdt: MdtIndex) -> &Mdt {
        &self.mdts[&mdt]
    }

    /// What is not durable is gone; what is, is given.
    fn lose(&mut self, mdt: MdtIndex) -> Arc<StoreMem> {
        self.other_mdts.is_away(mdt);
        let lost = self.mdts.remove(&mdt).expect("it runs");
        lost.target().recovery.stop();
        Arc::new(lost.store.crash())
    }

    async fn restart(&mut self, mdt: MdtIndex) {
        let store = self.lose(mdt);
        self.start(mdt, store).await;
    }

    /// Waits until no MDT waits for another one.
    async fn settle(&self) {
        self.world.sleep(Duration::from_secs(2)).await;
        for mdt in self.mdts.values() {
            assert_eq!(mdt.target().awaited_mdts(), []);
        }
    }

    /// A change of M1's, applied there.
    async fn change(&self, client: &TestClient) -> Arc<UpdateRecord> {
        change(self.of(M1), client).await
    }
}

#[test]
fn f12_a_part_that_was_not_applied_yet_is_redone_from_its_coordinators_record() {
    let world = TestWorld::new(330);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let client = several.of(M1).node.connect("one").await;
        let made = several.change(&client).await;
        several.restart(M0).await;
        several.settle().await;
        let m0 = several.of(M0);
        assert_eq!((m0.keys(), m0.records()), (1, 1));
        assert_eq!(m0.target().view().recovery.status, RecoveryStatus::Complete);
        assert_eq!(m0.target().logical_time(), made.time);
        // It is durable, and the part that is sent again finds it.
        assert_eq!(m0.apply(&made, 1), PartApplied::Before(DURABLE));
        several.restart(M0).await;
        several.settle().await;
        let m0 = several.of(M0);
        assert_eq!(
            (m0.keys(), m0.records(), m0.apply(&made, 1)),
            (1, 1, PartApplied::Before(DURABLE))
        );
    });
}

/// F13 and F14, with a second change that builds on the first: of another coordinator, whose name comes first.
#[test]
fn f14_parts_are_redone_once_and_in_the_order_of_logical_times() {
    let world = TestWorld::new(331);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1, M2]).await;
        let (one, two) =
            (several.of(M1).node.connect("one").await, several.of(M2).node.connect("two").await);
        let key = Bytes::from_static(b"key");
        // M2's first change adds it, M1's removes it.
        let add = Arc::new(UpdateRecord {
            id: ChangeId { coordinator: M2, transno: Transno(1 << 32 | 900) },
            time: LogicalTime(5),
            parts: vec![part(M0, &key), part(M2, &key)],
            ..UpdateRecord::default()
        });
        drop(two);
        let sender = Incarnation { mdt: M2, starts: 1 };
        let at_m2 = several.of(M2).target();
        // As its coordinator has it.
        at_m2
            .history
            .in_order(|_| at_m2.distributed.0.lock().keep(Arc::clone(&add), M2, Transno(7)));
        let target = several.of(M0).target();
        let applied = target.transact_part(None, sender, &add, changes(&add, M0));
        assert!(matches!(applied, Ok(PartApplied::Now(_))));
        let mut seed = Transaction::new();
        seed.insert(KEYS, key.clone(), Bytes::new());
        several.of(M1).store.apply(seed).unwrap();
        several.of(M1).role.above.store(5, Ordering::Relaxed);
        *several.of(M1).role.removes.lock() = Some(key);
        let removed = several.change(&one).await;
        assert!(removed.time > add.time && removed.id < add.id);
        assert!(matches!(several.of(M0).apply(&removed, 1), PartApplied::Now(_)));
        assert_eq!(several.of(M0).keys(), 0);
        several.restart(M0).await;
        several.settle().await;
        let m0 = several.of(M0);
        assert_eq!((m0.keys(), m0.records()), (0, 2));
        assert_eq!(m0.apply(&removed, 1), PartApplied::Before(DURABLE));
    });
}

#[test]
fn f6_f7_f8_what_the_coordinator_has_lost_it_redoes_with_its_answer() {
    let world = TestWorld::new(332);
    world.clone().run(async move {
        for is_replay in [false, true] {
            let mut several = Several::new(&world, &[M0, M1]).await;
            let client = several.of(M1).node.connect("one").await;
            let answer = ask(&client, 1).await;
            let made = several.of(M1).role.made.lock().last().cloned().expect("made");
            several.of(M0).apply(&made, 1);
            several.restart(M1).await;
            let m1 = several.of(M1);
            let client = client.follow(&m1.node);
            client.connect().await.unwrap();
            world.sleep(Duration::from_secs(2)).await;
            assert_eq!((m1.keys(), m1.records()), (1, 1));
            let call = TestCall::new(MdsReintSetattr::default()).tagged(1);
            if is_replay {
                // F8, without a record of the answer: its tag was used again before.
                let export =
                    m1.target().export_of(&sheen_types::Uuid::new("one")).expect("it is back");
                export.lock().replies.forget_seen(answer.xid);
                let replay = call.replayed(answer.xid, answer.head.transno);
                let again = client.call_with(replay).await.expect("answered");
                assert_eq!((again.errno(), again.head.transno), (None, made.id.transno));
                finish_recovery(&client).await;
            } else {
                finish_recovery(&client).await;
                let again = client.call_with(call.resent(answer.xid)).await.expect("answered");
                assert_eq!((again.errno(), again.head.transno), (None, made.id.transno));
            }
            assert_eq!(
                (m1.keys(), m1.records(), m1.role.made.lock().len()),
                (1, 1, usize::from(is_replay))
            );
            // Its number is that of the redone one: it is no other change's.
            let next = several.change(&client).await;
            assert!(next.id > made.id);
        }
    });
}

#[test]
fn f5_a_coordinator_sends_what_other_mdts_lack_before_its_clients_go_on() {
    let world = TestWorld::new(333);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let client = several.of(M1).node.connect("one").await;
        let made = several.change(&client).await;
        several.of(M1).store.commit().unwrap();
        assert_eq!(several.of(M0).keys(), 0);
        several.restart(M1).await;
        several.settle().await;
        assert_eq!((several.of(M0).keys(), several.of(M0).records()), (1, 1));
        assert_eq!(several.of(M1).target().missing_parts(M0), []);
        // F13a: what the start before had sent comes too late.
        assert_eq!(several.of(M0).apply(&made, 1), PartApplied::TooLate);
        let status = several.of(M1).target().view().recovery.status;
        assert_eq!(status, RecoveryStatus::WaitingForClients);
    });
}

/// F21: nothing is replayed, and no client evicted, before the partner is back.
#[test]
fn f21_recovery_waits_for_partners_and_clients_are_not_to_blame() {
    let world = TestWorld::new(334);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let client = several.of(M0).node.connect("two").await;
        let mine = ask(&several.of(M1).node.connect("one").await, 1).await;
        assert_eq!(mine.errno(), None);
        several.of(M1).store.commit().unwrap();
        let stores = [M0, M1].map(|mdt| several.lose(mdt));
        let [first, second] = stores;
        several.start(M0, first).await;
        let m0 = several.of(M0);
        let client = client.follow(&m0.node);
        client.connect().await.unwrap();
        let view = m0.target().view().recovery;
        assert_eq!((view.status, view.mdts), (RecoveryStatus::WaitingForMdts, vec![M1]));
        let done = Arc::new(Mutex::new(None));
        let (place, waiting) = (Arc::clone(&done), client.clone());
        let finish = async move { *place.lock() = Some(finish_recovery(&waiting).await.errno()) };
        world.world().tasks.spawn("finish", Box::pin(finish));
        // Longer than any client may take.
        world.sleep(Duration::from_secs(900)).await;
        assert_eq!((*done.lock(), several.of(M0).keys()), (None, 0));
        several.start(M1, second).await;
        several.settle().await;
        assert_eq!((*done.lock(), several.of(M0).keys()), (Some(None), 1));
        assert_eq!(several.of(M0).target().evictions(), 0);
        assert_eq!(several.of(M0).target().view().recovery.status, RecoveryStatus::Complete);
    });
}

#[test]
fn f37_an_operator_gives_a_partner_up() {
    let world = TestWorld::new(335);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let client = several.of(M1).node.connect("one").await;
        let made = several.change(&client).await;
        several.of(M1).store.commit().unwrap();
        let store = several.lose(M1);
        several.restart(M0).await;
        world.sleep(Duration::from_secs(60)).await;
        let m0 = several.of(M0);
        assert_eq!(m0.target().recovery_status(), RecoveryStatus::WaitingForMdts);
        m0.target().abort_recovery_of_mdts().await;
        several.settle().await;
        let m0 = several.of(M0);
        assert_eq!(m0.target().recovery_status(), RecoveryStatus::Complete);
        assert_eq!((m0.keys(), m0.records()), (0, 0));
        // What only M1 has is late, and fits.
        several.start(M1, store).await;
        several.settle().await;
        assert_eq!(
            (several.of(M0).keys(), several.of(M0).target().part_here(made.id)),
            (1, Some(several.of(M0).target().last_transno()))
        );
    });
}

#[test]
fn f29_an_mdt_is_lost_again_while_it_recovers() {
    let world = TestWorld::new(336);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let client = several.of(M1).node.connect("one").await;
        several.change(&client).await;
        // Its store commits nothing: what it redoes is lost once more.
        let store = several.lose(M0);
        let other_mdts = Some(several.other_mdts.clone());
        let again = Mdt::start_with(&world, M0, Arc::clone(&store), other_mdts).await;
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!((again.keys(), again.target().awaited_mdts()), (1, vec![M1]), "not durable");
        again.target().recovery.stop();
        several.start(M0, Arc::new(store.crash())).await;
        several.settle().await;
        assert_eq!((several.of(M0).keys(), several.of(M0).records()), (1, 1));
        // Lost when that is durable, before what clients keep is revoked: the next start knows.
        let two = several.of(M0).node.connect("two").await;
        several.change(&client).await;
        several.restart(M0).await;
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(several.of(M0).keys(), 2);
        assert_eq!(several.of(M0).target().recovery_status(), RecoveryStatus::WaitingForClients);
        several.restart(M0).await;
        assert!(several.of(M0).target().view().recovery.lost_before.changes);
        drop(two);
    });
}

/// F20 to F22: all are lost at the same time, whatever of them has it.
#[test]
fn f20_f21_f22_all_are_lost_and_one_has_it() {
    let world = TestWorld::new(337);
    world.clone().run(async move {
        for durable_on in [Some(M0), Some(M1), None] {
            let mut several = Several::new(&world, &[M0, M1]).await;
            let client = several.of(M1).node.connect("one").await;
            let made = several.change(&client).await;
            several.of(M0).apply(&made, 1);
            if let Some(mdt) = durable_on {
                several.of(mdt).store.commit().unwrap();
            }
            let [first, second] = [M0, M1].map(|mdt| several.lose(mdt));
            several.start(M1, second).await;
            several.start(M0, first).await;
            several.settle().await;
            let kept = [M0, M1].map(|mdt| (several.of(mdt).keys(), several.of(mdt).records()));
            let expected = if durable_on.is_some() { (1, 1) } else { (0, 0) };
            assert_eq!(kept, [expected; 2], "{durable_on:?}");
        }
    });
}

/// F24: what it builds on is gone. It is reported, and all else goes on.
#[test]
fn f24_a_part_that_does_not_fit_is_left_out() {
    let world = TestWorld::new(338);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let client = several.of(M1).node.connect("one").await;
        let mut seed = Transaction::new();
        seed.insert(KEYS, Bytes::from_static(b"gone"), Bytes::new());
        several.of(M1).store.apply(seed).unwrap();
        *several.of(M1).role.removes.lock() = Some(Bytes::from_static(b"gone"));
        let bad = several.change(&client).await;
        several.change(&client).await;
        several.restart(M0).await;
        several.settle().await;
        let m0 = several.of(M0);
        assert_eq!((m0.keys(), m0.records(), m0.target().part_here(bad.id)), (1, 1, None));
        assert_eq!(m0.target().recovery_status(), RecoveryStatus::Complete);
    });
}

#[test]
fn parts_that_come_while_other_mdts_are_redone_wait_for_those() {
    let world = TestWorld::new(339);
    world.clone().run(async move {
        let mut several = Several::new(&world, &[M0, M1]).await;
        let store = several.lose(M1);
        several.restart(M0).await;
        let waited = Arc::new(Mutex::new(false));
        let (target, place) = (Arc::clone(several.of(M0).target()), Arc::clone(&waited));
        let wait = async move {
            target.until_redone().await;
            *place.lock() = true;
        };
        world.world().tasks.spawn("wait", Box::pin(wait));
        world.sleep(Duration::from_secs(30)).await;
        assert!(!*waited.lock());
        several.start(M1, store).await;
        several.settle().await;
        assert!(*waited.lock());
    });
}

/// A role without the means, and one without partners, wait for none.
#[test]
fn an_mdt_without_partners_waits_for_none() {
    let world = TestWorld::new(340);
    world.clone().run(async move {
        let other_mdts = Some(OtherMdts::default());
        let m0 = Mdt::start_with(&world, M0, manual_store(), other_mdts).await;
        assert_eq!(m0.target().recovery_status(), RecoveryStatus::Inactive);
        m0.target().until_redone().await;
        assert!(!m0.target().is_recovering());
    });
}
