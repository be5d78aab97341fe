//! A real C project, fetched as a Debian source package, unpacked, built and tested in a folder.
//!
//! XZ Utils: more than 600 files, a configure script with hundreds of small compilations, a
//! library built with libtool, links and renames, and tests of its own; under a minute on 2 cores
//! with nothing but a C compiler and make.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{must, text};
use crate::{Context, Outcome, ensure, root};

/// The source package.
const PACKAGE: &str = "xz-utils";

/// Fewer files than this is not the project.
const FILES_MIN: usize = 500;

/// Unpacks, builds and tests the project below `top`.
pub fn run(top: &Path) -> Outcome {
    let archive = fetch()?;
    let folder = unpack(top, &archive)?;
    build(&folder)
}

/// Unpacks the archive into a new folder below `top`, which it answers.
pub fn unpack(top: &Path, archive: &Path) -> Outcome<PathBuf> {
    let folder = crate::folder(top, "project")?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).args(["--strip-components", "1", "-C"]).arg(&folder);
    must(&mut tar, &crate::clone::tempfile("tar")?, Duration::from_secs(600))?;
    let files = crate::tree::read(&folder)?.len();
    ensure(files >= FILES_MIN, || format!("{PACKAGE}: only {files} files unpacked"))?;
    Ok(folder)
}

/// Configures, builds and runs the project's own tests.
pub fn build(folder: &Path) -> Outcome {
    step(folder, "./configure --quiet --disable-nls --disable-doc CFLAGS='-O1'")?;
    step(folder, "make -s -j2")?;
    let report = step(folder, "make -s check")?;
    let passed = report.lines().filter(|line| line.starts_with("PASS: ")).count();
    ensure(passed >= 15, || format!("{PACKAGE}: only {passed} of its tests passed\n{report}"))
}

fn step(folder: &Path, line: &str) -> Outcome<String> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .current_dir(folder)
        .env_remove("MAKEFLAGS")
        .env_remove("CARGO_MAKEFLAGS");
    must(&mut shell, &crate::clone::tempfile("project")?, Duration::from_secs(1800))
}

/// The upstream archive of the source package, downloaded once into `target/testdata`.
pub fn fetch() -> Outcome<PathBuf> {
    let cache = root().join("target/testdata");
    fs::create_dir_all(&cache).context(cache.display())?;
    let guard = fs::File::create(cache.join("lock")).context(cache.display())?;
    guard.lock().context(cache.display())?;
    if let Some(found) = find_archive(&cache)? {
        return Ok(found);
    }
    let apt = Apt::new(&cache)?;
    apt.run(&["update"], &cache)?;
    apt.run(&["source", "--download-only", PACKAGE], &cache)?;
    find_archive(&cache)?.ok_or(format!("apt-get source {PACKAGE}: no upstream archive came"))
}

fn find_archive(cache: &Path) -> Outcome<Option<PathBuf>> {
    let entries = fs::read_dir(cache).context(cache.display())?.flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let archive = names.find(|name| {
        name.starts_with(PACKAGE) && name.contains(".orig.tar.") && !name.ends_with(".asc")
    });
    Ok(archive.map(|name| cache.join(name)))
}

/// apt-get with a source list and a state of its own: it changes nothing on the machine and needs
/// no root.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(cache: &Path) -> Outcome<Self> {
        let own = cache.join("apt");
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(own.join(folder)).context(own.display())?;
        }
        let list = own.join("sources.list");
        let line = format!("deb-src http://deb.debian.org/debian {} main\n", codename());
        fs::write(&list, line).context(list.display())?;
        let settings = [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::Lists={}", own.join("lists").display()),
            format!("Dir::Cache={}", own.join("cache").display()),
            "Acquire::Languages=none".to_owned(),
            // The sandbox user may not enter the folder of the user that runs the tests.
            format!(
                "APT::Sandbox::User={}",
                if rustix::process::geteuid().is_root() { "root" } else { "" }
            ),
        ];
        let options = settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]);
        Ok(Self { options: options.collect() })
    }

    fn run(&self, arguments: &[&str], folder: &Path) -> Outcome<String> {
        let mut command = Command::new("apt-get");
        command.arg("-qq").args(&self.options).args(arguments).current_dir(folder);
        let log = crate::clone::tempfile("apt")?;
        must(&mut command, &log, Duration::from_secs(300))
            .map_err(|error| format!("{error}\nthe project's source comes over the network once"))
    }
}

fn codename() -> String {
    let release = text(Path::new("/etc/os-release"));
    let line = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    line.unwrap_or("bookworm").trim_matches('"').to_owned()
}
