//! The beginning of a TCP connection: acceptor request and HELLO both ways.
//!
//! The connecting side sends both at once and waits for one HELLO; the accepting side answers
//! after the host has decided whether it wants the connection. What socklnd answers to unknown
//! magics and versions is answered here too, so that newer peers can fall back.

use std::fmt;
use std::net::SocketAddrV4;

use bytes::{Bytes, BytesMut};
use sheen_types::Nid;
use sheen_wire::lnet::{AcceptorRequest, ConnectionType, Hello, LUSTRE_PID, PID_USER_FLAG};
use sheen_wire::{ByteOrder, DecodeError};

use crate::Session;
use crate::message::Local;

/// `SOCKLND_CONN_NONE`: in an answering HELLO, "not this connection; try again later".
pub const NONE: ConnectionType = ConnectionType(u32::MAX);

/// Ports from here on are open to every user (`LNET_ACCEPTOR_MAX_RESERVED_PORT` is the last that
/// is not).
const PORT_UNPRIVILEGED_MIN: u16 = 1024;
/// Magic and version, which decide how much follows.
const HEAD_BYTES: usize = 8;
/// What either side sends in a handshake fits.
const BUFFER_BYTES: usize = 128;

/// Who is at the other end, and what the connection is for as this side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partner {
    /// Its address.
    pub nid: Nid,
    /// Its process; an unprivileged peer's carries the user flag and its port, as socklnd has it.
    pub pid: u32,
    /// Changes when it restarts.
    pub incarnation: u64,
    /// What the connection carries.
    pub kind: ConnectionType,
}

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeProgress {
    /// More bytes are needed.
    More,
    /// The peer is known. An accepting host now answers ([`Handshake::answer`]).
    Known(Partner),
    /// The peer answered that it does not want this connection now.
    Refused,
}

/// Why a handshake failed, and what to answer the peer before the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Says what was wrong.
    pub error: HandshakeError,
    /// Last words.
    pub answer: Option<Bytes>,
}

/// What was wrong with a handshake; always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// Its bytes.
    Undecodable(DecodeError),
    /// It wants to reach another node.
    WrongTarget(Nid),
    /// It is not who we connected to, or sits at another address than its NID says.
    WrongSource {
        /// Who it claims to be.
        claimed: Nid,
        /// Who it should be.
        expected: Nid,
    },
    /// It comes under a name of this very node.
    OurName(Nid),
    /// Its connection type does not fit ours.
    WrongType(ConnectionType),
}

impl Partner {
    /// Whether any user of the peer's machine can be the peer.
    #[must_use]
    pub fn is_any_user(&self) -> bool {
        self.pid & PID_USER_FLAG != 0
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(error) => write!(out, "undecodable opening: {error}"),
            Self::WrongTarget(nid) => write!(out, "it asked for {nid}, which is not this node"),
            Self::WrongSource { claimed, expected } => {
                write!(out, "it claimed to be {claimed}, but is {expected}")
            }
            Self::OurName(nid) => write!(out, "it claimed to be {nid}, which is this node"),
            Self::WrongType(kind) => write!(out, "connection type {kind:?} does not fit"),
        }
    }
}

impl std::error::Error for HandshakeError {}

enum Stage {
    /// Accepting: nothing understood yet.
    Acceptor,
    /// Accepting: waits for the HELLO.
    PassiveHello,
    /// Connecting: waits for the answer.
    ActiveHello { peer: Nid, kind: ConnectionType },
}

/// The handshake of a connection: from its first byte until both sides know each other.
pub struct Handshake {
    local: Local,
    /// Where a peer connected from that any user of its machine can be.
    unprivileged: Option<SocketAddrV4>,
    stage: Stage,
    /// The peer's, once its HELLO has come.
    order: ByteOrder,
    input: BytesMut,
}

impl Handshake {
    /// The connecting side's handshake, and the bytes to send first.
    #[must_use]
    pub fn active(local: Local, peer: Nid, kind: ConnectionType) -> (Self, Vec<Bytes>) {
        let request = AcceptorRequest { version: 1, target: peer }.encode();
        let stage = Stage::ActiveHello { peer, kind };
        let input = BytesMut::with_capacity(BUFFER_BYTES);
        let order = ByteOrder::Little;
        let handshake = Self { local, unprivileged: None, stage, order, input };
        (handshake, vec![request, hello(local, peer, kind)])
    }

    /// The accepting side's handshake, of a connection from `from`: its port says whether any user of that
    /// machine can be the peer.
    #[must_use]
    pub fn passive(local: Local, from: SocketAddrV4) -> Self {
        Self::passive_from(local, (from.port() >= PORT_UNPRIVILEGED_MIN).then_some(from))
    }

    /// The accepting side's opening. `unprivileged`: where a peer connected from that any user of its machine
    /// can be; its address then decides who it is. Other peers are who they say they are, as far as that goes: see
    /// [`crate::NidProof`].
    #[must_use]
    pub fn passive_from(local: Local, unprivileged: Option<SocketAddrV4>) -> Self {
        let input = BytesMut::with_capacity(BUFFER_BYTES);
        Self { local, unprivileged, stage: Stage::Acceptor, order: ByteOrder::Little, input }
    }

    /// Where the host puts what it reads; always has room.
    pub fn space(&mut self) -> &mut BytesMut {
        self.input.reserve(BUFFER_BYTES);
        &mut self.input
    }

    /// Looks at what has come in.
    ///
    /// # Errors
    /// The peer's fault; the connection is to be closed behind the last words.
    pub fn advance(&mut self) -> Result<HandshakeProgress, Refusal> {
        if matches!(self.stage, Stage::Acceptor) {
            let head = Bytes::copy_from_slice(&self.input[..self.input.len().min(HEAD_BYTES)]);
            match self.acceptor(&head) {
                Ok(true) => self.stage = Stage::PassiveHello,
                Ok(false) => return Ok(HandshakeProgress::More),
                Err(refusal) => return Err(refusal),
            }
        }
        let length = self.input.len().min(sheen_wire::lnet::HELLO_BYTES);
        let bytes = Bytes::copy_from_slice(&self.input[..length]);
        let hello = match Hello::decode(&bytes) {
            Ok((hello, order)) => {
                self.order = order;
                hello
            }
            Err(DecodeError::Truncated { .. }) => return Ok(HandshakeProgress::More),
            Err(error) => return Err(self.refuse_hello(error)),
        };
        let _ = self.input.split_to(length);
        self.partner(&hello)
    }

    /// The accepting side's HELLO: takes the connection, or says "later".
    #[must_use]
    pub fn answer(&self, partner: &Partner, accepted: bool) -> Bytes {
        hello(self.local, partner.nid, if accepted { partner.kind } else { NONE })
    }

    /// The connection's life after the handshake; keeps what was read ahead.
    #[must_use]
    pub fn established(self, partner: Partner) -> Session {
        Session::new(self.local, partner, self.order, self.input)
    }

    /// Takes the acceptor request off the input; false while it is not whole.
    fn acceptor(&mut self, head: &Bytes) -> Result<bool, Refusal> {
        let length = match AcceptorRequest::length(head) {
            Ok(length) => length,
            Err(DecodeError::Truncated { .. }) => return Ok(false),
            Err(error) => return Err(self.refuse_acceptor(error, head)),
        };
        if self.input.len() < length {
            return Ok(false);
        }
        let request = AcceptorRequest::decode(&self.input.split_to(length).freeze())
            .map_err(|error| Refusal { error: HandshakeError::Undecodable(error), answer: None })?;
        if request.target != self.local.nid {
            let error = HandshakeError::WrongTarget(request.target);
            return Err(Refusal { error, answer: None });
        }
        Ok(true)
    }

    /// A version query (LNet's magic, or a version we do not know) is answered with version 1.
    fn refuse_acceptor(&self, error: DecodeError, head: &Bytes) -> Refusal {
        let starts_as_hello =
            !matches!(Hello::decode(head), Err(DecodeError::Illegal { what: "kshm_magic", .. }));
        let query =
            starts_as_hello || matches!(error, DecodeError::Illegal { what: "acr_version", .. });
        let answer = query.then(|| AcceptorRequest { version: 1, target: Nid(0) }.encode());
        Refusal { error: HandshakeError::Undecodable(error), answer }
    }

    /// An accepting side answers an unknown version with its own HELLO, as socklnd does.
    fn refuse_hello(&self, error: DecodeError) -> Refusal {
        let unknown = matches!(error, DecodeError::Illegal { what: "kshm_version", .. });
        let passive = matches!(self.stage, Stage::PassiveHello);
        let answer = (unknown && passive).then(|| hello(self.local, self.local.nid, NONE));
        Refusal { error: HandshakeError::Undecodable(error), answer }
    }

    fn partner(&self, hello: &Hello) -> Result<HandshakeProgress, Refusal> {
        let refuse = |error| Err(Refusal { error, answer: None });
        let expected = match (&self.stage, self.unprivileged) {
            (Stage::ActiveHello { peer, .. }, _) => *peer,
            // A peer that may use only unprivileged ports can be any user: then the address
            // decides, not what it says.
            (_, Some(from)) => Nid(self.local.nid.0 >> 32 << 32 | u64::from(u32::from(*from.ip()))),
            (_, None) => hello.source,
        };
        // What comes under our own name was sent in this process, and is believed for that.
        if hello.source == self.local.nid || hello.source.is_loopback() {
            return refuse(HandshakeError::OurName(hello.source));
        }
        if hello.source != expected || hello.source == Nid::ANY {
            return refuse(HandshakeError::WrongSource { claimed: hello.source, expected });
        }
        let kind = hello.connection_type.flipped();
        let mut pid = hello.source_pid;
        match self.stage {
            Stage::ActiveHello { .. } if hello.connection_type == NONE => {
                return Ok(HandshakeProgress::Refused);
            }
            Stage::ActiveHello { kind: ours, .. } if ours != kind => {
                return refuse(HandshakeError::WrongType(hello.connection_type));
            }
            Stage::ActiveHello { .. } => {}
            _ if kind.0 > ConnectionType::BULK_OUT.0 => {
                return refuse(HandshakeError::WrongType(hello.connection_type));
            }
            _ => pid = self.unprivileged.map_or(pid, |it| u32::from(it.port()) | PID_USER_FLAG),
        }
        let (nid, incarnation) = (hello.source, hello.source_incarnation);
        Ok(HandshakeProgress::Known(Partner { nid, pid, incarnation, kind }))
    }
}

fn hello(local: Local, to: Nid, connection_type: ConnectionType) -> Bytes {
    Hello {
        source: local.nid,
        destination: to,
        source_pid: LUSTRE_PID,
        destination_pid: 0,
        source_incarnation: local.incarnation,
        destination_incarnation: 0,
        connection_type,
    }
    .encode()
}
