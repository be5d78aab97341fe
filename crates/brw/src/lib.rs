//! Bulk reads and writes (Lustre's `brw`): the data of objects as a server hands it out and takes it in, punch,
//! allocation, seek, sync, grants, and the values of locks on them (the part of Lustre's `target`
//! and OFD that its MDT uses as well, for Data-on-MDT).
//!
//! [`Brw`] executes the requests, given what servers differ in ([`Objects`]): which objects there are, which
//! locks cover their bytes, and what a write says of them besides. An OST serves objects under
//! extent locks, an MDT its files' inodes under the DOM bit.
//!
//! What always holds:
//!
//! - Bytes are written at once and outside of transactions (the store's two planes), and their
//!   replies carry no transno: when a write is answered it survives this process, and after a sync
//!   this machine.
//! - Space that was granted to clients is never given twice ([`Grants`]): what a client accepts into
//!   its cache within its grant can be written.
//! - No bytes of an evicted client reach an object, nor any that came over a former connection, after other clients
//!   may have its locks, or it has been answered anew: whether it is there is looked at when the bytes are here, and
//!   evictions and reconnects wait for those that are being applied ([`Context::begin_apply`]).
//! - A bulk that does not come is no answer: the request ends without one, and the client sends it again.
//! - A checksum that a client sent is verified before a byte is written.
//!
//! Cost of a write of n bytes: one bulk fetch, one checksum pass, which gives the checksums of the store's
//! blocks besides, one `pwritev`, one attribute patch in memory; of a read: one `pread` into the
//! buffer that is sent, one checksum pass, which is the store's where that compares blocks. A write asks for
//! the file's blocks besides, a system call, unless it lies in what was written before.

mod advise;
pub mod attributes;
mod grant;
mod histograms;
mod lock_value;
mod punch;
mod read;
mod seek;
mod sync;
mod transfer;
mod version;
mod write;

pub use grant::{BLOCK_BITS, GrantView, Grants, INITIAL_GRANT};
pub use histograms::{Counts, Transfers};
pub use lock_value::encode as encode_value;
pub use transfer::bulk_errno;

use std::sync::Arc;

use sheen_io::BoxFuture;
use sheen_ldlm::Policy;
use sheen_store::{AttributePatch, Attributes, Store};
use sheen_target::{Context, Export, Outcome, Target, store_errno};
use sheen_types::{Errno, Extent, Fid, ResourceName};
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstSetGrantInfo, OstSetGrantInfoReply};
use sheen_wire::ost::{Obdo, OstBody, OstId};

use histograms::Direction;

/// What the two kinds of servers do each in its own way.
pub trait Objects: Send + Sync + 'static {
    /// Where among its counters a server counts the bytes that reads sent.
    const READ_BYTES: usize;
    /// Where it counts those that writes carried.
    const WRITTEN_BYTES: usize;
    /// Which attributes of the object the reply to a punch has (`o_valid`).
    const PUNCH_REPLY_VALID: Valid;

    /// The object that a request names.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for what names none. Whether it exists is found out later.
    fn find(&self, oi: OstId) -> Result<Fid, Errno>;

    /// The lock that covers some of its bytes.
    fn cover(&self, oi: OstId, extent: Extent) -> (ResourceName, Policy);

    /// What a write or a punch changes of the object's attributes, besides its bytes.
    fn stamp(
        &self,
        context: &Context,
        object: Fid,
        asked: &Obdo,
        before: &Attributes,
    ) -> AttributePatch;

    /// Waits, after bytes of an object were written or cut, until the client may be answered.
    ///
    /// # Errors
    /// Why it must not be.
    fn before_answer<'a>(
        &'a self,
        context: &'a Context,
        object: Fid,
    ) -> BoxFuture<'a, Result<(), Errno>>;
}

/// The data of one server's objects.
pub struct Brw<O> {
    store: Arc<dyn Store>,
    objects: O,
    grants: Grants,
    reads: Direction,
    writes: Direction,
    versions: version::DataVersions,
}

impl<O: Objects> Brw<O> {
    /// Serves the data of the objects in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, objects: O) -> Self {
        let (reads, writes) = (Direction::default(), Direction::default());
        let versions = version::DataVersions::default();
        Self { store, objects, grants: Grants::default(), reads, writes, versions }
    }

    /// The server's part.
    #[must_use]
    pub fn objects(&self) -> &O {
        &self.objects
    }

    /// What is promised to clients.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// How reads and writes reached the store (`brw_stats`).
    #[must_use]
    pub fn transfers(&self) -> (Transfers, Transfers) {
        (self.reads.view(), self.writes.view())
    }

    /// Starts the counts of transfers anew.
    pub fn clear_transfers(&self) {
        self.reads.clear();
        self.writes.clear();
    }

    /// The version of an object's data: it differs after a change.
    #[must_use]
    pub fn data_version(&self, target: &Target, object: Fid) -> u64 {
        self.versions.of(object, target.last_transno())
    }

    /// An object's data has changed by other means than the requests that are executed here.
    pub fn note_changed(&self, target: &Target, object: Fid) {
        self.versions.note_changed(object, target.last_transno());
    }

    /// Agrees with a client on checksums, sizes and its grant. Called on every connect.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for a client that would send bulks of no byte, or those of the store.
    pub fn connect(
        &self,
        export: &Arc<Export>,
        offered: &ObdConnectData,
        agreed: &mut ObdConnectData,
    ) -> Result<(), Errno> {
        if agreed.flags.contains(ConnectFlags::CKSUM) {
            agreed.cksum_types = offered.cksum_types & Checksum::OFFERED;
        }
        if agreed.flags.contains(ConnectFlags::BRW_SIZE) && agreed.brw_size == 0 {
            return Err(Errno::EPROTO);
        }
        agreed.grant_blkbits = BLOCK_BITS;
        let space = self.store.space().map_err(store_errno)?;
        self.grants.connect(export, offered, agreed, space);
        Ok(())
    }

    /// A client returns grant on its own (`OST_SET_INFO` with the key `grant_shrink`).
    pub fn take_grant(&self, context: &Context, request: OstSetGrantInfo) -> Outcome {
        let oa = request.ost_body.oa;
        self.grants.reclaim(&context.export, &oa);
        let ost_body = Some(OstBody { oa });
        Outcome::ok(OstSetGrantInfoReply { ost_body, ..OstSetGrantInfoReply::default() })
    }

    /// What `said` names of the object's attributes of now.
    ///
    /// # Errors
    /// Those of the store.
    pub fn describe(&self, asked: &Obdo, object: Fid, said: Valid) -> Result<Obdo, Errno> {
        let now = self.store.attributes(object).map_err(store_errno)?;
        let mut oa = Obdo { oi: asked.oi, ..Obdo::default() };
        attributes::fill(&mut oa, &now, said);
        Ok(oa)
    }
}
