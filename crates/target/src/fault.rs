//! Named places where tests make requests fail (Lustre's OBD_FAIL).
//!
//! One relaxed load per place while nothing is armed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Errno, HashMap};
use sheen_wire::messages::Kind;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultSite {
    /// A request of this kind has arrived and nothing was done for it.
    Request(Kind),
    /// A request of this kind was executed, its answer goes out now.
    Reply(Kind),
    /// A place that a role named.
    Role(&'static str),
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The request or the reply is lost.
    Drop,
    /// It takes longer.
    Delay(Duration),
    /// It is answered with this error.
    Fail(Errno),
}

/// What is armed.
#[derive(Default)]
pub struct Faults {
    armed: AtomicBool,
    sites: Mutex<HashMap<FaultSite, (FaultAction, u32)>>,
}

impl Faults {
    /// The next `times` passages of `site` meet `action`.
    pub fn arm(&self, site: FaultSite, action: FaultAction, times: u32) {
        let mut sites = self.sites.lock();
        sites.insert(site, (action, times));
        self.armed.store(true, Ordering::Release);
    }

    /// Passes `site`.
    #[must_use]
    pub(crate) fn pass(&self, site: FaultSite) -> Option<FaultAction> {
        if !self.armed.load(Ordering::Relaxed) {
            return None;
        }
        let mut sites = self.sites.lock();
        let (action, left) = sites.get_mut(&site)?;
        let action = *action;
        *left = left.saturating_sub(1);
        if *left == 0 {
            sites.remove(&site);
            self.armed.store(!sites.is_empty(), Ordering::Release);
        }
        Some(action)
    }
}
