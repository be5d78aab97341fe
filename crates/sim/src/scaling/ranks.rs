//! What ranks do in a phase, and how long it takes.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_client::posix::{Credentials, Lookup, NewNode, NodeId, OpenFlags};
use sheen_io::{Oneshot, World};
use sheen_types::{Errno, Instant, MdtIndex, Name};

use super::{MODE, Options, Phase, Place, WARM_UP};
use crate::cluster::{Found, Kernel};
use crate::work::name;

/// Mode of files.
const FILE_MODE: u32 = 0o644;

/// Who works.
#[derive(Clone)]
pub(super) struct Rank {
    /// Its number among those of all clients.
    pub(super) number: u16,
    /// Its client.
    pub(super) kernel: Arc<Kernel>,
    /// The MDT of its directory, if that is its own.
    pub(super) home: MdtIndex,
    /// Its directory.
    pub(super) own: Arc<Found>,
    /// Whose files it looks at: a rank of another client, as with mdtest's `-N`.
    pub(super) looks_at: u16,
    /// That one's directory.
    pub(super) other: Arc<Found>,
}

/// All of them.
pub(super) struct Ranks {
    pub(super) options: Options,
    pub(super) ranks: Vec<Rank>,
    pub(super) world: World,
}

/// Operations a second.
pub(super) struct Measured {
    /// Until the first rank has done all of its own: all ranks work.
    pub(super) rate: f64,
    /// Until the last one has.
    pub(super) rate_of_all: f64,
}

/// What a phase has come to so far.
struct Progress {
    working: usize,
    done: u64,
    /// When the first rank had done its part, and how much all had done then.
    first: Option<(Instant, u64)>,
    failure: Option<String>,
}

impl Ranks {
    /// Each makes some files and removes them.
    ///
    /// # Errors
    /// What did not work.
    pub(super) async fn warm_up(&self) -> Result<(), String> {
        if self.options.place == Place::Remote {
            self.run_items(Phase::Mkdir, "warm", WARM_UP).await?;
            return self.run_items(Phase::Rmdir, "warm", WARM_UP).await.map(drop);
        }
        self.run_items(Phase::Create, "warm", WARM_UP).await?;
        self.run_items(Phase::Unlink, "warm", WARM_UP).await.map(drop)
    }

    /// All ranks do a phase.
    ///
    /// # Errors
    /// What did not work.
    pub(super) async fn run(&self, phase: Phase) -> Result<Measured, String> {
        self.run_items(phase, "item", self.options.items).await
    }

    async fn run_items(
        &self,
        phase: Phase,
        what: &'static str,
        items: u64,
    ) -> Result<Measured, String> {
        let begin = self.world.clock.now();
        let working = self.ranks.len();
        let progress = Progress { working, done: 0, first: None, failure: None };
        let (progress, ended) = (Arc::new(Mutex::new(progress)), Oneshot::new());
        for rank in &self.ranks {
            let work = Work { rank: rank.clone(), phase, what, items, mdts: self.options.mdts };
            let (progress, ended) = (Arc::clone(&progress), Arc::clone(&ended));
            let clock = Arc::clone(&self.world.clock);
            let task = async move {
                let outcome = work.run(&progress).await;
                let mut progress = progress.lock();
                progress.working -= 1;
                let done = progress.done;
                progress.first.get_or_insert((clock.now(), done));
                if let Err(errno) = outcome {
                    let number = work.rank.number;
                    progress.failure.get_or_insert(format!("{phase:?} of rank {number}: {errno}"));
                }
                let is_last = progress.working == 0;
                drop(progress);
                if is_last {
                    ended.put(());
                }
            };
            self.world.tasks.spawn("rank", Box::pin(task));
        }
        ended.wait().await;
        let end = self.world.clock.now();
        let progress = progress.lock();
        if let Some(failure) = &progress.failure {
            return Err(failure.clone());
        }
        let per_second = |count: u64, at: Instant| count as f64 / at.since(begin).as_secs_f64();
        let (first, done_then) = progress.first.unwrap_or((end, progress.done));
        Ok(Measured {
            rate: per_second(done_then, first),
            rate_of_all: per_second(progress.done, end),
        })
    }
}

/// What one rank does in a phase.
struct Work {
    rank: Rank,
    phase: Phase,
    what: &'static str,
    items: u64,
    mdts: u16,
}

impl Work {
    async fn run(&self, progress: &Mutex<Progress>) -> Result<(), Errno> {
        let Rank { number, own, looks_at, other, .. } = &self.rank;
        let (owner, directory) = match self.phase {
            Phase::Stat => (looks_at, other),
            _ => (number, own),
        };
        for item in 0..self.items {
            let item = name(&format!("{}.{}.{item}", self.what, owner));
            self.one(directory.node, &item).await?;
            progress.lock().done += 1;
        }
        Ok(())
    }

    async fn one(&self, directory: NodeId, item: &Name) -> Result<(), Errno> {
        let files = &self.rank.kernel.files;
        let who = Credentials { pid: u32::from(self.rank.number) + 1, ..Credentials::root() };
        match self.phase {
            Phase::Create => {
                let flags = OpenFlags(OpenFlags::CREATE | OpenFlags::EXCLUSIVE | 2);
                let (entry, opened) =
                    files.open_create(&who, directory, item, FILE_MODE, flags).await?;
                files.release(opened.handle, None).await?;
                files.forget(entry.node, 1);
                Ok(())
            }
            Phase::Stat => match files.lookup(&who, directory, item).await? {
                Lookup::Found(entry) => {
                    files.forget(entry.node, 1);
                    Ok(())
                }
                Lookup::Absent { .. } => Err(Errno::ENOENT),
            },
            Phase::Unlink => files.unlink(&who, directory, item).await,
            Phase::Mkdir => {
                let next = MdtIndex((self.rank.home.0 + 1) % self.mdts);
                let made = files.make_node(&who, directory, item, MODE, NewNode::DirectoryOn(next));
                files.forget(made.await?.node, 1);
                Ok(())
            }
            Phase::Rmdir => files.rmdir(&who, directory, item).await,
        }
    }
}
