//! The control calls (`ioctl`) by which Linux reads and sets inode flags, and those of Lustre's that files here have.
//!
//! Of a number that says that bytes are handed over the kernel reads them where the argument points to. Lustre's group
//! locks have their group in the place of that pointer: here it lies where the argument points to.

use sheen_client::posix::{Credentials, FileHandle, FileSystem, NodeId};
use sheen_fuse_wire::ReplyIoctl;
use sheen_types::Errno;

use crate::new_directory::{MAKE_DIRECTORY, MIGRATE, MoveName, NewDirectory, REMOVE_ENTRY};
use crate::{advice, convert};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const LL_IOC_GROUP_LOCK: u32 = 0x4008_669e;
const LL_IOC_GROUP_UNLOCK: u32 = 0x4008_669f;
const LL_IOC_LADVISE: u32 = 0x8020_66fa;

/// Bytes of `struct fsxattr`: flags, extent size, extents, project, another extent size, padding.
const FSXATTR_BYTES: usize = 28;
const PROJECT: std::ops::Range<usize> = 12..16;
/// `FS_XFLAG_*` beside the flag of `chattr(1)` that it stands for.
const XFLAGS: [(u32, u32); 5] =
    [(0x8, 0x10), (0x10, 0x20), (0x20, 0x8), (0x40, 0x80), (0x80, 0x40)];

/// By which open file a call comes, and from which thread.
#[derive(Clone, Copy)]
pub(crate) struct CalledBy {
    pub(crate) handle: FileHandle,
    pub(crate) pid: u32,
}

/// What a control call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    GetFlags,
    SetFlags(u32),
    GetExtended,
    SetExtended { flags: u32, project: u32 },
    GroupLock(u64),
    GroupUnlock(u64),
    Advise(Vec<u8>),
    AdviseAt(u64),
    MakeDirectory(NewDirectory),
    Migrate(NewDirectory),
    RemoveEntry(NewDirectory),
}

impl Control {
    /// From the call's number, its argument, and what was sent with it.
    ///
    /// # Errors
    /// `ENOTTY` for calls that files here do not have.
    pub(crate) fn of(number: u32, argument: u64, data: &[u8]) -> Result<Self, Errno> {
        let word = |range: std::ops::Range<usize>| {
            let bytes: Option<[u8; 4]> = data.get(range).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_ne_bytes).ok_or(Errno::EINVAL)
        };
        let group = || data.try_into().map(u64::from_ne_bytes).map_err(|_| Errno::EINVAL);
        Ok(match number {
            FS_IOC_GETFLAGS => Self::GetFlags,
            FS_IOC_SETFLAGS => Self::SetFlags(word(0..4)?),
            FS_IOC_FSGETXATTR => Self::GetExtended,
            FS_IOC_FSSETXATTR => {
                let xflags = word(0..4)?;
                let set = XFLAGS.iter().filter(|(xflag, _)| xflags & xflag != 0);
                let flags = set.fold(0, |flags, (_, flag)| flags | flag);
                Self::SetExtended { flags, project: word(PROJECT)? }
            }
            LL_IOC_GROUP_LOCK => Self::GroupLock(group()?),
            LL_IOC_GROUP_UNLOCK => Self::GroupUnlock(group()?),
            MAKE_DIRECTORY => Self::MakeDirectory(NewDirectory::decode(data)?),
            MIGRATE => Self::Migrate(NewDirectory::decode(data)?),
            REMOVE_ENTRY => Self::RemoveEntry(NewDirectory::decode(data)?),
            LL_IOC_LADVISE => Self::AdviseAt(argument),
            number if advice::is_by_value(number) => Self::Advise(data.to_vec()),
            _ => return Err(Errno::ENOTTY),
        })
    }

    /// Whether what it has begun is dropped with its caller: a migration that waits for an MDT which is away would be executed over
    /// later ones.
    pub(crate) fn ends_with_caller(&self) -> bool {
        matches!(self, Self::Migrate(_))
    }

    /// Whether the kernel may hold the inode's lock for it. For a call that it does not know as a change it holds none, and is
    /// to be notified at once.
    pub(crate) fn may_hold_lock(&self) -> bool {
        !matches!(self, Self::MakeDirectory(_) | Self::Migrate(_) | Self::RemoveEntry(_))
    }

    /// Does it.
    pub(crate) async fn perform(
        self,
        files: &FileSystem,
        who: &Credentials,
        node: NodeId,
        by: CalledBy,
    ) -> Result<Vec<u8>, Errno> {
        match self {
            Self::GetFlags => Ok(files.flags(who, node).await?.to_ne_bytes().to_vec()),
            Self::SetFlags(flags) => {
                files.set_flags(who, node, flags).await?;
                Ok(Vec::new())
            }
            Self::GetExtended => Ok(extended(files.flags(who, node).await?)),
            // Projects are for quotas, which are not here.
            Self::SetExtended { project, .. } if project != 0 => Err(Errno::EOPNOTSUPP),
            Self::SetExtended { flags, .. } => {
                files.set_flags(who, node, flags).await?;
                Ok(Vec::new())
            }
            Self::GroupLock(group) => {
                files.group_lock(who, by.handle, group).await.map(|()| Vec::new())
            }
            Self::GroupUnlock(group) => {
                files.group_unlock(by.handle, group).await.map(|()| Vec::new())
            }
            Self::Advise(data) => advice::by_value(files, by.handle, &data).await,
            Self::AdviseAt(address) => {
                advice::at_address(files, by.handle, (by.pid, address)).await.map(|()| Vec::new())
            }
            Self::MakeDirectory(asked) => {
                let (mode, restripes) = (asked.mode(), asked.restripes());
                let NewDirectory { wish, name, .. } = asked;
                let made = match restripes {
                    true => files.restripe_directory(who, node, &name, mode, wish).await,
                    false => files.make_wished_directory(who, node, &name, mode, wish).await,
                };
                made.map(|()| Vec::new())
            }
            Self::Migrate(asked) => {
                let how = asked.how()?;
                let NewDirectory { wish, name, .. } = asked;
                let names_only = how == MoveName::NameOnly;
                let moved = match how {
                    MoveName::End => files.finish_migration(who, node, &name, wish).await,
                    _ => files.migrate_name(who, node, &name, wish, names_only).await,
                };
                moved.map(|()| Vec::new())
            }
            Self::RemoveEntry(NewDirectory { name, .. }) => {
                files.remove_entry(who, node, &name).await.map(|()| Vec::new())
            }
        }
    }
}

fn extended(flags: u32) -> Vec<u8> {
    let set = XFLAGS.iter().filter(|(_, flag)| flags & flag != 0);
    let xflags = set.fold(0, |xflags, (xflag, _)| xflags | xflag);
    let mut bytes = vec![0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&xflags.to_ne_bytes());
    bytes
}

/// `room` is what the caller has for the answer.
pub(crate) fn answer(reply: ReplyIoctl, room: u32, answer: Result<Vec<u8>, Errno>) {
    match answer {
        Ok(bytes) if bytes.len() <= room as usize => reply.ioctl(0, &bytes),
        Ok(_) => reply.error(Errno::EINVAL),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_number_and_their_data_is_looked_at() {
        assert_eq!(Control::of(FS_IOC_GETFLAGS, 0, &[]), Ok(Control::GetFlags));
        let flags = 0x30u32.to_ne_bytes();
        assert_eq!(Control::of(FS_IOC_SETFLAGS, 0, &flags), Ok(Control::SetFlags(0x30)));
        assert_eq!(Control::of(FS_IOC_SETFLAGS, 0, &flags[..3]), Err(Errno::EINVAL));
        let group = 7u64.to_ne_bytes();
        assert_eq!(Control::of(LL_IOC_GROUP_LOCK, 1, &group), Ok(Control::GroupLock(7)));
        assert_eq!(Control::of(LL_IOC_GROUP_UNLOCK, 1, &group), Ok(Control::GroupUnlock(7)));
        assert_eq!(Control::of(LL_IOC_GROUP_LOCK, 1, &group[1..]), Err(Errno::EINVAL));
        assert_eq!(Control::of(LL_IOC_LADVISE, 77, &[]), Ok(Control::AdviseAt(77)));
        assert_eq!(Control::of(0xc040_66fa, 77, &[1]), Ok(Control::Advise(vec![1])));
        assert_eq!(Control::of(0x5401, 0, &[]), Err(Errno::ENOTTY));
        let same = Control::SetExtended { flags: 0x30, project: 0 };
        assert_eq!(Control::of(FS_IOC_FSSETXATTR, 0, &extended(0x30)), Ok(same));
        assert_eq!(Control::of(FS_IOC_FSSETXATTR, 0, &[0; 8]), Err(Errno::EINVAL));
    }
}
