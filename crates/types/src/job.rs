//! Whose work something is: what `jobid_var` makes of the process that asked.

use std::fmt;

/// Bytes of a job's name in a message, the NUL behind it included (`LUSTRE_JOBID_SIZE`).
const BYTES: usize = 32;

/// The name of a job, as requests carry it. Small and copied around: it goes with every call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId([u8; BYTES]);

impl JobId {
    /// Bytes of a name, at most.
    pub const LENGTH_MAX: usize = BYTES - 1;

    /// The job of this name, cut to what fits into a message; `None` if it is empty, which stands for no job.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let length = length.min(Self::LENGTH_MAX);
        let mut bytes = [0; BYTES];
        bytes[..length].copy_from_slice(&name[..length]);
        (length > 0).then_some(Self(bytes))
    }

    /// The name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(BYTES);
        &self.0[..length]
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::JobId;

    #[test]
    fn names_are_cut_and_none_is_no_job() {
        let name = |text: &[u8]| JobId::new(text).map(|job| job.as_bytes().to_vec());
        assert_eq!(name(b"dd.0").as_deref(), Some(&b"dd.0"[..]));
        assert_eq!(name(b"dd\0x").as_deref(), Some(&b"dd"[..]));
        assert_eq!(name(&[b'x'; 40]), Some(vec![b'x'; 31]));
        assert_eq!((name(b""), name(b"\0")), (None, None));
    }
}
