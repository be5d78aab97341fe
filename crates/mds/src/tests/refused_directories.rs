//! What an MDT says to wishes for directories that cannot be, one row each.

use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::lmv::LmvHash;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetattr, Reply};

use super::harness::{Client, DIRECTORY, run};
use super::migrations::to;
use super::over_mdts::Scene;
use super::striped::{wish, wishing};

const ROOT: Fid = Fid::ROOT;

/// What a mkdir comes to: on how many MDTs it lies.
async fn made(client: &Client, name: &str, wish: &DirectoryWish) -> Result<usize, Errno> {
    let request = wishing(client.create_request(ROOT, name, DIRECTORY | 0o777), wish);
    match client.modify(request).await? {
        Reply::MdsReintCreate(reply) => match reply.mdt_md.len().checked_sub(56) {
            Some(fids) => Ok(fids / 16),
            None => Ok(1),
        },
        other => panic!("{other:?}"),
    }
}

/// What a look at a directory by a client comes to that asks how it lies.
async fn looked(client: &Client, fid: Fid) -> Result<Valid, Errno> {
    let valid = Valid::ID | Valid::DIREA | Valid::MEA;
    let mdt_body = MdtBody { valid, ..client.body(fid) };
    let answer = client.inner.call(MdsGetattr { mdt_body, ..MdsGetattr::default() }).await;
    match (answer.errno(), answer.reply) {
        (Some(errno), _) => Err(errno),
        (None, Some(Reply::MdsGetattr(reply))) => Ok(reply.mdt_body.expect("a body").valid),
        other => panic!("{other:?}"),
    }
}

/// A client that has not agreed on these.
async fn old_client(
    scene: &Scene,
    name: &str,
    flags: ConnectFlags,
    flags2: ConnectFlags2,
) -> Client {
    let client = scene.servers[0].client(name).await;
    let agreed = client.inner.agreed();
    let (flags, flags2) = (agreed.flags.without(flags), agreed.flags2.without(flags2));
    let offer = ObdConnectData { flags, flags2, ..agreed };
    client.inner.connect_with(offer).await.expect("it connects again");
    client
}

fn on(mdts: &[u16]) -> DirectoryWish {
    let mdts = mdts.iter().copied().map(MdtIndex).collect();
    DirectoryWish { mdts, ..wish(3) }
}

#[test]
fn each_wish_for_a_directory_that_cannot_be_is_refused_by_its_errno() {
    let world = TestWorld::new(1210);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let client = &scene.clients[0];
        let none = (ConnectFlags::NONE, ConnectFlags2::NONE);
        let without_stripes = old_client(&scene, "old", ConnectFlags::DIR_STRIPE, none.1).await;
        let without_crush = old_client(&scene, "less old", none.0, ConnectFlags2::CRUSH).await;
        let crush = DirectoryWish { hash: LmvHash::CRUSH, ..wish(2) };
        let rows = [
            ("more stripes than MDTs", client, wish(9), Ok(2)),
            ("more stripes on each than may be", client, on_each(6), Err(Errno::EINVAL)),
            (
                "an unknown hash",
                client,
                DirectoryWish { hash: LmvHash(77), ..wish(2) },
                Err(Errno::EINVAL),
            ),
            (
                "an index out of range",
                client,
                DirectoryWish { first: Some(MdtIndex(9)), ..wish(2) },
                Err(Errno::ENODEV),
            ),
            ("an index out of range in a list", client, on(&[0, 1, 9]), Err(Errno::ENODEV)),
            (
                "stripes, by a client without DIR_STRIPE",
                &without_stripes,
                wish(2),
                Err(Errno::ENOTSUPP),
            ),
            ("one stripe, by a client without DIR_STRIPE", &without_stripes, wish(1), Ok(1)),
            ("crush, by a client without CRUSH", &without_crush, crush.clone(), Err(Errno::EPROTO)),
            ("another hash, by a client without CRUSH", &without_crush, wish(2), Ok(2)),
        ];
        let mut wrong = Vec::new();
        for (number, (row, client, wish, wanted)) in rows.into_iter().enumerate() {
            let seen = made(client, &format!("d{number}"), &wish).await;
            if seen != wanted {
                wrong.push(format!("{row}: {seen:?}, not {wanted:?}"));
            }
        }
        assert_eq!(wrong, [""; 0]);

        // Without DIR_STRIPE it is not shown, either; to those that know it and not its hash it is.
        made(client, "striped", &crush).await.expect("made");
        let striped = scene.child(ROOT, "striped").await.expect("there");
        assert_eq!(looked(&without_stripes, striped).await, Err(Errno::ENOTSUPP));
        assert!(looked(&without_crush, striped).await.expect("shown").contains(Valid::MEA));
        assert!(!looked(&without_stripes, ROOT).await.expect("shown").contains(Valid::MEA));

        // A directory into itself: by name, and to where it is.
        let d = client.mkdir(ROOT, "d").await.expect("made");
        let below = client.mkdir(d, "below").await.expect("made");
        assert_eq!(client.rename((ROOT, "d"), (below, "d")).await, Err(Errno::EINVAL));
        let begun = scene.migrate(0, (ROOT, "d"), &to(0, 1)).await;
        assert_eq!(begun.map(drop), Err(Errno::EALREADY));
        let nowhere = scene.migrate(0, (ROOT, "d"), &to(9, 1)).await;
        assert_eq!(nowhere.map(drop), Err(Errno::ENODEV));
        assert_eq!(scene.child(ROOT, "d").await, Some(d));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

fn on_each(count: u32) -> DirectoryWish {
    let count = std::num::NonZeroU32::new(count).expect("some");
    DirectoryWish { stripes: WishedStripes::OnEachMdt(count), ..DirectoryWish::default() }
}
