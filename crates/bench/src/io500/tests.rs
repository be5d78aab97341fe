use std::sync::atomic::AtomicBool;

use super::phases::{Group, PHASES};
use super::score::{Score, mean_of, told};
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

#[test]
fn lines_and_score_are_those_of_io500() {
    let line = told(&PHASES[0], 0.146_316, 300.331, true);
    assert_eq!(line, "[RESULT]       ior-easy-write        0.146316 GiB/s : time 300.331 seconds");
    let line = told(&PHASES[2], 0.0, 0.0001, true);
    assert_eq!(line, "[      ]            timestamp        0.000000 kIOPS : time 0.000 seconds");
    let line = told(&PHASES[5], 22.930_156, 87.249, false);
    let told =
        "[RESULT]                 find       22.930156 kIOPS : time 87.249 seconds [INVALID]";
    assert_eq!(line, told);
    // A submission: its phases, and the score that io500 computed.
    let values = [
        6.173_493,
        21.002_955,
        0.0,
        0.328_757,
        9.818_279,
        255.641_154,
        6.647_157,
        63.395_256,
        0.902_677,
        27.472_745,
        11.505_903,
        10.385_374,
        7.021_386,
    ];
    let score = |(phase, score)| Score { phase, score, seconds: 1.0, is_valid: true };
    let scores: Vec<Score> = values.into_iter().enumerate().map(score).collect();
    let (bandwidth, metadata) =
        (mean_of(&scores, Group::Bandwidth), mean_of(&scores, Group::Metadata));
    assert_eq!(format!("{bandwidth:.6} {metadata:.6}"), "1.868072 22.952705");
    assert_eq!(format!("{:.6}", (bandwidth * metadata).sqrt()), "6.548076");
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

fn standard(more: &str, counting: &Counting) {
    let folder = Folder::new("io500");
    let ini = folder.path("ini");
    let text = "[global]\ntimestamp-datadir = FALSE\ntimestamp-resultdir = FALSE\n[ior-easy]\n\
                blockSize = 4m\n[ior-hard]\nsegmentCount = 20\n[mdtest-easy]\nn = 40\n\
                [mdtest-hard]\nn = 102\n[find]\nnproc = 2\n";
    std::fs::write(&ini, text).unwrap();
    let json = folder.path("json");
    let words = format!("{ini} --ranks 3 --stonewall 1 --json {json} --timestamp x {more}");
    let words = words.trim_end();
    let (ended, text) = run(&folder, words, counting, &AtomicBool::new(false));
    assert_eq!(ended, Ok(()), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    let names = lines.iter().map(|line| line[9..29].trim());
    let all: Vec<&str> = PHASES.iter().map(|phase| phase.name).collect();
    assert!(names.take(13).eq(all), "{text}");
    assert!(lines[13].starts_with("[SCORE ] Bandwidth ") && lines[13].ends_with(" [INVALID]"));
    let result = std::fs::read_to_string(folder.path("results/result.txt")).unwrap();
    let value = |section: &str, key: &str| -> String {
        let section = result.split(&format!("\n[{section}]\n")).nth(1).expect("a section");
        let line = section.lines().find(|line| line.starts_with(&format!("{key:<15} = ")));
        line.unwrap_or_else(|| panic!("{key} in {section}"))[18..].to_owned()
    };
    // Four parts; two test directories; a tree shared, and three; files of mdtest and of IOR.
    let entries = 4 + 2 + 1 + 3 + 3 * (40 + 102) + 3 + 1;
    // Number 101 of each rank in the tree that is shared.
    assert_eq!(value("find", "found"), "3", "{result}");
    assert_eq!(value("find", "total-files"), entries.to_string(), "{result}");
    assert!(value("mdtest-hard-read", "exe").contains(" -E -X "));
    assert!(value("ior-hard-write", "exe").contains(" -t 47008 -b 47008 -s 20 "));
    let told: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let score = |name: &str| {
        let phases = told["phases"].as_array().unwrap();
        phases.iter().find(|phase| phase["name"] == name).unwrap()["score"].as_f64().unwrap()
    };
    let easy = ["ior-easy-write", "ior-hard-write", "ior-easy-read", "ior-hard-read"];
    let mean = easy.map(score).iter().product::<f64>().powf(0.25);
    assert!((mean / told["bandwidth"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert!(score("mdtest-hard-read") > 0.0 && told["valid"] == false);
    let left = tree(&folder.path(""));
    assert!(left.keys().all(|name| !name.starts_with("data")), "{left:?}");
    assert!(left.contains_key("results/result_summary.txt"));
    assert!(left.contains_key("results/mdtest-hard-read.txt"));
}

#[test]
fn an_interrupt_leaves_results_only() {
    let folder = Folder::new("io500-stop");
    let (ended, _) =
        run(&folder, "--ranks 2 --quick", &Counting::default(), &AtomicBool::new(true));
    assert_eq!(ended, Err(Ended::Interrupted));
    let left = tree(&folder.path(""));
    assert!(left.keys().all(|name| name == "data" || name.starts_with("results")), "{left:?}");
}

#[test]
fn stamps_and_names_are_those_of_io500() {
    assert_eq!(time_stamp(1_773_942_164), "2026.03.19-17.42.44");
    assert_eq!(stamp_of("a", "b"), (97 << 2) + 98);
}
