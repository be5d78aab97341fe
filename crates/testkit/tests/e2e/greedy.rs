//! A client of our own making that wants everything, by TCP, in real time: it floods and reads no answers,
//! connects without end, opens and locks without end, and announces bytes that never come. Another client
//! works beside it, whose rate is taken with and without it in turns: once as fast as it can, where what is left
//! depends on the processors that both clients, the server and other programs share, and is printed; and once at half
//! that rate, which leaves the server time for both, so that at least nine tenths must be left. The server's memory is
//! held against its budget.
#![allow(clippy::disallowed_methods, reason = "rates are taken in real time")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sheen_lnet::{Handshake, Local};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_types::{Fid, InodeBits, LockHandle, LockMode, MatchBits, Nid, ObdHandle, ResourceName};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{
    IntentOp, LdlmIntent, LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags, LockType, Policy,
};
use sheen_wire::lnet::{
    ConnectionType, HANDLE_NONE, HELLO_BYTES, KsockHeader, KsockType, LnetCommand, LnetHeader,
    Portal, Put,
};
use sheen_wire::md::{MdsOpenFlags, RecCreate, ReintOp, Valid};
use sheen_wire::messages::{
    LdlmEnqueue, LdlmIntentOpen, MdsConnect, ObdPing, OstConnect, OstWrite, Request,
};
use sheen_wire::opcode::Opcode;
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, OstBody, OstId};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};
use sheen_wire::text::Text;
use sheen_wire::{ByteOrder, Reader, Wire};
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(1800);
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests in one write of a flood.
const BATCH: u64 = 64;
/// What docs/SECURITY.md says that one client may cost a server of one MDT and one OST, in KiB: waiting requests,
/// bulk, what is to be sent, running requests, and locks and open files of both targets.
const BUDGET_KIB: u64 = (64 + 64 + 96 + 20 + 2 * (128 + 32)) << 10;
/// Connections that say nothing, at once.
const SILENT: usize = 200;
/// Of its rate another client keeps at least so much, where the server has time for both.
const KEPT: f64 = 0.9;

/// One connection that says what it likes.
struct Raw {
    stream: Mutex<TcpStream>,
    own: Local,
    server: Nid,
    address: SocketAddrV4,
    fsname: String,
    xid: AtomicU64,
    /// Whether its answers are read.
    reads: AtomicBool,
    is_over: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    handles: BTreeMap<u32, ObdHandle>,
    /// How many answers of each kind had which status.
    statuses: BTreeMap<(u32, i32), u64>,
}

impl Raw {
    fn connect(cluster: &Cluster) -> Outcome<Arc<Self>> {
        let source = cluster.source();
        let (nid, fsname) = source.split_once("@tcp:/").ok_or("no NID")?;
        let server: Ipv4Addr = nid.parse().context(nid)?;
        let port = cluster.port().ok_or("no port")?.parse().context("port")?;
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let incarnation = since.map_or(1, |since| since.as_nanos() as u64);
        let own = Local { nid: Nid::tcp(Ipv4Addr::LOCALHOST), incarnation };
        let (address, server) = (SocketAddrV4::new(server, port), Nid::tcp(server));
        let mut stream = TcpStream::connect(address).context(address)?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).context("socket")?;
        let (_, first) = Handshake::active(own, server, ConnectionType::ANY);
        stream.write_all(&first.concat()).context("HELLO")?;
        stream.read_exact(&mut [0; HELLO_BYTES]).context("its HELLO")?;
        let reader = stream.try_clone().context("socket")?;
        let raw = Arc::new(Self {
            stream: Mutex::new(stream),
            own,
            server,
            address,
            fsname: fsname.to_owned(),
            // Its last bits count the parts of a bulk down.
            xid: AtomicU64::new(incarnation | 63),
            reads: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            heard: Mutex::default(),
        });
        let hears = Arc::clone(&raw);
        thread::spawn(move || hears.listen(reader));
        raw.export(Opcode::MDS_CONNECT, "MDT0000")?;
        raw.export(Opcode::OST_CONNECT, "OST0000")?;
        Ok(raw)
    }

    /// Until the connection ends.
    fn listen(&self, mut stream: TcpStream) {
        while !self.is_over.load(Ordering::Relaxed) {
            if !self.reads.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            if self.hear(&mut stream).is_none() {
                return;
            }
        }
    }

    fn hear(&self, stream: &mut TcpStream) -> Option<()> {
        let mut head = [0; KsockHeader::SIZE];
        stream.read_exact(&mut head).ok()?;
        let bytes = Bytes::copy_from_slice(&head);
        let ksock = KsockHeader::decode(&mut Reader::new(&bytes, ByteOrder::Little)).ok()?;
        if ksock.kind != KsockType::LNET {
            return Some(());
        }
        let mut head = [0; LnetHeader::SIZE];
        stream.read_exact(&mut head).ok()?;
        let bytes = Bytes::copy_from_slice(&head);
        let header = LnetHeader::decode(&mut Reader::new(&bytes, ByteOrder::Little)).ok()?;
        let mut payload = vec![0; header.payload_length as usize];
        stream.read_exact(&mut payload).ok()?;
        let body = Message::decode(&payload.into()).and_then(|message| message.body());
        if let Ok(body) = body {
            let mut heard = self.heard.lock();
            *heard.statuses.entry((body.opcode.0, body.status)).or_default() += 1;
            if body.status == 0 && body.handle != ObdHandle(0) {
                heard.handles.entry(body.opcode.0).or_insert(body.handle);
            }
        }
        Some(())
    }

    fn export(&self, opcode: Opcode, target: &str) -> Outcome {
        let cdata = ObdConnectData {
            flags: ConnectFlags::FULL20
                | ConnectFlags::VERSION
                | ConnectFlags::IBITS
                | ConnectFlags::FID,
            flags2: ConnectFlags2::NONE,
            version: 0x0211_0000,
            ibits_known: 0x7f,
            ..ObdConnectData::default()
        };
        let tgtuuid = Text::padded(format!("{}-{target}_UUID", self.fsname), 40);
        let cluuid = Text::padded(format!("greedy-{}", self.own.incarnation), 40);
        let conn = ObdHandle(self.own.incarnation | 1);
        let request: Request = match opcode {
            Opcode::MDS_CONNECT => {
                MdsConnect { tgtuuid, cluuid, conn, cdata, ..MdsConnect::default() }.into()
            }
            _ => OstConnect { tgtuuid, cluuid, conn, cdata, ..OstConnect::default() }.into(),
        };
        let frame = self.frame(opcode, ObdHandle(0), request);
        ensure(self.say(&frame), || "the server takes nothing".to_owned())?;
        wait_until(target, PATIENCE, || self.handle(opcode).is_some())
            .map_err(|error| format!("{error}: {:?}", self.heard.lock().statuses))
    }

    fn handle(&self, connect: Opcode) -> Option<ObdHandle> {
        self.heard.lock().handles.get(&connect.0).copied()
    }

    /// A request as bytes of the connection.
    fn frame(&self, opcode: Opcode, handle: ObdHandle, request: Request) -> Vec<u8> {
        let number = self.xid.fetch_add(64, Ordering::Relaxed);
        let portal = match opcode {
            Opcode::OST_WRITE => Portal::OST_IO,
            Opcode::OST_CONNECT => Portal::OST_REQUEST,
            _ => Portal::MDS_REQUEST,
        };
        let body = PtlrpcBody {
            handle,
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode,
            conn_cnt: 1,
            timeout: 20,
            match_bits: MatchBits(number),
            ..PtlrpcBody::default()
        };
        let bytes = request.to_bytes(&MessageHeader::default(), &body);
        let (ack_handle, match_bits) = (HANDLE_NONE, MatchBits(number));
        let put = Put { ack_handle, match_bits, header_data: 0, portal, offset: 0 };
        let frame = sheen_lnet::message(self.own, self.server, LnetCommand::Put(put), vec![bytes]);
        std::iter::once(frame.head).chain(frame.payload).collect::<Vec<_>>().concat()
    }

    /// Whether the server has taken all of it, or the test is over.
    fn say(&self, mut bytes: &[u8]) -> bool {
        let mut stream = self.stream.lock();
        while !bytes.is_empty() && !self.is_over.load(Ordering::Relaxed) {
            match stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        bytes.is_empty()
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It may have ended by itself.
        let _ = self.stream.lock().shutdown(Shutdown::Both);
    }

    fn ping(&self) -> Vec<u8> {
        let handle = self.handle(Opcode::MDS_CONNECT).unwrap_or(ObdHandle(0));
        self.frame(Opcode::OBD_PING, handle, ObdPing::default().into())
    }

    fn lock(&self) -> Vec<u8> {
        let number = self.xid.load(Ordering::Relaxed) / 64;
        let fid = Fid::new(0x2_0000_0f00, number as u32);
        let desc = described(fid, LockMode::Pr);
        let dlm_req = LdlmRequest::enqueue(LockFlags::NONE, desc, LockHandle(number | 1 << 60));
        let handle = self.handle(Opcode::MDS_CONNECT).unwrap_or(ObdHandle(0));
        let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
        self.frame(Opcode::LDLM_ENQUEUE, handle, request.into())
    }

    /// Opens a file that is there, to read.
    fn open(&self, fid: Fid) -> Vec<u8> {
        let number = self.xid.load(Ordering::Relaxed) / 64;
        let dlm_req = LdlmRequest::enqueue(
            LockFlags::HAS_INTENT,
            described(fid, LockMode::Cr),
            LockHandle(number | 1 << 60),
        );
        let mut rec_reint = RecCreate {
            opcode: ReintOp::OPEN,
            mode: 0o100_000,
            fid1: fid,
            fid2: fid,
            ..RecCreate::default()
        };
        rec_reint.set_flags(MdsOpenFlags::READ);
        let request = LdlmIntentOpen {
            dlm_req,
            ldlm_intent: LdlmIntent { opc: IntentOp::OPEN },
            rec_reint,
            name: Some(Text::default()),
            ..LdlmIntentOpen::default()
        };
        let handle = self.handle(Opcode::MDS_CONNECT).unwrap_or(ObdHandle(0));
        self.frame(Opcode::LDLM_ENQUEUE, handle, request.into())
    }

    /// A write of a whole bulk that will not be sent.
    fn write(&self, object: OstId) -> Vec<u8> {
        let length = 4 << 20;
        let request = OstWrite {
            ost_body: OstBody {
                oa: Obdo { valid: Valid::ID | Valid::GROUP, oi: object, ..Obdo::default() },
            },
            obd_ioobj: vec![ObdIoobj { oid: object, max_brw: 0, bufcnt: 1 }],
            niobuf_remote: vec![NiobufRemote { offset: 0, len: length, flags: BrwFlags::NONE }],
            ..OstWrite::default()
        };
        let handle = self.handle(Opcode::OST_CONNECT).unwrap_or(ObdHandle(0));
        self.frame(Opcode::OST_WRITE, handle, request.into())
    }
}

fn described(fid: Fid, mode: LockMode) -> LdlmLockDesc {
    LdlmLockDesc {
        resource: LdlmResourceDesc {
            kind: LockType::IBITS,
            padding: 0,
            name: ResourceName::of_fid(fid),
        },
        req_mode: mode.into(),
        policy: Policy::of_inode_bits(InodeBits::LOOKUP, InodeBits(0)),
        ..LdlmLockDesc::default()
    }
}

/// What the greedy client does, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// None: another client that does what the first one does, for comparison.
    Neighbour,
    Flood,
    Connections,
    Opens,
    Locks,
    Bulk,
}

const ALL: [Harm; 6] =
    [Harm::Neighbour, Harm::Connections, Harm::Flood, Harm::Opens, Harm::Locks, Harm::Bulk];

/// What it needs to know.
#[derive(Clone, Copy)]
struct Prey {
    fid: Fid,
    object: OstId,
}

/// Does it until `is_over`; how many requests it got rid of.
fn harm(raw: &Raw, what: Harm, prey: Prey, is_over: &AtomicBool) -> u64 {
    let mut sent = 0;
    raw.reads.store(what != Harm::Flood, Ordering::Relaxed);
    let mut silent = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if what == Harm::Connections {
            silent.extend(TcpStream::connect_timeout(&raw.address.into(), PATIENCE).ok());
            if silent.len() > SILENT {
                silent.drain(..SILENT / 2);
            }
            sent += 1;
            continue;
        }
        let one = |_| match what {
            Harm::Neighbour | Harm::Flood | Harm::Connections => raw.ping(),
            Harm::Opens => raw.open(prey.fid),
            Harm::Locks => raw.lock(),
            Harm::Bulk => raw.write(prey.object),
        };
        let batch: Vec<u8> = (0..BATCH).flat_map(one).collect();
        if !raw.say(&batch) {
            break;
        }
        sent += BATCH;
    }
    sent
}

/// This thread takes what processors no other has use for: a hostile client has processors of its own, and what is
/// to be measured is what it costs the server.
fn give_way() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let outcome =
        std::process::Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status();
    assert!(outcome.is_ok_and(|status| status.success()), "chrt of util-linux");
}

/// The processors for the server, and those for its clients: it has one of its own where there are two, as it has on a
/// machine of its own.
fn processors() -> (CpuSet, CpuSet) {
    let all = sched_getaffinity(None).expect("our own processors");
    let mut numbers = (0..CpuSet::MAX_CPU).filter(|&number| all.is_set(number));
    let (Some(first), Some(second)) = (numbers.next(), numbers.next()) else { return (all, all) };
    let of = |numbers: &mut dyn Iterator<Item = usize>| {
        let mut set = CpuSet::new();
        numbers.for_each(|number| set.set(number));
        set
    };
    (of(&mut std::iter::once(first)), of(&mut std::iter::once(second).chain(numbers)))
}

/// Moves the calling thread alone, as other tests run in this process; what it starts from now on is there too, and
/// counts its threads by it: two that work on one processor would wait for each other's time slices.
fn move_to(processors: &CpuSet) {
    sched_setaffinity(None, processors).expect("they are ours");
}

/// Rounds of creates, writes, stats and removes that the well-behaved client gets done, of which one is due each
/// `interval`; one after the other if that is zero. A round that is late is made up for.
fn work(folder: &Path, time: Duration, interval: Duration) -> Outcome<u64> {
    const DIRECT: i32 = 0o40_000;
    let (begin, mut rounds) = (Instant::now(), 0_u32);
    let content = vec![7; 64 << 10];
    while begin.elapsed() < time {
        let path = folder.join(format!("f{rounds}"));
        let mut options = File::options();
        options.create(true).truncate(true).write(true).custom_flags(DIRECT);
        let file = options.open(&path).context("create")?;
        file.write_all_at(&content, 0).context("write")?;
        drop(file);
        let absent = fs::metadata(folder.join(format!("absent{rounds}")));
        ensure(absent.is_err(), || "a name that no client made".to_owned())?;
        fs::remove_file(&path).context("rm")?;
        rounds += 1;
        thread::sleep((interval * rounds).saturating_sub(begin.elapsed()));
    }
    Ok(u64::from(rounds))
}

/// Peak and present resident memory of a process, in KiB.
fn memory(pid: i32) -> Outcome<(u64, u64)> {
    let status = text(Path::new(&format!("/proc/{pid}/status")));
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
    };
    number("VmHWM:").zip(number("VmRSS:")).ok_or_else(|| format!("no memory of {pid}"))
}

fn prey(cluster: &Cluster, folder: &Path) -> Outcome<Prey> {
    let path = folder.join("prey");
    fs::write(&path, vec![7; 100]).context("write")?;
    let path = path.to_string_lossy().into_owned();
    let fid = cluster.must(&["lfs", "path2fid", &path])?;
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).context(word);
    let words: Vec<&str> = fid.trim().trim_matches(['[', ']']).split(':').collect();
    let [sequence, id, _] = words[..] else { return Err(fid) };
    let fid = Fid::new(number(sequence)?, number(id)? as u32);
    let stripes = cluster.must(&["lfs", "getstripe", &path])?;
    let last = stripes.trim().lines().last().unwrap_or_default();
    let columns: Vec<&str> = last.split_whitespace().collect();
    let [_, _, id, group, ..] = columns[..] else { return Err(stripes) };
    let object = match (number(id)?, number(group)?) {
        (id, 0) => OstId { word0: id, word1: 0 },
        (id, group) => OstId { word0: group, word1: id },
    };
    Ok(Prey { fid, object })
}

/// Rounds of the well-behaved client without and with another one, in as many turns.
#[derive(Default)]
struct Rounds {
    alone: u64,
    beside: u64,
}

impl Rounds {
    fn kept(&self) -> f64 {
        self.beside as f64 / self.alone.max(1) as f64
    }
}

/// One kind of harm: rates by turns.
struct Measured {
    what: Harm,
    /// As fast as it can.
    fast: Rounds,
    /// At half that rate.
    half: Rounds,
    sent: u64,
    answers: BTreeMap<(u32, i32), u64>,
    grown_kib: u64,
}

/// How long a turn is, and how many there are.
#[derive(Clone, Copy)]
struct Turns {
    time: Duration,
    count: u32,
}

fn measure(
    cluster: &Cluster,
    (folder, other): (&Path, &Path),
    what: Harm,
    turns: Turns,
) -> Outcome<Measured> {
    let prey = prey(cluster, folder)?;
    let (_, before) = memory(cluster.server_pid()?)?;
    let raw = Raw::connect(cluster)?;
    let (mut sent, mut grown_kib) = (0, 0);
    let mut rounds = |interval| -> Outcome<Rounds> {
        let mut rounds = Rounds::default();
        for _ in 0..turns.count {
            rounds.alone += work(folder, turns.time, interval)?;
            let (beside, more) =
                work_beside((folder, other), &raw, what, prey, turns.time, interval);
            (rounds.beside, sent) = (rounds.beside + beside?, sent + more);
            grown_kib = memory(cluster.server_pid()?)?.1.saturating_sub(before).max(grown_kib);
        }
        Ok(rounds)
    };
    let fast = rounds(Duration::ZERO)?;
    let half = rounds(
        2 * turns.time * turns.count / u32::try_from(fast.alone.max(1)).unwrap_or(u32::MAX),
    )?;
    raw.end();
    let answers = raw.heard.lock().statuses.clone();
    Ok(Measured { what, fast, half, sent, answers, grown_kib })
}

/// A turn of both clients: the rounds of the one, and what the other one sent.
fn work_beside(
    (folder, other): (&Path, &Path),
    raw: &Raw,
    what: Harm,
    prey: Prey,
    time: Duration,
    interval: Duration,
) -> (Outcome<u64>, u64) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let hostile = scope.spawn(|| match what {
            Harm::Neighbour => work(other, time, interval).unwrap_or_default(),
            _ => {
                give_way();
                harm(raw, what, prey, &is_over)
            }
        });
        let rounds = work(folder, time, interval);
        is_over.store(true, Ordering::Relaxed);
        raw.reads.store(true, Ordering::Relaxed);
        (rounds, hostile.join().unwrap_or_default())
    })
}

fn all(cluster: &Cluster, clients: &CpuSet, turns: Turns, must_keep: bool) -> Outcome {
    // The mount that came with the server is left aside: it was started on the server's processor.
    move_to(clients);
    let folder = cluster.mount_by_tcp()?.join("work");
    let other = cluster.mount_again()?.join("other");
    [&folder, &other].into_iter().try_for_each(fs::create_dir).context("mkdir")?;
    work(&folder, turns.time, Duration::ZERO)?;
    let (first, _) = memory(cluster.server_pid()?)?;
    let mut taken = Vec::new();
    for what in ALL {
        let it = measure(cluster, (&folder, &other), what, turns)?;
        ensure(it.fast.beside > 0, || format!("{what:?} stops another client"))?;
        ensure(it.grown_kib < BUDGET_KIB, || format!("{what:?} costs {} KiB", it.grown_kib))?;
        println!(
            "greedy: {:?}: {} rounds alone, {} beside ({:.2}); at half that rate {} and {} ({:.2}); \
             {} sent, the server grew by {} KiB, {:?}",
            it.what,
            it.fast.alone,
            it.fast.beside,
            it.fast.kept(),
            it.half.alone,
            it.half.beside,
            it.half.kept(),
            it.sent,
            it.grown_kib,
            it.answers
        );
        if must_keep && it.half.kept() < KEPT {
            taken.push(format!("{what:?} leaves it {:.2} of half its rate", it.half.kept()));
        }
    }
    ensure(taken.is_empty(), || format!("another client: {}", taken.join(", ")))?;
    let (peak, now) = memory(cluster.server_pid()?)?;
    ensure(peak < first + BUDGET_KIB, || format!("{peak} KiB, {first} before"))?;
    println!("greedy: the server had {first} KiB at most before, {peak} in all, {now} now");
    println!(
        "greedy: {}",
        cluster.must(&["lctl", "get_param", "budget.stats", "*.*.budget_stats"])?
    );
    Ok(())
}

#[test]
fn a_greedy_client_costs_the_server_its_budget_at_most_and_stops_no_other_client() {
    let (server, clients) = processors();
    move_to(&server);
    let cluster =
        Cluster::start_with("greedy", 1, &["--listen", "--accept", "all", "--port", "9988"]);
    play(&Arc::new(cluster.unwrap()), LIMIT, move |cluster| {
        let long = std::env::var_os("SHEEN_TEST_LONG").is_some();
        let time = Duration::from_millis(if long { 1500 } else { 500 });
        // Only over many turns does it count more than what else runs on the machine.
        all(cluster, &clients, Turns { time, count: if long { 8 } else { 1 } }, long)
    });
}
