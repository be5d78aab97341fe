//! A test's own folder, which no other test of this process uses at the same time.
//!
//! Two tests of one name would meet in it unnoticed, and each would find what the other did.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sheen_workloads::{Outcome, ensure};

static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(PathBuf);

impl Claim {
    /// Fails if the folder is claimed.
    pub(crate) fn of(folder: &Path) -> Outcome<Self> {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(claimed.insert(folder.to_owned()), || {
            format!("{}: another test uses it: give one of them another name", folder.display())
        })?;
        Ok(Self(folder.to_owned()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_tests_at_a_time() {
        let (folder, other) = (Path::new("/claimed/a"), Path::new("/claimed/b"));
        let claim = Claim::of(folder).unwrap();
        let refused = Claim::of(folder).map(drop).unwrap_err();
        assert!(refused.starts_with("/claimed/a: another test uses it"), "{refused}");
        Claim::of(other).unwrap();
        drop(claim);
        Claim::of(folder).unwrap();
    }
}
