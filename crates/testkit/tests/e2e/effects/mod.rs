//! What is set takes effect: each parameter is changed on a running file system, and what it is about is
//! counted before and after.

mod client;
mod server;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_workloads::process::{self, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
/// An MDT hears what an OST says of itself within some seconds.
const HEARD: Duration = Duration::from_secs(30);

/// What a test does to a file system, and its name: what fails is reported with it.
type Step = (&'static str, fn(&Cluster) -> Outcome);

fn play(cluster: &Cluster, steps: &[Step]) -> Outcome {
    steps.iter().try_for_each(|(name, step)| step(cluster).context(name))
}

fn set(cluster: &Cluster, assignment: &str) -> Outcome {
    cluster.must(&["lctl", "set_param", "-n", assignment]).map(drop)
}

fn get(cluster: &Cluster, name: &str) -> Outcome<String> {
    cluster.must(&["lctl", "get_param", "-n", name])
}

/// The number that a parameter of one line is.
fn number(cluster: &Cluster, name: &str) -> Outcome<u64> {
    let text = get(cluster, name)?;
    text.trim().parse().map_err(|_| format!("{name} is {text:?}"))
}

/// The words of each line of a `stats` file, over all that match, whose first word is `line`.
fn lines(cluster: &Cluster, name: &str, line: &str) -> Outcome<Vec<Vec<String>>> {
    let text = get(cluster, name)?;
    let words = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect());
    Ok(words.filter(|words: &Vec<String>| words.first().is_some_and(|it| it == line)).collect())
}

/// How often what `line` counts was done.
fn count(cluster: &Cluster, name: &str, line: &str) -> Outcome<u64> {
    let lines = lines(cluster, name, line)?;
    Ok(lines.iter().filter_map(|words| words.get(1)?.parse::<u64>().ok()).sum())
}

/// The largest sample of `line`.
fn largest(cluster: &Cluster, name: &str, line: &str) -> Outcome<u64> {
    let lines = lines(cluster, name, line)?;
    let most = lines.iter().filter_map(|words| words.get(5)?.parse::<u64>().ok()).max();
    Ok(most.unwrap_or(0))
}

/// Runs a program in a folder of the mount.
fn run(cluster: &Cluster, folder: &Path, program: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    let command = command.args(arguments).current_dir(folder);
    process::must(command, &cluster.logs().join(program), LIMIT).map(drop)
}

fn is(name: &str, value: u64, wanted: u64) -> Outcome {
    ensure(value == wanted, || format!("{name}: {value} instead of {wanted}"))
}

fn becomes(what: &str, mut done: impl FnMut() -> Outcome<bool>) -> Outcome {
    let mut fault = String::new();
    let seen = wait_until(what, HEARD, || match done() {
        Ok(done) => done,
        Err(error) => {
            fault = error;
            false
        }
    });
    seen.map_err(|error| format!("{error} {fault}"))
}
