//! What a target is, as it lies in its store's configuration.
//!
//! | key | value |
//! |---|---|
//! | `types` | `mgs`, `mdt`, `ost`, with a comma between two |
//! | `fsname`, `index` | of the MDT or OST |
//! | `mgsnode` | NIDs of the MGS: `,` between those of a node, `:` between nodes |
//! | `param.NAME` | a parameter from `--param` |
//! | `comment` | a note |
//! | `replace` | `1`: takes the place of a lost target |

use std::collections::BTreeMap;
use std::path::Path;

use sheen_store_disk::{Config, MEMTABLE_BYTES_OF_MDT};
use sheen_types::{Nid, TargetKind, TargetName};

const TYPES: &str = "types";
const FSNAME: &str = "fsname";
const INDEX: &str = "index";
const MGSNODE: &str = "mgsnode";
const PARAM: &str = "param.";
const COMMENT: &str = "comment";
const REPLACE: &str = "replace";

/// What a target is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetConfig {
    /// Whether it holds the configuration service.
    pub mgs: bool,
    /// MDT or OST; `None` for an MGS alone.
    pub kind: Option<TargetKind>,
    /// The file system; empty for an MGS alone.
    pub fsname: String,
    /// Number among those of its kind; 0 for an MGS alone.
    pub index: u16,
    /// The nodes on which the MGS may be, each with its NIDs.
    pub mgs_nodes: Vec<Vec<Nid>>,
    /// Parameters that the target brings along.
    pub params: BTreeMap<String, String>,
    /// A note.
    pub comment: String,
    /// Whether it takes the place of a lost target.
    pub replace: bool,
}

impl TargetConfig {
    /// Reads the configuration of the store in `folder`, without opening the store.
    ///
    /// # Errors
    /// One line if there is no store, or none of a target.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let config = Config::load(folder).map_err(|error| error.to_string())?;
        let wrong = |what| format!("{}: {what}", folder.display());
        Self::from_values(&config.values).map_err(wrong)
    }

    /// `lustre-OST0000`, or `MGS`.
    pub fn name(&self) -> String {
        match self.kind {
            None => "MGS".to_owned(),
            Some(kind) => {
                TargetName { fsname: self.fsname.clone(), kind, index: self.index }.to_string()
            }
        }
    }

    /// The name as Lustre shows it before the target has registered: `lustre:OST0000`.
    pub(super) fn virgin_name(&self) -> String {
        let name = self.name();
        match self.kind {
            Some(_) if !self.replace => {
                let (fsname, rest) = name.split_at(self.fsname.len());
                format!("{fsname}:{}", rest.trim_start_matches('-'))
            }
            _ => name,
        }
    }

    /// `LDD_F_*` bits and their names.
    pub(super) fn flags(&self) -> (u32, Vec<&'static str>) {
        let all = [
            (self.kind == Some(TargetKind::Mdt), 0x1, "MDT"),
            (self.kind == Some(TargetKind::Ost), 0x2, "OST"),
            (self.mgs, 0x4, "MGS"),
            (!self.replace, 0x20, "first_time"),
            (true, 0x40, "update"),
            (self.replace, 0x1_0000, "no_local_logs"),
        ];
        let set = all.iter().filter(|(set, _, _)| *set);
        (set.clone().map(|(_, bit, _)| bit).sum(), set.map(|(_, _, name)| *name).collect())
    }

    /// `KEY=VALUE` for MGS nodes and parameters.
    pub(super) fn parameters(&self) -> Vec<String> {
        let nodes = self.mgs_nodes.iter().map(|node| format!("{MGSNODE}={}", node_text(node)));
        nodes.chain(self.params.iter().map(|(key, value)| format!("{key}={value}"))).collect()
    }

    /// What its store gathers before it writes a table: an MDT may have millions of names.
    #[must_use]
    pub fn memtable_bytes(&self) -> u64 {
        match self.kind {
            Some(TargetKind::Mdt) => MEMTABLE_BYTES_OF_MDT,
            _ => 0,
        }
    }

    /// The lines of the store's configuration.
    pub fn to_values(&self) -> BTreeMap<String, String> {
        let kind = self.kind.map(|kind| match kind {
            TargetKind::Mdt => "mdt",
            TargetKind::Ost => "ost",
        });
        let types: Vec<&str> = self.mgs.then_some("mgs").into_iter().chain(kind).collect();
        let mut values = BTreeMap::from([(TYPES.to_owned(), types.join(","))]);
        let mut put = |key: &str, value: String| values.insert(key.to_owned(), value);
        if self.kind.is_some() {
            put(FSNAME, self.fsname.clone());
            put(INDEX, self.index.to_string());
        }
        if !self.mgs_nodes.is_empty() {
            let nodes: Vec<String> = self.mgs_nodes.iter().map(|node| node_text(node)).collect();
            put(MGSNODE, nodes.join(":"));
        }
        if !self.comment.is_empty() {
            put(COMMENT, self.comment.clone());
        }
        if self.replace {
            put(REPLACE, "1".to_owned());
        }
        let param = |(key, value): (&String, &String)| (format!("{PARAM}{key}"), value.clone());
        values.extend(self.params.iter().map(param));
        values
    }

    /// Reads what [`TargetConfig::to_values`] wrote; keys that are not ours are passed over.
    pub fn from_values(values: &BTreeMap<String, String>) -> Result<Self, String> {
        let value = |key: &str| values.get(key).cloned().unwrap_or_default();
        let mut config = Self {
            fsname: value(FSNAME),
            comment: value(COMMENT),
            replace: value(REPLACE) == "1",
            ..Self::default()
        };
        for name in value(TYPES).split(',') {
            match name {
                "mgs" => config.mgs = true,
                "mdt" => config.kind = Some(TargetKind::Mdt),
                "ost" => config.kind = Some(TargetKind::Ost),
                other => return Err(format!("unknown target type '{other}'")),
            }
        }
        if config.kind.is_some() {
            let text = value(INDEX);
            config.index = text.parse().map_err(|_| format!("invalid index '{text}'"))?;
        }
        config.mgs_nodes =
            parse_nodes(&values.get(MGSNODE).cloned().into_iter().collect::<Vec<_>>())?;
        let params = values
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(PARAM)?.to_owned(), value.clone())));
        config.params = params.collect();
        Ok(config)
    }
}

fn node_text(node: &[Nid]) -> String {
    let nids: Vec<String> = node.iter().map(Nid::to_string).collect();
    nids.join(",")
}

/// Nodes of all the texts: `NID,NID:NID`.
pub(super) fn parse_nodes(texts: &[String]) -> Result<Vec<Vec<Nid>>, String> {
    let nid =
        |text: &str| text.parse::<Nid>().map_err(|error| format!("mgsnode '{text}': {error}"));
    let nodes = texts.iter().flat_map(|text| text.split(':'));
    nodes.map(|node| node.split(',').map(nid).collect()).collect()
}

/// `KEY=VALUE`, both of them there and in one line.
pub(super) fn parse_param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() && !text.contains('\n') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(format!("--param '{text}' is not KEY=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sheen_types::TargetKind;

    use super::{TargetConfig, parse_nodes, parse_param};

    #[test]
    fn a_configuration_survives_its_store() {
        let nodes = "10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp".to_owned();
        let config = TargetConfig {
            mgs: true,
            kind: Some(TargetKind::Mdt),
            fsname: "a-b".to_owned(),
            index: 31,
            mgs_nodes: parse_nodes(std::slice::from_ref(&nodes)).unwrap(),
            params: BTreeMap::from([parse_param("lov.stripesize=2M").unwrap()]),
            comment: "a note = one".to_owned(),
            replace: true,
        };
        let mut values = config.to_values();
        assert_eq!(values["types"], "mgs,mdt");
        assert_eq!(values["mgsnode"], nodes);
        values.insert("label".to_owned(), config.name());
        assert_eq!(TargetConfig::from_values(&values), Ok(config));
        assert!(TargetConfig::from_values(&BTreeMap::new()).is_err());
    }

    #[test]
    fn names_before_and_after_registration() {
        let mut config = TargetConfig {
            kind: Some(TargetKind::Ost),
            fsname: "a-b".to_owned(),
            ..TargetConfig::default()
        };
        assert_eq!(
            (config.name(), config.virgin_name()),
            ("a-b-OST0000".into(), "a-b:OST0000".into())
        );
        config.replace = true;
        assert_eq!(config.virgin_name(), "a-b-OST0000");
        assert_eq!(config.flags(), (0x1_0042, vec!["OST", "update", "no_local_logs"]));
    }
}
