//! Bars beside each other, as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::shell::Outcome;

/// Pixels of a plot: as high as its bars ask for.
const WIDTH: u32 = 860;
const HEIGHT_OF_BAR: u32 = 15;
const HEIGHT_OF_REST: u32 = 110;
/// Where the names of the kinds stand, and how far from each other.
const KINDS_AT: (i32, i32) = (270, 40);
const KINDS_APART: i32 = 115;
/// Colors that people with any kind of sight tell apart (Okabe and Ito).
const COLORS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Groups of bars: one of each kind in each group.
pub(super) struct Bars {
    title: String,
    kinds: Vec<String>,
    groups: Vec<(String, Vec<f64>)>,
}

impl Bars {
    /// Without any group yet. At most five kinds.
    pub(super) fn new(title: &str, kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        Self { title: title.to_owned(), kinds, groups: Vec::new() }
    }

    /// A group, a value for each kind.
    pub(super) fn add(&mut self, label: String, values: &[f64]) {
        self.groups.push((label, values.to_owned()));
    }

    fn most(&self) -> f64 {
        let values = self.groups.iter().flat_map(|(_, values)| values.iter().copied());
        values.fold(0.0, f64::max).max(1e-9)
    }
}

/// Draws the bars from left to right, the first group on top.
pub(super) fn draw(path: &Path, bars: &Bars) -> Outcome {
    let told = |error: String| format!("{}: {error}", path.display());
    let step = bars.kinds.len() + 1;
    let lines = bars.groups.len() * step;
    let size = (WIDTH, HEIGHT_OF_REST + HEIGHT_OF_BAR * lines as u32);
    let area = SVGBackend::new(path, size).into_drawing_area();
    fill(&area, bars, lines, step).map_err(|error| told(error.to_string()))?;
    area.present().map_err(|error| told(error.to_string()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn fill(
    area: &Area<'_>,
    bars: &Bars,
    lines: usize,
    step: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (above, below) = area.split_vertically(KINDS_AT.1 + 14);
    above.titled(&bars.title, ("sans-serif", 18))?;
    let mut chart = ChartBuilder::on(&below)
        .margin(12)
        .margin_top(8)
        .x_label_area_size(24)
        .y_label_area_size(250)
        .build_cartesian_2d(0.0..bars.most() * 1.12, 0.0..lines as f64)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().light_line_style(WHITE).draw()?;
    // Where a line of the plot begins, the first on top.
    let line = |number: usize| (lines - number) as f64;
    for (kind, name) in bars.kinds.iter().enumerate() {
        let color = COLORS[kind % COLORS.len()];
        let values = bars.groups.iter().enumerate();
        let values = values.map(|(group, (_, values))| (line(group * step + kind), values[kind]));
        let boxes = values
            .clone()
            .map(|(top, value)| Rectangle::new([(0.0, top - 0.9), (value, top)], color.filled()));
        chart.draw_series(boxes)?;
        let (x, y) = (KINDS_AT.0 + KINDS_APART * kind as i32, KINDS_AT.1);
        area.draw(&Rectangle::new([(x, y), (x + 10, y + 10)], color.filled()))?;
        area.draw(&Text::new(name.clone(), (x + 15, y), ("sans-serif", 13)))?;
        chart.draw_series(values.map(|(top, value)| {
            let label = format!(" {value:.0}");
            Text::new(label, (value, top - 0.1), ("sans-serif", 12))
        }))?;
    }
    for (group, (label, _)) in bars.groups.iter().enumerate() {
        let (_, y) = chart.backend_coord(&(0.0, line(group * step) - 0.1));
        area.draw(&Text::new(label.clone(), (12, y), ("sans-serif", 13)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_shows_all_groups_kinds_and_values() {
        let mut bars = Bars::new("files per second", &["DoM", "OST"]);
        bars.add("create".to_owned(), &[1234.0, 567.0]);
        bars.add("read".to_owned(), &[89.0, 76.0]);
        let path =
            std::env::temp_dir().join(format!("sheen-xtask-plot-{}.svg", std::process::id()));
        draw(&path, &bars).expect("a plot");
        let text = std::fs::read_to_string(&path).expect("a file");
        std::fs::remove_file(&path).expect("a file");
        for word in ["files per second", "DoM", "OST", "create", "read", "1234", "567", "89", "76"]
        {
            assert!(text.contains(word), "{word} is missing");
        }
        // The background, a mark for each kind, and the bars.
        assert!(text.matches("<rect").count() >= 7, "{text}");
    }
}
