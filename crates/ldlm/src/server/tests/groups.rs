//! Group locks, which are never revoked, and what waits for them.

use super::*;
use crate::limits::LOCKS_WAITING_PER_CLIENT;

#[test]
fn group_locks_share_by_group_and_overtake() {
    let mut bench = Bench::new();
    let group = |gid| Policy::Extent { extent: Extent::ALL, gid };
    let mode = LockMode::Group;
    let (first, ..) = granted(bench.ask(client(1), group(5), mode, NONE));
    let (second, ..) = granted(bench.ask(client(2), group(5), mode, NONE));
    let nowait = LockFlags::BLOCK_NOWAIT;
    assert_eq!(bench.ask(client(3), group(6), mode, nowait), Enqueued::Denied(Errno::EAGAIN));
    let writer = waiting(bench.ask(client(4), bytes(0, 4095), LockMode::Pw, NONE));
    let other = waiting(bench.ask(client(3), group(6), mode, NONE));
    let (third, ..) = granted(bench.ask(client(5), group(5), mode, NONE));
    assert_eq!(bench.revoked(), []);
    bench.cancel(client(1), first);
    bench.cancel(client(2), second);
    assert_eq!(bench.completed(), []);
    bench.cancel(client(5), third);
    assert_eq!(bench.completed(), [(other, NONE, true)]);
    bench.cancel(client(3), other);
    assert_eq!(bench.completed(), [(writer, NONE, true)]);
}

#[test]
fn the_servers_own_locks_wait_for_no_group() {
    let group = |policy: Policy| match policy {
        Policy::InodeBits { bits, try_bits, .. } => Policy::InodeBits { bits, try_bits, gid: 5 },
        _ => Policy::Extent { extent: Extent::ALL, gid: 5 },
    };
    for policy in [bytes(0, 4095), Policy::bits(InodeBits::DOM)] {
        let mut bench = Bench::new();
        let held = granted(bench.ask(client(1), group(policy), LockMode::Group, NONE)).0;
        let denied = Enqueued::Denied(Errno::EAGAIN);
        assert_eq!(bench.ask(Owner::Local, policy, LockMode::Ex, NONE), denied);
        bench.cancel(client(1), held);
        let writer = granted(bench.ask(client(1), policy, LockMode::Pw, NONE)).0;
        let reader = waiting(bench.ask(client(2), policy, LockMode::Pr, NONE));
        let own = waiting(bench.ask(Owner::Local, policy, LockMode::Ex, NONE));
        let late = waiting(bench.ask(client(3), group(policy), LockMode::Group, NONE));
        let joins = waiting(bench.ask(client(4), group(policy), LockMode::Group, NONE));
        bench.actions.clear();
        bench.cancel(client(1), writer);
        assert_eq!(bench.completed(), [(reader, LockFlags::AST_SENT, true)], "it was first");
        bench.cancel(client(2), reader);
        let ours = |action: &Action| matches!(action, Action::LocalGranted { handle, .. } if *handle == own);
        assert!(bench.actions.iter().any(ours), "{:?}", bench.actions);
        assert_eq!(bench.completed(), []);
        bench.cancel(Owner::Local, own);
        assert_eq!(bench.completed(), [(late, NONE, true), (joins, NONE, true)]);
    }
}

#[test]
fn a_client_waits_for_a_resource_with_so_many_locks_and_no_more() {
    let mut bench = Bench::new();
    let group = |gid| Policy::Extent { extent: Extent::ALL, gid };
    granted(bench.ask(client(1), group(5), LockMode::Group, NONE));
    for _ in 0..LOCKS_WAITING_PER_CLIENT {
        waiting(bench.ask(client(1), bytes(0, 4095), LockMode::Pw, NONE));
    }
    let denied = Enqueued::Denied(Errno::EAGAIN);
    assert_eq!(bench.ask(client(1), bytes(0, 4095), LockMode::Pw, NONE), denied);
    waiting(bench.ask(client(2), bytes(0, 4095), LockMode::Pw, NONE));
    bench.namespace.cancel_owner(NOW, 1, &mut bench.actions);
    assert_eq!(bench.completed().len(), 1);
}
