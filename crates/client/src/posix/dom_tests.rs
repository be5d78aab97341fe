//! Data on the MDT as the facade sees it: what comes with an open, what changes and removals do.

use bytes::Bytes;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, Timestamp};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::lov::{
    CompFlags, LovComp, LovCompEntry, LovCompHeader, LovComponent, LovEa, LovMagic, LovMd,
    LovMdHeader, LovPattern,
};
use sheen_wire::md::Valid;
use sheen_wire::messages::{
    LdlmIntentOpenReply, MdsReintSetattrReply, MdsReintUnlinkReply, Request,
};
use sheen_wire::ost::NiobufRemote;

use super::*;
use crate::testing::{Fixture, body, found, lock_reply, name, opened};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);
const WITH_DATA: InodeBits = InodeBits(0x5b);

/// One component of 64 KiB on the MDT.
fn layout() -> Bytes {
    let header =
        LovMdHeader { magic: LovMagic::V1, pattern: LovPattern::MDT, ..LovMdHeader::default() };
    let entry = LovCompEntry { id: 1, flags: CompFlags::INIT, end: 64 << 10, ..Default::default() };
    let layout =
        LovMd { header: LovMdHeader { stripe_size: 64 << 10, ..header }, ..LovMd::default() };
    let header =
        LovCompHeader { magic: LovMagic::COMP_V1, layout_gen: 1, ..LovCompHeader::default() };
    LovEa::Composite(LovComp { header, components: vec![LovComponent { entry, layout }] }).encode()
}

fn inline(data: &[u8]) -> Bytes {
    let mut writer = Writer::with_capacity(64);
    NiobufRemote { len: data.len() as u32, ..NiobufRemote::default() }.encode(&mut writer);
    [&writer.into_bytes()[..], data].concat().into()
}

/// The answer to an open of a file of five bytes, with a lock on `bits`.
fn opened_with(bits: InodeBits) -> LdlmIntentOpenReply {
    let mut reply = opened(FILE, 0xabc, false, layout());
    let disposition = reply.dlm_rep.as_ref().expect("a lock").policy_res1;
    let mut lock = lock_reply(FILE, 0x55, LockMode::Pr, bits);
    lock.policy_res1 = disposition;
    reply.dlm_rep = Some(lock);
    let body = reply.mdt_body.as_mut().expect("attributes");
    body.valid |= Valid::DOM_SIZE;
    (body.dom_size, body.dom_blocks) = (5, 8);
    reply.niobuf_inline = inline(b"hello");
    reply
}

fn done(fixture: &Fixture) -> Vec<String> {
    std::mem::take(&mut *fixture.inode_data.done.lock())
}

/// Looks the file up, with a lock on `bits`.
fn looked_up(fixture: &Fixture, bits: InodeBits) -> NodeId {
    fixture.mdt.answer(found(FILE, 0o100_644, 0x77, bits));
    let files = fixture.files.clone();
    let lookup = async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name("f")).await };
    match fixture.world.run(lookup) {
        Ok(Lookup::Found(entry)) => entry.node,
        other => panic!("expected an entry, got {other:?}"),
    }
}

#[test]
fn an_open_hands_on_what_it_brought_if_a_lock_covers_it() {
    for (bits, is_brought) in [(WITH_DATA, true), (InodeBits(0x1b), false)] {
        let fixture = Fixture::new();
        let node = looked_up(&fixture, InodeBits(0x13));
        fixture.mdt.answer(opened_with(bits));
        let files = fixture.files.clone();
        let open = async move { files.open(&Fixture::root(), node, OpenFlags(0)).await };
        fixture.world.run(open).expect("opened");
        let expected = format!("brought {FILE} 0+5 of 0..=65535");
        assert_eq!(done(&fixture), Vec::from_iter(is_brought.then_some(expected)));
    }
}

#[test]
fn an_open_that_fails_hands_nothing_on() {
    let fixture = Fixture::new();
    let node = looked_up(&fixture, InodeBits(0x13));
    let mut reply = opened_with(WITH_DATA);
    reply.dlm_rep.as_mut().expect("a lock").policy_res2 = u64::from(Errno::EACCES.status() as u32);
    fixture.mdt.answer(reply);
    let files = fixture.files.clone();
    let open = async move { files.open(&Fixture::root(), node, OpenFlags(0)).await };
    assert_eq!(fixture.world.run(open).map(|_| ()), Err(Errno::EACCES));
    assert_eq!(done(&fixture), Vec::<String>::new());
}

#[test]
fn times_that_are_set_count_for_what_was_written() {
    let fixture = Fixture::new();
    let node = looked_up(&fixture, InodeBits(0x13));
    let change = |changes: SetAttributes| {
        fixture.mdt.answer(MdsReintSetattrReply {
            mdt_body: Some(body(FILE, 0o100_644)),
            ..MdsReintSetattrReply::default()
        });
        fixture.mdt.answer(opened(FILE, 1, false, Bytes::new()));
        let files = fixture.files.clone();
        let set = async move { files.setattr(&Fixture::root(), node, None, changes).await };
        // Whatever else is asked afterwards has no answer here.
        let _ = fixture.world.run(set);
        done(&fixture)
    };
    let mtime = Some(SetTime::To(Timestamp::from_seconds(7)));
    assert_eq!(change(SetAttributes { mtime, ..SetAttributes::default() }), ["times None Some(7)"]);
    let mode = Some(0o600);
    assert!(change(SetAttributes { mode, ..SetAttributes::default() }).is_empty());
}

#[test]
fn a_removal_gives_the_lock_on_data_back_unless_it_is_dirty() {
    for is_dirty in [false, true] {
        let fixture = Fixture::new();
        fixture.locks.engine().set_convert(true);
        looked_up(&fixture, InodeBits(0x53));
        fixture.mdt.take_asked();
        *fixture.inode_data.dirty.lock() = is_dirty;
        fixture.mdt.answer(MdsReintUnlinkReply::default());
        let files = fixture.files.clone();
        let unlink = async move { files.unlink(&Fixture::root(), NodeId::ROOT, &name("f")).await };
        assert_eq!(fixture.world.run(unlink), Ok(()));
        match &fixture.mdt.take_asked()[..] {
            [Request::MdsReintUnlink(request)] => {
                let cancels = request.dlm_req.as_ref().map(|cancels| cancels.counted().to_vec());
                assert_eq!(cancels, (!is_dirty).then(|| vec![LockHandle(0x77)]));
            }
            other => panic!("expected an unlink, got {other:?}"),
        }
    }
}
