//! Targets register themselves.

use sheen_llog::{
    add_mdc, add_mdt, add_osc, add_osp, add_ost, client_name, lmv_setup, lov_setup, mdt_lov,
    mount_options,
};
use sheen_types::{Errno, Nid, TargetKind, TargetName};
use sheen_wire::mgs::{MgsTargetInfo, MgsTargetNidlist, TargetFlags};
use sheen_wire::text::Chars;

use crate::state::{Edit, LogSet, MgsState, mdts, unreadable};
use crate::{parameters, pools};

/// Longest file system name; the name of its lock resource has 8 bytes.
const FSNAME_BYTES_MAX: usize = 8;
/// The parameter that names failover nodes.
const FAILOVER: &str = "failover.node";

/// A target that registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// MDT or OST, and its file system. The index counts only if it has one already.
    pub name: TargetName,
    /// NIDs of the node that serves it.
    pub nids: Vec<Nid>,
    /// NIDs of each node that may serve it instead.
    pub failover: Vec<Vec<Nid>>,
    /// Parameters it was formatted with, as `conf_param` takes them without the target's name.
    pub params: Vec<String>,
    /// What it is and wants.
    pub flags: TargetFlags,
    /// How often it has been started.
    pub instance: u32,
}

impl Registration {
    /// What a message says.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a target that is neither MDT nor OST, or a bad name.
    pub(crate) fn from_info(
        info: &MgsTargetInfo,
        nidlist: Option<&MgsTargetNidlist>,
    ) -> Result<Self, Errno> {
        let kind = match info.flags {
            flags if flags.contains(TargetFlags::SV_TYPE_MDT) => TargetKind::Mdt,
            flags if flags.contains(TargetFlags::SV_TYPE_OST) => TargetKind::Ost,
            _ => return Err(Errno::EINVAL),
        };
        let fsname = info.fsname.to_text();
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_legal = !fsname.is_empty() && fsname.bytes().all(letters);
        if !is_legal || fsname.len() > FSNAME_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let listed = nidlist.map_or(&[][..], |list| &list.nids);
        let mut nids: Vec<Nid> =
            listed.iter().filter_map(|nid| nid.to_text().parse().ok()).collect();
        if nids.is_empty() {
            nids = info.nids().collect();
        }
        let texts = info.params.to_text();
        let (failover, params): (Vec<&str>, Vec<&str>) =
            texts.split_whitespace().partition(|param| param.split('=').next() == Some(FAILOVER));
        let index = u16::try_from(info.index).map_err(|_| Errno::EINVAL)?;
        Ok(Self {
            name: TargetName { fsname, kind, index },
            nids,
            failover: failover.iter().flat_map(|param| failover_nodes(param)).collect(),
            params: params.into_iter().map(str::to_owned).collect(),
            flags: info.flags,
            instance: info.instance,
        })
    }

    /// What goes back to the target.
    #[must_use]
    pub(crate) fn to_info(&self, asked: &MgsTargetInfo) -> MgsTargetInfo {
        MgsTargetInfo {
            index: u32::from(self.name.index),
            flags: self.flags,
            service_name: Chars::new(self.name.to_string()),
            uuid: Chars::new(self.name.uuid().as_str()),
            ..asked.clone()
        }
    }

    fn has(&self, flag: TargetFlags) -> bool {
        self.flags.contains(flag)
    }

    pub(crate) fn nodes(&self) -> Vec<Vec<Nid>> {
        let mut nodes = vec![self.nids.clone()];
        nodes.extend(self.failover.iter().cloned());
        nodes
    }
}

/// The nodes of `failover.node=NID,NID:NID`: one per colon.
fn failover_nodes(param: &str) -> Vec<Vec<Nid>> {
    let value = param.split_once('=').map_or("", |(_, value)| value);
    let nodes = value.split(':').map(|node| node.split(',').filter_map(|nid| nid.parse().ok()));
    nodes.map(Iterator::collect).filter(|nids: &Vec<Nid>| !nids.is_empty()).collect()
}

/// Registers a target: gives it an index if it has none, writes its logs and its place in the logs
/// of other targets if they are not there. Returns whether any log changed.
///
/// # Errors
/// [`Errno::EALREADY`] for an index that another target has, [`Errno::ENOENT`] for a target that
/// claims to be known and is not.
pub(crate) fn register(
    state: &MgsState,
    target: &mut Registration,
    now: i64,
) -> Result<bool, Errno> {
    if target.nids.is_empty() {
        return Err(Errno::EINVAL);
    }
    let fsname = target.name.fsname.clone();
    let changed = state.edit(LogSet::Of(&fsname), now, |edit| {
        if target.has(TargetFlags::NEED_INDEX) {
            target.name.index = free_index(edit, &target.name)?;
        }
        let name = target.name.to_string();
        let is_known = edit.log(&name).is_some();
        let is_rewritten = target.has(TargetFlags::WRITECONF);
        if is_known && is_rewritten {
            forget(edit, &target.name);
        } else if is_known {
            let claims_new = target.has(TargetFlags::VIRGIN) || target.has(TargetFlags::NEED_INDEX);
            return if claims_new { Err(Errno::EALREADY) } else { Ok(false) };
        } else if !is_rewritten
            && !target.has(TargetFlags::UPDATE)
            && !target.has(TargetFlags::VIRGIN)
        {
            return Err(Errno::ENOENT);
        }
        write_target(edit, target)?;
        Ok(true)
    })?;
    if changed {
        let wishes = TargetFlags::VIRGIN
            | TargetFlags::UPDATE
            | TargetFlags::NEED_INDEX
            | TargetFlags::WRITECONF;
        target.flags = target.flags.without(wishes) | TargetFlags::REWRITE_LDD;
    }
    Ok(changed)
}

/// Writes other NIDs for a target into all logs that name it (`lctl replace_nids`).
///
/// # Errors
/// [`Errno::ENOENT`] for a target that is not known.
pub(crate) fn replace_nids(
    state: &MgsState,
    name: &TargetName,
    nodes: &[Vec<Nid>],
    now: i64,
) -> Result<(), Errno> {
    state.edit(LogSet::Of(&name.fsname), now, |edit| {
        let text = name.to_string();
        if edit.log(&text).is_none() {
            return Err(Errno::ENOENT);
        }
        for log in edit.names() {
            for comment in ["add mdc", "add osc", "add osp", "add failnid"] {
                edit.cancel(&log, &text, comment);
            }
        }
        write_device(edit, name, nodes)
    })
}

fn free_index(edit: &Edit, name: &TargetName) -> Result<u16, Errno> {
    let is_free = |index: &u16| {
        let name = TargetName { index: *index, ..name.clone() };
        edit.log(&name.to_string()).is_none()
    };
    (0..u16::MAX).find(is_free).ok_or(Errno::ERANGE)
}

/// Forgets what was written about a target that is known; with MDT0000, about the whole file system. One that is not known
/// makes nothing of other targets forgotten.
fn forget(edit: &mut Edit, name: &TargetName) {
    if name.kind == TargetKind::Mdt && name.index == 0 {
        for log in edit.names() {
            edit.erase(&log);
        }
        return;
    }
    edit.erase(&name.to_string());
    for log in edit.names() {
        for comment in ["add mdc", "add osc", "add osp"] {
            edit.cancel(&log, &name.to_string(), comment);
        }
    }
}

fn write_target(edit: &mut Edit, target: &Registration) -> Result<(), Errno> {
    let name = &target.name;
    let log = name.to_string();
    match name.kind {
        TargetKind::Mdt => {
            edit.append(&log, &lov_setup(&mdt_lov(name)))?;
            edit.append(&log, &add_mdt(name))?;
        }
        TargetKind::Ost => edit.append(&log, &add_ost(name))?,
    }
    let client = client_name(&name.fsname);
    if edit.log(&client).is_none() {
        edit.append(&client, &lov_setup(&format!("{}-clilov", name.fsname)))?;
        edit.append(&client, &lmv_setup(&format!("{}-clilmv", name.fsname)))?;
        edit.append(&client, &mount_options(&name.fsname))?;
    }
    if name.kind == TargetKind::Mdt {
        add_known_targets(edit, name)?;
    }
    write_device(edit, name, &target.nodes())?;
    for param in &target.params {
        parameters::write(edit, &log, param)?;
    }
    Ok(())
}

/// A new MDT's log names the targets and the pools that were there before it, and what was said of all MDTs.
fn add_known_targets(edit: &mut Edit, mdt: &TargetName) -> Result<(), Errno> {
    let client = client_name(&mdt.fsname);
    let mut map = sheen_llog::ClusterMap::new(&mdt.fsname);
    if let Some(log) = edit.log(&client) {
        map.read(log.records()).map_err(|error| unreadable(&mdt.fsname, &error, Errno::EINVAL))?;
    }
    let targets = map.mdts.iter().map(|target| (TargetKind::Mdt, target));
    let targets = targets.chain(map.osts.iter().map(|target| (TargetKind::Ost, target)));
    for (kind, target) in targets {
        let index = u16::try_from(target.index).map_err(|_| Errno::EINVAL)?;
        let other = TargetName { fsname: mdt.fsname.clone(), kind, index };
        let nodes = [target.nids.clone()];
        let section = match kind {
            TargetKind::Mdt if other == *mdt => continue,
            TargetKind::Mdt => add_osp(&other, &nodes, mdt),
            TargetKind::Ost => add_osc(&other, &nodes, Some(mdt)),
        };
        edit.append(&mdt.to_string(), &section)?;
    }
    pools::add_known_pools(edit, mdt, &map)?;
    parameters::add_known(edit, mdt)
}

/// A target's device in the client's log and in the MDTs'.
fn write_device(edit: &mut Edit, name: &TargetName, nodes: &[Vec<Nid>]) -> Result<(), Errno> {
    let client = client_name(&name.fsname);
    match name.kind {
        TargetKind::Mdt => edit.append(&client, &add_mdc(name, nodes))?,
        TargetKind::Ost => edit.append(&client, &add_osc(name, nodes, None))?,
    }
    for mdt in mdts(edit, &name.fsname) {
        let section = match name.kind {
            TargetKind::Mdt if mdt == *name => continue,
            TargetKind::Mdt => add_osp(name, nodes, &mdt),
            TargetKind::Ost => add_osc(name, nodes, Some(&mdt)),
        };
        edit.append(&mdt.to_string(), &section)?;
    }
    Ok(())
}
