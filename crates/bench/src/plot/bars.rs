//! Groups of bars, from left to right.

use super::number;
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 860.0;
/// Where bars begin, and how far the longest goes.
const LEFT: f64 = 250.0;
const LENGTH: f64 = 500.0;
const TOP: f64 = 40.0;
const HEIGHT_OF_BAR: f64 = 15.0;
const HEIGHT_OF_AXIS: f64 = 26.0;

/// A bar, and between what its value lay.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bar {
    value: f64,
    spread: Option<(f64, f64)>,
}

/// Groups of bars: one of each kind in each group.
#[derive(Clone, Debug)]
pub struct Bars {
    title: String,
    kinds: Vec<String>,
    groups: Vec<(String, Vec<Bar>)>,
    /// Whether the longest bar of each group is as long as those of the other groups.
    by_group: bool,
}

impl Bars {
    /// Without any group yet. At most as many kinds as there are [`super::COLORS`].
    #[must_use]
    pub fn new(title: &str, kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        Self { title: title.to_owned(), kinds, groups: Vec::new(), by_group: false }
    }

    /// Lets the longest bar of each group fill the width, where groups differ too much to be set beside each
    /// other.
    #[must_use]
    pub fn by_group(mut self) -> Self {
        self.by_group = true;
        self
    }

    /// A group, a value for each kind.
    pub fn add(&mut self, label: String, values: &[f64]) {
        let bars = values.iter().map(|value| Bar { value: *value, spread: None }).collect();
        self.groups.push((label, bars));
    }

    /// A group, for each kind a value, and the least and the most that was measured.
    pub fn add_spread(&mut self, label: String, values: &[(f64, f64, f64)]) {
        let bar = |(value, low, high): &(f64, f64, f64)| Bar {
            value: *value,
            spread: (low < high).then_some((*low, *high)),
        };
        self.groups.push((label, values.iter().map(bar).collect()));
    }

    /// All of it in words.
    fn described(&self) -> String {
        let group = |(label, bars): &(String, Vec<Bar>)| {
            let values = self.kinds.iter().zip(bars);
            let values = values.map(|(kind, bar)| format!("{kind} {}", number(bar.value)));
            format!("{label}: {}.", values.collect::<Vec<_>>().join(", "))
        };
        self.groups.iter().map(group).collect::<Vec<_>>().join(" ")
    }

    /// The picture for a file of its own: on white, since no page there says what text looks like.
    #[must_use]
    pub fn alone(&self) -> String {
        let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
        self.draw().replacen(open, &format!("{open}style=\"background:#ffffff;color:#1a1a1a\" "), 1)
    }

    /// The picture, the first group on top.
    #[must_use]
    pub fn draw(&self) -> String {
        let lines = self.groups.len() as f64 * (self.kinds.len() as f64 + 0.7);
        let bottom = TOP + HEIGHT_OF_BAR * lines;
        let mut svg = Svg::new((WIDTH, bottom + HEIGHT_OF_AXIS), &self.title, &self.described());
        svg.text((12.0, 16.0), Anchor::Start, &self.title);
        svg.legend((LEFT, 33.0), &self.kinds);
        let most = |bars: &[Bar]| {
            let end = |bar: &Bar| bar.spread.map_or(bar.value, |(_, high)| high.max(bar.value));
            bars.iter().map(end).fold(1e-9, f64::max)
        };
        let most_of_all = self.groups.iter().map(|(_, bars)| most(bars)).fold(1e-9, f64::max);
        let at = |value: f64, most: f64| LEFT + LENGTH * value.max(0.0) / most;
        let marks = if self.by_group { Vec::new() } else { super::marks(most_of_all) };
        for mark in marks {
            let x = at(mark, most_of_all);
            svg.line((x, TOP), (x, bottom), 0.15);
            svg.text((x, bottom + 16.0), Anchor::Middle, &number(mark));
        }
        let mut y = TOP + HEIGHT_OF_BAR * 0.35;
        for (label, bars) in &self.groups {
            let most = if self.by_group { most(bars) } else { most_of_all };
            let x = |value: f64| at(value, most);
            svg.text((LEFT - 8.0, y + 11.0), Anchor::End, label);
            for (kind, bar) in bars.iter().enumerate() {
                let size = (x(bar.value) - LEFT, HEIGHT_OF_BAR - 2.0);
                svg.rect((LEFT, y), size, super::color(kind));
                let (middle, mut end) = (y + size.1 / 2.0, x(bar.value));
                if let Some((low, high)) = bar.spread {
                    svg.line((x(low), middle), (x(high), middle), 0.9);
                    for at in [low, high] {
                        svg.line((x(at), middle - 3.0), (x(at), middle + 3.0), 0.9);
                    }
                    end = end.max(x(high));
                }
                svg.text((end + 5.0, y + 11.0), Anchor::Start, &number(bar.value));
                y += HEIGHT_OF_BAR;
            }
            y += HEIGHT_OF_BAR * 0.7;
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_shows_all_groups_kinds_and_values() {
        let mut bars = Bars::new("files per second", &["DoM", "<OST>"]);
        bars.add("create".to_owned(), &[1234.0, 567.0]);
        bars.add_spread("read".to_owned(), &[(89.0, 80.0, 95.0), (76.0, 76.0, 76.0)]);
        let text = bars.draw();
        for word in
            ["files per second", "DoM", "&lt;OST&gt;", "create", "read", "1,234", "567", "89", "76"]
        {
            assert!(text.contains(word), "{word} is missing");
        }
        assert!(bars.alone().contains("style=\"background:#ffffff"));
        // A mark for each kind, and the bars; the longest is as long as it may be.
        assert_eq!(text.matches("<rect").count(), 2 + 4, "{text}");
        assert_eq!(text.matches("width=\"500.0\"").count(), 1, "{text}");
        // By themselves the bars of both groups are; the second is drawn to its most.
        let text = bars.by_group().draw();
        assert_eq!(text.matches("width=\"500.0\"").count(), 1, "{text}");
        assert!(text.contains("width=\"468.4\"") && text.contains("x2=\"750.0\""), "{text}");
        assert!(
            text.contains("<desc>create: DoM 1,234, &lt;OST&gt; 567. read: DoM 89.0"),
            "{text}"
        );
    }
}
