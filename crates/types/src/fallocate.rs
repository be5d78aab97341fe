//! What fallocate(2) does.

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// What fallocate(2) does to a range of bytes. OST_FALLOCATE brings the same modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Reserves space; the file grows.
    Allocate,
    /// Reserves space (`FALLOC_FL_KEEP_SIZE`).
    AllocateKeepSize,
    /// Frees space; what was there reads as zeros (`FALLOC_FL_PUNCH_HOLE`, with `FALLOC_FL_KEEP_SIZE`).
    PunchHole,
    /// Zeros, with space; the file grows (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// Zeros, with space (`FALLOC_FL_ZERO_RANGE` and `FALLOC_FL_KEEP_SIZE`).
    ZeroRangeKeepSize,
}

impl Fallocate {
    /// Every one of them.
    pub const ALL: [Self; 5] = [
        Self::Allocate,
        Self::AllocateKeepSize,
        Self::PunchHole,
        Self::ZeroRange,
        Self::ZeroRangeKeepSize,
    ];

    /// What `mode` means; `None` for what Lustre does not have. A hole never changes the size, whether or
    /// not the mode says so: Linux demands the bit, Lustre's OST does not (`ofd_fallocate_hdl`).
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Self> {
        let mode = if mode == PUNCH_HOLE { PUNCH_HOLE | KEEP_SIZE } else { mode };
        Self::ALL.into_iter().find(|what| what.mode() == mode)
    }

    /// The mode of fallocate(2).
    #[must_use]
    pub const fn mode(self) -> u32 {
        match self {
            Self::Allocate => 0,
            Self::AllocateKeepSize => KEEP_SIZE,
            Self::PunchHole => PUNCH_HOLE | KEEP_SIZE,
            Self::ZeroRange => ZERO_RANGE,
            Self::ZeroRangeKeepSize => ZERO_RANGE | KEEP_SIZE,
        }
    }

    /// Whether the file is no larger afterwards.
    #[must_use]
    pub const fn keeps_size(self) -> bool {
        self.mode() & KEEP_SIZE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_mean_what_linux_says() {
        let modes = [
            (0, Fallocate::Allocate),
            (1, Fallocate::AllocateKeepSize),
            (3, Fallocate::PunchHole),
            (0x10, Fallocate::ZeroRange),
            (0x11, Fallocate::ZeroRangeKeepSize),
        ];
        for (mode, what) in modes {
            assert_eq!((Fallocate::of_mode(mode), what.mode()), (Some(what), mode));
        }
        assert_eq!(Fallocate::of_mode(2), Some(Fallocate::PunchHole), "as Lustre's OST takes it");
        for mode in [4, 8, 0x12, 0x13, 0x20, 0x40, 0x8000_0000] {
            assert_eq!(Fallocate::of_mode(mode), None, "mode {mode:#x}");
        }
    }
}
