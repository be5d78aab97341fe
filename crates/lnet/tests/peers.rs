//! Who has a NID that several claim, and what goes to whom.

use sheen_lnet::{Frame, LinkId, NidProof, Partner, Peers, Sender, Sending};
use sheen_types::{Instant, Nid};
use sheen_wire::lnet::ConnectionType;

const HERE: Nid = Nid(0x2_0000_0a00_0001);
const PEER: Nid = Nid(0x2_0000_0a00_0002);

fn partner(incarnation: u64) -> Partner {
    Partner { nid: PEER, pid: 12345, incarnation, kind: ConnectionType::CONTROL }
}

/// All that come with the same incarnation, also none at all, as one does who has heard that of another.
#[test]
fn who_is_better_shown_to_have_a_nid_has_it_whatever_incarnation_is_claimed() {
    let ranks = [NidProof::AnyUser, NidProof::Claimed, NidProof::Proven];
    for (first, second) in ranks.into_iter().flat_map(|one| ranks.map(|two| (one, two))) {
        for (before, after) in [(0, 0), (7, 7), (7, 8), (0, 7)] {
            let mut peers = Peers::new(HERE);
            assert!(peers.accepts(&partner(before), first));
            let established = peers.established(&partner(before), first, true, LinkId(1), 1_u64);
            assert!(!established.is_refused && established.stale.is_empty());
            let is_weaker = second < first;
            assert_eq!(peers.accepts(&partner(after), second), !is_weaker, "{first:?} {second:?}");
            // Also where the first came while the second was being answered.
            let established = peers.established(&partner(after), second, true, LinkId(2), 2);
            assert_eq!(established.is_refused, is_weaker);
            let stays = first == second && before == after;
            let stale = if is_weaker { vec![2] } else { vec![1] };
            assert_eq!(established.stale, if stays { vec![] } else { stale });
            let left = peers.connections_of(PEER);
            assert_eq!(left, if stays { vec![1, 2] } else { vec![if is_weaker { 1 } else { 2 }] });
            // When it is gone another may come.
            left.iter().for_each(|id| drop(peers.closed(PEER, LinkId(*id))));
            assert!(peers.accepts(&partner(9), NidProof::AnyUser));
            peers.established(&partner(9), NidProof::AnyUser, true, LinkId(3), 3);
            assert!(!peers.outranks(PEER, NidProof::AnyUser));
        }
    }
}

fn frame(length: usize) -> Frame {
    let head = vec![0; length].into();
    Frame { head, payload: Vec::new(), length }
}

/// What an import has for the server waits for a connection to it, while another peer is there under its NID.
#[test]
fn what_imports_send_does_not_go_to_who_only_says_that_it_is_the_server() {
    let mut peers = Peers::new(HERE);
    let now = Instant(1);
    peers.established(&partner(7), NidProof::Claimed, false, LinkId(1), 1_u64);
    // Answers go there, and ask for no connection.
    let (sending, connect) = peers.send(PEER, now, frame(100), Sender::Other);
    assert!(matches!(sending, Sending::Now(1, _)) && !connect);
    assert_eq!(peers.route(PEER, now, 100, Sender::Other), Some(1));
    assert_eq!(peers.route(PEER, now, 100, Sender::Import), None);
    let (sending, connect) = peers.send(PEER, now, frame(200), Sender::Import);
    assert!(matches!(sending, Sending::Waits) && connect);
    assert_eq!(peers.next_kind(PEER), Some(ConnectionType::CONTROL));
    // Nor when another of its connections comes meanwhile.
    let second = peers.established(&partner(7), NidProof::Claimed, false, LinkId(2), 2);
    assert!(second.frames.is_empty());
    let (sending, _) = peers.send(PEER, now, frame(100), Sender::Other);
    assert!(matches!(sending, Sending::Now(2, _)));
    // The server takes its NID, and what waited for it.
    let server = peers.established(&partner(8), NidProof::Proven, true, LinkId(3), 3);
    assert_eq!(server.stale, [1, 2]);
    assert_eq!(server.frames.iter().map(|frame| frame.length).collect::<Vec<_>>(), [200]);
    assert_eq!(peers.route(PEER, now, 100, Sender::Import), Some(3));
}

/// Where it cannot be reached what waited is dropped, and the peer that is there keeps its connections.
#[test]
fn an_import_whose_server_is_not_there_is_notified_beside_a_peer_that_claims_its_nid() {
    let mut peers = Peers::new(HERE);
    let now = Instant(1);
    peers.established(&partner(7), NidProof::Claimed, false, LinkId(1), 1_u64);
    assert!(peers.send(PEER, now, frame(200), Sender::Import).1);
    assert_eq!(peers.failed(PEER, now).dropped, 1);
    let (sending, connect) = peers.send(PEER, now, frame(200), Sender::Import);
    assert!(matches!(sending, Sending::Dropped) && !connect, "not at once again");
    assert_eq!(peers.connections_of(PEER), [1]);
}
