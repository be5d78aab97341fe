//! Parameters of one folder of the tree, one by one or from tables of those that are read and set alike.

use std::ops::RangeInclusive;
use std::sync::Arc;

use sheen_control::Tree;
use sheen_types::Errno;

use super::values;

/// What is on or off: its name, and what reads and sets it.
pub(super) type Switch<T> = (&'static str, fn(&T) -> bool, fn(&T, bool));

/// A number with bounds.
pub(super) struct Number<T> {
    pub(super) leaf: &'static str,
    /// What parses it: [`values::number`] or [`values::number_of_any_base`].
    pub(super) parse: fn(&str) -> Result<u64, Errno>,
    /// What may be set: anything else is ERANGE.
    pub(super) range: RangeInclusive<u64>,
    pub(super) read: fn(&T) -> u64,
    /// Gets numbers of `range` only.
    pub(super) write: fn(&T, u64),
}

/// Where parameters of a kind are added.
pub(super) struct Folder<'a> {
    tree: &'a Tree,
    place: String,
}

impl<'a> Folder<'a> {
    /// The folder of this name.
    pub(super) fn new(tree: &'a Tree, place: impl Into<String>) -> Self {
        Self { tree, place: place.into() }
    }

    /// What stands in no folder.
    pub(super) fn root(tree: &'a Tree) -> Self {
        Self::new(tree, "")
    }

    /// Adds what can only be looked at, and is read of `owner`.
    pub(super) fn show<T: Send + Sync + 'static>(
        &self,
        leaf: &str,
        owner: &Arc<T>,
        read: impl Fn(&T) -> String + Send + Sync + 'static,
    ) {
        let owner = Arc::clone(owner);
        self.tree.add(&self.name(leaf), move || read(&owner));
    }

    /// Adds what can be set, too.
    pub(super) fn tune<T: Send + Sync + 'static>(
        &self,
        leaf: &str,
        owner: &Arc<T>,
        read: impl Fn(&T) -> String + Send + Sync + 'static,
        write: impl Fn(&T, &str) -> Result<(), Errno> + Send + Sync + 'static,
    ) {
        let (reader, writer) = (Arc::clone(owner), Arc::clone(owner));
        let name = self.name(leaf);
        self.tree.add_writable(&name, move || read(&reader), move |text| write(&writer, text));
    }

    /// Adds what is on or off, shown as 1 or 0.
    pub(super) fn switches<T: Send + Sync + 'static>(&self, owner: &Arc<T>, rows: &[Switch<T>]) {
        for &(leaf, read, write) in rows {
            self.tune(
                leaf,
                owner,
                move |it| u8::from(read(it)).to_string(),
                move |it, text| {
                    write(it, values::switch(text)?);
                    Ok(())
                },
            );
        }
    }

    /// Adds numbers.
    pub(super) fn numbers<T: Send + Sync + 'static>(&self, owner: &Arc<T>, rows: &[Number<T>]) {
        for Number { leaf, parse, range, read, write } in rows {
            let (parse, range, read, write) = (*parse, range.clone(), *read, *write);
            self.tune(
                leaf,
                owner,
                move |it| read(it).to_string(),
                move |it, text| {
                    write(it, values::within(parse(text)?, *range.start(), *range.end())?);
                    Ok(())
                },
            );
        }
    }

    /// Adds what can only be set.
    pub(super) fn order(
        &self,
        leaf: &str,
        write: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) {
        self.tree.add_order(&self.name(leaf), write);
    }

    /// Makes a name in this folder another one of the folder `target`.
    pub(super) fn link(&self, leaf: &str, target: &str) {
        self.tree.link(&self.name(leaf), target);
    }

    fn name(&self, leaf: &str) -> String {
        match self.place.as_str() {
            "" => leaf.to_owned(),
            place => format!("{place}.{leaf}"),
        }
    }
}
