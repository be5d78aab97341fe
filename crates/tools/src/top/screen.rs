//! The terminal: taken over while something is shown, and restored however the program ends.
//!
//! A few escape sequences that every terminal of the last decades knows are all that is needed here: lines,
//! each cut to the width, in the other screen. The size is asked for before each drawing.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The other screen, and no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor, and the screen that was there before.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// For terminals that do not report their size.
const SIZE_USUAL: (usize, usize) = (80, 24);

/// How the terminal was; `None` while it is not taken over.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What the user pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(u8),
    Up,
    Down,
    PageUp,
    PageDown,
    /// Ctrl-C, or the terminal has gone.
    End,
}

/// The terminal, taken over until dropped.
pub(super) struct Screen {
    /// Bytes read and not understood yet.
    typed: Vec<u8>,
}

/// Whether both ends of a conversation are there.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock() = Some(before);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let screen = Self { typed: Vec::new() };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => SIZE_USUAL,
        }
    }

    /// Shows lines from the top, as many as there is room for; the first one stands out.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        write(&frame(lines, self.size()))
    }

    /// Waits for a key, at most so long.
    pub(super) fn key(&mut self, wait: Duration) -> io::Result<Option<Key>> {
        if let Some(key) = next_key(&mut self.typed) {
            return Ok(Some(key));
        }
        let input = io::stdin();
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        match poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        // The lock of the standard library would read ahead.
        let count = rustix::io::read(&input, &mut bytes)?;
        if count == 0 {
            return Ok(Some(Key::End));
        }
        self.typed.extend_from_slice(&bytes[..count]);
        Ok(next_key(&mut self.typed))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().take() {
        // There is nowhere left to report a failure.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// One drawing: every row is written whole, so that nothing of the last one is left and nothing flickers.
fn frame(lines: &[String], (columns, rows): (usize, usize)) -> String {
    let mut frame = String::from("\x1b[H");
    for row in 0..rows {
        let line = lines.get(row).map_or("", String::as_str);
        let shown: String = line.chars().filter(|c| !c.is_control()).take(columns).collect();
        let end = if row + 1 < rows { "\r\n" } else { "" };
        match row {
            0 => frame += &format!("\x1b[7m{shown:<columns$}\x1b[0m{end}"),
            _ => frame += &format!("{shown}\x1b[K{end}"),
        }
    }
    frame
}

/// Takes the first key from what was typed; what no key begins with is passed over.
fn next_key(typed: &mut Vec<u8>) -> Option<Key> {
    const SEQUENCES: [(&[u8], Key); 6] = [
        (b"\x1b[A", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOA", Key::Up),
        (b"\x1bOB", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
    ];
    loop {
        let first = *typed.first()?;
        if let Some((bytes, key)) = SEQUENCES.iter().find(|(bytes, _)| typed.starts_with(bytes)) {
            typed.drain(..bytes.len());
            return Some(*key);
        }
        let length = match first {
            0x1b => escape_length(typed),
            _ => 1,
        };
        typed.drain(..length);
        match first {
            0x03 | 0x04 => return Some(Key::End),
            0x20..0x7f => return Some(Key::Letter(first)),
            _ => {}
        }
    }
}

/// Bytes of a sequence that is no key of ours.
fn escape_length(typed: &[u8]) -> usize {
    match typed.get(1) {
        Some(b'[' | b'O') => {
            let end = typed[2..].iter().position(|byte| (0x40..0x7f).contains(byte));
            end.map_or(typed.len(), |end| end + 3)
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinguished_and_other_sequences_passed_over() {
        let mut typed = b"q\x1b[A\x1b[1;5C\x1bOBs\x1b[6~\x1b\xc3\xa4p\x03".to_vec();
        let mut keys = Vec::new();
        while let Some(key) = next_key(&mut typed) {
            keys.push(key);
        }
        let letter = Key::Letter;
        let wanted =
            [letter(b'q'), Key::Up, Key::Down, letter(b's'), Key::PageDown, letter(b'p'), Key::End];
        assert_eq!(keys, wanted);
    }

    #[test]
    fn a_frame_fills_the_screen_and_no_line_is_wider() {
        let lines = ["head".to_owned(), "0123456789".to_owned(), "a\x1b[2Jb".to_owned()];
        let shown = frame(&lines, (6, 4));
        assert_eq!(shown, "\x1b[H\x1b[7mhead  \x1b[0m\r\n012345\x1b[K\r\na[2Jb\x1b[K\r\n\x1b[K");
        assert_eq!(frame(&lines, (6, 1)), "\x1b[H\x1b[7mhead  \x1b[0m");
    }
}
