//! `lctl ping`, `list_nids`, `which_nid`, `network`, and `--net` with `interface_list`, `peer_list` and
//! `conn_list`.

use std::net::Ipv4Addr;

use clap::Args;
use sheen_types::{Errno, Nid};

use crate::output::{Fault, line};
use crate::processes::{command_all, command_first};
use sheen_control::api::{NETWORK, Network, NetworkPeer};

/// Options of `ping`.
#[derive(Args)]
pub(super) struct Ping {
    /// NID of the node
    #[arg(value_name = "NID")]
    nid: Option<String>,
    /// Seconds to wait
    #[arg(value_name = "TIMEOUT")]
    timeout: Option<u32>,
}

/// Options of `list_nids`, which has none; words behind it are passed over, as in Lustre.
#[derive(Args)]
pub(super) struct ListNids {
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Seconds to wait for a node when nothing is said.
const TIMEOUT_SECONDS: u32 = 1;

/// The NIDs of the node that answered, its loopback first.
pub(super) fn ping(options: &Ping) -> Result<(), Fault> {
    let Some(text) = &options.nid else {
        return Err(Fault::new(Errno::EINVAL, "usage: ping id [timeout (secs)]"));
    };
    let Ok(nid) = text.strip_prefix("12345-").unwrap_or(text).parse::<Nid>() else {
        return Err(Fault::new(Errno::EINVAL, format!("Invalid NID argument \"{text}\"")));
    };
    let timeout = options.timeout.unwrap_or(TIMEOUT_SECONDS).to_string();
    match command_first("ping", &[&nid.to_string(), &timeout]) {
        Ok(answer) => {
            line(answer.trim_end());
            Ok(())
        }
        Err((errno, _)) => {
            line(format_args!("failed to ping {nid}: {errno}"));
            Err(Fault::reported(errno))
        }
    }
}

/// One line for each process that has a node.
pub(super) fn list_nids() -> Result<(), Fault> {
    let texts = command_all("nids", &[])
        .map_err(|(errno, text)| Fault::new(errno, format!("lctl list_nids: {text}")))?;
    texts.iter().flat_map(|text| text.lines()).for_each(line);
    Ok(())
}

/// Options of `which_nid`.
#[derive(Args)]
pub(super) struct WhichNid {
    /// NIDs of one node
    #[arg(value_name = "NID")]
    nids: Vec<String>,
}

/// Options of `network` and `net`.
#[derive(Args)]
pub(super) struct Configure {
    /// What to do
    #[arg(value_name = "up|down|configure|unconfigure")]
    what: Option<String>,
    /// Override an existing configuration
    #[arg(short = 'l')]
    override_it: bool,
}

/// Options of `interface_list`, `peer_list` and `conn_list`.
#[derive(Args)]
pub(super) struct OfNet {}

/// Exit code of Lustre's tool for a NID or network that is none.
const ILLEGAL_CODE: u8 = 1;

fn networks() -> Vec<Network> {
    let texts = command_all(NETWORK, &[]).unwrap_or_default();
    texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
}

/// The nearest of some NIDs, by our own NID towards it, as Lustre's tool prints it: one on our machine is nearest,
/// then one on our network.
pub(super) fn which_nid(options: &WhichNid) -> Result<(), Fault> {
    if options.nids.is_empty() {
        eprintln!("usage: which_nid NID [NID...]");
        return Ok(());
    }
    let mut wanted = Vec::new();
    for text in &options.nids {
        let nid: Nid = text
            .parse()
            .map_err(|_| Fault { code: ILLEGAL_CODE, text: format!("Can't parse NID {text}") })?;
        wanted.push(nid);
    }
    let own: Vec<Nid> = networks().iter().filter_map(|net| net.nid.parse().ok()).collect();
    match towards(&own, &wanted) {
        Some(nid) => {
            line(nid);
            Ok(())
        }
        None => Err(Fault { code: ILLEGAL_CODE, text: "No reachable NID".to_owned() }),
    }
}

/// The one of our own NIDs from which the nearest of `wanted` is reached.
fn towards(own: &[Nid], wanted: &[Nid]) -> Option<Nid> {
    let same = wanted.iter().find(|nid| own.contains(nid) || nid.is_loopback());
    if let Some(nid) = same {
        return Some(*nid);
    }
    let net = |nid: &Nid| nid.to_string().split_once('@').map(|(_, net)| net.to_owned());
    wanted.iter().find_map(|nid| own.iter().find(|own| net(own) == net(nid)).copied())
}

/// Each process has its LNet from its start to its end: it is configured where one runs, and never unloaded.
pub(super) fn configure(options: &Configure) -> Result<(), Fault> {
    let is_there = !networks().is_empty();
    match options.what.as_deref() {
        None => Err(Fault::usage("lctl network: up or down must be specified")),
        Some("up" | "configure") if options.override_it => {
            let text = "lctl network: option '-l' is not supported by Sheen yet";
            Err(Fault::new(Errno::EOPNOTSUPP, text))
        }
        Some("up" | "configure") if is_there => {
            line("LNET configured: New Created");
            Ok(())
        }
        Some("up" | "configure") => {
            let text =
                "LNET configure error: it starts with a server or a mount, and none runs here";
            Err(Fault::new(Errno::EOPNOTSUPP, format!("lctl network: {text}")))
        }
        Some("down" | "unconfigure") if is_there => Err(Fault::new(Errno::EBUSY, "LNET busy")),
        Some("down" | "unconfigure") => {
            line("LNET is currently not loaded.");
            Ok(())
        }
        Some(other) => Err(Fault { code: ILLEGAL_CODE, text: format!("Can't parse net {other}") }),
    }
}

/// Only the networks of a kind; all without a choice.
fn chosen(command: &str, net: Option<&str>) -> Result<Vec<Network>, Fault> {
    let Some(net) = net else {
        let text = format!("{command}: You must run the '--net <type>' option before '{command}'");
        return Err(Fault { code: ILLEGAL_CODE, text });
    };
    let is_net = net.strip_prefix("tcp").is_some_and(|number| number.is_empty() || number == "0");
    match is_net {
        true => Ok(networks()),
        false => Err(Fault { code: ILLEGAL_CODE, text: format!("Can't parse net {net}") }),
    }
}

/// The address of a NID.
fn address(nid: &str) -> &str {
    nid.split('@').next().unwrap_or(nid)
}

/// The interface of each process.
pub(super) fn interface_list(net: Option<&str>) -> Result<(), Fault> {
    let networks = chosen("interface_list", net)?;
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    for network in &networks {
        match address(&network.nid).parse() {
            Ok(own) => line(interface_text(network, own, netmask(own, &routes))),
            Err(_) => continue,
        }
    }
    if networks.is_empty() {
        line("<no interfaces>");
    }
    Ok(())
}

/// As Lustre's line, with the address for the host's name. Lustre binds no peers to an interface, nor do we, and counts
/// connections as routes.
fn interface_text(network: &Network, own: Ipv4Addr, mask: Ipv4Addr) -> String {
    let connections: usize = network.peers.iter().map(|peer| peer.connections.len()).sum();
    format!("{own}: ({own}/{mask}) npeer 0 nroute {connections}")
}

/// The mask of the network that an address of ours is in, by the kernel's table of routes, which has none for the
/// loopback network.
fn netmask(own: Ipv4Addr, routes: &str) -> Ipv4Addr {
    if own.is_loopback() {
        return Ipv4Addr::new(255, 0, 0, 0);
    }
    let connected = routes.lines().filter_map(|route| {
        let words: Vec<&str> = route.split_whitespace().collect();
        let [_, to, "00000000", _, _, _, _, mask, ..] = words[..] else { return None };
        let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
        Some((number(to)?, number(mask)?))
    });
    let own_network = connected.filter(|(to, mask)| *mask != 0 && own.to_bits() & mask == *to);
    own_network.map(|(_, mask)| mask).max().map_or(Ipv4Addr::BROADCAST, Ipv4Addr::from_bits)
}

pub(super) fn peer_list(net: Option<&str>) -> Result<(), Fault> {
    let networks = chosen("peer_list", net)?;
    for network in &networks {
        network.peers.iter().for_each(|peer| line(peer_text(network, peer)));
    }
    if networks.iter().all(|network| network.peers.is_empty()) {
        line("<no peers>");
    }
    Ok(())
}

fn peer_text(network: &Network, peer: &NetworkPeer) -> String {
    let id = format!("12345-{}", peer.nid);
    let (own, to, port) = (address(&network.nid), address(&peer.nid), network.port);
    format!("{id:<20} [1]{own}->{to}:{port} #{}", peer.connections.len())
}

pub(super) fn conn_list(net: Option<&str>) -> Result<(), Fault> {
    let networks = chosen("conn_list", net)?;
    let mut count = 0;
    for network in &networks {
        for peer in &network.peers {
            for kind in peer.connections.chars() {
                line(connection_text(network, peer, kind));
                count += 1;
            }
        }
    }
    if count == 0 {
        line("<no connections>");
    }
    Ok(())
}

/// As Lustre's line without the sizes of the sockets' buffers.
fn connection_text(network: &Network, peer: &NetworkPeer, kind: char) -> String {
    let id = format!("12345-{}", peer.nid);
    let (own, to, port) = (address(&network.nid), address(&peer.nid), network.port);
    format!("{id:<20} {kind}[0]{own}->{to}:{port} nonagle")
}

#[cfg(test)]
mod tests {
    use super::{
        Ipv4Addr, Network, NetworkPeer, connection_text, interface_text, netmask, peer_text,
        towards,
    };

    #[test]
    fn an_interface_is_listed_with_the_mask_of_its_network() {
        let routes = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010000C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth1\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth0\t000000C0\t00000000\t0001\t0\t0\t0\t00FEFFFF\t0\t0\t0
";
        let mask = |own: &str| netmask(own.parse().unwrap(), routes).to_string();
        assert_eq!(mask("10.77.0.12"), "255.255.255.0");
        assert_eq!(mask("127.183.54.1"), "255.0.0.0");
        assert_eq!(mask("172.16.0.1"), "255.255.255.255", "no network of ours");
        let peer =
            NetworkPeer { nid: "10.77.0.11@tcp".into(), connections: "CIO".into(), waiting: 0 };
        let network =
            Network { nid: "10.77.0.12@tcp".into(), peers: vec![peer], ..Network::default() };
        let own: Ipv4Addr = "10.77.0.12".parse().unwrap();
        // As the recording g10-client-params-and-tools has it, but for the host's name.
        assert_eq!(
            interface_text(&network, own, netmask(own, routes)),
            "10.77.0.12: (10.77.0.12/255.255.255.0) npeer 0 nroute 3"
        );
    }

    #[test]
    fn peers_are_listed_as_lustre_lists_them() {
        let network = Network { nid: "10.77.0.12@tcp".into(), port: 988, ..Network::default() };
        let peer =
            NetworkPeer { nid: "10.77.0.11@tcp".into(), connections: "CIO".into(), waiting: 0 };
        assert_eq!(
            peer_text(&network, &peer),
            "12345-10.77.0.11@tcp [1]10.77.0.12->10.77.0.11:988 #3"
        );
        assert_eq!(
            connection_text(&network, &peer, 'O'),
            "12345-10.77.0.11@tcp O[0]10.77.0.12->10.77.0.11:988 nonagle"
        );
    }

    #[test]
    fn the_nearest_nid_is_chosen() {
        let nids =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let own = nids(&["10.77.0.12@tcp", "10.77.0.13@tcp"]);
        // As the recording g10-client-params-and-tools has it.
        assert_eq!(towards(&own, &nids(&["10.77.0.11@tcp"])), Some(own[0]));
        assert_eq!(towards(&own, &nids(&["10.77.0.11@tcp", "10.77.0.13@tcp"])), Some(own[1]));
        assert_eq!(towards(&own, &nids(&["10.77.0.11@tcp7"])), None);
        assert_eq!(towards(&[], &nids(&["10.77.0.11@tcp"])), None);
    }
}
