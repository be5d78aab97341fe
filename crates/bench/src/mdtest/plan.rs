//! What is to be done: how many items, in which directories, under which names.
//!
//! A tree has directories numbered in breadth from 0, the root; directory `d` lies in `(d - 1) / b`. Item
//! `k` lies in directory `k / items_per_directory`. All of it is arithmetic: nothing is kept for each item but,
//! if the order is to be random, its number.

use std::fmt::Write as _;

use super::Options;
use crate::backend::room;
use crate::pattern::Packet;

/// What mdtest works out of its options before it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Where to work; a rank's is that of its number modulo theirs.
    pub(super) paths: Vec<String>,
    pub(super) files: bool,
    pub(super) directories: bool,
    pub(super) create: bool,
    pub(super) stat: bool,
    pub(super) read: bool,
    pub(super) rename: bool,
    pub(super) remove: bool,
    pub(super) packet: Packet,
    /// Trees of one iteration, each with so many items of each rank.
    pub(super) trees: u64,
    /// Items of a rank in one tree.
    pub(super) items: u64,
    pub(super) items_per_directory: u64,
    /// Directories of a tree.
    pub(super) tree_directories: u64,
    /// The first item's number: not 0 if items lie at the leaves only.
    pub(super) first_item: u64,
    pub(super) branch_factor: u64,
    pub(super) depth: u32,
}

impl Plan {
    /// # Errors
    /// A line: options that do not go together.
    pub(super) fn new(options: &Options, ranks: usize) -> Result<Self, String> {
        let paths = options.paths();
        let (files, directories) = (options.files_only, options.directories_only);
        let any_phase = options.create_only
            || options.stat_only
            || options.read_only
            || options.remove_only
            || options.rename;
        let phase = |asked: bool| asked || !any_phase;
        let mut plan = Self {
            paths,
            files: files || !directories,
            directories: directories || !files,
            create: phase(options.create_only),
            stat: phase(options.stat_only),
            read: phase(options.read_only),
            rename: phase(options.rename),
            remove: phase(options.remove_only),
            packet: Packet::named(&options.data)?,
            trees: 1,
            items: 0,
            items_per_directory: 0,
            tree_directories: directories_of(options)?,
            first_item: 0,
            branch_factor: options.branch_factor,
            depth: options.depth,
        };
        plan.check(options, ranks)?;
        plan.divide(options)?;
        Ok(plan)
    }

    fn check(&self, options: &Options, ranks: usize) -> Result<(), String> {
        let refused = [
            (self.paths.is_empty(), "-d names no directory"),
            (
                options.stonewall > 0 && options.branch_factor > 1,
                "stone wall timer does only work with a branch factor <= 1",
            ),
            (options.stonewall > 0 && options.no_barriers > 0, "-W does only work with barriers"),
            (
                options.no_barriers > 0 && options.stride != 0,
                "Possible race conditions will occur: -B not compatible with -N",
            ),
            (
                self.paths.len() > 1 && options.stride > 0,
                "cannot have multiple directory paths with -N strides between neighbor tasks",
            ),
            (
                self.paths.len() > 1 && !options.unique,
                "shared directory mode is not compatible with multiple directory paths",
            ),
            (self.paths.len() > ranks, "cannot have more directory paths than ranks"),
            (
                options.branch_factor < 1 && options.depth > 0,
                "branch factor must be greater than zero",
            ),
            (
                options.items > 0 && options.items_per_directory > 0 && options.unique,
                "only specify the number of items or the number of items per directory",
            ),
            (
                options.items_per_directory > 0
                    && !options.items.is_multiple_of(options.items_per_directory),
                "items must be a multiple of items per directory",
            ),
            (
                options.items > 0 && options.items_per_directory > 0 && options.stonewall > 0,
                "stone wall timer does only work with one directory: -n or -I, not both",
            ),
            (options.verify_read && !self.read, "Verify read requires that the read test is used"),
            (
                options.verify_read && options.read_bytes == 0,
                "Verify read requires that read bytes is > 0",
            ),
            (
                self.create && self.read && options.read_bytes > options.write_bytes,
                "When writing and reading files, read bytes must be smaller than write bytes",
            ),
            (
                options.verify_read && options.data_seed.is_none() && !self.create,
                "verifying what an earlier run wrote needs its seed: use -G when writing and reading",
            ),
        ];
        match refused.iter().find(|(applies, _)| *applies) {
            Some((_, line)) => Err((*line).to_owned()),
            None => Ok(()),
        }
    }

    fn divide(&mut self, options: &Options) -> Result<(), String> {
        let leaves = leaves_of(options).ok_or("the tree is too large")?;
        let holding = if options.leaf_only { leaves } else { self.tree_directories };
        self.items_per_directory = match options.items_per_directory {
            0 => options.items / holding,
            asked => asked,
        };
        if options.items > 0 && options.items_per_directory > 0 {
            self.trees = options.items / options.items_per_directory;
        }
        let items = self.items_per_directory.checked_mul(holding);
        self.items = items.ok_or("there are too many items")?;
        self.items.checked_mul(self.trees).ok_or("there are too many items")?;
        if options.leaf_only {
            self.first_item = self.items_per_directory * (self.tree_directories - leaves);
        }
        Ok(())
    }

    /// Numbers of the directories that hold items, in the order in which they are filled: down before
    /// across, as mdtest walks the tree.
    ///
    /// # Errors
    /// The line for the user: there is no memory for so many.
    pub(super) fn walk(&self) -> Result<Vec<u64>, String> {
        let first = self.first_item / self.items_per_directory.max(1);
        let mut order = room(self.tree_directories)?;
        let mut ahead = vec![(0, 0)];
        while let Some((directory, depth)) = ahead.pop() {
            if directory >= first {
                order.push(directory);
            }
            if depth < self.depth {
                let children = directory * self.branch_factor + 1..;
                let children = children.take(self.branch_factor as usize);
                ahead.extend(
                    children.map(|child| (child, depth + 1)).collect::<Vec<_>>().iter().rev(),
                );
            }
        }
        Ok(order)
    }

    /// What a run with `size` ranks is about, as mdtest prints it.
    pub(super) fn description(&self, size: usize) -> String {
        let all = self.items * self.trees * size as u64;
        let what = match (self.files, self.directories) {
            (true, true) => "files/directories",
            (true, false) => "files",
            _ => "directories",
        };
        format!("{size} tasks, {all} {what}")
    }
}

fn leaves_of(options: &Options) -> Option<u64> {
    options.branch_factor.max(1).checked_pow(options.depth)
}

fn directories_of(options: &Options) -> Result<u64, String> {
    let sum = (0..=options.depth).try_fold(0u64, |sum, depth| {
        sum.checked_add(options.branch_factor.max(1).checked_pow(depth)?)
    });
    sum.filter(|sum| *sum < 1 << 32).ok_or_else(|| "the tree is too large".to_owned())
}

/// Whether names are of files or of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
}

/// Names of the items of one rank in one phase, made in one buffer.
pub(super) struct Names<'p> {
    plan: &'p Plan,
    /// `PATH/test-dir.I-T/`.
    pub(super) root: String,
    /// `mdtest_tree` or `mdtest_tree.R`.
    pub(super) tree: String,
    /// `mdtest.R.`: whose items these are.
    item: String,
    kind: Kind,
    above: Vec<u64>,
    path: String,
}

impl<'p> Names<'p> {
    /// `tree_of`: the rank in whose tree the items lie, if each has one; `item_of`: the rank whose items they
    /// are.
    pub(super) fn new(plan: &'p Plan, kind: Kind, tree_of: Option<usize>, item_of: usize) -> Self {
        Self {
            plan,
            root: String::new(),
            tree: tree_of.map_or("mdtest_tree".into(), |rank| format!("mdtest_tree.{rank}")),
            item: format!("mdtest.{item_of}."),
            kind,
            above: Vec::new(),
            path: String::new(),
        }
    }

    /// Goes to a tree.
    pub(super) fn enter(&mut self, path: &str, iteration: u32, tree: u64) {
        self.root = test_directory(path, iteration, tree);
    }

    /// The path of a directory of the tree.
    pub(super) fn directory(&mut self, number: u64) -> &str {
        self.above.clear();
        let mut at = number;
        while at > 0 {
            self.above.push(at);
            at = (at - 1) / self.plan.branch_factor;
        }
        self.path.clear();
        self.path.push_str(&self.root);
        // Writing to a string cannot fail.
        let _ = write!(self.path, "/{}.0", self.tree);
        for directory in self.above.iter().rev() {
            let _ = write!(self.path, "/{}.{directory}", self.tree);
        }
        &self.path
    }

    /// The path of an item.
    pub(super) fn item(&mut self, number: u64) -> &str {
        self.directory(number / self.plan.items_per_directory);
        let kind = if self.kind == Kind::File { "file" } else { "dir" };
        let _ = write!(self.path, "/{kind}.{}{number}", self.item);
        &self.path
    }
}

/// `PATH/test-dir.ITERATION-TREE`.
pub(super) fn test_directory(path: &str, iteration: u32, tree: u64) -> String {
    format!("{path}/test-dir.{iteration}-{tree}")
}
