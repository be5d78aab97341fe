//! The order of a crate's modules: no two of them use each other, and where `layers.toml` has an order, a module uses only
//! those that stand before it.
//!
//! Reads text, not syntax: `crate::name`, `crate::{name, ..}` and as many `super::` as lead to the crate's root.
//! Tests may use everything.

use std::collections::{BTreeMap, BTreeSet};

/// A source file of a crate.
pub(crate) struct Source {
    /// Its path from `src/`, such as `cache/mod.rs`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What in `sources` is against `order`, lowest module first: a line for each, with the path behind `shown`.
pub(crate) fn faults(shown: &str, order: &[String], sources: &[Source]) -> Vec<String> {
    let tests: BTreeSet<String> = sources.iter().flat_map(test_modules).collect();
    let mut faults = Vec::new();
    for source in sources {
        let path = components(&source.path);
        let Some(own) = path.first().filter(|_| !is_within(&path, &tests)) else { continue };
        let Some(rank) = rank(order, own) else {
            faults.push(format!("{shown}/{}: `{own}` is not in layers.toml's order", source.path));
            continue;
        };
        for (line, used) in uses(&source.text, path.len()) {
            let Some(above) = self::rank(order, &used).filter(|used| *used > rank) else {
                continue;
            };
            let at = format!("{shown}/{}:{line}", source.path);
            let name = &order[above];
            faults.push(format!("{at}: `{own}` may not use `{name}`, which stands above it"));
        }
    }
    faults
}

/// Circles of modules in `sources` that `allowed` does not have, and modules in it that are in none: a line for each.
///
/// A circle is of modules each of which uses all of the same circle, over the modules between.
pub(crate) fn circles(shown: &str, allowed: &[Vec<String>], sources: &[Source]) -> Vec<String> {
    let reached = reached(&uses_of_modules(sources));
    let is_in_one = |one: &str, other: &str| {
        reached.get(one).is_some_and(|seen| seen.contains(other))
            && reached.get(other).is_some_and(|seen| seen.contains(one))
    };
    let mut faults = BTreeSet::new();
    for one in reached.keys() {
        let circle: Vec<&str> =
            reached.keys().filter(|other| is_in_one(one, other)).map(String::as_str).collect();
        let is_known = |known: &Vec<String>| circle.iter().all(|it| known.iter().any(|k| k == it));
        if !circle.is_empty() && !allowed.iter().any(is_known) {
            faults.insert(format!("{shown}: these use each other: {}", circle.join(", ")));
        }
    }
    for (circle, one) in
        allowed.iter().flat_map(|circle| circle.iter().map(move |one| (circle, one)))
    {
        if !circle.iter().any(|other| other != one && is_in_one(one, other)) {
            faults.insert(format!("{shown}: `{one}` is in no circle, as layers.toml has it"));
        }
    }
    faults.into_iter().collect()
}

/// Which modules each module of a crate uses. What is for tests alone has no part in it.
fn uses_of_modules(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let tests: BTreeSet<String> = sources.iter().flat_map(test_modules).collect();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let path = components(&source.path);
        let Some(own) = path.first().filter(|_| !is_within(&path, &tests)) else { continue };
        let used = all.entry((*own).to_owned()).or_default();
        used.extend(uses(&source.text, path.len()).into_iter().map(|(_, name)| name));
    }
    let modules: BTreeSet<String> = all.keys().cloned().collect();
    for (own, used) in &mut all {
        used.retain(|name| name != own && modules.contains(name));
    }
    all
}

/// All that each module uses, over the modules between; itself only if it is in a circle.
fn reached(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for own in uses.keys() {
        let mut seen = BTreeSet::new();
        let mut open = vec![own];
        while let Some(next) = open.pop() {
            open.extend(uses[next].iter().filter(|used| seen.insert((*used).clone())));
        }
        all.insert(own.clone(), seen);
    }
    all
}

fn rank(order: &[String], module: &str) -> Option<usize> {
    order.iter().position(|known| known == module)
}

/// The modules that lead to a file; none for `lib.rs`.
fn components(path: &str) -> Vec<&str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" || path == "main" { Vec::new() } else { path.split('/').collect() }
}

fn is_within(path: &[&str], modules: &BTreeSet<String>) -> bool {
    (1..=path.len()).any(|length| modules.contains(&path[..length].join("/")))
}

/// The modules in files of their own that a file declares for tests.
fn test_modules(source: &Source) -> Vec<String> {
    let parent = components(&source.path);
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| is_for_tests(pair[0]));
    let declared = pairs.filter_map(|pair| declared_module(pair[1]));
    declared.map(|name| [&parent[..], &[name]].concat().join("/")).collect()
}

/// `#[cfg(test)]`, or that the feature `testing` has a crate show to the tests of crates above it.
fn is_for_tests(line: &str) -> bool {
    line == "#[cfg(test)]" || line == "#[cfg(any(test, feature = \"testing\"))]"
}

/// `name` of `mod name;`, whatever its visibility.
fn declared_module(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then_some(name)
}

/// The modules of the crate that a file's code names, with the line of each. `depth` is how many `super::` lead
/// from the file to the crate's root.
fn uses(text: &str, depth: usize) -> Vec<(usize, String)> {
    let code = code_of(text);
    let roots = ["crate::".to_owned(), "super::".repeat(depth)];
    let mut found = Vec::new();
    for root in roots {
        for (at, _) in code.match_indices(&root) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|it| is_of_name(it) || it == '$' || it == ':') {
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            let names = first_names(&code[at + root.len()..]);
            found.extend(names.into_iter().map(|name| (line, name)));
        }
    }
    found
}

/// The code without comments and tests, which are the end of a file; lines keep their numbers.
pub(crate) fn code_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_end = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{');
    let end = lines.windows(2).position(is_end).unwrap_or(lines.len());
    let code = lines[..end].iter().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// The names that a path goes on with: one, or those of `{..}` without what they have in braces of their own.
fn first_names(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else { return name_at(rest).into_iter().collect() };
    let mut names = Vec::new();
    let mut depth = 1;
    let mut is_first = true;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => is_first = true,
            letter if depth == 1 && is_first && is_of_name(letter) => {
                names.extend(name_at(&group[at..]));
                is_first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn name_at(rest: &str) -> Option<String> {
    let name: String = rest.chars().take_while(|letter| is_of_name(*letter)).collect();
    (!name.is_empty()).then_some(name)
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let order = ["types", "locks", "cache"].map(str::to_owned);
        let lib = "pub mod locks;\n#[cfg(test)]\npub(crate) mod testing;\n";
        let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        faults("src", &order, &[file("lib.rs", lib), file(path, text)])
    }

    #[test]
    fn a_module_that_uses_one_above_it_is_a_fault() {
        let fault =
            |at: &str| [format!("src/{at}: `locks` may not use `cache`, which stands above it")];
        assert_eq!(found("locks.rs", "\nuse crate::cache::Inode;"), fault("locks.rs:2"));
        assert_eq!(found("locks/mod.rs", "use crate::{types, cache};"), fault("locks/mod.rs:1"));
        let group = "use crate::{\n    types::{A, B},\n    cache::{C},\n};";
        assert_eq!(found("locks/held.rs", group), fault("locks/held.rs:1"));
        assert_eq!(found("locks/held.rs", "let a = (crate::cache::B);"), fault("locks/held.rs:1"));
        assert_eq!(found("locks/held.rs", "use super::super::cache;"), fault("locks/held.rs:1"));
        assert_eq!(found("locks.rs", "use super::cache::Inode;"), fault("locks.rs:1"));
        let late = "#[cfg(test)]\nmod tests;\nuse crate::cache::Inode;";
        assert_eq!(found("locks/mod.rs", late), fault("locks/mod.rs:3"));
    }

    #[test]
    fn modules_that_use_each_other_are_a_fault_unless_the_circle_is_named() {
        let file = |path: &str, uses: &str| Source {
            path: path.to_owned(),
            text: uses.split_whitespace().map(|it| format!("use crate::{it}::A;\n")).collect(),
        };
        let tests = Source {
            path: "lib.rs".to_owned(),
            text: "#[cfg(any(test, feature = \"testing\"))]\npub mod testing;\n".to_owned(),
        };
        let sources = [
            tests,
            file("a.rs", "b testing"),
            file("b/mod.rs", "types"),
            file("b/c.rs", "d"),
            file("d.rs", "a"),
            file("e.rs", "a b d"),
            file("types.rs", ""),
            file("testing.rs", "e a"),
        ];
        let named = |circles: &[&[&str]]| {
            let owned = |circle: &&[&str]| circle.iter().map(|it| (*it).to_owned()).collect();
            let circles: Vec<Vec<String>> = circles.iter().map(owned).collect();
            circles_of(&circles, &sources)
        };
        assert_eq!(named(&[]), ["src: these use each other: a, b, d"]);
        assert_eq!(named(&[&["a", "b"]]), ["src: these use each other: a, b, d"]);
        assert_eq!(named(&[&["a", "b", "d"]]), Vec::<String>::new());
        let wide = ["src: `e` is in no circle, as layers.toml has it"];
        assert_eq!(named(&[&["a", "b", "d", "e"]]), wide);
    }

    fn circles_of(allowed: &[Vec<String>], sources: &[Source]) -> Vec<String> {
        circles("src", allowed, sources)
    }

    #[test]
    fn what_stands_below_comments_and_tests_are_no_faults() {
        for text in [
            "use crate::types::cache;",
            "use crate::{types::{cache}, locks};",
            "use super::cache;",
            "// crate::cache keeps what locks cover.",
            "use sheen_crate::cache;",
            "#[cfg(test)]\nmod tests {\n    use crate::cache::Inode;\n}",
        ] {
            assert_eq!(found("locks/held.rs", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("cache.rs", "use crate::{locks, types};"), Vec::<String>::new());
        assert_eq!(found("testing/mod.rs", "use crate::cache::Inode;"), Vec::<String>::new());
        let unknown = "src/posix.rs: `posix` is not in layers.toml's order";
        assert_eq!(found("posix.rs", ""), [unknown]);
    }
}
