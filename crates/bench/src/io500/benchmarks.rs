//! Each phase as a command line of a benchmark, the one that io500 gives to the original, and what came of it.

use std::fmt::Write as _;
use std::fs;

use clap::Parser;

use super::find::Find;
use super::phases::Phase;
use super::stamp_of;
use super::whole::Whole;
use crate::backend::Shared;
use crate::meter::Meter;
use crate::ranks::{self, Ended, Watch};
use crate::{Api, Native, Surroundings, ior, mdtest, workbench};

const GIB: f64 = 1_073_741_824.0;

#[derive(Parser)]
struct MdtestLine {
    #[command(flatten)]
    options: mdtest::Options,
}

#[derive(Parser)]
struct IorLine {
    #[command(flatten)]
    options: ior::Options,
}

#[derive(Parser)]
struct WorkbenchLine {
    #[command(flatten)]
    options: workbench::Options,
}

/// Seconds for which md-workbench is to create files, and into how many data sets of each rank.
const CREATE_SECONDS: u32 = 60;
const SETS: u64 = 10;
/// Thousands of files a second if mdtest has not measured.
const SLOW: f64 = 10.0;

impl Whole<'_> {
    pub(super) fn find(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        let searchers = match self.config.searchers(phase.name) {
            0 => self.ranks(),
            asked => asked.min(self.ranks()),
        };
        let (data, results) = (&self.data, &self.results);
        let root = match phase.name {
            "find-easy" => format!("{data}/mdtest-easy/"),
            "find-hard" => format!("{data}/mdtest-hard/"),
            _ => data.clone(),
        };
        let newer = (phase.name != "find-easy").then_some(self.newer);
        let also = match newer {
            Some(_) => format!(" -newer {results}/timestampfile -size 3901c"),
            None => String::new(),
        };
        let words = format!("pfind {root}{also} -name *01* -C");
        self.pair("exe", &words);
        self.pair("nproc", &searchers.to_string());
        let find = Find::new(root.trim_end_matches('/').to_owned(), searchers, newer);
        let found = ranks::threads(
            self.ranks(),
            backend,
            Watch { stop: self.surroundings.stop, meter: None },
            &find,
        )?;
        let path = format!("{}/{}.csv", self.results, phase.name);
        let written = fs::write(&path, found.table());
        written.map_err(|error| format!("cannot write {path}: {error}"))?;
        self.pair("found", &found.matches.to_string());
        self.pair("total-files", &found.total.to_string());
        if found.matches == 0 {
            self.invalid("Find didn't find anything, this is likely invalid.");
            *is_valid = false;
        }
        Ok(found.total as f64 / found.seconds / 1000.0)
    }

    /// The command line of an IOR phase, as io500 gives it.
    fn ior_words(&self, name: &str) -> String {
        let (config, data, results) = (&self.config, &self.data, &self.results);
        if name == "ior-rnd4K-easy-read" {
            return self.random_words();
        }
        let easy = name.starts_with("ior-easy");
        let part = if easy { "ior-easy" } else { "ior-hard" };
        let mut words = format!(
            "ior --dataPacketType={} -C -Q 1 -g -G {} -k -e -O stoneWallingStatusFile={results}/{part}.stonewall",
            config.packet,
            stamp_of(part, &self.name).cast_signed(),
        );
        // Writing to a string cannot fail.
        let _ = match easy {
            true => write!(
                words,
                " -o {data}/ior-easy/ior_file_easy -t {} -b {}{}{}",
                config.easy_transfer,
                config.easy_block,
                if config.easy_unique { " -u" } else { "" },
                if config.easy_file_per_rank { " -F" } else { "" },
            ),
            false => write!(
                words,
                " -o {data}/ior-hard/file -t 47008 -b 47008 -s {}{}",
                config.hard_segments,
                if config.hard_collective { " -c" } else { "" },
            ),
        };
        words += &match name.ends_with("-write") {
            true => format!(" -w -D {} -O stoneWallingWearOut=1", config.stonewall),
            false => " -r -R".to_owned(),
        };
        words += &format!(" -O saveRankPerformanceDetailsCSV={results}/{name}.csv");
        words + if config.direct { " --posix.odirect" } else { "" }
    }

    /// That of reading what ior-easy-write wrote in small pieces from anywhere.
    fn random_words(&self) -> String {
        let (config, data, results) = (&self.config, &self.data, &self.results);
        let stamp = stamp_of("ior-easy", &self.name).cast_signed();
        format!(
            "ior --dataPacketType={} -g -G {stamp} -k -e -o {data}/ior-easy/ior_file_easy{}{} -r -D {} -z -z \
             -O saveRankPerformanceDetailsCSV={results}/ior-rnd4K-easy-read.csv -t=4096 -b=4096 -s=10000000 -O stoneWallingWearOut=1{}",
            config.packet,
            if config.easy_unique { " -u" } else { "" },
            if config.easy_file_per_rank { " -F -C -Q 2" } else { "" },
            config.stonewall,
            if config.direct { " --posix.odirect" } else { "" },
        )
    }

    /// The words about ranks and the way to the file system.
    fn common_words(&self) -> String {
        let mut words = " -a POSIX".to_owned();
        if self.api() == Api::Native {
            let Native { source, port, clients } = &self.common.native;
            words = format!(" -a NATIVE --native.clients {clients}");
            let options = [("source", source.clone()), ("port", port.map(|port| port.to_string()))];
            for (name, value) in options {
                words += &value.map_or(String::new(), |value| format!(" --native.{name} {value}"));
            }
        }
        if self.common.processes {
            words += " --processes";
        }
        words + &format!(" --ranks {}", self.ranks())
    }

    pub(super) fn ior(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        let words = self.ior_words(phase.name) + &self.common_words();
        self.pair("exe", &words);
        let line = IorLine::try_parse_from(words.split(' '));
        let options = line.map_err(|error| format!("{}: {error}", phase.name))?.options;
        let outcomes = self.captured(phase, backend, &words, |surroundings| {
            ior::perform(&options, surroundings)
        })?;
        let outcome = outcomes.first().ok_or_else(|| format!("{}: no result", phase.name))?;
        let point = outcome.point;
        if outcome.wrong > 0 {
            let what = format!(
                "Errors ({}) occured during phase in IOR. This invalidates your run.",
                outcome.wrong
            );
            self.invalid(&what);
            *is_valid = false;
        }
        if phase.stonewall {
            let stonewall = self.config.stonewall;
            if point.time < f64::from(stonewall) {
                let what = format!(
                    "Write phase needed {:.6}s instead of stonewall {stonewall}s. Stonewall was hit at {:.1}s",
                    point.time, point.stonewall_time,
                );
                self.invalid(&what);
                *is_valid = false;
            }
            let rate = (point.stonewall_mean * self.ranks() as u64) as f64 / point.stonewall_time;
            self.pair("throughput-stonewall", &format!("{:.2}", rate / GIB));
        }
        Ok(point.moved as f64 / point.time / GIB)
    }

    /// The command line of an mdtest phase, as io500 gives it.
    fn mdtest_words(&self, name: &str) -> String {
        let (config, data, results) = (&self.config, &self.data, &self.results);
        let easy = name.starts_with("mdtest-easy");
        let part = if easy { "mdtest-easy" } else { "mdtest-hard" };
        let shape = match easy {
            true => format!("-n {} -u -L", config.easy_files),
            false => format!("-n {} -t -w 3901 -e 3901", config.hard_files),
        };
        let what = match &name[part.len()..] {
            "-write" => format!("-C -Y -W {}", config.stonewall),
            "-stat" => "-T".to_owned(),
            "-read" => "-E -X".to_owned(),
            _ => "-r".to_owned(),
        };
        let stamp = stamp_of(part, &self.name).cast_signed();
        format!(
            "mdtest --dataPacketType={} {shape} -F -P -G {stamp} -N 1 -d {data}/{part} -x \
             {results}/{part}.stonewall {what} --saveRankPerformanceDetails={results}/{name}.csv",
            config.packet,
        )
    }

    pub(super) fn mdtest(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        let words = self.mdtest_words(phase.name) + &self.common_words();
        self.pair("exe", &words);
        let line = MdtestLine::try_parse_from(words.split(' '));
        let options = line.map_err(|error| format!("{}: {error}", phase.name))?.options;
        let outcomes = self.captured(phase, backend, &words, |surroundings| {
            mdtest::perform(&options, surroundings)
        })?;
        let outcome = outcomes.first().ok_or_else(|| format!("{}: no result", phase.name))?;
        if outcome.wrong > 0 {
            self.invalid(&format!("{} files had wrong data", outcome.wrong));
            *is_valid = false;
        }
        if phase.stonewall {
            let rate = outcome.until_stonewall() / 1000.0;
            self.pair("rate-stonewall", &format!("{rate:.6}"));
        }
        Ok(outcome.of(phase.measured()).0 / 1000.0)
    }

    /// The command line of an md-workbench phase, as io500 gives it.
    fn workbench_words(&mut self, name: &str) -> String {
        let config = self.config.workbench;
        let (precreated, objects) = match (config.precreated, config.objects) {
            (Some(precreated), Some(objects)) => (precreated, objects),
            _ => {
                // As many as mdtest would create in this time.
                let seconds = f64::from(self.config.stonewall.min(CREATE_SECONDS));
                let rate = if self.easy_rate > 0.0 { self.easy_rate } else { SLOW } * 1000.0;
                let files = (rate * seconds / self.ranks() as f64) as u64 / SETS;
                (files.max(1), files.max(1))
            }
        };
        self.pair("filesPerProc", &objects.to_string());
        self.pair("precreatePerSet", &precreated.to_string());
        let (data, results) = (&self.data, &self.results);
        let what = match name {
            "mdworkbench-create" => "-1",
            "mdworkbench-bench" => "-2 -R=2 -X",
            _ => "-3",
        };
        format!(
            "md-workbench --dataPacketType={}{} --process-reports -o={data}/mdworkbench -t={:.6} -O=1 \
             --run-info-file={results}/mdworkbench.status -D={SETS} -G={} -P={precreated} -I={objects} {what}",
            self.config.packet,
            if config.verbosity > 0 { " -v" } else { "" },
            config.waiting,
            stamp_of("md-workbench", &self.name).cast_signed(),
        )
    }

    pub(super) fn workbench(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        let words = self.workbench_words(phase.name) + &self.common_words();
        self.pair("exe", &words);
        let line = WorkbenchLine::try_parse_from(words.split(' '));
        let options = line.map_err(|error| format!("{}: {error}", phase.name))?.options;
        let outcome = self.captured(phase, backend, &words, |surroundings| {
            workbench::perform(&options, surroundings)
        })?;
        let outcome = outcome.ok_or_else(|| format!("{}: no result", phase.name))?;
        if outcome.errors > 0 {
            let what = format!(
                "Errors ({}) occured during the md-workbench phase. This invalidates your run.",
                outcome.errors
            );
            self.invalid(&what);
            *is_valid = false;
        }
        // Of the benchmark the second iteration counts.
        let last = outcome.phases.last().ok_or_else(|| format!("{}: no result", phase.name))?;
        self.pair("maxOpTime", &format!("{:.6}", last.longest));
        if let [first, second] = outcome.phases[..] {
            if first.rate < second.rate * 0.5 || first.rate * 0.5 > second.rate {
                self.warn("The results of both md-workbench differs by 2x.");
            }
            self.pair("scoreIteration0", &format!("{:.6}", first.rate / 1000.0));
            self.pair("maxOpTime0", &format!("{:.6}", first.longest));
        }
        Ok(last.rate / 1000.0)
    }

    /// Runs a benchmark with its output in the phase's file.
    fn captured<T>(
        &self,
        phase: &Phase,
        backend: &Shared,
        words: &str,
        benchmark: impl FnOnce(&Surroundings) -> Result<T, Ended>,
    ) -> Result<T, Ended> {
        let (output, meter) = (parking_lot::Mutex::new(String::new()), Meter::default());
        let out = |text: &str| output.lock().push_str(text);
        let program = self.surroundings.words.first().map_or("sheen", String::as_str);
        // As another rank's process is started.
        let words: Vec<String> =
            [program, "bench"].into_iter().chain(words.split(' ')).map(str::to_owned).collect();
        let own = Surroundings {
            stop: self.surroundings.stop,
            native: &|_, _| Ok(Box::new(backend.clone())),
            out: &out,
            words: &words,
            meter: self.surroundings.meter.map(|_| &meter),
        };
        let done = benchmark(&own)?;
        if let Some(all) = self.surroundings.meter {
            all.adopt(&meter, phase.measured(), phase.name);
        }
        let path = format!("{}/{}.txt", self.results, phase.name);
        let written = fs::write(&path, output.into_inner());
        written.map_err(|error| format!("cannot write {path}: {error}"))?;
        Ok(done)
    }
}
