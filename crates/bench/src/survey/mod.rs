//! Load on servers without a client in between: mds-survey and obdfilter-survey of Lustre's IO kit.
//!
//! The load is made inside the server process, on a target that may serve clients meanwhile; here are the
//! settings, the order of tests and the reports, which are those of the scripts. [`device`] says what is
//! asked of a server. Settings are taken from options and, where there is none, from the environment under
//! the scripts' names.

pub mod device;
mod mds;
mod obdfilter;
mod rates;
mod report;
mod row;
#[cfg(test)]
mod tests;

pub(crate) use mds::Options as MdsOptions;
pub(crate) use obdfilter::Options as ObdfilterOptions;

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ranks::Ended;
use device::{Device, Devices, Kind, Progress, Work};
use report::Report;

/// Threads of one target (`MAX_THREADS` of Lustre's `lctl`).
const THREADS_MAX: u32 = 4096;
/// Options of the scripts that are refused by name.
pub(crate) const REFUSED: &[&str] = &["--lustre_root", "--snap", "--restart_rsz"];

/// What the host of a survey gives it.
pub(crate) struct Surroundings<'a> {
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// The targets of this machine.
    pub devices: &'a dyn Devices,
    /// Writes to standard output.
    pub out: &'a (dyn Fn(&str) + Sync),
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Runs `sheen bench mds-survey`.
///
/// # Errors
/// A line, or an interrupt; nothing of the survey is left on the targets.
pub(crate) fn mds(options: &MdsOptions, surroundings: &Surroundings) -> Result<(), Ended> {
    let settings = mds::Settings::read(options, surroundings.variable)?;
    mds::run(&settings, surroundings)
}

/// Runs `sheen bench obdfilter-survey`.
///
/// # Errors
/// As [`mds`].
pub(crate) fn obdfilter(
    options: &ObdfilterOptions,
    surroundings: &Surroundings,
) -> Result<(), Ended> {
    let settings = obdfilter::Settings::read(options, surroundings.variable)?;
    obdfilter::run(&settings, surroundings)
}

/// What both surveys are given.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Common {
    /// Threads (operations in flight) on each target to begin with [default: 4 on MDTs, 1 on OSTs]
    #[arg(long, value_name = "N")]
    pub thrlo: Option<u32>,
    /// Threads on each target to end with; they double from test to test
    /// [default: 32 on MDTs, 16 on OSTs]
    #[arg(long, value_name = "N")]
    pub thrhi: Option<u32>,
    /// Targets of this machine, as 'fs-MDT0000 fs-MDT0001' [default: all of their kind]
    #[arg(long, value_name = "NAMES")]
    pub targets: Option<String>,
    /// Tests in their order, separated by blanks [default: create lookup md_getattr setxattr destroy on
    /// MDTs, write rewrite read on OSTs]
    #[arg(long = "tests_str", alias = "tests-str", value_name = "TESTS")]
    pub tests: Option<String>,
    /// Directory for the files with results [default: /tmp]
    #[arg(long = "rslt_loc", alias = "rslt-loc", value_name = "DIR")]
    pub place: Option<String>,
    /// Path to which .summary and .detail are appended [default: date, time and host below rslt_loc]
    #[arg(long = "rslt", value_name = "PREFIX")]
    pub prefix: Option<String>,
}

/// A variable of the environment, by name.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What an option says, or the environment, or `usual`.
fn setting<T: FromStr + Clone>(
    option: Option<&T>,
    variable: Variable,
    name: &str,
    usual: T,
) -> Result<T, String> {
    if let Some(value) = option {
        return Ok(value.clone());
    }
    match variable(name).filter(|text| !text.is_empty()) {
        None => Ok(usual),
        Some(text) => text.trim().parse().map_err(|_| format!("{name}={text}: not a valid number")),
    }
}

/// What an option says, or the environment: a text, which nothing stands for.
fn text(option: Option<&String>, variable: Variable, name: &str) -> Option<String> {
    option.cloned().or_else(|| variable(name)).filter(|text| !text.is_empty())
}

/// The numbers of threads, doubling.
fn threads(common: &Common, variable: Variable, usual: (u32, u32)) -> Result<Vec<u32>, String> {
    let low = setting(common.thrlo.as_ref(), variable, "thrlo", usual.0)?;
    let high = setting(common.thrhi.as_ref(), variable, "thrhi", usual.1.max(low))?;
    doubling("thr", low, high, THREADS_MAX)
}

/// `low`, twice that, and so on to `high`.
fn doubling(name: &str, low: u32, high: u32, most: u32) -> Result<Vec<u32>, String> {
    if low == 0 {
        return Err(format!("{name}lo must be at least 1"));
    }
    if low > high {
        return Err(format!("{name}lo ({low}) is greater than {name}hi ({high})"));
    }
    if high > most {
        return Err(format!("{name}hi ({high}) is greater than {most}"));
    }
    let double = |value: &u32| value.checked_mul(2).filter(|next| *next <= high);
    Ok(std::iter::successors(Some(low), double).collect())
}

/// The targets to survey. `HOST:` before a name must be this machine.
fn targets(
    given: Option<&str>,
    kind: Kind,
    surroundings: &Surroundings,
) -> Result<Vec<String>, String> {
    let what = if kind == Kind::Mdt { "MDT" } else { "OST" };
    let Some(given) = given else {
        let all = surroundings.devices.targets(kind)?;
        return match all.is_empty() {
            true => Err(format!("no {what} runs on this machine")),
            false => Ok(all),
        };
    };
    let host = report::host();
    let mut names = Vec::new();
    for word in given.split_whitespace() {
        let name = match word.split_once(':') {
            Some((there, name)) if there == host || there == "localhost" => name,
            Some((there, _)) => {
                return Err(format!("{word}: {there} is another machine; run the survey there"));
            }
            None => word,
        };
        if !name.contains(what) {
            return Err(format!("{name} is not an {what}"));
        }
        names.push(name.to_owned());
    }
    match names.is_empty() {
        true => Err("targets is empty".to_owned()),
        false => Ok(names),
    }
}

/// The targets under survey. Dropped, it leaves nothing behind.
struct Attached<'a> {
    devices: Vec<(String, Box<dyn Device>)>,
    stop: &'a AtomicBool,
}

impl<'a> Attached<'a> {
    fn new(names: Vec<String>, surroundings: &Surroundings<'a>) -> Result<Self, Ended> {
        let mut attached = Self { devices: Vec::new(), stop: surroundings.stop };
        for name in names {
            let device = surroundings.devices.attach(&name)?;
            attached.devices.push((name, device));
        }
        Ok(attached)
    }

    fn count(&self) -> u64 {
        self.devices.len() as u64
    }

    fn check(&self) -> Result<(), Ended> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Ended::Interrupted),
            false => Ok(()),
        }
    }

    fn prepare(&mut self, count: u32) -> Result<(), Ended> {
        for (_, device) in &mut self.devices {
            device.prepare(count)?;
        }
        self.check()
    }

    fn clean(&mut self) -> Result<(), Ended> {
        for (_, device) in &mut self.devices {
            device.clean()?;
        }
        Ok(())
    }

    /// Runs a test on all targets at once; the lines of each go to the file of details.
    fn test(
        &mut self,
        work: &Work,
        name: &str,
        report: &mut Report,
    ) -> Result<Vec<Progress>, Ended> {
        for (_, device) in &mut self.devices {
            device.start(work)?;
        }
        let mut all = Vec::new();
        for (target, device) in &mut self.devices {
            let ended = loop {
                let progress = device.watch()?;
                if progress.ended {
                    break progress;
                }
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Ended::Interrupted);
                }
                report.progress(name, &progress);
            };
            report.detail(&format!("=============> {name} {}:{target}\n", report::host()))?;
            report.detail(&rates::detail(&ended, work.threads()))?;
            all.push(ended);
        }
        report.hide();
        Ok(all)
    }

    /// Gives the targets up; the first failure.
    fn detach(&mut self) -> Result<(), Ended> {
        let mut done = Ok(());
        for (_, mut device) in std::mem::take(&mut self.devices) {
            done = done.and(device.detach());
        }
        Ok(done?)
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        // A failure was reported already, or the server ends the survey by itself after a while.
        let _ = self.detach();
    }
}
