//! Connect, reconnect, disconnect, eviction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sheen_rpc::{Incoming, Replier, ReplyHead};
use sheen_store::{StoreError, Transaction};
use sheen_types::{Errno, Nid, ObdHandle, Uuid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::{MdsConnectReply, MgsConnectReply, OstConnectReply, Reply, Request};
use sheen_wire::ptlrpc::OpFlags;
use sheen_wire::text::Text;

use crate::export::{Export, ExportState};
use crate::last_rcvd::{ClientRecord, ReplyRecord, Slot, put_client, remove_client};
use crate::operations::Leaving;
use crate::target::Target;

/// How long after a failure it is tried again to forget a client.
const FORGETS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A connect request, whichever target kind it is for.
struct Connect {
    target: Uuid,
    client: Uuid,
    import: ObdHandle,
    offered: ObdConnectData,
    from: Nid,
    conn_cnt: u32,
    op_flags: OpFlags,
}

/// What a connect found.
enum Known {
    /// Nobody of this name.
    No,
    /// The same client over a new connection.
    Reconnects(Arc<Export>),
    /// Known from before the restart, or a server that has restarted itself.
    Returns(Arc<Export>),
}

impl Connect {
    fn of(incoming: &Incoming) -> Option<Self> {
        let (target, client, import, offered) = match &incoming.request {
            Request::MgsConnect(it) => (&it.tgtuuid, &it.cluuid, it.conn, &it.cdata),
            Request::MdsConnect(it) => (&it.tgtuuid, &it.cluuid, it.conn, &it.cdata),
            Request::OstConnect(it) => (&it.tgtuuid, &it.cluuid, it.conn, &it.cdata),
            _ => return None,
        };
        let uuid = |text: &Text| Uuid::new(text.to_text());
        Some(Self {
            target: uuid(target),
            client: uuid(client),
            import,
            offered: offered.clone(),
            from: incoming.from,
            conn_cnt: incoming.body.conn_cnt,
            op_flags: incoming.body.op_flags,
        })
    }

    fn offers(&self, flag: ConnectFlags) -> bool {
        self.offered.flags.contains(flag)
    }

    /// Whether it starts anew: it remembers no earlier connection.
    fn is_initial(&self) -> bool {
        self.op_flags.contains(OpFlags::CONNECT_INITIAL)
    }
}

/// The reply to a connect request.
fn connect_reply(request: &Request, agreed: ObdConnectData) -> Reply {
    let cdata = Some(agreed);
    match request {
        Request::MdsConnect(_) => MdsConnectReply { cdata, ..MdsConnectReply::default() }.into(),
        Request::OstConnect(_) => OstConnectReply { cdata, ..OstConnectReply::default() }.into(),
        _ => MgsConnectReply { cdata, ..MgsConnectReply::default() }.into(),
    }
}

impl Target {
    /// Answers a connect request; hands anything else back.
    pub(crate) async fn connect(self: &Arc<Self>, incoming: Incoming) -> Option<Incoming> {
        let Some(connect) = Connect::of(&incoming) else { return Some(incoming) };
        match self.connect_client(&connect).await {
            Ok((export, agreed, op_flags)) => {
                let head = ReplyHead {
                    handle: export.handle(),
                    last_committed: self.last_committed(),
                    op_flags,
                    ..ReplyHead::default()
                };
                let reply = connect_reply(&incoming.request, agreed);
                incoming.replier.send(head, Some(reply));
            }
            Err(errno) => {
                tracing::info!(target = self.name(), client = %connect.client,
                    nid = %connect.from, %errno, "connect refused");
                self.refuse(incoming.replier, errno);
            }
        }
        None
    }

    pub(crate) fn refuse(&self, replier: Replier, errno: Errno) {
        let head = ReplyHead { last_committed: self.last_committed(), ..errno.into() };
        replier.send(head, None);
    }

    async fn connect_client(
        self: &Arc<Self>,
        connect: &Connect,
    ) -> Result<(Arc<Export>, ObdConnectData, OpFlags), Errno> {
        if self.stopping.load(Ordering::Acquire) || connect.target != self.config.uuid {
            return Err(Errno::ENODEV);
        }
        if !connect.offers(ConnectFlags::FULL20) {
            return Err(Errno::EPROTO);
        }
        let known = self.known_client(connect).await?;
        let light = connect.offers(ConnectFlags::LIGHTWEIGHT);
        let recovering = self.recovery.is_running() && !light;
        if recovering && !matches!(known, Known::Reconnects(_)) {
            self.start_recovery_clock();
        }
        let (export, is_reconnect) = match known {
            Known::No if recovering && !connect.offers(ConnectFlags::MDS_MDS) => {
                return Err(Errno::EBUSY);
            }
            Known::No => (self.new_export(connect).await?, false),
            Known::Returns(export) => (export, false),
            Known::Reconnects(export) => (export, true),
        };
        let agreed = self.admit(connect, &export)?;
        let flag = |flag: OpFlags, on: bool| if on { flag } else { OpFlags::NONE };
        let op_flags = flag(OpFlags::CONNECT_RECONNECT, is_reconnect)
            | flag(OpFlags::CONNECT_REPLAYABLE, self.config.replayable)
            | flag(OpFlags::CONNECT_RECOVERING, self.recovery.is_running() && !light);
        Ok((export, agreed, op_flags))
    }

    /// Whether the client is known, and how.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] for a second client of the same name, or an old connect that comes late.
    async fn known_client(self: &Arc<Self>, connect: &Connect) -> Result<Known, Errno> {
        let Some(export) = self.exports.by_uuid(&connect.client) else { return Ok(Known::No) };
        let (is_connected, import, conn_cnt, nid) = {
            let state = export.lock();
            (state.reverse.is_some(), state.import, state.conn_cnt, state.nid)
        };
        if !is_connected {
            return Ok(Known::Returns(export));
        }
        if import == connect.import {
            if connect.conn_cnt <= conn_cnt {
                return Err(Errno::EALREADY);
            }
            return Ok(Known::Reconnects(export));
        }
        // Servers keep their UUID over restarts; one that starts anew has lost what it was.
        let is_server = connect.offers(ConnectFlags::MDS)
            || connect.offers(ConnectFlags::MDS_MDS)
            || connect.offers(ConnectFlags::LIGHTWEIGHT);
        if is_server && connect.is_initial() {
            tracing::warn!(target = self.name(), client = %connect.client, from = %connect.from,
                former = %nid, "new connection of a server, removing its former export");
            self.evict(&export).await;
            return Ok(Known::No);
        }
        tracing::warn!(target = self.name(), client = %connect.client, from = %connect.from,
            existing = %nid, "refused a second client with the UUID of one that is connected");
        Err(Errno::EALREADY)
    }

    async fn new_export(self: &Arc<Self>, connect: &Connect) -> Result<Arc<Export>, Errno> {
        let client = self.next_client.fetch_add(1, Ordering::Relaxed);
        let export =
            Export::new(connect.client.clone(), self.new_handle(), client, ExportState::Full);
        let export = Arc::new(export);
        if !self.exports.insert(&export) {
            return Err(Errno::EALREADY);
        }
        if self.config.replayable && !connect.offers(ConnectFlags::LIGHTWEIGHT) {
            let record =
                ClientRecord { uuid: connect.client.clone(), client, instance: self.instance };
            let mut transaction = Transaction::new();
            put_client(&mut transaction, &record);
            let stored = self.store.apply(transaction).map_err(|error| error.errno());
            // Durable before the client may rely on being awaited.
            let stored = match stored {
                Ok(_) => self.sync().await,
                Err(errno) => Err(errno),
            };
            if let Err(errno) = stored {
                self.exports.remove(&export);
                return Err(errno);
            }
        }
        Ok(export)
    }

    pub(crate) fn new_handle(&self) -> ObdHandle {
        loop {
            let handle = ObdHandle(self.world.random.number());
            if handle.0 != 0 && self.export(handle).is_none() {
                return handle;
            }
        }
    }

    /// Agrees with the client and takes over its connection.
    fn admit(
        self: &Arc<Self>,
        connect: &Connect,
        export: &Arc<Export>,
    ) -> Result<ObdConnectData, Errno> {
        let mut agreed = self.offer.lock().agree(&connect.offered, self.config.index);
        agreed.instance = self.instance;
        self.operations.connect(export, &connect.offered, &mut agreed)?;
        let reverse = self.reverse.reverse(connect.from, connect.import, export.uuid(), &agreed);
        let returns = {
            let mut state = export.lock();
            if state.state == ExportState::Gone {
                return Err(Errno::ENODEV);
            }
            state.nid = connect.from;
            state.conn_cnt = connect.conn_cnt;
            state.connect_data = agreed.clone();
            state.import = connect.import;
            state.reverse = Some(reverse);
            state.last_request = self.now();
            let returns = state.state == ExportState::Awaited;
            if returns {
                let replays = self.recovery.is_running();
                state.state = if replays { ExportState::Replaying } else { ExportState::Full };
            }
            returns
        };
        if returns {
            let has_first = connect.op_flags.contains(OpFlags::CONNECT_TRANSNO);
            let first = connect.offered.transno;
            let first = (has_first && first > self.last_committed()).then_some(first);
            self.recovery_step(self.recovery.connected(first));
        }
        Ok(agreed)
    }

    /// A client of before the restart: it may come back.
    pub(crate) fn await_client(&self, record: &ClientRecord, replies: Vec<(Slot, ReplyRecord)>) {
        let state = ExportState::Awaited;
        let export = Export::new(record.uuid.clone(), self.new_handle(), record.client, state);
        export.lock().replies = replies.into_iter().collect();
        self.exports.insert(&Arc::new(export));
    }

    /// Throws a client out: its locks, open handles and records are gone, and it finds out with its
    /// next request. Others get its locks when no restart of ours can bring it back with them.
    pub async fn evict(self: &Arc<Self>, export: &Arc<Export>) {
        let is_awaited = export.state() == ExportState::Awaited;
        self.drop_export(export, if is_awaited { Leaving::Stale } else { Leaving::Evicted }).await;
    }

    /// As [`Target::evict`], for callers that it may have to wait for.
    pub(crate) fn evict_soon(self: &Arc<Self>, export: &Arc<Export>) {
        let (target, export) = (Arc::clone(self), Arc::clone(export));
        let task = async move { target.evict(&export).await };
        self.world.tasks.spawn("target_evict", Box::pin(task));
    }

    /// Throws out all clients with this UUID or at this NID (`evict_client`). How many there were.
    pub async fn evict_client(self: &Arc<Self>, name: &str) -> usize {
        let nid = name.strip_prefix("nid:").unwrap_or(name).parse::<Nid>().ok();
        let uuid = name.strip_prefix("uuid:").unwrap_or(name);
        let mut count = 0;
        for export in self.exports() {
            if export.uuid().as_str() == uuid || Some(export.nid()) == nid {
                self.evict(&export).await;
                count += 1;
            }
        }
        count
    }

    /// Ends an export. Does nothing if it has ended.
    pub(crate) async fn drop_export(self: &Arc<Self>, export: &Arc<Export>, why: Leaving) {
        let (was, slots) = {
            let mut state = export.lock();
            let was = std::mem::replace(&mut state.state, ExportState::Gone);
            if was == ExportState::Gone {
                return;
            }
            state.reverse = None;
            (was, state.replies.keys().copied().collect::<Vec<Slot>>())
        };
        let is_evicted = matches!(why, Leaving::Evicted | Leaving::Stale);
        if is_evicted && !self.forget_for_good(export, &slots).await {
            return;
        }
        self.stats.evictions.fetch_add(u64::from(is_evicted), Ordering::Relaxed);
        self.exports.remove(export);
        self.drop_locks(export);
        self.operations.leave(self, export, why).await;
        if why == Leaving::Disconnected
            && let Err(error) = self.forget(export, &slots)
        {
            tracing::error!(target = self.name(), client = %export.uuid(), %error,
                "cannot forget a client");
        }
        self.recovery_step(self.recovery.lost(export.handle().0, was));
    }

    /// Takes the client out of those that are awaited after a restart. Until it is durable the export
    /// keeps its locks and its name: with a record that came back the client would tell locks again
    /// that others have had since, and be believed. False if the target stops first.
    async fn forget_for_good(&self, export: &Export, slots: &[Slot]) -> bool {
        let mut is_told = false;
        loop {
            let forgotten = match self.forget(export, slots) {
                Ok(false) => return true,
                Ok(true) => self.sync().await,
                Err(error) => Err(error.errno()),
            };
            if forgotten.is_ok() {
                return true;
            }
            if self.stopping.load(Ordering::Acquire) {
                return false;
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::error!(target = self.name(), client = %export.uuid(),
                    "cannot forget an evicted client: it keeps its locks until the disk works");
            }
            self.world.clock.sleep_until(self.now() + FORGETS_AGAIN_AFTER).await;
        }
    }

    /// The client is not awaited after a restart any more; whether it would have been.
    fn forget(&self, export: &Export, slots: &[Slot]) -> Result<bool, StoreError> {
        if !self.config.replayable {
            return Ok(false);
        }
        let (uuid, slots) = (export.uuid(), slots.iter().copied());
        let transaction = remove_client(&*self.store, uuid, export.client(), slots)?;
        if transaction.changes.is_empty() {
            return Ok(false);
        }
        self.store.apply(transaction).map(|_| true)
    }
}
