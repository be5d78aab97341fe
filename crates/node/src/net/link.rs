//! One established connection, as its senders see it.
//!
//! A sender that finds nothing queued writes by itself, on its own task: no wakeup, one system
//! call. Who comes meanwhile queues, and the one who writes takes all that is queued with the next
//! system call. Only when the socket is full does the link's writer task take over, until it
//! has drained. No lock is held during a system call.
//!
//! A frame that no caller waits for, such as a close, may linger: it goes with the next message, or by itself after
//! [`LINGER_TIME`]. One frame at a time does; the next one takes it along. And while the messages of one
//! read are worked on, answers are gathered: they go with one system call.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use sheen_io::{ReadStream, WriteStream};
use sheen_lnet::{Frame, LinkId, Partner, limits};
use sheen_types::{Instant, Nid};

use super::turns::PeerTurns;

/// How long a frame that no caller waits for may linger: long beside a request and its answer, so that
/// the next request takes it along.
pub(super) const LINGER_TIME: Duration = Duration::from_millis(4);

/// What a piece of a frame that waits costs beside its bytes: an allocation with room to spare, and its place in
/// the queue. Measured with 300,000 answers to pings that were not taken: 1.4 KiB each, of two pieces and 320 bytes.
const PIECE_OVERHEAD_BYTES: usize = 512;

struct Outbox {
    queue: VecDeque<Bytes>,
    /// With [`PIECE_OVERHEAD_BYTES`] for each piece.
    queued_bytes: usize,
    /// Absent while a task writes.
    writer: Option<Box<dyn WriteStream>>,
    /// The socket is full; only the writer task may write.
    blocked: bool,
    /// All that is queued is one frame that lingers.
    lingers: bool,
    /// A timer will send what lingers after [`LINGER_TIME`].
    is_watched: bool,
    /// Answers are being gathered.
    gathers: bool,
    /// Since when nothing could be written.
    stuck_since: Option<Instant>,
    writer_task: Option<Waker>,
}

/// What is taken from a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// More than the peer's word shows that it is at its NID.
    pub(super) is_proven: bool,
    /// Its requests to targets are taken.
    pub(super) may_ask: bool,
    /// Whose budget it uses up: its NID, or its address, if only its word shows that it is at that.
    pub(super) account: Nid,
}

/// What all connections of a peer have in common, under whatever NIDs.
#[derive(Default)]
pub(super) struct PeerShared {
    /// Bytes that wait for any of its sockets.
    backlog: AtomicUsize,
    pub(super) turns: PeerTurns,
}

impl PeerShared {
    pub(super) fn new(turns: PeerTurns) -> Self {
        Self { backlog: AtomicUsize::new(0), turns }
    }
}

/// An established connection.
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) partner: Partner,
    pub(super) trust: Trust,
    pub(super) since: Instant,
    outbox: Mutex<Outbox>,
    reader_task: Mutex<Option<Waker>>,
    closed: AtomicBool,
    sent_at: AtomicU64,
    pub(super) shared_of_peer: Arc<PeerShared>,
    /// Nothing is read before this; 0 mostly.
    paused_until: AtomicU64,
}

enum Written {
    All,
    Blocked,
    Failed(io::Error),
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        (partner, trust): (Partner, Trust),
        writer: Box<dyn WriteStream>,
        shared_of_peer: Arc<PeerShared>,
        now: Instant,
    ) -> Self {
        let outbox = Outbox {
            queue: VecDeque::new(),
            queued_bytes: 0,
            writer: Some(writer),
            blocked: false,
            lingers: false,
            is_watched: false,
            gathers: false,
            stuck_since: None,
            writer_task: None,
        };
        Self {
            id,
            partner,
            trust,
            since: now,
            outbox: Mutex::new(outbox),
            reader_task: Mutex::new(None),
            closed: AtomicBool::new(false),
            sent_at: AtomicU64::new(now.0),
            shared_of_peer,
            paused_until: AtomicU64::new(0),
        }
    }

    /// Sends or queues a frame; false if the connection is closed or too much is queued.
    pub(super) fn send(&self, frame: Frame, now: Instant) -> bool {
        let mut outbox = self.outbox.lock();
        if !self.queue(&mut outbox, frame, now) {
            return false;
        }
        self.write_queued(outbox, now);
        true
    }

    /// As [`Link::send`], of a frame that may linger. The caller must call [`Link::end_lingering`] after
    /// [`LINGER_TIME`] if the second answer says so.
    pub(super) fn send_lingering(&self, frame: Frame, now: Instant) -> (bool, bool) {
        let mut outbox = self.outbox.lock();
        let may_linger = outbox.queue.is_empty() && outbox.writer.is_some() && !outbox.blocked;
        if !self.queue(&mut outbox, frame, now) {
            return (false, false);
        }
        if !may_linger {
            self.write_queued(outbox, now);
            return (true, false);
        }
        outbox.lingers = true;
        (true, !std::mem::replace(&mut outbox.is_watched, true))
    }

    /// Sends what still lingers.
    pub(super) fn end_lingering(&self, now: Instant) {
        let mut outbox = self.outbox.lock();
        outbox.is_watched = false;
        if std::mem::take(&mut outbox.lingers) {
            self.write_queued(outbox, now);
        }
    }

    /// From now until [`Link::send_gathered`] what is sent queues.
    pub(super) fn gather(&self) {
        self.outbox.lock().gathers = true;
    }

    /// Sends what was gathered.
    pub(super) fn send_gathered(&self, now: Instant) {
        let mut outbox = self.outbox.lock();
        outbox.gathers = false;
        if !outbox.queue.is_empty() && !outbox.lingers {
            self.write_queued(outbox, now);
        }
    }

    fn queue(&self, outbox: &mut Outbox, frame: Frame, now: Instant) -> bool {
        self.sent_at.store(now.0, Ordering::Relaxed);
        if self.closed.load(Ordering::Acquire) || self.is_full(frame.length) {
            return false;
        }
        outbox.lingers = false;
        let before = outbox.queue.len();
        outbox.queue.push_back(frame.head);
        outbox.queue.extend(frame.payload.into_iter().filter(|piece| !piece.is_empty()));
        let cost = frame.length + (outbox.queue.len() - before) * PIECE_OVERHEAD_BYTES;
        outbox.queued_bytes += cost;
        self.shared_of_peer.backlog.fetch_add(cost, Ordering::Relaxed);
        true
    }

    fn is_full(&self, more: usize) -> bool {
        self.shared_of_peer.backlog.load(Ordering::Relaxed) + more > limits::WAITING_BYTES_MAX
    }

    /// Bytes that wait for the peer, at all its connections.
    pub(super) fn backlog(&self) -> usize {
        self.shared_of_peer.backlog.load(Ordering::Relaxed)
    }

    /// Whether a frame was refused because too much waits, and the link should be closed for it.
    pub(super) fn is_choked(&self, length: usize) -> bool {
        !self.closed.load(Ordering::Acquire) && self.is_full(length)
    }

    /// Nothing more is read before `until`.
    pub(super) fn pause_until(&self, until: Instant) {
        self.paused_until.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Until when nothing is to be read.
    pub(super) fn paused(&self, now: Instant) -> Option<Instant> {
        let until = Instant(self.paused_until.load(Ordering::Relaxed));
        (until > now).then_some(until)
    }

    /// Writes what is queued, unless another thread does, or will.
    fn write_queued(&self, mut outbox: MutexGuard<'_, Outbox>, now: Instant) {
        if outbox.blocked || outbox.gathers {
            return;
        }
        let Some(writer) = outbox.writer.take() else { return };
        outbox.lingers = false;
        drop(outbox);
        self.drain(writer, &mut Context::from_waker(Waker::noop()), now);
    }

    /// The writer task: writes what senders could not; ends with the connection.
    pub(super) fn poll_writer(&self, context: &mut Context<'_>, now: Instant) -> Poll<()> {
        let mut outbox = self.outbox.lock();
        if self.closed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        outbox.writer_task = Some(context.waker().clone());
        if !outbox.blocked {
            return Poll::Pending;
        }
        let Some(writer) = outbox.writer.take() else { return Poll::Pending };
        drop(outbox);
        self.drain(writer, context, now);
        match self.closed.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Reads, or ends with `Ok(0)` when the link was closed on this side.
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        reader: &mut dyn ReadStream,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        if self.closed.load(Ordering::Acquire) {
            return Poll::Ready(Ok(0));
        }
        if let Poll::Ready(result) = reader.poll_read(context, buffer) {
            return Poll::Ready(result);
        }
        let mut task = self.reader_task.lock();
        if !task.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *task = Some(context.waker().clone());
        }
        // Closed between the look above and now: the closer may have missed the waker.
        if self.closed.load(Ordering::Acquire) { Poll::Ready(Ok(0)) } else { Poll::Pending }
    }

    /// Closes this side; the reader task notices and reports.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let mut outbox = self.outbox.lock();
        outbox.queue.clear();
        let queued = std::mem::take(&mut outbox.queued_bytes);
        self.shared_of_peer.backlog.fetch_sub(queued, Ordering::Relaxed);
        let writer = outbox.writer.take();
        let writer_task = outbox.writer_task.take();
        drop(outbox);
        drop(writer);
        let reader_task = self.reader_task.lock().take();
        for waker in [writer_task, reader_task].into_iter().flatten() {
            waker.wake();
        }
    }

    /// How long nothing was sent, and for how long sending has been impossible.
    pub(super) fn idle(&self, now: Instant) -> (std::time::Duration, std::time::Duration) {
        let idle = now.since(Instant(self.sent_at.load(Ordering::Relaxed)));
        let stuck = self.outbox.lock().stuck_since.map(|since| now.since(since));
        (idle, stuck.unwrap_or_default())
    }

    /// Bytes that wait for the socket, with what they cost.
    pub(super) fn queued_bytes(&self) -> usize {
        self.outbox.lock().queued_bytes
    }

    /// Writes until nothing is queued or the socket is full. The caller took the writer out.
    fn drain(&self, mut writer: Box<dyn WriteStream>, context: &mut Context<'_>, now: Instant) {
        let mut batch = VecDeque::new();
        loop {
            let mut outbox = self.outbox.lock();
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            if outbox.queue.is_empty() {
                (outbox.blocked, outbox.stuck_since) = (false, None);
                // Keeps the queue's memory for the next time.
                outbox.queue = batch;
                outbox.writer = Some(writer);
                return;
            }
            std::mem::swap(&mut batch, &mut outbox.queue);
            drop(outbox);
            let pieces = batch.len();
            let (written, result) = write(writer.as_mut(), context, &mut batch);
            let written = written + (pieces - batch.len()) * PIECE_OVERHEAD_BYTES;
            let mut outbox = self.outbox.lock();
            // Less, where the link was closed meanwhile.
            let written = written.min(outbox.queued_bytes);
            outbox.queued_bytes -= written;
            self.shared_of_peer.backlog.fetch_sub(written, Ordering::Relaxed);
            match result {
                Written::All => {}
                Written::Blocked => {
                    batch.append(&mut outbox.queue);
                    outbox.queue = batch;
                    if written > 0 || outbox.stuck_since.is_none() {
                        outbox.stuck_since = Some(now);
                    }
                    if self.closed.load(Ordering::Acquire) {
                        return;
                    }
                    outbox.writer = Some(writer);
                    let was_blocked = std::mem::replace(&mut outbox.blocked, true);
                    let task = outbox.writer_task.clone().filter(|_| !was_blocked);
                    drop(outbox);
                    if let Some(task) = task {
                        task.wake();
                    }
                    return;
                }
                Written::Failed(error) => {
                    drop(outbox);
                    tracing::debug!("write to {} failed: {error}", self.partner.nid);
                    self.close();
                    return;
                }
            }
        }
    }
}

/// Writes all pieces, or as many bytes as the socket takes.
fn write(
    writer: &mut dyn WriteStream,
    context: &mut Context<'_>,
    pieces: &mut VecDeque<Bytes>,
) -> (usize, Written) {
    let mut total = 0;
    while !pieces.is_empty() {
        let contiguous = pieces.make_contiguous();
        let count = contiguous.len().min(limits::WRITE_PIECES_MAX);
        match writer.poll_write(context, &contiguous[..count]) {
            Poll::Pending => return (total, Written::Blocked),
            Poll::Ready(Ok(0)) => {
                return (total, Written::Failed(io::ErrorKind::WriteZero.into()));
            }
            Poll::Ready(Ok(written)) => {
                total += written;
                advance(pieces, written);
            }
            Poll::Ready(Err(error)) => return (total, Written::Failed(error)),
        }
    }
    (total, Written::All)
}

/// Takes written bytes off the front.
fn advance(pieces: &mut VecDeque<Bytes>, mut bytes: usize) {
    while let Some(first) = pieces.front_mut() {
        if first.len() > bytes {
            first.advance(bytes);
            return;
        }
        bytes -= first.len();
        pieces.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sheen_wire::lnet::ConnectionType;

    use super::*;

    /// Notes what each write brought.
    struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

    impl WriteStream for Writes {
        fn poll_write(&mut self, _: &mut Context<'_>, pieces: &[Bytes]) -> Poll<io::Result<usize>> {
            let all = pieces.concat();
            let length = all.len();
            self.0.lock().push(all);
            Poll::Ready(Ok(length))
        }

        fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn link() -> (Link, Arc<Mutex<Vec<Vec<u8>>>>) {
        let written = Arc::new(Mutex::default());
        let writer = Box::new(Writes(Arc::clone(&written)));
        let nid = Nid::tcp(Ipv4Addr::LOCALHOST);
        let partner = Partner { nid, pid: 1, incarnation: 1, kind: ConnectionType::CONTROL };
        let trust = Trust { is_proven: true, may_ask: true, account: nid };
        (Link::new(LinkId(1), (partner, trust), writer, Arc::default(), Instant(0)), written)
    }

    fn frame(byte: u8) -> Frame {
        Frame { head: Bytes::copy_from_slice(&[byte]), payload: Vec::new(), length: 1 }
    }

    #[test]
    fn what_lingers_goes_with_the_next_or_by_itself() {
        let (link, written) = link();
        let take = || std::mem::take(&mut *written.lock());
        assert_eq!(link.send_lingering(frame(1), Instant(0)), (true, true));
        assert_eq!(take(), [[0; 0]; 0]);
        assert!(link.send(frame(2), Instant(1)));
        assert_eq!(take(), [[1, 2]]);
        // A timer is set already; two do not linger.
        assert_eq!(link.send_lingering(frame(3), Instant(2)), (true, false));
        assert_eq!(link.send_lingering(frame(4), Instant(3)), (true, false));
        assert_eq!(take(), [[3, 4]]);
        link.end_lingering(Instant(4));
        assert_eq!(take(), [[0; 0]; 0]);
        assert_eq!(link.send_lingering(frame(5), Instant(5)), (true, true));
        link.end_lingering(Instant(6));
        assert_eq!((take(), link.queued_bytes()), (vec![vec![5]], 0));
    }

    #[test]
    fn what_is_gathered_goes_with_one_write_and_nothing_stays_behind() {
        let (link, written) = link();
        let take = || std::mem::take(&mut *written.lock());
        link.gather();
        assert!(link.send(frame(1), Instant(0)) && link.send(frame(2), Instant(0)));
        assert_eq!(take(), [[0; 0]; 0]);
        link.send_gathered(Instant(1));
        assert_eq!(take(), [[1, 2]]);
        // Its time to linger ends while other frames gather.
        assert_eq!(link.send_lingering(frame(3), Instant(2)), (true, true));
        link.gather();
        link.end_lingering(Instant(3));
        assert_eq!(take(), [[0; 0]; 0]);
        link.send_gathered(Instant(4));
        assert_eq!((take(), link.queued_bytes()), (vec![vec![3]], 0));
    }
}
