//! Who may do what with an inode: the one rule that MDT and client share.
//!
//! Mode bits, a POSIX access control list, groups and capabilities, joined as Linux joins them
//! (`generic_permission`, `posix_acl_permission`). The MDT asks it of what reaches it, the client of
//! what it answers from its cache; both must come to the same answer, so there is one rule.

mod list;
mod mask;
mod squash;
#[cfg(test)]
mod tests;

pub use list::{AccessLine, AccessList, AccessListError, LINES_PLAIN, Whom};
pub use mask::CapabilityMask;
pub use squash::RootSquash;

/// What is wanted of an inode, or given: the bits of one digit of a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct May(pub u32);

impl May {
    /// Nothing.
    pub const NOTHING: May = May(0);
    /// Execute a file, search a directory.
    pub const EXEC: May = May(1);
    /// Write a file, change names of a directory.
    pub const WRITE: May = May(2);
    /// Read a file, list a directory.
    pub const READ: May = May(4);

    /// Both.
    #[must_use]
    pub const fn and(self, other: May) -> May {
        May(self.0 | other.0)
    }

    /// What both have.
    #[must_use]
    pub const fn within(self, mask: May) -> May {
        May(self.0 & mask.0)
    }

    /// Whether any of `other` is in it.
    #[must_use]
    pub const fn has(self, other: May) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of `wanted` is in it.
    #[must_use]
    pub const fn gives(self, wanted: May) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// Linux's numbers of the capabilities that count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Give files away.
    Chown = 0,
    /// Read and write whatever the mode says.
    DacOverride = 1,
    /// Read files and search directories whatever the mode says.
    DacReadSearch = 2,
    /// Do what only the owner may.
    FileOwner = 3,
    /// Keep set-id bits.
    SetId = 4,
    /// Set the immutable and append-only flags.
    LinuxImmutable = 9,
    /// Set `trusted` attributes.
    SysAdmin = 21,
    /// Exceed limits.
    SysResource = 24,
    /// Make device nodes.
    Mknod = 27,
    /// Give programs capabilities.
    SetFileCapabilities = 31,
}

/// A user or process that asks for access.
pub trait Subject {
    /// File system user.
    fn uid(&self) -> u32;

    /// Whether `group` is among the groups, the first one included.
    fn is_in_group(&self, group: u32) -> bool;

    /// Whether a capability is held.
    fn can(&self, capability: Capability) -> bool;
}

/// What of an inode decides about access to it.
#[derive(Clone, Copy, Debug)]
pub struct Guarded<'a> {
    /// Permission bits; other bits of a mode are not looked at.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its access control list, if it has one beyond the mode.
    pub list: Option<&'a AccessList>,
}

/// Those who may ask for access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// Any user with any groups.
    #[default]
    AnyUser,
    /// One user, with any groups. User 0 counts as the superuser with all capabilities.
    User(u32),
}

const CLASS: u32 = 0o7;
const GROUP_BITS: u32 = 0o070;
const EXEC_BITS: u32 = 0o111;

impl Guarded<'_> {
    /// Whether `who` may do all of `wanted`.
    #[must_use]
    pub fn permits(&self, who: &impl Subject, wanted: May) -> bool {
        self.is_overridden(who, wanted) || self.gives(who, wanted)
    }

    /// Whether capabilities of `who` are enough, whatever mode and list say.
    #[must_use]
    pub fn is_overridden(&self, who: &impl Subject, wanted: May) -> bool {
        let only_reads = wanted == May::READ || self.is_directory && !wanted.has(May::WRITE);
        if only_reads && who.can(Capability::DacReadSearch) {
            return true;
        }
        // A file that no user may execute is no program to the superuser either.
        let executable = self.is_directory || self.mode & EXEC_BITS != 0;
        (executable || !wanted.has(May::EXEC)) && who.can(Capability::DacOverride)
    }

    /// Whether the access control list, if there is one, has a say about `uid`: not about the
    /// owner, and not if the mode's group bits, which are the list's mask, give nothing.
    #[must_use]
    pub fn asks_list(&self, uid: u32) -> bool {
        uid != self.uid && self.mode & GROUP_BITS != 0
    }

    /// Whether mode and list give `wanted`, capabilities aside.
    fn gives(&self, who: &impl Subject, wanted: May) -> bool {
        if who.uid() == self.uid {
            return self.owner().gives(wanted);
        }
        if let Some(list) = self.list
            && self.asks_list(who.uid())
        {
            return list.gives(who, self.gid, wanted);
        }
        match who.is_in_group(self.gid) {
            true => self.group().gives(wanted),
            false => self.other().gives(wanted),
        }
    }

    /// Whether each of `audience` may do all of `wanted`, whatever groups they are in.
    #[must_use]
    pub fn permits_all(&self, audience: Audience, wanted: May) -> bool {
        let list = self.list.filter(|_| self.mode & GROUP_BITS != 0);
        let grouped = match list {
            Some(list) => list.gives_all_groups(wanted) && list.other().gives(wanted),
            None => self.group().gives(wanted) && self.other().gives(wanted),
        };
        match audience {
            Audience::AnyUser => {
                let users = list.is_none_or(|list| list.gives_all_users(wanted));
                self.owner().gives(wanted) && users && grouped
            }
            Audience::User(0) => self.is_directory || !wanted.has(May::EXEC),
            Audience::User(uid) if uid == self.uid => self.owner().gives(wanted),
            Audience::User(uid) => match list.and_then(|list| list.gives_user(uid, wanted)) {
                Some(given) => given,
                None => grouped,
            },
        }
    }

    /// The group that a server must know `who` to be in, to come to the same answer as one that
    /// knows all of `groups`: a request has room for few. `None` if none makes a difference.
    #[must_use]
    pub fn deciding_group(&self, uid: u32, groups: &[u32], wanted: May) -> Option<u32> {
        let owning = groups.contains(&self.gid).then_some(self.gid);
        match self.list {
            Some(list) if self.asks_list(uid) => {
                list.deciding_group(uid, self.gid, groups, wanted).or(owning)
            }
            _ => owning,
        }
    }

    fn owner(&self) -> May {
        May(self.mode >> 6 & CLASS)
    }

    fn group(&self) -> May {
        May(self.mode >> 3 & CLASS)
    }

    fn other(&self) -> May {
        May(self.mode & CLASS)
    }
}
