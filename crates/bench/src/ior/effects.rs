//! What each option does to the calls that a file system sees. Formats, scripts, names and what is refused are in
//! `tests`.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Options;
use crate::clock;
use crate::ranks::Ended;
use crate::testing::{self, Counting, Folder, tree};

fn ended(folder: &Folder, words: &str, counting: &Counting) -> (Result<(), Ended>, String) {
    let api = if words.contains("-a ") { "" } else { "-a NATIVE" };
    let words = format!("{api} -o {} {words}", folder.path("f"));
    let options: Options = testing::options(&words);
    let stop = AtomicBool::new(false);
    testing::run(&format!("ior {words}"), counting, &stop, |all| super::run(&options, all))
}

fn run(folder: &Folder, words: &str, counting: &Counting) -> String {
    let (ended, text) = ended(folder, words, counting);
    assert_eq!(ended, Ok(()), "{words}: {text}");
    text
}

fn numbers(counting: &Counting, call: &str) -> Vec<u64> {
    counting.calls(call).iter().map(|place| place.parse().unwrap()).collect()
}

#[test]
fn what_is_not_said_is_as_in_ior() {
    let options: Options = testing::options("");
    let usual = &options.tests().unwrap()[0];
    assert_eq!((usual.block, usual.transfer, usual.segments), (1 << 20, 256 << 10, 1));
    assert_eq!((usual.repetitions, usual.tasks, usual.reorder.node_offset), (1, 1, 1));
    assert_eq!((usual.file.as_str(), usual.deadline, usual.signature), ("testFile", 0, 0));
    // Writes, reads, and removes.
    let (folder, counting) = (Folder::new("usual"), Counting::default());
    run(&folder, "", &counting);
    let offsets = [0, 1, 2, 3].map(|number| number * 262_144);
    assert_eq!(
        (numbers(&counting, "write"), numbers(&counting, "read")),
        (offsets.to_vec(), offsets.to_vec())
    );
    assert_eq!((counting.of("fsync"), tree(&folder.path("")).len()), (0, 0));
}

#[test]
fn w_and_r_do_one_thing_each_and_k_keeps_the_file() {
    let (folder, counting) = (Folder::new("one"), Counting::default());
    run(&folder, "-w -k -b 8k -t 4k", &counting);
    assert_eq!((counting.of("write"), counting.of("read")), (2, 0));
    assert_eq!(tree(&folder.path("")).get("f"), Some(&Some(8192)));
    run(&folder, "-r -b 8k -t 4k", &counting);
    assert_eq!((counting.of("write"), counting.of("read")), (2, 2));
    assert_eq!(tree(&folder.path("")).len(), 0);
}

#[test]
fn segments_are_strided_and_random_offsets_are_the_same_in_another_order() {
    let offsets = |words: &str| {
        let (folder, counting) = (Folder::new("offsets"), Counting::default());
        run(&folder, &format!("-w -b 16k -t 4k -s 4 {words}"), &counting);
        numbers(&counting, "write")
    };
    let plain = offsets("");
    assert!(plain.iter().copied().eq((0..16).map(|number| number * 4096)));
    let (one, again, two) = (
        offsets("-z --random-offset-seed 1"),
        offsets("-z --random-offset-seed 1"),
        offsets("-z --random-offset-seed 2"),
    );
    assert!(one == again && one != two && one != plain);
    let mut sorted = one.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, plain);
    // Any blocks, some of them more than once; the last one first, so that the file has its size.
    let anywhere = offsets("-z -z -F");
    assert_eq!((anywhere.len(), anywhere[0]), (16, 3 * 16_384));
    assert!(anywhere.iter().all(|offset| plain.contains(offset)));
}

#[test]
fn files_are_read_by_the_rank_that_c_q_and_z_say() {
    let (folder, counting) = (Folder::new("reorder"), Counting::default());
    let common = "--ranks 4 -F -k -b 4k -t 4k -O numTasksOnNode0=1";
    run(&folder, &format!("{common} -w"), &counting);
    // Every rank reads another's: all files are read.
    let before = counting.calls("open").len();
    run(&folder, &format!("{common} -r -Z -Z -X 3"), &counting);
    let opened: BTreeSet<String> = counting.calls("open").into_iter().skip(before).collect();
    assert_eq!(opened.len(), 4);
    std::fs::remove_file(folder.path("f.00000000")).unwrap();
    for (words, reader) in [("", 0), ("-C", 3), ("-C -Q 1", 3), ("-C -Q 2", 2), ("-C -Q 5", 3)] {
        let (ended, _) = ended(&folder, &format!("{common} -r {words}"), &counting);
        let Err(Ended::Failed(line)) = ended else { panic!("{words}: {ended:?}") };
        assert!(line.starts_with(&format!("rank {reader}: cannot open ")), "{words}: {line}");
    }
}

#[test]
fn an_existing_file_is_kept_only_with_e() {
    let (folder, counting) = (Folder::new("existing"), Counting::default());
    std::fs::write(folder.path("f"), vec![7; 10_000]).unwrap();
    let text = run(&folder, "-w -k -E -b 4k -t 4k -G 5", &counting);
    assert!(text.contains("exists already and will be overwritten"), "{text}");
    let data = std::fs::read(folder.path("f")).unwrap();
    assert_eq!((data.len(), data[0], data[4096], counting.of("unlink")), (10_000, 5, 7, 0));
    let text = run(&folder, "-w -k -b 4k -t 4k -G 5", &counting);
    assert!(text.contains("exists already and will be deleted"), "{text}");
    assert_eq!(std::fs::metadata(folder.path("f")).unwrap().len(), 4096);
}

#[test]
fn a_transfer_that_is_cut_short_is_gone_on_with_unless_x_says_no() {
    for (call, words) in [("write", "-w"), ("read", "-w -r")] {
        let (folder, counting) = (Folder::new("short"), Counting::default());
        counting.cut_short(call, 2);
        run(&folder, &format!("{words} -b 16k -t 4k"), &counting);
        assert_eq!(counting.of(call), 4 + 1, "{call}");
        let (folder, counting) = (Folder::new("single"), Counting::default());
        counting.cut_short(call, 2);
        let (ended, _) = ended(&folder, &format!("{words} -b 16k -t 4k -x"), &counting);
        assert!(
            matches!(&ended, Err(Ended::Failed(line)) if line.ends_with("ended at offset 10240")),
            "{ended:?}"
        );
        assert_eq!(counting.of(call), 3, "{call}");
    }
}

#[test]
fn syncs_are_made_once_or_behind_each_write() {
    for (words, syncs) in [("-e", 2), ("-Y", 2 * 3 * 4), ("-e -Y", 2 * 3 * 4 + 2), ("", 0)] {
        let (folder, counting) = (Folder::new("syncs"), Counting::default());
        run(&folder, &format!("--ranks 2 -w -F -b 16k -t 4k -s 3 {words}"), &counting);
        assert_eq!(counting.of("fsync"), syncs, "{words}");
    }
}

#[test]
fn so_many_ranks_take_part_and_each_may_have_a_directory() {
    let (folder, counting) = (Folder::new("ranks"), Counting::default());
    run(&folder, "--ranks 4 -N 2 -w -F -u -k -b 4k -t 4k", &counting);
    let names = ["0", "0/f.00000000", "1", "1/f.00000001"];
    assert!(tree(&folder.path("")).keys().eq(names));
    assert_eq!(counting.of("write"), 2);
    // Several places, one behind the other.
    let places = format!("{}@{}", folder.path("a"), folder.path("b"));
    run(&folder, &format!("--ranks 3 -w -F -k -b 4k -t 4k -o {places}"), &counting);
    let made = tree(&folder.path(""));
    assert!(["a.00000000", "b.00000001", "a.00000002"].iter().all(|name| made.contains_key(*name)));
}

#[test]
fn runs_end_at_a_time_or_last_for_one() {
    let (folder, counting) = (Folder::new("times"), Counting::default());
    let begin = clock::now();
    // All ranks stop at the same transfer, or none.
    run(&folder, "--ranks 2 -c -w -k -F -b 4g -t 4k -D 1 -O interIODelay=2000", &counting);
    assert!((1.0..20.0).contains(&(clock::now() - begin)));
    let sizes: BTreeSet<Option<u64>> = tree(&folder.path("")).into_values().collect();
    assert_eq!(sizes.len(), 1, "{sizes:?}");
    let (folder, counting) = (Folder::new("limit"), Counting::default());
    run(&folder, "--ranks 2 -w -F -b 1m -t 4k -O stoneWallingWearOutIterations=5", &counting);
    assert_eq!(counting.of("write"), 2 * 5);
    let (folder, counting) = (Folder::new("least"), Counting::default());
    let begin = clock::now();
    run(&folder, "-w -b 8k -t 4k -O minTimeDuration=1,interIODelay=1000", &counting);
    // It begins anew, and comes to the end of the file again each time.
    assert!(clock::now() - begin >= 1.0 && counting.of("write") > 4);
    assert!(counting.of("write").is_multiple_of(2));
    let begin = clock::now();
    run(&folder, "-w -r -d 1 -b 4k -t 4k", &counting);
    assert!(clock::now() - begin >= 2.0, "a pause before each access");
}

#[test]
fn after_so_many_minutes_nothing_more_is_begun() {
    for (call, number, seconds, accesses) in [
        ("write", 0, 59.0, (6, 6)),
        // Not even the read of what was written.
        ("write", 0, 61.0, (2, 0)),
        ("read", 0, 61.0, (2, 2)),
        ("write", 3, 61.0, (4, 2)),
    ] {
        let (folder, counting) = (Folder::new("minutes"), Counting::default());
        counting.pass(call, number, seconds);
        run(&folder, "-T 1 -i 3 -b 8k -t 4k", &counting);
        let done = (counting.of("write"), counting.of("read"));
        assert_eq!(done, accesses, "{seconds} s with {call} {number}");
        assert_eq!(tree(&folder.path("")).len(), 0, "what is not read is removed, too");
    }
}

/// The flags with which the file at `path` is open in this process.
fn flags(path: &str) -> Option<i64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    let mut own = entries
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.to_str() == Some(path)));
    let number = own.next()?.file_name().into_string().ok()?;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i64::from_str_radix(flags.trim(), 8).ok()
}

#[test]
fn files_are_opened_with_o_direct_when_asked_for() {
    let direct = i64::from(rustix::fs::OFlags::DIRECT.bits());
    for (words, is_direct) in [("", false), ("-B", true), ("-O useO_DIRECT=1", true)] {
        let folder = Folder::new("direct");
        let path = folder.path("f");
        let seen = std::thread::scope(|scope| {
            // A quarter of a second for each of both.
            let words = format!("-a POSIX -w -r -b 256k -t 4k -O interIODelay=4000 {words}");
            let (folder, counting) = (&folder, Counting::default());
            let test = scope.spawn(move || ended(folder, &words, &counting));
            let mut seen = Vec::new();
            while !test.is_finished() {
                seen.extend(flags(&path));
                std::thread::park_timeout(Duration::from_millis(5));
            }
            match test.join().expect("no panic") {
                (Ok(()), _) => Some(seen),
                (Err(Ended::Failed(line)), _) if line.starts_with("rank 0: cannot ") => None,
                (other, text) => panic!("{other:?}: {text}"),
            }
        });
        let Some(seen) = seen else {
            assert!(is_direct, "a file system without O_DIRECT");
            continue;
        };
        assert!(!seen.is_empty() && seen.iter().all(|flags| (flags & direct != 0) == is_direct));
    }
}

#[test]
fn a_rank_that_is_slower_than_the_rest_is_reported_with_j() {
    for (words, reported) in [("-j 1", true), ("", false), ("-j 9", false)] {
        let (folder, counting) = (Folder::new("slow"), Counting::default());
        counting.slow("write", 1, Duration::from_millis(2500));
        let text = run(&folder, &format!("--ranks 2 -w -F -b 4k -t 4k {words}"), &counting);
        // One of the two, or both: the mean lies between them.
        assert_eq!(text.contains(", elapsed transfer time is "), reported, "{words}: {text}");
    }
}

#[test]
fn data_is_of_the_type_that_was_asked_for() {
    for (kind, plain) in
        [("timestamp", true), ("offset", true), ("incompressible", false), ("random", false)]
    {
        let (folder, counting) = (Folder::new("data"), Counting::default());
        let words = format!("-w -k -b 64k -t 16k -G 9 -l {kind}");
        run(&folder, &words, &counting);
        let data = std::fs::read(folder.path("f")).unwrap();
        // Of words of rank 0 in order the upper half is nothing.
        let words = data.as_chunks::<8>().0;
        let small = words.iter().filter(|word| word[4..] == [0; 4]).count();
        assert_eq!(small == words.len(), plain, "{kind}: {small}");
        let read = format!("-r -R -k -b 64k -t 16k -G 9 -l {kind}");
        assert_eq!(ended(&folder, &read, &counting).0, Ok(()), "{kind}");
        let other = format!("-r -R -k -b 64k -t 16k -G 10 -l {kind}");
        assert!(ended(&folder, &other, &counting).0.is_err(), "{kind}");
    }
}

#[test]
fn each_rank_is_reported_in_a_file() {
    let (folder, counting) = (Folder::new("each"), Counting::default());
    let path = folder.path("ranks.csv");
    let words = format!("--ranks 3 -F -b 8k -t 4k -i 2 -O saveRankPerformanceDetailsCSV={path}");
    for _ in 0..2 {
        // The second run begins the file anew.
        run(&folder, &words, &counting);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        assert_eq!(lines.next().unwrap()[..3], ["access", "rank", "runtime-with-openclose"]);
        let rows: Vec<Vec<&str>> = lines.collect();
        let heads: Vec<[&str; 2]> = rows.iter().map(|row| [row[0], row[1]]).collect();
        let accesses = ["write", "read", "write", "read"];
        assert!(
            heads
                .iter()
                .eq(accesses.map(|one| ["0", "1", "2"].map(|rank| [one, rank])).as_flattened())
        );
        for row in rows {
            let numbers: Vec<f64> = row[2..].iter().map(|number| number.parse().unwrap()).collect();
            let [whole, transfers, rate, rate_of_transfers] = numbers[..] else {
                panic!("{row:?}")
            };
            assert!(whole >= transfers && transfers > 0.0, "{row:?}");
            for bytes in [whole * rate, transfers * rate_of_transfers] {
                assert!((bytes - 8192.0).abs() < 0.01, "{row:?}");
            }
        }
    }
}

#[test]
fn what_is_only_reported_changes_no_call() {
    let (folder, counting) = (Folder::new("reported"), Counting::default());
    let text = run(&folder, "-A 4711 -w -b 8k -t 4k -v -v -g", &counting);
    let summary = text.split("Summary of all tests:").nth(1).unwrap();
    assert!(summary.lines().any(|line| line.ends_with(" 4711")), "{summary}");
    assert_eq!((counting.of("write"), counting.of("create")), (2, 1));
    for (words, place) in [("-i 3 -m -F -k", "f.00000000.2"), ("-i 3 -F -k", "f.00000000")] {
        run(&folder, &format!("-w -b 4k -t 4k {words}"), &counting);
        assert!(tree(&folder.path("")).contains_key(place), "{words}");
    }
}
