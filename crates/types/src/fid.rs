//! File identifiers.

use std::fmt;
use std::str::FromStr;

/// `struct lu_fid`: names an object once and for all, on whichever target it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid {
    /// Sequence: a range of object numbers handed out by the sequence controller.
    pub seq: u64,
    /// Object number in the sequence.
    pub oid: u32,
    /// Version; 0 for all objects of current Lustre.
    pub ver: u32,
}

/// Sequence numbers with a fixed meaning (`enum fid_seq`).
pub mod fid_seq {
    /// OST objects of MDT0000 under their old names (id in an `ost_id`, group 0).
    pub const OST_MDT0: u64 = 0;
    /// `FID_SEQ_LLOG`.
    pub const LLOG: u64 = 1;
    /// `FID_SEQ_ECHO`.
    pub const ECHO: u64 = 2;
    /// First sequence of the OST objects of other MDTs.
    pub const OST_MDT1: u64 = 3;
    /// `FID_SEQ_LLOG_NAME`: logs known by name.
    pub const LLOG_NAME: u64 = 10;
    /// `FID_SEQ_IDIF`: OST objects of MDT0000 written as FIDs.
    pub const IDIF: u64 = 0x1_0000_0000;
    /// Last IDIF sequence.
    pub const IDIF_MAX: u64 = 0x1_ffff_ffff;
    /// `FID_SEQ_START`: local and special objects from here.
    pub const START: u64 = 0x2_0000_0000;
    /// `FID_SEQ_LOCAL_FILE`.
    pub const LOCAL_FILE: u64 = 0x2_0000_0001;
    /// `FID_SEQ_DOT_LUSTRE`.
    pub const DOT_LUSTRE: u64 = 0x2_0000_0002;
    /// `FID_SEQ_ROOT`.
    pub const ROOT: u64 = 0x2_0000_0007;
    /// `FID_SEQ_NORMAL`: what the sequence controller gives out from here.
    pub const NORMAL: u64 = 0x2_0000_0400;
}

impl Fid {
    /// No object.
    pub const ZERO: Fid = Fid { seq: 0, oid: 0, ver: 0 };
    /// The root directory of every file system (`FID_SEQ_ROOT`, 1).
    pub const ROOT: Fid = Fid { seq: fid_seq::ROOT, oid: 1, ver: 0 };
    /// `.lustre` (`FID_SEQ_DOT_LUSTRE`, 1).
    pub const DOT_LUSTRE: Fid = Fid { seq: fid_seq::DOT_LUSTRE, oid: 1, ver: 0 };
    /// `.lustre/fid` (`FID_SEQ_DOT_LUSTRE`, 2).
    pub const DOT_LUSTRE_FID: Fid = Fid { seq: fid_seq::DOT_LUSTRE, oid: 2, ver: 0 };

    /// An object of version 0.
    #[must_use]
    pub const fn new(seq: u64, oid: u32) -> Self {
        Self { seq, oid, ver: 0 }
    }

    /// Whether this names no object.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Whether the sequence controller gave this out (`fid_seq_is_norm`).
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.seq >= fid_seq::NORMAL
    }

    /// Whether this is an inode of an MDT, which a client may ask for there (`fid_is_md_operative`, roughly: normal, root
    /// or below `.lustre`); not one of the indexes that an MDT has for itself.
    #[must_use]
    pub fn is_of_mdt(&self) -> bool {
        self.is_normal() || self.seq == fid_seq::ROOT || self.seq == fid_seq::DOT_LUSTRE
    }

    /// Whether this is an OST object of MDT0000 under its old name (`fid_is_idif`).
    #[must_use]
    pub fn is_idif(&self) -> bool {
        (fid_seq::IDIF..=fid_seq::IDIF_MAX).contains(&self.seq)
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

/// The text is no FID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseFidError;

impl fmt::Display for ParseFidError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not a FID: expected [0xSEQ:0xOID:0xVER]")
    }
}

impl std::error::Error for ParseFidError {}

impl FromStr for Fid {
    type Err = ParseFidError;

    /// Takes the brackets or leaves them, numbers in hex (`0x`) or decimal, as `lfs` does.
    fn from_str(text: &str) -> Result<Self, ParseFidError> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let mut parts = inner.split(':').map(number);
        let mut next = || parts.next().flatten().ok_or(ParseFidError);
        let (seq, oid, ver) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(ParseFidError);
        }
        let narrow = |wide: u64| u32::try_from(wide).map_err(|_| ParseFidError);
        Ok(Self { seq, oid: narrow(oid)?, ver: narrow(ver)? })
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Fid, ParseFidError};

    #[test]
    fn text_and_back() {
        let fid = Fid { seq: 0x2_0000_0401, oid: 0x1f, ver: 0 };
        assert_eq!(fid.to_string(), "[0x200000401:0x1f:0x0]");
        assert_eq!("[0x200000401:0x1f:0x0]".parse(), Ok(fid));
        assert_eq!("0x200000401:0x1f:0x0".parse(), Ok(fid));
        for bad in ["", "[]", "[1:2]", "[1:2:3:4]", "[0x1:0x100000000:0]", "[x:1:1]"] {
            assert_eq!(bad.parse::<Fid>(), Err(ParseFidError), "{bad}");
        }
    }
}
