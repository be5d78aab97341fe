//! Our client against a server that answers as captured: the requests must be those of the real
//! client.

mod ahead;
mod alone;
mod sessions;
mod striped;
mod two;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_client::data::DataTargets;
use sheen_client::posix::{
    Attributes, Credentials, DirCookie, FileHandle, FileSystem, ListingRoom, LockOwner, Lookup,
    NewNode, NodeId, OpenFlags, SetAttributes, SetTime,
};
use sheen_io::{World, within};
use sheen_node::net::{LNet, NetConfig};
use sheen_types::{Errno, Fid, Name, Nid, fid_seq};
use sheen_vnet::{NetworkConditions, Virtual};
use sheen_wire::ldlm::LockFlags;
use sheen_wire::messages::{Reply, Request};

use crate::answering::{Answering, Heard, mounts, serve};
use crate::common::{PORT, client_nid, mounted, server_nid};
use crate::script::{self, Exchange, Script};

/// `O_WRONLY`.
const WRITE: u32 = 1;
/// `O_RDWR`.
const READ_WRITE: u32 = 2;

/// What a kernel asks of our client for the programs of the captured sessions, as root.
struct Caller {
    files: FileSystem,
    data: Arc<DataTargets>,
    who: Credentials,
    world: World,
    /// Who answers.
    servers: Arc<Answering>,
    /// What the captured client wrote first, which came from `/dev/urandom`.
    random: Bytes,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Caller {
    /// Mounts.
    async fn new(world: &World, nid: Nid, servers: &Arc<Answering>, random: Bytes) -> Self {
        let data = DataTargets::new(world.clone());
        let files = mounted(world, nid, Arc::clone(&data)).await;
        // A shell reopened files after seconds, too late for them to be kept open. Here it is at once.
        files.settings().open_cache.count.set(0);
        // Where the captured mount's turn was is not known: each directory is asked for where it was made.
        files.set_places_directories(false);
        let who = Credentials { umask: 0o22, ..Credentials::root() };
        let servers = Arc::clone(servers);
        Self { files, data, who, world: world.clone(), servers, random }
    }

    async fn make(&self, parent: NodeId, text: &str, new: NewNode) -> Result<NodeId, Errno> {
        Ok(self.files.make_node(&self.who, parent, &name(text), 0o777, new).await?.node)
    }

    /// Creates or, if it is there, opens.
    async fn create(
        &self,
        parent: NodeId,
        text: &str,
        mode: u32,
        flags: u32,
    ) -> Result<(NodeId, FileHandle), Errno> {
        let flags = OpenFlags(OpenFlags::CREATE | flags);
        let (entry, opened) =
            self.files.open_create(&self.who, parent, &name(text), mode, flags).await?;
        Ok((entry.node, opened.handle))
    }

    async fn look_up(&self, parent: NodeId, text: &str) -> Result<NodeId, Errno> {
        match self.files.lookup(&self.who, parent, &name(text)).await? {
            Lookup::Found(entry) => Ok(entry.node),
            Lookup::Absent { .. } => Err(Errno::ENOENT),
        }
    }

    async fn open(&self, node: NodeId, flags: u32) -> Result<FileHandle, Errno> {
        Ok(self.files.open(&self.who, node, OpenFlags(flags)).await?.handle)
    }

    async fn set(&self, node: NodeId, changes: SetAttributes) -> Result<(), Errno> {
        self.files.setattr(&self.who, node, None, changes).await.map(|_| ())
    }

    /// As truncate(1) does.
    async fn truncate(&self, node: NodeId, size: u64) -> Result<(), Errno> {
        let handle = self.open(node, WRITE).await?;
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.files.setattr(&self.who, node, Some(handle), changes).await?;
        self.close(handle).await
    }

    async fn close(&self, handle: FileHandle) -> Result<(), Errno> {
        self.files.flush(handle, LockOwner(1)).await?;
        self.release(handle).await
    }

    /// The next step begins when the close, which no caller waits for, has been answered.
    async fn release(&self, handle: FileHandle) -> Result<(), Errno> {
        self.files.release(handle, None).await?;
        let soon = self.world.clock.now() + Duration::from_millis(10);
        self.world.clock.sleep_until(soon).await;
        Ok(())
    }

    async fn read(&self, handle: FileHandle, offset: u64, length: u32) -> Result<Bytes, Errno> {
        Ok(self.files.read(handle, offset, length).await?.concat().into())
    }

    /// As touch(1) does: creates, sets the times, closes.
    async fn touch(&self, parent: NodeId, text: &str) -> Result<NodeId, Errno> {
        let (node, handle) = self.create(parent, text, 0o666, WRITE).await?;
        let now = Some(SetTime::Now);
        let times = SetAttributes { atime: now, mtime: now, ..SetAttributes::default() };
        self.files.setattr(&self.who, node, Some(handle), times).await?;
        self.close(handle).await?;
        Ok(node)
    }

    /// The names of a directory, without `.` and `..`; as `ls` does, which asks what it is first.
    async fn list(&self, directory: NodeId) -> Result<Vec<Name>, Errno> {
        self.files.getattr(&self.who, directory).await?;
        let handle = self.open(directory, OpenFlags::DIRECTORY).await?;
        let (mut names, mut from) = (Vec::new(), DirCookie::default());
        loop {
            let some = self.files.readdir(handle, from, 100).await?;
            let Some(last) = some.last() else { break };
            from = last.next;
            let is_dot = |name: &[u8]| [&b"."[..], b".."].contains(&name);
            let new = some.iter().filter(|entry| !is_dot(&entry.name));
            names.extend(new.filter_map(|entry| Name::new(&entry.name).ok()));
        }
        self.release(handle).await?;
        Ok(names)
    }

    /// The names of a directory with what they stand for, as `ls -l` asks a kernel that asks our client: names with what they
    /// stand for, and what was left out name by name.
    async fn list_long(&self, directory: NodeId) -> Result<Vec<(Name, Attributes)>, Errno> {
        self.files.getattr(&self.who, directory).await?;
        let handle = self.open(directory, OpenFlags::DIRECTORY).await?;
        let (mut names, mut from) = (Vec::new(), DirCookie::default());
        loop {
            let room = ListingRoom::for_names(64);
            let some = self.files.readdir_plus(&self.who, handle, from, room).await?;
            let Some(last) = some.last() else { break };
            from = last.entry.next;
            for entry in some {
                if [&b"."[..], b".."].contains(&&entry.entry.name[..]) {
                    continue;
                }
                let Ok(name) = Name::new(&entry.entry.name) else { continue };
                let found = match entry.found {
                    Some(found) => Some(found.attributes),
                    None => match self.files.lookup(&self.who, directory, &name).await? {
                        Lookup::Found(entry) => Some(entry.attributes),
                        Lookup::Absent { .. } => None,
                    },
                };
                names.extend(found.map(|found| (name, found)));
            }
        }
        self.release(handle).await?;
        Ok(names)
    }

    /// What servers did by themselves up to this packet is done, and heard of.
    async fn pass_to(&self, packet: usize) {
        self.servers.pass_to(packet);
        self.wait(Duration::from_millis(100)).await;
    }

    async fn wait(&self, time: Duration) {
        self.world.clock.sleep_until(self.world.clock.now() + time).await;
    }

    /// As cat(1) does, which opens by name.
    async fn cat(&self, parent: NodeId, text: &str) -> Result<Bytes, Errno> {
        let (_, handle) = self.create(parent, text, 0o666, 0).await?;
        let read = self.read(handle, 0, 4096).await?;
        self.close(handle).await?;
        Ok(read)
    }

    /// As `lctl set_param ldlm.namespaces.*KIND*.lru_size=clear` does.
    async fn clear_locks(&self, kind: &str) {
        for space in self.files.lock_namespaces() {
            if space.name().contains(kind) {
                drop(space.cancel_unused());
            }
        }
        let soon = self.world.clock.now() + Duration::from_millis(100);
        self.world.clock.sleep_until(soon).await;
    }
}

/// Captures that are played each for itself.
pub(crate) const ALONE: [&str; 16] = [
    "e1-dne-remote-dir",
    "e2-dne-striped-dir",
    "e3-dne-default-dirstripe",
    "more/d1-rename-link-across-mdts",
    "more/d2-striped-dir-hashes",
    "more/d5-mkdir-overstripe-unlink",
    "more/d6-readdir-striped-1000",
    "more/i1-cold-seq-read-3M",
    "more/i3-random-4k-read",
    "more/i4-short-io-4k",
    "more/i6-fallocate-punch",
    "more/m1-second-client-mount-hello",
    "more/s1-statahead-ls-l-500",
    "more/s2-statahead-mixed-types",
    "more/v5-grouplock-lockahead",
    "more/d3-dirstripe-get-set-options",
];
/// Longer than a session takes, if all is answered.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// Where a client asks for FIDs: other clients had some left, for files that an open might make.
const FIDS: &str = "b1-mkdir-create-stat-unlink.pcap";
/// Where a client asks for the directory that other clients knew already.
const W: &str = "more/i1-cold-seq-read-3M.pcap";

fn asks_fids(exchange: &Exchange) -> bool {
    matches!(exchange.request.typed, Request::SeqQuery(_))
}

/// Where sequences of clients are; where the root is, each mount asks.
fn asks_for_mdts(exchange: &Exchange) -> bool {
    let Request::FldQuery(asked) = &exchange.request.typed else { return false };
    Fid::new(asked.fld_mdfld.start, 1).is_normal()
}

/// A client that did not ask for FIDs had some left, of another sequence of the same MDT than the one that asked: ours is
/// given that, so that what is made has the FIDs that were asked for, but for their numbers.
fn give_sequences_of(own: &Script, script: &mut Script) {
    let made = own.exchanges.iter().filter_map(|exchange| match &exchange.request.typed {
        Request::MdsReintCreate(create) => Some(create.rec_reint.fid2.seq),
        _ => None,
    });
    let made: Vec<u64> = made.collect();
    for exchange in &mut script.exchanges {
        let Some((reply, _)) = &mut exchange.reply else { continue };
        let Reply::SeqQuery(reply) = &mut reply.typed else { continue };
        let Some(given) = &mut reply.seq_range else { continue };
        let same_mdt = |sequence: &&u64| mdt_of(**sequence) == mdt_of(given.start);
        if let Some(&sequence) = made.iter().find(same_mdt) {
            (given.start, given.end) = (sequence, sequence + given.end - given.start);
        }
    }
}

/// The number of the MDT that gave a sequence out, in the captured file system: each has one range of 2^30, in their order.
pub(crate) fn mdt_of(sequence: u64) -> u64 {
    (sequence - fid_seq::NORMAL) >> 30
}

fn looks_up_w(exchange: &Exchange) -> bool {
    let Request::LdlmIntentGetattr(asked) = &exchange.request.typed else { return false };
    asked.name.as_ref().is_some_and(|name| name.to_text() == "w")
}

/// What our client did against the servers of captures.
pub(crate) struct Played {
    /// Their names.
    pub(crate) captures: Vec<String>,
    pub(crate) heard: Heard,
}

/// Captures of a Lustre under faults that are played each for itself.
pub(crate) const OF_FAULTS: [&str; 3] =
    ["n4-dir-restripe", "n6-statahead-fname-striped", "n7-lockahead-group-two-mounts"];

/// Runs each session of captures of a Lustre under faults, in `folder`, with the mount in `directory` before it.
pub(crate) fn run_of_faults(directory: &Path, folder: &Path, mount: &str) -> Vec<Played> {
    let two = |name| Session::of_two(directory, mount, folder, name);
    let [restriped, by_number, locked] = OF_FAULTS;
    vec![
        play_session(&two(restriped), two::restriped),
        play_session(&two(by_number), two::by_number),
        play_session(&two(locked), two::locked),
    ]
}

/// Where the second of two captured clients was, or the second mount of one.
fn second_nid() -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 77, 0, 13))
}

/// Runs the session of the captures `names`, with the mount before it, and then each other session for
/// itself.
pub(crate) fn run(directory: &Path, mount: &str, names: &[&str]) -> Vec<Played> {
    let with_mount = |name: &str| vec![mount.to_owned(), name.to_owned()];
    let together = std::iter::once(&mount).chain(names).map(|name| (*name).to_owned()).collect();
    let (first, second) = (client_nid(), second_nid());
    let [
        remote,
        striped,
        default,
        across,
        hashes,
        overstriped,
        listed,
        ahead,
        scattered,
        short,
        room,
        own_mount,
        files,
        mixed,
        grouped,
        default_wish,
    ] = ALONE;
    let two = |name| Session::of_two(directory, mount, directory, name);
    let one_session = [mount, remote, striped, default].map(str::to_owned).to_vec();
    vec![
        play(directory, together, first, sessions::all),
        play(directory, one_session, first, striped::two),
        play(directory, with_mount(across), first, alone::across),
        play(directory, with_mount(hashes), first, striped::hashes),
        play(directory, with_mount(overstriped), first, striped::overstriped),
        play(directory, with_mount(listed), first, striped::listed),
        play(directory, with_mount(ahead), first, alone::ahead),
        play(directory, with_mount(scattered), first, alone::scattered),
        play(directory, with_mount(short), first, alone::short),
        play(directory, with_mount(room), first, alone::room),
        play(directory, vec![own_mount.to_owned()], second, alone::second),
        play(directory, with_mount(files), first, ahead::files),
        play(directory, with_mount(mixed), first, ahead::mixed),
        play_session(&two(grouped), two::grouped),
        play(directory, with_mount(default_wish), first, striped::default_wish),
    ]
}

/// One session against the servers of captures.
struct Session {
    /// Their files, without the ending, and names. The last one is the session's own.
    captures: Vec<(PathBuf, String)>,
    /// Where captures of what clients knew before are.
    directory: PathBuf,
    /// Where our clients are, each with one of the captured node's mounts.
    nids: Vec<Nid>,
    /// Whether the captured node's mounts had connected the other way round.
    turned: bool,
    /// Whether servers revoke all locks as they did, and not only those of what had gone: a client that looks at other
    /// moments than the real one would ask again for what was answered once.
    revokes: bool,
}

impl Session {
    fn of(directory: &Path, captures: Vec<String>, nid: Nid) -> Self {
        let files = captures.into_iter().map(|name| (directory.join(&name), name));
        let directory = directory.to_owned();
        let captures = files.collect();
        Self { captures, directory, nids: vec![nid], turned: false, revokes: false }
    }

    /// As [`Self::of`] the capture `name` of `folder`, of a node with two mounts.
    fn of_two(directory: &Path, mount: &str, folder: &Path, name: &str) -> Self {
        let mut it = Self::of(directory, vec![mount.to_owned()], client_nid());
        it.captures.push((folder.join(name), name.to_owned()));
        it.nids.push(second_nid());
        it.revokes = true;
        it
    }

    /// The capture of its own.
    fn own(&self) -> Script {
        self.captures.last().map(|(path, _)| self.read(path, true)).unwrap_or_default()
    }

    fn read(&self, path: &Path, is_own: bool) -> Script {
        let mut script = script::read(&path.with_added_extension("pcap"));
        let is_discard = |call: &Request| match call {
            Request::LdlmBlCallback(call) => call.dlm_req.flags.contains(LockFlags::DISCARD_DATA),
            _ => false,
        };
        script.revoked.retain(|(_, call)| self.revokes || is_discard(&call.typed));
        if is_own && self.nids.len() > 1 {
            mounts::number(&mut script, self.nids.len(), self.turned);
        }
        script
    }

    /// What its servers say.
    fn script(&self) -> Script {
        let mut script = Script { revokes: self.revokes, ..Script::default() };
        for (number, (path, _)) in self.captures.iter().enumerate() {
            script.add(self.read(path, number + 1 == self.captures.len()));
        }
        let asks: [fn(&Exchange) -> bool; 3] = [asks_fids, asks_for_mdts, looks_up_w];
        for (kind, from) in asks.into_iter().zip([FIDS, FIDS, W]) {
            let is_first = |it: &&Exchange| it.mount.is_none_or(|mount| mount == 0);
            if !script.exchanges.iter().filter(is_first).any(kind) {
                let mut known = Script { revokes: self.revokes, ..Script::default() };
                let elsewhere = script::read(&self.directory.join(from));
                known.exchanges.extend(elsewhere.exchanges.into_iter().filter(kind));
                known.add(script);
                script = known;
            }
        }
        give_sequences_of(&self.own(), &mut script);
        script
    }
}

/// One session with one mount.
fn play<F>(directory: &Path, captures: Vec<String>, nid: Nid, work: F) -> Played
where
    F: AsyncFnOnce(&Caller, &Script) -> Result<(), Errno> + 'static,
{
    let session = Session::of(directory, captures, nid);
    play_session(&session, async move |them, script| work(&them[0], script).await)
}

fn play_session<F>(session: &Session, work: F) -> Played
where
    F: AsyncFnOnce(&[Caller], &Script) -> Result<(), Errno> + 'static,
{
    let world =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let io = world.world();
    let (script, own) = (session.script(), session.own());
    let random = sessions::first_written(&script);
    let nids = session.nids.clone();
    let (answering, ended) = world.run(async move {
        let lnet = LNet::start(io.clone(), NetConfig::new(server_nid(), PORT)).await;
        let answering = serve(&lnet.expect("the address is free"), io.clone(), script);
        let mut callers = Vec::new();
        for nid in nids {
            callers.push(Caller::new(&io, nid, &answering, random.clone()).await);
        }
        let ended = within(&*io.clock, PATIENCE, work(&callers, &own)).await;
        (answering, ended)
    });
    let heard = answering.heard();
    let captures: Vec<_> = session.captures.iter().map(|(_, name)| name.clone()).collect();
    let last = captures.last().map_or("", String::as_str);
    assert_eq!(
        ended,
        Some(Ok(())),
        "{last}: asked for what was never answered: {:?}",
        heard.strange
    );
    Played { captures, heard }
}
