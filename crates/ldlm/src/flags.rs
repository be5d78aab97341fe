//! The flags of lock requests, replies and callbacks.

use std::ops::BitOr;

use sheen_wire::ldlm::LockFlags as WireFlags;

/// `LDLM_FL_*`, as the lock manager knows them: with Lustre's own values. Flags that never cross the wire
/// ([`WireFlags`]) lie above bit 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockFlags(pub u64);

impl LockFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Reply: mode, extent or resource differ from what was asked for.
    pub const LOCK_CHANGED: Self = Self(0x1);
    /// Replay: the lock was granted before, grant it without asking. Reply: see `BLOCK_WAIT`.
    pub const BLOCK_GRANTED: Self = Self(0x2);
    /// Replay: the lock was waiting. Reply: the lock is on the waiting list.
    pub const BLOCK_WAIT: Self = Self(0x8);
    /// Lock ahead: fail with `EAGAIN` on any conflict, revoke nothing.
    pub const SPECULATIVE: Self = Self(0x10);
    /// In a reply or completion callback: a blocking callback is due at once, so cancel as soon as
    /// the lock's user is done.
    pub const AST_SENT: Self = Self(0x20);
    /// This enqueue re-creates, after a server restart, a lock that the client holds.
    pub const REPLAY: Self = Self(0x100);
    /// Run the intent, take no lock.
    pub(crate) const INTENT_ONLY: Self = Self(0x200);
    /// The request carries an intent.
    pub const HAS_INTENT: Self = Self(0x1000);
    /// Completion of a flock that would have made a circle: it failed with `EDEADLK`.
    pub(crate) const FLOCK_DEADLOCK: Self = Self(0x8000);
    /// Callback: discard dirty data, the object is about to be destroyed.
    pub(crate) const DISCARD_DATA: Self = Self(0x1_0000);
    /// Reply: wait for the completion callback without a timeout.
    pub(crate) const NO_TIMEOUT: Self = Self(0x2_0000);
    /// Fail with `EAGAIN` instead of waiting for a group lock or a flock.
    pub const BLOCK_NOWAIT: Self = Self(0x4_0000);
    /// Only return a conflicting lock (`F_GETLK`).
    pub const TEST_LOCK: Self = Self(0x8_0000);
    /// The lock is to be cancelled, not kept, when it is revoked.
    pub(crate) const CANCEL_ON_BLOCK: Self = Self(0x80_0000);
    /// Grant what was asked for, no wider extent.
    pub const NO_EXPANSION: Self = Self(0x2000_0000);
    /// Fail instead of waiting on a contended resource (Lustre no longer sends it).
    pub(crate) const DENY_ON_CONTENTION: Self = Self(0x4000_0000);
    /// Enqueue: the blocking callbacks that this request causes carry `DISCARD_DATA`.
    pub const AST_DISCARD_DATA: Self = Self(0x8000_0000);

    /// Ours: any conflict answers [`crate::server::Enqueued::WouldBlock`] and leaves no trace, no
    /// callback is sent. For try-locks of the server and for glimpses.
    pub const TRY: Self = Self(1 << 40);

    /// What an enqueue request's `lock_flags` may say; other bits are dropped
    /// (`LDLM_FL_WIRE_REQ_FLAGS_MASK`).
    #[must_use]
    pub const fn from_request(flags: WireFlags) -> Self {
        const REQUEST: u64 = LockFlags::BLOCK_GRANTED.0
            | LockFlags::BLOCK_WAIT.0
            | LockFlags::SPECULATIVE.0
            | LockFlags::REPLAY.0
            | LockFlags::INTENT_ONLY.0
            | LockFlags::HAS_INTENT.0
            | LockFlags::BLOCK_NOWAIT.0
            | LockFlags::TEST_LOCK.0
            | LockFlags::CANCEL_ON_BLOCK.0
            | LockFlags::NO_EXPANSION.0
            | LockFlags::DENY_ON_CONTENTION.0
            | LockFlags::AST_DISCARD_DATA.0;
        Self(flags.0 as u64 & REQUEST)
    }

    /// What a server's reply or callback says.
    #[must_use]
    pub const fn from_server(flags: WireFlags) -> Self {
        Self(flags.0 as u64)
    }

    /// As messages carry them; our own flags are left out.
    #[must_use]
    pub const fn to_wire(self) -> WireFlags {
        WireFlags(self.0 as u32)
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    #[must_use]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` if `condition`, else no flag.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl BitOr for LockFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}
