//! The two halves of a connection, by TCP or by a UNIX socket.
//!
//! A read is one `recv` into the caller's buffer, a write one `writev` of the caller's pieces:
//! nothing is copied here. After a read or write that stops short tokio knows that the socket is
//! empty or full, so that no further system call is spent on learning it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use sheen_io::{ReadStream, WriteStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// Pieces in one `writev`; what is more waits for the next.
const PIECES_MAX: usize = 64;

pub(crate) struct ReadHalf<R>(pub(crate) R);

impl<R: AsyncRead + Unpin + Send> ReadStream for ReadHalf<R> {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        // The future holds nothing between polls, so a new one each time is as good.
        pin!(self.0.read_buf(buffer)).poll(context)
    }
}

pub(crate) struct WriteHalf<W>(pub(crate) W);

impl<W: AsyncWrite + Unpin + Send> WriteStream for WriteHalf<W> {
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[Bytes],
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let count = pieces.len().min(PIECES_MAX);
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
        }
        Pin::new(&mut self.0).poll_write_vectored(context, &slices[..count])
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
