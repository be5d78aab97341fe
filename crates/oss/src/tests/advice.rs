//! Advice about bytes, and what of it is no advice.

use sheen_store_mem::MemOptions;
use sheen_target::testing::TestClient;
use sheen_types::Errno;
use sheen_wire::messages::OstLadvise;
use sheen_wire::ost::{LadviseFlags, LadviseHdr, LuLadvise, OstBody};

use super::harness::{named, with_ost};

const HEADER: LadviseHdr = LadviseHdr {
    magic: LadviseHdr::MAGIC,
    count: 1,
    flags: LadviseFlags::NONE,
    value1: 0,
    value2: 0,
    value3: 0,
};

async fn advise(
    client: &TestClient,
    id: u64,
    ladvise_hdr: LadviseHdr,
    ladvise: Vec<LuLadvise>,
) -> Option<Errno> {
    let ost_body = OstBody { oa: named(id) };
    client
        .call(OstLadvise { ost_body, ladvise_hdr, ladvise, ..OstLadvise::default() })
        .await
        .errno()
}

#[test]
fn advice_is_taken_or_refused_as_by_lustre() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let read = LuLadvise { advice: LuLadvise::WILLREAD, end: 1 << 20, ..LuLadvise::default() };
        let drop = LuLadvise { advice: LuLadvise::DONTNEED, end: u64::MAX, ..read };
        assert_eq!(advise(&client, 1, HEADER, vec![read.clone(), drop.clone()]).await, None);
        let in_background = LadviseHdr { flags: LadviseFlags::ASYNC, ..HEADER };
        assert_eq!(advise(&client, 1, in_background, vec![drop.clone()]).await, None);
        // What stands behind those that are counted is not looked at.
        let unknown = LuLadvise { advice: 0, ..read };
        assert_eq!(advise(&client, 1, HEADER, vec![read.clone(), unknown]).await, None);
        assert_eq!(advise(&client, 99, HEADER, vec![read.clone()]).await, Some(Errno::ENOENT));
        for advice in [0, LuLadvise::LOCKNOEXPAND, LuLadvise::LOCKAHEAD, 5] {
            let unknown = vec![LuLadvise { advice, ..read }];
            assert_eq!(advise(&client, 1, HEADER, unknown).await, Some(Errno::EOPNOTSUPP));
        }
        for (header, ladvise) in [
            (LadviseHdr { magic: 1, ..HEADER }, vec![read.clone()]),
            (LadviseHdr { count: 0, ..HEADER }, vec![read.clone()]),
            (LadviseHdr { count: 2, ..HEADER }, vec![read.clone()]),
            (LadviseHdr { count: 1024, ..HEADER }, vec![read.clone(); 1024]),
            (LadviseHdr { flags: LadviseFlags(4), ..HEADER }, vec![read.clone()]),
            (HEADER, Vec::new()),
            (HEADER, vec![LuLadvise { start: 7, end: 7, ..read }]),
        ] {
            assert_eq!(advise(&client, 1, header, ladvise).await, Some(Errno::EPROTO));
        }
    });
}
