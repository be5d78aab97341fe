//! The way from one MDT to another, without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::Watched;
use sheen_rpc::{Answer, BoxFuture, Bulk, Call, CallKind, Channel, ImportState, RpcError};
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestWorld};
use sheen_types::futures::{First, race};
use sheen_types::{Nid, Transno, Uuid, Xid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::messages::{ObdPing, Request};
use sheen_wire::out::{OutUpdateHeader, UpdateType, split_updates};
use sheen_wire::ptlrpc::{MsgFlags, PtlrpcBody};

/// Requests in flight at once, of those that count: few, so that tests meet the limit of imports.
const PLACES: usize = 4;

/// See the module's documentation.
pub(super) struct Between {
    way: Arc<Way>,
    target: Uuid,
    tag: AtomicU16,
    committed: Arc<AtomicU64>,
    /// The kinds of the updates of each `OUT_UPDATE`.
    sent: Mutex<Vec<Vec<UpdateType>>>,
    /// The next message with this is answered by an eviction, executed or not.
    evicts: Arc<Mutex<Option<(UpdateType, bool)>>>,
    /// How often it was asked who has a sequence.
    looked_up: AtomicU16,
}

/// What becomes of it when one of the two dies.
struct Way {
    client: Mutex<TestClient>,
    state: Arc<Watched<WayState>>,
    /// Of requests that count against those in flight.
    places: tokio::sync::Semaphore,
    /// Messages with this go no further.
    held: Arc<Watched<Option<UpdateType>>>,
}

#[derive(Clone, Copy, Debug)]
struct WayState {
    connection: u32,
    import: ImportState,
}

impl Between {
    pub(super) fn new(client: TestClient, target: Uuid) -> Self {
        let (tag, committed, sent) = (AtomicU16::new(0), Arc::default(), Mutex::default());
        let state = WayState { connection: 1, import: ImportState::Full };
        let (state, held) = (Arc::new(Watched::new(state)), Arc::new(Watched::new(None)));
        let way = Arc::new(Way {
            client: Mutex::new(client),
            state,
            held,
            places: tokio::sync::Semaphore::new(PLACES),
        });
        let looked_up = AtomicU16::new(0);
        Self { way, target, tag, committed, sent, evicts: Arc::default(), looked_up }
    }

    /// How often the other one was asked who has a sequence.
    pub(super) fn looked_up(&self) -> u16 {
        self.looked_up.load(Ordering::Acquire)
    }

    /// The next message of this kind is executed, or not; then the other one has evicted this one.
    pub(super) fn evict_at(&self, kind: UpdateType, is_executed: bool) {
        *self.evicts.lock() = Some((kind, is_executed));
    }

    /// Whether that has been.
    pub(super) fn has_evicted(&self) -> bool {
        self.evicts.lock().is_none()
    }

    /// No message of this kind arrives until other messages are to be held, or none.
    pub(super) fn hold(&self, kind: Option<UpdateType>) {
        self.way.held.change(|held| *held = kind);
    }

    /// One of the two has died: what is under way is lost.
    pub(super) fn breaks(&self) {
        self.way.state.change(|state| {
            *state = WayState { connection: state.connection + 1, import: ImportState::Disconn };
        });
    }

    /// The other one is there again, or this one is, by a connected client. It recovers, maybe.
    pub(super) fn is_there(&self, world: &TestWorld, client: TestClient) {
        *self.way.client.lock() = client.clone();
        self.way.state.change(|state| state.import = ImportState::ReplayWait);
        let way = Arc::clone(&self.way);
        let connection = way.state.get().connection;
        let finish = async move {
            for flags in [MsgFlags::REQ_REPLAY_DONE, MsgFlags::LOCK_REPLAY_DONE] {
                client.call_with(TestCall { flags, ..TestCall::new(ObdPing::default()) }).await;
            }
            way.state.change(|state| {
                if state.connection == connection {
                    state.import = ImportState::Full;
                }
            });
        };
        world.world().tasks.spawn("finish recovery", Box::pin(finish));
    }

    /// As imports do: by it this one hears what is durable there.
    pub(super) async fn ping(&self) {
        let answer = self.client().call(ObdPing::default()).await;
        self.committed.fetch_max(answer.head.last_committed.0, Ordering::AcqRel);
    }

    /// The client that it is over there.
    pub(super) fn client(&self) -> TestClient {
        self.way.client.lock().clone()
    }

    /// What was sent since the last call.
    pub(super) fn sent(&self) -> Vec<Vec<UpdateType>> {
        std::mem::take(&mut *self.sent.lock())
    }
}

/// The kinds of the updates in a request.
fn kinds(request: &Request, source: &Bytes) -> Vec<UpdateType> {
    let Request::OutUpdate(request) = request else { return Vec::new() };
    let (_, inline) = OutUpdateHeader::split(&request.out_update_header).expect("a header");
    let updates = if inline.is_empty() { source } else { &inline };
    let (updates, _) = split_updates(updates).expect("updates");
    updates.iter().map(|update| update.kind).collect()
}

impl Way {
    async fn send(
        &self,
        request: TestCall,
        kind: CallKind,
        kinds: &[UpdateType],
    ) -> Result<TestAnswer, RpcError> {
        let waits = matches!(kind, CallKind::Normal | CallKind::Modifying);
        loop {
            let state = match waits {
                true => self.state.until(|state| state.import == ImportState::Full).await,
                false => self.state.get(),
            };
            let may_go = state.import == ImportState::Full
                || kind == CallKind::Recovery && state.import == ImportState::ReplayWait;
            if !may_go {
                return Err(RpcError::Disconnected);
            }
            let sent = async {
                let passes = |held: Option<UpdateType>| held.is_none_or(|it| !kinds.contains(&it));
                self.held.until(passes).await;
                let client = self.client.lock().clone();
                client.call_with(request.clone()).await
            };
            let breaks = self.state.until(|now| now.connection != state.connection);
            let done = race(sent, breaks).await;
            // What one that has died says in this moment it never said.
            let is_whole = self.state.get().connection == state.connection;
            match done {
                First::Left(answer) if is_whole => return answer.ok_or(RpcError::Disconnected),
                _ if waits => {}
                _ => return Err(RpcError::Disconnected),
            }
        }
    }
}

impl Channel for Between {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        let source = match &call.bulk {
            Bulk::Source(pieces) => pieces.concat().into(),
            _ => Bytes::new(),
        };
        if matches!(call.request, Request::FldQuery(_) | Request::FldRead(_)) {
            self.looked_up.fetch_add(1, Ordering::AcqRel);
        }
        if matches!(call.request, Request::OutUpdate(_)) {
            self.sent.lock().push(kinds(&call.request, &source));
        }
        let tag = match call.kind {
            CallKind::Modifying => self.tag.fetch_add(1, Ordering::Relaxed) % 200 + 1,
            _ => 0,
        };
        let (kind, kinds) = (call.kind, kinds(&call.request, &source));
        let is_counted = kind == CallKind::Normal && !call.is_awaited && !kinds.is_empty();
        let request = TestCall { source, ..TestCall::new(call.request).tagged(tag) };
        let (way, committed) = (Arc::clone(&self.way), Arc::clone(&self.committed));
        let evicts = Arc::clone(&self.evicts);
        Box::pin(async move {
            let evicted = evicts.lock().take_if(|(kind, _)| kinds.contains(kind));
            if let Some((_, is_executed)) = evicted {
                if is_executed {
                    way.send(request, kind, &kinds).await?;
                }
                return Err(RpcError::Evicted);
            }
            let _place = match is_counted {
                true => way.places.acquire().await.ok(),
                false => None,
            };
            let answer = way.send(request, kind, &kinds).await?;
            committed.fetch_max(answer.head.last_committed.0, Ordering::AcqRel);
            if let Some(errno) = answer.errno().filter(|_| !call.refusal_as_answer) {
                return Err(RpcError::Errno(errno));
            }
            let body = PtlrpcBody { status: answer.head.status, ..PtlrpcBody::default() };
            let reply = answer.reply.ok_or(RpcError::TimedOut)?;
            Ok(Answer { xid: answer.xid, body, reply, bulk: Vec::new(), connection: 1 })
        })
    }

    fn state(&self) -> ImportState {
        self.way.state.get().import
    }

    fn connect_data(&self) -> ObdConnectData {
        self.client().agreed()
    }

    fn connection(&self) -> u32 {
        self.way.state.get().connection
    }

    fn peer(&self) -> Nid {
        Nid::LOOPBACK
    }

    fn target_uuid(&self) -> Uuid {
        self.target.clone()
    }

    fn last_committed(&self) -> Transno {
        Transno(self.committed.load(Ordering::Acquire))
    }

    fn release(&self, _: Xid) {}
}
