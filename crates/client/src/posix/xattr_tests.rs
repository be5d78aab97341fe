//! What extended attributes cost.

use bytes::Bytes;
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::md::Valid;
use sheen_wire::messages::LdlmIntentGetxattrReply;

use super::tests::{entry, layout, look_up};
use super::*;
use crate::testing::{Fixture, found, lock_reply};

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
