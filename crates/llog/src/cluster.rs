//! From a client's log to the targets of a file system.
//!
//! Reading goes on: a log that grew is fed with its new records only, and the map changes as a
//! mounted client's does.

use std::collections::BTreeMap;
use std::fmt;

use sheen_types::{HashMap, Nid, TargetName, Uuid};
use sheen_wire::mgs::{ConfigCommand, LustreCfg, MarkerFlags};

use crate::log::LogRecord;
use crate::section::LovDesc;

/// One MDT or OST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapTarget {
    /// Its number.
    pub index: u32,
    /// Under which it is connected to.
    pub uuid: Uuid,
    /// What reaches it and its failover nodes, the first first.
    pub nids: Vec<Nid>,
    /// The device that stands for it, as `lustre-OST0000-osc`.
    pub device: String,
    /// Not to be used: deactivated for good by an operator.
    pub is_excluded: bool,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its record's index in its log: the same assignment made again is another parameter.
    pub index: u32,
    /// The device it is for (`conf_param`); `None` if its name says (`set_param -P`).
    pub device: Option<String>,
    /// `name=value`.
    pub assignment: String,
}

/// How far a log was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u32);

/// A record that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapError {
    /// Its index.
    pub index: u32,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for MapError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "configuration record {}: {}", self.index, self.text)
    }
}

impl std::error::Error for MapError {}

/// What a client's log describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMap {
    /// The file system.
    pub fsname: String,
    /// By index.
    pub mdts: Vec<MapTarget>,
    /// By index.
    pub osts: Vec<MapTarget>,
    /// The pools by name, with the indexes of their OSTs in the order in which they joined.
    pub pools: BTreeMap<String, Vec<u16>>,
    /// In the order in which they were set.
    pub params: Vec<Param>,
    /// How OSTs are combined before any layout says otherwise, if the log has come to that.
    pub lov: Option<LovDesc>,
    read_up_to: Position,
    nodes: HashMap<String, Vec<Nid>>,
    devices: HashMap<String, (String, Vec<Nid>)>,
    /// Flags of the section being read.
    section: MarkerFlags,
}

impl ClusterMap {
    /// Nothing known yet.
    #[must_use]
    pub fn new(fsname: &str) -> Self {
        Self { fsname: fsname.to_owned(), ..Self::default() }
    }

    /// How far the log was read.
    #[must_use]
    pub fn position(&self) -> Position {
        self.read_up_to
    }

    /// Reads records; those up to [`ClusterMap::position`] are passed over. Records of a kind that
    /// means nothing to the map are too.
    ///
    /// # Errors
    /// [`MapError`]; what was read before it stays.
    pub fn read(&mut self, records: &[LogRecord]) -> Result<(), MapError> {
        for record in records {
            if Position(record.index) <= self.read_up_to {
                continue;
            }
            self.read_up_to = Position(record.index);
            match record.marker() {
                Some(marker) if marker.flags.contains(MarkerFlags::START) => {
                    self.section = marker.flags;
                }
                Some(_) => self.section = MarkerFlags::NONE,
                None if self.section.contains(MarkerFlags::SKIP) => {}
                None => self
                    .apply(record.index, &record.config)
                    .map_err(|text| MapError { index: record.index, text: text.to_owned() })?,
            }
        }
        Ok(())
    }

    fn apply(&mut self, index: u32, config: &LustreCfg) -> Result<(), &'static str> {
        let text = |place| String::from_utf8_lossy(config.text(place)).into_owned();
        match config.command {
            ConfigCommand::ADD_UUID => {
                let nids = self.nodes.entry(text(1)).or_default();
                let nid = match config.nid {
                    0 => text(1).parse().map_err(|_| "a NID that is none")?,
                    number => Nid(number),
                };
                if !nids.contains(&nid) {
                    nids.push(nid);
                }
            }
            ConfigCommand::SETUP => {
                // The setups of lov and lmv name no node, but say how targets are combined.
                if let Some(lov) = config.buffers.get(1).and_then(LovDesc::of_lov) {
                    self.lov = Some(lov);
                }
                if let Some(nids) = self.nodes.get(&text(2)) {
                    self.devices.insert(text(1), (text(0), nids.clone()));
                }
            }
            ConfigCommand::ADD_CONN => self.add_node(&text(0), &text(1))?,
            ConfigCommand::ADD_MDC => {
                let target = self.target(&text(1), &text(2))?;
                put(&mut self.mdts, target);
            }
            ConfigCommand::LOV_ADD_OBD => {
                let target = self.target(&text(1), &text(2))?;
                put(&mut self.osts, target);
            }
            ConfigCommand::LOV_DEL_OBD => {
                let uuid = Uuid::new(text(1));
                self.osts.retain(|target| target.uuid != uuid);
            }
            ConfigCommand::DEL_MDC => {
                let uuid = Uuid::new(text(1));
                self.mdts.retain(|target| target.uuid != uuid);
            }
            ConfigCommand::POOL_NEW
            | ConfigCommand::POOL_ADD
            | ConfigCommand::POOL_REM
            | ConfigCommand::POOL_DEL => self.pool(config.command, text(2), &text(3))?,
            ConfigCommand::SET_TIMEOUT => {
                let assignment = format!("sys.timeout={}", config.number);
                self.params.push(Param { index, device: Some(String::new()), assignment });
            }
            ConfigCommand::PARAM => {
                self.params.push(Param { index, device: Some(text(0)), assignment: text(1) });
            }
            ConfigCommand::SET_PARAM => {
                self.params.push(Param { index, device: None, assignment: text(1) });
            }
            _ => {}
        }
        Ok(())
    }

    /// A change of a pool. What a pool that is gone had is still in the log, so that a member of
    /// no pool means nothing.
    fn pool(
        &mut self,
        command: ConfigCommand,
        name: String,
        ost: &str,
    ) -> Result<(), &'static str> {
        if command == ConfigCommand::POOL_NEW {
            self.pools.entry(name).or_default();
            return Ok(());
        }
        if command == ConfigCommand::POOL_DEL {
            self.pools.remove(&name);
            return Ok(());
        }
        let Some(members) = self.pools.get_mut(&name) else { return Ok(()) };
        let ost: TargetName = ost.parse().map_err(|_| "a member of a pool that is no target")?;
        members.retain(|index| *index != ost.index);
        if command == ConfigCommand::POOL_ADD {
            members.push(ost.index);
        }
        Ok(())
    }

    /// A target whose device was set up before.
    fn target(&self, uuid: &str, index: &str) -> Result<MapTarget, &'static str> {
        let index = index.parse().map_err(|_| "an index that is no number")?;
        let (device, nids) = self.devices.get(uuid).cloned().ok_or("a target without a device")?;
        let is_excluded = self.section.contains(MarkerFlags::EXCLUDE);
        Ok(MapTarget { index, uuid: Uuid::new(uuid), nids, device, is_excluded })
    }

    /// One more node for a device; its target may be in the map already.
    fn add_node(&mut self, device: &str, node: &str) -> Result<(), &'static str> {
        let more = self.nodes.get(node).cloned().ok_or("a node without NIDs")?;
        let known = self.devices.values_mut().find(|(name, _)| name == device);
        known.ok_or("a node for no device")?.1.extend(&more);
        let targets = self.mdts.iter_mut().chain(&mut self.osts);
        for target in targets.filter(|target| target.device == device) {
            target.nids.extend(&more);
        }
        Ok(())
    }
}

/// Adds a target, or what is new of it.
fn put(targets: &mut Vec<MapTarget>, target: MapTarget) {
    match targets.binary_search_by_key(&target.index, |known| known.index) {
        Ok(place) => targets[place] = target,
        Err(place) => targets.insert(place, target),
    }
}
