//! The devices of a server process, as `lctl dl` lists them: those that Lustre makes of a target, in its order.

use std::sync::Arc;

use sheen_assembly::{Role, TargetLabel};
use sheen_mds::Mdt;
use sheen_node::rpc::RpcNode;
use sheen_types::TargetName;

use super::mgc;
use super::osp;
use super::store::KIND;
use crate::HostedTarget;

/// A line for each: state, type, name, UUID, references, and the NID that it is connected to.
pub(super) fn lines(all: &[Arc<HostedTarget>], node: &RpcNode) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut has_mds, mut has_oss) = (false, false);
    let mut connection = mgc::find(node);
    for one in all {
        let is_mgs = matches!(one.served.role, Role::Mgs(_));
        if !is_mgs && let Some((name, report)) = connection.take() {
            lines.push(format!("UP mgc {name} {} 5\n", report.client));
        }
        let target = &one.served.target;
        let (name, uuid) = (target.name(), &target.config().uuid);
        let references = target.exports().len() + 4;
        lines.push(format!("UP osd-{KIND} {name}-osd {name}-osd_UUID 5\n"));
        let device = |kind: &str| format!("UP {kind} {name} {uuid} {references}\n");
        match (&one.served.kind, &one.served.role) {
            (TargetLabel::Target(mdt), Role::Mdt(role)) => {
                if !std::mem::replace(&mut has_mds, true) {
                    lines.push("UP mds MDS MDS_uuid 2\n".to_owned());
                }
                lines.push(format!("UP lod {name}-mdtlov {name}-mdtlov_UUID 3\n"));
                lines.push(device("mdt"));
                lines.push(mdd(mdt));
                lines.extend(osps(mdt, role, node));
            }
            (_, Role::Mgs(_)) => lines.push(device("mgs")),
            _ => {
                if !std::mem::replace(&mut has_oss, true) {
                    lines.push("UP ost OSS OSS_uuid 2\n".to_owned());
                }
                lines.push(device("obdfilter"));
            }
        }
    }
    lines
}

fn mdd(mdt: &TargetName) -> String {
    let name = format!("{}-MDD{:04x}", mdt.fsname, mdt.index);
    format!("UP mdd {name} {name}_UUID 3\n")
}

/// The MDT's ends of its connections to other MDTs and to OSTs.
fn osps(name: &TargetName, mdt: &Mdt, node: &RpcNode) -> Vec<String> {
    let client = osp::client(name);
    let line = |state, device, target: &TargetName| {
        let report = node.import_between(&client, &target.uuid());
        let nid = report.map_or_else(String::new, |report| report.peer.to_string());
        format!("{state} osp {device} {client} 4 {nid}\n")
    };
    let mdts = mdt.other_mdts().into_iter().map(|other| {
        line("UP", osp::mdt_device(name, other.index), &osp::mdt_of(name, other.index))
    });
    let osts = mdt.osts().into_iter().map(|ost| {
        let state = if ost.is_active { "UP" } else { "IN" };
        line(state, osp::device(name, ost.index), &osp::ost_of(name, ost.index))
    });
    mdts.chain(osts).collect()
}

/// As [`lines`], each behind its number.
pub(super) fn numbered(all: &[Arc<HostedTarget>], node: &RpcNode) -> String {
    let line = |(number, line): (usize, String)| {
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        format!("{number:>3} {}\n", words.join(" "))
    };
    lines(all, node).into_iter().enumerate().map(line).collect()
}
