//! Extended attributes whose values Lustre defines: what lies beside an inode or object.

use bytes::Bytes;
use sheen_types::Fid;
use sheen_types::access::{AccessLine, AccessList, AccessListError, May, Whom};

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::{wire_bits, wire_struct};

wire_bits! {
    /// Compatible features of a `trusted.lma` (`LMAC_*`).
    pub struct LmaCompat: u32 {
        /// `LMAC_HSM`: an HSM attribute is there.
        HSM = 0x1,
        /// `LMAC_NOT_IN_OI`: not found by FID.
        NOT_IN_OI = 0x4,
        /// `LMAC_FID_ON_OST`: an OST object known by FID.
        FID_ON_OST = 0x8,
        /// `LMAC_STRIPE_INFO`: parent and stripe size follow.
        STRIPE_INFO = 0x10,
        /// `LMAC_COMP_INFO`: the component follows.
        COMP_INFO = 0x20,
        /// `LMAC_IDX_BACKUP`: the index has a backup.
        IDX_BACKUP = 0x40,
    }
}

wire_bits! {
    /// Incompatible features of a `trusted.lma` (`LMAI_*`).
    pub struct LmaIncompat: u32 {
        /// `LMAI_RELEASED`: data is in the archive only.
        RELEASED = 0x1,
        /// `LMAI_AGENT`: stands for an inode on another MDT.
        AGENT = 0x2,
        /// `LMAI_REMOTE_PARENT`: the parent is on another MDT.
        REMOTE_PARENT = 0x4,
        /// `LMAI_STRIPED`: striped directory.
        STRIPED = 0x8,
        /// `LMAI_ORPHAN`: without a name.
        ORPHAN = 0x10,
        /// `LMAI_ENCRYPT`: encrypted.
        ENCRYPT = 0x20,
    }
}

wire_struct! {
    /// `struct lustre_mdt_attrs`, the value of `trusted.lma`.
    pub struct LustreMdtAttrs {
        /// Features that may be ignored.
        compat: LmaCompat,
        /// Features that must be understood.
        incompat: LmaIncompat,
        /// The object's own FID.
        self_fid: Fid,
    }
}

wire_struct! {
    /// `struct hsm_attrs`, the value of `trusted.hsm`.
    pub struct HsmAttrs {
        /// Unused.
        compat: u32,
        /// State flags (`HS_*`).
        flags: u32,
        /// Archive number.
        arch_id: u64,
        /// Data version at the time of archiving.
        arch_ver: u64,
    }
}

wire_struct! {
    /// `struct hsm_state_set`: which states to change.
    pub struct HsmStateSet {
        /// Which fields count.
        valid: u32,
        /// Archive number.
        archive_id: u32,
        /// States to set.
        set: u64,
        /// States to clear.
        clear: u64,
    }
}

wire_struct! {
    /// `struct hsm_user_state`: what is known of a file's copies.
    pub struct HsmUserState {
        /// State flags.
        states: u32,
        /// Archive number.
        archive_id: u32,
        /// State of the action in progress.
        in_progress_state: u32,
        /// The action in progress.
        in_progress_action: u32,
        /// First byte the action is about.
        in_progress_start: u64,
        /// Bytes the action is about.
        in_progress_length: u64,
    }
}

wire_struct! {
    /// `struct mdc_swap_layouts`: an exchange of two files' layouts.
    pub struct SwapLayouts {
        /// `SWAP_LAYOUTS_*`.
        flags: u64,
        /// Data version of the first file.
        data_version1: u64,
        /// Data version of the second file.
        data_version2: u64,
    }
}

wire_struct! {
    /// `struct lustre_som_attrs`, the value of `trusted.som`: size on the MDT.
    pub struct SomAttrs {
        /// How far it may be trusted.
        valid: u16,
        /// Unused.
        reserved: [u16; 3],
        /// Bytes.
        size: u64,
        /// Blocks of 512 bytes.
        blocks: u64,
    }
}

/// One name of an inode in a [`LinkEa`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEntry {
    /// The directory.
    pub parent: Fid,
    /// The name in it, without NUL.
    pub name: Bytes,
}

/// The value of `trusted.link` (`struct link_ea_header` and entries): all names of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkEa {
    /// When names were last left out for want of space, in seconds; 0 for never.
    pub overflow_time: u32,
    /// Unused.
    pub padding: u32,
    /// The names.
    pub entries: Vec<LinkEntry>,
}

impl LinkEa {
    /// `LINK_EA_MAGIC`.
    pub const MAGIC: u32 = 0x11EA_F1DF;
    const HEADER_SIZE: usize = 24;
    const ENTRY_SIZE: usize = 18;

    /// Reads a whole value.
    ///
    /// # Errors
    /// [`DecodeError`] for anything but a well-formed value.
    pub fn decode(value: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value, ByteOrder::Little);
        let magic = u32::decode(&mut reader)?;
        if magic != Self::MAGIC {
            return Err(DecodeError::Illegal { what: "link_ea magic", value: magic.into() });
        }
        let count = u32::decode(&mut reader)?;
        let length = u64::decode(&mut reader)?;
        if length != value.len() as u64 {
            return Err(DecodeError::Illegal { what: "link_ea length", value: length });
        }
        let overflow_time = u32::decode(&mut reader)?;
        let padding = u32::decode(&mut reader)?;
        let rest = reader.rest();
        let mut reader = Reader::new(&rest, ByteOrder::Big);
        let mut entries = Vec::new();
        while reader.remaining() > 0 {
            let size = usize::from(u16::decode(&mut reader)?);
            let parent = Fid::decode(&mut reader)?;
            let name = size.checked_sub(Self::ENTRY_SIZE).filter(|length| *length > 0);
            let name = name
                .ok_or(DecodeError::Illegal { what: "link_ea entry length", value: size as u64 })?;
            entries.push(LinkEntry { parent, name: reader.bytes(name, "link_ea name")? });
        }
        if entries.len() as u64 != u64::from(count) {
            return Err(DecodeError::Illegal { what: "link_ea count", value: count.into() });
        }
        Ok(Self { overflow_time, padding, entries })
    }

    /// The value's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let names = self.entries.iter().map(|entry| Self::ENTRY_SIZE + entry.name.len());
        let length = Self::HEADER_SIZE + names.sum::<usize>();
        let mut writer = Writer::with_capacity(length);
        Self::MAGIC.encode(&mut writer);
        (self.entries.len() as u32).encode(&mut writer);
        (length as u64).encode(&mut writer);
        self.overflow_time.encode(&mut writer);
        self.padding.encode(&mut writer);
        for entry in &self.entries {
            writer.put(&((Self::ENTRY_SIZE + entry.name.len()) as u16).to_be_bytes());
            writer.put(&entry.parent.seq.to_be_bytes());
            writer.put(&entry.parent.oid.to_be_bytes());
            writer.put(&entry.parent.ver.to_be_bytes());
            writer.put(&entry.name);
        }
        writer.into_bytes()
    }
}

wire_struct! {
    /// One line of an access control list.
    pub struct AclEntry {
        /// Whom: 1 owner, 2 a user, 4 group, 8 a group, 16 mask, 32 other.
        tag: u16,
        /// What: 4 read, 2 write, 1 execute.
        perm: u16,
        /// The user or group; -1 where the tag needs none.
        id: u32,
    }
}

/// The value of `system.posix_acl_access` and `system.posix_acl_default`, as Linux has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    /// The lines, in order.
    pub entries: Vec<AclEntry>,
}

impl PosixAcl {
    /// The version in front (`POSIX_ACL_XATTR_VERSION`).
    pub const VERSION: u32 = 2;

    /// Reads a whole value; the empty value is the empty list.
    ///
    /// # Errors
    /// [`DecodeError`] for another version or a length that is no whole number of lines.
    pub fn decode(value: &Bytes) -> Result<Self, DecodeError> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(value, ByteOrder::Little);
        let version = u32::decode(&mut reader)?;
        if version != Self::VERSION {
            return Err(DecodeError::Illegal { what: "ACL version", value: version.into() });
        }
        let mut entries = Vec::with_capacity(reader.remaining() / AclEntry::SIZE);
        while reader.remaining() > 0 {
            entries.push(AclEntry::decode(&mut reader)?);
        }
        Ok(Self { entries })
    }

    /// What the lines mean.
    ///
    /// # Errors
    /// [`AccessListError`] if they are no list that Linux takes.
    pub fn rules(&self) -> Result<AccessList, AccessListError> {
        let lines: Result<Vec<AccessLine>, AccessListError> =
            self.entries.iter().map(AclEntry::line).collect();
        AccessList::new(lines?)
    }

    /// The value's bytes; none at all for the empty list.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        if self.entries.is_empty() {
            return Bytes::new();
        }
        let mut writer = Writer::with_capacity(4 + self.entries.len() * AclEntry::SIZE);
        Self::VERSION.encode(&mut writer);
        for entry in &self.entries {
            entry.encode(&mut writer);
        }
        writer.into_bytes()
    }
}

impl AclEntry {
    fn line(&self) -> Result<AccessLine, AccessListError> {
        let whom = match self.tag {
            1 => Whom::Owner,
            2 => Whom::User(self.id),
            4 => Whom::Group,
            8 => Whom::NamedGroup(self.id),
            16 => Whom::Mask,
            32 => Whom::Other,
            _ => return Err(AccessListError),
        };
        Ok(AccessLine { whom, may: May(self.perm.into()) })
    }
}

impl From<AccessLine> for AclEntry {
    fn from(line: AccessLine) -> Self {
        const NO_ID: u32 = u32::MAX;
        let (tag, id) = match line.whom {
            Whom::Owner => (1, NO_ID),
            Whom::User(id) => (2, id),
            Whom::Group => (4, NO_ID),
            Whom::NamedGroup(id) => (8, id),
            Whom::Mask => (16, NO_ID),
            Whom::Other => (32, NO_ID),
        };
        Self { tag, perm: line.may.0 as u16, id }
    }
}

impl From<&AccessList> for PosixAcl {
    fn from(rules: &AccessList) -> Self {
        Self { entries: rules.lines().map(AclEntry::from).collect() }
    }
}
