//! `timeout` and `at_*`: what the server waits for, as it was started.

use std::sync::Arc;

use sheen_control::Tree;
use sheen_rpc::limits;

use super::super::super::target::Running;
use super::seconds;

/// Adds them; all targets of a process have the same.
pub(super) fn add(tree: &Tree, running: &[Arc<Running>]) {
    let shown = [
        ("at_min", limits::AT_MIN.to_string()),
        ("at_max", limits::AT_MAX.to_string()),
        ("at_history", seconds(limits::AT_HISTORY)),
        ("at_early_margin", seconds(limits::AT_EARLY_MARGIN)),
        ("at_extra", limits::AT_EXTRA.to_string()),
    ];
    for (name, value) in shown {
        tree.add(name, move || value.clone());
    }
    let Some(one) = running.first().cloned() else { return };
    let timeouts = one.served.target.config().timeouts;
    tree.add("timeout", move || seconds(timeouts.base));
    tree.add("ldlm_timeout", move || seconds(timeouts.lock_callback));
}
