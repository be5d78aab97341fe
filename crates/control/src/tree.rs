//! Parameters by name.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sheen_types::Errno;

use crate::glob::{Pattern, split};

/// Answers the value's text: one line without its end, or several lines.
type Read = Box<dyn Fn() -> String + Send + Sync>;
/// Takes a new value's text.
type Write = Box<dyn Fn(&str) -> Result<(), Errno> + Send + Sync>;

/// What may be done with a parameter (`lctl list_param -F` marks it `=` when it can be written).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Only looked at.
    Read,
    /// Looked at and set.
    ReadWrite,
    /// Only set.
    Write,
}

/// A name in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The full name, parts joined by dots.
    pub name: String,
    /// What may be done with it; `None` for a folder.
    pub access: Option<Access>,
    /// Whether it is another name of what lies elsewhere.
    pub is_link: bool,
}

struct Parameter {
    read: Option<Read>,
    write: Option<Write>,
}

impl Parameter {
    fn access(&self) -> Access {
        match (&self.read, &self.write) {
            (Some(_), None) => Access::Read,
            (None, Some(_)) => Access::Write,
            _ => Access::ReadWrite,
        }
    }
}

/// What a branch holds at this moment: names below it, and how to read each.
pub type Leaves = Vec<Leaf>;
/// A name, and how to read what stands there.
pub type Leaf = (String, Box<dyn Fn() -> String + Send + Sync>);
/// Answers what a branch holds.
type Grow = Box<dyn Fn() -> Leaves + Send + Sync>;
type Named = BTreeMap<Vec<String>, std::sync::Arc<Parameter>>;

/// The parameters of one process. Readers share; adding and removing is rare.
#[derive(Default)]
pub struct Tree {
    parameters: RwLock<Named>,
    branches: RwLock<BTreeMap<Vec<String>, std::sync::Arc<Grow>>>,
    /// Further names of folders: of each what it stands for.
    links: RwLock<BTreeMap<Vec<String>, Vec<String>>>,
}

impl Tree {
    /// No parameters yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter to look at; replaces one of the same name.
    pub fn add(&self, name: &str, read: impl Fn() -> String + Send + Sync + 'static) {
        self.put(name, Parameter { read: Some(Box::new(read)), write: None });
    }

    /// Adds a parameter to look at and to set.
    pub fn add_writable(
        &self,
        name: &str,
        read: impl Fn() -> String + Send + Sync + 'static,
        write: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) {
        self.put(name, Parameter { read: Some(Box::new(read)), write: Some(Box::new(write)) });
    }

    /// Adds a parameter only to be set: an order, as `evict_client`.
    pub fn add_order(
        &self,
        name: &str,
        write: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) {
        self.put(name, Parameter { read: None, write: Some(Box::new(write)) });
    }

    /// Adds a branch whose parameters come and go, as clients do: `grow` says what there is each
    /// time that a reader looks.
    pub fn add_branch(&self, name: &str, grow: impl Fn() -> Leaves + Send + Sync + 'static) {
        self.branches.write().insert(split(name), std::sync::Arc::new(Box::new(grow)));
    }

    /// Makes `name` another name of the folder `target`. A link may lie in a folder that another one
    /// leads to, but none in a folder that such a link leads to.
    pub fn link(&self, name: &str, target: &str) {
        self.links.write().insert(split(name), split(target));
    }

    /// Removes everything at and below `name`.
    pub fn remove(&self, name: &str) {
        let prefix = split(name);
        self.parameters.write().retain(|path, _| !path.starts_with(&prefix));
        self.branches.write().retain(|path, _| !path.starts_with(&prefix));
        self.links.write().retain(|path, _| !path.starts_with(&prefix));
    }

    /// All parameters and folders whose name matches, sorted.
    #[must_use]
    pub fn list(&self, pattern: &Pattern) -> Vec<Listed> {
        let all = self.all(pattern, |_| true);
        let mut found = BTreeMap::new();
        for (path, parameter) in &all {
            for depth in 1..path.len() {
                if pattern.matches(&path[..depth]) {
                    found.insert(&path[..depth], None);
                }
            }
            if pattern.matches(path) {
                found.insert(path, Some(parameter.access()));
            }
        }
        let branches: Vec<Vec<String>> = self.branches.read().keys().cloned().collect();
        for path in &branches {
            // A folder is one though nothing is in it now.
            if pattern.matches(path) {
                found.entry(path).or_insert(None);
            }
        }
        let links = self.links.read();
        let listed = |(path, access): (&[String], Option<Access>)| Listed {
            name: path.join("."),
            access,
            is_link: links.keys().any(|link| path.starts_with(link)),
        };
        found.into_iter().map(listed).collect()
    }

    /// Name and value of every readable parameter that matches, sorted. Values are read without
    /// holding the tree.
    #[must_use]
    pub fn get(&self, pattern: &Pattern) -> Vec<(String, String)> {
        let found = self.matching(pattern);
        let value = |(path, parameter): &(Vec<String>, std::sync::Arc<Parameter>)| {
            parameter.read.as_ref().map(|read| (path.join("."), read()))
        };
        found.iter().filter_map(value).collect()
    }

    /// Sets every writable parameter that matches; answers the name and fate of each that does.
    pub fn set(&self, pattern: &Pattern, value: &str) -> Vec<(String, Result<(), Errno>)> {
        let set = |(path, parameter): (Vec<String>, std::sync::Arc<Parameter>)| {
            let fate = match &parameter.write {
                Some(write) => write(value),
                None => Err(Errno::EACCES),
            };
            (path.join("."), fate)
        };
        self.matching(pattern).into_iter().map(set).collect()
    }

    fn put(&self, name: &str, parameter: Parameter) {
        self.parameters.write().insert(split(name), std::sync::Arc::new(parameter));
    }

    fn matching(&self, pattern: &Pattern) -> Vec<(Vec<String>, std::sync::Arc<Parameter>)> {
        self.all(pattern, |path| pattern.matches(path)).into_iter().collect()
    }

    /// All parameters that are wanted, those of branches included that `pattern` could be about.
    /// Only what is wanted is copied out of the tree.
    fn all(&self, pattern: &Pattern, wanted: impl Fn(&[String]) -> bool) -> Named {
        let known = self.parameters.read();
        let found = known.iter().filter(|(path, _)| wanted(path));
        let mut all: Named =
            found.map(|(path, one)| (path.clone(), std::sync::Arc::clone(one))).collect();
        all.extend(self.linked(pattern, &known).into_iter().filter(|(path, _)| wanted(path)));
        drop(known);
        let branches: Vec<_> = {
            let branches = self.branches.read();
            let grown = branches.iter().filter(|(path, _)| pattern.may_be_below(path));
            grown.map(|(path, grow)| (path.clone(), std::sync::Arc::clone(grow))).collect()
        };
        for (path, grow) in branches {
            for (leaf, read) in grow() {
                let name: Vec<String> = path.iter().cloned().chain(split(&leaf)).collect();
                if wanted(&name) {
                    let parameter = Parameter { read: Some(read), write: None };
                    all.insert(name, std::sync::Arc::new(parameter));
                }
            }
        }
        all
    }

    /// What links lead to, if `pattern` could be about any of it: by those that lead to no other first.
    fn linked(&self, pattern: &Pattern, known: &Named) -> Named {
        let (links, mut linked) = (self.links.read(), Named::new());
        if !links.keys().any(|link| pattern.may_be_below(link)) {
            return linked;
        }
        let leads_on = |target: &Vec<String>| links.keys().any(|link| link.starts_with(target));
        let (outer, inner): (Vec<_>, Vec<_>) =
            links.iter().partition(|(_, target)| leads_on(target));
        for (link, target) in inner.into_iter().chain(outer) {
            let both =
                known.range(target.clone()..).take_while(|(path, _)| path.starts_with(target));
            let both = both.chain(
                linked.range(target.clone()..).take_while(|(path, _)| path.starts_with(target)),
            );
            let named = |(path, parameter): (&Vec<String>, &std::sync::Arc<Parameter>)| {
                let name = link.iter().chain(&path[target.len()..]).cloned().collect();
                (name, std::sync::Arc::clone(parameter))
            };
            let named: Vec<(Vec<String>, _)> = both.map(named).collect();
            linked.extend(named);
        }
        linked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use sheen_types::Errno;

    use super::{Access, Tree};
    use crate::Pattern;

    #[test]
    fn a_branch_holds_what_is_there_now() {
        let tree = Tree::new();
        let clients = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&clients);
        tree.add_branch("mdt.a.exports", move || {
            let leaf = |number| -> (String, Box<dyn Fn() -> String + Send + Sync>) {
                (format!("10.0.0.{number}@tcp.uuid"), Box::new(move || format!("u{number}")))
            };
            (0..count.load(Ordering::Relaxed)).map(leaf).collect()
        });
        let all = Pattern::new("mdt.*.exports.*.uuid");
        assert!(tree.get(&all).is_empty());
        clients.store(2, Ordering::Relaxed);
        let shown = tree.get(&all);
        assert_eq!(shown[1], ("mdt.a.exports.10.0.0.1@tcp.uuid".to_owned(), "u1".to_owned()));
        assert_eq!(tree.list(&Pattern::new("mdt.a.*"))[0].name, "mdt.a.exports");
        assert_eq!(tree.set(&all, "1")[0].1, Err(Errno::EACCES));
    }

    #[test]
    fn links_lead_to_folders_and_on() {
        let tree = Tree::new();
        tree.add_writable("osc.a.max", || "8".to_owned(), |_| Ok(()));
        tree.add("lov.l.numobd", || "1".to_owned());
        tree.link("lov.l.target_obds.a", "osc.a");
        tree.link("llite.m.lov", "lov.l");
        let name = "llite.m.lov.target_obds.a.max";
        assert_eq!(tree.get(&Pattern::new("llite.*.*.*.*.max")), [(name.into(), "8".into())]);
        assert_eq!(tree.set(&Pattern::new(name), "9"), [(name.to_owned(), Ok(()))]);
        let listed = tree.list(&Pattern::new("llite.m.*"));
        assert_eq!((listed.len(), listed[0].access, listed[0].is_link), (1, None, true));
        assert!(tree.list(&Pattern::new("osc.*.*")).iter().all(|listed| !listed.is_link));
        assert_eq!(tree.get(&Pattern::new("*.*.max")).len(), 1);
    }

    #[test]
    fn parameters_are_listed_read_and_set() {
        let tree = Tree::new();
        let limit = Arc::new(AtomicU64::new(8));
        let (read, write) = (Arc::clone(&limit), Arc::clone(&limit));
        tree.add_writable(
            "osc.a.max",
            move || read.load(Ordering::Relaxed).to_string(),
            move |text| {
                write.store(text.parse().map_err(|_| Errno::EINVAL)?, Ordering::Relaxed);
                Ok(())
            },
        );
        tree.add("osc.a.state", || "FULL".to_owned());
        let all = Pattern::new("osc.*.*");
        assert_eq!(tree.get(&all).len(), 2);
        assert_eq!(tree.list(&Pattern::new("osc.*"))[0].access, None);
        assert_eq!(tree.list(&all)[0].access, Some(Access::ReadWrite));
        let fates = tree.set(&all, "16");
        assert_eq!(fates[0], ("osc.a.max".to_owned(), Ok(())));
        assert_eq!(fates[1], ("osc.a.state".to_owned(), Err(Errno::EACCES)));
        assert_eq!(limit.load(Ordering::Relaxed), 16);
        assert_eq!(tree.set(&Pattern::new("osc.a.max"), "x")[0].1, Err(Errno::EINVAL));
        tree.remove("osc.a");
        assert!(tree.get(&all).is_empty());
    }
}
