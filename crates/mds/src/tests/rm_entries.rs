//! Names that are removed alone.

use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::md::ReintOp;
use sheen_wire::messages::MdsReintRmentry;

use super::harness::{Client, DIRECTORY, run};
use super::over_mdts::Scene;

const ROOT: Fid = Fid::ROOT;

async fn remove(client: &Client, parent: Fid, name: &str) -> Result<(), Errno> {
    let asked = client.unlink_request(parent, name, DIRECTORY);
    let mut rec_reint = asked.rec_reint;
    rec_reint.opcode = ReintOp::RMENTRY;
    let request = MdsReintRmentry { rec_reint, name: asked.name, ..Default::default() };
    client.modify(request).await.map(drop)
}

#[test]
fn a_name_that_leads_to_another_mdt_is_removed_alone() {
    let world = TestWorld::new(915);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let before = scene.links(0, ROOT).await.expect("the root");
        let far = there.mkdir(ROOT, "far").await.expect("made");
        here.mkdir(ROOT, "near").await.expect("made");
        // A client that has looked at the name gives that up.
        here.lookup(ROOT, "far").await;
        scene.forget_sent();
        let user = here.as_user(7, 7);
        assert_eq!(remove(&user, ROOT, "far").await, Err(Errno::EPERM));
        assert_eq!(remove(here, ROOT, "near").await, Err(Errno::EPERM), "its inode is here");
        assert_eq!(remove(here, ROOT, "x").await, Err(Errno::ENOENT));
        assert_eq!(remove(here, ROOT, ".lustre").await, Err(Errno::EPERM));
        assert_eq!(remove(there, ROOT, "far").await, Err(Errno::EREMOTE), "not its MDT");
        assert_eq!(remove(here, ROOT, "far").await, Ok(()));
        // Whether the other MDT is there or not.
        assert_eq!(scene.sent(0, 1), [] as [Vec<sheen_wire::out::UpdateType>; 0]);
        assert_eq!(scene.names(0, ROOT).await, ["near"]);
        assert_eq!(scene.links(0, ROOT).await, Ok(before + 1));
        assert_eq!(scene.links(1, far).await, Ok(2), "it is left");
        scene.settle(&inner).await;
    };
    run(test, &world);
}
