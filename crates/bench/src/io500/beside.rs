//! What the real io500 (`io500-isc26_v2-26-g02091cf254d8`) said, run with Open MPI, beside ours.

use super::config::Config;
use super::ini;
use super::phases::{Phase, phases};
use super::score::{Score, Total};

pub(super) fn named(name: &str) -> &'static Phase {
    phases(true).find(|phase| phase.name == name).expect(name)
}

pub(super) fn scores(values: &[(&str, f64)]) -> Vec<Score> {
    let score = |(name, score): &(&str, f64)| Score {
        phase: named(name),
        score: *score,
        seconds: 1.0,
        is_valid: true,
    };
    values.iter().map(score).collect()
}

/// What it runs in each phase, reported with `--dry-run --mode=extended --timestamp=x` of three ranks and the ini
/// file of the test of an extended run.
const LINES: [(&str, &str); 18] = [
    (
        "ior-easy-write",
        "./ior --dataPacketType=timestamp -g -G 9247436 -k -e -o DATA/ior-easy/ior_file_easy -C -Q 1 -O \
         stoneWallingStatusFile=RESULTS/ior-easy.stonewall -t 2m -b 4m -F -w -D 1 -O \
         stoneWallingWearOut=1 -a POSIX -O saveRankPerformanceDetailsCSV=RESULTS/ior-easy-write.csv",
    ),
    (
        "mdtest-easy-write",
        "./mdtest --dataPacketType=timestamp -n 102 -u -L -F -P -G 601504460 -N 1 -d DATA/mdtest-easy -x \
         RESULTS/mdtest-easy.stonewall -C -Y -W 1 \
         --saveRankPerformanceDetails=RESULTS/mdtest-easy-write.csv -a POSIX",
    ),
    (
        "mdworkbench-create",
        "./md-workbench --dataPacketType=timestamp --process-reports -a POSIX -o=DATA/mdworkbench \
         -t=0.500000 -O=1 --run-info-file=RESULTS/mdworkbench.status -D=10 -G=-1958723384 -P=3 -I=2 -1",
    ),
    ("find-easy", "./pfind DATA/mdtest-easy/ -name *01* -C -q 10000"),
    (
        "ior-hard-write",
        "./ior --dataPacketType=timestamp -C -Q 1 -g -G=9248104 -k -e -o DATA/ior-hard/file -O \
         stoneWallingStatusFile=RESULTS/ior-hard.stonewall -t 47008 -b 47008 -s 20 -w -D 1 -a POSIX -O \
         saveRankPerformanceDetailsCSV=RESULTS/ior-hard-write.csv -O stoneWallingWearOut=1",
    ),
    (
        "mdtest-hard-write",
        "./mdtest --dataPacketType=timestamp -n 102 -t -w 3901 -e 3901 -P -G=601505128 -N 1 -F -d \
         DATA/mdtest-hard -x RESULTS/mdtest-hard.stonewall -C -Y -W 1 \
         --saveRankPerformanceDetails=RESULTS/mdtest-hard-write.csv -a POSIX",
    ),
    ("find", "./pfind DATA -newer RESULTS/timestampfile -size 3901c -name *01* -C -q 10000"),
    (
        "find-hard",
        "./pfind DATA/mdtest-hard/ -newer RESULTS/timestampfile -size 3901c -name *01* -C -q 10000",
    ),
    (
        "mdworkbench-bench",
        "./md-workbench --dataPacketType=timestamp --process-reports -a POSIX -o=DATA/mdworkbench \
         -t=0.500000 -O=1 --run-info-file=RESULTS/mdworkbench.status -D=10 -G=-1958723384 -P=3 -I=2 -2 \
         -R=2 -X",
    ),
    (
        "ior-easy-read",
        "./ior --dataPacketType=timestamp -g -G 9247436 -k -e -o DATA/ior-easy/ior_file_easy -C -Q 1 -O \
         stoneWallingStatusFile=RESULTS/ior-easy.stonewall -t 2m -b 4m -F -r -R -a POSIX -O \
         saveRankPerformanceDetailsCSV=RESULTS/ior-easy-read.csv",
    ),
    (
        "mdtest-easy-stat",
        "./mdtest --dataPacketType=timestamp -n 102 -u -L -F -P -G 601504460 -N 1 -d DATA/mdtest-easy -x \
         RESULTS/mdtest-easy.stonewall -T --saveRankPerformanceDetails=RESULTS/mdtest-easy-stat.csv -a \
         POSIX",
    ),
    (
        "ior-hard-read",
        "./ior --dataPacketType=timestamp -C -Q 1 -g -G=9248104 -k -e -o DATA/ior-hard/file -O \
         stoneWallingStatusFile=RESULTS/ior-hard.stonewall -t 47008 -b 47008 -s 20 -r -R -a POSIX -O \
         saveRankPerformanceDetailsCSV=RESULTS/ior-hard-read.csv",
    ),
    (
        "mdtest-hard-stat",
        "./mdtest --dataPacketType=timestamp -n 102 -t -w 3901 -e 3901 -P -G=601505128 -N 1 -F -d \
         DATA/mdtest-hard -x RESULTS/mdtest-hard.stonewall -T \
         --saveRankPerformanceDetails=RESULTS/mdtest-hard-stat.csv -a POSIX",
    ),
    (
        "mdworkbench-delete",
        "./md-workbench --dataPacketType=timestamp --process-reports -a POSIX -o=DATA/mdworkbench \
         -t=0.500000 -O=1 --run-info-file=RESULTS/mdworkbench.status -D=10 -G=-1958723384 -P=3 -I=2 -3",
    ),
    (
        "mdtest-easy-delete",
        "./mdtest --dataPacketType=timestamp -n 102 -u -L -F -P -G 601504460 -N 1 -d DATA/mdtest-easy -x \
         RESULTS/mdtest-easy.stonewall -r --saveRankPerformanceDetails=RESULTS/mdtest-easy-delete.csv -a \
         POSIX",
    ),
    (
        "mdtest-hard-read",
        "./mdtest --dataPacketType=timestamp -n 102 -t -w 3901 -e 3901 -P -G=601505128 -N 1 -F -d \
         DATA/mdtest-hard -x RESULTS/mdtest-hard.stonewall -E -X \
         --saveRankPerformanceDetails=RESULTS/mdtest-hard-read.csv -a POSIX",
    ),
    (
        "mdtest-hard-delete",
        "./mdtest --dataPacketType=timestamp -n 102 -t -w 3901 -e 3901 -P -G=601505128 -N 1 -F -d \
         DATA/mdtest-hard -x RESULTS/mdtest-hard.stonewall -r \
         --saveRankPerformanceDetails=RESULTS/mdtest-hard-delete.csv -a POSIX",
    ),
    (
        "ior-rnd4K-easy-read",
        "./ior --dataPacketType=timestamp -g -G 9247436 -k -e -o DATA/ior-easy/ior_file_easy -F -r -D 1 \
         -z -z -a POSIX -O saveRankPerformanceDetailsCSV=RESULTS/ior-rnd4K-easy-read.csv -t=4096 -b=4096 \
         -s=10000000 -O stoneWallingWearOut=1 -C -Q 2",
    ),
];

/// The words of a command in an order of their own, with one way to give `-G` a value.
fn words(line: &str) -> Vec<String> {
    let spaced = line.replace("-G=", "-G ");
    let mut words: Vec<String> = spaced.split(' ').map(str::to_owned).collect();
    words.sort();
    words
}

/// Whether `result`, of a run with that ini file, has the commands and the keys that it has in `result.txt`.
pub(super) fn is_written_as_by_io500(result: &str) {
    let root =
        result.split("result-dir      = ").nth(1).and_then(|text| text.split("/results\n").next());
    let root = root.expect("where it ran");
    for (name, line) in LINES {
        let section = result.split(&format!("\n[{name}]\n")).nth(1).expect(name);
        let own = section.split("exe             = ").nth(1).expect(name).lines().next().unwrap();
        let own = own
            .replace(&format!("{root}/data"), "DATA")
            .replace(&format!("{root}/results"), "RESULTS");
        // How we get at files is ours to say, and our ranks have no queues.
        let own = own.split(" -a NATIVE ").next().unwrap();
        let line = line.replace(" -a POSIX", "").replace(" -q 10000", "");
        assert_eq!(words(&format!("./{own}")), words(&line), "{name}");
    }
    let is_written = |section: &str, keys: &[&str]| {
        let lines = result
            .split(&format!("[{section}]\n"))
            .nth(1)
            .expect(section)
            .split("\n[")
            .next()
            .unwrap()
            .lines();
        let own =
            lines.filter(|line| !line.starts_with(';')).filter_map(|line| line.split_once(" = "));
        let own: Vec<&str> = own.map(|(key, _)| key.trim()).collect();
        assert_eq!(own, keys, "{section}");
    };
    is_written("run", &["procs", "version", "config-hash", "result-dir", "mode"]);
    is_written(
        "mdtest-hard-write",
        &["t_start", "exe", "rate-stonewall", "score", "t_delta", "t_end"],
    );
    is_written(
        "ior-hard-write",
        &["t_start", "exe", "throughput-stonewall", "score", "t_delta", "t_end"],
    );
    is_written(
        "find",
        &["t_start", "exe", "nproc", "found", "total-files", "score", "t_delta", "t_end"],
    );
    let sizes = ["t_start", "filesPerProc", "precreatePerSet", "exe", "maxOpTime"];
    is_written("mdworkbench-create", &[&sizes[..], &["score", "t_delta", "t_end"]].concat());
    let second = ["scoreIteration0", "maxOpTime0", "score", "t_delta", "t_end"];
    is_written("mdworkbench-bench", &[&sizes[..], &second].concat());
    is_written("SCOREX", &["MD", "BW", "SCORE", "hash"]);
    assert!(
        result.contains("\n; START 2") && result.lines().last().unwrap().starts_with("; END 2")
    );
}

/// What its phases reached in an extended run of two ranks on a local disk.
const REACHED: [(&str, f64); 18] = [
    ("ior-easy-write", 0.271_461),
    ("mdtest-easy-write", 0.602_999),
    ("mdworkbench-create", 7.130_139),
    ("find-easy", 10.552_828),
    ("ior-hard-write", 0.251_047),
    ("mdtest-hard-write", 0.315_156),
    ("find", 1_348.131_990),
    ("find-hard", 928.160_386),
    ("mdworkbench-bench", 174.502_990),
    ("ior-easy-read", 0.162_811),
    ("mdtest-easy-stat", 8.909_478),
    ("ior-hard-read", 0.302_289),
    ("mdtest-hard-stat", 663.655_696),
    ("mdworkbench-delete", 0.536_085),
    ("mdtest-easy-delete", 158.634_796),
    ("mdtest-hard-read", 104.600_457),
    ("mdtest-hard-delete", 15.296_328),
    ("ior-rnd4K-easy-read", 4.381_828),
];

#[test]
fn its_scores_and_hashes_come_of_its_phases() {
    let scores = scores(&REACHED);
    let version = "io500-isc26_v2-26-g02091cf254d8";
    let standard = Total { bandwidth: 0.240_653, metadata: 28.061_509, score: 2.598_673 };
    let extended = Total { bandwidth: 0.240_653, metadata: 41.666_725, score: 3.166_582 };
    for (total, is_extended, hash) in
        [(standard, false, 0x9712_837D_u32), (extended, true, 0xE835_01D2)]
    {
        let own = Total::of(&scores, is_extended);
        // As exact as the digits of each phase are.
        let is_near = |one: f64, other: f64| (one / other - 1.0).abs() < 4e-6;
        assert!(is_near(own.bandwidth, total.bandwidth) && is_near(own.metadata, total.metadata));
        assert!(is_near(own.score, total.score), "{own:?}");
        assert_eq!(total.hash(&scores, is_extended, false, version), hash);
        assert_ne!(total.hash(&scores, is_extended, true, version), hash, "it says invalid");
    }
}

#[test]
fn a_configuration_has_its_hash() {
    let hash = |text: &str| format!("{:X}", ini::hash(&Config::parse(text, false).expect(text)));
    assert_eq!(hash("[debug]\npause-dir = "), "9736CCCB");
    let text = "[global]\ndatadir = ./dät\ntimestamp-datadir = 0\ndrop-caches = true\n[find]\nexternal-extra-args = \n\
                nproc = 2\n[ior-hard]\ncollective = false\n[mdworkbench]\nwaitingTime = 1.5\n";
    assert_eq!(hash(text), "D1378645");
}
