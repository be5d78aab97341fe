//! `recovery_status` of a target.

use std::fmt::Write as _;

use sheen_target::{RecoveryStatus, RecoveryView, TargetView};
use sheen_types::Transno;

/// Where the recovery window is, as Lustre says it. There is no version based recovery here, and no
/// imperative one.
pub(super) fn status(view: &TargetView) -> String {
    let recovery = &view.recovery;
    let mut text = match recovery.status {
        RecoveryStatus::Inactive => "status: INACTIVE\n".to_owned(),
        RecoveryStatus::WaitingForClients => "status: WAITING_FOR_CLIENTS\n".to_owned(),
        RecoveryStatus::Recovering => running(recovery),
        RecoveryStatus::Complete => complete(recovery, view.last_transno),
    };
    // Not among Lustre's, and absent unless something is lost.
    if recovery.went_back > 0 {
        let _ = writeln!(text, "went_back_in_time_clients: {}", recovery.went_back);
    }
    text
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

fn started(recovery: &RecoveryView) -> i64 {
    recovery.started.map_or(0, |started| started.seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sheen_types::Timestamp;

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
            went_back: 0,
        }
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
