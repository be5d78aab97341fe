//! Where a survey's lines go: standard output and the summary, and the file of details.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};

use super::device::Progress;
use super::{Common, Surroundings, Variable, text};
use crate::{clock, text as words};

/// The files of one survey.
pub(super) struct Report<'a> {
    out: &'a (dyn Fn(&str) + Sync),
    summary: Output,
    detail: Output,
}

struct Output {
    path: String,
    file: File,
}

impl Output {
    fn create(path: String) -> Result<Self, String> {
        let file = File::create(&path).map_err(|error| format!("cannot write {path}: {error}"))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("cannot write {}: {error}", self.path))
    }
}

/// The name of this machine.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What `rslt` says, or a name below `rslt_loc` that no other survey has.
pub(super) fn prefix(common: &Common, variable: Variable, survey: &str) -> String {
    if let Some(prefix) = text(common.prefix.as_ref(), variable, "rslt") {
        return prefix;
    }
    let place = text(common.place.as_ref(), variable, "rslt_loc");
    let place = place.unwrap_or_else(|| "/tmp".to_owned());
    format!("{place}/{survey}_{}_{}", words::file_date(clock::wall()), host())
}

/// The date as `date` prints it.
pub(super) fn date() -> String {
    let date = words::date(clock::wall());
    match date.rsplit_once(' ') {
        Some((day, year)) => format!("{day} UTC {year}"),
        None => date,
    }
}

impl<'a> Report<'a> {
    /// Makes the files.
    pub(super) fn create(prefix: &str, surroundings: &Surroundings<'a>) -> Result<Self, String> {
        let summary = Output::create(format!("{prefix}.summary"))?;
        let detail = Output::create(format!("{prefix}.detail"))?;
        Ok(Self { out: surroundings.out, summary, detail })
    }

    /// A part of a line of the report.
    pub(super) fn say(&mut self, text: &str) -> Result<(), String> {
        (self.out)(text);
        self.summary.write(text)
    }

    /// What only the file of details has.
    pub(super) fn detail(&mut self, text: &str) -> Result<(), String> {
        self.detail.write(text)
    }

    /// How far a test is, for a person who watches.
    pub(super) fn progress(&self, name: &str, progress: &Progress) {
        let rate = progress.intervals.last().map_or(0.0, |interval| interval.rate);
        draw(&format!("{name}: {} in {:.0} s, {rate:.0}/s", progress.operations, progress.seconds));
    }

    /// Takes that off the terminal again.
    pub(super) fn hide(&self) {
        draw("");
    }
}

/// Behind the part of a line that stands there already, if both go to one terminal.
fn draw(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that has gone is no reason to end.
        let _ = write!(terminal, "\x1b7\x1b[K{text}\x1b8").and_then(|()| terminal.flush());
    }
}
