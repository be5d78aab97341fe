//! `lctl`: parameters, devices and networks of the Sheen processes on this machine.
//!
//! Options, output and exit codes follow Lustre's `lctl`, so that scripts written for it work.

mod devices;
mod net;
mod params;

use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sheen_control::{Answer, Client, Question, run_folder};
use sheen_types::Errno;

/// Look at and set what runs on this machine
#[derive(Args)]
pub(crate) struct Lctl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Get the values of parameters
    #[command(name = "get_param")]
    GetParam(params::Get),
    /// Set the values of parameters
    #[command(name = "set_param")]
    SetParam(params::Set),
    /// List the names of parameters
    #[command(name = "list_param")]
    ListParam(params::List),
    /// Show all local devices
    #[command(name = "dl", alias = "device_list")]
    Devices(devices::Devices),
    /// Check whether a node answers
    Ping(net::Ping),
    /// Show the NIDs of this machine's processes
    #[command(name = "list_nids")]
    ListNids,
}

/// Runs the command; exit code 0, or the errno of what failed as Lustre's tool has it.
pub(crate) fn run(arguments: &Lctl) -> ExitCode {
    match &arguments.command {
        Command::GetParam(options) => params::get(options),
        Command::SetParam(options) => params::set(options),
        Command::ListParam(options) => params::list(options),
        Command::Devices(options) => devices::show(options),
        Command::Ping(options) => net::ping(options),
        Command::ListNids => net::list_nids(),
    }
}

/// All processes of this machine that we may talk to.
pub(crate) fn processes() -> Vec<Client> {
    Client::all(&run_folder(rustix::process::geteuid().is_root(), rustix::process::geteuid().as_raw()))
}

/// Asks every process; those that went away are passed over.
pub(crate) fn ask_all(question: &Question) -> Vec<Answer> {
    let answer = |mut process: Client| process.ask(question).ok();
    processes().into_iter().filter_map(answer).collect()
}

/// Runs a named command in every process that has it: its texts, or the first failure if no
/// process succeeded.
pub(crate) fn command_all(name: &str, arguments: &[&str]) -> Result<Vec<String>, (Errno, String)> {
    let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
    let question = Question::Command { name: name.to_owned(), arguments };
    let mut texts = Vec::new();
    let mut failure = None;
    for answer in ask_all(&question) {
        match answer {
            Answer::Text(text) => texts.push(text),
            Answer::Failed { errno, .. } if Errno(errno) == Errno::EOPNOTSUPP => {}
            Answer::Failed { errno, message } => failure = Some((Errno(errno), message)),
            Answer::Listed(_) | Answer::Shown(_) => {}
        }
    }
    match failure {
        Some(failure) if texts.is_empty() => Err(failure),
        _ if texts.is_empty() => {
            Err((Errno::ENODEV, "nothing of Sheen runs on this machine".to_owned()))
        }
        _ => Ok(texts),
    }
}

/// The exit code that says `errno`.
pub(crate) fn exit_code(errno: Errno) -> ExitCode {
    ExitCode::from(u8::try_from(errno.0).unwrap_or(u8::MAX))
}

/// Writes a line to stdout; a reader that went away ends the program quietly.
pub(crate) fn line(text: impl std::fmt::Display) {
    use io::Write;
    if let Err(error) = writeln!(io::stdout().lock(), "{text}") {
        let gone = error.kind() == io::ErrorKind::BrokenPipe;
        std::process::exit(i32::from(!gone));
    }
}
