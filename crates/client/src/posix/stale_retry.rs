//! Calls that were answered `ESTALE`, and what makes their retry succeed.
//!
//! The kernel looks a name up and then uses what it found: two calls, between which another client may
//! replace the name. On `ESTALE` the kernel repeats the whole path walk once, with a lookup for every name on
//! the way. So that this retry succeeds, its lookups retain what they find: a file or directory is opened by
//! its name, a symbolic link is read, and of anything else the attributes stay valid for one answer. What is
//! retained is released when the call has ended, or after [`PATIENCE`].
//!
//! Callers are distinguished by their thread, as the kernel names it. Costs nothing while no call was
//! answered `ESTALE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Errno, HashMap, Instant, Name};

use super::{Credentials, FileType, Mounted, NodeId};
use crate::cache::{Inode, Pin};
use crate::mdt::MdtOpen;
use crate::meta::LookupDepth;
use crate::types::Dentry;

/// How long a retry may take to arrive and to end: longer than any thread waits for a processor on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a link that is replaced before it is read is looked up anew.
pub(super) const TRIES: u32 = 100;

/// Callers that were answered `ESTALE`.
#[derive(Default)]
pub(crate) struct StaleRetry {
    /// How many there are: read before the map is locked.
    count: AtomicUsize,
    callers: Mutex<HashMap<u32, Caller>>,
}

/// A caller that retries.
struct Caller {
    until: Instant,
    retained: Vec<Retained>,
}

/// What one of its lookups found.
struct Retained {
    dentry: Dentry,
    pin: Pin,
    open: Option<MdtOpen>,
    who: Credentials,
}

impl StaleRetry {
    fn locked<T>(&self, work: impl FnOnce(&mut HashMap<u32, Caller>) -> T) -> T {
        let mut callers = self.callers.lock();
        let done = work(&mut callers);
        self.count.store(callers.len(), Ordering::Release);
        done
    }

    /// Whether the caller's call is a retry.
    pub(super) fn tries_again(&self, who: &Credentials) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.callers.lock().contains_key(&who.pid)
    }

    /// The name by which the caller's retry found `node`.
    pub(super) fn found_as(&self, who: &Credentials, node: NodeId) -> Option<Dentry> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let callers = self.callers.lock();
        let retained = &callers.get(&who.pid)?.retained;
        let found = retained.iter().rev().find(|retained| retained.pin.node() == node)?;
        Some(found.dentry.clone())
    }
}

impl Mounted {
    /// Notes that the caller retries, and returns the errno on which the kernel looks everything up again.
    pub(super) fn answer_stale(&self, who: &Credentials) -> Errno {
        let now = self.meta.world.clock.now();
        self.stale_retry.locked(|callers| {
            // Those that never retried.
            callers.retain(|_, caller| caller.until > now || !caller.retained.is_empty());
            let caller = callers.entry(who.pid);
            let caller = caller.or_insert_with(|| Caller { until: now, retained: Vec::new() });
            caller.until = now + PATIENCE;
        });
        Errno::ESTALE
    }

    /// The answer to a call on an inode that may have been looked up for it. If the servers do not
    /// know the inode that the kernel knows, its name was removed, or names another by now.
    pub(super) fn stale_if_absent<T>(
        &self,
        who: &Credentials,
        answer: Result<T, Errno>,
    ) -> Result<T, Errno> {
        answer.map_err(|errno| match errno {
            Errno::ENOENT => self.answer_stale(who),
            errno => errno,
        })
    }

    /// As [`Mounted::stale_if_absent`], of a call that ends what the caller does with a name: if it was a retry,
    /// what the retry retained is released.
    pub(super) fn answer_and_end_retry<T>(
        self: &Arc<Self>,
        who: &Credentials,
        answer: Result<T, Errno>,
    ) -> Result<T, Errno> {
        let answer = self.stale_if_absent(who, answer);
        if !matches!(answer, Err(Errno::ESTALE)) && self.stale_retry.tries_again(who) {
            self.end_retry(who.pid);
        }
        answer
    }

    /// Finds a name for a retry, and retains what it names.
    pub(super) async fn find_and_retain(
        self: &Arc<Self>,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
    ) -> Result<Option<Pin>, Errno> {
        for _ in 0..TRIES {
            let (pin, open) = match self.meta.open_name(who, parent, name).await {
                Ok(opened) => (opened.pin, opened.open),
                // What may not be read can only be looked up.
                Err(_) => match self.meta.lookup(who, parent, name, LookupDepth::Attributes).await?
                {
                    Some(pin) => (pin, None),
                    None => return Ok(None),
                },
            };
            let is_link = pin.file_type() == Some(FileType::Symlink);
            if is_link && self.meta.readlink(who, &pin).await == Err(Errno::ENOENT) {
                continue;
            }
            let found = self.inodes.pin(pin.fid);
            let (dentry, who) = (Dentry::new(parent.node(), name), who.clone());
            self.retain_found(Retained { dentry, pin, open, who });
            return Ok(Some(found));
        }
        Err(Errno::ESTALE)
    }

    fn retain_found(self: &Arc<Self>, retained: Retained) {
        let now = self.meta.world.clock.now();
        let thread = retained.who.pid;
        let is_first = self.stale_retry.locked(|callers| {
            let caller = callers.entry(thread);
            let caller = caller.or_insert_with(|| Caller { until: now, retained: Vec::new() });
            caller.until = now + PATIENCE;
            caller.retained.push(retained);
            caller.retained.len() == 1
        });
        if !is_first {
            return;
        }
        let mounted = Arc::clone(self);
        let task = async move {
            let clock = &mounted.meta.world.clock;
            loop {
                let until =
                    |callers: &mut HashMap<_, Caller>| callers.get(&thread).map(|it| it.until);
                match mounted.stale_retry.locked(until) {
                    None => return,
                    Some(until) if until <= clock.now() => return mounted.end_retry(thread),
                    Some(until) => clock.sleep_until(until).await,
                }
            }
        };
        self.meta.world.tasks.spawn("second try", Box::pin(task));
    }

    /// Closes what was retained for a caller.
    pub(super) fn end_retry(self: &Arc<Self>, thread: u32) {
        let caller = self.stale_retry.locked(|callers| callers.remove(&thread));
        for Retained { pin, open, who, .. } in caller.into_iter().flat_map(|caller| caller.retained)
        {
            let Some(open) = open else { continue };
            let task = async move {
                if let Err(errno) = open.close(&who, pin.fid, None).await {
                    tracing::debug!(fid = %pin.fid, %errno, "second try was not closed");
                }
            };
            self.meta.world.tasks.spawn("second try", Box::pin(task));
        }
    }
}
