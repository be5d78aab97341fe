//! The golden test: whatever a real Lustre said, our structures read and write unchanged.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sheen_wire::lnet::PingInfo;
use sheen_wire::messages::{FieldInfo, FieldKind, Format, Shape};
use sheen_wire::ptlrpc::{Message, MsgType};
use sheen_wire::{Wire, Writer};

use crate::content::Content;
use crate::opaque::{explain, explain_bulk};
use crate::pcap::{CaptureError, packets};
use crate::rpc::{Meaning, Tracker};
use crate::session::{Event, LnetMessage, Said, events};

/// What was found in one capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages of the wire: LNet's, and socklnd's own.
    pub messages: usize,
    /// Bytes of them as far as captured.
    pub bytes: usize,
    /// Messages of which a part was not captured, and which are not bulk data.
    pub cut: usize,
    /// Bytes between messages that could not be read, all before the first one of a stream or
    /// behind a hole.
    pub lost: u64,
    /// Bytes of padding that the peer did not clear.
    pub dirty_padding: usize,
    /// Replies to requests from before the capture, read as far as their bodies.
    pub orphans: usize,
    /// How often each kind of message was seen.
    pub kinds: BTreeMap<String, usize>,
    /// Bytes of the kinds that Lustre does not look into.
    pub plain: BTreeMap<&'static str, usize>,
    /// Bytes that our structures do not describe, by message and buffer.
    pub untyped: BTreeMap<String, usize>,
    /// What did not come out as it went in.
    pub failures: Vec<String>,
}

impl Report {
    /// Whether everything was typed and came out as it went in, and nothing was lost unless the
    /// capture itself was cut.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let whole = self.lost == 0 || self.cut > 0;
        self.messages > 0 && whole && self.untyped.is_empty() && self.failures.is_empty()
    }

    fn fail(&mut self, event: &Event, what: &str) {
        self.failures.push(format!("{event}: {what}"));
    }

    fn same(&mut self, event: &Event, what: &str, wire: &[u8], ours: &[u8]) {
        if wire != ours {
            let at = wire.iter().zip(ours).position(|(a, b)| a != b);
            let at = at.unwrap_or(wire.len().min(ours.len()));
            let lengths = format!("{} bytes, ours {}", wire.len(), ours.len());
            self.fail(event, &format!("{what} differs at byte {at} ({lengths})"));
        }
    }

    fn count(&mut self, kind: &str) {
        *self.kinds.entry(kind.to_owned()).or_default() += 1;
    }

    fn untyped(&mut self, what: String, bytes: usize) {
        *self.untyped.entry(what).or_default() += bytes;
    }
}

/// Reads a capture file and writes all of it again.
///
/// # Errors
/// See [`CaptureError`].
pub fn check(file: &Bytes) -> Result<Report, CaptureError> {
    let mut report = Report::default();
    let mut tracker = Tracker::default();
    for event in events(&packets(file)?) {
        report.bytes += event.raw.len();
        report.messages += 1;
        match &event.what {
            Said::Acceptor(request) => {
                report.count("acceptor request");
                report.same(&event, "acceptor request", &event.raw, &request.encode());
            }
            Said::Hello(hello) => {
                report.count("HELLO");
                report.same(&event, "HELLO", &event.raw, &hello.encode());
            }
            Said::Noop(header) => {
                report.count("socklnd NOOP");
                report.same(&event, "socklnd NOOP", &event.raw, &bytes_of(header));
            }
            Said::Lost { bytes, excused } => {
                report.messages -= 1;
                report.lost += bytes;
                if !excused {
                    report.fail(&event, "no message where one must start");
                }
            }
            Said::Message(lnet) => {
                let mut writer = Writer::default();
                lnet.ksock.encode(&mut writer);
                lnet.header.encode(&mut writer);
                let headers = writer.into_bytes();
                report.same(&event, "LNet header", &event.raw[..headers.len()], &headers);
                let meaning = tracker.understand(lnet);
                *report.kinds.entry(kind_of(lnet, &meaning)).or_default() += 1;
                report.meaning(&event, lnet, &meaning);
            }
        }
    }
    Ok(report)
}

/// What the report calls a message.
fn kind_of(lnet: &LnetMessage, meaning: &Meaning) -> String {
    let named = |format: &Option<&Format>| format.map_or("unknown request", |format| format.name);
    match meaning {
        Meaning::Request(rpc) => rpc.format.name.to_owned(),
        Meaning::Reply(rpc) if rpc.body.kind == MsgType::REPLY => {
            format!("{} reply", rpc.format.name)
        }
        Meaning::Reply(rpc) => format!("{} error", rpc.format.name),
        Meaning::Bulk(format, _) => format!("{} bulk", named(format)),
        Meaning::Get(format) => format!("{} bulk GET", named(format)),
        Meaning::Ping(_) => "LNet ping info".to_owned(),
        Meaning::PingRequest => "LNet ping".to_owned(),
        Meaning::Ack => "LNet ACK".to_owned(),
        Meaning::Orphan(..) => "reply to a request before the capture".to_owned(),
        Meaning::Unknown(what, _) if lnet.missing > 0 => format!("{what}, cut by the capture"),
        Meaning::Unknown(what, _) => format!("unknown {what}"),
    }
}

fn bytes_of(value: &impl Wire) -> Bytes {
    let mut writer = Writer::default();
    value.encode(&mut writer);
    writer.into_bytes()
}

impl Report {
    fn meaning(&mut self, event: &Event, lnet: &LnetMessage, meaning: &Meaning) {
        match meaning {
            _ if lnet.missing > 0 => self.cut(event, lnet, meaning),
            Meaning::Request(rpc) => {
                let ours = rpc.typed.to_bytes(&rpc.message.header, &rpc.body);
                self.rpc(event, lnet, rpc.format.name, &rpc.message, &ours);
                self.shape(rpc.format.name, rpc.typed.shape());
                self.opaque(event, rpc.format, false, &rpc.message);
            }
            Meaning::Reply(rpc) => {
                let ours = rpc.typed.to_bytes(&rpc.message.header, &rpc.body);
                self.rpc(event, lnet, rpc.format.name, &rpc.message, &ours);
                self.shape(&format!("{} reply", rpc.format.name), rpc.typed.shape());
                self.opaque(event, rpc.format, true, &rpc.message);
            }
            Meaning::Bulk(format, bytes) => {
                let name = format.map_or("unknown request", |format| format.name);
                let content = explain_bulk(*format, bytes);
                self.content(event, &format!("bulk of {name}"), bytes, content);
            }
            Meaning::Ping(info) => self.ping(event, lnet, info),
            Meaning::Get(_) | Meaning::PingRequest | Meaning::Ack => {}
            Meaning::Orphan(message, body) => {
                self.orphans += 1;
                self.same(event, "ptlrpc_body", &message.buffers[0], &bytes_of(&**body));
            }
            Meaning::Unknown(what, error) => self.fail(event, &format!("{what}: {error}")),
        }
    }

    /// Of a message that was cut, what was captured must come out again.
    fn cut(&mut self, event: &Event, lnet: &LnetMessage, meaning: &Meaning) {
        let ours = match meaning {
            Meaning::Request(rpc) => rpc.typed.to_bytes(&rpc.message.header, &rpc.body),
            Meaning::Reply(rpc) => rpc.typed.to_bytes(&rpc.message.header, &rpc.body),
            Meaning::Bulk(..) => {
                *self.plain.entry("file data").or_default() += lnet.payload.len();
                return;
            }
            _ => {
                self.cut += 1;
                return;
            }
        };
        self.cut += 1;
        let ours = ours.slice(..ours.len().min(lnet.payload.len()));
        self.same(event, "captured part", &lnet.payload, &ours);
    }

    fn ping(&mut self, event: &Event, lnet: &LnetMessage, info: &PingInfo) {
        self.same(event, "ping", &lnet.payload, &info.encode());
        if !info.rest.is_empty() {
            self.untyped("ping".to_string(), info.rest.len());
        }
    }

    fn rpc(&mut self, event: &Event, lnet: &LnetMessage, name: &str, read: &Message, ours: &[u8]) {
        let clean = read.encode();
        let dirty = lnet.payload.iter().zip(&clean).filter(|(wire, ours)| wire != ours).count();
        self.dirty_padding += read.dirty_padding;
        if clean.len() != lnet.payload.len() || dirty != read.dirty_padding {
            self.fail(event, &format!("{name}: buffers do not come out as they went in"));
        }
        self.same(event, name, &clean, ours);
    }

    fn shape(&mut self, name: &str, shape: &Shape) {
        if shape.untyped_bytes() > 0 {
            self.untyped(format!("{name}: more than its format"), shape.untyped_bytes());
        }
    }

    fn opaque(&mut self, event: &Event, format: &Format, is_reply: bool, message: &Message) {
        let (fields, suffix) =
            if is_reply { (format.reply, " reply") } else { (format.request, "") };
        let buffers = message.buffers.iter().skip(1);
        let is_opaque = |field: &&FieldInfo| field.kind == FieldKind::Opaque;
        for (field, bytes) in fields.iter().zip(buffers).filter(|(field, _)| is_opaque(field)) {
            if !bytes.is_empty() {
                let name = format!("{}{suffix}: {}", format.name, field.name);
                let content = explain(format, is_reply, field.name, bytes);
                self.content(event, &name, bytes, content);
            }
        }
    }

    fn content(&mut self, event: &Event, name: &str, bytes: &Bytes, content: Content) {
        match content {
            Content::Typed { encoded, dirty, .. } => {
                self.dirty_padding += dirty;
                self.same(event, name, bytes, &encoded);
            }
            Content::Plain(kind) => *self.plain.entry(kind).or_default() += bytes.len(),
            Content::Untyped => self.untyped(name.to_string(), bytes.len()),
        }
    }

    /// Prints the report, a line for the numbers and one for each thing that is not as it should
    /// be.
    ///
    /// # Errors
    /// From `out`.
    pub fn print(&self, name: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{name}: {} messages, {} bytes, {} bytes not typed, {} bytes of padding not zero, \
             {} cut, {} orphans, {} bytes lost",
            self.messages,
            self.bytes,
            self.untyped.values().sum::<usize>(),
            self.dirty_padding,
            self.cut,
            self.orphans,
            self.lost
        )?;
        for (kind, bytes) in &self.plain {
            writeln!(out, "    {bytes} bytes of {kind}")?;
        }
        for (what, bytes) in &self.untyped {
            writeln!(out, "    NOT TYPED: {bytes} bytes in {what}")?;
        }
        for failure in &self.failures {
            writeln!(out, "    FAILED: {failure}")?;
        }
        Ok(())
    }
}

/// What all captures say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Captures read.
    pub captures: usize,
    /// Those in which something was not typed or did not come out as it went in.
    pub unclean: Vec<String>,
    /// How often each kind of message was seen.
    pub kinds: BTreeMap<String, usize>,
}

/// Checks captures and prints what it finds in each, then how often each kind of message was seen.
///
/// # Errors
/// If a file cannot be read or is no capture, or from `out`.
pub fn run(paths: &[PathBuf], out: &mut impl Write) -> io::Result<Sum> {
    let mut sum = Sum::default();
    for path in paths {
        let report = check_file(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        report.print(&name, out)?;
        sum.captures += 1;
        if !report.is_clean() {
            sum.unclean.push(name.into_owned());
        }
        for (kind, count) in report.kinds {
            *sum.kinds.entry(kind).or_default() += count;
        }
    }
    for (kind, count) in &sum.kinds {
        writeln!(out, "{count:>8} {kind}")?;
    }
    let clean = sum.captures - sum.unclean.len();
    writeln!(out, "{clean} of {} captures typed and byte for byte", sum.captures)?;
    Ok(sum)
}

/// The capture files of a folder and its folder `more`, in order.
#[must_use]
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for folder in [directory.to_owned(), directory.join("more")] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|path| path.extension().is_some_and(|end| end == "pcap"));
        found.sort();
        paths.extend(found);
    }
    paths
}

/// Checks one file of any directory.
///
/// # Errors
/// If the file cannot be read or is no capture.
pub fn check_file(path: &Path) -> io::Result<Report> {
    let fault = |error: String| io::Error::other(format!("{}: {error}", path.display()));
    let file = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    check(&file.into()).map_err(|error| fault(error.to_string()))
}
