//! How the rate of metadata operations grows with the number of MDTs, in virtual time.
//!
//! Each MDT executes one request after the other, each in the same time, whatever it is ([`Options::request_cost`]): so a
//! rate says how many requests operations need, how evenly they lie on the MDTs, and whether anything is done on one of them
//! for all. Clients cost nothing, and there are enough ranks for the largest number of MDTs; the network has one delay and
//! loses nothing. The code of clients and servers is the one that serves.
//!
//! What ranks do is what mdtest does ([`Phase`]): files in a directory of each rank's own, which are spread over the MDTs
//! in turn, or of all ranks in one directory that has a stripe on each MDT. A file is looked at by a rank of another client
//! than the one that made it (mdtest's `-N`).

mod ranks;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sheen_client::posix::Credentials;
use sheen_io::World;
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_types::{Errno, Fid, MdtIndex, TargetKind};
use sheen_vnet::{NetworkConditions, Virtual};

use crate::changing::layout_of;
use crate::cluster::{Cluster, Found, Kernel, Shape};
use crate::work::name;
use ranks::{Measured, Rank, Ranks};

/// How long servers take at most to come up and to know each other.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// How often to look whether they are up.
const LOOK: Duration = Duration::from_millis(100);
/// How long after a phase nothing of it is left.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);
/// OSTs: of what MDTs say of objects to them no request costs anything.
const OSTS: u16 = 4;
/// Mode of directories.
const MODE: u32 = 0o755;
/// Files that each rank makes and removes first, so that clients have FIDs of each MDT and know the layout.
const WARM_UP: u64 = 8;
/// Kinds of requests of which an operation needs fewer than so many are not shown.
const NEXT_TO_NONE: f64 = 0.005;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The order of what happens at once.
    pub seed: u64,
    /// MDTs, each on a node of its own, 32 at most.
    pub mdts: u16,
    /// Clients.
    pub clients: u16,
    /// Ranks of each client.
    pub ranks: u16,
    /// Files, or directories, of each rank.
    pub items: u64,
    /// What each request costs its MDT.
    pub request_cost: Duration,
    /// How long a message is on the way.
    pub network_delay: Duration,
    /// Where ranks work.
    pub place: Place,
}

/// Where ranks work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Each in a directory of its own, which lie on the MDTs in turn.
    Unique,
    /// All in one directory with a stripe on each MDT.
    Shared,
    /// Each makes directories in one of its own, each on the MDT behind that of its parent.
    Remote,
}

impl Place {
    fn phases(self) -> &'static [Phase] {
        match self {
            Self::Unique | Self::Shared => &[Phase::Create, Phase::Stat, Phase::Unlink],
            Self::Remote => &[Phase::Mkdir, Phase::Rmdir],
        }
    }
}

/// What all ranks do, before any does the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// `open` with `O_CREAT` and `close`.
    Create,
    /// `stat` of files that another client made.
    Stat,
    /// `unlink` of the rank's own files.
    Unlink,
    /// `mkdir -i`.
    Mkdir,
    /// `rmdir` of those.
    Rmdir,
}

/// What a phase came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// MDTs.
    pub mdts: u16,
    /// Where.
    pub place: Place,
    /// What.
    pub phase: Phase,
    /// Operations a second, until the first rank has done all of its own.
    pub rate: f64,
    /// Operations a second, until the last one has.
    pub rate_of_all: f64,
    /// Requests that MDTs executed for each operation.
    pub requests: f64,
    /// Requests for each operation by the names of their kinds; those left out of which there are next to none.
    pub kinds: BTreeMap<&'static str, f64>,
    /// Requests of the MDT that had most, divided by the mean of all MDTs.
    pub unevenness: f64,
}

/// Measures all phases.
///
/// # Errors
/// What did not work.
pub fn run(options: Options) -> Result<Vec<Row>, String> {
    let delay = options.network_delay;
    let conditions = NetworkConditions {
        delay_min: delay,
        delay_max: delay,
        chunks: false,
        ..NetworkConditions::default()
    };
    let world = Virtual::new(options.seed, conditions);
    let shape = Shape {
        mdts: options.mdts,
        on_one_node: false,
        osts: OSTS,
        clients: options.clients,
        ost_bytes: None,
        keeps_from: 0,
        squashes: false,
        restripes: false,
        splits_from: None,
        request_cost: Some(options.request_cost),
    };
    let cluster = Arc::new(Cluster::new(shape));
    cluster.start(&world);
    let clients = &cluster.clients[..usize::from(options.clients)];
    clients.iter().for_each(|client| client.start(&world));
    let (measured, here) = (Arc::clone(&cluster), world.world());
    let rows = world.run(async move { measure(options, &measured, &here).await });
    world.stop();
    cluster.take_apart();
    world.stop();
    rows
}

async fn measure(
    options: Options,
    cluster: &Arc<Cluster>,
    world: &World,
) -> Result<Vec<Row>, String> {
    let kernels = mounted(options, cluster, world).await?;
    let ranks = make_places(options, cluster, &kernels).await?;
    let ranks = Ranks { options, ranks, world: world.clone() };
    ranks.warm_up().await?;
    let mut rows = Vec::new();
    for phase in options.place.phases() {
        let before = requests(cluster);
        let Measured { rate, rate_of_all } = ranks.run(*phase).await?;
        // No program waits for a close: those that are left go out.
        world.clock.sleep_until(world.clock.now() + SETTLES_WITHIN).await;
        let spent: Vec<Requests> =
            requests(cluster).iter().zip(&before).map(|(now, before)| less(now, before)).collect();
        let operations = (options.items * ranks.ranks.len() as u64) as f64;
        rows.push(Row {
            mdts: options.mdts,
            place: options.place,
            phase: *phase,
            rate,
            rate_of_all,
            requests: spent.iter().map(count).sum::<u64>() as f64 / operations,
            kinds: kinds(&spent, operations),
            unevenness: unevenness(&spent),
        });
    }
    Ok(rows)
}

/// Requests of an MDT, by their names.
type Requests = BTreeMap<&'static str, u64>;

/// Of each MDT, how many requests it has taken.
fn requests(cluster: &Cluster) -> Vec<Requests> {
    let cores = cluster.mdts().into_iter().filter_map(|at| cluster.servers[at].core.as_ref());
    cores.map(|core| core.requests()).collect()
}

fn less(now: &Requests, before: &Requests) -> Requests {
    now.iter().map(|(name, count)| (*name, count - before.get(name).unwrap_or(&0))).collect()
}

fn count(requests: &Requests) -> u64 {
    requests.values().sum()
}

fn kinds(spent: &[Requests], operations: f64) -> BTreeMap<&'static str, f64> {
    let mut kinds = BTreeMap::new();
    for (name, count) in spent.iter().flatten() {
        *kinds.entry(*name).or_default() += *count as f64 / operations;
    }
    kinds.retain(|_, each| *each >= NEXT_TO_NONE);
    kinds
}

/// Of the MDT that had most, divided by the mean.
fn unevenness(spent: &[Requests]) -> f64 {
    let counts = || spent.iter().map(count);
    let (all, most) = (counts().sum::<u64>().max(1), counts().max().unwrap_or(0));
    most as f64 * spent.len() as f64 / all as f64
}

/// The mounts of all clients, once all servers are ready and have had time to find each other.
async fn mounted(
    options: Options,
    cluster: &Cluster,
    world: &World,
) -> Result<Vec<Arc<Kernel>>, String> {
    let clients = &cluster.clients[..usize::from(options.clients)];
    let limit = world.clock.now() + STARTS_WITHIN;
    world.clock.sleep_until(limit).await;
    loop {
        let kernels: Vec<_> = clients.iter().filter_map(|client| client.kernel()).collect();
        let are_ready = cluster.servers.iter().all(|server| server.is_ready());
        if are_ready && kernels.len() == clients.len() {
            // One request for many names would cost as much as one for each.
            kernels.iter().for_each(|kernel| kernel.files.settings().ahead.max.set(0));
            return Ok(kernels);
        }
        if world.clock.now() > limit + STARTS_WITHIN {
            return Err("servers and clients do not come up".to_owned());
        }
        world.clock.sleep_until(world.clock.now() + LOOK).await;
    }
}

/// The directories of all ranks.
async fn make_places(
    options: Options,
    cluster: &Cluster,
    kernels: &[Arc<Kernel>],
) -> Result<Vec<Rank>, String> {
    let failed = |errno: Errno| format!("a directory to work in: {errno}");
    if options.place == Place::Shared {
        let count = NonZeroU32::MIN.saturating_add(u32::from(options.mdts) - 1);
        let stripes = WishedStripes::Count(count);
        let wish = DirectoryWish { stripes, first: Some(MdtIndex(0)), ..DirectoryWish::default() };
        let fid = make_directory(&kernels[0], "shared", wish).await.map_err(failed)?;
        let stripes = stripes_of(cluster, fid);
        if stripes != u32::from(options.mdts) {
            return Err(format!("a directory with {stripes} stripes, not {}", options.mdts));
        }
    }
    let all = options.clients * options.ranks;
    let mut directories = Vec::new();
    for number in 0..all {
        directories.push(match options.place {
            Place::Shared => "shared".to_owned(),
            Place::Unique | Place::Remote => {
                let directory = format!("rank.{number}");
                let home = Some(MdtIndex(number % options.mdts));
                let wish = DirectoryWish { first: home, ..DirectoryWish::default() };
                let kernel = &kernels[usize::from(number / options.ranks)];
                make_directory(kernel, &directory, wish).await.map_err(failed)?;
                directory
            }
        });
    }
    let mut ranks = Vec::new();
    for number in 0..all {
        let kernel = Arc::clone(&kernels[usize::from(number / options.ranks)]);
        let home = MdtIndex(number % options.mdts);
        let looks_at = (number + options.ranks) % all;
        let directory = async |of: u16| {
            let found = find(&kernel, &directories[usize::from(of)]).await;
            found.map(Arc::new).map_err(failed)
        };
        let (own, other) = (directory(number).await?, directory(looks_at).await?);
        ranks.push(Rank { number, kernel, home, own, looks_at, other });
    }
    Ok(ranks)
}

async fn find(kernel: &Kernel, path: &str) -> Result<Found, Errno> {
    kernel.lookup(kernel.root()?.node, &name(path)).await?.ok_or(Errno::ENOENT)
}

async fn make_directory(kernel: &Kernel, path: &str, wish: DirectoryWish) -> Result<Fid, Errno> {
    let (files, who, root) = (&kernel.files, Credentials::root(), kernel.root()?);
    files.make_wished_directory(&who, root.node, &name(path), MODE, wish).await?;
    Ok(find(kernel, path).await?.fid)
}

/// Stripes of a directory, as its MDT has them.
fn stripes_of(cluster: &Cluster, fid: Fid) -> u32 {
    let stores = cluster.targets(TargetKind::Mdt).map(|(_, disk)| disk.store());
    let layouts = stores.filter_map(|store| layout_of(&*store, fid));
    layouts.map(|layout| layout.stripe_count().get()).max().unwrap_or(1)
}
