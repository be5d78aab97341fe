//! Sequences of requests to live targets in virtual time, from bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sheen_rpc::REPLY_PORTALS;
use sheen_types::{Fid, MatchBits, fid_seq};
use sheen_wire::ost::OstId;

use crate::common::{Cluster, REQUEST_PORTALS, Servers, client_nid, server_nid, start};
use crate::known::{Known, Service};
use crate::requests::{Range, Requests};
use crate::source::{Input, Source};

/// Requests of one input, at most.
const REQUESTS: u64 = 64;
/// Transactions that one request can become, at most.
const TRANSACTIONS_EACH: u64 = 4;
/// Longer than a silent client is kept.
const SILENCE: Duration = Duration::from_secs(900);
/// How the hostile client calls itself.
const CLIENT: &str = "hostile-";

/// Requests to an MDT.
pub fn mdt_requests(data: &[u8]) {
    run(data, &[Service::Mdt]);
}

/// Requests to OSTs.
pub fn ost_requests(data: &[u8]) {
    run(data, &[Service::Ost]);
}

/// Requests to the MGS.
pub fn mgs_requests(data: &[u8]) {
    run(data, &[Service::Mgs]);
}

fn transactions(cluster: &Cluster) -> BTreeMap<String, u64> {
    let views = cluster.places.iter().map(|place| place.served.target.view());
    views.map(|view| (view.name, view.last_transno.0.max(view.last_committed.0))).collect()
}

fn run(data: &[u8], services: &'static [Service]) {
    let input = Input::new(data);
    let Servers { world, client, cluster } = start(1);
    let known = Arc::new(Known::default());
    known.add_fid(Fid::ROOT);
    known.add_object(OstId::of_fid(Fid::new(fid_seq::NORMAL, 1)));
    for portal in REPLY_PORTALS {
        client.serve(portal, Arc::clone(&known) as _);
    }
    let before = transactions(&cluster);
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
    world.pass(SILENCE);
    for place in &cluster.places {
        let view = place.served.target.view();
        let left = view.exports.iter().filter(|export| export.uuid.to_string().starts_with(CLIENT));
        assert_eq!(left.count(), 0, "{}: exports are left", view.name);
    }
    for (name, now) in transactions(&cluster) {
        let most = before[&name] + REQUESTS * TRANSACTIONS_EACH + 1_000;
        assert!(now <= most, "{name}: transactions ran away to {now}");
    }
    world.stop();
}
