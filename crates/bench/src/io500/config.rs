//! The ini file of IO500.
//!
//! Sections and names are those of io500; letters may be small or large, `#` and `;` begin comments, a name
//! without a value keeps what it had. Unknown sections and names are refused, as io500 refuses them.
//! In a standard run the sections of the extended mode are read and say nothing.

use super::phases::phases;
use crate::Api;
use crate::pattern::Packet;
use crate::text::size;

/// Sections that say what several phases have in common.
const WHOLES: [&str; 5] = ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard", "mdworkbench"];

/// The searches, which each have a number of ranks.
const FINDS: [&str; 3] = ["find", "find-easy", "find-hard"];

/// Seconds of the stonewall in a valid run, and in one of the student cluster competition.
const STONEWALL: u32 = 300;
const STONEWALL_STUDENTS: u32 = 30;

/// What the file says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    /// Whether the phases of the extended mode are run.
    pub(super) extended: bool,
    pub(super) data: String,
    pub(super) data_timestamp: bool,
    pub(super) results: String,
    pub(super) results_timestamp: bool,
    pub(super) api: Api,
    pub(super) direct: bool,
    /// Command before each phase.
    pub(super) drop_caches: Option<String>,
    pub(super) verbosity: u32,
    pub(super) packet: String,
    pub(super) students: bool,
    pub(super) stonewall: u32,
    pub(super) easy_transfer: String,
    pub(super) easy_block: String,
    pub(super) easy_file_per_rank: bool,
    pub(super) easy_unique: bool,
    pub(super) hard_segments: u64,
    pub(super) hard_collective: bool,
    pub(super) easy_files: u64,
    pub(super) hard_files: u64,
    /// Ranks of each of [`FINDS`]; 0 for all.
    searchers: [usize; 3],
    pub(super) workbench: Workbench,
    /// Sections with `run = FALSE`.
    pub(super) left_out: Vec<String>,
    /// Section, name and value of all that was said, in its order.
    pub(super) said: Vec<[String; 3]>,
}

/// What the file says of md-workbench.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Workbench {
    pub(super) waiting: f64,
    /// Files of a data set to begin with, and to work on in each iteration: both; or as mdtest reached.
    pub(super) precreated: Option<u64>,
    pub(super) objects: Option<u64>,
    pub(super) verbosity: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            extended: false,
            data: "./datafiles".to_owned(),
            data_timestamp: true,
            results: "./results".to_owned(),
            results_timestamp: true,
            api: Api::Posix,
            direct: false,
            drop_caches: None,
            verbosity: 1,
            packet: "timestamp".to_owned(),
            students: false,
            stonewall: STONEWALL,
            easy_transfer: "2m".to_owned(),
            easy_block: "9920000m".to_owned(),
            easy_file_per_rank: true,
            easy_unique: false,
            hard_segments: 10_000_000,
            hard_collective: false,
            easy_files: 1_000_000,
            hard_files: 1_000_000,
            searchers: [0; 3],
            workbench: Workbench::default(),
            left_out: Vec::new(),
            said: Vec::new(),
        }
    }
}

fn truth(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("expects bool (true|false), received \"{value}\"")),
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("expects integer >= 0, received \"{value}\""))
}

impl Config {
    /// # Errors
    /// A line: the first thing that is wrong, and where.
    pub(super) fn parse(text: &str, extended: bool) -> Result<Self, String> {
        let mut config = Self { extended, ..Self::default() };
        let mut unused = Self::default();
        let mut drops = (false, "sudo -n bash -c \"echo 3 > /proc/sys/vm/drop_caches\"".to_owned());
        let mut section = String::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: String| format!("line {}: {what}", number + 1);
            let line = without_comment(line);
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or_else(|| wrong(format!("'{line}'")))?;
                section = name.trim().to_ascii_lowercase();
                if !is_section(&section) {
                    return Err(wrong(format!("unknown section {name}")));
                }
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let (name, value) = line.split_once('=').ok_or_else(|| wrong(format!("'{line}'")))?;
            let (name, value) = (name.trim(), value.trim());
            if section.is_empty() {
                return Err(wrong("variable assigned outside section".to_owned()));
            }
            if value.is_empty() {
                continue;
            }
            let small = name.to_ascii_lowercase();
            let counts = extended || !is_optional(&section);
            let target = if counts { &mut config } else { &mut unused };
            let set = match target.set(&section, &small, value, &mut drops) {
                Ok(()) if counts && is_refused(&section, &small, value) => {
                    Err("is not supported by Sheen yet".to_owned())
                }
                done => done,
            };
            set.map_err(|what| wrong(format!("section {section}, option {name}: {what}")))?;
            config.say(&section, name, value);
        }
        config.drop_caches = drops.0.then_some(drops.1);
        match config.workbench {
            Workbench { precreated: Some(_), objects: None, .. }
            | Workbench { precreated: None, objects: Some(_), .. } => {
                Err("section mdworkbench: filesPerProc and precreatePerSet need each other"
                    .to_owned())
            }
            _ => Ok(config),
        }
    }

    /// Notes that an option was given this value.
    pub(super) fn say(&mut self, section: &str, name: &str, value: &str) {
        self.said.push([section, name, value].map(str::to_owned));
    }

    fn set(
        &mut self,
        section: &str,
        name: &str,
        value: &str,
        drops: &mut (bool, String),
    ) -> Result<(), String> {
        match (section, name) {
            (_, "run") => {
                if !truth(value)? {
                    self.left_out.push(section.to_owned());
                }
            }
            ("global", "api") | (_, "api") => self.api(value)?,
            ("global", "datadir") => self.data = value.to_owned(),
            ("global", "timestamp-datadir") => self.data_timestamp = truth(value)?,
            ("global", "resultdir") => self.results = value.to_owned(),
            ("global", "timestamp-resultdir") => self.results_timestamp = truth(value)?,
            ("global", "drop-caches") => drops.0 = truth(value)?,
            ("global", "drop-caches-cmd") => value.clone_into(&mut drops.1),
            ("global", "io-buffers-on-gpu") => drop(truth(value)?),
            ("global", "verbosity") => self.verbosity = number(value)?,
            ("global", "scc") => self.students = truth(value)?,
            ("global", "datapackettype") => {
                Packet::named(value)?;
                value.clone_into(&mut self.packet);
            }
            ("debug", "stonewall-time") => self.stonewall = number(value)?,
            ("ior-easy", "transfersize") => {
                size(value)?;
                value.clone_into(&mut self.easy_transfer);
            }
            ("ior-easy", "blocksize") => {
                size(value)?;
                value.clone_into(&mut self.easy_block);
            }
            ("ior-easy", "fileperproc") => self.easy_file_per_rank = truth(value)?,
            ("ior-easy", "uniquedir") => self.easy_unique = truth(value)?,
            ("ior-easy" | "ior-hard", "verbosity") => drop(number::<u32>(value)?),
            ("ior-hard", "segmentcount") => self.hard_segments = number(value)?,
            ("ior-hard" | "ior-hard-write" | "ior-hard-read", "collective") => {
                self.hard_collective = truth(value)?;
            }
            ("mdtest-easy", "n") => self.easy_files = number(value)?,
            ("mdtest-hard", "n") => self.hard_files = number(value)?,
            (find, _) if FINDS.contains(&find) => return self.set_find(find, name, value),
            ("mdworkbench", _) => return self.set_workbench(name, value),
            ("debug", "pause-dir") | ("mdtest-hard", "files-per-dir") => {}
            _ => return Err(format!("unknown option with value \"{value}\"")),
        }
        Ok(())
    }

    fn set_find(&mut self, section: &str, name: &str, value: &str) -> Result<(), String> {
        match name {
            "nproc" => {
                let ranks = number(value)?;
                let all = FINDS.iter().zip(&mut self.searchers);
                all.filter(|(find, _)| **find == section).for_each(|(_, own)| *own = ranks);
            }
            // How MPI processes hand each other work: ours share it.
            "pfind-queue-length" => drop(number::<u64>(value)?),
            "pfind-steal-next" | "pfind-parallelize-single-dir-access-using-hashing" => {
                truth(value)?;
            }
            "external-script" | "external-mpi-args" | "external-extra-args" => {}
            _ => return Err(format!("unknown option with value \"{value}\"")),
        }
        Ok(())
    }

    fn set_workbench(&mut self, name: &str, value: &str) -> Result<(), String> {
        let own = &mut self.workbench;
        let counted = |value| match number::<u64>(value)? {
            0 => Err("expects a number of files".to_owned()),
            files => Ok(Some(files)),
        };
        match name {
            "waitingtime" => {
                let waiting =
                    value.parse().ok().filter(|waiting: &f64| (0.0..=1e6).contains(waiting));
                own.waiting =
                    waiting.ok_or_else(|| format!("expects float, received \"{value}\""))?;
            }
            "precreateperset" => own.precreated = counted(value)?,
            "filesperproc" => own.objects = counted(value)?,
            "verbosity" => own.verbosity = number(value)?,
            _ => return Err(format!("unknown option with value \"{value}\"")),
        }
        Ok(())
    }

    fn api(&mut self, value: &str) -> Result<(), String> {
        let mut words = value.split_whitespace();
        let name = words.next().unwrap_or_default();
        let api = <Api as clap::ValueEnum>::from_str(name, true);
        self.api =
            api.map_err(|_| format!("'{value}': only POSIX and NATIVE are supported by Sheen"))?;
        for word in words {
            match word {
                "--posix.odirect" if self.api == Api::Posix => self.direct = true,
                _ => return Err(format!("'{word}' is not supported by Sheen yet")),
            }
        }
        Ok(())
    }

    /// Whether a phase is to run: neither it nor what it is a part of or works on is left out.
    pub(super) fn runs(&self, phase: &str) -> bool {
        let more = match phase {
            "ior-rnd4K-easy-read" => Some("ior-easy"),
            "mdworkbench-bench" | "mdworkbench-delete" => Some("mdworkbench-create"),
            _ => None,
        };
        let whole = WHOLES.into_iter().find(|whole| phase.starts_with(whole));
        let is_left_out =
            |name: &str| self.left_out.iter().any(|section| section.eq_ignore_ascii_case(name));
        !std::iter::once(phase).chain(whole).chain(more).any(is_left_out)
    }

    /// Ranks of a search; 0 for all.
    pub(super) fn searchers(&self, find: &str) -> usize {
        let number = FINDS.iter().position(|name| *name == find);
        number.map_or(0, |number| self.searchers[number])
    }

    /// Seconds that a write phase takes at least in a valid run.
    pub(super) fn seconds_min(&self) -> u32 {
        if self.students { STONEWALL_STUDENTS } else { STONEWALL }
    }
}

fn is_section(name: &str) -> bool {
    ["global", "debug"].contains(&name)
        || WHOLES.contains(&name)
        || phases(true).any(|phase| phase.name.eq_ignore_ascii_case(name))
}

/// Whether only the extended mode has this section.
fn is_optional(section: &str) -> bool {
    section == "mdworkbench" || phases(true).any(|phase| phase.name == section && phase.optional)
}

/// What io500 has and we have not.
fn is_refused(section: &str, name: &str, value: &str) -> bool {
    match (section, name) {
        ("global", "io-buffers-on-gpu") => truth(value) == Ok(true),
        ("debug", "pause-dir") | ("mdtest-hard", "files-per-dir") => true,
        (find, name) => FINDS.contains(&find) && name.starts_with("external-"),
    }
}

/// A comment begins the line or stands behind a blank.
fn without_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let begins = |at: usize| at == 0 || bytes[at - 1].is_ascii_whitespace();
    let end = (0..bytes.len()).find(|at| matches!(bytes[*at], b'#' | b';') && begins(*at));
    line[..end.unwrap_or(line.len())].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_io500_is_understood() {
        let text = "# mine\n[global]\ndatadir = /d ; where\nTimestamp-Datadir = false\napi = POSIX --posix.odirect\n\
                    resultdir =\n[ior-easy]\nblockSize=100m\n[find]\nnproc = 2\n[mdworkbench]\nwaitingTime = 1.5\n\
                    API = POSIX\nprecreatePerSet = 7\nfilesPerProc = 5\n[find-easy]\nnproc = 3\n\
                    [ior-rnd4K-easy-read]\nrun = TRUE\n[mdworkbench-create]\nrun = false\n[mdtest-hard-stat]\nrun = 0\n[debug]\nstonewall-time = 5\n";
        let config = Config::parse(text, true).unwrap();
        assert_eq!(
            (config.data.as_str(), config.data_timestamp, config.direct),
            ("/d", false, true)
        );
        assert_eq!((config.results.as_str(), config.easy_block.as_str()), ("./results", "100m"));
        let searchers = FINDS.map(|find| config.searchers(find));
        assert_eq!((config.stonewall, searchers), (5, [2, 3, 0]));
        assert!(!config.runs("mdtest-hard-stat") && config.runs("mdtest-hard-read"));
        let Workbench { waiting, precreated, objects, .. } = config.workbench;
        assert_eq!((waiting, precreated, objects), (1.5, Some(7), Some(5)));
        // Nothing works on files that are not there.
        assert!(!config.runs("mdworkbench-delete") && config.runs("ior-rnd4K-easy-read"));
        let standard = Config::parse(text, false).unwrap();
        assert_eq!((standard.workbench, standard.searchers("find-easy")), Default::default());
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        for (text, line) in [
            ("[what]", "line 1: unknown section what"),
            ("\nx = 1", "line 2: variable assigned outside section"),
            ("[find]\nnproc = -1", "line 2: section find, option nproc: expects integer"),
            ("[global]\ndatadri = 1", "line 2: section global, option datadri: unknown option"),
            (
                "[global]\napi = DFS",
                "line 2: section global, option api: 'DFS': only POSIX and NATIVE",
            ),
            ("[find]\nexternal-script = x", "line 2: section find, option external-script: is not"),
            ("[ior-easy]\nrun = maybe", "line 2: section ior-easy, option run: expects bool"),
            (
                "[mdworkbench]\nwaiting = 1",
                "line 2: section mdworkbench, option waiting: unknown option",
            ),
            (
                "[mdworkbench]\nfilesPerProc = 0",
                "line 2: section mdworkbench, option filesPerProc: ",
            ),
            ("[mdworkbench]\nfilesPerProc = 1", "section mdworkbench: filesPerProc and precreate"),
            ("[find-hard]\nexternal-script = x", "line 2: section find-hard, option external-s"),
        ] {
            let error = Config::parse(text, true).expect_err(text);
            assert!(error.starts_with(line), "{text}: {error}");
        }
        let text = "[find-hard]\nexternal-script = x\n[mdworkbench]\nfilesPerProc = 1\n";
        assert!(Config::parse(text, false).is_ok(), "a standard run has neither");
    }
}
