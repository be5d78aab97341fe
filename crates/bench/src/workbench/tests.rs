use std::sync::atomic::AtomicBool;

use clap::Parser;

use super::*;
use crate::testing::{self, Counting, Folder, tree};

fn run(folder: &Folder, words: &str, counting: &Counting) -> (Result<(), Ended>, String) {
    run_until(folder, words, counting, &AtomicBool::new(false))
}

fn run_until(
    folder: &Folder,
    words: &str,
    counting: &Counting,
    stop: &AtomicBool,
) -> (Result<(), Ended>, String) {
    let at = [folder.path("t"), folder.path("status"), folder.path("json")];
    let [path, status, json] = at;
    let words = format!("-a NATIVE -o={path} --run-info-file={status} --json {json} {words}");
    let options: Options = testing::options(&words);
    testing::run(&format!("md-workbench {words}"), counting, stop, |all| super::run(&options, all))
}

/// The lines of a phase, and the number that stands behind `name` in the first.
fn lines<'t>(text: &'t str, phase: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.starts_with(phase)).collect()
}

fn number(line: &str, name: &str) -> f64 {
    let behind = line.split_once(name).unwrap_or_else(|| panic!("no {name} in {line}")).1;
    let end = behind.trim_start().find(|c: char| !c.is_ascii_digit() && c != '.');
    let digits = behind.trim_start();
    digits[..end.unwrap_or(digits.len())].parse().unwrap_or_else(|_| panic!("{name} in {line}"))
}

fn report(folder: &Folder) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path("json")).unwrap()).unwrap()
}

#[test]
fn every_phase_does_what_it_counts_and_leaves_nothing() {
    let (folder, counting) = (Folder::new("workbench"), Counting::default());
    let (ended, text) = run(&folder, "--ranks 3 -D 2 -P 5 -I 4 -R 2 -X -S 100", &counting);
    assert_eq!(ended, Ok(()), "{text}");
    // Of three ranks with two sets: the files of the beginning, and two iterations.
    let (first, of_iteration) = (3 * 2 * 5, 3 * 2 * 4);
    let files = first + 2 * of_iteration;
    let counted = ["create", "write", "unlink", "open", "read"].map(|name| counting.of(name));
    let iterations = 2 * of_iteration;
    assert_eq!(counted, [files, files, files, iterations, iterations]);
    // Before the run it is looked whether the directory is there.
    assert_eq!(counting.of("stat"), iterations + 1);
    assert_eq!((counting.of("mkdir"), counting.of("rmdir")), (6 + 1, 6 + 1));
    let left = tree(&folder.path(""));
    assert!(left.keys().eq(["json"]), "{left:?}");
    let (begin, middle, end) =
        (lines(&text, "precreate "), lines(&text, "benchmark "), lines(&text, "cleanup "));
    assert_eq!((begin.len(), middle.len(), end.len()), (1, 2, 1), "{text}");
    assert_eq!((number(begin[0], "dsets: "), number(begin[0], "objects:")), (6.0, 30.0));
    assert_eq!((number(middle[1], "objects:"), number(end[0], "objects:")), (24.0, 30.0));
    for name in ["read(", "stat(", "create(", "delete("] {
        assert!(middle[0].contains(name), "{}", middle[0]);
    }
    assert!(middle[0].contains("(0 errs)") && begin[0].contains(" create("), "{text}");
    assert!(text.contains("MD-Workbench total objects: 78 workingset size: 0.003 MiB "), "{text}");
    // A rate is what was counted by the time it took.
    let json = report(&folder);
    let phase = &json["phases"][1];
    assert_eq!((&phase["done"]["read"], &phase["failed"]["read"]), (&json!(24), &json!(0)));
    let operations = phase["rate"].as_f64().unwrap() * phase["seconds"].as_f64().unwrap();
    assert!((operations - 4.0 * 24.0).abs() < 1e-6, "{phase}");
    let of_ranks = phase["ranks"].as_array().unwrap();
    assert!(of_ranks.iter().all(|rank| rank["done"]["create"] == 8), "{phase}");
}

#[test]
fn ranks_work_on_files_of_ranks_before_and_behind_them() {
    for (words, shift) in [("", 1), ("-O 2", 2), ("-O 0", 0)] {
        let (folder, counting) = (Folder::new("workbench-whose"), Counting::default());
        let (ended, text) =
            run(&folder, &format!("--ranks 3 -D 2 -P 2 -I 1 -R 1 {words}"), &counting);
        assert_eq!(ended, Ok(()), "{text}");
        for rank in 0..3 {
            // In each set one further.
            let place = |set: usize, forward: bool, number: u32| {
                let by = shift * (set + 1) % 3;
                let owner = if forward { rank + by } else { rank + 3 - by } % 3;
                folder.path(&format!("t/{owner}_{set}/file-{number}"))
            };
            let oldest = [place(0, false, 0), place(1, false, 0)];
            assert_eq!(counting.calls_of(rank, "open"), oldest, "{words}");
            assert_eq!(counting.calls_of(rank, "unlink")[..2], oldest, "{words}");
            let newest = [place(0, true, 2), place(1, true, 2)];
            // Behind the four of the beginning, which are its own.
            assert_eq!(counting.calls_of(rank, "create")[4..], newest, "{words}");
        }
    }
}

#[test]
fn later_runs_find_the_files_where_the_ones_before_left_them() {
    let (folder, counting) = (Folder::new("workbench-split"), Counting::default());
    let common = "--ranks 3 -D 2 -P 4 -I 3 -S 4104 -G 7 --dataPacketType=offset";
    assert_eq!(run(&folder, &format!("{common} -1"), &counting).0, Ok(()));
    assert_eq!(fs::read_to_string(folder.path("status")).unwrap(), "pos: 0\n");
    assert_eq!(counting.of("create"), 24);
    let (ended, text) = run(&folder, &format!("{common} -2 -R=2 -X"), &counting);
    assert_eq!(ended, Ok(()), "{text}");
    assert_eq!(fs::read_to_string(folder.path("status")).unwrap(), "pos: 6\n");
    let made = tree(&folder.path("t"));
    assert_eq!(made.len(), 6 + 24, "{made:?}");
    for (owner, set, number) in [(0, 0, 6), (2, 1, 9)] {
        let name = format!("{owner}_{set}/file-{number}");
        assert_eq!(made.get(&name), Some(&Some(4104)), "{made:?}");
        let data = fs::read(folder.path(&format!("t/{name}"))).unwrap();
        // Whose it is and which: the first block's stamp, and twice that in the second's.
        let item = u64::from(number as u32 * 2 + set);
        let stamp = |block: u64| (((owner as u64) << 32) | (item * (block + 1))).to_le_bytes();
        assert_eq!((&data[..8], &data[4096..]), (&stamp(0)[..], &stamp(1)[..]));
    }
    let (ended, text) = run(&folder, &format!("{common} -3"), &counting);
    assert_eq!((ended, tree(&folder.path("t")).len()), (Ok(()), 0), "{text}");
    assert!(!std::path::Path::new(&folder.path("t")).exists());
    let (ended, _) = run(&folder, &format!("{common} -2"), &counting);
    assert!(matches!(ended, Err(Ended::Failed(line)) if line.starts_with("cannot work in")));
    fs::write(folder.path("status"), "what").unwrap();
    let (ended, _) = run(&folder, &format!("{common} -2"), &counting);
    assert!(matches!(ended, Err(Ended::Failed(line)) if line.contains("does not say")));
}

#[test]
fn behind_a_stonewall_all_ranks_do_as_much_as_the_fastest() {
    let (folder, counting) = (Folder::new("workbench-wall"), Counting::default());
    let begin = clock::now();
    let words = "--ranks 2 -D 1 -P 2 -I 1000000000 -R 1 -w 1 -W -S 10 -O 0 -q";
    let (ended, text) = run(&folder, words, &counting);
    assert_eq!(ended, Ok(()), "{text}");
    assert!((1.0..30.0).contains(&(clock::now() - begin)));
    let json = report(&folder);
    let bench = &json["phases"][1];
    let wall = bench["stonewall_iterations"].as_u64().unwrap();
    assert!(wall > 0 && bench["ranks"].as_array().unwrap().len() == 2);
    for rank in bench["ranks"].as_array().unwrap() {
        assert_eq!((&rank["repeats"], &rank["done"]["create"]), (&json!(wall), &json!(wall)));
    }
    assert!(text.contains(&format!("s ({wall} iter)\n")) && !text.contains("Args:"), "{text}");
    assert_eq!(counting.of("unlink"), counting.of("create"));
    let left = tree(&folder.path(""));
    assert!(left.keys().eq(["json"]), "{left:?}");
}

#[test]
fn what_is_wrong_or_missing_is_counted_and_removed() {
    let (folder, counting) = (Folder::new("workbench-wrong"), Counting::default());
    counting.corrupt(3);
    let (ended, text) = run(&folder, "--ranks 2 -D 2 -P 3 -I 3 -R 1 -X", &counting);
    let line = "1 operations failed or read wrong data";
    assert_eq!(ended, Err(Ended::Failed(line.to_owned())), "{text}");
    assert!(lines(&text, "benchmark ")[0].contains(" objects:11 "), "{text}");
    assert!(lines(&text, "benchmark ")[0].contains("(1 errs!!!)"), "{text}");
    assert!(!tree(&folder.path("")).contains_key("t"));
    // The same without -X: no rank looks.
    counting.corrupt(counting.of("read") + 3);
    assert_eq!(run(&folder, "--ranks 2 -D 2 -P 3 -I 3 -R 1", &counting).0, Ok(()));
    counting.fail("stat", counting.of("stat") + 2, Errno::ENOENT);
    let (ended, text) = run(&folder, "-D 2 -P 3 -I 3 -R 1 --print-detailed-stats", &counting);
    // Its successor was not created, so it is missing at the end; and the file stays until all is cleared.
    assert!(
        matches!(ended, Err(Ended::Failed(line)) if line.starts_with("3 operations")),
        "{text}"
    );
    let counts: Vec<&str> = lines(&text, "benchmark \t")[0].split('\t').collect();
    assert_eq!(counts[1..7], ["0", "0", "5", "5", "5", "5"], "{text}");
    let failed: Vec<&str> = lines(&text, "benchmark err")[0].split('\t').collect();
    assert_eq!(failed[1..], ["0", "0", "0", "0", "1", "0"], "{text}");
    assert!(!tree(&folder.path("")).contains_key("t"));
}

#[test]
fn a_run_that_ends_early_leaves_nothing_of_its_own() {
    for name in ["create", "read", "unlink", "mkdir"] {
        let (folder, counting) = (Folder::new("workbench-end"), Counting::default());
        fs::create_dir(folder.path("t")).unwrap();
        fs::write(folder.path("t/mine"), "").unwrap();
        counting.fail(name, 3, Errno::EIO);
        let (ended, _) = run(&folder, "--ranks 2 -D 3 -P 3 -I 3", &counting);
        assert!(matches!(ended, Err(Ended::Failed(_))), "{name}: {ended:?}");
        let left = tree(&folder.path("t"));
        assert!(left.keys().eq(["mine"]), "{name}: {left:?}");
    }
    let (folder, counting) = (Folder::new("workbench-stop"), Counting::default());
    static STOP: AtomicBool = AtomicBool::new(false);
    counting.interrupt(20, &STOP);
    let (ended, _) = run_until(&folder, "--ranks 2 -D 3 -P 3 -I 3", &counting, &STOP);
    assert_eq!((ended, tree(&folder.path("")).len()), (Err(Ended::Interrupted), 0));
}

#[test]
fn reading_waiting_and_reports_are_as_asked() {
    let (folder, counting) = (Folder::new("workbench-more"), Counting::default());
    let words = "--ranks 2 -D 1 -P 4 -I 4 -R 1 -T --read-only --process-reports --start-item 9";
    let (ended, text) = run(&folder, words, &counting);
    assert_eq!(ended, Ok(()), "{text}");
    // Once with no wait, and with seven.
    assert_eq!((counting.of("open"), counting.of("create")), (8 * 2 * 4, 2 * 4));
    let bench = lines(&text, "benchmark ");
    assert_eq!(bench.len(), 8, "{text}");
    assert!(bench[7].contains(" waiting_factor:4.00 ") && !bench[0].contains("waiting"), "{text}");
    let json = report(&folder);
    let (phase, ranks) = (&json["phases"][8], lines(&text, "1: benchmark "));
    assert_eq!((&phase["done"]["delete"], ranks.len()), (&json!(0), 8));
    let operations = phase["rate"].as_f64().unwrap() * phase["seconds"].as_f64().unwrap();
    assert!((operations - 2.0 * 8.0).abs() < 1e-6, "{phase}");
    assert!(text.contains("\nUsing start position 9\n"), "{text}");
    // With a wait of a hundred times its own length an operation takes at least so long.
    let (ended, text) = run(&folder, "-D 1 -P 4 -I 4 -R 1 -t 100 -2 -1 -3", &counting);
    assert_eq!(ended, Ok(()), "{text}");
    let phase = &report(&folder)["phases"][1];
    let least = phase["latencies"]["create"]["min"].as_f64().unwrap() * 0.9 * 4.0 * 100.0;
    assert!(phase["seconds"].as_f64().unwrap() > least, "{phase}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        _options: Options,
    }
    for words in ["-w 5", "-D 0", "-I 0", "-P 0", "-t -1", "-t x", "-S 1x", "-v -v"] {
        let words = format!("md-workbench {words}");
        assert!(Line::try_parse_from(words.split(' ')).is_err(), "{words}");
    }
    let (folder, counting) = (Folder::new("workbench-no"), Counting::default());
    let (ended, _) = run(&folder, "--dataPacketType what", &counting);
    assert!(matches!(ended, Err(Ended::Failed(line)) if line.contains("not a type of data")));
    let (ended, _) = run(&folder, "-S 100000g", &counting);
    assert!(matches!(ended, Err(Ended::Failed(line)) if line.starts_with("not enough memory")));
    assert_eq!(tree(&folder.path("")).len(), 0);
}
