//! The glimpse: size and times of an object as they are now, without revoking what another client has cached.

use std::sync::Arc;

use bytes::Bytes;
use sheen_ldlm::LockFlags;
use sheen_rpc::Call;
use sheen_types::{Errno, Extent, LockMode};
use sheen_wire::messages::LdlmEnqueue;

use super::object::Object;
use crate::call::need;
use crate::locks::LockRequest;

/// How often a glimpse is asked again because this client's own changes overtake the answers.
const TRIES: u32 = 8;

impl Object {
    /// Current size and times, from the OST or the client that is writing (a glimpse). Acquires a lock if no
    /// lock conflicts, and revokes none otherwise.
    pub(super) async fn glimpse(self: &Arc<Self>) -> Result<(), Errno> {
        for _ in 0..TRIES {
            let version = self.state.lock().known_version;
            let Some(value) = self.ask_glimpse().await? else { return Ok(()) };
            // A truncate or a write of this client, or a lock, may have overtaken the answer.
            let is_news = {
                let state = self.state.lock();
                state.known_version == version || !state.is_from_ost
            };
            if is_news {
                self.learn(&value, |size| self.target.covers_end(self.resource, size));
                return Ok(());
            }
            if self.is_covered() {
                return Ok(());
            }
        }
        // This client changes it all the time: what is known is as good as any reply.
        Ok(())
    }

    /// Asks; the answer, or nothing if a lock came with it.
    async fn ask_glimpse(self: &Arc<Self>) -> Result<Option<Bytes>, Errno> {
        let ask = LockRequest {
            resource: self.resource,
            policy: self.target.policy(Extent::ALL),
            mode: LockMode::Pr,
            flags: LockFlags::HAS_INTENT,
        };
        let pending = self.target.locks().begin(ask);
        let dlm_req = pending.plain_request(Vec::new());
        let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
        let answer = pending.send::<LdlmEnqueue>(&self.target.channel, Call::new(request)).await;
        let (pending, answer) = self.note_presence(answer)?;
        let reply = need(answer.reply.dlm_rep)?;
        let value = answer.reply.dlm_lvb;
        if answer.body.status != 0 {
            return Ok(Some(value));
        }
        let lock = pending.granted_with(&reply, &value, answer.connection).await?;
        Ok(lock.is_none().then_some(value))
    }
}
