//! The file size that the kernel was given in replies, and the size that it has for certain.
//!
//! The kernel drops the attributes in a reply if it processed an invalidation of the inode while it waited
//! (`fuse_change_attributes`: `attr_version`), even where it then needs the size in them: a read, a `lseek`
//! to the end or a mapping uses the previous size, which may be that of a lookup that knew no better than 0.
//! The client cannot see whether a reply was dropped, and cannot make the kernel ask again. So once a file
//! was ever invalidated, its size is raised in the kernel itself, by a call that returns when the kernel has
//! it, before the reply is sent; and at the first invalidation, before the notification, to the size in the
//! last reply, which the kernel may not have processed yet.
//!
//! What always holds: when a reply with attributes is sent, or an invalidation after one, the kernel has a
//! size no smaller than the reply's, or accepts the reply, unless this client truncates the file at the same
//! time. A raise never undoes a truncate: no truncate is answered while a raise that was decided before it is
//! under way.
//!
//! Cost: a compare under the inode's mutex until the first invalidation; from then on one system call for
//! each reply whose size is larger than any before.

use std::sync::Arc;

use super::Inode;
use crate::types::NodeId;

/// See the module.
#[derive(Default)]
pub(crate) struct KernelSize {
    /// The kernel was sent an invalidation since the inode is known here.
    was_invalidated: bool,
    /// The size in the last reply, until the first invalidation.
    last: u64,
    /// The kernel's size is no smaller.
    sure: u64,
    /// How many truncates of this client have begun.
    truncates: u32,
    /// How many are under way.
    truncating: u32,
    /// Whether a raise is.
    is_raising: bool,
}

/// What is to be done before a size is answered.
pub(crate) enum SizeReply {
    /// Nothing.
    Nothing,
    /// The kernel's size is to be raised.
    SizeRaise(SizeRaise),
    /// That is being done for another answer: one call to the kernel for each file, which may have to wait
    /// there. The caller asks again when it has ended.
    Wait,
}

/// When attributes were asked for, to compare with when the size is known.
#[derive(Clone, Copy)]
pub(crate) struct SizeEpoch(u32);

impl KernelSize {
    /// Attributes are about to be asked for.
    pub(crate) fn asked(&self) -> SizeEpoch {
        SizeEpoch(self.truncates)
    }

    /// The kernel may take this size over: a reply has it.
    pub(crate) fn replied(&mut self, size: u64) {
        self.sure = self.sure.min(size);
    }

    /// A question sent at `asked` is answered with this size. Returns whether the kernel's size must be
    /// raised before that.
    fn answer(&mut self, asked: SizeEpoch, size: u64) -> bool {
        self.replied(size);
        if self.truncating > 0 || self.truncates != asked.0 {
            return false;
        }
        if !self.was_invalidated {
            self.last = size;
        }
        self.was_invalidated && size > self.sure
    }

    /// An invalidation is about to be sent. Returns the size to which the kernel's must be raised before
    /// that.
    fn begin_invalidation(&mut self) -> Option<u64> {
        let is_first = !std::mem::replace(&mut self.was_invalidated, true);
        let last = std::mem::take(&mut self.last);
        let is_due = is_first && self.truncating == 0 && last > self.sure;
        is_due.then_some(last)
    }

    fn begin_truncate(&mut self, size: u64) {
        self.replied(size);
        self.last = self.last.min(size);
        self.truncates = self.truncates.wrapping_add(1);
        self.truncating += 1;
    }
}

/// The kernel's size of a file is to be raised. Given to the observer that can do it; a truncate may proceed
/// when it is dropped.
pub struct SizeRaise {
    inode: Arc<Inode>,
    size: u64,
    truncates: u32,
}

impl SizeRaise {
    /// The caller holds the inode's state, in which no other raise is under way.
    fn begin(inode: &Arc<Inode>, kernel_size: &mut KernelSize, size: u64) -> Self {
        kernel_size.is_raising = true;
        Self { inode: Arc::clone(inode), size, truncates: kernel_size.truncates }
    }

    /// The file.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.inode.node()
    }

    /// To no less than this.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The kernel has it.
    pub fn done(self) {
        let kernel_size = &mut self.inode.state().file.kernel_size;
        if kernel_size.truncates == self.truncates {
            kernel_size.sure = kernel_size.sure.max(self.size);
        }
    }
}

impl Drop for SizeRaise {
    fn drop(&mut self) {
        self.inode.state().file.kernel_size.is_raising = false;
        self.inode.changed.notify_waiters();
    }
}

/// A truncate of this client that is under way.
pub(crate) struct TruncateGuard<'a>(&'a Inode);

impl Drop for TruncateGuard<'_> {
    fn drop(&mut self) {
        self.0.state().file.kernel_size.truncating -= 1;
    }
}

impl Inode {
    /// As [`KernelSize::answer`].
    pub(crate) fn answer_size(self: &Arc<Self>, asked: SizeEpoch, size: u64) -> SizeReply {
        let kernel_size = &mut self.state().file.kernel_size;
        match kernel_size.answer(asked, size) {
            false => SizeReply::Nothing,
            true if kernel_size.is_raising => SizeReply::Wait,
            true => SizeReply::SizeRaise(SizeRaise::begin(self, kernel_size, size)),
        }
    }

    /// As [`KernelSize::begin_invalidation`].
    pub(super) fn begin_invalidation(self: &Arc<Self>) -> Option<SizeRaise> {
        let kernel_size = &mut self.state().file.kernel_size;
        let size = kernel_size.begin_invalidation()?;
        Some(SizeRaise::begin(self, kernel_size, size))
    }

    /// This client begins to truncate the file to `size`; the truncate has ended, done or not, when the guard
    /// is dropped.
    pub(crate) fn begin_truncate(&self, size: u64) -> TruncateGuard<'_> {
        self.state().file.kernel_size.begin_truncate(size);
        TruncateGuard(self)
    }

    /// Returns when no raise is under way. None begins during a truncate.
    pub(crate) async fn raises_done(&self) {
        loop {
            let mut raised = std::pin::pin!(self.changed.notified());
            raised.as_mut().enable();
            if !self.state().file.kernel_size.is_raising {
                return;
            }
            raised.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::Fid;

    use super::*;

    fn inode() -> Arc<Inode> {
        Arc::new(Inode::new(Fid::new(1, 2), NodeId(3), &crate::records::Recorder::default()))
    }

    fn answer_to(inode: &Arc<Inode>, asked: SizeEpoch, size: u64) -> Option<SizeRaise> {
        match inode.answer_size(asked, size) {
            SizeReply::Nothing => None,
            SizeReply::SizeRaise(raise) => Some(raise),
            SizeReply::Wait => panic!("one is under way"),
        }
    }

    fn answer(inode: &Arc<Inode>, size: u64) -> Option<SizeRaise> {
        let asked = inode.state().file.kernel_size.asked();
        answer_to(inode, asked, size)
    }

    #[test]
    fn the_kernels_size_is_raised_only_where_it_may_have_dropped_an_answer() {
        let inode = inode();
        assert!(answer(&inode, 10).is_none(), "nothing was ever invalidated");
        let raise = inode.begin_invalidation().expect("the answer may not be used yet");
        assert_eq!((raise.size(), raise.node()), (10, NodeId(3)));
        raise.done();
        assert!(inode.begin_invalidation().is_none(), "it is sure of that");
        assert!(answer(&inode, 10).is_none() && answer(&inode, 9).is_none());
        // The kernel may have accepted that one: then 10 is not certain any more.
        let raise = answer(&inode, 10).expect("a larger one");
        let asked = inode.state().file.kernel_size.asked();
        assert!(matches!(inode.answer_size(asked, 11), SizeReply::Wait), "never two at once");
        drop(raise);
        assert!(answer(&inode, 10).is_some(), "that one did not come to its end");
        inode.state().file.kernel_size.replied(4);
        assert!(answer(&inode, 5).is_some(), "a lookup said less meanwhile");
    }

    #[test]
    fn a_raise_never_undoes_a_truncate() {
        let inode = inode();
        assert!(inode.begin_invalidation().is_none());
        let asked = inode.state().file.kernel_size.asked();
        let raise = answer(&inode, 10).expect("larger");
        let cut = inode.begin_truncate(2);
        assert!(answer_to(&inode, asked, 20).is_none() && answer(&inode, 20).is_none());
        let mut waits = std::pin::pin!(inode.raises_done());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending(), "the cut is not answered yet");
        raise.done();
        assert!(waits.as_mut().poll(&mut context).is_ready());
        drop(cut);
        assert!(answer_to(&inode, asked, 20).is_none(), "it was known before the cut");
        assert!(answer(&inode, 3).is_some(), "the kernel is not sure of more than 2");
    }
}
