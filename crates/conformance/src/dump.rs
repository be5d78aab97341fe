//! A capture as text: one line for each message.
//!
//! Packets are counted from 1 and times from the first packet, as other tools do.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use sheen_wire::lnet::{LnetCommand, Portal};
use sheen_wire::messages::{FieldInfo, FieldKind};
use sheen_wire::ptlrpc::{Message, MsgType, PtlrpcBody};

use crate::content::Content;
use crate::facts;
use crate::opaque::{explain, explain_bulk};
use crate::pcap::packets;
use crate::rpc::{Meaning, Tracker, match_bits};
use crate::session::{Event, LnetMessage, Said, events};

/// What is said of bytes that no structure describes.
pub const NOT_TYPED: &str = "NOT TYPED";

/// How much to say about each message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// One line.
    #[default]
    Line,
    /// One line, then each structure with all its fields.
    Fields,
}

/// Writes the messages of a capture file. A reader that closes the pipe is no error.
///
/// # Errors
/// A message for people if the file cannot be read or is no capture, and whatever `out` says.
pub fn dump_file(path: &Path, detail: Detail, out: &mut impl Write) -> Result<(), String> {
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = std::fs::read(path).map_err(|error| fault(&error))?;
    let packets = packets(&file.into()).map_err(|error| fault(&error))?;
    let start = packets.first().map_or(Duration::ZERO, |packet| packet.time);
    let mut dumper = Dumper { tracker: Tracker::default(), start, detail };
    let written = events(&packets).iter().try_for_each(|event| dumper.event(event, out));
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("cannot write the dump: {error}")),
    }
}

struct Dumper {
    tracker: Tracker,
    start: Duration,
    detail: Detail,
}

impl Dumper {
    fn event(&mut self, event: &Event, out: &mut impl Write) -> io::Result<()> {
        let time = event.time.saturating_sub(self.start).as_secs_f64();
        let number = event.packet + 1;
        match &event.what {
            Said::Message(lnet) => {
                let header = &lnet.header;
                let cut = if lnet.missing > 0 { " (cut)" } else { "" };
                let kind = command_name(&header.command);
                let (source, destination) = (header.source, header.destination);
                let meaning = self.tracker.understand(lnet);
                let says = says(lnet, &meaning);
                writeln!(
                    out,
                    "{number:>6} {time:>11.6} {source} > {destination} {kind} {says}{cut}"
                )?;
                match self.detail {
                    Detail::Line => Ok(()),
                    Detail::Fields => fields(lnet, &meaning, out),
                }
            }
            other => {
                let (source, destination) = (event.source, event.destination);
                let says = match other {
                    Said::Acceptor(request) => format!("ACCEPTOR target={}", request.target),
                    Said::Hello(hello) => format!("HELLO {:?}", hello.connection_type),
                    Said::Noop(header) => format!("NOOP ack={:#x}", header.ack_cookie),
                    Said::Lost { bytes, .. } => format!("({bytes} bytes are no message)"),
                    Said::Message(_) => String::new(),
                };
                writeln!(out, "{number:>6} {time:>11.6} {source} > {destination} {says}")
            }
        }
    }
}

fn command_name(command: &LnetCommand) -> &'static str {
    match command {
        LnetCommand::Ack(_) => "ACK",
        LnetCommand::Put(_) => "PUT",
        LnetCommand::Get(_) => "GET",
        LnetCommand::Reply(_) => "REPLY",
        LnetCommand::Hello(_) => "HELLO",
    }
}

fn portal(command: &LnetCommand) -> Option<Portal> {
    match command {
        LnetCommand::Put(put) => Some(put.portal),
        LnetCommand::Get(get) => Some(get.portal),
        _ => None,
    }
}

/// The rest of a message's line.
fn says(lnet: &LnetMessage, meaning: &Meaning) -> String {
    let portal = portal(&lnet.header.command).map_or(String::new(), |name| format!("{name:?} "));
    let xid = match_bits(lnet);
    let length = lnet.header.payload_length;
    match meaning {
        Meaning::Request(rpc) => {
            let facts = facts::of_request(&rpc.typed);
            format!("{portal}{} xid={xid:#x} {facts}", rpc.format.name)
        }
        Meaning::Reply(rpc) => {
            let state = state(&rpc.body);
            let facts = facts::of_reply(&rpc.typed);
            format!("{portal}{} reply xid={xid:#x} {state} {facts}", rpc.format.name)
        }
        Meaning::Orphan(_, body) => {
            format!("{portal}{:?} reply xid={xid:#x} {}", body.opcode, state(body))
        }
        Meaning::Bulk(format, _) => {
            let name = format.map_or("unknown", |format| format.name);
            format!("{portal}{name} bulk bits={xid:#x} bytes={length}")
        }
        Meaning::Get(format) => {
            let name = format.map_or("unknown", |format| format.name);
            format!("{portal}{name} bulk bits={xid:#x}")
        }
        Meaning::Ping(info) => format!("{portal}ping interfaces={}", info.interfaces.len()),
        Meaning::PingRequest => format!("{portal}ping"),
        Meaning::Ack => format!("bits={xid:#x}"),
        Meaning::Unknown(what, error) => format!("{portal}{what} not understood: {error}"),
    }
    .trim_end()
    .to_string()
}

fn state(body: &PtlrpcBody) -> String {
    let mut words = format!("status={}", body.status);
    if body.kind == MsgType::ERR {
        words.push_str(" ERROR");
    }
    if body.transno.0 != 0 {
        words.push_str(&format!(" transno={}", body.transno.0));
    }
    words
}

fn fields(lnet: &LnetMessage, meaning: &Meaning, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "           ksock: {:?}", lnet.ksock)?;
    writeln!(out, "           lnet: {:?}", lnet.header)?;
    match meaning {
        Meaning::Request(rpc) => {
            message(&rpc.message, &rpc.body, out)?;
            let explained = |field: &FieldInfo, bytes: &Bytes| {
                as_far_as_captured(lnet, explain(rpc.format, false, field.name, bytes))
            };
            buffers(rpc.typed.dump(), rpc.format.request, &rpc.message, explained, out)
        }
        Meaning::Reply(rpc) => {
            message(&rpc.message, &rpc.body, out)?;
            let explained = |field: &FieldInfo, bytes: &Bytes| {
                as_far_as_captured(lnet, explain(rpc.format, true, field.name, bytes))
            };
            buffers(rpc.typed.dump(), rpc.format.reply, &rpc.message, explained, out)
        }
        Meaning::Orphan(head, body) => message(head, body, out),
        Meaning::Bulk(format, bytes) => match explain_bulk(*format, bytes) {
            Content::Typed { shown, .. } => writeln!(out, "           bulk: {shown}"),
            Content::Plain(kind) => writeln!(out, "           bulk: {kind}"),
            Content::Untyped => writeln!(out, "           bulk: {NOT_TYPED}"),
        },
        Meaning::Ping(info) => writeln!(out, "           ping: {info:?}"),
        _ => Ok(()),
    }
}

/// The type of what the capture does not hold is unknown.
fn as_far_as_captured(lnet: &LnetMessage, content: Content) -> Content {
    match content {
        Content::Untyped if lnet.missing > 0 => Content::Plain("not captured"),
        content => content,
    }
}

fn message(message: &Message, body: &PtlrpcBody, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "           message: {:?}", message.header)?;
    writeln!(out, "           ptlrpc_body: {body:?}")
}

/// Writes each buffer that is there, those that the table leaves as bytes by what they are.
fn buffers(
    shown: Vec<(&'static str, String)>,
    fields: &[FieldInfo],
    message: &Message,
    explained: impl Fn(&FieldInfo, &Bytes) -> Content,
    out: &mut impl Write,
) -> io::Result<()> {
    for (name, text) in shown {
        let index = fields.iter().position(|field| field.name == name);
        let opaque = index.filter(|index| fields[*index].kind == FieldKind::Opaque);
        let content = opaque
            .and_then(|index| Some(explained(&fields[index], message.buffers.get(index + 1)?)));
        match content {
            Some(Content::Typed { shown, .. }) => writeln!(out, "           {name}: {shown}")?,
            Some(Content::Plain(kind)) => writeln!(out, "           {name}: {kind} {text}")?,
            Some(Content::Untyped) => writeln!(out, "           {name}: {NOT_TYPED} {text}")?,
            None => writeln!(out, "           {name}: {text}")?,
        }
    }
    Ok(())
}
