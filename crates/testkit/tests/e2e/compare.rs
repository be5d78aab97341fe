//! A comparison does what it counts, leaves nothing, and its page is what its numbers are.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sheen_testkit::browser::Browser;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{run_and, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::statistics::samples;

const LIMIT: Duration = Duration::from_secs(300);
const ROUNDS: u64 = 2;
/// Files of both ranks in a round.
const FILES: u64 = 2 * 40;

/// A directory of the machine, a mount, and the native client, as words.
fn targets(cluster: &Cluster) -> Outcome<Vec<String>> {
    let local = cluster.logs().join("local");
    fs::create_dir_all(&local).context("local")?;
    let mut words = vec!["bench".to_owned(), "compare".to_owned()];
    for target in [
        format!("local={}", local.display()),
        format!("mount={}", cluster.mnt().display()),
        format!("native=native:{}", cluster.source()),
    ] {
        words.extend(["--target".to_owned(), target]);
    }
    words.extend(cluster.port().into_iter().flat_map(|port| ["--native.port".to_owned(), port]));
    Ok(words)
}

/// Nothing is left in any place.
fn is_clean(cluster: &Cluster) -> Outcome {
    for place in [cluster.logs().join("local"), cluster.mnt()] {
        let left = fs::read_dir(&place).context(place.display())?.count();
        ensure(left == 0, || format!("{left} things are left in {}", place.display()))?;
    }
    Ok(())
}

fn compared(cluster: &Cluster) -> Outcome {
    let mut words = targets(cluster)?;
    let [json, html] = ["r.json", "r.html"].map(|name| cluster.logs().join(name));
    let paths = [&json, &html].map(|path| path.display().to_string());
    words.extend(["--json".to_owned(), paths[0].clone(), "--html".to_owned(), paths[1].clone()]);
    words.extend(["--rounds".to_owned(), ROUNDS.to_string()]);
    let benchmark = "-- mdtest -np 2 -n 40 -F -u -w 3901 -e 3901 -X";
    words.extend(benchmark.split(' ').map(str::to_owned));
    for parameter in ["mdt.*.md_stats=clear", "llite.*.stats=clear"] {
        cluster.must(&["lctl", "set_param", "-n", parameter])?;
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = cluster.must(&words)?;
    ensure(text.starts_with("phase ") && text.contains("native/local"), || text.clone())?;
    is_clean(cluster)?;
    let (on_mount, on_both) = (ROUNDS * FILES, 2 * ROUNDS * FILES);
    // What the mount's kernel asked for, and what servers did for the mount and the native client.
    for (parameter, line, wanted) in [
        ("llite.*.stats", "create", on_mount),
        ("llite.*.stats", "unlink", on_mount),
        ("mdt.*.md_stats", "unlink", on_both),
    ] {
        let (count, _) = samples(cluster, parameter, line)?;
        ensure(count == wanted, || format!("{parameter}: {line} {count} times, not {wanted}"))?;
    }
    let text = fs::read_to_string(&json).context("the JSON")?;
    let report: Value = serde_json::from_str(&text).context("the JSON")?;
    let wanted = numbers(&report)?;
    look_at(cluster, &html, &report, &wanted)
}

/// Numbers of the table of rates in its order, and the operations that were counted.
fn numbers(report: &Value) -> Outcome<Vec<f64>> {
    let phases = report["phases"].as_array().ok_or("no phases")?;
    let mut all = Vec::new();
    for phase in phases {
        for (number, result) in phase["targets"].as_array().ok_or("no targets")?.iter().enumerate()
        {
            let median =
                |of: &str| result[of]["median"].as_f64().ok_or_else(|| format!("{result}"));
            all.push(median("rate")?);
            if number > 0 {
                all.push(median("ratio")?);
            }
            let operations = &result["latency"]["operations"];
            ensure(*operations == ROUNDS * FILES, || format!("{operations} operations"))?;
        }
    }
    ensure(all.len() == 4 * 5, || format!("{} numbers", all.len()))?;
    Ok(all)
}

fn look_at(cluster: &Cluster, page: &Path, report: &Value, wanted: &[f64]) -> Outcome {
    let Some(browser) = Browser::find() else {
        sheen_skip::skip(
            "the page in a browser: chromium is neither on PATH nor in SHEEN_CHROMIUM",
        );
        return Ok(());
    };
    let seen = browser.open(page, &cluster.logs().join("browser"))?;
    ensure(seen.console.is_empty(), || format!("{:?}", seen.console))?;
    ensure(seen.requests == 0, || format!("{} requests", seen.requests))?;
    let document = &seen.document;
    let title = report["title"].as_str().ok_or("no title")?;
    for heading in [
        &format!("<h1>{title}</h1>"),
        "<h2 id=\"rates\">Rates</h2>",
        "<h2 id=\"latencies\">Latencies</h2>",
        "<h2 id=\"throughput\">Throughput over time</h2>",
        "<h2 id=\"how\">How it was measured</h2>",
    ] {
        ensure(document.contains(heading), || format!("no {heading}"))?;
    }
    // Bars, and latencies of four phases; how many have a rate over time depends on how long they took.
    let plots = document.matches("<svg ").count();
    ensure((6..=9).contains(&plots), || format!("{plots} plots"))?;
    ensure(document.matches("<desc>").count() == plots, || "a plot has no description".to_owned())?;
    let table = document.split("<table id=\"rates-table\">").nth(1).ok_or("no table")?;
    let table = table.split("</table>").next().unwrap_or_default();
    let cells: Vec<f64> = table
        .split("data-value=\"")
        .skip(1)
        .filter_map(|cell| cell.split('"').next()?.parse().ok())
        .collect();
    let same = |(one, other): (&f64, &f64)| (one - other).abs() <= one.abs() * 1e-12;
    let are_same = cells.len() == wanted.len() && cells.iter().zip(wanted).all(same);
    ensure(are_same, || format!("the page has {cells:?}, the JSON {wanted:?}"))?;
    // That the checks can fail: a page that complains and asks for something.
    let bad = cluster.logs().join("bad.html");
    let text = "<!DOCTYPE html><html><body><img src=\"http://127.0.0.1:1/x.png\">\
                <script>console.error('bad')</script></body></html>";
    fs::write(&bad, text).context("bad.html")?;
    let seen = browser.open(&bad, &cluster.logs().join("browser-bad"))?;
    ensure(seen.console.len() == 1 && seen.requests > 0, || format!("{seen:?}"))
}

#[test]
fn a_comparison_does_what_it_counts_and_shows_it() {
    scene("compare", 2, LIMIT, compared);
}

fn interrupted(cluster: &Cluster) -> Outcome {
    let mut words = targets(cluster)?;
    let html = cluster.logs().join("r.html");
    words.extend(["--html".to_owned(), html.display().to_string()]);
    words.extend("-- io500 -np 2 --stonewall 100".split(' ').map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // On the local directory, which comes first.
    let local = cluster.logs().join("local");
    let log = cluster.logs().join("interrupted");
    let finished = run_and(&mut cluster.command(&words), &log, LIMIT, |pid| {
        wait_until("a benchmark that works", LIMIT, || {
            fs::read_dir(&local).is_ok_and(|mut all| all.next().is_some())
        })?;
        kill_process(pid, Signal::INT).context("an interrupt")
    })?;
    ensure(finished.status.code() == Some(130), || finished.output.clone())?;
    ensure(finished.output == "sheen bench: interrupted\n", || finished.output.clone())?;
    ensure(!html.exists(), || "a report of half a comparison".to_owned())?;
    is_clean(cluster)?;
    for wrong in ["native=native:x", "mount=/none", "local=/"] {
        let mut more = words[..8].to_vec();
        more.extend(["--target", wrong, "--", "mdtest", "-n", "1"]);
        let finished = cluster.run(&more)?;
        let (code, lines) = (finished.status.code(), finished.output.lines().count());
        ensure((code, lines) == (Some(1), 1), || format!("{wrong}: {}", finished.output))?;
    }
    is_clean(cluster)
}

#[test]
fn an_interrupted_comparison_leaves_nothing() {
    scene("compare-ends", 2, LIMIT, interrupted);
}
