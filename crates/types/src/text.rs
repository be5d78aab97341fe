//! Bytes that a user has chosen (names of files, paths) as text that commands no terminal and loses nothing.

/// As `/proc/mounts` has them: control characters, the backslash, and what is no UTF-8 as octal numbers of their bytes
/// (`\033`). Spaces stay, as in Lustre's output.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() || character == '\\' {
                true => push_octal(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(character),
            }
        }
        push_octal(&mut text, chunk.invalid());
    }
    text
}

/// A text of the kernel's that names files, such as `/proc/mounts`: what is no UTF-8 as octal numbers, as the kernel itself
/// has some other bytes there.
#[must_use]
pub fn with_octal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        push_octal(&mut text, chunk.invalid());
    }
    text
}

/// Bytes as one word of a command line, for shells to read and for terminals to show: as they are, or quoted. A path that would be
/// taken for an option begins with `./`.
#[must_use]
pub fn shell_word(bytes: &[u8]) -> String {
    let text = match bytes.first() {
        Some(b'-') => [b"./", bytes].concat(),
        _ => bytes.to_vec(),
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:=@%".contains(byte);
    match std::str::from_utf8(&text) {
        Ok(text) if !text.is_empty() && text.bytes().all(|byte| is_plain(&byte)) => text.to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => format!("$'{}'", shown(&text).replace('\'', "\\'")),
    }
}

fn push_octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let digits = [byte >> 6, byte >> 3 & 7, byte & 7].map(|digit| char::from(b'0' + digit));
        text.push('\\');
        text.extend(digits);
    }
}

/// The bytes of which [`shown`] has made a text, or the kernel a word of `/proc/mounts`.
#[must_use]
pub fn bytes_of_shown(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.first_chunk().filter(|_| first == b'\\').and_then(octal_byte);
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &behind[3..] } else { behind };
    }
    bytes
}

fn octal_byte(digits: &[u8; 3]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |byte, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        byte.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::{bytes_of_shown, shell_word, shown, with_octal};

    #[test]
    fn what_is_shown_commands_no_terminal() {
        assert_eq!(shown("/mnt/my files/\u{e9}".as_bytes()), "/mnt/my files/\u{e9}");
        assert_eq!(shown(b"/m\x1b[2J\n\t\\\x7f"), "/m\\033[2J\\012\\011\\134\\177");
        let text = "\u{9b}2J";
        assert_eq!(
            shown(text.as_bytes()),
            "\\302\\2332J",
            "an escape sequence begins with it, too"
        );
        assert_eq!(shown(b"caf\xe9/\xff\xc3"), "caf\\351/\\377\\303");
    }

    #[test]
    fn a_word_for_a_shell_is_quoted_where_it_must_be() {
        for (bytes, word) in [
            (&b"/mnt/d-1/a.b"[..], "/mnt/d-1/a.b"),
            (b"-m", "./-m"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's $HOME\\", "'it'\\''s $HOME\\'"),
            ("caf\u{e9}".as_bytes(), "'caf\u{e9}'"),
            (b"a\x1b[2J'\n\\\xff", "$'a\\033[2J\\'\\012\\134\\377'"),
        ] {
            assert_eq!(shell_word(bytes), word);
        }
    }

    #[test]
    fn what_is_shown_is_read_as_it_was() {
        let all: Vec<u8> = (0..=255).chain([b'\\', b'0', b'1', b'2', 0xc3, 0xa9]).collect();
        assert_eq!(bytes_of_shown(shown(&all).as_bytes()), all);
        let table = b"/a\\040b/\xff\n/c\xc3\xa9";
        assert_eq!(with_octal(table), "/a\\040b/\\377\n/c\u{e9}");
        assert_eq!(bytes_of_shown(with_octal(table).as_bytes()), b"/a b/\xff\n/c\xc3\xa9");
        assert_eq!(bytes_of_shown(b"a\\04 \\400\\\\040\\"), b"a\\04 \\400\\ \\");
    }
}
