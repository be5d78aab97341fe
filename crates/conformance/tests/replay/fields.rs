//! The fields of a structure, as its debug text shows them: paths and values.
//!
//! Comparing texts needs no code per message, and what it finds is what `sheen dump -v` shows.

use std::collections::BTreeMap;

/// Values by path; `a.b[2].c`.
pub(crate) type Leaves = BTreeMap<String, String>;

/// Adds the leaves of `text`, which `{:?}` wrote, below `path`.
pub(crate) fn flatten(path: &str, text: &str, leaves: &mut Leaves) {
    let mut parser = Parser { text: text.as_bytes(), at: 0, leaves };
    parser.value(path);
}

/// A path without the numbers of elements.
pub(crate) fn without_indices(path: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for letter in path.chars() {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => continue,
            _ => {}
        }
        plain.push(letter);
    }
    plain
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    leaves: &'a mut Leaves,
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn skip(&mut self, bytes: &[u8]) {
        while self.at < self.text.len() && bytes.contains(&self.peek()) {
            self.at += 1;
        }
    }

    fn leaf(&mut self, path: &str, start: usize) {
        let value = String::from_utf8_lossy(&self.text[start..self.at]);
        self.leaves.insert(path.to_owned(), value.trim().to_owned());
    }

    fn value(&mut self, path: &str) {
        self.skip(b" ");
        let start = self.at;
        match self.peek() {
            b'[' if self.is_identifier() => {
                self.until(b",)}");
                self.leaf(path, start);
            }
            b'[' => self.elements(path, b']'),
            b'(' => self.elements(path, b')'),
            b'"' => self.string(path, start),
            b'b' if self.text.get(self.at + 1) == Some(&b'"') => {
                self.at += 1;
                self.string(path, start);
            }
            _ => self.named(path, start),
        }
    }

    /// A FID or resource name: brackets around numbers with colons between.
    fn is_identifier(&self) -> bool {
        let rest = &self.text[self.at + 1..];
        let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
        let inner = &rest[..end];
        inner.contains(&b':') && inner.iter().all(|b| b.is_ascii_hexdigit() || b"x:".contains(b))
    }

    fn until(&mut self, ends: &[u8]) {
        while self.at < self.text.len() && !ends.contains(&self.peek()) {
            self.at += 1;
        }
    }

    fn string(&mut self, path: &str, start: usize) {
        self.at += 1;
        while self.at < self.text.len() && self.peek() != b'"' {
            self.at += if self.peek() == b'\\' { 2 } else { 1 };
        }
        self.at = (self.at + 1).min(self.text.len());
        self.leaf(path, start);
    }

    fn elements(&mut self, path: &str, end: u8) {
        self.at += 1;
        let mut index = 0;
        loop {
            self.skip(b" ,");
            if self.at >= self.text.len() || self.peek() == end {
                break;
            }
            self.value(&format!("{path}[{index}]"));
            index += 1;
        }
        self.at += 1;
        self.leaves.insert(format!("{path}[#]"), index.to_string());
    }

    /// A number, a name, a structure or a tuple with a name.
    fn named(&mut self, path: &str, start: usize) {
        self.until(b"{(,)}]");
        match self.peek() {
            b'{' => self.structure(path),
            b'(' => {
                let name = self.text[start..self.at].to_vec();
                self.at += 1;
                if name == b"ResourceName" {
                    return self.resource(path);
                }
                self.value(path);
                let mut index = 0;
                while self.peek() == b',' {
                    self.at += 1;
                    index += 1;
                    self.value(&format!("{path}.{index}"));
                }
                self.skip(b" ");
                self.at += 1;
            }
            _ => {
                // Something must be read, whatever the text.
                self.at = self.at.max(start + usize::from(start == self.at));
                self.at = self.at.min(self.text.len());
                self.leaf(path, start);
            }
        }
    }

    /// `[1, 2, 0, 0])` as one name, like a FID's.
    fn resource(&mut self, path: &str) {
        let start = self.at;
        self.until(b")");
        let name = String::from_utf8_lossy(&self.text[start..self.at]).replace(", ", ":");
        self.leaves.insert(path.to_owned(), name);
        self.at += 1;
    }

    fn structure(&mut self, path: &str) {
        self.at += 1;
        loop {
            self.skip(b" ,");
            if self.at >= self.text.len() || self.peek() == b'}' {
                break;
            }
            let start = self.at;
            self.until(b":}");
            let name = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
            if self.peek() == b':' {
                self.at += 1;
                self.value(&format!("{path}.{name}"));
            }
        }
        self.at += 1;
    }
}

#[test]
fn a_debug_text_becomes_paths() {
    #[derive(Debug)]
    #[allow(dead_code, reason = "it is printed")]
    struct Inner {
        number: u32,
        text: &'static str,
    }
    #[derive(Debug)]
    #[allow(dead_code, reason = "it is printed")]
    struct Outer {
        one: Option<Inner>,
        none: Option<Inner>,
        many: Vec<Inner>,
        bytes: &'static [u8],
        last: std::num::Wrapping<u64>,
    }
    let value = Outer {
        one: Some(Inner { number: 7, text: "a, \"b\" }" }),
        none: None,
        many: vec![Inner { number: 1, text: "x" }, Inner { number: 2, text: "y" }],
        bytes: &[1, 2],
        last: std::num::Wrapping(9),
    };
    let mut leaves = Leaves::new();
    flatten("v", &format!("{value:?}"), &mut leaves);
    let find = |path: &str| leaves.get(path).map(String::as_str);
    assert_eq!(find("v.one.number"), Some("7"));
    assert_eq!(find("v.one.text"), Some("\"a, \\\"b\\\" }\""));
    assert_eq!(find("v.none"), Some("None"));
    assert_eq!(find("v.many[1].number"), Some("2"));
    assert_eq!(find("v.many[#]"), Some("2"));
    assert_eq!(find("v.bytes[1]"), Some("2"));
    assert_eq!(find("v.last"), Some("9"));
    leaves.clear();
    flatten("", "{ fid: [0x200000007:0x1:0x0], res: [0x1:0x2:0x0].0x0, f: A|B }", &mut leaves);
    assert_eq!(leaves[".fid"], "[0x200000007:0x1:0x0]");
    assert_eq!(leaves[".res"], "[0x1:0x2:0x0].0x0");
    assert_eq!(leaves[".f"], "A|B");
    assert_eq!(without_indices("v.many[1].a[#]"), "v.many[].a[]");
}
