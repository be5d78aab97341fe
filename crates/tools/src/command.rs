//! One command to one process over its control socket.

use sheen_control::{Client, ControlReply, ControlRequest};
use sheen_types::Errno;

/// Why a command failed: an errno, and one line from the process.
pub type Failure = (Errno, String);

/// Runs a named command in one process.
pub fn command(process: &mut Client, name: &str, arguments: &[&str]) -> Result<String, Failure> {
    let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
    let question = ControlRequest::Command { name: name.to_owned(), arguments };
    match process.ask(&question) {
        Ok(ControlReply::Text(text)) => Ok(text),
        Ok(ControlReply::Failed { errno, message }) => Err((Errno(errno), message)),
        Ok(other) => Err((Errno::EPROTO, format!("unexpected answer to {name}: {other:?}"))),
        Err(error) => {
            Err((Errno::ENODEV, format!("{} does not answer: {error}", process.path().display())))
        }
    }
}
