//! MDTs that die while directories are split and merged: what was begun ends by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::messages::ObdPing;
use sheen_wire::out::UpdateType;

use super::harness::{DIRECTORY, REGULAR, run};
use super::lost_mdts::{Cluster, Operation, yield_times};
use super::restripes::Stores;
use super::striped::{wish, wishing};

const ROOT: Fid = Fid::ROOT;

impl Cluster {
    fn stores(&self) -> Stores<'_> {
        Stores(&self.servers)
    }

    fn allow_restripes(&self) {
        self.servers.iter().for_each(|server| server.mdt.restripe_directories(true));
    }

    fn restripe(&self, text: &str, stripes: u32) -> Operation {
        let request = self.clients[0].create_request(ROOT, text, DIRECTORY | 0o755);
        self.operation(0, wishing(request, &wish(stripes)))
    }

    /// A directory with files and subdirectories, one of them on another MDT.
    async fn filled(&self) -> (Fid, BTreeMap<String, Fid>) {
        let (made, d) = self.mkdir(0, ROOT, "d");
        assert_eq!(self.execute(&made).await, None);
        for number in 0..24 {
            let text = format!("f{number}");
            self.clients[0].make(d, &text, REGULAR | 0o644).await.expect("made");
        }
        for mdt in 0..self.servers.len() {
            let (made, _) = self.mkdir(mdt, d, &format!("s{mdt}"));
            assert_eq!(self.execute(&made).await, None);
        }
        (d, self.stores().sound(d))
    }

    /// As `execute`, and returns with the answer at once.
    async fn begun(&self, operation: &Operation) {
        let pending = self.begin(operation, false);
        for _ in 0..100_000 {
            if let Some(answer) = pending.lock().as_ref() {
                assert_eq!(answer.errno(), None);
                return;
            }
            yield_times(1).await;
        }
        panic!("no answer");
    }

    /// All begin anew that are dead, and what was begun ends.
    async fn at_rest(&self) {
        for look in 1..1_200 {
            if self.stores().are_at_rest() {
                return;
            }
            self.world.sleep(Duration::from_millis(100)).await;
            // Clients are not evicted meanwhile.
            for client in self.clients.iter().filter(|_| look % 20 == 0) {
                client.wait(&self.world, 1).await;
            }
        }
        panic!("a split or merge does not end");
    }

    fn sound(&self, stripes: usize) -> BTreeMap<String, Fid> {
        let directory = self.stores().child(ROOT, "d").expect("it is there");
        assert_eq!(self.stores().stripes(directory).len(), stripes, "{directory}");
        let layout = self.stores().layout(directory).expect("it has one");
        assert_eq!(layout.change(), None);
        self.stores().sound(directory)
    }
}

/// A directory is split and merged while any MDTs die at any moment, again and again.
fn any_die_at_any_moment(seed: u64, mdts: usize) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, mdts).await;
        cluster.meet().await;
        let (_, expected) = cluster.filled().await;
        let mut stripes = 1;
        for _ in 0..4 {
            let wanted = if stripes == 1 { mdts } else { 1 };
            cluster.allow_restripes();
            cluster.settle().await;
            let begun = cluster.restripe("d", wanted as u32);
            let mut answer = cluster.begin(&begun, false);
            for round in 0..3 {
                yield_times(cluster.random(80 << round) as u64).await;
                // Clients that do nothing are not evicted meanwhile.
                for client in &cluster.clients {
                    client.inner.call(ObdPing::default()).await;
                }
                let victims = cluster.kill_any(3);
                let is_lost = victims.contains(&0) && answer.lock().is_none();
                cluster.come_back().await;
                cluster.allow_restripes();
                if is_lost {
                    answer = cluster.begin(&begun, true);
                }
            }
            let answered = cluster.answer(&answer).await;
            // It may have been done before, and MDTs that are away take no stripes.
            let is_fine = matches!(answered, None | Some(Errno::EALREADY | Errno::ENOSPC));
            assert!(is_fine, "{answered:?}");
            cluster.at_rest().await;
            cluster.settle().await;
            let again = cluster.execute(&cluster.restripe("d", wanted as u32)).await;
            assert!(matches!(again, None | Some(Errno::EALREADY)), "{again:?}");
            cluster.at_rest().await;
            stripes = wanted;
            assert_eq!(cluster.sound(stripes), expected);
        }
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn two_mdts_die_at_any_moment_of_a_split_or_merge() {
    (920..925).for_each(|seed| any_die_at_any_moment(seed, 2));
}

#[test]
fn three_mdts_die_at_any_moment_of_a_split_or_merge() {
    (925..928).for_each(|seed| any_die_at_any_moment(seed, 3));
}

#[test]
fn a_split_goes_on_where_it_was_when_an_mdt_comes_back() {
    let world = TestWorld::new(904);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        let (_, expected) = cluster.filled().await;
        cluster.settle().await;
        cluster.allow_restripes();
        cluster.begun(&cluster.restripe("d", 2)).await;
        // Names that are being moved wait for the other MDT; it dies.
        cluster.hold(0, 1, Some(UpdateType::RECORD));
        inner.sleep(Duration::from_secs(1)).await;
        cluster.kill(1);
        for _ in 0..6 {
            cluster.clients[0].wait(&inner, 3).await;
        }
        assert!(!cluster.stores().are_at_rest());
        cluster.hold(0, 1, None);
        cluster.come_back().await;
        cluster.at_rest().await;
        assert_eq!(cluster.sound(2), expected);
        // And the MDT of the master, in the middle of a merge: no client asks again.
        cluster.settle().await;
        cluster.allow_restripes();
        cluster.begun(&cluster.restripe("d", 1)).await;
        cluster.hold(1, 0, Some(UpdateType::EXCLUDE));
        inner.sleep(Duration::from_secs(1)).await;
        cluster.kill(0);
        cluster.hold(1, 0, None);
        cluster.come_back().await;
        cluster.at_rest().await;
        assert_eq!(cluster.sound(1), expected);
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn an_mdt_that_stays_away_stops_no_split_that_it_has_no_part_in() {
    let world = TestWorld::new(905);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 3).await;
        cluster.meet().await;
        // In `d` is a directory of MDT0002, which is to get another stripe.
        let (_, expected) = cluster.filled().await;
        let (made, other) = cluster.mkdir(0, ROOT, "other");
        assert_eq!(cluster.execute(&made).await, None);
        for number in 0..24 {
            let text = format!("f{number}");
            cluster.clients[0].make(other, &text, REGULAR | 0o644).await.expect("made");
        }
        cluster.settle().await;
        cluster.allow_restripes();
        cluster.hold(0, 2, Some(UpdateType::RECORD));
        cluster.begun(&cluster.restripe("d", 2)).await;
        inner.sleep(Duration::from_secs(1)).await;
        cluster.kill(2);
        cluster.begun(&cluster.restripe("other", 2)).await;
        let directory = cluster.stores().child(ROOT, "other").expect("it is there");
        let ends = async |seconds: u64| {
            for _ in 0..seconds.div_ceil(3) {
                cluster.clients[0].wait(&inner, 3).await;
                cluster.clients[1].wait(&inner, 3).await;
                if !cluster.stores().layout(directory).expect("one").is_changing() {
                    return true;
                }
            }
            false
        };
        assert!(ends(60).await, "it waits for an MDT that has nothing to do with it");
        assert_eq!(cluster.stores().sound(directory).len(), 24);
        cluster.hold(0, 2, None);
        cluster.come_back().await;
        cluster.at_rest().await;
        assert_eq!(cluster.sound(2), expected);
        cluster.settle().await;
    };
    run(test, &world);
}
