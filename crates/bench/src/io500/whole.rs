//! One run: phase by phase, under the rules that all phases are under.

use std::fs;
use std::process::Command;

use sheen_types::Errno;

use super::config::Config;
use super::ini;
use super::phases::{Phase, parts, phases};
use super::score::{Score, result_line};
use super::{time_text, version};
use crate::backend::{Backend, Shared, Worker, make_all, remove_all};
use crate::posix::Posix;
use crate::ranks::Ended;
use crate::text::failed;
use crate::{Api, Common, Surroundings, clock};

/// One run.
pub(super) struct Whole<'a> {
    pub(super) config: Config,
    pub(super) common: &'a Common,
    pub(super) name: String,
    pub(super) data: String,
    pub(super) results: String,
    /// Directories for the data that were not there before, the highest first.
    pub(super) made: Vec<String>,
    /// When the phase `timestamp` was, in seconds since 1970.
    pub(super) newer: i64,
    pub(super) surroundings: &'a Surroundings<'a>,
    /// What `result.txt` will be.
    pub(super) result: String,
    /// What `result_summary.txt` will be.
    pub(super) summary: String,
    pub(super) is_valid: bool,
    /// As [`Self::is_valid`], with the phases of the extended mode.
    pub(super) is_valid_extended: bool,
    /// Thousands of files a second that mdtest-easy-write has created.
    pub(super) easy_rate: f64,
}

impl Whole<'_> {
    pub(super) fn ranks(&self) -> usize {
        self.common.ranks as usize
    }

    /// What the command line says, else what the ini file says.
    pub(super) fn api(&self) -> Api {
        if self.common.api == Api::Native { Api::Native } else { self.config.api }
    }

    pub(super) fn mode(&self) -> &'static str {
        if self.config.extended { "extended" } else { "standard" }
    }

    pub(super) fn prepare(&mut self, worker: &mut dyn Worker, original: &str) -> Result<(), Ended> {
        for part in parts(self.config.extended) {
            let path = format!("{}/{part}", self.data);
            match worker.stat(&path) {
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(Ended::Failed(failed("work in", &path, errno))),
                Ok(_) => {
                    let line = format!("{path} already exists: use another --datadir");
                    return Err(Ended::Failed(line));
                }
            }
        }
        let results = &self.results;
        let made = fs::create_dir_all(results);
        made.map_err(|error| format!("cannot create directory {results}: {error}"))?;
        for (name, text) in
            [("config.ini", ini::text(&self.config)), ("config-orig.ini", original.to_owned())]
        {
            let path = format!("{results}/{name}");
            fs::write(&path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
        }
        let mut made = Vec::new();
        for path in ["ior-easy", "ior-hard"].map(|part| format!("{}/{part}", self.data)) {
            let more = make_all(worker, &path);
            made.extend(more.map_err(|errno| failed("create directory", &path, errno))?);
        }
        self.made = made;
        self.say(&format!("IO500 version {} ({})", version(), self.mode()));
        let pairs = [
            ("procs", self.ranks().to_string()),
            ("version", version()),
            ("config-hash", format!("{:X}", ini::hash(&self.config))),
            ("result-dir", self.results.clone()),
            ("mode", self.mode().to_owned()),
        ];
        self.result += "[run]\n";
        pairs.iter().for_each(|(key, value)| self.pair(key, value));
        self.write_time("; START ");
        let (seconds, wanted) = (self.config.stonewall, self.config.seconds_min());
        if seconds != wanted {
            (self.is_valid, self.is_valid_extended) = (false, false);
            self.invalid(&format!("stonewall-time {seconds}s != {wanted}s"));
        }
        self.result += "\n";
        Ok(())
    }

    /// A line of the summary, and to the user.
    pub(super) fn say(&mut self, line: &str) {
        (self.surroundings.out)(&format!("{line}\n"));
        self.summary += &format!("{line}\n");
    }

    pub(super) fn pair(&mut self, key: &str, value: &str) {
        self.result += &format!("{key:<15} = {value}\n");
    }

    /// A line with the time, unless the ini file wants few words.
    pub(super) fn write_time(&mut self, head: &str) {
        if self.config.verbosity > 0 {
            self.result += &format!("{head}{}\n", time_text(clock::wall()));
        }
    }

    pub(super) fn warn(&mut self, what: &str) {
        (self.surroundings.out)(&format!("WARNING {what}\n"));
        self.result += &format!("; WARNING {what}\n");
    }

    pub(super) fn invalid(&mut self, what: &str) {
        (self.surroundings.out)(&format!("ERROR INVALID {what}\n"));
        self.result += &format!("; ERROR INVALID {what}\n");
    }

    pub(super) fn phases(&mut self, backend: &Shared) -> Result<Vec<Score>, Ended> {
        let mut scores = Vec::new();
        for phase in phases(self.config.extended) {
            self.drop_caches(phase);
            self.result += &format!("\n[{}]\n", phase.name);
            self.write_time("t_start         = ");
            let begin = clock::now();
            let mut is_valid = true;
            let score = self.phase(phase, backend, &mut is_valid)?;
            let seconds = clock::now() - begin;
            self.judge(phase, score, seconds, &mut is_valid);
            if phase.has_result() {
                self.pair("score", &format!("{score:.6}"));
            }
            self.say(&result_line(phase, score, seconds, is_valid));
            if self.config.verbosity > 0 {
                self.pair("t_delta", &format!("{seconds:.4}"));
            }
            self.write_time("t_end           = ");
            self.is_valid_extended &= is_valid;
            self.is_valid &= is_valid || phase.optional;
            scores.push(Score { phase, score, seconds, is_valid });
        }
        Ok(scores)
    }

    /// The rules that every phase is under.
    fn judge(&mut self, phase: &Phase, score: f64, seconds: f64, is_valid: &mut bool) {
        let (stonewall, least) = (self.config.stonewall, self.config.seconds_min());
        let mut faults = Vec::new();
        if phase.stonewall && seconds < f64::from(stonewall) {
            let what = format!(
                "Runtime of phase ({seconds:.6}) is below stonewall time. This shouldn't happen!"
            );
            faults.push(what);
        } else if score == 0.0 && phase.has_result() {
            faults.push("Resulting score shouldn't be 0.0".to_owned());
        }
        if phase.stonewall && seconds < f64::from(least) {
            faults.push("Runtime is smaller than expected minimum runtime".to_owned());
        }
        for fault in &faults {
            self.invalid(fault);
            *is_valid = false;
        }
    }

    /// As in io500 a command that fails ends no run.
    fn drop_caches(&mut self, phase: &Phase) {
        let Some(command) = self.config.drop_caches.clone().filter(|_| phase.has_result()) else {
            return;
        };
        match Command::new("sh").args(["-c", &command]).status() {
            Ok(status) if status.success() => {}
            Ok(status) => self.warn(&format!("Calling \"{command}\" returned {status}")),
            Err(error) => self.warn(&format!("Calling \"{command}\" returned {error}")),
        }
    }

    fn phase(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        if !self.config.runs(phase.name) {
            return Ok(0.0);
        }
        match phase.name {
            "timestamp" => self.timestamp().map(|()| 0.0),
            "mdtest-easy-write" => {
                self.easy_rate = self.mdtest(phase, backend, is_valid)?;
                Ok(self.easy_rate)
            }
            _ if phase.is_find() => self.find(phase, backend, is_valid),
            _ if phase.is_workbench() => self.workbench(phase, backend, is_valid),
            _ if phase.is_ior() => self.ior(phase, backend, is_valid),
            _ => self.mdtest(phase, backend, is_valid),
        }
    }

    fn timestamp(&mut self) -> Result<(), Ended> {
        let path = format!("{}/timestampfile", self.results);
        fs::write(&path, "").map_err(|error| format!("cannot write {path}: {error}"))?;
        let mut worker = Posix::default().worker(0, 1)?;
        let stat = worker.stat(&path).map_err(|errno| failed("stat", &path, errno))?;
        self.newer = stat.modified.0;
        Ok(())
    }

    /// Removes what was made; results stay, but for what phases wrote for each other.
    pub(super) fn clear(&self, worker: &mut dyn Worker) {
        for part in parts(false) {
            // Where no phase was, there is none.
            let _ = fs::remove_file(format!("{}/{part}.stonewall", self.results));
        }
        for part in parts(self.config.extended) {
            let path = format!("{}/{part}", self.data);
            if let Err(errno) = remove_all(worker, &path) {
                eprintln!("{}", failed("remove", &path, errno));
            }
        }
        for path in self.made.iter().rev() {
            match worker.rmdir(path) {
                // With other files in it, it stays.
                Ok(()) | Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT | Errno::EBUSY) => {}
                Err(errno) => eprintln!("{}", failed("remove", path, errno)),
            }
        }
    }
}
