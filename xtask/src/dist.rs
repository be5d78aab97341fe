//! `cargo xtask dist`: packages for Debian and for distributions with RPM, into `target/dist`.
//!
//! Both hold the same tree ([`tree`]), staged first and packed by dpkg-deb and rpmbuild. The same sources give the
//! same bytes: times are those of the last commit, names and owners do not depend on this machine.

mod check;
mod deb;
mod rpm;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

pub(crate) use check::check;

use crate::setup;
use crate::shell::{self, Outcome, Profile, command, program, root};

/// Which packages.
#[derive(Args)]
pub(crate) struct Options {
    /// One kind alone [default: both]
    #[arg(long, value_enum)]
    only: Option<Kind>,
    /// Build both aside, unpack them and try what they hold
    #[arg(long, conflicts_with = "only")]
    check: bool,
}

/// What is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// For Debian and alike
    Deb,
    /// For Fedora, RHEL, SLES and alike
    Rpm,
}

const KINDS: [Kind; 2] = [Kind::Deb, Kind::Rpm];

/// How it is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    Small,
    /// To look at it and remove it.
    Fast,
}

impl Packing {
    /// How the program in it is built.
    fn profile(self) -> Profile {
        match self {
            Self::Small => Profile::Release,
            Self::Fast => Profile::Gate,
        }
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    setup::for_dist()?;
    if options.check {
        shell::build_program(Packing::Fast.profile())?;
        return check();
    }
    shell::build_program(Packing::Small.profile())?;
    let folder = root().join("target/dist");
    for kind in KINDS.into_iter().filter(|kind| options.only.is_none_or(|only| only == *kind)) {
        println!("{}", pack(kind, &folder, Packing::Small)?.display());
    }
    Ok(())
}

/// Makes a package below `folder`; the one of an earlier build goes.
fn pack(kind: Kind, folder: &Path, packing: Packing) -> Result<PathBuf, String> {
    let facts = Facts::gather()?;
    let staged = folder.join("staged");
    remove(&staged)?;
    tree::stage(kind, &program(packing.profile()), &staged)?;
    let packed = match kind {
        Kind::Deb => deb::pack(&staged, folder, &facts, packing),
        Kind::Rpm => rpm::pack(&staged, folder, &facts, packing),
    };
    remove(&staged)?;
    packed
}

/// What a package says of itself.
struct Facts {
    version: String,
    /// As the processor is called by `uname`.
    machine: String,
    /// Seconds since 1970 of all that is packed: of the last commit, or what `SOURCE_DATE_EPOCH` says.
    time: String,
}

impl Facts {
    fn gather() -> Result<Self, String> {
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(time) => time,
            Err(_) => output(command("git").args(["log", "-1", "--format=%ct"]))?,
        };
        let machine = output(command("uname").arg("-m"))?;
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), machine, time })
    }
}

/// What a program writes, without the end of its line.
fn output(command: &mut Command) -> Result<String, String> {
    let shown = shell::show(command);
    let output = command.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown}: {}\n{said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn remove(folder: &Path) -> Outcome {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

/// For errors of files: which one.
fn at(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(at(path))
}
