//! Wireshark's own dissectors over our traffic.
//!
//! Debian's dissector is older than the protocol spoken here and calls some well-formed messages
//! malformed. So the recordings of a real Lustre say which kinds it understands: of those, none of
//! ours may be malformed. It says of a frame that something in it is malformed, and not of which of its
//! messages: frames with more than one are left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sheen_skip::needs_captures;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_workloads::{Context, Outcome, Size, big, ensure, folder, many, pair, plant, process};

/// Well-formed and malformed messages of each kind (`OST_READ reply`).
type Kinds = BTreeMap<String, [u32; 2]>;

#[test]
fn the_dissector_finds_nothing_malformed_that_it_understands() {
    let cluster = Cluster::start_with("wire", 4, &["--listen"]);
    let cluster = Arc::new(cluster.unwrap_or_else(|fault| panic!("{fault}")));
    play(&cluster, Duration::from_secs(900), |cluster| {
        let ports = process::listening_ports(cluster.server_pid()?);
        ensure(!ports.is_empty(), || "the server listens on no port".to_owned())?;
        let file = cluster.logs().join("wire.pcap");
        let recording = Recording::start(&file, &ports, cluster)?;
        let worked = work(cluster);
        recording.stop()?;
        worked?;
        let ours = decode(&file, &ports)?;
        let Some(captures) = needs_captures() else { return Ok(()) };
        let real = decode_all(&captures)?;
        println!("{}", table(&ours, &real));
        judge(&ours, &real)
    });
}

/// Something of everything that makes messages, by mounts whose messages go over the wire; their connections
/// begin while it is recorded.
fn work(cluster: &Cluster) -> Outcome {
    let (first, second) = (cluster.mount_by_tcp()?, cluster.mount_by_tcp()?);
    plant::run(&first)?;
    many::run(&first, many::count(Size::Tiny))?;
    big::run(&first, big::length(Size::Tiny))?;
    let pairs = folder(&first, "pair")?;
    let probe = env!("CARGO_BIN_EXE_sheen-probe");
    pair::run(&pairs, &second.join("pair"), probe.as_ref(), Size::Tiny)?;
    std::fs::remove_dir_all(&pairs).context("rm -r")
}

/// Faults: kinds that the dissector understands from a real Lustre and not from us.
fn judge(ours: &Kinds, real: &Kinds) -> Outcome {
    let total: u32 = ours.values().map(|[well, malformed]| well + malformed).sum();
    ensure(total > 1000, || format!("only {total} messages recorded and decoded"))?;
    let understood =
        |kind: &str| real.get(kind).is_some_and(|[well, malformed]| *well > 0 && *malformed == 0);
    let wrong = ours.iter().filter(|(kind, [_, bad])| *bad > 0 && understood(kind));
    let lines: Vec<String> =
        wrong.map(|(kind, [well, bad])| format!("{kind}: {bad} of {}", well + bad)).collect();
    ensure(lines.is_empty(), || format!("malformed for the dissector:\n{}", lines.join("\n")))
}

fn table(ours: &Kinds, real: &Kinds) -> String {
    let mut lines = vec!["kind: ours well/malformed, real well/malformed".to_owned()];
    for (kind, [well, bad]) in ours {
        let [real_well, real_bad] = real.get(kind).copied().unwrap_or_default();
        lines.push(format!("{kind}: {well}/{bad}, {real_well}/{real_bad}"));
    }
    lines.join("\n")
}

/// A dumpcap that runs.
struct Recording(Child);

impl Recording {
    /// Of this file system alone: other file systems run beside it at the same ports, and some of them die in the
    /// middle of a message.
    fn start(file: &Path, ports: &[u16], cluster: &Cluster) -> Outcome<Self> {
        let source = cluster.source();
        let host = source.split('@').next().unwrap_or_default();
        let ports: Vec<String> = ports.iter().map(|port| format!("tcp port {port}")).collect();
        let filter = format!("host {host} and ({})", ports.join(" or "));
        let log = cluster.logs().join("dumpcap.log");
        let mut command = Command::new("dumpcap");
        command.args(["-i", "lo", "-B", "64", "-P", "-f", &filter, "-w"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).context(log.display())?);
        let recording = Self(command.spawn().context("dumpcap")?);
        let begun = || process::text(&log).contains("File:");
        process::wait_until("a recording on lo", Duration::from_secs(20), begun).map_err(
            |error| {
                format!(
                    "{error}\n{}\nrun as root, or as a member of group wireshark",
                    process::text(&log)
                )
            },
        )?;
        Ok(recording)
    }

    fn stop(mut self) -> Outcome {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).context("dumpcap")?;
        self.0.wait().context("dumpcap").map(drop)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn decode(file: &Path, ports: &[u16]) -> Outcome<Kinds> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", "lnet || lustre", "-T", "fields"]);
    command.args(["-e", "_ws.col.Info", "-e", "_ws.malformed", "-e", "lnet.ksm_type"]);
    for port in ports {
        command.args(["-d", &format!("tcp.port=={port},lnet")]);
    }
    let output = command.stderr(Stdio::null()).output().context("tshark")?;
    ensure(output.status.success(), || format!("tshark: {}", output.status))?;
    Ok(count(&String::from_utf8_lossy(&output.stdout)))
}

fn decode_all(folder: &Path) -> Outcome<Kinds> {
    let mut all = Kinds::new();
    for entry in std::fs::read_dir(folder).context(folder.display())?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "pcap") {
            for (kind, [well, malformed]) in decode(&path, &[])? {
                let sum = all.entry(kind).or_default();
                *sum = [sum[0] + well, sum[1] + malformed];
            }
        }
    }
    ensure(!all.is_empty(), || format!("{}: no recordings", folder.display()))?;
    Ok(all)
}

/// Counts frames of one message each; of a frame with more, it is unknown which is malformed.
fn count(lines: &str) -> Kinds {
    let mut kinds = Kinds::new();
    for line in lines.lines() {
        let mut cells = line.split('\t');
        let (info, marks) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        // One type of message for each: `0x000000c1,0x000000c1`.
        let is_one = cells.next().is_some_and(|types| !types.is_empty() && !types.contains(','));
        if info.contains("size limited") || !is_one {
            continue;
        }
        if let Some(kind) = kind(info) {
            let entry = kinds.entry(kind).or_default();
            entry[usize::from(marks.contains("malformed"))] += 1;
        }
    }
    kinds
}

/// `LDLM_ENQUEUE request [ intent: open ]`: name, direction and, where there is one, the intent.
fn kind(info: &str) -> Option<String> {
    let mut words = info.split_whitespace();
    let (name, direction) = (words.next()?, words.next()?);
    let known = matches!(direction, "request" | "reply") && name.contains('_');
    let intent = info.split_once('[').map(|(_, rest)| format!(" [{rest}")).unwrap_or_default();
    known.then(|| format!("{name} {direction}{}", intent.trim_end()))
}

#[test]
fn a_new_malformed_kind_is_a_fault() {
    let well = "OST_SYNC reply \t\t0x000000c1\n";
    let real = count(&format!("{}OST_READ reply\t_ws.malformed\t0x000000c1\n", well.repeat(9)));
    let mut ours = count(&well.repeat(2000));
    assert_eq!(judge(&ours, &real), Ok(()));
    ours.insert("OST_READ reply".to_owned(), [0, 5]);
    assert_eq!(judge(&ours, &real), Ok(()), "the dissector is wrong there itself");
    ours.insert("OST_SYNC reply".to_owned(), [2000, 1]);
    assert!(judge(&ours, &real).is_err_and(|fault| fault.contains("OST_SYNC reply: 1 of 2001")));
}

#[test]
fn frames_with_two_messages_do_not_count() {
    let two = "OST_SYNC reply \t_ws.malformed\t0x000000c1,0x000000c1\n";
    let one = "OST_SYNC reply \t_ws.malformed\t0x000000c1\nOST_SYNC reply \t\t\n";
    assert_eq!(count(two), Kinds::new());
    assert_eq!(count(one)["OST_SYNC reply"], [0, 1]);
}

#[test]
fn the_real_recordings_are_decoded_by_kind() {
    let Some(captures) = needs_captures() else { return };
    let real = decode_all(&captures).expect("tshark");
    assert!(real["MDS_REINT request"][0] > 400, "{real:?}");
    assert!(real["OST_WRITE request"][1] > 0, "{real:?}");
}
