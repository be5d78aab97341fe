//! Tests: our own changes of attributes under locks that stay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sheen_types::{Errno, Fid, InodeBits, Timestamp};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetattrReply, MdsReintSetattrReply, Request};
use tokio::sync::Notify;

use super::tests::{entry, look_up};
use super::{Credentials, NodeId, SetAttributes, SetTime, Stat};
use crate::testing::{Fixture, body, found};

const PIPE: Fid = Fid::new(0x2_0000_0400, 9);
const DIRECTORY: Fid = Fid::new(0x2_0000_0400, 8);
const WHOLE: InodeBits = InodeBits(0x13);

type Answer = Arc<Mutex<Option<Result<Stat, Errno>>>>;

/// A named pipe and a directory, both under locks on all attributes.
struct Bench {
    fixture: Fixture,
    pipe: NodeId,
    directory: NodeId,
}

impl Bench {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.mdt.own_attributes.store(true, Ordering::Relaxed);
        fixture.mdt.answer(found(PIPE, 0o010_644, 0x77, WHOLE));
        let pipe = entry(look_up(&fixture, NodeId::ROOT, "p")).node;
        fixture.mdt.answer(found(DIRECTORY, 0o040_755, 0x78, WHOLE));
        let directory = entry(look_up(&fixture, NodeId::ROOT, "d")).node;
        fixture.mdt.take_asked();
        fixture.watcher.take();
        Self { fixture, pipe, directory }
    }

    /// The MDT answers the next change of attributes so.
    fn will_be(&self, body: MdtBody) {
        let valid = body.valid | Valid::ACL;
        let mdt_body = Some(MdtBody { valid, ..body });
        self.fixture.mdt.answer(MdsReintSetattrReply { mdt_body, ..Default::default() });
    }

    /// The MDT answers the next question for attributes so.
    fn is(&self, mode: u32) {
        let body = body(PIPE, mode);
        let mdt_body = Some(MdtBody { valid: body.valid | Valid::ACL, ..body });
        self.fixture.mdt.answer(MdsGetattrReply { mdt_body, ..Default::default() });
    }

    fn start(&self, work: impl Future<Output = Result<Stat, Errno>> + Send + 'static) -> Answer {
        let answer = Answer::default();
        let there = Arc::clone(&answer);
        let task = async move { *there.lock() = Some(work.await) };
        self.fixture.world.world().tasks.spawn("call", Box::pin(task));
        self.fixture.world.settle();
        answer
    }

    fn set(&self, node: NodeId, changes: SetAttributes) -> Answer {
        let files = self.fixture.files.clone();
        self.start(async move { files.setattr(&Fixture::root(), node, None, changes).await })
    }

    fn chmod(&self, node: NodeId, mode: u32) -> Answer {
        self.set(node, SetAttributes { mode: Some(mode), ..SetAttributes::default() })
    }

    fn stat(&self, node: NodeId) -> Answer {
        let files = self.fixture.files.clone();
        self.start(async move { files.getattr(&Fixture::root(), node).await })
    }

    /// Answers are on their way until what is returned is notified.
    fn hold(&self) -> Arc<Notify> {
        let hold = Arc::new(Notify::new());
        *self.fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
        hold
    }

    /// What is asked from now on is answered at once.
    fn hold_no_more(&self) {
        *self.fixture.mdt.hold.lock() = None;
    }

    fn release(&self, hold: &Notify) {
        hold.notify_waiters();
        self.fixture.world.settle();
    }

    /// Names of the requests since the last time.
    fn asked(&self) -> Vec<String> {
        let asked = self.fixture.mdt.take_asked();
        asked.iter().map(|request| format!("{:?}", request.kind())).collect()
    }
}

fn mode(answer: &Answer) -> u32 {
    answer.lock().take().expect("answered").expect("attributes").attributes.mode & 0o7777
}

#[test]
fn a_change_of_our_own_costs_one_request_and_its_answer_is_kept_under_the_lock() {
    let bench = Bench::new();
    bench.will_be(MdtBody { uid: 7, ..body(PIPE, 0o010_600) });
    assert_eq!(mode(&bench.chmod(bench.pipe, 0o600)), 0o600);
    let asked = bench.fixture.mdt.take_asked();
    let [Request::MdsReintSetattr(request)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(request.dlm_req, None, "no lock is given up");
    let stat = bench.stat(bench.pipe).lock().take().expect("answered").expect("attributes");
    assert_eq!((stat.attributes.uid, stat.keep), (7, true));
    assert_eq!(bench.asked(), Vec::<String>::new());
    // The kernel's are invalidated before another client can have seen the change.
    assert_eq!(bench.fixture.watcher.take(), [format!("inode {} Attributes", bench.pipe.0)]);
}

#[test]
fn times_of_a_directory_leave_its_lock_and_its_mode_does_not() {
    let bench = Bench::new();
    bench.will_be(body(DIRECTORY, 0o040_755));
    let mtime = Some(SetTime::To(Timestamp::from_seconds(9)));
    let times = SetAttributes { mtime, ..SetAttributes::default() };
    assert_eq!(mode(&bench.set(bench.directory, times)), 0o755);
    assert_eq!(bench.asked().len(), 1);
    // The names that the kernel keeps depend on it.
    bench.will_be(body(DIRECTORY, 0o040_700));
    assert_eq!(mode(&bench.chmod(bench.directory, 0o700)), 0o700);
    let asked = bench.fixture.mdt.take_asked();
    let [Request::MdsReintSetattr(request)] = &asked[..] else { panic!("{asked:?}") };
    assert!(request.dlm_req.as_ref().is_some_and(|early: &LdlmRequest| early.count == 1));
}

#[test]
fn what_overlaps_a_change_of_our_own_is_asked_again() {
    let bench = Bench::new();
    // Asked before the change, answered after it: what it says is from before.
    let own_hold = bench.hold();
    bench.will_be(body(PIPE, 0o010_600));
    let change = bench.chmod(bench.pipe, 0o600);
    bench.hold_no_more();
    bench.is(0o010_644);
    assert_eq!(mode(&bench.stat(bench.pipe)), 0o644, "the change may not have been made yet");
    bench.release(&own_hold);
    assert_eq!(mode(&change), 0o600);
    assert_eq!(mode(&bench.stat(bench.pipe)), 0o600);
    assert_eq!(bench.asked().len(), 2);

    // Two changes at once: whose answer is the later one is unknown.
    let first_hold = bench.hold();
    bench.will_be(body(PIPE, 0o010_601));
    let first = bench.chmod(bench.pipe, 0o601);
    bench.hold_no_more();
    bench.will_be(body(PIPE, 0o010_602));
    let second = bench.chmod(bench.pipe, 0o602);
    bench.release(&first_hold);
    assert_eq!((mode(&first), mode(&second)), (0o601, 0o602));
    bench.is(0o010_602);
    assert_eq!(mode(&bench.stat(bench.pipe)), 0o602);
    assert!(bench.fixture.mdt.is_done());
}

#[test]
fn an_answer_after_the_loss_of_the_lock_counts_as_a_guess() {
    let bench = Bench::new();
    let hold = bench.hold();
    bench.will_be(body(PIPE, 0o010_600));
    let change = bench.chmod(bench.pipe, 0o600);
    bench.hold_no_more();
    let held = bench.fixture.files.0.inodes.by_fid(PIPE).expect("known");
    held.state().lose_bits(WHOLE);
    bench.release(&hold);
    let answer = change.lock().take().expect("answered").expect("attributes");
    assert_eq!((answer.attributes.mode & 0o7777, answer.keep), (0o600, false));
    bench.fixture.mdt.answer(found(PIPE, 0o010_640, 0x79, WHOLE));
    assert_eq!(mode(&bench.stat(bench.pipe)), 0o640, "another client has changed it since");
    assert!(bench.fixture.mdt.is_done());
}

#[test]
fn what_an_inode_has_already_is_not_sent_within_the_second_of_its_last_change() {
    let bench = Bench::new();
    let now = bench.fixture.world.world().clock.wall().seconds;
    bench.will_be(MdtBody { ctime: now, ..body(PIPE, 0o010_600) });
    assert_eq!(mode(&bench.chmod(bench.pipe, 0o600)), 0o600);
    bench.asked();
    let both = SetAttributes { uid: Some(0), gid: Some(0), ..SetAttributes::default() };
    assert_eq!(mode(&bench.set(bench.pipe, both)), 0o600);
    assert_eq!(mode(&bench.chmod(bench.pipe, 0o600)), 0o600);
    assert_eq!(bench.asked(), Vec::<String>::new());
    // Another user is not the owner, which the MDT says.
    bench.fixture.mdt.refuse(Errno::EPERM);
    let files = bench.fixture.files.clone();
    let (who, pipe) = (Credentials { uid: 7, ..Fixture::root() }, bench.pipe);
    let changes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let refused = bench.start(async move { files.setattr(&who, pipe, None, changes).await });
    assert_eq!(refused.lock().take().map(|it| it.err()), Some(Some(Errno::EPERM)));
    // A set-user-id bit may go with it, and a second later the change time moves.
    for (later, mode_there) in [(0, 0o4755), (1, 0o600)] {
        let bench = Bench::new();
        let now = bench.fixture.world.world().clock.wall().seconds - later;
        let there = MdtBody { ctime: now, ..body(PIPE, 0o010_000 | mode_there) };
        for _ in 0..2 {
            bench.will_be(there.clone());
            assert_eq!(mode(&bench.chmod(bench.pipe, mode_there)), mode_there);
            assert_eq!(bench.asked().len(), 1);
        }
    }
}
