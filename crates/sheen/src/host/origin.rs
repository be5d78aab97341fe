//! Which file systems a process serves or mounts, for tools that are to reach those of one alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheen_assembly::{Role, TargetLabel};
use sheen_control::api::Origin;
use sheen_parameters::HostedTarget;
use sheen_types::{Errno, Nid};

/// The command of a server. An MGS learns of file systems while it runs.
pub(super) fn of_server(
    mgs: &[Nid],
    port: u16,
    running: &[Arc<HostedTarget>],
) -> sheen_control::Command {
    let (mgs, running) = (texts(mgs), running.to_vec());
    Box::new(move |_| {
        let directory = |one: &Arc<HostedTarget>| {
            let full = one.directory.canonicalize();
            full.as_ref().unwrap_or(&one.directory).display().to_string()
        };
        let is_mgs = |one: &Arc<HostedTarget>| matches!(one.served.role, Role::Mgs(_));
        answer(&Origin {
            mgs: mgs.clone(),
            port,
            names: running.iter().flat_map(names).collect::<BTreeSet<_>>().into_iter().collect(),
            directories: running.iter().map(directory).collect(),
            has_mgs: running.iter().any(is_mgs),
        })
    })
}

/// The command of a mount.
pub(super) fn of_mount(mgs: &[Nid], port: u16, fsname: &str) -> sheen_control::Command {
    let names = vec![fsname.to_owned()];
    let origin = Origin { mgs: texts(mgs), port, names, ..Origin::default() };
    Box::new(move |_| answer(&origin))
}

fn texts(nids: &[Nid]) -> Vec<String> {
    nids.iter().map(Nid::to_string).collect()
}

fn names(one: &Arc<HostedTarget>) -> Vec<String> {
    match (&one.served.kind, &one.served.role) {
        (TargetLabel::Target(name), _) => vec![name.fsname.clone()],
        (TargetLabel::Mgs, Role::Mgs(mgs)) => {
            let logs = mgs.log_names();
            logs.iter().filter_map(|log| log.strip_suffix("-client")).map(str::to_owned).collect()
        }
        (TargetLabel::Mgs, _) => Vec::new(),
    }
}

fn answer(origin: &Origin) -> Result<String, (Errno, String)> {
    serde_json::to_string(origin).map_err(|error| (Errno::EIO, error.to_string()))
}
