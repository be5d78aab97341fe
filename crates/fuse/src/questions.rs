//! What every user of a mount may ask about it, as extended attributes that no file has: `sheen.ask.COMMAND` with a
//! `.OFFSET` behind it, of any file on the mount that the user may read. The control socket is for the mount's user alone.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sheen_types::Errno;
use tokio::sync::Semaphore;

/// The beginning of the attributes' names.
const PREFIX: &str = "sheen.ask.";
/// Bytes of an answer that one attribute holds; the kernel takes 64 KiB.
const PAGE: usize = 60_000;
/// Questions that are answered at once: users ask as often as they like, and an answer may take servers.
const AT_ONCE: usize = 4;
/// So long is an answer at most: a thousand targets have some 200 KiB.
const ANSWER_MAX: usize = 16 << 20;

/// Answers a command, and may take its time.
type Answer = Box<dyn Fn(&str) -> Result<String, Errno> + Send + Sync>;

/// Who answers; `None` at first.
#[derive(Clone)]
pub struct Questions(Arc<State>);

struct State {
    answer: OnceLock<Answer>,
    permits: Semaphore,
}

impl Default for Questions {
    fn default() -> Self {
        Self(Arc::new(State { answer: OnceLock::new(), permits: Semaphore::new(AT_ONCE) }))
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Questions({})", self.0.answer.get().is_some())
    }
}

impl Questions {
    /// From now on `answer` answers, on threads that may wait. Only the first one counts.
    pub fn answer_with(
        &self,
        answer: impl Fn(&str) -> Result<String, Errno> + Send + Sync + 'static,
    ) {
        let _ = self.0.answer.set(Box::new(answer));
    }

    /// The part of an answer that the attribute `name` holds.
    ///
    /// # Errors
    /// `ENODATA` while none is set, `EINVAL` for a name without offset, or what it answers.
    pub(crate) async fn ask(self, name: String) -> Result<Bytes, Errno> {
        let state = self.0;
        let question = name.strip_prefix(PREFIX).and_then(|text| text.rsplit_once('.'));
        let (command, offset) = question.ok_or(Errno::EINVAL)?;
        // What is wrong with a number is no news to the tool that has made it.
        let (command, offset) = (command.to_owned(), offset.parse().map_err(|_| Errno::EINVAL)?);
        let answering = Arc::clone(&state);
        // It is never closed.
        let _permit = answering.permits.acquire().await.map_err(|_| Errno::EIO)?;
        let work =
            move || state.answer.get().map_or(Err(Errno::ENODATA), |answer| answer(&command));
        let text = tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a question of a tool is not answered");
            Errno::EIO
        })??;
        let from = text.len().min(offset);
        let part = &text.as_bytes()[from..];
        Ok(Bytes::copy_from_slice(&part[..part.len().min(PAGE)]))
    }
}

/// The attribute's name, if it is a question.
pub(crate) fn named(name: &OsStr) -> Option<String> {
    name.to_str().filter(|name| name.starts_with(PREFIX)).map(str::to_owned)
}

/// Asks the mount that `path` lies on; waits as long as any call there does.
///
/// # Errors
/// `EOPNOTSUPP` or `ENODATA` where no mount of ours answers, `EACCES` if the user may not read `path`, or what is
/// answered.
pub fn question(path: &Path, command: &str) -> Result<String, Errno> {
    let mut all = Vec::new();
    let mut buffer = vec![0; PAGE];
    loop {
        let name = format!("{PREFIX}{command}.{}", all.len());
        let length = rustix::fs::getxattr(path, &*name, buffer.as_mut_slice()).map_err(errno)?;
        all.extend_from_slice(&buffer[..length]);
        if length < PAGE || all.len() >= ANSWER_MAX {
            // Where it is no text does not matter: what answers is no mount of ours.
            return String::from_utf8(all).map_err(|_| Errno::EPROTO);
        }
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    u16::try_from(error.raw_os_error()).map_or(Errno::EIO, Errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_come_in_parts() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(answers());
    }

    async fn answers() {
        let questions = Questions::default();
        let ask = |name: &str| questions.clone().ask(name.to_owned());
        assert_eq!(ask("sheen.ask.long.0").await, Err(Errno::ENODATA));
        questions.answer_with(|command| match command {
            "long" => Ok("x".repeat(PAGE + 1)),
            _ => Err(Errno::EPERM),
        });
        let length = |part: Result<Bytes, Errno>| part.map(|part| part.len());
        assert_eq!(length(ask("sheen.ask.long.0").await), Ok(PAGE));
        assert_eq!(length(ask(&format!("sheen.ask.long.{PAGE}")).await), Ok(1));
        assert_eq!(length(ask(&format!("sheen.ask.long.{}", usize::MAX)).await), Ok(0));
        assert_eq!(ask("sheen.ask.long").await, Err(Errno::EINVAL));
        assert_eq!(ask("sheen.ask.other.0").await, Err(Errno::EPERM));
        assert!(named(OsStr::new("sheen.ask.long.0")).is_some());
        assert!(named(OsStr::new("user.ask")).is_none());
    }
}
