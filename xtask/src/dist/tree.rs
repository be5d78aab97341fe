//! What a package holds, and where.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{Kind, at, output};
use crate::shell::{self, Outcome, command, root};

const PROGRAM: &str = "usr/bin/sheen";

/// Names by which the program is called as a tool, and what each is a link to.
pub(super) const LINKS: [(&str, &str); 8] = [
    ("usr/bin/lfs", "sheen"),
    ("usr/bin/lctl", "sheen"),
    ("usr/bin/lnetctl", "sheen"),
    ("usr/sbin/mkfs.lustre", "../bin/sheen"),
    // mount(8) and umount(8) look for them there.
    ("usr/sbin/mount.lustre", "../bin/sheen"),
    ("usr/sbin/mount.fuse.lustre", "../bin/sheen"),
    ("usr/sbin/umount.lustre", "../bin/sheen"),
    ("usr/sbin/umount.fuse.lustre", "../bin/sheen"),
];

/// Files of this tree, and the folder that each goes to.
const FILES: [(&str, &str); 17] = [
    ("contrib/systemd/sheen-server@.service", UNITS),
    ("contrib/systemd/sheen-mount@.service", UNITS),
    ("contrib/systemd/sheen-servers.target", UNITS),
    ("contrib/package/server.conf", "usr/share/doc/sheen/examples"),
    ("contrib/package/mount.conf", "usr/share/doc/sheen/examples"),
    ("contrib/grafana/sheen.json", "usr/share/doc/sheen/grafana"),
    ("README.md", DOCUMENTS),
    ("ARCHITECTURE.md", DOCUMENTS),
    ("CHANGELOG.md", DOCUMENTS),
    ("LICENSE-APACHE", DOCUMENTS),
    ("LICENSE-MIT", DOCUMENTS),
    ("docs/OPERATIONS.md", DOCUMENTS),
    ("docs/COMPAT.md", DOCUMENTS),
    ("docs/CONFORMANCE.md", DOCUMENTS),
    ("docs/GLOSSARY.md", DOCUMENTS),
    ("docs/SECURITY.md", DOCUMENTS),
    ("docs/SEMANTICS.md", DOCUMENTS),
];

pub(super) const UNITS: &str = "usr/lib/systemd/system";
const DOCUMENTS: &str = "usr/share/doc/sheen";
const PAGES: &str = "usr/share/man";

/// Folders that are empty at first, with their modes.
pub(super) const FOLDERS: [(&str, u32); 3] =
    [("etc/sheen/servers", 0o755), ("etc/sheen/mounts", 0o755), ("var/lib/sheen", 0o700)];

/// Lays all of it out below `top`.
pub(super) fn stage(kind: Kind, program: &Path, top: &Path) -> Outcome {
    stage_program(program, &top.join(PROGRAM))?;
    for (source, folder) in FILES {
        let source = root().join(source);
        let name = source.file_name().expect("a file");
        let text = fs::read(&source).map_err(at(&source))?;
        write(&top.join(folder).join(name), &text, 0o644)?;
    }
    for (folder, mode) in FOLDERS {
        let folder = top.join(folder);
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        chmod(&folder, mode)?;
    }
    stage_completions(kind, program, top)?;
    stage_pages(program, top)?;
    for (link, aim) in LINKS {
        put_link(aim, &top.join(link))?;
    }
    settle_modes(top)
}

/// The program without what debuggers need; the names of functions stay, for backtraces.
fn stage_program(program: &Path, place: &Path) -> Outcome {
    make_parent(place)?;
    let mut strip = command("strip");
    strip.args(["--strip-debug", "-o"]).arg(place).arg(program);
    shell::run(strip)?;
    chmod(place, 0o755)
}

/// The tools by name: the program and its links.
pub(super) fn tools() -> impl Iterator<Item = &'static str> {
    let links = LINKS.iter().map(|(link, _)| link.rsplit('/').next().expect("a name"));
    std::iter::once("sheen").chain(links)
}

fn stage_completions(kind: Kind, program: &Path, top: &Path) -> Outcome {
    let zsh = match kind {
        Kind::Deb => "usr/share/zsh/vendor-completions/_",
        Kind::Rpm => "usr/share/zsh/site-functions/_",
    };
    let bash = "usr/share/bash-completion/completions/";
    let fish = "usr/share/fish/vendor_completions.d/";
    for (shell, place, ending) in [("bash", bash, ""), ("zsh", zsh, ""), ("fish", fish, ".fish")] {
        for tool in tools() {
            let text = output(command(program).args(["completions", shell, tool]))?;
            let place = top.join(format!("{place}{tool}{ending}"));
            write(&place, format!("{text}\n").as_bytes(), 0o644)?;
        }
    }
    Ok(())
}

/// Manual pages, and those of tools under their own names.
fn stage_pages(program: &Path, top: &Path) -> Outcome {
    let pages = top.join(PAGES);
    output(command(program).arg("man").arg(&pages))?;
    for tool in tools().filter(|tool| *tool != "sheen") {
        // The name of its page among the program's.
        let page = match tool {
            "mount.fuse.lustre" => "mount.lustre",
            "umount.fuse.lustre" => "umount.lustre",
            tool => tool,
        };
        let page = format!("sheen-{page}.1");
        let found = pages.join("man1").join(&page);
        if !found.is_file() {
            return Err(format!("{}: not written", found.display()));
        }
        put_link(&page, &pages.join("man1").join(format!("{tool}.1")))?;
    }
    Ok(())
}

fn put_link(aim: &str, place: &Path) -> Outcome {
    make_parent(place)?;
    symlink(aim, place).map_err(at(place))
}

fn write(place: &Path, text: &[u8], mode: u32) -> Outcome {
    make_parent(place)?;
    fs::write(place, text).map_err(at(place))?;
    chmod(place, mode)
}

fn make_parent(place: &Path) -> Outcome {
    let parent = place.parent().expect("below the top");
    fs::create_dir_all(parent).map_err(at(parent))
}

fn chmod(path: &Path, mode: u32) -> Outcome {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at(path))
}

/// Modes do not come from this user's umask.
fn settle_modes(top: &Path) -> Outcome {
    chmod(top, 0o755)?;
    for path in all(top)? {
        let is_private =
            FOLDERS.iter().any(|(name, mode)| *mode == 0o700 && top.join(name) == path);
        let found = fs::symlink_metadata(&path).map_err(at(&path))?;
        if found.is_dir() && !is_private {
            chmod(&path, 0o755)?;
        } else if found.is_file() && path != top.join(PROGRAM) {
            chmod(&path, 0o644)?;
        }
    }
    Ok(())
}

/// All below `top`, sorted.
pub(super) fn all(top: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut ahead = vec![top.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let path = entry.map_err(at(&folder))?.path();
            let is_folder = fs::symlink_metadata(&path).map_err(at(&path))?.is_dir();
            ahead.extend(is_folder.then(|| path.clone()));
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_has_a_link_for_each_name_that_chooses_a_tool() {
        let source = root().join("crates/sheen/src/main.rs");
        let text = super::super::read(&source).expect("the program's source");
        let list = text.split_once("const LINK_NAMES").expect("the names").1;
        let list = list.split_once("= [").expect("a list").1.split_once(']').expect("its end").0;
        let mut names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        names.sort_unstable();
        let mut links: Vec<&str> = tools().skip(1).collect();
        links.sort_unstable();
        assert_eq!(links, names);
    }

    #[test]
    fn all_files_that_are_packed_are_here() {
        for (source, _) in FILES {
            assert!(root().join(source).is_file(), "{source}");
        }
    }
}
