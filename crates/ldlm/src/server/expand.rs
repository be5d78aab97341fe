//! How far an extent lock grows beyond what was asked for, so that a lone writer asks once.
//!
//! The rules are Lustre's (`ldlm_extent_policy`): up to the next conflicting lock; not downwards
//! when anyone else is on the object; at most 32 MiB under heavy contention; and never so that a
//! page or a larger block that the request was aligned to would belong to two locks. To that comes
//! a memory of what other clients want ([`super::demand`]).

use std::ops::ControlFlow;

use sheen_types::{Extent, Instant, LockMode, PAGE_BYTES};

use super::shard::{Lock, Shard};
use crate::{LockFlags, Owner};

/// The most that a writer's lock grows to on a contended object.
const GROWN_BYTES_MAX: u64 = 32 << 20;
/// More conflicting granted locks than this make an object contended.
const CONTENDED_LOCKS: usize = 32;
/// More conflicting waiting locks than this stop growth downwards.
const WAITING_LOCKS: usize = 4;

/// The extent to grant to `lock`, with which no granted lock conflicts.
pub(super) fn expanded(shard: &Shard, slot: u32, now: Instant) -> Extent {
    let lock = shard.lock(slot);
    if lock.owner == Owner::Local || lock.asked == Extent::ALL {
        return lock.asked;
    }
    if lock.flags.contains(LockFlags::NO_EXPANSION) {
        return lock.asked;
    }
    let extent = between_granted(shard, lock, now);
    between_waiting(shard, slot, lock, extent)
}

fn between_granted(shard: &Shard, lock: &Lock, now: Instant) -> Extent {
    let resource = shard.resource(lock.resource);
    let export = match lock.owner {
        Owner::Export(export) => Some(export),
        Owner::Local => None,
    };
    let mut extent = resource.demand.limit(now, export, lock.requested, lock.asked, Extent::ALL);
    let mut conflicting = 0;
    let _ = resource.incompatible(lock.requested, &mut |tree, _| {
        conflicting += tree.len();
        extent.start = lock.asked.start;
        if let Some(after) = lock.asked.end.checked_add(1)
            && let Some((next, _)) = tree.first(Extent { start: after, end: Extent::EOF })
        {
            extent.end = extent.end.min(next.start - 1);
        }
        if extent == lock.asked { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    fitted(lock, extent, conflicting)
}

fn between_waiting(shard: &Shard, slot: u32, lock: &Lock, mut extent: Extent) -> Extent {
    let mut conflicting = 0;
    let asked = lock.asked;
    for &other in &shard.resource(lock.resource).waiting {
        if extent == asked {
            return extent;
        }
        let theirs = shard.lock(other);
        let friendly = theirs.requested.compatible(lock.requested) && theirs.owner != lock.owner;
        if other == slot || friendly {
            continue;
        }
        conflicting += 1;
        if conflicting > WAITING_LOCKS {
            extent.start = asked.start;
        }
        // What both asked for cannot be divided; what only growth would take can.
        let range = theirs.asked;
        if !range.overlaps(&extent) || range.overlaps(&asked) {
            continue;
        }
        if range.end < asked.start {
            extent.start = extent.start.max(range.end + 1);
        }
        if range.start > asked.end {
            extent.end = extent.end.min(range.start - 1);
        }
    }
    fitted(lock, extent, conflicting)
}

/// Shrinks a grown extent for contention and alignment; what was asked for stays in.
fn fitted(lock: &Lock, mut extent: Extent, conflicting: usize) -> Extent {
    let asked = lock.asked;
    let writes = matches!(lock.requested, LockMode::Pw | LockMode::Cw);
    let grown_end = asked.start.saturating_add(GROWN_BYTES_MAX - 1);
    if conflicting > CONTENDED_LOCKS && writes && asked.end < grown_end {
        extent.end = extent.end.min(grown_end);
    }
    if extent == Extent::ALL {
        return extent;
    }
    // No part of a page is granted unless it was asked for.
    let mut block = PAGE_BYTES;
    let alignment = asked.end.wrapping_add(1) | asked.start;
    if alignment != 0 && alignment & (block - 1) == 0 {
        while alignment & block == 0 {
            block <<= 1;
        }
    }
    let mask = block - 1;
    let start = (extent.start.wrapping_sub(1) | mask).wrapping_add(1);
    let end = (extent.end.wrapping_add(1) & !mask).wrapping_sub(1);
    // An unaligned request would lose its own ends.
    let start = if start < extent.start { asked.start } else { start.min(asked.start) };
    let end = if end > extent.end { asked.end } else { end.max(asked.end) };
    Extent { start, end }
}
