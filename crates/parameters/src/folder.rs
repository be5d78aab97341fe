//! Parameters of one folder of the tree.

use std::sync::Arc;

use sheen_control::Tree;
use sheen_types::Errno;

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
