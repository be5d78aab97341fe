//! Who may do what with an inode, as far as it is known, and which names of a directory the kernel keeps
//! because every user may search it.
//!
//! What always holds: the kernel may keep names only while a lock covers the directory's mode, owner, group
//! and access control list; it is notified before that lock is cancelled.

use bytes::Bytes;
use sheen_types::access::{AccessList, Audience, Guarded, May};
use sheen_types::{Fid, HashSet, Instant, Name};
use sheen_wire::md::{MdtBody, PosixAcl, Valid};

use super::kernel_notifier::{NAME_TIMEOUT, NAME_TIMEOUT_SLACK};
use super::{CoveredMetadata, Inode, InodeState};
use crate::types::{Credentials, FileType};

/// Names of one directory that the kernel may keep at once. Each costs a notification when the directory's
/// lock is revoked; beyond this they are looked up at each use.
const KEPT_CHILDREN_MAX: usize = 1 << 20;

/// What an inode's state knows of rights besides its attributes.
#[derive(Default)]
pub(crate) struct Rights {
    list: KnownList,
    /// Directory: names that the kernel keeps, present and absent ones.
    kept_children: HashSet<Name>,
    /// Directory: when the last of its names that the kernel keeps for a time only is used no longer.
    timed_names_until: Option<Instant>,
    /// Directory: the same of those that are not among `kept_children` any more, though the kernel may not have
    /// processed that notice.
    unprocessed_names_until: Option<Instant>,
}

/// An access control list.
#[derive(Default)]
enum KnownList {
    /// There is none beyond the mode.
    #[default]
    None,
    Known(AccessList),
    /// There is one, but it cannot be decoded: every user whose rights depend on it is refused.
    Unreadable,
}

impl Rights {
    /// What takes the place of a directory keeps the names in it that the kernel has.
    pub(super) fn follow(&mut self, former: &Self) {
        self.kept_children.extend(former.kept_children.iter().cloned());
        self.timed_names_until = self.timed_names_until.max(former.timed_names_until);
        self.unprocessed_names_until =
            self.unprocessed_names_until.max(former.unprocessed_names_until);
    }
}

impl CoveredMetadata {
    /// Whether the kernel may keep what was found at `name` in `parent`, for all users of the mount; `is_timed`: for
    /// [`NAME_TIMEOUT`] only. If so, that is noted.
    pub(crate) fn may_keep_name(&self, parent: &Inode, name: &Name, is_timed: bool) -> bool {
        let Some(audience) = self.kernel_cache.audience() else { return false };
        let until = is_timed.then(|| self.clock.now() + NAME_TIMEOUT + NAME_TIMEOUT_SLACK);
        parent.state().keep_child(name, audience, until)
    }
}

impl InodeState {
    /// Whether locks cover mode, owner, group and access control list as they are known.
    pub(crate) fn rights_covered(&self) -> bool {
        let by_right = self.covered.perm.get().is_some_and(|it| it.has_rights);
        self.last_attributes.is_some() && (by_right || self.attributes_covered())
    }

    /// Whether it is known to have no access control list beyond its mode, and locks cover that.
    pub(crate) fn has_no_access_list(&self) -> bool {
        self.rights_covered() && matches!(self.rights.list, KnownList::None)
    }

    /// A reply came whose attributes were absorbed: its access control list.
    pub(crate) fn apply_acl(&mut self, fid: Fid, body: &MdtBody, acl: &Bytes) {
        if !body.valid.contains(Valid::ACL) {
            return;
        }
        self.rights.list = match PosixAcl::decode(acl) {
            _ if body.aclsize == 0 => KnownList::None,
            Ok(list) => list.rules().map_or(KnownList::Unreadable, KnownList::Known),
            // The MDT is asked then.
            Err(error) => {
                tracing::debug!(%fid, %error, "an access control list cannot be read");
                KnownList::Unreadable
            }
        };
    }

    /// No lock covers `PERM` any more. Returns the names that the kernel keeps under it.
    pub(super) fn take_kept_children(&mut self) -> HashSet<Name> {
        std::mem::take(&mut self.rights.kept_children)
    }

    /// Whether `who` may do `wanted`, by what is known; `None` if that is not enough to say.
    pub(crate) fn permits(&self, who: &Credentials, wanted: May) -> Option<bool> {
        let guarded = self.guarded()?;
        let is_denied = matches!(self.rights.list, KnownList::Unreadable)
            && guarded.asks_list(who.uid)
            && !guarded.is_overridden(who, wanted);
        Some(!is_denied && guarded.permits(who, wanted))
    }

    /// The supplementary group of `who` that makes a difference to `wanted`, and the inode's own
    /// group if `who` is in it.
    pub(crate) fn deciding_groups(
        &self,
        who: &Credentials,
        wanted: May,
    ) -> (Option<u32>, Option<u32>) {
        let Some(guarded) = self.guarded() else { return (None, None) };
        let owning = who.is_in_group(guarded.gid).then_some(guarded.gid);
        (guarded.deciding_group(who.uid, &who.groups, wanted).or(owning), owning)
    }

    /// Directory: whether the kernel may keep `name` for all users without a lookup for each, `until` then if it keeps
    /// it for a time only. If so, that is noted.
    pub(crate) fn keep_child(
        &mut self,
        name: &Name,
        audience: Audience,
        until: Option<Instant>,
    ) -> bool {
        if !self.rights_covered() || !self.may_search_all(audience) {
            return false;
        }
        if !self.rights.kept_children.contains(name) {
            if self.rights.kept_children.len() >= KEPT_CHILDREN_MAX {
                return false;
            }
            self.rights.kept_children.insert(name.clone());
        }
        self.rights.timed_names_until = self.rights.timed_names_until.max(until);
        true
    }

    /// Directory: what its names that the kernel keeps were last seen to be. Those that it does not keep cost little.
    pub(crate) fn kept_children(&self) -> Vec<Fid> {
        let names = self.rights.kept_children.iter();
        names.filter_map(|name| self.directory.children.get(name).copied()).collect()
    }

    /// Directory: until when the kernel may use names that it was not notified of, because it keeps them for a time
    /// only ([`NAME_TIMEOUT`]).
    pub(crate) fn timed_names_until(&self) -> Option<Instant> {
        self.rights.timed_names_until
    }

    /// Directory: until when the kernel may use names of which it may not have processed the notice yet, though they
    /// do not count as kept.
    pub(super) fn unprocessed_names_until(&self) -> Option<Instant> {
        self.rights.unprocessed_names_until
    }

    /// Absent names are lost with `UPDATE`. The kernel is notified; a call that looks names up without pause delays that.
    pub(super) fn note_absent_names_lost(&mut self) {
        self.rights.unprocessed_names_until = self.rights.timed_names_until;
    }

    /// The kernel does not keep this name any more: it was notified, or its own call has taken the name away.
    pub(crate) fn forget_kept_child(&mut self, name: &Name) {
        self.rights.kept_children.remove(name);
    }

    /// Whether every user of the mount may search it, by what is known.
    pub(crate) fn may_search_all(&self, audience: Audience) -> bool {
        let readable = !matches!(self.rights.list, KnownList::Unreadable);
        readable && self.guarded().is_some_and(|it| it.permits_all(audience, May::EXEC))
    }

    fn guarded(&self) -> Option<Guarded<'_>> {
        let attributes = self.last_attributes.as_ref()?;
        Some(Guarded {
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            is_directory: attributes.file_type() == FileType::Directory,
            list: match &self.rights.list {
                KnownList::Known(list) => Some(list),
                KnownList::None | KnownList::Unreadable => None,
            },
        })
    }
}
