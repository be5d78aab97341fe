//! Whether the packages are what they should be: built, unpacked beside this system, and tried there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Kind, Packing, at, output, read, remove, tree};
use crate::setup;
use crate::shell::{self, Outcome, command, root};

/// Builds both packages twice and tries what they hold.
pub(crate) fn check() -> Outcome {
    setup::for_dist()?;
    let folder = root().join("target/e2e").join(format!("dist-{}", std::process::id()));
    let checked = check_in(&folder);
    remove(&folder)?;
    checked
}

fn check_in(folder: &Path) -> Outcome {
    let pack = |kind, folder: &Path| super::pack(kind, folder, Packing::Fast);
    let (deb, again) = (pack(Kind::Deb, folder)?, pack(Kind::Deb, &folder.join("again"))?);
    let same = fs::read(&deb).map_err(at(&deb))? == fs::read(&again).map_err(at(&again))?;
    ensure(same, || format!("{}: built again it is another one", deb.display()))?;
    let rpm = pack(Kind::Rpm, folder)?;
    let top = folder.join("root");
    let mut unpack = command("dpkg-deb");
    shell::run({
        unpack.arg("-x").arg(&deb).arg(&top);
        unpack
    })?;
    check_tools(&top)?;
    check_modes(&top)?;
    check_units(&top)?;
    check_completions(&top)?;
    check_same_files(&top, &rpm)?;
    check_container(folder)
}

/// Each name leads to the program, and each is that tool.
fn check_tools(top: &Path) -> Outcome {
    let version = output(command(top.join("usr/bin/sheen")).arg("--version"))?;
    let wanted = format!("(Sheen {})", env!("CARGO_PKG_VERSION"));
    ensure(version.ends_with(&wanted), || format!("{version}, not {wanted}"))?;
    for (link, _) in tree::LINKS {
        let link = top.join(link);
        let name = link.file_name().expect("a name").to_string_lossy().into_owned();
        let help = output(command(&link).arg("--help"))?;
        // That of the program itself lists the tools.
        let is_its_own = help.contains("Usage:") && !help.contains("Start a whole file system");
        ensure(is_its_own, || format!("{name} --help is\n{help}"))?;
        let page = top.join(format!("usr/share/man/man1/{name}.1"));
        ensure(read(&page)?.contains(".SH NAME"), || format!("{}: no page", page.display()))?;
    }
    Ok(())
}

fn check_modes(top: &Path) -> Outcome {
    for (folder, mode) in tree::FOLDERS {
        let folder = top.join(folder);
        let found = fs::metadata(&folder).map_err(at(&folder))?.permissions().mode() & 0o7777;
        ensure(found == mode, || format!("{}: {found:o}, not {mode:o}", folder.display()))?;
    }
    Ok(())
}

/// systemd reads the units, without a complaint, in a system that has its own units and these.
fn check_units(top: &Path) -> Outcome {
    let units = top.join(tree::UNITS);
    for path in ["/usr/lib/systemd/system", "/lib/systemd/system"].map(Path::new) {
        let known = fs::read_dir(path).into_iter().flatten().flatten();
        for path in known.map(|entry| entry.path()).filter(|path| path.is_file()) {
            let place = units.join(path.file_name().expect("a name"));
            if !place.exists() {
                fs::copy(&path, &place).map_err(at(&path))?;
            }
        }
        if units.join("network-online.target").exists() {
            break;
        }
    }
    // What the units call beside the program.
    let mkdir = top.join("bin/mkdir");
    fs::create_dir_all(top.join("bin")).map_err(at(&mkdir))?;
    fs::copy("/bin/mkdir", &mkdir).map_err(at(&mkdir))?;
    let mut verify = command("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(format!("--root={}", top.display()));
    verify.args(["sheen-server@mds1.service", "sheen-mount@mnt-data.service"]);
    let found = verify.output().map_err(|error| format!("systemd-analyze: {error}"))?;
    let said = String::from_utf8_lossy(&found.stderr);
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("sheen")).collect();
    ensure(found.status.success() && ours.is_empty(), || format!("{}\n{said}", found.status))
}

/// bash reads its completions, and completes by them.
fn check_completions(top: &Path) -> Outcome {
    let folder = top.join("usr/share/bash-completion/completions");
    for tool in tree::tools() {
        output(command("bash").arg("-n").arg(folder.join(tool)))?;
    }
    let script = "source \"$0\"; COMP_WORDS=(lfs setst) COMP_CWORD=1; _lfs lfs setst lfs; echo ${COMPREPLY[*]}";
    let found = output(command("bash").args(["-c", script]).arg(folder.join("lfs")))?;
    ensure(found == "setstripe", || format!("lfs setst is completed to '{found}'"))
}

/// Both packages hold the same, but for the place where zsh looks.
fn check_same_files(top: &Path, rpm: &Path) -> Outcome {
    let listed = output(command("rpm").arg("-qlp").arg(rpm))?;
    let other_place = |path: &str| path.replace("site-functions", "vendor-completions");
    let listed: BTreeSet<String> = listed.lines().map(other_place).collect();
    let missing: Vec<&String> =
        listed.iter().filter(|path| top.join(&path[1..]).symlink_metadata().is_err()).collect();
    ensure(missing.is_empty(), || format!("only in {}: {missing:?}", rpm.display()))?;
    let packed = ["/usr/bin/sheen", "/usr/sbin/mount.lustre", "/usr/share/doc/sheen/OPERATIONS.md"];
    let lacks: Vec<_> = packed.iter().filter(|path| !listed.contains(**path)).collect();
    ensure(lacks.is_empty(), || format!("{}: no {lacks:?}", rpm.display()))
}

/// What the container copies is there after a build; the container itself needs a registry.
fn check_container(built: &Path) -> Outcome {
    let text = read(&root().join("contrib/Containerfile"))?;
    let names: Vec<String> = fs::read_dir(built)
        .map_err(at(built))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let copied = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    let sources: Vec<&str> = copied.filter_map(|line| line.split_whitespace().next()).collect();
    ensure(!sources.is_empty(), || "the container copies nothing".to_owned())?;
    for source in sources {
        let (head, tail) = source.split_once('*').unwrap_or((source, ""));
        let is_there = names.iter().any(|name| match source.contains('*') {
            true => name.starts_with(head) && name.ends_with(tail),
            false => name == source,
        });
        ensure(is_there, || format!("the container copies {source}, which no build makes"))?;
    }
    Ok(())
}

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(fault()) }
}
