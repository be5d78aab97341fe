//! Where decisions come from: a seed, or the bytes of a fuzzer.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_vnet::SeededRandom;

/// Numbers, one after the other.
pub trait Source: Send + Sync {
    /// Any number.
    fn draw(&self) -> u64;

    /// A number below `end`, which is not 0.
    fn below(&self, end: u64) -> u64;

    /// Whether there are no more decisions to be made.
    fn is_empty(&self) -> bool;

    /// One of `choices`, which are not empty.
    fn pick<T: Copy>(&self, choices: &[T]) -> T
    where
        Self: Sized,
    {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// True once in so many times.
    fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }
}

impl Source for SeededRandom {
    fn draw(&self) -> u64 {
        SeededRandom::draw(self)
    }

    fn below(&self, end: u64) -> u64 {
        SeededRandom::below(self, end)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// The bytes of a fuzzer: each decision takes as many as it needs, and zeros when they have run out, so
/// that nearby inputs decide nearly the same.
pub struct Input(Mutex<Vec<u8>>);

impl Input {
    /// What `bytes` decide.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes.iter().rev().copied().collect())))
    }

    fn take(&self, count: usize) -> u64 {
        let mut bytes = self.0.lock();
        (0..count).fold(0, |number, _| number << 8 | u64::from(bytes.pop().unwrap_or(0)))
    }

    /// All that is left, at most `count` bytes.
    #[must_use]
    pub fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = self.0.lock();
        (0..count).map_while(|_| bytes.pop()).collect()
    }
}

impl Source for Arc<Input> {
    fn draw(&self) -> u64 {
        self.take(8)
    }

    fn below(&self, end: u64) -> u64 {
        let count = match end {
            0..=1 => 0,
            2..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        self.take(count) % end
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
