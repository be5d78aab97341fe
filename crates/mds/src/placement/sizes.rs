//! Sizes of files, at the objects that have them.
//!
//! The size of a file that was cut or extended before it had objects. Until then the MDT keeps it; with objects clients
//! ask the OSTs, so the one that holds the file's end must show it before any client learns of the objects.

use sheen_layout::stored::errno_of;
use sheen_layout::{Layout, Stripe, parse};
use sheen_rpc::{Call, CallKind, ImportState};
use sheen_target::store_errno;
use sheen_types::{Errno, Extent, Fid, futures};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstGetattr, OstPunch, OstSync, Reply};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody, OstId};

use super::{Placement, ReservedObjects};

impl Placement {
    /// Extends the object that holds the end of a file of `size` bytes, or what of it lies on the MDT.
    ///
    /// # Errors
    /// Those of the OST or the store: the file gets no objects.
    pub(crate) async fn show_size(
        &self,
        file: Fid,
        reserved: &ReservedObjects,
        size: u64,
    ) -> Result<(), Errno> {
        let layout = parse(reserved.layout()).map_err(|error| errno_of(&error))?;
        let Some(layout) = layout.filter(|_| size > 0) else { return Ok(()) };
        for (mapping, stripe) in layout.objects() {
            let ends_here = |bytes: &u64| mapping.file_size(*bytes) == size;
            let Some(bytes) = mapping.object_size(size).filter(ends_here) else { continue };
            return match stripe {
                Some(stripe) => self.extend_object(stripe, bytes).await,
                None => self.store.truncate(file, bytes).map_err(store_errno),
            };
        }
        Ok(())
    }

    async fn extend_object(&self, stripe: Stripe, bytes: u64) -> Result<(), Errno> {
        let index = u16::try_from(stripe.ost).ok();
        let ost = index.and_then(|index| self.ost(index)).ok_or(Errno::ENODEV)?;
        let (valid, oi) = (Valid::ID | Valid::GROUP, OstId::of_fid(stripe.object));
        let mut oa = Obdo { valid, oi, ..Obdo::default() };
        oa.set_range(bytes, Extent::EOF);
        let request = OstPunch { ost_body: OstBody { oa }, ..OstPunch::default() };
        let call = Call { kind: CallKind::Idempotent, ..Call::new(request) };
        ost.channel().call(call).await.map(drop).map_err(|error| error.errno())
    }

    /// Asks the objects of a file how large it is. They are asked twice: first under a lock, so that clients flush what they
    /// have of them; then for what is durable.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] if an OST is away, or those of the OSTs.
    pub(crate) async fn ask_file(&self, layout: &Layout) -> Result<FileOnOsts, Errno> {
        let asked = layout.objects().map(|(mapping, stripe)| async move {
            let stripe = stripe.ok_or(Errno::EOPNOTSUPP)?;
            Ok::<_, Errno>((mapping, self.ask_object(stripe).await?))
        });
        let mut file = None;
        for object in futures::all(asked.collect()).await {
            let (mapping, oa) = object?;
            let size = mapping.file_size(oa.size);
            file = Some(FileOnOsts::joined(file, size, &oa));
        }
        file.ok_or(Errno::ENODATA)
    }

    async fn ask_object(&self, stripe: Stripe) -> Result<Obdo, Errno> {
        let index = u16::try_from(stripe.ost).ok();
        let ost = index.and_then(|index| self.ost(index)).ok_or(Errno::ENODEV)?;
        let channel = ost.channel();
        if !ost.is_active() || channel.state() != ImportState::Full {
            return Err(Errno::EAGAIN);
        }
        let named = Obdo {
            valid: Valid::ID | Valid::GROUP,
            oi: OstId::of_fid(stripe.object),
            ..Obdo::default()
        };
        let valid = named.valid | Valid::FLAGS;
        let oa = Obdo { valid, flags: ObdoFlags::SRVLOCK, ..named.clone() };
        let request = OstGetattr { ost_body: OstBody { oa }, ..OstGetattr::default() };
        channel.call(Call::new(request)).await.map_err(|error| error.errno())?;
        let mut oa = named;
        oa.set_range(0, Extent::EOF);
        let request = OstSync { ost_body: OstBody { oa }, ..OstSync::default() };
        let answer = channel.call(Call::new(request)).await.map_err(|error| error.errno())?;
        let Reply::OstSync(reply) = answer.reply else { return Err(Errno::EPROTO) };
        let oa = reply.ost_body.ok_or(Errno::EPROTO)?.oa;
        // An OST of Lustre does not say them here.
        let all = Valid::SIZE | Valid::BLOCKS | Valid::ATIME | Valid::MTIME | Valid::CTIME;
        if oa.valid.contains(all) { Ok(oa) } else { Err(Errno::EOPNOTSUPP) }
    }
}

/// What the objects of a file say of it: the size, blocks in all, and the latest times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileOnOsts {
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
}

impl FileOnOsts {
    /// With one more object, that proves a file of `size` bytes. The numbers come from servers: no sum of them may wrap.
    fn joined(before: Option<Self>, size: u64, oa: &Obdo) -> Self {
        let &Obdo { blocks, atime, mtime, ctime, .. } = oa;
        match before {
            None => Self { size, blocks, atime, mtime, ctime },
            Some(before) => Self {
                size: before.size.max(size),
                blocks: before.blocks.saturating_add(blocks),
                atime: before.atime.max(atime),
                mtime: before.mtime.max(mtime),
                ctime: before.ctime.max(ctime),
            },
        }
    }
}
