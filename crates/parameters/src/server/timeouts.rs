//! `timeout`, `ping_interval`, `ldlm_timeout` and `at_*` of a server: its targets go by them, too.

use std::sync::Arc;
use std::time::Duration;

use sheen_control::Tree;
use sheen_node::rpc::RpcNode;
use sheen_rpc::Time;

use super::seconds;
use crate::HostedTarget;
use crate::{timing, values};

/// Adds them; all targets of a process have the same.
pub(super) fn add(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<HostedTarget>]) {
    let (own, all) = (Arc::clone(node), running.to_vec());
    timing::add(tree, node, move || {
        let time = |time: Time| Duration::from_secs(own.time(time).into());
        for one in &all {
            one.served.target.expect_pings(time(Time::PingInterval));
            one.served.target.change_timeouts(|it| it.base = time(Time::Timeout));
        }
    });
    for one in running {
        timing::add_target(tree, node, &super::root_of(one), &one.served.target.config().uuid);
    }
    tree.add("pinger", || "on".to_owned());
    let Some(one) = running.first().cloned() else { return };
    let all = running.to_vec();
    tree.add_writable(
        "ldlm_timeout",
        move || seconds(one.served.target.timeouts().lock_callback),
        move |text| {
            let time = Duration::from_secs(values::number_within(text, 1, u32::MAX.into())?);
            all.iter()
                .for_each(|one| one.served.target.change_timeouts(|it| it.lock_callback = time));
            Ok(())
        },
    );
}
