//! What callers hold while they wait for a message. Dropping it unlinks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sheen_lnet::{EntryId, Key};
use sheen_types::{MatchBits, Nid};
use sheen_wire::DecodeError;
use sheen_wire::lnet::Portal;

use super::deliver::{Offered, Sink};
use super::queue::Queue;
use super::{Delivery, LNet};

/// LNet was shut down before anything came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked;

impl fmt::Display for Unlinked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LNet was shut down")
    }
}

impl std::error::Error for Unlinked {}

/// Why a GET or a ping failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetError {
    /// The connection was lost, or none could be made.
    PeerDown(Nid),
    /// LNet was shut down.
    Shutdown,
    /// The answer is not what was asked for.
    Undecodable(DecodeError),
}

impl fmt::Display for NetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerDown(nid) => write!(out, "{nid} cannot be reached"),
            Self::Shutdown => out.write_str("LNet was shut down"),
            Self::Undecodable(error) => write!(out, "undecodable answer: {error}"),
        }
    }
}

impl std::error::Error for NetError {}

/// A message that is expected.
#[must_use = "dropping it unlinks"]
pub struct Expectation {
    lnet: Arc<LNet>,
    key: Key,
    id: EntryId,
    cell: Queue<Delivery>,
    linked: bool,
    repeated: bool,
}

impl Expectation {
    pub(super) fn new(
        lnet: &Arc<LNet>,
        from: Nid,
        portal: Portal,
        bits: MatchBits,
        length_max: usize,
        repeated: bool,
    ) -> Self {
        let key = lnet.tables.key(from, portal, bits);
        let cell = Queue::new();
        let sink = Sink { cell: cell.clone(), repeated };
        let id = lnet.tables.expect(key, length_max, sink);
        if lnet.is_stopping() {
            cell.close();
        }
        Self { lnet: Arc::clone(lnet), key, id, cell, linked: true, repeated }
    }

    /// The next message, of an expectation of several.
    ///
    /// # Errors
    /// LNet was shut down.
    pub async fn next(&mut self) -> Result<Delivery, Unlinked> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll(context)).await
    }
}

impl Future for Expectation {
    type Output = Result<Delivery, Unlinked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.cell.poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(delivery)) => {
                self.linked = self.repeated;
                Poll::Ready(Ok(delivery))
            }
            Poll::Ready(None) => Poll::Ready(Err(Unlinked)),
        }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        if self.linked {
            self.lnet.tables.unexpect(self.key, self.id);
        }
    }
}

/// A payload that is offered to one GET.
#[must_use = "dropping it unlinks"]
pub struct Offer {
    lnet: Arc<LNet>,
    key: Key,
    id: EntryId,
    cell: Queue<()>,
    linked: bool,
}

impl Offer {
    pub(super) fn new(
        lnet: &Arc<LNet>,
        from: Nid,
        portal: Portal,
        bits: MatchBits,
        payload: Vec<Bytes>,
    ) -> Self {
        let key = lnet.tables.key(from, portal, bits);
        let cell = Queue::new();
        let id = lnet.tables.offer(key, Offered { payload, cell: cell.clone() });
        if lnet.is_stopping() {
            cell.close();
        }
        Self { lnet: Arc::clone(lnet), key, id, cell, linked: true }
    }
}

impl Future for Offer {
    /// `Ok` when the payload is on its way to the peer.
    type Output = Result<(), Unlinked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.cell.poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(())) => {
                self.linked = false;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(None) => Poll::Ready(Err(Unlinked)),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if self.linked {
            self.lnet.tables.unoffer(self.key, self.id);
        }
    }
}

/// A GET on its way.
#[must_use = "dropping it unlinks"]
pub struct Fetch {
    lnet: Arc<LNet>,
    object: u64,
    cell: Queue<Result<Bytes, NetError>>,
}

impl Fetch {
    pub(super) fn new(lnet: &Arc<LNet>, to: Nid, object: u64) -> Self {
        let cell = Queue::new();
        lnet.tables.fetch(object, to, cell.clone());
        if lnet.is_stopping() {
            cell.close();
        }
        Self { lnet: Arc::clone(lnet), object, cell }
    }

    pub(super) fn finish(&self, result: Result<Bytes, NetError>) {
        self.cell.put(result);
    }
}

impl Future for Fetch {
    type Output = Result<Bytes, NetError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.cell.poll(context).map(|result| result.unwrap_or(Err(NetError::Shutdown)))
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.lnet.tables.unfetch(self.object);
    }
}
