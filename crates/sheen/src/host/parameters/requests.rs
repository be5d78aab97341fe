//! An import's requests as `mdc.*.stats` and `osc.*.stats` list them.

use std::fmt::Write as _;

use sheen_node::rpc::ImportReport;

/// Requests sent, ours to name; then answered requests by kind, in Lustre's words.
pub(super) fn text(report: &ImportReport) -> String {
    let counters = report.counters;
    let mut text = String::new();
    for (name, count) in [
        ("req_sent", counters.sent),
        ("req_resent", counters.resent),
        ("req_replayed", counters.replayed),
        ("req_timeout", counters.timeouts),
    ] {
        let _ = writeln!(text, "{name:<25} {count} samples [reqs]");
    }
    for one in &report.answered {
        let (name, time) = (one.name.to_lowercase(), one.time_us);
        let count = time.count;
        let _ = match one.is_timed {
            true => writeln!(
                text,
                "{name:<25} {count} samples [usecs] {} {} {} {}",
                time.min, time.max, time.sum, time.sum_squared
            ),
            false => writeln!(text, "{name:<25} {count} samples [reqs] 1 1 {count} {count}"),
        };
    }
    text
}
