//! Which targets there are and where: what a configuration log adds up to.

use std::collections::BTreeMap;

use sheen_types::{Nid, TargetKind};
use sheen_wire::codec::{ByteOrder, Reader, Wire};
use sheen_wire::mgs::{CfgMarker, ConfigCommand, LustreCfg, MarkerFlags};

/// A file system's targets and parameters, record by record.
#[derive(Clone, Debug, Default)]
pub struct ClusterMap {
    /// NIDs of nodes, by the names that the log gives them.
    nodes: BTreeMap<String, Vec<Nid>>,
    /// Devices, by name.
    devices: BTreeMap<String, Device>,
    targets: BTreeMap<(TargetKind, u32), String>,
    parameters: Vec<(String, String)>,
    skipping: bool,
}

/// A client's device for one target.
#[derive(Clone, Debug, Default)]
struct Device {
    target: String,
    nodes: Vec<String>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// MDT or OST.
    pub kind: TargetKind,
    /// Its number.
    pub index: u32,
    /// Its UUID, `FSNAME-OST0000_UUID`.
    pub uuid: String,
    /// Where it is served, the best first.
    pub nids: Vec<Nid>,
}

impl Target {
    /// Its name: the UUID without its ending.
    #[must_use]
    pub fn name(&self) -> &str {
        self.uuid.strip_suffix("_UUID").unwrap_or(&self.uuid)
    }
}

impl ClusterMap {
    /// Takes one record into account. Records that concern no client are left out.
    pub fn apply(&mut self, record: &LustreCfg) {
        if record.command == ConfigCommand::MARKER {
            self.mark(record);
            return;
        }
        if self.skipping {
            return;
        }
        let text = |index| String::from_utf8_lossy(record.text(index)).into_owned();
        match record.command {
            ConfigCommand::ADD_UUID => {
                let nid = match record.nid {
                    0 => text(1).parse().ok(),
                    nid => Some(Nid(nid)),
                };
                let nids = self.nodes.entry(text(1)).or_default();
                nids.extend(nid.filter(|nid| !nids.contains(nid)));
            }
            ConfigCommand::SETUP => {
                let device = self.devices.entry(text(0)).or_default();
                device.target = text(1);
                device.nodes = vec![text(2)];
            }
            ConfigCommand::ADD_CONN => {
                self.devices.entry(text(0)).or_default().nodes.push(text(1));
            }
            ConfigCommand::DEL_CONN => {
                let node = text(1);
                self.devices.entry(text(0)).or_default().nodes.retain(|known| *known != node);
            }
            ConfigCommand::ADD_MDC => self.add(TargetKind::Mdt, &text(2), text(1)),
            ConfigCommand::LOV_ADD_OBD => self.add(TargetKind::Ost, &text(2), text(1)),
            ConfigCommand::DEL_MDC => self.remove(TargetKind::Mdt, &text(2)),
            ConfigCommand::LOV_DEL_OBD => self.remove(TargetKind::Ost, &text(2)),
            ConfigCommand::PARAM => self.parameters(&text(0), record, 1),
            ConfigCommand::SET_PARAM => self.parameters("", record, 0),
            _ => {}
        }
    }

    fn mark(&mut self, record: &LustreCfg) {
        let Some(buffer) = record.buffers.get(1) else { return };
        let Ok(marker) = CfgMarker::decode(&mut Reader::new(buffer, ByteOrder::Little)) else {
            return;
        };
        let cancelled = marker.flags.intersects(MarkerFlags::SKIP | MarkerFlags::EXCLUDE);
        self.skipping = cancelled && marker.flags.contains(MarkerFlags::START);
    }

    fn add(&mut self, kind: TargetKind, index: &str, uuid: String) {
        if let Ok(index) = index.parse() {
            self.targets.insert((kind, index), uuid);
        }
    }

    fn remove(&mut self, kind: TargetKind, index: &str) {
        if let Ok(index) = index.parse() {
            self.targets.remove(&(kind, index));
        }
    }

    fn parameters(&mut self, device: &str, record: &LustreCfg, from: usize) {
        for index in from..record.buffers.len() {
            let text = String::from_utf8_lossy(record.text(index)).into_owned();
            let Some((key, value)) = text.split_once('=') else { continue };
            let key = match device {
                "" => key.to_owned(),
                device => format!("{device}.{key}"),
            };
            self.parameters.retain(|(known, _)| *known != key);
            self.parameters.push((key, value.to_owned()));
        }
    }

    /// The targets: MDTs, then OSTs, each by number.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let target = |((kind, index), uuid): (&(TargetKind, u32), &String)| Target {
            kind: *kind,
            index: *index,
            uuid: uuid.clone(),
            nids: self.nids(uuid),
        };
        self.targets.iter().map(target).collect()
    }

    /// Parameters that the log sets, `device.key` and value, in its order.
    #[must_use]
    pub fn parameters_set(&self) -> &[(String, String)] {
        &self.parameters
    }

    fn nids(&self, uuid: &str) -> Vec<Nid> {
        let device = self.devices.values().find(|device| device.target == uuid);
        let nodes = device.map_or(&[][..], |device| &device.nodes);
        let mut nids: Vec<Nid> = Vec::new();
        for node in nodes {
            let known = self.nodes.get(node).cloned();
            let fallback = || node.parse().ok().into_iter().collect::<Vec<Nid>>();
            for nid in known.unwrap_or_else(fallback) {
                if !nids.contains(&nid) {
                    nids.push(nid);
                }
            }
        }
        nids
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::codec::Writer;

    use super::*;

    fn marker(flags: MarkerFlags) -> LustreCfg {
        let mut writer = Writer::default();
        CfgMarker { flags, ..CfgMarker::default() }.encode(&mut writer);
        let mut record = LustreCfg::new(ConfigCommand::MARKER, &["", ""]);
        record.buffers[1] = writer.into_bytes();
        record
    }

    fn ost(map: &mut ClusterMap, index: &str, node: &str) {
        let uuid = format!("fs-OST000{index}_UUID");
        let device = format!("fs-OST000{index}-osc");
        let mut add = LustreCfg::new(ConfigCommand::ADD_UUID, &["", node]);
        add.nid = node.parse::<Nid>().unwrap().0;
        map.apply(&add);
        map.apply(&LustreCfg::new(ConfigCommand::ATTACH, &[&device, "osc", "fs-clilov_UUID"]));
        map.apply(&LustreCfg::new(ConfigCommand::SETUP, &[&device, &uuid, node]));
        let add = ["fs-clilov", &uuid, index, "1"];
        map.apply(&LustreCfg::new(ConfigCommand::LOV_ADD_OBD, &add));
    }

    #[test]
    fn a_log_adds_up_to_targets() {
        let mut map = ClusterMap::default();
        map.apply(&marker(MarkerFlags::START));
        ost(&mut map, "1", "10.0.0.2@tcp");
        ost(&mut map, "0", "10.0.0.1@tcp");
        map.apply(&marker(MarkerFlags::END));
        let add = ["fs-OST0000-osc", "10.0.0.2@tcp"];
        map.apply(&LustreCfg::new(ConfigCommand::ADD_CONN, &add));
        let mdc = ["fs-clilmv", "fs-MDT0000_UUID", "0", "1", "fs-MDT0000-mdc_UUID"];
        let setup = ["fs-MDT0000-mdc", "fs-MDT0000_UUID", "10.0.0.9@tcp"];
        map.apply(&LustreCfg::new(ConfigCommand::SETUP, &setup));
        map.apply(&LustreCfg::new(ConfigCommand::ADD_MDC, &mdc));
        let targets = map.targets();
        let names: Vec<_> = targets.iter().map(Target::name).collect();
        assert_eq!(names, ["fs-MDT0000", "fs-OST0000", "fs-OST0001"]);
        let nids: Vec<Vec<String>> = targets
            .iter()
            .map(|target| target.nids.iter().map(ToString::to_string).collect())
            .collect();
        // A node that no record describes is known by its name, which is a NID.
        assert_eq!(nids[0], ["10.0.0.9@tcp"]);
        assert_eq!(nids[1], ["10.0.0.1@tcp", "10.0.0.2@tcp"]);
    }

    #[test]
    fn cancelled_sections_do_not_count() {
        let mut map = ClusterMap::default();
        map.apply(&marker(MarkerFlags::START | MarkerFlags::SKIP));
        ost(&mut map, "0", "10.0.0.1@tcp");
        map.apply(&marker(MarkerFlags::END | MarkerFlags::SKIP));
        ost(&mut map, "1", "10.0.0.1@tcp");
        assert_eq!(map.targets().len(), 1);
    }

    #[test]
    fn the_last_value_of_a_parameter_counts() {
        let mut map = ClusterMap::default();
        for value in ["llite.a=1", "llite.b=2", "llite.a=3"] {
            map.apply(&LustreCfg::new(ConfigCommand::PARAM, &["fs-client", value]));
        }
        let set: Vec<_> = map
            .parameters_set()
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(set, [("fs-client.llite.b", "2"), ("fs-client.llite.a", "3")]);
    }
}
