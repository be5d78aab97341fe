//! Lists of NIDs and of ranges of them, as operators write them.

use std::fmt;
use std::str::FromStr;

use crate::{NetType, Nid, ParseNidError};

/// `10.0.0.[1-9/2,20]@tcp *@tcp1 0@lo`: NIDs and ranges with blanks between them. `NONE` is the
/// empty list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NidList(Vec<Range>);

/// One word of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    text: Box<str>,
    net_type: NetType,
    net_number: u16,
    /// What each byte of the address may be.
    bytes: [Vec<Span>; 4],
}

/// Every `step`th number from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u8,
    last: u8,
    step: u8,
}

impl NidList {
    /// Whether a NID is one of the list.
    #[must_use]
    pub fn contains(&self, nid: Nid) -> bool {
        self.0.iter().any(|range| range.contains(nid))
    }
}

impl Range {
    fn contains(&self, nid: Nid) -> bool {
        let address = nid.address().octets();
        let mut bytes = self.bytes.iter().zip(address);
        self.net_type == nid.net_type()
            && self.net_number == nid.net_number()
            && bytes.all(|(spans, byte)| spans.iter().any(|span| span.contains(byte)))
    }
}

impl Span {
    const ALL: Span = Span { first: 0, last: u8::MAX, step: 1 };

    fn contains(self, byte: u8) -> bool {
        (self.first..=self.last).contains(&byte) && (byte - self.first).is_multiple_of(self.step)
    }
}

impl fmt::Display for NidList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return out.write_str("NONE");
        }
        let words: Vec<&str> = self.0.iter().map(|range| &*range.text).collect();
        out.write_str(&words.join(" "))
    }
}

impl FromStr for NidList {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<Self, ParseNidError> {
        match text.trim() {
            "NONE" | "clear" => Ok(Self::default()),
            "" => Err(ParseNidError),
            words => words.split_whitespace().map(str::parse).collect::<Result<_, _>>().map(Self),
        }
    }
}

impl FromStr for Range {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<Self, ParseNidError> {
        let (host, net) = text.split_once('@').ok_or(ParseNidError)?;
        // Any address will do to learn what the network is.
        let sample = if net == "lo" { "0" } else { "0.0.0.0" };
        let sample: Nid = format!("{sample}@{net}").parse()?;
        let bytes = match host {
            "*" => [const { Span::ALL }; 4].map(|span| vec![span]),
            "0" if sample.is_loopback() => [const { Span::ALL }; 4].map(|span| vec![span]),
            host => {
                let bytes: Result<Vec<Vec<Span>>, _> = host.split('.').map(byte).collect();
                bytes?.try_into().map_err(|_| ParseNidError)?
            }
        };
        let (net_type, net_number) = (sample.net_type(), sample.net_number());
        Ok(Self { text: text.into(), net_type, net_number, bytes })
    }
}

/// One byte of an address: a number, `*`, or `[1-3,7,10-20/2]`.
fn byte(text: &str) -> Result<Vec<Span>, ParseNidError> {
    if text == "*" {
        return Ok(vec![Span::ALL]);
    }
    let Some(inner) = text.strip_prefix('[') else { return Ok(vec![span(text)?]) };
    let inner = inner.strip_suffix(']').ok_or(ParseNidError)?;
    inner.split(',').map(span).collect()
}

fn span(text: &str) -> Result<Span, ParseNidError> {
    let number = |text: &str| text.parse::<u8>().map_err(|_| ParseNidError);
    let (range, step) = match text.split_once('/') {
        Some((range, step)) => (range, number(step)?),
        None => (text, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    match first <= last && step > 0 {
        true => Ok(Span { first, last, step }),
        false => Err(ParseNidError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_they_say() {
        let list: NidList = "10.0.[1-2,9].[1-9/4]@tcp  192.168.*.7@tcp1 0@lo".parse().unwrap();
        for (nid, held) in [
            ("10.0.1.1@tcp", true),
            ("10.0.9.5@tcp", true),
            ("10.0.3.1@tcp", false),
            ("10.0.1.2@tcp", false),
            ("10.0.1.1@tcp1", false),
            ("192.168.200.7@tcp1", true),
            ("192.168.200.8@tcp1", false),
            ("0@lo", true),
        ] {
            assert_eq!(list.contains(nid.parse().unwrap()), held, "{nid}");
        }
        assert_eq!(list.to_string(), "10.0.[1-2,9].[1-9/4]@tcp 192.168.*.7@tcp1 0@lo");
        let all: NidList = "*@tcp".parse().unwrap();
        assert!(all.contains("1.2.3.4@tcp".parse().unwrap()) && !all.contains(Nid::LOOPBACK));
    }

    #[test]
    fn an_empty_list_is_written_as_none() {
        for text in ["NONE", "clear", " NONE\n"] {
            let list: NidList = text.parse().unwrap();
            assert_eq!(list.to_string(), "NONE");
            assert!(!list.contains(Nid::LOOPBACK));
        }
        for bad in
            ["", "10.0.0.1", "10.0.0@tcp", "10.0.0.[3-1]@tcp", "10.0.0.[1-3/0]@tcp", "1.2.3.4@x"]
        {
            assert!(bad.parse::<NidList>().is_err(), "{bad}");
        }
    }
}
