//! Bytes: writing, reading, appending, truncating, and the locks on files.

use std::time::Duration;

use sheen_client::posix::{
    Fallocate, FileLock, FileLockMode, LockOwner, OpenFlags, Opened, SetAttributes,
};

use sheen_types::{Errno, Extent, Instant, PAGE_BYTES as PAGE};

use super::{NameInDirectory, Process, is_answer};
use crate::cluster::Found;
use crate::model::{CELL, Cells, Mark};

/// Cells of a file: across the border of two stripes.
const FILE_CELLS: u64 = 768;
/// Cells of one write, mostly.
const WRITE_CELLS: u64 = 40;
/// Longest that a lock is held.
const HOLD_MAX: Duration = Duration::from_millis(200);

/// The kernel reads whole pages.
fn pages_of(offset: u64, bytes: u64) -> Extent {
    Extent {
        start: offset / PAGE * PAGE,
        end: (offset + bytes).next_multiple_of(PAGE).saturating_sub(1),
    }
}

impl Process {
    /// Some cells of a file: often those that other clients use too.
    fn cells(&self) -> std::ops::Range<u64> {
        let count = 1 + self.random().below(WRITE_CELLS);
        let first = match self.random().below(4) {
            0 => 0,
            1 => 256 - self.random().below(count + 1).min(256),
            _ => self.random().below(FILE_CELLS - count),
        };
        first..first + count
    }

    /// `O_DIRECT` for some.
    fn direct(&self) -> u32 {
        if self.one_in(6) { OpenFlags::DIRECT } else { 0 }
    }

    /// Opens a file that is there.
    pub(super) async fn open_at(
        &self,
        place: &NameInDirectory,
        flags: u32,
    ) -> Option<(Found, Opened)> {
        let found = self.look_up(place).await.ok()??;
        let operation = self.sim.begin(self.client, format!("open {}", place.path));
        let opened = self.kernel.open(found.node, flags).await;
        self.ended(operation, &opened);
        Some((found, opened.ok()?))
    }

    pub(super) async fn close(&self, file: &Found, opened: Opened) {
        let operation = self.sim.begin(self.client, format!("close {}", file.fid));
        let owner = LockOwner(self.number);
        let flushed = self.kernel.files.flush(opened.handle, owner).await;
        let closed = self.kernel.files.release(opened.handle, None).await;
        let done = flushed.and(closed);
        self.judge_promise(operation, &done);
        self.ended_at(operation, &done, self.sim.was_damaged(file.fid));
    }

    /// `fsync`: what we wrote before is durable, with the name it was opened by; `own` operations wrote
    /// through this handle, which was opened after `since`.
    async fn sync(
        &self,
        place: &NameInDirectory,
        (file, opened): (&Found, Opened),
        since: Instant,
        own: &[u64],
    ) {
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("fsync {}", file.fid));
        let trusted = self.is_trusted();
        let synced = self.kernel.files.fsync(opened.handle, false).await;
        if trusted && synced.is_ok() && self.is_trusted() {
            let time = (begin, self.now());
            self.model(|model| {
                model.files.durable(file.fid, self.client, time, own);
                model.logs.durable(file.fid, self.client, begin, own);
                model.names.durable(place.key(), self.client, time);
                model.marks.durable(file.fid, self.client, time);
            });
        }
        self.judge_promise(operation, &synced);
        let (by, end) = (self.client, self.now());
        let may_report = self.model(|model| {
            let may_report = model.losses.may_report(by, file.fid, since);
            model.losses.synced((by, file.fid), (begin, end), synced.is_ok());
            may_report
        });
        match synced {
            Err(Errno::EIO) if may_report => _ = self.sim.end(operation, "data was lost"),
            synced => self.ended_at(operation, &synced, self.sim.was_damaged(file.fid)),
        }
    }

    /// Writes some cells of a file that is there or made for it.
    pub(super) async fn write(&self) {
        let Some(place) = self.file_place().await else { return };
        let (direct, since) = (self.direct(), self.now());
        let opened = match self.one_in(3) {
            true => self.create_at(&place, direct).await,
            false => self.open_at(&place, 2 | direct).await,
        };
        let Some((file, opened)) = opened else { return };
        let mut own = Vec::new();
        for _ in 0..=self.random().below(3) {
            own.push(self.write_cells(&file, opened).await);
        }
        if self.one_in(3) {
            self.sync(&place, (&file, opened), since, &own).await;
        }
        if self.one_in(3) {
            self.read_cells(&file, opened).await;
        }
        self.close(&file, opened).await;
    }

    async fn write_cells(&self, file: &Found, opened: Opened) -> u64 {
        let (cells, begin) = (self.cells(), self.now());
        let text = format!("write cells {cells:?} of {}", file.fid);
        let operation = self.sim.begin(self.client, text);
        self.model(|model| {
            model.files.begin_write(file.fid, cells.clone(), operation, self.client, begin);
            // From now on a part of it may be lost, and behind its end all of it.
            model.losses.wrote(self.client, file.fid, begin);
        });
        let bytes = Cells::fill(operation, cells.start, cells.end - cells.start);
        let offset = cells.start * CELL as u64;
        let written = self.kernel.write(file.node, opened, offset, bytes).await;
        self.model(|model| model.losses.wrote(self.client, file.fid, self.now()));
        if written.is_ok() && self.is_trusted() {
            let now = self.now();
            self.model(|model| model.files.end_write(file.fid, cells, operation, now));
        }
        self.ended_at(operation, &written, self.sim.was_damaged(file.fid));
        operation
    }

    /// Reads some cells of a file.
    pub(super) async fn read(&self) {
        let Some(place) = self.file_place().await else { return };
        let Some((file, opened)) = self.open_at(&place, self.direct()).await else { return };
        for _ in 0..=self.random().below(3) {
            self.read_cells(&file, opened).await;
        }
        self.close(&file, opened).await;
    }

    async fn read_cells(&self, file: &Found, opened: Opened) {
        let cells = self.cells();
        self.read_range(file, opened, cells).await;
    }

    async fn read_range(&self, file: &Found, opened: Opened, cells: std::ops::Range<u64>) {
        let begin = self.now();
        let text = format!("read cells {cells:?} of {}", file.fid);
        let operation = self.sim.begin(self.client, text);
        let (offset, wanted) = (cells.start * CELL as u64, cells.end - cells.start);
        let read = self.kernel.read(file.node, opened, offset, wanted * CELL as u64).await;
        if let Ok(bytes) = &read
            && self.is_trusted()
        {
            let end = self.now();
            let judged = self
                .model(|model| model.files.read(file.fid, cells.start, wanted, bytes, begin, end));
            self.sim.judge(self.client, operation, judged);
        }
        let extent = pages_of(offset, wanted * CELL as u64);
        let damaged = self.sim.is_damaged(file.fid, extent, begin);
        self.ended_at(operation, &read, damaged || self.sim.is_size_lost(file.fid, begin));
    }

    /// Appends records to a log.
    pub(super) async fn append(&self) {
        let Some(place) = self.log_place() else { return };
        let since = self.now();
        let Some((file, opened)) = self.create_at(&place, OpenFlags::APPEND).await else {
            return;
        };
        let mut own = Vec::new();
        for _ in 0..=self.random().below(3) {
            let begin = self.now();
            let operation = self.sim.begin(self.client, format!("append to {}", place.path));
            own.push(operation);
            self.model(|model| {
                model.logs.begin(file.fid, operation, self.client, begin);
                model.losses.wrote(self.client, file.fid, begin);
            });
            let bytes = Cells::fill(operation, 0, 1);
            let written = self.kernel.write(file.node, opened, 0, bytes).await;
            self.model(|model| model.losses.wrote(self.client, file.fid, self.now()));
            if written.is_ok() && self.is_trusted() {
                let now = self.now();
                self.model(|model| model.logs.end(file.fid, operation, now));
            }
            self.ended_at(operation, &written, self.sim.was_damaged(file.fid));
        }
        if self.one_in(3) {
            self.sync(&place, (&file, opened), since, &own).await;
        }
        self.close(&file, opened).await;
    }

    /// Reads a whole log.
    pub(super) async fn read_log(&self) {
        if let Some(place) = self.log_place() {
            self.read_log_at(&place).await;
        }
    }

    async fn read_log_at(&self, place: &NameInDirectory) {
        let Some((file, opened)) = self.open_at(place, 0).await else { return };
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("read all of {}", place.path));
        let read = self.kernel.read(file.node, opened, 0, 1 << 30).await;
        if let Ok(bytes) = &read
            && self.is_trusted()
        {
            let judged = self.model(|model| model.logs.read(file.fid, bytes, begin));
            self.sim.judge(self.client, operation, judged);
        }
        self.ended_at(operation, &read, self.sim.is_damaged(file.fid, Extent::ALL, begin));
        self.close(&file, opened).await;
    }

    /// Sets a size, by name, by handle or by opening.
    pub(super) async fn truncate(&self) {
        let Some(place) = self.file_place().await else { return };
        let Ok(Some(file)) = self.look_up(&place).await else { return };
        let way = self.random().below(3);
        let cells = if way == 0 { 0 } else { self.random().below(FILE_CELLS) };
        let opened = match way {
            1 => self.kernel.open(file.node, 2).await.ok(),
            _ => None,
        };
        let begin = self.now();
        let text = format!("truncate {} to {cells} cells, way {way}", file.fid);
        let operation = self.sim.begin(self.client, text);
        self.model(|model| {
            model.files.begin_truncate(file.fid, cells, operation, self.client, begin);
        });
        let mut to_close = opened;
        let done = if way == 0 {
            let opened = self.kernel.open(file.node, 2 | OpenFlags::TRUNCATE).await;
            to_close = opened.ok();
            opened.map(|_| ())
        } else {
            let changes =
                SetAttributes { size: Some(cells * CELL as u64), ..SetAttributes::default() };
            self.kernel.setattr(file.node, opened.map(|opened| opened.handle), changes).await
        };
        let (now, trusted) = (self.now(), self.is_trusted());
        self.model(|model| match &done {
            Ok(()) if trusted => model.files.end_truncate(file.fid, cells, operation, now),
            Err(errno) if is_answer(*errno) => model.files.refused(file.fid, operation),
            _ => {}
        });
        self.ended_at(operation, &done, self.sim.was_damaged(file.fid));
        if let Some(opened) = to_close {
            self.close(&file, opened).await;
        }
    }

    /// Makes a hole.
    pub(super) async fn punch(&self) {
        let Some(place) = self.file_place().await else { return };
        let Some((file, opened)) = self.open_at(&place, 2).await else { return };
        let (cells, begin) = (self.cells(), self.now());
        let text = format!("punch cells {cells:?} of {}", file.fid);
        let operation = self.sim.begin(self.client, text);
        self.model(|model| {
            model.files.begin_punch(file.fid, cells.clone(), operation, self.client, begin);
        });
        let (offset, length) = (cells.start * CELL as u64, (cells.end - cells.start) * CELL as u64);
        let what = Fallocate::PunchHole;
        let punched = self.kernel.punch(file.node, opened, what, offset, length).await;
        if punched.is_ok() && self.is_trusted() {
            let now = self.now();
            self.model(|model| model.files.end_write(file.fid, cells, operation, now));
        }
        self.ended_at(operation, &punched, self.sim.was_damaged(file.fid));
        self.close(&file, opened).await;
    }

    /// Asks for size and times.
    pub(super) async fn stat(&self) {
        let Some(place) = self.file_place().await else { return };
        let Ok(Some(file)) = self.look_up(&place).await else { return };
        self.stat_file(&file).await;
    }

    async fn stat_file(&self, file: &Found) {
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("stat {}", file.fid));
        let stat = self.kernel.getattr(file.node).await;
        if let Ok(attributes) = &stat
            && self.is_trusted()
        {
            let (size, end) = (attributes.size, self.now());
            let mode = u64::from(attributes.mode & 0o7777);
            let mut judged = self.model(|model| {
                model.files.saw_size(file.fid, size, begin, end)?;
                model.marks.saw((file.fid, Mark::Mode), mode, begin, end)
            });
            // A client that has not opened a file may see its objects being removed with its last name.
            if judged.is_err() && self.is_nameless(file).await {
                judged = Ok(());
            }
            self.sim.judge(self.client, operation, judged);
        }
        self.ended_at(operation, &stat, self.sim.is_size_lost(file.fid, begin));
    }

    /// Whether no name is left of a file.
    async fn is_nameless(&self, file: &Found) -> bool {
        match self.kernel.files.getattr(self.kernel.who(), file.node).await {
            Ok(stat) => stat.attributes.nlink == 0,
            Err(errno) => matches!(errno, Errno::ENOENT | Errno::ESTALE),
        }
    }

    /// Takes a `flock(2)` lock, holds it a while, releases it.
    pub(super) async fn lock(&self) {
        let Some(place) = self.file_place().await else { return };
        let Some((file, opened)) = self.open_at(&place, 0).await else { return };
        let (exclusive, wait) = (self.one_in(2), !self.one_in(3));
        let text = format!("flock {}, exclusive {exclusive}, wait {wait}", file.fid);
        let operation = self.sim.begin(self.client, text);
        let owner = LockOwner(self.number);
        let lock = |mode| FileLock {
            start: 0,
            end: i64::MAX as u64,
            mode,
            pid: self.number as u32,
            uid: 0,
            is_flock: true,
        };
        let mode = if exclusive { FileLockMode::Write } else { FileLockMode::Read };
        let files = &self.kernel.files;
        let granted = files.set_lock(opened.handle, owner, lock(mode), wait).await;
        if granted.is_ok() && self.is_trusted() {
            let judged = self
                .model(|model| model.locks.granted(file.fid, self.client, self.number, exclusive));
            self.sim.judge(self.client, operation, judged);
        }
        self.ended(operation, &granted);
        if granted.is_ok() {
            let hold = self.random().below(HOLD_MAX.as_micros() as u64);
            self.sim.sleep(Duration::from_micros(hold)).await;
            self.unlock(&file, opened, lock(FileLockMode::Unlock)).await;
        }
        self.close(&file, opened).await;
    }

    async fn unlock(&self, file: &Found, opened: Opened, lock: FileLock) {
        let operation = self.sim.begin(self.client, format!("unlock {}", file.fid));
        self.model(|model| model.locks.released(file.fid, self.client, self.number));
        let owner = LockOwner(self.number);
        let done = self.kernel.files.set_lock(opened.handle, owner, lock, true).await;
        self.ended(operation, &done);
    }

    /// Every directory, every name, every byte, by a client that was not there before.
    pub(super) async fn look_at_everything(&self) {
        let Ok(root) = self.kernel.root() else { return };
        let mut waiting = vec![(root, String::new())];
        while let Some((directory, path)) = waiting.pop() {
            let Some(names) = self.list_directory(&directory, &path).await else {
                self.sim.fail(format_args!("/{path} cannot be listed in the end"));
                return;
            };
            for (text, fid) in names {
                let Ok(parent) = self.kernel.again(&directory) else { return };
                let place = NameInDirectory {
                    parent,
                    name: super::name(&text),
                    path: format!("{path}{text}"),
                };
                match self.look_up(&place).await {
                    Ok(Some(found)) if found.fid == fid => {
                        if text.starts_with('d') {
                            waiting.push((found, format!("{path}{text}/")));
                        } else if text.starts_with('l') && !text.starts_with("log") {
                            self.read_symlink(&found).await;
                        } else {
                            self.look_at_file(&place, &found).await;
                        }
                    }
                    _ => self.sim.fail(format_args!("{} was listed and is not there", place.path)),
                }
            }
        }
    }

    async fn look_at_file(&self, place: &NameInDirectory, found: &Found) {
        if place.path.starts_with("log") {
            return self.read_log_at(place).await;
        }
        self.stat_file(found).await;
        self.read_xattr(found).await;
        let Some((file, opened)) = self.open_at(place, 0).await else {
            if self.sim.is_size_lost(found.fid, self.now()) {
                return;
            }
            return self.sim.fail(format_args!("{} cannot be opened in the end", place.path));
        };
        self.read_range(&file, opened, 0..FILE_CELLS).await;
        self.close(&file, opened).await;
    }
}
