//! The surveys on targets that only count, and their settings.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use super::device::{Device, Devices, Interval, Kind, Progress, Work};
use super::{MdsOptions, ObdfilterOptions, Surroundings, mds, obdfilter};
use crate::ranks::Ended;

/// What the targets were asked.
#[derive(Clone, Default)]
struct Fake {
    log: Rc<RefCell<Vec<String>>>,
    /// Tests of this number of threads fail.
    fails: Option<u32>,
    /// Operations a second in each interval.
    rates: Vec<f64>,
    running: Option<Work>,
    /// In the test that this is a part of, the user wants an end, and it goes on.
    interrupt: &'static str,
    stop: Rc<AtomicBool>,
}

impl Devices for Fake {
    fn targets(&self, kind: Kind) -> Result<Vec<String>, String> {
        let kind = if kind == Kind::Mdt { "MDT" } else { "OST" };
        Ok(vec![format!("fs-{kind}0000"), format!("fs-{kind}0001")])
    }

    fn attach(&self, target: &str) -> Result<Box<dyn Device>, String> {
        match target.ends_with("9") {
            true => Err(format!("target {target} is not running on this machine")),
            false => Ok(Box::new(self.clone())),
        }
    }
}

impl Device for Fake {
    fn prepare(&mut self, count: u32) -> Result<(), String> {
        self.log.borrow_mut().push(format!("prepare {count}"));
        Ok(())
    }

    fn start(&mut self, work: &Work) -> Result<(), String> {
        self.log.borrow_mut().push(format!("{work:?}"));
        self.running = Some(work.clone());
        if !self.interrupt.is_empty() && format!("{work:?}").contains(self.interrupt) {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn watch(&mut self) -> Result<Progress, String> {
        let work = self.running.clone().ok_or("nothing runs")?;
        let count = match work {
            Work::Metadata { count, .. } | Work::Data { count, .. } => count,
        };
        let interval = |&rate: &f64| Interval { active: work.threads(), rate };
        let failed = (self.fails == Some(work.threads())).then(|| "No space left".to_owned());
        let operations = count * u64::from(work.threads());
        let intervals = self.rates.iter().map(interval).collect();
        let ended = !self.stop.load(Ordering::Relaxed);
        Ok(Progress { operations, seconds: 2.0, intervals, ended, failed })
    }

    fn clean(&mut self) -> Result<(), String> {
        self.log.borrow_mut().push("clean".to_owned());
        Ok(())
    }

    fn detach(&mut self) -> Result<(), String> {
        self.log.borrow_mut().push("detach".to_owned());
        Ok(())
    }
}

#[derive(Parser)]
struct Mds {
    #[command(flatten)]
    options: MdsOptions,
}

#[derive(Parser)]
struct Obdfilter {
    #[command(flatten)]
    options: ObdfilterOptions,
}

/// Runs a survey with settings from the environment; how it ended and what it printed.
fn run(fake: &Fake, is_mds: bool, words: &str, environment: &str) -> (Result<(), Ended>, String) {
    let folder = std::env::temp_dir().join(format!("sheen-survey-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let pairs = environment.split(';').filter_map(|pair| pair.split_once('='));
    let mut variables: BTreeMap<String, String> =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    variables.insert("rslt_loc".to_owned(), folder.display().to_string());
    let printed = Mutex::new(String::new());
    let out = |text: &str| printed.lock().expect("no panic").push_str(text);
    let surroundings = Surroundings {
        stop: &fake.stop,
        devices: fake,
        out: &out,
        variable: &|name| variables.get(name).cloned(),
    };
    let words = ["survey"].into_iter().chain(words.split_whitespace());
    let ended = match is_mds {
        true => mds(&Mds::parse_from(words).options, &surroundings),
        false => obdfilter(&Obdfilter::parse_from(words).options, &surroundings),
    };
    (ended, printed.into_inner().expect("no panic"))
}

#[test]
fn a_row_of_mds_survey_reads_as_the_scripts_do() {
    let fake = Fake { rates: vec![900.0, 1100.5], ..Fake::default() };
    let environment = "thrlo=2;thrhi=4;file_count=4000;tests_str=create destroy";
    let (ended, printed) = run(&fake, true, "", environment);
    assert_eq!(ended, Ok(()));
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].contains(" UTC ") && lines[0].contains(" mds-survey from "), "{printed}");
    // 4000 files in 2 s on each of two MDTs: the mean is that of one.
    assert_eq!(
        lines[1],
        "mdt 2 file    4000 dir    2 thr    2 create 2000.00 [  900.00, 1100.50] \
         destroy 2000.00 [  900.00, 1100.50] "
    );
    assert!(lines[2].starts_with("mdt 2 file    4000 dir    2 thr    4 create "));
    assert_eq!(lines[3..], ["done!"]);
    let log = fake.log.borrow();
    let wanted = "Metadata { test: Create, threads: 4, count: 1000, start: 2, stripes: 0 }";
    assert_eq!(log.iter().filter(|line| *line == wanted).count(), 2);
    assert_eq!(log.iter().filter(|line| *line == "detach").count(), 2);
}

#[test]
fn a_row_of_obdfilter_survey_reads_as_the_scripts_do() {
    let fake = Fake { rates: vec![64.0, 82.0], ..Fake::default() };
    let words = "--rszlo 1022 --rszhi 1022 --nobjlo 2 --nobjhi 2 --thrhi 2 --targets fs-OST0003";
    let (ended, printed) = run(&fake, false, words, "size=100;thrhi=64;case=disk");
    assert_eq!(ended, Ok(()));
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].contains(" Obdfilter-survey for case=disk from "), "{printed}");
    assert_eq!(
        lines[1],
        "ost  1 sz   102400K rsz 1024K obj    2 thr    2 write   50.00 [  64.00,   82.00] \
         rewrite   50.00 [  64.00,   82.00] read   50.00 [  64.00,   82.00] "
    );
    assert_eq!(lines[2..], ["done!"], "one thread is no multiple of two objects");
    assert_eq!(fake.log.borrow().iter().filter(|line| *line == "clean").count(), 1);
}

#[test]
fn short_and_failed_tests_are_called_so() {
    let fake = Fake { fails: Some(2), ..Fake::default() };
    let (ended, printed) = run(&fake, false, "--size 8 --thrhi 2 --nobjhi 1", "");
    assert_eq!(ended, Err(Ended::Failed("read: No space left".to_owned())));
    assert!(printed.contains("thr    2 write    8.00             SHORT rewrite"), "{printed}");
    assert!(printed.contains("thr    4 write    8.00             ERROR rewrite"), "{printed}");
    let (ended, printed) = run(&fake, true, "--thrlo 2 --thrhi 2 --file_count 10", "");
    assert_eq!(ended, Err(Ended::Failed("destroy: No space left".to_owned())));
    assert!(printed.contains("thr    2 create             ERROR lookup "), "{printed}");
    let detached = fake.log.borrow().iter().filter(|line| *line == "detach").count();
    assert_eq!(detached, 4, "a failure leaves nothing either");
}

#[test]
fn a_signal_in_any_test_ends_the_survey_there_and_gives_all_targets_up() {
    let mds = ["Create", "Lookup", "Getattr", "Setxattr", "Destroy"];
    let mds = mds.map(|test| (true, test, "--thrlo 2 --thrhi 4 --file_count 100"));
    let obdfilter = "--size 8 --thrhi 2 --nobjhi 1";
    // Rewrites are writes; what comes before the last of all is as often as said.
    let obdfilter = ["write: true", "write: false"].map(|test| (false, test, obdfilter));
    for (is_mds, interrupt, words) in mds.into_iter().chain(obdfilter) {
        let fake = Fake { interrupt, ..Fake::default() };
        let (ended, printed) = run(&fake, is_mds, words, "");
        assert_eq!(ended, Err(Ended::Interrupted), "{interrupt}: {printed}");
        assert!(!printed.contains("done!"), "{interrupt}: {printed}");
        let log = fake.log.borrow();
        let of = |what: &str| log.iter().filter(|line| line.contains(what)).count();
        // On both targets, once; nothing behind it.
        assert_eq!((of(interrupt), of("detach")), (2, 2), "{interrupt}: {log:?}");
        assert!(log.iter().rev().take(2).all(|line| line == "detach"), "{interrupt}: {log:?}");
    }
}

#[test]
fn wrong_settings_are_reported_in_a_line() {
    for (is_mds, environment, wanted) in [
        (true, "thrlo=8;thrhi=4", "thrlo (8) is greater than thrhi (4)"),
        (true, "thrlo=0", "thrlo must be at least 1"),
        (true, "thrhi=5000", "thrhi (5000) is greater than 4096"),
        (true, "thrhi=x", "thrhi=x: not a valid number"),
        (true, "dir_count=64", "dir_count (64) is greater than any number of threads"),
        (true, "dir_count=0", "dir_count must be at least 1"),
        (true, "file_count=31", "file_count (31) is too small for 32 threads"),
        (true, "tests_str=create", "tests_str must begin with create and end with destroy"),
        (true, "tests_str=create mkdir destroy", "tests_str: unknown test 'mkdir'"),
        (true, "layer=osd", "layer osd: only mdd can be loaded"),
        (true, "targets=fs-OST0000", "fs-OST0000 is not an MDT"),
        (true, "targets=fs-MDT0009", "target fs-MDT0009 is not running on this machine"),
        (
            true,
            "targets=far:fs-MDT0000",
            "far:fs-MDT0000: far is another machine; run the survey there",
        ),
        (true, "stripe_count=-2", "stripe_count must be between -1 and 2000"),
        (false, "case=netdisk", "case=netdisk is not supported by Sheen yet"),
        (false, "case=tape", "case=tape: must be disk, network or netdisk"),
        (false, "size=1", "size (1 MiB) is too small for 2 threads with 1024 KiB each"),
        (false, "rszhi=8192", "rszhi (8192) is greater than 4096"),
        (
            false,
            "nobjlo=3;nobjhi=3",
            "none of the numbers of threads is a multiple of a number of objects",
        ),
        (false, "tests_str=read", "tests_str must begin with write"),
        (false, "tests_str=write trim", "tests_str: unknown test 'trim'"),
    ] {
        let (ended, _) = run(&Fake::default(), is_mds, "", environment);
        assert_eq!(ended, Err(Ended::Failed(wanted.to_owned())), "{environment}");
    }
}
