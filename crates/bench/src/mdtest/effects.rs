//! What each option does to the calls that a file system sees. Options about which phases run, shapes of trees, data,
//! stonewalls and shifts are in `tests`.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use super::Options;
use crate::clock;
use crate::ranks::Ended;
use crate::testing::{self, Counting, Folder, tree};

fn run(folder: &Folder, words: &str, counting: &Counting) -> String {
    let words = format!("-a NATIVE -d {} {words}", folder.path("t"));
    let options: Options = testing::options(&words);
    let stop = AtomicBool::new(false);
    let (ended, text) =
        testing::run(&format!("mdtest {words}"), counting, &stop, |all| super::run(&options, all));
    assert_eq!(ended, Ok(()), "{words}: {text}");
    text
}

#[test]
fn what_is_not_said_is_as_in_mdtest() {
    let usual: Options = testing::options("");
    let Options { branch_factor, depth, items, items_per_directory, iterations, .. } = usual;
    assert_eq!((branch_factor, depth, items, items_per_directory, iterations), (1, 0, 0, 0, 1));
    let Options { read_bytes, write_bytes, stride, delay, stonewall, .. } = usual;
    assert_eq!((read_bytes, write_bytes, stride, delay, stonewall), (0, 0, 0, 0, 0));
    assert_eq!((usual.first, usual.last, usual.rank_stride, usual.no_barriers), (1, 0, 1, 0));
    assert_eq!((usual.directories.as_str(), usual.data.as_str()), ("./out", "t"));
    assert_eq!((usual.data_seed, usual.random, usual.status_file), (None, None, None));
    let flags = [usual.unique, usual.leaf_only, usual.call_sync, usual.sync_file, usual.print_time];
    assert_eq!(flags, [false; 5]);
}

#[test]
fn n_i_and_z_say_how_many_items_and_where() {
    for (words, items, directories) in [
        // Items in a tree, in each of its directories, and of those at its leaves alone.
        ("-n 6", 6, 1),
        ("-I 2 -z 2 -b 2", 2 * 7, 7),
        ("-n 8 -z 2 -b 2 -L", 8, 7),
        ("-n 7 -z 1 -b 2", 6, 3),
        ("-n 9 -z 3 -b 1 -L", 9, 4),
    ] {
        let (folder, counting) = (Folder::new("shape"), Counting::default());
        run(&folder, &format!("-F -C {words}"), &counting);
        let made = tree(&folder.path("t"));
        let files = made.values().filter(|size| size.is_some()).count();
        // With the test directory.
        assert_eq!((files, made.len() - files), (items, directories + 1), "{words}: {made:?}");
        assert_eq!(counting.of("create"), items as u64, "{words}");
    }
}

#[test]
fn each_phase_can_run_alone() {
    let (folder, counting) = (Folder::new("alone"), Counting::default());
    // What was called more often behind a run of these phases on four files or directories.
    let step = |words: &str, calls: [u64; 6]| {
        let names = ["create", "stat", "open", "unlink", "mkdir", "rename"];
        let before = names.map(|name| counting.of(name));
        run(&folder, &format!("-n 4 -w 8 -e 8 {words}"), &counting);
        let more: Vec<u64> =
            names.iter().zip(before).map(|(name, was)| counting.of(name) - was).collect();
        // Looked at before: the directory, and the test directory.
        assert_eq!((more[0], more[2..].to_vec()), (calls[0], calls[2..].to_vec()), "{words}");
        assert!((calls[1]..=calls[1] + 5).contains(&more[1]), "{words}: {more:?}");
    };
    step("-F -C", [4, 0, 0, 0, 3, 0]);
    step("-F -T", [0, 4, 0, 0, 0, 0]);
    step("-F -E", [0, 0, 4, 0, 0, 0]);
    step("-F -r", [0, 0, 0, 4, 0, 0]);
    step("-D -C", [0, 0, 0, 0, 4 + 2, 0]);
    step("-D -T", [0, 4, 0, 0, 0, 0]);
    step("-D -U", [0, 0, 0, 0, 0, 4]);
    step("-D -r", [0, 0, 0, 0, 0, 0]);
    assert_eq!(counting.of("rmdir"), 4 + 2 + 2);
    assert_eq!(tree(&folder.path("t")).len(), 0);
}

#[test]
fn a_random_order_visits_each_item_once_and_its_seed_decides_which() {
    let visits = |words: &str| {
        let (folder, counting) = (Folder::new("order"), Counting::default());
        run(&folder, &format!("-F -n 50 -C {words}"), &counting);
        run(&folder, &format!("-F -n 50 -T -E {words}"), &counting);
        let name = |path: &String| path.rsplit('.').next().and_then(|end| end.parse::<u32>().ok());
        let all = |call| counting.calls(call).iter().filter_map(name).collect::<Vec<_>>();
        let (stats, opens) = (all("stat"), all("open"));
        // Behind looking for test directories, whose names end in another way.
        let stats = stats[stats.len() - 50..].to_vec();
        assert_eq!(stats, opens, "{words}");
        let once: BTreeSet<u32> = stats.iter().copied().collect();
        assert!(once.into_iter().eq(0..50), "{words}: {stats:?}");
        stats
    };
    let plain = visits("");
    assert!(plain.is_sorted());
    let (five, again, six) = (visits("-R=5"), visits("-R --random-seed 5"), visits("-R=6"));
    assert_eq!(five, again);
    assert!(five != plain && five != six);
}

#[test]
fn files_are_synced_and_verified_one_by_one() {
    let (folder, counting) = (Folder::new("synced"), Counting::default());
    run(&folder, "-F -n 5 --ranks 2 -w 10 -y", &counting);
    assert_eq!((counting.of("fsync"), counting.of("sync")), (10, 0));
    let (folder, counting) = (Folder::new("verified"), Counting::default());
    run(&folder, "-F -n 5 --ranks 2 -w 10 --verify-write -C -Y", &counting);
    // Each rank syncs behind the one phase.
    assert_eq!((counting.of("read"), counting.of("sync"), counting.of("fsync")), (10, 2, 0));
    // A sum of the bytes of all files is what was asked for, and each begins with the seed.
    let (folder, counting) = (Folder::new("sized"), Counting::default());
    run(&folder, "-F -n 3 -w 1000 -G 77 -C", &counting);
    for (name, size) in tree(&folder.path("t")).into_iter().filter(|(_, size)| size.is_some()) {
        let data = std::fs::read(folder.path(&format!("t/{name}"))).unwrap();
        assert_eq!((size, data[0]), (Some(1000), 77), "{name}");
    }
}

#[test]
fn runs_with_fewer_ranks_come_first() {
    let (folder, counting) = (Folder::new("fewer"), Counting::default());
    let text = run(&folder, "-F -n 3 --ranks 5 -f 1 -l 5 -s 2", &counting);
    assert_eq!(counting.of("create"), 3 * (1 + 3 + 5));
    for tasks in ["1 tasks, 3 files", "3 tasks, 9 files", "5 tasks, 15 files"] {
        assert_eq!(text.matches(&format!("\n{tasks}\n")).count(), 1, "{tasks}: {text}");
    }
}

#[test]
fn pauses_are_made_before_directories_and_before_files() {
    let (folder, counting) = (Folder::new("pause"), Counting::default());
    let begin = clock::now();
    run(&folder, "-n 1 -p 1", &counting);
    assert!((2.0..12.0).contains(&(clock::now() - begin)));
}

#[test]
fn barriers_and_times_of_directories_change_no_call() {
    for words in ["-B", "-B=1", "-B 0", "-u -t", "-u", "-v -v", "-V 3"] {
        let (folder, counting) = (Folder::new("same"), Counting::default());
        run(&folder, &format!("-n 4 --ranks 3 -w 8 -e 8 {words}"), &counting);
        let calls = ["create", "open", "unlink"].map(|name| counting.of(name));
        assert_eq!(calls, [12; 3], "{words}");
        assert_eq!(tree(&folder.path("")).len(), 0, "{words}");
    }
    let barriers = |words: &str| testing::options::<Options>(words).no_barriers == 0;
    assert!(barriers("") && barriers("-B=0") && !barriers("-B") && !barriers("-B=1"));
    assert!(barriers("-B 0") && !barriers("-B 1") && !barriers("-B -F"));
}

#[test]
fn tables_are_those_that_were_asked_for() {
    let (folder, counting) = (Folder::new("tables"), Counting::default());
    let output = |words: &str| run(&folder, &format!("-F -n 3 --ranks 2 {words}"), &counting);
    let (rate, time) = ("SUMMARY rate (in ops/sec): ", "SUMMARY time (in sec): ");
    let has = |text: &str| (text.contains(rate), text.contains(time));
    assert_eq!(has(&output("")), (true, false));
    assert_eq!(has(&output("-Z")), (false, true));
    assert_eq!(has(&output("-P")), (true, true));
    let text = output("--showRankStatistics");
    assert!(text.contains("per Rank"), "{text}");
    let (plain, all) = (output(""), output("--print-all-procs"));
    assert!(all.lines().count() > plain.lines().count(), "{all}");
    let (plain, more) = (output(""), output("-v"));
    assert!(more.lines().count() > plain.lines().count(), "{more}");
}

#[test]
fn commands_run_before_and_behind_each_phase_and_only_the_latter_count() {
    let (folder, counting) = (Folder::new("commands"), Counting::default());
    let run_between = |before: &str, after: &str| {
        let path = folder.path("t");
        let mut options: Options =
            testing::options(&format!("-a NATIVE -d {path} -F -n 2 --ranks 2"));
        options.json = Some(folder.path("json"));
        options.before_phase = Some(before.to_owned());
        options.after_phase = Some(after.to_owned());
        let stop = AtomicBool::new(false);
        testing::run("mdtest", &counting, &stop, |all| super::run(&options, all)).0
    };
    let log = folder.path("log");
    let before = format!("echo b >> {log}; sleep 0.6");
    assert_eq!(run_between(&before, &format!("echo a >> {log}")), Ok(()));
    let seconds = || {
        let json = std::fs::read_to_string(folder.path("json")).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        parsed["tests"][0]["iterations"][0]["File stat"]["time"].as_f64().unwrap()
    };
    // Two ranks, four phases.
    let lines = std::fs::read_to_string(&log).unwrap();
    assert_eq!((lines.matches('b').count(), lines.matches('a').count()), (8, 8));
    assert!(seconds() < 0.6, "{}", seconds());
    assert_eq!(run_between("true", "sleep 0.2"), Ok(()));
    assert!(seconds() >= 0.2);
    let Err(Ended::Failed(line)) = run_between("exit 3", "true") else { panic!("no failure") };
    assert_eq!(line, "'exit 3': exit status: 3");
    assert!(!std::path::Path::new(&folder.path("t")).exists());
}
