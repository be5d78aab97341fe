//! Directories on MDTs that the caller chooses, by calls on the directory that they are in: made, split or merged (`lfs mkdir`,
//! `lfs setdirstripe`: Lustre's `LL_IOC_LMV_SETSTRIPE`), moved (`lfs migrate -m`: `LL_IOC_MIGRATE`); and bare names removed
//! (`lfs rm_entry`: `LL_IOC_REMOVE_ENTRY`).
//!
//! Lustre's calls point to name and layout, which FUSE does not hand over. Ours have the same numbers, but for how much they say
//! is handed over: a word, the name with a NUL, and the wish (`lmv_user_md`, with the MDTs that it lists). Lustre's end
//! of a move is a `setxattr` of the directory; here it is such a call, too, for which the kernel holds no lock of it while the
//! mount has the kernel drop names in it.
#![allow(unsafe_code, reason = "a call that has no safe name")]

use std::os::fd::AsFd;

use bytes::Bytes;
use rustix::ioctl::{Setter, ioctl, opcode};
use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, Name};
use sheen_wire::lmv::LmvEa;

/// Mode and the bytes of the wish.
const HEADER: usize = 8;
const NAME: usize = HEADER + 256;
/// Room for a wish that lists 64 MDTs: 48 bytes, and 24 for each.
const WISH_BYTES_MAX: usize = 48 + 64 * 24;
const BYTES: usize = NAME + WISH_BYTES_MAX;
/// The numbers of the calls.
pub(crate) const MAKE_DIRECTORY: u32 = opcode::write::<[u8; BYTES]>(b'f', 240);
pub(crate) const MIGRATE: u32 = opcode::write::<[u8; BYTES]>(b'f', 247);
pub(crate) const REMOVE_ENTRY: u32 = opcode::write::<[u8; BYTES]>(b'f', 251);
/// Beside the mode: a directory that is there is split or merged.
const RESTRIPES: u32 = 1 << 31;
/// In the place of the mode, of a move: names of directories alone (`MDS_MIGRATE_NSONLY`), and its end.
const NAMES_ONLY: u32 = 1;
const ENDS: u32 = 2;

/// What a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewDirectory {
    pub(crate) wish: DirectoryWish,
    /// Permission bits, of which the umask is taken off already, and flags of the call.
    mode: u32,
    pub(crate) name: Name,
}

/// How a name moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveName {
    /// With its inode.
    Whole,
    /// A directory with its name alone.
    NameOnly,
    /// All names of the directory were moved: its move ends.
    End,
}

impl NewDirectory {
    /// Reads what was handed over.
    ///
    /// # Errors
    /// `EINVAL` for what is no wish, mode and name.
    pub(crate) fn decode(data: &[u8]) -> Result<Self, Errno> {
        let data: &[u8; BYTES] = data.try_into().map_err(|_| Errno::EINVAL)?;
        let word =
            |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        let name = data[HEADER..NAME].split(|byte| *byte == 0).next().unwrap_or_default();
        let wish = data[NAME..].get(..word(4) as usize).ok_or(Errno::EINVAL)?;
        let wish = LmvEa::decode(&Bytes::copy_from_slice(wish)).map_err(|_| Errno::EINVAL)?;
        Ok(Self {
            wish: DirectoryWish::from_ea(&wish).map_err(|_| Errno::EINVAL)?,
            mode: word(0),
            name: Name::new(name).map_err(|_| Errno::EINVAL)?,
        })
    }

    /// Permission bits.
    pub(crate) fn mode(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether one that is there is split or merged.
    pub(crate) fn restripes(&self) -> bool {
        self.mode & RESTRIPES != 0
    }

    /// How the name moves.
    ///
    /// # Errors
    /// `EINVAL` for what is no move.
    pub(crate) fn how(&self) -> Result<MoveName, Errno> {
        match self.mode {
            0 => Ok(MoveName::Whole),
            NAMES_ONLY => Ok(MoveName::NameOnly),
            ENDS => Ok(MoveName::End),
            _ => Err(Errno::EINVAL),
        }
    }

    /// # Errors
    /// `E2BIG` for a wish that lists too many MDTs.
    fn encode(&self) -> Result<[u8; BYTES], Errno> {
        let mut data = [0; BYTES];
        let wish = self.wish.to_ea().encode();
        data[..4].copy_from_slice(&self.mode.to_ne_bytes());
        data[4..HEADER].copy_from_slice(&(wish.len() as u32).to_ne_bytes());
        // A name is shorter than its room.
        let name = self.name.as_bytes();
        data[HEADER..HEADER + name.len()].copy_from_slice(name);
        data[NAME..].get_mut(..wish.len()).ok_or(Errno::E2BIG)?.copy_from_slice(&wish);
        Ok(data)
    }
}

/// Makes a directory in the one that is open, as it is wished. The umask counts as the caller has applied it. With `restripes` one
/// that is there is split or merged.
///
/// # Errors
/// As `mkdir(2)`; `ENODEV` for an MDT that there is not, `E2BIG` for a wish that lists more than 64, `ENOTTY` where no mount of
/// ours answers.
pub fn make_directory(
    parent: impl AsFd,
    name: &Name,
    (mode, restripes): (u32, bool),
    wish: DirectoryWish,
) -> Result<(), Errno> {
    let mode = mode & 0o7777 | if restripes { RESTRIPES } else { 0 };
    let data = NewDirectory { wish, mode, name: name.clone() }.encode()?;
    // SAFETY: by its number the call reads these bytes and nothing else, whatever file it is made on.
    let done = unsafe { ioctl(parent, Setter::<{ MAKE_DIRECTORY }, _>::new(data)) };
    done.map_err(failed)
}

/// Moves a name in the directory that is open to the MDTs that are wished.
///
/// # Errors
/// `EALREADY` if it is there; as [`make_directory`], and as `sheen_client::posix::FileSystem::migrate_name`.
pub fn migrate_name(
    parent: impl AsFd,
    name: &Name,
    how: MoveName,
    wish: DirectoryWish,
) -> Result<(), Errno> {
    let mode = match how {
        MoveName::Whole => 0,
        MoveName::NameOnly => NAMES_ONLY,
        MoveName::End => ENDS,
    };
    let data = NewDirectory { wish, mode, name: name.clone() }.encode()?;
    // SAFETY: as in `make_directory`.
    let done = unsafe { ioctl(parent, Setter::<{ MIGRATE }, _>::new(data)) };
    done.map_err(failed)
}

/// Removes a name in the directory that is open without a look at what it stands for.
///
/// # Errors
/// As `unlink(2)`; `EPERM` for other users than root, `ENOTTY` where no mount of ours answers.
pub fn remove_entry(parent: impl AsFd, name: &Name) -> Result<(), Errno> {
    let wish = DirectoryWish::default();
    let data = NewDirectory { wish, mode: 0, name: name.clone() }.encode()?;
    // SAFETY: as in `make_directory`.
    let done = unsafe { ioctl(parent, Setter::<{ REMOVE_ENTRY }, _>::new(data)) };
    done.map_err(failed)
}

fn failed(error: rustix::io::Errno) -> Errno {
    u16::try_from(error.raw_os_error()).map_or(Errno::EIO, Errno)
}

#[cfg(test)]
mod tests {
    use sheen_layout::directory::WishedStripes;
    use sheen_types::MdtIndex;

    use super::*;

    #[test]
    fn a_call_comes_back_and_nothing_else_is_one() {
        assert_eq!(
            [MAKE_DIRECTORY, MIGRATE, REMOVE_ENTRY],
            [0x4738_66f0, 0x4738_66f7, 0x4738_66fb]
        );
        let longest = Name::new(&[b'x'; 255]).expect("a name");
        let wish = |mdts: u16| {
            let stripes = std::num::NonZeroU32::new(mdts.into()).expect("some");
            let mdts = (0..mdts).map(MdtIndex).collect();
            DirectoryWish { stripes: WishedStripes::Count(stripes), mdts, ..Default::default() }
        };
        let call = NewDirectory { wish: wish(64), mode: 0o750, name: longest };
        let data = call.encode().expect("it has room");
        assert_eq!(NewDirectory::decode(&data), Ok(call.clone()));
        assert_eq!(NewDirectory { wish: wish(65), ..call }.encode(), Err(Errno::E2BIG));
        assert_eq!(NewDirectory::decode(&data[1..]), Err(Errno::EINVAL));
        for (at, value) in [(HEADER, 0), (4, 255), (5, 255), (NAME, 7)] {
            let mut wrong = data;
            wrong[at] = value;
            assert_eq!(NewDirectory::decode(&wrong), Err(Errno::EINVAL), "{at}");
        }
    }
}
