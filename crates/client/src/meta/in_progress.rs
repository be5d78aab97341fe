//! Intents that an MDT cannot carry out at the moment, and says so (`EINPROGRESS` in the status of the intent): it
//! waits for an OST that recovers, say. They are sent again, as by Lustre's client (`mdc_enqueue`), as new requests.

use std::time::Duration;

use sheen_types::Errno;

use super::Meta;

/// The pause before an intent is sent again grows by this...
const PAUSE_STEP: Duration = Duration::from_secs(1);
/// ...to this.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl Meta {
    /// Repeats `ask` until the MDT has another answer than `EINPROGRESS`. One RPC, but for such an MDT.
    pub(super) async fn retry_while_in_progress<T, F>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, Errno>
    where
        F: Future<Output = Result<T, Errno>>,
    {
        let clock = &self.world.clock;
        let mut pause = PAUSE_STEP;
        loop {
            match ask().await {
                Err(Errno::EINPROGRESS) => {
                    clock.sleep_until(clock.now() + pause).await;
                    pause = (pause + PAUSE_STEP).min(PAUSE_MAX);
                }
                answer => return answer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sheen_types::{Errno, Fid, InodeBits, LockHandle};
    use sheen_wire::messages::Request;

    use crate::posix::Lookup;
    use crate::testing::{Fixture, found, name, opened};
    use crate::types::{NodeId, OpenFlags};

    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn an_open_that_the_mdt_cannot_do_yet_is_sent_again() {
        let fixture = Fixture::new();
        fixture.mdt.answer(found(FILE, 0o100_644, 0x77, InodeBits::LOOKUP | InodeBits::UPDATE));
        for _ in 0..2 {
            let mut busy = opened(FILE, 0, false, Bytes::new());
            let lock = busy.dlm_rep.as_mut().expect("a lock reply");
            lock.policy_res2 = u64::from(Errno::EINPROGRESS.status().cast_unsigned());
            lock.handle = LockHandle(0);
            fixture.mdt.answer(busy);
        }
        fixture.mdt.answer(opened(FILE, 9, false, Bytes::new()));
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let (who, name) = (Fixture::root(), name("f"));
            let Ok(Lookup::Found(entry)) = files.lookup(&who, NodeId::ROOT, &name).await else {
                panic!("it is there");
            };
            files.open(&who, entry.node, OpenFlags(0)).await.expect("opened in the end");
        });
        let asked = fixture.mdt.take_asked();
        let opens = asked.iter().filter(|it| matches!(it, Request::LdlmIntentOpen(_))).count();
        assert_eq!(opens, 3);
    }
}
