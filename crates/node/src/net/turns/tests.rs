use sheen_io::BoxFuture;
use sheen_types::Timestamp;

use super::*;

/// A clock that a test sets.
#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Instant {
        Instant(self.0.load(SeqCst))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::default()
    }

    fn sleep_until(&self, _deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Hand {
    fn go_on(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, SeqCst);
    }
}

/// Tasks of which none is ever begun.
struct Never;

impl Tasks for Never {
    fn spawn(&self, _name: &'static str, _task: BoxFuture<'static, ()>) {}

    fn blocking(&self, _job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn turns(workers: usize) -> (Arc<Hand>, Arc<Turns>) {
    let clock = Arc::new(Hand(AtomicU64::new(INTERVAL.as_nanos() as u64 * 10)));
    (Arc::clone(&clock), Turns::of(clock, Arc::new(Never), workers))
}

fn share(turns: &Arc<Turns>) -> Arc<Share> {
    PeerTurns::new(turns).0.expect("a share")
}

/// How many turns it gets before one is refused.
fn taken<'a>(share: &'a Share, most: usize) -> Vec<Turn<'a>> {
    (0..most).map_while(|_| share.begin()).collect()
}

/// A waker that says whether it was woken.
struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn woken() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    (Arc::clone(&woken), woken.into())
}

#[test]
fn a_peer_that_is_alone_has_all_workers_and_more() {
    let (_, turns) = turns(2);
    assert_eq!(taken(&share(&turns), 10).len(), 10);
}

#[test]
fn each_of_several_has_its_part_and_one_worker_is_left_for_the_next() {
    let (_, turns) = turns(8);
    let (one, other, third) = (share(&turns), share(&turns), share(&turns));
    drop((one.begin(), other.begin()));
    let held = taken(&one, 10);
    assert_eq!(held.len(), 7, "all but one, though its part is four");
    assert_eq!(taken(&other, 10).len(), 4, "its part, whatever the first has");
    assert_eq!(taken(&third, 10).len(), 2, "a third of eight");
}

#[test]
fn of_two_workers_each_of_two_peers_has_one() {
    let (clock, turns) = turns(2);
    let (greedy, good) = (share(&turns), share(&turns));
    drop(good.begin());
    let held = taken(&greedy, 10);
    assert_eq!(held.len(), 1);
    assert!(good.begin().is_some(), "it finds one free");
    // Two intervals later the other one has gone.
    clock.go_on(INTERVAL);
    assert!(greedy.begin().is_none(), "it was there in the interval before");
    clock.go_on(INTERVAL);
    drop(greedy.begin());
    clock.go_on(INTERVAL);
    assert_eq!(taken(&greedy, 10).len(), 10);
}

#[test]
fn who_waits_is_woken_in_order_and_keeps_the_place_when_it_was_in_vain() {
    let (_, turns) = turns(2);
    let (peer, other) = (share(&turns), share(&turns));
    drop(other.begin());
    let turn = peer.begin().expect("a turn");
    let mut places = [0, 1].map(|_| QueuePosition::new(&peer));
    let signs = [woken(), woken()];
    for (place, (_, waker)) in places.iter_mut().zip(&signs) {
        assert!(place.begin(waker).is_none());
    }
    drop(turn);
    let is_woken = |index: usize| signs[index].0.0.swap(false, SeqCst);
    assert_eq!([is_woken(0), is_woken(1)], [true, false]);
    // A third comes first: the one that was woken waits again, before the second.
    let third = peer.begin().expect("free");
    assert!(places[0].begin(&signs[0].1).is_none());
    drop(third);
    assert_eq!([is_woken(0), is_woken(1)], [true, false]);
    let turn = places[0].begin(&signs[0].1).expect("its turn");
    drop(turn);
    assert_eq!([is_woken(0), is_woken(1)], [false, true]);
}

#[test]
fn a_task_that_is_dropped_after_it_was_woken_passes_the_turn_on() {
    let (_, turns) = turns(2);
    let (peer, other) = (share(&turns), share(&turns));
    drop(other.begin());
    let turn = peer.begin().expect("a turn");
    let [mut first, mut second] = [0, 1].map(|_| QueuePosition::new(&peer));
    let (signs, sign) = (woken(), woken());
    assert!(first.begin(&signs.1).is_none());
    assert!(second.begin(&sign.1).is_none());
    drop(turn);
    assert!(signs.0.0.load(SeqCst) && !sign.0.0.load(SeqCst));
    drop(first);
    assert!(sign.0.0.load(SeqCst));
    drop(second);
    assert_eq!(peer.waits.load(SeqCst), 0);
    assert!(peer.waiting.lock().queue.is_empty());
}

/// A poll that stands still, as one that waits for a lock of a thread: what would end its wait is another of its peer's.
#[test]
fn a_turn_that_lasts_does_not_block_the_peers_next() {
    let host = sheen_io_os::Host::start(Some(2)).expect("threads");
    let world = host.world();
    let turns = Turns::new(&world);
    let (peer, other) = (PeerTurns::new(&turns), PeerTurns::new(&turns));
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let (done, is_done) = std::sync::mpsc::channel();
    let active = other.clone();
    let stays = async move {
        for _ in 0..200 {
            active.run(false, sheen_io::yield_once()).await;
        }
    };
    host.block_on(stays);
    let (first, second) = (peer.clone(), peer);
    let stands = async move {
        begun.send(()).expect("heard");
        ends.recv_timeout(Duration::from_secs(30)).expect("ended by the other");
        done.send(()).expect("heard");
    };
    world.tasks.spawn("stands", Box::pin(async move { first.run(false, stands).await }));
    has_begun.recv().expect("it stands");
    let frees = async move { end.send(()).expect("it waits") };
    // The other peer is active all the time, so that this one has one turn.
    let busy = async move {
        loop {
            other.run(false, sheen_io::yield_once()).await;
        }
    };
    world.tasks.spawn("busy", Box::pin(busy));
    world.tasks.spawn("frees", Box::pin(async move { second.run(false, frees).await }));
    is_done.recv_timeout(Duration::from_secs(20)).expect("one more turn began");
}

/// Many tasks of several peers on real threads, all of which end: no wake-up is lost.
#[test]
fn all_polls_get_their_turn_on_real_threads() {
    [1, 4].into_iter().for_each(all_polls_get_their_turn);
}

fn all_polls_get_their_turn(workers: usize) {
    let host = sheen_io_os::Host::start(Some(workers)).expect("threads");
    let world = host.world();
    let turns = Turns::new(&world);
    let done = Arc::new(AtomicUsize::new(0));
    let (peers, tasks, polls) = (3, 200, 50);
    for _ in 0..peers {
        let peer = PeerTurns::new(&turns);
        for number in 0..tasks {
            let (peer, done) = (peer.clone(), Arc::clone(&done));
            let work = async move {
                for _ in 0..polls {
                    sheen_io::yield_once().await;
                }
            };
            let is_dropped = number % 10 == 0;
            let task = async move {
                let mut run = Box::pin(peer.run(false, work));
                let mut looks = 0;
                poll_fn(|context| {
                    looks += 1;
                    match is_dropped && looks > 3 {
                        true => Poll::Ready(()),
                        false => run.as_mut().poll(context),
                    }
                })
                .await;
                drop(run);
                done.fetch_add(1, SeqCst);
            };
            world.tasks.spawn("peer", Box::pin(task));
        }
    }
    wait_for(&host, &done, peers * tasks);
}

/// That all tasks end.
fn wait_for(host: &sheen_io_os::Host, done: &AtomicUsize, tasks: usize) {
    let clock = host.world().clock;
    let end = clock.now() + Duration::from_secs(60);
    host.block_on(async {
        while done.load(SeqCst) < tasks && clock.now() < end {
            clock.sleep_until(clock.now() + Duration::from_millis(5)).await;
        }
    });
    assert_eq!(done.load(SeqCst), tasks);
}

/// One worker, a peer with many tasks that are ready all the time, and one with a single task: they take turns.
#[test]
fn of_one_worker_a_single_task_has_every_other_turn() {
    const TASKS: usize = 50;
    let host = sheen_io_os::Host::start(Some(1)).expect("a thread");
    let world = host.world();
    let turns = Turns::new(&world);
    let (greedy, good) = (PeerTurns::new(&turns), PeerTurns::new(&turns));
    let (greedy_polls, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..TASKS {
        let (peer, polls) = (greedy.clone(), Arc::clone(&greedy_polls));
        let (is_over, ended) = (Arc::clone(&is_over), Arc::clone(&ended));
        let work = async move {
            while !is_over.load(SeqCst) {
                polls.fetch_add(1, SeqCst);
                sheen_io::yield_once().await;
            }
            ended.fetch_add(1, SeqCst);
        };
        world.tasks.spawn("greedy", Box::pin(async move { peer.run(false, work).await }));
    }
    let (sender, counts) = std::sync::mpsc::channel();
    let polls = Arc::clone(&greedy_polls);
    let work = async move {
        for _ in 0..1000 {
            sender.send(polls.load(SeqCst)).expect("heard");
            sheen_io::yield_once().await;
        }
        is_over.store(true, SeqCst);
    };
    world.tasks.spawn("good", Box::pin(async move { good.run(false, work).await }));
    let counts: Vec<usize> = counts.iter().collect();
    let between = |(one, next): (&usize, &usize)| next - one;
    let mut between: Vec<usize> = counts.iter().zip(&counts[1..]).map(between).skip(100).collect();
    between.sort_unstable();
    // Two: one that was under way, and one that is before it in the queue. Where this process had no processor for two
    // intervals, no peer seems active, and more go by.
    let most = between[between.len() * 9 / 10];
    assert!(counts.len() == 1000 && most <= 2, "{most} turns of the other peer between two");
    wait_for(&host, &ended, TASKS);
}
