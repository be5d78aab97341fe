//! One file mapped by two at once: what one has written into its mapping and synced, the other finds
//! in the mapping that it has had all along.
#![allow(clippy::disallowed_methods, reason = "it looks how long programs wait")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Context, Outcome, ensure};

/// What each of them maps: pages of several sizes, and read-ahead has something to do.
const BYTES: u64 = 1 << 20;
/// A page and a bit, so that most writes lie across a border.
const PIECE: u64 = 5000;
/// A client gives the kernel two seconds to release pages: no program is to wait for that here.
const AT_ONCE: Duration = Duration::from_millis(1500);
/// Files of which one is stored to, and the other one writes or cuts.
const STORES: u64 = 6;
/// `xfs_io` shows no single byte.
const SHOWN: u64 = 2;

/// Both write by turns, at a place of their own and at one that both use. `a` and `b` are views of one
/// folder.
pub fn run(a: &Path, b: &Path, rounds: u64) -> Outcome {
    File::create_new(a.join("mapped")).and_then(|file| file.set_len(BYTES)).context("mapped")?;
    let mut one = Mapping::of(&a.join("mapped"), &[])?;
    let mut other = Mapping::of(&b.join("mapped"), &[])?;
    for round in 0..rounds {
        let letter = b'a' + u8::try_from(round % 26).context(round)?;
        for offset in [0, PIECE + round * 7919 % (BYTES - 2 * PIECE)] {
            other.finds_at(offset)?;
            one.write(offset, letter)?;
            let found = other.finds_at(offset)?;
            ensure(found == letter, || {
                let [found, letter] = [found, letter].map(char::from);
                format!("round {round}: {found:?} at {offset} instead of the other's {letter:?}")
            })?;
        }
        std::mem::swap(&mut one, &mut other);
    }
    let (one, other) = (one.all()?, other.all()?);
    ensure(one == other, || "the mappings differ in the end".to_owned())?;
    (0..rounds.min(STORES)).try_for_each(|round| beside(a, b, round))?;
    around(a)
}

/// What one has stored into its mapping and not synced, the other one's write to the same page does not lose, nor does
/// it put back what that has replaced or cut off.
fn beside(a: &Path, b: &Path, round: u64) -> Outcome {
    let [path, theirs] = [a, b].map(|folder| folder.join(format!("beside{round}")));
    std::fs::write(&path, vec![b'.'; BYTES as usize]).context("write")?;
    let other = File::options().read(true).write(true).open(&theirs).context("open")?;
    let write = |letters: &[u8; 3]| {
        other.write_all_at(letters, 7000).and_then(|()| other.sync_all()).context("write")
    };
    write(b"old")?;
    let mut mapping = Mapping::of(&path, &[])?;
    mapping.read(7000, SHOWN)?;
    mapping.order("mwrite -S 65 6000 3")?;
    mapping.read(6000, SHOWN)?;
    let cuts = round % 2 == 1;
    match cuts {
        true => other.set_len(4096).context("truncate")?,
        false => write(b"NEW")?,
    }
    mapping.order("msync -s 4096 4096")?;
    mapping.read(0, SHOWN)?;
    drop(mapping);
    let expected = if cuts { 4096 } else { BYTES };
    for path in [&path, &theirs] {
        let size = std::fs::metadata(path).context("stat")?.len();
        ensure(size == expected, || format!("{}: {size} bytes of {expected}", path.display()))?;
        let mut found = [0; 1003];
        if !cuts {
            File::open(path).and_then(|it| it.read_exact_at(&mut found, 6000)).context("read")?;
            let found = (&found[..3], &found[1000..]);
            ensure(found == (&b"AAA"[..], &b"NEW"[..]), || {
                format!("{}: {:?}", path.display(), found)
            })?;
        }
    }
    Ok(())
}

/// What is mapped through handles that otherwise go around the kernel's pages, or to the end, is written to
/// its place, and no program waits long for it.
fn around(folder: &Path) -> Outcome {
    let path = folder.join("around");
    for option in ["-a", "-d"] {
        File::create(&path).and_then(|file| file.set_len(BYTES)).context("around")?;
        let reader = File::open(&path).context("open")?;
        let mut mapping = Mapping::of(&path, &[option])?;
        let start = Instant::now();
        mapping.write(PIECE, b'x')?;
        let spent = start.elapsed();
        ensure(spent < AT_ONCE, || format!("xfs_io {option}: synced after {spent:?}"))?;
        drop(mapping);
        let mut found = vec![0; PIECE as usize];
        reader.read_exact_at(&mut found, PIECE).context("read")?;
        ensure(found.iter().all(|byte| *byte == b'x'), || format!("xfs_io {option}: other bytes"))?;
        let size = reader.metadata().context("stat")?.len();
        ensure(size == BYTES, || format!("xfs_io {option}: {size} bytes of {BYTES}"))?;
    }
    Ok(())
}

/// An `xfs_io` that has a file mapped and does what it reads. Dropped, it ends.
struct Mapping {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Mapping {
    /// Opens the file with these options of `xfs_io` besides, and maps it.
    fn of(path: &Path, options: &[&str]) -> Outcome<Self> {
        // Its answers come line by line, not when it ends.
        let mut command = Command::new("stdbuf");
        command
            .args(["-oL", "xfs_io"])
            .args(options)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("xfs_io")?;
        let orders = child.stdin.take().expect("asked for a pipe");
        let answers = BufReader::new(child.stdout.take().expect("asked for a pipe"));
        let mut mapping = Self { child, orders, answers };
        mapping.order(&format!("mmap -rw 0 {BYTES}"))?;
        Ok(mapping)
    }

    fn order(&mut self, order: &str) -> Outcome {
        writeln!(self.orders, "{order}").context(order)
    }

    /// The bytes there, from the line that shows them: `00000ffa:  61 61 61 61  aaaa`.
    fn read(&mut self, offset: u64, count: u64) -> Outcome<Vec<u8>> {
        self.order(&format!("mread -v {offset} {count}"))?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            let mut line = String::new();
            self.answers.read_line(&mut line).context("xfs_io")?;
            let (_, shown) = line.split_once(":  ").ok_or_else(|| format!("xfs_io: {line:?}"))?;
            let shown = shown.split("  ").next().unwrap_or_default().split(' ');
            let shown =
                shown.map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<Vec<_>, _>>();
            bytes.extend(shown.context(line)?);
        }
        Ok(bytes)
    }

    /// What a whole piece holds: one letter.
    fn finds_at(&mut self, offset: u64) -> Outcome<u8> {
        let first = self.read(offset, SHOWN)?;
        let last = self.read(offset + PIECE - SHOWN, SHOWN)?;
        ensure(offset != 0 || first == last, || format!("torn at {offset}: {first:?} {last:?}"))?;
        first.first().copied().ok_or_else(|| "nothing read".to_owned())
    }

    /// Writes a piece and syncs it, and returns when that is done.
    fn write(&mut self, offset: u64, letter: u8) -> Outcome {
        self.order(&format!("mwrite -S {letter} {offset} {PIECE}"))?;
        // From the border of a page on, as msync(2) wants it.
        let start = offset & !4095;
        self.order(&format!("msync -s {start} {}", offset + PIECE - start))?;
        self.read(offset, SHOWN)?;
        Ok(())
    }

    fn all(mut self) -> Outcome<Vec<u8>> {
        self.read(0, BYTES)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
