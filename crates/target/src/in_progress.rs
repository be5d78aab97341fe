//! Requests in progress, and what each of them waits for: what operators look at when something is slow
//! (`requests_in_work` of each target).
//!
//! While a request is executed, its task knows it: code that waits for something says so with
//! [`while_waiting`], and need not know which request it works for. Tasks that a request starts beside
//! itself are not followed. Cost for each request: one small allocation, and a store to it for each wait;
//! no lock beside that of the export, which is taken anyway.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use sheen_rpc::Replier;
use sheen_types::{Instant, Nid, Uuid, Xid};
use sheen_wire::messages::Kind;

use crate::target::Target;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it is being worked on.
    Nothing,
    /// Its turn while clients recover.
    Recovery,
    /// Another operation on the same name or inode.
    Operation,
    /// Clients that hold locks.
    Lock,
    /// Data on its way from or to the client.
    Bulk,
    /// The disk.
    Disk,
    /// Objects from an OST.
    Objects,
    /// Another MDT.
    Mdt,
}

impl Wait {
    const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Recovery,
        Self::Operation,
        Self::Lock,
        Self::Bulk,
        Self::Disk,
        Self::Objects,
        Self::Mdt,
    ];

    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "working",
            Self::Recovery => "recovery",
            Self::Operation => "operation",
            Self::Lock => "lock",
            Self::Bulk => "bulk",
            Self::Disk => "disk",
            Self::Objects => "objects",
            Self::Mdt => "mdt",
        }
    }
}

/// What a request waits for: written by its task, read by the parameter tree.
#[derive(Clone, Default)]
pub(crate) struct CurrentWait(Arc<AtomicU8>);

impl CurrentWait {
    fn wait(&self) -> Wait {
        Wait::ALL[usize::from(self.0.load(Ordering::Relaxed)) % Wait::ALL.len()]
    }
}

thread_local! {
    /// The request that this thread works on at this moment.
    static CURRENT: RefCell<Option<CurrentWait>> = const { RefCell::new(None) };
}

/// Does a request's work; what it waits for meanwhile is seen in `current`.
pub(crate) async fn followed<F: Future>(current: CurrentWait, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        let before = CURRENT.replace(Some(current.clone()));
        let polled = work.as_mut().poll(context);
        CURRENT.replace(before);
        polled
    })
    .await
}

/// Waits, and says what for.
pub async fn while_waiting<F: Future>(what: Wait, work: F) -> F::Output {
    let _mark = CURRENT.with_borrow(Clone::clone).map(|current| WaitGuard::new(current, what));
    work.await
}

/// Records what a request waits for until dropped, and then what it waited for before.
struct WaitGuard {
    current: CurrentWait,
    before: u8,
}

impl WaitGuard {
    fn new(current: CurrentWait, what: Wait) -> Self {
        let before = current.0.swap(what as u8, Ordering::Relaxed);
        Self { current, before }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.current.0.store(self.before, Ordering::Relaxed);
    }
}

/// A request that is being executed, as its export knows it.
pub(crate) struct RequestInProgress {
    /// Where the answer goes, if the request came a second time.
    pub(crate) newer: Option<Replier>,
    pub(crate) kind: Kind,
    pub(crate) arrived: Instant,
    pub(crate) waits_for: CurrentWait,
    /// A line of the log says that it takes long.
    pub(crate) is_reported: bool,
}

impl RequestInProgress {
    pub(crate) fn new(kind: Kind, arrived: Instant) -> Self {
        let waits_for = CurrentWait::default();
        Self { newer: None, kind, arrived, waits_for, is_reported: false }
    }

    pub(crate) fn view(&self, xid: Xid, client: &Uuid, nid: Nid, now: Instant) -> RequestView {
        RequestView {
            kind: self.kind,
            client: client.clone(),
            nid,
            xid,
            age: now.since(self.arrived),
            wait: self.waits_for.wait(),
        }
    }
}

/// A request that is being executed, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestView {
    /// What it asks for.
    pub kind: Kind,
    /// The client that asks.
    pub client: Uuid,
    /// From where.
    pub nid: Nid,
    /// Its name at the client.
    pub xid: Xid,
    /// Since it arrived.
    pub age: Duration,
    /// What it waits for.
    pub wait: Wait,
}

impl Target {
    /// The requests in progress, the oldest first.
    #[must_use]
    pub fn requests_in_progress(&self) -> Vec<RequestView> {
        let now = self.now();
        let mut all = Vec::new();
        for export in self.exports() {
            let state = export.lock();
            let view = |(xid, request): (&Xid, &RequestInProgress)| {
                request.view(*xid, export.uuid(), state.nid, now)
            };
            all.extend(state.in_progress.iter().map(view));
        }
        all.sort_by_key(|request| (std::cmp::Reverse(request.age), request.xid));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_wait_is_seen_while_it_lasts_and_the_outer_one_after_it() {
        let (first, second) = (CurrentWait::default(), CurrentWait::default());
        let (open, opened) = tokio::sync::oneshot::channel::<()>();
        let inner = async {
            while_waiting(Wait::Lock, async {
                while_waiting(Wait::Disk, std::future::ready(())).await;
                opened.await
            })
            .await
        };
        let mut work = Box::pin(followed(first.clone(), inner));
        let mut other = Box::pin(followed(
            second.clone(),
            while_waiting(Wait::Bulk, std::future::pending::<()>()),
        ));
        let mut context = Context::from_waker(Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert!(other.as_mut().poll(&mut context).is_pending());
        assert_eq!((first.wait(), second.wait()), (Wait::Lock, Wait::Bulk));
        open.send(()).expect("the request waits");
        assert!(matches!(work.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
        assert_eq!((first.wait(), second.wait()), (Wait::Nothing, Wait::Bulk));
        drop(other);
        assert_eq!(second.wait(), Wait::Nothing);
    }

    #[test]
    fn every_wait_has_its_number_and_name() {
        for (number, wait) in Wait::ALL.into_iter().enumerate() {
            assert_eq!(number, wait as usize);
            assert!(!wait.name().is_empty());
        }
    }
}
