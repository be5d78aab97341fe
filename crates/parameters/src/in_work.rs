//! `requests_in_work` of each target: what is being executed, since when, and what it waits for. Lustre has
//! nothing of the kind; `sheen top` shows it.

use std::fmt::Write as _;
use std::sync::Arc;

use sheen_assembly::TargetLabel;
use sheen_control::Tree;
use sheen_target::RequestView;
use sheen_types::TargetKind;

use crate::HostedTarget;

/// Adds it to the trees of all targets.
pub fn add_in_work(tree: &Tree, running: &[Arc<HostedTarget>]) {
    for one in running {
        let root = match &one.served.kind {
            TargetLabel::Mgs => "mgs.MGS".to_owned(),
            TargetLabel::Target(name) if name.kind == TargetKind::Mdt => format!("mdt.{name}"),
            TargetLabel::Target(name) => format!("obdfilter.{name}"),
        };
        let one = Arc::clone(one);
        tree.add(&format!("{root}.requests_in_work"), move || {
            text(&one.served.target.requests_in_progress())
        });
    }
}

/// A line for each, the oldest first: seconds since it arrived, what it waits for, what it asks for, who
/// asks from where, and its name there.
fn text(requests: &[RequestView]) -> String {
    let mut text = String::new();
    for request in requests {
        let RequestView { kind, client, nid, xid, age, wait } = request;
        let name = kind.format().name;
        let (age, wait) = (age.as_secs_f64(), wait.name());
        let _ = writeln!(text, "{age:.6} {wait} {name} {nid} {client} x{}", xid.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sheen_target::Wait;
    use sheen_types::{Nid, Uuid, Xid};
    use sheen_wire::messages::Kind;

    use super::*;

    #[test]
    fn a_request_is_a_line() {
        let view = RequestView {
            kind: Kind::OstWrite,
            client: Uuid::new("abc"),
            nid: Nid::LOOPBACK,
            xid: Xid(17),
            age: Duration::from_micros(1_250_000),
            wait: Wait::Lock,
        };
        assert_eq!(text(&[view]), "1.250000 lock OST_BRW_WRITE 0@lo abc x17\n");
    }
}
