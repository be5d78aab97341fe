//! Tests that failed while the rest ran, once more by themselves.
//!
//! End-to-end tests wait for each other's disks and processors, and some of them measure time: one such test that
//! fails once in a hundred runs says little about the change at hand. It is run again when everything else has
//! ended; if it passes then, the run counts as passed and the summary names the test and what it said as
//! `unsteady`, for someone to mend. What judges whether bytes are lost, or who gets in, has one run: what fails there
//! in one run of a hundred is what these tests exist for.

/// More than that are no chance.
const AT_MOST: usize = 3;

/// Tests whose first failure is final, by the start of their names.
const FINAL: [&str; 20] = [
    "admission::",
    "damage::",
    "deaths::",
    "dom::",
    "dom_deaths::",
    "fsck::",
    "full::",
    "further_mdts::",
    "journals::",
    "kills::",
    "moves::",
    "pages::",
    "pairs::",
    "postgres::",
    "private::",
    "special::",
    "sqlite::",
    "storm::",
    "strangers::",
    "vouched_sizes::",
];

/// A test that may be run again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) name: String,
    /// What it said when it failed.
    pub(crate) fault: String,
}

/// The tests of `faults` (`TEST: FAULT`, one for each of `failed`), if all of them may be run again.
pub(crate) fn may_be_run(failed: u32, faults: &[String]) -> Option<Vec<Again>> {
    let again = |line: &String| {
        let (name, fault) = line.split_once(": ")?;
        let is_final = FINAL.iter().any(|start| name.starts_with(start));
        let is_test = !name.contains([' ', '/']);
        (is_test && !is_final).then(|| Again { name: name.to_owned(), fault: fault.to_owned() })
    };
    let all: Vec<Again> = faults.iter().map(again).collect::<Option<_>>()?;
    let is_few = (1..=AT_MOST).contains(&all.len());
    (is_few && all.len() == failed as usize).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(failed: u32, faults: &[&str]) -> Option<Vec<String>> {
        let faults: Vec<String> = faults.iter().map(|&fault| fault.to_owned()).collect();
        may_be_run(failed, &faults).map(|all| all.into_iter().map(|it| it.name).collect())
    }

    #[test]
    fn few_tests_that_judge_no_loss_are_run_again() {
        let one = "settings::values: timeout: 64; 128";
        assert_eq!(asked(1, &[one]), Some(vec!["settings::values".to_owned()]));
        assert_eq!(asked(1, &[one, "greedy::rates: 0.8"]), None, "one fault has no name");
        assert_eq!(asked(2, &[one, "kills::a_build: other bytes"]), None);
        assert_eq!(asked(4, &["a::b: 1", "a::c: 2", "a::d: 3", "a::e: 4"]), None);
        assert_eq!(asked(0, &[]), None);
        assert_eq!(asked(1, &["/work/sheen/e2e: failed"]), None, "an executable is no test");
        assert_eq!(asked(1, &["cargo test --workspace: exit status: 101"]), None);
    }

    #[test]
    fn what_is_final_is_there() {
        let folder = crate::shell::root().join("crates/testkit/tests/e2e");
        for start in FINAL {
            let module = start.trim_end_matches("::");
            let is_there = folder.join(format!("{module}.rs")).is_file();
            assert!(is_there || folder.join(module).is_dir(), "{module}");
        }
    }
}
