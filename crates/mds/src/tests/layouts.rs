//! Composite layouts: made, inherited, grown by intents, changed by attributes, replayed, destroyed.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::plan::{END_OF_FILE, Part, Plan, Striping};
use sheen_layout::stored::Stored;
use sheen_rpc::ImportState;
use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestAnswer, TestCall, TestWorld};
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, ResourceName};
use sheen_wire::connect::{ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{
    FlockPolicy, InodeBitsPolicy, IntentOp, LdlmIntent, LockFlags, LockType, Policy,
};
use sheen_wire::lov::{
    CompFlags, LovComp, LovCompEntry, LovComponent, LovEa, LovMagic, LovMd, LovMdHeader, PoolName,
};
use sheen_wire::md::{AttrValid, LayoutIntent, LayoutIntentOp, MdsOpenFlags, Valid};
use sheen_wire::messages::{
    LdlmEnqueue, LdlmIntentLayout, MdsGetattr, MdsGetattrName, MdsSwapLayouts, Reply,
};
use sheen_wire::ptlrpc::MsgFlags;
use sheen_wire::text::Text;

use super::fake_ost::FakeOst;
use super::harness::{Client, Opened, REGULAR, Server, opened, run};
use super::recovery::{crash, finish_recovery, manual};

const MIB: u64 = 1 << 20;

fn part(start: u64, end: u64, stripe_count: u16) -> Part {
    Part { start, end, striping: Striping { stripe_count, ..Striping::default() } }
}

fn on_mdt(end: u64) -> Part {
    let striping = Striping { on_mdt: true, stripe_size: end as u32, ..Striping::default() };
    Part { start: 0, end, striping }
}

/// A component of 64 KiB, one to 1 MiB, and the rest.
fn three() -> Plan {
    Plan::Composite(vec![part(0, 65536, 1), part(65536, MIB, 2), part(MIB, END_OF_FILE, 4)])
}

pub(super) fn stored(layout: &Bytes) -> Stored {
    Stored::decode(layout).expect("a layout")
}

pub(super) async fn create_with(client: &Client, name: &str, plan: &Plan) -> Result<Opened, Errno> {
    let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | MdsOpenFlags::HAS_EA;
    let mut request = client.open_request(Fid::ROOT, name, flags);
    request.eadata = plan.encode();
    let mine = request.dlm_req.handles[0];
    let call = TestCall::new(request).tagged(client.next_tag());
    let opened = opened(client.inner.call_with(call).await.expect("an answer"))?;
    if let Some((server, ..)) = opened.lock {
        client.keep(mine, server);
    }
    Ok(opened)
}

fn intent(client: &Client, file: Fid, end: u64) -> LdlmIntentLayout {
    let layout_intent = LayoutIntent { op: LayoutIntentOp::WRITE, end, ..LayoutIntent::default() };
    LdlmIntentLayout {
        dlm_req: client.dlm(file, LockMode::Ex, InodeBits::LAYOUT),
        ldlm_intent: LdlmIntent { opc: IntentOp::LAYOUT },
        layout_intent,
        ..LdlmIntentLayout::default()
    }
}

/// Asks for the objects that a write up to `end` needs: the answer and the layout in it.
async fn grow(client: &Client, file: Fid, end: u64) -> (TestAnswer, Result<Stored, Errno>) {
    let request = intent(client, file, end);
    let mine = request.dlm_req.handles[0];
    let answer = client.inner.call_with(TestCall::new(request).tagged(7)).await.expect("an answer");
    let grown = match (answer.errno(), answer.reply.clone()) {
        (Some(errno), _) => Err(errno),
        (None, Some(Reply::LdlmIntentLayout(reply))) => {
            let lock = reply.dlm_rep.expect("a lock");
            assert_eq!(lock.desc.granted_mode.mode(), Some(LockMode::Cr));
            client.keep(mine, lock.handle);
            Ok(stored(&reply.dlm_lvb))
        }
        other => panic!("{other:?}"),
    };
    (answer, grown)
}

/// A value of `lustre.lov.del` or `.set.flags`.
fn naming(id: u32, flags: CompFlags) -> Bytes {
    let mut composite = LovComp::default();
    composite.header.magic = LovMagic::COMP_V1;
    let header = LovMdHeader { magic: LovMagic::V1, ..LovMdHeader::default() };
    let layout = LovMd { header, ..LovMd::default() };
    let entry = LovCompEntry { id, flags, ..LovCompEntry::default() };
    composite.components.push(LovComponent { entry, layout });
    LovEa::Composite(composite).encode()
}

/// A client has a group lock as long as it likes, and a change of the layout excludes other operations on the inode.
#[test]
fn data_that_a_group_has_locked_is_not_removed_with_its_component() {
    let world = TestWorld::new(98);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let plan = Plan::Composite(vec![on_mdt(1 << 16)]);
            let file = create_with(&client, "f", &plan).await.unwrap().body.fid1;
            let mut dlm_req = client.dlm(file, LockMode::Group, InodeBits::DOM);
            dlm_req.flags = LockFlags::NONE;
            let policy = InodeBitsPolicy { bits: InodeBits::DOM.0, gid: 5, ..Default::default() };
            dlm_req.desc.policy = Policy::inode_bits(&policy);
            let answer = client.inner.call(LdlmEnqueue { dlm_req, ..Default::default() }).await;
            assert_eq!(answer.errno(), None);
            let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("no lock") };
            let group = reply.dlm_rep.expect("a lock").handle;
            assert_ne!(group, LockHandle(0));
            let all = naming(0, CompFlags::INIT);
            let remove = async || client.setxattr(file, "lustre.lov.del", Some(&all), 0).await;
            assert_eq!(remove().await, Err(Errno::EBUSY));
            client.getattr(file).await.expect("is not excluded");
            client.inner.cancel(&[group]).await;
            assert_eq!(remove().await, Ok(()));
            server.check();
        },
        &world,
    );
}

/// The lock of an intent is the server's own before it is the client's. A flock was left entered for the server when the
/// client had cancelled it, and its slot was taken for the server's still when another client's lock was there.
#[test]
fn an_intent_gives_no_flock() {
    let world = TestWorld::new(97);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let mut request = intent(&client, file, 0);
            request.layout_intent.op = LayoutIntentOp::ACCESS;
            let policy = FlockPolicy { start: 0, end: 9, owner: 7, pid: 7, padding: 0 };
            let desc = &mut request.dlm_req.desc;
            desc.resource.kind = LockType::FLOCK;
            desc.resource.name = ResourceName::of_flocks(file);
            desc.req_mode = LockMode::Pw.into();
            desc.policy = Policy::flock(&policy);
            let granted = || server.node.target.namespace().gauges().granted;
            let before = granted();
            let answer = client.inner.call(request).await;
            assert_eq!((answer.errno(), granted()), (Some(Errno::EPROTO), before));
        },
        &world,
    );
}

#[test]
fn components_get_objects_when_they_are_written() {
    let world = TestWorld::new(300);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let other = server.client("d").await;
            let opened = create_with(&client, "f", &three()).await.unwrap();
            let file = opened.body.fid1;
            let new = stored(&opened.layout);
            assert_eq!((new.generation(), new.objects().len()), (3, 1));
            let (_, second) = grow(&client, file, 81_920).await;
            let second = second.unwrap();
            // The second has room for one stripe only: it was requested so.
            assert_eq!((second.generation(), second.objects().len()), (4, 2));
            let (answer, full) = grow(&other, file, 2 * MIB).await;
            let full = full.unwrap();
            assert_eq!((full.generation(), full.objects().len()), (5, 6));
            assert_ne!(answer.head.transno.0, 0);
            let (answer, same) = grow(&client, file, u64::MAX).await;
            assert_eq!((answer.head.transno.0, same.unwrap()), (0, full.clone()));
            assert_eq!(stored(&client.getxattr(file, "trusted.lov").await.unwrap()), full);
            client.close(&opened).await.unwrap();
            assert_eq!(server.check().objects.len(), 6);
            client.unlink(Fid::ROOT, "f").await.unwrap();
            client.wait(&inner, 20).await;
            let report = server.check();
            assert_eq!((report.objects.len(), report.dying.len()), (0, 0));
        },
        &world,
    );
}

#[test]
fn nothing_is_written_behind_the_last_component() {
    let world = TestWorld::new(301);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let plan = Plan::Composite(vec![part(0, 65536, 1), part(65536, MIB, 1)]);
            let file = create_with(&client, "f", &plan).await.unwrap().body.fid1;
            assert_eq!(grow(&client, file, MIB + 1).await.1, Err(Errno::EINVAL));
            assert!(grow(&client, file, MIB).await.1.is_ok());
            server.check();
        },
        &world,
    );
}

#[test]
fn a_directory_s_components_are_inherited() {
    let world = TestWorld::new(302);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let value = three().encode();
            client.setxattr(directory, "lustre.lov", Some(&value), 0).await.unwrap();
            assert_eq!(client.getxattr(directory, "lustre.lov").await.unwrap(), value);
            let sub = client.mkdir(directory, "sub").await.unwrap();
            let opened = client.create(sub, "f").await.unwrap();
            let layout = stored(&opened.layout);
            assert_eq!((layout.generation(), layout.objects().len()), (3, 1));
            assert_eq!(layout.striping(1).unwrap().stripe_size, 1 << 20);
            // A request for nothing in particular is none.
            let bare = client.make(sub, "bare", REGULAR | 0o644).await.unwrap();
            let nothing = Plan::default().encode();
            client.setxattr(bare, "lustre.lov", Some(&nothing), 0).await.unwrap();
            let bare = client.getxattr(bare, "lustre.lov").await.unwrap();
            assert_eq!(stored(&bare).generation(), 3);
            // A log is laid out plainly.
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | MdsOpenFlags::APPEND;
            let log = client.open(sub, "log", flags).await.unwrap();
            assert!(!stored(&log.layout).is_composite());
            client.setxattr(sub, "lustre.lov", None, 0).await.unwrap();
            let plain = client.create(sub, "g").await.unwrap();
            assert!(!stored(&plain.layout).is_composite());
            server.check();
        },
        &world,
    );
}

#[test]
fn the_limit_on_the_mdt_holds_for_requests_and_defaults() {
    let world = TestWorld::new(303);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let limit = |bytes| {
                let set = |settings: &mut crate::LayoutSettings| settings.set_dom_stripesize(bytes);
                server.mdt.change_layout_settings(set)
            };
            let rest = part(8 * MIB, END_OF_FILE, 1);
            let both = Plan::Composite(vec![on_mdt(8 * MIB), rest]);
            let end = async |name: &str, plan: &Plan| {
                let opened = create_with(&client, name, plan).await?;
                let layout = stored(&opened.layout);
                Ok((layout.end_on_mdt(), layout.objects().len()))
            };
            assert_eq!(end("a", &both).await, Ok((Some(MIB), 0)));
            limit(65536).unwrap();
            assert_eq!(end("b", &both).await, Ok((Some(65536), 0)));
            assert_eq!(limit(1025 << 20), Err(Errno::ERANGE));
            limit(0).unwrap();
            assert_eq!(end("c", &both).await, Ok((None, 1)));
            let alone = Plan::Composite(vec![on_mdt(MIB)]);
            assert_eq!(end("d", &alone).await, Err(Errno::EINVAL));
            let directory = client.mkdir(Fid::ROOT, "dir").await.unwrap();
            let value = alone.encode();
            let set = client.setxattr(directory, "lustre.lov", Some(&value), 0).await;
            assert_eq!(set, Err(Errno::EFBIG));
            limit(4 << 20).unwrap();
            client.setxattr(directory, "lustre.lov", Some(&value), 0).await.unwrap();
            limit(65536).unwrap();
            let opened = client.create(directory, "f").await.unwrap();
            let layout = stored(&opened.layout);
            assert_eq!((layout.end_on_mdt(), layout.is_on_mdt_alone()), (Some(65536), true));
            server.check();
        },
        &world,
    );
}

#[test]
fn what_operators_set_holds_where_a_file_asks_for_nothing_else() {
    let world = TestWorld::new(316);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let set = |set: fn(&mut crate::LayoutSettings) -> Result<(), Errno>| {
                server.mdt.change_layout_settings(set).unwrap();
            };
            let osts = async |name: &str, flags: MdsOpenFlags| {
                let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | flags;
                let opened = client.open(Fid::ROOT, name, flags).await.unwrap();
                let mut osts: Vec<_> =
                    stored(&opened.layout).objects().into_iter().map(|(ost, _)| ost).collect();
                client.close(&opened).await.unwrap();
                osts.sort_unstable();
                osts
            };
            let all = Plan::Plain(Striping { stripe_count: 0xffff, ..Striping::default() });
            // The root has no default of its own, so that of the MDT counts.
            assert_eq!(osts("one", MdsOpenFlags::NONE).await.len(), 1);
            set(|settings| settings.set_stripecount(3));
            assert_eq!(osts("three", MdsOpenFlags::NONE).await.len(), 3);
            assert_eq!(osts("log", MdsOpenFlags::APPEND).await.len(), 1);
            // Files that are appended to: as other files, on all OSTs, in a pool of their own.
            set(|settings| settings.set_append_stripe_count(0));
            assert_eq!(osts("log3", MdsOpenFlags::APPEND).await.len(), 3);
            set(|settings| settings.set_append_stripe_count(-1));
            assert_eq!(osts("log4", MdsOpenFlags::APPEND).await.len(), 4);
            server.mdt.set_pools([(PoolName::new("logs").unwrap(), vec![1, 3])].into());
            set(|settings| settings.set_append_pool("logs"));
            assert_eq!(osts("pooled", MdsOpenFlags::APPEND).await, [1, 3]);
            set(|settings| settings.set_append_stripe_count(0));
            assert_eq!(osts("pooled2", MdsOpenFlags::APPEND).await, [1, 3]);
            assert_eq!(osts("other", MdsOpenFlags::NONE).await.len(), 3);
            // The most of a file that is to lie on all OSTs.
            let wide = create_with(&client, "wide", &all).await.unwrap();
            assert_eq!(stored(&wide.layout).objects().len(), 4);
            set(|settings| settings.set_max_stripecount(2));
            let wide = create_with(&client, "limited", &all).await.unwrap();
            assert_eq!(stored(&wide.layout).objects().len(), 2);
            server.check();
        },
        &world,
    );
}

#[test]
fn components_are_added_and_removed_by_attributes() {
    let world = TestWorld::new(304);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let plan = Plan::Composite(vec![part(0, MIB, 1)]);
            let file = create_with(&client, "f", &plan).await.unwrap().body.fid1;
            let change =
                async |name: &str, value: &Bytes| client.setxattr(file, name, Some(value), 0).await;
            let layout = async || stored(&client.getxattr(file, "lustre.lov").await.unwrap());
            let more = Plan::Composite(vec![part(MIB, END_OF_FILE, 2)]).encode();
            change("lustre.lov.add", &more).await.unwrap();
            assert_eq!(layout().await.end(), END_OF_FILE);
            assert_eq!(change("lustre.lov.add", &more).await, Err(Errno::EINVAL));
            grow(&client, file, 2 * MIB).await.1.unwrap();
            assert_eq!(layout().await.objects().len(), 3);
            let first = naming(1, CompFlags::NONE);
            assert_eq!(change("lustre.lov.del", &first).await, Err(Errno::EINVAL));
            let flags = naming(1, CompFlags::INIT);
            assert_eq!(change("lustre.lov.set.flags", &flags).await, Err(Errno::EINVAL));
            let prefer = naming(1, CompFlags::PREF_RD);
            assert_eq!(change("lustre.lov.set.flags", &prefer).await, Err(Errno::EOPNOTSUPP));
            assert_eq!(change("lustre.lov.bogus", &flags).await, Err(Errno::EINVAL));
            let second = naming(2, CompFlags::NONE);
            change("lustre.lov.del", &second).await.unwrap();
            assert_eq!((layout().await.end(), layout().await.objects().len()), (MIB, 1));
            change("lustre.lov.del", &naming(0, CompFlags::INIT)).await.unwrap();
            assert_eq!(client.getxattr(file, "lustre.lov").await, Err(Errno::ENODATA));
            client.wait(&inner, 20).await;
            let report = server.check();
            assert_eq!((report.objects.len(), report.dying.len()), (0, 0));
            assert_eq!(change("lustre.lov.add", &more).await, Err(Errno::EINVAL));
            change("lustre.lov", &three().encode()).await.unwrap();
            assert_eq!(layout().await.objects().len(), 1);
            server.check();
        },
        &world,
    );
}

/// Lustre's clients report a size with each close, also of the file whose components they had open to remove them
/// (sanity-pfl 3).
#[test]
fn a_file_that_lost_its_objects_has_no_size_whatever_its_clients_remember() {
    let world = TestWorld::new(318);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let plan = Plan::Composite(vec![part(0, MIB, 1)]);
            let opened = create_with(&client, "f", &plan).await.unwrap();
            let file = opened.body.fid1;
            let reports_size = async |opened: &Opened| {
                let mut request = client.close_request(file, opened.body.open_handle);
                request.rec_reint.valid = AttrValid::LSIZE | AttrValid::LBLOCKS;
                (request.rec_reint.size, request.rec_reint.blocks) = (MIB, MIB / 512);
                client.modify(request).await.unwrap();
            };
            reports_size(&opened).await;
            let opened = client.open_fid(file, MdsOpenFlags::WRITE).await.unwrap();
            let all = naming(0, CompFlags::INIT);
            client.setxattr(file, "lustre.lov.del", Some(&all), 0).await.unwrap();
            reports_size(&opened).await;
            let body = client.getattr(file).await.unwrap();
            assert!(body.valid.contains(Valid::SIZE));
            assert_eq!((body.size, body.blocks), (0, 0));
        },
        &world,
    );
}

#[test]
fn a_file_on_the_mdt_loses_its_data_with_its_layout() {
    let world = TestWorld::new(305);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file =
                create_with(&client, "f", &Plan::Composite(vec![on_mdt(MIB)])).await.unwrap();
            let file = file.body.fid1;
            server.store.write(file, 0, &[Bytes::from_static(b"data")]).unwrap();
            let all = naming(1, CompFlags::NONE);
            client.setxattr(file, "lustre.lov.del", Some(&all), 0).await.unwrap();
            assert_eq!(server.store.attributes(file).unwrap().size, 0);
        },
        &world,
    );
}

#[test]
fn pools_and_overstriping() {
    let world = TestWorld::new(306);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let fast = PoolName::new("fast").unwrap();
            server.mdt.set_pools([(fast, vec![1, 3])].into());
            let osts = async |name: &str, striping: Striping| {
                let opened = create_with(&client, name, &Plan::Plain(striping)).await?;
                client.close(&opened).await?;
                let objects = stored(&opened.layout).objects();
                Ok(objects.into_iter().map(|(ost, _)| ost).collect::<Vec<_>>())
            };
            let pooled = Striping { pool: fast, stripe_count: 4, ..Striping::default() };
            let mut two = osts("two", pooled.clone()).await.unwrap();
            two.sort_unstable();
            assert_eq!(two, [1, 3]);
            let outside = Striping { first: Some(0), ..pooled.clone() };
            assert_eq!(osts("outside", outside).await, Err(Errno::EINVAL));
            let wide = Striping { overstriped: true, stripe_count: 32, ..pooled.clone() };
            let wide = osts("wide", wide).await.unwrap();
            assert_eq!(wide.iter().filter(|ost| **ost == 1).count(), 16);
            let list = [2, 3, 2, 3, 2, 3, 2, 3];
            let listed = Striping {
                overstriped: true,
                osts: list.to_vec(),
                stripe_count: 8,
                ..Striping::default()
            };
            assert_eq!(osts("listed", listed.clone()).await.unwrap(), list);
            let each = Striping { osts: Vec::new(), stripe_count: 0xfffe, ..listed };
            assert_eq!(osts("each", each).await.unwrap().len(), 8);
            // A pool that has gone holds nothing back, and its name stays.
            server.mdt.set_pools(std::collections::BTreeMap::new());
            let opened = create_with(&client, "gone", &Plan::Plain(pooled)).await.unwrap();
            let layout = stored(&opened.layout);
            assert_eq!((layout.objects().len(), layout.striping(0).unwrap().pool), (4, fast));
            server.check();
        },
        &world,
    );
}

#[test]
fn a_client_that_does_not_know_overstriping_does_not_get_such_a_layout() {
    let world = TestWorld::new(309);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let twice = Striping { overstriped: true, stripe_count: 4, ..Striping::default() };
            for (name, striping) in [("over", twice), ("plain", Striping::default())] {
                let opened = create_with(&client, name, &Plan::Plain(striping)).await.unwrap();
                client.close(&opened).await.unwrap();
            }
            let agreed = client.inner.agreed();
            assert!(agreed.flags2.contains(ConnectFlags2::OVERSTRIPING), "it is offered");
            let open = |name: &'static str| client.open(Fid::ROOT, name, MdsOpenFlags::READ);
            let opened = open("over").await.unwrap();
            client.close(&opened).await.unwrap();
            let flags2 =
                agreed.flags2.without(ConnectFlags2::OVERSTRIPING | ConnectFlags2::OWN_NAMES);
            client.inner.connect_with(ObdConnectData { flags2, ..agreed }).await.unwrap();
            assert_eq!(open("over").await.err(), Some(Errno::EOPNOTSUPP));
            let opened = open("plain").await.unwrap();
            client.close(&opened).await.unwrap();
            server.check();
        },
        &world,
    );
}

#[test]
fn two_thousand_stripes_are_created_and_reported_whole() {
    let world = TestWorld::new(307);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let striping =
                Striping { overstriped: true, stripe_count: 2000, ..Striping::default() };
            let opened = create_with(&client, "f", &Plan::Plain(striping)).await.unwrap();
            assert_eq!(stored(&opened.layout).objects().len(), 2000);
            assert!(opened.body.max_mdsize as usize >= opened.layout.len());
            client.close(&opened).await.unwrap();
            assert_eq!(server.check().objects.len(), 2000);
            client.unlink(Fid::ROOT, "f").await.unwrap();
            client.wait(&inner, 30).await;
            assert_eq!(server.check().dying.len(), 0);
        },
        &world,
    );
}

#[test]
fn objects_reserved_in_vain_are_returned() {
    let world = TestWorld::new(308);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let opened = client.create(Fid::ROOT, "before").await.unwrap();
            client.close(&opened).await.unwrap();
            server.osts[1].state.lock().import = ImportState::Disconn;
            let list = Striping { osts: vec![0, 1], stripe_count: 2, ..Striping::default() };
            for number in 0..5 {
                let name = format!("f{number}");
                let failed = create_with(&client, &name, &Plan::Plain(list.clone())).await;
                assert_eq!(failed.map(|_| ()), Err(Errno::ENOSPC));
            }
            let one = Striping { osts: vec![0], stripe_count: 1, ..Striping::default() };
            let opened = create_with(&client, "after", &Plan::Plain(one)).await.unwrap();
            let (_, object) = stored(&opened.layout).objects()[0];
            let view = server.mdt.osts();
            assert_eq!(object.id(), view[0].last_used, "none in between was lost");
            assert!(view[0].last_used <= 3);
        },
        &world,
    );
}

#[test]
fn grown_layouts_are_replayed_with_their_objects() {
    let world = TestWorld::new(309);
    let inner = world.clone();
    run(
        async move {
            let options = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
            let osts = (0..4).map(|_| FakeOst::new()).collect();
            let store = Arc::new(StoreMem::new(options));
            let server = Server::start_on(&inner, store, osts).await;
            let client = server.client("c").await;
            let opened = create_with(&client, "f", &three()).await.unwrap();
            let file = opened.body.fid1;
            server.store.commit().unwrap();
            let request = intent(&client, file, 2 * MIB);
            let call = TestCall::new(request.clone()).tagged(7);
            let first = client.inner.call_with(call).await.unwrap();
            let Some(Reply::LdlmIntentLayout(reply)) = first.reply.clone() else { panic!() };
            client.keep(request.dlm_req.handles[0], reply.dlm_rep.unwrap().handle);
            let (server, client) = crash(&inner, server, &client).await;
            let mut again = request;
            // As a client does: the layout that it was given comes along, marked.
            let mut layout = reply.dlm_lvb.to_vec();
            layout[3] |= 0x10;
            again.eadata = layout.into();
            let call = TestCall::new(again).tagged(7).replayed(first.xid, first.head.transno);
            let answer = client.inner.call_with(call).await.unwrap();
            assert_eq!((answer.errno(), answer.head.transno), (None, first.head.transno));
            finish_recovery(&client).await;
            client.wait(&inner, 30).await;
            let layout = client.getxattr(file, "lustre.lov").await.unwrap();
            assert_eq!(layout, reply.dlm_lvb);
            assert_eq!(server.check().objects.len(), 6);
            let other = client.create(Fid::ROOT, "g").await.unwrap();
            let used = stored(&layout).objects();
            assert!(!used.contains(&stored(&other.layout).objects()[0]), "no object twice");
            server.check();
        },
        &world,
    );
}

#[test]
fn all_components_objects_get_a_new_owner() {
    let world = TestWorld::new(310);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let file = create_with(&client, "f", &three()).await.unwrap().body.fid1;
            grow(&client, file, u64::MAX).await.1.unwrap();
            let owner = AttrValid::UID | AttrValid::GID;
            let fill = |record: &mut sheen_wire::md::RecSetattr| {
                (record.uid, record.gid) = (500, 600);
            };
            client.setattr(file, owner, fill).await.unwrap();
            client.wait(&inner, 20).await;
            let updated: usize = server.osts.iter().map(|ost| ost.state.lock().owners.len()).sum();
            assert_eq!(updated, 6);
        },
        &world,
    );
}

#[test]
fn a_file_without_a_layout_gets_one_with_its_first_write() {
    let world = TestWorld::new(311);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let value = Plan::Composite(vec![on_mdt(MIB), part(MIB, END_OF_FILE, 1)]).encode();
            client.setxattr(Fid::ROOT, "lustre.lov", Some(&value), 0).await.unwrap();
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let grown = grow(&client, file, 100).await.1.unwrap();
            assert_eq!((grown.generation(), grown.objects().len()), (2, 0));
            assert_eq!(grown.end_on_mdt(), Some(MIB));
            server.check();
        },
        &world,
    );
}

pub(super) fn swap(client: &Client, first: Fid, second: Fid) -> MdsSwapLayouts {
    let mut mdt_body = client.body(first);
    mdt_body.fid2 = second;
    let swap_layouts = Bytes::from_static(&[0; 24]);
    MdsSwapLayouts { mdt_body, swap_layouts, ..MdsSwapLayouts::default() }
}

#[test]
fn two_files_exchange_their_data() {
    let world = TestWorld::new(312);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let plain = client.create(Fid::ROOT, "plain").await.unwrap();
            let dom = Plan::Composite(vec![on_mdt(MIB), part(MIB, END_OF_FILE, 1)]);
            let dom = create_with(&client, "dom", &dom).await.unwrap();
            let (one, two) = (plain.body.fid1, dom.body.fid1);
            server.store.write(two, 0, &[Bytes::from_static(b"on the MDT")]).unwrap();
            client.modify(swap(&client, one, two)).await.unwrap();
            let layout = async |fid| stored(&client.getxattr(fid, "lustre.lov").await.unwrap());
            let (first, second) = (layout(one).await, layout(two).await);
            assert_eq!((first.end_on_mdt(), first.generation()), (Some(MIB), 1));
            assert_eq!((second.is_composite(), second.generation()), (false, 3));
            assert_eq!(second.objects(), stored(&plain.layout).objects());
            assert_eq!(server.store.read(one, 0, 99).unwrap(), "on the MDT");
            assert_eq!(server.store.attributes(two).unwrap().size, 0);
            let same = client.modify(swap(&client, one, one)).await;
            assert!(same.is_ok());
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let refused = client.modify(swap(&client, one, directory)).await;
            assert_eq!(refused.map(|_| ()), Err(Errno::EPERM));
            let absent = client.modify(swap(&client, one, client.next_fid())).await;
            assert_eq!(absent.map(|_| ()), Err(Errno::ENOENT));
            client.close(&plain).await.unwrap();
            client.close(&dom).await.unwrap();
            client.unlink(Fid::ROOT, "plain").await.unwrap();
            assert_eq!(server.check().objects.len(), 1);
            client.unlink(Fid::ROOT, "dom").await.unwrap();
            client.wait(&inner, 20).await;
            assert_eq!(server.check().dying.len(), 0);
        },
        &world,
    );
}

/// A client that goes by the generation would take the other file's layout for its own.
#[test]
fn an_exchange_counts_in_both_files_and_goes_round_behind_the_last_generation() {
    let world = TestWorld::new(316);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let (mut files, mut objects) = (Vec::new(), Vec::new());
            for name in ["one", "two"] {
                let file = create_with(&client, name, &three()).await.unwrap();
                objects.push(stored(&file.layout).objects());
                files.push(file.body.fid1);
            }
            let layout = async |fid| stored(&client.getxattr(fid, "lustre.lov").await.unwrap());
            // As a replay may have brought it along.
            let LovEa::Composite(mut last) =
                LovEa::decode(&layout(files[0]).await.encode()).unwrap()
            else {
                panic!("three components");
            };
            last.header.layout_gen = u32::MAX;
            let mut change = sheen_store::Transaction::new();
            let last = LovEa::Composite(last).encode();
            change.set_xattr(files[0], "trusted.lov", last);
            server.store.apply(change).unwrap();
            let before = layout(files[1]).await.generation();
            for (round, expected) in [(1, 1), (2, 2), (3, 3)] {
                client.modify(swap(&client, files[0], files[1])).await.unwrap();
                let now = [layout(files[0]).await, layout(files[1]).await];
                assert_eq!(now[0].generation(), expected, "0 is that of no layout");
                assert_eq!(now[1].generation(), before + round);
                let at = if round % 2 == 1 { [1, 0] } else { [0, 1] };
                assert_eq!(now.map(|layout| layout.objects()), at.map(|at| objects[at].clone()));
            }
            server.check();
        },
        &world,
    );
}

#[test]
fn a_resent_layout_intent_is_answered_though_a_change_waits_for_the_lock() {
    let world = TestWorld::new(315);
    let inner = world.clone();
    run(
        async move {
            let osts = (0..4).map(|_| FakeOst::new()).collect();
            let server = Server::start_on(&inner, manual(), osts).await;
            let (client, other) = (server.client("c").await, server.client("o").await);
            let file = create_with(&client, "f", &three()).await.unwrap().body.fid1;
            // Its answer is lost, so that no callback of the lock is obeyed.
            let call = TestCall::new(intent(&client, file, 81_920)).tagged(7);
            let first = client.inner.call_with(call.clone()).await.unwrap();
            let grown = Arc::new(parking_lot::Mutex::new(None));
            let result = Arc::clone(&grown);
            let work = async move {
                *result.lock() = Some(grow(&other, file, 2 * MIB).await.1.map(drop));
            };
            inner.world().tasks.spawn("grow", Box::pin(work));
            client.wait(&inner, 1).await;
            assert_eq!(*grown.lock(), None, "it waits for the lock");
            let again = client.inner.call_with(call.resent(first.xid)).await.unwrap();
            assert_eq!(*grown.lock(), None, "and still does");
            let Some(Reply::LdlmIntentLayout(reply)) = again.reply else { panic!("no layout") };
            client.inner.cancel(&[reply.dlm_rep.expect("a lock").handle]).await;
            client.wait(&inner, 1).await;
            assert_eq!(*grown.lock(), Some(Ok(())));
            server.check();
        },
        &world,
    );
}

#[test]
fn an_exchange_happens_once() {
    let world = TestWorld::new(313);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let a = client.create(Fid::ROOT, "a").await.unwrap();
            let b = client.create(Fid::ROOT, "b").await.unwrap();
            for opened in [&a, &b] {
                client.close(opened).await.unwrap();
            }
            server.store.commit().unwrap();
            let request = swap(&client, a.body.fid1, b.body.fid1);
            let call = || TestCall::new(request.clone()).tagged(9);
            let first = client.inner.call_with(call()).await.unwrap();
            assert_eq!(first.errno(), None);
            let again = TestCall { xid: Some(first.xid), flags: MsgFlags::RESENT, ..call() };
            let again = client.inner.call_with(again).await.unwrap();
            assert_eq!((again.errno(), again.head.transno), (None, first.head.transno));
            let objects = |layout: &Bytes| stored(layout).objects();
            let now = client.getxattr(a.body.fid1, "lustre.lov").await.unwrap();
            assert_eq!(objects(&now), objects(&b.layout));
            let (server, client) = crash(&inner, server, &client).await;
            let replayed = call().replayed(first.xid, first.head.transno);
            let answer = client.inner.call_with(replayed).await.unwrap();
            assert_eq!((answer.errno(), answer.head.transno), (None, first.head.transno));
            finish_recovery(&client).await;
            let now = client.getxattr(b.body.fid1, "lustre.lov").await.unwrap();
            assert_eq!(objects(&now), objects(&a.layout));
            server.check();
        },
        &world,
    );
}

/// A client that took the default layout of files for a directory's stripes would ask for much memory.
#[test]
fn a_directory_that_has_no_stripes_says_so() {
    let world = TestWorld::new(316);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let default = Plan::Plain(Striping { stripe_count: 1, ..Striping::default() }).encode();
            client.setxattr(Fid::ROOT, "trusted.lov", Some(&default), 0).await.unwrap();
            for asked in [Valid::NONE, Valid::MEA, Valid::DEFAULT_MEA] {
                let mut mdt_body = client.body(Fid::ROOT);
                mdt_body.valid = Valid::EASIZE | Valid::DIREA | asked;
                let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
                let answer = client.inner.call(request).await;
                let Some(Reply::MdsGetattr(reply)) = answer.reply else { panic!("{answer:?}") };
                let body = reply.mdt_body.expect("a body");
                let has_some = asked == Valid::NONE;
                assert_eq!(body.valid.contains(Valid::DIREA), has_some, "{asked:?}");
                assert_eq!((body.eadatasize > 0, reply.mdt_md.is_empty()), (has_some, !has_some));
            }
        },
        &world,
    );
}

/// `llapi_file_get_stripe` asks for the name, `lfs getstripe -d` for the directory.
#[test]
fn a_directory_and_the_root_show_the_default_layout_that_they_were_given_by_name_and_no_other() {
    let world = TestWorld::new(317);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let shown = async |name: &str| {
                let mut mdt_body = client.body(Fid::ROOT);
                mdt_body.valid = Valid::EASIZE | Valid::DIREA;
                let name = (!name.is_empty()).then(|| Text::new(name));
                let request = MdsGetattrName { mdt_body, name, ..MdsGetattrName::default() };
                let answer = client.inner.call(request).await;
                let Some(Reply::MdsGetattrName(reply)) = answer.reply else { panic!("{answer:?}") };
                (reply.mdt_body.expect("a body").valid.contains(Valid::DIREA), reply.mdt_md)
            };
            assert_eq!(shown("d").await, (false, Bytes::new()));
            let wide = Plan::Plain(Striping { stripe_count: 2, ..Striping::default() });
            client.setxattr(directory, "trusted.lov", Some(&wide.encode()), 0).await.unwrap();
            let (has_some, default) = shown("d").await;
            assert!(has_some);
            assert_eq!(Plan::parse(&default), Ok(wide.clone()));
            assert_eq!(shown("").await, (false, Bytes::new()), "what holds without one");
            client.setxattr(Fid::ROOT, "trusted.lov", Some(&wide.encode()), 0).await.unwrap();
            let (has_some, default) = shown("").await;
            assert!(has_some);
            assert_eq!(Plan::parse(&default), Ok(wide));
        },
        &world,
    );
}
