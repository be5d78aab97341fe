//! Whether what a server's requests need makes progress: its tasks, and the stores of its targets.
//!
//! Asked over the control socket, which has threads of its own, with a time limit for each.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use sheen_parameters::HostedTarget;
use sheen_store::Store;
use sheen_target::Target;
use sheen_types::{Fid, fid_seq};
use tokio::runtime::Handle;

/// How long a task may take to be polled.
const TASK_WAIT: Duration = Duration::from_secs(2);

/// How long a store may take to look up a key.
const STORE_WAIT: Duration = Duration::from_secs(1);

/// An index that a store may have or not.
const INDEX: Fid = Fid::new(fid_seq::LOCAL_FILE, 1);

/// The command that answers two lines: what makes no progress, and what fails; each may be empty.
pub(super) fn command(running: &[Arc<HostedTarget>]) -> sheen_control::Command {
    let (runtime, running) = (Handle::current(), running.to_vec());
    Box::new(move |_| {
        let targets = running.iter().map(|one| &one.served.target);
        let stores = targets.map(|it| (it.name().to_owned(), Arc::clone(it.store())));
        let failed = running.iter().find_map(|one| failure(&one.served.target));
        Ok(with(look(&runtime, stores), failed.unwrap_or_default()))
    })
}

/// Adds a failure to what the command answers.
fn with(said: String, failed: String) -> String {
    let between = if said.ends_with('\n') || failed.is_empty() { "" } else { "; " };
    said + between + &failed
}

/// That the store of a target takes no more changes, and what can be done about it.
fn failure(target: &Target) -> Option<String> {
    let (time, why) = target.failure()?;
    Some(read_only(target.name(), time, &why))
}

fn read_only(name: &str, time: Duration, why: &str) -> String {
    format!(
        "{name} is read-only for {} s ({why}): free space if its disk is full, then restart its server (`sheen down` \
         and `sheen up`)",
        time.as_secs()
    )
}

/// What the command answers. A store that fails blocks nothing: its requests are answered with errors.
fn look(runtime: &Handle, stores: impl Iterator<Item = (String, Arc<dyn Store>)>) -> String {
    let (sender, answer) = mpsc::channel();
    drop(runtime.spawn(async move { sender.send(()) }));
    if answer.recv_timeout(TASK_WAIT).is_err() {
        return "its tasks make no progress\n".to_owned();
    }
    let mut fails = String::new();
    for (name, store) in stores {
        let (sender, answer) = mpsc::channel();
        drop(runtime.spawn_blocking(move || sender.send(store.lookup(INDEX, &[]))));
        match answer.recv_timeout(STORE_WAIT) {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => fails = format!("the store of {name} fails: {error}"),
            Err(_) => return format!("the store of {name} does not answer\n"),
        }
    }
    format!("\n{fails}")
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use sheen_store_mem::{Errors, Flaky, StoreMem};

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().expect("a runtime")
    }

    #[test]
    fn tasks_that_stand_still_are_reported_within_the_limit() {
        let runtime = runtime();
        let nothing = || std::iter::empty();
        assert_eq!(look(runtime.handle(), nothing()), "\n");
        let (go_on, stands) = mpsc::channel::<()>();
        drop(runtime.spawn(async move { stands.recv() }));
        // One worker has been there before, if it began to look for work at all.
        let said = (0..50).map(|_| look(runtime.handle(), nothing())).find(|it| it != "\n");
        assert_eq!(said.as_deref(), Some("its tasks make no progress\n"));
        drop(go_on);
    }

    #[test]
    fn a_store_that_stands_still_or_fails_is_named() {
        let runtime = runtime();
        let errors = Arc::new(Mutex::new(Errors { reads: 0, changes: 0 }));
        let (store, held) = (Arc::new(StoreMem::default()), Arc::clone(&errors));
        let random = sheen_io_os::Host::start(Some(1)).expect("threads").world().random;
        let flaky: Arc<dyn Store> = Arc::new(Flaky { store, random, errors });
        let look = || {
            let one = ("lustre-OST0001".to_owned(), Arc::clone(&flaky));
            look(runtime.handle(), std::iter::once(one))
        };
        assert_eq!(look(), "\n");
        held.lock().reads = 1;
        assert!(look().starts_with("\nthe store of lustre-OST0001 fails"));
        // It takes this lock for each job.
        let stands = held.lock();
        assert_eq!(look(), "the store of lustre-OST0001 does not answer\n");
        drop(stands);
    }

    #[test]
    fn a_store_that_takes_no_changes_is_named_with_what_helps() {
        let read_only = || read_only("lustre-OST0001", Duration::from_secs(70), "a commit failed");
        let said = with("\n".to_owned(), read_only());
        assert!(said.starts_with("\nlustre-OST0001 is read-only for 70 s (a commit failed): free"));
        assert!(said.contains("restart its server") && !said.contains("  "), "{said}");
        assert!(with("\na store fails".to_owned(), read_only()).contains("fails; lustre-OST0001"));
        assert_eq!(with("\n".to_owned(), String::new()), "\n");
    }
}
