//! `sheen top`: what the servers and mounts of this machine do at this moment.
//!
//! Everything shown comes from the parameter trees, over the control sockets: counters are read once an
//! interval, and a rate is the difference of two readings. It costs a server what `lctl get_param` of the same
//! names does.

mod reading;
mod screen;
mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use sheen_control::Client;
use sheen_types::Errno;

use crate::output::{Fault, text_out};
use crate::{interrupt, processes};
use reading::Reading;
use screen::{Key, Screen};
use table::Sort;

/// How often keys and the terminal's size are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The longest interval, in seconds.
const INTERVAL_MAX: f64 = 3600.0;
/// What `?` shows.
const HELP: &str = "sheen top

  q       quit                      s  sort by name, operations, bytes, latency
  p       pause or resume           up, down, page up, page down  move
  ?       show or leave this help

TARGET  an MDT or OST: what it did in the last interval, for all its clients
CLIENT  a node, summed over all targets of this machine's servers
MOUNT   a mount of this machine: the system calls of its programs
SERVICE requests by service, and how long they wait before they are started

OPS/s counts requests (system calls for a mount). MEAN ms is from a request's arrival to its end.
IN WORK are requests that have started and not ended, OLDEST s is the age of the oldest.
IO P99 ms: 99 of 100 accesses to a target's store took no longer than this.
A request that takes longer than a tenth of a second is listed with what it waits for:

  working    nothing             lock       clients that hold conflicting locks
  operation  another operation   bulk       data on its way from or to the client
             on the same file    disk       the disk
  recovery   clients to return   objects    new objects from an OST";

/// Show live activity of the servers and mounts of this machine
///
/// On a terminal the screen is updated every second, and `?` lists the keys. Otherwise, and with -b, plain text is
/// written, a block for each interval.
#[derive(Args)]
pub struct Top {
    /// Only the processes of the file system in this directory, as for `sheen up`
    #[arg(long, value_name = "DIR", conflicts_with = "sockets")]
    dir: Option<PathBuf>,
    /// Only the processes behind these control sockets [default: all of the user's]
    #[arg(long = "socket", value_name = "SOCKET", num_args = 1..)]
    sockets: Vec<PathBuf>,
    /// Seconds between readings
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    delay: f64,
    /// Print N reports as plain text and exit
    #[arg(short, long, value_name = "N")]
    batch: Option<u64>,
    /// Same as -b 1
    #[arg(long, conflicts_with = "batch")]
    once: bool,
}

/// Finds the processes of the file system in a directory of `sheen up`, those that answer.
pub type ProcessesOf = fn(&Path) -> Vec<Client>;

/// Shows, until the user ends it, what the processes do; those of a directory are found by `processes_of`.
///
/// # Errors
/// No process answers, or the terminal cannot be used.
pub fn run(options: &Top, processes_of: ProcessesOf) -> Result<(), Fault> {
    if !(0.05..=INTERVAL_MAX).contains(&options.delay) {
        let text = format!("sheen top: --delay must be between 0.05 and {INTERVAL_MAX}");
        return Err(Fault::new(Errno::EINVAL, text));
    }
    let stop = interrupt::listen()?;
    let source = Source { options, processes_of };
    let Some(first) = source.read(stop) else { return Ok(()) };
    if first.processes == 0 {
        return Err(Fault::new(
            Errno::ENODEV,
            "sheen top: no server or mount answers on this machine",
        ));
    }
    match options.batch.or(options.once.then_some(1)) {
        Some(count) => source.write(first, count, stop),
        None if !screen::is_there() => source.write(first, u64::MAX, stop),
        None => source
            .show(first, stop)
            .map_err(|error| Fault::new(Errno::EIO, format!("sheen top: the terminal: {error}"))),
    }
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What is read, once an interval.
struct Source<'a> {
    options: &'a Top,
    processes_of: ProcessesOf,
}

impl Source<'_> {
    /// `None` if the user wants to end before there is one: a process that stands still is waited for.
    #[expect(clippy::disallowed_methods, reason = "a tool that waits for other processes")]
    fn read(&self, stop: &AtomicBool) -> Option<Reading> {
        let (directory, sockets) = (self.options.dir.clone(), self.options.sockets.clone());
        let processes_of = self.processes_of;
        let (sender, reading) = mpsc::channel();
        // It ends with this process if it is not waited for.
        drop(std::thread::spawn(move || {
            let processes = match (&directory, &sockets[..]) {
                (Some(directory), _) => processes_of(directory),
                (None, []) => processes::all(),
                (None, paths) => {
                    paths.iter().filter_map(|path| Client::connect(path).ok()).collect()
                }
            };
            // After its end no one takes it.
            _ = sender.send(Reading::take(processes, now()));
        }));
        loop {
            match reading.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                read => return read.ok(),
            }
        }
    }

    /// Plain text, a block for each interval, until the reader has gone or the user wants no more.
    #[expect(clippy::disallowed_methods, reason = "a tool that waits for time to pass")]
    fn write(&self, mut old: Reading, count: u64, stop: &AtomicBool) -> Result<(), Fault> {
        for block in 0..count {
            let until = old.at + self.options.delay;
            while now() < until {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                std::thread::sleep(LOOK.min(Duration::from_secs_f64((until - now()).max(0.0))));
            }
            let Some(new) = self.read(stop) else { return Ok(()) };
            let gap = if block > 0 { "\n" } else { "" };
            text_out(&format!("{gap}{}\n", table::lines(&old, &new, Sort::Name).join("\n")));
            old = new;
        }
        Ok(())
    }

    fn show(&self, first: Reading, stop: &AtomicBool) -> std::io::Result<()> {
        let mut screen = Screen::open()?;
        let mut view = View { old: first.clone(), new: first, ..View::default() };
        let mut drawn = None;
        while !stop.load(Ordering::Relaxed) {
            if !view.is_paused && now() >= view.new.at + self.options.delay {
                let Some(new) = self.read(stop) else { return Ok(()) };
                view.old = std::mem::replace(&mut view.new, new);
                drawn = None;
            }
            let size = screen.size();
            if drawn != Some(size) {
                screen.draw(&view.lines(size.1))?;
                drawn = Some(size);
            }
            if let Some(key) = screen.key(LOOK)? {
                if !view.press(key, size.1) {
                    return Ok(());
                }
                drawn = None;
            }
        }
        Ok(())
    }
}

/// What the screen shows.
struct View {
    old: Reading,
    new: Reading,
    sort: Sort,
    is_paused: bool,
    helps: bool,
    /// Lines that have been moved out at the top.
    top: usize,
}

impl Default for View {
    fn default() -> Self {
        let (old, new) = (Reading::default(), Reading::default());
        Self { old, new, sort: Sort::Operations, is_paused: false, helps: false, top: 0 }
    }
}

impl View {
    /// Does what a key says; whether to go on.
    fn press(&mut self, key: Key, rows: usize) -> bool {
        let page = rows.saturating_sub(2).max(1);
        match key {
            Key::End | Key::Letter(b'q' | b'Q') => return false,
            Key::Letter(b's') => self.sort = self.sort.next(),
            Key::Letter(b'p') => self.is_paused = !self.is_paused,
            Key::Letter(b'?' | b'h') => (self.helps, self.top) = (!self.helps, 0),
            Key::Up => self.top = self.top.saturating_sub(1),
            Key::Down => self.top += 1,
            Key::PageUp => self.top = self.top.saturating_sub(page),
            Key::PageDown => self.top += page,
            Key::Letter(_) => {}
        }
        true
    }

    /// What goes onto a screen of so many rows.
    fn lines(&mut self, rows: usize) -> Vec<String> {
        let mut lines = table::lines(&self.old, &self.new, self.sort);
        let state = if self.is_paused { "paused, " } else { "" };
        let head = format!("sheen top: {}  ({state}by {}, ? helps)", lines[0], self.sort.name());
        lines.remove(0);
        if self.helps {
            lines = HELP.lines().map(str::to_owned).collect();
        }
        self.top = self.top.min((lines.len() + 1).saturating_sub(rows));
        std::iter::once(head).chain(lines.drain(self.top..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_move_sort_pause_and_help_and_never_leave_the_lines() {
        let mut view = View::default();
        for number in 0..30 {
            view.new
                .targets
                .insert(format!("fs-OST{number:04x}"), reading::TargetReading::default());
        }
        let all = view.lines(100).len();
        assert_eq!(all, 1 + 1 + 1 + 30);
        assert!(view.press(Key::Down, 10));
        assert_eq!(view.lines(10).len(), all - 1);
        assert!(view.press(Key::PageDown, 10) && view.press(Key::PageDown, 1000));
        assert_eq!(view.lines(10).len(), 10, "the last lines stay in sight");
        assert!(view.press(Key::PageUp, 1000));
        assert_eq!(view.lines(10).len(), all);
        assert!(view.press(Key::Letter(b's'), 10) && view.press(Key::Letter(b'p'), 10));
        assert!(view.lines(10)[0].ends_with("(paused, by bytes, ? helps)"));
        assert!(view.press(Key::Letter(b'?'), 10));
        assert!(view.lines(80).iter().any(|line| line.contains("clients that hold conflicting")));
        assert!(view.press(Key::Letter(b'x'), 10));
        assert!(!view.press(Key::Letter(b'q'), 10) && !view.press(Key::End, 10));
    }
}
