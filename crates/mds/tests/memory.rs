//! What a client that asks for a million locks and a million open files costs an MDT, in bytes of the process.
//!
//! A program of its own: nothing else may use memory meanwhile. With `SHEEN_TEST_LONG` at the limits that targets
//! have by default, otherwise at a sixteenth of them.

use std::sync::Arc;
use std::time::Duration;

use sheen_mds::{Mdt, MdtConfig};
use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::budget::Limit;
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestTarget, TestWorld};
use sheen_target::{TargetConfig, Timeouts};
use sheen_types::{
    Errno, Fid, InodeBits, LockHandle, LockMode, Nid, ResourceName, Timestamp, Uuid,
};
use sheen_wire::ldlm::{
    LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags as WireFlags, LockType, Policy,
};
use sheen_wire::md::{MdsOpenFlags, RecCreate, ReintOp};
use sheen_wire::messages::{LdlmEnqueue, MdsReintCreate, MdsReintOpen, Reply, SeqQuery};
use sheen_wire::text::Text;

const DIRECTORY: u32 = 0o040_777;
/// Mounts of the client that asks for all.
const EXPORTS: usize = 16;
/// Of what it opens.
const FOLDERS: u64 = 16;
/// Of a lock with its resource, and of an open file with what is kept of its inode: docs/SECURITY.md names them.
const LOCK_BYTES_MAX: usize = 1_024;
const OPEN_BYTES_MAX: usize = 256;

#[test]
fn a_million_locks_and_opens_of_one_client_cost_its_budget() {
    let world = TestWorld::new(1);
    world.clone().run(async move {
        let options = MemOptions { commits: Commits::Immediate, ..MemOptions::default() };
        let store: Arc<dyn Store> = Arc::new(StoreMem::new(options));
        let config = MdtConfig::new("lustre", 0, Timestamp::from_seconds(1_000), [0; 16]);
        let mdt = Mdt::new(Arc::clone(&store), config).expect("formats");
        let node = TestTarget::start(&world, store, target_config(), mdt).await;
        let (asked, share) = match std::env::var_os("SHEEN_TEST_LONG") {
            Some(_) => (1_000_000, 1),
            None => (40_000, 16),
        };
        let budget = node.target.budget();
        let locks = budget.of(Limit::Locks) / share;
        let opens = budget.of(Limit::Opens) / share;
        budget.set(Limit::Locks, locks);
        budget.set(Limit::Opens, opens);
        let mut exports = Vec::new();
        for number in 0..EXPORTS {
            exports.push(node.connect(&format!("hostile-{number}")).await);
        }
        let good = node.client_at("good", Nid::tcp([10, 0, 0, 8].into()));
        good.connect().await.expect("the target takes the client");
        let folders = make_directories(&exports[0], opens).await;

        let before = resident();
        let had = ask(&exports, asked, lock).await;
        assert_eq!(had, locks);
        let lock_bytes = (resident() - before) / locks;
        assert_eq!(node.target.budget().refused(Limit::Locks), (asked - locks) as u64);

        let before = resident();
        let had = ask(&exports, asked, |number| open(&folders, number % opens as u64)).await;
        assert_eq!(had, opens);
        let open_bytes = (resident() - before) / opens;
        assert_eq!(node.target.budget().refused(Limit::Opens), (asked - opens) as u64);

        println!("{locks} locks of {lock_bytes} bytes, {opens} open files of {open_bytes}");
        assert!((100..=LOCK_BYTES_MAX).contains(&lock_bytes), "{lock_bytes} bytes a lock");
        assert!((50..=OPEN_BYTES_MAX).contains(&open_bytes), "{open_bytes} bytes an open file");
        for call in [lock(1), open(&folders, 1)] {
            assert_eq!(answer(&good, call).await.errno(), None, "another client");
        }
    });
}

fn target_config() -> TargetConfig {
    TargetConfig {
        name: "lustre-MDT0000".to_owned(),
        uuid: Uuid::new("lustre-MDT0000_UUID"),
        index: 0,
        offer: Mdt::offer(),
        replayable: true,
        timeouts: Timeouts::from_base(Duration::from_secs(10)),
    }
}

/// Asks `count` times, from each export in turn; how many it was given.
async fn ask(exports: &[TestClient], count: usize, call: impl Fn(u64) -> TestCall) -> usize {
    let mut given = 0;
    for (number, client) in (0..count).zip(exports.iter().cycle()) {
        match answer(client, call(number as u64)).await.errno() {
            None => given += 1,
            Some(Errno::EINPROGRESS | Errno::ENFILE) => {}
            Some(errno) => panic!("{errno} for request {number}"),
        }
        // What is revoked is nothing that the target keeps.
        drop(client.callbacks());
    }
    given
}

async fn answer(client: &TestClient, call: TestCall) -> TestAnswer {
    client.call_with(call).await.expect("an answer")
}

/// A lock on an inode of its own.
fn lock(number: u64) -> TestCall {
    let fid = Fid::new(0x2_0000_0500 + (number >> 16), (number & 0xffff) as u32 + 1);
    let desc = LdlmLockDesc {
        resource: LdlmResourceDesc {
            kind: LockType::IBITS,
            padding: 0,
            name: ResourceName::of_fid(fid),
        },
        req_mode: LockMode::Pr.into(),
        policy: Policy::of_inode_bits(InodeBits::LOOKUP, InodeBits(0)),
        ..LdlmLockDesc::default()
    };
    let dlm_req = LdlmRequest::enqueue(WireFlags::default(), desc, LockHandle(number + 1));
    TestCall::new(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() })
}

fn record(opcode: ReintOp) -> RecCreate {
    RecCreate {
        opcode,
        suppgid1: u32::MAX,
        suppgid2: u32::MAX,
        time: 1_000,
        mode: DIRECTORY,
        ..RecCreate::default()
    }
}

fn name(number: u64) -> Option<Text> {
    Some(Text::new(format!("{number}")))
}

fn tag(number: u64) -> u16 {
    (number % 8) as u16 + 1
}

/// Files have objects of OSTs, directories need none. Returns the folders that they are in: one has not so many
/// links.
async fn make_directories(client: &TestClient, count: usize) -> Vec<Fid> {
    let mut folders = Vec::new();
    for number in 0..FOLDERS {
        let fid = Fid::new(sequence(client).await, 1);
        make(client, Fid::ROOT, fid, number).await;
        folders.push(fid);
    }
    for (place, folder) in (0..FOLDERS).zip(&folders) {
        let sequence = sequence(client).await;
        for number in (place..count as u64).step_by(FOLDERS as usize) {
            make(client, *folder, Fid::new(sequence, number as u32 + 1), number).await;
        }
    }
    folders
}

async fn sequence(client: &TestClient) -> u64 {
    let query = SeqQuery { seq_opc: 1, ..SeqQuery::default() };
    let Some(Reply::SeqQuery(reply)) = client.call(query).await.reply else {
        panic!("a sequence is given");
    };
    reply.seq_range.expect("a range").start
}

async fn make(client: &TestClient, parent: Fid, fid: Fid, number: u64) {
    let rec_reint = RecCreate { fid1: parent, fid2: fid, ..record(ReintOp::CREATE) };
    let request = MdsReintCreate { rec_reint, name: name(number), ..Default::default() };
    let made = answer(client, TestCall::new(request).tagged(tag(number))).await;
    assert_eq!(made.errno(), None, "directory {number}");
}

/// An open of one of them.
fn open(folders: &[Fid], number: u64) -> TestCall {
    let fid1 = folders[(number % FOLDERS) as usize];
    let mut rec_reint = RecCreate { fid1, ..record(ReintOp::OPEN) };
    rec_reint.set_flags(MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY);
    let request = MdsReintOpen { rec_reint, name: name(number), ..Default::default() };
    TestCall::new(request).tagged(tag(number))
}

/// Bytes of memory that this process holds.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.expect("a number") << 10
}
