//! Running programs, and saying which.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// What a task answers: nothing, or one line on what went wrong.
pub(crate) type Outcome = Result<(), String>;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As users get it: what benchmarks measure.
    Release,
    /// As fast but for a few per cent, and built in a third of the time: what tests run.
    Gate,
}

impl Profile {
    /// The argument of `cargo build` and `cargo test`, and the folder of what they make.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Gate => "gate",
        }
    }
}

/// `sheen` as `profile` builds it, or `$SHEEN_BIN`.
pub(crate) fn program(profile: Profile) -> PathBuf {
    std::env::var_os("SHEEN_BIN").map_or_else(|| built("sheen", profile), PathBuf::from)
}

/// Where `cargo build` puts a program.
fn built(name: &str, profile: Profile) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(target).join(profile.name()).join(name)
}

/// Builds [`program`], unless another one is named.
pub(crate) fn build_program(profile: Profile) -> Outcome {
    if std::env::var_os("SHEEN_BIN").is_some() {
        return Ok(());
    }
    run(cargo(&["build", "--profile", profile.name(), "--package", "sheen"]))
}

/// Builds the simulator and answers where it is.
///
/// And [`program`] with it: each alone, the libraries of both would be built for each, since they ask
/// for other features of what they stand on.
pub(crate) fn build_simulator() -> Result<PathBuf, String> {
    let profile = Profile::Gate;
    let mut build = cargo(&["build", "--profile", profile.name(), "--package", "sheen-sim"]);
    if std::env::var_os("SHEEN_BIN").is_none() {
        build.args(["--package", "sheen"]);
    }
    run(build)?;
    Ok(built("sheen-sim", profile))
}

/// A command in the root folder.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// `cargo` with `arguments`, in the root folder.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// The same command, in which signals that end a program do so. A shell has what it starts in the background ignore
/// SIGINT, `nohup` SIGHUP, and programs inherit that: tests that interrupt a program would wait for it in vain.
pub(crate) fn with_default_signals(inner: &Command) -> Command {
    let mut outer = command("env");
    outer.arg("--default-signal=HUP,INT,QUIT,TERM").arg(inner.get_program()).args(inner.get_args());
    outer
}

/// Prints the command, runs it, and fails if it does.
pub(crate) fn run(mut command: Command) -> Outcome {
    let shown = show(&command);
    eprintln!("$ {shown}");
    let status = command.status().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Whether `program` lies on the path.
pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The command as one line.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
