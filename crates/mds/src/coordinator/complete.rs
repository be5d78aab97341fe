//! Saying to all that took part that a change is durable everywhere: then its record may go.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_io::within;
use sheen_rpc::ImportState;
use sheen_target::{Completion, Target};
use sheen_types::MdtIndex;
use sheen_types::futures::all;
use sheen_wire::out::{Complete, ObjectUpdate};

use super::ask::RESULT_BYTES;
use crate::Mdt;
use crate::other_mdts::Order;

/// How long one that is there is waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked for what is complete.
const EVERY: Duration = Duration::from_secs(5);

impl Mdt {
    /// Ends changes over several MDTs, for as long as the target runs. Called when another MDT is known; once counts.
    pub(crate) fn start_completing(&self, target: &Arc<Target>) {
        if !self.coordinator.begins_completing() {
            return;
        }
        let (mdt, weak) = (Weak::clone(&self.me), Arc::downgrade(target));
        let world = target.world().clone();
        let completing = async move {
            loop {
                world.clock.sleep_until(world.clock.now() + EVERY).await;
                let (Some(mdt), Some(target)) = (mdt.upgrade(), weak.upgrade()) else { return };
                mdt.complete_changes(&target).await;
            }
        };
        target.world().tasks.spawn("complete changes", Box::pin(completing));
    }

    /// An MDT is durable up to what it has said last.
    pub(super) fn note_durable(&self, target: &Target, mdt: MdtIndex) {
        let Ok(channel) = self.partner(mdt) else { return };
        let connection = channel.connection();
        self.note_incarnation_of(target, mdt);
        let durable = channel.last_committed();
        // Else it may be another start that has said so, which lacks what this one had applied.
        if channel.connection() == connection {
            target.durable_on(mdt, durable);
        }
    }

    async fn complete_changes(&self, target: &Arc<Target>) {
        let partners: Vec<_> = self.other_mdts.indexes().into_iter().map(MdtIndex).collect();
        if partners.is_empty() {
            return;
        }
        self.finish_pending_changes(target, &partners).await;
        partners.iter().for_each(|mdt| self.note_durable(target, *mdt));
        if let Some(said) = target.completion() {
            self.send_completion(target, &partners, &said).await;
        }
        if let Err(error) = target.forget_idle_partners() {
            tracing::warn!(target = target.name(), %error,
                "cannot forget MDTs with which no change is left: the next start waits for them in recovery");
        }
    }

    /// Reports complete changes to all MDTs that may have their records; the records of this one go last, when all have
    /// heard of it. One that is away is informed when it is back: other MDTs do not wait for it.
    async fn send_completion(
        &self,
        target: &Arc<Target>,
        partners: &[MdtIndex],
        said: &Completion,
    ) {
        let complete = Complete { upto: said.upto, except: said.except.clone() };
        let Ok(update) = ObjectUpdate::complete(&complete) else { return };
        let noted = target.partners();
        let informed = partners.iter().filter(|mdt| noted.contains(mdt));
        let reports = informed.map(|mdt| self.report_complete(target, *mdt, &update));
        let heard = all(reports.collect()).await;
        if heard.contains(&false) {
            return;
        }
        if let Err(error) = target.complete(target.mdt_index(), said) {
            tracing::warn!(target = target.name(), %error,
                "cannot remove records of complete changes over several MDTs: they are kept");
        }
    }

    /// Reports complete changes to one MDT; whether it has heard it.
    async fn report_complete(
        &self,
        target: &Arc<Target>,
        mdt: MdtIndex,
        update: &ObjectUpdate,
    ) -> bool {
        let is_there = self.partner(mdt).is_ok_and(|it| it.state() == ImportState::Full);
        if !is_there {
            return false;
        }
        // Exclusions there may wait for records to go. One that goes away meanwhile ends this round, not the rounds.
        let asked = self.ask(mdt, std::slice::from_ref(update), RESULT_BYTES, Order::Awaited);
        matches!(within(&*target.world().clock, ANSWERS_WITHIN, asked).await, Some(Ok(_)))
    }
}
