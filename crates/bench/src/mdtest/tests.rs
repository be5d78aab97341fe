use std::sync::atomic::AtomicBool;

use super::*;
use crate::testing::{self, Counting, Folder, tree};

fn options(words: &str) -> Options {
    testing::options(words)
}

fn run(folder: &Folder, words: &str, counting: &Counting) -> (Result<(), Ended>, String) {
    run_until(folder, words, counting, &AtomicBool::new(false))
}

fn run_until(
    folder: &Folder,
    words: &str,
    counting: &Counting,
    stop: &AtomicBool,
) -> (Result<(), Ended>, String) {
    let words = format!("-a NATIVE -d {} {words}", folder.path("t"));
    testing::run(&format!("mdtest {words}"), counting, stop, |surroundings| {
        super::run(&options(&words), surroundings)
    })
}

/// The numbers of a row of the table: max, min, mean, deviation.
fn row(text: &str, name: &str) -> Option<Vec<f64>> {
    let line = text.lines().find(|line| line.starts_with(&format!("   {name} ")))?;
    // Columns of mdtest 4: the name, and numbers that end in columns 40, 55, 70 and 85.
    let numbers = [(26, 40), (41, 55), (56, 70), (71, 85)];
    assert_eq!(line.len(), 85, "{line}");
    numbers.into_iter().map(|(from, to)| line[from..to].trim().parse().ok()).collect()
}

#[test]
fn every_phase_does_what_it_counts_and_leaves_nothing() {
    let (folder, counting) = (Folder::new("all"), Counting::default());
    let words = "--ranks 3 -n 10 -z 1 -b 2 -w 5000 -e 5000 -X -i 2 -Y";
    let (ended, text) = run(&folder, words, &counting);
    assert_eq!(ended, Ok(()), "{text}");
    // 10 items do not divide by 3 directories: 9 are made, by each of 3 ranks, twice.
    let items = 9 * 3 * 2;
    assert!(text.contains("\n3 tasks, 27 files/directories\n\nSUMMARY rate (in ops/sec): (of 2"));
    let counted = ["create", "write", "open", "read", "close", "unlink", "rename"];
    let counted = counted.map(|name| counting.of(name));
    assert_eq!(counted, [items, items, items, items, 2 * items, items, items]);
    // Each rank after each of eight phases, twice.
    assert_eq!(counting.of("sync"), 3 * 8 * 2);
    // Also the trees of 3 directories, the test directories, and what was asked for.
    assert_eq!(counting.of("mkdir"), items + 2 * 3 + 2 + 1);
    assert_eq!(counting.of("rmdir"), items + 2 * 3 + 2 + 1);
    // Besides, each test directory is looked for before it is made and removed, all before the run.
    assert_eq!(counting.of("stat"), 2 * items + 2 * 2 + 1 + 2);
    assert_eq!(tree(&folder.path("")).len(), 0);
    let names = Phase::ALL.map(Phase::name);
    for name in names {
        let numbers = row(&text, name).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(numbers[0] >= numbers[2] && numbers[2] >= numbers[1] && numbers[1] > 0.0);
    }
}

#[test]
fn files_have_names_sizes_and_data_and_later_runs_find_them() {
    let (folder, counting) = (Folder::new("split"), Counting::default());
    let common = "-F --ranks 2 -n 4 -z 2 -b 1 -L -G 7 -N 1";
    let (ended, text) = run(&folder, &format!("{common} -C -w 100"), &counting);
    assert_eq!(ended, Ok(()), "{text}");
    let made = tree(&folder.path("t"));
    let leaf = "test-dir.0-0/mdtest_tree.0/mdtest_tree.1/mdtest_tree.2";
    for (rank, number) in [(0, 8), (0, 11), (1, 8), (1, 11)] {
        let name = format!("{leaf}/file.mdtest.{rank}.{number}");
        assert_eq!(made.get(&name), Some(&Some(100)), "{name}: {made:?}");
    }
    assert_eq!(made.len(), 4 + 8);
    assert_eq!(row(&text, "File stat").unwrap(), [0.0; 4]);
    let (ended, text) = run(&folder, &format!("{common} -T -E -e 100 -X"), &counting);
    assert_eq!((ended, counting.of("read")), (Ok(()), 8), "{text}");
    assert_eq!(tree(&folder.path("t")), made);
    let (ended, text) = run(&folder, &format!("{common} -r"), &counting);
    assert_eq!((ended, counting.of("unlink")), (Ok(()), 8), "{text}");
    assert_eq!(tree(&folder.path("t")).len(), 0);
}

#[test]
fn unique_directories_may_lie_at_several_places_and_are_shifted() {
    for words in ["-u -d A@B", "-u -N 1 -z 1 -b 2", "-u -N 2 -R5"] {
        let (folder, counting) = (Folder::new("unique"), Counting::default());
        let words = words.replace("A@B", &format!("{}@{}", folder.path("a"), folder.path("b")));
        let words = words.split(' ').collect::<Vec<_>>().join(" ");
        let asked = options(&format!("-a NATIVE --ranks 4 -n 12 -C -F {words}"));
        let mut asked = Options { ..asked };
        if asked.directories == "./out" {
            asked.directories = folder.path("t");
        }
        let measure = |asked: &Options| {
            let stop = AtomicBool::new(false);
            testing::run("mdtest", &counting, &stop, |all| super::run(asked, all)).0
        };
        assert_eq!(measure(&asked), Ok(()), "{words}");
        if words.contains('@') {
            let a = tree(&folder.path("a"));
            assert!(a.contains_key("test-dir.0-0/mdtest_tree.2.0/file.mdtest.2.11"), "{a:?}");
            assert_eq!((a.len(), tree(&folder.path("b")).len()), (27, 27));
        }
        asked.create_only = false;
        (asked.stat_only, asked.read_only, asked.remove_only) = (true, true, true);
        assert_eq!(measure(&asked), Ok(()), "{words}");
        assert_eq!((counting.of("unlink"), counting.of("open")), (48, 48), "{words}");
    }
}

#[test]
fn many_trees_hold_as_many_items_as_asked() {
    let (folder, counting) = (Folder::new("trees"), Counting::default());
    let (ended, text) = run(&folder, "-D -n 12 -I 3 --ranks 2 -R", &counting);
    assert_eq!(ended, Ok(()), "{text}");
    assert!(text.contains("2 tasks, 24 directories"), "{text}");
    assert_eq!(counting.of("rename"), 24);
    assert_eq!(counting.of("mkdir"), 24 + 4 + 4 + 1);
    assert!(row(&text, "File creation").is_none());
}

#[test]
fn a_stonewall_lets_all_ranks_make_as_many_and_is_remembered() {
    let (folder, counting) = (Folder::new("stonewall"), Counting::default());
    let status = folder.path("status");
    let common = format!("-F --ranks 2 -n 1000000 -x {status}");
    let (ended, text) = run(&folder, &format!("{common} -C -W 1"), &counting);
    assert_eq!(ended, Ok(()), "{text}");
    let each: u64 = std::fs::read_to_string(&status).unwrap().parse().unwrap();
    assert!((1..1_000_000).contains(&each));
    assert_eq!(counting.of("create"), each * 2);
    assert!(text.contains("Continue stonewall hit min: "), "{text}");
    let (ended, _) = run(&folder, &format!("{common} -T -r -N 1"), &counting);
    assert_eq!((ended, counting.of("unlink")), (Ok(()), each * 2));
    std::fs::write(&status, "none").unwrap();
    let (ended, _) = run(&folder, &format!("{common} -T"), &counting);
    assert!(matches!(ended, Err(Ended::Failed(_))));
}

#[test]
fn wrong_data_is_reported_and_a_failure() {
    for words in ["-w 4096 -e 4096 -X", "-w 4096 --verify-write -C"] {
        let (folder, counting) = (Folder::new("wrong"), Counting::default());
        counting.corrupt(3);
        let (ended, text) = run(&folder, &format!("-F -n 6 {words}"), &counting);
        assert_eq!(ended, Err(Ended::Failed("wrong data was read 1 times".into())), "{words}");
        assert!(text.contains("ERROR: verifying the data on read (1 errors)!"), "{text}");
    }
}

#[test]
fn the_first_failure_ends_the_run_in_a_line_and_leaves_nothing() {
    let (folder, counting) = (Folder::new("fails"), Counting::default());
    counting.fail("create", 7, Errno::ENOSPC);
    let (ended, _) = run(&folder, "-n 10 --ranks 2 -i 3", &counting);
    let Err(Ended::Failed(line)) = ended else { panic!("{ended:?}") };
    assert!(line.starts_with("rank ") && line.contains(": cannot create file "), "{line}");
    assert!(line.ends_with(": No space left on device") && !line.contains('\n'), "{line}");
    assert_eq!(tree(&folder.path("")).len(), 0);
}

#[test]
fn an_interrupted_run_leaves_what_was_there_before_and_nothing_else() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (folder, counting) = (Folder::new("interrupted"), Counting::default());
    std::fs::create_dir_all(folder.path("t/test-dir.1-0/kept")).unwrap();
    counting.interrupt(40, &STOP);
    let (ended, _) = run_until(&folder, "-n 100 --ranks 3 -i 2 -u", &counting, &STOP);
    assert_eq!(ended, Err(Ended::Interrupted));
    let left = tree(&folder.path("t"));
    assert!(left.keys().map(String::as_str).eq(["test-dir.1-0", "test-dir.1-0/kept"]), "{left:?}");
}

#[test]
fn what_does_not_go_together_is_refused_in_a_line() {
    for words in [
        "-W 1 -b 2 -z 1",
        "-B -N 1",
        "-d /a@/b",
        "-d /a@/b -u",
        "-n 5 -I 2",
        "-n 4 -I 2 -u",
        "-X",
        "-X -e 10",
        "-w 5 -e 10",
        "-E -X -e 5",
        "-b 0 -z 1",
        "-z 60 -b 9",
        "--dataPacketType x",
    ] {
        let line = Plan::new(&options(words), 1).expect_err(words);
        assert!(!line.is_empty() && !line.contains('\n'), "{words}: {line}");
    }
    assert!(sizes(&options("--ranks 4 -f 3 -l 2")).is_err());
    assert!(sizes(&options("--ranks 4 -l 5")).is_err());
    assert_eq!(sizes(&options("--ranks 8 -f 2 -l 8 -s 3")), Ok(vec![2, 5, 8]));
}

#[test]
fn the_lines_are_those_of_mdtest() {
    let (folder, counting) = (Folder::new("lines"), Counting::default());
    let json = folder.path("result.json");
    let (_, text) = run(&folder, &format!("-F -n 5 --ranks 2 -P --json {json}"), &counting);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("-- started at ") && lines[0].ends_with(" --"));
    assert!(lines[2].starts_with("mdtest-4.0.0+sheen-"));
    assert!(lines[2].ends_with(" was launched with 2 total task(s) on 2 node(s)"));
    assert!(lines[3].starts_with("Command line used: mdtest '-a' 'NATIVE' '-d'"));
    assert!(lines[5].starts_with("Path                : /"));
    assert!(lines[6].starts_with("FS                  : ") && lines[6].contains("   Used FS: "));
    assert_eq!(lines[7..9], ["Nodemap: 10", "2 tasks, 10 files"]);
    let table = text.split("SUMMARY rate (in ops/sec): (of 1 iterations)\n").nth(1).unwrap();
    let head: Vec<&str> = table.lines().take(2).collect();
    assert_eq!(
        head[0],
        "   Operation                     Max            Min           Mean        Std Dev"
    );
    assert_eq!(
        head[1],
        "   ---------                     ---            ---           ----        -------"
    );
    assert!(text.contains("\nSUMMARY time (in sec): (of 1 iterations)\n"));
    assert!(text.ends_with(" --\n\n") && text.contains("\n-- finished at "));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let create = &report["tests"][0]["iterations"][0]["File creation"];
    assert_eq!(create["items"], 10);
    let rate = create["items"].as_f64().unwrap() / create["time"].as_f64().unwrap();
    assert!((rate / create["rate"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert_eq!(report["tests"][0]["summary"][0]["operation"], "File creation");
}

#[test]
fn more_memory_than_there_is_ends_the_run_in_a_line_and_leaves_nothing() {
    for words in ["-F -n 1 -w 100000g", "-F -n 1 -w 100001g -e 100000g", "-D -R -n 100000g"] {
        let (folder, counting) = (Folder::new("memory"), Counting::default());
        let (ended, _) = run(&folder, words, &counting);
        let Err(Ended::Failed(line)) = ended else { panic!("{words}: {ended:?}") };
        assert!(!line.contains('\n'), "{words}: {line}");
        assert_eq!(tree(&folder.path("")).len(), 0, "{words}: {line}");
    }
}
