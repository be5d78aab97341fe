//! What an MGS is asked: parameters, pools and logs.

use std::sync::Arc;

use sheen_control::api::{self, LogLine};
use sheen_control::{Leaf, Leaves};
use sheen_mgs::{Mgs, PoolChange};
use sheen_target::Export;
use sheen_types::{Errno, Nid, TargetName};
use sheen_wire::connect::ConnectFlags;

use crate::orders::must_be_setting;
use crate::{Commands, HostedTarget};

/// What only the MGS can do: parameters that reach everyone.
pub(super) fn add(commands: &mut Commands, mgs: &Arc<Mgs>) {
    add_logs(commands, mgs);
    let handle = tokio::runtime::Handle::current();
    let said = |done: Result<(), Errno>| {
        done.map(|()| String::new()).map_err(|errno| (errno, errno.to_string()))
    };
    let (one, runtime) = (Arc::clone(mgs), handle.clone());
    let set_param = move |words: &[String]| {
        words.iter().try_for_each(|text| must_be_setting(text))?;
        said(words.iter().try_for_each(|text| runtime.block_on(one.set_param(text))))
    };
    commands.insert(api::SET_PARAM.to_owned(), Box::new(set_param));
    let (one, runtime) = (Arc::clone(mgs), handle.clone());
    let pool = move |words: &[String]| {
        let wrong = || (Errno::EINVAL, "pool new|add|remove|destroy FSNAME POOL [OST]".to_owned());
        let [what, fsname, name, rest @ ..] = words else { return Err(wrong()) };
        let ost = || rest.first().and_then(|ost| ost.parse().ok()).ok_or_else(wrong);
        let change = match what.as_str() {
            "new" => PoolChange::New,
            "add" => PoolChange::Add(ost()?),
            "remove" => PoolChange::Remove(ost()?),
            "destroy" => PoolChange::Destroy,
            _ => return Err(wrong()),
        };
        said(runtime.block_on(one.pool(fsname, name, &change)))
    };
    commands.insert(api::POOL.to_owned(), Box::new(pool));
    let one = Arc::clone(mgs);
    let pools = move |words: &[String]| {
        let fsname = words.first().map_or("", String::as_str);
        let map = one.cluster_map(fsname).ok_or_else(|| (Errno::ENOENT, fsname.to_owned()))?;
        serde_json::to_string(&crate::pools_of(fsname, &map.pools))
            .map_err(|error| (Errno::EIO, error.to_string()))
    };
    commands.insert(api::MGS_POOLS.to_owned(), Box::new(pools));
    let (one, runtime) = (Arc::clone(mgs), handle.clone());
    let replace = move |words: &[String]| {
        let wrong = || (Errno::EINVAL, "replace_nids TARGET NID[,NID]...".to_owned());
        let (name, nodes) = words.split_first().ok_or_else(wrong)?;
        let name: TargetName = name.parse().map_err(|_| wrong())?;
        let node = |node: &String| node.split(',').map(str::parse).collect::<Result<Vec<Nid>, _>>();
        let nodes = nodes.iter().map(node).collect::<Result<Vec<_>, _>>().map_err(|_| wrong())?;
        if nodes.is_empty() {
            return Err(wrong());
        }
        said(runtime.block_on(one.replace_nids(&name, &nodes)))
    };
    commands.insert(api::REPLACE_NIDS.to_owned(), Box::new(replace));
    let one = Arc::clone(mgs);
    let conf_param = move |words: &[String]| {
        words.iter().try_for_each(|text| must_be_setting(text))?;
        said(words.iter().try_for_each(|text| handle.block_on(one.conf_param(text))))
    };
    commands.insert(api::CONF_PARAM.to_owned(), Box::new(conf_param));
}

/// `live.FSNAME`: the targets of each file system, and how their restarts are announced. Rules of security there are none,
/// and how long it takes to notify clients is not measured.
pub(super) fn live(mgs: &Arc<Mgs>, target: &Arc<HostedTarget>) -> Leaves {
    let logs = mgs.log_names();
    let names = logs.iter().filter_map(|log| log.strip_suffix("-client"));
    let leaf = |name: &str| -> Leaf {
        let (mgs, target, fsname) = (Arc::clone(mgs), Arc::clone(target), name.to_owned());
        (name.to_owned(), Box::new(move || live_text(&mgs, &target, &fsname)))
    };
    names.map(leaf).collect()
}

fn live_text(mgs: &Mgs, target: &HostedTarget, fsname: &str) -> String {
    let mut text = format!("fsname: {fsname}\n");
    let mut servers: Vec<Nid> = Vec::new();
    if let Some(map) = mgs.cluster_map(fsname) {
        let mdts = map.mdts.iter().map(|mdt| format!("{fsname}-MDT{:04x}\n", mdt.index));
        let osts = map.osts.iter().map(|ost| format!("{fsname}-OST{:04x}\n", ost.index));
        text.extend(mdts.chain(osts));
        servers.extend(map.mdts.iter().chain(&map.osts).flat_map(|target| &target.nids));
    }
    let exports = target.served.target.exports();
    let is_without = |export: &&Arc<Export>| {
        let is_server = servers.contains(&export.nid()) || export.is_server();
        !is_server && !export.connect_data().flags.contains(ConnectFlags::IMP_RECOV)
    };
    let without = exports.iter().filter(is_without).count();
    let state = if without == 0 { "full" } else { "partial" };
    let version = mgs.nid_table_version(fsname);
    text + &format!(
        "\nSecure RPC Config Rules:\n\nimperative_recovery_state:\n    state: {state}\n    \
         nonir_clients: {without}\n    nidtbl_version: {version}\n"
    )
}

/// Shows logs.
fn add_logs(commands: &mut Commands, mgs: &Arc<Mgs>) {
    let one = Arc::clone(mgs);
    let names = move |_: &[String]| {
        let lines = one.log_names().into_iter().map(|name| name + "\n");
        Ok(lines.collect())
    };
    commands.insert(api::LLOG_CATLIST.to_owned(), Box::new(names));
    let one = Arc::clone(mgs);
    let print = move |words: &[String]| {
        let name = words.first().map_or("", String::as_str);
        let missing = || (Errno::ENOENT, format!("no log {name}"));
        let is_raw = words.get(1).is_some_and(|word| word == "raw");
        let lines = one.log_lines(name, is_raw).ok_or_else(missing)?.into_iter();
        let lines: Vec<LogLine> = lines.map(|(index, text)| LogLine { index, text }).collect();
        serde_json::to_string(&lines).map_err(|error| (Errno::EIO, error.to_string()))
    };
    commands.insert(api::LLOG_PRINT.to_owned(), Box::new(print));
}
