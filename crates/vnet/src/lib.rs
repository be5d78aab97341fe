//! A world in virtual time, from a seed: clock, randomness, tasks and connections.
//!
//! One thread runs everything, and the seed decides all there is to decide: which task goes next,
//! how many bytes a read or write moves, how long bytes travel, when a connection breaks. The
//! clock jumps to the next event when nothing else is to be done, so hours pass in milliseconds,
//! and the same seed gives the same run.
//!
//! [`for_seeds`] runs a test under several seeds and names the one that fails.

mod executor;
mod network;

use std::future::Future;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::{Random, World};
use sheen_types::Instant;

use executor::{Executor, Scoped, WORLD};
use network::Wires;

/// How the network behaves.
#[derive(Clone, Debug)]
pub struct NetworkConditions {
    /// Bytes and connection attempts travel at least this long.
    pub delay_min: Duration,
    /// And at most this long; each chunk draws anew, so connections overtake each other.
    pub delay_max: Duration,
    /// Reads and writes move a random part of what they could.
    pub chunks: bool,
    /// One in so many writes breaks its connection and loses what is in flight; 0: none does.
    pub break_one_in: u64,
    /// Bytes of one direction that may be unread.
    pub window: usize,
}

impl Default for NetworkConditions {
    /// A calm local network.
    fn default() -> Self {
        Self {
            delay_min: Duration::from_micros(20),
            delay_max: Duration::from_micros(80),
            chunks: true,
            break_one_in: 0,
            window: 256 << 10,
        }
    }
}

/// Numbers from a seed (SplitMix64).
#[derive(Debug)]
pub struct SeededRandom(Mutex<u64>);

impl SeededRandom {
    /// The numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// The next number.
    pub fn draw(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = *state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// The next number below `end`, which is not 0.
    pub fn below(&self, end: u64) -> u64 {
        self.draw() % end
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.draw().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// The tasks of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u64);

/// Bytes as one number.
fn fold(bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    let mut sum = bytes.len() as u64;
    let mut add = |word: u64| {
        sum = (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    };
    for chunk in &mut chunks {
        add(chunk.try_into().map_or(0, u64::from_le_bytes));
    }
    chunks.remainder().iter().for_each(|byte| add(u64::from(*byte)));
    sum
}

/// A world of its own.
pub struct Virtual {
    seed: u64,
    executor: Arc<Executor>,
    wires: Wires,
    random: Arc<SeededRandom>,
}

impl Virtual {
    /// A world where `seed` decides.
    #[must_use]
    pub fn new(seed: u64, conditions: NetworkConditions) -> Self {
        let random = Arc::new(SeededRandom::new(seed));
        let executor = Executor::new(Arc::clone(&random));
        let wires = Wires::new(Arc::clone(&executor), Arc::clone(&random), conditions);
        Self { seed, executor, wires, random }
    }

    /// What to hand down to what lives as long as this world.
    #[must_use]
    pub fn world(&self) -> World {
        self.world_of(Scope(WORLD))
    }

    /// A scope for the tasks of one process.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope(self.executor.new_scope())
    }

    /// What to hand down to the process whose tasks are in `scope`.
    #[must_use]
    pub fn world_of(&self, scope: Scope) -> World {
        World {
            clock: Arc::clone(&self.executor) as _,
            random: Arc::clone(&self.random) as _,
            tasks: Arc::new(Scoped { executor: Arc::clone(&self.executor), scope: scope.0 }),
            network: Arc::new(self.wires.clone()),
        }
    }

    /// The process dies: its tasks end where they stand. Its connections are closed, and what it has
    /// sent arrives, unless they are broken before.
    pub fn end(&self, scope: Scope) {
        self.executor.end_scope(scope.0);
    }

    /// Ends everything: tasks that hold this world would keep it for ever.
    pub fn stop(&self) {
        self.executor.clear();
    }

    /// Each blocking job in `scope` waits at most so long for its disk, before it is done and again
    /// before it is reported as done.
    pub fn set_disk_wait(&self, scope: Scope, longest: Duration) {
        self.executor.set_disk_wait(scope.0, longest);
    }

    /// A number made of all that has happened: which tasks ran when, what was sent, and what
    /// [`Virtual::note`] was given. Two runs of one seed have the same.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.executor.trace()
    }

    /// Adds to the trace.
    pub fn note(&self, bytes: &[u8]) {
        self.executor.note(fold(bytes));
    }

    /// The seed's further numbers, for the test itself.
    #[must_use]
    pub fn random(&self) -> &SeededRandom {
        &self.random
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.executor.time()
    }

    /// Runs `work` and all tasks until `work` is done.
    ///
    /// # Panics
    /// When nothing can go on before `work` is done, or `work` takes a virtual day: a deadlock or a
    /// livelock of what is tested.
    pub fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.executor.run(self.seed, work)
    }

    /// Lets `duration` pass.
    pub fn pass(&self, duration: Duration) {
        let nap = self.world().clock.sleep_until(self.now() + duration);
        self.run(nap);
    }

    /// Changes the network's behaviour from now on.
    pub fn set_network_conditions(&self, conditions: NetworkConditions) {
        self.wires.set_network_conditions(conditions);
    }

    /// Breaks every connection of `address`, and loses what is in flight.
    pub fn break_connections(&self, address: Ipv4Addr) {
        self.wires.break_connections(address);
    }

    /// Two nodes do not reach each other from now on, or do again; their connections break.
    pub fn set_apart(&self, one: Ipv4Addr, two: Ipv4Addr, apart: bool) {
        self.wires.set_apart(one, two, apart);
    }

    /// Bytes travel so much longer between two nodes from now on, in both directions, than the conditions say.
    pub fn set_distance(&self, one: Ipv4Addr, two: Ipv4Addr, more: Duration) {
        self.wires.set_distance(one, two, more);
    }

    /// Takes `address` off the network, or puts it back: its connections break, and none is made.
    pub fn set_cut_off(&self, address: Ipv4Addr, cut_off: bool) {
        self.wires.set_cut_off(address, cut_off);
    }
}

impl Drop for Virtual {
    /// Tasks hold the world and the world holds tasks: this ends it.
    fn drop(&mut self) {
        self.executor.clear();
    }
}

/// Runs `test` once for each of `count` seeds; with the environment variable `SHEEN_SEED` only for that
/// one. Names the seed when the test panics.
pub fn for_seeds(count: u64, test: impl Fn(u64)) {
    let given = std::env::var("SHEEN_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match given {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with seed {seed}; replay: SHEEN_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests;
