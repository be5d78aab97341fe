//! Tests that documents name: they exist.
//!
//! A name counts as a test's if it has a path and is a sentence: `rights::root_is_squashed_where_it_is_not_trusted`.

use std::collections::BTreeSet;

use crate::shell::{Outcome, root};

/// Underscores from which on a name is a sentence.
const SENTENCE: usize = 4;

/// Adds a fault for each test that a document names and no file of Rust has.
pub(super) fn check(faults: &mut Vec<String>) -> Outcome {
    let root = root();
    let mut functions = BTreeSet::new();
    for folder in ["crates", "xtask", "fuzz"] {
        for file in super::files(&root.join(folder), "rs")? {
            functions.extend(functions_of(&super::read(&file)?).map(str::to_owned));
        }
    }
    for file in super::files(&root.join("docs"), "md")? {
        let shown = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        for (line, text) in super::read(&file)?.lines().enumerate() {
            for name in cited(text).filter(|name| !exists(name, &functions)) {
                faults.push(format!("{shown}:{}: there is no test `{name}`", line + 1));
            }
        }
    }
    Ok(())
}

fn functions_of(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    text.split("fn ").skip(1).filter_map(move |rest| rest.split(ends).next())
}

/// The names of tests in a line of a document, without their paths.
fn cited(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter_map(|quoted| quoted.rsplit_once("::")).map(|(_, name)| name).filter(|name| {
        name.matches('_').count() >= SENTENCE
            && name
                .trim_end_matches('…')
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    })
}

/// Whether there is such a function; one that begins so, where the name is cut.
fn exists(name: &str, functions: &BTreeSet<String>) -> bool {
    match name.strip_suffix('…') {
        Some(begin) => {
            let next = functions.range(begin.to_owned()..).next();
            next.is_some_and(|function| function.starts_with(begin))
        }
        None => functions.contains(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_cut_is_looked_up_by_its_beginning() {
        let functions = functions_of("fn a_b_c_d_e() {}\n async fn one_two_three_four_five<T>(")
            .map(str::to_owned)
            .collect();
        let line = "so (`mds::a_b_c_d_e`, `x::one_two_three_four…`, `x::one_two_three_four_six`, `a_b_c_d_f`, `m::A_B_C_D_E`)";
        let missing: Vec<_> = cited(line).filter(|name| !exists(name, &functions)).collect();
        assert_eq!(missing, ["one_two_three_four_six"]);
    }
}
