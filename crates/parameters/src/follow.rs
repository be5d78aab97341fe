//! Parameters that the MGS keeps for all nodes: what `lctl set_param -P` and `conf_param` set is
//! applied to this process's tree, now and whenever it changes.
//!
//! As in Lustre, only what is new is applied: what was set here since stays, and what is deleted on
//! the MGS keeps its value until the process starts anew. A parameter that the tree does not have
//! concerns other processes, or none: it is logged and passed over. So is an order ([`super::orders`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_client::config::{ClusterMap, LogReader, Param};
use sheen_control::{Pattern, Tree};
use sheen_types::{Errno, TargetName};

use super::lod::MdtPools;
use super::orders::order_in;

/// A target whose log is followed.
pub struct Followed {
    /// Which one.
    pub name: TargetName,
    /// Its pools, if it is an MDT.
    pub pools: Option<Arc<MdtPools>>,
}

/// What was applied so far.
#[derive(Default)]
pub struct Applied {
    params: Mutex<Vec<Param>>,
}

impl Applied {
    /// Applies what is new in `params`: all that the MGS has now.
    pub(crate) fn update(&self, tree: &Tree, params: &[Param]) {
        let mut known = self.params.lock();
        for param in params.iter().filter(|param| !known.contains(param)) {
            apply(tree, param);
        }
        *known = params.to_vec();
    }

    /// Applies everything that is set to a part of the tree that is new.
    pub(super) fn catch_up(&self, tree: &Tree) {
        self.params.lock().iter().for_each(|param| apply(tree, param));
    }

    /// Applies what is set to one parameter that is new, and to no other.
    pub(super) fn catch_up_at(&self, tree: &Tree, name: &str) {
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        for param in self.params.lock().iter() {
            if let Some((pattern, value)) = target(param)
                && Pattern::new(&pattern).matches(&path)
            {
                set(tree, name, value);
            }
        }
    }
}

/// The names that a parameter is for, with wildcards, and its value.
fn target(param: &Param) -> Option<(String, &str)> {
    let (name, value) = param.assignment.split_once('=')?;
    let Some(device) = &param.device else { return Some((name.to_owned(), value)) };
    if let Some(name) = name.strip_prefix("sys.") {
        return Some((name.to_owned(), value));
    }
    let (group, leaf) = name.split_once('.')?;
    let place = match group {
        "llite" => format!("llite.{}-*", device.strip_suffix("-client")?),
        // What an MDT calls its OSTs.
        "osc" if device.contains("-osc-MDT") => format!("osp.{device}"),
        // The client's devices are called by the mount, too.
        "osc" | "mdc" => format!("{group}.{device}-*"),
        "lod" => format!("lod.{device}-mdtlov"),
        "lov" if device.ends_with("-mdtlov") => format!("lod.{device}"),
        "lov" => format!("lov.{device}-*"),
        "ost" => format!("obdfilter.{device}"),
        "osd" => format!("osd-*.{device}"),
        _ => format!("{group}.{device}"),
    };
    Some((format!("{place}.{leaf}"), value))
}

fn apply(tree: &Tree, param: &Param) {
    let Some((name, value)) = target(param) else {
        tracing::warn!(param.assignment, "a parameter that makes no sense");
        return;
    };
    set(tree, &name, value);
}

fn set(tree: &Tree, name: &str, value: &str) {
    if let Some(order) = order_in(name) {
        tracing::warn!(name, value, order, "not obeying an order that was given for good");
        return;
    }
    let fates = tree.set(&Pattern::new(name), value);
    if fates.is_empty() {
        tracing::info!(name, value, "nothing here has this parameter");
    }
    for (name, fate) in fates {
        match fate {
            Ok(()) => tracing::debug!(name, value, "set by the MGS"),
            Err(errno) => tracing::warn!(name, value, %errno, "cannot be set as the MGS wants it"),
        }
    }
}

/// Follows the logs of a server's targets, and `params`. Runs for ever.
pub async fn follow_servers(
    reader: Arc<LogReader>,
    targets: Vec<Followed>,
    tree: Arc<Tree>,
    applied: Arc<Applied>,
) {
    loop {
        match read_servers(&reader, &targets).await {
            Ok(params) => {
                applied.update(&tree, &params);
                reader.changed().await;
            }
            Err(Errno::ESHUTDOWN) => return,
            Err(errno) => {
                // A damaged log is reported where it is read; else the MGS is away.
                tracing::info!(%errno, "parameters cannot be read now; trying again");
                reader.pause_after_failure().await;
            }
        }
    }
}

async fn read_servers(reader: &LogReader, targets: &[Followed]) -> Result<Vec<Param>, Errno> {
    let mut params = Vec::new();
    for target in targets {
        let fsname = &target.name.fsname;
        let records = reader.read(fsname, &target.name.to_string()).await?;
        let map = understood(fsname, &records)?;
        if let Some(pools) = &target.pools {
            pools.set(&map.pools);
        }
        params.extend(map.params);
    }
    params.extend(understood("", &reader.read_params().await?)?.params);
    // What all logs of a file system say (`sys.*`) needs to be done once.
    let mut seen = BTreeSet::new();
    params.retain(|param| {
        param.device.as_deref() != Some("") || seen.insert(param.assignment.clone())
    });
    Ok(params)
}

fn understood(
    fsname: &str,
    records: &[sheen_client::config::LogRecord],
) -> Result<ClusterMap, Errno> {
    let mut map = ClusterMap::new(fsname);
    map.read(records).map_err(|error| {
        tracing::warn!(fsname, %error, "configuration makes no sense");
        Errno::EPROTO
    })?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn param(index: u32, device: Option<&str>, assignment: &str) -> Param {
        Param { index, device: device.map(str::to_owned), assignment: assignment.to_owned() }
    }

    #[test]
    fn parameters_reach_what_they_are_for() {
        for (device, assignment, name) in [
            (
                Some("lustre-client"),
                "llite.max_read_ahead_mb=40",
                "llite.lustre-*.max_read_ahead_mb",
            ),
            (
                Some("lustre-OST0003-osc"),
                "osc.max_dirty_mb=24",
                "osc.lustre-OST0003-osc-*.max_dirty_mb",
            ),
            (
                Some("lustre-OST0003-osc-MDT0000"),
                "osc.active=0",
                "osp.lustre-OST0003-osc-MDT0000.active",
            ),
            (
                Some("lustre-MDT0000"),
                "lod.dom_stripesize=1M",
                "lod.lustre-MDT0000-mdtlov.dom_stripesize",
            ),
            (
                Some("lustre-MDT0000-mdtlov"),
                "lov.stripecount=2",
                "lod.lustre-MDT0000-mdtlov.stripecount",
            ),
            (Some("lustre-OST0003"), "ost.degraded=1", "obdfilter.lustre-OST0003.degraded"),
            (Some(""), "sys.jobid_var=procname_uid", "jobid_var"),
            (None, "osc.*OST0001*.max_rpcs_in_flight=12", "osc.*OST0001*.max_rpcs_in_flight"),
        ] {
            let param = param(1, device, assignment);
            assert_eq!(target(&param).map(|(name, _)| name).as_deref(), Some(name));
        }
        assert_eq!(target(&param(1, None, "nothing")), None);
    }

    #[test]
    fn only_what_is_new_is_applied() {
        let tree = Tree::new();
        let value = Arc::new(Mutex::new(String::new()));
        let (read, write) = (Arc::clone(&value), Arc::clone(&value));
        let set = move |text: &str| {
            *write.lock() = text.to_owned();
            Ok(())
        };
        tree.add_writable("osc.a.x", move || read.lock().clone(), set);
        let applied = Applied::default();
        let first = param(3, None, "osc.*.x=1");
        applied.update(&tree, std::slice::from_ref(&first));
        assert_eq!(*value.lock(), "1");
        // Set here since: another parameter changes nothing of it, nor does its deletion.
        *value.lock() = "7".to_owned();
        applied.update(&tree, &[first, param(6, None, "osc.*.unknown=1")]);
        applied.update(&tree, &[]);
        assert_eq!(*value.lock(), "7");
        // The same again is said anew.
        applied.update(&tree, &[param(9, None, "osc.*.x=1")]);
        assert_eq!(*value.lock(), "1");
    }

    #[test]
    fn an_order_that_was_given_for_good_is_not_obeyed() {
        let (tree, obeyed) = (Tree::new(), Arc::new(Mutex::new(Vec::new())));
        for name in ["mdt.a.evict_client", "obdfilter.a.mdt_identity", "obdfilter.a.degraded"] {
            let obeyed = Arc::clone(&obeyed);
            tree.add_order(name, move |_| {
                obeyed.lock().push(name);
                Ok(())
            });
        }
        let params = [
            param(3, None, "mdt.*.evict_client=x"),
            param(4, Some("a"), "ost.mdt_identity=MDT0000:none"),
            param(5, Some("a"), "ost.degraded=1"),
        ];
        let applied = Applied::default();
        applied.update(&tree, &params);
        applied.catch_up(&tree);
        applied.catch_up_at(&tree, "obdfilter.a.mdt_identity");
        assert_eq!(*obeyed.lock(), ["obdfilter.a.degraded"; 2]);
    }

    #[test]
    fn a_later_target_gets_what_was_set_and_no_other_changes() {
        let tree = Tree::new();
        let add = |name: &str| {
            let value = Arc::new(Mutex::new(String::new()));
            let (read, write) = (Arc::clone(&value), Arc::clone(&value));
            let set = move |text: &str| {
                *write.lock() = text.to_owned();
                Ok(())
            };
            tree.add_writable(name, move || read.lock().clone(), set);
            value
        };
        let applied = Applied::default();
        let early = add("osp.a.active");
        applied.update(&tree, &[param(3, None, "osp.*.active=0"), param(4, None, "osp.*.x=5")]);
        *early.lock() = "1".to_owned();
        let late = add("osp.b.active");
        applied.catch_up_at(&tree, "osp.b.active");
        assert_eq!((early.lock().as_str(), late.lock().as_str()), ("1", "0"));
    }
}
