//! The begin of the migration of a directory.

use bytes::Bytes;
use sheen_io::logged;
use sheen_layout::directory::{
    DirectoryLayout, DirectoryWish, Holder, LayoutChange, MigrationTarget, finishing_command,
    former_with,
};
use sheen_target::{Context, ReplyRecording};
use sheen_types::text::shown;
use sheen_types::{Errno, Fid, InodeBits, MdtIndex};
use sheen_wire::lmv::LmvHash;
use sheen_wire::out::ObjectUpdate;
use sheen_wire::update_record::Part;

use super::super::ask::RESULT_BYTES;
use super::super::exclude::{DistributedHold, ExclusionRequest, LINKS};
use super::super::execute::Executed;
use super::super::parts::Parts;
use super::{Migration, Places, Step};
use crate::directory::Child;
use crate::inode::Inode;
use crate::other_mdts::Order;
use crate::striped::{StripePlan, stripe_like, stripe_name, stripes};
use crate::xattrs::{ACL_ACCESS, ACL_DEFAULT, DEFAULT_LMV, FORMER, LINK, LMV, LOV, XattrsOf};
use crate::{Mdt, links};

/// What clients keep of a directory that becomes another one.
const ALL: InodeBits = LINKS.union(InodeBits::PERM).union(InodeBits::LAYOUT);
/// What decides about what is made in a stripe.
const SHARED: [&str; 4] = [ACL_ACCESS, ACL_DEFAULT, LOV, DEFAULT_LMV];

/// How a directory lies, and is to lie.
struct Change {
    /// `None` for one without stripes.
    before: Option<DirectoryLayout>,
    after: DirectoryLayout,
    /// How many stripes are new, the first ones.
    targets: usize,
}

/// What is known before anything is changed.
enum Prepared {
    /// What is excluded, and what each MDT is to change.
    Begin(DistributedHold, Vec<Part>),
    /// It is not the directory that begins to migrate.
    Not(Step),
}

impl Change {
    /// Its stripes of before; a directory without some becomes one.
    fn sources(&self) -> Vec<Fid> {
        stripes(&self.after).split_off(self.targets)
    }
}

impl Mdt {
    /// Begins the migration of a directory to this MDT.
    ///
    /// # Errors
    /// See [`Mdt::migrate_name`]; [`Errno::ENODEV`] for a wish of an MDT that is none, [`Errno::ENOSPC`] for one of more MDTs than take
    /// stripes now, [`Errno::EINVAL`] for one that is none and for
    /// a FID that is not the client's to give.
    pub(super) async fn migrate_directory(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        places: &Places,
        child: Child,
    ) -> Result<Step, Errno> {
        let prepared = self.prepare_begin(context, asked, places, child);
        let (held, parts) = match self.while_wanted(context, prepared).await? {
            Prepared::Begin(held, parts) => (held, parts),
            Prepared::Not(step) => return Ok(step),
        };
        let done = ReplyRecording::Done;
        Ok(match self.execute_distributed(context.into(), held, parts, done).await? {
            Executed::Done => Step::Done,
            Executed::Again | Executed::InUse => Step::Again,
        })
    }

    /// What comes before anything is changed. Dropped, it leaves nothing behind.
    async fn prepare_begin(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        places: &Places,
        child: Child,
    ) -> Result<Prepared, Errno> {
        let is_own =
            !self.is_remote(asked.new) && self.sequences.may_make(asked.new, &context.export);
        let Some(wish) = asked.wish.as_ref().filter(|_| is_own) else { return Err(Errno::EINVAL) };
        let before = match self.layout_on_any_mdt(context, child.fid, Order::InTurn).await {
            // The name is all that there is of it.
            Err(Errno::ENOENT) if places.layout.is_some() => {
                return Ok(Prepared::Not(Step::NameAlone));
            }
            // Its name leads to another one since, or to none.
            Err(Errno::ENOENT) => {
                let now = self.find_or_none(context, places.source, asked.name).await?;
                return if now == Some(child) {
                    Err(Errno::ENOENT)
                } else {
                    Ok(Prepared::Not(Step::Again))
                };
            }
            Ok(Some(layout)) if matches!(layout.holder(), Holder::Stripe { .. }) => {
                return Ok(Prepared::Not(Step::Again));
            }
            before => before?,
        };
        let is_there = self.is_where_wished(context, child.fid, before.as_ref(), wish).await;
        if is_there == Err(Errno::EPERM) {
            self.log_other_wish(context, asked, before.as_ref()).await;
        }
        match is_there? {
            // It stays as it is, and goes where its name belongs.
            true if places.source != places.target => return Ok(Prepared::Not(Step::NameAlone)),
            true => return Err(Errno::EALREADY),
            false => {}
        }
        let change = self.plan_migration(context, child.fid, before, wish).await?;
        let wanted = ExclusionRequest { renames: true, ..ExclusionRequest::default() }
            .removed(places.source, asked.name)
            .changed(child.fid, ALL);
        let wanted = match places.source == places.target {
            true => wanted,
            false => wanted.added(places.target, asked.name),
        };
        let sources = change.sources();
        let wanted = sources
            .iter()
            .filter(|stripe| stripe.is_of_mdt())
            .fold(wanted, |wanted, stripe| wanted.changed(*stripe, ALL));
        let held = match self.hold_distributed(context.into(), wanted).await {
            Err(Errno::ENOENT | Errno::ESTALE) => return Ok(Prepared::Not(Step::Again)),
            held => held?,
        };
        let is_as_seen = crate::striped::layout_in(&held, child.fid)? == change.before;
        if !places.has(&held, asked.name, child)? || !is_as_seen {
            return Ok(Prepared::Not(Step::Again));
        }
        let old = held.directory(child.fid)?;
        asked.check_rights(&held, places, &old)?;
        let xattrs = self.xattrs_to_keep(context, &held, child.fid).await?;
        let mut parts = Parts::new(self, context.into());
        parts.begin_migration(asked, places, (&old, &xattrs), (&held, &change)).await?;
        Ok(Prepared::Begin(held, parts.into_parts()))
    }

    /// The layout that a directory gets, with FIDs for its new stripes.
    async fn plan_migration(
        &self,
        context: &Context,
        directory: Fid,
        before: Option<DirectoryLayout>,
        wish: &DirectoryWish,
    ) -> Result<Change, Errno> {
        let wished = self.wished_count(wish).await? as usize;
        if wished > 1 {
            // Of those that are away for a moment the directory is to have stripes, too.
            let all = self.sequences.other_mdts();
            self.until_there(&context.target, all.iter()).await;
        }
        let plan = match self.choose_stripes(&context.target, wish).await? {
            Some(plan) => plan,
            None => self.one_stripe(wish),
        };
        if plan.mdts.len() < wished {
            // The same wish has to end it.
            return Err(Errno::ENOSPC);
        }
        let new = self.new_fids(&context.target, &plan.mdts).await?;
        let targets = new.len();
        let target = MigrationTarget { mdt: MdtIndex(self.index), hash: plan.hash, stripes: new };
        let after = match &before {
            Some(before) => before.migration_to(target),
            None => DirectoryLayout::migration_of_plain(directory, target),
        };
        let after = after.map_err(|error| {
            tracing::debug!(%directory, %error, "a directory that cannot migrate");
            Errno::EINVAL
        })?;
        Ok(Change { before, after, targets })
    }

    /// A directory with one stripe, on this MDT.
    fn one_stripe(&self, wish: &DirectoryWish) -> StripePlan {
        let kind = match wish.hash.without_flags() {
            LmvHash::UNKNOWN => self.directory_settings().hash(),
            kind => kind,
        };
        let hash = LmvHash(kind.0 | wish.hash.0 & LmvHash::FIXED);
        StripePlan { hash, mdts: vec![MdtIndex(self.index)] }
    }

    /// Whether a directory lies as it is wished, or is on its way there.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] for one that is split or merged, [`Errno::EPERM`] for one that migrates by another wish.
    async fn is_where_wished(
        &self,
        context: &Context,
        directory: Fid,
        layout: Option<&DirectoryLayout>,
        wish: &DirectoryWish,
    ) -> Result<bool, Errno> {
        let own = self.mdt_of(&context.target, directory).await?;
        let count = self.wished_count(wish).await?;
        let Some(layout) = layout else { return Ok(count == 1 && wish.first == Some(own)) };
        let change = layout.change();
        if matches!(change, Some(LayoutChange::Split | LayoutChange::Merge)) {
            return Err(Errno::EBUSY);
        }
        let (hash, stripe_count) = layout.wanted();
        let kind = wish.hash.without_flags();
        let has_hash = kind == LmvHash::UNKNOWN || kind == hash.without_flags();
        let has_mdt = match wish.first {
            Some(first) => first == own,
            None => change.is_some(),
        };
        let has_hash = has_hash || count == 1 && change.is_none();
        let mut is_it = count == stripe_count && has_mdt && has_hash;
        for (stripe, mdt) in stripes(layout).iter().zip(&wish.mdts) {
            is_it = is_it && self.mdt_of(&context.target, *stripe).await.is_ok_and(|it| it == *mdt);
        }
        match change.is_some() && !is_it {
            true => Err(Errno::EPERM),
            false => Ok(is_it),
        }
    }

    /// The extended attributes of the directory that takes the place of another one, which is excluded: that one's, and [`FORMER`].
    async fn xattrs_to_keep(
        &self,
        context: &Context,
        held: &DistributedHold,
        directory: Fid,
    ) -> Result<Vec<(String, Bytes)>, Errno> {
        let mdt = self.mdt_of(&context.target, directory).await?;
        let names = match mdt.0 == self.index {
            true => self.whole_inode(directory)?.xattrs.names().map(str::to_owned).collect(),
            false => self.remote_xattr_names(mdt, directory).await?,
        };
        let mut kept = Vec::with_capacity(names.len());
        for name in names.into_iter().filter(|name| !matches!(&**name, LINK | LMV)) {
            let value = match held.xattr_of(directory, &name)? {
                None if mdt.0 == self.index => self.store.xattr_of(directory, &name)?,
                None => self.remote_xattr(mdt, directory, &name, Order::Awaited).await?,
                value => value,
            };
            kept.extend(value.map(|value| (name, value)));
        }
        let before = kept.extract_if(.., |(name, _)| name == FORMER).next();
        let before = before.map(|(_, value)| value).unwrap_or_default();
        let former = former_with(directory, &before);
        kept.push((FORMER.to_owned(), former));
        Ok(kept)
    }

    /// Says which command ends a migration that was broken off, in the words of `lfs migrate`.
    async fn log_other_wish(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        layout: Option<&DirectoryLayout>,
    ) {
        let Some(layout) = layout else { return };
        let ((hash, count), name) = (layout.wanted(), asked.name.as_bytes());
        let mut mdts = Vec::new();
        for stripe in stripes(layout).iter().take(count as usize) {
            let Ok(mdt) = self.mdt_of(&context.target, *stripe).await else { return };
            mdts.push(mdt.0);
        }
        let (shown, command) = (shown(name), finishing_command(&mdts, hash, name));
        tracing::warn!(parent = %asked.parent,
            "'{shown}' is being migrated; to finish it, run: {command}");
    }

    /// The names of the extended attributes of an inode of another MDT.
    async fn remote_xattr_names(&self, mdt: MdtIndex, inode: Fid) -> Result<Vec<String>, Errno> {
        let asked = ObjectUpdate::xattr_list(inode);
        let room = RESULT_BYTES + sheen_types::limits::XATTR_LIST_BYTES_MAX as u32;
        let results = self.ask(mdt, &[asked], room, Order::Awaited).await?;
        let data = &results.first().ok_or(Errno::EPROTO)?.data;
        let names = data.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let text = |name: &[u8]| {
            String::from_utf8(name.to_vec())
                .map_err(logged!(Errno::EPROTO, "another MDT's names of attributes cannot be read"))
        };
        names.map(text).collect()
    }
}

impl Parts<'_> {
    /// A new master takes the place of a directory, and its stripes.
    async fn begin_migration(
        &mut self,
        asked: &Migration<'_>,
        places: &Places,
        (old, xattrs): (&Inode, &[(String, Bytes)]),
        (held, change): (&DistributedHold, &Change),
    ) -> Result<(), Errno> {
        let (source, target, name) = (places.source, places.target, asked.name);
        let mut attributes = old.attributes.clone();
        // Those of a directory without children.
        (attributes.links, attributes.changed) = (2, asked.now);
        let new = Inode { fid: asked.new, attributes, is_damaged: false };
        let layout = (LMV.to_owned(), change.after.to_ea().encode());
        let all = [xattrs, &[layout]].concat();
        self.delete_name(source, name).await?;
        self.create(&new, &all, (target, name)).await?;
        let shared = |(name, _): &&(String, Bytes)| SHARED.contains(&&**name);
        let shared: Vec<_> = xattrs.iter().filter(shared).cloned().collect();
        for (number, fid) in (0..).zip(stripes(&change.after)) {
            let named = stripe_name(fid, number)?;
            let of = change.after.of_stripe(number).ok_or(Errno::EINVAL)?.to_ea().encode();
            if (number as usize) < change.targets {
                let all = [&shared[..], &[(LMV.to_owned(), of)]].concat();
                self.create(&stripe_like(&new, fid), &all, (new.fid, &named)).await?;
            } else if fid.is_of_mdt() && held.has(fid) {
                self.add(fid, ObjectUpdate::xattr_set(fid, LMV, &of)).await?;
                let link = links::first(new.fid, named.as_bytes());
                self.add(fid, ObjectUpdate::xattr_set(fid, LINK, &link)).await?;
            }
            self.insert_name(new.fid, &named, super::super::striped::child(fid)).await?;
        }
        if change.before.is_some() {
            for (number, stripe) in (0..).zip(change.sources()) {
                self.delete_name(old.fid, &stripe_name(stripe, number)?).await?;
            }
            self.add(old.fid, ObjectUpdate::destroy(old.fid)).await?;
        }
        self.insert_name(target, name, super::super::striped::child(new.fid)).await?;
        match source == target {
            true => self.touch(source, asked.now, 0).await,
            false => {
                self.touch(source, asked.now, -1).await?;
                self.touch(target, asked.now, 1).await
            }
        }
    }
}
