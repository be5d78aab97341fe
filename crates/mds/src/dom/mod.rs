//! Data on the MDT (Lustre's DoM): files that begin with a component whose bytes lie with their inode.
//!
//! The data of such a file is the data of its inode in the store. Clients read and write it with the
//! requests that OSTs know, which [`sheen_brw`] serves for both; what differs is here: objects are
//! inodes, the DOM bit of the inode's lock covers all bytes, and only times come with data.
//!
//! What always holds:
//!
//! - A client that holds the DOM bit in a mode that writes knows the size best; another client that
//!   wants to know it sends a glimpse, and the holder is asked ([`glimpse`]).
//! - A write is acknowledged only when its file's inode is durable: it is never replayed, and a
//!   crash that took the inode away would take the bytes with it.
//! - The DOM bit goes only to clients that said they know it ([`ConnectFlags2::DOM_LVB`]).
//!
//! Cost: an open of a small file brings its bytes, so that open, read and close wait for one RPC; a
//! first write waits for the commit that has the inode, which other writes share.

mod discard;
mod files;
mod glimpse;
mod late;
mod open;

pub(crate) use files::Files;
pub(crate) use open::{DomOpen, InlineDataLocks, PageBits};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use sheen_brw::{Brw, GrantView, Transfers};
use sheen_store::Store;
use sheen_target::{Context, Outcome};
use sheen_types::{Errno, Fid, InodeBits};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::Request;

use crate::Mdt;
use crate::dom::late::LateTimes;
use crate::dom_layout::part_of;
use crate::inode::Inode;

/// When an open brings the DOM bit (`mdt.*.dom_lock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomLock {
    /// `never`: clients ask for it when they read or write.
    Never = 0,
    /// `trylock`: if no lock conflicts. What Lustre makes of `always`, too.
    Try = 1,
}

/// All that data on the MDT needs.
pub(crate) struct Dom {
    pub(crate) brw: Brw<Files>,
    lock: AtomicU8,
    reads_on_open: AtomicBool,
    inline_data_locks: InlineDataLocks,
}

impl Dom {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let files = Files { store: Arc::clone(&store), late: LateTimes::default() };
        Self {
            brw: Brw::new(store, files),
            lock: AtomicU8::new(DomLock::Try as u8),
            reads_on_open: AtomicBool::new(true),
            inline_data_locks: InlineDataLocks::default(),
        }
    }
}

impl Mdt {
    /// When an open brings the DOM bit.
    #[must_use]
    pub fn dom_lock(&self) -> DomLock {
        match self.dom.lock.load(Ordering::Relaxed) {
            0 => DomLock::Never,
            _ => DomLock::Try,
        }
    }

    /// Sets when an open brings the DOM bit.
    pub fn set_dom_lock(&self, lock: DomLock) {
        self.dom.lock.store(lock as u8, Ordering::Relaxed);
    }

    /// Whether an open that brings the DOM bit brings data too (`mdt.*.dom_read_open`).
    #[must_use]
    pub fn reads_on_open(&self) -> bool {
        self.dom.reads_on_open.load(Ordering::Relaxed)
    }

    /// Sets whether an open that brings the DOM bit brings data too.
    pub fn set_reads_on_open(&self, reads: bool) {
        self.dom.reads_on_open.store(reads, Ordering::Relaxed);
    }

    /// What is granted to all clients, in total, for the parameter tree.
    #[must_use]
    pub fn grant_view(&self) -> GrantView {
        self.dom.brw.grants().view()
    }

    /// What is granted to one client.
    #[must_use]
    pub fn grant_of(&self, client: &sheen_target::Export) -> GrantView {
        self.dom.brw.grants().held_by(client)
    }

    /// How reads and writes of data on this MDT reached the store (`brw_stats`).
    #[must_use]
    pub fn transfers(&self) -> (Transfers, Transfers) {
        self.dom.brw.transfers()
    }

    /// Starts the counts of transfers anew.
    pub fn clear_transfers(&self) {
        self.dom.brw.clear_transfers();
    }

    /// Agrees with a client on data: the DOM bit only with all that it needs.
    pub(crate) fn connect_data(
        &self,
        export: &Arc<sheen_target::Export>,
        offered: &ObdConnectData,
        agreed: &mut ObdConnectData,
    ) -> Result<(), Errno> {
        let knows_bit = InodeBits(agreed.ibits_known).contains(InodeBits::DOM);
        let knows = knows_bit && agreed.flags2.contains(ConnectFlags2::DOM_LVB);
        if !knows {
            agreed.ibits_known &= !InodeBits::DOM.0;
            agreed.flags2 = agreed.flags2.without(ConnectFlags2::DOM_LVB);
        }
        if agreed.flags.contains(ConnectFlags::RDONLY) {
            // It keeps nothing that it would have to write.
            agreed.flags = agreed.flags.without(ConnectFlags::GRANT);
        }
        let page_bits = match offered.flags.contains(ConnectFlags::GRANT_PARAM) {
            true => offered.grant_blkbits,
            false => 0,
        };
        export.role::<PageBits>().0.store(page_bits, Ordering::Relaxed);
        self.dom.brw.connect(export, offered, agreed)
    }

    /// The bits that a getattr may bring besides, of a file with this layout: the DOM bit of a file on the MDT.
    pub(crate) fn data_bits(
        &self,
        context: &Context,
        inode: &Inode,
        layout: Option<&Bytes>,
    ) -> InodeBits {
        // The holder of the bit knows the size.
        if inode.is_damaged || !knows_dom(context) {
            return InodeBits(0);
        }
        let is_here = layout.and_then(part_of).is_some();
        if is_here { InodeBits::DOM } else { InodeBits(0) }
    }

    /// Whether all data of a file lies here, so that its size is known without a report.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn is_all_here(&self, inode: &Inode) -> Result<bool, Errno> {
        let layout = self.layout(inode)?;
        Ok(layout.as_ref().and_then(part_of).is_some_and(|part| part.is_all))
    }

    /// A request sets a file's times: what the client wrote before does not.
    pub(crate) fn note_times(&self, context: &Context, fid: Fid) {
        self.dom.brw.objects().late.note(context.export.number(), fid, context.xid);
    }

    /// Executes a request that OSTs know, on a file's data; or hands any other back.
    pub(crate) async fn operate_on_data(
        &self,
        context: &Context,
        request: Request,
    ) -> Result<Result<Outcome, Errno>, Request> {
        let brw = &self.dom.brw;
        let changes = matches!(
            request,
            Request::OstWrite(_) | Request::OstPunch(_) | Request::OstFallocate(_)
        );
        if changes && self.must_not_change(context) {
            return Ok(Err(Errno::EROFS));
        }
        Ok(match request {
            Request::OstRead(request) => brw.read(context, *request).await,
            Request::OstWrite(request) => brw.write(context, *request).await,
            Request::OstPunch(request) => brw.punch(context, *request).await,
            Request::OstFallocate(request) => brw.fallocate(context, *request).await,
            Request::OstSeek(request) => brw.seek(context, *request).await,
            Request::OstSync(request) => brw.sync(context, *request).await,
            Request::OstSetGrantInfo(request) => Ok(brw.take_grant(context, *request)),
            other => return Err(other),
        })
    }
}

/// Whether a client may have the DOM bit.
pub(crate) fn knows_dom(context: &Context) -> bool {
    context.has2(ConnectFlags2::DOM_LVB)
}

/// Adds the size with a lock that has the DOM bit: a client takes one without it for an error.
pub(crate) fn add_size_with(
    bits: InodeBits,
    inode: &Inode,
    body: &mut MdtBody,
) -> Result<(), Errno> {
    match bits.contains(InodeBits::DOM) {
        true => add_size(inode, body),
        false => Ok(()),
    }
}

/// Adds the size of a file's part on the MDT, for a client that gets the DOM bit with it.
fn add_size(inode: &Inode, body: &mut MdtBody) -> Result<(), Errno> {
    if inode.is_damaged {
        return Err(Errno::EIO);
    }
    let attributes = &inode.attributes;
    body.valid |= Valid::DOM_SIZE | Valid::ATIME | Valid::MTIME | Valid::CTIME;
    (body.dom_size, body.dom_blocks) = (attributes.size, attributes.blocks);
    Ok(())
}
