//! Which phases there are, in their order, and what their scores are part of.

/// What a phase's score is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    None,
    /// GiB a second.
    Bandwidth,
    /// Thousands of operations a second.
    Metadata,
}

impl Group {
    pub(super) fn unit(self) -> &'static str {
        if self == Self::Bandwidth { "GiB/s" } else { "kIOPS" }
    }
}

/// One phase.
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) group: Group,
    /// Whether it must reach the stonewall.
    pub(super) stonewall: bool,
}

impl Phase {
    /// What the benchmark calls that it is about.
    pub(super) fn measured(&self) -> &'static str {
        let is_ior = self.name.starts_with("ior");
        match self.name.rsplit('-').next() {
            Some("write") if is_ior => "write",
            Some("read") if is_ior => "read",
            Some("write") => "File creation",
            Some("stat") => "File stat",
            Some("read") => "File read",
            _ => "File removal",
        }
    }
}

const fn phase(name: &'static str, group: Group, stonewall: bool) -> Phase {
    Phase { name, group, stonewall }
}

/// Directories below that of the data.
pub(super) const PARTS: [&str; 4] = ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard"];

/// The phases of a standard run, in their order.
pub(super) const PHASES: [Phase; 13] = [
    phase("ior-easy-write", Group::Bandwidth, true),
    phase("mdtest-easy-write", Group::Metadata, true),
    phase("timestamp", Group::None, false),
    phase("ior-hard-write", Group::Bandwidth, true),
    phase("mdtest-hard-write", Group::Metadata, true),
    phase("find", Group::Metadata, false),
    phase("ior-easy-read", Group::Bandwidth, false),
    phase("mdtest-easy-stat", Group::Metadata, false),
    phase("ior-hard-read", Group::Bandwidth, false),
    phase("mdtest-hard-stat", Group::Metadata, false),
    phase("mdtest-easy-delete", Group::Metadata, false),
    phase("mdtest-hard-read", Group::Metadata, false),
    phase("mdtest-hard-delete", Group::Metadata, false),
];
