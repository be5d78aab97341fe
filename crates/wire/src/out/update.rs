//! Updates with their parameters read, and how each is made.

use bytes::Bytes;
use sheen_types::{Fid, Name};

use super::exclude::{Complete, Exclude, InodeAttributes, Release, SentPart, legal_name};
use super::recover::Recover;
use super::{ObjectUpdate, TooMuch, UpdateType, from_params, in_params};
use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::ost::Obdo;
use crate::text::Text;
use crate::wire_struct;

/// What an update says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// There is a new inode. Its names and extended attributes are updates of their own.
    Create {
        /// The inode.
        fid: Fid,
        /// Its attributes.
        attributes: Box<InodeAttributes>,
        /// The directory of its first name.
        parent: Fid,
    },
    /// An inode loses its last name, and is gone unless clients have it open.
    Destroy(Fid),
    /// An inode has a link more: only the count.
    RefAdd(Fid),
    /// A link less: only the count.
    RefDel(Fid),
    /// Those attributes of an inode change that `valid` names.
    AttrSet(Fid, Box<Obdo>),
    /// An inode gets an extended attribute of this name and value.
    XattrSet(Fid, Text, Bytes),
    /// It loses one, if it is there.
    XattrDel(Fid, Text),
    /// A directory gets a name.
    IndexInsert {
        /// The directory.
        directory: Fid,
        /// A name that it has not.
        name: Name,
        /// What it stands for.
        child: Fid,
        /// With these bits of the type.
        mode: u32,
    },
    /// A directory loses a name.
    IndexDelete(Fid, Name),
    /// An inode has a name more in the list of its names: in this directory.
    LinkAdd(Fid, Fid, Name),
    /// One less.
    LinkDel(Fid, Fid, Name),
    /// Asks for the attributes of an inode: [`InodeAttributes`].
    AttrGet(Fid),
    /// Asks for an extended attribute: its value.
    XattrGet(Fid, Text),
    /// Asks for the names of all extended attributes of an inode, each with a zero byte behind it.
    XattrList(Fid),
    /// Asks what a name in a directory stands for: [`NamedInode`](super::NamedInode).
    IndexLookup(Fid, Name),
    /// Asks for the way from a directory to the root: [`Parents`](super::Parents).
    Parents(Fid),
    /// Asks for an exclusion: [`Excluded`](super::Excluded).
    Exclude(Box<Exclude>),
    /// Exclusions end.
    Release(Release),
    /// A part of a change: [`PartAnswer`](super::PartAnswer).
    Record(Box<SentPart>),
    /// Changes are durable everywhere.
    Complete(Complete),
    /// Asks for the records of changes that name the MDT that asks: [`Recovered`](super::Recovered).
    Recover(Recover),
    /// What MDTs of this version do not do.
    Unknown(UpdateType),
}

wire_struct! {
    /// The third parameter of a `CREATE` of ours: what Lustre's attributes have no place for.
    pub struct CreateRest {
        /// See [`InodeAttributes`].
        born: i64,
        /// See [`InodeAttributes`].
        device: u64,
    }
}

/// The parameters of an update, in order.
struct Params<'a>(&'a [Bytes]);

impl Params<'_> {
    fn take(&mut self) -> Result<Bytes, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Truncated { what: WHAT })?;
        self.0 = rest;
        Ok(first.clone())
    }

    fn wire<T: Wire>(&mut self) -> Result<T, DecodeError> {
        let bytes = self.take()?;
        let mut reader = Reader::new(&bytes, ByteOrder::Little);
        let value = T::decode(&mut reader)?;
        reader.finish(WHAT)?;
        Ok(value)
    }

    fn text(&mut self) -> Result<Text, DecodeError> {
        Text::from_buffer(self.take()?, WHAT)
    }

    fn name(&mut self) -> Result<Name, DecodeError> {
        legal_name(self.text()?.as_bytes())
    }

    /// All that are left, as one.
    fn joined(&mut self) -> Bytes {
        from_params(std::mem::take(&mut self.0))
    }

    fn finish(&self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { what: WHAT, bytes }),
        }
    }
}

const WHAT: &str = "parameters of an update";

impl Update {
    /// Reads the parameters of an update.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn read(update: &ObjectUpdate) -> Result<Self, DecodeError> {
        let (fid, mut params) = (update.fid, Params(&update.params));
        let read = Self::read_params(update.kind, fid, &mut params)?;
        if !matches!(read, Self::Unknown(_)) {
            params.finish()?;
        }
        Ok(read)
    }

    fn read_params(
        kind: UpdateType,
        fid: Fid,
        params: &mut Params<'_>,
    ) -> Result<Self, DecodeError> {
        Ok(match kind {
            UpdateType::CREATE => {
                let (obdo, parent) = (params.wire()?, params.wire()?);
                let CreateRest { born, device } = params.wire()?;
                let attributes = Box::new(InodeAttributes { obdo, born, device });
                Self::Create { fid, attributes, parent }
            }
            UpdateType::DESTROY => Self::Destroy(fid),
            UpdateType::REF_ADD => Self::RefAdd(fid),
            UpdateType::REF_DEL => Self::RefDel(fid),
            UpdateType::ATTR_SET => Self::AttrSet(fid, Box::new(params.wire()?)),
            UpdateType::XATTR_SET => {
                let (name, _flags) = (params.text()?, params.wire::<u32>()?);
                Self::XattrSet(fid, name, params.joined())
            }
            UpdateType::XATTR_DEL => Self::XattrDel(fid, params.text()?),
            UpdateType::INDEX_INSERT => {
                let (name, child, mode) = (params.name()?, params.wire()?, params.wire()?);
                Self::IndexInsert { directory: fid, name, child, mode }
            }
            UpdateType::INDEX_DELETE => Self::IndexDelete(fid, params.name()?),
            UpdateType::LINK_ADD => Self::LinkAdd(fid, params.wire()?, params.name()?),
            UpdateType::LINK_DEL => Self::LinkDel(fid, params.wire()?, params.name()?),
            UpdateType::ATTR_GET => Self::AttrGet(fid),
            UpdateType::XATTR_GET => Self::XattrGet(fid, params.text()?),
            UpdateType::XATTR_LIST => Self::XattrList(fid),
            UpdateType::INDEX_LOOKUP => Self::IndexLookup(fid, params.name()?),
            UpdateType::PARENTS => Self::Parents(fid),
            UpdateType::EXCLUDE => Self::Exclude(Box::new(Exclude::decode(&params.joined())?)),
            UpdateType::RELEASE => Self::Release(params.wire()?),
            UpdateType::RECORD => Self::Record(Box::new(SentPart::decode(&params.joined())?)),
            UpdateType::COMPLETE => Self::Complete(Complete::decode(&params.joined())?),
            UpdateType::RECOVER => Self::Recover(params.wire()?),
            other => Self::Unknown(other),
        })
    }
}

fn wired(value: &impl Wire) -> Bytes {
    let mut writer = Writer::default();
    value.encode(&mut writer);
    writer.into_bytes()
}

fn of(name: &Name) -> Bytes {
    Text::from(name).buffer().clone()
}

/// Each is what [`Update::read`] gives the variant of its name for.
impl ObjectUpdate {
    fn with(kind: UpdateType, fid: Fid, params: Vec<Bytes>) -> Self {
        Self { kind, fid, params, ..Self::default() }
    }

    /// See [`Update::Create`].
    #[must_use]
    pub fn create(fid: Fid, attributes: &InodeAttributes, parent: Fid) -> Self {
        let InodeAttributes { obdo, born, device } = attributes;
        let rest = CreateRest { born: *born, device: *device };
        Self::with(UpdateType::CREATE, fid, vec![wired(obdo), wired(&parent), wired(&rest)])
    }

    /// See [`Update::Destroy`].
    #[must_use]
    pub fn destroy(fid: Fid) -> Self {
        Self::with(UpdateType::DESTROY, fid, Vec::new())
    }

    /// See [`Update::RefAdd`].
    #[must_use]
    pub fn ref_add(fid: Fid) -> Self {
        Self::with(UpdateType::REF_ADD, fid, Vec::new())
    }

    /// See [`Update::RefDel`].
    #[must_use]
    pub fn ref_del(fid: Fid) -> Self {
        Self::with(UpdateType::REF_DEL, fid, Vec::new())
    }

    /// See [`Update::AttrSet`].
    #[must_use]
    pub fn attr_set(fid: Fid, attributes: &Obdo) -> Self {
        Self::with(UpdateType::ATTR_SET, fid, vec![wired(attributes)])
    }

    /// See [`Update::XattrSet`].
    #[must_use]
    pub fn xattr_set(fid: Fid, name: &str, value: &Bytes) -> Self {
        let mut params = vec![Text::from(name).buffer().clone(), wired(&0u32)];
        params.extend(in_params(value));
        Self::with(UpdateType::XATTR_SET, fid, params)
    }

    /// See [`Update::XattrDel`].
    #[must_use]
    pub fn xattr_del(fid: Fid, name: &str) -> Self {
        Self::with(UpdateType::XATTR_DEL, fid, vec![Text::from(name).buffer().clone()])
    }

    /// See [`Update::IndexInsert`].
    #[must_use]
    pub fn index_insert(directory: Fid, name: &Name, child: Fid, mode: u32) -> Self {
        let params = vec![of(name), wired(&child), wired(&mode)];
        Self::with(UpdateType::INDEX_INSERT, directory, params)
    }

    /// See [`Update::IndexDelete`].
    #[must_use]
    pub fn index_delete(directory: Fid, name: &Name) -> Self {
        Self::with(UpdateType::INDEX_DELETE, directory, vec![of(name)])
    }

    /// See [`Update::LinkAdd`].
    #[must_use]
    pub fn link_add(fid: Fid, parent: Fid, name: &Name) -> Self {
        Self::with(UpdateType::LINK_ADD, fid, vec![wired(&parent), of(name)])
    }

    /// See [`Update::LinkDel`].
    #[must_use]
    pub fn link_del(fid: Fid, parent: Fid, name: &Name) -> Self {
        Self::with(UpdateType::LINK_DEL, fid, vec![wired(&parent), of(name)])
    }

    /// See [`Update::AttrGet`].
    #[must_use]
    pub fn attr_get(fid: Fid) -> Self {
        Self::with(UpdateType::ATTR_GET, fid, Vec::new())
    }

    /// See [`Update::XattrGet`].
    #[must_use]
    pub fn xattr_get(fid: Fid, name: &str) -> Self {
        Self::with(UpdateType::XATTR_GET, fid, vec![Text::from(name).buffer().clone()])
    }

    /// See [`Update::XattrList`].
    #[must_use]
    pub fn xattr_list(fid: Fid) -> Self {
        Self::with(UpdateType::XATTR_LIST, fid, Vec::new())
    }

    /// See [`Update::IndexLookup`].
    #[must_use]
    pub fn index_lookup(directory: Fid, name: &Name) -> Self {
        Self::with(UpdateType::INDEX_LOOKUP, directory, vec![of(name)])
    }

    /// See [`Update::Parents`].
    #[must_use]
    pub fn parents(fid: Fid) -> Self {
        Self::with(UpdateType::PARENTS, fid, Vec::new())
    }

    /// See [`Update::Exclude`].
    ///
    /// # Errors
    /// [`TooMuch`] of names or inodes.
    pub fn exclude(exclude: &Exclude) -> Result<Self, TooMuch> {
        Ok(Self::with(UpdateType::EXCLUDE, Fid::ZERO, in_params(&exclude.encode()?)))
    }

    /// See [`Update::Release`].
    #[must_use]
    pub fn release(release: &Release) -> Self {
        Self::with(UpdateType::RELEASE, Fid::ZERO, vec![wired(release)])
    }

    /// See [`Update::Record`].
    ///
    /// # Errors
    /// [`TooMuch`] of anything of the record.
    pub fn record(part: &SentPart) -> Result<Self, TooMuch> {
        Ok(Self::with(UpdateType::RECORD, Fid::ZERO, in_params(&part.encode()?)))
    }

    /// See [`Update::Recover`].
    #[must_use]
    pub fn recover(recover: &Recover) -> Self {
        Self::with(UpdateType::RECOVER, Fid::ZERO, vec![wired(recover)])
    }

    /// See [`Update::Complete`].
    ///
    /// # Errors
    /// [`TooMuch`] of exceptions.
    pub fn complete(complete: &Complete) -> Result<Self, TooMuch> {
        Ok(Self::with(UpdateType::COMPLETE, Fid::ZERO, in_params(&complete.encode()?)))
    }
}
