//! Records as `lctl llog_print` shows them: a flow mapping of YAML each.

use sheen_types::Nid;
use sheen_wire::mgs::{CfgMarker, ConfigCommand, LustreCfg, MarkerFlags};

use crate::LogRecord;

/// Each record that counts, as a line; with `raw` markers and what was cancelled, too.
#[must_use]
pub fn shown(records: &[LogRecord], raw: bool) -> Vec<(u32, String)> {
    let mut section = MarkerFlags::NONE;
    let mut lines = Vec::new();
    for record in records {
        let marker = record.marker();
        match &marker {
            Some(marker) if marker.flags.contains(MarkerFlags::START) => section = marker.flags,
            Some(_) => section = MarkerFlags::NONE,
            None => {}
        }
        let counts = section.contains(MarkerFlags::START)
            && !section.contains(MarkerFlags::SKIP)
            && marker.is_none();
        if (counts || raw)
            && let Some(text) = line(record, marker.as_ref())
        {
            lines.push((record.index, text));
        }
    }
    lines
}

fn line(record: &LogRecord, marker: Option<&CfgMarker>) -> Option<String> {
    let LogRecord { index, config } = record;
    let (event, names) = event(config.command)?;
    let mut text = format!("- {{ index: {index}, event: {event}");
    if config.flags != 0 {
        text += &format!(", flags: {:#08x}", config.flags);
    }
    if config.number != 0 {
        text += &format!(", num: {:#08x}", config.number);
    }
    if config.nid != 0 {
        text += &format!(", nid: {}({:#x})", Nid(config.nid), config.nid);
    }
    if config.buffers.first().is_some_and(|buffer| !buffer.is_empty()) {
        text += &format!(", device: {}", argument(config, 0));
    }
    match marker {
        Some(marker) => text += &marker_text(marker),
        None => text += &arguments(config, names),
    }
    Some(text + " }")
}

fn marker_text(marker: &CfgMarker) -> String {
    let [major, minor, patch, fix] = marker.version.to_be_bytes();
    format!(
        ", flags: {:#04x}, version: {major}.{minor}.{patch}.{fix}, createtime: {}, canceltime: {}",
        marker.flags.0, marker.create_time, marker.cancel_time
    )
}

fn argument(config: &LustreCfg, place: usize) -> String {
    String::from_utf8_lossy(config.text(place)).into_owned()
}

/// What a permanent parameter of all nodes is called stands apart from its value.
fn arguments(config: &LustreCfg, names: [&str; 4]) -> String {
    if config.command == ConfigCommand::SET_PARAM {
        let setting = argument(config, 1);
        let pair = setting.split_once('=');
        return pair.map_or_else(String::new, |(name, value)| {
            format!(", {}: {name}, {}: {value}", names[0], names[1])
        });
    }
    let named = config.buffers.iter().enumerate().skip(1).filter(|(_, bytes)| !bytes.is_empty());
    let one = |(place, _): (usize, _)| {
        let name = names.get(place - 1).copied().unwrap_or("?");
        format!(", {name}: {}", argument(config, place))
    };
    named.map(one).collect()
}

/// What a record is called, and its arguments behind the device.
fn event(command: ConfigCommand) -> Option<(&'static str, [&'static str; 4])> {
    const PLAIN: [&str; 4] = ["1", "2", "3", "4"];
    Some(match command {
        ConfigCommand::ATTACH => ("attach", ["type", "UUID", "3", "4"]),
        ConfigCommand::DETACH => ("detach", PLAIN),
        ConfigCommand::SETUP => ("setup", ["UUID", "node", "options", "failout"]),
        ConfigCommand::CLEANUP => ("cleanup", PLAIN),
        ConfigCommand::ADD_UUID => ("add_uuid", ["node", "nid", "3", "4"]),
        ConfigCommand::DEL_UUID => ("del_uuid", PLAIN),
        ConfigCommand::MOUNTOPT => ("new_profile", ["name", "lov", "lmv", "4"]),
        ConfigCommand::DEL_MOUNTOPT => ("del_mountopt", PLAIN),
        ConfigCommand::SET_TIMEOUT => ("set_timeout", ["parameter", "2", "3", "4"]),
        ConfigCommand::SET_UPCALL => ("set_upcall", PLAIN),
        ConfigCommand::ADD_CONN => ("add_conn", ["node", "2", "3", "4"]),
        ConfigCommand::DEL_CONN => ("del_conn", PLAIN),
        ConfigCommand::LOV_ADD_OBD => ("add_osc", ["ost", "index", "gen", "UUID"]),
        ConfigCommand::LOV_DEL_OBD => ("del_osc", PLAIN),
        ConfigCommand::PARAM => ("conf_param", ["parameter", "value", "3", "4"]),
        ConfigCommand::MARKER => ("marker", PLAIN),
        ConfigCommand::LOG_START => ("log_start", PLAIN),
        ConfigCommand::LOG_END => ("log_end", PLAIN),
        ConfigCommand::LOV_ADD_INA => ("add_osc_inactive", PLAIN),
        ConfigCommand::ADD_MDC => ("add_mdc", ["mdt", "index", "gen", "UUID"]),
        ConfigCommand::DEL_MDC => ("del_mdc", PLAIN),
        ConfigCommand::SPTLRPC_CONF => ("security", ["parameter", "2", "3", "4"]),
        ConfigCommand::POOL_NEW => ("new_pool", ["fsname", "pool", "3", "4"]),
        ConfigCommand::POOL_ADD => ("add_pool", ["fsname", "pool", "ost", "4"]),
        ConfigCommand::POOL_REM => ("remove_pool", ["fsname", "pool", "ost", "4"]),
        ConfigCommand::POOL_DEL => ("del_pool", ["fsname", "pool", "3", "4"]),
        ConfigCommand::SET_LDLM_TIMEOUT => ("set_ldlm_timeout", ["parameter", "2", "3", "4"]),
        ConfigCommand::SET_PARAM => ("set_param", ["parameter", "value", "3", "4"]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use sheen_types::{TargetKind, TargetName};

    use super::shown;
    use crate::{ConfigLog, PoolChange, parameter, pool_change, set_parameter};

    /// Records of the recording g3-conf-param-set-param-P-seen-by-client, but for their indexes.
    #[test]
    fn records_are_shown_as_lustre_shows_them() {
        let mut log = ConfigLog::new(0);
        let ost = TargetName { fsname: "lustre".into(), kind: TargetKind::Ost, index: 3 };
        for section in [
            set_parameter("jobid_var=procname_uid"),
            parameter("lustre-OST0003-osc", "osc.max_dirty_mb=24"),
            pool_change("lustre-clilov", "lustre", "quick", &PoolChange::Remove(ost)),
        ] {
            let step = log.step() + 1;
            log.append_section(&section, step, 0x0211_3900, 1_795_234_261).unwrap();
        }
        let lines: Vec<String> = shown(log.records(), false).into_iter().map(|it| it.1).collect();
        assert_eq!(
            lines,
            [
                "- { index: 2, event: set_param, device: general, parameter: jobid_var, value: procname_uid }",
                "- { index: 5, event: conf_param, device: lustre-OST0003-osc, parameter: osc.max_dirty_mb=24 }",
                "- { index: 8, event: remove_pool, device: lustre-clilov, fsname: lustre, pool: quick, ost: lustre-OST0003_UUID }",
            ]
        );
        let raw = shown(log.records(), true);
        assert_eq!((raw.len(), raw[0].0), (9, 1));
        assert!(
            raw[0].1.starts_with("- { index: 1, event: marker, flags: 0x01, version: 2.17.57.0")
        );
    }
}
