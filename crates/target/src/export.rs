//! Exports: what a target knows of each client.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_ldlm::server::{Spared, SparedLocks};
use sheen_rpc::Channel;
use sheen_types::{
    CounterLine, Counters, HashMap, InodeBits, Instant, Nid, ObdHandle, Samples, TargetName,
    Transno, Uuid, Xid,
};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};

use crate::budget::Account;
use crate::callback_turns::CallbackTurns;
use crate::export_state::ExportState;
use crate::in_progress::RequestInProgress;
use crate::replies::Replies;
use crate::servers::owner;

/// One client of one target, from its first connect until it leaves or is evicted. Reconnects and
/// restarts of the target in between keep it.
pub struct Export {
    uuid: Uuid,
    handle: ObdHandle,
    number: u32,
    state: Mutex<ExportInner>,
    role: RwLock<Vec<Arc<dyn Any + Send + Sync>>>,
    counters: OnceLock<Counters>,
    callbacks: CallbackTurns,
    /// Of `connect_data`, what each enqueue looks at: without the mutex.
    known_bits: AtomicU64,
}

pub(crate) struct ExportInner {
    pub(crate) state: ExportState,
    pub(crate) nid: Nid,
    /// What its client has, with that of its other exports.
    pub(crate) account: Option<Arc<Account>>,
    /// More than the client's word shows that it is there.
    pub(crate) is_proven: bool,
    pub(crate) conn_cnt: u32,
    /// When the connect arrived that it has been connected by last.
    pub(crate) connect_arrived: Instant,
    pub(crate) connect_data: ObdConnectData,
    /// The client's handle of its import: where callbacks go, and by which a reconnect is known.
    pub(crate) import: ObdHandle,
    pub(crate) reverse: Option<Arc<dyn Channel>>,
    /// It is new, and its connect is not done: no other client may connect over it, and it may still be removed.
    pub(crate) is_connecting: bool,
    /// The client is a server, and so is its node.
    pub(crate) is_server: bool,
    /// More was reported to it as durable than there is.
    pub(crate) knows_more: bool,
    /// Why it is being evicted is said: it may be for many of its locks at once.
    pub(crate) is_eviction_logged: bool,
    pub(crate) last_request: Instant,
    /// How long after the begin of recovery it was back.
    pub(crate) reconnect_delay: Option<Duration>,
    /// Answers that the client may ask for again, one per slot.
    pub(crate) replies: Replies,
    /// The highest tag that the client may use: it has agreed on as many changes at once.
    pub(crate) tag_max: u16,
    /// Requests whose bytes are being applied.
    pub(crate) applying: usize,
    /// Requests being executed.
    pub(crate) in_progress: HashMap<Xid, RequestInProgress>,
    pub(crate) last_transno: Transno,
    /// The client has seen the answers of all requests up to here.
    pub(crate) last_xid: Xid,
}

impl Export {
    /// The number of clients that have none of their own, because no record is kept of them.
    pub(crate) const LOCAL: u32 = u32::MAX;

    pub(crate) fn new(uuid: Uuid, handle: ObdHandle, number: u32, state: ExportState) -> Self {
        let state = ExportInner {
            state,
            nid: Nid::ANY,
            account: None,
            is_proven: false,
            is_connecting: false,
            conn_cnt: 0,
            connect_arrived: Instant::default(),
            connect_data: ObdConnectData::default(),
            import: ObdHandle(0),
            reverse: None,
            is_server: false,
            knows_more: false,
            is_eviction_logged: false,
            last_request: Instant(0),
            reconnect_delay: None,
            replies: Replies::default(),
            tag_max: 0,
            applying: 0,
            in_progress: HashMap::default(),
            last_transno: Transno(0),
            last_xid: Xid(0),
        };
        Self {
            uuid,
            handle,
            number,
            state: Mutex::new(state),
            role: RwLock::default(),
            counters: OnceLock::new(),
            callbacks: CallbackTurns::default(),
            known_bits: AtomicU64::new(InodeBits::ALL.0),
        }
    }

    /// A client in this process: it is not awaited after a restart, so nothing is recorded of it.
    pub(crate) fn local(uuid: Uuid, handle: ObdHandle, state: ExportState) -> Self {
        Self::new(uuid, handle, Self::LOCAL, state)
    }

    /// Whether the log is to say why the client is evicted: to the first who asks.
    pub(crate) fn begin_logged_eviction(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_eviction_logged, true)
    }

    /// Whether the client is one of this process ([`crate::LocalClient`]), which acts for no user of
    /// another machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.number == Self::LOCAL
    }

    /// Whether the client is a server of the file system, or of this process: see
    /// [`crate::ServerNodes`].
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.is_local() || self.state.lock().is_server
    }

    /// The target that the client is, or has its connection for, if it is a server: an MDT towards OSTs and other MDTs.
    /// A server of that target's nodes alone can say so.
    #[must_use]
    pub fn owner(&self) -> Option<TargetName> {
        self.is_server().then(|| owner(&self.uuid)).flatten()
    }

    /// How long after the begin of recovery the client was back; `None` if it was not awaited, or is not back.
    #[must_use]
    pub fn reconnect_delay(&self) -> Option<Duration> {
        self.state.lock().reconnect_delay
    }

    /// What the role has counted for this client.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        self.counters.get().map_or_else(Vec::new, Counters::samples)
    }

    /// Answers that are kept in case the client asks for them again.
    #[must_use]
    pub fn reply_records(&self) -> usize {
        self.state.lock().replies.len()
    }

    /// Starts the client's counts anew.
    pub fn clear_counters(&self) {
        if let Some(counters) = self.counters.get() {
            counters.clear();
        }
    }

    pub(crate) fn count(&self, lines: &'static [CounterLine], counter: usize, value: u64) {
        self.counters.get_or_init(|| Counters::new(lines)).add(counter, value);
    }

    /// What is counted of its client; `None` for one of this process, and until it connects after a restart.
    pub(crate) fn account(&self) -> Option<Arc<Account>> {
        self.state.lock().account.clone()
    }

    /// The callbacks that it is sent of its locks.
    pub(crate) fn callbacks(&self) -> &CallbackTurns {
        &self.callbacks
    }

    /// The client's UUID.
    #[must_use]
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// The handle that the client puts into its requests.
    #[must_use]
    pub fn handle(&self) -> ObdHandle {
        self.handle
    }

    /// Those of the client's locks that stay through a change which it asks for, and corrects by itself.
    #[must_use]
    pub fn spared(&self, locks: SparedLocks) -> Spared {
        Spared { export: self.handle.0, locks }
    }

    /// A small number of the client's own on this target, kept over restarts.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where the client is.
    #[must_use]
    pub fn nid(&self) -> Nid {
        self.state.lock().nid
    }

    /// Whose budget the client uses up: its node, or the NID of its address where it only claims to be at that
    /// node.
    #[must_use]
    pub fn account_nid(&self) -> Nid {
        let state = self.state.lock();
        state.account.as_ref().map_or(state.nid, |account| account.nid)
    }

    /// Where the client is, if more than its own word shows that: what is allowed for the sake of a NID is allowed
    /// to that.
    #[must_use]
    pub fn proven_nid(&self) -> Option<Nid> {
        let state = self.state.lock();
        state.is_proven.then_some(state.nid)
    }

    /// How far the client has got.
    #[must_use]
    pub fn state(&self) -> ExportState {
        self.state.lock().state
    }

    /// What both sides agreed on.
    #[must_use]
    pub fn connect_data(&self) -> ObdConnectData {
        self.state.lock().connect_data.clone()
    }

    /// The inode bits that the client may ask locks of: those that both sides agreed on, all where inode bits are not
    /// spoken of (other MDTs, targets without inodes).
    #[must_use]
    pub fn known_bits(&self) -> InodeBits {
        InodeBits(self.known_bits.load(Ordering::Relaxed))
    }

    /// Both sides have agreed on `agreed`; `state` is this export's.
    pub(crate) fn negotiate(&self, state: &mut ExportInner, agreed: &ObdConnectData) {
        let known = match agreed.flags.contains(ConnectFlags::IBITS) {
            true => InodeBits::ALL.intersection(InodeBits(agreed.ibits_known)),
            false => InodeBits::ALL,
        };
        self.known_bits.store(known.0, Ordering::Relaxed);
        state.connect_data = agreed.clone();
    }

    /// Whether both sides agreed on a feature.
    #[must_use]
    pub(crate) fn has(&self, flag: ConnectFlags) -> bool {
        self.state.lock().connect_data.flags.contains(flag)
    }

    /// The client mounts read-only from now on, or no longer, without connecting anew.
    pub fn set_read_only(&self, read_only: bool) {
        let flags = &mut self.state.lock().connect_data.flags;
        *flags = match read_only {
            true => *flags | ConnectFlags::RDONLY,
            false => flags.without(ConnectFlags::RDONLY),
        };
    }

    /// Whether both sides agreed on a feature of the second word.
    #[must_use]
    pub(crate) fn has2(&self, flag: ConnectFlags2) -> bool {
        self.state.lock().connect_data.flags2.contains(flag)
    }

    /// The way back to the client, for callbacks; `None` while it is not connected.
    #[must_use]
    pub(crate) fn channel(&self) -> Option<Arc<dyn Channel>> {
        self.state.lock().reverse.clone()
    }

    /// What the role keeps for this client, one value of each type, made when first asked for. Roles
    /// keep a few: finding one is a walk over all.
    pub fn role<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let find = |kept: &[Arc<dyn Any + Send + Sync>]| {
            kept.iter().find_map(|role| Arc::clone(role).downcast::<T>().ok())
        };
        if let Some(role) = find(&self.role.read()) {
            return role;
        }
        let mut kept = self.role.write();
        find(&kept).unwrap_or_else(|| {
            let role = Arc::<T>::default();
            kept.push(Arc::clone(&role) as Arc<dyn Any + Send + Sync>);
            role
        })
    }

    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, ExportInner> {
        self.state.lock()
    }
}

/// All exports of a target.
#[derive(Default)]
pub(crate) struct ExportTable {
    tables: RwLock<Tables>,
}

#[derive(Default)]
struct Tables {
    by_handle: HashMap<ObdHandle, Arc<Export>>,
    by_uuid: HashMap<Uuid, Arc<Export>>,
    /// How many are at each node.
    by_nid: HashMap<Nid, usize>,
    /// Of each client that has any.
    accounts: HashMap<Nid, Arc<Account>>,
}

impl ExportTable {
    pub(crate) fn by_handle(&self, handle: ObdHandle) -> Option<Arc<Export>> {
        self.tables.read().by_handle.get(&handle).cloned()
    }

    pub(crate) fn by_uuid(&self, uuid: &Uuid) -> Option<Arc<Export>> {
        self.tables.read().by_uuid.get(uuid).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Export>> {
        self.tables.read().by_handle.values().cloned().collect()
    }

    /// Whether a client has this number.
    pub(crate) fn has_number(&self, number: u32) -> bool {
        self.tables.read().by_handle.values().any(|export| export.number() == number)
    }

    /// Whether an export is at this node.
    pub(crate) fn is_at(&self, nid: Nid) -> bool {
        self.tables.read().by_nid.contains_key(&nid)
    }

    /// An export comes to a node, of the client `client`, unless that has `most`.
    pub(crate) fn enter(
        &self,
        export: &Arc<Export>,
        nid: Nid,
        client: Nid,
        most: usize,
    ) -> Option<Arc<Account>> {
        let mut tables = self.tables.write();
        let account = tables.accounts.get(&client).cloned();
        let account = account.unwrap_or_else(|| Arc::new(Account::of(client)));
        if !account.enter(export, most) {
            return None;
        }
        tables.accounts.insert(client, Arc::clone(&account));
        *tables.by_nid.entry(nid).or_default() += 1;
        Some(account)
    }

    /// Takes an export out of those at a node.
    pub(crate) fn leave(&self, export: &Export, nid: Nid, account: &Account) {
        {
            let mut tables = self.tables.write();
            if account.leave(export) {
                tables.accounts.remove(&account.nid);
            }
        }
        self.leave_node(nid);
    }

    /// An export of the same client is at another node now.
    pub(crate) fn leave_node(&self, nid: Nid) {
        let mut tables = self.tables.write();
        if let Some(count) = tables.by_nid.get_mut(&nid) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                tables.by_nid.remove(&nid);
            }
        }
    }

    /// Adds an export unless its client has one.
    pub(crate) fn insert(&self, export: &Arc<Export>) -> bool {
        let mut tables = self.tables.write();
        if tables.by_uuid.contains_key(export.uuid()) {
            return false;
        }
        tables.by_uuid.insert(export.uuid().clone(), Arc::clone(export));
        tables.by_handle.insert(export.handle(), Arc::clone(export));
        true
    }

    /// Removes an export; whether it was there.
    pub(crate) fn remove(&self, export: &Arc<Export>) -> bool {
        let mut tables = self.tables.write();
        tables.by_uuid.remove(export.uuid());
        tables.by_handle.remove(&export.handle()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each enqueue asks for them. (If the mutex were needed, this would wait for ever.)
    #[test]
    fn known_bits_are_those_of_the_last_connect_and_need_no_mutex() {
        let export = Export::new(Uuid::new("c"), ObdHandle(1), 0, ExportState::Full);
        let mut state = export.lock();
        assert_eq!(export.known_bits(), InodeBits::ALL);
        let negotiate = |state: &mut ExportInner, flags, ibits_known| {
            let agreed = ObdConnectData { flags, ibits_known, ..ObdConnectData::default() };
            export.negotiate(state, &agreed);
            assert_eq!(state.connect_data.ibits_known, ibits_known);
        };
        negotiate(&mut state, ConnectFlags::IBITS, 0x3f);
        assert_eq!(export.known_bits(), InodeBits(0x3f));
        negotiate(&mut state, ConnectFlags::IBITS, u64::MAX);
        assert_eq!(export.known_bits(), InodeBits::ALL, "no bit that means nothing");
        negotiate(&mut state, ConnectFlags::IBITS, 0x1f);
        assert_eq!(export.known_bits(), InodeBits(0x1f));
        negotiate(&mut state, ConnectFlags::VERSION, 0);
        assert_eq!(export.known_bits(), InodeBits::ALL, "they are not spoken of");
    }
}
