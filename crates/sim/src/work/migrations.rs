//! Directories that are spread anew beside all else: migrated, as `lfs migrate -m` does it, split and merged.
//!
//! A migration may end before its time, as by Ctrl-C. What it had begun stays between two layouts until the same command comes
//! again: mostly that of this or of another process, and in the end that of the last client. Another command is refused meanwhile.

use std::num::NonZeroU32;

use sheen_client::posix::XattrMode;
use sheen_layout::directory::{DirectoryWish, LayoutChange, WishedStripes};
use sheen_types::{Errno, MdtIndex};

use super::{NameInDirectory, Process, is_answer, name};
use crate::changing::{Changing, changing, comes_to_an_end, wish_of};
use crate::cluster::Found;
use crate::identities::{TAG, tag_of};

/// One migration in so many ends before each name.
const BREAKS_OFF_ONE_IN: u64 = 12;
/// One migration in so many moves names alone.
const NAMES_ALONE_ONE_IN: u64 = 3;
/// One of one that was broken off goes on with it, and not with another wish, but for one in so many.
const OTHER_WISH_ONE_IN: u64 = 4;
/// Directories below directories, at most: what is deeper was moved there meanwhile.
const DEPTH_MAX: usize = 8;

/// How often everything is ended: one that has directories which were begun by other commands cannot be ended before those.
const ROUNDS_MAX: u32 = 6;

/// What a migration is to do: the same for all that it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Migration {
    /// The stripes of its directories.
    pub(crate) wish: DirectoryWish,
    /// Inodes stay where they are.
    pub(crate) names_alone: bool,
}

/// Whether a migration may be ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayEndEarly {
    Yes,
    No,
}

/// What is said of a name or a directory that is where it belongs, that another command is about, or that has no place for so
/// many stripes.
fn is_answer_to_spreading(errno: Errno) -> bool {
    let of_stripes = matches!(errno, Errno::E2BIG | Errno::ENOSPC);
    of_stripes || is_answer(errno) || matches!(errno, Errno::EALREADY | Errno::EBUSY | Errno::EPERM)
}

impl Process {
    /// One of the ways.
    pub(super) async fn spread_anew(&self) {
        match self.random().below(5) {
            0..=2 => self.migrate().await,
            _ => self.split_or_merge().await,
        }
    }

    /// As `lfs migrate -m` of one directory.
    async fn migrate(&self) {
        let Some(place) = self.directory_place().await else { return };
        let Ok(Some(found)) = self.look_up(&place).await else { return };
        let unfinished = self.sim.unfinished(found.fid);
        let migration = match unfinished.last() {
            Some(unfinished) if !self.one_in(OTHER_WISH_ONE_IN) => unfinished.clone(),
            _ => self.any_migration(),
        };
        drop(found);
        self.migrate_all(place, &migration, MayEndEarly::Yes).await;
    }

    fn any_migration(&self) -> Migration {
        let mdts = u64::from(self.sim.options.mdts);
        let first = MdtIndex(self.random().below(mdts) as u16);
        let wish = match self.one_in(2) {
            true => {
                let stripes = WishedStripes::Count(NonZeroU32::MIN);
                DirectoryWish { stripes, first: Some(first), ..DirectoryWish::default() }
            }
            false => self.striping(first),
        };
        Migration { wish, names_alone: self.one_in(NAMES_ALONE_ONE_IN) }
    }

    /// A directory with all below it, as the tool does it: each name, directories before what is in them, and their end after
    /// that.
    pub(super) async fn migrate_all(
        &self,
        top: NameInDirectory,
        migration: &Migration,
        may_end: MayEndEarly,
    ) {
        // Directories that are begun, with what is still to be moved in each.
        let mut open: Vec<(NameInDirectory, Found, Vec<String>)> = Vec::new();
        let mut next = Some(top);
        loop {
            if let Some(place) = next.take() {
                if may_end == MayEndEarly::Yes && self.one_in(BREAKS_OFF_ONE_IN) {
                    return;
                }
                let is_top = open.is_empty();
                match self.migrate_name(&place, migration).await {
                    Some(directory) if open.len() < DEPTH_MAX => {
                        let names = self.list_directory(&directory, &place.path).await;
                        let names = names.map(|names| names.into_keys().collect());
                        open.push((place, directory, names.unwrap_or_default()));
                    }
                    None if is_top => return,
                    Some(_) | None => {}
                }
            }
            let Some((place, directory, names)) = open.last_mut() else { return };
            if let Some(text) = names.pop() {
                let Ok(parent) = self.kernel.again(directory) else { return };
                let path = format!("{}/{text}", place.path);
                next = Some(NameInDirectory { parent, name: name(&text), path });
                continue;
            }
            if let Some((place, ..)) = open.pop() {
                self.end_migration(&place, migration).await;
            }
        }
    }

    /// Moves one name; the directory, if it is one that is begun or was.
    async fn migrate_name(&self, place: &NameInDirectory, migration: &Migration) -> Option<Found> {
        let Ok(Some(found)) = self.look_up(place).await else { return None };
        if !self.tag(&found).await {
            return None;
        }
        let is_directory = place.key().1.starts_with('d');
        let is_new = is_directory && self.sim.begins_migration(found.fid, migration);
        let Migration { wish, names_alone } = migration;
        let alone = if *names_alone { "names of " } else { "" };
        let text =
            format!("migrate {alone}{} to {:?} from {:?}", place.path, wish.stripes, wish.first);
        let operation = self.begins(text, &[place]);
        let begin = self.now();
        let moved = self.kernel.migrate(place.parent.node, &place.name, migration).await;
        // What was written before is flushed first, as by an `fsync`.
        let may_report = self.model(|model| model.losses.may_report(self.client, found.fid, begin));
        match moved {
            Err(Errno::EIO) if may_report || self.sim.was_damaged(found.fid) => {
                self.sim.end(operation, "data was lost");
            }
            _ => self.spreading_ended(operation, &moved),
        }
        if is_new && moved == Err(Errno::EPERM) {
            self.sim.does_not_migrate(found.fid, migration);
        }
        let goes_on = matches!(moved, Ok(()) | Err(Errno::EALREADY));
        match is_directory && goes_on {
            true => self.look_up(place).await.ok()?,
            false => None,
        }
    }

    async fn end_migration(&self, place: &NameInDirectory, migration: &Migration) {
        let operation = self.begins(format!("end of the migration of {}", place.path), &[place]);
        let ended = self.kernel.end_migration(place.parent.node, &place.name, migration).await;
        self.spreading_ended(operation, &ended);
    }

    /// `lfs setdirstripe -c` of a directory that is there.
    async fn split_or_merge(&self) {
        let Some(place) = self.directory_place().await else { return };
        let Ok(Some(found)) = self.look_up(&place).await else { return };
        if !self.tag(&found).await {
            return;
        }
        let count = 1 + self.random().below(u64::from(self.sim.options.mdts) + 1) as u32;
        let stripes = WishedStripes::Count(NonZeroU32::MIN.saturating_add(count - 1));
        let wish = DirectoryWish { stripes, ..DirectoryWish::default() };
        let operation = self.begins(format!("stripes of {}: {count}", place.path), &[&place]);
        // As in Lustre it makes the directory, if that has gone meanwhile.
        let begin = self.now();
        self.model(|model| {
            model.names.begin_set(place.key(), None, operation, self.client, begin);
        });
        let begun = self.kernel.restripe(place.parent.node, &place.name, wish).await;
        let seen = match begun {
            Ok(()) => self.look_up(&place).await.ok().flatten().map(|found| found.fid),
            Err(_) => None,
        };
        let now = self.now();
        self.model(|model| match begun {
            Ok(()) if seen == Some(found.fid) => model.names.refused(place.key(), operation),
            Ok(()) => model.names.end_or_nothing(place.key(), operation, now),
            Err(errno) if is_answer_to_spreading(errno) => {
                model.names.refused(place.key(), operation);
            }
            Err(_) => {}
        });
        self.spreading_ended(operation, &begun);
    }

    fn spreading_ended(&self, operation: u64, outcome: &Result<(), Errno>) {
        match outcome {
            Err(errno) if is_answer_to_spreading(*errno) => _ = self.sim.end(operation, errno),
            outcome => self.ended(operation, outcome),
        }
    }

    /// Notes in an inode which it is, before it gets another FID; whether that was done.
    pub(super) async fn tag(&self, found: &Found) -> bool {
        let operation = self.sim.begin(self.client, format!("tag {}", found.fid));
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let (name, value) = (TAG.as_bytes(), tag_of(found.fid));
        let done = files.setxattr(who, found.node, name, value, XattrMode::Any).await;
        self.kernel.touched(found.node);
        self.ended(operation, &done);
        done.is_ok()
    }

    /// Ends all that was broken off, and waits for what MDTs move by themselves.
    pub(super) async fn end_everything(&self) {
        for _ in 0..ROUNDS_MAX {
            self.end_all_unfinished().await;
            let is_migration = |it: &Changing| it.change == LayoutChange::Migration && it.is_master;
            if !changing(&self.sim).iter().any(is_migration) {
                break;
            }
        }
        if let Err(text) = comes_to_an_end(&self.sim).await {
            self.sim.fail(text);
        }
    }

    /// Of each directory what can be ended now: not before what was begun with other commands below it.
    async fn end_all_unfinished(&self) {
        let Ok(root) = self.kernel.root() else { return };
        let mut waiting = vec![(root, String::new())];
        while let Some((parent, above)) = waiting.pop() {
            let names = self.list_directory(&parent, &above).await.unwrap_or_default();
            for text in names.into_keys().filter(|text| text.starts_with('d')) {
                let Ok(parent) = self.kernel.again(&parent) else { return };
                let path = format!("{above}{text}");
                let place = NameInDirectory { parent, name: name(&text), path };
                let Ok(Some(found)) = self.look_up(&place).await else { continue };
                self.end_unfinished(&place, &found).await;
                if let Ok(Some(found)) = self.look_up(&place).await {
                    waiting.push((found, format!("{}/", place.path)));
                }
            }
        }
    }

    /// Ends what was broken off, of this directory: by one of the commands that may have begun it, or by the one that its MDT
    /// names. A directory in one that was being moved began on the MDT of its name, so that once that one was through only a
    /// command which says so ends it.
    async fn end_unfinished(&self, place: &NameInDirectory, directory: &Found) {
        let begun = self.sim.unfinished(directory.fid).into_iter().rev();
        for migration in begun.map(Some).chain([None]) {
            let Some(wish) = wish_of(&self.sim, &self.sim.fids_of(directory.fid)) else { return };
            let migration = migration.unwrap_or(Migration { wish, names_alone: false });
            let Ok(parent) = self.kernel.again(&place.parent) else { return };
            let (name, path) = (place.name.clone(), place.path.clone());
            let place = NameInDirectory { parent, name, path };
            self.migrate_all(place, &migration, MayEndEarly::No).await;
        }
    }
}
