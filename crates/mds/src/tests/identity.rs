//! An MDT serves its own clients, and none whose names are another MDT's.

use sheen_target::testing::{TestClient, TestWorld, client_offer};
use sheen_types::{Errno, Fid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::messages::ObdPing;
use sheen_wire::text::Chars;

use super::harness::{Server, run};

const OTHER: &str = "99999999-2222-3333-4444-555555555555";

/// Connects with names of this MDT.
async fn connect(client: &TestClient, identity: &str) -> Result<(), Errno> {
    let offer = ObdConnectData { identity: Chars::new(identity), ..client_offer() };
    client.connect_with(offer).await.map(drop)
}

#[test]
fn a_client_of_another_mdt_is_refused_before_anything_is_done_for_it() {
    let world = TestWorld::new(102);
    let inner = world.clone();
    let test = async move {
        let server = Server::start(&inner, 0).await;
        let own = server.mdt.identity().as_str().to_owned();
        let client = server.client("early").await;
        assert_eq!(client.inner.agreed().mdt_identity(), Some(own.as_bytes()));
        let stranger = server.node.client("stranger");
        assert_eq!(connect(&stranger, OTHER).await, Err(Errno::EXDEV));
        assert_eq!(server.node.target.exports().len(), 1, "no export is made");
        // As one that comes back: what it had is not touched, and it is let in as the one it was.
        assert_eq!(connect(&client.inner, OTHER).await, Err(Errno::EXDEV));
        assert_eq!(client.inner.call(ObdPing::default()).await.errno(), None);
        assert_eq!(connect(&client.inner, &own).await, Ok(()));
        client.mkdir(Fid::ROOT, "d").await.expect("made");
    };
    run(test, &world);
}
