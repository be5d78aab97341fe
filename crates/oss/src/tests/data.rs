//! Reads and writes: in bulk, inside the messages, with checksums, and what is refused.

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::MemOptions;
use sheen_types::{Errno, Timestamp};
use sheen_wire::checksum::Checksum;
use sheen_wire::md::{StatfsState, Valid};
use sheen_wire::messages::{OstRead, OstSetattr, OstStatfs, Reply};
use sheen_wire::ost::{BrwFlags, ObdoFlags, OstBody};

use crate::Transfers;

use super::harness::{
    Server, fid, inline, named, obdo_of, piece, put, read, sealed, send, with_ost, write,
};

const NONE: BrwFlags = BrwFlags::NONE;

fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>().into()
}

/// A read whose answer holds the bytes.
fn short(id: u64, offset: u64, length: u32) -> OstRead {
    let mut request = read(id, vec![piece(offset, length, NONE)]);
    request.ost_body.oa.valid |= Valid::FLAGS;
    request.ost_body.oa.flags |= ObdoFlags::SHORT_IO;
    request
}

#[test]
fn what_is_written_is_read_in_bulk_and_inside_the_message() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let data = pattern(3 << 20);
        let oa = put(&client, 1, 0, &data).await.expect("written");
        assert_eq!(oa.size, 3 << 20);
        let answer = client.call(read(1, vec![piece(5, 2 << 20, NONE)])).await;
        assert_eq!(answer.head.status, 2 << 20, "the status says how many bytes there are");
        assert_eq!(answer.bulk, data.slice(5..5 + (2 << 20)));
        let answer = client.call(short(1, 4096, 4096)).await;
        assert_eq!((answer.head.status, answer.bulk.len()), (4096, 0), "no bulk beside it");
        let Some(Reply::OstRead(reply)) = answer.reply else { panic!("a read's reply") };
        assert_eq!(reply.short_io, data.slice(4096..8192));
        let most = 256 << 10;
        let answer = client.call(short(1, 0, most)).await;
        assert_eq!(answer.head.status, most as i32, "as much as Lustre's clients ask for");
        for more in [most + 1, 3 << 20] {
            assert_eq!(client.call(short(1, 0, more)).await.errno(), Some(Errno::EPROTO));
        }
        let small = pattern(100);
        let request = inline(write(2, vec![piece(10, 100, NONE)]), &small);
        obdo_of(client.call(request).await).expect("written");
        assert_eq!(server.bytes(2), [&[0; 10][..], &small].concat());
    });
}

#[test]
fn no_client_changes_an_ost_that_is_read_only() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        put(&client, 1, 0, &pattern(5000)).await.expect("written");
        server.ost.set_read_only(true);
        assert_eq!(put(&client, 1, 0, &pattern(10)).await.err(), Some(Errno::EROFS));
        let setattr = OstSetattr { ost_body: OstBody { oa: named(1) }, ..OstSetattr::default() };
        assert_eq!(client.call(setattr).await.errno(), Some(Errno::EROFS));
        let answer = client.call(short(1, 0, 8192)).await;
        assert_eq!(answer.head.status, 5000, "it is read as before");
        let answer = client.call(OstStatfs::default()).await;
        let Some(Reply::OstStatfs(reply)) = answer.reply else { panic!("an answer to statfs") };
        let state = reply.obd_statfs.expect("numbers").state;
        assert!(state.contains(StatfsState::READONLY));
        server.ost.set_read_only(false);
        put(&client, 1, 0, &pattern(10)).await.expect("no longer read-only");
    });
}

#[test]
fn a_read_ends_with_the_object() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        put(&client, 1, 0, &pattern(5000)).await.expect("written");
        for (offset, length, there) in [(0, 8192, 5000), (4096, 4096, 904), (5000, 10, 0)] {
            let answer = client.call(short(1, offset, length)).await;
            assert_eq!(answer.head.status, there, "{offset}+{length}");
            let answer = client.call(read(1, vec![piece(offset, length, NONE)])).await;
            assert_eq!(answer.head.status, there, "{offset}+{length}");
            assert_eq!(answer.bulk.len(), there as usize);
        }
    });
}

#[test]
fn several_pieces_go_where_they_belong() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let data = pattern(9000);
        let pieces = vec![piece(0, 4096, NONE), piece(4096, 904, NONE), piece(16384, 4000, NONE)];
        obdo_of(send(&client, write(1, pieces.clone()), &data).await).expect("written");
        let expected = [&data[..5000], &[0; 11384], &data[5000..]].concat();
        assert_eq!(server.bytes(1), expected);
        let answer = client.call(read(1, pieces)).await;
        assert_eq!(answer.bulk, data);
        let (reads, writes) = server.ost.transfers();
        // Three pages, of which the third does not follow the second; two writes of 5000 and 4000
        // bytes, three reads, none beside another.
        assert_eq!((reads.pages[2], writes.pages[2]), (1, 1));
        assert_eq!((reads.gaps[1], writes.gaps[1]), (1, 1));
        assert_eq!((reads.accesses[3], writes.accesses[2]), (1, 1));
        assert_eq!((writes.bytes[12], writes.bytes[13], writes.in_flight[1]), (1, 1, 2));
        assert_eq!((reads.bytes[12], reads.bytes[10], reads.in_flight[1]), (2, 1, 3));
        server.ost.clear_transfers();
        assert_eq!(server.ost.transfers(), (Transfers::default(), Transfers::default()));
    });
}

#[test]
fn checksums_are_checked_and_answered() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let (data, other) = (pattern(8192), pattern(8193).slice(1..));
        let request = sealed(write(1, vec![piece(0, 8192, NONE)]), &data);
        let answer = send(&client, request.clone(), &other).await;
        // An errno would be taken for another refusal, which passes.
        let oa = obdo_of(answer).expect("a sum, and no errno");
        let seen = Checksum::Crc32c.of(std::slice::from_ref(&other));
        assert_eq!(oa.nlink, seen, "our sum of what arrived, so that it is seen");
        assert!(!oa.valid.contains(Valid::GRANT), "nothing was written, and nothing granted");
        assert_eq!(server.bytes(1), Bytes::new(), "nothing was written");
        obdo_of(send(&client, request, &data).await).expect("written");
        let mut request = short(1, 0, 8192);
        request.ost_body.oa.valid |= Valid::CKSUM;
        request.ost_body.oa.flags |= ObdoFlags::of_checksum(Checksum::Adler);
        let oa = obdo_of(client.call(request).await).expect("read");
        assert!(oa.valid.contains(Valid::CKSUM));
        assert_eq!(oa.nlink, Checksum::Adler.of(&[data]));
        let oa = obdo_of(client.call(short(1, 0, 8192)).await).expect("read");
        assert!(!oa.valid.contains(Valid::CKSUM), "no sum was asked for");
    });
}

#[test]
fn what_breaks_the_protocol_is_refused_and_changes_nothing() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let data = pattern(4096);
        let refused = async |request, errno| {
            assert_eq!(send(&client, request, &data).await.errno(), Some(errno));
        };
        refused(write(1, vec![]), Errno::EPROTO).await;
        refused(write(1, vec![piece(0, 0, NONE)]), Errno::EPROTO).await;
        let backwards = vec![piece(4096, 10, NONE), piece(0, 10, NONE)];
        refused(write(1, backwards), Errno::EPROTO).await;
        let overlapping = vec![piece(0, 4096, NONE), piece(4095, 10, NONE)];
        refused(write(1, overlapping), Errno::EPROTO).await;
        refused(write(1, vec![piece(0, u32::MAX, NONE)]), Errno::EPROTO).await;
        refused(write(99, vec![piece(0, 4096, NONE)]), Errno::ENOENT).await;
        refused(write(0, vec![piece(0, 4096, NONE)]), Errno::ENOENT).await;
        let mut two = write(1, vec![piece(0, 4096, NONE)]);
        two.obd_ioobj[0].bufcnt = 2;
        refused(two, Errno::EPROTO).await;
        let mut none = write(1, vec![piece(0, 4096, NONE)]);
        none.obd_ioobj.clear();
        refused(none, Errno::EPROTO).await;
        let shorter = inline(write(1, vec![piece(0, 4096, NONE)]), &data.slice(1..));
        refused(shorter, Errno::EPROTO).await;
        assert_eq!(server.bytes(1), Bytes::new());
    });
}

#[test]
fn a_bulk_that_does_not_come_whole_is_no_write() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let half = pattern(4096);
        let answer = send(&client, write(1, vec![piece(0, 8192, NONE)]), &half).await;
        assert!(answer.errno().is_some(), "half of the data is no data");
        assert_eq!(server.bytes(1), Bytes::new());
        assert_eq!(server.store.attributes(fid(1)).expect("there").modified, Timestamp::default());
    });
}

#[test]
fn the_first_writer_owns_the_object_and_times_only_go_forward() {
    with_ost(MemOptions::default(), |server| async move {
        let client = server.node.connect("one").await;
        let by = async |uid, mtime| {
            let data = pattern(10);
            let mut request = inline(write(1, vec![piece(0, 10, NONE)]), &data);
            let oa = &mut request.ost_body.oa;
            oa.valid |= Valid::UID | Valid::GID | Valid::MTIME | Valid::CTIME;
            (oa.uid, oa.gid, oa.mtime, oa.ctime) = (uid, uid, mtime, mtime);
            obdo_of(client.call(request).await).expect("written")
        };
        assert_eq!(by(1000, 500).await.uid, 1000);
        let late = by(2000, 400).await;
        assert_eq!((late.uid, late.mtime, late.ctime), (1000, 500, 500));
        let mut oa = named(1);
        oa.valid |= Valid::MTIME | Valid::UID;
        (oa.mtime, oa.uid) = (7, 3000);
        let request = OstSetattr { ost_body: OstBody { oa }, ..OstSetattr::default() };
        let mdt = server.node.connect_server("mdt-2").await;
        obdo_of(mdt.call(request).await).expect("set");
        let now = server.store.attributes(fid(1)).expect("there");
        assert_eq!((now.modified.seconds, now.uid), (7, 3000), "a setattr may go back");
    });
}

#[test]
fn a_full_store_refuses_and_keeps_what_it_has() {
    let options = MemOptions { capacity_bytes: Some(1 << 20), ..MemOptions::default() };
    with_ost(options, |server: Server| async move {
        let client = server.node.connect("one").await;
        let data = pattern(1 << 20);
        put(&client, 1, 0, &data.slice(..512 << 10)).await.expect("half is free");
        assert_eq!(put(&client, 2, 0, &data).await.err(), Some(Errno::ENOSPC));
        assert_eq!(server.bytes(1), data.slice(..512 << 10));
        put(&client, 1, 0, &data.slice(1..4097)).await.expect("what has its blocks is written");
        assert_eq!(server.bytes(1).slice(..4096), data.slice(1..4097));
    });
}
