//! The benchmarks do what they count: on the mount, through the client library and on a directory, by
//! threads and by processes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{run_and, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::statistics::samples;

const LIMIT: Duration = Duration::from_secs(300);

/// Where a benchmark works, and the words that name it.
struct Place {
    words: Vec<String>,
    /// What to put before a name below it.
    prefix: String,
    /// Where the same can be seen.
    seen: std::path::PathBuf,
    /// Whether the servers of the file system see it.
    counted: bool,
}

fn places(cluster: &Cluster) -> Outcome<Vec<Place>> {
    let local = cluster.logs().join("local");
    fs::create_dir_all(&local).context("local")?;
    let place = |path: &Path, counted| Place {
        words: Vec::new(),
        prefix: path.display().to_string(),
        seen: path.to_owned(),
        counted,
    };
    let mut words = vec!["-a".to_owned(), "NATIVE".to_owned()];
    words.extend(["--native.source".to_owned(), cluster.source()]);
    words.extend(cluster.port().into_iter().flat_map(|port| ["--native.port".to_owned(), port]));
    let native = |more: &[&str]| {
        let more = more.iter().map(|word| (*word).to_owned());
        let words = words.iter().cloned().chain(more).collect();
        Place { words, prefix: String::new(), seen: cluster.mnt(), counted: true }
    };
    Ok(vec![
        place(&local, false),
        place(&cluster.mnt(), true),
        native(&[]),
        native(&["--native.clients", "2"]),
        native(&["--processes"]),
        Place { words: vec!["--processes".to_owned()], ..place(&cluster.mnt(), true) },
    ])
}

/// Runs a benchmark at a place; answers what it printed.
fn bench(cluster: &Cluster, place: &Place, words: &str) -> Outcome<String> {
    let mut all = vec!["bench"];
    all.extend(words.split(' '));
    all.extend(place.words.iter().map(String::as_str));
    cluster.must(&all)
}

fn clear(cluster: &Cluster) -> Outcome {
    for parameter in ["obdfilter.*.stats=clear", "mdt.*.md_stats=clear"] {
        cluster.must(&["lctl", "set_param", "-n", parameter])?;
    }
    Ok(())
}

fn counts(cluster: &Cluster, place: &Place, wanted: &[(&str, u64)]) -> Outcome {
    for (line, wanted) in wanted.iter().filter(|_| place.counted) {
        let (count, _) = samples(cluster, "mdt.*.md_stats", line)?;
        ensure(count == *wanted, || {
            format!("{:?}: {line} {count} times, not {wanted}", place.words)
        })?;
    }
    Ok(())
}

fn rate(text: &str, name: &str) -> Outcome<f64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
    number.ok_or_else(|| format!("no rate of {name} in {text}"))
}

fn mdtest(cluster: &Cluster) -> Outcome {
    for place in places(cluster)? {
        let at = format!("-d {}/md", place.prefix);
        let common = format!("mdtest {at} -np 2 -n 7 -F -N 1 -G 5 -u");
        clear(cluster)?;
        bench(cluster, &place, &format!("{common} -C -w 3901"))?;
        for rank in 0..2 {
            // Each rank creates in the directory of the next one.
            let tree = format!("md/test-dir.0-0/mdtest_tree.{}.0", (rank + 1) % 2);
            for number in 0..7 {
                let path = place.seen.join(format!("{tree}/file.mdtest.{rank}.{number}"));
                let data = fs::read(&path).context(path.display())?;
                let first = (rank as u64) << 32 | 5;
                let right = data.len() == 3901 && data[..8] == first.to_le_bytes();
                ensure(right, || format!("{}: {} bytes", path.display(), data.len()))?;
            }
        }
        let text = bench(cluster, &place, &format!("{common} -T -E -e 3901 -X"))?;
        ensure(rate(&text, "File read")? > 0.0, || text.clone())?;
        bench(cluster, &place, &format!("{common} -r"))?;
        // Files, two trees, the test directory and the one that was asked for.
        counts(cluster, &place, &[("unlink", 14), ("mkdir", 4), ("rmdir", 3)])?;
        fs::remove_dir(place.seen.join("md")).context("an empty directory")?;
        clear(cluster)?;
        let text = bench(cluster, &place, &format!("mdtest {at} -np 2 -n 15 -D -i 2"))?;
        ensure(rate(&text, "Directory rename")? > 0.0, || text.clone())?;
        counts(cluster, &place, &[("mkdir", 65), ("rmdir", 65), ("rename", 60)])?;
        let left = place.seen.join("md");
        ensure(!left.exists(), || format!("{} is left", left.display()))?;
    }
    Ok(())
}

#[test]
fn mdtest_does_what_it_counts() {
    scene("mdtest", 2, LIMIT, mdtest);
}

fn ior(cluster: &Cluster) -> Outcome {
    const KIB: u64 = 1024;
    for place in places(cluster)? {
        let at = format!("-o {}/ior", place.prefix);
        clear(cluster)?;
        let common = format!("ior {at} -np 2 -b 256k -t 64k -s 3 -k -G 9 -l offset");
        bench(cluster, &place, &format!("{common} -w -e"))?;
        let data = fs::read(place.seen.join("ior")).context("the shared file")?;
        ensure(data.len() as u64 == 2 * 3 * 256 * KIB, || format!("{} bytes", data.len()))?;
        for (transfer, data) in data.chunks(64 << 10).enumerate() {
            let (place, rank) = (transfer as u64 * 64 * KIB, transfer as u64 / 4 % 2);
            let first = rank << 32 | place;
            ensure(data[..8] == first.to_le_bytes(), || format!("wrong stamp at {place}"))?;
        }
        let (_, written) = match place.counted {
            true => samples(cluster, "obdfilter.*.stats", "write_bytes")?,
            false => (0, 2 * 3 * 256 * KIB),
        };
        // On one mount the ranks' fsyncs meet, and what one sends the other may send too.
        let wanted = 2 * 3 * 256 * KIB;
        let fits = (wanted..=2 * wanted).contains(&written);
        ensure(fits, || format!("{written} bytes reached the OSTs, not {wanted}"))?;
        let json = cluster.logs().join("ior.json");
        let directives = format!("-O summaryFormat=JSON,summaryFile={}", json.display());
        bench(cluster, &place, &format!("{common} -R -C -O numTasksOnNode0=1 {directives}"))?;
        let output = fs::read_to_string(&json).context("the summary")?;
        ensure(output.contains("\"operation\": \"read\""), || output.clone())?;
        let mut file = fs::OpenOptions::new().write(true).open(place.seen.join("ior"));
        let spoiled = file.as_mut().map(|file| {
            use std::os::unix::fs::FileExt;
            file.write_all_at(&[0xff], 300 * KIB).and_then(|()| file.sync_all())
        });
        spoiled.map_err(|error| error.to_string())?.context("a wrong byte")?;
        drop(file);
        let output = bench(cluster, &place, &format!("{common} -R"));
        let output = output.err().ok_or("wrong data was not reported")?;
        let line = "rank 1: wrong data in";
        let offset = format!(" at offset {}, which rank 1 wrote", 300 * KIB);
        ensure(output.contains(line) && output.contains(&offset), || output.clone())?;
        fs::remove_file(place.seen.join("ior")).context("the shared file")?;
        let words =
            format!("ior {at} -np 2 -F -b 128k -t 32k -z --random-offset-seed 4 -w -r -R -i 2");
        let text = bench(cluster, &place, &words)?;
        ensure(text.contains("Max Write: ") && text.contains("Max Read:  "), || text.clone())?;
        ensure(!place.seen.join("ior.00000001").exists(), || "a file is left".to_owned())?;
    }
    Ok(())
}

#[test]
fn ior_does_what_it_counts() {
    scene("ior", 2, LIMIT, ior);
}

fn workbench(cluster: &Cluster) -> Outcome {
    let status = cluster.logs().join("md-workbench.status");
    for place in places(cluster)? {
        let at = format!("-o {}/wb --run-info-file {}", place.prefix, status.display());
        let common = format!("md-workbench {at} -np 2 -D 2 -P 5 -I 3 -G 5 --dataPacketType offset");
        clear(cluster)?;
        bench(cluster, &place, &format!("{common} -1"))?;
        let text = bench(cluster, &place, &format!("{common} -2 -R 2 -X"))?;
        ensure(text.matches(" objects:12 ").count() == 2, || text.clone())?;
        for (rank, set) in [(0u64, 0), (0, 1), (1, 0), (1, 1)] {
            // Two iterations have removed six and created six new ones.
            for number in 6..11u64 {
                let path = place.seen.join(format!("wb/{rank}_{set}/file-{number}"));
                let data = fs::read(&path).context(path.display())?;
                let stamp = rank << 32 | (number * 2 + set);
                let right = data.len() == 3901 && data[..8] == stamp.to_le_bytes();
                ensure(right, || format!("{}: {} bytes", path.display(), data.len()))?;
            }
            let set = place.seen.join(format!("wb/{rank}_{set}"));
            let names = fs::read_dir(&set).context(set.display())?.count();
            ensure(names == 5, || format!("{names} files in {}", set.display()))?;
        }
        bench(cluster, &place, &format!("{common} -3"))?;
        counts(cluster, &place, &[("unlink", 2 * 12 + 20), ("mkdir", 4 + 1), ("rmdir", 4 + 1)])?;
        let left = place.seen.join("wb");
        ensure(!left.exists(), || format!("{} is left", left.display()))?;
    }
    Ok(())
}

#[test]
fn md_workbench_does_what_it_counts() {
    scene("md-workbench", 2, LIMIT, workbench);
}

fn io500(cluster: &Cluster) -> Outcome {
    let ini = cluster.logs().join("io500.ini");
    let text = "[ior-easy]\nblockSize = 16m\n[ior-hard]\nsegmentCount = 50\n[mdtest-easy]\nn = 50\n\
                [mdtest-hard]\nn = 102\n";
    fs::write(&ini, text).context("io500.ini")?;
    let shown = |path: &Path| path.display().to_string();
    // On the mount, through the client library, and by processes.
    let places = places(cluster)?;
    for (number, place) in [1, 2, 5].into_iter().map(|number| (number, &places[number])) {
        let (results, name) = (shown(&cluster.logs()), format!("run{number}"));
        clear(cluster)?;
        let words = format!(
            "io500 {} -np 2 --stonewall 2 --datadir {}/io500 --resultdir {results} --timestamp {name}",
            shown(&ini),
            place.prefix
        );
        let text = bench(cluster, place, &words)?;
        let phases = text.lines().filter(|line| line.starts_with("[RESULT]")).count();
        ensure(phases == 12 && text.contains("\n[SCORE ] Bandwidth "), || text.clone())?;
        // Read phases verify what they read, and find finds number 101 of each rank.
        ensure(!text.contains("occured") && !text.contains("wrong data"), || text.clone())?;
        let result = cluster.logs().join(name).join("result.txt");
        let result = fs::read_to_string(result).context("result.txt")?;
        ensure(result.contains("\nfound           = 2\n"), || result.clone())?;
        // IOR removes first what may be there. The kernel looks whether it is; the client library asks, and once
        // more in case the directory that it remembers is an old one.
        let files = 2 * (50 + 102) + 2 + 1;
        let absent = if number == 2 { 2 * (2 + 1) } else { 0 };
        counts(cluster, place, &[("unlink", files + absent)])?;
        let is_left = place.seen.join("io500").exists();
        ensure(!is_left, || format!("{:?}: directories are left", place.words))?;
    }
    Ok(())
}

/// The optional phases, on a mount and through the client library: what was made is there, and then gone.
fn io500_extended(cluster: &Cluster) -> Outcome {
    let ini = cluster.logs().join("extended.ini");
    let text = "[ior-easy]\nblockSize = 16m\n[ior-hard]\nsegmentCount = 50\n[mdtest-easy]\nn = 102\n\
                [mdtest-hard]\nn = 102\n[mdworkbench]\nprecreatePerSet = 3\nfilesPerProc = 2\n";
    fs::write(&ini, text).context("extended.ini")?;
    let places = places(cluster)?;
    for (number, place) in [1, 2, 5].into_iter().map(|number| (number, &places[number])) {
        let (results, name) = (cluster.logs(), format!("extended{number}"));
        clear(cluster)?;
        let words = format!(
            "io500 {} -np 2 --mode extended --stonewall 2 --datadir {}/io500 --resultdir {} --timestamp {name}",
            ini.display(),
            place.prefix,
            results.display(),
        );
        let text = bench(cluster, place, &words)?;
        let phases = text.lines().filter(|line| line.starts_with("[RESULT]")).count();
        ensure(phases == 15 && text.contains("\n[SCOREX] Bandwidth "), || text.clone())?;
        ensure(!text.contains("occured") && !text.contains("wrong data"), || text.clone())?;
        let result = results.join(name).join("result.txt");
        let result = fs::read_to_string(result).context("result.txt")?;
        // Each search finds number 101 of each rank.
        let found = |count| result.matches(&format!("\nfound           = {count}\n")).count();
        ensure(found(2) == 3, || result.clone())?;
        // Files of mdtest and of IOR; ten sets of each rank, of three files and two more in each of two iterations.
        let made = 2 * (102 + 102) + 2 + 1 + 2 * 10 * (3 + 4);
        let absent = if number == 2 { 2 * (2 + 1) } else { 0 };
        counts(cluster, place, &[("unlink", made + absent)])?;
        let is_left = place.seen.join("io500").exists();
        ensure(!is_left, || format!("{:?}: directories are left", place.words))?;
    }
    Ok(())
}

#[test]
fn io500_extended_runs_its_phases() {
    scene("io500-extended", 2, LIMIT, io500_extended);
}

#[test]
fn io500_runs_its_phases() {
    scene("io500", 2, LIMIT, io500);
}

/// Runs a benchmark that would take hours, interrupts it, and looks what is left.
fn interrupted(cluster: &Cluster, place: &Place, words: &str, signal: Signal) -> Outcome {
    let words: Vec<&str> = words.split(' ').collect();
    let mut command: Command = cluster.command(&["bench"]);
    command.args(words).args(&place.words);
    let begun = place.seen.join("stop");
    let finished = run_and(&mut command, &cluster.logs().join("stop"), LIMIT, |pid| {
        wait_until("a benchmark that works", LIMIT, || {
            fs::read_dir(&begun).is_ok_and(|mut all| all.next().is_some()) || begun.is_file()
        })?;
        kill_process(pid, signal).context("an interrupt")
    })?;
    // As shells report it.
    let code = 128 + signal.as_raw();
    ensure(finished.status.code() == Some(code), || finished.output.clone())?;
    ensure(finished.output.ends_with("sheen bench: interrupted\n"), || finished.output.clone())?;
    ensure(!begun.exists(), || format!("{:?}: something is left", place.words))
}

fn ends(cluster: &Cluster) -> Outcome {
    for place in places(cluster)? {
        let at = format!("{}/stop", place.prefix);
        for (words, signal) in [
            (format!("mdtest -d {at} -np 2 -n 1000000 -u"), Signal::INT),
            // Its terminal was closed.
            (format!("mdtest -d {at} -np 2 -n 1000000 -F"), Signal::HUP),
            (format!("ior -o {at} -np 2 -b 100g -t 64k -w -k"), Signal::TERM),
            (format!("md-workbench -o {at} -np 2 -P 1000000"), Signal::INT),
        ] {
            interrupted(cluster, &place, &words, signal)?;
        }
    }
    for words in ["mdtest -S", "mdtest -w x", "ior -t", "ior -V", "md-workbench -L", "nothing"] {
        let words: Vec<&str> = ["bench"].into_iter().chain(words.split(' ')).collect();
        let finished = cluster.run(&words)?;
        let (code, lines) = (finished.status.code(), finished.output.lines().count());
        ensure((code, lines) == (Some(2), 1), || format!("{words:?}: {}", finished.output))?;
    }
    Ok(())
}

#[test]
fn an_interrupt_leaves_nothing() {
    scene("bench-ends", 2, LIMIT, ends);
}
