//! Two mounts append to a file on the MDT and cut it, as recorded (o12).
//!
//! The recording names a program of its own for the appends. What that did is known from its arguments,
//! from what it printed and from the bytes that the capture holds: in each round both mounts append so
//! many lines in one write each, all of them with the mount's letter and the round's number. A shell
//! script does it here; that it is the same is shown by the recorded checksum of the file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sheen_workloads::{Context, ensure};

use super::transcripts::{run_log, tools, with_recordings};

/// `python3 /root/io.py append FIRST SECOND ROUNDS LINES`.
const APPEND: &str = r#"#!/usr/bin/env bash
set -eu
test "$1 $2" = "/root/io.py append"
first=$3 second=$4 rounds=$5 lines=$6
exec 3>>"$first" 4>>"$second"
for ((round = 0; round < rounds; round++)); do
    for pair in a:3 b:4; do
        line=$(printf '%s%05d' "${pair%:*}" "$round")
        yes "$line" 2>/dev/null | head -n "$lines" |
            dd bs=1M iflag=fullblock status=none >&"${pair#*:}"
    done
done
echo "$(stat -c %s "$first") $(stat -c %s "$second")"
letters=$(head -n 8 "$second" | cut -c 1 | sed "s/.*/'&'/" | paste -s -d , | sed 's/,/, /g')
echo "$(wc -l <"$first") [$letters]"
"#;

/// The checksum that the recording shows twice: the second mount's of what the first one renamed, and
/// the first mount's own.
const CHECKSUM: &str = "5c5080e906d1ff1afe983ec6c31a6f56";

#[test]
fn two_mounts_append_to_a_file_on_the_mdt_and_cut_it() {
    with_recordings("log-dom-appends", |cluster, captures| {
        let script = tools(cluster)?.join("python3");
        fs::write(&script, APPEND).context(script.display())?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).context("chmod")?;
        // The folder of other recordings, with what they left there.
        let folder = cluster.mnt().join("w/dom4");
        fs::create_dir_all(&folder).context(folder.display())?;
        for name in ["a", "b", "m1"] {
            fs::File::create_new(folder.join(name)).context(name)?;
        }
        let name = "more/o12-dom-two-mounts-append-truncate.log";
        let output = run_log(cluster, &captures.join(name), None)?;
        for line in [format!("{CHECKSUM}  -"), format!("{CHECKSUM}  e2")] {
            ensure(output.lines().any(|said| said == line), || format!("no {line} in\n{output}"))?;
        }
        Ok(())
    });
}
