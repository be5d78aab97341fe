//! What extended attributes cost.

use bytes::Bytes;
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::LdlmIntentGetxattrReply;

use super::tests::{entry, getattr_request, layout, look_up};
use super::*;
use crate::testing::{Fixture, blocking, found, lock_reply};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);
/// LOOKUP, UPDATE, PERM.
const WHOLE: InodeBits = InodeBits(0x13);

/// `cp -a` reads each attribute that is listed, asks for access control lists, and sets what it has read.
#[test]
fn what_cp_reads_and_sets_of_a_file_costs_one_request() {
    let fixture = Fixture::new();
    let mut file = found(FILE, 0o100_644, 0x77, WHOLE | InodeBits::LAYOUT);
    file.mdt_md = layout();
    let body = file.mdt_body.as_mut().expect("attributes");
    body.valid |= Valid::EASIZE | Valid::ACL;
    body.eadatasize = layout().len() as u32;
    fixture.mdt.answer(file);
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.take_asked();
    fixture.mdt.answer(LdlmIntentGetxattrReply {
        dlm_rep: Some(lock_reply(FILE, 0x79, LockMode::Pr, InodeBits::XATTR)),
        eadata: Bytes::from_static(b"trusted.lma\0trusted.link\0trusted.lov\0trusted.som\0"),
        eavals: [b"12", &layout()[..], b"3"].concat().into(),
        eavals_lens: vec![1, 1, layout().len() as u32, 1],
        ..Default::default()
    });
    let files = fixture.files.clone();
    fixture.world.run(async move {
        let root = Fixture::root();
        let listed = files.listxattr(&root, node).await.unwrap();
        let names: Vec<_> = listed.split(|byte| *byte == 0).filter(|it| !it.is_empty()).collect();
        assert_eq!(names.len(), 4, "without trusted.som, which real MDTs list: {listed:?}");
        for name in names {
            let value = files.getxattr(&root, node, name).await.unwrap();
            assert_eq!(value == layout(), name.ends_with(b"lov"));
            files.setxattr(&root, node, name, value, XattrMode::Any).await.unwrap();
        }
        for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
            assert_eq!(files.getxattr(&root, node, name).await, Err(Errno::ENODATA));
        }
    });
    assert_eq!(fixture.mdt.take_asked().len(), 1);
}

/// `ls -l` and a first write ask for attributes that most files lack.
#[test]
fn absent_attributes_cost_nothing_once_the_mdt_said_so() {
    let fixture = Fixture::new();
    let answer = |bits| {
        let mut file = found(FILE, 0o100_644, 0x77, bits);
        file.mdt_md = layout();
        let body = file.mdt_body.as_mut().expect("attributes");
        body.valid |= Valid::EASIZE | Valid::ACL;
        body.eadatasize = layout().len() as u32;
        body.xattr_absent = MdtBody::NO_XATTRS;
        file
    };
    let first = answer(WHOLE | InodeBits::LAYOUT | InodeBits::XATTR);
    let lock = first.dlm_rep.clone().unwrap();
    fixture.mdt.answer(first);
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    let looked_up = fixture.mdt.take_asked();
    let files = fixture.files.clone();
    fixture.world.run(async move {
        let root = Fixture::root();
        let listed = files.listxattr(&root, node).await.unwrap();
        assert_eq!(&listed[..], b"trusted.link\0trusted.lov\0lustre.lov\0");
        for name in ["security.capability", "security.selinux", "user.x", "system.posix_acl_access"]
        {
            assert_eq!(files.getxattr(&root, node, name.as_bytes()).await, Err(Errno::ENODATA));
        }
    });
    assert!(fixture.mdt.take_asked().is_empty());
    let callback = blocking(&getattr_request(&looked_up).dlm_req, &lock);
    fixture.locks.on_blocking(&callback).unwrap();
    fixture.world.settle();
    // Without a lock on them nothing is believed.
    fixture.mdt.answer(answer(WHOLE | InodeBits::LAYOUT));
    fixture.mdt.answer(LdlmIntentGetxattrReply {
        dlm_rep: Some(lock_reply(FILE, 0x79, LockMode::Pr, InodeBits::XATTR)),
        eadata: Bytes::from_static(b"user.x\0"),
        eavals: Bytes::from_static(b"1"),
        eavals_lens: vec![1],
        ..Default::default()
    });
    let files = fixture.files.clone();
    fixture.world.run(async move {
        files.getattr(&Fixture::root(), node).await.unwrap();
        assert_eq!(&files.getxattr(&Fixture::root(), node, b"user.x").await.unwrap()[..], b"1");
    });
}
