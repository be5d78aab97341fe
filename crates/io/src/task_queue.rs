//! A queue that one task at a time serves.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// What waits for a task that serves the queue until it is empty, and then ends. So what comes while the task is
/// busy goes together, and no task is there while nothing waits.
#[derive(Debug)]
pub struct TaskQueue<T>(Mutex<TaskQueueState<T>>);

#[derive(Debug)]
struct TaskQueueState<T> {
    waiting: VecDeque<T>,
    /// A task serves the queue, or is to be started by the caller of [`TaskQueue::push`].
    is_served: bool,
}

impl<T> Default for TaskQueue<T> {
    fn default() -> Self {
        Self(Mutex::new(TaskQueueState { waiting: VecDeque::new(), is_served: false }))
    }
}

impl<T> TaskQueue<T> {
    /// Queues `items`; whether the caller is to start the task.
    #[must_use]
    pub fn push(&self, items: impl IntoIterator<Item = T>) -> bool {
        let mut state = self.0.lock();
        state.waiting.extend(items);
        !state.waiting.is_empty() && !std::mem::replace(&mut state.is_served, true)
    }

    /// For the task: looks at what waits, of which there is some, and takes of it, with the queue locked. `None`
    /// if nothing waits: the task is to end.
    pub fn serve<R>(&self, take: impl FnOnce(&mut VecDeque<T>) -> R) -> Option<R> {
        let mut state = self.0.lock();
        if state.waiting.is_empty() {
            state.is_served = false;
            return None;
        }
        Some(take(&mut state.waiting))
    }

    /// Whether nothing waits and no task is busy with what waited.
    pub fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.waiting.is_empty() && !state.is_served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_serves_until_the_queue_is_empty() {
        let queue = TaskQueue::default();
        assert!(!queue.push([]), "nothing to serve");
        assert!(queue.is_idle());
        assert!(queue.push([1]), "the first starts the task");
        assert!(!queue.push([2, 3]), "which takes these, too");
        assert_eq!(queue.serve(|waiting| waiting.drain(..2).collect()), Some(vec![1, 2]));
        assert_eq!(queue.serve(|waiting| waiting.pop_front()), Some(Some(3)));
        assert!(!queue.is_idle(), "the task is still busy");
        assert!(!queue.push([4]));
        assert_eq!(queue.serve(|waiting| waiting.pop_front()), Some(Some(4)));
        assert_eq!(queue.serve(|waiting| waiting.pop_front()), None);
        assert!(queue.is_idle());
        assert!(queue.push([5]), "the task has ended");
    }
}
