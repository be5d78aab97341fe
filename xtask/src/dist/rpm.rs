//! The RPM package: rpmbuild over the staged tree and `contrib/package/sheen.spec`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Facts, Packing, at, remove, tree};
use crate::shell::{self, command, root};

pub(super) fn pack(
    staged: &Path,
    folder: &Path,
    facts: &Facts,
    packing: Packing,
) -> Result<PathBuf, String> {
    let work = folder.join("rpmbuild");
    remove(&work)?;
    fs::create_dir_all(&work).map_err(at(&work))?;
    let list = work.join("files");
    fs::write(&list, files(staged)?).map_err(at(&list))?;
    let mut build = command("rpmbuild");
    build.args(["-bb", "--quiet", "--nodeps"]).env("SOURCE_DATE_EPOCH", &facts.time);
    if packing == Packing::Fast {
        build.args(["--define", "_binary_payload w1.gzdio"]);
    }
    let (work_text, version) = (work.display(), &facts.version);
    for define in [
        format!("_topdir {work_text}"),
        format!("sheen_version {version}"),
        format!("sheen_staged {}", staged.display()),
        format!("sheen_files {}", list.display()),
    ] {
        build.args(["--define", &define]);
    }
    build.arg(root().join("contrib/package/sheen.spec"));
    shell::run(build)?;
    let name = format!("sheen-{version}-1.{}.rpm", facts.machine);
    let (made, package) = (work.join("RPMS").join(&facts.machine).join(&name), folder.join(&name));
    fs::rename(&made, &package).map_err(at(&made))?;
    remove(&work)?;
    Ok(package)
}

/// The list of `%files`: all files, and the folders that are the package's own.
fn files(staged: &Path) -> Result<String, String> {
    let mut list = String::new();
    for path in tree::all(staged)? {
        let below = path.strip_prefix(staged).expect("below it");
        let is_folder = fs::symlink_metadata(&path).map_err(at(&path))?.is_dir();
        let own = tree::FOLDERS.iter().find(|(name, _)| below == Path::new(name));
        let below = below.display();
        match own {
            Some((_, mode)) => _ = writeln!(list, "%dir %attr({mode:o}, root, root) /{below}"),
            None if is_folder => {}
            None => _ = writeln!(list, "/{below}"),
        }
    }
    Ok(list)
}
