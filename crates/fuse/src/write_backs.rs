//! The kernel's write-back of mapped pages, answered before a server that is away has its bytes.
//!
//! A process that waits for write-back in the kernel (`msync`, `munmap`, `close`, exit) cannot be interrupted
//! by signals until we answer. So a write-back that has waited for [`PATIENCE`] is answered as done, up to
//! [`BYTES_MAX`] of them at once, and goes on here. The caller then waits for it where signals interrupt it:
//! `msync` and `fsync` send `FUSE_FSYNC` behind the write-back, and that waits until its bytes are where
//! `fsync` has them.
//!
//! What always holds: a call that touches bytes of such a write-back, and came after its answer, waits for it
//! first. So writes of the same bytes keep their order, and no read brings bytes from a server that are about
//! to be replaced. A failure after the answer is reported by the next `fsync` of the file, and logged.
//!
//! Cost: one atomic read for each call that may have to wait, while none was answered early.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Errno, Extent, HashMap};
use tokio::sync::Notify;

/// How long a write-back waits for its server before it is answered. With it a process that is killed in
/// `msync` is gone within a second.
const PATIENCE: Duration = Duration::from_millis(300);

/// Bytes that wait here behind their answers. Beyond these the kernel waits, and its caller with it.
const BYTES_MAX: usize = 256 << 20;

/// Files whose failure no call has asked for.
const FAILURES_MAX: usize = 4096;

/// The write-backs of a mount.
#[derive(Default)]
pub(crate) struct WriteBacks {
    /// Orders calls: the number of the next one.
    next: AtomicU64,
    /// How many were answered early and go on: read before the table is locked.
    count: AtomicUsize,
    table: Mutex<Table>,
    fewer: Notify,
}

#[derive(Default)]
struct Table {
    /// What goes on behind its answer, by file and number.
    early: BTreeMap<(u64, u64), Extent>,
    bytes: usize,
    failed: HashMap<u64, Errno>,
}

/// Where a call stands among the write-backs of a file: behind those that came before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOrder {
    node: u64,
    number: u64,
    extent: Extent,
}

impl WriteBacks {
    /// That of a call that comes now and uses `extent` of the file.
    pub(crate) fn order(&self, node: u64, extent: Extent) -> CallOrder {
        CallOrder { node, number: self.next.fetch_add(1, Ordering::AcqRel), extent }
    }

    /// Returns when what was answered before `order` and touches its bytes has ended.
    pub(crate) async fn wait_for_earlier(&self, order: CallOrder) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        loop {
            let fewer = self.fewer.notified();
            if !self.table.lock().has_earlier(order) {
                return;
            }
            fewer.await;
        }
    }

    /// `call`, when these have ended.
    pub(crate) async fn after_earlier<T>(
        &self,
        order: CallOrder,
        call: impl Future<Output = T>,
    ) -> T {
        self.wait_for_earlier(order).await;
        call.await
    }

    /// As [`WriteBacks::wait_for_earlier`], and answers what failed of the file since a call last asked.
    pub(crate) async fn wait_and_take_failure(&self, order: CallOrder) -> Result<(), Errno> {
        self.wait_for_earlier(order).await;
        let failed = self.table.lock().failed.remove(&order.node);
        failed.map_or(Ok(()), Err)
    }

    /// Returns when none goes on behind its answer: before the mount ends.
    pub(crate) async fn wait_for_all(&self) {
        loop {
            let fewer = self.fewer.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            fewer.await;
        }
    }

    /// Runs `write` of `length` bytes at `order`, and `answer`s when it is done or has waited long enough; what
    /// `keep` returns is dropped when it is done after that.
    pub(crate) async fn write<K>(
        self: &Arc<Self>,
        order: CallOrder,
        length: usize,
        (mut write, keep): (Pin<&mut impl Future<Output = Result<u32, Errno>>>, impl FnOnce() -> K),
        answer: impl FnOnce(Result<u32, Errno>),
    ) {
        // Behind another that waits it would wait as well.
        let patience = match self.table.lock().has_earlier(order) {
            true => Duration::ZERO,
            false => PATIENCE,
        };
        if let Ok(written) = tokio::time::timeout(patience, write.as_mut()).await {
            return answer(written);
        }
        let Some(early) = self.begin(order, length) else { return answer(write.await) };
        let written_bytes = u32::try_from(length).unwrap_or(u32::MAX);
        let _kept = keep();
        answer(Ok(written_bytes));
        let failed = match write.await {
            Ok(written) if written == written_bytes => None,
            Ok(written) => {
                tracing::warn!(
                    node = order.node,
                    written,
                    wanted = written_bytes,
                    "a short write-back"
                );
                Some(Errno::EIO)
            }
            Err(errno) => Some(errno),
        };
        if let Some(errno) = failed {
            tracing::warn!(node = order.node, %errno, "what a mapping stored was lost");
            let mut table = self.table.lock();
            if table.failed.len() < FAILURES_MAX {
                table.failed.insert(order.node, errno);
            }
        }
        drop(early);
    }

    fn begin(self: &Arc<Self>, order: CallOrder, length: usize) -> Option<Early> {
        let mut table = self.table.lock();
        if table.bytes + length > BYTES_MAX {
            return None;
        }
        table.bytes += length;
        table.early.insert((order.node, order.number), order.extent);
        self.count.store(table.early.len(), Ordering::Release);
        Some(Early { all: Arc::clone(self), order, length })
    }
}

impl Table {
    /// Whether something goes on that was answered before `order` and touches its bytes.
    fn has_earlier(&self, order: CallOrder) -> bool {
        let before = self.early.range((order.node, 0)..(order.node, order.number));
        let touches =
            |extent: &Extent| extent.start <= order.extent.end && order.extent.start <= extent.end;
        before.map(|(_, extent)| extent).any(touches)
    }
}

/// A write-back that goes on behind its answer.
struct Early {
    all: Arc<WriteBacks>,
    order: CallOrder,
    length: usize,
}

impl Drop for Early {
    fn drop(&mut self) {
        let mut table = self.all.table.lock();
        table.early.remove(&(self.order.node, self.order.number));
        table.bytes -= self.length;
        self.all.count.store(table.early.len(), Ordering::Release);
        drop(table);
        self.all.fewer.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::{Receiver, channel};

    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    type Written = Result<u32, Errno>;

    fn extent(start: u64, length: u64) -> Extent {
        Extent::of_length(start, length).expect("small")
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    /// A write-back of `length` bytes whose server answers on request; what it answered itself.
    fn begin(
        all: &Arc<WriteBacks>,
        order: CallOrder,
        length: usize,
    ) -> (oneshot::Sender<Written>, Receiver<Written>) {
        let (done, server) = oneshot::channel();
        let (written_bytes, answered) = channel();
        let all = Arc::clone(all);
        tokio::spawn(async move {
            let write = pin!(async { server.await.unwrap_or(Err(Errno::EIO)) });
            all.write(order, length, (write, || ()), |answer| {
                written_bytes.send(answer).expect("received")
            })
            .await;
        });
        (done, answered)
    }

    #[test]
    fn a_write_back_that_waits_is_answered_and_further_ones_of_its_bytes_wait_for_it() {
        runtime().block_on(async {
            let all = Arc::<WriteBacks>::default();
            let before = all.order(7, extent(0, 10));
            let (done, answered) = begin(&all, all.order(7, extent(0, 4096)), 4096);
            tokio::time::sleep(PATIENCE * 2).await;
            assert_eq!(answered.try_recv(), Ok(Ok(4096)));
            // What came before, what touches other bytes and another file's do not wait.
            all.wait_for_earlier(before).await;
            all.wait_for_earlier(all.order(7, extent(4096, 1))).await;
            all.wait_for_earlier(all.order(8, extent(0, 1))).await;
            let sync = all.order(7, Extent::ALL);
            let waits = tokio::time::timeout(PATIENCE, all.wait_for_earlier(sync)).await;
            assert!(waits.is_err());
            done.send(Err(Errno::ENOSPC)).expect("waited for");
            let failed = tokio::time::timeout(LIMIT, all.wait_and_take_failure(sync)).await;
            assert_eq!(failed, Ok(Err(Errno::ENOSPC)));
            // Once.
            assert_eq!(all.wait_and_take_failure(all.order(7, Extent::ALL)).await, Ok(()));
            all.wait_for_all().await;
        });
    }

    #[test]
    fn what_is_taken_at_once_is_answered_with_its_own_answer() {
        runtime().block_on(async {
            let all = Arc::<WriteBacks>::default();
            let (done, answered) = begin(&all, all.order(7, extent(0, 4096)), 4096);
            done.send(Err(Errno::EIO)).expect("waited for");
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert_eq!(answered.try_recv(), Ok(Err(Errno::EIO)));
            assert_eq!(all.wait_and_take_failure(all.order(7, Extent::ALL)).await, Ok(()));
        });
    }

    #[test]
    fn no_more_bytes_wait_behind_their_answers_than_may() {
        runtime().block_on(async {
            let all = Arc::<WriteBacks>::default();
            let half = BYTES_MAX / 2;
            let orders = [(); 3].map(|()| all.order(7, extent(0, 1)));
            let begun = orders.map(|order| begin(&all, order, half));
            tokio::time::sleep(PATIENCE * 2).await;
            let written_bytes = begun.each_ref().map(|(_, answered)| answered.try_recv().is_ok());
            assert_eq!(written_bytes.iter().filter(|written_bytes| **written_bytes).count(), 2);
            let written_bytes = u32::try_from(half).expect("less than 4 GiB");
            let ends = begun.map(|(done, answered)| {
                done.send(Ok(written_bytes)).expect("waited for");
                answered
            });
            tokio::time::timeout(LIMIT, all.wait_for_all()).await.expect("all end");
            drop(ends);
            assert_eq!(all.table.lock().bytes, 0);
        });
    }
}
