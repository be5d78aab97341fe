//! Intents for the layout: to read it, or to have the objects made that a write needs.

use bytes::Bytes;
use sheen_store::Transaction;
use sheen_target::{Context, LockWish, Memo, Outcome};
use sheen_types::{Errno, InodeBits, LockMode};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::LayoutIntentOp;
use sheen_wire::messages::{LdlmIntentLayout, LdlmIntentLayoutReply};

use crate::exclusion::Needs;
use crate::placement::Pattern;
use crate::{Mdt, locks, xattrs};

impl Mdt {
    /// Answers with the layout under the lock that the client asked for.
    pub(crate) async fn intent_layout(
        &self,
        context: &Context,
        request: &LdlmIntentLayout,
        wish: &LockWish,
    ) -> Result<Outcome, Errno> {
        let fid = wish.resource.fid();
        match request.layout_intent.op {
            LayoutIntentOp::ACCESS => {}
            LayoutIntentOp::WRITE | LayoutIntentOp::TRUNC => {
                self.place(context, request, wish).await?;
            }
            LayoutIntentOp::READ
            | LayoutIntentOp::GLIMPSE
            | LayoutIntentOp::RELEASE
            | LayoutIntentOp::RESTORE => return Err(Errno::ENOTSUPP),
            _ => return Err(Errno::EINVAL),
        }
        let held = context.held_lock(wish);
        let guard = match held {
            Some(_) => None,
            None => Some(context.target.lock(wish.resource, wish.policy, wish.mode).await?),
        };
        // A file that has gone has no layout; the lock tells the client that this stays so.
        let dlm_lvb = match self.inode(fid) {
            Ok(inode) => self.layout(&inode)?.unwrap_or_default(),
            Err(Errno::ENOENT) => Bytes::new(),
            Err(errno) => return Err(errno),
        };
        let mut lock = match guard {
            Some(guard) => locks::hand_over(context, guard, wish)?,
            None => held.unwrap_or_default(),
        };
        lock.policy_res1 = Disposition::IT_EXECD;
        let dlm_rep = Some(lock);
        let reply = LdlmIntentLayoutReply { dlm_rep, dlm_lvb, ..LdlmIntentLayoutReply::default() };
        Ok(Outcome::ok(reply))
    }

    /// Gives a file objects if it has none.
    async fn place(
        &self,
        context: &Context,
        request: &LdlmIntentLayout,
        wish: &LockWish,
    ) -> Result<(), Errno> {
        let fid = wish.resource.fid();
        let _held = self.exclusion.hold(Needs::new().change_inode(fid)).await;
        let inode = self.inode(fid)?;
        if !inode.is_regular() || self.layout(&inode)?.is_some() {
            return Ok(());
        }
        let taken = match context.replay() {
            Some(_) => self.placement.restore(&request.eadata)?,
            None => {
                let parent = self.parent_of(&inode);
                let pattern = self.pattern_in(parent.as_ref(), Pattern::default())?;
                let clock = &context.target.world().clock;
                self.placement.allocate(clock, fid, &pattern).await?
            }
        };
        let target = &context.target;
        let _lock = target.lock_inode(fid, InodeBits::LAYOUT, LockMode::Ex).await?;
        let made = target.transact_with(context, Memo::Done, |_| {
            let mut transaction = Transaction::new();
            transaction.set_xattr(fid, xattrs::LOV, taken.layout().clone());
            taken.record(&mut transaction);
            transaction
        });
        made.map(|_| ()).map_err(|error| error.errno())
    }

    /// What a file in `parent` shall look like: the wish, filled up with the directory's default,
    /// the file system's, and ours.
    pub(crate) fn pattern_in(
        &self,
        parent: Option<&crate::inode::Inode>,
        wish: Pattern,
    ) -> Result<Pattern, Errno> {
        let mut pattern = wish;
        let root = sheen_types::Fid::ROOT;
        for directory in parent.map(|parent| parent.fid).into_iter().chain([root]) {
            let value = match self.store.xattr(directory, xattrs::LOV) {
                Ok(value) => value,
                Err(sheen_store::StoreError::NoObject(_)) => None,
                Err(error) => return Err(error.errno()),
            };
            if let Some(default) = value.as_ref().and_then(Pattern::decode) {
                pattern = pattern.or(&default);
            }
            if directory == root {
                break;
            }
        }
        let ours = Pattern {
            stripe_size: self.config.stripe_size,
            stripe_count: self.config.stripe_count,
            ..Pattern::default()
        };
        Ok(pattern.or(&ours))
    }
}
