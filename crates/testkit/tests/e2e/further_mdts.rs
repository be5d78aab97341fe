//! A further MDT joins a file system in use: it waits for the first one, is known to it from then on, and both come back
//! after they have died or stopped. What its clients may not do yet is refused; what is MDT0000's goes on.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sheen_store::{AttributePatch, Store, Transaction};
use sheen_store_disk::{Config, OpenOptions, StoreDisk};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_types::{Fid, fid_seq};
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::nodes::{Node, PORT, format, mount, nid, spawn, stop_now, unmount};

/// Longer than any start or recovery takes here.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(240);
/// The nodes of the MGS, MDT0000, the OST, MDT0001 and the mount, behind the first one of a test.
pub(crate) const MGS: u32 = 0;
pub(crate) const FIRST: u32 = 1;
pub(crate) const OST: u32 = 2;
pub(crate) const SECOND: u32 = 3;
const MOUNT: u32 = 4;

/// Targets made by mkfs.lustre, each with a server of its own.
pub(crate) struct Targets<'a> {
    cluster: &'a Cluster,
    /// Which file system of this process it is: addresses are by it.
    base: u32,
    mgt: PathBuf,
    first: PathBuf,
    ost: PathBuf,
    second: PathBuf,
}

impl<'a> Targets<'a> {
    pub(crate) fn format(cluster: &'a Cluster, base: u32) -> Outcome<Self> {
        let mgs = nid(base + MGS);
        let mgt = cluster.dir().join("mgt");
        cluster.must(&["mkfs.lustre", "-q", "--mgs", &mgt.to_string_lossy()])?;
        let target =
            |name, kind, index| format(cluster, name, &[kind, "--index", index, "--mgsnode", &mgs]);
        let (first, ost) = (target("first", "--mdt", "0")?, target("ost", "--ost", "0")?);
        let second = target("second", "--mdt", "1")?;
        Ok(Self { cluster, base, mgt, first, ost, second })
    }

    pub(crate) fn serve(&self, node: u32) -> Outcome<Node> {
        let target = match node {
            MGS => &self.mgt,
            FIRST => &self.first,
            OST => &self.ost,
            _ => &self.second,
        };
        let (nid, target) = (nid(self.base + node), target.to_string_lossy());
        let timeouts = ["--timeout", "20"];
        let server = ["server", "--nid", &nid, "--port", PORT];
        let arguments = [&server[..], &timeouts[..], &[&*target]].concat();
        spawn(self.cluster, &arguments, &self.log(node))
    }

    fn log(&self, node: u32) -> PathBuf {
        self.cluster.logs().join(format!("server{node}.log"))
    }

    fn is_ready(&self, node: u32) -> bool {
        text(&self.log(node)).lines().any(|line| line.ends_with("ready"))
    }

    /// Each of the MDTs has the other one as a client.
    pub(crate) fn know_each_other(&self) -> bool {
        [("nodes-MDT0000", "nodes-MDT0001-mdtlov"), ("nodes-MDT0001", "nodes-MDT0000-mdtlov")]
            .iter()
            .all(|(mdt, other)| {
                let name = format!("mdt.{mdt}.exports.*.uuid");
                let shown = self.cluster.run(&["lctl", "get_param", "-n", &name]);
                shown.is_ok_and(|shown| shown.output.contains(other))
            })
    }

    /// Before it knows both, it refuses clients that do.
    pub(crate) fn are_known_to_the_ost(&self) -> bool {
        let known = ["lctl", "get_param", "-n", "obdfilter.nodes-OST0000.mdt_identity"];
        self.cluster.run(&known).is_ok_and(|shown| {
            shown.output.contains("MDT0000:") && shown.output.contains("MDT0001:")
        })
    }

    pub(crate) fn mount(&self, log: &Path) -> Outcome<Node> {
        let source = format!("{}:/nodes", nid(self.base + MGS));
        mount(self.cluster, (&source, &nid(self.base + MOUNT)), log)
    }

    /// Brings them together as for `sheen up`.
    fn bring_together(&mut self) -> Outcome {
        let all = self.cluster.dir().join("all");
        fs::create_dir(&all).context("mkdir")?;
        for (target, folder) in [
            (&mut self.mgt, "mgt"),
            (&mut self.first, "mdt0000"),
            (&mut self.second, "mdt0001"),
            (&mut self.ost, "ost0000"),
        ] {
            let place = all.join(folder);
            fs::rename(&target, &place).context("move a target")?;
            *target = place;
        }
        Ok(())
    }

    /// How `sheen fsck` leaves, and what it says.
    fn fsck(&self, more: &[&str]) -> Outcome<(Option<i32>, String)> {
        let all = self.cluster.dir().join("all");
        let done =
            self.cluster.run(&[&["fsck", "--dir", &all.to_string_lossy()], more].concat())?;
        Ok((done.status.code(), done.output))
    }

    /// `sheen fsck` finds nothing to repair.
    fn are_sound(&self) -> Outcome {
        for more in [&[][..], &["-y"]] {
            let (code, said) = self.fsck(more)?;
            let is_so = code == Some(0) && said.trim_end().ends_with(" 0 problems");
            ensure(is_so, || format!("{code:?}: {said}"))?;
        }
        Ok(())
    }
}

/// Files of MDT0000 are there, and new ones are made.
fn goes_on(mnt: &Path, file: &str) -> Outcome {
    fs::write(mnt.join(file), file).context("write")?;
    fs::create_dir(mnt.join(format!("{file}.d"))).context("mkdir")?;
    for file in ["before", file] {
        let held = fs::read_to_string(mnt.join(file)).context("read")?;
        ensure(held == file, || format!("{file} has {held:?}"))?;
    }
    Ok(())
}

fn join(cluster: &Cluster) -> Outcome {
    let targets = Targets::format(cluster, 70)?;
    let (_mgs, first) = (targets.serve(MGS)?, targets.serve(FIRST)?);
    let _ost = targets.serve(OST)?;
    let (mnt, log) = (cluster.mnt(), cluster.logs().join("mount.log"));
    let mounted = targets.mount(&log)?;
    fs::write(mnt.join("before"), "before").context("write")?;

    // It joins while the first one is away: it waits, and says what for.
    drop(first);
    let second = targets.serve(SECOND)?;
    let waits = || text(&targets.log(SECOND)).contains("waits for MDT0000");
    wait_until("a word of what it waits for", PATIENCE, waits)?;
    ensure(!targets.is_ready(SECOND), || "it is ready without FIDs".to_owned())?;
    let first = targets.serve(FIRST)?;
    wait_until("the second MDT", PATIENCE, || targets.is_ready(SECOND))?;
    wait_until("the MDTs to know each other", PATIENCE, || targets.know_each_other())?;
    goes_on(&mnt, "joined")?;
    wait_until("the OST to know both", PATIENCE, || targets.are_known_to_the_ost())?;

    // Either dies.
    drop(second);
    goes_on(&mnt, "without")?;
    let second = targets.serve(SECOND)?;
    wait_until("the second MDT again", PATIENCE, || targets.know_each_other())?;
    drop(first);
    let mut first = targets.serve(FIRST)?;
    goes_on(&mnt, "again")?;
    wait_until("the first MDT again", PATIENCE, || targets.know_each_other())?;

    // Both stop, and the mount is another one that finds two MDTs.
    unmount(cluster, mounted)?;
    let mut second = second;
    stop_now(&mut second)?;
    stop_now(&mut first)?;
    let (_first, _second) = (targets.serve(FIRST)?, targets.serve(SECOND)?);
    let mounted = targets.mount(&log)?;
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    goes_on(&mnt, "after")?;
    for node in [FIRST, SECOND, OST] {
        let log = text(&targets.log(node));
        let bad = log.lines().find(|line| line.contains("panicked") || line.contains(" ERROR "));
        ensure(bad.is_none(), || format!("server {node}: {bad:?}"))?;
    }
    unmount(cluster, mounted)
}

#[test]
fn a_further_mdt_joins_and_survives_deaths_and_restarts() {
    let cluster = Cluster::prepare("further-mdt", 1, &[]).expect("a folder");
    join(&cluster).expect("two MDTs");
}

/// Two MDTs that know each other, and a mount.
fn with_two(cluster: &Cluster, base: u32, test: impl FnOnce(&Path) -> Outcome) -> Outcome {
    made_by_two(cluster, base, test).map(drop)
}

/// What those leave, stopped and sound.
fn made_by_two<'a>(
    cluster: &'a Cluster,
    base: u32,
    test: impl FnOnce(&Path) -> Outcome,
) -> Outcome<Targets<'a>> {
    let mut targets = Targets::format(cluster, base)?;
    let nodes = [MGS, FIRST, OST, SECOND].map(|node| targets.serve(node));
    let nodes = nodes.into_iter().collect::<Outcome<Vec<_>>>()?;
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    wait_until("the OST to know both", PATIENCE, || targets.are_known_to_the_ost())?;
    let mounted = targets.mount(&cluster.logs().join("mount.log"))?;
    test(&cluster.mnt())?;
    unmount(cluster, mounted)?;
    for mut node in nodes.into_iter().rev() {
        stop_now(&mut node)?;
    }
    targets.bring_together()?;
    targets.are_sound()?;
    for node in [FIRST, SECOND, OST] {
        let log = text(&targets.log(node));
        let bad = log.lines().find(|line| line.contains("panicked") || line.contains(" ERROR "));
        ensure(bad.is_none(), || format!("server {node}: {bad:?}"))?;
    }
    Ok(targets)
}

/// The names in a directory.
pub(crate) fn names(directory: &Path) -> Outcome<Vec<String>> {
    let entries = fs::read_dir(directory).context("list")?;
    let names: Result<Vec<_>, _> = entries.map(|entry| entry.map(|it| it.file_name())).collect();
    let names = names.context("list")?.into_iter();
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

pub(crate) fn is<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Outcome {
    ensure(found == wanted, || format!("{found:?} instead of {wanted:?}"))
}

/// Makes, fills, lists, renames, links and removes across both.
fn over_both(cluster: &Cluster, mnt: &Path) -> Outcome {
    let far = mnt.join("far");
    // The kernel has seen that it is not there.
    ensure(!far.exists(), || "it is there".to_owned())?;
    cluster.must(&["lctl", "set_param", "mdt.*.enable_remote_dir=0"])?;
    let refused = cluster.run(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
    is(&refused.status.code(), &Some(1))?;
    cluster.must(&["lctl", "set_param", "mdt.*.enable_remote_dir=1"])?;
    cluster.must(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
    let again = cluster.run(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
    is(&again.status.code(), &Some(17))?;
    let striped = mnt.join("striped");
    cluster.must(&["lfs", "mkdir", "-c", "2", &striped.to_string_lossy()])?;
    fs::remove_dir(&striped).context("rmdir")?;
    let links = |path: &Path| fs::metadata(path).context("stat").map(|it| it.nlink());
    let root = links(mnt)?;
    let second = mnt.join("second");
    cluster.must(&["lfs", "setdirstripe", "-i", "1", "-o", "750", &second.to_string_lossy()])?;
    is(&(links(mnt)?, links(&second)?), &(root + 1, 2))?;
    is(&(fs::metadata(&second).context("stat")?.permissions().mode() & 0o7777), &0o750)?;
    fs::create_dir(far.join("below")).context("mkdir")?;
    for at in 0..20 {
        fs::write(far.join(format!("f{at}")), format!("data {at}")).context("write")?;
    }
    is(&names(&far)?.len(), &21)?;
    is(&names(mnt)?, &["far", "second"].map(str::to_owned).to_vec())?;
    // Files go to MDT0000's directory, and stay where they are.
    for at in 0..10 {
        fs::rename(far.join(format!("f{at}")), mnt.join(format!("g{at}"))).context("rename")?;
    }
    fs::rename(mnt.join("g0"), far.join("f10")).context("rename over another one")?;
    is(&fs::read_to_string(far.join("f10")).context("read")?, &"data 0".to_owned())?;
    fs::write(mnt.join("near"), "near").context("write")?;
    fs::rename(mnt.join("near"), far.join("f11")).context("rename over a remote one")?;
    is(&fs::read_to_string(far.join("f11")).context("read")?, &"near".to_owned())?;
    fs::hard_link(mnt.join("g1"), far.join("h1")).context("link")?;
    fs::hard_link(far.join("f11"), mnt.join("h2")).context("link")?;
    is(&(links(&mnt.join("g1"))?, links(&mnt.join("h2"))?), &(2, 2))?;
    fs::remove_file(mnt.join("g1")).context("unlink")?;
    is(
        &(links(&far.join("h1"))?, fs::read_to_string(far.join("h1")).context("read")?),
        &(1, "data 1".to_owned()),
    )?;
    fs::OpenOptions::new()
        .append(true)
        .open(mnt.join("h2"))
        .context("open")?
        .write_all(b"!")
        .context("write")?;
    is(&fs::read_to_string(far.join("f11")).context("read")?, &"near!".to_owned())?;
    fs::set_permissions(far.join("f11"), fs::Permissions::from_mode(0o600)).context("chmod")?;
    is(&(fs::metadata(mnt.join("h2")).context("stat")?.permissions().mode() & 0o777), &0o600)?;
    // Directories go to and fro, and not into themselves.
    fs::rename(far.join("below"), mnt.join("up")).context("rename a directory")?;
    fs::rename(mnt.join("second"), mnt.join("up/second")).context("rename a remote directory")?;
    let circle = fs::rename(mnt.join("up"), mnt.join("up/second/x"));
    is(&circle.err().and_then(|error| error.raw_os_error()), &Some(22))?;
    let full = fs::remove_dir(mnt.join("up"));
    is(&full.err().and_then(|error| error.raw_os_error()), &Some(39))?;
    is(&names(&mnt.join("up"))?, &vec!["second".to_owned()])?;
    fs::remove_dir(mnt.join("up/second")).context("rmdir")?;
    fs::remove_dir(mnt.join("up")).context("rmdir")?;
    fs::remove_dir_all(&far).context("remove all")?;
    for name in names(mnt)? {
        fs::remove_file(mnt.join(name)).context("unlink")?;
    }
    is(&links(mnt)?, &(root - 1))
}

#[test]
fn names_and_inodes_lie_on_two_mdts() {
    let cluster = Cluster::prepare("further-both", 1, &[]).expect("a folder");
    with_two(&cluster, 85, |mnt| over_both(&cluster, mnt)).expect("changes over two MDTs");
}

/// Changes a store as nothing in the program does.
fn change(target: &Path, change: impl FnOnce(&StoreDisk, &mut Transaction) -> Outcome) -> Outcome {
    let store = StoreDisk::open(target, &OpenOptions::default()).context("open the store")?;
    let mut transaction = Transaction::new();
    change(&store, &mut transaction)?;
    store.apply(transaction).context("apply")?;
    store.commit().map(drop).context("commit")
}

/// The key of a name in the root.
fn key_of(store: &StoreDisk, name: &str) -> Outcome<Bytes> {
    let entries = store.scan(Fid::ROOT, &[], 1000).context("scan")?;
    let entry = entries.into_iter().find(|entry| entry.key[8..] == *name.as_bytes());
    entry.map(|entry| entry.key).ok_or_else(|| format!("no name {name}"))
}

/// The names of two directories of MDT0001 are lost in the root, one for good; and counts are wrong on both.
fn lose_names(targets: &Targets<'_>, far: Fid, other: Fid) -> Outcome {
    let links = |links_added| AttributePatch { links_added, ..AttributePatch::default() };
    change(&targets.first, |store, lost| {
        lost.delete(Fid::ROOT, key_of(store, "far")?).delete(Fid::ROOT, key_of(store, "other")?);
        lost.patch(Fid::ROOT, links(5));
        Ok(())
    })?;
    change(&targets.second, |_, lost| {
        lost.remove_xattr(far, "trusted.link").patch(other, links(1));
        Ok(())
    })
}

fn repaired(cluster: &Cluster) -> Outcome {
    let (mut far, mut other) = (Fid::ZERO, Fid::ZERO);
    let targets = made_by_two(cluster, 95, |mnt| {
        for (name, fid) in [("far", &mut far), ("other", &mut other)] {
            let path = mnt.join(name);
            cluster.must(&["lfs", "mkdir", "-i", "1", &path.to_string_lossy()])?;
            fs::write(path.join("file"), name).context("write")?;
            let said = cluster.must(&["lfs", "path2fid", &path.to_string_lossy()])?;
            *fid = said.trim().parse().map_err(|_| format!("no FID: {said}"))?;
        }
        Ok(())
    })?;
    lose_names(&targets, far, other)?;
    let (code, said) = targets.fsck(&["-n"])?;
    let shown = format!("nodes-MDT0001: (no name) ({far}): no name leads to it");
    ensure(code == Some(4) && said.contains(&shown), || format!("{code:?}: {said}"))?;
    is(&targets.fsck(&["-n"])?, &(code, said))?;
    let (code, said) = targets.fsck(&["-y"])?;
    let found = format!("nodes-MDT0001: {far} is in /lost+found");
    let is_so = said.contains(&found) && said.trim_end().ends_with(" 0 problems");
    ensure(code == Some(1) && is_so, || format!("{code:?}: {said}"))?;
    targets.are_sound()?;
    // And all of it is there.
    let nodes = [MGS, FIRST, OST, SECOND].map(|node| targets.serve(node));
    let _nodes = nodes.into_iter().collect::<Outcome<Vec<_>>>()?;
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    let mounted = targets.mount(&cluster.logs().join("mount.log"))?;
    let mnt = cluster.mnt();
    is(&names(&mnt)?, &vec!["lost+found".to_owned(), "other".to_owned()])?;
    for (place, held) in [(format!("lost+found/{far}"), "far"), ("other".to_owned(), "other")] {
        let found = fs::read_to_string(mnt.join(place).join("file")).context("read")?;
        is(&found, &held.to_owned())?;
    }
    fs::create_dir(mnt.join("other/more")).context("mkdir")?;
    fs::rename(mnt.join(format!("lost+found/{far}")), mnt.join("far")).context("rename")?;
    is(&fs::metadata(&mnt).context("stat")?.nlink(), &5)?;
    unmount(cluster, mounted)
}

/// What two MDTs say of each other's names and inodes is repaired by both.
#[test]
fn names_that_are_lost_between_two_mdts_come_back_or_go_to_lost_and_found() {
    let cluster = Cluster::prepare("further-fsck", 1, &[]).expect("a folder");
    repaired(&cluster).expect("a repair over two MDTs");
}

/// Of a change that both have made one has lost its part: the name of the directory, and that it knows of it.
fn lose_part(targets: &Targets<'_>) -> Outcome {
    let records = Fid::new(fid_seq::LOCAL_FILE, 0x300);
    let second = StoreDisk::open(&targets.second, &OpenOptions::default()).context("open")?;
    ensure(!second.scan(records, &[], 10).context("scan")?.is_empty(), || "no record".to_owned())?;
    drop(second);
    change(&targets.first, |store, lost| {
        for entry in store.scan(records, &[], 10).context("scan")? {
            lost.delete(records, entry.key);
        }
        if let Ok(key) = key_of(store, "far") {
            let links_added = -1;
            lost.delete(Fid::ROOT, key);
            lost.patch(Fid::ROOT, AttributePatch { links_added, ..AttributePatch::default() });
        }
        Ok(())
    })
}

fn redone_to_look(cluster: &Cluster) -> Outcome {
    let mut targets = Targets::format(cluster, 100)?;
    let nodes = [MGS, OST, FIRST, SECOND].map(|node| targets.serve(node));
    let mut nodes = nodes.into_iter().collect::<Outcome<Vec<_>>>()?;
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    wait_until("the OST to know both", PATIENCE, || targets.are_known_to_the_ost())?;
    let mounted = targets.mount(&cluster.logs().join("mount.log"))?;
    let far = cluster.mnt().join("far");
    cluster.must(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
    // Both are killed before it is complete.
    nodes.truncate(2);
    drop(mounted);
    for mut node in nodes.into_iter().rev() {
        stop_now(&mut node)?;
    }
    targets.bring_together()?;
    lose_part(&targets)?;
    let look = targets.fsck(&["-n"])?;
    let is_so = look.1.contains("1 parts of changes over several metadata targets were lost")
        && look.1.trim_end().ends_with(" 0 problems");
    ensure(look.0 == Some(0) && is_so, || format!("{look:?}"))?;
    is(&targets.fsck(&["-n"])?, &look)?;
    let (code, said) = targets.fsck(&["-y"])?;
    let is_so = said.contains("nodes-MDT0000: its part of change MDT0001:")
        && said.trim_end().ends_with(" 0 problems");
    ensure(code == Some(1) && is_so, || format!("{code:?}: {said}"))?;
    targets.are_sound()
}

/// It redoes in its copies what the next start redoes.
#[test]
fn a_look_takes_what_the_next_start_redoes_for_no_problem() {
    let cluster = Cluster::prepare("further-look", 1, &[]).expect("a folder");
    redone_to_look(&cluster).expect("no problem");
}

/// Makes and moves names between a directory of each MDT until it is to stop; how often.
pub(crate) fn move_to_and_fro(
    cluster: &Cluster,
    (near, far): (&Path, &Path),
    (stops, done): (&AtomicBool, &AtomicUsize),
) -> Outcome<usize> {
    let mut at = 0;
    while !stops.load(Ordering::Relaxed) {
        let (there, here) = (far.join(format!("d{at}")), near.join(format!("d{at}")));
        fs::create_dir(&here).context("mkdir")?;
        fs::rename(&here, &there).context("rename")?;
        match at % 3 {
            0 => fs::rename(&there, near.join(format!("e{at}"))).context("rename back")?,
            1 => fs::remove_dir(&there).context("rmdir")?,
            _ => {}
        }
        let file = near.join("file");
        fs::write(&file, format!("data {at}")).context("write")?;
        fs::rename(&file, far.join(format!("f{at}"))).context("rename a file")?;
        if at % 4 == 0 {
            let remote = near.join(format!("m{at}"));
            cluster.must(&["lfs", "mkdir", "-i", "1", &remote.to_string_lossy()])?;
        }
        at += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(at)
}

/// All of it is there that was answered, and nothing else.
pub(crate) fn is_as_answered((near, far): (&Path, &Path), steps: usize) -> Outcome {
    let of = |kind: &str, wanted: &dyn Fn(usize) -> bool| {
        (0..steps).filter(|at| wanted(*at)).map(|at| format!("{kind}{at}")).collect::<Vec<_>>()
    };
    let mut expected = [of("e", &|at| at % 3 == 0), of("m", &|at| at % 4 == 0)].concat();
    expected.sort();
    is(&names(near)?, &expected)?;
    is(&(fs::metadata(near).context("stat")?.nlink() as usize), &(2 + expected.len()))?;
    let moved = of("d", &|at| at % 3 == 2);
    let mut expected = [moved.clone(), of("f", &|_| true)].concat();
    expected.sort();
    is(&names(far)?, &expected)?;
    is(&(fs::metadata(far).context("stat")?.nlink() as usize), &(2 + moved.len()))?;
    for at in 0..steps {
        let held = fs::read_to_string(far.join(format!("f{at}"))).context("read")?;
        is(&held, &format!("data {at}"))?;
    }
    Ok(())
}

/// Each MDT is killed, and both at once, while a mount makes changes of both.
fn under_kills(cluster: &Cluster) -> Outcome {
    let targets = Targets::format(cluster, 90)?;
    let mut nodes = BTreeMap::new();
    for node in [MGS, FIRST, OST, SECOND] {
        nodes.insert(node, targets.serve(node)?);
    }
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    wait_until("the OST to know both", PATIENCE, || targets.are_known_to_the_ost())?;
    let mounted = targets.mount(&cluster.logs().join("mount.log"))?;
    let mnt = cluster.mnt();
    let (near, far) = (mnt.join("near"), mnt.join("far"));
    fs::create_dir(&near).context("mkdir")?;
    cluster.must(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
    let (stops, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let steps = std::thread::scope(|scope| -> Outcome<usize> {
        let work = scope.spawn(|| move_to_and_fro(cluster, (&near, &far), (&stops, &done)));
        let killed = (|| {
            for victims in [&[SECOND][..], &[FIRST], &[FIRST, SECOND], &[SECOND, FIRST]] {
                let before = done.load(Ordering::Relaxed);
                let goes_on = || done.load(Ordering::Relaxed) > before + 3 || work.is_finished();
                wait_until("some changes", PATIENCE, goes_on)?;
                victims.iter().for_each(|node| drop(nodes.remove(node)));
                for node in victims {
                    nodes.insert(*node, targets.serve(*node)?);
                }
            }
            let before = done.load(Ordering::Relaxed);
            let goes_on = || done.load(Ordering::Relaxed) > before + 3 || work.is_finished();
            wait_until("the last changes", PATIENCE, goes_on)
        })();
        stops.store(true, Ordering::Relaxed);
        let steps = work.join().map_err(|_| "the work panicked".to_owned())?;
        killed.and(steps)
    })?;
    is_as_answered((&near, &far), steps)?;
    // And once more, for who has kept nothing of it.
    unmount(cluster, mounted)?;
    for node in [FIRST, SECOND] {
        drop(nodes.remove(&node));
    }
    for node in [SECOND, FIRST] {
        nodes.insert(node, targets.serve(node)?);
    }
    let mounted = targets.mount(&cluster.logs().join("mount.log"))?;
    is_as_answered((&near, &far), steps)?;
    unmount(cluster, mounted)?;
    for node in [FIRST, SECOND, OST] {
        let log = text(&targets.log(node));
        let bad = log.lines().find(|line| line.contains("panicked") || line.contains("not fit"));
        ensure(bad.is_none(), || format!("server {node}: {bad:?}"))?;
    }
    Ok(())
}

#[test]
fn changes_over_two_mdts_survive_kills_of_either_and_of_both() {
    let cluster = Cluster::prepare("further-kills", 1, &[]).expect("a folder");
    under_kills(&cluster).expect("what was answered");
}

/// Its FIDs and objects are those of the MDT that it was made for.
#[test]
fn a_store_of_the_first_mdt_is_not_served_as_a_second() {
    let cluster = Cluster::prepare("further-store", 1, &[]).expect("a folder");
    let served = || -> Outcome {
        let targets = Targets::format(&cluster, 80)?;
        let (_mgs, first) = (targets.serve(MGS)?, targets.serve(FIRST)?);
        wait_until("the first MDT", PATIENCE, || targets.is_ready(FIRST))?;
        drop(first);
        let mut config = Config::load(&targets.first).context("the configuration")?;
        config.values.insert("index".to_owned(), "1".to_owned());
        config.save(&targets.first).context("save")?;
        let place = targets.first.to_string_lossy();
        let refused =
            cluster.run(&["server", "--nid", &nid(80 + FIRST), "--port", PORT, &place])?;
        let is_so = !refused.status.success()
            && refused.output.contains("it is the store of MDT0000, and cannot be MDT0001's");
        ensure(is_so, || format!("{}: {}", refused.status, refused.output))
    };
    served().expect("it is refused");
}

/// A salvage would take for lost what it does not know of.
#[test]
fn one_of_mkfs_is_started_by_up_and_not_salvaged() {
    scene("further-refused", 1, LIMIT, |cluster| {
        cluster.down()?;
        let nid = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
        let (dir, further) = (cluster.dir(), cluster.dir().join("mdt0001"));
        let (dir, place) = (dir.to_string_lossy(), further.to_string_lossy());
        let kind = ["--mdt", "--index", "1", "--fsname", "sheen"];
        let made = [&["mkfs.lustre", "-q", "--mgsnode", nid.trim()][..], &kind, &[&place]];
        cluster.must(&made.concat())?;
        for (words, code, text) in [
            // It knows of several, and that one has nothing yet.
            (&["fsck", "--dir", &dir, "-y"][..], 0, "0 problems"),
            (&["salvage", "--dir", &dir, "mdt0001"], 95, "mdt0001: file systems of several"),
        ] {
            let refused = cluster.run(words)?;
            let is_so = refused.status.code() == Some(code) && refused.output.contains(text);
            ensure(is_so, || format!("{words:?}: {}: {}", refused.status, refused.output))?;
        }
        ensure(!cluster.dir().join("salvaged-mdt0001").exists(), || "a store is left".to_owned())?;
        cluster.up()?;
        let far = cluster.mnt().join("far");
        cluster.must(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
        fs::write(far.join("file"), "far").context("write")
    });
}
