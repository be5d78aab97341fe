//! Rates over time: a line for each run.

use super::svg::{Anchor, Svg};
use super::{color, number};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 80.0;
const LENGTH: f64 = 750.0;
const TOP: f64 = 44.0;
const HEIGHT: f64 = 170.0;
const HEIGHT_OF_AXIS: f64 = 34.0;

/// From this ratio on the axis of values is one of powers of ten.
const WIDE: f64 = 20.0;

/// One line.
#[derive(Clone, Debug)]
struct Line {
    kind: usize,
    /// Drawn strongly.
    is_main: bool,
    points: Vec<(f64, f64)>,
}

/// Lines of several kinds over seconds.
#[derive(Clone, Debug)]
pub struct Lines {
    title: String,
    kinds: Vec<String>,
    lines: Vec<Line>,
}

impl Lines {
    /// Without any line yet.
    #[must_use]
    pub fn new(title: &str, kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        Self { title: title.to_owned(), kinds, lines: Vec::new() }
    }

    /// A line of a kind: seconds and values. One of each kind should be the main one.
    pub fn add(&mut self, kind: usize, is_main: bool, points: Vec<(f64, f64)>) {
        self.lines.push(Line { kind, is_main, points });
    }

    /// Whether kinds are so far apart that one would lie on the axis of the other.
    fn is_wide(&self) -> bool {
        let mean = |line: &Line| {
            line.points.iter().map(|(_, value)| *value).sum::<f64>()
                / line.points.len().max(1) as f64
        };
        let means: Vec<f64> = self.lines.iter().map(mean).filter(|mean| *mean > 0.0).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        means.iter().any(|mean| *mean > least * WIDE)
    }

    fn most(&self, part: fn(&(f64, f64)) -> f64) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.map(part).fold(0.0, f64::max).max(1e-9)
    }

    fn described(&self) -> String {
        let line = |line: &&Line| {
            let values = || line.points.iter().map(|(_, value)| *value);
            let (least, most) =
                (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            let name = self.kinds.get(line.kind).map_or("", String::as_str);
            let end = line.points.last().map_or(0.0, |(time, _)| *time);
            format!("{name}: between {} and {} in {end:.1} seconds.", number(least), number(most))
        };
        let main = self.lines.iter().filter(|line| line.is_main && !line.points.is_empty());
        main.collect::<Vec<_>>().iter().map(line).collect::<Vec<_>>().join(" ")
    }

    /// The picture.
    #[must_use]
    pub fn draw(&self) -> String {
        let bottom = TOP + HEIGHT;
        let mut svg = Svg::new((WIDTH, bottom + HEIGHT_OF_AXIS), &self.title, &self.described());
        let is_wide = self.is_wide();
        let note = if is_wide { " (logarithmic)" } else { "" };
        svg.text((12.0, 16.0), Anchor::Start, &format!("{}{note}", self.title));
        svg.legend((LEFT, 35.0), &self.kinds);
        let (width, height) = (self.most(|point| point.0), self.most(|point| point.1));
        let values = self.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
        let least = values.filter(|value| *value > 0.0).fold(height, f64::min);
        let (low, high) = (least.log10().floor(), height.log10().ceil());
        let x = |time: f64| LEFT + LENGTH * time / width;
        let share = |value: f64| match is_wide {
            true => (value.max(least).log10() - low) / (high - low),
            false => value / height,
        };
        let y = |value: f64| bottom - HEIGHT * share(value);
        let marks = match is_wide {
            true => (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect(),
            false => super::marks(height),
        };
        for mark in marks {
            svg.line((LEFT, y(mark)), (LEFT + LENGTH, y(mark)), 0.15);
            svg.text((LEFT - 8.0, y(mark) + 4.0), Anchor::End, &number(mark));
        }
        for mark in super::marks(width) {
            svg.line((x(mark), bottom), (x(mark), bottom + 4.0), 0.6);
            svg.text((x(mark), bottom + 16.0), Anchor::Middle, &format!("{} s", number(mark)));
        }
        // Strong lines over weak ones.
        let (main, rest): (Vec<_>, Vec<_>) = self.lines.iter().partition(|line| line.is_main);
        for line in rest.into_iter().chain(main) {
            let points: Vec<_> =
                line.points.iter().map(|(time, value)| (x(*time), y(*value))).collect();
            let (width, opacity) = if line.is_main { (2.0, 1.0) } else { (1.0, 0.35) };
            svg.path(&points, color(line.kind), width, opacity);
            if let ([point], true) = (&points[..], line.is_main) {
                svg.circle(*point, 3.5, color(line.kind));
            }
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fill_the_plot() {
        let mut plot = Lines::new("write, MiB/s", &["a", "b"]);
        plot.add(1, true, vec![(0.1, 50.0), (2.0, 100.0)]);
        plot.add(0, false, vec![(0.1, 10.0)]);
        let text = plot.draw();
        assert!(text.contains("117.5,129.0 830.0,44.0"), "{text}");
        assert!(text.contains("<desc>b: between 50.0 and 100 in 2.0 seconds.</desc>"), "{text}");
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(!text.contains("logarithmic"));
        // A hundred times as fast: from 10 to 1000 in two powers of ten.
        plot.add(0, true, vec![(2.0, 1000.0)]);
        let text = plot.draw();
        assert!(
            text.contains("(logarithmic)") && text.contains("cx=\"830.0\" cy=\"44.0\""),
            "{text}"
        );
        assert!(text.contains("830.0,129.0\""), "{text}");
        assert!(!Lines::new("none", &[]).draw().contains("NaN"));
    }
}
