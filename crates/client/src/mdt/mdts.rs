//! All MDTs of a mount, and the choice of the one that has an inode (Lustre: LMV).
//!
//! Where a FID lies is asked of MDT0000 once for each range of sequences, one question for all who wait, and kept in
//! [`MdtLocations`]. With one MDT nothing is asked. No other MDT is asked or believed: MDT0000 gives the ranges out, and
//! one that may be away, or lie, keeps no inode of another from its users. (Lustre asks the MDT whose index is the
//! sequence modulo their number.)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_io::{World, within};
use sheen_rpc::Call;
use sheen_types::{Errno, Fid, HashMap, MdtIndex};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::messages::FldQuery;
use tokio::sync::Notify;

use super::Mdc;
use crate::call;
use crate::data::MdtLocations;

/// `FLD_LOOKUP`: which target has a sequence.
const FLD_LOOKUP: u32 = 2;
/// How long a call waits for the configuration to list an MDT that another MDT knows already: it is on its way.
const CONFIGURED_WITHIN: Duration = Duration::from_secs(20);

/// The MDTs.
pub(crate) struct Mdts {
    world: World,
    locations: Arc<MdtLocations>,
    /// MDT0000, which has the root.
    first: Arc<Mdc>,
    further: RwLock<BTreeMap<MdtIndex, Arc<Mdc>>>,
    added: Notify,
    /// Sequences that are being asked for: who has the mutex asks.
    asked: Mutex<HashMap<u64, Arc<tokio::sync::Mutex<()>>>>,
}

impl Mdts {
    /// With the one that has the root.
    pub(crate) fn new(world: World, locations: Arc<MdtLocations>, first: Arc<Mdc>) -> Self {
        let (further, added, asked) = (RwLock::default(), Notify::new(), Mutex::default());
        Self { world, locations, first, further, added, asked }
    }

    /// One more.
    pub(crate) fn add(&self, mdt: Arc<Mdc>) {
        self.further.write().insert(mdt.index, mdt);
        self.locations.note_several();
        self.added.notify_waiters();
    }

    /// An answer names what only another MDT can have: there are several, of which the configuration may list one so far.
    pub(crate) fn note_several(&self) {
        self.locations.note_several();
    }

    /// Whether there is more than one.
    pub(crate) fn has_several(&self) -> bool {
        self.locations.has_several()
    }

    /// Whether `mdt`, which has answered as the one that has an inode, is that. Of MDT0000 it is believed, unless it is
    /// known otherwise; of another one MDT0000 is asked, unless it is known. No RPC where there is one MDT.
    ///
    /// # Errors
    /// `EPROTO` if another one has it; as [`Mdts::of`].
    pub(crate) async fn check_answered(&self, mdt: &Mdc, fid: Fid) -> Result<(), Errno> {
        if mdt.index == self.first.index {
            self.locations.learn_answered(fid);
        }
        let home = match self.locations.known(fid) {
            Some(index) => index,
            None => self.find(fid).await?.index,
        };
        if home == mdt.index {
            return Ok(());
        }
        let (mdt, home) = (mdt.index.0, home.0);
        tracing::warn!(mdt, home, file = %fid, "an MDT has answered for an inode of another one");
        Err(Errno::EPROTO)
    }

    /// The one that has the root.
    pub(crate) fn first(&self) -> &Arc<Mdc> {
        &self.first
    }

    /// All MDTs, that with the root first.
    pub(crate) fn all(&self) -> Vec<Arc<Mdc>> {
        let further = self.further.read();
        std::iter::once(&self.first).chain(further.values()).cloned().collect()
    }

    /// The MDT of an inode if it is known. No RPC.
    pub(crate) fn known(&self, fid: Fid) -> Option<Arc<Mdc>> {
        self.by_index(self.locations.known(fid)?)
    }

    /// The MDT of an inode. No RPC if it is known, as it is where there is one; one else.
    ///
    /// # Errors
    /// `ENOENT` if no MDT has the FID's sequence; `ENODEV` if the configuration does not list the one that has.
    pub(crate) async fn of(&self, fid: Fid) -> Result<Arc<Mdc>, Errno> {
        match self.known(fid) {
            Some(mdt) => Ok(mdt),
            None => self.find(fid).await,
        }
    }

    /// The MDT of this number.
    pub(crate) fn by_index(&self, index: MdtIndex) -> Option<Arc<Mdc>> {
        match index == self.first.index {
            true => Some(Arc::clone(&self.first)),
            false => self.further.read().get(&index).cloned(),
        }
    }

    async fn find(&self, fid: Fid) -> Result<Arc<Mdc>, Errno> {
        let index = match self.locations.known(fid) {
            Some(index) => index,
            None => self.ask_once(fid).await?,
        };
        let clock = &*self.world.clock;
        let found = within(clock, CONFIGURED_WITHIN, self.configured(index)).await;
        found.ok_or_else(|| {
            tracing::warn!(mdt = index.0, file = %fid, "the configuration does not list an MDT that has files");
            Errno::ENODEV
        })
    }

    /// The MDT of that number, when there is one.
    async fn configured(&self, index: MdtIndex) -> Arc<Mdc> {
        loop {
            let added = self.added.notified();
            if let Some(mdt) = self.by_index(index) {
                return mdt;
            }
            added.await;
        }
    }

    async fn ask_once(&self, fid: Fid) -> Result<MdtIndex, Errno> {
        let turn = Arc::clone(self.asked.lock().entry(fid.seq).or_default());
        let turn = turn.lock().await;
        if let Some(index) = self.locations.known(fid) {
            return Ok(index);
        }
        let answer = ask(&self.first, fid.seq).await;
        // Those who wait for this turn have the mutex; who comes now finds the answer, or asks anew.
        self.asked.lock().remove(&fid.seq);
        drop(turn);
        let range = answer?;
        self.locations.learn(fid.seq, &range).ok_or_else(|| {
            tracing::warn!(
                ?range,
                sequence = fid.seq,
                "MDT0000 has answered of other sequences than was asked, or of another MDT's"
            );
            Errno::EPROTO
        })
    }
}

async fn ask(mdt: &Mdc, sequence: u64) -> Result<LuSeqRange, Errno> {
    let fld_mdfld = LuSeqRange { start: sequence, end: 0, index: 0, flags: SeqRangeFlags::MDT };
    let request = FldQuery { fld_opc: FLD_LOOKUP, fld_mdfld, ..FldQuery::default() };
    let answer = call::call::<FldQuery>(&*mdt.channel, Call::new(request)).await?;
    call::need(answer.reply.fld_mdfld)
}
