//! Which mount of a captured node asked: both have its NID, and each its own handle at each target.

use sheen_types::{HashMap, fid_seq};
use sheen_wire::messages::Request;

use crate::asking::mdt_of;
use crate::script::{Exchange, Script};

/// Notes the mount of each exchange of a node with `mounts` mounts. The handles of a target count up as they are given, so those of the
/// mounts are in the order in which they connected; `turned` where that was the other way round.
pub(crate) fn number(script: &mut Script, mounts: usize, turned: bool) {
    let mut at: HashMap<u64, HashMap<u64, usize>> = HashMap::default();
    for exchange in &script.exchanges {
        if let Some(target) = target_of(exchange) {
            *at.entry(exchange.request.body.handle.0).or_default().entry(target).or_default() += 1;
        }
    }
    // The target that it is used for most, as requests to MDTs name inodes of other MDTs, too.
    let mut by_target: HashMap<u64, Vec<u64>> = HashMap::default();
    for (handle, targets) in at {
        let most = targets.into_iter().max_by_key(|(target, count)| (*count, *target));
        if let Some((target, _)) = most {
            by_target.entry(target).or_default().push(handle);
        }
    }
    let mut mount_of: HashMap<u64, usize> = HashMap::default();
    for (_, mut handles) in by_target {
        handles.sort_unstable();
        for (number, handle) in handles.into_iter().enumerate() {
            let number = number.min(mounts - 1);
            mount_of.insert(handle, if turned { mounts - 1 - number } else { number });
        }
    }
    for exchange in &mut script.exchanges {
        exchange.mount = mount_of.get(&exchange.request.body.handle.0).copied();
    }
}

/// A number for the target that has what a request is about: each has sequences of its own.
fn target_of(exchange: &Exchange) -> Option<u64> {
    let sequence = match &exchange.request.typed {
        Request::LdlmEnqueue(it) => it.dlm_req.desc.resource.name.0[0],
        Request::LdlmIntentGetattr(it) => it.mdt_body.fid1.seq,
        Request::LdlmIntentOpen(it) => it.rec_reint.fid1.seq,
        Request::MdsClose(it) => it.rec_reint.fid.seq,
        Request::MdsGetattr(it) => it.mdt_body.fid1.seq,
        Request::MdsReadpage(it) => it.mdt_body.fid1.seq,
        _ => return None,
    };
    (sequence >= fid_seq::NORMAL).then(|| mdt_of(sequence))
}
