//! Whether other MDTs have space for stripes: what each has said a moment ago (Lustre: `lod_qos_statfs_update`). An MDT that
//! only gets new inodes is not asked before its part is sent, and then it is too late to refuse.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::within;
use sheen_rpc::Call;
use sheen_target::Target;
use sheen_types::futures::all;
use sheen_types::{Instant, MdtIndex};
use sheen_wire::md::StatfsState;
use sheen_wire::messages::{MdsStatfs, Reply};

use crate::Mdt;
use crate::participant::reserved_bytes;

/// How long what one has said is believed.
const BELIEVED: Duration = Duration::from_secs(3);
/// How long one is waited for. It gets no stripe then.
const PATIENCE: Duration = Duration::from_secs(2);
/// An MDT with less than so many times what parts of changes are kept for gets no more stripes: it fills in the meantime.
const TIMES_RESERVED: u64 = 2;

/// By MDT, when it was asked, and whether it takes stripes.
#[derive(Default)]
pub(crate) struct SpaceOfMdts(Mutex<BTreeMap<MdtIndex, (Instant, bool)>>);

impl Mdt {
    /// Those of the MDTs that take stripes now. Asks each once in a while, all at the same time.
    pub(crate) async fn with_space(&self, target: &Target, mdts: Vec<MdtIndex>) -> Vec<MdtIndex> {
        let now = target.world().clock.now();
        let is_known = |mdt: &MdtIndex| {
            let said = self.space_of_mdts.0.lock();
            said.get(mdt).is_some_and(|(asked, _)| now.since(*asked) < BELIEVED)
        };
        let asked: Vec<_> = mdts.iter().copied().filter(|mdt| !is_known(mdt)).collect();
        let answers = asked.iter().map(|mdt| self.takes_stripes(target, *mdt)).collect();
        let answers = asked.iter().zip(all(answers).await);
        let mut said = self.space_of_mdts.0.lock();
        // One that does not answer is as it was.
        said.extend(answers.filter_map(|(mdt, takes)| Some((*mdt, (now, takes?)))));
        mdts.into_iter().filter(|mdt| said.get(mdt).is_some_and(|(_, takes)| *takes)).collect()
    }

    /// `None` if it does not say.
    async fn takes_stripes(&self, target: &Target, mdt: MdtIndex) -> Option<bool> {
        let channel = self.partner(mdt).ok()?;
        // It waits for nothing there, and here behind nothing.
        let asked = Call { is_awaited: true, ..Call::new(MdsStatfs::default()) };
        let answer = within(&*target.world().clock, PATIENCE, channel.call(asked)).await;
        let Reply::MdsStatfs(reply) = answer?.ok()?.reply else { return None };
        let said = reply.obd_statfs?;
        let closed = StatfsState::READONLY | StatfsState::NOCREATE;
        let bytes = |blocks: u64| blocks.saturating_mul(said.bsize.into());
        let needed = reserved_bytes(bytes(said.blocks)).saturating_mul(TIMES_RESERVED);
        Some(!said.state.intersects(closed) && bytes(said.bavail) >= needed)
    }
}
