//! Bulk of a server's requests over LNet.

use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::{BoxFuture, BulkMover, RpcError};
use sheen_types::{MatchBits, Nid};
use sheen_wire::lnet::Portal;

use crate::net::{LNet, NetError};

pub(super) struct Mover(pub(super) Arc<LNet>);

impl BulkMover for Mover {
    fn fetch(
        &self,
        peer: Nid,
        portal: Portal,
        bits: MatchBits,
        length: usize,
    ) -> BoxFuture<'static, Result<Bytes, RpcError>> {
        let Ok(length) = u32::try_from(length) else {
            return Box::pin(async { Err(RpcError::Protocol("bulk part too long".to_owned())) });
        };
        let fetch = self.0.get(peer, portal, bits, length);
        Box::pin(async move {
            fetch.await.map_err(|error| match error {
                NetError::PeerDown(_) => RpcError::Disconnected,
                NetError::Shutdown => RpcError::Shutdown,
                NetError::Undecodable(error) => RpcError::Protocol(error.to_string()),
            })
        })
    }

    /// Queued behind what goes to the peer already. If it gets lost, so does the reply, and the
    /// client asks again.
    fn send(
        &self,
        peer: Nid,
        portal: Portal,
        bits: MatchBits,
        pieces: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        self.0.put(peer, portal, bits, 0, pieces);
        Box::pin(async { Ok(()) })
    }
}
