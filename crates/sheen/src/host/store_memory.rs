//! How much memory the stores of a server process use for caches, and which of it each has.

use std::fs;
use std::path::Path;

use sheen_assembly::TargetLabel;
use sheen_types::TargetKind;

/// Of the machine's memory, or of what its control group allows, the stores of a process use one part in so many.
const SHARE: u64 = 16;
/// What they use by default, at least and at most: there may be several such processes, and more is asked for where millions of
/// files are in use at once.
const BYTES_MIN: u64 = 128 << 20;
const BYTES_MAX: u64 = 1 << 30;
/// An MGT's: its logs are small.
const MGT_BYTES: u64 = 4 << 20;
/// Shares of an MDT and an OST: of each file an MDT has its inode, its attributes and its name, and an OST, one of several, an
/// object without any.
const MDT_SHARES: u64 = 4;
const OST_SHARES: u64 = 1;

/// Bytes for each target, in their order, of `asked` MiB for all or of what suits the machine.
pub(super) fn of_each<'a>(
    targets: impl Iterator<Item = &'a TargetLabel>,
    asked: Option<u64>,
) -> Vec<usize> {
    let all = asked.map_or_else(by_default, |mib| mib.saturating_mul(1 << 20));
    shared(targets, all)
}

fn shared<'a>(targets: impl Iterator<Item = &'a TargetLabel>, bytes: u64) -> Vec<usize> {
    let weights: Vec<u64> = targets.map(weight).collect();
    let mgts = weights.iter().filter(|weight| **weight == 0).count() as u64;
    let each = bytes.saturating_sub(mgts * MGT_BYTES) / weights.iter().sum::<u64>().max(1);
    let share = |weight: &u64| match weight {
        0 => MGT_BYTES,
        weight => each.saturating_mul(*weight),
    };
    weights.iter().map(|weight| usize::try_from(share(weight)).unwrap_or(usize::MAX)).collect()
}

fn weight(target: &TargetLabel) -> u64 {
    match target {
        TargetLabel::Mgs => 0,
        TargetLabel::Target(name) if name.kind == TargetKind::Mdt => MDT_SHARES,
        TargetLabel::Target(_) => OST_SHARES,
    }
}

fn by_default() -> u64 {
    let machine = machine_bytes().into_iter().chain(group_bytes()).min().unwrap_or(0);
    (machine / SHARE).clamp(BYTES_MIN, BYTES_MAX)
}

fn machine_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

/// What the control groups of this process allow, the narrowest: a container's, or that of a systemd unit.
fn group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut limits = Vec::new();
    for (top, path, files) in groups.lines().filter_map(group_of) {
        let own = top.join(path);
        for group in own.ancestors().take_while(|group| group.starts_with(top)) {
            let said = files.iter().filter_map(|file| fs::read_to_string(group.join(file)).ok());
            limits.extend(said.filter_map(|text| limit(&text)));
        }
    }
    limits.into_iter().min()
}

/// The group of a line of `/proc/self/cgroup` that limits memory: the top of the tree, its path below, and the files that say how
/// much there is, or from where on it is throttled. Of both versions of control groups.
fn group_of(line: &str) -> Option<(&'static Path, &str, &'static [&'static str])> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let path = path.trim_start_matches('/');
    match controllers {
        "" => Some((Path::new("/sys/fs/cgroup"), path, &["memory.max", "memory.high"])),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            Some((Path::new("/sys/fs/cgroup/memory"), path, &["memory.limit_in_bytes"]))
        }
        _ => None,
    }
}

/// What such a file says; `None` for no limit.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Vec<TargetLabel> {
        let label = |name: &&str| TargetLabel::Target(name.parse().expect("a target's name"));
        std::iter::once(TargetLabel::Mgs).chain(names.iter().map(label)).collect()
    }

    #[test]
    fn an_mdt_has_as_much_as_four_osts_and_all_have_what_was_asked_for() {
        let labels = labels(&["t-MDT0000", "t-OST0000", "t-OST0001", "t-OST0002", "t-OST0003"]);
        let each = shared(labels.iter(), 132 << 20);
        let mib = |count: usize| count << 20;
        assert_eq!(each, [mib(4), mib(64), mib(16), mib(16), mib(16), mib(16)]);
        assert_eq!(of_each(labels.iter(), Some(132)), each);
        // A store takes what it needs at least.
        assert_eq!(shared(labels.iter(), 0), [mib(4), 0, 0, 0, 0, 0]);
        assert_eq!(of_each(labels[..1].iter(), Some(u64::MAX)), [mib(4)]);
    }

    #[test]
    fn the_machine_and_its_control_groups_say_how_much_there_is() {
        assert_eq!((limit("max\n"), limit("1073741824\n")), (None, Some(1 << 30)));
        let group = |line| group_of(line).map(|(top, path, files)| (top.join(path), files[0]));
        let in_second = ("/sys/fs/cgroup/system.slice/a".into(), "memory.max");
        assert_eq!(group("0::/system.slice/a"), Some(in_second));
        let in_first = ("/sys/fs/cgroup/memory/docker/b".into(), "memory.limit_in_bytes");
        assert_eq!(group("9:memory:/docker/b"), Some(in_first));
        assert_eq!((group("5:cpu,cpuacct:/docker/b"), group("bogus")), (None, None));
        assert!(machine_bytes().is_some_and(|bytes| bytes > 64 << 20));
        let bytes = by_default();
        assert!((BYTES_MIN..=BYTES_MAX).contains(&bytes), "{bytes}");
    }
}
