//! Parameters that reach all nodes: `lctl conf_param` and `lctl set_param -P`.

use sheen_llog::{ClusterMap, client_name, mdt_lov, parameter, set_parameter, system_timeout};
use sheen_types::{Errno, TargetKind, TargetName};

use crate::state::mdts;
use crate::state::{Edit, LogSet, MgsState, PARAMS, unreadable};

/// What a parameter becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change<'a> {
    Set(&'a str),
    Delete(&'a str),
}

impl<'a> Change<'a> {
    /// `name=value`; an empty value, or no `=` at all, deletes.
    fn of(text: &'a str) -> Self {
        match text.split_once('=') {
            Some((_, value)) if !value.is_empty() => Self::Set(text),
            Some((name, _)) => Self::Delete(name),
            None => Self::Delete(text),
        }
    }

    fn name(self) -> &'a str {
        match self {
            Self::Set(text) => text.split('=').next().unwrap_or_default(),
            Self::Delete(name) => name,
        }
    }
}

/// `lctl conf_param DEVICE.NAME=VALUE`; without a value the parameter is deleted. `DEVICE` is a
/// file system or a target. The file system whose logs changed.
///
/// # Errors
/// [`Errno::EINVAL`] for a file system that is not known, or a parameter that the device does not
/// take; [`Errno::ENODEV`] for a target without a log.
pub(crate) fn conf_param(state: &MgsState, text: &str, now: i64) -> Result<String, Errno> {
    let (device, param) = text.split_once('.').ok_or(Errno::EINVAL)?;
    let fsname = match device.parse::<TargetName>() {
        Ok(target) => target.fsname,
        Err(_) => device.to_owned(),
    };
    if !state.knows(&fsname) || param.is_empty() {
        return Err(Errno::EINVAL);
    }
    state.edit(LogSet::Of(&fsname), now, |edit| write(edit, device, param))?;
    Ok(fsname)
}

/// `lctl set_param -P NAME=VALUE`; without a value the parameter is deleted.
///
/// # Errors
/// [`Errno::EINVAL`] for an empty name.
pub(crate) fn set_param(state: &MgsState, text: &str, now: i64) -> Result<(), Errno> {
    let change = Change::of(text);
    if change.name().is_empty() {
        return Err(Errno::EINVAL);
    }
    state.edit(LogSet::Params, now, |edit| {
        edit.cancel(PARAMS, "general", change.name());
        match change {
            Change::Set(text) => edit.append(PARAMS, &set_parameter(text)),
            Change::Delete(_) => Ok(()),
        }
    })
}

/// Whether a parameter is one of the target itself, which its own node may set: not what all nodes or all
/// clients of its file system go by. Of the striping in `lov` an MDT is the source; clients only show theirs.
pub(crate) fn is_of_target(param: &str) -> bool {
    !matches!(param.split_once('.'), Some(("sys" | "llite", _)))
}

/// Writes one parameter of a file system or target into the logs of those it concerns.
pub(crate) fn write(edit: &mut Edit, device: &str, param: &str) -> Result<(), Errno> {
    let target = device.parse::<TargetName>().ok();
    let fsname = target.as_ref().map_or(device, |target| &target.fsname).to_owned();
    let client = client_name(&fsname);
    let (group, _) = param.split_once('.').ok_or(Errno::EINVAL)?;
    let change = Change::of(param);
    let kind = target.as_ref().map(|target| target.kind);
    match (group, kind) {
        ("sys", _) => system(edit, &fsname, change),
        ("llite", Some(_)) => Err(Errno::EINVAL),
        ("llite", None) if is_root_squash(param) => Err(Errno::EINVAL),
        ("llite", None) => put(edit, &client, &client, change),
        ("osc", Some(TargetKind::Ost)) => {
            put(edit, &client, &format!("{device}-osc"), change)?;
            for mdt in mdts(edit, &fsname) {
                let name = format!("{device}-osc-MDT{:04x}", mdt.index);
                put(edit, &mdt.to_string(), &name, change)?;
            }
            Ok(())
        }
        ("mdc", Some(TargetKind::Mdt)) => put(edit, &client, &format!("{device}-mdc"), change),
        ("osc" | "mdc", _) => Err(Errno::EINVAL),
        ("lov", Some(TargetKind::Mdt)) => {
            let mdt = target.ok_or(Errno::EINVAL)?;
            put(edit, device, &mdt_lov(&mdt), change)?;
            put(edit, &client, &format!("{fsname}-clilov"), change)
        }
        ("mdt", None) => {
            for mdt in mdts(edit, &fsname) {
                put(edit, &mdt.to_string(), &mdt.to_string(), change)?;
            }
            Ok(())
        }
        ("mdt", Some(TargetKind::Mdt)) if is_root_squash(param) => Err(Errno::EINVAL),
        ("mdt", Some(TargetKind::Mdt)) | ("mdd" | "lod" | "ost" | "osd", Some(_)) => {
            put(edit, device, device, change)
        }
        ("mdt", Some(TargetKind::Ost)) | ("mdd" | "lod" | "ost" | "osd", None) => {
            Err(Errno::ENODEV)
        }
        // As in Lustre, nothing comes of it, and the command is done.
        _ => {
            tracing::warn!(device, param, "ignoring a parameter that is not known");
            Ok(())
        }
    }
}

/// Writes into the log of an MDT that is new what was said before of all MDTs, as the log of another one has it: who is root to
/// them, and which OSTs they are to leave alone. Else root of a client would be root on the new one.
pub(crate) fn add_known(edit: &mut Edit, mdt: &TargetName) -> Result<(), Errno> {
    let mut map = ClusterMap::new(&mdt.fsname);
    let Some(other) = mdts(edit, &mdt.fsname).into_iter().find(|other| other != mdt) else {
        return Ok(());
    };
    let (own, known) = (mdt.to_string(), other.to_string());
    if let Some(log) = edit.log(&known) {
        map.read(log.records()).map_err(|error| unreadable(&mdt.fsname, &error, Errno::EINVAL))?;
    }
    let ends = [&other, mdt].map(|mdt| format!("-osc-MDT{:04x}", mdt.index));
    for param in &map.params {
        let device = param.device.as_deref().unwrap_or_default();
        let new = match device.strip_suffix(&ends[0]) {
            Some(ost) => format!("{ost}{}", ends[1]),
            None if device == known && is_root_squash(&param.assignment) => own.clone(),
            None => continue,
        };
        edit.append(&own, &parameter(&new, &param.assignment))?;
    }
    Ok(())
}

fn is_root_squash(param: &str) -> bool {
    param.contains(".root_squash=") || param.contains(".nosquash_nids=")
}

/// One parameter of one device in one log: the old value is cancelled.
fn put(edit: &mut Edit, log: &str, device: &str, change: Change<'_>) -> Result<(), Errno> {
    if edit.log(log).is_none() {
        return Err(Errno::ENODEV);
    }
    edit.cancel(log, device, change.name());
    match change {
        Change::Set(text) => edit.append(log, &parameter(device, text)),
        Change::Delete(_) => Ok(()),
    }
}

/// `sys.*`: in all logs of the file system.
fn system(edit: &mut Edit, fsname: &str, change: Change<'_>) -> Result<(), Errno> {
    let section = match change {
        Change::Set(text) if change.name() == "sys.timeout" => {
            let value = text.split_once('=').map_or("", |(_, value)| value);
            let seconds = value.parse().map_err(|_| Errno::EINVAL)?;
            Some(system_timeout(fsname, seconds))
        }
        Change::Set(text) if is_system(change.name()) => Some(parameter("", text)),
        Change::Delete(_) => None,
        Change::Set(_) => return Err(Errno::EINVAL),
    };
    for log in edit.names() {
        for device in [fsname, ""] {
            edit.cancel(&log, device, change.name());
        }
        if let Some(section) = &section {
            edit.append(&log, section)?;
        }
    }
    Ok(())
}

fn is_system(name: &str) -> bool {
    matches!(
        name,
        "sys.at_min"
            | "sys.at_max"
            | "sys.at_extra"
            | "sys.at_early_margin"
            | "sys.at_history"
            | "sys.jobid_var"
    )
}
