//! The page of `--metrics`, scraped and read as OpenMetrics asks: types, help, one family after the
//! other, no series twice, escapes, and the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const MIB: usize = 1 << 20;

/// Labels of a sample, and its value.
type Series = BTreeMap<String, String>;

/// A page that was read.
#[derive(Default)]
struct Page {
    types: BTreeMap<String, String>,
    samples: Vec<(String, Series, u64)>,
}

impl Page {
    /// Reads a page by the rules of OpenMetrics 1.0, as far as whole numbers go.
    fn read(text: &str) -> Outcome<Self> {
        let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
        let mut page = Self::default();
        let mut helped = BTreeSet::new();
        let mut series = BTreeSet::new();
        let mut family = String::new();
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or(line)?;
                ensure(["counter", "gauge", "unknown"].contains(&kind), || line.to_owned())?;
                let is_new = page.types.insert(name.to_owned(), kind.to_owned()).is_none();
                ensure(is_new, || format!("{name} in two places"))?;
                family = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or(line)?;
                let is_right = name == family && !help.is_empty();
                ensure(is_right && helped.insert(family.clone()), || line.to_owned())?;
            } else {
                let (name, labels, value) = sample(line).ok_or_else(|| line.to_owned())?;
                let is_counter = page.types.get(&family).is_some_and(|kind| kind == "counter");
                let wanted = if is_counter { format!("{family}_total") } else { family.clone() };
                ensure(name == wanted, || format!("{name} within {family}"))?;
                ensure(series.insert((name.clone(), labels.clone())), || format!("twice: {line}"))?;
                page.samples.push((name, labels, value));
            }
        }
        ensure(helped.len() == page.types.len(), || "a family without help".to_owned())?;
        Ok(page)
    }

    /// The sum over all series of this name with these labels.
    fn sum(&self, name: &str, wanted: &[(&str, &str)]) -> u64 {
        let fits = |labels: &Series| {
            let has = |(key, value): &(&str, &str)| labels.get(*key).is_some_and(|it| it == value);
            wanted.iter().all(has)
        };
        let samples =
            self.samples.iter().filter(|(known, labels, _)| known == name && fits(labels));
        samples.map(|(_, _, value)| value).sum()
    }
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Option<(String, Series, u64)> {
    let end = line.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Series::new();
    if let Some(tail) = rest.strip_prefix('{') {
        rest = tail;
        while !rest.starts_with('}') {
            let (key, tail) = rest.split_once("=\"")?;
            let (value, tail) = quoted(tail)?;
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if !key.chars().all(is_plain) || labels.insert(key.to_owned(), value).is_some() {
                return None;
            }
            rest = tail.strip_prefix(',').unwrap_or(tail);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    Some((name.to_owned(), labels, value))
}

/// A label's value up to its quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[place + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                letter @ ('\\' | '"') => letter,
                _ => return None,
            }),
            letter => value.push(letter),
        }
    }
    None
}

fn scrape(address: &str) -> Outcome<Page> {
    let mut stream = TcpStream::connect(address).context("connect")?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).context("timeout")?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: sheen\r\n\r\n").context("ask")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    ensure(head.starts_with("HTTP/1.1 200 OK\r\n"), || head.to_owned())?;
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    ensure(head.contains(kind), || head.to_owned())?;
    Page::read(body).map_err(|fault| format!("{fault}\n{body}"))
}

fn scraped(cluster: &Cluster, address: &str) -> Outcome {
    let before = scrape(address)?;
    ensure(before.sum("lustre_health_healthy", &[]) == 1, || "not healthy".to_owned())?;
    let name = "my\"job\"\\1";
    cluster.must(&["lctl", "set_param", "jobid_var=nodelocal"])?;
    cluster.must(&["lctl", "set_param", &format!("jobid_name={name}")])?;
    let mnt = cluster.mnt();
    for folder in 0..5 {
        fs::create_dir(mnt.join(format!("folder{folder}"))).context("mkdir")?;
    }
    fs::write(mnt.join("data"), vec![7; 3 * MIB]).context("write")?;
    fs::File::open(mnt.join("data")).and_then(|file| file.sync_all()).context("fsync")?;
    let after = scrape(address)?;
    let bytes = 3 * MIB as u64;
    for (name, labels, wanted) in [
        ("lustre_stats_total", &[("component", "mdt"), ("operation", "mkdir")][..], 5),
        ("lustre_write_bytes_total", &[("component", "ost")], bytes),
        ("lustre_client_export_bytes_total", &[("name", "write_bytes")], bytes),
        ("lustre_job_stats_total", &[("jobid", name), ("operation", "mkdir")], 5),
        ("lustre_job_write_bytes_total", &[("jobid", name)], bytes),
        ("lustre_osp_active", &[], 2),
        ("recovery_status", &[("kind", "MDT")], 1),
    ] {
        let found = after.sum(name, labels);
        ensure(found == wanted, || format!("{name} {labels:?} is {found}, not {wanted}"))?;
    }
    let accesses: u64 = after.sum("lustre_disk_io_total", &[("operation", "write")]);
    ensure(accesses > 0, || "no access to a store".to_owned())?;
    let stats = cluster.must(&["lctl", "get_param", "-n", "mdt.*.job_stats"])?;
    let shown = "job_id:          \"my\\x22job\\x22\\x5C1\"";
    ensure(stats.contains(shown), || stats.clone())?;
    let mkdirs = stats.lines().find(|line| line.trim_start().starts_with("mkdir:"));
    ensure(mkdirs.is_some_and(|line| line.contains("samples:           5,")), || stats.clone())?;
    cluster.must(&["lctl", "set_param", "mdt.*.job_stats=clear"])?;
    let stats = cluster.must(&["lctl", "get_param", "-n", "mdt.*.job_stats"])?;
    ensure(!stats.contains("my\\x22"), || stats.clone())
}

/// What its stores have for caches, as the server was started.
fn has_memory(cluster: &Cluster, mib: &str) -> Outcome {
    let line = fs::read(format!("/proc/{}/cmdline", cluster.server_pid()?)).context("cmdline")?;
    let mut words = line.split(|byte| *byte == 0).skip_while(|word| **word != *b"--store-memory");
    let given = words.nth(1).map(String::from_utf8_lossy);
    ensure(given.as_deref() == Some(mib), || format!("{given:?} instead of {mib}"))
}

/// The address is remembered until another is given, or none; so is the memory of the servers.
fn remembered(cluster: &Cluster, address: &str) -> Outcome {
    let (dir, mnt) = (cluster.dir(), cluster.mnt());
    let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
    let up = ["up", "--dir", &dir, "--mount", &mnt];
    cluster.down()?;
    cluster.must(&up)?;
    scrape(address)?;
    has_memory(cluster, "200")?;
    cluster.down()?;
    cluster.must(&[&up[..], &["--metrics", "none", "--store-memory", "300"]].concat())?;
    cluster.down()?;
    cluster.must(&up)?;
    has_memory(cluster, "300")?;
    ensure(TcpStream::connect(address).is_err(), || "there still".to_owned())
}

#[test]
fn a_scrape_reports_what_was_done() {
    // A port that is free now: the server takes it a moment later.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).unwrap().port();
    let port = port.to_string();
    let cluster = Cluster::start_with("metrics", 2, &["--metrics", &port, "--store-memory", "200"]);
    let cluster = Arc::new(cluster.unwrap_or_else(|fault| panic!("{fault}")));
    play(&cluster, LIMIT, move |cluster| {
        let address = format!("127.0.0.1:{port}");
        scraped(cluster, &address)?;
        remembered(cluster, &address)
    });
}

#[test]
fn what_is_no_openmetrics_is_reported() {
    for (text, fault) in [
        ("# TYPE a gauge\n# HELP a A.\na 1\n", "no end"),
        ("# TYPE a gauge\na 1\n# EOF\n", "a family without help"),
        ("# TYPE a gauge\n# HELP a A.\na 1\na 1\n# EOF\n", "twice: a 1"),
        ("# TYPE a counter\n# HELP a A.\na 1\n# EOF\n", "a within a"),
        ("# TYPE a gauge\n# HELP a A.\na{b=\"c} 1\n# EOF\n", "a{b=\"c} 1"),
    ] {
        assert_eq!(Page::read(text).err().as_deref(), Some(fault));
    }
}
