//! A signal in each phase of each benchmark: it ends there, and leaves nothing of its own.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ranks::Ended;
use crate::testing::{self, Counting, Folder, tree};
use crate::{compare, io500, ior, mdtest, workbench};

/// A benchmark, its options and the phases that begin, in their order. `{}` is a folder of its own, `{api}` the way to
/// the file system.
struct Case {
    name: &'static str,
    words: &'static str,
    phases: &'static [&'static str],
}

const CASES: [Case; 6] = [
    Case {
        name: "mdtest",
        words: "--ranks 2 -n 6 -z 1 -b 2 -w 8 -e 8 -d {}/t{api}",
        phases: &[
            "Tree creation",
            "Directory creation",
            "Directory stat",
            "Directory rename",
            "Directory removal",
            "File creation",
            "File stat",
            "File read",
            "File removal",
            "Tree removal",
        ],
    },
    // Nothing of it is kept, as a run to its end would.
    Case {
        name: "mdtest",
        words: "--ranks 2 -n 6 -u -F -C -Y -d {}/t{api}",
        phases: &["Tree creation", "File creation"],
    },
    Case {
        name: "ior",
        words: "--ranks 2 -b 64k -t 4k -F -k -w -W -r -R -o {}/t{api}",
        phases: &["write", "read", "read"],
    },
    Case {
        name: "md-workbench",
        words: "--ranks 2 -D 3 -P 4 -I 4 -o {}/t{api}",
        phases: &["precreate", "benchmark", "benchmark", "benchmark", "cleanup"],
    },
    Case {
        name: "io500",
        words: "{}/ini --ranks 2 --mode extended --timestamp x{api}",
        phases: &[
            // ior-easy-write, mdtest-easy-write, mdworkbench-create, find-easy.
            "write",
            "Tree creation",
            "File creation",
            "precreate",
            "find",
            // ior-hard-write, mdtest-hard-write, find, find-hard, mdworkbench-bench.
            "write",
            "Tree creation",
            "File creation",
            "find",
            "find",
            "benchmark",
            "benchmark",
            // ior-easy-read, mdtest-easy-stat, ior-hard-read, mdtest-hard-stat, mdworkbench-delete.
            "read",
            "File stat",
            "read",
            "File stat",
            "cleanup",
            // mdtest-easy-delete, mdtest-hard-read, mdtest-hard-delete, ior-rnd4K-easy-read.
            "File removal",
            "Tree removal",
            "File read",
            "File removal",
            "Tree removal",
            "read",
        ],
    },
    Case {
        name: "compare",
        words: "--rounds 1 {targets} --html {}/html --json {}/json -- mdtest -n 6 -F -C",
        // On the one target, and on the other.
        phases: &["Tree creation", "File creation", "Tree creation", "File creation"],
    },
];

const INI: &str = "[global]\ndatadir = {}/t\nresultdir = {}/results\n[debug]\nstonewall-time = 1\n[ior-easy]\n\
                   blockSize = 4m\n[mdtest-easy]\nn = 8\n[ior-hard]\nsegmentCount = 8\n[mdtest-hard]\nn = 8\n\
                   [mdworkbench]\nprecreatePerSet = 2\nfilesPerProc = 2\n";

/// How a run ended.
struct End {
    ended: Result<(), Ended>,
    /// Phases that began.
    begun: Vec<String>,
    /// What was there before and is not, or is and was not; but results of IO500.
    changed: Vec<String>,
    text: String,
}

/// Runs it, natively or with system calls, and lets the user interrupt it in the phase of this number: at its
/// beginning, or natively behind its first call.
fn run(case: &Case, is_native: bool, at: Option<usize>) -> End {
    let folder = Folder::new("signal");
    let here = folder.path("").trim_end_matches('/').to_owned();
    fs::write(folder.path("ini"), INI.replace("{}", &here)).expect("an ini file");
    for name in ["one", "two"] {
        fs::create_dir(folder.path(name)).expect("a target");
    }
    let before = tree(&here);
    let (api, second) = match is_native {
        true => (" -a NATIVE --native.source x:/y", "native:x@tcp:/y"),
        false => ("", ""),
    };
    let targets = format!("--target one={{}}/one --target two={second}{{}}/two");
    let words = case.words.replace("{targets}", &targets).replace("{api}", api);
    let words = words.replace("{}", &here);
    let counting = Counting::default();
    let stop: &'static AtomicBool = Box::leak(Box::default());
    let calls = counting.clone();
    testing::watch(at, move || match is_native {
        true => calls.interrupt_soon(stop),
        false => stop.store(true, Ordering::Relaxed),
    });
    let line = format!("sheen bench {} {words}", case.name);
    let (ended, text) = testing::run(&line, &counting, stop, |all| match case.name {
        "mdtest" => mdtest::run(&testing::options(&words), all),
        "ior" => ior::run(&testing::options(&words), all),
        "md-workbench" => workbench::run(&testing::options(&words), all),
        "io500" => io500::run(&testing::options(&words), all),
        _ => compare::run(&testing::options(&words), all),
    });
    let after = tree(&here);
    let differs = |name: &&String| before.get(*name) != after.get(*name);
    let is_result = |name: &&String| name.starts_with("results");
    let changed = before.keys().chain(after.keys()).filter(differs).filter(|name| !is_result(name));
    End { ended, begun: testing::begun(), changed: changed.cloned().collect(), text }
}

#[test]
fn a_signal_in_any_phase_leaves_nothing() {
    let mut phases = 0;
    for case in &CASES {
        for is_native in [false, true] {
            let whole = run(case, is_native, None);
            let name = format!("{} ({is_native})", case.name);
            assert_eq!(whole.ended, Ok(()), "{name}: {}", whole.text);
            assert_eq!(whole.begun, case.phases, "{name}");
            for (number, phase) in case.phases.iter().enumerate() {
                let End { ended, begun, changed, .. } = run(case, is_native, Some(number));
                assert_eq!(ended, Err(Ended::Interrupted), "{name}: {phase}");
                assert_eq!(begun[..=number], case.phases[..=number], "{name}: {phase}");
                assert!(is_native || begun.len() == number + 1, "{name}: {phase}: {begun:?}");
                assert_eq!(changed, Vec::<String>::new(), "{name}: {phase}");
            }
            phases += case.phases.len();
        }
    }
    assert!(phases > 90, "{phases}");
}
