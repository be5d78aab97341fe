//! Names: of directory entries, of targets, and the 40-byte UUIDs that connects carry.

use std::fmt;
use std::str::FromStr;

use crate::limits::NAME_BYTES_MAX;

/// A legal directory entry: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// Why bytes are no [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No byte at all.
    Empty,
    /// More than 255 bytes.
    TooLong,
    /// A `/` or NUL inside, or `.` or `..`.
    Illegal,
}

impl Name {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes {
            [] => Err(NameError::Empty),
            _ if bytes.len() > NAME_BYTES_MAX => Err(NameError::TooLong),
            b"." | b".." => Err(NameError::Illegal),
            _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameError::Illegal),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// The bytes, without a terminating NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Empty => "an empty name",
            Self::TooLong => "a name of more than 255 bytes",
            Self::Illegal => "a name that is `.`, `..`, or has a `/` or NUL",
        })
    }
}

impl std::error::Error for NameError {}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// `struct obd_uuid`: up to 39 bytes of text, NUL-padded to 40 on the wire.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(String);

impl Uuid {
    /// The text, cut at 39 bytes' worth of characters. Control characters, which no UUID has, become `?`: it
    /// is written into logs.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.chars().any(char::is_control) {
            text = text.replace(char::is_control, "?");
        }
        while text.len() > 39 {
            text.pop();
        }
        Self(text)
    }

    /// A client's UUID from 16 random bytes, in the usual 8-4-4-4-12 form.
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Self(parts.join("-"))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// `FSNAME-MDTxxxx` or `FSNAME-OSTxxxx`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName {
    /// 1 to 8 letters, digits, `-` or `_`.
    pub fsname: String,
    /// MDT or OST.
    pub kind: TargetKind,
    /// Number of the target among those of its kind.
    pub index: u16,
}

impl TargetName {
    /// The UUID under which the target answers: its name and `_UUID`.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        Uuid::new(format!("{self}_UUID"))
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            TargetKind::Mdt => "MDT",
            TargetKind::Ost => "OST",
        };
        write!(out, "{}-{kind}{:04x}", self.fsname, self.index)
    }
}

impl FromStr for TargetName {
    type Err = NameError;

    /// Takes the name with or without `_UUID` behind it.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix("_UUID").unwrap_or(text);
        let (fsname, rest) = text.rsplit_once('-').ok_or(NameError::Illegal)?;
        let (kind, hex) = match rest.split_at_checked(3) {
            Some(("MDT", hex)) => (TargetKind::Mdt, hex),
            Some(("OST", hex)) => (TargetKind::Ost, hex),
            _ => return Err(NameError::Illegal),
        };
        let index = u16::from_str_radix(hex, 16).map_err(|_| NameError::Illegal)?;
        Ok(Self { fsname: fsname.to_owned(), kind, index })
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, NameError, TargetName};

    #[test]
    fn illegal_names_are_refused() {
        assert!(Name::new(b"a.b").is_ok());
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong));
        assert_eq!(Name::new(b""), Err(NameError::Empty));
        for bad in [&b"."[..], b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(NameError::Illegal));
        }
    }

    #[test]
    fn target_names_and_uuids() {
        let name: TargetName = "lustre-OST000f_UUID".parse().unwrap();
        assert_eq!((name.index, name.to_string().as_str()), (15, "lustre-OST000f"));
        assert_eq!(name.uuid().as_str(), "lustre-OST000f_UUID");
        assert!("lustre".parse::<TargetName>().is_err());
    }
}
