//! A directory on an MDT that the caller chooses (`lfs mkdir -i`): Lustre's `LL_IOC_LMV_SETSTRIPE` on the parent.
//!
//! Lustre's call points to name and layout, which FUSE does not hand over. Ours has the same number, but for what it says
//! is handed over: the MDT, the mode, and the name with a NUL.
#![allow(unsafe_code, reason = "a call that has no safe name")]

use std::os::fd::AsFd;

use rustix::ioctl::{Setter, ioctl, opcode};
use sheen_types::{Errno, MdtIndex, Name};

const HEADER: usize = 8;
const BYTES: usize = HEADER + 256;
/// The number of the call.
pub(crate) const MAKE_DIRECTORY: u32 = opcode::write::<[u8; BYTES]>(b'f', 240);

/// What the call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryOn {
    pub(crate) mdt: MdtIndex,
    /// Permission bits; the umask is taken off already.
    pub(crate) mode: u32,
    pub(crate) name: Name,
}

impl DirectoryOn {
    /// Reads what was handed over.
    ///
    /// # Errors
    /// `EINVAL` for what is no MDT, mode and name.
    pub(crate) fn decode(data: &[u8]) -> Result<Self, Errno> {
        let data: &[u8; BYTES] = data.try_into().map_err(|_| Errno::EINVAL)?;
        let word =
            |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        let name = data[HEADER..].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self {
            mdt: u16::try_from(word(0)).map(MdtIndex).map_err(|_| Errno::EINVAL)?,
            mode: word(4) & 0o7777,
            name: Name::new(name).map_err(|_| Errno::EINVAL)?,
        })
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut data = [0; BYTES];
        data[..4].copy_from_slice(&u32::from(self.mdt.0).to_ne_bytes());
        data[4..HEADER].copy_from_slice(&self.mode.to_ne_bytes());
        // A name is shorter than its room.
        let name = self.name.as_bytes();
        data[HEADER..HEADER + name.len()].copy_from_slice(name);
        data
    }
}

/// Makes a directory in the one that is open, on the MDT of this index. The umask counts as the caller has applied it.
///
/// # Errors
/// As `mkdir(2)`; `ENODEV` for an MDT that there is not, `ENOTTY` where no mount of ours answers.
pub fn make_directory(
    parent: impl AsFd,
    name: &Name,
    mode: u32,
    mdt: MdtIndex,
) -> Result<(), Errno> {
    let data = DirectoryOn { mdt, mode, name: name.clone() }.encode();
    // SAFETY: by its number the call reads these bytes and nothing else, whatever file it is made on.
    let done = unsafe { ioctl(parent, Setter::<{ MAKE_DIRECTORY }, _>::new(data)) };
    done.map_err(|error| u16::try_from(error.raw_os_error()).map_or(Errno::EIO, Errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_comes_back_and_nothing_else_is_one() {
        assert_eq!(MAKE_DIRECTORY, 0x4108_66f0);
        let longest = Name::new(&[b'x'; 255]).expect("a name");
        let call = DirectoryOn { mdt: MdtIndex(3), mode: 0o750, name: longest };
        assert_eq!(DirectoryOn::decode(&call.encode()), Ok(call.clone()));
        assert_eq!(DirectoryOn::decode(&call.encode()[1..]), Err(Errno::EINVAL));
        let mut nameless = call.encode();
        nameless[HEADER] = 0;
        assert_eq!(DirectoryOn::decode(&nameless), Err(Errno::EINVAL));
        let mut above = call.encode();
        above[..4].copy_from_slice(&0x1_0000u32.to_ne_bytes());
        assert_eq!(DirectoryOn::decode(&above), Err(Errno::EINVAL));
    }
}
