//! Calls on a file's data, by its current layout.
//!
//! A write where there are no objects yet has the MDT make them; a call that finds that the layout may have
//! changed while it waited for a lock reads the layout again and is repeated. No RPC more than the call's own
//! while a lock covers the layout.

use std::sync::Arc;
use std::time::Duration;

use sheen_types::{Errno, Extent, Fid};
use sheen_wire::md::LayoutIntentOp;
use sheen_wire::ost::OstId;

use super::Mounted;
use crate::cache::{Inode, LayoutState};
use crate::data::{CallPages, DataFile, FileLayout, LayoutVersion, Refusal};
use crate::types::Credentials;

/// How long a file on an OST that is not in our configuration yet is waited for.
const NEW_OST_WAIT: Duration = Duration::from_secs(10);
/// How often the configuration is checked for it.
const NEW_OST_LOOK: Duration = Duration::from_millis(100);
/// How often a call is repeated: beyond that the file is being moved all the time.
const TRIES: u32 = 1000;

impl Mounted {
    /// Calls `call` with the data of a regular file; `None` if it has no objects, and is not to get any.
    pub(super) async fn with_data<T, F>(
        &self,
        who: &Credentials,
        inode: &Inode,
        call: impl Fn(Arc<dyn DataFile>) -> F,
    ) -> Result<Option<T>, Errno>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        self.with_data_for_call(who, inode, None, call).await
    }

    /// As [`Self::with_data`], for a call during which the kernel holds these pages.
    pub(super) async fn with_data_for_call<T, F>(
        &self,
        who: &Credentials,
        inode: &Inode,
        call_pages: Option<CallPages>,
        call: impl Fn(Arc<dyn DataFile>) -> F,
    ) -> Result<Option<T>, Errno>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        for _ in 0..TRIES {
            let data = match current(inode) {
                Some(data) => data,
                None => {
                    // The client that moves the file waits for locks of ours, and we for its own.
                    let _waiting_call = call_pages
                        .and_then(|call_pages| self.data.enter_waiting_call(inode.fid, call_pages));
                    let Some(data) = self.data_if_any(who, inode).await? else { return Ok(None) };
                    data
                }
            };
            match call(data).await {
                Ok(done) => return Ok(Some(done)),
                // Objects that the file has left are gone soon.
                Err(Refusal::Errno(Errno::ENOENT)) if !is_current(inode) => {}
                Err(Refusal::Errno(Errno::ENOENT)) => {
                    return Err(self.why_absent(who, inode).await);
                }
                Err(Refusal::Errno(errno)) => return Err(errno),
                Err(Refusal::Stale) => {}
                Err(Refusal::NoObjects(extent)) => {
                    let op = LayoutIntentOp::WRITE;
                    self.meta.make_objects(who, inode, op, extent).await?;
                }
            }
        }
        tracing::warn!(file = %inode.fid, "the layout changes faster than it can be used");
        Err(Errno::EIO)
    }

    /// What it means that an OST has no object of a file whose layout holds: the file was removed while the
    /// call waited, by this client or under a lock that it did not have yet, or its object is lost. A lookup
    /// finds the file then, so that is no missing name.
    async fn why_absent(&self, who: &Credentials, inode: &Inode) -> Errno {
        match self.meta.getattr(who, inode).await {
            Err(Errno::ENOENT | Errno::ESTALE) => Errno::ESTALE,
            _ => {
                let absent = inode.state().file.data.as_ref().map(|data| data.absent());
                let absent = absent.filter(|absent| !absent.is_empty());
                let Some(absent) = absent else {
                    tracing::error!(file = %inode.fid, "an object of the file is lost");
                    return Errno::EIO;
                };
                for (target, object) in absent {
                    tracing::error!(%target, object = %name_of(object), file = %inode.fid,
                        "an object of the file is lost: its target does not have it");
                }
                Errno::EIO
            }
        }
    }

    /// The data of a regular file; `None` if it has no layout.
    pub(super) async fn data_if_any(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<Option<Arc<dyn DataFile>>, Errno> {
        for _ in 0..TRIES {
            if let Some(data) = current(inode) {
                return Ok(Some(data));
            }
            let (layout, layout_version) = match self.meta.layout(who, inode).await? {
                (LayoutState::Placed(layout), layout_version) => (layout, layout_version),
                (LayoutState::Empty, _) => return Ok(None),
                (LayoutState::Foreign, _) => return Err(Errno::EOPNOTSUPP),
            };
            if !layout_version.is_current() {
                continue;
            }
            return self.data_by(inode, layout, layout_version).await.map(Some);
        }
        tracing::warn!(file = %inode.fid, "the layout changes faster than it can be read");
        Err(Errno::EIO)
    }

    async fn data_by(
        &self,
        inode: &Inode,
        layout: Arc<FileLayout>,
        layout_version: LayoutVersion,
    ) -> Result<Arc<dyn DataFile>, Errno> {
        // It is known but where the layout was read before there was a second one.
        self.meta.mdt(inode.fid).await?;
        let clock = &self.meta.world.clock;
        let deadline = clock.now() + NEW_OST_WAIT;
        let data = loop {
            match self.data.file(inode.fid, Arc::clone(&layout), layout_version.clone()) {
                // The MDT has learnt of a new OST before this client.
                Err(Errno::ENODEV) if clock.now() < deadline => {
                    clock.sleep_until(clock.now() + NEW_OST_LOOK).await;
                }
                // What was accepted by another layout is on its way.
                Err(Errno::EAGAIN) => {
                    let old = inode.state().file.data.clone();
                    match old {
                        Some(old) => old.flush(Extent::ALL).await,
                        None => clock.sleep_until(clock.now() + NEW_OST_LOOK).await,
                    }
                }
                known => break known?,
            }
        };
        let (data, old) = {
            let mut state = inode.state();
            match state.file.data.take() {
                Some(old) if *old.layout() == *layout => {
                    let data = old.with_version(layout_version);
                    state.file.data = Some(Arc::clone(&data));
                    (data, None)
                }
                old => {
                    state.file.data = Some(Arc::clone(&data));
                    (data, old)
                }
            }
        };
        if let Some(old) = old.filter(|old| !layout.keeps(old.layout())) {
            old.moved_away().await;
        }
        Ok(data)
    }
}

/// An object as its OST's log and fsck name it.
fn name_of(object: OstId) -> String {
    let fid = Fid::new(object.word0, object.word1 as u32);
    if fid.is_normal() { fid.to_string() } else { format!("{object:?}") }
}

/// Whether the layout that is known is still covered.
fn is_current(inode: &Inode) -> bool {
    current(inode).is_some()
}

/// What is known of the data, if a lock has covered the layout ever since.
fn current(inode: &Inode) -> Option<Arc<dyn DataFile>> {
    let state = inode.state();
    let data = state.file.data.as_ref().filter(|data| data.is_current())?;
    state.layout().map(|_| Arc::clone(data))
}
