//! What a create costs the servers' processors in a striped directory, beside one MDT, in real time.
//!
//! Each turn makes a file system of one MDT and one of several, as `sheen up` makes them, each with all its servers in
//! one process, and has mdtest create files. The ratios of a turn are of the same minute.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::bench::cost::Cost;
use crate::bench::layouts::sample::median;
use crate::bench::place::{Kind, Place};
use crate::setup;
use crate::shell::{self, Outcome, Profile, root};

/// MDTs of the file system with a striped directory.
const MDTS: u16 = 4;

/// Microseconds of the servers' processors for each create and close: a turn.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Turn {
    one_mdt: f64,
    plain: f64,
    striped: f64,
}

/// Takes `turns` turns of `files` files each; writes their table to `cpu.md` below `out`.
///
/// # Errors
/// What failed, as text.
pub(super) fn run(turns: u32, files: u64, out: &Path, commit: &str) -> Outcome {
    setup::for_bench()?;
    shell::build_program(Profile::Release)?;
    let folder = root().join("target/bench").join(std::process::id().to_string());
    let outcome = (0..turns).map(|_| turn(files, &folder)).collect::<Result<Vec<_>, _>>();
    // Only below the folder of this run; what remains does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    let text = page(&outcome?, files, commit);
    println!("{text}");
    let path = out.join("cpu.md");
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn turn(files: u64, folder: &Path) -> Result<Turn, String> {
    let mdts = MDTS.to_string();
    let one = Place::open_with(Kind::Sheen, &folder.join("one"), &["--osts", "2"])?;
    let one_mdt = creates(&one, "plain", &[], files)?;
    one.close()?;
    let several = ["--osts", "2", "--mdts", &mdts];
    let several = Place::open_with(Kind::Sheen, &folder.join("several"), &several)?;
    let plain = creates(&several, "plain", &[], files)?;
    let striped = creates(&several, "striped", &["-c", &mdts], files)?;
    several.close()?;
    // A turn's files are in no later turn's caches.
    std::fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(Turn { one_mdt, plain, striped })
}

/// Microseconds of the servers for each of so many creates in a new directory, made with these options of `lfs mkdir`.
fn creates(place: &Place, name: &str, options: &[&str], files: u64) -> Result<f64, String> {
    let directory = place.top().join(name);
    let mut mkdir = place.sheen(&["lfs", "mkdir", "-i", "0"]);
    mkdir.args(options).arg(&directory);
    shell::run(mkdir)?;
    let before: Cost = place.cost_at_rest()?;
    let mut mdtest = place.sheen(&["bench", "mdtest", "-F", "-C", "-n", &files.to_string(), "-d"]);
    mdtest.arg(&directory).stdout(std::process::Stdio::null());
    shell::run(mdtest)?;
    let spent = place.cost_at_rest()?.since(&before);
    Ok(spent.server_seconds * 1e6 / files.max(1) as f64)
}

fn page(turns: &[Turn], files: u64, commit: &str) -> String {
    let mut text = format!(
        "# What a create in a striped directory costs the servers\n\n\
         Commit {commit}. Made by `cargo xtask bench dne --cpu-turns {}`: in each turn a file system of one MDT and one of \
         {MDTS}, each with all its servers in one process, and `sheen bench mdtest -F -C -n {files}` on the mount. Microseconds of the \
         servers' processors for each create with its close, and what they are of those of one MDT.\n\n\
         | turn | one MDT | {MDTS} MDTs, plain directory | {MDTS} MDTs, striped over all | plain, of one | striped, of one |\n\
         |---|---:|---:|---:|---:|---:|\n",
        turns.len(),
    );
    let row = |text: &mut String, name: &str, turn: Turn, ratios: [f64; 2]| {
        let Turn { one_mdt, plain, striped } = turn;
        let [of_plain, of_striped] = ratios;
        let _ = writeln!(
            text,
            "| {name} | {one_mdt:.1} | {plain:.1} | {striped:.1} | {of_plain:.3} | {of_striped:.3} |"
        );
    };
    let ratios = |turn: &Turn| [turn.plain / turn.one_mdt, turn.striped / turn.one_mdt];
    for (number, turn) in (1..).zip(turns) {
        row(&mut text, &format!("{number}"), *turn, ratios(turn));
    }
    let middle = |of: &dyn Fn(&Turn) -> f64| median(turns.iter().map(of).collect());
    let turn = Turn {
        one_mdt: middle(&|it| it.one_mdt),
        plain: middle(&|it| it.plain),
        striped: middle(&|it| it.striped),
    };
    row(&mut text, "median", turn, [middle(&|it| ratios(it)[0]), middle(&|it| ratios(it)[1])]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_are_those_of_each_turn_and_their_median() {
        let turn = |one_mdt, plain, striped| Turn { one_mdt, plain, striped };
        let turns = [turn(100.0, 100.0, 110.0), turn(200.0, 220.0, 240.0), turn(50.0, 55.0, 50.0)];
        let text = page(&turns, 10, "abc");
        assert!(text.contains("| 2 | 200.0 | 220.0 | 240.0 | 1.100 | 1.200 |"), "{text}");
        assert!(text.contains("| median | 100.0 | 100.0 | 110.0 | 1.100 | 1.100 |"), "{text}");
    }
}
