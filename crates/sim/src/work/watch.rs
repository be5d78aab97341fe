//! Looking at names while other processes change them: a change over several MDTs is seen on none before it is on all.
//!
//! What is seen goes to the model as that of any other process does. Where a change is under way this looks again and again, so
//! that it meets the moments between the parts, however short; where it takes long, as MDTs do not reach each other, more and
//! more rarely.

use std::time::Duration;

use super::{NameInDirectory, Process, name};

/// How often the names of one change are looked at, at most.
const ROUNDS: u32 = 60;
/// After so many rounds pauses become twice as long.
const ROUNDS_ALIKE: u32 = 5;
/// The longest pause of the first rounds: a message between two nodes takes as long.
const PAUSE_MAX: Duration = Duration::from_micros(100);
/// One change in so many is not looked at.
const LEFT_ALONE_ONE_IN: u64 = 3;

impl Process {
    /// Looks at changes of names until no operation may begin any more.
    pub(super) async fn watch(&self) {
        let mut last = 0;
        while let Some((change, paths)) = self.sim.next_change(last).await {
            last = change;
            if !self.one_in(LEFT_ALONE_ONE_IN) {
                self.watch_change(change, &paths).await;
            }
        }
    }

    async fn watch_change(&self, change: u64, paths: &[String]) {
        let mut places = Vec::new();
        for path in paths {
            places.extend(self.place(path).await);
        }
        if places.is_empty() {
            return;
        }
        for round in 0..ROUNDS {
            let is_last = !self.sim.is_running(change);
            // Any of them first: which MDT has applied its part earlier is not known.
            let first = self.random().below(places.len() as u64) as usize;
            for at in 0..places.len() {
                let place = &places[(first + at) % places.len()];
                match self.one_in(8) {
                    true => {
                        let above = place.path.rsplit_once('/').map_or("", |(above, _)| above);
                        self.list_directory(&place.parent, above).await;
                    }
                    false => drop(self.look_up(place).await),
                }
            }
            if is_last || !self.sim.is_open() {
                return;
            }
            let most = PAUSE_MAX * (1 << (round / ROUNDS_ALIKE));
            let pause = self.random().below(most.as_micros() as u64 + 1);
            self.sim.sleep(Duration::from_micros(pause)).await;
        }
    }

    /// A name by its path, if its directory is there.
    async fn place(&self, path: &str) -> Option<NameInDirectory> {
        let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
        let (mut parent, mut walked) = (self.kernel.root().ok()?, String::new());
        for text in above.split('/').filter(|text| !text.is_empty()) {
            walked = format!("{walked}{text}");
            let place = NameInDirectory { parent, name: name(text), path: walked.clone() };
            parent = self.look_up(&place).await.ok()??;
            walked.push('/');
        }
        Some(NameInDirectory { parent, name: name(last), path: path.to_owned() })
    }
}
