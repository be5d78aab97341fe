//! Reading and writing the streams of one connection.

use std::future::poll_fn;
use std::io;

use bytes::{Buf, Bytes};
use sheen_io::{Connection, WriteStream};
use sheen_lnet::{Handshake, HandshakeProgress, Refusal};

/// Reads until the peer is known; says its last words if it never will be.
pub(super) async fn open(
    handshake: &mut Handshake,
    connection: &mut Connection,
) -> io::Result<HandshakeProgress> {
    loop {
        match handshake.advance() {
            Ok(HandshakeProgress::More) => {}
            Ok(progress) => return Ok(progress),
            Err(Refusal { error, answer }) => {
                if let Some(answer) = answer {
                    write_all(&mut connection.writer, vec![answer]).await?;
                    poll_fn(|context| connection.writer.poll_shutdown(context)).await?;
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        let read =
            poll_fn(|context| connection.reader.poll_read(context, handshake.space())).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

pub(super) async fn write_all(
    writer: &mut Box<dyn WriteStream>,
    mut pieces: Vec<Bytes>,
) -> io::Result<()> {
    while !pieces.is_empty() {
        let mut written = poll_fn(|context| writer.poll_write(context, &pieces)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = pieces.first_mut() {
            let taken = written.min(first.len());
            first.advance(taken);
            written -= taken;
            if !first.is_empty() {
                break;
            }
            pieces.remove(0);
        }
    }
    Ok(())
}
