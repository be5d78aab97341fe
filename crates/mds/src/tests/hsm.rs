//! States in an archive, which no file has here.

use bytes::Bytes;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::md::HsmStateSet;
use sheen_wire::messages::{MdsHsmStateGet, MdsHsmStateSet, Reply};

use super::harness::{Client, REGULAR, Server, run};

/// `HSS_SETMASK`, `HSS_CLEARMASK`, `HSS_ARCHIVE_ID`.
const SET: u32 = 1;
const CLEAR: u32 = 2;
const ARCHIVE: u32 = 4;

async fn change(client: &Client, file: Fid, valid: u32, set: u64, clear: u64) -> Option<Errno> {
    let mut writer = Writer::default();
    HsmStateSet { valid, archive_id: 1, set, clear }.encode(&mut writer);
    let request = MdsHsmStateSet {
        mdt_body: client.body(file),
        hsm_state_set: writer.into_bytes(),
        ..MdsHsmStateSet::default()
    };
    client.inner.call(request).await.errno()
}

#[test]
fn no_file_has_a_copy_in_an_archive() {
    let world = TestWorld::new(87);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let request = MdsHsmStateGet { mdt_body: client.body(file), ..Default::default() };
            let answer = client.inner.call(request).await;
            let Some(Reply::MdsHsmStateGet(reply)) = answer.reply else { panic!("{answer:?}") };
            assert_eq!(reply.hsm_user_state, Bytes::from_static(&[0; 32]));
            // What clients send after each truncate: refused as for a file that was never archived.
            assert_eq!(change(&client, file, SET, 0x2, 0).await, Some(Errno::EINVAL));
            assert_eq!(change(&client, file, CLEAR, 0, 0x2).await, None);
            assert_eq!(change(&client, file, SET | CLEAR, 0x2, 0x2).await, None);
            assert_eq!(change(&client, file, SET | ARCHIVE, 0, 0).await, None, "as in Lustre");
            assert_eq!(change(&client, file, SET, 0x4, 0).await, Some(Errno::EINVAL));
            assert_eq!(change(&client, file, SET, 0x1000, 0).await, Some(Errno::EINVAL));
            for kept in [0x1, 0x9, 0x10, 0x20] {
                assert_eq!(change(&client, file, SET, kept, 0).await, Some(Errno::EOPNOTSUPP));
            }
            let alice = client.as_user(10, 10);
            assert_eq!(change(&alice, file, SET, 0x9, 0).await, Some(Errno::EPERM));
            assert_eq!(change(&alice, file, CLEAR, 0, 0x10).await, None);
            let missing = Fid::new(client.sequence, 99_999);
            assert_eq!(change(&client, missing, CLEAR, 0, 0x2).await, Some(Errno::ENOENT));
        },
        &world,
    );
}
