//! Who has a NID that several claim.

use sheen_lnet::{LinkId, Partner, Peers, Standing};
use sheen_types::Nid;
use sheen_wire::lnet::ConnectionType;

const HERE: Nid = Nid(0x2_0000_0a00_0001);
const PEER: Nid = Nid(0x2_0000_0a00_0002);

fn partner(incarnation: u64) -> Partner {
    Partner { nid: PEER, pid: 12345, incarnation, kind: ConnectionType::CONTROL }
}

/// All that come with the same incarnation, also none at all, as one does who has heard that of another.
#[test]
fn who_is_better_shown_to_have_a_nid_has_it_whatever_incarnation_is_claimed() {
    let ranks = [Standing::AnyUser, Standing::Claimed, Standing::Proven];
    for (first, second) in ranks.into_iter().flat_map(|one| ranks.map(|two| (one, two))) {
        for (before, after) in [(0, 0), (7, 7), (7, 8), (0, 7)] {
            let mut peers = Peers::new(HERE);
            assert!(peers.accepts(&partner(before), first));
            let established = peers.established(&partner(before), first, LinkId(1), 1_u64);
            assert!(!established.is_refused && established.stale.is_empty());
            let is_weaker = second < first;
            assert_eq!(peers.accepts(&partner(after), second), !is_weaker, "{first:?} {second:?}");
            // Also where the first came while the second was being answered.
            let established = peers.established(&partner(after), second, LinkId(2), 2);
            assert_eq!(established.is_refused, is_weaker);
            let stays = first == second && before == after;
            let stale = if is_weaker { vec![2] } else { vec![1] };
            assert_eq!(established.stale, if stays { vec![] } else { stale });
            let left = peers.connections_of(PEER);
            assert_eq!(left, if stays { vec![1, 2] } else { vec![if is_weaker { 1 } else { 2 }] });
            // When it is gone another may come.
            left.iter().for_each(|id| drop(peers.closed(PEER, LinkId(*id))));
            assert!(peers.accepts(&partner(9), Standing::AnyUser));
            peers.established(&partner(9), Standing::AnyUser, LinkId(3), 3);
            assert!(!peers.outranks(PEER, Standing::AnyUser));
        }
    }
}
