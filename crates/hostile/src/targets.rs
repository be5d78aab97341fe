//! Sequences of requests to live targets in virtual time, from bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sheen_rpc::REPLY_PORTALS;
use sheen_target::TargetView;
use sheen_types::{Fid, MatchBits, fid_seq};
use sheen_wire::ost::OstId;

use crate::common::{Cluster, REQUEST_PORTALS, Servers, client_nid, server_nid, start};
use crate::ends::end;
use crate::known::{Known, ServerKind};
use crate::requests::{Range, Requests};
use crate::source::{Input, Source};

/// Requests of one input, at most.
const REQUESTS: u64 = 64;
/// Transactions that one request can become, at most.
const TRANSACTIONS_EACH: u64 = 4;
/// Longer than a silent client is kept, in steps.
const SILENCE_STEPS: u32 = 36;
/// Most clients are gone after six of them: nine tenths of an input's time went by in silence.
const SILENCE_STEP: Duration = Duration::from_secs(25);
/// How the hostile client calls itself.
const CLIENT: &str = "hostile-";

/// Requests to an MDT.
pub fn mdt_requests(data: &[u8]) {
    run(data, &[ServerKind::Mdt]);
}

/// Requests to OSTs.
pub fn ost_requests(data: &[u8]) {
    run(data, &[ServerKind::Ost]);
}

/// Requests to the MGS.
pub fn mgs_requests(data: &[u8]) {
    run(data, &[ServerKind::Mgs]);
}

fn transactions(cluster: &Cluster) -> BTreeMap<String, u64> {
    let views = cluster.places.iter().map(|place| place.served.target.view());
    views.map(|view| (view.name, view.last_transno.0.max(view.last_committed.0))).collect()
}

/// Exports of the hostile client, each by its target's name.
fn left(cluster: &Cluster) -> Vec<String> {
    let views = cluster.places.iter().map(|place| place.served.target.view());
    let hostile = |view: &TargetView| {
        view.exports.iter().filter(|export| export.uuid.to_string().starts_with(CLIENT)).count()
    };
    views.flat_map(|view| std::iter::repeat_n(view.name.clone(), hostile(&view))).collect()
}

fn run(data: &[u8], services: &'static [ServerKind]) {
    let input = Input::new(data);
    let servers = start(1);
    let Servers { world, client, cluster } = &servers;
    let known = Arc::new(Known::default());
    known.add_fid(Fid::ROOT);
    known.add_object(OstId::of_fid(Fid::new(fid_seq::NORMAL, 1)));
    for portal in REPLY_PORTALS {
        client.serve(portal, Arc::clone(&known) as _);
    }
    let before = transactions(cluster);
    let range = Range {
        services,
        without: &[],
        portals: &REQUEST_PORTALS,
        client: CLIENT,
        fsname: "lustre",
        objects: None,
    };
    let mut requests = Requests::new(Arc::clone(&input), known, range);
    let connect = requests.connect(1 << 40);
    client.put(server_nid(), connect.portal, MatchBits(connect.xid), 0, vec![connect.bytes]);
    world.pass(Duration::from_millis(50));
    for _ in 0..REQUESTS {
        if input.is_empty() {
            break;
        }
        let packet = requests.next_packet();
        client.put(server_nid(), packet.portal, MatchBits(packet.xid), 0, vec![packet.bytes]);
        world.pass(Duration::from_millis(2));
    }
    world.set_cut_off(client_nid().address(), true);
    for _ in 0..SILENCE_STEPS {
        world.pass(SILENCE_STEP);
        if left(cluster).is_empty() {
            break;
        }
    }
    assert_eq!(left(cluster), [""; 0], "exports are left");
    for (name, now) in transactions(cluster) {
        let most = before[&name] + REQUESTS * TRANSACTIONS_EACH + 1_000;
        assert!(now <= most, "{name}: transactions ran away to {now}");
    }
    end(servers);
}
