//! What was recorded of a real Lustre's tools: commands, what they said, how they ended.

/// A command of a transcript (`NAME.txt`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// As it was typed.
    pub(super) text: String,
    /// Lines of its standard output.
    pub(super) out: Vec<String>,
    /// Whether it wrote anything, wherever.
    pub(super) says: bool,
    /// Its exit code; `None` for what only sets the scene.
    pub(super) code: Option<i32>,
}

/// The commands of a transcript, in order.
pub(super) fn commands(transcript: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in transcript.lines() {
        let command = |text: &str| Command { text: text.to_owned(), ..Command::default() };
        if let Some(text) = line.strip_prefix("$ ") {
            commands.push(Command { code: Some(0), ..command(text) });
        } else if let Some(text) = line.strip_prefix("(setup)  ") {
            commands.push(command(text));
        } else if let Some(last) = commands.last_mut() {
            last.says |= line.starts_with("std");
            if let Some(text) = line.strip_prefix("stdout: ") {
                last.out.push(text.to_owned());
            } else if let Some(code) = line.strip_prefix("exit: ") {
                last.code = code.trim().parse().ok();
            }
        }
    }
    commands
}

/// A step of a log (`NAME.log`): a line for the shell, and its trace with all output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// The line.
    pub(super) script: String,
    /// What `set -x` and the commands wrote.
    pub(super) trace: String,
}

/// The steps of a log, in order.
pub(super) fn steps(log: &str) -> Vec<Step> {
    let (mut steps, mut in_output): (Vec<Step>, bool) = (Vec::new(), false);
    let mut script = String::new();
    for line in log.lines() {
        match line {
            line if line.starts_with("--- output") => {
                let script = std::mem::take(&mut script);
                steps.push(Step { script: script.trim().to_owned(), trace: String::new() });
                in_output = true;
            }
            line if line.starts_with("--- exit") => in_output = false,
            line if line.starts_with("### ") => script.clear(),
            line if in_output => {
                if let Some(step) = steps.last_mut() {
                    step.trace.push_str(line);
                    step.trace.push('\n');
                }
            }
            line => {
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    steps
}

/// Commands that stand behind each other in a trace, and what they wrote together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// In alphabetical order: those of a pipe run at the same time.
    pub(super) commands: Vec<String>,
    /// Lines without what differs from one run to the next.
    pub(super) output: Vec<String>,
}

/// Cuts a trace into pieces. `mount` is where the file system is mounted, and `again` where a second
/// time.
pub(super) fn pieces(trace: &str, mount: &str, again: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for line in trace.lines() {
        // The longer path first: it may begin with the other.
        let line = line.replace(again, "/mnt/l2").replace(mount, "/mnt/l");
        if let Some(command) = line.strip_prefix("++ ").or_else(|| line.strip_prefix("+ ")) {
            match pieces.last_mut().filter(|piece| piece.output.is_empty()) {
                Some(piece) => piece.commands.push(same(command)),
                None => pieces.push(Piece { commands: vec![same(command)], ..Piece::default() }),
            }
        } else if !is_ours(&line)
            && !is_of_second_mdt(&line)
            && let Some(piece) = pieces.last_mut()
        {
            piece.output.push(same(&line));
        }
    }
    for piece in &mut pieces {
        number_of_the_mdt(&mut piece.output);
        piece.commands.sort();
        let finds = piece.commands.iter().any(|command| command.contains("lfs find"));
        let lists = piece.commands.iter().any(|command| command.starts_with("ls "));
        if finds || lists {
            piece.output.sort();
        }
        while piece.output.last().is_some_and(String::is_empty) {
            piece.output.pop();
        }
    }
    pieces
}

/// For data on an MDT the generation of the layout is in the place of the MDT's number.
fn number_of_the_mdt(lines: &mut [String]) {
    for place in 1..lines.len() {
        if lines[place].contains("lmm_mdt_index")
            && let Some((label, _)) = lines[place - 1].clone().split_once(" 1")
        {
            lines[place - 1] = format!("{label} 0");
        }
    }
}

/// Lines that Lustre's tools do not write, and ours are meant to.
fn is_ours(line: &str) -> bool {
    line.starts_with("lfs setstripe: warning: ")
}

/// Lines about the second MDT of the recorded file system; ours has one.
pub(super) fn is_of_second_mdt(line: &str) -> bool {
    line.contains("MDT0001")
}

/// A line without what differs from one run to the next: FIDs and object numbers, which OST was
/// taken, times, sizes of disks and of blocks on them, checksums, names of mounts.
pub(super) fn same(line: &str) -> String {
    for cut in
        ["Device: ", "Access: 2", "Modify: ", "Change: ", " Birth: ", "trusted.lov=", "lustre.lov="]
    {
        if line.starts_with(cut) {
            return cut.to_owned();
        }
    }
    if line.contains(" root root ") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let from = usize::from(words[0].parse::<u64>().is_ok());
        let to = words.len().min(from + 5);
        return [&words[from..to], &words[words.len() - 1..]].concat().join(" ");
    }
    if let Some((size, blocks)) = line.split_once(' ')
        && [size, blocks].iter().all(|number| number.parse::<u64>().is_ok())
    {
        return size.to_owned();
    }
    if let Some((before, after)) = line.split_once("Blocks: ") {
        let rest = after.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        return format!("{before}Blocks: # {rest}");
    }
    // What stands before it is random.
    if line.ends_with("tail") {
        return "tail".to_owned();
    }
    if let Some((before, _)) = line.split_once(" copied, ") {
        return before.to_owned();
    }
    if line.contains("_UUID  ")
        || line.starts_with("filesystem_summary:")
        || line.starts_with("UUID ")
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        return [words.first(), words.last()]
            .into_iter()
            .flatten()
            .copied()
            .collect::<Vec<_>>()
            .join(" ");
    }
    if line.starts_with('\t') && !line.contains("obdidx") {
        return "\tobject".to_owned();
    }
    for label in ["lmm_stripe_offset: ", "lmm_mdt_index:     "] {
        if let Some((before, index)) = line.split_once(label)
            && index != "-1"
        {
            return format!("{before}{label}#");
        }
    }
    if let Some((before, after)) = line.split_once("l_ost_idx: ") {
        let rest = after.split_once(',').map_or("", |(_, rest)| rest);
        return format!("{before}l_ost_idx: #,{}", words(rest));
    }
    words(&line.replace("setting /sys/fs/lustre/", "setting "))
}

/// Words without checksums, FIDs and names of mounts.
fn words(line: &str) -> String {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let word = |word: &str| {
        if word.len() == 32 && is_hex(word) {
            return "checksum".to_owned();
        }
        let bare = word.trim_matches('\'');
        if bare.starts_with("[0x") && bare.contains(':') {
            return "fid".to_owned();
        }
        match word.split_once("-clilov-") {
            Some((before, after)) => {
                let rest = after.split_once('.').map_or("", |(_, rest)| rest);
                format!("{before}-clilov-mount.{rest}")
            }
            None => word.to_owned(),
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn transcripts_are_read_as_commands() {
    let text =
        "# words\n\n(setup)  mkdir d\n\n$ lfs a\nstdout: one\nstdout: \nstderr: two\nexit: 4\n";
    let expected = [
        Command { text: "mkdir d".to_owned(), ..Command::default() },
        Command {
            text: "lfs a".to_owned(),
            out: vec!["one".to_owned(), String::new()],
            says: true,
            code: Some(4),
        },
    ];
    assert_eq!(commands(text), expected);
}

#[test]
fn logs_are_read_as_steps_and_pieces() {
    let text = "### case x\n\n### [gc] command:\ncd /mnt/l; a | b\n--- output [gc]\n+ cd /mnt/l\n\
        + b\n+ a\nout /mnt/l\n\n+ c '[0x1:0x2:0x0]'\n--- exit 0\n";
    let steps = steps(text);
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].script, "cd /mnt/l; a | b");
    let pieces = pieces(&steps[0].trace, "/x/mnt", "/x/mnt2");
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(pieces[0].commands, texts(&["a", "b", "cd /mnt/l"]));
    assert_eq!(pieces[0].output, texts(&["out /mnt/l"]));
    assert_eq!(pieces[1].commands, texts(&["c fid"]));
    assert_eq!(
        same("      -   0: { l_ost_idx:   3, l_fid: [0x1:0x2:0x0] }"),
        "      -   0: { l_ost_idx: #, l_fid: fid }"
    );
    assert_eq!(same("lmm_stripe_offset: 3"), "lmm_stripe_offset: #");
    assert_eq!(same("lmm_stripe_offset: -1"), "lmm_stripe_offset: -1");
    assert_eq!(
        same("589824 bytes (590 kB, 576 KiB) copied, 0.09 s, 6.5 MB/s"),
        "589824 bytes (590 kB, 576 KiB)"
    );
}
