//! What `lctl get_param` shows of a connection to a target: `import`, `state`, `timeouts`, `stats`.

use std::fmt::Write as _;

use sheen_node::rpc::ImportReport;
use sheen_rpc::import::{Answered, Expected, NidTries};
use sheen_rpc::service::Tally;
use sheen_types::{Nid, Samples};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};

use super::features::connect_names;
use super::text::{Clock, NAME_WIDTH, Since, sample};

/// `*.state`: where an import stands, and the states before.
pub(super) fn state(report: &ImportReport, clock: &Clock) -> String {
    let mut text = format!("current_state: {}\nstate_history:\n", report.state);
    for change in &report.history {
        text += &format!(" - [ {}, {} ]\n", clock.seconds(change.at), change.state);
    }
    text
}

/// `mgc.*.ir_state`: without imperative recovery no table of targets is followed.
pub(super) fn recovery_state(report: &ImportReport) -> String {
    let is_on = report.data.flags.contains(ConnectFlags::IMP_RECOV);
    let word = if is_on { "ENABLED" } else { "DISABLED" };
    format!("imperative_recovery: {word}\nclient_state:\n")
}

/// What both sides of a connection agreed on, as in `*.export`.
pub(super) fn agreed(data: &ObdConnectData) -> String {
    let names = connect_names(data).join(", ");
    format!("    connect_flags: [ {names} ]\n{}", connect_data(data))
}

/// `*.import` of the device `name`; `io` are the bytes that were read and written over it.
pub(super) fn import(name: &str, report: &ImportReport, io: &[Samples], clock: &Clock) -> String {
    let is_mgs = report.target.as_str() == MGS;
    let mut text = format!(
        "import:\n    name: {name}\n    target: {}\n    state: {}\n    connect_flags: [ {} ]\n",
        report.target,
        report.state,
        connect_names(&report.data).join(", "),
    );
    text += &connect_data(&report.data);
    let replays = if is_mgs { "" } else { "IMPF_REPLAYABLE, " };
    let _ = writeln!(text, "    import_flags: [ {replays}IMPF_PINGABLE, IMPF_CONNECT_TRIED ]");
    connection(&mut text, report, clock);
    // Lustre counts no requests to the MGS.
    if !is_mgs {
        requests(&mut text, report);
        averages(&mut text, report, io);
    }
    text
}

/// What Lustre calls every MGS.
const MGS: &str = "MGS";

fn connection(text: &mut String, report: &ImportReport, clock: &Clock) {
    let nids: Vec<String> =
        report.traffic.nids.iter().map(|(nid, _)| format!("\"{nid}\"")).collect();
    let _ = write!(
        text,
        "    connection:\n       failover_nids: [ {} ]\n       nids_stats:",
        nids.join(", ")
    );
    for (nid, tries) in &report.traffic.nids {
        nid_tries(text, *nid, tries, clock);
    }
    let idle = report.traffic.last_reply.map_or(0, |at| clock.ago(at));
    let connects = report.counters.connects;
    let _ = write!(
        text,
        "\n       current_connection: \"{}\"\n       connection_attempts: {connects}\n       \
         generation: {connects}\n       in-progress_invalidations: 0\n       idle: {idle} sec\n",
        report.peer,
    );
}

fn nid_tries(text: &mut String, nid: Nid, tries: &NidTries, clock: &Clock) {
    let ago = tries.last.map_or_else(|| "never".to_owned(), |at| clock.ago(at).to_string());
    let NidTries { connects, replied, .. } = tries;
    let _ = write!(
        text,
        "\n          \"{nid}\": {{ connects: {connects}, replied: {replied}, uptodate: uptodate, \
         sec_ago: {ago} }}"
    );
}

fn requests(text: &mut String, report: &ImportReport) {
    let (counters, traffic) = (report.counters, &report.traffic);
    let waited = traffic.waited_us.sum.checked_div(traffic.waited_us.count).unwrap_or(0);
    let _ = write!(
        text,
        "    rpcs:\n       inflight: {}\n       unregistering: 0\n       timeouts: {}\n       \
         avg_waittime: {waited} usecs\n    service_estimates:\n       services: {} sec\n       \
         network: {} sec\n    transactions:\n       last_replay: {}\n       peer_committed: {}\n       \
         last_checked: {}\n",
        counters.in_flight,
        counters.timeouts,
        traffic.service.seconds,
        traffic.network.seconds,
        traffic.last_replay.0,
        traffic.committed.0,
        traffic.committed.0,
    );
}

/// What a read or write moved, and how long it took.
fn averages(text: &mut String, report: &ImportReport, io: &[Samples]) {
    for (name, bytes, opcode) in
        [("read", "read_bytes", "OST_READ"), ("write", "write_bytes", "OST_WRITE")]
    {
        let Some(moved) = io.iter().find(|samples| samples.line.name == bytes) else { continue };
        let each = moved.sum.checked_div(moved.count).unwrap_or(0);
        let _ = writeln!(text, "    {name}_data_averages:\n       bytes_per_rpc: {each}");
        let timed = report.traffic.answered.iter().find(|one| one.name == opcode);
        let Some(time) = timed.and_then(|one| one.time_us.sum.checked_div(one.time_us.count))
        else {
            continue;
        };
        let _ = writeln!(text, "       usecs_per_rpc: {time}");
        if let (Some(whole), Some(hundredths)) =
            (each.checked_div(time), (each * 100).checked_div(time))
        {
            let _ = writeln!(text, "       MB_per_sec: {whole}.{:02}", hundredths % 100);
        }
    }
}

/// `*.timeouts`: when the target was heard last, and what is expected of the network and of it.
pub(super) fn timeouts(report: &ImportReport, portal: u32, clock: &Clock) -> String {
    let traffic = &report.traffic;
    let mut text = match traffic.last_reply {
        Some(at) => format!("last reply : {}, {}s ago\n", clock.seconds(at), clock.ago(at)),
        None => "last reply : never\n".to_owned(),
    };
    expected(&mut text, "network", &traffic.network, clock);
    expected(&mut text, &format!("portal {portal}"), &traffic.service, clock);
    text
}

fn expected(text: &mut String, name: &str, it: &Expected, clock: &Clock) {
    let (at, ago) = (clock.seconds(it.worst_at), clock.ago(it.worst_at));
    let Expected { seconds, worst, .. } = it;
    let _ = write!(text, "{name:<10} : cur {seconds:>3}  worst {worst:>3} (at {at}, {ago}s ago) ");
    for most in it.recent {
        let _ = write!(text, "{most:>3} ");
    }
    text.push('\n');
}

/// `mdc.*.stats` and `osc.*.stats`: answered requests by kind, in Lustre's words; `io` are the bytes that
/// were read and written.
pub(super) fn stats(since: &Since, report: &ImportReport, io: &[Samples]) -> String {
    let mut text = since.stats(&[]);
    let traffic = &report.traffic;
    tally(&mut text, "req_waittime", "usecs", &traffic.waited_us);
    tally(&mut text, "req_active", "reqs", &traffic.active);
    let (timed, counted): (Vec<&Answered>, Vec<&Answered>) =
        traffic.answered.iter().partition(|answered| answered.is_timed);
    for one in counted {
        let count = one.time_us.count;
        let ones = Tally { count, min: 1, max: 1, sum: count, sum_squared: count.into() };
        tally(&mut text, &one.name.to_lowercase(), "reqs", &ones);
    }
    text.extend(io.iter().map(sample));
    for one in timed {
        tally(&mut text, &one.name.to_lowercase(), "usecs", &one.time_us);
    }
    text
}

fn tally(text: &mut String, name: &str, unit: &str, tally: &Tally) {
    let Tally { count, min, max, sum, sum_squared } = tally;
    if *count > 0 {
        let _ = writeln!(
            text,
            "{name:<NAME_WIDTH$} {count} samples [{unit}] {min} {max} {sum} {sum_squared}"
        );
    }
}

/// Metadata operations by the requests that they are made of (`md_stats`): Lustre's lines in its order.
const METADATA: [(&str, &[&str]); 12] = [
    ("close", &["MDS_CLOSE"]),
    ("create", &["MDS_REINT_CREATE"]),
    ("getattr", &["MDS_GETATTR"]),
    ("intent_lock", &["LDLM_IBITS_ENQUEUE"]),
    ("link", &["MDS_REINT_LINK"]),
    ("rename", &["MDS_REINT_RENAME"]),
    ("setattr", &["MDS_REINT_SETATTR"]),
    ("fsync", &["MDS_SYNC"]),
    ("read_page", &["MDS_READPAGE"]),
    ("unlink", &["MDS_REINT_UNLINK"]),
    ("setxattr", &["MDS_REINT_SETXATTR", "MDS_SETXATTR"]),
    ("getxattr", &["MDS_GETXATTR"]),
];

/// How often each was done since the import was made.
pub(super) fn metadata_counts(report: &ImportReport) -> [u64; METADATA.len()] {
    let count = |kinds: &[&str]| {
        let answered = report.traffic.answered.iter();
        let mine = answered.filter(|one| kinds.contains(&one.name));
        mine.map(|one| one.time_us.count).sum()
    };
    METADATA.map(|(_, kinds)| count(kinds))
}

/// `md_stats`: these counts, as far as they are any.
pub(super) fn metadata(since: &Since, counts: &[u64; METADATA.len()]) -> String {
    let mut text = since.stats(&[]);
    for ((name, _), count) in METADATA.iter().zip(counts).filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "{name:<NAME_WIDTH$} {count} samples [reqs]");
    }
    text
}

fn connect_data(data: &ObdConnectData) -> String {
    let mut text = format!(
        "    connect_data:\n       flags: {:#x}\n       instance: {}\n",
        data.flags.0, data.instance
    );
    let [fix, patch, minor, major] = data.version.to_le_bytes();
    let blocks = 1u64.checked_shl(data.grant_blkbits.into()).unwrap_or(0);
    let inodes = 1u64.checked_shl(data.grant_inobits.into()).unwrap_or(0);
    for (flag, line) in [
        (ConnectFlags::VERSION, format!("target_version: {major}.{minor}.{patch}.{fix}")),
        (ConnectFlags::GRANT, format!("initial_grant: {}", data.grant)),
        (ConnectFlags::INDEX, format!("target_index: {}", data.index)),
        (ConnectFlags::BRW_SIZE, format!("max_brw_size: {}", data.brw_size)),
        (ConnectFlags::IBITS, format!("ibits_known: {:#x}", data.ibits_known)),
        (ConnectFlags::GRANT_PARAM, format!("grant_block_size: {blocks}")),
        (ConnectFlags::GRANT_PARAM, format!("grant_inode_size: {inodes}")),
        (
            ConnectFlags::GRANT_PARAM,
            format!("grant_max_extent_size: {}", u64::from(data.grant_max_blks) * blocks),
        ),
        (
            ConnectFlags::GRANT_PARAM,
            format!("grant_extent_tax: {}", u64::from(data.grant_tax_kb) << 10),
        ),
        (ConnectFlags::CKSUM, format!("cksum_types: {:#x}", data.cksum_types.0)),
        (ConnectFlags::MAX_EASIZE, format!("max_easize: {}", data.max_easize)),
        (ConnectFlags::MAXBYTES, format!("max_object_bytes: {}", data.maxbytes)),
        (ConnectFlags::MULTIMODRPCS, format!("max_mod_rpcs: {}", data.maxmodrpcs)),
    ] {
        if data.flags.contains(flag) {
            text += &format!("       {line}\n");
        }
    }
    text
}
