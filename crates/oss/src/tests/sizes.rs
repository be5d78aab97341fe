//! Sizes: the largest one, cutting, reserving, freeing, seeking, and what attributes and glimpses
//! say of them.

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::MemOptions;
use sheen_target::testing::TestClient;
use sheen_types::{Errno, Extent, Fallocate};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstFallocate, OstGetattr, OstPunch, OstSeek, OstStatfs, Reply};
use sheen_wire::ost::{Obdo, OstBody};

use super::harness::{fid, named, obdo_of, put, with_ost};

/// What ext4 holds in a file.
const MAX: u64 = (1 << 44) - 4096;
const DATA: u32 = 3;
const HOLE: u32 = 4;

fn limited() -> MemOptions {
    MemOptions { object_bytes_max: Some(MAX), ..MemOptions::default() }
}

async fn punch(client: &TestClient, id: u64, start: u64, end: u64) -> Result<Obdo, Errno> {
    let mut oa = named(id);
    oa.set_range(start, end);
    obdo_of(client.call(OstPunch { ost_body: OstBody { oa }, ..OstPunch::default() }).await)
}

async fn allocate(client: &TestClient, mode: u32, start: u64, end: u64) -> Result<Obdo, Errno> {
    let mut oa = named(1);
    oa.valid |= Valid::SIZE | Valid::BLOCKS;
    (oa.size, oa.blocks, oa.nlink) = (start, end, mode);
    obdo_of(client.call(OstFallocate { ost_body: OstBody { oa }, ..OstFallocate::default() }).await)
}

async fn seek(client: &TestClient, what: u32, offset: u64) -> Result<u64, Errno> {
    let mut oa = named(1);
    oa.valid |= Valid::SIZE | Valid::MODE;
    (oa.size, oa.mode) = (offset, what);
    let request = OstSeek { ost_body: OstBody { oa }, ..OstSeek::default() };
    obdo_of(client.call(request).await).map(|oa| oa.size)
}

#[test]
fn clients_learn_what_an_object_can_hold() {
    with_ost(limited(), |server| async move {
        let client = server.node.connect("one").await;
        assert_eq!(client.agreed().maxbytes, MAX);
        let answer = client.call(OstStatfs::default()).await;
        let Some(Reply::OstStatfs(reply)) = answer.reply else { panic!("a statfs reply") };
        assert_eq!(reply.obd_statfs.expect("a body").maxbytes, MAX);
    });
}

#[test]
fn the_last_byte_is_written_and_the_next_is_too_large() {
    with_ost(limited(), |server| async move {
        let client = server.node.connect("one").await;
        let two = Bytes::from_static(b"xy");
        assert_eq!(put(&client, 1, MAX - 1, &two).await.err(), Some(Errno::EFBIG));
        assert_eq!(put(&client, 1, u64::MAX, &two).await.err(), Some(Errno::EFBIG));
        assert_eq!(server.store.attributes(fid(1)).expect("there").size, 0);
        assert_eq!(put(&client, 1, MAX - 2, &two).await.expect("the last bytes").size, MAX);
        assert_eq!(punch(&client, 1, MAX + 1, Extent::EOF).await.err(), Some(Errno::EFBIG));
        assert_eq!(punch(&client, 1, 0, Extent::EOF).await.expect("cut").size, 0);
        assert_eq!(punch(&client, 1, MAX, Extent::EOF).await.expect("extended").size, MAX);
        assert_eq!(allocate(&client, 0, MAX, MAX + 1).await.err(), Some(Errno::EFBIG));
    });
}

#[test]
fn a_cut_drops_bytes_for_good() {
    with_ost(limited(), |server| async move {
        let client = server.node.connect("one").await;
        put(&client, 1, 0, &Bytes::from(vec![7; 10_000])).await.expect("written");
        assert_eq!(punch(&client, 1, 5000, Extent::EOF).await.expect("cut").size, 5000);
        assert_eq!(punch(&client, 1, 9000, Extent::EOF).await.expect("extended").size, 9000);
        assert_eq!(server.bytes(1), [vec![7; 5000], vec![0; 4000]].concat());
        assert_eq!(punch(&client, 1, 1000, 2000).await.expect("a hole").size, 9000);
        assert_eq!(server.bytes(1).slice(..3000), [[7; 1000], [0; 1000], [7; 1000]].concat());
        assert_eq!(punch(&client, 1, 2000, 2000).await.err(), Some(Errno::EINVAL));
        assert_eq!(punch(&client, 99, 0, Extent::EOF).await.err(), Some(Errno::ENOENT));
    });
}

#[test]
fn every_mode_of_fallocate_that_lustre_has() {
    with_ost(limited(), |server| async move {
        let client = server.node.connect("one").await;
        let ones = Bytes::from(vec![1; 32 << 10]);
        put(&client, 1, 0, &ones).await.expect("written");
        let allocated = async |mode, start, end| allocate(&client, mode, start, end).await;
        assert_eq!(
            allocated(Fallocate::AllocateKeepSize.mode(), 0, 64 << 10).await.expect("kept").size,
            32 << 10
        );
        assert_eq!(allocated(0, 0, 48 << 10).await.expect("grown").size, 48 << 10);
        assert_eq!(server.bytes(1).slice(..32 << 10), ones, "what is there stays");
        // Said with the size kept or not, as `ofd_fallocate_hdl` takes it.
        for mode in [2, Fallocate::PunchHole.mode()] {
            assert_eq!(allocated(mode, 0, 1 << 20).await.expect("freed").size, 48 << 10);
            assert_eq!(server.bytes(1), vec![0; 48 << 10]);
            put(&client, 1, 0, &ones).await.expect("written");
        }
        let mode = Fallocate::ZeroRangeKeepSize.mode();
        assert_eq!(allocated(mode, 4096, 1 << 20).await.expect("zeros").size, 48 << 10);
        let expected = [vec![1; 4096], vec![0; 44 << 10]].concat();
        assert_eq!(server.bytes(1), expected);
        let mode = Fallocate::ZeroRange.mode();
        assert_eq!(allocated(mode, 1024, 64 << 10).await.expect("zeros").size, 64 << 10);
        assert_eq!(server.bytes(1), [vec![1; 1024], vec![0; 63 << 10]].concat());
        for mode in [0x04, 0x08, 0x12, 0x20, 0x40, 0x8000_0000] {
            let refused = allocated(mode, 0, 4096).await.err();
            assert_eq!(refused, Some(Errno::EOPNOTSUPP), "mode {mode:#x}");
        }
        assert_eq!(allocated(0, 4096, 4096).await.err(), Some(Errno::EINVAL));
        assert_eq!(allocated(0, 4096, 0).await.err(), Some(Errno::EINVAL));
    });
}

#[test]
fn data_and_holes_are_found() {
    const MIB: u64 = 1 << 20;
    with_ost(limited(), |server| async move {
        let client = server.node.connect("one").await;
        put(&client, 1, 8 * MIB, &Bytes::from(vec![1; MIB as usize])).await.expect("written");
        assert_eq!(seek(&client, DATA, 0).await, Ok(8 * MIB));
        assert_eq!(seek(&client, HOLE, 0).await, Ok(0));
        assert_eq!(seek(&client, HOLE, 8 * MIB).await, Ok(9 * MIB), "the end is a hole");
        assert_eq!(seek(&client, DATA, 9 * MIB).await, Ok(u64::MAX), "there is none");
        assert_eq!(seek(&client, 7, 0).await, Err(Errno::EINVAL));
    });
}

#[test]
fn attributes_say_size_and_blocks() {
    with_ost(limited(), |server| async move {
        let client = server.node.connect("one").await;
        put(&client, 1, 0, &Bytes::from(vec![1; 8192])).await.expect("written");
        let ask = |id| OstGetattr { ost_body: OstBody { oa: named(id) }, ..OstGetattr::default() };
        let oa = obdo_of(client.call(ask(1)).await).expect("there");
        assert!(oa.valid.contains(Valid::SIZE | Valid::BLOCKS | Valid::MTIME));
        assert_eq!((oa.size, oa.blocks), (8192, 16));
        assert_eq!(obdo_of(client.call(ask(99)).await).err(), Some(Errno::ENOENT));
        let oa = obdo_of(client.call(ask(2)).await).expect("there");
        assert_eq!((oa.size, oa.blocks, oa.mtime), (0, 0, 0), "it was never written");
    });
}
