//! The time of last access: when reading changes it, and how the MDT learns it.
//!
//! As in Lustre it is the client that notes an access, by the rules of its mount, and sends it with the close
//! of the file; the MDT takes it if it is more than a minute later than what it has. Reads that the kernel
//! serves from its own pages never come here: so it may not keep pages of a file that is opened for reading
//! while an access would have to be noted. It gets the bytes that an open brings all the same, and the open
//! counts as the access ([`super::page_handoff`]).
//!
//! Cost: a look at the clock for each read, and at most once a second for each open file a look at what
//! is known of it. No RPC.

use std::sync::atomic::Ordering;

use sheen_types::Timestamp;

use super::handles::FileDescription;
use super::inodes::merge;
use super::{AccessTimes, FileSystem, FileType, Mounted};
use crate::data::DataFile;

/// An access that is later by no more seconds than this is ignored by an MDT (`atime_diff`).
const ACCESS_TIME_STEP: i64 = 60;
/// An access is noted at least so often, in seconds, whatever has changed since the last.
const DAY: i64 = 24 * 60 * 60;

impl AccessTimes {
    /// Whether an access now is noted, of a file that was read and changed at these times.
    fn notes(self, read: Timestamp, changed: Timestamp, now: Timestamp) -> bool {
        let is_later = read.seconds < now.seconds;
        match self {
            Self::Never => false,
            Self::Always => is_later,
            Self::Relative => is_later && (read <= changed || read.seconds + DAY <= now.seconds),
        }
    }
}

impl FileSystem {
    /// From now on reading is noted by these rules; [`AccessTimes::Relative`] before.
    pub fn set_access_times(&self, rules: AccessTimes) {
        *self.0.access_times.write() = rules;
    }
}

impl Mounted {
    /// Something was read through `file`.
    pub(super) fn note_access(&self, file: &FileDescription, data: Option<&dyn DataFile>) {
        let now = self.meta.world.clock.wall();
        if file.access_looked.swap(now.seconds, Ordering::Relaxed) == now.seconds {
            return;
        }
        if self.is_news(file, data, now) {
            file.pin.state().file.accessed = Some(Timestamp::from_seconds(now.seconds));
            file.accessed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the kernel may go on using the pages it has, though the client does not see what is read
    /// there.
    pub(super) fn may_keep_pages(&self, file: &FileDescription) -> bool {
        if file.pin.file_type() != Some(FileType::Regular) {
            return true;
        }
        let now = self.meta.world.clock.wall();
        let early = Timestamp::from_seconds(now.seconds - ACCESS_TIME_STEP);
        !self.is_news(file, file.data().as_deref(), early)
    }

    fn is_news(&self, file: &FileDescription, data: Option<&dyn DataFile>, now: Timestamp) -> bool {
        let rules = *self.access_times.read();
        if rules == AccessTimes::Never || !file.flags.notes_access() {
            return false;
        }
        let data = data.and_then(DataFile::attributes_covered);
        let state = file.pin.state();
        let Some(mut known) = state.attributes_shown() else { return false };
        if let Some(data) = &data {
            merge(&mut known, data);
        }
        rules.notes(known.atime, known.mtime.max(known.ctime), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_noted_once_after_each_change_and_once_a_day() {
        let notes = |rules: AccessTimes, read, changed, now| {
            let [read, changed, now] = [read, changed, now].map(Timestamp::from_seconds);
            rules.notes(read, changed, now)
        };
        let relative = |read, changed, now| notes(AccessTimes::Relative, read, changed, now);
        assert!(relative(100, 100, 101), "never read");
        assert!(relative(100, 200, 300), "changed since");
        assert!(!relative(200, 100, 300), "read since");
        assert!(!relative(300, 300, 300), "in the same second: nothing would change");
        assert!(relative(200, 100, 200 + DAY));
        assert!(notes(AccessTimes::Always, 200, 100, 201));
        assert!(!notes(AccessTimes::Never, 100, 200, 300));
    }
}
