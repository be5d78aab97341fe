//! `lnetctl`: networks, peers and counts of the LNet of this machine's processes, in the YAML that Lustre's tool
//! writes and collectors read.
//!
//! Each process has an LNet of its own, with one NID. What ours does not have, credits, health and routing among
//! them, is 0 where collectors need the field, and left out otherwise.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use crate::output::{Fault, text_out};
use crate::processes::command_all;
use sheen_control::api::{NETWORK, Network};

/// Exit code of Lustre's tool for wrong words: -22.
pub const USAGE_CODE: u8 = 234;

/// Show the networks, peers and statistics of LNet
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Lnetctl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Local networks
    Net {
        #[command(subcommand)]
        command: NetCommand,
    },
    /// Peers
    Peer {
        #[command(subcommand)]
        command: PeerCommand,
    },
    /// Statistics
    Stats {
        #[command(subcommand)]
        command: StatsCommand,
    },
}

#[derive(Subcommand)]
enum NetCommand {
    /// Show the local networks
    Show(NetShow),
}

/// Options of `net show`.
#[derive(Args)]
struct NetShow {
    /// Only this network, for example tcp
    #[arg(short, long, value_name = "NET")]
    net: Option<String>,
    /// Show statistics; from level 2 on also for each kind of message
    #[arg(short, long, value_name = "LEVEL", num_args = 0..=1, default_missing_value = "1")]
    verbose: Option<u8>,
}

#[derive(Subcommand)]
enum PeerCommand {
    /// Show the peers and whether they are connected
    Show(PeerShow),
    /// List the NIDs of the peers
    List,
}

/// Options of `peer show`.
#[derive(Args)]
struct PeerShow {
    /// Only the peer with this NID
    #[arg(short, long, value_name = "NID")]
    nid: Option<String>,
}

#[derive(Subcommand)]
enum StatsCommand {
    /// Show the statistics of all networks
    Show,
}

/// Commands of Lustre's `lnetctl` that are not here.
pub const REFUSED_COMMANDS: &[&str] = &[
    "add",
    "cpt-of-nid",
    "debug",
    "del",
    "discover",
    "export",
    "fault",
    "global",
    "import",
    "lnet",
    "ping",
    "reset",
    "route",
    "routing",
    "service-id",
    "set",
    "setup-mrrouting",
    "setup-sysctl",
    "udsp",
];

/// Runs one command.
///
/// # Errors
/// None so far: a machine without processes has no networks.
pub fn run(arguments: &Lnetctl) -> Result<(), Fault> {
    let texts = command_all(NETWORK, &[]).unwrap_or_default();
    let all: Vec<Network> =
        texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    let text = match &arguments.command {
        Command::Net { command: NetCommand::Show(options) } => networks(options, &all),
        Command::Peer { command: PeerCommand::Show(options) } => peers(options, &all),
        Command::Peer { command: PeerCommand::List } => peer_list(&all),
        Command::Stats { command: StatsCommand::Show } => statistics(&all),
    };
    text_out(&text);
    Ok(())
}

/// The network of a NID: `tcp` in `10.0.0.1@tcp`.
fn network_of(nid: &str) -> &str {
    nid.split_once('@').map_or("", |(_, network)| network)
}

fn networks(options: &NetShow, all: &[Network]) -> String {
    let is_meant = |name: &str| options.net.as_ref().is_none_or(|net| net == name);
    let mut by_name: BTreeMap<&str, Vec<Network>> = BTreeMap::new();
    if !all.is_empty() && is_meant("lo") {
        by_name.insert("lo", vec![Network { nid: "0@lo".to_owned(), ..Network::default() }]);
    }
    for network in all.iter().filter(|network| is_meant(network_of(&network.nid))) {
        by_name.entry(network_of(&network.nid)).or_default().push(network.clone());
    }
    if by_name.is_empty() {
        return String::new();
    }
    let mut text = "net:\n".to_owned();
    for (name, interfaces) in by_name {
        text += &format!("-     net type: {name}\n      local NI(s):\n");
        for interface in interfaces {
            text += &format!("      -     nid: {}\n            status: up\n", interface.nid);
            text += &counts(&interface, options.verbose.unwrap_or(0));
        }
    }
    text
}

/// The lines below a title, which stand four columns further in.
fn block(indent: usize, title: &str, lines: &[(&str, u64)]) -> String {
    let space = " ".repeat(indent);
    let lines: String =
        lines.iter().map(|(name, value)| format!("{space}      {name}: {value}\n")).collect();
    format!("{space}{title}:\n{lines}")
}

fn counts(interface: &Network, level: u8) -> String {
    const INDENT: usize = 12;
    const KINDS: [&str; 5] = ["put", "get", "reply", "ack", "hello"];
    let mut text = String::new();
    if level == 0 {
        return text;
    }
    let dropped = interface.send_dropped + interface.receive_dropped;
    text += &block(
        INDENT,
        "statistics",
        &[
            ("send_count", interface.sent),
            ("recv_count", interface.received),
            ("drop_count", dropped),
        ],
    );
    if level > 1 {
        for (title, kinds) in
            ["sent_stats", "received_stats", "dropped_stats"].iter().zip(interface.kinds)
        {
            let lines: Vec<(&str, u64)> = KINDS.into_iter().zip(kinds).collect();
            text += &block(INDENT, title, &lines);
        }
        let health =
            ["health value", "interrupts", "dropped", "aborted", "no route", "timeouts", "error"];
        text += &block(INDENT, "health stats", &health.map(|name| (name, 0)));
    }
    let tunables = ["peer_timeout", "peer_credits", "peer_buffer_credits", "credits"];
    text += &block(INDENT, "tunables", &tunables.map(|name| (name, 0)));
    text + "            dev cpt: -1\n            CPT: \"[0]\"\n"
}

/// Each peer once, and whether a process is connected to it.
fn known(all: &[Network]) -> BTreeMap<&str, bool> {
    let mut known = BTreeMap::new();
    for peer in all.iter().flat_map(|network| &network.peers) {
        *known.entry(peer.nid.as_str()).or_insert(false) |= !peer.connections.is_empty();
    }
    known
}

fn peers(options: &PeerShow, all: &[Network]) -> String {
    let known = known(all);
    let wanted = known.iter().filter(|(nid, _)| options.nid.as_ref().is_none_or(|it| it == *nid));
    let mut text = String::new();
    for (nid, is_connected) in wanted {
        let state = if *is_connected { "up" } else { "down" };
        text += &format!(
            "-     primary nid: {nid}\n      Multi-Rail: false\n      peer ni:\n      -     nid: {nid}\n            \
             state: {state}\n"
        );
    }
    if text.is_empty() { text } else { format!("peer:\n{text}") }
}

fn peer_list(all: &[Network]) -> String {
    let lines: String = known(all).keys().map(|nid| format!("-     nid: {nid}\n")).collect();
    if lines.is_empty() { lines } else { format!("peer list:\n{lines}") }
}

/// What Lustre counts, in its order; what does not happen here is 0.
fn statistics(all: &[Network]) -> String {
    let sum = |of: fn(&Network) -> u64| all.iter().map(of).sum::<u64>();
    let waiting = |network: &Network| network.peers.iter().map(|peer| peer.waiting).sum();
    let lines = [
        ("msgs_alloc", sum(waiting)),
        ("msgs_max", 0),
        ("rst_alloc", 0),
        ("errors", sum(|network| network.errors)),
        ("send_count", sum(|network| network.sent)),
        ("resend_count", 0),
        ("response_timeout_count", 0),
        ("local_interrupt_count", 0),
        ("local_dropped_count", sum(|network| network.send_dropped)),
        ("local_aborted_count", 0),
        ("local_no_route_count", 0),
        ("local_timeout_count", 0),
        ("local_error_count", 0),
        ("remote_dropped_count", 0),
        ("remote_error_count", 0),
        ("remote_timeout_count", 0),
        ("network_timeout_count", 0),
        ("failed_resends", 0),
        ("successful_resends", 0),
        ("recv_count", sum(|network| network.received)),
        ("route_count", 0),
        ("drop_count", sum(|network| network.receive_dropped)),
        ("send_length", sum(|network| network.sent_bytes)),
        ("recv_length", sum(|network| network.received_bytes)),
        ("route_length", 0),
        ("drop_length", 0),
    ];
    let lines: String =
        lines.iter().map(|(name, value)| format!("    {name}: {value}\n")).collect();
    format!("statistics:\n{lines}")
}

#[cfg(test)]
mod tests {
    use sheen_control::api::NetworkPeer;

    use super::{NetShow, Network, PeerShow, networks, peer_list, peers, statistics};

    fn one() -> Network {
        let peer = |nid: &str, connections: &str| NetworkPeer {
            nid: nid.into(),
            connections: connections.into(),
            waiting: 0,
        };
        Network {
            nid: "10.77.0.12@tcp".into(),
            sent: 7,
            received: 5,
            sent_bytes: 700,
            received_bytes: 500,
            receive_dropped: 1,
            kinds: [[4, 1, 1, 1, 0], [3, 0, 1, 1, 0], [1, 0, 0, 0, 0]],
            peers: vec![peer("10.77.0.11@tcp", "CIO"), peer("10.77.0.99@tcp", "")],
            ..Network::default()
        }
    }

    /// As the recording g10-client-params-and-tools has it, but for the interface's name.
    #[test]
    fn networks_and_peers_are_shown_as_lnetctl_shows_them() {
        let show = |net: Option<&str>, verbose| {
            networks(&NetShow { net: net.map(str::to_owned), verbose }, &[one()])
        };
        assert_eq!(
            show(None, None),
            "net:\n-     net type: lo\n      local NI(s):\n      -     nid: 0@lo\n            status: up\n\
             -     net type: tcp\n      local NI(s):\n      -     nid: 10.77.0.12@tcp\n            status: up\n"
        );
        assert!(!show(Some("tcp"), None).contains("lo\n"));
        assert_eq!(show(Some("o2ib"), None), "");
        let counts = show(Some("tcp"), Some(2));
        assert!(counts.contains("            statistics:\n                  send_count: 7\n"));
        assert!(counts.contains("            received_stats:\n                  put: 3\n"));
        assert!(counts.contains("                  drop_count: 1\n"));
        assert_eq!(
            peers(&PeerShow { nid: Some("10.77.0.11@tcp".into()) }, &[one()]),
            "peer:\n-     primary nid: 10.77.0.11@tcp\n      Multi-Rail: false\n      peer ni:\n      \
             -     nid: 10.77.0.11@tcp\n            state: up\n"
        );
        assert_eq!(peer_list(&[one()]).lines().count(), 3);
        let counts = statistics(&[one(), one()]);
        assert!(
            counts.contains("    send_length: 1400\n") && counts.contains("    recv_count: 10\n")
        );
    }
}
