//! The lock that an enqueue of any kind asks for.

use sheen_ldlm::{LockDesc, Policy};
use sheen_types::{Errno, InodeBits, LockHandle, LockMode, ResourceName};
use sheen_wire::ldlm::{LdlmRequest, LockFlags as WireFlags};

/// The lock that an enqueue asks for.
#[derive(Clone, Copy, Debug)]
pub struct EnqueueRequest {
    /// On what.
    pub resource: ResourceName,
    /// How strong.
    pub mode: LockMode,
    /// Which part.
    pub policy: Policy,
    /// Its handle at the client.
    pub remote_handle: LockHandle,
    /// What the client said about it.
    pub flags: WireFlags,
    /// Whether it may wait. A part of a batch may not: the client has locks from the parts before it, which
    /// it cannot cancel before it has the answer to all.
    pub waits: bool,
}

impl EnqueueRequest {
    /// What an enqueue of any kind asks for, from a client with which these inode bits were agreed on
    /// ([`known_bits`](crate::Export::known_bits)).
    ///
    /// # Errors
    /// [`Errno::EFAULT`] for a kind or mode that is none, [`Errno::EPROTO`] for bits of which none is known.
    pub fn of(lock: &LdlmRequest, known: InodeBits) -> Result<Self, Errno> {
        let (policy, mode) = LockDesc::wanted_from_wire(&lock.desc).ok_or(Errno::EFAULT)?;
        let policy = of_known_bits(policy, mode, known)?;
        Ok(Self {
            resource: lock.desc.resource.name,
            mode,
            policy,
            remote_handle: lock.handles.first().copied().unwrap_or_default(),
            flags: lock.flags,
            waits: true,
        })
    }
}

/// A policy of bits that are known, and without a group where none is asked for. Each combination of these is a group of
/// its own among the granted locks of an inode, and each check for conflicts looks at all groups. A client that did not
/// agree on a bit does not know what it covers, and may be one that only claims not to know.
fn of_known_bits(policy: Policy, mode: LockMode, known: InodeBits) -> Result<Policy, Errno> {
    let Policy::InodeBits { bits, try_bits, gid } = policy else { return Ok(policy) };
    let known = |bits: InodeBits| bits.intersection(known);
    let asked = bits.union(try_bits);
    if !asked.is_empty() && known(asked).is_empty() {
        return Err(Errno::EPROTO);
    }
    let gid = if mode == LockMode::Group { gid } else { 0 };
    Ok(Policy::InodeBits { bits: known(bits), try_bits: known(try_bits), gid })
}

#[cfg(test)]
mod tests {
    use sheen_wire::ldlm::{
        InodeBitsPolicy, LdlmLockDesc, LdlmResourceDesc, LockType, Policy as WirePolicy,
    };

    use super::*;

    /// One of four locks that differ in meaningless bits and groups alone was a group of its own each.
    #[test]
    fn a_client_asks_for_no_bits_that_mean_nothing() {
        let of = |bits, try_bits, gid, mode: LockMode, bits_known| {
            let resource = LdlmResourceDesc { kind: LockType::IBITS, ..Default::default() };
            let policy = InodeBitsPolicy { bits, try_bits, gid, ..Default::default() };
            let policy = WirePolicy::inode_bits(&policy);
            let desc =
                LdlmLockDesc { resource, policy, req_mode: mode.into(), ..Default::default() };
            let request = LdlmRequest::enqueue(WireFlags::NONE, desc, LockHandle(1));
            EnqueueRequest::of(&request, bits_known).map(|asked| asked.policy)
        };
        let old = InodeBits::ALL.without(InodeBits::DOM);
        let ask = |bits, try_bits, gid, mode| of(bits, try_bits, gid, mode, InodeBits::ALL);
        let known = |bits, try_bits, gid| {
            let (bits, try_bits) = (InodeBits(bits), InodeBits(try_bits));
            Ok(Policy::InodeBits { bits, try_bits, gid })
        };
        assert_eq!(ask(0x7f, 0, 0, LockMode::Pr), known(0x7f, 0, 0));
        assert_eq!(ask(1 << 63 | 0x83, 0x180, 0, LockMode::Pr), known(3, 0, 0));
        assert_eq!(ask(0x80, 0x102, 0, LockMode::Pr), known(0, 2, 0));
        assert_eq!(ask(0x80, 0x100, 0, LockMode::Pr), Err(Errno::EPROTO));
        assert_eq!(
            ask(0, 0, 0, LockMode::Pr),
            known(0, 0, 0),
            "an intent that leaves them to the server"
        );
        assert_eq!(ask(2, 0, 77, LockMode::Pr), known(2, 0, 0), "no group lock");
        assert_eq!(ask(0x40, 0, 77, LockMode::Group), known(0x40, 0, 77));
        // Nor such as were not agreed on with it.
        assert_eq!(of(0x43, 0x44, 0, LockMode::Pr, old), known(3, 4, 0));
        assert_eq!(of(0x40, 0, 7, LockMode::Group, old), Err(Errno::EPROTO));
    }
}
