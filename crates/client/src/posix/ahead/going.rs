//! How runs go ahead, and how lookups and listings use what they asked for.

use std::sync::Arc;
use std::time::Duration;

use sheen_types::{Errno, Name};

use super::names_ahead::{ListingAhead, NamesAhead};
use super::run::Run;
use super::table::Shown;
use super::{IfFailed, LOOKUPS_AT_ONCE, SIZES_PATIENCE};
use crate::cache::{Inode, Pin, Position};
use crate::meta::BatchedName;
use crate::posix::names::KnownName;
use crate::posix::{Credentials, FileHandle, FileSystem, Mounted};

/// How long a lookup waits for what was asked ahead of it; then it asks itself.
const NAME_PATIENCE: Duration = Duration::from_secs(30);

impl FileSystem {
    /// The inode of a name that a program looks up: as [`Mounted::find`], by what was asked ahead if it was.
    pub(in crate::posix) async fn find_ahead(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: &Name,
    ) -> Result<Option<Pin>, Errno> {
        let asked = self.0.take_ahead(parent, name).await;
        let known = self.0.known_name(parent, name)?;
        let is_new = asked.is_none() && matches!(known, KnownName::Unknown(..));
        let found = self.0.find_known(who, parent, name, known).await?;
        if let (true, Some(child)) = (is_new, &found) {
            self.note_lookup(who, parent, name, child);
        }
        Ok(found)
    }

    /// `who` has looked a name up that is there, and that neither was asked for ahead nor known.
    fn note_lookup(&self, who: &Credentials, parent: &Arc<Inode>, name: &Name, child: &Inode) {
        let settings = &self.0.settings.ahead;
        let counts = name.as_bytes().last().is_some_and(u8::is_ascii_digit);
        if settings.max.get() == 0 || !counts && self.0.ahead.is_idle() {
            return;
        }
        let (place, file_type) = ((parent.node(), name), child.file_type());
        let now = self.0.meta.world.clock.now();
        match self.0.ahead.looked_up(now, who.pid, place, file_type, settings.thresholds()) {
            Shown::Nothing => {}
            Shown::Lister(handle) => {
                self.0.ahead.trust(who.pid);
                let listing = ListingAhead {
                    position: Position::default(),
                    last: None,
                    skips: Some(name.clone()),
                    with_hidden: name.as_bytes().starts_with(b"."),
                };
                self.start_run(who, parent, Some(handle), NamesAhead::Listing(listing));
            }
            Shown::Numbers(last) => self.start_run(who, parent, None, NamesAhead::Numbers(last)),
        }
    }

    /// A listing of a program that looks at what it lists has come to `position`: the names there come next.
    pub(in crate::posix) fn note_listed(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        handle: FileHandle,
        position: Position,
    ) {
        if let Some(run) = self.0.ahead.run_of(handle) {
            return run.listed_to(position);
        }
        if position != Position::END {
            let listing = ListingAhead { position, last: None, skips: None, with_hidden: true };
            self.start_run(who, directory, Some(handle), NamesAhead::Listing(listing));
        }
    }

    /// Begins a run.
    fn start_run(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        handle: Option<FileHandle>,
        names: NamesAhead,
    ) {
        let settings = &self.0.settings.ahead;
        let Some(directory) = self.0.inodes.pin_node(directory.node()) else { return };
        let window = settings.min.get().min(settings.max.get());
        let run = Run::new(directory.node(), who.pid, handle, window);
        if !self.0.ahead.begin(&run, settings.running_max.get()) {
            return;
        }
        settings.begun(matches!(names, NamesAhead::Listing(_)));
        let (files, who) = (self.clone(), who.clone());
        let going = async move {
            files.keep_ahead(&run, &Arc::new(directory), &who, names).await;
            files.0.settings.ahead.ended(run.end());
            files.0.ahead.remove(&run);
        };
        self.0.meta.world.tasks.spawn("stat ahead", Box::pin(going));
    }

    /// Asks for further names as those asked for are used, until the run is over.
    async fn keep_ahead(
        &self,
        run: &Arc<Run>,
        directory: &Arc<Pin>,
        who: &Credentials,
        mut names: NamesAhead,
    ) {
        let (settings, clock) = (&self.0.settings.ahead, &*self.0.meta.world.clock);
        loop {
            let batch = self.0.batch_max(directory).clamp(1, settings.max.get().max(1));
            let Some(room) = run.room(batch, clock, settings.patience()).await else {
                match run.is_exhausted() {
                    true => break,
                    false => return,
                }
            };
            // The next batch is to be a whole one, too.
            let room = if room > batch { room - room % batch } else { room };
            let next = names.next(&self.0.meta, who, directory, run, room).await;
            let Ok(next) = next else { break };
            if next.is_empty() {
                break;
            }
            for some in next.chunks(if batch > 1 { batch } else { LOOKUPS_AT_ONCE }) {
                self.ask_ahead(run, directory, who, some.to_vec());
            }
        }
        // There are no more to ask for.
        run.exhaust();
        run.all_used(clock, settings.patience()).await;
    }

    /// Asks for these names, in a task of its own.
    fn ask_ahead(
        &self,
        run: &Arc<Run>,
        directory: &Arc<Pin>,
        who: &Credentials,
        names: Vec<BatchedName>,
    ) {
        let flight = run.note_asked(names.iter().map(|name| name.name.clone()));
        let (files, run, who) = (self.clone(), Arc::clone(run), who.clone());
        let directory = Arc::clone(directory);
        let asking = async move {
            let is_guess = run.handle.is_none();
            let found = files.0.find_all(&who, &directory, names, IfFailed::LeaveOpen).await;
            let found: Vec<_> = found.into_iter().map(|found| found.ok().flatten()).collect();
            if is_guess && found.iter().all(Option::is_none) {
                run.exhaust();
            }
            let until = files.0.meta.world.clock.now() + SIZES_PATIENCE;
            files.0.ask_sizes(&who, found.iter().flatten(), until).await;
            flight.finish(found);
        };
        self.0.meta.world.tasks.spawn("stat ahead batch", Box::pin(asking));
    }
}

impl Mounted {
    /// Waits for what was asked ahead of a name: `None` if nothing was. While the inode is pinned, the cache knows the name
    /// as long as its lock is held.
    pub(in crate::posix) async fn take_ahead(
        &self,
        directory: &Inode,
        name: &Name,
    ) -> Option<Option<Pin>> {
        let (run, asked) = self.ahead.take(directory.node(), name)?;
        let clock = &*self.meta.world.clock;
        let found = asked.wait(clock, clock.now() + NAME_PATIENCE).await;
        run.note_used(clock.now(), found.is_some(), self.settings.ahead.max.get());
        Some(found)
    }

    /// A handle is closed: what was asked ahead of its listing is dropped.
    pub(in crate::posix) fn end_ahead(&self, handle: FileHandle) {
        if let Some(run) = self.ahead.closed(handle) {
            run.stop();
        }
    }

    /// Ends all runs.
    pub(in crate::posix) fn end_all_ahead(&self) {
        self.ahead.runs().iter().for_each(|run| run.stop());
    }
}
