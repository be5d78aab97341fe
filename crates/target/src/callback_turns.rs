//! How many callbacks to one client are under way at once.
//!
//! A callback is a task, a message and a place in the channel until the client has answered it, and a client that
//! answers none may have hundreds of thousands of locks that other clients want. So each export has some under way,
//! its share of what its client may have ([`Limit::Callbacks`]), and at least [`limits::CALLBACKS_OF_EXPORT_MIN`]:
//! no export waits for another one's client process to answer. The rest waits in the order in which it was to be
//! sent, a few machine words for each, and at most one blocking callback for each lock.
//!
//! What always holds: while a callback waits, another one is under way; the one that ends hands its
//! turn on.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_ldlm::{LockDesc, LockFlags};
use sheen_types::LockHandle;
use tokio::sync::oneshot;

use crate::export::Export;
use crate::limits;
use crate::limits::Limit;
use crate::target::Target;

/// What is to be said of a lock.
#[derive(Debug)]
pub(crate) struct Callback {
    pub(crate) kind: CallbackKind,
    pub(crate) lock: LockHandle,
    pub(crate) remote_handle: LockHandle,
    /// In a blocking callback: the lock that cannot be granted. In a completion: the lock itself.
    pub(crate) desc: LockDesc,
    pub(crate) flags: LockFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallbackKind {
    Blocking,
    Completion,
}

/// What waits for its turn.
enum Waiting {
    Callback(Callback),
    /// A task that sends its callback itself.
    Task(oneshot::Sender<CallbackTurn>),
}

/// The callbacks of one export.
#[derive(Default)]
pub(crate) struct CallbackTurns {
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    under_way: usize,
    waiting: VecDeque<Waiting>,
}

/// One callback is under way; dropped when it is not any more.
pub(crate) struct CallbackTurn {
    target: Arc<Target>,
    export: Arc<Export>,
}

impl CallbackTurns {
    /// The client is gone: nothing more is said to it.
    pub(crate) fn clear(&self) {
        let waiting = std::mem::take(&mut self.turns.lock().waiting);
        drop(waiting);
    }

    /// Takes a turn, or waits for one.
    fn begin(&self, most: usize, waiting: Waiting) -> Option<Waiting> {
        let mut turns = self.turns.lock();
        if turns.under_way >= most {
            turns.waiting.push_back(waiting);
            return None;
        }
        turns.under_way += 1;
        Some(waiting)
    }

    /// One has ended; the one that goes on in its turn.
    fn end(&self, most: usize) -> Option<Waiting> {
        let mut turns = self.turns.lock();
        // The limit was lowered, or the client has more exports: those that are under way go on.
        while turns.under_way <= most {
            match turns.waiting.pop_front() {
                Some(Waiting::Task(task)) if task.is_closed() => {}
                Some(next) => return Some(next),
                None => break,
            }
        }
        turns.under_way -= 1;
        None
    }
}

impl Drop for CallbackTurn {
    fn drop(&mut self) {
        let most = self.target.callbacks_most(&self.export);
        if let Some(next) = self.export.callbacks().end(most) {
            self.target.start_turn(&self.export, next);
        }
    }
}

impl Target {
    /// Sends a callback about a lock to its client, at once or as soon as it has its turn.
    pub(crate) fn send_in_turn(&self, export: &Arc<Export>, callback: Callback) {
        self.begin_turn(export, Waiting::Callback(callback));
    }

    /// Waits for a turn; `None` if the client is gone.
    pub(crate) async fn callback_turn(&self, export: &Arc<Export>) -> Option<CallbackTurn> {
        let (sender, receiver) = oneshot::channel();
        self.begin_turn(export, Waiting::Task(sender));
        receiver.await.ok()
    }

    fn begin_turn(&self, export: &Arc<Export>, waiting: Waiting) {
        match export.callbacks().begin(self.callbacks_most(export), waiting) {
            Some(waiting) => self.start_turn(export, waiting),
            None => self.budget().refuse(Limit::Callbacks),
        }
    }

    fn start_turn(&self, export: &Arc<Export>, waiting: Waiting) {
        let turn = CallbackTurn { target: self.arc(), export: Arc::clone(export) };
        match waiting {
            // The waiter may have given up: the turn is dropped, and the next one goes on.
            Waiting::Task(task) => drop(task.send(turn)),
            Waiting::Callback(callback) => {
                let name = match callback.kind {
                    CallbackKind::Blocking => "ldlm_bl_ast",
                    CallbackKind::Completion => "ldlm_cp_ast",
                };
                let task: BoxFuture<'static, ()> = Box::pin(async move {
                    turn.target.send_lock_callback(turn.export.handle(), callback).await;
                });
                self.world().tasks.spawn(name, task);
            }
        }
    }

    /// How many callbacks of an export may be under way: those of its client, shared among its exports.
    fn callbacks_most(&self, export: &Export) -> usize {
        let Some(exports) = self.exports_of_client(export) else { return usize::MAX };
        let share = self.budget().of(Limit::Callbacks) / exports.max(1);
        share.max(limits::CALLBACKS_OF_EXPORT_MIN)
    }
}
