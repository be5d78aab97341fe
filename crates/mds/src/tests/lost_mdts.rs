//! MDTs that die, of two and three, while they make changes together.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestAnswer, TestCall, TestWorld};
use sheen_types::{Errno, Fid, MdtIndex, Name, Nid, Xid};
use sheen_wire::messages::Request;
use sheen_wire::out::UpdateType;

use super::between::Between;
use super::checks::cut_is_sound;
use super::harness::{Client, DIRECTORY, Server, run};
use super::recovery::finish_recovery;
use super::several::{of_mdt, offer, start};
use crate::exclusion::ShardSet;

const ROOT: Fid = Fid::ROOT;

/// The answer to a request, when it is there.
pub(super) type Pending = Arc<Mutex<Option<TestAnswer>>>;

/// A request that is sent again as the same one.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) mdt: usize,
    pub(super) request: Request,
    xid: Xid,
    tag: u16,
}

/// MDTs that make changes together and can be killed, and a client of all. They commit when they are asked to.
pub(super) struct Cluster {
    pub(super) world: TestWorld,
    pub(super) servers: Vec<Server>,
    commits: Vec<Arc<AtomicBool>>,
    pub(super) clients: Vec<Client>,
    ways: BTreeMap<(usize, usize), Arc<Between>>,
    /// Of each MDT that is dead what is left.
    dead: BTreeMap<usize, Arc<StoreMem>>,
    operations: AtomicU64,
}

fn manual() -> Arc<StoreMem> {
    Arc::new(StoreMem::new(MemOptions { commits: Commits::Manual, ..MemOptions::default() }))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Lets as much run as one task does so many times.
pub(super) async fn yield_times(times: u64) {
    for _ in 0..times {
        let mut again = true;
        poll_fn(|context| match std::mem::take(&mut again) {
            true => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }
}

impl Cluster {
    pub(super) async fn new(world: &TestWorld, mdts: usize) -> Self {
        let mut cluster = Self {
            world: world.clone(),
            servers: Vec::new(),
            commits: Vec::new(),
            clients: Vec::new(),
            ways: BTreeMap::new(),
            dead: BTreeMap::new(),
            operations: AtomicU64::new(1),
        };
        for mdt in 0..mdts {
            let (server, commits) = cluster.serve(mdt, manual()).await;
            cluster.servers.push(server);
            cluster.commits.push(commits);
        }
        for from in 0..mdts {
            for to in (0..mdts).filter(|to| *to != from) {
                cluster.join(from, to).await;
            }
        }
        for server in &cluster.servers {
            server.mdt.until_open().await;
            cluster.clients.push(server.client("c").await);
        }
        cluster
    }

    async fn serve(&self, mdt: usize, store: Arc<StoreMem>) -> (Server, Arc<AtomicBool>) {
        let commits = Arc::new(AtomicBool::new(true));
        let (flag, committed) = (Arc::clone(&commits), Arc::clone(&store));
        let commit = async move {
            loop {
                poll_fn(|context| committed.poll_commit_wanted(context)).await;
                if !flag.load(Ordering::Relaxed) {
                    return;
                }
                committed.commit().expect("it is well");
            }
        };
        self.world.world().tasks.spawn("commit", Box::pin(commit));
        (start(&self.world, mdt as u16, store).await, commits)
    }

    /// Connects one MDT to another, for the first time since it was started.
    async fn join(&mut self, from: usize, to: usize) {
        let (here, there) = (&self.servers[from], &self.servers[to]);
        let client = there.node.client_at(&of_mdt(here.mdt.index()), Nid::LOOPBACK);
        client.connect_with(offer(here.mdt.identity().as_str())).await.expect("let in");
        let way = Between::new(client.clone(), there.node.target.config().uuid.clone());
        let way = Arc::new(way);
        way.is_there(&self.world, client);
        here.mdt.add_mdt(there.mdt.index(), way.clone());
        self.ways.insert((from, to), way);
    }

    pub(super) fn hold(&self, from: usize, to: usize, kind: Option<UpdateType>) {
        self.ways[&(from, to)].hold(kind);
    }

    /// From now on nothing that it applies becomes durable.
    pub(super) fn stop_commits(&self, mdt: usize) {
        self.commits[mdt].store(false, Ordering::Relaxed);
    }

    /// It loses what is not durable.
    pub(super) fn kill(&mut self, mdt: usize) {
        let ways = self.ways.iter().filter(|((from, to), _)| *from == mdt || *to == mdt);
        ways.for_each(|(_, way)| way.breaks());
        self.stop_commits(mdt);
        self.dead.insert(mdt, Arc::new(self.servers[mdt].store.crash()));
    }

    /// What is left of those that are dead.
    pub(super) fn left(&self) -> Vec<Arc<StoreMem>> {
        self.dead.values().cloned().collect()
    }

    /// What would be left of all, now.
    pub(super) fn durable(&self) -> Vec<Arc<StoreMem>> {
        let of = |(mdt, server): (usize, &Server)| match self.dead.get(&mdt) {
            Some(left) => left.crash(),
            None => server.store.crash(),
        };
        self.servers.iter().enumerate().map(of).map(Arc::new).collect()
    }

    /// Those that are dead come back, in this order, and the client with them.
    pub(super) async fn restart(&mut self) {
        let dead = std::mem::take(&mut self.dead);
        let started: Vec<usize> = dead.keys().copied().collect();
        for (mdt, store) in dead {
            let (server, commits) = self.serve(mdt, store).await;
            (self.servers[mdt], self.commits[mdt]) = (server, commits);
        }
        let pairs: Vec<_> = self.ways.keys().copied().collect();
        for (from, to) in pairs {
            if started.contains(&from) {
                self.join(from, to).await;
            } else if started.contains(&to) {
                let way = &self.ways[&(from, to)];
                let client = way.client().follow(&self.servers[to].node);
                let identity = self.servers[from].mdt.identity().clone();
                client.connect_with(offer(identity.as_str())).await.expect("let in");
                way.is_there(&self.world, client);
            }
        }
        for mdt in started {
            let inner = self.clients[mdt].inner.follow(&self.servers[mdt].node);
            self.clients[mdt] = self.clients[mdt].with(inner);
            self.clients[mdt].inner.connect().await.expect("it is awaited");
        }
    }

    /// Restarts what is dead, and waits until all MDTs have met again: else stripes would go to fewer.
    pub(super) async fn come_back(&mut self) {
        self.restart().await;
        self.finish().await;
        self.world.sleep(Duration::from_secs(2)).await;
    }

    pub(super) async fn finish(&self) {
        for (client, server) in self.clients.iter().zip(&self.servers) {
            if server.node.target.is_recovering() {
                finish_recovery(client).await;
            }
        }
    }

    pub(super) fn operation(&self, mdt: usize, request: impl Into<Request>) -> Operation {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let (xid, tag) = (Xid(0x4000_0000 + number * 0x100), (number % 7 + 1) as u16);
        Operation { mdt, request: request.into(), xid, tag }
    }

    pub(super) fn mkdir(&self, mdt: usize, parent: Fid, named: &str) -> (Operation, Fid) {
        let request = self.clients[mdt].create_request(parent, named, DIRECTORY | 0o777);
        let fid = request.rec_reint.fid2;
        (self.operation(mdt, request), fid)
    }

    pub(super) fn rmdir(&self, mdt: usize, (parent, named): (Fid, &str), fid: Fid) -> Operation {
        let mut request = self.clients[mdt].unlink_request(parent, named, DIRECTORY);
        request.rec_reint.fid2 = fid;
        self.operation(mdt, request)
    }

    /// Sends it, for the first time or again.
    pub(super) fn begin(&self, operation: &Operation, is_again: bool) -> Pending {
        let client = self.clients[operation.mdt].inner.clone();
        let call = TestCall::new(operation.request.clone()).tagged(operation.tag);
        let call = match is_again {
            true => call.resent(operation.xid),
            false => TestCall { xid: Some(operation.xid), ..call },
        };
        let pending = Pending::default();
        let answered = Arc::clone(&pending);
        let send = async move { *answered.lock() = client.call_with(call).await };
        self.world.world().tasks.spawn("operation", Box::pin(send));
        pending
    }

    pub(super) async fn answer(&self, pending: &Pending) -> Option<Errno> {
        for _ in 0..120 {
            if let Some(answer) = pending.lock().as_ref() {
                return answer.errno();
            }
            self.world.sleep(Duration::from_millis(500)).await;
        }
        panic!("no answer")
    }

    pub(super) async fn execute(&self, operation: &Operation) -> Option<Errno> {
        self.answer(&self.begin(operation, false)).await
    }

    pub(super) fn child(&self, mdt: usize, directory: Fid, named: &str) -> Option<Fid> {
        let child = self.servers[mdt].mdt.find(directory, &name(named)).expect("it can be read");
        child.map(|child| child.fid)
    }

    pub(super) fn links(&self, mdt: usize, inode: Fid) -> Result<u32, Errno> {
        self.servers[mdt].mdt.inode(inode).map(|inode| inode.attributes.links)
    }

    /// Waits until nothing is left of any change: no record, and no exclusion.
    pub(super) async fn settle(&self) {
        for _ in 0..12 {
            for client in &self.clients {
                client.wait(&self.world, 3).await;
            }
            let is_settled = |server: &Server| {
                server.node.target.incomplete_changes() == 0
                    && server.mdt.exclusion.distributed.is_empty()
            };
            if self.servers.iter().all(is_settled) {
                return;
            }
            // What is complete is durable first.
            for server in &self.servers {
                server.node.target.sync().await.expect("it is well");
            }
            for way in self.ways.values() {
                way.ping().await;
            }
        }
        let left = self.servers.iter().map(|server| {
            let left = server.node.target.incomplete_changes();
            (left, server.mdt.exclusion.distributed.coordinators())
        });
        panic!("records and exclusions that stay: {:?}", left.collect::<Vec<_>>());
    }

    /// A number of the world's below this.
    pub(super) fn random(&self, below: usize) -> usize {
        self.world.world().random.number() as usize % below
    }

    /// Any MDTs die now, each with one chance in `one_in`: these. What is durable on all of them is sound.
    pub(super) fn kill_any(&mut self, one_in: usize) -> Vec<usize> {
        let mdts = 0..self.servers.len();
        let victims: Vec<usize> = mdts.filter(|_| self.random(one_in) == 0).collect();
        victims.iter().for_each(|mdt| self.kill(*mdt));
        cut_is_sound(&self.durable());
        victims
    }

    /// Sends a request, and again if its answer is lost as any MDTs die, each with one chance in `one_in`, within so many
    /// steps of tasks. They come back, and the answer is the expected one.
    pub(super) async fn any_die_meanwhile(
        &mut self,
        operation: &Operation,
        (steps, one_in): (usize, usize),
        expected: Option<Errno>,
    ) {
        let mut answer = self.begin(operation, false);
        yield_times(self.random(steps) as u64).await;
        let victims = self.kill_any(one_in);
        let is_lost = victims.contains(&operation.mdt) && answer.lock().is_none();
        if !victims.is_empty() {
            self.come_back().await;
        }
        if is_lost {
            answer = self.begin(operation, true);
        }
        let answered = self.answer(&answer).await;
        assert_eq!(answered, expected, "{victims:?}: {:?}", operation.request);
    }

    /// A first change of each, after which all are noted partners.
    pub(super) async fn meet(&self) {
        for mdt in 1..self.servers.len() {
            let (made, _) = self.mkdir(mdt, ROOT, &format!("first{mdt}"));
            assert_eq!(self.execute(&made).await, None);
        }
    }
}

#[test]
fn f5_a_change_that_was_not_sent_is_sent_by_the_next_start() {
    let world = TestWorld::new(440);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.hold(1, 0, Some(UpdateType::RECORD));
        let (made, fid) = cluster.mkdir(1, ROOT, "d");
        let unanswered = cluster.begin(&made, false);
        inner.sleep(Duration::from_secs(1)).await;
        assert!(unanswered.lock().is_none() && cluster.child(0, ROOT, "d").is_none());
        assert_eq!(cluster.links(1, fid), Ok(2), "it is made there");
        cluster.kill(1);
        // Nothing else takes the name meanwhile.
        let (other, _) = cluster.mkdir(0, ROOT, "d");
        let other = cluster.begin(&other, false);
        inner.sleep(Duration::from_secs(20)).await;
        assert!(other.lock().is_none());
        cluster.restart().await;
        cluster.finish().await;
        assert_eq!(cluster.child(0, ROOT, "d"), Some(fid));
        let again = cluster.begin(&made, true);
        assert_eq!(cluster.answer(&again).await, None);
        assert_eq!(cluster.answer(&other).await, Some(Errno::EEXIST));
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn f3_f4_a_change_that_was_not_durable_never_was_and_is_made_anew() {
    let world = TestWorld::new(441);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.stop_commits(1);
        let (made, fid) = cluster.mkdir(1, ROOT, "d");
        let unanswered = cluster.begin(&made, false);
        inner.sleep(Duration::from_secs(15)).await;
        // No one sees what may be lost.
        assert!(unanswered.lock().is_none() && cluster.child(0, ROOT, "d").is_none());
        assert_eq!(cluster.links(1, fid), Ok(2));
        cluster.kill(1);
        cluster.restart().await;
        cluster.finish().await;
        assert_eq!(cluster.links(1, fid), Err(Errno::ENOENT));
        // Its earlier exclusion is released.
        let (other, _) = cluster.mkdir(0, ROOT, "e");
        assert_eq!(cluster.execute(&other).await, None);
        let again = cluster.begin(&made, true);
        assert_eq!(cluster.answer(&again).await, None);
        assert_eq!(cluster.child(0, ROOT, "d"), Some(fid));
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn f12_a_participant_that_died_before_it_applied_gets_its_part_in_recovery() {
    let world = TestWorld::new(442);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.hold(1, 0, Some(UpdateType::RECORD));
        let (made, fid) = cluster.mkdir(1, ROOT, "d");
        let answer = cluster.begin(&made, false);
        inner.sleep(Duration::from_secs(1)).await;
        cluster.kill(0);
        inner.sleep(Duration::from_secs(5)).await;
        cluster.restart().await;
        cluster.finish().await;
        assert_eq!(cluster.child(0, ROOT, "d"), Some(fid));
        assert!(answer.lock().is_none());
        cluster.hold(1, 0, None);
        assert_eq!(cluster.answer(&answer).await, None);
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn f11_an_exclusion_that_died_is_asked_for_again() {
    let world = TestWorld::new(443);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 3).await;
        cluster.meet().await;
        let (there, far) = cluster.mkdir(2, ROOT, "far");
        assert_eq!(cluster.execute(&there).await, None);
        // MDT0001 excludes on MDT0000, and waits for MDT0002.
        cluster.hold(1, 2, Some(UpdateType::EXCLUDE));
        let (made, fid) = cluster.mkdir(1, ROOT, "d");
        assert_eq!(cluster.execute(&made).await, None);
        let request = cluster.clients[1].rename_request((ROOT, "d"), (far, "d"));
        let moved = cluster.operation(1, request);
        let answer = cluster.begin(&moved, false);
        inner.sleep(Duration::from_secs(1)).await;
        assert!(!cluster.servers[0].mdt.exclusion.distributed.is_empty());
        cluster.kill(0);
        cluster.restart().await;
        cluster.finish().await;
        cluster.hold(1, 2, None);
        assert_eq!(cluster.answer(&answer).await, None);
        assert_eq!((cluster.child(0, ROOT, "d"), cluster.child(2, far, "d")), (None, Some(fid)));
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn f14_f21_what_participants_lose_they_get_back_also_when_all_are_lost() {
    let world = TestWorld::new(444);
    let inner = world.clone();
    let test = async move {
        for lost in [vec![0], vec![0, 1], vec![1]] {
            let mut cluster = Cluster::new(&inner, 2).await;
            cluster.meet().await;
            cluster.servers[0].store.commit().unwrap();
            cluster.stop_commits(0);
            let (made, fid) = cluster.mkdir(1, ROOT, "d");
            assert_eq!(cluster.execute(&made).await, None);
            let (removed, first) = ("first1", cluster.child(0, ROOT, "first1").expect("made"));
            let removed = cluster.rmdir(1, (ROOT, removed), first);
            assert_eq!(cluster.execute(&removed).await, None);
            let links = cluster.links(0, ROOT);
            lost.iter().for_each(|mdt| cluster.kill(*mdt));
            inner.sleep(Duration::from_secs(1)).await;
            cluster.restart().await;
            cluster.finish().await;
            assert_eq!(cluster.child(0, ROOT, "d"), Some(fid), "{lost:?}");
            assert_eq!(cluster.child(0, ROOT, "first1"), None, "{lost:?}");
            assert_eq!((cluster.links(0, ROOT), cluster.links(1, fid)), (links, Ok(2)));
            assert_eq!(cluster.links(1, first), Err(Errno::ENOENT));
            if lost == [1] {
                cluster.servers[0].store.commit().unwrap();
            }
            cluster.settle().await;
        }
    };
    run(test, &world);
}

#[test]
fn f16_a_record_whose_removal_was_lost_goes_again() {
    let world = TestWorld::new(445);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.settle().await;
        let (made, fid) = cluster.mkdir(1, ROOT, "d");
        assert_eq!(cluster.execute(&made).await, None);
        cluster.servers[0].store.commit().unwrap();
        cluster.ways[&(1, 0)].ping().await;
        cluster.stop_commits(0);
        for client in &cluster.clients {
            client.wait(&inner, 9).await;
        }
        let left =
            |cluster: &Cluster, mdt: usize| cluster.servers[mdt].node.target.incomplete_changes();
        assert_eq!((left(&cluster, 0), left(&cluster, 1)), (0, 0), "it was said");
        cluster.kill(0);
        cluster.restart().await;
        assert_eq!(left(&cluster, 0), 1, "it is back");
        cluster.finish().await;
        assert_eq!((left(&cluster, 0), cluster.child(0, ROOT, "d")), (0, Some(fid)));
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn what_is_complete_is_said_to_an_mdt_behind_one_that_is_away() {
    let world = TestWorld::new(447);
    let inner = world.clone();
    let test = async move {
        let cluster = Cluster::new(&inner, 3).await;
        cluster.meet().await;
        let (there, far) = cluster.mkdir(2, ROOT, "far");
        assert_eq!(cluster.execute(&there).await, None);
        cluster.settle().await;
        let (made, fid) = cluster.mkdir(1, far, "d");
        assert_eq!(cluster.execute(&made).await, None);
        for mdt in 1..3 {
            cluster.servers[mdt].node.target.sync().await.expect("it is well");
        }
        cluster.ways[&(1, 2)].ping().await;
        // It takes no part in this, and may have records of MDT0001 all the same, as far as that knows.
        let way = &cluster.ways[&(1, 0)];
        way.breaks();
        for client in &cluster.clients {
            client.wait(&inner, 9).await;
        }
        let left = |mdt: usize| cluster.servers[mdt].node.target.incomplete_changes();
        assert_eq!((left(1), left(2)), (1, 0));
        let client = way.client().follow(&cluster.servers[0].node);
        let identity = cluster.servers[1].mdt.identity().clone();
        client.connect_with(offer(identity.as_str())).await.expect("let in");
        way.is_there(&inner, client);
        cluster.settle().await;
        assert_eq!(cluster.child(2, far, "d"), Some(fid));
    };
    run(test, &world);
}

/// It has its part durable, or gets it back: the third one has not applied its own. A request that holds the name, and may wait
/// for the end of recovery, is not waited for.
#[test]
fn an_mdt_of_three_that_was_lost_hides_its_part_until_all_are_applied() {
    for (seed, is_durable, is_held) in [(448, false, false), (449, true, false), (458, true, true)]
    {
        let world = TestWorld::new(seed);
        let inner = world.clone();
        let test = async move {
            let mut cluster = Cluster::new(&inner, 3).await;
            cluster.meet().await;
            let (there, far) = cluster.mkdir(2, ROOT, "far");
            assert_eq!(cluster.execute(&there).await, None);
            let (made, fid) = cluster.mkdir(1, ROOT, "d");
            assert_eq!(cluster.execute(&made).await, None);
            cluster.settle().await;
            cluster.hold(1, 2, Some(UpdateType::RECORD));
            let request = cluster.clients[1].rename_request((ROOT, "d"), (far, "d"));
            let moved = cluster.operation(1, request);
            if !is_durable {
                cluster.stop_commits(0);
            }
            let answer = cluster.begin(&moved, false);
            inner.sleep(Duration::from_secs(1)).await;
            assert_eq!(cluster.child(0, ROOT, "d"), None, "it is applied there");
            if is_durable {
                cluster.servers[0].store.commit().unwrap();
            }
            cluster.kill(0);
            cluster.restart().await;
            let mdt = Arc::clone(&cluster.servers[0].mdt);
            let holding = match is_held {
                true => {
                    let name = ShardSet::new().change_name(ROOT, b"d");
                    Some(mdt.exclusion.try_acquire(name).expect("free"))
                }
                false => None,
            };
            cluster.finish().await;
            drop(holding);
            assert_eq!(cluster.child(0, ROOT, "d"), None);
            let seen = Arc::new(Mutex::new(None));
            let (client, place) = (cluster.clients[0].clone(), Arc::clone(&seen));
            let look = async move {
                let body = client.lookup(ROOT, "d").await.1.mdt_body;
                *place.lock() = Some(body.map_or(Fid::ZERO, |body| body.fid1));
            };
            inner.world().tasks.spawn("look", Box::pin(look));
            inner.sleep(Duration::from_secs(2)).await;
            assert_eq!(*seen.lock(), None, "MDT0002 has it nowhere yet");
            assert_eq!(cluster.child(2, far, "d"), None);
            cluster.hold(1, 2, None);
            assert_eq!(cluster.answer(&answer).await, None);
            inner.sleep(Duration::from_secs(2)).await;
            assert_eq!(*seen.lock(), Some(Fid::ZERO));
            assert_eq!(cluster.child(2, far, "d"), Some(fid));
            cluster.settle().await;
        };
        run(test, &world);
    }
}

/// The release that went with its part was lost with it.
#[test]
fn an_mdt_that_was_lost_with_its_part_durable_and_unanswered_hides_nothing_for_ever() {
    let world = TestWorld::new(457);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.settle().await;
        for times in 0..40 {
            let (made, _) = cluster.mkdir(1, ROOT, &format!("d{times}"));
            let answer = cluster.begin(&made, false);
            yield_times(times * 2).await;
            cluster.servers[0].store.commit().unwrap();
            cluster.kill(0);
            cluster.restart().await;
            cluster.finish().await;
            assert_eq!(cluster.answer(&answer).await, None);
            let (_, found) = cluster.clients[0].lookup(ROOT, &format!("d{times}")).await;
            assert!(found.mdt_body.is_some_and(|body| !body.fid1.is_zero()), "{times}");
        }
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn f34_a_part_goes_over_the_next_connection_when_one_breaks() {
    let world = TestWorld::new(446);
    let inner = world.clone();
    let test = async move {
        let cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.hold(1, 0, Some(UpdateType::RECORD));
        let (made, fid) = cluster.mkdir(1, ROOT, "d");
        let answer = cluster.begin(&made, false);
        inner.sleep(Duration::from_secs(1)).await;
        let way = &cluster.ways[&(1, 0)];
        way.breaks();
        inner.sleep(Duration::from_secs(3)).await;
        let client = way.client().follow(&cluster.servers[0].node);
        let identity = cluster.servers[1].mdt.identity().clone();
        client.connect_with(offer(identity.as_str())).await.expect("let in");
        way.is_there(&inner, client);
        way.hold(None);
        assert_eq!(cluster.answer(&answer).await, None);
        assert_eq!(cluster.child(0, ROOT, "d"), Some(fid));
        cluster.settle().await;
    };
    run(test, &world);
}

/// Directories are made, moved and removed over all MDTs, one after the other, while any of these die at any moment. Each is
/// answered as if none had.
fn any_die_at_any_moment(seed: u64, mdts: usize) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, mdts).await;
        cluster.meet().await;
        let root_links = cluster.links(0, ROOT).expect("it is there") as usize;
        let random = |below: usize| inner.world().random.number() as usize % below;
        let mut homes = vec![ROOT];
        for mdt in 1..mdts {
            homes.push(cluster.child(0, ROOT, &format!("first{mdt}")).expect("made"));
        }
        // The inode and its MDT, by the directory's MDT and name.
        let mut model: BTreeMap<(usize, String), (usize, Fid)> = BTreeMap::new();
        let mut gone = Vec::new();
        for _ in 0..24 {
            let (home, named) = (random(mdts), format!("n{}", random(4)));
            let key = (home, named.clone());
            let found = model.get(&key).copied();
            let mut is_local = false;
            let (operation, expected) = match (random(3), found) {
                (0, Some((mdt, fid))) => {
                    is_local = mdt == home;
                    model.remove(&key);
                    gone.push((mdt, fid));
                    (cluster.rmdir(mdt, (homes[home], &named), fid), None)
                }
                (1, Some((mdt, fid))) => {
                    let to = (home + 1 + random(mdts - 1)) % mdts;
                    let target = (to, format!("n{}", random(4)));
                    if model.contains_key(&target) {
                        continue;
                    }
                    let names = ((homes[home], &*named), (homes[to], &*target.1));
                    let request = cluster.clients[to].rename_request(names.0, names.1);
                    model.remove(&key);
                    model.insert(target, (mdt, fid));
                    (cluster.operation(to, request), None)
                }
                (_, found) => {
                    let mdt = (home + 1 + random(mdts - 1)) % mdts;
                    let (made, fid) = cluster.mkdir(mdt, homes[home], &named);
                    match found {
                        Some(_) => gone.push((mdt, fid)),
                        None => drop(model.insert(key, (mdt, fid))),
                    }
                    (made, found.map(|_| Errno::EEXIST))
                }
            };
            // What is one MDT's alone would have to be replayed, which this client does not.
            let one_in = if is_local { usize::MAX } else { 3 };
            cluster.any_die_meanwhile(&operation, (90, one_in), expected).await;
            cluster.servers[operation.mdt].node.target.sync().await.expect("it is well");
        }
        cluster.settle().await;
        for (home, directory) in homes.iter().enumerate() {
            for named in 0..4 {
                let named = format!("n{named}");
                let expected = model.get(&(home, named.clone())).map(|(_, fid)| *fid);
                assert_eq!(cluster.child(home, *directory, &named), expected, "{home} {named}");
            }
            let below = model.keys().filter(|(at, _)| *at == home).count();
            let empty = if home == 0 { root_links } else { 2 };
            let links = cluster.links(home, *directory).expect("it is there") as usize;
            assert_eq!(links, empty + below, "{home}");
        }
        for (mdt, fid) in model.into_values() {
            assert_eq!(cluster.links(mdt, fid), Ok(2));
        }
        for (mdt, fid) in gone {
            assert_eq!(cluster.links(mdt, fid), Err(Errno::ENOENT));
        }
        let index = |mdt: usize| MdtIndex(mdt as u16);
        for server in &cluster.servers {
            assert!((0..mdts).all(|mdt| server.node.target.missing_parts(index(mdt)).is_empty()));
        }
    };
    run(test, &world);
}

#[test]
fn two_mdts_die_at_any_moment() {
    (450..456).for_each(|seed| any_die_at_any_moment(seed, 2));
}

#[test]
fn three_mdts_die_at_any_moment() {
    (460..464).for_each(|seed| any_die_at_any_moment(seed, 3));
}
