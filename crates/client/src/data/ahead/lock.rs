//! The extent locks under which bytes are read ahead.
//!
//! As in Lustre they are those that are held already. One is asked for where there is none, so that a file on several OSTs
//! is read ahead before each was asked for a lock by a read; but only if no other client's lock conflicts with it.

use std::pin::pin;
use std::sync::Arc;

use sheen_ldlm::{LockFlags, Policy};
use sheen_types::{Extent, LockMode};

use super::super::data_target::DataTargetKind;
use super::super::object::Object;
use crate::locks::{LockReference, LockRequest};

/// Whether an OST is asked for a lock on an object to read it ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::data) enum LockAhead {
    #[default]
    Unasked,
    /// It is being asked.
    Asking,
    /// Another client's lock conflicted with one: it is not asked again while the file is in use.
    Refused,
}

impl LockAhead {
    /// What it was; it is being asked from now on, if it may be.
    fn begin(&mut self) -> Self {
        let before = *self;
        if before == Self::Unasked {
            *self = Self::Asking;
        }
        before
    }

    pub(super) fn forget_refusal(&mut self) {
        if *self == Self::Refused {
            *self = Self::Unasked;
        }
    }
}

/// The OST is being asked until this is dropped.
struct Asking<'a>(&'a Object);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.lock_ahead == LockAhead::Asking {
            state.lock_ahead = LockAhead::Unasked;
        }
        drop(state);
        self.0.progress.notify_waiters();
    }
}

impl Object {
    /// A lock to read ahead under: a cached one, or a new one if no other client's conflicts with it. An MDT is not
    /// asked for one.
    pub(in crate::data) async fn use_lock_ahead(
        self: &Arc<Self>,
        extent: Extent,
    ) -> Option<LockReference> {
        let policy = self.target.policy(extent);
        loop {
            let mut changed = pin!(self.progress.notified());
            changed.as_mut().enable();
            let held = self.target.locks().find(self.resource, policy, LockMode::Pr);
            if held.is_some() || self.target.kind == DataTargetKind::Mdt {
                return held;
            }
            let before = self.state.lock().lock_ahead.begin();
            match before {
                LockAhead::Unasked => return self.ask_lock_ahead(policy).await,
                LockAhead::Asking => changed.await,
                LockAhead::Refused => return None,
            }
        }
    }

    async fn ask_lock_ahead(&self, policy: Policy) -> Option<LockReference> {
        let asking = Asking(self);
        let (mode, flags) = (LockMode::Pr, LockFlags::SPECULATIVE);
        let request = LockRequest { resource: self.resource, policy, mode, flags };
        let lock = self.target.locks().enqueue(request).await;
        if lock.is_err() {
            self.state.lock().lock_ahead = LockAhead::Refused;
        }
        drop(asking);
        lock.ok()
    }
}
