//! Ranks as processes.
//!
//! Rank 0 is the process that the user started. It starts the program again, with the words that say what is
//! run, for each other rank, with a socket as standard input, and [`CHILD`] in the environment says which rank it is. A
//! thread for each child sits in its place in the meeting and passes words on, so a meeting costs each
//! child two messages; between meetings nothing is sent.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::meeting::{Link, Meeting, Seat};
use super::{Ended, Job, Rank, Watch, sit, team};
use crate::backend::Backend;
use crate::meter::{Histogram, Latencies, Meter, Recorder};
use crate::progress::Progress;

/// Environment of a child: its rank, the number of ranks, the number of the test, and whether to measure.
pub(crate) const CHILD: &str = "SHEEN_BENCH_RANK";

/// How often is looked whether the run has ended.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Words that one message may have: a few for each of many ranks.
const WORDS_MAX: usize = 1 << 20;

/// Which part of a run a child process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The rank.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// Which of the tests of the command line.
    pub test: usize,
    /// Whether rank 0 wants to know how long operations took.
    pub measures: bool,
}

impl Part {
    /// What the environment says; `None` if this is no child.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(CHILD).ok()?;
        let mut numbers = text.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (rank, size, test) = (next()?, next()?, next()?);
        Some(Self { rank, size, test, measures: next()? == 1 })
    }
}

/// Runs `job` with a team of `size` processes, of which this one is rank 0; `words` are the command line
/// that gives the other ranks the same job, behind the program's name.
///
/// # Errors
/// As [`super::threads`]; a child that dies without a word is one that failed.
pub(crate) fn processes<J: Job>(
    (size, test): (usize, usize),
    words: &[String],
    backend: &dyn Backend,
    watch: Watch,
    job: &J,
) -> Result<J::Answer, Ended> {
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find the program to start ranks with: {error}"))?;
    let meeting = Meeting::new(size, watch.stop);
    let progress = Progress::new(1, size, watch.meter);
    let mut children = Vec::new();
    for rank in 1..size {
        let part = Part { rank, size, test, measures: watch.meter.is_some() };
        match spawn(&program, words, part) {
            Ok(child) => children.push(child),
            Err(error) => {
                meeting.end(Ended::Failed(format!("cannot start rank {rank}: {error}")));
                break;
            }
        }
    }
    team(&meeting, &progress, |scope, meeting| {
        for (index, (child, stream)) in children.into_iter().enumerate() {
            let seat = Seat { meeting, number: index + 1 };
            scope.spawn(move || serve(seat, child, stream, watch.meter));
        }
        sit(Seat { meeting, number: 0 }, size, backend, &progress, 0, job)
    })
}

fn spawn(
    program: &std::path::Path,
    words: &[String],
    part: Part,
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.args(words).stdin(OwnedFd::from(theirs));
    let Part { rank, size, test, measures } = part;
    command.env(CHILD, format!("{rank} {size} {test} {}", u8::from(measures)));
    // What a user types goes to rank 0 alone; it passes it on.
    command.process_group(0);
    Ok((command.spawn()?, ours))
}

/// Sits in a child's place.
fn serve(mut seat: Seat, mut child: Child, mut stream: UnixStream, meter: Option<&Meter>) {
    let (meeting, number) = (seat.meeting, seat.number);
    let gone = |error: io::Error| Ended::Failed(format!("rank {number} is gone: {error}"));
    let ended = loop {
        if let Some(ended) = wait(meeting, &stream) {
            break Some(ended);
        }
        let own = match read_message(&mut stream) {
            Ok(Message::Words(words)) => words,
            Ok(Message::Latencies(latencies)) => {
                meter.inspect(|meter| meter.add(&latencies));
                continue;
            }
            Ok(Message::Done) => break None,
            Ok(Message::Ended(ended)) => break Some(ended),
            Err(error) => break Some(gone(error)),
        };
        match seat.exchange(&own) {
            Ok(all) => {
                if let Err(error) = write_all_words(&mut stream, &all) {
                    break Some(gone(error));
                }
            }
            Err(ended) => break Some(ended),
        }
    };
    if let Some(ended) = ended {
        meeting.end(ended);
        // It may be between two meetings: this makes it look.
        if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::INT);
        }
    }
    drop(stream);
    // Its exit code says nothing that it has not reported.
    let _ = child.wait();
}

/// Waits until the child says something. Answers why the run ended, if it does before: a child between two
/// meetings hears nothing.
fn wait(meeting: &Meeting, stream: &UnixStream) -> Option<Ended> {
    loop {
        if meeting.stop().load(Ordering::Relaxed) {
            return Some(meeting.ended().unwrap_or(Ended::Interrupted));
        }
        let mut asked = [PollFd::new(stream, PollFlags::IN)];
        match poll(&mut asked, Some(&LOOK_AGAIN)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // A failure shows when it is read.
            Ok(_) | Err(_) => return None,
        }
    }
}

/// A child's whole part. Its own failure is reported by rank 0, so there is nothing to answer.
///
/// # Errors
/// What it met.
pub(crate) fn child<J: Job>(
    part: Part,
    backend: &dyn Backend,
    stop: &AtomicBool,
    job: &J,
) -> Result<J::Answer, Ended> {
    let own = |error: io::Error| Ended::Failed(format!("cannot connect to rank 0: {error}"));
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(own)?;
    let mut stream = UnixStream::from(input);
    let progress = Progress::new(1, 1, None);
    let link = SocketLink(stream.try_clone().map_err(own)?);
    let mut rank = Rank {
        number: part.rank,
        size: part.size,
        link: Box::new(link),
        stop,
        counter: progress.counter(0),
        progress: &progress,
        recorder: part.measures.then(Recorder::default),
    };
    let worker = backend.worker(part.rank, part.size).map_err(Ended::Failed);
    let done = worker.and_then(|mut worker| job.run(&mut rank, &mut *worker));
    if let Some(recorder) = &rank.recorder {
        // As below: if rank 0 has gone, no rank reads it.
        let _ = write_latencies(&mut stream, recorder.latencies());
    }
    let sent = match &done {
        Ok(_) => stream.write_all(&[DONE]),
        Err(Ended::Failed(line)) => write_line(&mut stream, line),
        Err(Ended::Interrupted) => stream.write_all(&[INTERRUPTED]),
    };
    // If rank 0 has gone, no rank reads it.
    let _ = sent;
    stop.store(true, Ordering::Relaxed);
    done
}

/// A child's way to the other ranks.
struct SocketLink(UnixStream);

impl Link for SocketLink {
    fn exchange(&mut self, own: &[u64]) -> Result<Vec<Vec<u64>>, Ended> {
        // Rank 0 closes when the run ends, and reports why itself.
        let ended = |_: io::Error| Ended::Interrupted;
        self.0.write_all(&[WORDS]).map_err(ended)?;
        write_words(&mut self.0, own).map_err(ended)?;
        let size = read_length(&mut self.0).map_err(ended)?;
        (0..size).map(|_| read_words(&mut self.0).map_err(ended)).collect()
    }
}

const WORDS: u8 = 0;
const DONE: u8 = 1;
const INTERRUPTED: u8 = 2;
const FAILED: u8 = 3;
const LATENCIES: u8 = 4;

/// What a child says.
enum Message {
    Words(Vec<u64>),
    Latencies(Latencies),
    Done,
    Ended(Ended),
}

fn read_message(stream: &mut UnixStream) -> io::Result<Message> {
    let mut tag = [0];
    stream.read_exact(&mut tag)?;
    Ok(match tag[0] {
        WORDS => Message::Words(read_words(stream)?),
        DONE => Message::Done,
        INTERRUPTED => Message::Ended(Ended::Interrupted),
        LATENCIES => Message::Latencies(read_latencies(stream)?),
        _ => {
            let mut line = vec![0; read_length(stream)?];
            stream.read_exact(&mut line)?;
            Message::Ended(Ended::Failed(String::from_utf8_lossy(&line).into_owned()))
        }
    })
}

fn read_length(stream: &mut UnixStream) -> io::Result<usize> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    let length = usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX);
    if length > WORDS_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

fn read_words(stream: &mut UnixStream) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; read_length(stream)? * 8];
    stream.read_exact(&mut bytes)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn write_words(stream: &mut UnixStream, words: &[u64]) -> io::Result<()> {
    let mut bytes = (words.len() as u64).to_le_bytes().to_vec();
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    stream.write_all(&bytes)
}

fn write_all_words(stream: &mut UnixStream, all: &[Vec<u64>]) -> io::Result<()> {
    stream.write_all(&(all.len() as u64).to_le_bytes())?;
    all.iter().try_for_each(|words| write_words(stream, words))
}

fn write_latencies(stream: &mut UnixStream, latencies: &Latencies) -> io::Result<()> {
    stream.write_all(&[LATENCIES])?;
    stream.write_all(&(latencies.len() as u64).to_le_bytes())?;
    for (phase, histogram) in latencies {
        stream.write_all(&(phase.len() as u64).to_le_bytes())?;
        stream.write_all(phase.as_bytes())?;
        write_words(stream, &histogram.to_words())?;
    }
    Ok(())
}

fn read_latencies(stream: &mut UnixStream) -> io::Result<Latencies> {
    let count = read_length(stream)?;
    let one = |_| {
        let mut phase = vec![0; read_length(stream)?];
        stream.read_exact(&mut phase)?;
        let histogram = Histogram::from_words(&read_words(stream)?);
        Ok((String::from_utf8_lossy(&phase).into_owned(), histogram))
    };
    (0..count).map(one).collect()
}

fn write_line(stream: &mut UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(&[FAILED])?;
    stream.write_all(&(line.len() as u64).to_le_bytes())?;
    stream.write_all(line.as_bytes())
}
