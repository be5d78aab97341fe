//! What plots are drawn with.

use std::fmt::Write as _;

/// One picture being drawn. Lengths are pixels of its own.
pub(super) struct Svg {
    text: String,
}

/// Where a text stands from its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Text that may stand between and within the marks of SVG and HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}

impl Svg {
    /// A picture that is read out as `title` and `description`.
    pub(super) fn new((width, height): (f64, f64), title: &str, description: &str) -> Self {
        let (title, description) = (escaped(title), escaped(description));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"currentColor\">\n<title>{title}</title>\n<desc>{description}</desc>\n"
        );
        Self { text }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(element);
        self.text.push('\n');
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ));
    }

    /// A line in the color of the text; `weight` is how much of it one sees.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), weight: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"currentColor\" \
             stroke-opacity=\"{weight}\"/>"
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], stroke: &str, width: f64, opacity: f64) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        let list = list.trim_end();
        self.push(format_args!(
            "<polyline points=\"{list}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\" \
             stroke-opacity=\"{opacity}\"/>"
        ));
    }

    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, fill: &str) {
        self.push(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"/>"
        ));
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let (anchor, text) = (anchor.name(), escaped(text));
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// Names of kinds with their colors, in a row.
    pub(super) fn legend(&mut self, at: (f64, f64), kinds: &[String]) {
        let mut x = at.0;
        for (kind, name) in kinds.iter().enumerate() {
            self.rect((x, at.1 - 10.0), (10.0, 10.0), super::color(kind));
            self.text((x + 15.0, at.1), Anchor::Start, name);
            x += 40.0 + 7.0 * name.chars().count() as f64;
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}
