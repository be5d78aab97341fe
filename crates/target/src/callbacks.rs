//! What the lock manager has sent: blocking, completion and glimpse callbacks to clients, and
//! waking the server's own tasks.
//!
//! Each callback is a task of its own, so that no client waits for another, and a client has so many at once
//! (`callback_turns`). A callback whose connection breaks is sent again after the client has reconnected, as
//! long as it still matters; a client that neither cancels nor shows progress meets the deadline that the
//! namespace keeps. So is one that the client refuses because it does not take us for its target (`ENOTCONN`): it may
//! learn of this node yet, and is evicted if it does not (Lustre evicts it at once). Any other error says that the
//! client has no such lock, or cannot make sense of the callback, and cancels the lock here, as in Lustre.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_ldlm::server::{Action, GlimpseTarget};
use sheen_ldlm::{LockDesc, LockFlags, LockKind, Owner, Policy};
use sheen_rpc::{Call, CallKind, Channel, RpcError};
use sheen_types::futures::all_pinned;
use sheen_types::{Errno, HashMap, LockHandle, Nid, ObdHandle, ResourceName, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::ldlm::{LdlmGlDesc, LdlmRequest};
use sheen_wire::messages::{LdlmBlCallback, LdlmCpCallback, LdlmGlCallback, Reply, Request};
use tokio::sync::oneshot;

use crate::EACH_LINE;
use crate::callback_turns::{Callback, CallbackKind};
use crate::export::Export;
use crate::in_progress::{Wait, while_waiting};
use crate::target::Target;

/// Pause before a callback is sent again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Makes the way back to a client: the host's.
pub trait ReverseChannels: Send + Sync {
    /// A channel that sends callbacks to `client` at `to`, whose import is called `import`. Asked
    /// on each connect; what was made for earlier ones is dropped.
    fn reverse(
        &self,
        to: Nid,
        import: ObdHandle,
        client: &Uuid,
        agreed: &ObdConnectData,
    ) -> Arc<dyn Channel>;

    /// Whether what comes from `nid` comes from this very node and over no wire.
    fn is_own_node(&self, nid: Nid) -> bool {
        nid.is_loopback()
    }
}

/// The server's own tasks that wait for a lock.
#[derive(Default)]
pub(crate) struct Waiters {
    waiting: Mutex<HashMap<LockHandle, Waiter>>,
}

enum Waiter {
    Task(oneshot::Sender<LockDesc>),
    /// Granted before its task began to wait.
    Granted(LockDesc),
}

impl Waiters {
    pub(crate) fn register(&self, handle: LockHandle) -> oneshot::Receiver<LockDesc> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        match waiting.remove(&handle) {
            // The receiver is in our hands, so this cannot fail.
            Some(Waiter::Granted(desc)) => drop(sender.send(desc)),
            _ => drop(waiting.insert(handle, Waiter::Task(sender))),
        }
        receiver
    }

    pub(crate) fn forget(&self, handle: LockHandle) {
        self.waiting.lock().remove(&handle);
    }

    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }

    fn wake(&self, handle: LockHandle, desc: LockDesc) {
        let mut waiting = self.waiting.lock();
        match waiting.remove(&handle) {
            // The waiter has given up and its guard cancels the lock.
            Some(Waiter::Task(sender)) => drop(sender.send(desc)),
            _ => drop(waiting.insert(handle, Waiter::Granted(desc))),
        }
    }
}

impl Target {
    /// Performs what the namespace has decided. Never waits.
    pub(crate) fn perform(&self, actions: Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        for action in actions {
            match action {
                Action::LocalGranted { handle, desc } if self.locks.lock(handle).is_some() => {
                    self.lock_waiters.wake(handle, desc);
                }
                // The waiter has given up meanwhile.
                Action::LocalGranted { .. } => {}
                Action::Blocking { handle, export, remote_handle, wanted, flags } => {
                    let (kind, desc) = (CallbackKind::Blocking, wanted);
                    self.queue_callback(
                        export,
                        Callback { kind, lock: handle, remote_handle, desc, flags },
                    );
                }
                Action::Completion { handle, export, remote_handle, desc, flags } => {
                    let kind = CallbackKind::Completion;
                    self.queue_callback(
                        export,
                        Callback { kind, lock: handle, remote_handle, desc, flags },
                    );
                }
                Action::Evict { export, handle } => {
                    self.evict_for_lock(ObdHandle(export), handle);
                }
            }
        }
        self.lock_timer_changed();
    }

    /// Asks all who may know a larger size or newer time of an object, at once. The answers are
    /// lock value blocks, as the client of each lock sees it; a client that has no lock any more,
    /// or that was evicted because it did not answer, gives an error, which is no reason to fail.
    pub async fn glimpse(
        self: &Arc<Self>,
        resource: ResourceName,
    ) -> Vec<(GlimpseTarget, Result<Bytes, Errno>)> {
        let (mut holders, mut asked) = (Vec::new(), Vec::new());
        for holder in self.locks.glimpse_targets(resource) {
            let request = LdlmGlCallback {
                dlm_req: callback_request(
                    holder.handle,
                    holder.remote_handle,
                    &holder.desc,
                    LockFlags::NONE,
                ),
                dlm_gl_desc: None::<LdlmGlDesc>,
                ..LdlmGlCallback::default()
            };
            let (target, export, lock) = (self.arc(), ObdHandle(holder.export), holder.handle);
            let answer: BoxFuture<'static, _> = Box::pin(async move {
                let _turn = target.callback_turn(&target.export(export)?).await?;
                target.send_with_retry(export, lock, request.into()).await
            });
            holders.push(holder);
            asked.push(answer);
        }
        let answers = while_waiting(Wait::Lock, all_pinned(asked)).await;
        let answers = holders.into_iter().zip(answers).map(|(holder, answer)| {
            let value = match answer {
                Some(Ok(Reply::LdlmGlCallback(reply))) => Ok(reply.dlm_lvb),
                Some(Ok(_)) => Err(Errno::EPROTO),
                Some(Err(errno)) => Err(errno),
                None => Err(Errno::ESTALE),
            };
            (holder, value)
        });
        answers.collect()
    }

    /// Cancels all locks of an export.
    pub(crate) fn drop_locks(&self, export: &Export) {
        let mut actions = Vec::new();
        self.locks.cancel_owner(self.now(), export.handle().0, &mut actions);
        self.perform(actions);
    }

    /// A lock has become that of a client which is being evicted. If the client's other locks have
    /// gone already, so does this one; if not, it goes with them.
    pub(crate) fn drop_late_lock(&self, export: &Export) {
        if self.export(export.handle()).is_none() {
            self.drop_locks(export);
        }
    }

    fn queue_callback(&self, export: u64, callback: Callback) {
        if let Some(export) = self.export(ObdHandle(export)) {
            self.send_in_turn(&export, callback);
        }
    }

    /// Sends a blocking or completion callback. What the client does then is up to the namespace's deadline.
    pub(crate) async fn send_lock_callback(
        self: &Arc<Self>,
        export: ObdHandle,
        callback: Callback,
    ) {
        let Callback { kind, lock, remote_handle, desc, flags } = callback;
        let request = match kind {
            CallbackKind::Blocking => blocking_call(lock, remote_handle, &desc, flags),
            CallbackKind::Completion => {
                let dlm_req = callback_request(lock, remote_handle, &desc, flags);
                let dlm_lvb = self.value_of(&desc).await;
                LdlmCpCallback { dlm_req, dlm_lvb, ..LdlmCpCallback::default() }.into()
            }
        };
        let Some(Err(errno)) = self.send_with_retry(export, lock, request).await else { return };
        if let Some(export) = self.export(export) {
            self.lock_is_unknown_to_client(&export, lock, errno);
        }
    }

    /// What a lock that was granted says of the object.
    async fn value_of(self: &Arc<Self>, desc: &LockDesc) -> Bytes {
        // The client asks for a layout itself: it may be larger than its buffer.
        if desc.granted.is_none() || has_layout(&desc.policy) {
            return Bytes::new();
        }
        let value = self.operations.lock_value(self, desc).await;
        // The lock is granted all the same: its holder asks for the value.
        value.unwrap_or_else(|errno| {
            tracing::warn!(resource = %desc.resource, %errno, "no value for a lock");
            Bytes::new()
        })
    }

    /// Sends a callback until the client has answered. `None` if the lock or the client is gone, or
    /// if the client was evicted because it did not answer in the time that it has to cancel a lock.
    async fn send_with_retry(
        self: &Arc<Self>,
        export: ObdHandle,
        lock: LockHandle,
        request: Request,
    ) -> Option<Result<Reply, Errno>> {
        let give_up = self.now() + self.timeouts().lock_callback;
        loop {
            let export = self.export(export)?;
            if self.locks.lock(lock).is_none() && !is_flock_completion(&request) {
                return None;
            }
            if let Some(channel) = export.channel() {
                self.stats.callbacks.fetch_add(1, Ordering::Relaxed);
                let said = channel.call(callback(request.clone())).await;
                match said {
                    Ok(answer) => return Some(Ok(answer.reply)),
                    // The client does not take us for the target, and may go on with what it keeps.
                    Err(RpcError::Errno(errno)) if errno != Errno::ENOTCONN => {
                        return Some(Err(errno));
                    }
                    Err(RpcError::Shutdown | RpcError::Evicted) => return None,
                    Err(error) => {
                        tracing::debug!(target = self.name(), client = %export.uuid(), %error,
                            "callback not delivered");
                    }
                }
            }
            if self.now() >= give_up {
                // The callbacks for its other locks may have come to the same end at once.
                if export.begin_logged_eviction() {
                    tracing::warn!(target: EACH_LINE, target = self.name(), client = %export.uuid(), nid = %export.nid(),
                        "client does not answer callbacks, evicting it");
                }
                self.evict(&export).await;
                return None;
            }
            self.world.clock.sleep_until(self.now() + RETRY_PAUSE).await;
        }
    }

    /// The client refused a callback. As a rule it has cancelled the lock already, and its cancel is on the way or got
    /// lost; a client that keeps anything under a lock that it says it does not know is at fault.
    fn lock_is_unknown_to_client(&self, export: &Export, lock: LockHandle, errno: Errno) {
        tracing::debug!(target = self.name(), client = %export.uuid(), %errno,
            "client does not know the lock");
        let mut actions = Vec::new();
        let owner = Owner::Export(export.handle().0);
        self.locks.cancel(self.now(), owner, &[lock], &mut actions);
        self.perform(actions);
    }

    fn evict_for_lock(&self, export: ObdHandle, lock: LockHandle) {
        let is_first = |export: &Arc<Export>| export.begin_logged_eviction();
        let Some(export) = self.export(export).filter(is_first) else { return };
        let held = self.locks.lock(lock);
        tracing::warn!(target: EACH_LINE, target = self.name(), client = %export.uuid(), nid = %export.nid(),
            resource = ?held.map(|lock| lock.desc.resource.to_string()),
            "lock callback timer expired, evicting client");
        self.arc().evict_soon(&export);
    }
}

fn callback(request: impl Into<Request>) -> Call {
    Call { kind: CallKind::NoDelay, ..Call::new(request) }
}

fn blocking_call(
    handle: LockHandle,
    remote_handle: LockHandle,
    wanted: &LockDesc,
    flags: LockFlags,
) -> Request {
    LdlmBlCallback {
        dlm_req: callback_request(handle, remote_handle, &conflicting(wanted), flags),
        ..LdlmBlCallback::default()
    }
    .into()
}

/// A lock that another one waits for, as that one's client is to see it. What a request names as bits that it takes if
/// they are free, a callback names as those to drop: a client of Lustre whose lock has none of them keeps it whole.
fn conflicting(wanted: &LockDesc) -> LockDesc {
    let policy = match wanted.policy {
        Policy::InodeBits { bits, gid, .. } => Policy::InodeBits { bits, try_bits: bits, gid },
        policy => policy,
    };
    LockDesc { policy, ..*wanted }
}

/// The client's handle comes first, ours second.
fn callback_request(
    handle: LockHandle,
    remote_handle: LockHandle,
    desc: &LockDesc,
    flags: LockFlags,
) -> LdlmRequest {
    LdlmRequest {
        flags: flags.to_wire(),
        count: 0,
        desc: desc.to_wire(),
        handles: vec![remote_handle, handle],
    }
}

/// A waiting flock that is refused has no lock any more, nor has one that was granted and became
/// part of another; their clients must be informed.
fn is_flock_completion(request: &Request) -> bool {
    match request {
        Request::LdlmCpCallback(callback) => {
            callback.dlm_req.desc.resource.kind.0 == LockKind::Flock as u32
        }
        _ => false,
    }
}

fn has_layout(policy: &Policy) -> bool {
    policy.inode_bits().intersects(sheen_types::InodeBits::LAYOUT)
}
