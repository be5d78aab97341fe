//! Write-back that failed after its call was answered: who has been told.
//!
//! Each open handle hears of a failure once, from fsync, whoever else has heard of it. What nobody has
//! been told waits for the next one who opens the file, for its fsync. Closing tells what has failed since
//! the file was opened, and does not count: a process that was forked for something else closes its copies
//! of all descriptors, and looks at no answer; and who only reads, or writes what arrives, is not to hear
//! at each close of what another lost.

use sheen_types::Errno;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: u64,
    latest: Option<Errno>,
    /// How many of them somebody was told.
    reported: u64,
}

impl Failures {
    /// Bytes that were accepted are lost.
    pub(crate) fn note(&mut self, errno: Errno) {
        self.count += 1;
        self.latest = Some(errno);
    }

    /// All failures so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The failures that a handle which is opened now need not be told by fsync.
    pub(crate) fn reported(&self) -> u64 {
        self.reported
    }

    /// For one who has heard of the first `heard`: the latest, if there are more.
    pub(crate) fn since(&self, heard: u64) -> Result<(), Errno> {
        match self.latest {
            Some(errno) if self.count > heard => Err(errno),
            _ => Ok(()),
        }
    }

    /// As [`Failures::since`], and this one has heard of all then.
    pub(crate) fn report(&mut self, heard: &mut u64) -> Result<(), Errno> {
        let news = self.since(*heard);
        *heard = self.count;
        self.reported = self.count;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_hears_once_and_closing_takes_nothing_away() {
        let mut failures = Failures::default();
        let (mut one, mut two) = (failures.reported(), failures.reported());
        assert_eq!(failures.report(&mut one), Ok(()));
        failures.note(Errno::EIO);
        assert_eq!(failures.since(one), Err(Errno::EIO), "a close says it");
        assert_eq!(failures.report(&mut one), Err(Errno::EIO), "and fsync all the same");
        assert_eq!(failures.report(&mut one), Ok(()));
        assert_eq!(failures.report(&mut two), Err(Errno::EIO));
        let late = failures.reported();
        assert_eq!(failures.since(late), Ok(()), "opened after somebody was told");
        failures.note(Errno::ENOSPC);
        assert_eq!(failures.report(&mut one), Err(Errno::ENOSPC));
    }

    #[test]
    fn what_nobody_was_told_waits_for_the_next_handle() {
        let mut failures = Failures::default();
        failures.note(Errno::ENOSPC);
        let mut late = failures.reported();
        assert_eq!(failures.since(late.max(failures.count())), Ok(()), "its close");
        assert_eq!(failures.report(&mut late), Err(Errno::ENOSPC), "its fsync");
    }
}
