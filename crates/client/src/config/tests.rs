//! Mounting from a scripted MGS.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheen_llog::{ConfigLog, add_mdc, add_osc};
use sheen_types::{LockMode, TargetName};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use sheen_wire::llog::LlogdBody;
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{
    LdlmEnqueueReply, LlogOriginHandleCreateReply, LlogOriginHandleNextBlockReply,
    LlogOriginHandleReadHeaderReply, MdsGetRootReply, MdsStatfsReply, Reply, Request,
};

use super::*;
use crate::testing::{FakeData, FakeMdt, TestWorld};

/// Every target is a scripted one.
struct Cluster {
    world: TestWorld,
    mgs: Arc<FakeMdt>,
    mdt: Arc<FakeMdt>,
    second_mdt: Arc<FakeMdt>,
    ost: Arc<FakeMdt>,
    data: Arc<FakeData>,
    router: Arc<CallbackRouter>,
}

struct Scripted {
    mgs: Arc<FakeMdt>,
    mdts: [Arc<FakeMdt>; 2],
    ost: Arc<FakeMdt>,
}

impl Connector for Scripted {
    fn import(&self, config: ImportConfig) -> Arc<dyn Import> {
        let target = match config.kind {
            ImportKind::Mgs => &self.mgs,
            ImportKind::Mds => &self.mdts[usize::from(config.target.as_str().contains("MDT0001"))],
            ImportKind::Ost | ImportKind::Reverse => &self.ost,
        };
        Arc::clone(target) as Arc<dyn Import>
    }
}

fn log(mdts: u16, osts: u16) -> ConfigLog {
    let node = vec![vec!["10.0.0.1@tcp".parse().unwrap()]];
    let target = |kind, index| TargetName { fsname: "fs".to_owned(), kind, index };
    let mdts = (0..mdts).map(|index| add_mdc(&target(TargetKind::Mdt, index), &node));
    let mut sections: Vec<_> = mdts.collect();
    for index in 0..osts {
        sections.push(add_osc(&target(TargetKind::Ost, index), &node, None));
    }
    let mut log = ConfigLog::new(0);
    for (step, section) in sections.iter().enumerate() {
        log.append_section(section, step as u32 + 1, 0, 0).unwrap();
    }
    log
}

impl Cluster {
    fn new() -> Self {
        Self {
            world: TestWorld::new(3),
            mgs: FakeMdt::new(),
            mdt: FakeMdt::new(),
            second_mdt: FakeMdt::new(),
            ost: FakeMdt::new(),
            data: Arc::default(),
            router: Arc::default(),
        }
    }

    fn grant_lock(&self, remote: u64) {
        self.mgs.expect(move |request| {
            let Request::LdlmEnqueue(request) = request else { panic!("expected an enqueue") };
            let mut desc = request.dlm_req.desc.clone();
            assert_eq!(desc.req_mode, LockMode::Cr.into());
            desc.granted_mode = desc.req_mode;
            let handle = sheen_types::LockHandle(remote);
            let dlm_rep = Some(LdlmReply { desc, handle, ..LdlmReply::default() });
            Ok(LdlmEnqueueReply { dlm_rep, ..Default::default() }.into())
        });
    }

    /// Prepares the MGS to list so many OSTs.
    fn list(&self, osts: u16, locks: bool) {
        self.list_with(1, osts, locks);
    }

    /// The same with so many MDTs.
    fn list_with(&self, mdts: u16, osts: u16, locks: bool) {
        let log = log(mdts, osts);
        if locks {
            self.grant_lock(0x11);
        }
        let llogd_body = Some(LlogdBody::default());
        self.mgs.answer(LlogOriginHandleCreateReply { llogd_body, ..Default::default() });
        let llog_log_hdr = Some(log.header());
        self.mgs.answer(LlogOriginHandleReadHeaderReply { llog_log_hdr, ..Default::default() });
        self.mgs.expect(move |request| {
            let Request::LlogOriginHandleNextBlock(request) = request else {
                panic!("expected a block to be asked for")
            };
            let block = log.block(request.llogd_body.index).expect("an index of the log");
            let llogd_body = Some(LlogdBody {
                saved_index: block.last_index,
                offset: block.end_offset,
                ..request.llogd_body.clone()
            });
            let eadata: Bytes = block.bytes;
            let reply = LlogOriginHandleNextBlockReply { llogd_body, eadata, ..Default::default() };
            Ok(Reply::from(reply))
        });
        if locks {
            self.grant_lock(0x12);
        }
        self.mgs.refuse(Errno::ENOENT);
    }

    /// The configuration lists so many targets now, and the MGS wants its lock back.
    fn change(&self, mdts: u16, osts: u16) {
        let asked = self.mgs.take_asked();
        let Some(Request::LdlmEnqueue(enqueue)) = asked.first() else {
            panic!("a lock comes first")
        };
        self.grant_lock(0x13);
        self.list_with(mdts, osts, false);
        let callback = sheen_wire::messages::LdlmBlCallback {
            dlm_req: LdlmRequest {
                count: 1,
                desc: enqueue.dlm_req.desc.clone(),
                handles: enqueue.dlm_req.handles.clone(),
                ..LdlmRequest::default()
            },
            ..Default::default()
        };
        self.router.answer((Nid::LOOPBACK, true), Request::from(callback)).unwrap();
        let world = self.world.world();
        self.world.run(async move {
            world.clock.sleep_until(world.clock.now() + Duration::from_secs(3)).await;
        });
    }

    fn answer_root(&self) {
        let mdt_body = Some(MdtBody { fid1: Fid::ROOT, ..MdtBody::default() });
        self.mdt.answer(MdsGetRootReply { mdt_body, ..Default::default() });
    }

    /// The MDTs of a mount, by their answers to `statfs`.
    fn mdts_of(&self, files: &FileSystem) -> Vec<(String, bool)> {
        for mdt in [&self.mdt, &self.second_mdt] {
            mdt.serve(|_| {
                let obd_statfs = Some(sheen_wire::md::ObdStatfs::default());
                (Ok(MdsStatfsReply { obd_statfs, ..Default::default() }.into()), Vec::new())
            });
        }
        self.ost.serve(|_| (Err(Errno::EIO), Vec::new()));
        let files = files.clone();
        let all = self.world.run(async move { files.statfs_targets().await });
        let all = all.into_iter().map(|(name, stat)| (name, stat.is_ok()));
        all.filter(|(name, _)| name.contains("MDT")).collect()
    }

    fn mount(&self, fsname: &str) -> Result<FileSystem, MountError> {
        let connector = Scripted {
            mgs: Arc::clone(&self.mgs),
            mdts: [Arc::clone(&self.mdt), Arc::clone(&self.second_mdt)],
            ost: Arc::clone(&self.ost),
        };
        let options = MountOptions {
            fsname: fsname.to_owned(),
            mgs: vec![Nid::LOOPBACK],
            fileset: None,
            timeout: Duration::from_secs(30),
        };
        let mount = super::mount(
            self.world.world(),
            Arc::new(connector),
            Arc::clone(&self.router),
            Arc::clone(&self.data) as Arc<dyn DataPath>,
            options,
            None,
        );
        self.world.run(mount)
    }
}

#[test]
fn a_mount_reads_the_configuration_and_follows_it() {
    let cluster = Cluster::new();
    cluster.list(2, true);
    let mdt_body = Some(MdtBody { fid1: Fid::ROOT, ..MdtBody::default() });
    cluster.mdt.answer(MdsGetRootReply { mdt_body, ..Default::default() });
    let files = cluster.mount("fs").unwrap();
    assert_eq!(files.fid(crate::posix::NodeId::ROOT), Ok(Fid::ROOT));
    assert_eq!(*cluster.data.osts.lock(), [0, 1]);

    // Another OST joins: the MGS wants the configuration lock back.
    cluster.change(1, 3);
    assert_eq!(*cluster.data.osts.lock(), [0, 1, 2]);
    cluster.world.run(async move { files.unmount().await });
    assert!(cluster.mgs.left.load(Ordering::Relaxed) && cluster.mdt.left.load(Ordering::Relaxed));
}

#[test]
fn every_mdt_that_is_listed_is_connected_and_one_that_comes_later_too() {
    let names = |count: u16| -> Vec<_> {
        (0..count).map(|index| (format!("fs-MDT{index:04x}"), true)).collect()
    };
    let cluster = Cluster::new();
    cluster.list_with(2, 1, true);
    cluster.answer_root();
    let files = cluster.mount("fs").unwrap();
    assert_eq!(cluster.mdts_of(&files), names(2));
    cluster.world.run(async move { files.unmount().await });
    assert!(cluster.second_mdt.left.load(Ordering::Relaxed));

    let cluster = Cluster::new();
    cluster.list(1, true);
    cluster.answer_root();
    let files = cluster.mount("fs").unwrap();
    assert_eq!(cluster.mdts_of(&files), names(1));
    cluster.change(2, 1);
    assert_eq!(cluster.mdts_of(&files), names(2));
}

#[test]
fn a_file_system_is_mounted_though_an_mdt_is_away_that_does_not_have_the_root() {
    let cluster = Cluster::new();
    cluster.list_with(2, 1, true);
    cluster.second_mdt.dead.store(true, Ordering::Relaxed);
    cluster.answer_root();
    let files = cluster.mount("fs").unwrap();
    assert_eq!(cluster.mdts_of(&files).len(), 2);
}

#[test]
fn what_is_wrong_is_said_and_nothing_stays_connected() {
    let cluster = Cluster::new();
    cluster.grant_lock(0x11);
    cluster.mgs.refuse(Errno::ENOENT);
    let error = cluster.mount("nosuch").err().unwrap();
    assert_eq!((error.clone(), error.errno()), (MountError::NoSuchFileSystem, Errno::ENOENT));
    assert!(error.hints().contains(&"Is the filesystem name correct?".to_owned()));
    assert!(cluster.mgs.left.load(Ordering::Relaxed));

    let cluster = Cluster::new();
    cluster.mgs.dead.store(true, Ordering::Relaxed);
    assert_eq!(cluster.mount("fs").err(), Some(MountError::MgsUnreachable));

    let cluster = Cluster::new();
    cluster.list(1, true);
    cluster.mdt.dead.store(true, Ordering::Relaxed);
    let gone = MountError::MdtUnreachable("fs-MDT0000".to_owned());
    assert_eq!(cluster.mount("fs").err(), Some(gone));
    assert!(cluster.mgs.left.load(Ordering::Relaxed));

    let cluster = Cluster::new();
    cluster.list(0, true);
    assert_eq!(cluster.mount("fs").err(), Some(MountError::NoTargets(TargetKind::Ost)));

    assert_eq!(Cluster::new().mount("a/b").err(), Some(MountError::IllegalName));
    assert_eq!(Cluster::new().mount("averylongname").err(), Some(MountError::NameTooLong));
}
