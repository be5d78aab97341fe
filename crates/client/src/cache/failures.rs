//! Write-back that failed after its call was answered, and which open handles it was reported to.
//!
//! As in Linux (`errseq_t`), `fsync` reports a failure once to each open handle, independently of other
//! handles. A failure that no handle has reported yet is reported by the first `fsync` of the next handle
//! that is opened. A close reports what has failed since its handle was opened, and does not count as a
//! report: a process that was forked for something else closes its copies of all descriptors and ignores the
//! results; and a handle whose own bytes all arrived must not fail at each close for bytes that another
//! handle lost.

use sheen_types::Errno;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: u64,
    latest: Option<Errno>,
    /// How many of them some handle has reported.
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

    /// The failures that `fsync` need not report to a handle that is opened now.
    pub(crate) fn reported(&self) -> u64 {
        self.reported
    }

    /// The latest failure, if there are more than the first `reported`, which were reported already.
    pub(crate) fn since(&self, reported: u64) -> Result<(), Errno> {
        match self.latest {
            Some(errno) if self.count > reported => Err(errno),
            _ => Ok(()),
        }
    }

    /// As [`Failures::since`], and marks all as reported to this handle.
    pub(crate) fn report(&mut self, reported: &mut u64) -> Result<(), Errno> {
        let news = self.since(*reported);
        *reported = self.count;
        self.reported = self.count;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_reports_once_and_closing_takes_nothing_away() {
        let mut failures = Failures::default();
        let (mut one, mut two) = (failures.reported(), failures.reported());
        assert_eq!(failures.report(&mut one), Ok(()));
        failures.note(Errno::EIO);
        assert_eq!(failures.since(one), Err(Errno::EIO), "a close says it");
        assert_eq!(failures.report(&mut one), Err(Errno::EIO), "and fsync all the same");
        assert_eq!(failures.report(&mut one), Ok(()));
        assert_eq!(failures.report(&mut two), Err(Errno::EIO));
        let late = failures.reported();
        assert_eq!(failures.since(late), Ok(()), "opened after it was reported");
        failures.note(Errno::ENOSPC);
        assert_eq!(failures.report(&mut one), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_failure_that_was_not_reported_waits_for_the_next_handle() {
        let mut failures = Failures::default();
        failures.note(Errno::ENOSPC);
        let mut late = failures.reported();
        assert_eq!(failures.since(late.max(failures.count())), Ok(()), "its close");
        assert_eq!(failures.report(&mut late), Err(Errno::ENOSPC), "its fsync");
    }
}
