//! What operators forbid on an MDT: changes (`readonly`), or new directories of other MDTs' making
//! (`no_create`), which clients read from its statfs; and what they allow: directories whose names lie on other MDTs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sheen_target::{Context, RateLimitedWarning};
use sheen_types::Errno;
use sheen_wire::connect::ConnectFlags;

use crate::Mdt;
use crate::caller::{Caller, Capability};

/// It is not kept: an MDT that starts takes changes.
#[derive(Debug)]
pub(crate) struct Restrictions {
    read_only: AtomicBool,
    no_create: AtomicBool,
    remote_directories: AtomicBool,
    /// Whose members make them, beside root.
    remote_directories_gid: AtomicU32,
    /// Of choices of MDTs.
    refusals: RateLimitedWarning,
}

/// A setting of this MDT that is a condition of something: its name, and whether it is on.
pub(crate) type Setting = (&'static str, bool);

/// Of [`Mdt::remote_directories_gid`]: all users.
const ALL_GROUPS: u32 = u32::MAX;

impl Default for Restrictions {
    fn default() -> Self {
        let (read_only, no_create) = (AtomicBool::new(false), AtomicBool::new(false));
        let (remote_directories, gid) = (AtomicBool::new(true), AtomicU32::new(0));
        let refusals = RateLimitedWarning::default();
        Self { read_only, no_create, remote_directories, remote_directories_gid: gid, refusals }
    }
}

impl Mdt {
    /// Whether all changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.restrictions.read_only.load(Ordering::Relaxed)
    }

    /// Sets whether all changes are refused from now on (`readonly`). What is under way ends.
    pub fn set_read_only(&self, read_only: bool) {
        self.restrictions.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Whether clients with a choice of MDTs are asked not to choose this one.
    #[must_use]
    pub fn refuses_directories(&self) -> bool {
        self.restrictions.no_create.load(Ordering::Relaxed)
    }

    /// Sets whether they are asked so (`no_create`).
    pub fn refuse_directories(&self, refuse: bool) {
        self.restrictions.no_create.store(refuse, Ordering::Relaxed);
    }

    /// Whether directories are made here whose names lie on other MDTs.
    #[must_use]
    pub fn makes_remote_directories(&self) -> bool {
        self.restrictions.remote_directories.load(Ordering::Relaxed)
    }

    /// Sets whether they are (`enable_remote_dir`). They are at the start.
    pub fn make_remote_directories(&self, make: bool) {
        self.restrictions.remote_directories.store(make, Ordering::Relaxed);
    }

    /// The group whose members make such directories, too; all users if it is `u32::MAX` (-1 to operators). At the start it
    /// is 0.
    #[must_use]
    pub fn remote_directories_gid(&self) -> u32 {
        self.restrictions.remote_directories_gid.load(Ordering::Relaxed)
    }

    /// Sets it (`enable_remote_dir_gid`).
    pub fn set_remote_directories_gid(&self, gid: u32) {
        self.restrictions.remote_directories_gid.store(gid, Ordering::Relaxed);
    }

    /// Whether a user whose group is `gid`, and who is not root, makes such directories.
    fn lets_make_remote_directories(&self, gid: u32) -> bool {
        [gid, ALL_GROUPS].contains(&self.remote_directories_gid())
    }

    /// Whether a caller may say on which MDTs a directory lies, as it does with `what` (a noun), for which all of `settings` are to be
    /// on (Lustre: `mdt_create`, `mdt_reint_migrate`, `mdt_dir_layout_update`). A refusal is logged with its reason: what the
    /// client's program says of `EPERM` has none.
    ///
    /// # Errors
    /// [`Errno::EPERM`].
    pub(crate) fn check_choice(
        &self,
        context: &Context,
        caller: &Caller,
        what: &'static str,
        settings: &[Setting],
    ) -> Result<(), Errno> {
        let Some(reason) = self.reason_to_refuse(caller, settings) else { return Ok(()) };
        let (target, client) = (&context.target, context.export.uuid());
        let now = target.world().clock.now();
        self.restrictions.refusals.warn(now, |more| {
            tracing::warn!(target = target.name(), %client, uid = caller.uid, gid = caller.gid, more,
                "{what} is refused: {reason}");
        });
        Err(Errno::EPERM)
    }

    /// What has to be on for a directory with stripes, or on another MDT than its name.
    pub(crate) fn setting_for(&self, has_stripes: bool) -> Setting {
        match has_stripes {
            true => ("enable_striped_dir", self.makes_striped_directories()),
            false => ("enable_remote_dir", self.makes_remote_directories()),
        }
    }

    /// Why a caller may not choose MDTs; `None` if it may.
    fn reason_to_refuse(&self, caller: &Caller, settings: &[Setting]) -> Option<String> {
        if let Some((off, _)) = settings.iter().find(|(_, is_on)| !is_on) {
            return Some(format!("mdt.*.{off} is 0"));
        }
        if caller.can(Capability::SysAdmin) || self.lets_make_remote_directories(caller.gid) {
            return None;
        }
        let gid = self.remote_directories_gid();
        Some(format!(
            "of users other than root those of group {gid} may alone (mdt.*.enable_remote_dir_gid, -1 for all)"
        ))
    }

    /// Whether a request must change nothing: its client mounts read-only, or the MDT is read-only. What
    /// is replayed was done before.
    pub(crate) fn must_not_change(&self, context: &Context) -> bool {
        let is_read_only = self.is_read_only() && context.replay().is_none();
        is_read_only || context.has(ConnectFlags::RDONLY)
    }
}
