//! The text of OpenMetrics: families in a fixed order, each with its type, its help and all its
//! samples, once.

use std::fmt::Write as _;

/// `Content-Type` of the page.
pub(super) const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Only grows, from 0 at the start or when an operator starts it anew; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts too, but under a name that lustrefs-exporter gave it and that a counter may not have.
    Unknown,
}

/// A family: the name of its samples, their type, and what they say.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) help: &'static str,
}

impl Family {
    /// A counter's family is called without the end of its samples' name.
    fn name_of_family(&self) -> &'static str {
        match self.kind {
            Type::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Type::Gauge | Type::Unknown => self.name,
        }
    }
}

/// A page that is being written.
pub(super) struct Page {
    families: &'static [Family],
    samples: Vec<String>,
}

impl Page {
    pub(super) fn new(families: &'static [Family]) -> Self {
        Self { families, samples: families.iter().map(|_| String::new()).collect() }
    }

    /// Adds a sample. Each family and labels may come once.
    ///
    /// # Panics
    /// For a name that no family has: those are our own.
    pub(super) fn add(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let place = self.families.iter().position(|family| family.name == name);
        let text = &mut self.samples[place.expect("a family of the table")];
        text.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            text.push(if number == 0 { '{' } else { ',' });
            let _ = write!(text, "{label}=\"");
            escape(text, value);
            text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{end} {value}");
    }

    /// The whole text. Families without samples are left out.
    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for (family, samples) in self.families.iter().zip(&self.samples) {
            if samples.is_empty() {
                continue;
            }
            let kind = match family.kind {
                Type::Counter => "counter",
                Type::Gauge => "gauge",
                Type::Unknown => "unknown",
            };
            let name = family.name_of_family();
            let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {}", family.help);
            text += samples;
        }
        text + "# EOF\n"
    }
}

fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FAMILIES: [Family; 3] = [
        Family { name: "a_total", kind: Type::Counter, help: "As." },
        Family { name: "b", kind: Type::Gauge, help: "Bs." },
        Family { name: "c", kind: Type::Unknown, help: "Cs." },
    ];

    #[test]
    fn samples_stand_with_their_family_and_labels_are_escaped() {
        let mut page = Page::new(&FAMILIES);
        page.add("c", &[("jobid", "a \"b\"\\\nc"), ("target", "x")], 7);
        page.add("a_total", &[], 1);
        page.add("c", &[("jobid", "d")], 8);
        let expected = "\
# TYPE a counter
# HELP a As.
a_total 1
# TYPE c unknown
# HELP c Cs.
c{jobid=\"a \\\"b\\\"\\\\\\nc\",target=\"x\"} 7
c{jobid=\"d\"} 8
# EOF
";
        assert_eq!(page.finish(), expected);
    }
}
