//! LNet and its TCP driver as state machines: connections, match entries, PUT, GET, ACK, REPLY.
//!
//! Nothing here reads a clock, a socket or a random number: bytes and moments come in, messages and
//! decisions go out. [`Handshake`] and [`Session`] are one TCP connection (Lustre's socklnd),
//! [`MatchTable`] is what waits at the portals (Lustre's match entries), [`Peers`] decides which
//! connection carries a message and when to open one. A peer's bytes can cost the peer its
//! connection, never more.

mod handshake;
pub mod limits;
mod matching;
mod message;
mod peers;
mod ping;
mod session;

pub use handshake::{Handshake, HandshakeError, HandshakeProgress, NONE, Partner, Refusal};
pub use matching::{Entry, EntryId, Key, MatchTable};
pub use message::{Frame, Local, keepalive, message, zero_copy_answer};
pub use peers::{
    Closed, Established, Failed, LinkId, NidProof, PeerReport, Peers, Sender, Sending,
};
pub use ping::{ping_answer, ping_nids};
pub use session::{ReceivedMessage, Session, SessionError};
