//! Half of the machine's processor time, for tests that shall hold on a busy one: a control group around
//! this process and all that it starts.
//!
//! Of version 1 (the `cpu` controller, `cpu.cfs_quota_us`) or 2 (`cpu.max`), a group below our own. It needs
//! the right to make one, root's as a rule; without it nothing is run at all.
#![allow(clippy::disallowed_methods, reason = "a control group is emptied in real time")]

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

/// In microseconds: of each such time half may be used, by each processor.
const PERIOD: u64 = 100_000;
/// So often it is tried again to remove a group in which a program still runs, with this pause.
const REMOVED_AFTER: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// The control group. Dropped, this process leaves it, and it goes.
pub(crate) struct Halved {
    group: PathBuf,
    above: PathBuf,
}

/// Where groups are, and what a limit is called there.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Version 1, with the processes that are in no group of this controller.
    Quota(PathBuf),
    /// Version 2.
    Max(PathBuf),
}

impl Halved {
    /// From now on this process and those that it starts have half of the processors.
    ///
    /// # Errors
    /// What prevents it, and what would help.
    pub(crate) fn begin() -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (mounts, own) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let place = place(&mounts, &own).ok_or(
            "--halved: no control group for processor time is mounted (cgroup with `cpu`, or cgroup2)",
        )?;
        let (Place::Quota(above) | Place::Max(above)) = &place;
        let group = above.join(format!("sheen-xtask-{}", std::process::id()));
        fs::create_dir(&group).map_err(|e| refusal(&group, &e.to_string()))?;
        let halved = Self { group, above: above.clone() };
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let quota = processors * PERIOD / 2;
        match place {
            Place::Quota(_) => {
                halved.write("cpu.cfs_period_us", &PERIOD.to_string())?;
                halved.write("cpu.cfs_quota_us", &quota.to_string())?;
            }
            Place::Max(_) => halved.write("cpu.max", &format!("{quota} {PERIOD}"))?,
        }
        halved.write("cgroup.procs", &std::process::id().to_string())?;
        eprintln!("xtask: {quota} of {} us of processor time each", processors * PERIOD);
        Ok(halved)
    }

    /// A program that this process has started meanwhile stays in the group until it ends.
    fn remove(&self) -> io::Result<()> {
        let mut removed = fs::remove_dir(&self.group);
        for _ in 0..REMOVED_AFTER {
            if !removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
                break;
            }
            thread::sleep(PAUSE);
            removed = fs::remove_dir(&self.group);
        }
        removed
    }

    fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.group.join(file);
        fs::write(&path, value).map_err(|error| refusal(&path, &error.to_string()))
    }
}

impl Drop for Halved {
    fn drop(&mut self) {
        let own = std::process::id().to_string();
        let left = fs::write(self.above.join("cgroup.procs"), own);
        if let Err(error) = left.and_then(|()| self.remove()) {
            eprintln!("xtask: {} stays: {error}", self.group.display());
        }
    }
}

fn refusal(path: &Path, error: &str) -> String {
    format!(
        "--halved: {}: {error}; half of the processors takes a control group: run as root where \
         the `cpu` controller is for you to use",
        path.display()
    )
}

/// The group that we are in, of whichever version there is.
fn place(mounts: &str, own: &str) -> Option<Place> {
    let mounted = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (path, fstype, options) = (words.next()?, words.next()?, words.next()?);
            let has = |option| options.split(',').any(|it| it == option);
            (fstype == kind && option.is_none_or(has)).then(|| PathBuf::from(path))
        })
    };
    let below = |root: PathBuf, is_it: &dyn Fn(&str) -> bool| {
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            is_it(controllers).then_some(path)
        })?;
        Some(root.join(path.trim_start_matches('/')))
    };
    if let Some(root) = mounted("cgroup", Some("cpu")) {
        return below(root, &|it| it.split(',').any(|it| it == "cpu")).map(Place::Quota);
    }
    below(mounted("cgroup2", None)?, &str::is_empty).map(Place::Max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_half_until_it_leaves_or_learns_why_not() {
        let groups = || fs::read_to_string("/proc/self/cgroup").expect("Linux has it");
        let halved = match Halved::begin() {
            Ok(halved) => halved,
            Err(error) => return assert!(error.starts_with("--halved: "), "{error}"),
        };
        let name = halved.group.file_name().and_then(|name| name.to_str()).expect("ours");
        assert!(groups().contains(name));
        let limit = ["cpu.cfs_quota_us", "cpu.max"].map(|file| halved.group.join(file));
        let limit = limit.iter().find_map(|path| fs::read_to_string(path).ok()).expect("a limit");
        let quota: u64 =
            limit.split_whitespace().next().and_then(|it| it.parse().ok()).expect("set");
        let processors = std::thread::available_parallelism().expect("some").get() as u64;
        // The limit counts already where the processors are counted.
        assert!(quota <= processors * PERIOD, "{limit}");
        let group = halved.group.clone();
        drop(halved);
        assert!(!group.exists() && !groups().contains("sheen-xtask-"));
    }

    #[test]
    fn the_group_of_either_version_is_found() {
        let one = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                   cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n\
                   cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let own = "3:cpuset:/x\n2:cpu,cpuacct:/a/b\n0::/z\n";
        let group = PathBuf::from("/sys/fs/cgroup/cpu/a/b");
        assert_eq!(place(one, own), Some(Place::Quota(group)));
        let two = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let group = PathBuf::from("/sys/fs/cgroup/user.slice");
        assert_eq!(place(two, "0::/user.slice\n"), Some(Place::Max(group)));
        assert_eq!(place("tmpfs /sys/fs/cgroup tmpfs rw 0 0\n", own), None);
    }
}
