//! kill -9 at any moment: what is left is a run of transactions, and all data that was written.
//!
//! This binary starts itself as a child that lives a story from a seed and reports each deed on a
//! pipe; the parent kills it at a random moment, opens the store, compares, and goes on from there.
//! `SHEEN_LONG=1` kills a thousand times.

#![allow(clippy::disallowed_methods, reason = "a test of real time")]

#[allow(dead_code, reason = "shared with other test binaries")]
mod common;
#[path = "common/story.rs"]
#[allow(dead_code, reason = "shared with other test binaries")]
mod story;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use sheen_store::{
    Sequence, Store, Transaction,
    suite::{
        model::Model,
        script::{self, Numbers},
    },
};
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};
use sheen_types::Fid;
use story::{Deed, History, deed, perform};

const CHILD: &str = "SHEEN_STORE_KILL_CHILD";
const CROWD: &str = "SHEEN_STORE_KILL_CROWD";

/// One line, in one system call, to the parent.
fn report(line: &str) {
    let _dead_parent = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Lives until it is killed. Does nothing unless started by the test below.
/// A store that writes tables, and merges them, soon.
fn small_tables() -> FormatOptions {
    FormatOptions { memtable_bytes: 1 << 20, ..FormatOptions::default() }
}

#[test]
fn child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (seed, dir) = arguments.split_once(' ').expect("a seed and a directory");
    let mut numbers = Numbers(seed.parse().expect("a seed"));
    let store = StoreDisk::open(Path::new(dir), &OpenOptions::default()).expect("open works");
    store.on_commit(Box::new(|committed| {
        let sequence = committed.expect("commits work");
        report(&format!("SHEEN committed {}", sequence.0));
    }));
    loop {
        let deed = deed(&mut numbers);
        perform(&store, &deed);
        if matches!(deed, Deed::Commit) {
            report(&format!("SHEEN committed {}", store.committed().0));
        }
        report("SHEEN deed");
    }
}

/// What the child reported before it died.
#[derive(Default)]
struct Reported {
    deeds: usize,
    committed: u64,
}

/// Starts this binary to run the test `name` alone.
fn start(name: &str, variable: &str, value: String) -> Child {
    Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--nocapture"])
        .env(variable, value)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary starts")
}

fn live_and_die(dir: &Path, seed: u64, numbers: &mut Numbers) -> Reported {
    let mut child = start("child", CHILD, format!("{seed} {}", dir.display()));
    let choice = numbers.next().expect("endless");
    // A quarter dies while it opens the store, the rest after some deeds.
    let early = choice.is_multiple_of(4);
    let deeds = if early { 0 } else { (choice >> 8) % 400 };
    let micros = if early { (choice >> 8) % 60_000 } else { (choice >> 32) % 3000 };
    let mut reported = Reported::default();
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let note_line = |reported: &mut Reported, line: &str| match line.strip_prefix("SHEEN ") {
        Some("deed") => reported.deeds += 1,
        Some(text) => {
            let number = text.strip_prefix("committed ").and_then(|text| text.parse().ok());
            reported.committed = reported.committed.max(number.expect("a sequence"));
        }
        None => {}
    };
    while reported.deeds < deeds as usize {
        let Some(line) = lines.next() else { break };
        note_line(&mut reported, &line.expect("text"));
    }
    std::thread::sleep(Duration::from_micros(micros));
    child.kill().expect("the child can be killed");
    let status = child.wait().expect("the child ends");
    assert!(!status.success() && status.code().is_none(), "the child ended by itself: {status}");
    lines.map_while(Result::ok).for_each(|line| note_line(&mut reported, &line));
    reported
}

/// Compares the store with the story, and returns what it holds.
fn check(
    store: &StoreDisk,
    mut history: History,
    seed: u64,
    reported: &Reported,
) -> (Sequence, Model) {
    let mut numbers = Numbers(seed);
    for _ in 0..reported.deeds {
        history.note(&deed(&mut numbers));
    }
    // The deed that was under way may be done or not, and a write in part.
    let last = deed(&mut numbers);
    let torn = match &last {
        Deed::Write(file, ..) | Deed::Cut(file, _) => history.which(*file),
        _ => None,
    };
    history.note(&last);
    let found = store.committed();
    assert!(
        found.0 >= reported.committed,
        "{found:?} is left, {} was reported durable",
        reported.committed
    );
    let (model, alive) = history.state(found).expect("not more than was applied");
    let mut expected = model.clone();
    for (fid, object) in &mut expected.objects {
        let which = alive[fid];
        if torn == Some(which) {
            object.data = story::stored(store, *fid);
        } else {
            object.data = history.data.get(&which).cloned().unwrap_or_default();
        }
    }
    expected.compare(store, &script::objects(), &script::indexes());
    story::look_through(store).expect("no kill looks like damage");
    (found, expected)
}

#[test]
fn killed_at_any_moment() {
    let rounds = if std::env::var_os("SHEEN_LONG").is_some() { 1000 } else { 40 };
    let seed_base = std::env::var("SHEEN_SEED").map_or(1, |text| text.parse().expect("a number"));
    let dir = common::kept();
    StoreDisk::format(&dir, &small_tables()).expect("format works");
    let (mut base, mut model) = (Sequence(0), Model::default());
    let mut numbers = Numbers(seed_base);
    for round in 0..rounds {
        let seed = numbers.next().expect("endless");
        let reported = live_and_die(&dir, seed, &mut numbers);
        let store = StoreDisk::open(&dir, &OpenOptions::default())
            .unwrap_or_else(|error| panic!("round {round}, seed {seed}: {error}"));
        let mut history = History::begin(base, model);
        // A torn write of the round before was taken as the store had it.
        history.data.retain(|_, data| !data.is_empty());
        (base, model) = check(&store, history, seed, &reported);
    }
    assert!(base.0 > 10 * rounds, "only {base:?}: most children died before they did anything");
}

/// Counters of threads, written twice in each transaction.
const COUNTERS: [Fid; 2] = [Fid::new(1, 1), Fid::new(1, 2)];
const THREADS: u32 = 4;

/// The number of a thread's newest transaction.
fn counter(store: &StoreDisk, index: Fid, thread: u32) -> u32 {
    let value = store.lookup(index, &thread.to_le_bytes()).expect("lookup works");
    value.map_or(0, |value| u32::from_le_bytes(value[..].try_into().expect("a counter")))
}

/// Counts with several threads until it is killed. Does nothing unless started by the test below.
#[test]
fn crowd_child() {
    let Ok(dir) = std::env::var(CROWD) else { return };
    let store = StoreDisk::open(Path::new(&dir), &OpenOptions::default()).expect("open works");
    store.on_commit(Box::new(|committed| {
        let sequence = committed.expect("commits work");
        report(&format!("SHEEN committed {}", sequence.0));
    }));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for number in counter(store, COUNTERS[0], thread) + 1.. {
                    let mut transaction = Transaction::new();
                    for index in COUNTERS {
                        let key = Bytes::copy_from_slice(&thread.to_le_bytes());
                        transaction.put(index, key, number.to_le_bytes().to_vec().into());
                    }
                    let sequence = store.apply(transaction).expect("apply works");
                    report(&format!("SHEEN applied {} {thread} {number}", sequence.0));
                    if number % 64 == 0 {
                        store.commit_soon();
                    }
                }
            });
        }
    });
}

/// Whatever the threads do, what is left is all up to one sequence and nothing behind it.
#[test]
fn killed_in_a_crowd() {
    let rounds = if std::env::var_os("SHEEN_LONG").is_some() { 300 } else { 15 };
    let dir = common::kept();
    StoreDisk::format(&dir, &small_tables()).expect("format works");
    let mut numbers = Numbers(5);
    for _ in 0..rounds {
        let mut child = start("crowd_child", CROWD, dir.display().to_string());
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let until = numbers.next().expect("endless") % 3000;
        let mut reported: Vec<String> =
            lines.by_ref().take(until as usize).map(|line| line.expect("text")).collect();
        child.kill().expect("the child can be killed");
        child.wait().expect("the child ends");
        reported.extend(lines.map_while(Result::ok));
        check_crowd(&dir, &reported);
    }
}

fn check_crowd(dir: &Path, reported: &[String]) {
    let store = StoreDisk::open(dir, &OpenOptions::default()).expect("open works");
    let left = store.committed().0;
    for line in reported {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> u64 { words[at].parse().expect("a number") };
        match words[..] {
            ["SHEEN", "committed", _] => assert!(left >= number(2), "{left} are left: {line}"),
            ["SHEEN", "applied", ..] => {
                for index in COUNTERS {
                    let counter = counter(&store, index, number(3) as u32);
                    let here = u64::from(counter) >= number(4);
                    assert_eq!(here, number(2) <= left, "{left} are left: {line}");
                }
            }
            _ => {}
        }
    }
}
