//! Parameters that are set when a file system is mounted: by options, and by the files of `mount.lustre`.

use std::path::Path;

use sheen_control::{Pattern, Tree};

/// Where the files are.
const FOLDER: &str = "/etc/lustre";

/// Sets what the options say, then what the files for all mounts and for those of `fsname` say.
pub(super) fn apply(tree: &Tree, options: &[(String, String)], fsname: &str) {
    options.iter().for_each(|(name, value)| set(tree, name, value));
    for name in ["client", fsname] {
        let path = Path::new(FOLDER).join(format!("mount.{name}.params"));
        // It is not there as a rule.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        settings(&text).for_each(|(name, value)| set(tree, name, value));
    }
}

/// The lines `NAME=VALUE`; what is behind a `#` is for readers.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().filter_map(|line| line.split('#').next()?.trim().split_once('='));
    lines.map(|(name, value)| (name.trim(), value.trim()))
}

fn set(tree: &Tree, name: &str, value: &str) {
    let done = tree.set(&Pattern::new(name), value);
    if done.is_empty() {
        tracing::warn!(name, value, "no such parameter");
    }
    for (name, failed) in done {
        match failed {
            Ok(()) => tracing::info!(name, value, "set"),
            Err(error) => tracing::warn!(name, value, %error, "not set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_parameter_on_each_line() {
        let text = "# all\nllite.*.lazystatfs=0 # wait\n\n  osc.*.max_dirty_mb = 64\nno value\n";
        let found: Vec<_> = settings(text).collect();
        assert_eq!(found, [("llite.*.lazystatfs", "0"), ("osc.*.max_dirty_mb", "64")]);
    }
}
