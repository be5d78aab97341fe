//! Numbers that must never be taken for each other.

use std::fmt;

macro_rules! numbers {
    ($($(#[$meta:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, out)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, out)
            }
        }
    )*};
}

numbers! {
    /// Identifies one request of one client node; replies and bulk are matched by it.
    Xid(u64);
    /// Position of a modifying operation in a target's history. 0: the operation changed nothing.
    Transno(u64);
    /// A lock's handle as the client or target gave it out that knows it by that (`struct lustre_handle`). 0: none.
    LockHandle(u64);
    /// An open file's, export's or import's handle (`struct lustre_handle`). 0: none.
    ObdHandle(u64);
    /// LNet match bits of a message or match entry.
    MatchBits(u64);
    /// A layout's or connection's generation.
    Generation(u32);
    /// Which MDT of a file system.
    MdtIndex(u16);
    /// Lamport's, over all MDTs of a file system: larger for a change that depends on another. 0 where there is one MDT.
    LogicalTime(u64);
}

impl Xid {
    /// The xid that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
