//! Each MDT's process is killed in turn, while mdtest runs, a tree moves between the MDTs (`lfs migrate -m`), and files and
//! directories are renamed from one MDT to another: each server has a process of its own, as on machines of their own.
#![allow(clippy::disallowed_methods, reason = "servers are away for a while in real time")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::seed;
use sheen_workloads::bytes::Random;
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, Size, ensure};

use crate::further_mdts::{is, names};
use crate::nodes::{Node, PORT, format, mount, nid, spawn, stop_now, unmount};

/// Longer than any recovery takes here.
const PATIENCE: Duration = Duration::from_secs(120);
const MDTS: usize = 3;
/// The nodes: the MGS, then the MDTs, the OST, and the mount.
const BASE: u32 = 90;
const NODES: usize = MDTS + 2;
const MOUNT: u32 = BASE + NODES as u32;
/// Directories between which files and directories are renamed.
const FOLDERS: usize = 12;

/// The targets, by node, each where `sheen fsck --dir` looks for it.
struct Targets<'a> {
    cluster: &'a Cluster,
    places: Vec<PathBuf>,
}

impl<'a> Targets<'a> {
    fn format(cluster: &'a Cluster) -> Outcome<Self> {
        let mgs = nid(BASE);
        let mgt = cluster.dir().join("mgt");
        cluster.must(&["mkfs.lustre", "-q", "--mgs", &mgt.to_string_lossy()])?;
        let mut places = vec![mgt];
        for mdt in 0..MDTS {
            let (name, index) = (format!("mdt{mdt:04x}"), mdt.to_string());
            places.push(format(cluster, &name, &["--mdt", "--index", &index, "--mgsnode", &mgs])?);
        }
        places.push(format(cluster, "ost0000", &["--ost", "--index", "0", "--mgsnode", &mgs])?);
        Ok(Self { cluster, places })
    }

    fn serve(&self, node: usize) -> Outcome<Node> {
        let (own, target) = (nid(BASE + node as u32), self.places[node].to_string_lossy());
        let server = ["server", "--nid", &own, "--port", PORT, "--timeout", "20", &*target];
        spawn(self.cluster, &server, &self.log(node))
    }

    fn log(&self, node: usize) -> PathBuf {
        self.cluster.logs().join(format!("server{node}.log"))
    }

    /// How often the server of a node has been ready.
    fn starts(&self, node: usize) -> usize {
        text(&self.log(node)).lines().filter(|line| line.ends_with("ready")).count()
    }

    /// Each MDT is connected to each other one.
    fn know_each_other(&self) -> bool {
        let state = self.cluster.run(&["lctl", "get_param", "-n", "osp.*-osp-MDT*.state"]);
        let full = |said: String| said.matches("current_state: FULL").count();
        state.is_ok_and(|it| full(it.output) == MDTS * (MDTS - 1))
    }
}

/// What the programs share with the test that kills servers.
struct Work<'a> {
    cluster: &'a Cluster,
    stops: AtomicBool,
    mdtests: AtomicUsize,
    migrations: AtomicUsize,
    renames: AtomicUsize,
}

impl Work<'_> {
    fn goes_on(&self) -> bool {
        !self.stops.load(Ordering::Relaxed)
    }

    fn done(&self) -> [usize; 3] {
        [&self.mdtests, &self.migrations, &self.renames].map(|it| it.load(Ordering::Relaxed))
    }

    fn lfs(&self, words: &[&str], path: &Path) -> Outcome<String> {
        self.cluster.must(&[&["lfs"], words, &[&path.to_string_lossy()]].concat())
    }

    /// mdtest, over and over, in a directory with stripes on all MDTs.
    fn runs_mdtest(&self) -> Outcome {
        let top = self.cluster.mnt().join("mdtest");
        self.lfs(&["mkdir", "-c", "3"], &top)?;
        let top = top.to_string_lossy();
        let mdtest =
            ["bench", "mdtest", "--ranks", "2", "-n", "60", "-i", "1", "-w", "100", "-d", &top];
        while self.goes_on() {
            self.cluster.must(&mdtest)?;
            self.mdtests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A tree moves from MDT to MDT, and over all of them; all is in it each time it is there.
    fn migrates(&self) -> Outcome {
        let top = self.cluster.mnt().join("tree");
        self.lfs(&["mkdir", "-i", "0"], &top)?;
        self.lfs(&["setstripe", "-c", "1"], &top)?;
        for below in ["a", "b"] {
            fs::create_dir(top.join(below)).context("mkdir")?;
            for at in 0..15 {
                let name = format!("{below}/f{at}");
                fs::write(top.join(&name), &name).context("write")?;
            }
        }
        while self.goes_on() {
            for wish in ["1", "2", "0,1,2", "0"] {
                self.lfs(&["migrate", "-m", wish], &top)?;
                is(&names(&top)?, &["a", "b"].map(str::to_owned).to_vec())?;
                for below in ["a", "b"] {
                    is(&names(&top.join(below))?.len(), &15)?;
                    let name = format!("{below}/f7");
                    is(&fs::read_to_string(top.join(&name)).context("read")?, &name)?;
                }
                self.migrations.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Renames files, and directories with files in them, between directories of all MDTs; where each is then.
    fn renames(&self, seed: u64) -> Outcome<BTreeMap<String, usize>> {
        let folder = |at: usize| self.cluster.mnt().join(format!("folder{at}"));
        for at in 0..FOLDERS {
            let mdt = (at % MDTS).to_string();
            let words: &[&str] =
                if at % 4 == 3 { &["mkdir", "-c", "3"] } else { &["mkdir", "-i", &mdt] };
            self.lfs(words, &folder(at))?;
        }
        let mut places = BTreeMap::new();
        // As many files as the source of a kernel has, in a long run.
        for number in 0..Size::asked().of(60, 300, 70_000) {
            let (name, at) = (format!("f{number}"), number % FOLDERS);
            fs::write(folder(at).join(&name), &name).context("write")?;
            places.insert(name, at);
        }
        for number in 0..Size::asked().of(12, 36, 4_000) {
            let (name, at) = (format!("d{number}"), number % FOLDERS);
            fs::create_dir(folder(at).join(&name)).context("mkdir")?;
            fs::write(folder(at).join(&name).join("in"), &name).context("write")?;
            places.insert(name, at);
        }
        let all: Vec<String> = places.keys().cloned().collect();
        let mut random = Random::new(seed);
        while self.goes_on() {
            let name = &all[random.below(all.len() as u64) as usize];
            let to = random.below(FOLDERS as u64) as usize;
            let from = places.insert(name.clone(), to).ok_or("no place")?;
            fs::rename(folder(from).join(name), folder(to).join(name))
                .context(format!("rename {name} from {from} to {to}"))?;
            self.renames.fetch_add(1, Ordering::Relaxed);
        }
        Ok(places)
    }
}

/// Every name is where it was renamed to, and nowhere else.
fn all_are_there(mnt: &Path, places: &BTreeMap<String, usize>) -> Outcome {
    for at in 0..FOLDERS {
        let folder = mnt.join(format!("folder{at}"));
        let mut wanted: Vec<_> =
            places.iter().filter(|(_, it)| **it == at).map(|(name, _)| name.clone()).collect();
        wanted.sort();
        is(&names(&folder)?, &wanted)?;
        for name in &wanted {
            let path = folder.join(name);
            let path = if name.starts_with('d') { path.join("in") } else { path };
            is(&fs::read_to_string(&path).context(path.display())?, name)?;
        }
    }
    Ok(())
}

/// Kills each MDT in turn, and waits until each program has gone on each time.
fn kill_in_turn(targets: &Targets<'_>, mdts: &mut [Node], work: &Work<'_>) -> Outcome {
    let mut random = Random::new(seed());
    let mut pause = |from: u64, to: u64| {
        std::thread::sleep(Duration::from_millis(from + random.below(to - from)));
    };
    for kill in 0..Size::asked().of(3, 3, 50) {
        let (at, node) = (kill % MDTS, 1 + kill % MDTS);
        pause(200, 2000);
        let starts = targets.starts(node);
        mdts[at].0.kill().context("kill")?;
        mdts[at].0.wait().context("wait")?;
        pause(100, 3000);
        let before = work.done();
        mdts[at] = targets.serve(node)?;
        wait_until("the MDT that was killed", PATIENCE, || targets.starts(node) > starts)?;
        wait_until(&format!("all programs after kill {kill}"), PATIENCE, || {
            !work.goes_on() || work.done().iter().zip(before).all(|(now, before)| *now > before)
        })?;
    }
    Ok(())
}

fn work_and_kill(
    cluster: &Cluster,
    targets: &Targets<'_>,
    mdts: &mut [Node],
) -> Outcome<BTreeMap<String, usize>> {
    let count = AtomicUsize::default;
    let work = &Work {
        cluster,
        stops: AtomicBool::new(false),
        mdtests: count(),
        migrations: count(),
        renames: count(),
    };
    // What one program has met ends the rest.
    fn stopping<T>(work: &Work<'_>, done: Outcome<T>) -> Outcome<T> {
        if done.is_err() {
            work.stops.store(true, Ordering::Relaxed);
        }
        done
    }
    std::thread::scope(|scope| {
        let mdtest = scope.spawn(|| stopping(work, work.runs_mdtest()));
        let migrates = scope.spawn(|| stopping(work, work.migrates()));
        let renames = scope.spawn(|| stopping(work, work.renames(seed())));
        let begun = || !work.goes_on() || work.done().iter().all(|it| *it > 0);
        let killed = wait_until("all programs to begin", PATIENCE * 10, begun)
            .and_then(|()| kill_in_turn(targets, mdts, work));
        work.stops.store(true, Ordering::Relaxed);
        let panicked = |_| "a program panicked".to_owned();
        mdtest.join().map_err(panicked)??;
        migrates.join().map_err(panicked)??;
        let places = renames.join().map_err(panicked)??;
        eprintln!("mdtests, migrations, renames: {:?}", work.done());
        killed.map(|()| places)
    })
}

fn scene(cluster: &Cluster) -> Outcome {
    let targets = Targets::format(cluster)?;
    let nodes = (0..NODES).map(|node| targets.serve(node)).collect::<Outcome<Vec<_>>>()?;
    let mut nodes = nodes.into_iter();
    let mgs = nodes.next().ok_or("no MGS")?;
    let mut mdts: Vec<_> = nodes.by_ref().take(MDTS).collect();
    let ost = nodes.next().ok_or("no OST")?;
    wait_until("the MDTs to know each other", PATIENCE, || targets.know_each_other())?;
    let log = cluster.logs().join("mount.log");
    let (source, own) = (format!("{}:/nodes", nid(BASE)), nid(MOUNT));
    let mounted = mount(cluster, (&source, &own), &log)?;
    let places = work_and_kill(cluster, &targets, &mut mdts)?;
    let mnt = cluster.mnt();
    all_are_there(&mnt, &places)?;
    unmount(cluster, mounted)?;
    // Another mount, which remembers nothing.
    let mounted = mount(cluster, (&source, &own), &log)?;
    all_are_there(&mnt, &places)?;
    unmount(cluster, mounted)?;
    for mut node in [ost].into_iter().chain(mdts).chain([mgs]) {
        stop_now(&mut node)?;
    }
    let dir = cluster.dir();
    let looked = cluster.run(&["fsck", "--dir", &dir.to_string_lossy(), "-n"])?;
    let is_sound =
        looked.status.success() && looked.output.lines().any(|it| it.ends_with(" 0 problems"));
    ensure(is_sound, || format!("{}: {}", looked.status, looked.output))?;
    for node in 1..NODES {
        let log = text(&targets.log(node));
        let bad = log.lines().find(|line| line.contains("panicked") || line.contains(" ERROR "));
        ensure(bad.is_none(), || format!("server {node}: {bad:?}"))?;
    }
    Ok(())
}

#[test]
fn programs_go_on_and_lose_nothing_while_each_mdt_is_killed_in_turn() {
    let cluster = Cluster::prepare("mdt-kills", 1, &[]).expect("a folder");
    let done = scene(&cluster);
    done.unwrap_or_else(|fault| panic!("seed {}: {fault}\n{}", seed(), cluster.report()));
}
