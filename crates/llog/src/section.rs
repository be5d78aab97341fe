//! The sections that make up configuration logs: which records the MGS writes for what, in the
//! order that Lustre's clients and servers expect.

use bytes::Bytes;
use sheen_types::{Nid, TargetName, Uuid};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::mgs::{ConfigCommand, LustreCfg, MarkerFlags};
use sheen_wire::wire_struct;

/// `LOV_DESC_MAGIC`.
const LOV_DESC_MAGIC: u32 = 0xb0cc_de5c;
/// `LOV_PATTERN_RAID0`.
const PATTERN_RAID0: u32 = 1;
/// `LOV_DESC_STRIPE_SIZE_DEFAULT`: 4 MiB.
const STRIPE_SIZE_DEFAULT: u64 = 4 << 20;
/// `LOV_DESC_QOS_MAXAGE_DEFAULT`, in seconds.
const QOS_MAXAGE_DEFAULT: u32 = 5;
/// `lctl`, the program that clients run for `set_param -P`.
const UPCALL: &str = "lctl";

wire_struct! {
    /// `struct lov_desc`: how a client combines OSTs, before any layout says otherwise.
    pub struct LovDesc {
        /// Targets known so far; 0 in a log.
        target_count: u32,
        /// Distinguishes a LOV's description from an LMV's, where it is 0.
        magic: u32,
        /// Stripes of a file.
        stripe_count: u32,
        /// Layout pattern.
        pattern: u32,
        /// Bytes of a stripe.
        stripe_size: u64,
        /// First OST; all ones for any.
        stripe_offset: u64,
        /// Unused.
        padding0: u32,
        /// Seconds between looks at the OSTs' space.
        qos_maxage: u32,
        /// Unused.
        padding1: [u32; 2],
        /// Name of the combination.
        uuid: Uuid,
    }
}

impl LovDesc {
    /// The description that these bytes are, if it is one of a LOV.
    pub(crate) fn of_lov(bytes: &Bytes) -> Option<Self> {
        let it = Self::decode(&mut Reader::new(bytes, ByteOrder::Little)).ok()?;
        (it.magic == LOV_DESC_MAGIC).then_some(it)
    }
}

/// Records that belong together, between two markers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// What it is about: a target or device.
    pub target: String,
    /// What it does, as `add osc`.
    pub comment: String,
    /// The markers' flags besides start and end.
    pub flags: MarkerFlags,
    /// The records.
    pub records: Vec<LustreCfg>,
}

impl Section {
    fn new(target: impl Into<String>, comment: &str, records: Vec<LustreCfg>) -> Self {
        let (target, comment) = (target.into(), comment.to_owned());
        Self { target, comment, flags: MarkerFlags::NONE, records }
    }
}

fn uuid(name: &str) -> String {
    format!("{name}_UUID")
}

fn attach(device: &str, kind: &str, uuid: &str) -> LustreCfg {
    LustreCfg::new(ConfigCommand::ATTACH, &[device, kind, uuid])
}

fn setup_with(device: &str, description: &LovDesc) -> LustreCfg {
    let mut writer = Writer::with_capacity(LovDesc::SIZE);
    description.encode(&mut writer);
    let mut record = LustreCfg::new(ConfigCommand::SETUP, &[device]);
    record.buffers.push(writer.into_bytes());
    record
}

/// `lov setup`: the device that combines OSTs. First in every log.
#[must_use]
pub fn lov_setup(lov: &str) -> Section {
    let description = LovDesc {
        magic: LOV_DESC_MAGIC,
        stripe_count: 1,
        pattern: PATTERN_RAID0,
        stripe_size: STRIPE_SIZE_DEFAULT,
        stripe_offset: u64::MAX,
        qos_maxage: QOS_MAXAGE_DEFAULT,
        uuid: Uuid::new(uuid(lov)),
        ..LovDesc::default()
    };
    let records = vec![attach(lov, "lov", &uuid(lov)), setup_with(lov, &description)];
    Section::new(lov, "lov setup", records)
}

/// `lmv setup`: the device that combines MDTs.
#[must_use]
pub fn lmv_setup(lmv: &str) -> Section {
    let description = LovDesc { uuid: Uuid::new(uuid(lmv)), ..LovDesc::default() };
    let records = vec![attach(lmv, "lmv", &uuid(lmv)), setup_with(lmv, &description)];
    Section::new(lmv, "lmv setup", records)
}

/// The client log's name.
#[must_use]
pub fn client_name(fsname: &str) -> String {
    format!("{fsname}-client")
}

/// `mount opts`: which devices a mount uses.
#[must_use]
pub fn mount_options(fsname: &str) -> Section {
    let profile = client_name(fsname);
    let (lov, lmv) = (format!("{fsname}-clilov"), format!("{fsname}-clilmv"));
    let record = LustreCfg::new(ConfigCommand::MOUNTOPT, &["", &profile, &lov, &lmv]);
    Section::new(profile, "mount opts", vec![record])
}

/// The records that make a node's NIDs known under the name of its first.
fn add_nids(nids: &[Nid]) -> (String, Vec<LustreCfg>) {
    let node = nids.first().map(ToString::to_string).unwrap_or_default();
    let records = nids.iter().map(|nid| LustreCfg {
        nid: nid.0,
        ..LustreCfg::new(ConfigCommand::ADD_UUID, &["", &node])
    });
    let records = records.collect();
    (node, records)
}

/// A device for a target, over the target's nodes: the first serves it, the rest may.
fn device(
    name: &str,
    kind: &str,
    parent: &str,
    target: &TargetName,
    nodes: &[Vec<Nid>],
) -> Vec<LustreCfg> {
    let target = target.uuid();
    let (first, backups) = nodes.split_first().map_or((&[][..], &[][..]), |(a, b)| (&a[..], b));
    let (node, mut records) = add_nids(first);
    records.push(attach(name, kind, &uuid(parent)));
    records.push(LustreCfg::new(ConfigCommand::SETUP, &[name, target.as_str(), &node]));
    for nids in backups {
        records.extend(failover_node(name, nids));
    }
    records
}

fn failover_node(device: &str, nids: &[Nid]) -> Vec<LustreCfg> {
    let (node, mut records) = add_nids(nids);
    records.push(LustreCfg::new(ConfigCommand::ADD_CONN, &[device, &node]));
    records
}

/// `add mdc`: an MDT, in a client's log. `nodes` are the NIDs of each node that may serve it.
#[must_use]
pub fn add_mdc(target: &TargetName, nodes: &[Vec<Nid>]) -> Section {
    let lmv = format!("{}-clilmv", target.fsname);
    let name = format!("{target}-mdc");
    let mut records = device(&name, "mdc", &lmv, target, nodes);
    let index = target.index.to_string();
    let texts = [&lmv[..], &uuid(&target.to_string()), &index, "1", &uuid(&name)];
    records.push(LustreCfg::new(ConfigCommand::ADD_MDC, &texts));
    Section::new(target.to_string(), "add mdc", records)
}

/// The device by which an MDT combines OSTs.
#[must_use]
pub fn mdt_lov(mdt: &TargetName) -> String {
    format!("{mdt}-mdtlov")
}

/// `add osc`: an OST, in a client's log, or in the log of an MDT.
#[must_use]
pub fn add_osc(target: &TargetName, nodes: &[Vec<Nid>], mdt: Option<&TargetName>) -> Section {
    let (lov, name) = match mdt {
        None => (format!("{}-clilov", target.fsname), format!("{target}-osc")),
        Some(mdt) => (mdt_lov(mdt), format!("{target}-osc-MDT{:04x}", mdt.index)),
    };
    let mut records = device(&name, "osc", &lov, target, nodes);
    let index = target.index.to_string();
    let texts = [&lov[..], &uuid(&target.to_string()), &index, "1"];
    records.push(LustreCfg::new(ConfigCommand::LOV_ADD_OBD, &texts));
    Section::new(target.to_string(), "add osc", records)
}

/// `add osp`: an MDT, in the log of another MDT.
#[must_use]
pub fn add_osp(target: &TargetName, nodes: &[Vec<Nid>], mdt: &TargetName) -> Section {
    let lov = mdt_lov(mdt);
    let name = format!("{target}-osp-MDT{:04x}", mdt.index);
    let mut records = device(&name, "osp", &lov, target, nodes);
    let index = target.index.to_string();
    let texts = [&lov[..], &uuid(&target.to_string()), &index, "1"];
    records.push(LustreCfg::new(ConfigCommand::ADD_MDC, &texts));
    Section::new(target.to_string(), "add osp", records)
}

/// `add mdt`: the MDT itself, in its own log.
#[must_use]
pub fn add_mdt(target: &TargetName) -> Section {
    let name = target.to_string();
    let (lov, index) = (mdt_lov(target), target.index.to_string());
    let records = vec![
        attach(&name, "mdt", &uuid(&name)),
        LustreCfg::new(ConfigCommand::MOUNTOPT, &["", &name, &lov]),
        LustreCfg::new(ConfigCommand::SETUP, &[&name, &uuid(&name), &index, &lov, "f"]),
    ];
    Section::new(name, "add mdt", records)
}

/// `add ost`: the OST itself, in its own log.
#[must_use]
pub fn add_ost(target: &TargetName) -> Section {
    let name = target.to_string();
    let records = vec![
        attach(&name, "obdfilter", &uuid(&name)),
        LustreCfg::new(ConfigCommand::SETUP, &[&name, "dev", "type", "f"]),
    ];
    Section::new(name, "add ost", records)
}

/// `add failnid`: one more node that may serve a target known to the log as `device`.
#[must_use]
pub fn add_failover(target: &TargetName, device: &str, nids: &[Nid]) -> Section {
    Section::new(target.to_string(), "add failnid", failover_node(device, nids))
}

/// What becomes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// It is there, empty.
    New,
    /// The OST becomes a member.
    Add(TargetName),
    /// The OST is no member any more.
    Remove(TargetName),
    /// It is gone.
    Destroy,
}

impl PoolChange {
    /// The comment of the section that says it.
    #[must_use]
    pub fn comment(&self, fsname: &str, pool: &str) -> String {
        match self {
            Self::New => format!("new {fsname}.{pool}"),
            Self::Add(ost) => format!("add {fsname}.{pool}.{}", ost.uuid()),
            Self::Remove(ost) => format!("rem {fsname}.{pool}.{}", ost.uuid()),
            Self::Destroy => format!("del {fsname}.{pool}"),
        }
    }

    /// The change that this one undoes: its section does not count any more.
    #[must_use]
    pub fn undone(&self) -> Option<Self> {
        match self {
            Self::Remove(ost) => Some(Self::Add(ost.clone())),
            Self::Destroy => Some(Self::New),
            Self::New | Self::Add(_) => None,
        }
    }
}

/// A change of a pool, for the device `lov` that combines OSTs in a client or an MDT.
#[must_use]
pub fn pool_change(lov: &str, fsname: &str, pool: &str, change: &PoolChange) -> Section {
    let (command, ost) = match change {
        PoolChange::New => (ConfigCommand::POOL_NEW, None),
        PoolChange::Add(ost) => (ConfigCommand::POOL_ADD, Some(ost)),
        PoolChange::Remove(ost) => (ConfigCommand::POOL_REM, Some(ost)),
        PoolChange::Destroy => (ConfigCommand::POOL_DEL, None),
    };
    let uuid = ost.map(|ost| ost.uuid().to_string());
    let texts = [lov, fsname, pool, uuid.as_deref().unwrap_or_default()];
    let used = if uuid.is_some() { 4 } else { 3 };
    let record = LustreCfg::new(command, &texts[..used]);
    Section::new(lov, &change.comment(fsname, pool), vec![record])
}

/// The name before `=`.
fn parameter_name(assignment: &str) -> &str {
    assignment.split('=').next().unwrap_or_default()
}

/// A parameter of a device, as `lctl conf_param` sets it.
#[must_use]
pub fn parameter(device: &str, assignment: &str) -> Section {
    let record = LustreCfg::new(ConfigCommand::PARAM, &[device, assignment]);
    Section::new(device, parameter_name(assignment), vec![record])
}

/// A parameter by its full name, as `lctl set_param -P` sets it, in the log `params`.
#[must_use]
pub fn set_parameter(assignment: &str) -> Section {
    let texts = ["general", assignment, UPCALL];
    let record = LustreCfg::new(ConfigCommand::SET_PARAM, &texts);
    Section::new("general", parameter_name(assignment), vec![record])
}

/// `sys.timeout`, in every log of a file system.
#[must_use]
pub fn system_timeout(fsname: &str, seconds: u32) -> Section {
    let text = format!("sys.timeout={seconds}");
    let mut record = LustreCfg::new(ConfigCommand::SET_TIMEOUT, &["", &text]);
    record.number = seconds;
    record.buffers[0] = Bytes::new();
    Section::new(fsname, "sys.timeout", vec![record])
}
