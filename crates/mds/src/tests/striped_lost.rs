//! MDTs that die while directories with stripes are made, changed, replaced and removed.

use std::collections::BTreeMap;

use sheen_layout::directory::DirectoryLayout;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{AttrValid, RecSetattr, ReintOp};
use sheen_wire::messages::MdsReintSetattr;
use sheen_wire::out::UpdateType;

use super::harness::{DIRECTORY, run};
use super::lost_mdts::{Cluster, Operation};
use super::recovery::replay;
use super::striped::{wish, wishing};
use crate::striped::layout_in;

const ROOT: Fid = Fid::ROOT;

impl Cluster {
    /// A directory with a stripe on each MDT, beginning with this one.
    fn mkdir_striped(&self, mdt: usize, parent: Fid, named: &str) -> (Operation, Fid) {
        let count = self.servers.len() as u32;
        let request = self.clients[mdt].create_request(parent, named, DIRECTORY | 0o755);
        let request = wishing(request, &wish(count));
        let fid = request.rec_reint.fid2;
        (self.operation(mdt, request), fid)
    }

    fn chmod(&self, mdt: usize, fid: Fid, mode: u32) -> Operation {
        let valid = AttrValid::MODE | AttrValid::CTIME;
        let opcode = ReintOp::SETATTR;
        let rec_reint =
            RecSetattr { opcode, suppgid: u32::MAX, fid, valid, mode, ..RecSetattr::default() };
        self.operation(mdt, MdsReintSetattr { rec_reint, ..Default::default() })
    }

    /// Which MDT an inode is on.
    fn mdt_of(&self, fid: Fid) -> usize {
        self.servers[0].mdt.sequences.find(fid.seq).expect("an MDT's").index as usize
    }

    /// The stripes of a directory, each there with the master and of this mode.
    fn stripes(&self, mdt: usize, master: Fid, mode: u32) -> Vec<Fid> {
        let stripes = self.servers[mdt].mdt.stripes_of(master).expect("it can be read");
        assert_eq!(stripes.len(), self.servers.len(), "{master}");
        for (number, fid) in stripes.iter().chain([&master]).enumerate() {
            let server = &self.servers[self.mdt_of(*fid)].mdt;
            let inode = server.inode(*fid).unwrap_or_else(|errno| panic!("{fid}: {errno}"));
            let attributes = &inode.attributes;
            assert_eq!((attributes.permissions, attributes.links), (mode, 2), "{fid}");
            if *fid != master {
                let name = format!("{fid}:{number}");
                assert_eq!(self.child(mdt, master, &name), Some(*fid));
                assert_eq!(server.master_of(*fid), Ok(Some(master)));
            }
        }
        stripes
    }

    fn is_gone(&self, fids: impl IntoIterator<Item = Fid>) {
        for fid in fids {
            assert_eq!(self.links(self.mdt_of(fid), fid), Err(Errno::ENOENT), "{fid}");
        }
    }
}

#[test]
fn a_stripe_that_was_not_made_is_made_by_the_next_start_and_seen_with_all() {
    let world = TestWorld::new(480);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 3).await;
        cluster.meet().await;
        // Made on MDT0001, and not on the other MDTs, when that dies.
        cluster.hold(1, 2, Some(UpdateType::RECORD));
        let (made, master) = cluster.mkdir_striped(1, ROOT, "d");
        let unanswered = cluster.begin(&made, false);
        inner.sleep(std::time::Duration::from_secs(1)).await;
        assert!(unanswered.lock().is_none() && cluster.child(0, ROOT, "d").is_none());
        cluster.kill(1);
        cluster.come_back().await;
        assert_eq!(cluster.child(0, ROOT, "d"), Some(master));
        let stripes = cluster.stripes(1, master, 0o755);
        // An MDT that has started anew does not know whose that sequence was: it is left.
        let (next, other) = cluster.mkdir_striped(0, ROOT, "next");
        assert_eq!(cluster.execute(&next).await, None);
        let before = cluster.stripes(0, other, 0o755);
        cluster.kill(1);
        cluster.come_back().await;
        let (next, other) = cluster.mkdir_striped(0, ROOT, "then");
        assert_eq!(cluster.execute(&next).await, None);
        for (old, new) in before.iter().zip(cluster.stripes(0, other, 0o755)) {
            if cluster.mdt_of(*old) == 1 {
                assert_ne!(old.seq, new.seq);
            }
        }
        let again = cluster.begin(&made, true);
        assert_eq!(cluster.answer(&again).await, None);
        // Of a chmod, one stripe's MDT loses its part.
        cluster.hold(1, 0, Some(UpdateType::RECORD));
        let changed = cluster.begin(&cluster.chmod(1, master, 0o700), false);
        inner.sleep(std::time::Duration::from_secs(1)).await;
        cluster.kill(2);
        cluster.hold(1, 0, None);
        cluster.come_back().await;
        assert_eq!(cluster.answer(&changed).await, None);
        assert_eq!(cluster.stripes(1, master, 0o700), stripes);
        // And of the end of it.
        cluster.hold(1, 2, Some(UpdateType::RECORD));
        let removed = cluster.begin(&cluster.rmdir(1, (ROOT, "d"), master), false);
        inner.sleep(std::time::Duration::from_secs(1)).await;
        cluster.kill(0);
        cluster.kill(2);
        cluster.hold(1, 2, None);
        cluster.come_back().await;
        assert_eq!(cluster.answer(&removed).await, None);
        cluster.is_gone(stripes.into_iter().chain([master]));
        assert_eq!(cluster.child(0, ROOT, "d"), None);
        cluster.settle().await;
    };
    run(test, &world);
}

/// Directories with stripes are made, changed, replaced and removed, one after the other, while any MDTs die at any moment.
fn any_die_at_any_moment(seed: u64, mdts: usize) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, mdts).await;
        cluster.meet().await;
        let root_links = cluster.links(0, ROOT).expect("it is there");
        let random = |below: usize| inner.world().random.number() as usize % below;
        // By name the master's MDT, the master, its stripes and its mode.
        let mut model: BTreeMap<String, (usize, Fid, u32)> = BTreeMap::new();
        let mut gone = Vec::new();
        for _ in 0..16 {
            let named = format!("n{}", random(3));
            let found = model.get(&named).copied();
            let all_of = |cluster: &Cluster, (mdt, master, mode): (usize, Fid, u32)| {
                let stripes = cluster.stripes(mdt, master, mode);
                stripes.into_iter().chain([master]).collect::<Vec<_>>()
            };
            let (operation, expected) = match (random(4), found) {
                (0, Some(it)) => {
                    gone.extend(all_of(&cluster, it));
                    model.remove(&named);
                    (cluster.rmdir(it.0, (ROOT, &named), it.1), None)
                }
                (1, Some((mdt, master, _))) => {
                    let mode = 0o700 + random(8) as u32;
                    model.insert(named, (mdt, master, mode));
                    (cluster.chmod(mdt, master, mode), None)
                }
                (2, Some(it)) => {
                    let target = format!("n{}", random(3));
                    if target == named {
                        continue;
                    }
                    let to = model.get(&target).copied();
                    gone.extend(to.map(|to| all_of(&cluster, to)).unwrap_or_default());
                    let mdt = to.map_or(it.0, |to| to.0);
                    let names = ((ROOT, &*named), (ROOT, &*target));
                    let request = cluster.clients[mdt].rename_request(names.0, names.1);
                    // Names of one directory, and an inode of MDT0000: with nothing replaced that is a change of one MDT.
                    if to.is_none() && mdt == 0 {
                        continue;
                    }
                    model.remove(&named);
                    model.insert(target, it);
                    (cluster.operation(mdt, request), None)
                }
                (_, found) => {
                    let mdt = random(mdts);
                    let (made, fid) = cluster.mkdir_striped(mdt, ROOT, &named);
                    match found {
                        Some(_) => gone.push(fid),
                        None => drop(model.insert(named, (mdt, fid, 0o755))),
                    }
                    (made, found.map(|_| Errno::EEXIST))
                }
            };
            cluster.any_die_meanwhile(&operation, (120, 3), expected).await;
            for named in (0..3).map(|number| format!("n{number}")) {
                let it = model.get(&named);
                assert_eq!(cluster.child(0, ROOT, &named), it.map(|it| it.1), "{named}");
                it.map(|it| all_of(&cluster, *it));
            }
        }
        cluster.settle().await;
        cluster.is_gone(gone);
        let links = cluster.links(0, ROOT).expect("it is there");
        assert_eq!(links, root_links + model.len() as u32);
    };
    run(test, &world);
}

#[test]
fn two_mdts_with_stripes_die_at_any_moment() {
    (490..494).for_each(|seed| any_die_at_any_moment(seed, 2));
}

#[test]
fn three_mdts_with_stripes_die_at_any_moment() {
    (494..498).for_each(|seed| any_die_at_any_moment(seed, 3));
}

#[test]
fn a_mkdir_that_came_to_no_stripes_is_replayed_without_any() {
    let world = TestWorld::new(481);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 2).await;
        cluster.meet().await;
        cluster.settle().await;
        cluster.servers[1].mdt.set_read_only(true);
        // An ordinary user may, until the MDT has started anew.
        cluster.servers[0].mdt.set_remote_directories_gid(u32::MAX);
        let mode = AttrValid::MODE | AttrValid::CTIME;
        cluster.clients[0].setattr(ROOT, mode, |it| it.mode = 0o777).await.expect("changed");
        cluster.servers[0].node.target.sync().await.expect("it is well");
        cluster.stop_commits(0);
        let user = cluster.clients[0].as_user(7, 7);
        let request = wishing(user.create_request(ROOT, "d", DIRECTORY | 0o755), &wish(2));
        let fid = request.rec_reint.fid2;
        let made = cluster.operation(0, request);
        let pending = cluster.begin(&made, false);
        assert_eq!(cluster.answer(&pending).await, None);
        let first = pending.lock().clone().expect("answered");
        assert_eq!(cluster.servers[0].mdt.stripes_of(fid), Ok(Vec::new()));
        cluster.kill(0);
        cluster.servers[1].mdt.set_read_only(false);
        cluster.restart().await;
        let again = replay(&cluster.clients[0], made.request, &first).await;
        assert_eq!(again.errno(), None);
        cluster.finish().await;
        assert_eq!(cluster.child(0, ROOT, "d"), Some(fid));
        assert_eq!(cluster.servers[0].mdt.stripes_of(fid), Ok(Vec::new()));
        cluster.settle().await;
    };
    run(test, &world);
}

#[test]
fn a_change_that_waits_for_an_mdt_that_is_away_stops_nothing_elsewhere() {
    let world = TestWorld::new(482);
    let inner = world.clone();
    let test = async move {
        let mut cluster = Cluster::new(&inner, 3).await;
        cluster.meet().await;
        let (made, master) = cluster.mkdir_striped(0, ROOT, "d");
        assert_eq!(cluster.execute(&made).await, None);
        let stripes = cluster.stripes(0, master, 0o755);
        cluster.settle().await;
        cluster.kill(2);
        let changed = cluster.begin(&cluster.chmod(0, master, 0o700), false);
        inner.sleep(std::time::Duration::from_secs(1)).await;
        for fid in &stripes {
            let mdt = cluster.mdt_of(*fid);
            let layout = striped_layout(&cluster, 0, master);
            let names = (0..).map(|number| format!("f{number}"));
            let mut own = names.filter(|name| {
                stripes[layout.places(name.as_bytes()).expect("known").now as usize] == *fid
            });
            if mdt != 2 {
                let name = own.next().expect("a name");
                cluster.clients[mdt].make(*fid, &name, 0o100_644).await.expect("made");
            }
        }
        assert!(changed.lock().is_none());
        cluster.come_back().await;
        assert_eq!(cluster.answer(&changed).await, None);
        cluster.settle().await;
    };
    run(test, &world);
}

fn striped_layout(cluster: &Cluster, mdt: usize, master: Fid) -> DirectoryLayout {
    let layout = layout_in(&*cluster.servers[mdt].mdt.store, master);
    layout.expect("it can be read").expect("it has one")
}
