//! What can be done, over few names so that operations meet.

use proptest::prelude::*;

/// A path of one to three names below the root, each out of [`NAMES`].
pub(crate) type Path = Vec<&'static str>;

/// All names there are.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Offsets and lengths: a little around what is one page, and what is one stripe.
const PLACES: [u64; 8] = [0, 1, 100, 4095, 4096, 10_000, 65_536, 1 << 20];
const LENGTHS: [u64; 6] = [1, 3, 4096, 5000, 70_000, 300_000];

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `mkdir(2)`.
    MakeDirectory(Path),
    /// `open(2)` with `O_CREAT`, `O_EXCL` if so, and `close(2)`.
    Create(Path, bool),
    /// `symlink(2)`.
    Symlink(Path, &'static str),
    /// `mknod(2)` of a pipe.
    Pipe(Path),
    /// `link(2)`.
    Link(Path, Path),
    /// `unlink(2)`.
    Unlink(Path),
    /// `rmdir(2)`.
    RemoveDirectory(Path),
    /// `renameat2(2)`, with `RENAME_NOREPLACE` if so.
    Rename(Path, Path, bool),
    /// `pwrite(2)` of so many of one byte at an offset, in a file opened for it.
    Write(Path, u64, u64, u8),
    /// `truncate(2)`.
    Truncate(Path, u64),
    /// `fallocate(2)` that punches a hole.
    Punch(Path, u64, u64),
    /// `fallocate(2)` that grows the file.
    Allocate(Path, u64, u64),
    /// `chmod(2)`.
    Mode(Path, u32),
    /// `setxattr(2)`; `None` removes it.
    Attribute(Path, Option<u8>),
    /// `open(2)` for reading and writing, in a slot; what was open there is closed.
    Open(Path, usize),
    /// `pwrite(2)` in a slot.
    WriteOpen(usize, u64, u64, u8),
    /// `ftruncate(2)` in a slot.
    TruncateOpen(usize, u64),
    /// `close(2)` of a slot.
    Close(usize),
    /// The kernel forgets all inodes that are not open.
    Forget,
    /// So many milliseconds pass.
    Wait(u64),
}

/// How many files a client holds open at once.
pub(crate) const SLOTS: usize = 2;

/// An operation and which of the two clients does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// 0 or 1.
    pub client: usize,
    /// What it does.
    pub operation: Operation,
}

fn path() -> impl Strategy<Value = Path> {
    prop::collection::vec(prop::sample::select(&NAMES[..]), 1..=3)
}

fn place() -> impl Strategy<Value = u64> {
    prop::sample::select(&PLACES[..])
}

fn length() -> impl Strategy<Value = u64> {
    prop::sample::select(&LENGTHS[..])
}

fn names() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => path().prop_map(Operation::MakeDirectory),
        4 => (path(), any::<bool>()).prop_map(|(path, new)| Operation::Create(path, new)),
        1 => (path(), prop::sample::select(&["a", "../b", "nowhere"][..]))
            .prop_map(|(path, target)| Operation::Symlink(path, target)),
        1 => path().prop_map(Operation::Pipe),
        2 => (path(), path()).prop_map(|(old, new)| Operation::Link(old, new)),
        2 => path().prop_map(Operation::Unlink),
        2 => path().prop_map(Operation::RemoveDirectory),
        6 => (path(), path(), prop::bool::weighted(0.2))
            .prop_map(|(old, new, keep)| Operation::Rename(old, new, keep)),
    ]
}

fn contents() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (path(), place(), length(), any::<u8>())
            .prop_map(|(path, at, length, byte)| Operation::Write(path, at, length, byte)),
        2 => (path(), place()).prop_map(|(path, size)| Operation::Truncate(path, size)),
        1 => (path(), place(), length())
            .prop_map(|(path, at, length)| Operation::Punch(path, at, length)),
        1 => (path(), place(), length())
            .prop_map(|(path, at, length)| Operation::Allocate(path, at, length)),
        1 => (path(), 0..0o1000_u32).prop_map(|(path, mode)| Operation::Mode(path, mode)),
        1 => (path(), any::<Option<u8>>())
            .prop_map(|(path, value)| Operation::Attribute(path, value)),
    ]
}

fn open_files() -> impl Strategy<Value = Operation> {
    let slot = || 0..SLOTS;
    prop_oneof![
        2 => (path(), slot()).prop_map(|(path, slot)| Operation::Open(path, slot)),
        2 => (slot(), place(), length(), any::<u8>())
            .prop_map(|(slot, at, length, byte)| Operation::WriteOpen(slot, at, length, byte)),
        1 => (slot(), place()).prop_map(|(slot, size)| Operation::TruncateOpen(slot, size)),
        1 => slot().prop_map(Operation::Close),
    ]
}

/// Sequences of at most `longest` steps.
pub fn operations(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        10 => names(),
        6 => contents(),
        4 => open_files(),
        1 => Just(Operation::Forget),
        1 => (1..3000_u64).prop_map(Operation::Wait),
    ];
    let step = (0..2_usize, operation).prop_map(|(client, operation)| Step { client, operation });
    prop::collection::vec(step, 1..=longest)
}
