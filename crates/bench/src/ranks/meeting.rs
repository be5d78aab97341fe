//! Where ranks meet: a barrier that carries words.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use super::Ended;

/// A rank's way to the other ranks.
pub(super) trait Link {
    /// Every rank's words, once all have given theirs.
    fn exchange(&mut self, own: &[u64]) -> Result<Vec<Vec<u64>>, Ended>;
}

/// The meeting of one team.
pub(super) struct Meeting<'a> {
    state: Mutex<MeetingState>,
    changed: Condvar,
    size: usize,
    stop: &'a AtomicBool,
}

#[derive(Default)]
struct MeetingState {
    round: u64,
    arrived: usize,
    words: Vec<Vec<u64>>,
    last: Arc<Vec<Vec<u64>>>,
    ended: Option<Ended>,
}

impl<'a> Meeting<'a> {
    pub(super) fn new(size: usize, stop: &'a AtomicBool) -> Self {
        let state = MeetingState { words: vec![Vec::new(); size], ..MeetingState::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), size, stop }
    }

    /// Set when the run is to end.
    pub(super) fn stop(&self) -> &'a AtomicBool {
        self.stop
    }

    /// Ends the run. The first report counts; that other ranks stop because of it is no news.
    pub(super) fn end(&self, ended: Ended) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(ended);
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Why the run ended, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.state.lock().ended.clone()
    }

    /// Ends the run if the rank is left without [`Guard::leave`]: by a panic.
    pub(super) fn guard(&self, number: usize) -> Guard<'_> {
        Guard { meeting: Some(self), number }
    }

    fn exchange(&self, number: usize, own: &[u64]) -> Result<Vec<Vec<u64>>, Ended> {
        let mut state = self.state.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let round = state.round;
        state.words[number] = own.to_vec();
        state.arrived += 1;
        if state.arrived == self.size {
            let fresh = vec![Vec::new(); self.size];
            state.last = Arc::new(std::mem::replace(&mut state.words, fresh));
            state.arrived = 0;
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round {
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            self.changed.wait(&mut state);
        }
        // The next round cannot end before this rank has come to it, so `last` is of this one.
        let last = Arc::clone(&state.last);
        drop(state);
        Ok(Vec::clone(&last))
    }
}

/// One rank's place in a meeting of threads.
pub(super) struct Seat<'a> {
    pub(super) meeting: &'a Meeting<'a>,
    pub(super) number: usize,
}

impl Link for Seat<'_> {
    fn exchange(&mut self, own: &[u64]) -> Result<Vec<Vec<u64>>, Ended> {
        self.meeting.exchange(self.number, own)
    }
}

/// See [`Meeting::guard`].
pub(super) struct Guard<'a> {
    meeting: Option<&'a Meeting<'a>>,
    number: usize,
}

impl Guard<'_> {
    /// The rank has ended as it should.
    pub(super) fn leave(mut self) {
        self.meeting = None;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(meeting) = self.meeting {
            meeting.end(Ended::Failed(format!("rank {} panicked", self.number)));
        }
    }
}
