//! Lock requests, replies and what they say about locks.

use sheen_types::{InodeBits, LockHandle, LockMode, ResourceName};

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::slot::Part;
use crate::{wire_bits, wire_enum, wire_struct};

pub use crate::md::Disposition;

wire_enum! {
    /// `enum ldlm_type`: by which rules a resource's locks conflict.
    pub enum LockType: u32 {
        /// By mode alone.
        PLAIN = 10,
        /// By mode and range of bytes.
        EXTENT = 11,
        /// By mode, range and owner: POSIX and BSD file locks.
        FLOCK = 12,
        /// By mode and parts of an inode.
        IBITS = 13,
    }
}

wire_bits! {
    /// `LDLM_FL_*`, the low half, which goes over the wire.
    pub struct LockFlags: u32 {
        /// Reply: mode, extent or resource differ from what was asked for.
        LOCK_CHANGED = 0x1,
        /// Reply: the lock waits, and conflicts with granted ones.
        BLOCK_GRANTED = 0x2,
        /// Obsolete: the lock waits because of a conversion.
        BLOCK_CONV = 0x4,
        /// Reply: the lock waits behind other locks.
        BLOCK_WAIT = 0x8,
        /// Request: for later use, so refuse rather than revoke a lock.
        SPECULATIVE = 0x10,
        /// Reply or completion: a blocking callback was sent already.
        AST_SENT = 0x20,
        /// Request: the lock was granted before; recovery.
        REPLAY = 0x100,
        /// Request: only the intent's result, no lock.
        INTENT_ONLY = 0x200,
        /// Request: an intent follows.
        HAS_INTENT = 0x1000,
        /// Completion: a deadlock of flocks.
        FLOCK_DEADLOCK = 0x8000,
        /// Blocking callback: dirty data need not be written.
        DISCARD_DATA = 0x1_0000,
        /// Request: never evict for not cancelling this.
        NO_TIMEOUT = 0x2_0000,
        /// Request: refuse rather than wait.
        BLOCK_NOWAIT = 0x4_0000,
        /// Request: only say whether it would be granted.
        TEST_LOCK = 0x8_0000,
        /// Request: match a lock held already.
        MATCH_LOCK = 0x10_0000,
        /// Request: it is cancelled as soon as a blocking callback comes.
        CANCEL_ON_BLOCK = 0x80_0000,
        /// Request: the other locks in it are being converted.
        CONVERTING = 0x200_0000,
        /// Obsolete: the lock has no end of its own.
        NO_EXPANSION = 0x2000_0000,
        /// Request: refuse if the resource is contended.
        DENY_ON_CONTENTION = 0x4000_0000,
        /// Blocking callback: data is gone, discard the cache.
        AST_DISCARD_DATA = 0x8000_0000,
    }
}

wire_bits! {
    /// `IT_*`: what else the enqueue shall do.
    pub struct IntentOp: u64 {
        /// Open.
        OPEN = 0x1,
        /// Create.
        CREAT = 0x2,
        /// Never on the wire: read a directory.
        READDIR = 0x4,
        /// Attributes.
        GETATTR = 0x8,
        /// Look a name up.
        LOOKUP = 0x10,
        /// Obsolete: unlink.
        UNLINK = 0x20,
        /// Obsolete: truncate.
        TRUNC = 0x40,
        /// Extended attributes, all at once.
        GETXATTR = 0x80,
        /// Read, or make, the layout.
        LAYOUT = 0x400,
        /// Quota acquire.
        QUOTA_DQACQ = 0x800,
        /// Quota connect.
        QUOTA_CONN = 0x1000,
        /// Obsolete: set an extended attribute.
        SETXATTR = 0x2000,
        /// Size and times without a lock.
        GLIMPSE = 0x4000,
        /// Read or write data on the MDT.
        BRW = 0x8000,
    }
}

wire_struct! {
    /// `struct ldlm_extent`: a range of bytes, both ends in it, and its group.
    pub struct ExtentPolicy {
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// Group of a group lock.
        gid: u64,
    }
}

wire_struct! {
    /// `struct ldlm_inodebits`: parts of an inode.
    pub struct InodeBitsPolicy {
        /// Parts that must be locked.
        bits: u64,
        /// Parts that may be; or, in conversions, parts to give up.
        try_bits: u64,
        /// Group of a group lock.
        gid: u64,
        /// Unused.
        padding: u32,
        /// Index of the MDT that started this.
        initiator: u32,
    }
}

wire_struct! {
    /// `struct ldlm_flock_wire`: a file lock's range and owner.
    pub struct FlockPolicy {
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// The client's cookie for the owner.
        owner: u64,
        /// Unused.
        padding: u32,
        /// Process id of the owner, for people.
        pid: u32,
    }
}

/// `union ldlm_wire_policy_data`: 32 bytes whose meaning the [`LockType`] decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy(pub [u64; 4]);

impl Policy {
    /// A range of bytes.
    #[must_use]
    pub fn extent(policy: &ExtentPolicy) -> Self {
        Self([policy.start, policy.end, policy.gid, 0])
    }

    /// A range of bytes without a group.
    #[must_use]
    pub fn of_extent(start: u64, end: u64) -> Self {
        Self([start, end, 0, 0])
    }

    /// Parts of an inode.
    #[must_use]
    pub fn inode_bits(policy: &InodeBitsPolicy) -> Self {
        let last = u64::from(policy.padding) | u64::from(policy.initiator) << 32;
        Self([policy.bits, policy.try_bits, policy.gid, last])
    }

    /// Parts of an inode, and parts to lock if that costs nothing.
    #[must_use]
    pub fn of_inode_bits(bits: InodeBits, try_bits: InodeBits) -> Self {
        Self([bits.0, try_bits.0, 0, 0])
    }

    /// A file lock.
    #[must_use]
    pub fn flock(policy: &FlockPolicy) -> Self {
        let last = u64::from(policy.padding) | u64::from(policy.pid) << 32;
        Self([policy.start, policy.end, policy.owner, last])
    }

    /// Read as an extent lock's.
    #[must_use]
    pub fn as_extent(&self) -> ExtentPolicy {
        ExtentPolicy { start: self.0[0], end: self.0[1], gid: self.0[2] }
    }

    /// Read as an inode-bits lock's.
    #[must_use]
    pub fn as_inode_bits(&self) -> InodeBitsPolicy {
        let [bits, try_bits, gid, last] = self.0;
        let (padding, initiator) = (last as u32, (last >> 32) as u32);
        InodeBitsPolicy { bits, try_bits, gid, padding, initiator }
    }

    /// Read as a file lock's.
    #[must_use]
    pub fn as_flock(&self) -> FlockPolicy {
        let [start, end, owner, last] = self.0;
        FlockPolicy { start, end, owner, padding: last as u32, pid: (last >> 32) as u32 }
    }
}

impl Wire for Policy {
    const SIZE: usize = 32;

    /// The last word is two halves in a lock of inode bits or a file lock, and nothing in an
    /// extent lock: reading it as halves keeps a big-endian peer's meaning.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [a, b, c] = <[u64; 3]>::decode(reader)?;
        let [low, high] = <[u32; 2]>::decode(reader)?;
        Ok(Self([a, b, c, u64::from(low) | u64::from(high) << 32]))
    }

    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}

/// `enum ldlm_mode` as a number; see [`LockMode::from_wire`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeNumber(pub u32);

impl ModeNumber {
    /// The mode, if it is a single known one.
    #[must_use]
    pub fn mode(self) -> Option<LockMode> {
        LockMode::from_wire(self.0)
    }
}

impl From<LockMode> for ModeNumber {
    fn from(mode: LockMode) -> Self {
        Self(mode as u32)
    }
}

impl Wire for ModeNumber {
    const SIZE: usize = 4;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u32::decode(reader).map(Self)
    }

    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}

wire_struct! {
    /// `struct ldlm_resource_desc`: what is locked.
    pub struct LdlmResourceDesc {
        /// By which rules.
        kind: LockType,
        /// Unused.
        padding: u32,
        /// The name.
        name: ResourceName,
    }
}

wire_struct! {
    /// `struct ldlm_lock_desc`: a lock as its other side sees it.
    pub struct LdlmLockDesc {
        /// What is locked.
        resource: LdlmResourceDesc,
        /// The mode asked for.
        req_mode: ModeNumber,
        /// The mode given; 0 while it waits.
        granted_mode: ModeNumber,
        /// Range, parts or owner.
        policy: Policy,
    }
}

/// Handles that a request has room for even if it carries fewer.
const REQUEST_HANDLES: usize = 2;

/// `struct ldlm_request`: a lock asked for, and locks cancelled with the same request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LdlmRequest {
    /// `LDLM_FL_*`.
    pub flags: LockFlags,
    /// How many of the handles count; an enqueue's own handle comes first.
    pub count: u32,
    /// The lock.
    pub desc: LdlmLockDesc,
    /// Handles, with zeros where the sender left room: at least two.
    pub handles: Vec<LockHandle>,
}

impl LdlmRequest {
    /// An enqueue of one lock that the client calls `handle`.
    #[must_use]
    pub fn enqueue(flags: LockFlags, desc: LdlmLockDesc, handle: LockHandle) -> Self {
        Self { flags, count: 1, desc, handles: vec![handle, LockHandle(0)] }
    }

    /// Cancels locks, by the server's handles.
    #[must_use]
    pub fn cancel(handles: Vec<LockHandle>) -> Self {
        let count = handles.len() as u32;
        let mut handles = handles;
        handles.resize(handles.len().max(REQUEST_HANDLES), LockHandle(0));
        Self { count, handles, ..Self::default() }
    }

    /// The handles that count.
    #[must_use]
    pub fn counted(&self) -> &[LockHandle] {
        &self.handles[..self.handles.len().min(self.count as usize)]
    }
}

impl Part for LdlmRequest {
    const SIZE_MIN: usize = 8 + LdlmLockDesc::SIZE + REQUEST_HANDLES * LockHandle::SIZE;

    fn decode_part(reader: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let flags = LockFlags::decode(reader)?;
        let count = u32::decode(reader)?;
        let desc = LdlmLockDesc::decode(reader)?;
        let room = reader.remaining() / LockHandle::SIZE;
        if room < REQUEST_HANDLES {
            return Err(DecodeError::Truncated { what });
        }
        if count as usize > room {
            return Err(DecodeError::Illegal { what: "lock_count", value: u64::from(count) });
        }
        let handles =
            (0..room).map(|_| LockHandle::decode(reader)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { flags, count, desc, handles })
    }

    fn encode_part(&self, writer: &mut Writer) {
        self.flags.encode(writer);
        self.count.encode(writer);
        self.desc.encode(writer);
        for handle in &self.handles {
            handle.encode(writer);
        }
        let missing = REQUEST_HANDLES.saturating_sub(self.handles.len());
        writer.zeros(missing * LockHandle::SIZE);
    }
}

wire_struct! {
    /// `struct ldlm_reply`: the lock as the server made it, and the intent's result.
    pub struct LdlmReply {
        /// `LDLM_FL_*`.
        flags: LockFlags,
        /// Unused.
        padding: u32,
        /// The lock.
        desc: LdlmLockDesc,
        /// The server's handle of the lock; 0 if none was made.
        handle: LockHandle,
        /// Intent: how far it got.
        policy_res1: Disposition,
        /// Intent: its error, as the negative errno in two's complement.
        policy_res2: u64,
    }
}

wire_struct! {
    /// `struct ldlm_intent`: what else an enqueue shall do.
    pub struct LdlmIntent {
        /// The operation.
        opc: IntentOp,
    }
}

/// `union ldlm_gl_desc`: what a glimpse callback carries besides the lock; 64 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LdlmGlDesc(pub crate::text::Chars<64>);

impl Wire for LdlmGlDesc {
    const SIZE: usize = 64;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        crate::text::Chars::decode(reader).map(Self)
    }

    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}
