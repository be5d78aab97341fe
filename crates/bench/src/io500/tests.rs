use std::sync::atomic::AtomicBool;

use super::beside;
use super::beside::{named, scores};
use super::phases::phases;
use super::score::{Total, result_line};
use super::*;
use crate::testing::{self, Counting, Folder, tree};

fn run(
    folder: &Folder,
    words: &str,
    counting: &Counting,
    stop: &AtomicBool,
) -> (Result<(), Ended>, String) {
    let place = [folder.path("data"), folder.path("results")];
    let words = format!("--datadir {} --resultdir {} {words}", place[0], place[1]);
    let options: Options = testing::options(&words);
    testing::run(&format!("io500 {words}"), counting, stop, |all| super::run(&options, all))
}

/// A submission.
const SUBMITTED: [(&str, f64); 13] = [
    ("ior-easy-write", 6.173_493),
    ("mdtest-easy-write", 21.002_955),
    ("timestamp", 0.0),
    ("ior-hard-write", 0.328_757),
    ("mdtest-hard-write", 9.818_279),
    ("find", 255.641_154),
    ("ior-easy-read", 6.647_157),
    ("mdtest-easy-stat", 63.395_256),
    ("ior-hard-read", 0.902_677),
    ("mdtest-hard-stat", 27.472_745),
    ("mdtest-easy-delete", 11.505_903),
    ("mdtest-hard-read", 10.385_374),
    ("mdtest-hard-delete", 7.021_386),
];

#[test]
fn lines_and_score_are_those_of_io500() {
    let line = result_line(named("ior-easy-write"), 0.146_316, 300.331, true);
    assert_eq!(line, "[RESULT]       ior-easy-write        0.146316 GiB/s : time 300.331 seconds");
    let line = result_line(named("timestamp"), 0.0, 0.0001, true);
    assert_eq!(line, "[      ]            timestamp        0.000000 kIOPS : time 0.000 seconds");
    let line = result_line(named("ior-rnd4K-easy-read"), 0.25, 300.5, true);
    assert_eq!(line, "[      ]  ior-rnd4K-easy-read        0.250000 GiB/s : time 300.500 seconds");
    let line = result_line(named("find"), 22.930_156, 87.249, false);
    let wanted =
        "[RESULT]                 find       22.930156 kIOPS : time 87.249 seconds [INVALID]";
    assert_eq!(line, wanted);
    // The score that io500 computed.
    let total = Total::of(&scores(&SUBMITTED), false);
    assert_eq!(format!("{:.6} {:.6}", total.bandwidth, total.metadata), "1.868072 22.952705");
    assert_eq!(format!("{:.6}", total.score), "6.548076");
}

#[test]
fn phases_of_the_extended_mode_count_in_its_score_alone() {
    let more = [
        ("mdworkbench-create", 500.0),
        ("find-easy", 100.0),
        ("find-hard", 10.0),
        ("mdworkbench-bench", 1.0),
        ("mdworkbench-delete", 700.0),
        ("ior-rnd4K-easy-read", 900.0),
    ];
    let all = scores(&[&SUBMITTED[..], &more].concat());
    let (standard, extended) = (Total::of(&all, false), Total::of(&all, true));
    assert_eq!(standard, Total::of(&scores(&SUBMITTED), false));
    assert_eq!(extended.bandwidth, standard.bandwidth);
    // Eight results of the standard mode, and three.
    let mean = (standard.metadata.powi(8) * 100.0 * 10.0 * 1.0).powf(1.0 / 11.0);
    assert!((extended.metadata / mean - 1.0).abs() < 1e-9);
    let score = (extended.bandwidth * extended.metadata).sqrt();
    assert!((extended.score / score - 1.0).abs() < 1e-9);
}

#[test]
fn all_phases_run_in_their_order_and_leave_results_only() {
    let native = Counting::default();
    standard("", &Counting::default());
    standard("-a NATIVE --native.source x:/y --native.port 7", &native);
    // Easy and hard files of three ranks; IOR's files are opened by each rank, and removed before and at the end.
    let files = 3 * (40 + 102);
    assert_eq!((native.of("create"), native.of("unlink")), (files + 3 + 3, files + 2 * (3 + 1)));
    assert_eq!(native.of("write"), 3 * 102 + 3 * 2 + 3 * 20);
    // Behind each of the two creations.
    assert_eq!(native.of("sync"), 2 * 3);
}

/// What a run of three ranks left.
struct Left {
    lines: Vec<String>,
    result: String,
    json: serde_json::Value,
}

impl Left {
    fn value(&self, section: &str, key: &str) -> String {
        let section = self.result.split(&format!("\n[{section}]\n")).nth(1).expect(section);
        let line = section.lines().find(|line| line.starts_with(&format!("{key:<15} = ")));
        line.unwrap_or_else(|| panic!("no {key} in {section}"))[18..].to_owned()
    }

    fn score(&self, name: &str) -> f64 {
        let phases = self.json["phases"].as_array().unwrap();
        phases.iter().find(|phase| phase["name"] == name).unwrap()["score"].as_f64().unwrap()
    }

    /// Whether all phases ran in their order, and reported so.
    fn names_are(&self, is_extended: bool) {
        let names: Vec<&str> = self.lines.iter().map(|line| line[9..29].trim()).collect();
        let all: Vec<&str> = phases(is_extended).map(|phase| phase.name).collect();
        assert_eq!(names[..all.len()], all);
        assert!(self.lines[all.len()].starts_with("[SCORE ] Bandwidth "), "{:?}", self.lines);
        assert!(self.lines[all.len()].ends_with(" [INVALID]"), "the stonewall is too short");
    }

    /// Seconds that all phases together have to work at least.
    fn stonewalls(&self) -> u32 {
        let lines = self.result.lines().filter(|line| line.starts_with("exe "));
        let words = lines.flat_map(|line| line.split(' ').zip(line.split(' ').skip(1)));
        words
            .filter(|(option, _)| ["-D", "-W"].contains(option))
            .map(|(_, seconds)| seconds.parse::<u32>().unwrap())
            .sum()
    }

    fn mean(&self, names: &[&str]) -> f64 {
        let product = names.iter().map(|name| self.score(name)).product::<f64>();
        product.powf(1.0 / names.len() as f64)
    }
}

fn left(ini: &str, words: &str, counting: &Counting) -> Left {
    let folder = Folder::new("io500");
    let (path, json) = (folder.path("ini"), folder.path("json"));
    let own = "[global]\ntimestamp-datadir = FALSE\ntimestamp-resultdir = FALSE\n[ior-easy]\n\
                blockSize = 4m\n[ior-hard]\nsegmentCount = 20\n[mdtest-hard]\nn = 102\n[find]\n\
                nproc = 2\n";
    std::fs::write(&path, format!("{own}{ini}")).unwrap();
    let words = format!("{path} --ranks 3 --stonewall 1 --json {json} --timestamp x {words}");
    let (ended, text) = run(&folder, words.trim_end(), counting, &AtomicBool::new(false));
    assert_eq!(ended, Ok(()), "{text}");
    let there = tree(&folder.path(""));
    assert!(there.keys().all(|name| !name.ends_with(".stonewall")), "{there:?}");
    assert!(there.keys().all(|name| !name.starts_with("data")), "{there:?}");
    assert!(there.contains_key("results/result_summary.txt"));
    assert!(there.contains_key("results/mdtest-hard-read.txt"));
    let file_text =
        |name: &str| std::fs::read_to_string(folder.path(&format!("results/{name}"))).unwrap();
    assert_eq!(file_text("config-orig.ini"), format!("{own}{ini}"));
    let whole = file_text("config.ini");
    assert!(
        whole.contains("\nblockSize = 4m\n") && whole.contains("\nstonewall-time = 1\n"),
        "{whole}"
    );
    for (phase, lines) in [
        ("ior-hard-write", 1 + 3),
        ("ior-rnd4K-easy-read", 1 + 3),
        ("mdtest-hard-read", 2 + 3),
        ("find", 2 + 2),
    ] {
        let text = file_text(&format!("{phase}.csv"));
        assert_eq!(text.lines().count(), lines, "{phase}: {text}");
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    Left {
        lines: text.lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect(),
        result: read(&folder.path("results/result.txt")),
        json: serde_json::from_str(&read(&json)).unwrap(),
    }
}

fn standard(words: &str, counting: &Counting) {
    let drop = "[global]\ndrop-caches = true\ndrop-caches-cmd = exit 3\n";
    let left = left(&format!("[mdtest-easy]\nn = 40\n{drop}"), words, counting);
    left.names_are(false);
    // Before each phase with a result; it goes on.
    let warned = left.result.matches("; WARNING Calling \"exit 3\" returned").count();
    assert_eq!(warned, 13, "{}", left.result);
    // Of mdtest and of IOR; directories do not count.
    let entries = 3 * (40 + 102) + 3 + 1;
    // Number 101 of each rank in the tree that is shared.
    assert_eq!(left.value("find", "found"), "3", "{}", left.result);
    assert_eq!(left.value("find", "total-files"), entries.to_string(), "{}", left.result);
    assert!(left.value("mdtest-hard-read", "exe").contains(" -E -X "));
    assert!(left.value("ior-hard-write", "exe").contains(" -t 47008 -b 47008 -s 20 "));
    let random = left.value("ior-rnd4K-easy-read", "exe");
    assert!(random.contains("-easy-read.csv -t=4096 -b=4096 -s=10000000 "), "{random}");
    assert!(random.contains(" -F -C -Q 2 -r -D 1 -z -z -O saveRank"), "{random}");
    let easy = ["ior-easy-write", "ior-hard-write", "ior-easy-read", "ior-hard-read"];
    let mean = left.mean(&easy);
    assert!((mean / left.json["bandwidth"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert!(left.score("mdtest-hard-read") > 0.0 && left.json["valid"] == false);
    assert!(left.score("ior-rnd4K-easy-read") > 0.0 && !left.result.contains("[SCOREX]"));
    // Four writes, and the reads at random.
    assert_eq!(left.stonewalls(), 5, "{}", left.result);
    // A quick run has those of ten seconds, and about as long for what has none: what was written in them is read,
    // looked at and removed.
    assert!(2 * left.stonewalls() * QUICK_STONEWALL <= 120);
}

#[test]
fn an_extended_run_searches_parts_and_runs_md_workbench() {
    let ini = "[mdtest-easy]\nn = 102\n[mdworkbench]\nprecreatePerSet = 3\nfilesPerProc = 2\n\
               waitingTime = 0.5\n[find-hard]\nnproc = 1\n";
    let native = Counting::default();
    let words = "--mode extended -a NATIVE --native.source x:/y";
    let left = left(ini, words, &native);
    left.names_are(true);
    beside::is_written_as_by_io500(&left.result);
    let last = &left.lines[20];
    assert!(last.starts_with("[SCOREX] Bandwidth ") && last.ends_with(" [INVALID]"), "{last}");
    // md-workbench has ten sets: of three files to begin with, and two new ones in each of two iterations.
    let workbench = 3 * 10 * (3 + 2 * 2);
    assert_eq!(native.of("create"), workbench + 3 * (102 + 102) + 3 + 3);
    // By name alone; the hard ones by size and time.
    let value = |section: &str, key: &str| left.value(section, key);
    assert_eq!((value("find-easy", "found"), value("find-easy", "total-files")), same("3", 306));
    assert_eq!((value("find-hard", "found"), value("find-hard", "total-files")), same("3", 306));
    assert_eq!((value("find-hard", "nproc"), value("find-easy", "nproc")), same("1", 3));
    assert!(!value("find-easy", "exe").contains("-newer"));
    // All: also md-workbench's.
    let entries = 3 * (102 + 102) + 3 + 1 + 3 * 10 * 3;
    assert_eq!((value("find", "found"), value("find", "total-files")), same("3", entries));
    for (phase, what) in [("create", " -1 "), ("bench", " -2 -R=2 -X "), ("delete", " -3 ")] {
        let section = format!("mdworkbench-{phase}");
        let words = value(&section, "exe");
        assert!(words.contains(what) && words.contains(" -t=0.500000 -O=1 "), "{words}");
        assert!(words.contains(" -D=10 ") && words.contains(" -P=3 -I=2 "), "{words}");
        assert!(left.score(&section) > 0.0);
    }
    let score: f64 = value("mdworkbench-bench", "scoreIteration0").parse().unwrap();
    assert!(score > 0.0 && left.json["mode"] == "extended");
    let metadata: Vec<&str> = phases(true)
        .filter(|phase| phase.group == super::phases::Group::Metadata)
        .map(|phase| phase.name)
        .collect();
    assert_eq!(metadata.len(), 11);
    let mean = left.mean(&metadata) / left.json["extended"]["metadata"].as_f64().unwrap();
    assert!((mean - 1.0).abs() < 1e-9, "{mean}");
    assert!(left.json["metadata"] != left.json["extended"]["metadata"]);
}

fn same(first: &str, second: u32) -> (String, String) {
    (first.to_owned(), second.to_string())
}

#[test]
fn md_workbench_gets_as_many_files_as_mdtest_would_create() {
    let ini =
        "[mdtest-easy]\nn = 40\n[find-easy]\nrun = FALSE\n[mdworkbench-delete]\nrun = FALSE\n";
    let left = left(ini, "--mode extended", &Counting::default());
    let rate: f64 = left.value("mdtest-easy-write", "score").parse().unwrap();
    let files: f64 = left.value("mdworkbench-create", "precreatePerSet").parse().unwrap();
    // In the one second of the stonewall, of three ranks with ten sets each.
    let wanted = rate * 1000.0 / 3.0 / 10.0;
    assert!((wanted - 1.5..=wanted.max(1.0)).contains(&files), "{files} {wanted}");
    assert_eq!(left.value("mdworkbench-bench", "filesPerProc"), files.to_string());
    // What is left out makes the extended run invalid, and no other.
    assert_eq!((left.score("find-easy"), left.score("mdworkbench-delete")), (0.0, 0.0));
    let phases = left.json["phases"].as_array().unwrap();
    let is_valid =
        |name: &str| phases.iter().any(|one| one["name"] == name && one["valid"] == true);
    assert!(!is_valid("mdworkbench-delete") && is_valid("mdworkbench-bench"), "{phases:?}");
}

#[test]
fn an_interrupt_leaves_results_only() {
    // The data's directory stays if it was there, and only then.
    for before in ["", "data"] {
        let folder = Folder::new("io500-stop");
        std::fs::create_dir_all(folder.path(before)).unwrap();
        let (ended, _) =
            run(&folder, "--ranks 2 --quick", &Counting::default(), &AtomicBool::new(true));
        assert_eq!(ended, Err(Ended::Interrupted));
        let mut left = tree(&folder.path(""));
        left.retain(|name, _| !name.starts_with("results"));
        assert!(left.keys().eq([before].iter().filter(|name| !name.is_empty())), "{left:?}");
    }
}

#[test]
fn stamps_and_names_are_those_of_io500() {
    assert_eq!(time_stamp(1_773_942_164), "2026.03.19-17.42.44");
    assert_eq!(stamp_of("a", "b"), (97 << 2) + 98);
    assert_eq!(time_text(1_773_942_164), "2026-03-19 17:42:44");
}
