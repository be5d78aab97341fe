//! What part of a resource a lock covers, and how a lock is described to its peers.

use std::fmt;

use sheen_types::{Extent, InodeBits, LockMode, ResourceName};

/// The kinds of locks (`enum ldlm_type`), with the wire's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// The whole resource: configuration and quota.
    Plain = 10,
    /// A byte range of an object.
    Extent = 11,
    /// A POSIX or BSD file lock of a process.
    Flock = 12,
    /// Parts of an inode.
    InodeBits = 13,
}

impl LockKind {
    /// All kinds.
    pub(crate) const ALL: [LockKind; 4] = [Self::Plain, Self::Extent, Self::Flock, Self::InodeBits];

    /// From the wire's number.
    #[must_use]
    pub fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// What a lock covers (`union ldlm_policy_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Everything.
    Plain,
    /// A byte range of an object.
    Extent {
        /// The bytes.
        extent: Extent,
        /// Which group a [`LockMode::Group`] lock belongs to; 0 otherwise.
        gid: u64,
    },
    /// Parts of an inode.
    InodeBits {
        /// Bits that the lock must have.
        bits: InodeBits,
        /// Bits that are granted too if no lock conflicts on them; none in a granted lock.
        try_bits: InodeBits,
        /// Which group a [`LockMode::Group`] lock (only with `DOM`) belongs to; 0 otherwise.
        gid: u64,
    },
    /// A file lock of a process.
    Flock {
        /// First byte.
        start: u64,
        /// Last byte, [`Extent::EOF`] for all that follow.
        end: u64,
        /// The owner: the same number from the same export is the same owner.
        owner: u64,
        /// The answer to `F_GETLK`.
        pid: u32,
    },
}

impl Policy {
    /// A byte range without a group.
    #[must_use]
    pub const fn extent(extent: Extent) -> Self {
        Self::Extent { extent, gid: 0 }
    }

    /// Inode bits, all needed.
    #[must_use]
    pub const fn bits(bits: InodeBits) -> Self {
        Self::InodeBits { bits, try_bits: InodeBits(0), gid: 0 }
    }

    /// The kind of lock this is the policy of.
    #[must_use]
    pub const fn kind(&self) -> LockKind {
        match self {
            Self::Plain => LockKind::Plain,
            Self::Extent { .. } => LockKind::Extent,
            Self::InodeBits { .. } => LockKind::InodeBits,
            Self::Flock { .. } => LockKind::Flock,
        }
    }

    /// The bytes of an extent lock or flock; everything for the other kinds.
    #[must_use]
    pub const fn range(&self) -> Extent {
        match self {
            Self::Extent { extent, .. } => *extent,
            Self::Flock { start, end, .. } => Extent { start: *start, end: *end },
            Self::Plain | Self::InodeBits { .. } => Extent::ALL,
        }
    }

    /// The bits of an inodebits lock; none for the other kinds.
    #[must_use]
    pub const fn inode_bits(&self) -> InodeBits {
        match self {
            Self::InodeBits { bits, .. } => *bits,
            _ => InodeBits(0),
        }
    }

    /// The group of a group lock.
    #[must_use]
    pub const fn gid(&self) -> u64 {
        match self {
            Self::Extent { gid, .. } | Self::InodeBits { gid, .. } => *gid,
            Self::Plain | Self::Flock { .. } => 0,
        }
    }
}

/// A lock as requests, replies and callbacks describe it (`struct ldlm_lock_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockDesc {
    /// What it is on.
    pub resource: ResourceName,
    /// What part of it.
    pub policy: Policy,
    /// What was asked for.
    pub requested: LockMode,
    /// What is held; `None` while it waits (0 on the wire).
    pub granted: Option<LockMode>,
}

/// What it is on, the mode granted and asked for, the part: `[0x200000401:0x3:0x0].0x0 PR/PR bits 0x13`.
impl fmt::Display for LockDesc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ", self.resource)?;
        match self.granted {
            Some(mode) => write!(out, "{mode}")?,
            None => out.write_str("--")?,
        }
        write!(out, "/{}", self.requested)?;
        match self.policy {
            Policy::Plain => Ok(()),
            Policy::Extent { extent, gid: 0 } => write!(out, " extent {extent}"),
            Policy::Extent { extent, gid } => write!(out, " extent {extent} gid {gid}"),
            Policy::InodeBits { bits, try_bits: InodeBits(0), .. } => {
                write!(out, " bits {:#x}", bits.0)
            }
            Policy::InodeBits { bits, try_bits, .. } => {
                write!(out, " bits {:#x} try {:#x}", bits.0, try_bits.0)
            }
            Policy::Flock { start, end, owner, pid } => {
                write!(out, " flock {start}-{end} owner {owner:#x} pid {pid}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::Fid;

    use super::*;

    #[test]
    fn a_lock_says_what_it_is_on_and_whether_it_waits() {
        let resource = ResourceName::of_fid(Fid::new(0x2_0000_0401, 3));
        let policy = Policy::bits(InodeBits(0x13));
        let mut desc =
            LockDesc { resource, policy, requested: LockMode::Pr, granted: Some(LockMode::Pr) };
        assert_eq!(desc.to_string(), format!("{resource} PR/PR bits 0x13"));
        (desc.policy, desc.granted) = (Policy::extent(Extent { start: 0, end: 9 }), None);
        assert_eq!(
            desc.to_string(),
            format!("{resource} --/PR extent {}", Extent { start: 0, end: 9 })
        );
    }
}
