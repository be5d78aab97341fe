//! Values that operators set while they are in use.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// A switch or a number that an operator sets: each use of it reads the newest. It orders nothing else, other settings
/// neither.
#[derive(Debug, Default)]
pub struct Setting<T>(AtomicU64, PhantomData<T>);

/// What a [`Setting`] is of: `bool`, `u32`, `u64` or `usize`.
pub trait SettingValue: Copy {
    /// As a word.
    fn to_word(self) -> u64;
    /// What [`SettingValue::to_word`] made a word of.
    fn from_word(word: u64) -> Self;
}

impl<T: SettingValue> Setting<T> {
    /// One that is `value` until it is set.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(AtomicU64::new(value.to_word()), PhantomData)
    }

    /// What it is now.
    #[must_use]
    pub fn get(&self) -> T {
        T::from_word(self.0.load(Ordering::Relaxed))
    }

    /// Sets it. What has read the former value goes on with that.
    pub fn set(&self, value: T) {
        self.0.store(value.to_word(), Ordering::Relaxed);
    }
}

impl SettingValue for bool {
    fn to_word(self) -> u64 {
        self.into()
    }

    fn from_word(word: u64) -> Self {
        word != 0
    }
}

impl SettingValue for u32 {
    fn to_word(self) -> u64 {
        self.into()
    }

    fn from_word(word: u64) -> Self {
        word as Self
    }
}

impl SettingValue for u64 {
    fn to_word(self) -> u64 {
        self
    }

    fn from_word(word: u64) -> Self {
        word
    }
}

impl SettingValue for usize {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        word as Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_what_was_set_last() {
        let (switch, number) = (Setting::new(true), Setting::new(u32::MAX));
        assert_eq!((switch.get(), number.get()), (true, u32::MAX));
        switch.set(false);
        number.set(7);
        assert_eq!((switch.get(), number.get()), (false, 7));
        let (bytes, count) = (Setting::new(u64::MAX), Setting::new(usize::MAX));
        assert_eq!((bytes.get(), count.get()), (u64::MAX, usize::MAX));
    }
}
