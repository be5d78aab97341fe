//! A client in virtual time whose servers lie to it: live targets answer, and bytes decide what becomes
//! of their answers on the way.
//!
//! Only answers to the client are changed: the servers are honest with each other, and once the bytes have
//! run out, with the client. So whatever the client was answered, each of its calls must end.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_assembly::{NodeConnector, TargetLabel};
use sheen_client::config::{MountOptions, mount};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::{
    Credentials, DirCookie, FileHandle, FileSystem, ListingRoom, Lookup, NewNode, NodeId,
    OpenFlags, RenameMode, SetAttributes, XattrMode,
};
use sheen_io::{BoxFuture, World};
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_rpc::{Handler, IncomingRequest, Replier, ReplyHead};
use sheen_target::Target;
use sheen_types::{Name, Nid, ObdHandle, Transno, Uuid};
use sheen_vnet::Virtual;
use sheen_wire::messages::{MdsGetxattrReply, ObdPingReply, OstGetInfoReply, Reply};
use sheen_wire::ptlrpc::{Message, MessageHeader, MsgFlags, OpFlags, PtlrpcBody};

use crate::common::{Cluster, PORT, Servers, server_nid, start};
use crate::ends::{end, end_node};
use crate::fields::Fields;
use crate::known::Values;
use crate::source::{Input, Source};

/// A call that takes longer has been left waiting: no timeout of a client or a server is near it.
const CALL_MAX: Duration = Duration::from_secs(4 * 3_600);
/// How long a mount waits for the MGS and the MDT.
const MOUNT_MAX: Duration = Duration::from_secs(60);
/// Where the client is.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 16);
/// Calls of one input, at most.
const CALLS: u64 = 24;
/// Statuses that no server should send, and some that it may.
const STATUSES: [i32; 16] =
    [-1, -2, -5, -11, -17, -28, -107, -108, -110, -116, -512, -524, -4_096, i32::MIN, i32::MAX, 1];

/// A target whose answers to one client are changed on their way.
struct Liar {
    target: Arc<Target>,
    input: Arc<Input>,
    victim: Nid,
}

impl Handler for Liar {
    fn handle(&self, mut incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        if incoming.from == self.victim {
            let discarding = Replier::new(|_, _| {});
            let honest = std::mem::replace(&mut incoming.replier, discarding);
            let input = Arc::clone(&self.input);
            incoming.replier = Replier::new(move |head, reply| {
                if let Some((head, reply)) = changed(&input, head, reply) {
                    honest.send(head, reply);
                }
            });
        }
        self.target.handle(incoming)
    }

    fn owns(&self, export: ObdHandle) -> bool {
        self.target.owns(export)
    }
}

/// What becomes of an answer; `None`: it is lost.
fn changed(
    input: &Arc<Input>,
    head: ReplyHead,
    reply: Option<Reply>,
) -> Option<(ReplyHead, Option<Reply>)> {
    let number = || Fields { source: input, values: &Values::default(), objects: None }.number();
    // No decision is 0: when the bytes have run out, servers are honest.
    Some(match input.below(24) {
        1 => (ReplyHead { status: input.pick(&STATUSES), ..head }, reply),
        2 => (ReplyHead { status: input.pick(&STATUSES), ..head }, None),
        3 => (ReplyHead { status: input.draw() as i32, ..head }, reply),
        4 => (ReplyHead { transno: Transno(number()), ..head }, reply),
        5 => (ReplyHead { last_committed: Transno(number()), ..head }, reply),
        6 => (ReplyHead { handle: ObdHandle(number()), ..head }, reply),
        7 => {
            let (flags, op_flags) = (MsgFlags(number() as u32), OpFlags(number() as u32));
            (ReplyHead { flags, op_flags, ..head }, reply)
        }
        8 => (ReplyHead { limit: number() as u32, slv: number(), ..head }, reply),
        9 => (head, None),
        10 => return None,
        11 => (head, Some(ObdPingReply::default().into())),
        12 => {
            let generic_data = input.bytes(64).into();
            (head, Some(OstGetInfoReply { generic_data, ..OstGetInfoReply::default() }.into()))
        }
        13 => {
            let eadata = input.bytes(64).into();
            (head, Some(MdsGetxattrReply { eadata, ..MdsGetxattrReply::default() }.into()))
        }
        14..=20 => (head, reply.map(|reply| garbled(input, reply))),
        _ => (head, reply),
    })
}

/// The reply with one of its buffers changed, if it can still be written then.
fn garbled(input: &Arc<Input>, reply: Reply) -> Reply {
    let (kind, format) = (reply.kind(), reply.kind().format());
    let bytes = reply.to_bytes(&MessageHeader::default(), &PtlrpcBody::default());
    let Ok(mut message) = Message::decode(&bytes) else { return reply };
    let count = message.buffers.len().saturating_sub(1);
    if count == 0 {
        return reply;
    }
    for _ in 0..=input.below(3) {
        let index = input.below(count as u64) as usize;
        let field = format.reply.get(index);
        let buffer = &mut message.buffers[index + 1];
        let made = field.and_then(|field| {
            Fields { source: input, values: &Values::default(), objects: None }.structure(field)
        });
        *buffer = match (input.below(4), made) {
            (1, Some(made)) => made,
            (2, _) => input.bytes(buffer.len()).into(),
            _ => poked(input, buffer),
        };
    }
    match Reply::decode(kind, &message) {
        // A server may let a client wait for a lock as long as it likes: this lie has no bound.
        Ok(changed) if waits_for_lock(&changed) && !waits_for_lock(&reply) => reply,
        Ok(changed) => changed,
        Err(_) => reply,
    }
}

/// Whether the reply says that a lock will be granted later.
fn waits_for_lock(reply: &Reply) -> bool {
    let lock = match reply {
        Reply::LdlmEnqueue(reply) => &reply.dlm_rep,
        Reply::LdlmIntentOpen(reply) => &reply.dlm_rep,
        Reply::LdlmIntentGetattr(reply) => &reply.dlm_rep,
        Reply::LdlmIntentGetxattr(reply) => &reply.dlm_rep,
        Reply::LdlmIntentLayout(reply) => &reply.dlm_rep,
        _ => &None,
    };
    lock.as_ref().is_some_and(|lock| lock.desc.granted_mode.0 == 0)
}

/// Some bytes changed, or the end cut off.
fn poked(input: &Arc<Input>, buffer: &Bytes) -> Bytes {
    let mut whole = buffer.to_vec();
    if whole.is_empty() {
        return input.bytes(16).into();
    }
    for _ in 0..=input.below(4) {
        let at = input.below(whole.len() as u64) as usize;
        whole[at] = input.below(256) as u8;
    }
    if input.below(8) == 1 {
        whole.truncate(input.below(whole.len() as u64) as usize);
    }
    whole.into()
}

/// Puts a liar in the place of every target.
fn lie(cluster: &Cluster, input: &Arc<Input>) {
    for place in &cluster.places {
        let kind = &place.served.kind;
        let uuid = match kind {
            TargetLabel::Mgs => Uuid::new("MGS"),
            TargetLabel::Target(name) => name.uuid(),
        };
        let target = Arc::clone(&place.served.target);
        let liar = Liar { target, input: Arc::clone(input), victim: Nid::tcp(CLIENT) };
        cluster.node.register(uuid, Arc::new(liar), kind.portals());
    }
}

/// A node for a client at `nid`.
pub(crate) async fn node_at(io: &World, nid: Ipv4Addr) -> Arc<RpcNode> {
    let lnet = LNet::start(io.clone(), NetConfig::new(Nid::tcp(nid), PORT)).await;
    RpcNode::start(io.clone(), lnet.expect("the address is free"))
}

/// Our client on `node`, if it comes about.
pub(crate) async fn try_mount(io: World, node: Arc<RpcNode>) -> Option<FileSystem> {
    let router = Arc::new(CallbackRouter::default());
    node.register_callbacks(Arc::clone(&router) as _);
    let options = MountOptions {
        fsname: "lustre".to_owned(),
        mgs: vec![server_nid()],
        fileset: None,
        timeout: MOUNT_MAX,
    };
    let data = DataTargets::new(io.clone());
    mount(io, Arc::new(NodeConnector(node)), router, data, options, None).await.ok()
}

/// What the client's program has seen.
#[derive(Clone, Copy)]
struct Seen {
    node: NodeId,
    handle: FileHandle,
}

/// One call; its answer does not matter.
async fn call(files: Arc<FileSystem>, input: Arc<Input>, mut seen: Seen) -> Seen {
    let who = Credentials::root();
    let names = ["a", "b", "c"].map(|name| Name::new(name.as_bytes()).expect("a name"));
    let name = &names[input.below(3) as usize];
    let (root, offset) = (NodeId::ROOT, input.below(8) * 4_096);
    match input.below(16) {
        0..=2 => {
            let flags = OpenFlags(OpenFlags::CREATE | 2);
            if let Ok((entry, opened)) = files.open_create(&who, root, name, 0o644, flags).await {
                seen = Seen { node: entry.node, handle: opened.handle };
            }
        }
        3 => {
            if let Ok(Lookup::Found(entry)) = files.lookup(&who, root, name).await {
                seen.node = entry.node;
            }
        }
        4 => {
            if let Ok(opened) = files.open(&who, seen.node, OpenFlags(2)).await {
                seen.handle = opened.handle;
            }
        }
        5 | 6 => drop(files.write(seen.handle, offset, Bytes::from(vec![7; 5_000])).await),
        7 => drop(files.read(seen.handle, offset, 10_000).await),
        8 => drop(files.fsync(seen.handle, input.below(2) == 1).await),
        9 => drop(files.getattr(&who, seen.node).await),
        10 => {
            let changes = SetAttributes { size: Some(offset), ..SetAttributes::default() };
            drop(files.setattr(&who, seen.node, None, changes).await);
        }
        11 => drop(files.make_node(&who, root, name, 0o755, NewNode::Directory).await),
        12 => {
            let to = &names[input.below(3) as usize];
            let _ = files.rename(&who, (root, name), (root, to), RenameMode::Replace).await;
            let _ = files.unlink(&who, root, to).await;
        }
        13 => {
            let value = Bytes::from_static(b"value");
            let _ = files.setxattr(&who, seen.node, b"user.a", value, XattrMode::Any).await;
            drop(files.getxattr(&who, seen.node, b"lustre.lov").await);
            drop(files.listxattr(&who, seen.node).await);
        }
        14 => {
            if let Ok(opened) = files.open(&who, root, OpenFlags(OpenFlags::DIRECTORY)).await {
                let (from, room) = (DirCookie(0), ListingRoom::for_names(100));
                drop(files.readdir_plus(&who, opened.handle, from, room).await);
                let _ = files.release(opened.handle, None).await;
            }
            let _ = files.statfs().await;
        }
        _ => drop(files.release(seen.handle, None).await),
    }
    seen
}

/// Runs `work`, which must end in time.
fn bounded<T: 'static>(world: &Virtual, what: &str, work: impl Future<Output = T> + 'static) -> T {
    let begun = world.now();
    let done = world.run(work);
    let took = world.now().since(begun);
    assert!(took < CALL_MAX, "{what} took {took:?}");
    done
}

/// A mount and calls of a program, while servers answer what `data` says.
pub fn client_replies(data: &[u8]) {
    let servers = start(1);
    let Servers { world, cluster, .. } = &servers;
    let input = Input::new(data);
    // How many answers to the mount itself are honest: otherwise few mounts would come about.
    let honest = input.below(4) != 0;
    if !honest {
        lie(cluster, &input);
    }
    let io = world.world();
    let starting = io.clone();
    let node = world.run(async move { node_at(&starting, CLIENT).await });
    let files = bounded(world, "the mount", try_mount(io, Arc::clone(&node))).map(Arc::new);
    if honest {
        lie(cluster, &input);
    }
    if let Some(files) = files {
        let mut seen = Seen { node: NodeId::ROOT, handle: FileHandle(0) };
        for number in 0..CALLS {
            if input.is_empty() {
                break;
            }
            let (files, input) = (Arc::clone(&files), Arc::clone(&input));
            seen = bounded(world, &format!("call {number}"), call(files, input, seen));
        }
        bounded(world, "the unmount", async move { files.unmount().await });
    }
    world.pass(Duration::from_secs(10));
    end_node(&node);
    end(servers);
}
