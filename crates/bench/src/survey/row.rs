//! One line of a survey: all tests with one number of threads.

use super::device::{Progress, Work};
use super::report::Report;
use super::{Attached, Surroundings};
use crate::ranks::Ended;

/// What makes a line of a survey.
pub(super) struct Row<'s, Shown> {
    /// How the line begins.
    pub(super) begin: String,
    /// What stands before that in the file of details.
    pub(super) arrow: &'s str,
    /// Directories or objects that it works on.
    pub(super) prepared: u32,
    /// The numbers of a test.
    pub(super) shown: Shown,
}

impl<Shown: Fn(&[Progress]) -> String> Row<'_, Shown> {
    /// Runs all tests on all targets; answers the last failure.
    pub(super) fn run<'t>(
        &self,
        tests: impl Iterator<Item = (&'t str, Work)>,
        attached: &mut Attached,
        report: &mut Report,
    ) -> Result<Option<String>, Ended> {
        report.detail(&format!("{} {}\n", self.arrow, self.begin))?;
        report.say(&self.begin)?;
        attached.prepare(self.prepared)?;
        let mut failed = None;
        for (name, work) in tests {
            report.say(&format!("{name} "))?;
            let ended = attached.test(&work, name, report)?;
            report.detail(&format!("=============> {name} global\n"))?;
            report.say(&(self.shown)(&ended))?;
            let why = ended.iter().find_map(|one| one.failed.as_ref());
            failed = why.map(|why| format!("{name}: {why}")).or(failed);
        }
        report.say("\n")?;
        Ok(failed)
    }
}

/// Ends a survey whose last failure this is.
pub(super) fn finish(
    mut attached: Attached,
    failed: Option<String>,
    surroundings: &Surroundings,
) -> Result<(), Ended> {
    attached.detach()?;
    match failed {
        None => {
            (surroundings.out)("done!\n");
            Ok(())
        }
        Some(failed) => Err(Ended::Failed(failed)),
    }
}
