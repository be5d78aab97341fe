//! MDTs that die while directories move from one to another.

use std::collections::BTreeMap;

use sheen_layout::directory::{DirectoryLayout, DirectoryWish};
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::md::{AttrValid, RecSetattr, ReintOp};
use sheen_wire::messages::{MdsReintSetattr, MdsReintSetxattr};
use sheen_wire::text::Text;

use super::checks::cut_is_sound;
use super::harness::{REGULAR, run};
use super::lost_mdts::{Cluster, Operation};
use super::migrations::{migrate_request, stripes, to};
use super::recovery::replay;
use crate::striped::layout_in;

const ROOT: Fid = Fid::ROOT;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Where a directory that moves to and fro is.
struct Moved {
    mdt: usize,
    master: Fid,
}

impl Cluster {
    fn index_of(&self, fid: Fid) -> usize {
        let range = self.servers[0].mdt.sequences.find(fid.seq);
        range.map_or(0, |range| range.index as usize)
    }

    fn layout_of(&self, master: Fid) -> Option<DirectoryLayout> {
        let store = &*self.servers[self.index_of(master)].mdt.store;
        layout_in(store, master).expect("it can be read")
    }

    /// Asks the MDT that is to be asked to move a name, or to begin.
    fn migration(&self, mdt: usize, place: (Fid, &str), first: u16) -> (Operation, Fid) {
        let client = &self.clients[mdt];
        let new = client.next_fid();
        (self.operation(mdt, migrate_request(client, place, new, &to(first, 1))), new)
    }

    fn ending(&self, master: Fid, first: u16) -> Operation {
        self.ending_by(master, &to(first, 1))
    }

    fn ending_by(&self, master: Fid, wish: &DirectoryWish) -> Operation {
        let mdt = self.index_of(master);
        let rec_reint = sheen_wire::md::RecSetxattr {
            opcode: sheen_wire::md::ReintOp::SETXATTR,
            fid: master,
            ..Default::default()
        };
        let request = MdsReintSetxattr {
            rec_reint,
            name: Some(Text::new("trusted.lmv")),
            eadata: wish.to_ea().encode(),
            ..Default::default()
        };
        self.operation(mdt, request)
    }

    /// Where each name is, and what it stands for: in one stripe, and there is the inode.
    fn names_of(&self, master: Fid) -> BTreeMap<&'static str, (Fid, Fid)> {
        let all = match self.layout_of(master) {
            Some(layout) => stripes(&layout),
            None => vec![master],
        };
        let mut found = BTreeMap::new();
        for name in NAMES {
            let places = all.iter().filter_map(|stripe| {
                let child = self.child(self.index_of(*stripe), *stripe, name)?;
                Some((*stripe, child))
            });
            let places: Vec<_> = places.collect();
            assert_eq!(places.len(), 1, "{name} in {places:?}");
            let (stripe, child) = places[0];
            assert_eq!(self.links(self.index_of(child), child), Ok(1), "{name}");
            found.insert(name, (stripe, child));
        }
        found
    }
}

/// A directory moves from one MDT to another, again and again, while any MDTs die at any moment.
fn any_die_at_any_moment(seed: u64, mdts: usize) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, mdts).await;
        cluster.meet().await;
        let (made, master) = cluster.mkdir(0, ROOT, "moving");
        assert_eq!(cluster.execute(&made).await, None);
        for name in NAMES {
            cluster.clients[0].make(master, name, REGULAR | 0o644).await.expect("made");
        }
        let root_links = cluster.links(0, ROOT).expect("it is there");
        let mut moved = Moved { mdt: 0, master };
        for round in 1..4 {
            let next = (moved.mdt + 1) % mdts;
            let first = MdtIndex(next as u16).0;
            let mut steps = vec![None];
            steps.extend(NAMES.map(Some));
            let mut new_master = moved.master;
            for step in steps {
                let (operation, new) = match step {
                    None => cluster.migration(next, (ROOT, "moving"), first),
                    Some(name) => {
                        let (_, child) = cluster.names_of(new_master)[name];
                        let mdt = cluster.index_of(child);
                        cluster.migration(mdt, (new_master, name), first)
                    }
                };
                cluster.any_die_meanwhile(&operation, (150, 4), None).await;
                if step.is_none() {
                    new_master = new;
                    assert_eq!(cluster.child(0, ROOT, "moving"), Some(new), "{round}");
                }
                cluster.names_of(new_master);
            }
            let layout = cluster.layout_of(new_master).expect("it has one");
            let sources = stripes(&layout).split_off(1);
            let operation = cluster.ending(new_master, first);
            cluster.any_die_meanwhile(&operation, (150, 4), None).await;
            let layout = cluster.layout_of(new_master).expect("it has one");
            assert_eq!((layout.change(), stripes(&layout).len()), (None, 1));
            for gone in sources {
                assert_eq!(cluster.links(cluster.index_of(gone), gone), Err(Errno::ENOENT));
            }
            for (stripe, child) in cluster.names_of(new_master).values() {
                assert_eq!((cluster.index_of(*stripe), cluster.index_of(*child)), (next, next));
            }
            moved = Moved { mdt: next, master: new_master };
        }
        cluster.settle().await;
        assert_eq!(cluster.links(0, ROOT), Ok(root_links));
    };
    run(test, &world);
}

#[test]
fn two_mdts_die_at_any_moment_of_a_migration() {
    (920..924).for_each(|seed| any_die_at_any_moment(seed, 2));
}

#[test]
fn three_mdts_die_at_any_moment_of_a_migration() {
    (924..928).for_each(|seed| any_die_at_any_moment(seed, 3));
}

/// A change of attributes is no part of what a migration waits for.
#[test]
fn a_replayed_chmod_is_made_of_what_has_become_a_stripe() {
    let world = TestWorld::new(928);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        let (made, d) = cluster.mkdir(0, ROOT, "d");
        assert_eq!(cluster.execute(&made).await, None);
        cluster.settle().await;
        cluster.servers[0].node.target.sync().await.expect("it is well");
        let rec_reint = RecSetattr {
            opcode: ReintOp::SETATTR,
            suppgid: u32::MAX,
            fid: d,
            valid: AttrValid::MODE | AttrValid::CTIME,
            mode: 0o700,
            ..RecSetattr::default()
        };
        let request = MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() };
        let changed = cluster.operation(0, request);
        let pending = cluster.begin(&changed, false);
        assert_eq!(cluster.answer(&pending).await, None);
        let first = pending.lock().clone().expect("answered");
        cluster.stop_commits(0);
        let (begun, master) = cluster.migration(1, (ROOT, "d"), 1);
        let begun = cluster.begin(&begun, false);
        inner.sleep(std::time::Duration::from_secs(3)).await;
        cluster.kill(0);
        cluster.restart().await;
        let again = replay(&cluster.clients[0], changed.request, &first).await;
        assert_eq!(again.errno(), None);
        cluster.finish().await;
        assert_eq!(cluster.answer(&begun).await, None);
        for fid in stripes(&cluster.layout_of(master).expect("one")).into_iter().chain([master]) {
            let inode = cluster.servers[cluster.index_of(fid)].mdt.inode(fid).expect("there");
            assert_eq!(inode.attributes.permissions, 0o700, "{fid}");
        }
        cluster.settle().await;
    };
    run(test, &world);
}

/// A directory of stripes on all MDTs, with directories in it, moves to stripes on all, while any MDTs die at any moment and names come
/// and go.
fn stripes_die_at_any_moment(seed: u64, mdts: usize) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, mdts).await;
        cluster.meet().await;
        let (made, mut master) = cluster.mkdir(0, ROOT, "moving");
        assert_eq!(cluster.execute(&made).await, None);
        for name in NAMES {
            let client = &cluster.clients[0];
            match name {
                "d" | "e" => drop(client.mkdir(master, name).await.expect("made")),
                _ => drop(client.make(master, name, REGULAR | 0o644).await.expect("made")),
            }
        }
        for round in 0..2 {
            let first = (cluster.index_of(master) + 1) % mdts;
            let wish = |first: usize| to(first as u16, mdts as u32);
            let begin = |cluster: &Cluster, mdt: usize, place: (Fid, &str), first: usize| {
                let new = cluster.clients[mdt].next_fid();
                let request = migrate_request(&cluster.clients[mdt], place, new, &wish(first));
                (cluster.operation(mdt, request), new)
            };
            let (operation, new) = begin(&cluster, first, (ROOT, "moving"), first);
            cluster.any_die_meanwhile(&operation, (150, 4), None).await;
            assert_eq!(cluster.child(0, ROOT, "moving"), Some(new), "{round}");
            master = new;
            let layout = cluster.layout_of(master).expect("it has one");
            let all = stripes(&layout);
            let mut added = Vec::new();
            for name in NAMES {
                let found =
                    all.iter().find_map(|it| cluster.child(cluster.index_of(*it), *it, name));
                let child = found.expect("it is in one");
                let now = all[layout.places(name.as_bytes()).expect("known").now as usize];
                let (mdt, first) = match name {
                    "d" | "e" => (cluster.index_of(now), cluster.index_of(now)),
                    _ => (cluster.index_of(child), first),
                };
                let (operation, _) = begin(&cluster, mdt, (master, name), first);
                cluster.any_die_meanwhile(&operation, (150, 4), None).await;
                assert!(cluster.child(cluster.index_of(now), now, name).is_some(), "{name}");
                let new = format!("n{round}{name}");
                let place = all[layout.places(new.as_bytes()).expect("known").now as usize];
                let client = &cluster.clients[cluster.index_of(place)];
                client.make(place, &new, REGULAR | 0o644).await.expect("made");
                // It is not replayed here.
                let server = &cluster.servers[cluster.index_of(place)];
                server.node.target.sync().await.expect("it is well");
                added.push((place, new));
            }
            for name in ["d", "e"] {
                let found =
                    all.iter().find_map(|it| cluster.child(cluster.index_of(*it), *it, name));
                let sub = found.expect("it is in one");
                let operation = cluster.ending_by(sub, &wish(cluster.index_of(sub)));
                cluster.any_die_meanwhile(&operation, (150, 4), None).await;
            }
            let operation = cluster.ending_by(master, &wish(first));
            cluster.any_die_meanwhile(&operation, (150, 4), None).await;
            let layout = cluster.layout_of(master).expect("it has one");
            assert_eq!((layout.change(), stripes(&layout).len()), (None, mdts));
            for (place, name) in added {
                let mdt = cluster.index_of(place);
                assert!(cluster.child(mdt, place, &name).is_some(), "{name}");
                cluster.clients[mdt].unlink(place, &name).await.expect("removed");
            }
        }
        cluster.settle().await;
        cut_is_sound(&cluster.durable());
    };
    run(test, &world);
}

#[test]
fn mdts_die_at_any_moment_while_stripes_move_to_stripes() {
    (930..933).for_each(|seed| stripes_die_at_any_moment(seed, 2));
    (933..936).for_each(|seed| stripes_die_at_any_moment(seed, 3));
}
