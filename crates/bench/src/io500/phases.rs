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
    /// Whether only the extended mode has it.
    pub(super) optional: bool,
}

impl Phase {
    /// Of what its score is a number.
    pub(super) fn unit(&self) -> &'static str {
        if self.is_ior() { Group::Bandwidth.unit() } else { Group::Metadata.unit() }
    }

    /// Whether it has a result, part of the score or not.
    pub(super) fn has_result(&self) -> bool {
        self.name != "timestamp"
    }

    pub(super) fn is_ior(&self) -> bool {
        self.name.starts_with("ior")
    }

    pub(super) fn is_find(&self) -> bool {
        self.name.starts_with("find")
    }

    pub(super) fn is_workbench(&self) -> bool {
        self.name.starts_with("mdworkbench")
    }

    /// What the benchmark calls that it is about.
    pub(super) fn measured(&self) -> &'static str {
        match self.name.rsplit('-').next() {
            Some("create") => "precreate",
            Some("bench") => "benchmark",
            Some("delete") if self.is_workbench() => "cleanup",
            Some("write") if self.is_ior() => "write",
            Some("read") if self.is_ior() => "read",
            Some("write") => "File creation",
            Some("stat") => "File stat",
            Some("read") => "File read",
            _ => "File removal",
        }
    }
}

const fn writes(name: &'static str, group: Group) -> Phase {
    Phase { name, group, stonewall: true, optional: false }
}

const fn phase(name: &'static str, group: Group) -> Phase {
    Phase { name, group, stonewall: false, optional: false }
}

const fn extended(name: &'static str, group: Group) -> Phase {
    Phase { name, group, stonewall: false, optional: true }
}

/// The phases of an extended run, in their order.
const PHASES: [Phase; 19] = [
    writes("ior-easy-write", Group::Bandwidth),
    writes("mdtest-easy-write", Group::Metadata),
    extended("mdworkbench-create", Group::None),
    phase("timestamp", Group::None),
    extended("find-easy", Group::Metadata),
    writes("ior-hard-write", Group::Bandwidth),
    writes("mdtest-hard-write", Group::Metadata),
    phase("find", Group::Metadata),
    extended("find-hard", Group::Metadata),
    extended("mdworkbench-bench", Group::Metadata),
    phase("ior-easy-read", Group::Bandwidth),
    phase("mdtest-easy-stat", Group::Metadata),
    phase("ior-hard-read", Group::Bandwidth),
    phase("mdtest-hard-stat", Group::Metadata),
    extended("mdworkbench-delete", Group::None),
    phase("mdtest-easy-delete", Group::Metadata),
    phase("mdtest-hard-read", Group::Metadata),
    phase("mdtest-hard-delete", Group::Metadata),
    phase("ior-rnd4K-easy-read", Group::None),
];

/// The phases of a run, in their order.
pub(super) fn phases(is_extended: bool) -> impl Iterator<Item = &'static Phase> {
    PHASES.iter().filter(move |phase| is_extended || !phase.optional)
}

/// Directories below that of the data.
pub(super) fn parts(is_extended: bool) -> impl Iterator<Item = &'static str> {
    let more = is_extended.then_some("mdworkbench");
    ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard"].into_iter().chain(more)
}
