//! `recovery_status` of a target, and which of its clients are back, and when.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sheen_target::{Export, RecoveryStatus, RecoveryView, Target, TargetView};
use sheen_types::{Nid, Transno};

/// How many of the slowest clients are listed.
const SLOWEST: usize = 10;
/// Classes of delays, of which each is twice as long as the one before.
const CLASSES: usize = 32;

/// Where the recovery window is, as Lustre says it. There is no version based recovery here, and no
/// imperative one.
pub(super) fn status(view: &TargetView) -> String {
    let recovery = &view.recovery;
    let text = match recovery.status {
        RecoveryStatus::Inactive => "status: INACTIVE\n".to_owned(),
        RecoveryStatus::WaitingForClients => "status: WAITING_FOR_CLIENTS\n".to_owned(),
        RecoveryStatus::WaitingForMdts => waiting(recovery),
        RecoveryStatus::Recovering => running(recovery),
        RecoveryStatus::Complete => complete(recovery, view.last_transno),
    };
    text + &losses(recovery)
}

/// Not among Lustre's lines, and absent unless something is lost.
fn losses(recovery: &RecoveryView) -> String {
    let mut text = String::new();
    if recovery.went_back > 0 {
        let _ = writeln!(text, "went_back_in_time_clients: {}", recovery.went_back);
    }
    if recovery.lost_before.clients {
        let what = if recovery.lost_before.changes { "clients and changes" } else { "clients" };
        let _ = writeln!(text, "lost_by_an_unfinished_recovery: {what}");
    }
    text
}

/// Other MDTs have not said yet what this one has lost of changes over several.
fn waiting(recovery: &RecoveryView) -> String {
    let mdts = recovery.mdts.iter().map(|mdt| format!(" {:04x}", mdt.0));
    format!(
        "status: WAITING\nnon-ready MDTs: {}\nrecovery_start: {}\ntime_waited: {}\n",
        mdts.collect::<String>(),
        started(recovery),
        recovery.duration.as_secs()
    )
}

fn running(recovery: &RecoveryView) -> String {
    let mut text = format!("status: RECOVERING\nrecovery_start: {}\n", started(recovery));
    let completed =
        recovery.connected.saturating_sub(recovery.replaying + recovery.replaying_locks);
    let _ = write!(
        text,
        "time_remaining: {}\nconnected_clients: {}/{}\nreq_replay_clients: {}\n\
         lock_repay_clients: {}\ncompleted_clients: {completed}\nevicted_clients: {}\n\
         replayed_requests: {}\nqueued_requests: {}\nnext_transno: {}\n",
        recovery.remaining.as_secs(),
        recovery.connected,
        recovery.known,
        recovery.replaying,
        recovery.replaying_locks,
        recovery.evicted,
        recovery.replayed,
        recovery.queued,
        recovery.next,
    );
    text
}

fn complete(recovery: &RecoveryView, last: Transno) -> String {
    format!(
        "status: COMPLETE\nrecovery_start: {}\nrecovery_duration: {}\n\
         completed_clients: {}/{}\nreplayed_requests: {}\nlast_transno: {last}\nVBR: DISABLED\n\
         IR: DISABLED\n",
        started(recovery),
        recovery.duration.as_secs(),
        recovery.known.saturating_sub(recovery.evicted),
        recovery.known,
        recovery.replayed,
    )
}

/// `recovery_stale_clients`: while it runs, the clients that are not back, a line each.
pub(super) fn stale(target: &Target) -> String {
    if !matches!(
        target.recovery_status(),
        RecoveryStatus::WaitingForClients
            | RecoveryStatus::WaitingForMdts
            | RecoveryStatus::Recovering
    ) {
        return String::new();
    }
    target.stale_clients().iter().map(|client| format!("{client}\n")).collect()
}

/// `exports.*.reconnect_delay`: seconds until a node was back, empty if it was not awaited.
pub(super) fn delay(clients: &[Arc<Export>]) -> String {
    let delays = clients.iter().filter_map(|client| client.reconnect_delay());
    delays.max().map_or_else(String::new, |delay| delay.as_secs().to_string())
}

/// When each client was back that is there still.
pub(super) fn delays(target: &Target) -> Vec<(Nid, Duration)> {
    let exports = target.exports().into_iter();
    exports.filter_map(|export| Some((export.nid(), export.reconnect_delay()?))).collect()
}

/// `recovery_reconnect_top`: the clients that were back last.
pub(super) fn slowest(mut delays: Vec<(Nid, Duration)>) -> String {
    delays.sort_by_key(|(nid, delay)| (std::cmp::Reverse(*delay), *nid));
    let mut text = "client_reconnect_top:\n".to_owned();
    for (nid, delay) in delays.iter().take(SLOWEST) {
        let nid = format!("\"{nid}");
        let _ = writeln!(text, "- {{ nid: {nid:>24}\", delay_sec: {:>3} }}", delay.as_secs());
    }
    text
}

/// `recovery_reconnect_histogram`: how many clients were back within 1, 2, 4 seconds and so on.
pub(super) fn histogram(recovery: &RecoveryView, delays: &[(Nid, Duration)]) -> String {
    let start = started(recovery);
    let is_over = recovery.status == RecoveryStatus::Complete;
    let took = if is_over { recovery.duration.as_secs() } else { 0 };
    let finish = if is_over { start + took as i64 } else { 0 };
    let mut text = format!(
        "recovery_start:  {start}\nrecovery_finish: {finish}\nrecovery_time:   {took}\n\
         reconnect_delay_seconds_samples: {}\n",
        delays.len()
    );
    if delays.is_empty() {
        return text;
    }
    let mut classes = [0; CLASSES];
    for (_, delay) in delays {
        classes[class(delay.as_secs())] += 1;
    }
    text += "client_reconnect_histogram:\n";
    let (all, mut so_far) = (delays.len(), 0);
    for (class, clients) in classes.iter().enumerate() {
        so_far += clients;
        if so_far > 0 {
            let _ = writeln!(
                text,
                "- {{ delay_sec: {:>3}, clients: {clients:>4}, pct: {:>3}, cum_pct: {:>3} }}",
                1u64 << class,
                clients * 100 / all,
                so_far * 100 / all
            );
        }
        if so_far == all {
            break;
        }
    }
    text
}

/// The first class that a delay is not longer than.
fn class(seconds: u64) -> usize {
    let class = seconds.max(1).next_power_of_two().trailing_zeros() as usize;
    class.min(CLASSES - 1)
}

fn started(recovery: &RecoveryView) -> i64 {
    recovery.started.map_or(0, |started| started.seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sheen_target::RecoveryLosses;
    use sheen_types::{MdtIndex, Timestamp};

    use super::*;

    fn view(status: RecoveryStatus) -> RecoveryView {
        RecoveryView {
            status,
            started: Some(Timestamp::from_seconds(1_795_235_147)),
            duration: Duration::from_secs(4),
            remaining: Duration::from_secs(26),
            known: 3,
            connected: 2,
            replaying: 1,
            replaying_locks: 0,
            evicted: 1,
            queued: 5,
            replayed: 7,
            next: Transno(21_474_836_530),
            mdts: Vec::new(),
            went_back: 0,
            lost_before: RecoveryLosses::default(),
        }
    }

    #[test]
    fn what_an_unfinished_recovery_has_lost_is_shown() {
        let lost_before = RecoveryLosses { clients: true, changes: true };
        let recovery = RecoveryView { lost_before, ..view(RecoveryStatus::Complete) };
        assert_eq!(losses(&recovery), "lost_by_an_unfinished_recovery: clients and changes\n");
        assert_eq!(losses(&view(RecoveryStatus::Complete)), "");
    }

    #[test]
    fn a_recovery_that_ended_is_shown_as_by_lustre() {
        let shown = complete(&view(RecoveryStatus::Complete), Transno(21_474_836_533));
        // As an MDT of Lustre 2.17 showed it, but for the clients' numbers.
        let expected = "\
status: COMPLETE
recovery_start: 1795235147
recovery_duration: 4
completed_clients: 2/3
replayed_requests: 7
last_transno: 21474836533
VBR: DISABLED
IR: DISABLED
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn clients_are_listed_by_when_they_were_back_as_by_lustre() {
        let nid = |last: u8| Nid::tcp([10, 77, 0, last].into());
        let delays: Vec<(Nid, Duration)> = [(12, 0), (13, 3), (14, 4), (15, 9)]
            .map(|(last, seconds)| (nid(last), Duration::from_secs(seconds)))
            .into();
        assert_eq!(
            slowest(delays[..2].to_vec()),
            "client_reconnect_top:\n- { nid:          \"10.77.0.13@tcp\", delay_sec:   3 }\n\
             - { nid:          \"10.77.0.12@tcp\", delay_sec:   0 }\n"
        );
        let shown = histogram(&view(RecoveryStatus::Complete), &delays);
        let expected = "\
recovery_start:  1795235147
recovery_finish: 1795235151
recovery_time:   4
reconnect_delay_seconds_samples: 4
client_reconnect_histogram:
- { delay_sec:   1, clients:    1, pct:  25, cum_pct:  25 }
- { delay_sec:   2, clients:    0, pct:   0, cum_pct:  25 }
- { delay_sec:   4, clients:    2, pct:  50, cum_pct:  75 }
- { delay_sec:   8, clients:    0, pct:   0, cum_pct:  75 }
- { delay_sec:  16, clients:    1, pct:  25, cum_pct: 100 }
";
        assert_eq!(shown, expected);
        let none = histogram(&view(RecoveryStatus::Recovering), &[]);
        assert!(none.ends_with(
            "recovery_finish: 0\nrecovery_time:   0\nreconnect_delay_seconds_samples: 0\n"
        ));
    }

    /// As Lustre 2.17 writes it (`lprocfs_recovery_status_seq_show`).
    #[test]
    fn mdts_that_are_waited_for_are_named() {
        let mdts = [1, 12].map(MdtIndex).to_vec();
        let shown = waiting(&RecoveryView { mdts, ..view(RecoveryStatus::WaitingForMdts) });
        let expected = "\
status: WAITING
non-ready MDTs:  0001 000c
recovery_start: 1795235147
time_waited: 4
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn clients_that_are_waited_for_are_shown_while_it_runs() {
        let shown = running(&view(RecoveryStatus::Recovering));
        let keys: Vec<_> = shown.lines().filter_map(|line| line.split_once(": ")).collect();
        assert_eq!(
            keys,
            [
                ("status", "RECOVERING"),
                ("recovery_start", "1795235147"),
                ("time_remaining", "26"),
                ("connected_clients", "2/3"),
                ("req_replay_clients", "1"),
                ("lock_repay_clients", "0"),
                ("completed_clients", "1"),
                ("evicted_clients", "1"),
                ("replayed_requests", "7"),
                ("queued_requests", "5"),
                ("next_transno", "21474836530"),
            ]
        );
    }
}
