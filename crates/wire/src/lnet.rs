//! LNet: what goes over a TCP connection between two nodes, below PtlRPC.
//!
//! A connection starts with an acceptor request, then each side's HELLO; then every message is a
//! [`KsockHeader`], and behind one of type LNET an [`LnetHeader`] and its payload. The magic of
//! acceptor request and HELLO shows the sender's byte order; an [`LnetHeader`] is always
//! little-endian. All have fixed sizes, so a reader knows how many bytes to wait for.

use bytes::Bytes;
use sheen_types::{MatchBits, Nid};

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::{wire_bits, wire_enum, wire_struct};

pub use crate::portal::Portal;

/// `LNET_PID_LUSTRE`: the process id of every Lustre node.
pub const LUSTRE_PID: u32 = 12345;
/// `LNET_PID_ANY`.
pub const PID_ANY: u32 = u32::MAX;
/// `LNET_PID_USERFLAG`: set in process ids of peers that accept no connections.
pub const PID_USER_FLAG: u32 = 0x8000_0000;
/// `LNET_PROTO_PING_MATCHBITS`: a GET for these on [`Portal::RESERVED`] is a ping, a PUT is a
/// push of the same data.
pub const PING_MATCH_BITS: MatchBits = MatchBits(0x8000_0000_0000_0000);
/// `LNET_WIRE_HANDLE_COOKIE_NONE`: both halves of the handle of a PUT that wants no ACK.
pub const HANDLE_NONE: WireHandle = WireHandle { interface: u64::MAX, object: u64::MAX };

/// `LNET_PROTO_ACCEPTOR_MAGIC`.
const ACCEPTOR_MAGIC: u32 = 0xacce_7100;
/// `LNET_PROTO_MAGIC`.
const HELLO_MAGIC: u32 = 0x4572_6963;
/// `KSOCK_PROTO_V3`, the HELLO version spoken here.
pub const HELLO_VERSION: u32 = 3;
/// Bytes of a version 1 acceptor request.
pub const ACCEPTOR_V1_BYTES: usize = 16;
/// Bytes of a version 2 acceptor request.
pub const ACCEPTOR_V2_BYTES: usize = 28;
/// Bytes of a HELLO without interface addresses, which no node sends any more.
pub const HELLO_BYTES: usize = 56;

impl Wire for Nid {
    const SIZE: usize = 8;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u64::decode(reader).map(Nid)
    }

    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}

/// The byte order in which `bytes` start with `magic`.
fn magic_order(bytes: &Bytes, magic: u32, what: &'static str) -> Result<ByteOrder, DecodeError> {
    let found = u32::decode(&mut Reader::new(bytes, ByteOrder::Little))?;
    match found {
        _ if found == magic => Ok(ByteOrder::Little),
        _ if found.swap_bytes() == magic => Ok(ByteOrder::Big),
        _ => Err(DecodeError::Illegal { what, value: u64::from(found) }),
    }
}

/// `struct lnet_acceptor_connreq`: the first bytes of a connection, from who opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptorRequest {
    /// 1, or 2 if the NID came in its long form.
    pub version: u32,
    /// Who shall answer.
    pub target: Nid,
}

impl AcceptorRequest {
    /// How many bytes the request has whose first eight are `head`.
    ///
    /// # Errors
    /// [`DecodeError::Illegal`] for another magic or version.
    pub fn length(head: &Bytes) -> Result<usize, DecodeError> {
        let order = magic_order(head, ACCEPTOR_MAGIC, "acr_magic")?;
        let mut reader = Reader::new(head, order);
        let [_, version] = <[u32; 2]>::decode(&mut reader)?;
        match version {
            1 => Ok(ACCEPTOR_V1_BYTES),
            2 => Ok(ACCEPTOR_V2_BYTES),
            _ => Err(DecodeError::Illegal { what: "acr_version", value: u64::from(version) }),
        }
    }

    /// Reads a whole request.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::length(bytes)?;
        let order = magic_order(bytes, ACCEPTOR_MAGIC, "acr_magic")?;
        let mut reader = Reader::new(bytes, order);
        let [_, version] = <[u32; 2]>::decode(&mut reader)?;
        let target = if version == 1 { Nid::decode(&mut reader)? } else { long_nid(&mut reader)? };
        reader.finish("acceptor request")?;
        Ok(Self { version, target })
    }

    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::with_capacity(ACCEPTOR_V2_BYTES);
        ACCEPTOR_MAGIC.encode(&mut writer);
        self.version.encode(&mut writer);
        if self.version == 1 {
            self.target.encode(&mut writer);
        } else {
            writer.put(&[0, self.target.net_type().0 as u8]);
            writer.put(&self.target.net_number().to_be_bytes());
            writer.put(&u32::from(self.target.address()).to_be_bytes());
            writer.zeros(12);
        }
        writer.into_bytes()
    }
}

/// Reads a `struct lnet_nid` that holds a 4-byte address.
fn long_nid(reader: &mut Reader<'_>) -> Result<Nid, DecodeError> {
    let [size, kind] = <[u8; 2]>::decode(reader)?;
    let number = u16::from_be_bytes(<[u8; 2]>::decode(reader)?);
    let [first, rest @ ..] = <[[u8; 4]; 4]>::decode(reader)?;
    if size != 0 || rest != [[0; 4]; 3] {
        return Err(DecodeError::Illegal { what: "nid_size", value: u64::from(size) });
    }
    let net = u64::from(kind) << 48 | u64::from(number) << 32;
    Ok(Nid(net | u64::from(u32::from_be_bytes(first))))
}

wire_enum! {
    /// `SOCKLND_CONN_*`: what a connection carries, as its opener sees it.
    pub enum ConnectionType: u32 {
        /// Everything.
        ANY = 0,
        /// Small messages.
        CONTROL = 1,
        /// Large messages to the opener.
        BULK_IN = 2,
        /// Large messages from the opener.
        BULK_OUT = 3,
    }
}

impl ConnectionType {
    /// The same connection as the other side sees it.
    #[must_use]
    pub fn flipped(self) -> Self {
        match self {
            Self::BULK_IN => Self::BULK_OUT,
            Self::BULK_OUT => Self::BULK_IN,
            other => other,
        }
    }
}

/// `struct ksock_hello_msg`, version 3: who speaks, and what the connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender.
    pub source: Nid,
    /// Whom the sender means.
    pub destination: Nid,
    /// The sender's process id.
    pub source_pid: u32,
    /// The destination's process id, 0 if not known.
    pub destination_pid: u32,
    /// When the sender started.
    pub source_incarnation: u64,
    /// When the destination started, 0 if not known.
    pub destination_incarnation: u64,
    /// What the connection is for, as the sender sees it.
    pub connection_type: ConnectionType,
}

impl Hello {
    /// Reads a HELLO of exactly [`HELLO_BYTES`].
    ///
    /// # Errors
    /// [`DecodeError::Illegal`] for another magic, for a version we do not speak (named
    /// `kshm_version`), or for one that announces interface addresses.
    pub fn decode(bytes: &Bytes) -> Result<(Self, ByteOrder), DecodeError> {
        let order = magic_order(bytes, HELLO_MAGIC, "kshm_magic")?;
        let mut reader = Reader::new(bytes, order);
        let [_, version] = <[u32; 2]>::decode(&mut reader)?;
        if version != HELLO_VERSION {
            return Err(DecodeError::Illegal { what: "kshm_version", value: u64::from(version) });
        }
        let hello = Self {
            source: Nid::decode(&mut reader)?,
            destination: Nid::decode(&mut reader)?,
            source_pid: u32::decode(&mut reader)?,
            destination_pid: u32::decode(&mut reader)?,
            source_incarnation: u64::decode(&mut reader)?,
            destination_incarnation: u64::decode(&mut reader)?,
            connection_type: ConnectionType::decode(&mut reader)?,
        };
        let addresses = u32::decode(&mut reader)?;
        if addresses != 0 {
            return Err(DecodeError::Illegal { what: "kshm_nips", value: u64::from(addresses) });
        }
        reader.finish("ksock_hello_msg")?;
        Ok((hello, order))
    }

    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::with_capacity(HELLO_BYTES);
        [HELLO_MAGIC, HELLO_VERSION].encode(&mut writer);
        self.source.encode(&mut writer);
        self.destination.encode(&mut writer);
        self.source_pid.encode(&mut writer);
        self.destination_pid.encode(&mut writer);
        self.source_incarnation.encode(&mut writer);
        self.destination_incarnation.encode(&mut writer);
        self.connection_type.encode(&mut writer);
        0u32.encode(&mut writer);
        writer.into_bytes()
    }
}

wire_enum! {
    /// `KSOCK_MSG_*`: what follows a [`KsockHeader`].
    pub enum KsockType: u32 {
        /// Nothing: the header only carries a zero-copy acknowledgement.
        NOOP = 0xc0,
        /// An [`LnetHeader`] and its payload.
        LNET = 0xc1,
    }
}

wire_struct! {
    /// `struct ksock_msg_hdr`: before every message on a connection.
    pub struct KsockHeader {
        /// What follows.
        kind: KsockType,
        /// Checksum of the message, 0 if there is none.
        checksum: u32,
        /// Asks for an acknowledgement of a zero-copy send under this cookie; 0 does not.
        request_cookie: u64,
        /// Acknowledges the send of this cookie; 0 acknowledges nothing.
        ack_cookie: u64,
    }
}

wire_struct! {
    /// `struct lnet_handle_wire`: names a memory descriptor at the node that made it.
    pub struct WireHandle {
        /// The node's incarnation.
        interface: u64,
        /// The descriptor.
        object: u64,
    }
}

wire_struct! {
    /// Says how much of a PUT was taken.
    pub struct Ack {
        /// The PUT's handle.
        handle: WireHandle,
        /// The PUT's match bits.
        match_bits: MatchBits,
        /// Bytes taken.
        length: u32,
        /// Unused.
        padding: [u32; 3],
    }
}

wire_struct! {
    /// Sends the payload to a portal.
    pub struct Put {
        /// Where the ACK goes; [`HANDLE_NONE`] for no ACK.
        ack_handle: WireHandle,
        /// Which match entry takes it.
        match_bits: MatchBits,
        /// Whatever the sender wants to say.
        header_data: u64,
        /// The portal.
        portal: Portal,
        /// Where in the entry's memory it goes.
        offset: u32,
    }
}

wire_struct! {
    /// Asks for the content of a match entry.
    pub struct Get {
        /// Where the REPLY goes.
        reply_handle: WireHandle,
        /// Which match entry is read.
        match_bits: MatchBits,
        /// The portal.
        portal: Portal,
        /// From where in the entry's memory.
        offset: u32,
        /// Bytes wanted at most.
        length: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// Answers a GET with the payload.
    pub struct GetReply {
        /// The GET's handle.
        handle: WireHandle,
        /// Unused.
        padding: [u64; 3],
    }
}

wire_struct! {
    /// HELLO of the first socklnd protocol; not used over version 3.
    pub struct OldHello {
        /// When the sender started.
        incarnation: u64,
        /// Connection type.
        kind: u32,
        /// Unused.
        padding: [u32; 7],
    }
}

/// `union lnet_cmd_hdr`: what an LNet message does; 40 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LnetCommand {
    /// `LNET_MSG_ACK`.
    Ack(Ack),
    /// `LNET_MSG_PUT`.
    Put(Put),
    /// `LNET_MSG_GET`.
    Get(Get),
    /// `LNET_MSG_REPLY`.
    Reply(GetReply),
    /// `LNET_MSG_HELLO`.
    Hello(OldHello),
}

impl LnetCommand {
    /// Bytes of every command.
    pub const SIZE: usize = 40;

    /// `enum lnet_msg_type`.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Ack(_) => 0,
            Self::Put(_) => 1,
            Self::Get(_) => 2,
            Self::Reply(_) => 3,
            Self::Hello(_) => 4,
        }
    }

    fn decode(number: u32, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match number {
            0 => Self::Ack(Ack::decode(reader)?),
            1 => Self::Put(Put::decode(reader)?),
            2 => Self::Get(Get::decode(reader)?),
            3 => Self::Reply(GetReply::decode(reader)?),
            4 => Self::Hello(OldHello::decode(reader)?),
            _ => {
                let value = u64::from(number);
                return Err(DecodeError::Illegal { what: "lnet_msg_type", value });
            }
        })
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ack(command) => command.encode(writer),
            Self::Put(command) => command.encode(writer),
            Self::Get(command) => command.encode(writer),
            Self::Reply(command) => command.encode(writer),
            Self::Hello(command) => command.encode(writer),
        }
    }
}

/// `struct lnet_hdr` with 8-byte NIDs: before every LNet payload; 72 bytes, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LnetHeader {
    /// To whom.
    pub destination: Nid,
    /// From whom.
    pub source: Nid,
    /// Process id at the destination.
    pub destination_pid: u32,
    /// Process id at the source.
    pub source_pid: u32,
    /// Bytes that follow.
    pub payload_length: u32,
    /// What to do.
    pub command: LnetCommand,
}

impl Wire for LnetHeader {
    const SIZE: usize = 32 + LnetCommand::SIZE;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (destination, source) = (Nid::decode(reader)?, Nid::decode(reader)?);
        let [destination_pid, source_pid, number, payload_length] = <[u32; 4]>::decode(reader)?;
        let command = LnetCommand::decode(number, reader)?;
        Ok(Self { destination, source, destination_pid, source_pid, payload_length, command })
    }

    fn encode(&self, writer: &mut Writer) {
        self.destination.encode(writer);
        self.source.encode(writer);
        let numbers =
            [self.destination_pid, self.source_pid, self.command.number(), self.payload_length];
        numbers.encode(writer);
        self.command.encode(writer);
    }
}

wire_bits! {
    /// `LNET_PING_FEAT_*`.
    pub struct PingFeatures: u32 {
        /// Answers pings.
        BASE = 0x1,
        /// The answer has each interface's state.
        NI_STATUS = 0x2,
        /// Does not route.
        RTE_DISABLED = 0x4,
        /// Several interfaces of one peer are known as such.
        MULTI_RAIL = 0x8,
        /// Discovers its peers.
        DISCOVERY = 0x10,
        /// Long NIDs follow.
        LARGE_ADDR = 0x20,
        /// The primary NID is the first long one.
        PRIMARY_LARGE = 0x40,
        /// Metadata of NIDs follows.
        METADATA = 0x80,
    }
}

wire_struct! {
    /// `struct lnet_ni_status`: one interface. The first one listed is the loopback, and its
    /// status is the sequence number of the list.
    pub struct NiStatus {
        /// Its NID as a number.
        nid: u64,
        /// Up or down.
        status: u32,
        /// Bytes of the whole list, if it has long NIDs.
        message_size: u32,
    }
}

impl NiStatus {
    /// `LNET_NI_STATUS_UP`.
    pub const UP: u32 = 0x15aa_c0de;
    /// `LNET_NI_STATUS_DOWN`.
    pub const DOWN: u32 = 0xdead_face;
}

/// `LNET_PROTO_PING_MAGIC`.
const PING_MAGIC: u32 = 0x7069_6e67;

/// `struct lnet_ping_info`: the payload of a ping's REPLY and of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingInfo {
    /// What the node can do.
    pub features: PingFeatures,
    /// Its process id.
    pub pid: u32,
    /// Its interfaces, the loopback first.
    pub interfaces: Vec<NiStatus>,
    /// What follows them: long NIDs and metadata.
    pub rest: Bytes,
}

impl PingInfo {
    /// Reads the whole payload.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let order = magic_order(bytes, PING_MAGIC, "pi_magic")?;
        let mut reader = Reader::new(bytes, order);
        u32::decode(&mut reader)?;
        let features = PingFeatures::decode(&mut reader)?;
        let [pid, count] = <[u32; 2]>::decode(&mut reader)?;
        if count as usize > reader.remaining() / NiStatus::SIZE {
            return Err(DecodeError::Truncated { what: "pi_ni" });
        }
        let interfaces = (0..count).map(|_| NiStatus::decode(&mut reader));
        let interfaces = interfaces.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { features, pid, interfaces, rest: reader.rest() })
    }

    /// The payload to send.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::with_capacity(16 + self.interfaces.len() * NiStatus::SIZE);
        let count = self.interfaces.len() as u32;
        [PING_MAGIC, self.features.0, self.pid, count].encode(&mut writer);
        for interface in &self.interfaces {
            interface.encode(&mut writer);
        }
        writer.put(&self.rest);
        writer.into_bytes()
    }
}
