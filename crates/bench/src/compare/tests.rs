use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::*;
use crate::testing::{self, Counting, Folder, tree};

/// Directories `a` and `b`, and the files of the results.
fn place() -> (Folder, [String; 4]) {
    let folder = Folder::new("compare");
    let paths = ["a", "b", "json", "html"].map(|name| folder.path(name));
    paths[..2].iter().for_each(|path| fs::create_dir(path).unwrap());
    (folder, paths)
}

fn compare(words: &str, counting: &Counting, stop: &AtomicBool) -> (Result<(), Ended>, String) {
    let options: Options = testing::options(words);
    testing::run(&format!("/usr/bin/sheen bench compare {words}"), counting, stop, |all| {
        run(&options, all)
    })
}

fn go(words: &str) -> (Result<(), Ended>, String) {
    compare(words, &Counting::default(), &AtomicBool::new(false))
}

/// All of `results` in the table of rates, as the page has them.
fn values_in(page: &str, table: &str) -> Vec<f64> {
    let table = page.split(&format!("<table id=\"{table}\">")).nth(1).expect("a table");
    let table = table.split("</table>").next().expect("its end");
    let cells = table.split("data-value=\"").skip(1);
    cells
        .map(|cell| cell.split('"').next().and_then(|text| text.parse().ok()).expect("a value"))
        .collect()
}

/// The same but for the last digit, which a reader of JSON may take otherwise.
fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= one.abs() * 1e-12
}

#[test]
fn every_target_is_measured_in_every_round_and_nothing_is_left() {
    let (folder, [a, b, json, html]) = place();
    let counting = Counting::default();
    let targets = format!("--target one={a} --target <two>=native:x@tcp:/y{b}");
    let words = format!(
        "{targets} --rounds 3 --json {json} --html {html} -- mdtest -n 20 -F --ranks 2 -w 10 -e 10"
    );
    let (ended, text) = compare(&words, &counting, &AtomicBool::new(false));
    assert_eq!(ended, Ok(()), "{text}");
    // The second target is the native one: 20 files of 2 ranks in 3 rounds.
    assert_eq!((counting.of("create"), counting.of("unlink")), (120, 120));
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["File creation", "File stat", "File read", "File removal"]);
    assert_eq!(report["command_line"][0], "sheen");
    assert_eq!(report["targets"][1]["place"], format!("x@tcp:/y{b}"));
    let mut wanted = Vec::new();
    for phase in phases {
        let results = phase["targets"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for (number, result) in results.iter().enumerate() {
            let rounds: Vec<f64> = result["rounds"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rate| rate.as_f64().unwrap())
                .collect();
            assert!(rounds.len() == 3 && rounds.iter().all(|rate| *rate > 0.0), "{result}");
            let mut sorted = rounds.clone();
            sorted.sort_by(f64::total_cmp);
            assert!(same(result["rate"]["median"].as_f64().unwrap(), sorted[1]), "{result}");
            wanted.push(sorted[1]);
            if number > 0 {
                let of_first = |round: usize| results[0]["rounds"][round].as_f64().unwrap();
                let mut ratios: Vec<f64> =
                    (0..3).map(|round| rounds[round] / of_first(round)).collect();
                ratios.sort_by(f64::total_cmp);
                assert!(same(result["ratio"]["median"].as_f64().unwrap(), ratios[1]), "{result}");
                wanted.push(ratios[1]);
            }
            assert_eq!(result["latency"]["operations"], 120, "{result}");
            let time = |name: &str| result["latency"][name].as_u64().unwrap();
            assert!(time("p50") > 0 && time("p50") <= time("p99") && time("p99") <= time("max"));
            assert_eq!(result["throughput"].as_array().unwrap().len(), 3);
        }
    }
    let page = fs::read_to_string(&html).unwrap();
    let shown = values_in(&page, "rates-table");
    assert!(
        shown.len() == wanted.len()
            && shown.iter().zip(&wanted).all(|(one, other)| same(*one, *other))
    );
    assert_eq!(values_in(&page, "latencies-table").len(), 4 * 2 * 6);
    assert!(page.contains("&lt;two&gt;") && !page.contains("<two>") && !page.contains("NaN"));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("phase ") && lines[0].ends_with("<two>/one"), "{text}");
    assert!(lines.len() == 7 && lines[6] == "medians of 3 rounds (least-most)", "{text}");
    let left = tree(&folder.path(""));
    assert!(left.keys().map(String::as_str).eq(["a", "b", "html", "json"]), "{left:?}");
}

#[test]
fn ior_and_io500_are_compared_too() {
    let (folder, [a, b, json, _]) = place();
    let targets = format!("--target one={a} --target two={b} --rounds 1 --json {json}");
    let (ended, text) = go(&format!("{targets} -- ior -b 64k -t 4k --ranks 2 -F"));
    assert_eq!(ended, Ok(()), "{text}");
    let report = || -> Value { serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap() };
    let written = &report()["phases"][0];
    assert_eq!((&written["name"], &written["unit"]), (&"write".into(), &"MiB/s".into()));
    assert_eq!(written["targets"][1]["latency"]["operations"], 32);
    let ini = folder.path("ini");
    let small = "[ior-easy]\nblockSize = 4m\n[ior-hard]\nsegmentCount = 20\n[mdtest-easy]\nn = 40\n\
                 [mdtest-hard]\nn = 102\n";
    fs::write(&ini, small).unwrap();
    let (ended, text) = go(&format!("{targets} -- io500 {ini} --stonewall 1 --ranks 2"));
    assert_eq!(ended, Ok(()), "{text}");
    let report = report();
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 12 + 3, "{text}");
    let of = |name: &str| phases.iter().find(|phase| phase["name"] == name).unwrap();
    let value = |name: &str| of(name)["targets"][1]["rate"]["median"].as_f64().unwrap();
    let score = (value("Bandwidth") * value("IOPS")).sqrt();
    assert!((score / value("TOTAL") - 1.0).abs() < 1e-9);
    let operations = |name: &str| of(name)["targets"][0]["latency"]["operations"].clone();
    assert_eq!(
        (operations("mdtest-hard-stat"), operations("ior-hard-read")),
        (204.into(), 40.into())
    );
    assert_eq!(tree(&folder.path("a")).len() + tree(&folder.path("b")).len(), 0);
}

#[test]
fn what_is_wrong_is_reported_in_a_line_before_anything_is_run() {
    let (folder, [a, b, ..]) = place();
    fs::write(folder.path("file"), "").unwrap();
    let both = format!("--target one={a} --target two={b}");
    for words in [
        format!("--target one={a} -- mdtest -n 1"),
        format!("{both} --target one={b} -- mdtest -n 1"),
        format!("--target one={a} --target two={b}/none -- mdtest -n 1"),
        format!("--target one={a} --target two={} -- mdtest -n 1", folder.path("file")),
        format!("--target one={a} --target two=native:x -- mdtest -n 1"),
        format!("{both} --json {b}/none/x -- mdtest -n 1"),
        format!("{both} --html {b} -- mdtest -n 1"),
        format!("{both} -- what"),
        format!("{both} -- mdtest -n 1 -d /tmp"),
        format!("{both} -- mdtest -n x"),
        format!("{both} -- mdtest -X -n 1"),
        format!("{both} -- ior -a NATIVE"),
        format!("{both} -- ior -O testFile=/tmp/x"),
        format!("{both} -- io500 /none.ini"),
        format!("{both} -- io500 --datadir /tmp"),
    ] {
        let counting = Counting::default();
        let (ended, text) = compare(&words, &counting, &AtomicBool::new(false));
        let Err(Ended::Failed(line)) = ended else { panic!("{words}: {ended:?}") };
        assert!(!line.is_empty() && !line.contains('\n') && text.is_empty(), "{words}: {line}");
        assert_eq!(counting.of("create"), 0);
    }
    assert_eq!(tree(&folder.path("a")).len() + tree(&folder.path("b")).len(), 0);
}

#[test]
fn an_interrupt_leaves_nothing_and_no_report() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (folder, [a, b, json, html]) = place();
    let counting = Counting::default();
    counting.interrupt(300, &STOP);
    let targets =
        format!("--target one={a} --target two=native:x@tcp:/y{b} --json {json} --html {html}");
    let (ended, text) = compare(&format!("{targets} -- mdtest -n 100"), &counting, &STOP);
    assert_eq!((ended, text.as_str()), (Err(Ended::Interrupted), ""));
    assert!(tree(&folder.path("")).keys().map(String::as_str).eq(["a", "b"]));
}
