//! The conversation of capture a-mount-umount, and what changes a configuration.

use std::sync::Arc;

use bytes::Bytes;
use sheen_llog::{ClusterMap, LogRecord};
use sheen_store::Store;
use sheen_store_mem::StoreMem;
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestTarget, TestWorld, logged};
use sheen_types::{Errno, LockHandle, LockMode, Nid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{
    LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags as WireFlags, LockType,
};
use sheen_wire::llog::{LLOG_CHUNK_BYTES, LlogLogid, LlogdBody};
use sheen_wire::messages::{
    LdlmEnqueue, LlogOriginHandleCreate, LlogOriginHandleNextBlock, LlogOriginHandleReadHeader,
    MgsConfigRead, MgsSetInfo, MgsTargetReg, Reply, Request,
};
use sheen_wire::mgs::{
    ConfigCommand, ConfigType, MarkerFlags, MgsConfigBody, MgsSendParam, MgsTargetInfo, TargetFlags,
};
use sheen_wire::text::{Chars, Text};

use crate::limits::{FILE_SYSTEMS_MAX, TARGETS_PER_NODE_MAX};
use crate::{Mgs, MgsConfig, PoolChange, config_resource};

const NID: &str = "10.77.0.11@tcp";

async fn start(world: &TestWorld, store: &Arc<StoreMem>) -> (TestTarget, Arc<Mgs>) {
    let store: Arc<dyn Store> = store.clone();
    let mgs = Mgs::load(&world.world(), Arc::clone(&store)).unwrap();
    let config = Mgs::target_config(MgsConfig::default());
    (TestTarget::start(world, store, config, mgs.clone()).await, mgs)
}

fn info(name: &str, flags: TargetFlags) -> MgsTargetInfo {
    let kind = match name.contains("-MDT") {
        true => TargetFlags::SV_TYPE_MDT,
        false => TargetFlags::SV_TYPE_OST,
    };
    let mut nids = [0; 32];
    nids[0] = NID.parse::<Nid>().unwrap().0;
    MgsTargetInfo {
        index: u32::from_str_radix(&name[name.len() - 4..], 16).unwrap(),
        flags: kind | flags,
        nid_count: 1,
        instance: 1,
        fsname: Chars::new(name.split('-').next().unwrap()),
        service_name: Chars::new(name),
        nids,
        ..MgsTargetInfo::default()
    }
}

async fn register(server: &TestClient, mgs_target_info: MgsTargetInfo) -> TestAnswer {
    server.call(MgsTargetReg { mgs_target_info, ..MgsTargetReg::default() }).await
}

fn info_of(answer: &TestAnswer) -> &MgsTargetInfo {
    match &answer.reply {
        Some(Reply::MgsTargetReg(reply)) => reply.mgs_target_info.as_ref().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A file system as in the capture: two MDTs, four OSTs.
async fn register_all(server: &TestClient) {
    let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
    for name in ["MDT0000", "MDT0001", "OST0000", "OST0001", "OST0002", "OST0003"] {
        let name = format!("lustre-{name}");
        let answer = register(server, info(&name, new)).await;
        assert_eq!(answer.head.status, 0, "{name}");
        let flags = info_of(&answer).flags;
        assert!(flags.contains(TargetFlags::REWRITE_LDD));
        assert!(!flags.intersects(TargetFlags::VIRGIN | TargetFlags::UPDATE));
        let answer = register(server, info(&name, TargetFlags::OPC_READY)).await;
        assert!(info_of(&answer).flags.contains(TargetFlags::IR_CAPABLE));
    }
}

async fn lock(client: &TestClient, name: &str, kind: ConfigType, handle: u64) -> LockHandle {
    let desc = LdlmLockDesc {
        resource: LdlmResourceDesc {
            kind: LockType::PLAIN,
            padding: 0,
            name: config_resource(name, kind),
        },
        req_mode: LockMode::Cr.into(),
        ..LdlmLockDesc::default()
    };
    let dlm_req = LdlmRequest::enqueue(WireFlags::NONE, desc, LockHandle(handle));
    let answer = client.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
    let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{answer:?}") };
    let lock = reply.dlm_rep.unwrap();
    assert_eq!(lock.desc.granted_mode.mode(), Some(LockMode::Cr));
    assert_eq!(lock.flags, WireFlags::NONE);
    lock.handle
}

async fn open(client: &TestClient, name: &str) -> Result<LlogLogid, Errno> {
    let request = LlogOriginHandleCreate {
        name: Some(Text::from(name)),
        ..LlogOriginHandleCreate::default()
    };
    let answer = client.call(request).await;
    let Some(Reply::LlogOriginHandleCreate(reply)) = &answer.reply else { panic!("{answer:?}") };
    let body = reply.llogd_body.clone().unwrap();
    answer.errno().map_or(Ok(body.logid), Err)
}

/// Reads a log from record `from` on, as a client does.
async fn read(client: &TestClient, logid: &LlogLogid, from: u32) -> Vec<LogRecord> {
    let llogd_body = LlogdBody { logid: logid.clone(), ..LlogdBody::default() };
    let request =
        LlogOriginHandleReadHeader { llogd_body, ..LlogOriginHandleReadHeader::default() };
    let answer = client.call(request).await;
    let Some(Reply::LlogOriginHandleReadHeader(reply)) = answer.reply else { panic!() };
    let header = reply.llog_log_hdr.unwrap();
    let (mut records, mut index) = (Vec::new(), from);
    while index <= header.tail.index {
        let llogd_body = LlogdBody {
            logid: logid.clone(),
            index,
            length: LLOG_CHUNK_BYTES as u32,
            offset: LLOG_CHUNK_BYTES as u64,
            ..LlogdBody::default()
        };
        let request =
            LlogOriginHandleNextBlock { llogd_body, ..LlogOriginHandleNextBlock::default() };
        let answer = client.call(request).await;
        let Some(Reply::LlogOriginHandleNextBlock(reply)) = answer.reply else { panic!() };
        let block = LogRecord::from_block(&reply.eadata).unwrap();
        records.extend(block.into_iter().filter(|record| record.index >= index));
        index = reply.llogd_body.unwrap().saved_index + 1;
    }
    assert!(records.iter().all(|record| header.is_used(record.index)));
    records
}

/// A node that serves targets.
async fn server(node: &TestTarget, uuid: &str) -> TestClient {
    let server = node.client_at(uuid, NID.parse().unwrap());
    server.connect().await.unwrap();
    server
}

async fn mount(node: &TestTarget, uuid: &str) -> TestClient {
    let client = node.client(uuid);
    let offered = ObdConnectData {
        flags: ConnectFlags(0xa000_4110_0100_2060),
        flags2: ConnectFlags2(0x1_0010_0000),
        version: 0x0211_393e,
        ..ObdConnectData::default()
    };
    client.connect_with(offered).await.unwrap();
    client
}

#[test]
fn the_conversation_of_a_mount() {
    let world = TestWorld::new(1);
    world.clone().run(async move {
        let (node, _) = start(&world, &Arc::new(StoreMem::default())).await;
        register_all(&server(&node, "server").await).await;
        let client = mount(&node, "client").await;
        // As captured, less the write barriers that we do not have.
        let agreed = client.agreed();
        assert_eq!(agreed.flags, ConnectFlags(0xa000_0110_0100_0060));
        assert_eq!(agreed.flags2, ConnectFlags2(0x1_0010_0000));

        lock(&client, "lustre-sptlrpc", ConfigType::SPTLRPC, 1).await;
        assert_eq!(open(&client, "lustre-sptlrpc").await, Err(Errno::ENOENT));
        lock(&client, "lustre-client", ConfigType::CONFIG, 2).await;
        let logid = open(&client, "lustre-client").await.unwrap();
        assert_eq!(logid.seq, 10);
        let records = read(&client, &logid, 1).await;
        assert_eq!((records.len(), records[46].index), (47, 47));
        let mut map = ClusterMap::new("lustre");
        map.read(&records).unwrap();
        assert_eq!((map.mdts.len(), map.osts.len()), (2, 4));

        lock(&client, "lustre-cliir", ConfigType::RECOVER, 3).await;
        let mgs_config_body = MgsConfigBody {
            name: Chars::new("lustre-cliir"),
            offset: 1,
            kind: ConfigType::RECOVER,
            pass: 20,
            bits: 12,
            units: 256,
        };
        let request = MgsConfigRead { mgs_config_body, ..MgsConfigRead::default() };
        let answer = client.call(request).await;
        let Some(Reply::MgsConfigRead(reply)) = &answer.reply else { panic!("{answer:?}") };
        let reached = reply.mgs_config_res.clone().unwrap();
        assert_eq!(reached.offset, reached.size);
        assert_eq!(answer.bulk.len(), 264);

        lock(&client, "params", ConfigType::PARAMS, 4).await;
        let logid = open(&client, "params").await.unwrap();
        assert!(read(&client, &logid, 1).await.is_empty());
    });
}

#[test]
fn a_change_revokes_readers_locks_and_they_read_onward() {
    let world = TestWorld::new(2);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        register_all(&server(&node, "server").await).await;
        let client = mount(&node, "client").await;
        let logid = open(&client, "lustre-client").await.unwrap();
        let mut map = ClusterMap::new("lustre");
        map.read(&read(&client, &logid, 1).await).unwrap();
        let held = lock(&client, "lustre-client", ConfigType::CONFIG, 7).await;
        assert!(client.callbacks().is_empty());

        let param = MgsSendParam { param: Chars::new("lustre-OST0003.osc.max_dirty_mb=24") };
        let admin = node.client_at("admin", Nid::LOOPBACK);
        admin.connect().await.unwrap();
        let set = MgsSetInfo { mgs_send_param: param, ..MgsSetInfo::default() };
        assert_eq!(admin.call(set).await.head.status, 0);
        world.settle().await;
        let callbacks = client.callbacks();
        let [Request::LdlmBlCallback(callback)] = &callbacks[..] else { panic!("{callbacks:?}") };
        assert_eq!(callback.dlm_req.handles[0], LockHandle(7));
        client.cancel(&[held]).await;
        let held = lock(&client, "lustre-client", ConfigType::CONFIG, 8).await;
        let more = read(&client, &logid, map.position().0 + 1).await;
        assert_eq!(more.len(), 3);
        map.read(&more).unwrap();
        assert_eq!(map.params[0].assignment, "osc.max_dirty_mb=24");
        assert_eq!(map.params[0].device.as_deref(), Some("lustre-OST0003-osc"));

        // Deleting cancels, and appends nothing.
        mgs.conf_param("lustre-OST0003.osc.max_dirty_mb").await.unwrap();
        client.cancel(&[held]).await;
        assert!(read(&client, &logid, map.position().0 + 1).await.is_empty());
        assert!(mgs.cluster_map("lustre").unwrap().params.is_empty());
        assert_eq!(mgs.conf_param("lustre.osc.max_dirty_mb=24").await, Err(Errno::EINVAL));
        assert_eq!(mgs.conf_param("other.llite.x=1").await, Err(Errno::EINVAL));
        assert_eq!(mgs.conf_param("lustre.bogus.x=1").await, Ok(()));

        lock(&client, "params", ConfigType::PARAMS, 9).await;
        mgs.set_param("osc.*OST0001*.max_rpcs_in_flight=12").await.unwrap();
        world.settle().await;
        assert_eq!(client.callbacks().len(), 1);
        mgs.set_param("osc.*OST0001*.max_rpcs_in_flight=13").await.unwrap();
        let params = mgs.cluster_map("lustre").unwrap().params;
        let texts: Vec<_> = params.iter().map(|param| param.assignment.as_str()).collect();
        assert_eq!(texts, ["osc.*OST0001*.max_rpcs_in_flight=13"]);
    });
}

/// What a real MGS sent a client of two MDTs and four OSTs: header and records, as capture a-mount-umount has them.
const CAPTURED: &[u8] = include_bytes!("../../llog/tests/data/lustre-client.llog");

#[test]
fn the_clients_log_of_two_mdts_is_the_captured_one() {
    let world = TestWorld::new(7);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        register_all(&server(&node, "server").await).await;
        let ours = mgs.log("lustre-client").unwrap();
        let captured = Bytes::from_static(CAPTURED).slice(LLOG_CHUNK_BYTES..);
        let theirs = LogRecord::from_block(&captured).unwrap();
        assert_eq!(ours.header().fixed.count, 48, "with the header");
        assert_eq!((ours.records().len(), theirs.len()), (47, 47));
        for (ours, theirs) in ours.records().iter().zip(&theirs) {
            assert_eq!(ours.index, theirs.index);
            let (Some(our), Some(their)) = (ours.marker(), theirs.marker()) else {
                assert_eq!(ours.to_bytes(), theirs.to_bytes(), "record {}", ours.index);
                continue;
            };
            // Steps count what was written to logs that the capture does not have; times and releases differ.
            assert_eq!(our.target.as_bytes(), their.target.as_bytes());
            assert_eq!(our.comment.as_bytes(), their.comment.as_bytes());
            assert_eq!(our.flags, their.flags);
        }
    });
}

/// What the sections of a log are about, in order.
fn sections(mgs: &Mgs, log: &str) -> Vec<String> {
    let log = mgs.log(log).unwrap();
    let markers = log.records().iter().filter_map(LogRecord::marker);
    let starts = markers.filter(|marker| marker.flags.contains(MarkerFlags::START));
    starts.map(|it| format!("{} {}", it.target.to_text(), it.comment.to_text())).collect()
}

#[test]
fn every_mdts_log_names_every_other_one_whichever_comes_first() {
    let world = TestWorld::new(8);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        let server = server(&node, "server").await;
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        for name in ["MDT0000", "OST0000", "MDT0002", "OST0001"] {
            let answer = register(&server, info(&format!("lustre-{name}"), new)).await;
            assert_eq!(answer.errno(), None, "{name}");
        }
        let client = mount(&node, "client").await;
        let held = lock(&client, "lustre-client", ConfigType::CONFIG, 7).await;
        let answer = register(&server, info("lustre-MDT0001", new)).await;
        assert_eq!(answer.errno(), None, "into the gap");
        world.settle().await;
        let callbacks = client.callbacks();
        assert!(matches!(callbacks[..], [Request::LdlmBlCallback(_)]), "{callbacks:?}");
        client.cancel(&[held]).await;
        let of = |words: [&str; 8], used: usize| -> Vec<String> {
            words[..used].iter().map(|words| format!("lustre-{words}")).collect()
        };
        let expected = of(
            [
                "clilov lov setup",
                "clilmv lmv setup",
                "client mount opts",
                "MDT0000 add mdc",
                "OST0000 add osc",
                "MDT0002 add mdc",
                "OST0001 add osc",
                "MDT0001 add mdc",
            ],
            8,
        );
        assert_eq!(sections(&mgs, "lustre-client"), expected);
        for (mdt, more) in [
            (
                "MDT0000",
                ["OST0000 add osc", "MDT0002 add osp", "OST0001 add osc", "MDT0001 add osp"],
            ),
            (
                "MDT0001",
                ["MDT0000 add osp", "MDT0002 add osp", "OST0000 add osc", "OST0001 add osc"],
            ),
            (
                "MDT0002",
                ["MDT0000 add osp", "OST0000 add osc", "OST0001 add osc", "MDT0001 add osp"],
            ),
        ] {
            let (lov, own) = (format!("{mdt}-mdtlov lov setup"), format!("{mdt} add mdt"));
            let [a, b, c, d] = more;
            let expected = of([&lov, &own, a, b, c, d, "", ""], 6);
            assert_eq!(sections(&mgs, &format!("lustre-{mdt}")), expected);
        }
        let log = mgs.log("lustre-MDT0002").unwrap();
        let added = log.records().iter().rfind(|it| it.config.command == ConfigCommand::ADD_MDC);
        let config = &added.unwrap().config;
        let text = |place| String::from_utf8_lossy(config.text(place)).into_owned();
        assert_eq!([text(0), text(1)], ["lustre-MDT0002-mdtlov", "lustre-MDT0001_UUID"]);
    });
}

/// What is said of one MDT alone is not said of it.
#[test]
fn a_new_mdt_goes_by_what_was_said_of_all() {
    let world = TestWorld::new(5);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        register_all(&server(&node, "server").await).await;
        for text in [
            "lustre.mdt.root_squash=99:99",
            "lustre.mdt.nosquash_nids=10.0.0.1@tcp",
            "lustre.mdt.root_squash=98:98",
            "lustre-OST0001.osc.active=0",
            "lustre-MDT0000.mdt.readonly=1",
            "lustre-MDT0000.lov.stripesize=2M",
        ] {
            mgs.conf_param(text).await.unwrap();
        }
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let answer = register(&server(&node, "later").await, info("lustre-MDT0002", new)).await;
        assert_eq!(answer.errno(), None);
        let mut map = ClusterMap::new("lustre");
        map.read(mgs.log("lustre-MDT0002").unwrap().records()).unwrap();
        let said = map.params.iter().map(|it| (it.device.as_deref().unwrap(), &*it.assignment));
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                ("lustre-MDT0002", "mdt.nosquash_nids=10.0.0.1@tcp"),
                ("lustre-MDT0002", "mdt.root_squash=98:98"),
                ("lustre-OST0001-osc-MDT0002", "osc.active=0"),
            ]
        );
    });
}

/// As `p1-pool-life` has it.
#[test]
fn pools_are_records_in_the_logs_of_clients_and_mdts() {
    let world = TestWorld::new(5);
    world.clone().run(async move {
        let store = Arc::new(StoreMem::default());
        let (node, mgs) = start(&world, &store).await;
        register_all(&server(&node, "server").await).await;
        let ost = |index: u16| format!("lustre-OST{index:04x}").parse().unwrap();
        let pool = async |change| mgs.pool("lustre", "fast", &change).await;
        assert_eq!(pool(PoolChange::Add(ost(0))).await, Err(Errno::ENOMEDIUM));
        pool(PoolChange::New).await.unwrap();
        assert_eq!(pool(PoolChange::New).await, Err(Errno::EEXIST));
        pool(PoolChange::Add(ost(0))).await.unwrap();
        pool(PoolChange::Add(ost(2))).await.unwrap();
        assert_eq!(pool(PoolChange::Add(ost(2))).await, Err(Errno::EEXIST));
        assert_eq!(pool(PoolChange::Add(ost(9))).await, Err(Errno::ENODEV));
        let pools = |log: &str| {
            let mut map = ClusterMap::new("lustre");
            map.read(mgs.log(log).unwrap().records()).unwrap();
            map.pools
        };
        let both = [("fast".to_owned(), vec![0, 2])].into();
        for log in ["lustre-client", "lustre-MDT0000", "lustre-MDT0001"] {
            assert_eq!(pools(log), both, "{log}");
        }
        let record = |log: &str, back: usize| {
            let log = mgs.log(log).unwrap();
            let config = log.records()[log.records().len() - back].config.clone();
            let text = |place| String::from_utf8_lossy(config.text(place)).into_owned();
            (config.command, [text(0), text(1), text(2), text(3)])
        };
        let texts = ["lustre-clilov", "lustre", "fast", "lustre-OST0002_UUID"];
        let expected = (ConfigCommand::POOL_ADD, texts.map(str::to_owned));
        assert_eq!(record("lustre-client", 2), expected);
        assert_eq!(record("lustre-MDT0001", 2).1[0], "lustre-MDT0001-mdtlov");
        // The log of an MDT that comes later names what there is already.
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let answer = register(&server(&node, "later").await, info("lustre-MDT0002", new)).await;
        assert_eq!((answer.head.status, pools("lustre-MDT0002")), (0, both));

        pool(PoolChange::Remove(ost(0))).await.unwrap();
        assert_eq!(pools("lustre-client"), [("fast".to_owned(), vec![2])].into());
        // A pool with members goes, too; made again, it is empty.
        pool(PoolChange::Destroy).await.unwrap();
        assert_eq!(pool(PoolChange::Remove(ost(2))).await, Err(Errno::ENOENT));
        assert_eq!(pool(PoolChange::Destroy).await, Err(Errno::ENOENT));
        assert!(pools("lustre-client").is_empty() && pools("lustre-MDT0000").is_empty());
        pool(PoolChange::New).await.unwrap();
        assert_eq!(pools("lustre-client"), [("fast".to_owned(), vec![])].into());
        for (name, errno) in [
            ("", Errno::EINVAL),
            ("none", Errno::EINVAL),
            ("a.b", Errno::EINVAL),
            ("averyverylongone", Errno::ENAMETOOLONG),
        ] {
            assert_eq!(mgs.pool("lustre", name, &PoolChange::New).await, Err(errno), "{name}");
        }
        assert_eq!(mgs.pool("other", "fast", &PoolChange::New).await, Err(Errno::EINVAL));
    });
}

#[test]
fn registration_is_kept_over_a_crash_and_refused_where_it_must_be() {
    let world = TestWorld::new(3);
    world.clone().run(async move {
        let store = Arc::new(StoreMem::default());
        let (node, mgs) = start(&world, &store).await;
        let server = server(&node, "server").await;
        let before = mgs.cluster_map("lustre");
        assert!(before.is_none());
        assert_eq!(open(&server, "lustre-client").await, Err(Errno::ENOENT));
        register_all(&server).await;
        let map = mgs.cluster_map("lustre").unwrap();

        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let again = register(&server, info("lustre-OST0001", new)).await;
        assert_eq!(again.errno(), Some(Errno::EALREADY));
        assert!(info_of(&again).flags.contains(TargetFlags::ERROR));
        let unknown = register(&server, info("lustre-OST0009", TargetFlags::OPC_REG)).await;
        assert_eq!(unknown.errno(), Some(Errno::ENOENT));
        let any = new | TargetFlags::NEED_INDEX;
        let given = register(&server, info("lustre-OST0000", any)).await;
        assert_eq!(info_of(&given).index, 4);
        assert_eq!(info_of(&given).service_name.to_text(), "lustre-OST0004");
        assert_eq!(info_of(&given).uuid.to_text(), "lustre-OST0004_UUID");
        let mut long = info("lustre-OST0005", new);
        long.fsname = Chars::new("ninechars");
        assert_eq!(register(&server, long).await.errno(), Some(Errno::EINVAL));

        let survivor = Arc::new(store.crash());
        let (node, mgs) = start(&world, &survivor).await;
        let after = mgs.cluster_map("lustre").unwrap();
        assert_eq!(after.mdts, map.mdts);
        assert_eq!(after.osts[..4], map.osts[..]);
        assert_eq!(after.osts.len(), 5);
        let server = server.follow(&node);
        server.connect().await.unwrap();
        let known = register(&server, info("lustre-OST0001", TargetFlags::OPC_REG)).await;
        assert_eq!(known.head.status, 0);

        // An MDT that comes late learns of the OSTs in its own log.
        register(&server, info("lustre-MDT0002", new)).await;
        let log = mgs.log("lustre-MDT0002").unwrap();
        let named = log
            .records()
            .iter()
            .filter(|record| record.config.text(0).starts_with(b"lustre-OST0003-osc-MDT0002"));
        assert_eq!(named.count(), 2);

        // Another address: readers from the start see only it.
        let moved: Nid = "10.77.0.99@tcp".parse().unwrap();
        mgs.replace_nids(&"lustre-OST0002".parse().unwrap(), &[vec![moved]]).await.unwrap();
        let map = mgs.cluster_map("lustre").unwrap();
        assert_eq!(map.osts[2].nids, [moved]);
        assert_eq!(map.osts[3].nids, [NID.parse().unwrap()]);

        // Erased and written anew, over a restart.
        let erase = TargetFlags::WRITECONF | TargetFlags::OPC_REG;
        assert_eq!(register(&server, info("lustre-MDT0000", erase)).await.head.status, 0);
        let (_, mgs) = start(&world, &Arc::new(survivor.crash())).await;
        let map = mgs.cluster_map("lustre").unwrap();
        assert_eq!((map.mdts.len(), map.osts.len()), (1, 0));
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = TestWorld::new(4);
    world.clone().run(async move {
        let (node, _) = start(&world, &Arc::new(StoreMem::default())).await;
        let client = node.connect("client").await;
        let body =
            LlogdBody { logid: LlogLogid { id: 99, seq: 10, ogen: 0 }, ..Default::default() };
        let header = LlogOriginHandleReadHeader { llogd_body: body.clone(), ..Default::default() };
        assert_eq!(client.call(header).await.errno(), Some(Errno::ENOENT));
        let block = LlogOriginHandleNextBlock { llogd_body: body, ..Default::default() };
        assert_eq!(client.call(block).await.errno(), Some(Errno::ENOENT));
        let read = MgsConfigRead::default();
        assert_eq!(client.call(read).await.errno(), Some(Errno::EINVAL));
        let call = TestCall { source: Bytes::new(), ..TestCall::new(MgsTargetReg::default()) };
        let answer = client.call_with(call).await.unwrap();
        assert_eq!(answer.errno(), Some(Errno::EINVAL));
    });
}

#[test]
fn a_target_is_registered_by_its_own_node() {
    let world = TestWorld::new(5);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        register_all(&server(&node, "server").await).await;
        let before = mgs.cluster_map("lustre").unwrap();
        let stranger = node.connect("stranger").await;
        let own = "10.0.0.7@tcp".parse::<Nid>().unwrap();
        let at = |name: &str, flags, nid: Nid| {
            let mut info = info(name, flags);
            info.nids[0] = nid.0;
            info
        };
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let erase = TargetFlags::WRITECONF | TargetFlags::OPC_REG;
        let known = [TargetFlags::OPC_READY, TargetFlags::OPC_REG, erase, new | erase];
        for nid in [own, NID.parse().unwrap()] {
            for name in ["lustre-MDT0000", "lustre-OST0001"] {
                for flags in known {
                    let answer = register(&stranger, at(name, flags, nid)).await;
                    assert_eq!(answer.errno(), Some(Errno::EPERM), "{name} {flags:?} at {nid}");
                }
            }
        }
        let chosen = TargetFlags::OPC_READY | TargetFlags::NEED_INDEX;
        let answer = register(&stranger, at("lustre-OST0001", chosen, own)).await;
        assert_eq!(answer.errno(), Some(Errno::EINVAL));
        // A server does not take another's targets either, nor registers nodes that are not known.
        let serving = server(&node, "another").await;
        let elsewhere = "10.77.0.99@tcp".parse::<Nid>().unwrap();
        let mut two = at("lustre-OST0001", TargetFlags::OPC_READY, NID.parse().unwrap());
        (two.nids[1], two.nid_count) = (elsewhere.0, 2);
        assert_eq!(register(&serving, two).await.errno(), Some(Errno::EPERM));
        let other = at("lustre-OST0007", new, elsewhere);
        assert_eq!(register(&serving, other).await.errno(), Some(Errno::EPERM));
        let param = MgsSendParam { param: Chars::new("lustre-OST0003.osc.max_dirty_mb=24") };
        let set = MgsSetInfo { mgs_send_param: param, ..MgsSetInfo::default() };
        assert_eq!(stranger.call(set).await.errno(), Some(Errno::EPERM));
        // Nor does a client that only claims to be at a server's node.
        let liar = node.client_at("liar", NID.parse().unwrap());
        liar.set_proven(false);
        liar.connect().await.unwrap();
        for flags in [TargetFlags::OPC_READY, erase, new] {
            let answer = register(&liar, at("lustre-OST0001", flags, NID.parse().unwrap())).await;
            assert_eq!(answer.errno(), Some(Errno::EPERM));
        }
        assert_eq!(mgs.cluster_map("lustre").unwrap(), before);
        // New targets come from anywhere, until the operator says no.
        mgs.allow_register(false);
        let refused = register(&stranger, at("lustre-OST0004", new, own)).await;
        assert_eq!(refused.errno(), Some(Errno::EACCES));
        assert!(mgs.cluster_map("lustre").unwrap() == before);
        let here = register(&serving, at("lustre-OST0004", new, NID.parse().unwrap())).await;
        assert_eq!(here.errno(), None, "from a node that serves already");
        mgs.allow_register(true);
        assert_eq!(register(&stranger, at("lustre-OST0005", new, own)).await.errno(), None);
        let ready = at("lustre-OST0005", TargetFlags::OPC_READY, own);
        assert_eq!(register(&stranger, ready).await.errno(), None);
    });
}

#[test]
fn a_file_system_whose_name_begins_another_ones_leaves_it_alone() {
    let world = TestWorld::new(6);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        let server = server(&node, "server").await;
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let of = |fsname: &str, name: &str, flags| {
            let mut info = info(&format!("{fsname}-{name}"), flags);
            info.fsname = Chars::new(fsname);
            info
        };
        for fsname in ["a-b", "a"] {
            for name in ["MDT0000", "OST0000"] {
                assert_eq!(register(&server, of(fsname, name, new)).await.errno(), None);
            }
        }
        let all = |fsname: &str| {
            let names = mgs.log_names().into_iter();
            let names = names.filter(|name| name.starts_with(fsname));
            names.map(|name| (mgs.log(&name).unwrap(), name)).collect::<Vec<_>>()
        };
        let before = all("a-b-");
        assert_eq!(before.len(), 3);
        let erase = TargetFlags::WRITECONF | TargetFlags::OPC_REG;
        assert_eq!(register(&server, of("a", "MDT0000", erase)).await.errno(), None);
        assert!(all("a-b-") == before, "the configuration of `a-b` has changed");
        mgs.conf_param("a.sys.timeout=33").await.unwrap();
        let pool = mgs.pool("a", "fast", &PoolChange::New).await;
        assert_eq!(pool, Ok(()));
        assert!(all("a-b-") == before, "the configuration of `a-b` has changed");
        let map = mgs.cluster_map("a").unwrap();
        assert_eq!((map.mdts.len(), map.osts.len()), (1, 0));
        let set = map.params.iter().map(|it| (it.device.as_deref(), &*it.assignment));
        assert_eq!(set.collect::<Vec<_>>(), [(Some(""), "sys.timeout=33")]);
        // Of clients, which no target's are.
        let of_target = mgs.conf_param("a-MDT0000.llite.max_cached_mb=64").await;
        assert_eq!(of_target, Err(Errno::EINVAL));
    });
}

/// Where new targets may register, each node may make one in a file system that other nodes serve: it adds what is its
/// own to that one's logs, and changes nothing that is there.
#[test]
fn a_new_target_of_another_node_adds_to_the_logs_alone() {
    logged(|lines| {
        let world = TestWorld::new(9);
        world.clone().run(async move {
            let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
            let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
            let erase = TargetFlags::WRITECONF | TargetFlags::OPC_REG;
            let serving = server(&node, "server").await;
            for name in ["lustre-OST0000", "lustre-OST0001"] {
                assert_eq!(register(&serving, info(name, new)).await.errno(), None);
            }
            let line = |name: &str, nid: &str| {
                let found = lines.with("a new target has registered").into_iter();
                found.filter(|line| line.contains(name) && line.contains(nid)).count()
            };
            assert_eq!(line("lustre-OST0001", NID), 1);
            let own = "10.0.0.7@tcp".parse::<Nid>().unwrap();
            let stranger = node.client_at("stranger", own);
            stranger.connect().await.unwrap();
            let at = |name: &str, flags, params: &str| {
                let mut info = info(name, flags);
                info.nids[0] = own.0;
                info.params = Chars::new(params);
                info
            };
            let all = || {
                let names = mgs.log_names().into_iter().filter(|name| name.starts_with("lustre-"));
                names
                    .map(|name| (mgs.log(&name).unwrap().records().to_vec(), name))
                    .collect::<Vec<_>>()
            };
            // The place of one that is there, whatever it says of it.
            let before = all();
            for flags in [new, erase, new | erase] {
                for params in ["", "failover.node=10.0.0.7@tcp", "ost.x=1"] {
                    let refused = register(&stranger, at("lustre-OST0001", flags, params)).await;
                    assert_eq!(refused.errno(), Some(Errno::EPERM), "{flags:?} {params}");
                }
            }
            // Nor a new one at a node of another, with itself as who takes over.
            let mut theirs = at("lustre-OST0002", new, "failover.node=10.0.0.7@tcp");
            theirs.nids[0] = NID.parse::<Nid>().unwrap().0;
            assert_eq!(register(&stranger, theirs).await.errno(), Some(Errno::EPERM));
            assert!(all() == before);
            // One of its own is only added, also as the first MDT with a `writeconf` of it all.
            for (name, flags, params) in [
                ("lustre-OST0002", new, "failover.node=10.0.0.8@tcp ost.x=1"),
                ("lustre-MDT0000", erase, ""),
            ] {
                let before = all();
                assert_eq!(register(&stranger, at(name, flags, params)).await.errno(), None);
                assert_eq!(line(name, "10.0.0.7@tcp"), 1);
                let after = all();
                for (records, log) in before {
                    let now = after.iter().find(|(_, name)| *name == log).unwrap();
                    assert!(now.0.starts_with(&records), "{name} has changed {log}");
                }
            }
            let known = register(&stranger, at("lustre-MDT0000", TargetFlags::OPC_READY, "")).await;
            assert_eq!((known.errno(), line("lustre-MDT0000", "")), (None, 1), "known, no new one");
        });
    });
}

#[test]
fn a_target_that_registers_sets_parameters_of_itself_alone() {
    let world = TestWorld::new(7);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        let server = server(&node, "server").await;
        register_all(&server).await;
        let before = mgs.cluster_map("lustre").unwrap();
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let with = |param: &str| {
            let mut info = info("lustre-OST0004", new);
            info.params = Chars::new(param);
            info
        };
        for param in ["sys.timeout=1", "sys.jobid_var=x", "llite.max_cached_mb=0"] {
            let refused = register(&server, with(param)).await;
            assert_eq!(refused.errno(), Some(Errno::EPERM), "{param}");
        }
        assert_eq!(mgs.cluster_map("lustre").unwrap(), before);
        let own = "osc.max_dirty_mb=24 ost.x=1 failover.node=10.77.0.12@tcp";
        assert_eq!(register(&server, with(own)).await.errno(), None);
        let params = mgs.cluster_map("lustre").unwrap().params;
        assert_eq!(params.len(), 1);
        assert_eq!(params[0].device.as_deref(), Some("lustre-OST0004-osc"));
    });
}

#[test]
fn other_nodes_make_so_many_file_systems_and_targets() {
    let world = TestWorld::new(8);
    world.clone().run(async move {
        let (node, mgs) = start(&world, &Arc::new(StoreMem::default())).await;
        let server = server(&node, "server").await;
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let of = |fsname: &str, name: &str| {
            let mut info = info(&format!("{fsname}-{name}"), new);
            info.fsname = Chars::new(fsname);
            info
        };
        for number in 0..FILE_SYSTEMS_MAX {
            let made = register(&server, of(&format!("fs{number}"), "MDT0000")).await;
            assert_eq!(made.errno(), None, "{number}");
        }
        let refused = register(&server, of("more", "MDT0000")).await;
        assert_eq!(refused.errno(), Some(Errno::EDQUOT));
        assert!(mgs.cluster_map("more").is_none());
        for index in 0..TARGETS_PER_NODE_MAX - FILE_SYSTEMS_MAX {
            let registered = register(&server, of("fs1", &format!("OST{index:04x}"))).await;
            assert_eq!(registered.errno(), None, "{index}: known file systems grow");
        }
        let refused = register(&server, of("fs1", "OSTffe0")).await;
        assert_eq!(refused.errno(), Some(Errno::EDQUOT));
        // Nor does a target that is not known become ready.
        let mut unknown = of("fs1", "OSTffe0");
        unknown.flags = TargetFlags::SV_TYPE_OST | TargetFlags::OPC_READY;
        assert_eq!(register(&server, unknown).await.errno(), Some(Errno::ENOENT));
        let here = node.client_at("here", Nid::LOOPBACK);
        here.connect().await.unwrap();
        let own = register(&here, of("more", "MDT0000")).await;
        assert_eq!(own.errno(), None, "the MGS's own node is not limited");
    });
}
