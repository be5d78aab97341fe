//! What targets and clients say to the MGS, and the configuration records it keeps.

use bytes::Bytes;
use sheen_types::Nid;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::ptlrpc::round8;
use crate::slot::Part;
use crate::text::Chars;
use crate::{wire_bits, wire_enum, wire_struct};

wire_bits! {
    /// `LDD_F_*`: what a target is and what it wants at registration.
    pub struct TargetFlags: u32 {
        /// An MDT.
        SV_TYPE_MDT = 0x1,
        /// An OST.
        SV_TYPE_OST = 0x2,
        /// The MGS.
        SV_TYPE_MGS = 0x4,
        /// For all targets: a parameter.
        SV_ALL = 0x8,
        /// It has no index yet.
        NEED_INDEX = 0x10,
        /// It never registered.
        VIRGIN = 0x20,
        /// Its configuration changed.
        UPDATE = 0x40,
        /// Its on-disk record shall be written again.
        REWRITE_LDD = 0x80,
        /// All its logs shall be written again.
        WRITECONF = 0x100,
        /// A parameter is set.
        PARAM = 0x400,
        /// It may start at any of its service nodes.
        NO_PRIMNODE = 0x1000,
        /// It takes part in imperative recovery.
        IR_CAPABLE = 0x2000,
        /// The MGS could not write its logs.
        ERROR = 0x4000,
        /// A parameter of `set_param -P`.
        PARAM2 = 0x8000,
        /// It keeps no copy of its logs.
        NO_LOCAL_LOGS = 0x1_0000,
        /// NIDs come as text.
        LARGE_NID = 0x2_0000,
        /// Registers.
        OPC_REG = 0x1000_0000,
        /// Unregisters.
        OPC_UNREG = 0x2000_0000,
        /// Is ready to be connected to.
        OPC_READY = 0x4000_0000,
    }
}

wire_struct! {
    /// `struct mgs_target_info`: a target registers with it. NIDs as text may follow.
    pub struct MgsTargetInfo {
        /// Its release; see `version_code`.
        version: u32,
        /// Its index.
        index: u32,
        /// Version of its configuration.
        config_version: u32,
        /// What it is and wants.
        flags: TargetFlags,
        /// How many of the NIDs count.
        nid_count: u32,
        /// How often it has been started.
        instance: u32,
        /// The file system.
        fsname: Chars<64>,
        /// The target: `FSNAME-OST0000`.
        service_name: Chars<64>,
        /// Its UUID.
        uuid: Chars<40>,
        /// Its NIDs as numbers.
        nids: [u64; 32],
        /// Parameters it was formatted with, separated by spaces.
        params: Chars<4096>,
    }
}

impl MgsTargetInfo {
    /// The NIDs that count.
    pub fn nids(&self) -> impl Iterator<Item = Nid> + '_ {
        self.nids.iter().take(self.nid_count as usize).map(|nid| Nid(*nid))
    }
}

/// `struct mgs_target_nidlist`: NIDs as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgsTargetNidlist {
    /// `NIDLIST_*`.
    pub flags: u32,
    /// How many NIDs the list has, here or in bulk.
    pub count: u32,
    /// Those that are here.
    pub nids: Vec<Chars<64>>,
}

impl Part for MgsTargetNidlist {
    const SIZE_MIN: usize = 8;

    fn decode_part(reader: &mut Reader<'_>, _what: &'static str) -> Result<Self, DecodeError> {
        let [flags, count] = <[u32; 2]>::decode(reader)?;
        let here = reader.remaining() / 64;
        let nids = (0..here).map(|_| Chars::decode(reader)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { flags, count, nids })
    }

    fn encode_part(&self, writer: &mut Writer) {
        [self.flags, self.count].encode(writer);
        for nid in &self.nids {
            nid.encode(writer);
        }
    }
}

wire_enum! {
    /// `enum mgs_cfg_type`: which kind of configuration.
    pub enum ConfigType: u16 {
        /// A file system's or target's log.
        CONFIG = 0,
        /// Security rules.
        SPTLRPC = 1,
        /// The recovery log: which targets restarted where.
        RECOVER = 2,
        /// Parameters of `set_param -P`.
        PARAMS = 3,
        /// Nodemaps.
        NODEMAP = 4,
        /// Write barrier.
        BARRIER = 5,
    }
}

wire_struct! {
    /// `struct mgs_config_body`: asks for configuration in bulk.
    pub struct MgsConfigBody {
        /// The log.
        name: Chars<64>,
        /// Index or version to go on from.
        offset: u64,
        /// Kind of configuration.
        kind: ConfigType,
        /// Nodemap: the pass. Recovery log: bytes per NID.
        pass: u8,
        /// Logarithm of the unit of the bulk.
        bits: u8,
        /// Units of the bulk.
        units: u32,
    }
}

wire_struct! {
    /// `struct mgs_config_res`: how far the bulk reaches.
    pub struct MgsConfigRes {
        /// Index or version to go on from.
        offset: u64,
        /// Size of the log.
        size: u64,
    }
}

wire_struct! {
    /// `struct mgs_send_param`: a parameter as text.
    pub struct MgsSendParam {
        /// `FSNAME-TARGET.key=value`.
        param: Chars<1024>,
    }
}

/// `struct mgs_nidtbl_entry`: a target that restarted, and where it can be reached now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgsNidtblEntry {
    /// Version of the table with this entry.
    pub version: u64,
    /// How often the target has been started.
    pub instance: u32,
    /// Its index.
    pub index: u32,
    /// Its kind, as `LDD_F_SV_TYPE_*`.
    pub kind: u8,
    /// Kind of the NIDs; 0 for 8-byte ones.
    pub nid_type: u8,
    /// Bytes per NID.
    pub nid_size: u8,
    /// How many NIDs.
    pub nid_count: u8,
    /// The NIDs' bytes.
    pub nids: Bytes,
}

impl MgsNidtblEntry {
    /// Bytes before the NIDs.
    const FIXED_BYTES: usize = 24;

    /// The entry of a target with 8-byte NIDs.
    #[must_use]
    pub fn new(version: u64, kind: TargetFlags, index: u32, instance: u32, nids: &[Nid]) -> Self {
        let mut writer = Writer::with_capacity(nids.len() * 8);
        nids.iter().for_each(|nid| nid.encode(&mut writer));
        Self {
            version,
            instance,
            index,
            kind: kind.0 as u8,
            nid_type: 0,
            nid_size: 8,
            nid_count: nids.len() as u8,
            nids: writer.into_bytes(),
        }
    }

    /// The NIDs, if they are 8-byte ones.
    ///
    /// # Errors
    /// [`DecodeError::Illegal`] for long ones.
    pub fn nids(&self, order: ByteOrder) -> Result<Vec<Nid>, DecodeError> {
        if self.nid_size != 8 {
            return Err(DecodeError::Illegal { what: "mne_nid_size", value: self.nid_size.into() });
        }
        let mut reader = Reader::new(&self.nids, order);
        (0..self.nid_count).map(|_| Nid::decode(&mut reader)).collect()
    }

    /// Reads one entry of the pages that a recovery log's bulk is made of.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u64::decode(reader)?;
        let [instance, index, length] = <[u32; 3]>::decode(reader)?;
        let [kind, nid_type, nid_size, nid_count] = <[u8; 4]>::decode(reader)?;
        let rest = (length as usize).checked_sub(Self::FIXED_BYTES);
        let illegal = DecodeError::Illegal { what: "mne_length", value: u64::from(length) };
        let nids = reader.bytes(rest.ok_or(illegal)?, "mne_nids")?;
        Ok(Self { version, instance, index, kind, nid_type, nid_size, nid_count, nids })
    }

    /// Appends the entry.
    pub fn encode(&self, writer: &mut Writer) {
        self.version.encode(writer);
        let length = (Self::FIXED_BYTES + self.nids.len()) as u32;
        [self.instance, self.index, length].encode(writer);
        [self.kind, self.nid_type, self.nid_size, self.nid_count].encode(writer);
        writer.put(&self.nids);
    }
}

wire_bits! {
    /// `CM_*`: which end of a section of a log a marker is, and whether it counts.
    pub struct MarkerFlags: u32 {
        /// The section starts.
        START = 0x1,
        /// The section ends.
        END = 0x2,
        /// The section is cancelled.
        SKIP = 0x4,
        /// Written by an upgrade.
        UPGRADE146 = 0x8,
        /// Excluded at mount.
        EXCLUDE = 0x10,
    }
}

wire_struct! {
    /// `struct cfg_marker`: brackets the records of one change in a log.
    pub struct CfgMarker {
        /// Number of the change.
        step: u32,
        /// Start or end.
        flags: MarkerFlags,
        /// Release of the writer.
        version: u32,
        /// Unused.
        padding: u32,
        /// When it was written, in seconds.
        create_time: i64,
        /// When it was cancelled, in seconds; 0 if it was not.
        cancel_time: i64,
        /// The target it is about.
        target: Chars<64>,
        /// What it does.
        comment: Chars<64>,
    }
}

wire_enum! {
    /// `LCFG_*`: what a configuration record does.
    pub enum ConfigCommand: u32 {
        /// Makes a device.
        ATTACH = 0xc_f001,
        /// Removes a device.
        DETACH = 0xc_f002,
        /// Starts a device.
        SETUP = 0xc_f003,
        /// Stops a device.
        CLEANUP = 0xc_f004,
        /// Adds a NID to a node's UUID.
        ADD_UUID = 0xc_f005,
        /// Removes a node's UUID.
        DEL_UUID = 0xc_f006,
        /// Names the devices of a mount.
        MOUNTOPT = 0xc_f007,
        /// Removes such a name.
        DEL_MOUNTOPT = 0xc_f008,
        /// Sets the RPC timeout.
        SET_TIMEOUT = 0xc_f009,
        /// Obsolete.
        SET_UPCALL = 0xc_f00a,
        /// Adds a failover node to a device.
        ADD_CONN = 0xc_f00b,
        /// Removes a failover node.
        DEL_CONN = 0xc_f00c,
        /// Adds an OST to a LOV.
        LOV_ADD_OBD = 0xc_f00d,
        /// Removes an OST from a LOV.
        LOV_DEL_OBD = 0xc_f00e,
        /// Sets a parameter of a device.
        PARAM = 0xc_f00f,
        /// Marks the start or end of a change.
        MARKER = 0xc_f010,
        /// Local to the MGC.
        LOG_START = 0xc_e011,
        /// Local to the MGC.
        LOG_END = 0xc_e012,
        /// Adds an inactive OST to a LOV.
        LOV_ADD_INA = 0xc_e013,
        /// Adds an MDT to an LMV.
        ADD_MDC = 0xc_f014,
        /// Removes an MDT from an LMV.
        DEL_MDC = 0xc_f015,
        /// Security rules.
        SPTLRPC_CONF = 0xc_e016,
        /// Makes a pool.
        POOL_NEW = 0xc_e020,
        /// Adds an OST to a pool.
        POOL_ADD = 0xc_e021,
        /// Removes an OST from a pool.
        POOL_REM = 0xc_e022,
        /// Removes a pool.
        POOL_DEL = 0xc_e023,
        /// Sets the lock timeout.
        SET_LDLM_TIMEOUT = 0xc_e030,
        /// Local: before CLEANUP.
        PRE_CLEANUP = 0xc_f031,
        /// Sets a parameter by its full name.
        SET_PARAM = 0xc_e032,
    }
}

/// `LUSTRE_CFG_VERSION`.
pub const LUSTRE_CFG_VERSION: u32 = 0x1cf6_0001;
/// `LUSTRE_CFG_MAX_BUFCOUNT`.
const CFG_BUFFERS_MAX: usize = 8;

/// `struct lustre_cfg`: one configuration record, between its log header and tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LustreCfg {
    /// What it does.
    pub command: ConfigCommand,
    /// A number some commands take.
    pub number: u32,
    /// Flags.
    pub flags: u32,
    /// A NID some commands take.
    pub nid: u64,
    /// Unused.
    pub nal: u32,
    /// Arguments; the first names the device. Texts end with a NUL.
    pub buffers: Vec<Bytes>,
}

impl LustreCfg {
    /// A record whose arguments are texts; an empty one is absent.
    #[must_use]
    pub fn new(command: ConfigCommand, texts: &[&str]) -> Self {
        let buffers = texts.iter().map(|text| match *text {
            "" => Bytes::new(),
            text => crate::text::Text::from(text).buffer().clone(),
        });
        Self { command, buffers: buffers.collect(), ..Self::default() }
    }

    /// Argument `index` up to its first NUL; empty if it is absent.
    #[must_use]
    pub fn text(&self, index: usize) -> &[u8] {
        let buffer = self.buffers.get(index).map_or(&[][..], |buffer| buffer);
        buffer.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Reads a record that fills what is left of `reader`.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u32::decode(reader)?;
        if version != LUSTRE_CFG_VERSION {
            return Err(DecodeError::Illegal { what: "lcfg_version", value: u64::from(version) });
        }
        let command = ConfigCommand::decode(reader)?;
        let [number, flags] = <[u32; 2]>::decode(reader)?;
        let nid = u64::decode(reader)?;
        let [nal, count] = <[u32; 2]>::decode(reader)?;
        let count = count as usize;
        if count > CFG_BUFFERS_MAX {
            return Err(DecodeError::Illegal { what: "lcfg_bufcount", value: count as u64 });
        }
        let mut lengths = [0; CFG_BUFFERS_MAX];
        for length in &mut lengths[..count] {
            *length = u32::decode(reader)? as usize;
        }
        reader.bytes(round8(count * 4) - count * 4, "lcfg_buflens")?;
        let mut buffers = Vec::with_capacity(count);
        for length in &lengths[..count] {
            buffers.push(reader.bytes(*length, "lcfg_buf")?);
            reader.bytes(round8(*length) - length, "lcfg_buf padding")?;
        }
        Ok(Self { command, number, flags, nid, nal, buffers })
    }

    /// Appends the record: a multiple of 8 bytes.
    pub fn encode(&self, writer: &mut Writer) {
        LUSTRE_CFG_VERSION.encode(writer);
        self.command.encode(writer);
        [self.number, self.flags].encode(writer);
        self.nid.encode(writer);
        [self.nal, self.buffers.len() as u32].encode(writer);
        for buffer in &self.buffers {
            (buffer.len() as u32).encode(writer);
        }
        writer.zeros(round8(self.buffers.len() * 4) - self.buffers.len() * 4);
        for buffer in &self.buffers {
            writer.put(buffer);
            writer.zeros(round8(buffer.len()) - buffer.len());
        }
    }
}
