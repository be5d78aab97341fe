//! Parameters whose write is an order, obeyed once, and no setting that stays.
//!
//! What is set for good is applied at each start of each process. An order would be obeyed anew each time: the MDT
//! bound again that a later one has replaced, a client evicted that is recovering. So the MGS refuses orders, and
//! who follows its logs passes over those that another server of it, or an earlier version, has put there.
//!
//! A write that starts statistics anew or empties a cache is no order here: at a start there is nothing of either, and
//! for good it reaches all nodes at once, as administrators of Lustre use it.

use sheen_control::Pattern;
use sheen_types::Errno;

/// The last words of their names.
const ORDERS: [&str; 8] = [
    "clear",
    "dump_namespaces",
    "evict_client",
    "force_sync",
    "idle_connect",
    "import",
    "mdt_identity",
    "ping",
];

/// The order that a name with wildcards is for, or could be.
pub(crate) fn order_in(name: &str) -> Option<&'static str> {
    let pattern = Pattern::new(name);
    ORDERS.into_iter().find(|order| pattern.may_end_in(order))
}

/// Lets settings pass, and deletions of whatever is in a log.
pub(crate) fn must_be_setting(assignment: &str) -> Result<(), (Errno, String)> {
    let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
    match order_in(name) {
        Some(order) if !value.is_empty() => Err((
            Errno::EINVAL,
            format!(
                "{name}: {order} is an order and no setting: for good, each start would obey it again; use plain set_param"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::Errno;

    use super::{must_be_setting, order_in};

    #[test]
    fn orders_are_known_by_their_last_word() {
        for name in [
            "obdfilter.*.mdt_identity",
            "obdfilter/lustre-OST0000/mdt_identity",
            "ost.mdt_identity",
            "obdfilter.*.mdt_*",
            "obdfilter.*.{degraded,mdt_identity}",
            "{mdt,obdfilter}.*.evict_client",
            "mdt.*.exports.clear",
            "osc.lustre-OST0000-osc-ffff.import",
        ] {
            assert!(order_in(name).is_some(), "{name}");
        }
        for name in ["osc.*.max_dirty_mb", "osc.*.stats", "mdt.mdt_identity.x", "timeout", "x", ""]
        {
            assert_eq!(order_in(name), None, "{name}");
        }
    }

    #[test]
    fn orders_are_refused_and_their_deletion_is_not() {
        let refused = must_be_setting("mdt.*.evict_client=nid:10.0.0.1@tcp").unwrap_err();
        assert_eq!(refused.0, Errno::EINVAL);
        assert!(refused.1.starts_with("mdt.*.evict_client: evict_client is an order"));
        for fine in
            ["mdt.*.evict_client=", "mdt.*.evict_client", "osc.*.active=0", "jobid_var=import"]
        {
            assert_eq!(must_be_setting(fine), Ok(()), "{fine}");
        }
    }
}
