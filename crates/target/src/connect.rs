//! Connect and reconnect. How a client goes is in `evict`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sheen_rpc::{IncomingRequest, Replier, ReplyHead};
use sheen_store::Transaction;
use sheen_types::{Errno, Instant, Nid, ObdHandle, TargetKind, TargetName, Transno, Uuid, Xid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::{MdsConnectReply, MgsConnectReply, OstConnectReply, Reply, Request};
use sheen_wire::ptlrpc::OpFlags;
use sheen_wire::text::Text;

use crate::budget::Account;
use crate::export::{Export, ExportInner};
use crate::export_state::ExportState;
use crate::last_rcvd::{ClientRecord, ReplyRecord, Slot, put_client};
use crate::limits::Limit;
use crate::operations::{Connecting, ExportEnd};
use crate::recovery::EndDecided;
use crate::replies::Replies;
use crate::servers::{claims, owner};
use crate::store_errno::store_errno;
use crate::target::Target;

/// What an empty target claims to be durable: a number below that of any transaction. A claim of 0 is none to
/// clients, and one that knew the target before it was emptied would not notice.
const NOTHING: Transno = Transno(1);
/// How often a connect looks whether an earlier one of its client is done, or bytes are that came before it.
pub(crate) const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A connect request, whichever target kind it is for.
struct Connect {
    target: Uuid,
    client: Uuid,
    import: ObdHandle,
    offered: ObdConnectData,
    from: Nid,
    is_proven: bool,
    /// Whose budget it uses up.
    account: Nid,
    conn_cnt: u32,
    /// When it arrived; what it waits for here may let later ones overtake it.
    arrived: Instant,
    op_flags: OpFlags,
    /// A server's, and known to be: [`crate::servers`].
    is_server: bool,
    /// The role has refused it, and has said why.
    is_explained: bool,
    /// What a target of this name has reported to the client as durable. Clients of Lustre do not
    /// send it.
    known_committed: Transno,
}

/// What a connect found.
enum FoundExport {
    /// No export has this client's name.
    No,
    /// The same client over a new connection.
    Reconnects(Arc<Export>),
    /// Known from before the restart, or a server that has restarted itself.
    Returns(Arc<Export>),
}

/// What a connect that succeeds is answered with.
struct Accepted {
    export: Arc<Export>,
    agreed: ObdConnectData,
    op_flags: OpFlags,
}

/// The connect that makes an export goes on.
struct ConnectingGuard(Arc<Export>);

impl Drop for ConnectingGuard {
    fn drop(&mut self) {
        self.0.lock().is_connecting = false;
    }
}

impl Connect {
    fn of(incoming: &IncomingRequest) -> Option<Self> {
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
            is_proven: incoming.is_proven,
            account: incoming.account,
            conn_cnt: incoming.body.conn_cnt,
            arrived: incoming.arrived,
            op_flags: incoming.body.op_flags,
            is_server: false,
            is_explained: false,
            known_committed: incoming.body.last_committed,
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

/// The highest tag of a client: a change has one, and so has a close beside as many changes as were agreed
/// on. What was agreed on before holds on for what is sent again.
fn tag_max(agreed: &ObdConnectData) -> u16 {
    match agreed.maxmodrpcs {
        0 => sheen_rpc::limits::MODIFYING_IN_FLIGHT + 1,
        count => count.saturating_add(1),
    }
}

impl Target {
    /// Answers a connect request; hands anything else back.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        incoming: IncomingRequest,
    ) -> Option<IncomingRequest> {
        let Some(mut connect) = Connect::of(&incoming) else { return Some(incoming) };
        self.record_client(&connect.client);
        match self.connect_client(&mut connect, &incoming.request).await {
            Ok(Accepted { export, agreed, op_flags }) => {
                let head = ReplyHead {
                    handle: export.handle(),
                    last_committed: self.last_committed().max(NOTHING),
                    op_flags,
                    ..ReplyHead::default()
                };
                let reply = connect_reply(&incoming.request, agreed);
                incoming.replier.send(head, Some(reply));
            }
            Err(errno) => {
                if !connect.is_explained {
                    tracing::info!(target = self.name(), client = %connect.client,
                        nid = %connect.from, %errno, "connect refused");
                }
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
        connect: &mut Connect,
        request: &Request,
    ) -> Result<Accepted, Errno> {
        if self.stopping.load(Ordering::Acquire) || connect.target != self.config.uuid {
            return Err(Errno::ENODEV);
        }
        if !self.is_of_kind(request) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !connect.offers(ConnectFlags::FULL20) {
            return Err(Errno::EPROTO);
        }
        let Connect { offered, client, from, is_proven, .. } = &*connect;
        let from = (*from, *is_proven);
        connect.is_server = self.comes_from_server(request, offered, client, from).await?;
        self.check_with_role(connect).await?;
        let connect = &*connect;
        let known = self.known_client(connect).await?;
        let light = connect.offers(ConnectFlags::LIGHTWEIGHT);
        let recovering = self.recovery.is_running() && !light;
        if recovering && !matches!(known, FoundExport::Reconnects(_)) {
            self.start_recovery_clock();
        }
        let mut connecting = None;
        let (export, is_new, is_reconnect) = match known {
            FoundExport::No if recovering && !connect.offers(ConnectFlags::MDS_MDS) => {
                return Err(Errno::EBUSY);
            }
            FoundExport::No => {
                let export = self.new_export(connect, &mut connecting).await?;
                (export, true, false)
            }
            FoundExport::Returns(export) => (export, false, false),
            FoundExport::Reconnects(export) => (export, false, true),
        };
        let agreed = match self.accept_connection(connect, &export) {
            Err(errno) if is_new => {
                // Kept, it would be awaited after the next restart.
                self.drop_export(&export, ExportEnd::Disconnected).await;
                return Err(errno);
            }
            agreed => agreed?,
        };
        // The client will send again what it sent before, and believe the answers.
        self.wait_until_bytes_applied(&export).await;
        let flag = |flag: OpFlags, on: bool| if on { flag } else { OpFlags::NONE };
        if is_new {
            tracing::info!(target = self.name(), client = %connect.client, nid = %connect.from, "client connected");
        } else {
            tracing::info!(target = self.name(), client = %connect.client, nid = %connect.from, "client reconnected");
        }
        let op_flags = flag(OpFlags::CONNECT_RECONNECT, is_reconnect)
            | flag(OpFlags::CONNECT_REPLAYABLE, self.config.replayable)
            | flag(OpFlags::CONNECT_RECOVERING, self.recovery.is_running() && !light);
        Ok(Accepted { export, agreed, op_flags })
    }

    /// Has the role decide whether the client may connect.
    async fn check_with_role(self: &Arc<Self>, connect: &mut Connect) -> Result<(), Errno> {
        let Connect { client, from, offered, is_server, .. } = &*connect;
        let owner = is_server.then(|| owner(client)).flatten();
        let (nid, is_server) = (*from, *is_server);
        let connecting = Connecting { client, nid, offered, is_server, owner };
        let answer = self.operations.may_connect(self, &connecting).await;
        // The one refusal that a role has reported itself.
        connect.is_explained = answer == Err(Errno::EXDEV);
        answer
    }

    /// The export of a client, once no connect makes it any more; and whether one did until now.
    async fn wait_for_export(&self, client: &Uuid) -> Option<(Arc<Export>, bool)> {
        let mut is_fresh = false;
        loop {
            let export = self.exports.by_uuid(client)?;
            if !export.lock().is_connecting {
                return Some((export, is_fresh));
            }
            is_fresh = true;
            let clock = &self.world.clock;
            clock.sleep_until(clock.now() + LOOKS_AGAIN_AFTER).await;
        }
    }

    /// Whether the client is known, and how.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] for a second client of the same name, or an old connect that comes late.
    async fn known_client(self: &Arc<Self>, connect: &Connect) -> Result<FoundExport, Errno> {
        let made = self.wait_for_export(&connect.client).await;
        let Some((export, is_fresh)) = made else { return Ok(FoundExport::No) };
        let (is_connected, import, conn_cnt, nid, is_overtaken) = {
            let state = export.lock();
            let is_overtaken = connect.arrived < state.connect_arrived;
            (state.reverse.is_some(), state.import, state.conn_cnt, state.nid, is_overtaken)
        };
        if !is_connected {
            return Ok(FoundExport::Returns(export));
        }
        if import == connect.import {
            if connect.conn_cnt <= conn_cnt {
                return Err(Errno::EALREADY);
            }
            // Its answer that it is connected has not been sent.
            let known = if is_fresh { FoundExport::Returns } else { FoundExport::Reconnects };
            return Ok(known(export));
        }
        // Of a start that has ended since: in the place of the one that lives it would stay there.
        if connect.is_server && is_overtaken {
            tracing::info!(target = self.name(), client = %connect.client, from = %connect.from,
                "a later start of the server has connected since: its earlier connect refused");
            return Err(Errno::EALREADY);
        }
        // Servers keep their UUID over restarts; one that starts anew has lost what it was.
        if connect.is_server && connect.is_initial() {
            tracing::info!(target = self.name(), client = %connect.client, from = %connect.from,
                former = %nid, "new connection of a server, removing its former export");
            self.evict(&export).await;
            return Ok(FoundExport::No);
        }
        tracing::warn!(target = self.name(), client = %connect.client, from = %connect.from,
            existing = %nid, "refused a second client with the UUID of one that is connected");
        Err(Errno::EALREADY)
    }

    /// An export that no other client connects over while `connecting` lasts.
    async fn new_export(
        self: &Arc<Self>,
        connect: &Connect,
        connecting: &mut Option<ConnectingGuard>,
    ) -> Result<Arc<Export>, Errno> {
        let number = self.new_number();
        let export =
            Export::new(connect.client.clone(), self.new_handle(), number, ExportState::Full);
        let export = Arc::new(export);
        let account = self.charge_export(connect, &export, self.exports_most(connect.from))?;
        {
            let mut state = export.lock();
            (state.nid, state.is_connecting) = (connect.from, true);
            state.last_request = self.now();
            state.account = Some(account);
        }
        *connecting = Some(ConnectingGuard(Arc::clone(&export)));
        if !self.exports.insert(&export) {
            self.uncharge_export(&export);
            return Err(Errno::EALREADY);
        }
        if self.config.replayable && !connect.offers(ConnectFlags::LIGHTWEIGHT) {
            let record =
                ClientRecord { uuid: connect.client.clone(), number, instance: self.instance };
            let mut transaction = Transaction::new();
            put_client(&mut transaction, &record);
            let stored = self.store.apply(transaction).map_err(store_errno);
            // Durable before the client may rely on being awaited.
            let stored = match stored {
                Ok(_) => self.sync().await,
                Err(errno) => Err(errno),
            };
            if let Err(errno) = stored {
                self.exports.remove(&export);
                self.uncharge_export(&export);
                return Err(errno);
            }
        }
        Ok(export)
    }

    /// Counts an export against the account of the node that its client connects from, as a new one or from
    /// elsewhere, unless there are `most`.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] if the client there has as many as it may.
    fn charge_export(
        &self,
        connect: &Connect,
        export: &Arc<Export>,
        most: usize,
    ) -> Result<Arc<Account>, Errno> {
        let account = self.exports.enter(export, connect.from, connect.account, most);
        account.ok_or_else(|| {
            self.budget.refuse(Limit::Exports);
            Errno::EBUSY
        })
    }

    /// A client comes from another node than before, with all that it holds: nothing of it is taken away, but where
    /// that is more than one node may have, it gets no more. One that comes back after a restart of the target had its
    /// place before, whatever the limit is now.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] if there is no room for the export: it stays where it was, and the client tries again.
    fn move_export(
        &self,
        connect: &Connect,
        export: &Arc<Export>,
        state: &mut ExportInner,
    ) -> Result<(), Errno> {
        let stays = state.account.as_ref().is_some_and(|account| account.nid == connect.account);
        let most = match state.state {
            _ if stays => usize::MAX,
            ExportState::Awaited => usize::MAX,
            _ => self.exports_most(connect.from),
        };
        let account = self.charge_export(connect, export, most)?;
        account.recount();
        match state.account.replace(account) {
            Some(_) if stays => self.exports.leave_node(state.nid),
            Some(former) => self.exports.leave(export, state.nid, &former),
            None => {}
        }
        Ok(())
    }

    /// Takes an export out of the account of its node.
    pub(crate) fn uncharge_export(&self, export: &Export) {
        let (nid, account) = {
            let mut state = export.lock();
            (state.nid, state.account.take())
        };
        if let Some(account) = account {
            self.exports.leave(export, nid, &account);
        }
    }

    /// A number that no client has. They begin anew when all were used: a client that stays keeps its own.
    fn new_number(&self) -> u32 {
        loop {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            if number != Export::LOCAL && !self.exports.has_number(number) {
                return number;
            }
        }
    }

    pub(crate) fn new_handle(&self) -> ObdHandle {
        loop {
            let handle = ObdHandle(self.world.random.number());
            if handle.0 != 0 && self.export(handle).is_none() {
                return handle;
            }
        }
    }

    /// Agrees with the client on features; its export belongs to this connection from now on.
    fn accept_connection(
        self: &Arc<Self>,
        connect: &Connect,
        export: &Arc<Export>,
    ) -> Result<ObdConnectData, Errno> {
        let mut agreed = self.offer.lock().negotiate(&connect.offered, self.config.index);
        agreed.instance = self.instance;
        self.operations.connect(export, &connect.offered, &mut agreed)?;
        let reverse = self.reverse.reverse(connect.from, connect.import, export.uuid(), &agreed);
        let ended = {
            let mut state = export.lock();
            if state.state == ExportState::Gone {
                return Err(Errno::ENODEV);
            }
            let account = state.account.as_ref().map(|account| account.nid);
            if state.nid != connect.from || account != Some(connect.account) {
                self.move_export(connect, export, &mut state)?;
            }
            let ended = match state.state {
                // Before the export's state is free: an eviction that comes at once counts it out again.
                ExportState::Awaited => Some(self.rejoin_recovery(connect)?),
                _ => None,
            };
            (state.nid, state.is_proven) = (connect.from, connect.is_proven);
            state.is_server = connect.is_server;
            state.conn_cnt = connect.conn_cnt;
            state.connect_arrived = connect.arrived;
            export.negotiate(&mut state, &agreed);
            state.tag_max = state.tag_max.max(tag_max(&agreed));
            state.import = connect.import;
            state.reverse = Some(reverse);
            state.last_request = self.now();
            // What it has seen answered it says again with its first request.
            state.last_xid = Xid(0);
            if ended.is_some() {
                state.reconnect_delay = self.recovery.elapsed(self.now());
                state.state = ExportState::Replaying;
            }
            ended
        };
        self.check_history(connect, export);
        if let Some(ended) = ended {
            self.end_recovery_if(ended);
        }
        Ok(agreed)
    }

    /// Lets a client of before the restart take part in recovery.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if its time is over and its eviction under way: it tries again, and begins anew. Let in, it
    /// would replay what other clients no longer wait for, or miss that its locks are gone.
    fn rejoin_recovery(&self, connect: &Connect) -> Result<EndDecided, Errno> {
        self.recovery.client_connected(self.first_replay(connect)).ok_or(Errno::ENODEV)
    }

    /// The first transaction that a client claims it will replay, where that can be.
    fn first_replay(&self, connect: &Connect) -> Option<Transno> {
        let first = connect.offered.transno;
        let is_named = connect.op_flags.contains(OpFlags::CONNECT_TRANSNO);
        let may_be = first > self.last_committed() && self.history.may_have_assigned(first);
        (is_named && may_be).then_some(first)
    }

    /// Warns if more was reported to the client as durable than there is: this store is cut, or older than
    /// the one that reported it. What lies between is in no replay, for the client has dropped it. A number
    /// that no incarnation can have given was reported by no target.
    fn check_history(&self, connect: &Connect, export: &Export) {
        let committed = self.last_committed();
        if connect.known_committed <= committed.max(NOTHING)
            || !self.history.may_have_reported(connect.known_committed)
        {
            return;
        }
        // One that comes again and again counts once.
        if !std::mem::replace(&mut export.lock().knows_more, true) {
            self.recovery.count_went_back();
        }
        if self.is_new() {
            tracing::warn!(target = self.name(), client = %connect.client, nid = %connect.from,
                "this target is new and has the place of another one: what that had is lost");
            return;
        }
        tracing::error!(target = self.name(), client = %connect.client, nid = %connect.from,
            "{} went back in time: client {} was assured that transaction {} was durable, the store \
             has {committed}. What lies between is lost: check the store, and where it was restored from",
            self.name(), connect.client, connect.known_committed);
    }

    /// Makes the export of a client of before the restart: it may come back.
    pub(crate) fn restore_export(&self, record: &ClientRecord, replies: Vec<(Slot, ReplyRecord)>) {
        let state = ExportState::Awaited;
        let export = Export::new(record.uuid.clone(), self.new_handle(), record.number, state);
        let replies = Replies::load(replies);
        {
            let mut state = export.lock();
            (state.tag_max, state.replies) = (replies.tag_max(), replies);
        }
        self.exports.insert(&Arc::new(export));
    }
}

impl Target {
    /// Whether a connect is of the kind of this target. One of another kind makes other claims, or none: as an MGS's, that of an
    /// MDT or OST would come past what is looked at here.
    fn is_of_kind(&self, request: &Request) -> bool {
        let kind = self.name().parse().ok().map(|name: TargetName| name.kind);
        match request {
            Request::MgsConnect(_) => kind.is_none(),
            Request::MdsConnect(_) => kind == Some(TargetKind::Mdt),
            Request::OstConnect(_) => kind == Some(TargetKind::Ost),
            _ => false,
        }
    }

    /// Whether a connect comes from a server.
    ///
    /// # Errors
    /// [`Errno::EPERM`] if it claims so and does not, [`Errno::EAGAIN`] if that cannot be found out
    /// now.
    async fn comes_from_server(
        &self,
        request: &Request,
        offered: &ObdConnectData,
        client: &Uuid,
        (from, is_proven): (Nid, bool),
    ) -> Result<bool, Errno> {
        if !claims(request, offered, client) {
            return Ok(false);
        }
        if self.is_own_node(from) {
            return Ok(true);
        }
        if !is_proven {
            self.refusals.warn(self.world.clock.now(), |more| {
                tracing::warn!(target = self.name(), %client, nid = %from, more,
                    "it claims to be a server, and comes from another address than its NID's: connect \
                     refused (`sheen server --believe-nids` takes its word)");
            });
            return Err(Errno::EPERM);
        }
        let nodes = self.server_nodes.lock().clone().ok_or(Errno::EAGAIN)?;
        match nodes.is_server(from, owner(client)).await? {
            true => Ok(true),
            false => {
                self.refusals.warn(self.world.clock.now(), |more| {
                    tracing::warn!(target = self.name(), %client, nid = %from, more,
                        "it claims to be a server, and no target, or not the one it names, is registered at \
                         its NID: connect refused");
                });
                Err(Errno::EPERM)
            }
        }
    }
}
