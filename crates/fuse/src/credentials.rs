//! Who is asking: the kernel sends user, group and process; supplementary groups are looked up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheen_client::posix::Credentials;
use sheen_fuse_wire::Request;
use sheen_types::HashMap;

/// How long a process's groups are cached. A process that changes its groups alone and keeps user and group
/// waits this long at most.
const FRESH: Duration = Duration::from_secs(1);
/// Processes remembered; beyond this all are forgotten.
const PROCESSES_MAX: usize = 4096;

type Key = (u32, u32, u32);
/// When the groups were read, and what they were.
type Known = (Instant, Arc<[u32]>);

/// Remembers supplementary groups of processes for a moment.
#[derive(Default)]
pub(crate) struct Groups {
    known: Mutex<HashMap<Key, Known>>,
}

impl Groups {
    /// Who sent `request`. Costs nothing for root, a read of `/proc` once a second for other users.
    pub(crate) fn credentials(&self, request: &Request, umask: u32) -> Credentials {
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        let groups = if uid == 0 { Arc::from([]) } else { self.of((pid, uid, gid)) };
        Credentials { uid, gid, groups, pid, umask }
    }

    #[expect(clippy::disallowed_methods, reason = "a host: the age of what /proc said")]
    fn of(&self, key: Key) -> Arc<[u32]> {
        let now = Instant::now();
        if let Some((read, groups)) = self.known.lock().get(&key)
            && now.duration_since(*read) < FRESH
        {
            return Arc::clone(groups);
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", key.0)).unwrap_or_default();
        let groups: Arc<[u32]> = parse(&status).into();
        let mut known = self.known.lock();
        if known.len() >= PROCESSES_MAX {
            known.clear();
        }
        known.insert(key, (now, Arc::clone(&groups)));
        groups
    }
}

/// The numbers behind `Groups:`.
fn parse(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let words = line.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn groups_are_read_from_a_status() {
        assert_eq!(parse("Gid:\t1\t1\nGroups:\t4 27 1000 \nNStgid:\t1\n"), [4, 27, 1000]);
        assert_eq!(parse("Groups:\t \n"), []);
        assert_eq!(parse(""), []);
    }
}
