//! The Debian package: dpkg-deb over the staged tree and `contrib/package/control`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Facts, Packing, at, output, read, remove, tree};
use crate::shell::{self, Outcome, command, root};

pub(super) fn pack(
    staged: &Path,
    folder: &Path,
    facts: &Facts,
    packing: Packing,
) -> Result<PathBuf, String> {
    let architecture = architecture(&facts.machine);
    let about = staged.join("DEBIAN");
    remove(&about)?;
    fs::create_dir(&about).map_err(at(&about))?;
    let control = control(staged, facts, architecture)?;
    write(&about.join("control"), &control, 0o644)?;
    write(&about.join("md5sums"), &sums(staged)?, 0o644)?;
    let reload = read(&root().join("contrib/package/reload"))?;
    for script in ["postinst", "postrm"] {
        write(&about.join(script), &reload, 0o755)?;
    }
    let package = folder.join(format!("sheen_{}_{architecture}.deb", facts.version));
    let mut build = command("dpkg-deb");
    if packing == Packing::Fast {
        build.args(["-Zgzip", "-z1"]);
    }
    build.args(["--root-owner-group", "--build"]).arg(staged).arg(&package);
    // Times that are later are set to this one, and all are.
    build.env("SOURCE_DATE_EPOCH", &facts.time);
    shell::run(build)?;
    Ok(package)
}

/// What Debian calls a processor.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn control(staged: &Path, facts: &Facts, architecture: &str) -> Result<String, String> {
    let text = read(&root().join("contrib/package/control"))?;
    let mut bytes = 0;
    for path in tree::all(staged)? {
        bytes += fs::symlink_metadata(&path).map_err(at(&path))?.len();
    }
    let values = [
        ("@VERSION@", facts.version.clone()),
        ("@ARCHITECTURE@", architecture.to_owned()),
        ("@KIB@", bytes.div_ceil(1024).to_string()),
        ("@GLIBC@", glibc(&staged.join("usr/bin/sheen"))?),
    ];
    Ok(values.iter().fold(text, |text, (name, value)| text.replace(name, value)))
}

/// The oldest glibc that has all that the program needs of it.
fn glibc(program: &Path) -> Result<String, String> {
    let symbols = output(command("objdump").arg("-T").arg(program))?;
    newest_glibc(&symbols).ok_or_else(|| format!("{}: needs no glibc", program.display()))
}

/// The newest version of glibc among symbols as objdump lists them.
fn newest_glibc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        &rest[..end.unwrap_or(rest.len())]
    });
    let numbers = |version: &&str| -> Vec<u32> {
        version.split('.').filter_map(|number| number.parse().ok()).collect()
    };
    versions.max_by_key(numbers).map(str::to_owned)
}

/// What `dpkg --verify` compares.
fn sums(staged: &Path) -> Result<String, String> {
    let mut sum = command("md5sum");
    sum.current_dir(staged);
    for path in tree::all(staged)? {
        let below = path.strip_prefix(staged).expect("below it");
        let found = fs::symlink_metadata(&path).map_err(at(&path))?;
        if found.is_file() && !below.starts_with("DEBIAN") {
            sum.arg(below);
        }
    }
    output(&mut sum).map(|text| format!("{text}\n"))
}

fn write(path: &Path, text: &str, mode: u32) -> Outcome {
    fs::write(path, text).map_err(at(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_found_by_its_numbers() {
        let symbols = "DF *UND* (GLIBC_2.2.5) read\nDF *UND* (GLIBC_2.34) x\nDF (GLIBC_2.9)  y";
        assert_eq!(newest_glibc(symbols).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("none"), None);
    }
}
