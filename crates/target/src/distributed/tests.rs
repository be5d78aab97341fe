//! Two MDTs, M0 and M1, of which M1 coordinates. The tests carry what they say to each other.

mod recovery;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_store_mem::StoreMem;
use sheen_types::Fid;
use sheen_wire::messages::{MdsReintSetattr, MdsReintSetattrReply, Request};
use sheen_wire::out::{ObjectUpdate, UpdateType};
use sheen_wire::update_record::Part;

use super::*;
use crate::testing::{TestAnswer, TestCall, TestClient, TestTarget, TestWorld};
use crate::tests::{config, finish_recovery, manual_store};
use crate::{Operations, Outcome, TargetConfig};

const KEYS: Fid = Fid::new(0x2_0000_0401, 1);
const M0: MdtIndex = MdtIndex(0);
const M1: MdtIndex = MdtIndex(1);
/// As what a part was applied that is durable.
const DURABLE: Transno = Transno(0);

/// Each setattr adds a key on M0 and one on M1, of the same name.
#[derive(Default)]
struct TwoKeys {
    relied_on: Mutex<Vec<Incarnation>>,
    above: AtomicU64,
    made: Mutex<Vec<Arc<UpdateRecord>>>,
    /// The next change removes this key instead.
    removes: Mutex<Option<Bytes>>,
    /// How MDTs ask each other what they have lost, in tests of that.
    other_mdts: Option<recovery::OtherMdts>,
}

fn part(mdt: MdtIndex, key: &Bytes) -> Part {
    let (kind, params) = (UpdateType::INDEX_INSERT, vec![key.clone()]);
    let update = ObjectUpdate { kind, fid: KEYS, params, ..ObjectUpdate::default() };
    Part { mdt, updates: vec![update] }
}

/// What the part of an MDT comes to.
fn changes(record: &UpdateRecord, mdt: MdtIndex) -> Transaction {
    let mut transaction = Transaction::new();
    let updates = &record.part_of(mdt).expect("it takes part").updates;
    updates.iter().for_each(|update| add_update(&mut transaction, update));
    transaction
}

fn add_update(transaction: &mut Transaction, update: &ObjectUpdate) {
    let key = update.params[0].clone();
    match update.kind {
        UpdateType::INDEX_DELETE => transaction.delete(update.fid, key),
        _ => transaction.insert(update.fid, key, Bytes::new()),
    };
}

impl Operations for TwoKeys {
    fn operate<'a>(
        &'a self,
        context: &'a Context,
        _request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            let key = Bytes::from(format!("{}", context.xid));
            let above = LogicalTime(self.above.load(Ordering::Relaxed));
            let relied_on = self.relied_on.lock().clone();
            let removed = self.removes.lock().take();
            let recording = ReplyRecording::Keep { result: 0, data: 7 };
            let target = &context.target;
            let build = |id, time| {
                let mut parts = vec![part(M0, &key), part(M1, &key)];
                if let Some(key) = &removed {
                    parts = vec![part(M0, key), part(M1, key)];
                    let updates = parts.iter_mut().flat_map(|part| &mut part.updates);
                    updates.for_each(|update| update.kind = UpdateType::INDEX_DELETE);
                }
                let record = UpdateRecord { id, time, parts, ..UpdateRecord::default() };
                (changes(&record, target.mdt_index()), record)
            };
            let made =
                target.transact_coordinated(Some(context), &relied_on, above, recording, build);
            let made = made.map_err(|error| error.errno())?.ok_or(Errno::EAGAIN)?;
            self.made.lock().push(made);
            Ok(Outcome::ok(MdsReintSetattrReply::default()))
        })
    }

    fn redo(&self) -> Option<&dyn Redo> {
        self.other_mdts.is_some().then_some(self)
    }
}

fn config_of(mdt: MdtIndex) -> TargetConfig {
    TargetConfig { name: format!("lustre-MDT{:04x}", mdt.0), index: mdt.0, ..config() }
}

struct Mdt {
    store: Arc<StoreMem>,
    node: TestTarget,
    role: Arc<TwoKeys>,
}

impl Mdt {
    async fn start(world: &TestWorld, mdt: MdtIndex, store: Arc<StoreMem>) -> Self {
        Self::start_with(world, mdt, store, None).await
    }

    async fn start_with(
        world: &TestWorld,
        mdt: MdtIndex,
        store: Arc<StoreMem>,
        other_mdts: Option<recovery::OtherMdts>,
    ) -> Self {
        let role = Arc::new(TwoKeys { other_mdts, ..TwoKeys::default() });
        let operations: Arc<dyn Operations> = role.clone();
        let node = TestTarget::start(world, store.clone(), config_of(mdt), operations).await;
        node.target.track_dependencies();
        Self { store, node, role }
    }

    /// Loses what is not durable, and starts anew.
    async fn crash(self, world: &TestWorld) -> Self {
        let mdt = self.node.target.mdt_index();
        Self::start(world, mdt, Arc::new(self.store.crash())).await
    }

    fn target(&self) -> &Arc<Target> {
        &self.node.target
    }

    fn keys(&self) -> usize {
        self.store.scan(KEYS, &[], 100).expect("it can be read").len()
    }

    fn records(&self) -> usize {
        let log = DistributedLog::load(&*self.store, "test").expect("it can be read");
        assert_eq!(log.records.len(), self.target().incomplete_changes());
        log.records.len()
    }

    /// Applies the part that M1 sends.
    fn apply(&self, record: &Arc<UpdateRecord>, starts: u32) -> PartApplied {
        let mdt = self.target().mdt_index();
        let sender = Incarnation { mdt: M1, starts };
        let applied = self.target().transact_part(None, sender, record, changes(record, mdt));
        applied.expect("the store is well")
    }

    fn has_started(&self, mdt: MdtIndex, starts: u32) -> Vec<Arc<UpdateRecord>> {
        self.target().answer_recover(Incarnation { mdt, starts })
    }
}

/// Both have noted each other.
async fn pair(world: &TestWorld) -> (Mdt, Mdt) {
    let m0 = Mdt::start(world, M0, manual_store()).await;
    let m1 = Mdt::start(world, M1, manual_store()).await;
    let noted = [note(world, &m0, M1), note(world, &m1, M0)];
    world.settle().await;
    for (mdt, noted) in [&m0, &m1].into_iter().zip(noted) {
        mdt.store.commit().unwrap();
        world.settle().await;
        assert_eq!(*noted.lock(), Some(Ok(())));
    }
    (m0, m1)
}

async fn ask(client: &TestClient, tag: u16) -> TestAnswer {
    let call = TestCall::new(MdsReintSetattr::default()).tagged(tag);
    client.call_with(call).await.expect("answered")
}

/// A change of a client, applied on M1.
async fn change(m1: &Mdt, client: &TestClient) -> Arc<UpdateRecord> {
    let answer = ask(client, 1).await;
    assert_eq!(answer.errno(), None);
    let made = m1.role.made.lock().last().cloned().expect("one was made");
    assert_eq!(answer.head.transno, made.id.transno);
    made
}

#[test]
fn a_part_is_there_with_its_record_or_neither_is() {
    let world = TestWorld::new(300);
    world.clone().run(async move {
        // F4: lost, nothing sent.
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        change(&m1, &client).await;
        assert_eq!((m1.keys(), m1.records()), (1, 1));
        let m1 = m1.crash(&world).await;
        assert_eq!((m1.keys(), m1.records()), (0, 0));
        m1.target().abort_recovery().await;
        // F5: durable, nothing sent. M0 is sent what it has not.
        let client = m1.node.connect("two").await;
        let made = change(&m1, &client).await;
        m1.store.commit().unwrap();
        let m1 = m1.crash(&world).await;
        assert_eq!((m1.keys(), m1.records()), (1, 1));
        let found = m1.has_started(M0, 2);
        assert_eq!(found, [Arc::clone(&made)]);
        let answer = found[0].answer.as_ref().expect("it was answered");
        assert_eq!((answer.client.as_str(), answer.record.transno), ("two", made.id.transno));
        assert_eq!(m1.has_started(MdtIndex(2), 2), [], "it takes no part");
        assert!(matches!(m0.apply(&found[0], 3), PartApplied::Now(_)));
        assert_eq!((m0.keys(), m0.records()), (1, 1));
    });
}

#[test]
fn a_part_is_applied_once_whatever_is_sent_again() {
    let world = TestWorld::new(301);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let made = change(&m1, &client).await;
        let PartApplied::Now(there) = m0.apply(&made, 1) else { panic!("it is new") };
        assert_eq!(m0.apply(&made, 1), PartApplied::Before(there));
        // F13: lost with its answer; then durable, and its answer lost.
        let m0 = m0.crash(&world).await;
        assert!(matches!(m0.apply(&made, 1), PartApplied::Now(_)));
        m0.store.commit().unwrap();
        // F6: what M1 has lost is in M0's record.
        let m0 = m0.crash(&world).await;
        assert_eq!(m0.apply(&made, 1), PartApplied::Before(DURABLE));
        assert_eq!((m0.keys(), m0.has_started(M1, 2)), (1, vec![made]));
    });
}

#[test]
fn who_has_answered_a_start_applies_nothing_of_before() {
    let world = TestWorld::new(302);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        // F13a: a part of the incarnation before is late.
        let made = change(&m1, &client).await;
        assert_eq!(m0.has_started(M1, 2), []);
        assert_eq!(m0.apply(&made, 1), PartApplied::TooLate);
        assert_eq!((m0.keys(), m0.records()), (0, 0));
        assert!(matches!(m0.apply(&made, 2), PartApplied::Now(_)));
        // F11: M0's exclusions are gone before anything was applied on M1.
        *m1.role.relied_on.lock() = vec![Incarnation { mdt: M0, starts: 1 }];
        assert_eq!(m1.has_started(M0, 2), [made]);
        let (keys, last) = (m1.keys(), m1.target().last_transno());
        let refused = ask(&client, 1).await;
        assert_eq!((refused.errno(), refused.head.transno), (Some(Errno::EAGAIN), Transno(0)));
        assert_eq!((m1.keys(), m1.target().last_transno()), (keys, last));
        m1.role.relied_on.lock()[0].starts = 2;
        change(&m1, &client).await;
        // An older start that is heard of later changes nothing.
        m1.has_started(M0, 1);
        change(&m1, &client).await;
    });
}

#[test]
fn what_depends_on_a_change_has_a_larger_logical_time_also_after_a_start() {
    let world = TestWorld::new(303);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let first = change(&m1, &client).await.time;
        let second = change(&m1, &client).await.time;
        assert!(LogicalTime(0) < first && first < second);
        // Of another participant, which it has asked.
        m1.role.above.store(700, Ordering::Relaxed);
        let third = change(&m1, &client).await;
        assert_eq!(third.time, LogicalTime(701));
        assert_eq!(
            (m0.target().logical_time(), m1.target().logical_time()),
            (LogicalTime(0), third.time)
        );
        m0.apply(&third, 1);
        assert_eq!(m0.target().logical_time(), third.time);
        // From its record; when that is gone, from the note.
        m0.store.commit().unwrap();
        let m0 = m0.crash(&world).await;
        assert_eq!(m0.target().logical_time(), third.time);
        let said = Completion { upto: third.id.transno, except: vec![] };
        m0.target().complete(M1, &said).unwrap();
        m0.store.commit().unwrap();
        let m0 = m0.crash(&world).await;
        assert_eq!((m0.target().logical_time(), m0.records()), (third.time, 0));
    });
}

#[test]
fn a_record_is_kept_until_all_parts_are_durable() {
    let world = TestWorld::new(304);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let made = change(&m1, &client).await;
        let completion = || m1.target().completion();
        assert_eq!(completion(), None);
        let PartApplied::Now(there) = m0.apply(&made, 1) else { panic!("it is new") };
        m1.target().part_applied(made.id, M0, there);
        m1.store.commit().unwrap();
        assert_eq!(completion(), None, "M0 is not durable");
        m1.target().durable_on(M0, Transno(there.0 - 1));
        assert_eq!(completion(), None);
        // F14: M0 is lost with it, and has to apply it again.
        m1.has_started(M0, 2);
        m1.target().durable_on(M0, there);
        assert_eq!(completion(), None, "what was applied is lost");
        m1.target().part_applied(made.id, M0, Transno(there.0 + 9));
        m1.target().durable_on(M0, Transno(there.0 + 9));
        let said = Completion { upto: made.id.transno, except: vec![] };
        assert_eq!(completion(), Some(said.clone()));
        for mdt in [&m0, &m1] {
            mdt.target().complete(M1, &said).unwrap();
            assert_eq!((mdt.keys(), mdt.records()), (1, 0));
        }
        assert_eq!(completion(), None);
        assert_eq!(m0.apply(&made, 1), PartApplied::Before(DURABLE), "the note says so");
    });
}

/// M1 has started anew, and does not know what M0 has applied: it sends the part again.
#[test]
fn a_change_of_before_the_start_is_complete_when_its_part_is_found_durable() {
    let world = TestWorld::new(311);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let made = change(&m1, &client).await;
        m0.apply(&made, 1);
        m0.store.commit().unwrap();
        m1.store.commit().unwrap();
        let (m0, m1) = (m0.crash(&world).await, m1.crash(&world).await);
        assert_eq!(m1.target().completion(), None);
        let PartApplied::Before(there) = m0.apply(&made, 2) else { panic!("it is there") };
        m1.target().part_applied(made.id, M0, there);
        m1.target().durable_on(M0, m0.target().last_committed());
        let said = Completion { upto: made.id.transno, except: vec![] };
        assert_eq!(m1.target().completion(), Some(said));
    });
}

/// F33: the record is damaged; the part is there all the same.
#[test]
fn a_part_whose_record_cannot_be_read_is_not_applied_again() {
    let world = TestWorld::new(312);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let made = change(&m1, &client).await;
        let later = change(&m1, &client).await;
        m0.apply(&made, 1);
        let PartApplied::Now(there) = m0.apply(&later, 1) else { panic!("it is new") };
        for mdt in [&m0, &m1] {
            let mut damage = Transaction::new();
            put_record(&mut damage, made.id, Bytes::from_static(b"damaged"));
            mdt.store.apply(damage).unwrap();
            mdt.store.commit().unwrap();
        }
        let (m0, m1) = (m0.crash(&world).await, m1.crash(&world).await);
        assert_eq!(m0.apply(&made, 2), PartApplied::Before(DURABLE));
        assert_eq!((m0.keys(), m0.has_started(M1, 2)), (2, vec![Arc::clone(&later)]));
        // Its coordinator never says that it is complete.
        m1.target().part_applied(later.id, M0, there);
        m1.target().durable_on(M0, there);
        let said = Completion { upto: later.id.transno, except: vec![made.id.transno] };
        assert_eq!(m1.target().completion(), Some(said));
        let all = Completion { upto: later.id.transno, except: vec![] };
        m0.target().complete(M1, &all).unwrap();
        assert_eq!(m0.store.scan(log::RECORDS, &[], 10).unwrap(), []);
        assert_eq!(m0.apply(&made, 2), PartApplied::Before(DURABLE));
    });
}

/// Nothing but M1's own durability is missing.
#[test]
fn a_change_is_not_complete_while_its_coordinator_may_lose_it() {
    let world = TestWorld::new(305);
    world.clone().run(async move {
        let (_, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let made = change(&m1, &client).await;
        m1.target().part_applied(made.id, M0, Transno(5));
        m1.target().durable_on(M0, Transno(5));
        assert_eq!(m1.target().completion(), None);
        m1.store.commit().unwrap();
        let said = Completion { upto: made.id.transno, except: vec![] };
        assert_eq!(m1.target().completion(), Some(said));
    });
}

#[test]
fn records_and_the_note_that_they_are_complete_change_together() {
    let world = TestWorld::new(306);
    world.clone().run(async move {
        let (m0, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let mut made = Vec::new();
        for _ in 0..3 {
            made.push(change(&m1, &client).await);
            m0.apply(&made[made.len() - 1], 1);
        }
        m0.store.commit().unwrap();
        let [first, second, third] = [0, 1, 2].map(|at| made[at].id.transno);
        // All but the second.
        let said = Completion { upto: third, except: vec![second] };
        m0.target().complete(M1, &said).unwrap();
        assert_eq!(m0.records(), 1);
        // F16: lost before the removal was durable.
        let m0 = m0.crash(&world).await;
        assert_eq!((m0.keys(), m0.records()), (3, 3));
        m0.target().complete(M1, &said).unwrap();
        m0.store.commit().unwrap();
        let m0 = m0.crash(&world).await;
        let outcomes = || made.iter().map(|record| m0.apply(record, 1)).collect::<Vec<_>>();
        assert_eq!((m0.records(), outcomes()), (1, vec![PartApplied::Before(DURABLE); 3]));
        // An older message, doubled, makes nothing incomplete, and one that says nothing new is no transaction.
        m0.target().complete(M1, &Completion { upto: first, except: vec![] }).unwrap();
        let last = m0.target().last_transno();
        m0.target().complete(M1, &said).unwrap();
        assert_eq!(
            (m0.target().last_transno(), m0.records(), outcomes()),
            (last, 1, vec![PartApplied::Before(DURABLE); 3])
        );
        m0.target().complete(M1, &Completion { upto: third, except: vec![] }).unwrap();
        assert_eq!((m0.records(), outcomes()), (0, vec![PartApplied::Before(DURABLE); 3]));
    });
}

#[test]
fn a_completion_names_what_is_not_complete_below_it() {
    let world = TestWorld::new(307);
    world.clone().run(async move {
        let (_, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let mut made = Vec::new();
        for number in 0..4 {
            made.push(change(&m1, &client).await.id);
            if number != 1 {
                m1.target().part_applied(made[number], M0, Transno(number as u64 + 1));
            }
        }
        m1.store.commit().unwrap();
        m1.target().durable_on(M0, Transno(3));
        let said = Completion { upto: made[2].transno, except: vec![made[1].transno] };
        assert_eq!(m1.target().completion(), Some(said.clone()));
        m1.target().complete(M1, &said).unwrap();
        assert_eq!(m1.records(), 2, "the second, and the last");
    });
}

#[test]
fn a_part_waits_for_what_it_builds_on_and_for_nothing_else() {
    let world = TestWorld::new(308);
    world.clone().run(async move {
        let (_, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let before = m1.target().dependencies(&[StoreKey::AllKeys(KEYS)]);
        assert_eq!(before, Dependencies::None, "what the start wrote is durable");
        let made = change(&m1, &client).await;
        let key = made.parts[0].updates[0].params[0].clone();
        let keys = [StoreKey::Key(KEYS, key)];
        let other = [StoreKey::Key(KEYS, "other".into()), StoreKey::Object(KEYS)];
        assert_eq!(m1.target().dependencies(&other), Dependencies::None);
        let needed = m1.target().dependencies(&keys);
        assert!(matches!(needed, Dependencies::WaitFor(_)));
        assert!(!m1.store.commit_wanted());
        let target = Arc::clone(m1.target());
        let waited = Arc::new(Mutex::new(None));
        let place = Arc::clone(&waited);
        let wait = async move { *place.lock() = Some(target.wait_until_durable(needed).await) };
        world.world().tasks.spawn("wait", Box::pin(wait));
        world.sleep(Duration::from_secs(1)).await;
        assert!(m1.store.commit_wanted() && waited.lock().is_none());
        m1.store.commit().unwrap();
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(*waited.lock(), Some(Ok(())));
        assert_eq!(m1.target().dependencies(&keys), Dependencies::None);
        assert_eq!(m1.target().wait_until_durable(Dependencies::None).await, Ok(()));
    });
}

/// F8: M1 is lost with what it had answered; the client replays.
#[test]
fn a_replay_is_made_again_at_its_number_and_what_is_durable_is_not() {
    let world = TestWorld::new(309);
    world.clone().run(async move {
        let (_, m1) = pair(&world).await;
        let client = m1.node.connect("one").await;
        let durable = change(&m1, &client).await;
        m1.store.commit().unwrap();
        let lost = ask(&client, 2).await;
        let m1 = m1.crash(&world).await;
        let client = client.follow(&m1.node);
        client.connect().await.unwrap();
        let replay = TestCall::new(MdsReintSetattr::default()).tagged(2);
        let answer = client.call_with(replay.replayed(lost.xid, lost.head.transno)).await.unwrap();
        assert_eq!((answer.errno(), answer.head.transno), (None, lost.head.transno));
        let made = m1.role.made.lock().clone();
        assert_eq!(made.len(), 1);
        assert!(made[0].id.transno == lost.head.transno && made[0].time > durable.time);
        finish_recovery(&client).await;
        assert_eq!((m1.keys(), m1.records()), (2, 2));
    });
}

/// What `note_partner` comes to by the time that the test says; `None` while it waits.
fn note(world: &TestWorld, at: &Mdt, partner: MdtIndex) -> Arc<Mutex<Option<Result<(), Errno>>>> {
    let noted = Arc::new(Mutex::new(None));
    let (target, place) = (Arc::clone(at.target()), Arc::clone(&noted));
    let note = async move { *place.lock() = Some(target.note_partner(partner).await) };
    world.world().tasks.spawn("note", Box::pin(note));
    noted
}

#[test]
fn a_partner_is_noted_durably_first_and_forgotten_when_all_is_quiet() {
    let world = TestWorld::new(313);
    world.clone().run(async move {
        let m1 = Mdt::start(&world, M1, manual_store()).await;
        let client = m1.node.connect("one").await;
        let is_refused = async || ask(&client, 1).await.errno() == Some(Errno::EAGAIN);
        assert!(is_refused().await, "not noted");
        let (first, second) = (note(&world, &m1, M0), note(&world, &m1, M0));
        world.settle().await;
        assert!(m1.store.commit_wanted() && first.lock().is_none() && second.lock().is_none());
        assert!(is_refused().await, "not durably");
        m1.store.commit().unwrap();
        world.settle().await;
        assert_eq!((*first.lock(), *second.lock()), (Some(Ok(())), Some(Ok(()))));
        // It costs nothing more.
        let last = m1.target().last_transno();
        assert_eq!(m1.target().note_partner(M0).await, Ok(()));
        assert_eq!(m1.target().last_transno(), last);
        let m1 = m1.crash(&world).await;
        assert_eq!(m1.target().partners(), [M0]);
        m1.target().abort_recovery().await;
        // A change is not complete.
        let client = m1.node.connect("two").await;
        let made = change(&m1, &client).await;
        world.sleep(Duration::from_secs(61)).await;
        m1.target().forget_idle_partners().unwrap();
        assert_eq!(m1.target().partners(), [M0]);
        let said = Completion { upto: made.id.transno, except: vec![] };
        m1.target().complete(M1, &said).unwrap();
        // Not quiet for long enough.
        assert_eq!(m1.target().note_partner(M0).await, Ok(()));
        world.sleep(Duration::from_secs(59)).await;
        m1.target().forget_idle_partners().unwrap();
        assert_eq!(m1.target().partners(), [M0]);
        world.sleep(Duration::from_secs(1)).await;
        m1.target().forget_idle_partners().unwrap();
        assert_eq!(m1.target().partners(), []);
        // A part of M0's that has waited for so long is late.
        let id = ChangeId { coordinator: M0, transno: Transno(5) };
        let late = UpdateRecord { id, parts: made.parts.clone(), ..UpdateRecord::default() };
        let sender = Incarnation { mdt: M0, starts: 1 };
        let applied = m1.target().transact_part(None, sender, &Arc::new(late), Transaction::new());
        assert_eq!(applied, Ok(PartApplied::NotNoted));
        m1.store.commit().unwrap();
        assert_eq!(m1.crash(&world).await.target().partners(), []);
    });
}

#[test]
fn an_mdt_that_is_alone_keeps_nothing_of_it() {
    let world = TestWorld::new(310);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = crate::tests::start(&world, &store).await;
        let client = node.connect("one").await;
        crate::tests::modify(&client, 1).await;
        let log = DistributedLog::load(&*store, "test").unwrap();
        assert!(log.records.is_empty() && log.notes.is_empty() && log.partners.is_empty());
        assert_eq!(node.target.logical_time(), LogicalTime(0));
        assert_eq!(node.target.undurable.keys_of(&Transaction::new()), None);
    });
}
