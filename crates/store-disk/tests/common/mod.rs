//! Directories for tests, removed when the test's thread ends.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A directory of its own.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sheen-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

thread_local! {
    static KEPT: RefCell<Vec<Temporary>> = const { RefCell::new(Vec::new()) };
}

/// A directory that lives as long as this thread.
#[allow(dead_code, reason = "not every test binary uses it")]
pub(crate) fn kept() -> PathBuf {
    let temporary = Temporary::new();
    let path: &Path = &temporary.0;
    let path = path.to_owned();
    KEPT.with_borrow_mut(|kept| kept.push(temporary));
    path
}
