//! What a coordinator asks of a participant around the parts of a change, and what it is answered. All of it is ours, and
//! little-endian.

use bytes::Bytes;
use sheen_types::{Fid, InodeBits, LogicalTime, Name, Transno, Uuid};

use super::{TooMuch, fitting, padding_behind};
use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::md::Valid;
use crate::ost::Obdo;
use crate::text::Text;
use crate::update_record::UpdateRecord;
use crate::{wire_bits, wire_struct};

/// FIDs in an answer to [`PARENTS`](super::UpdateType::PARENTS), at most.
pub const PARENTS_MAX: usize = 1024;

wire_bits! {
    /// What an exclusion is, besides its names and inodes.
    pub struct ExcludeFlags: u32 {
        /// The rename lock, which MDT0000 has: no other directory moves to another directory meanwhile.
        RENAMES = 0x1,
    }
}

wire_bits! {
    /// What becomes of a name that is excluded.
    pub struct NameNeeds: u32 {
        /// It changes: it is held alone, and its directory goes on to exist. Else it must only stay as it is.
        CHANGES = 0x1,
        /// The inode that it stands for changes, too. It is excluded with it, if it lies there.
        INODE = 0x2,
        /// Without it there is nothing to do: nothing is excluded if it is absent.
        NEEDED = 0x4,
    }
}

wire_struct! {
    /// The beginning of the parameter of `EXCLUDE`. Names follow, then inodes.
    pub struct ExcludeFixed {
        /// How often the coordinator has been started.
        starts: u32,
        /// What it is besides.
        flags: ExcludeFlags,
        /// The exclusion's number; the coordinator's own, and not 0.
        number: u64,
        /// How many names follow.
        names: u32,
        /// How many inodes follow.
        inodes: u32,
        /// For which client; empty if for none.
        client: Uuid,
    }
}

wire_struct! {
    /// The beginning of a name. Its bytes follow, filled up to a multiple of 8.
    pub struct ExcludeNameFixed {
        /// The directory, or the stripe of one.
        directory: Fid,
        /// What of the name's inode is revoked from clients.
        revoked: InodeBits,
        /// What becomes of it.
        needs: NameNeeds,
        /// Bytes of the name.
        length: u32,
    }
}

wire_struct! {
    /// An inode that changes.
    pub struct ExcludeInode {
        /// The inode.
        fid: Fid,
        /// What of it is revoked from clients.
        revoked: InodeBits,
    }
}

/// A name that no other change may touch meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcludeName {
    /// The directory, or the stripe of one.
    pub directory: Fid,
    /// The name.
    pub name: Name,
    /// What becomes of it.
    pub needs: NameNeeds,
    /// What of the inode that it stands for is revoked from clients, if it changes; only `LOOKUP` of one of another MDT.
    pub revoked: InodeBits,
}

/// Names and inodes of one MDT that no other change may touch before the coordinator releases them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    /// How often the coordinator has been started.
    pub starts: u32,
    /// Its number for this exclusion, which is not 0.
    pub number: u64,
    /// What it is besides.
    pub flags: ExcludeFlags,
    /// The client that asks for the change: where it has agreed to correct its own listings, those are not revoked.
    pub client: Uuid,
    /// Names.
    pub names: Vec<ExcludeName>,
    /// Inodes that change.
    pub inodes: Vec<ExcludeInode>,
}

impl Exclude {
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = ExcludeFixed::decode(&mut reader)?;
        if fixed.number == 0 {
            return Err(DecodeError::Illegal { what: "number of an exclusion", value: 0 });
        }
        let names = (0..fixed.names).map(|_| ExcludeName::read(&mut reader));
        let names = names.collect::<Result<_, _>>()?;
        let inodes = (0..fixed.inodes).map(|_| ExcludeInode::decode(&mut reader));
        let inodes = inodes.collect::<Result<_, _>>()?;
        reader.finish("exclusion")?;
        let ExcludeFixed { starts, flags, number, client, .. } = fixed;
        Ok(Self { starts, number, flags, client, names, inodes })
    }

    pub(super) fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let fixed = ExcludeFixed {
            starts: self.starts,
            flags: self.flags,
            number: self.number,
            names: fitting(self.names.len(), "names of an exclusion")?,
            inodes: fitting(self.inodes.len(), "inodes of an exclusion")?,
            client: self.client.clone(),
        };
        fixed.encode(&mut writer);
        self.names.iter().try_for_each(|name| name.write(&mut writer))?;
        self.inodes.iter().for_each(|inode| inode.encode(&mut writer));
        Ok(writer.into_bytes())
    }
}

impl ExcludeName {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ExcludeNameFixed { directory, revoked, needs, length } =
            ExcludeNameFixed::decode(reader)?;
        let name = read_padded(reader, length as usize, "name of an exclusion")?;
        Ok(Self { directory, name: legal_name(&name)?, needs, revoked })
    }

    fn write(&self, writer: &mut Writer) -> Result<(), TooMuch> {
        let name = self.name.as_bytes();
        let fixed = ExcludeNameFixed {
            directory: self.directory,
            revoked: self.revoked,
            needs: self.needs,
            length: fitting(name.len(), "name of an exclusion")?,
        };
        fixed.encode(writer);
        write_padded(name, writer);
        Ok(())
    }
}

wire_struct! {
    /// All attributes of an inode. Times are whole seconds.
    pub struct InodeAttributes {
        /// Those that Lustre has a place for.
        obdo: Obdo,
        /// Creation.
        born: i64,
        /// Device number of a device node.
        device: u64,
    }
}

impl InodeAttributes {
    /// Which fields of `obdo` always count.
    pub const VALID: Valid = Valid(
        Valid::ATIME.0
            | Valid::MTIME.0
            | Valid::CTIME.0
            | Valid::SIZE.0
            | Valid::BLOCKS.0
            | Valid::MODE.0
            | Valid::TYPE.0
            | Valid::UID.0
            | Valid::GID.0
            | Valid::FLAGS.0
            | Valid::NLINK.0
            | Valid::PROJID.0,
    );
}

wire_bits! {
    /// What an exclusion's answer says of an inode.
    pub struct InodeState: u32 {
        /// It is there; else nothing more is said.
        EXISTS = 0x1,
        /// It is a directory without names.
        EMPTY = 0x2,
        /// Clients have it open.
        OPEN = 0x4,
        /// It has extended attributes that would belong here and are too long: `XATTR_GET` reads them.
        LEFT_OUT = 0x8,
    }
}

wire_struct! {
    /// The beginning of the answer to `EXCLUDE`. What the names stand for follows, then inodes.
    pub struct ExcludedFixed {
        /// How often the participant has been started.
        starts: u32,
        /// How many names follow.
        names: u32,
        /// How many inodes follow.
        inodes: u32,
        /// Unused.
        padding: u32,
        /// The participant's logical time.
        time: LogicalTime,
    }
}

wire_struct! {
    /// What a name stands for.
    pub struct NamedInode {
        /// The inode; zero if the name is absent.
        fid: Fid,
        /// The bits of its type.
        mode: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// The beginning of an inode of an exclusion's answer. Its extended attributes follow.
    pub struct ExcludedInodeFixed {
        /// The inode.
        fid: Fid,
        /// What is known of it.
        state: InodeState,
        /// How many extended attributes follow.
        xattrs: u32,
        /// Its attributes.
        attributes: InodeAttributes,
    }
}

wire_struct! {
    /// The beginning of an extended attribute. Its name follows, with a NUL, then its value; each filled up to a multiple of 8.
    pub struct XattrFixed {
        /// Bytes of the name, with its NUL.
        name_length: u32,
        /// Bytes of the value.
        value_length: u32,
    }
}

/// What is known of an inode that is excluded, or of the directory of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedInode {
    /// The inode.
    pub fid: Fid,
    /// What it is.
    pub state: InodeState,
    /// Its attributes.
    pub attributes: InodeAttributes,
    /// Those extended attributes by which operations are decided: access lists, names, layouts of directories.
    pub xattrs: Vec<(Text, Bytes)>,
}

/// The answer to `EXCLUDE`. What the parts would build on is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// How often the participant has been started: the exclusion is void with its next start.
    pub starts: u32,
    /// The participant's logical time.
    pub time: LogicalTime,
    /// What each name stands for, in their order; with a FID of zero if it is absent.
    pub names: Vec<NamedInode>,
    /// The directories of the names, the inodes that they stand for, if they lie there and were asked for, and the
    /// inodes: each once, in no order.
    pub inodes: Vec<ExcludedInode>,
}

impl Excluded {
    /// Reads an answer.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = ExcludedFixed::decode(&mut reader)?;
        let names = (0..fixed.names).map(|_| NamedInode::decode(&mut reader));
        let names = names.collect::<Result<_, _>>()?;
        let inodes = (0..fixed.inodes).map(|_| ExcludedInode::read(&mut reader));
        let inodes = inodes.collect::<Result<_, _>>()?;
        reader.finish("answer to an exclusion")?;
        Ok(Self { starts: fixed.starts, time: fixed.time, names, inodes })
    }

    /// The bytes.
    ///
    /// # Errors
    /// [`TooMuch`] of anything.
    pub fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let fixed = ExcludedFixed {
            starts: self.starts,
            names: fitting(self.names.len(), "names of an exclusion")?,
            inodes: fitting(self.inodes.len(), "inodes of an exclusion")?,
            padding: 0,
            time: self.time,
        };
        fixed.encode(&mut writer);
        self.names.iter().for_each(|name| name.encode(&mut writer));
        self.inodes.iter().try_for_each(|inode| inode.write(&mut writer))?;
        Ok(writer.into_bytes())
    }

    /// What is said of an inode.
    #[must_use]
    pub fn inode(&self, fid: Fid) -> Option<&ExcludedInode> {
        self.inodes.iter().find(|inode| inode.fid == fid)
    }
}

impl ExcludedInode {
    /// One of its extended attributes.
    #[must_use]
    pub fn xattr(&self, name: &str) -> Option<&Bytes> {
        let named = self.xattrs.iter().find(|(it, _)| it.as_bytes() == name.as_bytes());
        named.map(|(_, value)| value)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fixed = ExcludedInodeFixed::decode(reader)?;
        let xattrs = (0..fixed.xattrs).map(|_| {
            let XattrFixed { name_length, value_length } = XattrFixed::decode(reader)?;
            let name = read_padded(reader, name_length as usize, "name of an attribute")?;
            let value = read_padded(reader, value_length as usize, "value of an attribute")?;
            Ok((Text::from_buffer(name, "name of an attribute")?, value))
        });
        let xattrs = xattrs.collect::<Result<_, _>>()?;
        Ok(Self { fid: fixed.fid, state: fixed.state, attributes: fixed.attributes, xattrs })
    }

    fn write(&self, writer: &mut Writer) -> Result<(), TooMuch> {
        let fixed = ExcludedInodeFixed {
            fid: self.fid,
            state: self.state,
            xattrs: fitting(self.xattrs.len(), "attributes of an inode")?,
            attributes: self.attributes.clone(),
        };
        fixed.encode(writer);
        for (name, value) in &self.xattrs {
            let fixed = XattrFixed {
                name_length: fitting(name.buffer().len(), "name of an attribute")?,
                value_length: fitting(value.len(), "value of an attribute")?,
            };
            fixed.encode(writer);
            write_padded(name.buffer(), writer);
            write_padded(value, writer);
        }
        Ok(())
    }
}

wire_bits! {
    /// Which exclusions end.
    pub struct ReleaseFlags: u32 {
        /// All of earlier starts of the coordinator; the number means nothing.
        EARLIER = 0x1,
    }
}

wire_struct! {
    /// The parameter of `RELEASE`: exclusions of the MDT that sends it end. One that is not there is no error.
    pub struct Release {
        /// How often the coordinator has been started.
        starts: u32,
        /// Which exclusions it ends.
        flags: ReleaseFlags,
        /// The number of the exclusion.
        number: u64,
    }
}

wire_struct! {
    /// The beginning of what `RECORD` says. The record follows.
    pub struct SentPartFixed {
        /// How often the MDT that sends it has been started.
        starts: u32,
        /// Unused.
        padding: u32,
        /// The number of the exclusion under which the part is applied; 0 for none.
        exclusion: u64,
    }
}

/// What `RECORD` says: the receiver applies its part of this record. Nothing else says what the part is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentPart {
    /// How often the MDT that sends it has been started.
    pub starts: u32,
    /// The number of the exclusion there under which the part is applied; 0 for none, where all of it is new inodes.
    pub exclusion: u64,
    /// The change.
    pub record: UpdateRecord,
}

impl SentPart {
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let SentPartFixed { starts, exclusion, .. } = SentPartFixed::decode(&mut reader)?;
        let record = UpdateRecord::decode(&reader.rest())?;
        Ok(Self { starts, exclusion, record })
    }

    pub(super) fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        SentPartFixed { starts: self.starts, padding: 0, exclusion: self.exclusion }
            .encode(&mut writer);
        writer.put(&self.record.encode()?);
        Ok(writer.into_bytes())
    }
}

wire_struct! {
    /// The answer to `RECORD`.
    pub struct PartAnswer {
        /// The transaction as which the part is there; 0 if it is durable.
        transno: Transno,
    }
}

wire_struct! {
    /// The beginning of the parameter of `COMPLETE`. The exceptions follow.
    pub struct CompleteFixed {
        /// See [`Complete::upto`].
        upto: Transno,
        /// How many exceptions follow.
        exceptions: u32,
        /// Unused.
        padding: u32,
    }
}

/// The parameter of `COMPLETE`: which changes of the MDT that sends it are durable on all their participants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complete {
    /// All up to this one of its transactions,
    pub upto: Transno,
    /// but for these.
    pub except: Vec<Transno>,
}

impl Complete {
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = CompleteFixed::decode(&mut reader)?;
        let except = (0..fixed.exceptions).map(|_| Transno::decode(&mut reader));
        let except = except.collect::<Result<_, _>>()?;
        reader.finish("complete changes")?;
        Ok(Self { upto: fixed.upto, except })
    }

    pub(super) fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let exceptions = fitting(self.except.len(), "exceptions of complete changes")?;
        CompleteFixed { upto: self.upto, exceptions, padding: 0 }.encode(&mut writer);
        self.except.iter().for_each(|transno| transno.encode(&mut writer));
        Ok(writer.into_bytes())
    }
}

wire_struct! {
    /// The beginning of the answer to `PARENTS`. The FIDs follow.
    pub struct ParentsFixed {
        /// How often the participant has been started.
        starts: u32,
        /// How many FIDs follow.
        count: u32,
        /// The participant's logical time.
        time: LogicalTime,
    }
}

/// The answer to `PARENTS`: the way up from a directory, as far as it is known there. It is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    /// How often the participant has been started.
    pub starts: u32,
    /// The participant's logical time.
    pub time: LogicalTime,
    /// The directory's parent, the parent of that, and so on: the last is the root, or another MDT's, or there would be
    /// more than [`PARENTS_MAX`].
    pub above: Vec<Fid>,
}

impl Parents {
    /// Reads an answer.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = ParentsFixed::decode(&mut reader)?;
        let above = (0..fixed.count).map(|_| Fid::decode(&mut reader));
        let above = above.collect::<Result<_, _>>()?;
        reader.finish("way to the root")?;
        Ok(Self { starts: fixed.starts, time: fixed.time, above })
    }

    /// The bytes.
    ///
    /// # Errors
    /// [`TooMuch`] of FIDs.
    pub fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let count = fitting(self.above.len(), "way to the root")?;
        ParentsFixed { starts: self.starts, count, time: self.time }.encode(&mut writer);
        self.above.iter().for_each(|fid| fid.encode(&mut writer));
        Ok(writer.into_bytes())
    }
}

pub(super) fn legal_name(bytes: &[u8]) -> Result<Name, DecodeError> {
    let value = bytes.len() as u64;
    Name::new(bytes).map_err(|_| DecodeError::Illegal { what: "name", value })
}

fn read_padded(
    reader: &mut Reader<'_>,
    length: usize,
    what: &'static str,
) -> Result<Bytes, DecodeError> {
    let bytes = reader.bytes(length, what)?;
    reader.bytes(padding_behind(length), what)?;
    Ok(bytes)
}

fn write_padded(bytes: &[u8], writer: &mut Writer) {
    writer.put(bytes);
    writer.zeros(padding_behind(bytes.len()));
}
