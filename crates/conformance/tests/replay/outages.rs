//! When servers went away, came back or evicted a client, as far as a capture's requests show it.
//!
//! A client that is evicted connects again with the handle that it had, and is given another one.
//! What it heard before, with that handle, shows since when: ENOTCONN, and ENODEV while the target was
//! not there. Everything happened before that; the player does it right then.

use std::time::Duration;

use sheen_types::{Errno, HashSet};
use sheen_wire::messages::FormatFlags;
use sheen_wire::ptlrpc::{MsgFlags, OpFlags};

use crate::player::{TargetId, is_connect, target_of_connect};
use crate::script::{Exchange, Script, Step};

/// No server waits so long for a client that answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happened to a target, seen by one client.
struct Outage {
    target: TargetId,
    /// The handle of the client's export.
    handle: u64,
    /// The first request that heard of it, and the connect that ended it.
    first: usize,
    last: usize,
    /// Whether the target was started again.
    restarts: bool,
    /// Whether the client was not known any more.
    evicts: bool,
    /// The last request that was not lost, if some that were answered were; none of them, if all were.
    kept: Option<Option<usize>>,
}

/// Puts into the order of the script what happened to the servers.
pub(crate) fn insert(script: &mut Script) {
    let mut restarted: HashSet<TargetId> = HashSet::default();
    let found = (0..script.exchanges.len()).filter_map(|last| outage(&script.exchanges, last));
    let outages: Vec<_> = found.collect();
    script.returning = outages.iter().map(|it| (it.target, it.handle)).collect();
    for outage in outages {
        let Outage { target, handle, first, last, .. } = outage;
        let mut before = Vec::new();
        if outage.evicts {
            before.push(Step::Evict(target, handle));
        }
        if outage.restarts && restarted.insert(target) {
            match outage.kept {
                Some(Some(kept)) => {
                    script.put_behind(Step::Answer(kept), Step::Remember(target));
                }
                Some(None) => script.steps.insert(0, Step::Remember(target)),
                None => {}
            }
            before.push(Step::Stop(target, handle));
            script.put_before(Step::Send(last), vec![Step::Start(target, handle)]);
        }
        let mut earlier = script.exchanges[..first].iter();
        let waited = |it: &Exchange| it.took > PATIENCE && it.request.body.handle.0 != handle;
        let place = match earlier.position(waited) {
            Some(waiting) => Step::Answer(waiting),
            None => Step::Send(first),
        };
        script.put_before(place, before);
    }
}

/// What the connect at `last` ends, if it does.
fn outage(exchanges: &[Exchange], last: usize) -> Option<Outage> {
    let connect = &exchanges[last];
    let handle = connect.request.body.handle.0;
    let (reply, _) = connect.reply.as_ref()?;
    let is_again = is_connect(&connect.request.typed) && handle != 0;
    if !is_again || reply.body.status != 0 || reply.body.handle.0 == handle {
        return None;
    }
    let target = target_of_connect(&connect.request.typed)?;
    let errno = |exchange: &Exchange| exchange.reply.as_ref().map(|(reply, _)| -reply.body.status);
    let is = |exchange: &Exchange, wanted: Errno| errno(exchange) == Some(i32::from(wanted.0));
    let own = |exchange: &&Exchange| exchange.request.body.handle.0 == handle;
    let heard = |exchange: &&Exchange| is(exchange, Errno::ENOTCONN) || is(exchange, Errno::ENODEV);
    let first = exchanges[..last].iter().position(|exchange| own(&exchange) && heard(&exchange));
    // One that nothing answers any more is not there, either.
    let silent = |exchange: &&Exchange| exchange.reply.is_none();
    let unanswered = exchanges[..last].iter().filter(own).rev().take_while(silent).count();
    let mut silence = (0..last).rev().filter(|index| own(&&exchanges[*index]));
    let silence = unanswered.checked_sub(1).and_then(|number| silence.nth(number));
    let first = first.or(silence).unwrap_or(last);
    let gone = exchanges[first..last].iter().filter(own).any(|it| is(it, Errno::ENODEV));
    let recovers = reply.body.op_flags.contains(OpFlags::CONNECT_RECOVERING);
    let restarts = gone || recovers || target == TargetId::Mgs;
    let committed = reply.body.last_committed;
    let transno = |index: &usize| {
        let (reply, _) = exchanges[*index].reply.as_ref()?;
        (own(&&exchanges[*index]) && reply.body.transno.0 != 0).then_some(reply.body.transno)
    };
    let redone = redone(&exchanges[last..]);
    let is_there =
        |index: &usize, transno| transno <= committed || redone.contains(&exchanges[*index].bits);
    let is_lost = |index: usize| transno(&index).is_some_and(|it| !is_there(&index, it));
    let is_kept = |index: &usize| transno(index).is_some_and(|it| is_there(index, it));
    let kept = (0..first).any(is_lost).then(|| (0..first).rev().find(is_kept));
    if recovers && matches!(target, TargetId::Ost(_)) {
        // Which of ours stands for it is known only where it is used: ours stay.
        return None;
    }
    let evicts = !recovers && target != TargetId::Mgs;
    Some(Outage { target, handle, first, last, restarts, evicts, kept: kept.filter(|_| recovers) })
}

/// What a server had again from the records of other servers before its clients replayed, by the match bits: a replay of that is
/// answered without a number. Ours has what it answers durable where another server takes part in it, so it never loses it.
fn redone(exchanges: &[Exchange]) -> HashSet<u64> {
    let is_redone = |exchange: &&Exchange| {
        let answer = exchange.reply.as_ref().map(|(reply, _)| &reply.body);
        exchange.request.body.flags.contains(MsgFlags::REPLAY)
            && answer.is_some_and(|answer| answer.status == 0 && answer.transno.0 == 0)
    };
    let changes =
        |exchange: &&Exchange| exchange.request.format.flags.contains(FormatFlags::MODIFYING);
    exchanges.iter().filter(changes).filter(is_redone).map(|exchange| exchange.bits).collect()
}
