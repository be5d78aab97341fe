//! POSIX access control lists.

use super::{May, Subject};

/// Lines of a list that says no more than a mode does.
pub const LINES_PLAIN: usize = 3;

/// To whom a line of a list applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// The file's owner.
    Owner,
    /// This user.
    User(u32),
    /// The file's group.
    Group,
    /// This group.
    NamedGroup(u32),
    /// No user: bounds what all but the owner and the class of other users get.
    Mask,
    /// All other users.
    Other,
}

/// One line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLine {
    /// To whom it applies.
    pub whom: Whom,
    /// What they get.
    pub may: May,
}

/// A legal list: owner, group and other have one line each, and where a user or group is named there is
/// a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    owner: May,
    users: Box<[(u32, May)]>,
    group: May,
    groups: Box<[(u32, May)]>,
    mask: Option<May>,
    other: May,
}

/// The lines are no legal list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessListError;

impl AccessList {
    /// Checks `lines`, which come in the order of [`Whom`], users and groups in any order among
    /// themselves (`posix_acl_valid`).
    ///
    /// # Errors
    /// [`AccessListError`] if they are no list.
    pub fn new(lines: impl IntoIterator<Item = AccessLine>) -> Result<Self, AccessListError> {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
        let mut last = 0;
        for AccessLine { whom, may } in lines {
            let place = match whom {
                Whom::Owner => 0,
                Whom::User(_) => 1,
                Whom::Group => 2,
                Whom::NamedGroup(_) => 3,
                Whom::Mask => 4,
                Whom::Other => 5,
            };
            if place < last || may.0 > 7 {
                return Err(AccessListError);
            }
            last = place;
            let old = match whom {
                Whom::User(id) => {
                    users.push((id, may));
                    None
                }
                Whom::NamedGroup(id) => {
                    groups.push((id, may));
                    None
                }
                Whom::Owner => owner.replace(may),
                Whom::Group => group.replace(may),
                Whom::Mask => mask.replace(may),
                Whom::Other => other.replace(may),
            };
            if old.is_some() {
                return Err(AccessListError);
            }
        }
        let named = !users.is_empty() || !groups.is_empty();
        match (owner, group, other) {
            (Some(owner), Some(group), Some(other)) if mask.is_some() || !named => {
                Ok(Self { owner, users: users.into(), group, groups: groups.into(), mask, other })
            }
            _ => Err(AccessListError),
        }
    }

    /// All lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = AccessLine> + '_ {
        let line = |whom, may| AccessLine { whom, may };
        let users = self.users.iter().map(move |(id, may)| line(Whom::User(*id), *may));
        let groups = self.groups.iter().map(move |(id, may)| line(Whom::NamedGroup(*id), *may));
        std::iter::once(line(Whom::Owner, self.owner))
            .chain(users)
            .chain(std::iter::once(line(Whom::Group, self.group)))
            .chain(groups)
            .chain(self.mask.map(|may| line(Whom::Mask, may)))
            .chain(std::iter::once(line(Whom::Other, self.other)))
    }

    /// Whether it says no more than [`AccessList::mode`] does.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// The permission bits that go with it: its mask, if there is one, is the group's digit.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.owner.0 << 6 | self.mask.unwrap_or(self.group).0 << 3 | self.other.0
    }

    /// What remains of it after a `chmod` to `mode`.
    #[must_use]
    pub fn with_mode(mut self, mode: u32) -> Self {
        self.owner = May(mode >> 6 & 7);
        *self.mask.as_mut().unwrap_or(&mut self.group) = May(mode >> 3 & 7);
        self.other = May(mode & 7);
        self
    }

    /// What a new inode made with `mode` gets of this list, its directory's default one.
    #[must_use]
    pub fn inherited(self, mode: u32) -> Self {
        let asked = Self::with_mode(self.clone(), mode);
        let mut list = self;
        list.owner = list.owner.within(asked.owner);
        match (&mut list.mask, asked.mask) {
            (Some(mask), Some(bits)) => *mask = mask.within(bits),
            _ => list.group = list.group.within(asked.group),
        }
        list.other = list.other.within(asked.other);
        list
    }

    /// Whether `who`, who does not own the file, gets all of `wanted`; `gid` is the file's group.
    pub(super) fn gives(&self, who: &impl Subject, gid: u32, wanted: May) -> bool {
        if let Some(given) = self.gives_user(who.uid(), wanted) {
            return given;
        }
        let mut is_member = false;
        for (_, may) in self.groups_of(gid).filter(|(id, _)| who.is_in_group(*id)) {
            // One line must give all of it.
            if may.gives(wanted) {
                return self.bound().gives(wanted);
            }
            is_member = true;
        }
        !is_member && self.other.gives(wanted)
    }

    /// What the line of user `uid`, if there is one, says of `wanted`.
    pub(super) fn gives_user(&self, uid: u32, wanted: May) -> Option<bool> {
        let (_, may) = self.users.iter().find(|(id, _)| *id == uid)?;
        Some(may.within(self.bound()).gives(wanted))
    }

    pub(super) fn gives_all_users(&self, wanted: May) -> bool {
        self.users.iter().all(|(_, may)| may.within(self.bound()).gives(wanted))
    }

    pub(super) fn gives_all_groups(&self, wanted: May) -> bool {
        self.groups_of(0).all(|(_, may)| may.within(self.bound()).gives(wanted))
    }

    pub(super) fn other(&self) -> May {
        self.other
    }

    /// See [`super::Guarded::deciding_group`]: a group whose line gives `wanted`, else one that has
    /// a line at all, because its members are not of the class "other".
    pub(super) fn deciding_group(
        &self,
        uid: u32,
        gid: u32,
        groups: &[u32],
        wanted: May,
    ) -> Option<u32> {
        if self.users.iter().any(|(id, _)| *id == uid) {
            return None;
        }
        let matching = || self.groups_of(gid).filter(|(id, _)| groups.contains(id));
        let giving = matching().find(|(_, may)| may.gives(wanted));
        giving.or_else(|| matching().next()).map(|(id, _)| id)
    }

    fn groups_of(&self, gid: u32) -> impl Iterator<Item = (u32, May)> + '_ {
        std::iter::once((gid, self.group)).chain(self.groups.iter().copied())
    }

    fn bound(&self) -> May {
        self.mask.unwrap_or(May(7))
    }
}
