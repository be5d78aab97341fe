use std::sync::atomic::AtomicBool;

use serde_json::Value;

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
    let words = format!("-a NATIVE -o {} {words}", folder.path("f"));
    testing::run(&format!("ior {words}"), counting, stop, |surroundings| {
        super::run(&options(&words), surroundings)
    })
}

/// The words of the row of an access.
fn row<'t>(text: &'t str, access: &str) -> Vec<&'t str> {
    let line = text.lines().find(|line| line.starts_with(&format!("{access:<10}")));
    let line = line.unwrap_or_else(|| panic!("no {access} in {text}"));
    assert_eq!(line.len(), 114, "{line:?}");
    line.split_whitespace().collect()
}

#[test]
fn a_shared_file_has_every_rank_s_blocks() {
    let (folder, counting) = (Folder::new("shared"), Counting::default());
    let words = "--ranks 3 -b 8k -t 2k -s 2 -w -k -G 9 -l offset";
    let (ended, text) = run(&folder, words, &counting);
    assert_eq!(ended, Ok(()), "{text}");
    assert_eq!((counting.of("write"), counting.of("create")), (24, 3));
    let data = std::fs::read(folder.path("f")).unwrap();
    assert_eq!(data.len(), 3 * 8192 * 2);
    for (at, word) in data.as_chunks::<8>().0.iter().enumerate() {
        let (at, word) = (at * 8, u64::from_le_bytes(*word));
        let (rank, transfer) = (at / 8192 % 3, at / 2048 * 2048);
        let low = if at == transfer { transfer } else { 9 + (at - transfer) / 8 };
        assert_eq!(word, (rank as u64) << 32 | low as u64, "at {at}");
    }
    let row = row(&text, "write");
    assert_eq!((row[4], row[5], row[10]), ("8.00", "2.00", "0"));
    // Read by other ranks than wrote it.
    let words = "--ranks 3 -b 8k -t 2k -s 2 -R -k -G 9 -l offset -C";
    let (ended, text) = run(&folder, words, &counting);
    assert_eq!((ended, counting.of("read")), (Ok(()), 24), "{text}");
    let (ended, _) = run(&folder, "--ranks 3 -b 8k -t 2k -s 2 -R -k -G 10", &counting);
    assert_eq!(ended, Err(Ended::Failed("24 transfers had wrong data".into())));
}

#[test]
fn every_access_does_what_it_counts_and_leaves_nothing() {
    for (words, files) in [
        ("-F -i 2 -m", 6),
        ("-F -u", 3),
        ("-F -z --random-offset-seed 3 -Z", 3),
        ("-F -Z -Z -X -4 -g -i 2", 3),
        ("-z --random-offset-seed 3", 3),
        ("-C -Q 2 -W -Y -e", 3),
        ("-O numTasksOnNode0=3,reorderTasks=1", 3),
    ] {
        let (folder, counting) = (Folder::new("access"), Counting::default());
        let words = format!("--ranks 3 -b 12k -t 4k -s 3 -w -r -R {words}");
        let (ended, text) = run(&folder, &words, &counting);
        assert_eq!(ended, Ok(()), "{words}: {text}");
        let repetitions = if words.contains("-i 2") { 2 } else { 1 };
        let transfers = 27 * repetitions;
        assert_eq!(counting.of("write"), transfers, "{words}");
        let reads = if words.contains("-W") { 2 } else { 1 };
        assert_eq!(counting.of("read"), transfers * reads, "{words}");
        let syncs = if words.contains("-Y") { 27 + 3 } else { 0 };
        assert_eq!(counting.of("fsync"), syncs, "{words}");
        assert_eq!(counting.of("create"), 3 * repetitions, "{words}");
        assert_eq!(tree(&folder.path("")).len(), 0, "{words}: {files}");
        assert!(!text.contains("WARNING"), "{words}: {text}");
        row(&text, "write");
        row(&text, "read");
        row(&text, "remove");
    }
}

#[test]
fn files_of_ranks_have_their_names_and_sizes() {
    let (folder, counting) = (Folder::new("names"), Counting::default());
    let (ended, _) = run(&folder, "--ranks 2 -F -w -k -b 8k -t 8k -m -i 2", &counting);
    assert_eq!(ended, Ok(()));
    let names = ["f.00000000.0", "f.00000000.1", "f.00000001.0", "f.00000001.1"];
    assert!(tree(&folder.path("")).into_iter().eq(names.map(|name| (name.to_owned(), Some(8192)))));
    let unique = Params { unique_directory: true, file_per_rank: true, ..Params::default() };
    let unique = Params { file: "/a/f".into(), ..unique };
    assert_eq!(unique.file_of(3, 0), "/a/3/f.00000003");
    let several = Params { file: "/a/f@/b/f".into(), file_per_rank: true, ..Params::default() };
    assert_eq!(several.file_of(3, 0), "/b/f.00000003");
}

#[test]
fn wrong_data_is_reported_with_its_place_and_a_failure() {
    for (words, number) in [("-R", 5), ("-W", 5), ("-R -K -F", 5)] {
        let (folder, counting) = (Folder::new("wrong"), Counting::default());
        counting.corrupt(number);
        let words = format!("--ranks 2 -w -b 16k -t 4k {words}");
        let (ended, text) = run(&folder, &words, &counting);
        assert_eq!(ended, Err(Ended::Failed("1 transfers had wrong data".into())), "{words}");
        assert!(text.contains("WARNING: Incorrect data on "), "{text}");
        assert!(text.contains(" (1 errors found).\nWARNING: Used Time Stamp "), "{text}");
        let kept = if words.contains("-K") { 2 } else { 0 };
        assert_eq!(tree(&folder.path("")).len(), kept, "{words}");
    }
}

#[test]
fn a_stonewall_wears_out_and_is_remembered() {
    let (folder, counting) = (Folder::new("stonewall"), Counting::default());
    let status = folder.path("status");
    let common = format!("--ranks 2 -F -b 4g -t 4k -k -G 5 -O stoneWallingStatusFile={status}");
    let words = format!("{common} -w -D 1 -O stoneWallingWearOut=1,interIODelay=1000");
    let (ended, text) = run(&folder, &words, &counting);
    assert_eq!(ended, Ok(()), "{text}");
    let each: u64 = std::fs::read_to_string(&status).unwrap().parse().unwrap();
    assert!(each > 10 && counting.of("write") == 2 * each, "{each}: {text}");
    assert!(text.contains("stonewalling pairs accessed min: "), "{text}");
    assert!(text.contains("WARNING: Maybe caused by deadlineForStonewalling"), "{text}");
    let size = std::fs::metadata(folder.path("f.00000001")).unwrap().len();
    assert_eq!(size, each * 4096);
    let (ended, text) = run(&folder, &format!("{common} -R"), &counting);
    assert_eq!((ended, counting.of("read")), (Ok(()), 2 * each), "{text}");
}

#[test]
fn failures_and_interrupts_end_the_run_and_leave_nothing() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (folder, counting) = (Folder::new("ends"), Counting::default());
    counting.fail("write", 9, Errno::ENOSPC);
    let (ended, _) = run(&folder, "--ranks 2 -F -u -b 64k -t 4k", &counting);
    let Err(Ended::Failed(line)) = ended else { panic!("{ended:?}") };
    assert!(
        line.contains(": cannot write ") && line.ends_with("No space left on device"),
        "{line}"
    );
    assert_eq!(tree(&folder.path("")).len(), 0);
    let counting = Counting::default();
    counting.interrupt(40, &STOP);
    let (ended, _) = run_until(&folder, "--ranks 2 -b 1g -t 4k", &counting, &STOP);
    assert_eq!(ended, Err(Ended::Interrupted));
    assert_eq!(tree(&folder.path("")).len(), 0);
    let (ended, _) = run(&folder, "-r", &Counting::default());
    assert!(matches!(ended, Err(Ended::Failed(line)) if line.contains("cannot open")));
}

#[test]
fn json_and_csv_report_what_the_table_reports() {
    let (folder, counting) = (Folder::new("formats"), Counting::default());
    let file = folder.path("out");
    let words = format!("--ranks 2 -b 32m -i 2 -O summaryFormat=JSON,summaryFile={file}");
    let (ended, text) = run(&folder, &words, &counting);
    assert_eq!((ended, text), (Ok(()), format!("Writing output to {file}\n")));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let test = &json["tests"][0];
    let accesses: Vec<&str> = test["Results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["access"].as_str().unwrap())
        .collect();
    assert_eq!(accesses, ["write", "read", "remove", "write", "read", "remove"]);
    let first = &test["Results"][0];
    let rate = 64.0 / first["totalTime"].as_f64().unwrap();
    assert!((rate / first["bwMiB"].as_f64().unwrap() - 1.0).abs() < 0.2, "{first}");
    assert_eq!(test["Options"]["xfersize"], "262144 bytes");
    assert_eq!(test["Parameters"]["repetitions"], 2);
    assert_eq!(json["summary"][1]["operation"], "read");
    assert!(test["max"]["writeMiB"].as_f64().unwrap() > 0.0);
    std::fs::remove_file(&file).unwrap();
    let (_, text) = run(&folder, "-O summaryFormat=csv", &counting);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
}

#[test]
fn scripts_run_their_tests_one_after_the_other() {
    let (folder, counting) = (Folder::new("script"), Counting::default());
    let script = folder.path("script");
    let text = "# of mine\nIOR START\n\tapi=NATIVE\n transferSize=4k, blockSize=8k # small\nRUN\n \
                fileperproc=1\nRUN\nRUN\nsegmentCount=2\nIOR STOP\nblockSize=1\n";
    std::fs::write(&script, text).unwrap();
    let (ended, text) = run(&folder, &format!("--ranks 2 -w -f {script}"), &counting);
    assert_eq!((ended, counting.of("write")), (Ok(()), 4 * 3 + 8), "{text}");
    assert_eq!(text.matches("\nOptions: \n").count(), 4);
    let summary = text.split("Summary of all tests:").nth(1).unwrap();
    assert_eq!(summary.matches("\nwrite ").count(), 4);
    std::fs::write(&script, "IOR START\nnothing=1\nRUN\n").unwrap();
    let (ended, _) = run(&folder, &format!("-f {script}"), &counting);
    assert_eq!(ended, Err(Ended::Failed("Unrecognized parameter \"nothing\"".into())));
}

#[test]
fn what_does_not_go_together_is_refused_in_a_line() {
    for words in [
        "-i 0",
        "-b 10k -t 4k",
        "-b 1k -t 4k",
        "-t 0",
        "-t 9 -b 9",
        "-s 0",
        "-r -R",
        "-r -W",
        "-C -Z -F",
        "-z -C",
        "-z -b 4k -t 4k",
        "-z -R -w -F",
        "-O stoneWallingWearOut=1",
        "-O stoneWallingStatusFile=/x -k -w",
        "-u -F -o a@b",
        "-O summaryFormat=XML",
        "-O what",
        "-B -t 1000 -b 1000",
        "-B -a NATIVE",
        "-b 8000000t -s 4",
    ] {
        let line = options(words).tests().expect_err(words);
        assert!(!line.is_empty() && !line.contains('\n'), "{words}: {line}");
    }
    for name in ["savePerOpDataCSV", "GPUid", "dualMount", "numNodes"] {
        let line = options(&format!("-O {name}=1")).tests().expect_err(name);
        assert_eq!(line, format!("directive '{name}' is not supported by Sheen yet"));
    }
    let tests = options("-O checkRead=1,taskPerNodeOffset=3 -w --ranks 4 -N 9").tests().unwrap();
    assert!(tests[0].check_read && tests[0].reorder.node_offset == 3 && tests[0].tasks == 4);
}

#[test]
fn the_lines_are_those_of_ior() {
    let (folder, counting) = (Folder::new("lines"), Counting::default());
    let (_, text) = run(&folder, "--ranks 2 -v", &counting);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("IOR-4.0.0+sheen-"));
    assert!(lines[0].ends_with(": MPI Coordinated Test of Parallel I/O"));
    let keys = [
        "Began",
        "Command line",
        "Machine",
        "TestID",
        "StartTime",
        "Path",
        "FS",
        "Participating tasks",
    ];
    for (line, key) in lines[1..].iter().zip(keys) {
        assert_eq!(line[..22].trim_end(), format!("{key:<20}:"), "{line}");
    }
    assert_eq!(
        lines[9..14],
        [
            "",
            "Options: ",
            "api                 : NATIVE",
            "apiVersion          : ",
            &format!("test filename       : {}", folder.path("f")),
        ]
    );
    let rest = [
        "access              : single-shared-file",
        "type                : independent",
        "segments            : 1",
        "ordering in a file  : sequential",
        "ordering inter file : no tasks offsets",
        "nodes               : 2",
        "tasks               : 2",
        "clients per node    : 1",
        "repetitions         : 1",
        "xfersize            : 262144 bytes",
        "blocksize           : 1 MiB",
        "aggregate filesize  : 2 MiB",
        "verbose             : 1",
        "",
        "Results: ",
        "",
        "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter",
    ];
    assert_eq!(lines[14..31], rest);
    assert!(text.contains("\nMax Write: ") && text.contains("\nMax Read:  "));
    assert!(text.contains("\n\nSummary of all tests:\nOperation   Max(MiB)   Min(MiB)  Mean(MiB)"));
    assert!(lines[lines.len() - 1].starts_with("Finished            : "));
}

#[test]
fn more_memory_than_there_is_ends_the_run_in_a_line_and_leaves_nothing() {
    for words in ["-w -t 100000g -b 100000g", "-w -z -t 8 -b 100000g"] {
        let (folder, counting) = (Folder::new("memory"), Counting::default());
        let (ended, _) = run(&folder, words, &counting);
        let Err(Ended::Failed(line)) = ended else { panic!("{words}: {ended:?}") };
        assert!(line.starts_with("not enough memory for "), "{words}: {line}");
        assert_eq!(tree(&folder.path("")).len(), 0, "{words}");
    }
}
