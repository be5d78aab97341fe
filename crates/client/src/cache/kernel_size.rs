//! What the kernel was told of a file's size, and what it is sure to have heard.
//!
//! The kernel drops the attributes in an answer if something was taken back from it while it waited
//! (`fuse_change_attributes`: `attr_version`), also where it then goes on by the size in them: a read, a
//! `lseek` to the end or a mapping goes by the size of before, which may be that of a lookup that knew no
//! better than 0. Nothing that we see says whether an answer was dropped, and nothing makes the kernel ask
//! again. So the size of a file of which something was ever taken back is raised in the kernel itself, by a
//! call that has an end, before the answer goes out; and the first time that something is taken back, before
//! that, to what the last answer said, which may not be used yet.
//!
//! What always holds: when an answer to a question for attributes goes out, or something is taken back
//! behind one, the kernel has a size no smaller than the answer's, or believes the answer, unless this
//! client cuts the file meanwhile. A raise never undoes a cut: no cut is answered while there is one under way
//! that was decided before it.
//!
//! Cost: nothing but a compare under the inode's lock, until something was taken back; from then on one system
//! call for each answer that tells a larger size than ever before.

use std::sync::Arc;

use super::Inode;
use crate::posix::NodeId;

/// See the module.
#[derive(Default)]
pub(crate) struct KernelSize {
    /// Something was taken back since the inode is known here.
    was_invalidated: bool,
    /// What the last answer said, until something is taken back.
    last: u64,
    /// The kernel's size is no smaller.
    sure: u64,
    /// How often a cut of ours began.
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
    Raise(Raise),
    /// That is being done for another answer: one call to the kernel for each file, which may have to wait
    /// there. When it is over this is to be asked again.
    Wait,
}

/// A moment to compare with when a size is known.
#[derive(Clone, Copy)]
pub(crate) struct SizeEpoch(u32);

impl KernelSize {
    /// Somebody asks for attributes.
    pub(crate) fn asked(&self) -> SizeEpoch {
        SizeEpoch(self.truncates)
    }

    /// The kernel may come to believe this size: an answer has it.
    pub(crate) fn replied(&mut self, size: u64) {
        self.sure = self.sure.min(size);
    }

    /// What was asked then is answered with this size. Whether the kernel's must be larger before that.
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

    /// Something is about to be taken back. To what size the kernel's must be raised before that.
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

/// The kernel's size of a file is to be raised. Given to who can do that; when it is dropped a cut may go
/// on.
pub struct Raise {
    inode: Arc<Inode>,
    size: u64,
    truncates: u32,
}

impl Raise {
    /// With the state of the inode, which says that there is no other one.
    fn begin(inode: &Arc<Inode>, kernel_size: &mut KernelSize, size: u64) -> Self {
        kernel_size.is_raising = true;
        Self { inode: Arc::clone(inode), size, truncates: kernel_size.truncates }
    }

    /// Of which file.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.inode.node
    }

    /// To no less than this.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The kernel has it.
    pub fn done(self) {
        let kernel_size = &mut self.inode.state().kernel_size;
        if kernel_size.truncates == self.truncates {
            kernel_size.sure = kernel_size.sure.max(self.size);
        }
    }
}

impl Drop for Raise {
    fn drop(&mut self) {
        self.inode.state().kernel_size.is_raising = false;
        self.inode.changed.notify_waiters();
    }
}

/// A cut of ours under way.
pub(crate) struct TruncateGuard<'a>(&'a Inode);

impl Drop for TruncateGuard<'_> {
    fn drop(&mut self) {
        self.0.state().kernel_size.truncating -= 1;
    }
}

impl Inode {
    /// As [`KernelSize::answer`].
    pub(crate) fn answer_size(self: &Arc<Self>, asked: SizeEpoch, size: u64) -> SizeReply {
        let kernel_size = &mut self.state().kernel_size;
        match kernel_size.answer(asked, size) {
            false => SizeReply::Nothing,
            true if kernel_size.is_raising => SizeReply::Wait,
            true => SizeReply::Raise(Raise::begin(self, kernel_size, size)),
        }
    }

    /// As [`KernelSize::begin_invalidation`].
    pub(super) fn begin_invalidation(self: &Arc<Self>) -> Option<Raise> {
        let kernel_size = &mut self.state().kernel_size;
        let size = kernel_size.begin_invalidation()?;
        Some(Raise::begin(self, kernel_size, size))
    }

    /// We begin to cut the file to `size`, and have done so, whether or not, when this is dropped.
    pub(crate) fn begin_truncate(&self, size: u64) -> TruncateGuard<'_> {
        self.state().kernel_size.begin_truncate(size);
        TruncateGuard(self)
    }

    /// Returns when no raise is under way. While there is a cut none begins.
    pub(crate) async fn raises_done(&self) {
        loop {
            let mut raised = std::pin::pin!(self.changed.notified());
            raised.as_mut().enable();
            if !self.state().kernel_size.is_raising {
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
        Arc::new(Inode::new(Fid::new(1, 2), NodeId(3)))
    }

    fn answer_to(inode: &Arc<Inode>, asked: SizeEpoch, size: u64) -> Option<Raise> {
        match inode.answer_size(asked, size) {
            SizeReply::Nothing => None,
            SizeReply::Raise(raise) => Some(raise),
            SizeReply::Wait => panic!("one is under way"),
        }
    }

    fn answer(inode: &Arc<Inode>, size: u64) -> Option<Raise> {
        let asked = inode.state().kernel_size.asked();
        answer_to(inode, asked, size)
    }

    #[test]
    fn the_kernel_is_told_by_force_only_where_it_may_have_dropped_an_answer() {
        let inode = inode();
        assert!(answer(&inode, 10).is_none(), "nothing was ever taken back");
        let raise = inode.begin_invalidation().expect("the answer may not be used yet");
        assert_eq!((raise.size(), raise.node()), (10, NodeId(3)));
        raise.done();
        assert!(inode.begin_invalidation().is_none(), "it is sure of that");
        assert!(answer(&inode, 10).is_none() && answer(&inode, 9).is_none());
        // It may have believed that one: then it is not sure of 10 any more.
        let raise = answer(&inode, 10).expect("a larger one");
        let asked = inode.state().kernel_size.asked();
        assert!(matches!(inode.answer_size(asked, 11), SizeReply::Wait), "never two at once");
        drop(raise);
        assert!(answer(&inode, 10).is_some(), "that one did not come to its end");
        inode.state().kernel_size.replied(4);
        assert!(answer(&inode, 5).is_some(), "a lookup said less meanwhile");
    }

    #[test]
    fn a_raise_never_undoes_a_cut() {
        let inode = inode();
        assert!(inode.begin_invalidation().is_none());
        let asked = inode.state().kernel_size.asked();
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
