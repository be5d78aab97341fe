//! Who may ask for what.

use sheen_store_mem::{Commits, MemOptions};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::out::{OutUpdateBuffer, UpdateType};
use sheen_wire::update_record::FORMAT;

use super::super::harness::run;
use super::*;

fn store() -> Arc<StoreMem> {
    Arc::new(StoreMem::new(MemOptions { commits: Commits::Immediate, ..MemOptions::default() }))
}

#[test]
fn only_mdts_that_have_agreed_on_changes_are_answered() {
    let world = TestWorld::new(541);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let asked = [ObjectUpdate::attr_get(ROOT)];
        assert!(first(&m1.ask(&asked).await).is_ok());
        let ask = async |client: &TestClient| {
            results_of(&client.call(request_of(&asked)).await).map(drop)
        };
        assert_eq!(ask(&client.inner).await, Err(Errno::EPERM));
        let ost = server.node.connect_server("lustre-OST0001_UUID").await;
        assert_eq!(ask(&ost).await, Err(Errno::EPERM));
        let identity = "00000001-2222-3333-4444-555555555555";
        let newer = ObdConnectData { update_format: FORMAT + 1, ..offer(identity) };
        m1.inner.connect_with(newer).await.expect("it may ask for sequences");
        assert_eq!(ask(&m1.inner).await, Err(Errno::EPERM));
    };
    run(test, &world);
}

#[test]
fn what_cannot_be_read_is_refused_and_nothing_of_it_is_done() {
    let world = TestWorld::new(542);
    let inner = world.clone();
    let test = async move {
        let (_server, client, m1) = scene(&inner, store()).await;
        let wanted = m1.exclude_of(1, &[excluded_name(ROOT, "a", NameNeeds::CHANGES)], &[]);
        let exclude = ObjectUpdate::exclude(&wanted).expect("it fits");
        let whole = request_of(std::slice::from_ref(&exclude));
        let ask = async |request: OutUpdate| {
            let call = TestCall::new(request).tagged(1);
            results_of(&m1.inner.call_with(call).await.expect("an answer")).map(drop)
        };
        for length in 0..whole.out_update_header.len() {
            let out_update_header = whole.out_update_header.slice(..length);
            let cut = OutUpdate { out_update_header, ..OutUpdate::default() };
            assert_eq!(ask(cut).await, Err(Errno::EPROTO), "{length}");
        }
        let bad = ObjectUpdate { params: vec![Bytes::from_static(b"?")], ..exclude.clone() };
        let two = [exclude.clone(), exclude.clone()];
        let behind = [exclude.clone(), bad];
        let part = m1.part(50, 0, Vec::new());
        let parts = [part.clone(), part];
        for updates in [&two[..], &behind, &parts, &vec![ObjectUpdate::attr_get(ROOT); 65]] {
            assert_eq!(ask(request_of(updates)).await, Err(Errno::EPROTO));
        }
        // Bulk that is announced and is none.
        let mut writer = Writer::default();
        let magic = OutUpdateHeader::MAGIC;
        OutUpdateHeader { magic, count: 1, inline_length: 0, reply_size: 0 }.encode(&mut writer);
        for sizes in [&[][..], &[u32::MAX], &[4], &[4096, 4096]] {
            let buffer = |size: &u32| OutUpdateBuffer { size: *size, padding: 0 };
            let update_buf = sizes.iter().map(buffer).collect();
            let out_update_header = writer.clone().into_bytes();
            let request = OutUpdate { out_update_header, update_buf, ..OutUpdate::default() };
            assert_eq!(ask(request).await, Err(Errno::EPROTO), "{sizes:?}");
        }
        client.mkdir(ROOT, "a").await.expect("nothing is excluded");
    };
    run(test, &world);
}

#[test]
fn updates_come_as_bulk_where_they_are_long() {
    let world = TestWorld::new(543);
    let inner = world.clone();
    let test = async move {
        let (_server, client, m1) = scene(&inner, store()).await;
        let names: Vec<_> = (0..30)
            .map(|number| {
                let named = format!("{number}{}", "x".repeat(200));
                excluded_name(ROOT, &named, NameNeeds::CHANGES)
            })
            .collect();
        let update = ObjectUpdate::exclude(&m1.exclude_of(1, &names, &[])).expect("it fits");
        let source = encode_updates(&[update]).expect("they fit");
        assert!(source.len() > 4096);
        let mut writer = Writer::default();
        let magic = OutUpdateHeader::MAGIC;
        OutUpdateHeader { magic, count: 1, inline_length: 0, reply_size: 0 }.encode(&mut writer);
        let size = source.len() as u32;
        let update_buf = vec![OutUpdateBuffer { size, padding: 0 }];
        let out_update_header = writer.into_bytes();
        let request = OutUpdate { out_update_header, update_buf, ..OutUpdate::default() };
        let call = TestCall { source, ..TestCall::new(request).tagged(1) };
        let answer = m1.inner.call_with(call).await.expect("an answer");
        let said = Excluded::decode(&first(&answer).expect("excluded")).expect("readable");
        assert_eq!((said.names.len(), said.inodes.len()), (30, 1));
        let (own, last) = (client.clone(), format!("29{}", "x".repeat(200)));
        let made = begin(&inner, async move { own.mkdir(ROOT, &last).await }).await;
        assert!(made.lock().is_none());
    };
    run(test, &world);
}

#[test]
fn a_part_changes_what_is_excluded_for_it_and_nothing_else() {
    let world = TestWorld::new(544);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let directory = client.mkdir(ROOT, "d").await.unwrap();
        m1.exclude(1, &[excluded_name(ROOT, "far", NameNeeds::CHANGES)], &[]).await.unwrap();
        let insert =
            |named: &str| ObjectUpdate::index_insert(ROOT, &name(named), m1.far(1), 0o040_000);
        let log = Fid::new(sheen_types::fid_seq::LOCAL_FILE, 0x201);
        for (exclusion, updates, expected) in [
            (1, vec![insert("other")], Errno::EPROTO),
            (1, vec![insert("far"), ObjectUpdate::destroy(directory)], Errno::EPROTO),
            (1, vec![insert("far"), ObjectUpdate::attr_get(ROOT)], Errno::EPROTO),
            (1, vec![insert("far"), ObjectUpdate::index_delete(log, &name("x"))], Errno::EPROTO),
            // What comes without an exclusion must fit to what is there, and be no other change's.
            (0, vec![insert("d")], Errno::EEXIST),
            (2, vec![insert("far")], Errno::ESTALE),
            (1, vec![ObjectUpdate::index_delete(ROOT, &name("far"))], Errno::EIO),
        ] {
            let refused = m1.apply(50, exclusion, updates.clone()).await;
            match expected {
                // The store finds no such name: nothing is changed.
                Errno::EIO => assert!(refused.is_err(), "{refused:?}"),
                expected => assert_eq!(refused, Err(expected), "{exclusion}: {updates:?}"),
            }
        }
        // A record of another MDT's, or without a part for this one.
        let foreign = Coordinator { mdt: MdtIndex(2), ..m1.clone() };
        assert_eq!(
            first(&m1.ask(&[foreign.part(51, 1, vec![insert("far")])]).await),
            Err(Errno::EPROTO)
        );
        let record = UpdateRecord {
            id: ChangeId { coordinator: m1.mdt, transno: Transno(52) },
            ..UpdateRecord::default()
        };
        let nothing = SentPart { starts: 1, exclusion: 1, record };
        let nothing = ObjectUpdate::record(&nothing).expect("it fits");
        assert_eq!(first(&m1.ask(&[nothing]).await), Err(Errno::EPROTO));
        m1.release(1).await;
        client.mkdir(ROOT, "far").await.expect("nothing was changed");
        server.check();
    };
    run(test, &world);
}

#[test]
fn the_first_update_that_fails_is_the_last() {
    let world = TestWorld::new(545);
    let inner = world.clone();
    let test = async move {
        let (_server, client, m1) = scene(&inner, store()).await;
        let directory = client.mkdir(ROOT, "d").await.unwrap();
        let unknown = ObjectUpdate { kind: UpdateType::WRITE, ..ObjectUpdate::default() };
        let asked = [
            ObjectUpdate::index_lookup(ROOT, &name("d")),
            ObjectUpdate::attr_get(directory),
            ObjectUpdate::xattr_get(directory, "user.none"),
            ObjectUpdate::attr_get(ROOT),
        ];
        let results = results_of(&m1.ask(&asked).await).expect("results");
        let statuses: Vec<_> = results.iter().map(|result| result.status).collect();
        assert_eq!(statuses, [0, 0, Errno::ENODATA.status()]);
        let found: sheen_wire::out::NamedInode = read(&results[0].data);
        assert_eq!((found.fid, found.mode), (directory, 0o040_000));
        // What changes something comes in a record, and nothing else is done.
        for bad in [unknown, ObjectUpdate::destroy(directory), ObjectUpdate::parents(m1.far(9))] {
            let answer = first(&m1.ask(std::slice::from_ref(&bad)).await);
            let is_way = bad.kind == UpdateType::PARENTS;
            assert!(is_way || answer == Err(Errno::EOPNOTSUPP), "{bad:?}: {answer:?}");
        }
        client.getattr(directory).await.expect("it is there");
    };
    run(test, &world);
}
