//! How messages describe a lock (`struct ldlm_lock_desc`), for the server and the client alike.
//!
//! What a peer describes may be no lock at all. Which errno that makes is up to the side that reads it: a server
//! answers an enqueue of no known kind or mode with `EFAULT`, as Lustre's does (`ldlm_handle_enqueue`); to a client it
//! is a server that breaks the protocol, `EPROTO`.

use sheen_types::{Extent, InodeBits, LockMode};
use sheen_wire::ldlm::{
    ExtentPolicy, FlockPolicy, InodeBitsPolicy, LdlmLockDesc, LdlmResourceDesc, LockType,
    ModeNumber, Policy as WirePolicy,
};

use crate::{LockDesc, LockKind, Policy};

impl LockDesc {
    /// As messages describe it.
    #[must_use]
    pub fn to_wire(&self) -> LdlmLockDesc {
        LdlmLockDesc {
            resource: LdlmResourceDesc {
                kind: LockType(self.policy.kind() as u32),
                padding: 0,
                name: self.resource,
            },
            req_mode: self.requested.into(),
            granted_mode: self.granted.map(Into::into).unwrap_or_default(),
            policy: self.policy.to_wire(),
        }
    }

    /// The lock that a message describes; `None` if there is no such kind or mode. An unknown granted mode would
    /// otherwise read as a lock that waits, and be waited for.
    #[must_use]
    pub fn from_wire(desc: &LdlmLockDesc) -> Option<Self> {
        let granted = match desc.granted_mode {
            ModeNumber(0) => None,
            mode => Some(mode.mode()?),
        };
        let (policy, requested) = Self::wanted_from_wire(desc)?;
        Some(Self { resource: desc.resource.name, policy, requested, granted })
    }

    /// What an enqueue asks for: which part and which mode. What it says of a mode granted is not looked at.
    #[must_use]
    pub fn wanted_from_wire(desc: &LdlmLockDesc) -> Option<(Policy, LockMode)> {
        let kind = LockKind::from_wire(desc.resource.kind.0)?;
        Some((Policy::from_wire(kind, &desc.policy), desc.req_mode.mode()?))
    }
}

impl Policy {
    fn to_wire(self) -> WirePolicy {
        match self {
            Self::Plain => WirePolicy::default(),
            Self::Extent { extent: Extent { start, end }, gid } => {
                WirePolicy::extent(&ExtentPolicy { start, end, gid })
            }
            Self::InodeBits { bits, try_bits, gid } => WirePolicy::inode_bits(&InodeBitsPolicy {
                bits: bits.0,
                try_bits: try_bits.0,
                gid,
                ..InodeBitsPolicy::default()
            }),
            Self::Flock { start, end, owner, pid } => {
                WirePolicy::flock(&FlockPolicy { start, end, owner, pid, padding: 0 })
            }
        }
    }

    fn from_wire(kind: LockKind, policy: &WirePolicy) -> Self {
        match kind {
            LockKind::Plain => Self::Plain,
            LockKind::Extent => {
                let ExtentPolicy { start, end, gid } = policy.as_extent();
                Self::Extent { extent: Extent { start, end }, gid }
            }
            LockKind::InodeBits => {
                let InodeBitsPolicy { bits, try_bits, gid, .. } = policy.as_inode_bits();
                Self::InodeBits { bits: InodeBits(bits), try_bits: InodeBits(try_bits), gid }
            }
            LockKind::Flock => {
                let FlockPolicy { start, end, owner, pid, .. } = policy.as_flock();
                Self::Flock { start, end, owner, pid }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::{Fid, ResourceName};

    use super::*;

    fn policies() -> [Policy; 4] {
        let extent = Extent { start: 4_096, end: 8_191 };
        let (bits, try_bits) = (InodeBits::LOOKUP | InodeBits::UPDATE, InodeBits::LAYOUT);
        [
            Policy::Plain,
            Policy::Extent { extent, gid: 3 },
            Policy::InodeBits { bits, try_bits, gid: 5 },
            Policy::Flock { start: 1, end: Extent::EOF, owner: 7, pid: 9 },
        ]
    }

    #[test]
    fn every_kind_of_lock_is_read_as_it_was_written() {
        let resource = ResourceName::of_fid(Fid::new(0x2_0000_0401, 3));
        for policy in policies() {
            for granted in [None, Some(LockMode::Cr)] {
                let desc = LockDesc { resource, policy, requested: LockMode::Pw, granted };
                assert_eq!(LockDesc::from_wire(&desc.to_wire()), Some(desc));
            }
        }
    }

    #[test]
    fn a_kind_or_mode_that_does_not_exist_is_no_lock() {
        let described = |kind, requested, granted| {
            let resource = LdlmResourceDesc { kind, ..LdlmResourceDesc::default() };
            let (req_mode, granted_mode) = (ModeNumber(requested), ModeNumber(granted));
            LdlmLockDesc { resource, req_mode, granted_mode, ..LdlmLockDesc::default() }
        };
        let granted = |desc| LockDesc::from_wire(&desc).map(|lock| lock.granted);
        assert_eq!(granted(described(LockType::IBITS, 16, 0)), Some(None));
        assert_eq!(granted(described(LockType::IBITS, 16, 16)), Some(Some(LockMode::Cr)));
        assert_eq!(granted(described(LockType::IBITS, 16, 8_976)), None);
        assert_eq!(granted(described(LockType::IBITS, 3, 0)), None);
        assert_eq!(granted(described(LockType(14), 16, 0)), None);
        let asked = LockDesc::wanted_from_wire(&described(LockType::PLAIN, 16, 8_976));
        assert_eq!(asked, Some((Policy::Plain, LockMode::Cr)));
    }
}
