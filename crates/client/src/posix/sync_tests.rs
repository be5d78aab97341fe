//! What `fsync` asks, against a scripted MDT and files in memory.

use sheen_types::Fid;
use sheen_wire::messages::{MdsSyncReply, Request};

use super::tests::layout;
use super::{NodeId, OpenFlags};
use crate::testing::{Fixture, name, opened};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);

#[test]
fn fsync_asks_the_mdt_only_for_what_is_not_durable() {
    let fixture = Fixture::new();
    fixture.mdt.transno.store(50, std::sync::atomic::Ordering::Relaxed);
    fixture.mdt.answer(opened(FILE, 1, true, layout()));
    let files = fixture.files.clone();
    let handle = fixture
        .world
        .run(async move {
            let flags = OpenFlags(OpenFlags::CREATE | 2);
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o644, flags).await
        })
        .unwrap()
        .1
        .handle;
    fixture.mdt.take_asked();
    let sync = |fixture: &Fixture| {
        let files = fixture.files.clone();
        fixture.world.run(async move { files.fsync(handle, true).await })
    };
    fixture.mdt.answer(MdsSyncReply::default());
    assert_eq!(sync(&fixture), Ok(()));
    fixture.mdt.committed.store(50, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(sync(&fixture), Ok(()));
    assert_eq!(fixture.mdt.take_asked().len(), 1);
    // Of everything the client keeps no account.
    fixture.mdt.answer(MdsSyncReply::default());
    let files = fixture.files.clone();
    let all = async move { files.sync_all(&Fixture::root()).await };
    assert_eq!(fixture.world.run(all), Ok(()));
    let asked = fixture.mdt.take_asked();
    let [Request::MdsSync(request)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(request.mdt_body.fid1, Fid::default());
}

#[test]
fn fsync_asks_osts_also_for_what_was_written_before_the_file_was_opened() {
    let synced = |is_created| {
        let fixture = Fixture::new();
        fixture.mdt.answer(opened(FILE, 1, is_created, layout()));
        let files = fixture.files.clone();
        let flags = OpenFlags(OpenFlags::CREATE | 2);
        let sync = async move {
            let (_, opened) =
                files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o644, flags).await?;
            files.fsync(opened.handle, true).await
        };
        fixture.world.run(sync).expect("synced");
        fixture.data.files.lock().get(&FILE).map(|file| file.done.lock().clone())
    };
    assert_eq!(synced(false), Some(vec!["sync".to_owned()]));
    assert_eq!(synced(true), None, "it has no bytes");
}
