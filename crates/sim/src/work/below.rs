//! A program that works below directories that are spread anew: in a directory of its own, and in one below that, by what it
//! has found once, as by a working directory and an open handle.
//!
//! No other process removes or renames what is in them, so that no call there may be answered that something is gone, wherever
//! the directories above, or these themselves, move to meanwhile.

use std::time::Duration;

use sheen_client::posix::{DirCookie, NewNode, OpenFlags, Opened};
use sheen_types::Errno;

use super::{DIRECTORIES, NameInDirectory, Process, name};
use crate::cluster::Found;

/// Names of these directories have numbers from here on: no other work makes such ones.
const FIRST_NUMBER: u64 = 10;
/// Steps in a directory before it is left, at most.
const STEPS_MAX: u64 = 40;
/// Longest pause between two of them, and before the next directory.
const PAUSE_MAX: Duration = Duration::from_millis(1500);
const REST_MAX: Duration = Duration::from_secs(8);
/// Files of its own in each directory.
const OWN_FILES: u64 = 2;
/// Names of one listing.
const LIST_STEP: usize = 20;

/// A directory that this process made and works in.
struct Home {
    place: NameInDirectory,
    found: Found,
    /// The same, opened at the beginning.
    opened: Opened,
}

impl Process {
    /// Works below directories until no operation may begin any more.
    pub(super) async fn live_below(&self) {
        while self.sim.is_open() {
            let rest = self.random().below(REST_MAX.as_millis() as u64 + 1);
            self.sim.sleep(Duration::from_millis(rest)).await;
            let number = self.random().below(DIRECTORIES);
            let Ok(root) = self.kernel.root() else { return };
            let text = format!("d{number}");
            let upper = NameInDirectory { parent: root, name: name(&text), path: text };
            let Ok(Some(upper_found)) = self.look_up(&upper).await else { continue };
            let changes_lost = self.changes_lost();
            let own = format!("d{}", FIRST_NUMBER + self.number);
            let Some(home) = self.settle(&upper_found, &upper.path, &own).await else { continue };
            if let Some(lower) = self.settle(&home.found, &home.place.path, &own).await {
                for _ in 0..self.random().below(STEPS_MAX) {
                    if !self.sim.is_open() {
                        break;
                    }
                    let at = if self.one_in(3) { &home } else { &lower };
                    self.step_below(at, changes_lost).await;
                    let pause = self.random().below(PAUSE_MAX.as_micros() as u64);
                    self.sim.sleep(Duration::from_micros(pause)).await;
                }
                self.leave(lower, changes_lost).await;
            }
            self.leave(home, changes_lost).await;
        }
    }

    /// How often servers may have lost changes that were answered.
    fn changes_lost(&self) -> u64 {
        self.model(|model| model.changes_lost)
    }

    /// Makes a directory of its own in `parent`.
    async fn settle(&self, parent: &Found, above: &str, own: &str) -> Option<Home> {
        let place = self.in_directory(parent, above, own)?;
        self.make_at(&place, "mkdir", NewNode::Directory).await?;
        let found = self.look_up(&place).await.ok()??;
        self.tag(&found).await;
        let operation = self.sim.begin(self.client, format!("opendir {}", place.path));
        let opened = self.kernel.open(found.node, OpenFlags::DIRECTORY).await;
        self.ended(operation, &opened);
        Some(Home { place, found, opened: opened.ok()? })
    }

    fn in_directory(&self, parent: &Found, above: &str, text: &str) -> Option<NameInDirectory> {
        let parent = self.kernel.again(parent).ok()?;
        Some(NameInDirectory { parent, name: name(text), path: format!("{above}/{text}") })
    }

    async fn step_below(&self, home: &Home, changes_lost: u64) {
        let path = &home.place.path;
        let own = format!("w{}", self.random().below(OWN_FILES));
        let Some(place) = self.in_directory(&home.found, path, &own) else { return };
        self.refused.lock().take();
        match self.random().below(6) {
            0 => self.stat_home(home).await,
            1 => self.list_home(home).await,
            2 => drop(self.list_directory(&home.found, path).await),
            3 => drop(self.look_up(&place).await),
            4 => {
                if let Some((found, opened)) = self.create_at(&place, 0).await {
                    self.close(&found, opened).await;
                }
            }
            _ => {
                if let Ok(Some(_)) = self.look_up(&place).await {
                    self.unlink_at(&place).await;
                }
            }
        }
        self.nothing_is_gone(path, changes_lost);
    }

    /// Fails if the last operations were answered that what no other process removes is gone.
    fn nothing_is_gone(&self, path: &str, changes_lost: u64) {
        let Some((operation, errno)) = self.refused.lock().take() else { return };
        let is_gone = matches!(errno, Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR);
        if is_gone && self.is_trusted() && self.changes_lost() == changes_lost {
            self.sim.fail(format_args!("operation {operation}: {errno}, and {path} is there"));
        }
    }

    async fn stat_home(&self, home: &Home) {
        let operation = self.sim.begin(self.client, format!("fstat {}", home.place.path));
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let stat = files.getattr(who, home.found.node).await;
        self.ended(operation, &stat);
    }

    /// By the handle that was opened first.
    async fn list_home(&self, home: &Home) {
        let operation = self.sim.begin(self.client, format!("readdir {}", home.place.path));
        let files = &self.kernel.files;
        let listed = files.readdir(home.opened.handle, DirCookie::default(), LIST_STEP).await;
        self.ended(operation, &listed);
    }

    /// Removes it with all that is its own in it.
    async fn leave(&self, home: Home, changes_lost: u64) {
        let Home { place, found, opened } = home;
        self.refused.lock().take();
        for number in 0..OWN_FILES {
            let own = format!("w{number}");
            let Some(file) = self.in_directory(&found, &place.path, &own) else { return };
            if let Ok(Some(_)) = self.look_up(&file).await {
                self.unlink_at(&file).await;
            }
        }
        let operation = self.sim.begin(self.client, format!("closedir {}", place.path));
        let closed = self.kernel.files.release(opened.handle, None).await;
        self.ended(operation, &closed);
        self.remove_directory_at(&place).await;
        self.nothing_is_gone(&place.path, changes_lost);
    }
}
