//! Bars beside each other, as a file.

use std::path::Path;

pub(super) use sheen_bench::plot::Bars;

use crate::shell::Outcome;

/// Writes the plot of the bars.
pub(super) fn draw(path: &Path, bars: &Bars) -> Outcome {
    std::fs::write(path, bars.alone()).map_err(|error| format!("{}: {error}", path.display()))
}
