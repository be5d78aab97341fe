//! Files whose size is about to be confirmed: a queue, which a few tasks work off.
//!
//! What always holds: the queue has at most [`AWAITED_MAX`] files, some 10 MiB, and at most [`ASKERS_MAX`] tasks work at
//! it, however many files wait. While files wait and not all tasks are asking, one of them sleeps until the first is due;
//! no other does, so that a file costs one wake-up at most. A file that is opened, cut or removed meanwhile stays in the
//! queue, and is left out when its turn comes.

use std::collections::VecDeque;

use parking_lot::Mutex;
use sheen_types::{Fid, HashMap, Instant};

/// Files that wait, at most: of more, the next getattr makes the next try.
const AWAITED_MAX: usize = 1 << 17;
/// Files whose OSTs are asked at a time.
const ASKERS_MAX: usize = 16;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Awaited(Mutex<State>);

#[derive(Default)]
struct State {
    /// Each file with a number: what ends the confirmation removes it.
    numbers: HashMap<Fid, u64>,
    next: u64,
    /// In the order in which they are due, those too that have ended since.
    queue: VecDeque<AwaitedFile>,
    askers: usize,
    /// One of them sleeps.
    has_sleeper: bool,
}

/// A file that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AwaitedFile {
    pub(super) fid: Fid,
    pub(super) number: u64,
    due: Instant,
}

/// What a task that works at the queue does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Confirm this file; and if `begins_another`, begin another task first: there is more to do.
    Ask { file: AwaitedFile, begins_another: bool },
    /// Sleep, and ask what to do then.
    Sleep(Instant),
    /// End: there is nothing to do, or the other tasks do it.
    End,
}

impl Awaited {
    /// Adds a file, to be asked for at `due`, unless it waits already or too many do. Whether a task is to be begun.
    pub(super) fn add(&self, fid: Fid, due: Instant) -> bool {
        let mut state = self.0.lock();
        if state.queue.len() >= AWAITED_MAX || state.numbers.contains_key(&fid) {
            return false;
        }
        state.next += 1;
        let number = state.next;
        state.numbers.insert(fid, number);
        state.queue.push_back(AwaitedFile { fid, number, due });
        state.begins_another()
    }

    /// What a task does next. `has_slept` says that its last step was to sleep.
    pub(super) fn step(&self, now: Instant, has_slept: bool) -> Step {
        let mut state = self.0.lock();
        state.has_sleeper &= !has_slept;
        state.drop_ended();
        match state.queue.front().copied() {
            Some(file) if file.due <= now => {
                state.queue.pop_front();
                Step::Ask { file, begins_another: state.begins_another() }
            }
            Some(file) if !state.has_sleeper => {
                state.has_sleeper = true;
                Step::Sleep(file.due)
            }
            _ => {
                state.askers -= 1;
                Step::End
            }
        }
    }

    pub(super) fn is_awaited(&self, fid: Fid, number: u64) -> bool {
        self.0.lock().is_awaited(fid, number)
    }

    /// What the OSTs said, or are about to say, of the file does not count.
    pub(super) fn end(&self, fid: Fid) {
        self.0.lock().numbers.remove(&fid);
    }

    /// As [`Awaited::end`], of that confirmation alone.
    pub(super) fn end_own(&self, fid: Fid, number: u64) {
        let mut state = self.0.lock();
        if state.is_awaited(fid, number) {
            state.numbers.remove(&fid);
        }
    }
}

impl State {
    fn is_awaited(&self, fid: Fid, number: u64) -> bool {
        self.numbers.get(&fid) == Some(&number)
    }

    /// Files at the front that have ended.
    fn drop_ended(&mut self) {
        while let Some(AwaitedFile { fid, number, .. }) = self.queue.front().copied()
            && !self.is_awaited(fid, number)
        {
            self.queue.pop_front();
        }
    }

    /// Whether files wait of which no task takes care; then there is one more.
    fn begins_another(&mut self) -> bool {
        let begins = !self.queue.is_empty() && !self.has_sleeper && self.askers < ASKERS_MAX;
        self.askers += usize::from(begins);
        begins
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const REST: Duration = Duration::from_secs(5);

    fn fid(number: usize) -> Fid {
        Fid::new(0x2_0000_0401, number as u32)
    }

    /// What the tasks have come to: files that they are asking for, and how many sleep.
    #[derive(Default)]
    struct Tasks {
        asking: Vec<AwaitedFile>,
        sleeping: usize,
    }

    impl Tasks {
        /// A task goes on.
        fn step(&mut self, awaited: &Awaited, now: Instant, has_slept: bool) {
            match awaited.step(now, has_slept) {
                Step::Ask { file, begins_another } => {
                    self.asking.push(file);
                    if begins_another {
                        self.step(awaited, now, false);
                    }
                }
                Step::Sleep(_) => self.sleeping += 1,
                Step::End => {}
            }
        }

        fn wake(&mut self, awaited: &Awaited, now: Instant) {
            for _ in 0..std::mem::take(&mut self.sleeping) {
                self.step(awaited, now, true);
            }
        }

        /// The oldest question is answered.
        fn finish(&mut self, awaited: &Awaited, now: Instant) -> Option<Fid> {
            let AwaitedFile { fid, number, .. } = *self.asking.first()?;
            self.asking.remove(0);
            awaited.end_own(fid, number);
            self.step(awaited, now, false);
            Some(fid)
        }
    }

    #[test]
    fn a_hundred_thousand_files_are_asked_for_in_order_by_few_tasks() {
        const FILES: usize = 100_000;
        let (awaited, mut tasks, begin) = (Awaited::default(), Tasks::default(), Instant(0));
        for number in 0..FILES {
            if awaited.add(fid(number), begin + REST) {
                tasks.step(&awaited, begin, false);
            }
        }
        assert_eq!((tasks.asking.len(), tasks.sleeping), (0, 1), "one waits for all");
        let due = begin + REST;
        tasks.wake(&awaited, due);
        let mut asked = Vec::new();
        while let Some(fid) = tasks.finish(&awaited, due) {
            assert!(tasks.asking.len() <= ASKERS_MAX && tasks.sleeping == 0);
            asked.push(fid);
        }
        assert!(asked == (0..FILES).map(fid).collect::<Vec<_>>());
        assert!(awaited.add(fid(1), due), "another task begins");
    }

    #[test]
    fn files_behind_those_whose_osts_do_not_answer_find_a_task_as_long_as_there_is_one() {
        let (awaited, mut tasks, now) = (Awaited::default(), Tasks::default(), Instant(0));
        for number in 0..ASKERS_MAX + 3 {
            if awaited.add(fid(number), now) {
                tasks.step(&awaited, now, false);
            }
        }
        assert_eq!((tasks.asking.len(), tasks.sleeping), (ASKERS_MAX, 0));
        assert!(!awaited.add(fid(99), now + REST), "all ask");
        tasks.finish(&awaited, now);
        assert_eq!(tasks.asking.last().map(|it| it.fid), Some(fid(ASKERS_MAX)));
    }

    #[test]
    fn a_file_that_ended_is_left_out_and_may_wait_again() {
        let (awaited, now) = (Awaited::default(), Instant(0));
        assert!(awaited.add(fid(1), now + REST));
        assert!(!awaited.add(fid(1), now + REST), "it waits");
        assert_eq!(awaited.step(now, false), Step::Sleep(now + REST));
        awaited.end(fid(1));
        let later = now + REST / 2;
        assert!(!awaited.add(fid(1), later + REST), "a task sleeps");
        assert_eq!(awaited.step(now + REST, true), Step::Sleep(later + REST));
        let Step::Ask { file, begins_another } = awaited.step(later + REST, true) else {
            panic!("it is due")
        };
        assert!(file.fid == fid(1) && !begins_another);
        assert!(awaited.is_awaited(fid(1), file.number));
        awaited.end_own(fid(1), file.number - 1);
        assert!(awaited.is_awaited(fid(1), file.number), "another confirmation");
        awaited.end_own(fid(1), file.number);
        assert_eq!(awaited.step(later + REST, false), Step::End);
    }

    #[test]
    fn no_more_wait_than_there_is_memory_for() {
        let awaited = Awaited::default();
        for number in 0..AWAITED_MAX + 5 {
            awaited.add(fid(number), Instant(0));
        }
        assert_eq!(awaited.0.lock().queue.len(), AWAITED_MAX);
        assert!(!awaited.is_awaited(fid(AWAITED_MAX), AWAITED_MAX as u64 + 1));
    }
}
