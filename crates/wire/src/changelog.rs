//! Records of an MDT's changelog: a fixed part, then what its flags announce, then names.
//!
//! A record lies in an llog, between the log's header and tail of it. Whatever a flag announces
//! comes in the order of the flags.

use bytes::Bytes;
use sheen_types::Fid;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::text::Chars;
use crate::{wire_bits, wire_enum, wire_struct};

/// Records are filled up to a multiple of so many bytes.
const ALIGNMENT: usize = 8;

wire_enum! {
    /// `enum changelog_rec_type`: what happened.
    pub enum ChangelogKind: u32 {
        /// Nothing.
        NONE = 0,
        /// Recording was switched on or off.
        MARK = 1,
        /// A file was made.
        CREATE = 2,
        /// A directory was made.
        MKDIR = 3,
        /// A hard link was made.
        HARDLINK = 4,
        /// A symbolic link was made.
        SOFTLINK = 5,
        /// A special file was made.
        MKNOD = 6,
        /// A name was removed.
        UNLINK = 7,
        /// A directory was removed.
        RMDIR = 8,
        /// A name was moved.
        RENAME = 9,
        /// The second half of a move, of old.
        EXT = 10,
        /// A file was opened.
        OPEN = 11,
        /// A file was closed.
        CLOSE = 12,
        /// A layout changed.
        LAYOUT = 13,
        /// A file was truncated.
        TRUNC = 14,
        /// Attributes changed.
        SETATTR = 15,
        /// Extended attributes changed.
        SETXATTR = 16,
        /// Something of HSM; the flags say what.
        HSM = 17,
        /// Modification time.
        MTIME = 18,
        /// Change time.
        CTIME = 19,
        /// Access time.
        ATIME = 20,
        /// Moved to another MDT.
        MIGRATE = 21,
        /// A mirrored file was written.
        FLRW = 22,
        /// A mirrored file was synchronised again.
        RESYNC = 23,
        /// Extended attributes were read.
        GETXATTR = 24,
        /// An open was refused.
        DN_OPEN = 25,
    }
}

wire_bits! {
    /// `enum changelog_rec_flags`. The lower 12 bits mean something else for each kind of record.
    pub struct ChangelogFlags: u16 {
        /// `CLF_VERSION`: a record of this version.
        VERSION = 0x1000,
        /// Where a moved name comes from follows.
        RENAME = 0x2000,
        /// A job id follows.
        JOBID = 0x4000,
        /// More flags follow.
        EXTRA_FLAGS = 0x8000,
    }
}

wire_bits! {
    /// `enum changelog_rec_extra_flags`.
    pub struct ChangelogExtraFlags: u64 {
        /// User and group follow.
        UIDGID = 0x1,
        /// The client's NID follows.
        NID = 0x2,
        /// Open flags follow.
        OPEN = 0x4,
        /// The name of an extended attribute follows.
        XATTR = 0x8,
        /// The NID has the large form, in network byte order.
        NID_BE = 0x10,
    }
}

wire_struct! {
    /// `struct changelog_rec`: the fixed part; 64 bytes.
    pub struct ChangelogRecFixed {
        /// Bytes of names.
        name_length: u16,
        /// What follows.
        flags: ChangelogFlags,
        /// What happened.
        kind: ChangelogKind,
        /// Number of the record.
        index: u64,
        /// Number of the record before of the same object.
        previous: u64,
        /// When: seconds above bit 30, nanoseconds below.
        time: u64,
        /// The object; of a mark, its flags are in the first four bytes.
        target: Fid,
        /// Its directory.
        parent: Fid,
    }
}

wire_struct! {
    /// `struct changelog_ext_rename`: where a moved name comes from.
    pub struct ChangelogRename {
        /// The object.
        source: Fid,
        /// Its directory.
        source_parent: Fid,
    }
}

wire_struct! {
    /// `struct changelog_ext_uidgid`.
    pub struct ChangelogUidGid {
        /// User.
        uid: u64,
        /// Group.
        gid: u64,
    }
}

wire_struct! {
    /// `struct changelog_ext_nid`: one of LNet's 64 bits, or the large form in 20 bytes, with the
    /// four that the compiler puts behind it.
    pub struct ChangelogNid {
        /// The NID, or the first bytes of the large one.
        nid: [u8; 8],
        /// The rest of a large one.
        large: [u8; 12],
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// `struct changelog_setinfo`: up to which record a reader needs no more; 12 bytes.
    pub struct ChangelogSetinfo {
        /// The last record it needs no more.
        record: u64,
        /// The reader.
        reader: u32,
    }
}

/// What [`ChangelogExtraFlags`] announces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangelogExtra {
    /// Which of the optional parts are there.
    pub flags: ChangelogExtraFlags,
    /// Who.
    pub owner: Option<ChangelogUidGid>,
    /// From where.
    pub nid: Option<ChangelogNid>,
    /// `MDS_OPEN_*`, the lower 32 bits.
    pub open_flags: Option<u32>,
    /// The extended attribute.
    pub xattr: Option<Chars<256>>,
}

/// A whole record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangelogRec {
    /// The fixed part.
    pub fixed: ChangelogRecFixed,
    /// Where a moved name comes from.
    pub rename: Option<ChangelogRename>,
    /// The job.
    pub job: Option<Chars<32>>,
    /// More.
    pub extra: Option<ChangelogExtra>,
    /// The name, and for a move a NUL and the old name.
    pub names: Bytes,
    /// What fills the record up: fewer than eight bytes, which a peer need not clear.
    pub padding: Bytes,
}

impl ChangelogExtra {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = ChangelogExtraFlags::decode(reader)?;
        Ok(Self {
            flags,
            owner: announced(flags.contains(ChangelogExtraFlags::UIDGID), reader)?,
            nid: announced(flags.contains(ChangelogExtraFlags::NID), reader)?,
            open_flags: announced(flags.contains(ChangelogExtraFlags::OPEN), reader)?,
            xattr: announced(flags.contains(ChangelogExtraFlags::XATTR), reader)?,
        })
    }

    fn encode(&self, writer: &mut Writer) {
        self.flags.encode(writer);
        put(&self.owner, writer);
        put(&self.nid, writer);
        put(&self.open_flags, writer);
        put(&self.xattr, writer);
    }
}

fn announced<T: Wire>(there: bool, reader: &mut Reader<'_>) -> Result<Option<T>, DecodeError> {
    there.then(|| T::decode(reader)).transpose()
}

fn put<T: Wire>(value: &Option<T>, writer: &mut Writer) {
    if let Some(value) = value {
        value.encode(writer);
    }
}

impl ChangelogRec {
    /// Reads what lies between the header and the tail of a log's record.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = ChangelogRecFixed::decode(&mut reader)?;
        let rename = announced(fixed.flags.contains(ChangelogFlags::RENAME), &mut reader)?;
        let job = announced(fixed.flags.contains(ChangelogFlags::JOBID), &mut reader)?;
        let extra = match fixed.flags.contains(ChangelogFlags::EXTRA_FLAGS) {
            true => Some(ChangelogExtra::decode(&mut reader)?),
            false => None,
        };
        let names = reader.bytes(fixed.name_length.into(), "cr_name")?;
        let padding = reader.rest();
        if padding.len() >= ALIGNMENT {
            return Err(DecodeError::Trailing { what: "changelog_rec", bytes: padding.len() });
        }
        Ok(Self { fixed, rename, job, extra, names, padding })
    }

    /// Appends all of it; names and parts are there as they are, whatever the flags say.
    pub fn encode(&self, writer: &mut Writer) {
        self.fixed.encode(writer);
        put(&self.rename, writer);
        put(&self.job, writer);
        if let Some(extra) = &self.extra {
            extra.encode(writer);
        }
        writer.put(&self.names);
        writer.put(&self.padding);
    }

    /// The name, and the old name of a move.
    #[must_use]
    pub fn split_names(&self) -> (&[u8], Option<&[u8]>) {
        match self.names.iter().position(|byte| *byte == 0) {
            Some(end) => (&self.names[..end], Some(&self.names[end + 1..])),
            None => (&self.names, None),
        }
    }
}

#[cfg(test)]
mod tests;
