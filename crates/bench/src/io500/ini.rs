//! `config.ini` in the directory of results: every option of io500 with its value, said or usual, so that a
//! run can be described and repeated.

use super::config::Config;
use super::hash_of;

type Options = &'static [(&'static str, &'static str)];

/// Options of a phase that is part of another section.
const PHASE: Options = &[("API", ""), ("run", "TRUE")];
const HARD_PHASE: Options = &[("API", ""), ("collective", ""), ("run", "TRUE")];
const WORKBENCH_PHASE: Options = &[("run", "TRUE")];
const FIND: Options = &[
    ("external-script", ""),
    ("external-mpi-args", ""),
    ("external-extra-args", ""),
    ("nproc", ""),
    ("run", "TRUE"),
    ("pfind-queue-length", "10000"),
    ("pfind-steal-next", "FALSE"),
    ("pfind-parallelize-single-dir-access-using-hashing", "FALSE"),
];

/// All sections in io500's order, with what their options are unless the ini file says otherwise.
const SECTIONS: [(&str, Options); 26] = [
    (
        "global",
        &[
            ("datadir", "./datafiles"),
            ("timestamp-datadir", "TRUE"),
            ("resultdir", "./results"),
            ("timestamp-resultdir", "TRUE"),
            ("api", "POSIX"),
            ("drop-caches", "FALSE"),
            ("drop-caches-cmd", "sudo -n bash -c \"echo 3 > /proc/sys/vm/drop_caches\""),
            ("io-buffers-on-gpu", "FALSE"),
            ("verbosity", "1"),
            ("scc", "FALSE"),
            ("dataPacketType", "timestamp"),
        ],
    ),
    ("debug", &[("stonewall-time", "300"), ("pause-dir", "")]),
    (
        "ior-easy",
        &[
            ("API", ""),
            ("transferSize", "2m"),
            ("blockSize", "9920000m"),
            ("filePerProc", "TRUE"),
            ("uniqueDir", "FALSE"),
            ("run", "TRUE"),
            ("verbosity", ""),
        ],
    ),
    ("ior-easy-write", PHASE),
    ("mdtest-easy", &[("API", ""), ("n", "1000000"), ("run", "TRUE")]),
    ("mdtest-easy-write", PHASE),
    (
        "mdworkbench",
        &[
            ("API", ""),
            ("waitingTime", "0.0"),
            ("precreatePerSet", ""),
            ("filesPerProc", ""),
            ("run", "TRUE"),
            ("verbosity", ""),
        ],
    ),
    ("mdworkbench-create", WORKBENCH_PHASE),
    ("timestamp", &[]),
    ("find-easy", FIND),
    (
        "ior-hard",
        &[
            ("API", ""),
            ("segmentCount", "10000000"),
            ("collective", ""),
            ("run", "TRUE"),
            ("verbosity", ""),
        ],
    ),
    ("ior-hard-write", HARD_PHASE),
    ("mdtest-hard", &[("API", ""), ("n", "1000000"), ("files-per-dir", ""), ("run", "TRUE")]),
    ("mdtest-hard-write", PHASE),
    ("find", FIND),
    ("find-hard", FIND),
    ("mdworkbench-bench", WORKBENCH_PHASE),
    ("ior-easy-read", PHASE),
    ("mdtest-easy-stat", PHASE),
    ("ior-hard-read", HARD_PHASE),
    ("mdtest-hard-stat", PHASE),
    ("mdworkbench-delete", WORKBENCH_PHASE),
    ("mdtest-easy-delete", PHASE),
    ("mdtest-hard-read", PHASE),
    ("mdtest-hard-delete", PHASE),
    ("ior-rnd4K-easy-read", PHASE),
];

/// Options that io500 has with nothing in them; other options without a value it does not have.
const EMPTY: [&str; 2] = ["external-mpi-args", "external-extra-args"];

/// What the value of an option is unless the ini file says otherwise, or what it says.
fn value(config: &Config, section: &str, name: &str, usual: &str) -> String {
    let is_it = |said: &&[String; 3]| {
        said[0].eq_ignore_ascii_case(section) && said[1].eq_ignore_ascii_case(name)
    };
    let value = config.said.iter().rfind(is_it).map_or(usual, |said| &said[2]);
    let is_truth = ["TRUE", "FALSE"].contains(&usual) || name == "collective";
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" if is_truth => "TRUE".to_owned(),
        "0" | "false" if is_truth => "FALSE".to_owned(),
        _ => value.to_owned(),
    }
}

/// By which io500 knows a configuration, in whatever order its options stand.
pub(super) fn hash(config: &Config) -> u32 {
    let all = SECTIONS.iter().flat_map(|(section, options)| {
        options.iter().map(move |(name, usual)| (name, value(config, section, name, usual)))
    });
    let has = all.filter(|(name, value)| !value.is_empty() || EMPTY.contains(name));
    has.fold(0, |hash, (name, value)| hash ^ hash_of(name, &value))
}

/// The whole configuration as an ini file.
pub(super) fn text(config: &Config) -> String {
    let section = |(section, options): (&str, Options)| {
        let line = |(name, usual): &(&str, &str)| {
            format!("{name} = {}\n", value(config, section, name, usual))
        };
        format!("[{section}]\n{}\n", options.iter().map(line).collect::<String>())
    };
    SECTIONS.map(section).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let text = "[global]\nDATADIR = /d\napi = POSIX --posix.odirect\ndrop-caches = TRUE\n[ior-easy]\nblockSize = 1m\n\
                    blocksize = 2m\n[find]\nnproc = 3\n[mdworkbench]\nwaitingTime = 1.5\n[mdtest-hard-stat]\nrun = FALSE\n\
                    [debug]\nstonewall-time = 5\n[ior-hard-read]\ncollective = TRUE\n";
        for (text, extended) in [("", false), (text, false), (text, true)] {
            let mut config = Config::parse(text, extended).expect("as io500 has it");
            let written = super::text(&config);
            let mut again = Config::parse(&written, extended).expect(&written);
            assert_eq!(super::text(&again), written);
            (config.said, again.said) = Default::default();
            assert_eq!(again, config, "{written}");
        }
        let written = super::text(&Config::parse(text, false).expect("as before"));
        assert!(
            written.starts_with("[global]\ndatadir = /d\ntimestamp-datadir = TRUE\n"),
            "{written}"
        );
        assert!(
            written.contains("\nblockSize = 2m\n")
                && written.contains("[find]\nexternal-script = \n")
        );
    }
}
