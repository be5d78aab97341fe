//! The words of lock requests.

use std::fmt;

use crate::Fid;

/// `enum ldlm_mode`: what a lock permits its holder, and forbids other holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Exclusive: open|create of a file being made.
    Ex = 1,
    /// Protective write: writing data, changing a directory on the server.
    Pw = 2,
    /// Protective read: reading data, listing a directory.
    Pr = 4,
    /// Concurrent write.
    Cw = 8,
    /// Concurrent read: looking at an inode.
    Cr = 16,
    /// Null: compatible with all but a group lock's creation.
    Nl = 32,
    /// Group lock: many writers that know what they do.
    Group = 64,
}

impl LockMode {
    /// All modes, strongest first.
    pub const ALL: [LockMode; 7] =
        [Self::Ex, Self::Pw, Self::Pr, Self::Cw, Self::Cr, Self::Nl, Self::Group];

    /// From the wire's number; `None` for a number that is no single mode.
    #[must_use]
    pub fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u32 == number)
    }

    /// Whether two different owners may hold these on the same resource at once
    /// (`lck_compat_array`).
    #[must_use]
    pub fn compatible(self, other: LockMode) -> bool {
        let allowed = match self {
            Self::Ex => Self::Nl as u32,
            Self::Pw => Self::Cr as u32 | Self::Nl as u32,
            Self::Pr => Self::Pr as u32 | Self::Cr as u32 | Self::Nl as u32,
            Self::Cw => Self::Cw as u32 | Self::Cr as u32 | Self::Nl as u32,
            Self::Cr => {
                Self::Pw as u32
                    | Self::Pr as u32
                    | Self::Cw as u32
                    | Self::Cr as u32
                    | Self::Nl as u32
            }
            Self::Nl => !0,
            Self::Group => Self::Group as u32 | Self::Nl as u32,
        };
        allowed & other as u32 != 0
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ex => "EX",
            Self::Pw => "PW",
            Self::Pr => "PR",
            Self::Cw => "CW",
            Self::Cr => "CR",
            Self::Nl => "NL",
            Self::Group => "GROUP",
        })
    }
}

/// `MDS_INODELOCK_*`: the parts of an inode that one lock covers. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeBits(pub u64);

impl InodeBits {
    /// Name and permission: a dentry may be kept.
    pub const LOOKUP: InodeBits = InodeBits(0x01);
    /// Attributes: size of directories, times, link count; a directory's pages.
    pub const UPDATE: InodeBits = InodeBits(0x02);
    /// An open handle may be kept.
    pub const OPEN: InodeBits = InodeBits(0x04);
    /// The layout.
    pub const LAYOUT: InodeBits = InodeBits(0x08);
    /// Permission bits, owner, group, ACL.
    pub const PERM: InodeBits = InodeBits(0x10);
    /// Extended attributes.
    pub const XATTR: InodeBits = InodeBits(0x20);
    /// Data of a file on the MDT.
    pub const DOM: InodeBits = InodeBits(0x40);
    /// All that there are (`MDS_INODELOCK_FULL`).
    pub const ALL: InodeBits = InodeBits(0x7f);

    /// The bits that are in both.
    #[must_use]
    pub const fn intersection(self, other: InodeBits) -> InodeBits {
        InodeBits(self.0 & other.0)
    }

    /// Whether all of `other` is in.
    #[must_use]
    pub const fn contains(self, other: InodeBits) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in.
    #[must_use]
    pub const fn intersects(self, other: InodeBits) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both together.
    #[must_use]
    pub const fn union(self, other: InodeBits) -> InodeBits {
        InodeBits(self.0 | other.0)
    }

    /// Without those of `other`.
    #[must_use]
    pub const fn without(self, other: InodeBits) -> InodeBits {
        InodeBits(self.0 & !other.0)
    }

    /// No bit at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for InodeBits {
    type Output = InodeBits;

    fn bitor(self, other: InodeBits) -> InodeBits {
        self.union(other)
    }
}

/// `struct ldlm_res_id`: what a lock is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(pub [u64; 4]);

impl ResourceName {
    /// `LDLM_FLOCK`.
    const FLOCK: u64 = 12;

    /// The resource of an inode on an MDT (`fid_build_reg_res_name`).
    #[must_use]
    pub fn of_fid(fid: Fid) -> Self {
        Self([fid.seq, u64::from(fid.oid) | u64::from(fid.ver) << 32, 0, 0])
    }

    /// The resource of an inode's file locks on an MDT: the same with `LDLM_FLOCK` at its end.
    #[must_use]
    pub fn of_flocks(fid: Fid) -> Self {
        let [sequence, object, version, _] = Self::of_fid(fid).0;
        Self([sequence, object, version, Self::FLOCK])
    }

    /// Whether it is one of file locks.
    #[must_use]
    pub fn is_of_flocks(&self) -> bool {
        self.0[3] == Self::FLOCK
    }

    /// The FID of a resource made by [`ResourceName::of_fid`].
    #[must_use]
    pub fn fid(&self) -> Fid {
        Fid { seq: self.0[0], oid: self.0[1] as u32, ver: (self.0[1] >> 32) as u32 }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(out, "[{a:#x}:{b:#x}:{c:#x}].{d:#x}")
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode;

    #[test]
    fn compatibility_is_symmetric() {
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                assert_eq!(a.compatible(b), b.compatible(a), "{a} {b}");
            }
        }
        assert!(!LockMode::Ex.compatible(LockMode::Cr));
        assert!(LockMode::Pw.compatible(LockMode::Cr));
        assert!(!LockMode::Pw.compatible(LockMode::Pr));
    }
}
