//! Records of a mount, for tests to look at.

use parking_lot::Mutex;

use crate::records::{Record, RecordMemory, Words};

/// The memory of a mount whose next process never comes.
#[derive(Default)]
pub(crate) struct Records(pub(crate) Mutex<Vec<Option<Words>>>);

impl Records {
    /// What is recorded now.
    pub(crate) fn all(&self) -> Vec<Record> {
        self.0.lock().iter().flatten().filter_map(Record::of).collect()
    }
}

impl RecordMemory for Records {
    fn put(&self, words: &Words) -> Option<u32> {
        let mut all = self.0.lock();
        all.push(Some(*words));
        Some(all.len() as u32 - 1)
    }

    fn set(&self, place: u32, word: usize, value: u64) {
        if let Some(Some(words)) = self.0.lock().get_mut(place as usize) {
            words[word] = value;
        }
    }

    fn remove(&self, place: u32) {
        self.0.lock()[place as usize] = None;
    }
}
