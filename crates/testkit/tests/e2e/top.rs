//! `sheen top` shows what is done, on a pipe and on a terminal, and gives the terminal back.
#![allow(clippy::disallowed_methods, reason = "a terminal that a test looks at while time passes")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{go_on, stop, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::statistics::samples;

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(30);

/// The blocks that were printed, each by its lines.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("processes ") {
            blocks.push(Vec::new());
        }
        blocks.last_mut().into_iter().for_each(|block| block.push(line));
    }
    blocks
}

/// The numbers of a row; those that are not known are none.
fn row(block: &[&str], name: &str) -> Outcome<Vec<f64>> {
    let line = block.iter().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.ok_or_else(|| format!("no row {name} in {block:?}"))?;
    Ok(line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect())
}

/// The rows of a section, by the first word of its title.
fn section<'a>(block: &[&'a str], title: &str) -> Vec<&'a str> {
    let is_title = |line: &&&str| !line.starts_with(&format!("{title} "));
    let rows = block.iter().skip_while(is_title).skip(1);
    rows.copied().take_while(|line| !line.is_empty()).collect()
}

/// The text of `sheen top` as it goes on, with the blocks that are whole.
struct Running {
    top: Child,
    log: PathBuf,
}

impl Running {
    fn start(cluster: &Cluster) -> Outcome<Self> {
        let (dir, log) = (cluster.dir().display().to_string(), cluster.logs().join("top.txt"));
        let out = File::create(&log).context("top.txt")?;
        let mut top = cluster.command(&["top", "--dir", &dir, "-d", "1"]);
        let top = top.stdin(Stdio::null()).stdout(out).spawn().context("sheen top")?;
        Ok(Self { top, log })
    }

    /// A block is whole when the next one has begun.
    fn blocks(&self) -> usize {
        blocks(&text(&self.log)).len().saturating_sub(1)
    }

    fn wait_for(&self, blocks: usize) -> Outcome {
        wait_until("readings", LIMIT, || self.blocks() >= blocks)
    }

    /// Ends it as a user does who has seen enough.
    fn end(mut self) -> Outcome<String> {
        let pid = rustix::process::Pid::from_child(&self.top);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).context("kill")?;
        let ended = self.top.wait().context("sheen top")?;
        let text = text(&self.log);
        ensure(ended.success(), || format!("{ended}: {text}"))?;
        Ok(text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.top.kill();
        let _ = self.top.wait();
    }
}

/// What rates say that was done between the first reading and the last, however long that took: operations of the MDT, and
/// bytes in MB that OSTs, the mount and clients have written.
fn done(text: &str) -> Outcome<[f64; 4]> {
    let mut sums = [0.0; 4];
    let blocks = blocks(text);
    for block in blocks.iter().rev().skip(1) {
        let seconds =
            block[0].rsplit(", ").next().and_then(|word| word.split(' ').next()?.parse().ok());
        let seconds: f64 = seconds.ok_or_else(|| format!("no time in {}", block[0]))?;
        let mut add = |sum: usize, rows: &[&str], of: &str, column: usize| -> Outcome {
            let of = rows.iter().filter(|row| row.contains(of)).copied();
            for name in of.filter_map(|row| row.split_whitespace().next()) {
                sums[sum] += row(rows, name)?[column] * seconds;
            }
            Ok(())
        };
        let [targets, mounts, clients] = ["TARGET", "MOUNT", "CLIENT"].map(|it| section(block, it));
        add(0, &targets, "-MDT0000", 0)?;
        add(1, &targets, "-OST", 2)?;
        add(2, &mounts, "sheen-", 2)?;
        add(3, &clients, "@tcp", 2)?;
    }
    Ok(sums)
}

fn batch(cluster: &Cluster) -> Outcome {
    const MIB: usize = 1 << 20;
    let (before, _) = samples(cluster, "mdt.*.md_stats", "open")?;
    let running = Running::start(cluster)?;
    // The load lies between two readings, however long each takes.
    running.wait_for(1)?;
    for number in 0..200 {
        fs::write(cluster.mnt().join(format!("file{number}")), "x").context("a file")?;
    }
    let data = File::create(cluster.mnt().join("data")).context("data")?;
    (&data).write_all(&vec![1; 20 * MIB]).context("data")?;
    data.sync_all().context("data")?;
    // The next one may have been begun before.
    running.wait_for(running.blocks() + 3)?;
    let text = running.end()?;
    let first = blocks(&text)[0][0];
    ensure(first.starts_with("processes 2, targets 3, clients "), || text.clone())?;
    let (after, _) = samples(cluster, "mdt.*.md_stats", "open")?;
    ensure(after - before == 201, || format!("{} opens", after - before))?;
    let sums = done(&text)?;
    // Each is an open and a close at least. Times and rates are shown with one digit.
    ensure((2.0 * 201.0 * 0.9..2000.0).contains(&sums[0]), || format!("{sums:?}\n{text}"))?;
    let megabytes = (20 * MIB) as f64 / 1e6;
    for sum in &sums[1..] {
        ensure((megabytes * 0.9..megabytes * 1.1).contains(sum), || format!("{sums:?}\n{text}"))?;
    }
    let batch = cluster.must(&["top", "-d", "0.1", "-b", "3"])?;
    ensure(blocks(&batch).len() == 3, || batch.clone())?;
    let once = cluster.must(&["top", "--once", "-d", "0.1"])?;
    ensure(once.starts_with("processes 2, "), || once.clone())?;
    for (words, wanted) in [
        (
            &["top", "--socket", "/nowhere.sock", "--once"][..],
            "no server or mount answers on this machine",
        ),
        (&["top", "-d", "0", "--once"], "--delay must be between"),
    ] {
        let refused = cluster.run(words)?;
        let is_a_line = refused.output.lines().count() == 1 && refused.output.contains(wanted);
        ensure(!refused.status.success() && is_a_line, || refused.output.clone())?;
    }
    Ok(())
}

#[test]
fn a_pipe_gets_what_was_done_as_text() {
    scene("top-batch", 2, LIMIT, batch);
}

fn slow(cluster: &Cluster) -> Outcome {
    let other = cluster.mount_again()?;
    fs::write(cluster.mnt().join("held"), "x").context("a file")?;
    let held = cluster.mount_pid()?;
    // The first mount holds locks on the file and does not give them back.
    stop(held)?;
    let asks = std::thread::spawn(move || fs::write(other.join("held"), "y"));
    let seen = wait_until("a slow request", PATIENCE, || {
        let server = fs::read_dir(cluster_sockets(cluster)).into_iter().flatten().flatten();
        let server = server.map(|entry| entry.path().display().to_string());
        let sockets: Vec<String> = server.filter(|path| path.contains("server-")).collect();
        let words: Vec<&str> = ["top", "--once", "-d", "0.2", "--socket"]
            .into_iter()
            .chain(sockets.iter().map(String::as_str))
            .collect();
        cluster.run(&words).is_ok_and(|top| {
            let rows = top.output.lines().skip_while(|line| !line.starts_with("SLOW AT"));
            rows.skip(1).any(|row| row.contains(" lock ") && row.contains("@tcp"))
        })
    });
    go_on(held)?;
    let written = asks.join().map_err(|_| "the writer panicked".to_owned())?;
    written.context("the other mount")?;
    seen
}

/// Where the processes of a file system have their control sockets.
fn cluster_sockets(cluster: &Cluster) -> String {
    let command = cluster.command(&[]);
    let mut variables = command.get_envs();
    let found = variables.find(|(name, _)| *name == "SHEEN_RUN_DIR");
    found
        .and_then(|(_, value)| value)
        .map_or_else(String::new, |value| value.to_string_lossy().into())
}

#[test]
fn a_request_that_waits_for_a_lock_is_shown_so() {
    scene("top-slow", 1, LIMIT, slow);
}

/// A terminal with `sheen top` in it.
struct Terminal {
    /// Our end.
    master: OwnedFd,
    /// Kept open, so that its settings can be looked at when the program has ended.
    other: File,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    fn start(mut command: Command, size: Winsize) -> Outcome<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("a terminal")?;
        grantpt(&master).and_then(|()| unlockpt(&master)).context("a terminal")?;
        tcsetwinsize(&master, size).context("its size")?;
        let path = ptsname(&master, Vec::new()).context("its name")?;
        let path = path.to_str().context("its name")?.to_owned();
        let open = || File::options().read(true).write(true).open(&path).context(&path);
        let (input, output, other) = (open()?, open()?, open()?);
        let child = command.stdin(input).stdout(output).stderr(Stdio::inherit()).spawn();
        let child = child.context("sheen top")?;
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, seen) = (
            File::from(master.as_fd().try_clone_to_owned().context("a copy")?),
            Arc::clone(&shown),
        );
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend_from_slice(&bytes[..count]);
            }
        });
        Ok(Self { master, other, shown, child })
    }

    fn text(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Forgets what was shown so far.
    fn clear(&self) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&str) -> bool) -> Outcome {
        wait_until(what, PATIENCE, || holds(&self.text()))
            .map_err(|error| format!("{error}: {:?}", self.text()))
    }

    fn press(&self, keys: &str) -> Outcome {
        rustix::io::write(&self.master, keys.as_bytes()).context("keys").map(|_| ())
    }

    /// The settings that a shell expects: lines, echo, signals.
    fn is_restored(&self) -> Outcome {
        let modes = tcgetattr(&self.other).context("the terminal")?.local_modes;
        let usual = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        ensure(modes.contains(usual), || format!("the terminal is left as {modes:?}"))?;
        self.wait_for("the cursor and the old screen", |text| {
            text.trim_end().ends_with("\x1b[?25h\x1b[?1049l")
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

/// How many rows the newest drawing has.
fn rows_of_last_frame(text: &str) -> usize {
    text.rsplit("\x1b[H").next().map_or(0, |frame| frame.split("\r\n").count())
}

fn on_a_terminal(cluster: &Cluster) -> Outcome {
    let top = || cluster.command(&["top", "-d", "0.2"]);
    let mut terminal = Terminal::start(top(), size(100, 30))?;
    terminal.wait_for("the first screen", |text| {
        text.starts_with("\x1b[?1049h") && text.contains("sheen-MDT0000") && text.contains("OPS/s")
    })?;
    terminal.wait_for("a whole frame", |text| rows_of_last_frame(text) == 30)?;
    let raw = tcgetattr(&terminal.other).context("the terminal")?.local_modes;
    ensure(!raw.contains(LocalModes::ICANON), || "the terminal was not taken over".to_owned())?;
    terminal.clear();
    tcsetwinsize(&terminal.master, size(40, 12)).context("a new size")?;
    terminal.wait_for("a frame of the new size", |text| rows_of_last_frame(text) == 12)?;
    terminal.press("s")?;
    terminal.wait_for("another order", |text| text.contains("sheen top: "))?;
    tcsetwinsize(&terminal.master, size(160, 60)).context("a new size")?;
    terminal.wait_for("the new order", |text| text.contains("by bytes, ? helps"))?;
    terminal.press("?")?;
    terminal.wait_for("help", |text| text.contains("clients that hold conflicting"))?;
    terminal.press("?p")?;
    terminal.wait_for("a pause", |text| text.contains("(paused, by bytes"))?;
    terminal.press("q")?;
    let ended = terminal.child.wait().context("sheen top")?;
    ensure(ended.success(), || format!("it ended with {ended}"))?;
    terminal.is_restored()?;
    for keys in ["\x03", "TERM"] {
        let mut terminal = Terminal::start(top(), size(80, 24))?;
        terminal.wait_for("a screen", |text| text.contains("OPS/s"))?;
        match keys {
            "TERM" => {
                let pid = rustix::process::Pid::from_child(&terminal.child);
                rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                    .context("a signal")?;
            }
            keys => terminal.press(keys)?,
        }
        terminal.child.wait().context("sheen top")?;
        terminal.is_restored()?;
    }
    Ok(())
}

#[test]
fn a_terminal_is_taken_over_and_restored() {
    scene("top-terminal", 1, LIMIT, on_a_terminal);
}

#[test]
fn a_signal_ends_it_while_a_process_stands_still() {
    scene("top-signal", 1, LIMIT, |cluster| {
        let server = cluster.server_pid()?;
        stop(server)?;
        let mut top = cluster.command(&["top", "-b", "1000"]);
        let mut top = top.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("top")?;
        std::thread::sleep(Duration::from_millis(1500));
        let pid = rustix::process::Pid::from_child(&top);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("kill")?;
        let ended = wait_until("its end", Duration::from_secs(5), || {
            top.try_wait().is_ok_and(|ended| ended.is_some())
        });
        go_on(server)?;
        top.wait().context("wait")?;
        ended
    });
}
