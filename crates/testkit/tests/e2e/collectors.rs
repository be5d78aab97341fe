//! What collectors read of Lustre's servers, read here: lustrefs-exporter by its own parser,
//! telegraf's lustre2 input and collectl by what their sources ask for.
//!
//! Facts of the latter two, in our words: telegraf splits each line of `stats` and `md_stats` at
//! blanks and takes fields by number (samples the second, sum the seventh), of `job_stats` the word
//! behind `job_id:` and the words behind commas, of `brw_stats` those lines below a known title
//! whose first word ends with a colon, with reads in the second and writes in the sixth field.
//! collectl reads `stats` below `obdfilter.*` and `mdt.*`: `read_bytes`, `write_bytes` and the
//! names of operations.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use lustre_collector::{LNetStats, OssStat, Record, TargetStats};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const MIB: usize = 1 << 20;

/// Two MiB written and read directly, and a few names.
fn work(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    fs::write(mnt.join("data"), vec![7; 2 * MIB]).context("write")?;
    let file = fs::File::open(mnt.join("data")).context("open")?;
    file.sync_all().context("fsync")?;
    cluster.drop_locks()?;
    let mut bytes = vec![0; 2 * MIB];
    file.read_exact_at(&mut bytes, 0).context("read")?;
    ensure(bytes.iter().all(|byte| *byte == 7), || "other bytes".to_owned())?;
    fs::create_dir(mnt.join("folder")).context("mkdir")
}

/// What `lustre_collector` makes of the parameters that it asks for, as the exporter calls it: one
/// `get_param` with all of them, and what is not there is left out.
fn collected(cluster: &Cluster) -> Outcome<Vec<Record>> {
    let asked = lustre_collector::parser::params();
    let mut words = vec!["lctl", "get_param"];
    words.extend(asked.iter().map(String::as_str));
    let output = cluster.command(&words).output().context("lctl")?.stdout;
    let parsed = lustre_collector::parse_lctl_output(&output);
    parsed.map_err(|error| format!("{error}\n{}", String::from_utf8_lossy(&output)))
}

/// The kinds of records of one target.
fn kinds(records: &[Record], target: &str) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for record in records {
        let text = format!("{record:?}");
        if text.contains(&format!("\"{target}\"")) {
            let kind = text.trim_start_matches("Target(").split('(').next().unwrap_or_default();
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
    }
    kinds
}

/// The exporter asks for where recovery is by itself.
fn ask_for_recovery(cluster: &Cluster) -> Outcome {
    let output = cluster.must(&["lctl", "get_param", "{obdfilter,mdt}.*.recovery_status"])?;
    let parsed = lustre_collector::parse_recovery_status_output(output.as_bytes());
    let records = parsed.map_err(|error| format!("{error}\n{output}"))?;
    let is_status = |record: &&Record| {
        matches!(record, Record::Target(TargetStats::RecoveryStatus(one))
            if format!("{:?}", one.value) != "Unknown")
    };
    let count = records.iter().filter(is_status).count();
    ensure(count == 3, || format!("{count} of 3 targets in {output}"))
}

/// And for networks by `lnetctl`.
fn ask_for_networks(cluster: &Cluster) -> Outcome {
    let net = cluster.must(&["lnetctl", "net", "show", "-v", "4"])?;
    let all = cluster.must(&["lnetctl", "stats", "show"])?;
    let parsed = lustre_collector::parse_lnetctl_output(net.as_bytes());
    let mut records = parsed.map_err(|error| format!("{error}\n{net}"))?;
    let parsed = lustre_collector::parse_lnetctl_stats(all.as_bytes());
    records.extend(parsed.map_err(|error| format!("{error}\n{all}"))?);
    let (mut sent, mut bytes) = (0, 0);
    for record in &records {
        match record {
            Record::LNetStat(LNetStats::SendCount(one)) => sent += one.value,
            Record::LNetStat(LNetStats::SendLength(one)) => bytes += one.value,
            _ => {}
        }
    }
    // The server and the mount have an interface each.
    let is_counted = sent > 0 && bytes > sent && records.len() == 3 * 3 + 3;
    ensure(is_counted, || format!("{sent} messages, {bytes} bytes: {records:?}"))
}

fn ask_exporter(cluster: &Cluster) -> Outcome {
    work(cluster)?;
    ask_for_recovery(cluster)?;
    ask_for_networks(cluster)?;
    let records = collected(cluster)?;
    for (target, wanted) in [
        (
            "sheen-OST0000",
            &[
                "Stats",
                "BrwStats",
                "FilesFree",
                "FilesTotal",
                "FsType",
                "KBytesAvail",
                "KBytesFree",
                "KBytesTotal",
                "NumExports",
                "TotDirty",
                "TotGranted",
                "TotPending",
                "ExportStats",
                "LockCount",
                "LockTimeouts",
                "ResourceCount",
            ][..],
        ),
        (
            "sheen-MDT0000",
            &["Stats", "BrwStats", "FsType", "NumExports", "LockCount", "ResourceCount"],
        ),
    ] {
        let found = kinds(&records, target);
        for kind in wanted {
            ensure(found.contains_key(*kind), || format!("{target}: no {kind} in {found:?}"))?;
        }
    }
    let is_service = |record: &&Record| match record {
        Record::LustreService(_) => true,
        Record::Target(TargetStats::Oss(one)) => !one.stats.is_empty(),
        Record::Target(TargetStats::Mds(one)) => !one.stats.is_empty(),
        _ => false,
    };
    let services = records.iter().filter(is_service).count();
    ensure(services >= 6, || format!("{services} services"))?;
    let (mut written, mut read) = (0, 0);
    for record in &records {
        match record {
            Record::Target(TargetStats::Stats(stats)) if stats.param.0 == "stats" => {
                let sum = |name: &str| {
                    let line = stats.value.iter().find(|line| line.name == name);
                    line.and_then(|line| line.sum).unwrap_or_default()
                };
                written += sum("write_bytes");
                read += sum("read_bytes");
            }
            Record::Target(TargetStats::Oss(OssStat { stats, .. })) => {
                ensure(stats.iter().all(|stat| stat.samples > 0), || format!("{stats:?}"))?;
            }
            _ => {}
        }
    }
    let bytes = 2 * MIB as u64;
    ensure((written, read) == (bytes, bytes), || format!("{written} written, {read} read"))?;
    let transfers = records.iter().filter_map(|record| match record {
        Record::Target(TargetStats::BrwStats(stats)) => Some(&stats.value),
        _ => None,
    });
    let sizes = transfers.flatten().filter(|one| one.name == "disk_iosize");
    let writes: u64 = sizes
        .flat_map(|one| &one.buckets)
        .map(|bucket| if bucket.write > 0 { bucket.name * bucket.write } else { 0 })
        .sum();
    ensure(writes >= bytes, || format!("writes of {writes} bytes at most"))
}

#[test]
fn the_exporters_own_parser_reads_all_that_it_asks_for() {
    scene("collectors", 2, LIMIT, ask_exporter);
}

/// Fields of the line of `text` that begins with `name`.
fn fields<'a>(text: &'a str, name: &str) -> Outcome<Vec<&'a str>> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&name)).ok_or_else(|| format!("no {name} in {text}"))
}

fn number(fields: &[&str], place: usize) -> Outcome<u64> {
    let word = fields.get(place).ok_or_else(|| format!("{fields:?} have no field {place}"))?;
    word.parse().context(word)
}

fn ask_by_fields(cluster: &Cluster) -> Outcome {
    work(cluster)?;
    let shown = |name: &str| cluster.must(&["lctl", "get_param", "-n", name]);
    let stats = shown("obdfilter.*.stats")?;
    for line in ["read_bytes", "write_bytes"] {
        let fields = fields(&stats, line)?;
        ensure(number(&fields, 1)? > 0 && number(&fields, 6)? > 0, || format!("{fields:?}"))?;
        ensure(fields[2..4] == ["samples", "[bytes]"], || format!("{fields:?}"))?;
    }
    let stats = shown("mdt.*.md_stats")?;
    for line in ["open", "close", "mkdir", "getattr"] {
        ensure(number(&fields(&stats, line)?, 1)? > 0, || format!("{line}: {stats}"))?;
    }
    let histograms = shown("osd-*.*OST*.brw_stats")?;
    for title in [
        "pages per bulk r/w",
        "discontiguous pages",
        "disk I/Os in flight",
        "I/O time (1/1000s)",
        "disk I/O size",
    ] {
        let section = histograms.split(title).skip(1).find(|section| section.contains(":\t\t"));
        let section = section.ok_or_else(|| format!("nothing of {title} in {histograms}"))?;
        let line = section.lines().nth(1).unwrap_or_default();
        let fields: Vec<_> = line.split_whitespace().collect();
        ensure(fields.len() == 8 && fields[0].ends_with(':') && fields[4] == "|", || {
            line.to_owned()
        })?;
        ensure(number(&fields, 1)? + number(&fields, 5)? > 0, || line.to_owned())?;
    }
    for (name, wanted) in [("health_check", "healthy"), ("mdt.*.eviction_count", "0")] {
        let output = shown(name)?;
        ensure(output.trim() == wanted, || format!("{name} is {output}"))?;
    }
    Ok(())
}

#[test]
fn fields_are_where_telegraf_and_collectl_look_for_them() {
    scene("collectors-fields", 2, LIMIT, ask_by_fields);
}
