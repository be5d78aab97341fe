//! Whether a thread that notifies the kernel is blocked there.
//!
//! The kernel says when it has dropped pages, and not when it has come to one that a call holds. But the
//! thread that notifies it sleeps then, and cannot be woken by signals, until that page is released: `/proc`
//! shows that (state `D`), and how often it has gone to sleep. One that has not come so far, because the
//! machine has other things to do, is ready to run. A thread that is found twice in the same sleep,
//! [`ASLEEP`] apart, is blocked.
//!
//! Cost: nothing for what the kernel does within a millisecond; a read of `/proc` for each look after that,
//! some 20 us, ever less often.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// How long a thread sleeps that is blocked. Between two runnable threads no page is held for so long.
pub(crate) const ASLEEP: Duration = Duration::from_millis(1);

/// Looks are no further apart.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// What `/proc` says of a thread; `None` where there is none.
pub(crate) struct Status(Option<File>);

impl Status {
    /// Of the thread that asks.
    pub(crate) fn of_this_thread() -> Arc<Self> {
        // Without it the thread is taken for one that may sleep.
        Arc::new(Self(File::open("/proc/thread-self/status").ok()))
    }

    /// The sleep that it is in, if signals do not end it.
    pub(crate) fn sleep(self: &Arc<Self>) -> Option<Sleep> {
        let thread = Arc::as_ptr(self) as usize;
        let Some(file) = &self.0 else { return Some(Sleep::Unseen) };
        let mut text = [0; 4096];
        // A thread that is gone sleeps no more.
        let length = file.read_at(&mut text, 0).ok()?;
        let count = sleeps(&String::from_utf8_lossy(&text[..length]))?;
        Some(Sleep::Seen { thread, count })
    }
}

/// One sleep of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// The so-many-th of this one.
    Seen {
        /// Any number that no other has.
        thread: usize,
        /// How often it has gone to sleep.
        count: u64,
    },
    /// Perhaps: it cannot be looked at.
    Unseen,
    /// There is no thread for it, as each of them is busy.
    NoThread,
}

/// How often the thread whose `/proc/PID/status` this is has gone to sleep, if it sleeps, and signals do
/// not wake it.
fn sleeps(status: &str) -> Option<u64> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("State:").filter(|state| state.starts_with('D'))?;
    field("voluntary_ctxt_switches:")?.parse().ok()
}

/// Waits for the kernel, by looks at the thread that notifies it.
pub(crate) struct SleepWatch<L> {
    look: L,
    /// The sleep at the last look, and when it was seen first.
    sleep: Option<(Sleep, Instant)>,
}

impl<L: FnMut() -> Option<Sleep>> SleepWatch<L> {
    /// `look` says in which sleep the thread is.
    pub(crate) fn new(look: L) -> Self {
        Self { look, sleep: None }
    }

    /// Waits for `notified`, however late, but for no more than about `patience` in which the thread is in
    /// one and the same sleep; if the thread cannot be looked at, for no more than `blind`. Returns whether
    /// the kernel was notified.
    pub(crate) async fn notified(
        &mut self,
        notified: &mut (impl Future + Unpin),
        patience: Duration,
        blind: Duration,
    ) -> bool {
        let mut pause = ASLEEP;
        while tokio::time::timeout(pause, &mut *notified).await.is_err() {
            let now = Instant::now();
            let sleep = (self.look)();
            self.sleep = match (sleep, self.sleep) {
                (Some(now_in), Some((before, since))) if now_in == before => Some((before, since)),
                (sleep, _) => sleep.map(|sleep| (sleep, now)),
            };
            if let Some((sleep, since)) = self.sleep {
                let most = if matches!(sleep, Sleep::Seen { .. }) { patience } else { blind };
                if now > since && now.duration_since(since) >= most {
                    return false;
                }
            }
            pause = match self.sleep {
                Some((_, since)) if since == now => ASLEEP,
                _ => (pause * 2).min(LOOK_MAX),
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::pin::pin;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn wait(look: impl FnMut() -> Option<Sleep>, patience: Duration, for_ms: u64) -> Option<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let mut watch = SleepWatch::new(look);
            let mut never = pin!(pending::<()>());
            let notified = watch.notified(&mut never, patience, LONG);
            tokio::time::timeout(Duration::from_millis(for_ms), notified).await.ok()
        })
    }

    #[test]
    fn a_thread_that_sleeps_where_signals_do_not_wake_it_is_recognized() {
        let status = |state: &str| {
            format!(
                "Name:\tx\nState:\t{state}\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t3\n"
            )
        };
        assert_eq!(sleeps(&status("D (disk sleep)")), Some(17));
        assert_eq!(sleeps(&status("R (running)")), None);
        assert_eq!(sleeps(&status("S (sleeping)")), None);
        assert_eq!(Status::of_this_thread().sleep(), None, "it runs");
    }

    #[test]
    fn only_one_and_the_same_sleep_is_a_block() {
        assert_eq!(wait(|| None, ASLEEP, 200), None, "it has not had its turn: that may take long");
        let count = Cell::new(0);
        let anew = || {
            count.set(count.get() + 1);
            Some(Sleep::Seen { thread: 1, count: count.get() })
        };
        assert_eq!(wait(anew, ASLEEP, 200), None, "it goes on each time");
        let same = || Some(Sleep::Seen { thread: 1, count: 1 });
        assert_eq!(wait(same, ASLEEP, 5000), Some(false));
        assert_eq!(wait(same, LONG, 100), None);
        assert_eq!(wait(|| Some(Sleep::Unseen), ASLEEP, 100), None, "it cannot be seen");
    }
}
