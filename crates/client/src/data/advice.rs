//! What programs advise about a file's bytes (`ladvise`): to OSTs, which read bytes ahead or forget them, and locks
//! that are asked for ahead of use.
//!
//! Locks ahead are as wide as they were asked for, in whole pages, and are kept as any other lock that no call uses.
//!
//! Cost: a request to each OST that has bytes of the range. Those of a call in the background go all at once, and the
//! call does not wait; else locks are acquired one after the other in stripe order, as appends take theirs.

use std::sync::Arc;

use sheen_ldlm::LockFlags;
use sheen_rpc::{Call, CallKind};
use sheen_types::futures;
use sheen_types::{Errno, Extent, LockMode};
use sheen_wire::md::Valid;
use sheen_wire::messages::OstLadvise;
use sheen_wire::ost::{LadviseFlags, LadviseHdr, LuLadvise, OstBody};

use super::data_target::DataTargetKind;
use super::file::File;
use super::layout_guard::Refusal;
use super::object::Object;
use super::{IoOptions, Locking};
use crate::call;
use crate::locks::LockRequest;
use crate::types::{Advice, LockedAhead};

/// As it was asked for, in every case.
const EXACT: Locking = Locking { is_exact: true, group: 0 };

impl File {
    /// See [`super::DataFile::advise`].
    pub(super) async fn advise_objects(
        &self,
        advice: Advice,
        range: Extent,
    ) -> Result<(), Refusal> {
        self.layout_version.check()?;
        let on_ost = |(object, _): &(Arc<Object>, _)| object.target.kind == DataTargetKind::Ost;
        // To the end of the file is to the end of each object, as Lustre's clients say it.
        let to_end = range.end >= u64::MAX - 1;
        let end_of = |part: Extent| if to_end { Extent { end: u64::MAX, ..part } } else { part };
        let parts = self.parts_exactly(range).into_iter().filter(on_ost);
        let parts = parts.map(|(object, part)| (object, end_of(part)));
        if advice.in_background {
            parts.for_each(|(object, part)| object.advise_in_background(advice, part));
            return Ok(());
        }
        let advised = parts.map(|(object, part)| async move { object.advise(advice, part).await });
        Ok(futures::all_ok(advised.collect()).await?)
    }

    /// See [`super::DataFile::lock_ahead`].
    pub(super) async fn lock_objects_ahead(
        &self,
        range: Extent,
        mode: LockMode,
        in_background: bool,
    ) -> Result<LockedAhead, Refusal> {
        self.layout_version.check()?;
        let mut locked = LockedAhead::Sent;
        for (object, part) in self.parts_exactly(range) {
            let answer = match in_background {
                true => object.lock_ahead_in_background(part, mode)?,
                false => {
                    let options = IoOptions { locking: EXACT, ..IoOptions::default() };
                    object.use_lock(part, mode, options, &self.layout_version).await?;
                    LockedAhead::Sent
                }
            };
            // As in Lustre a call has one answer, which fits one that touches one object.
            locked = if locked == LockedAhead::Sent { answer } else { locked };
        }
        Ok(locked)
    }
}

impl Object {
    async fn advise(&self, advice: Advice, extent: Extent) -> Result<(), Errno> {
        let mut oa = self.obdo();
        oa.valid = Valid::ID | Valid::GROUP | Valid::FID | Valid::PARENT;
        let flags = if advice.in_background { LadviseFlags::ASYNC } else { LadviseFlags::NONE };
        let request = OstLadvise {
            ost_body: OstBody { oa },
            ladvise_hdr: LadviseHdr {
                magic: LadviseHdr::MAGIC,
                count: 1,
                flags,
                ..LadviseHdr::default()
            },
            ladvise: vec![LuLadvise {
                advice: advice.kind.number(),
                start: extent.start,
                end: extent.end.saturating_add(1),
                ..LuLadvise::default()
            }],
            ..OstLadvise::default()
        };
        let call = Call { kind: CallKind::Idempotent, ..Call::new(request) };
        let answer = call::call::<OstLadvise>(&*self.target.channel, call).await;
        self.note_presence(answer).map(|_| ())
    }

    fn advise_in_background(self: Arc<Self>, advice: Advice, extent: Extent) {
        let tasks = Arc::clone(&self.target.shared.world.tasks);
        let task = async move {
            if let Err(errno) = self.advise(advice, extent).await {
                tracing::debug!(file = %self.file, %errno, "an OST takes no advice");
            }
        };
        tasks.spawn("advice", Box::pin(task));
    }

    /// Asks for a lock unless there is one. The `DOM` bit, which covers all bytes, is left for the calls that need it.
    fn lock_ahead_in_background(
        self: &Arc<Self>,
        extent: Extent,
        mode: LockMode,
    ) -> Result<LockedAhead, Errno> {
        if self.target.kind == DataTargetKind::Mdt {
            return Ok(LockedAhead::Sent);
        }
        let flags = self.target.growth_flags(EXACT)? | LockFlags::SPECULATIVE;
        let policy = self.target.policy(extent);
        if let Some(lock) = self.target.locks().find(self.resource, policy, mode) {
            let is_same = lock.policy() == policy;
            return Ok(if is_same { LockedAhead::Same } else { LockedAhead::Different });
        }
        let object = Arc::clone(self);
        let request = LockRequest { resource: self.resource, policy, mode, flags };
        let task = async move {
            let lock = object.target.locks().enqueue(request).await;
            if let Err(errno) = object.note_presence(lock) {
                tracing::debug!(file = %object.file, %errno, "no lock ahead");
            }
        };
        self.target.shared.world.tasks.spawn("lock ahead", Box::pin(task));
        Ok(LockedAhead::Sent)
    }
}
