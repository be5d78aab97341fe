//! Batches: parts that fail alone, none that waits, and what a peer's bytes can say.

use bytes::Bytes;
use sheen_target::testing::{TestAnswer, TestCall, TestWorld};
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode};
use sheen_wire::batch::{
    BUFFER_BYTES, BatchHeader, BatchedMessages, ButUpdateBuffer, ButUpdateHeader, GETATTR, batched,
    join,
};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::Valid;
use sheen_wire::messages::{Fields, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatch, Reply};
use sheen_wire::ptlrpc::MessageHeader;

use super::harness::{Client, Server, run};
use crate::hold::{Wanted, WantedName};

const WHOLE: InodeBits = InodeBits(0x13);

fn part(request: &LdlmIntentGetattr) -> Bytes {
    let header = MessageHeader { repsize: 840, sub_opcode: GETATTR, ..MessageHeader::default() };
    batched(&header, request)
}

fn header(count: u32, inline: &Bytes, parts: usize) -> Bytes {
    let header = ButUpdateHeader {
        magic: ButUpdateHeader::MAGIC,
        count,
        inline_length: inline.len() as u32,
        reply_size: 4096,
        update_count: parts as u32,
        padding: 0,
    };
    let mut writer = Writer::with_capacity(ButUpdateHeader::SIZE + inline.len());
    header.encode(&mut writer);
    writer.put(inline);
    writer.into_bytes()
}

/// A batch whose parts are in the request.
fn inline(parts: &[Bytes]) -> MdsBatch {
    let bytes = join(BatchHeader::REQUEST_MAGIC, parts);
    MdsBatch { but_update_header: header(1, &bytes, parts.len()), ..MdsBatch::default() }
}

/// One whose parts are bulk, `each` of them in a buffer.
fn bulk(parts: &[Bytes], each: usize) -> TestCall {
    let mut buffers: Vec<Bytes> = Vec::new();
    for some in parts.chunks(each) {
        let mut bytes = join(BatchHeader::REQUEST_MAGIC, some).to_vec();
        bytes.resize(bytes.len().next_multiple_of(BUFFER_BYTES), 0);
        buffers.push(bytes.into());
    }
    let sizes =
        buffers.iter().map(|bytes| ButUpdateBuffer { size: bytes.len() as u32, padding: 0 });
    let request = MdsBatch {
        but_update_header: header(buffers.len() as u32, &Bytes::new(), parts.len()),
        but_update_buf: sizes.collect(),
        ..MdsBatch::default()
    };
    TestCall { source: buffers.concat().into(), ..TestCall::new(request) }
}

/// Results and answers.
fn answers(answer: &TestAnswer) -> Vec<(i32, LdlmIntentGetattrReply)> {
    let Some(Reply::MdsBatch(reply)) = &answer.reply else { panic!("no batch: {answer:?}") };
    let messages = BatchedMessages::of_reply(&reply.batch_update_reply).expect("a reply");
    messages
        .map(|message| {
            let message = message.expect("a message");
            let reply = LdlmIntentGetattrReply::from_message(&message).expect("an answer");
            (message.header.sub_opcode as i32, reply)
        })
        .collect()
}

async fn ask(
    client: &Client,
    directory: Fid,
    names: &[&str],
) -> Vec<(i32, LdlmIntentGetattrReply)> {
    let requests: Vec<_> =
        names.iter().map(|name| client.lookup_request(directory, name)).collect();
    let parts: Vec<_> = requests.iter().map(part).collect();
    let answer = client.inner.call(inline(&parts)).await;
    assert_eq!(answer.head.status, 0);
    let answers = answers(&answer);
    for (request, (_, reply)) in requests.iter().zip(&answers) {
        let server = reply.dlm_rep.as_ref().map(|lock| lock.handle).unwrap_or_default();
        client.keep(request.dlm_req.handles[0], server);
    }
    answers
}

fn results(answers: &[(i32, LdlmIntentGetattrReply)]) -> Vec<i32> {
    answers.iter().map(|(result, _)| *result).collect()
}

fn lock_of(reply: &LdlmIntentGetattrReply) -> (LockHandle, InodeBits) {
    let lock = reply.dlm_rep.as_ref().expect("a lock");
    (lock.handle, InodeBits(lock.desc.policy.as_inode_bits().bits))
}

fn granted(server: &Server) -> u64 {
    server.node.target.namespace().gauges().granted.iter().sum()
}

#[test]
fn each_part_is_answered_as_a_lookup_is_and_fails_alone() {
    let world = TestWorld::new(1);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let first = client.mkdir(directory, "first").await.unwrap();
            let last = client.mkdir(directory, "last").await.unwrap();
            let answers = ask(&client, directory, &["first", "gone", "last"]).await;
            assert_eq!(results(&answers), [0, Errno::ENOENT.status(), 0]);
            for (answer, fid) in [(&answers[0], first), (&answers[2], last)] {
                let lock = answer.1.dlm_rep.as_ref().unwrap();
                assert_eq!(lock.policy_res1, Disposition(11));
                assert_eq!(lock.desc.granted_mode.mode(), Some(LockMode::Pr));
                assert_eq!(lock_of(&answer.1).1, WHOLE);
                assert_eq!(answer.1.mdt_body.as_ref().unwrap().fid1, fid);
            }
            let gone = answers[1].1.dlm_rep.as_ref().unwrap();
            assert_eq!((gone.handle, gone.policy_res1), (LockHandle(0), Disposition(7)));
            // They are the client's as any lock is: a change of another client revokes one.
            let other = server.client("other").await;
            drop(client.inner.callbacks());
            other.rmdir(directory, "first").await.unwrap();
            assert!(!client.inner.callbacks().is_empty(), "it was asked to cancel");
            server.check();
        },
        &world,
    );
}

#[test]
fn a_part_that_would_wait_is_refused_and_waits_for_nothing() {
    let world = TestWorld::new(2);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let locked = client.mkdir(Fid::ROOT, "locked").await.unwrap();
            let partly = client.mkdir(Fid::ROOT, "partly").await.unwrap();
            client.mkdir(Fid::ROOT, "moving").await.unwrap();
            client.mkdir(Fid::ROOT, "free").await.unwrap();
            let target = &server.node.target;
            let whole = target.lock_inode(locked, WHOLE, LockMode::Ex).await.unwrap();
            let part = target.lock_inode(partly, InodeBits::UPDATE, LockMode::Ex).await.unwrap();
            let moving = [WantedName::added(Fid::ROOT, b"moving")];
            let moving = server.mdt.hold(Wanted::of_names(&moving)).await.unwrap();
            let answers = ask(&client, Fid::ROOT, &["locked", "partly", "moving", "free"]).await;
            let busy = Errno::EBUSY.status();
            assert_eq!(results(&answers), [busy, 0, busy, 0]);
            let rest = WHOLE.without(InodeBits::UPDATE);
            assert_eq!((lock_of(&answers[1].1).1, lock_of(&answers[3].1).1), (rest, WHOLE));
            drop((whole, part, moving));
            let answers = ask(&client, Fid::ROOT, &["locked", "partly", "moving"]).await;
            assert_eq!(results(&answers), [0, 0, 0]);
        },
        &world,
    );
}

#[test]
fn parts_come_as_bulk_as_well() {
    let world = TestWorld::new(3);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let mut parts = Vec::new();
            for number in 0..25 {
                let name = format!("file.{number}");
                client.mkdir(Fid::ROOT, &name).await.unwrap();
                parts.push(part(&client.lookup_request(Fid::ROOT, &name)));
            }
            let call = bulk(&parts, 10);
            assert_eq!(call.source.len(), 3 * BUFFER_BYTES);
            let answer = client.inner.call_with(call.clone()).await.unwrap();
            assert_eq!(results(&answers(&answer)), [0; 25]);
            // Sent again, because the answer was lost: the same locks.
            let before = granted(&server);
            let again = client.inner.call_with(call.resent(answer.xid)).await.unwrap();
            let locks = |answer: &TestAnswer| -> Vec<LockHandle> {
                answers(answer).iter().map(|(_, reply)| lock_of(reply).0).collect()
            };
            assert_eq!(locks(&again), locks(&answer));
            assert_eq!(granted(&server), before);
        },
        &world,
    );
}

#[test]
fn what_is_not_a_batch_is_refused_whole() {
    let world = TestWorld::new(4);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            client.mkdir(Fid::ROOT, "d").await.unwrap();
            let request = client.lookup_request(Fid::ROOT, "d");
            let good = part(&request);
            let one = std::slice::from_ref(&good);
            let before = granted(&server);
            let status = async |call: TestCall| {
                let answer = client.inner.call_with(call).await.unwrap();
                assert!(answer.reply.is_none(), "{answer:?}");
                answer.errno()
            };
            let of = |parts: &[Bytes]| TestCall::new(inline(parts));
            let with = |change: fn(&mut MdsBatch)| {
                let mut batch = inline(&[part(&request)]);
                change(&mut batch);
                TestCall::new(batch)
            };
            let other = MessageHeader { sub_opcode: 2, ..MessageHeader::default() };
            assert_eq!(status(of(&[batched(&other, &request)])).await, Some(Errno::EOPNOTSUPP));
            let many = vec![good.clone(); 1025];
            assert_eq!(status(of(&many)).await, Some(Errno::EOVERFLOW));
            let cut = with(|batch| {
                batch.but_update_header.truncate(200);
            });
            assert_eq!(status(cut).await, Some(Errno::EPROTO));
            assert_eq!(
                status(with(|batch| batch.but_update_header.clear())).await,
                Some(Errno::EPROTO)
            );
            let more = MdsBatch {
                but_update_header: header(1, &join(BatchHeader::REQUEST_MAGIC, one), 2),
                ..MdsBatch::default()
            };
            assert_eq!(status(TestCall::new(more)).await, Some(Errno::EPROTO));
            // Buffers that are too large, too small, too many, or fewer than said.
            for size in [0, 7, 1000 * 1024, u32::MAX] {
                let mut call = bulk(one, 1);
                let Some(sheen_wire::messages::Request::MdsBatch(batch)) = &mut call.request else {
                    panic!("a batch")
                };
                batch.but_update_buf[0].size = size;
                assert_eq!(status(call).await, Some(Errno::EPROTO), "{size}");
            }
            let mut call = bulk(&[good.clone(), good.clone()], 1);
            call.source.truncate(BUFFER_BYTES);
            assert_eq!(status(call).await, Some(Errno::EPROTO));
            assert_eq!(granted(&server), before, "nothing was executed");
        },
        &world,
    );
}

#[test]
fn parts_are_getattrs_with_an_intent_and_nothing_else() {
    let world = TestWorld::new(5);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            client.mkdir(Fid::ROOT, "d").await.unwrap();
            let mut plain = client.lookup_request(Fid::ROOT, "d");
            plain.dlm_req.flags = Default::default();
            let mut fid_alone = client.lookup_request(Fid::ROOT, "d");
            fid_alone.mdt_body.valid = Valid::ID;
            let good = client.lookup_request(Fid::ROOT, "d");
            let parts: Vec<_> = [&plain, &fid_alone, &good].map(part).to_vec();
            let answer = client.inner.call(inline(&parts)).await;
            let wanted = [Errno::EPROTO.status(), Errno::EOPNOTSUPP.status(), 0];
            assert_eq!(results(&answers(&answer)), wanted);
        },
        &world,
    );
}

#[test]
fn what_does_not_fit_the_answer_leaves_no_lock() {
    let world = TestWorld::new(6);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let mut target = vec![b'x'; 4000];
            target.push(0);
            let rec_reint = client.rec_create(Fid::ROOT, 0o120_777);
            let name = Some(sheen_wire::text::Text::new("link"));
            let symlink = sheen_wire::messages::MdsReintCreateSym {
                rec_reint,
                name,
                symtgt: target.into(),
                ..Default::default()
            };
            client.modify(symlink).await.unwrap();
            let before = granted(&server);
            let parts: Vec<_> = (0..300)
                .map(|_| {
                    let mut request = client.lookup_request(Fid::ROOT, "link");
                    request.mdt_body.valid |= Valid::LINKNAME;
                    request.mdt_body.eadatasize = 4096;
                    part(&request)
                })
                .collect();
            let answer = client.inner.call_with(bulk(&parts, 8)).await.unwrap();
            assert_eq!(answer.head.status, Errno::EOVERFLOW.status());
            let results = results(&answers(&answer));
            assert!((200..300).contains(&results.len()), "{}", results.len());
            assert!(results.iter().all(|result| *result == 0));
            assert_eq!(granted(&server), before + results.len() as u64);
        },
        &world,
    );
}

#[test]
fn a_part_names_its_caller_who_is_judged() {
    let world = TestWorld::new(7);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let directory = client.make(Fid::ROOT, "d", 0o040_700).await.unwrap();
            client.mkdir(directory, "in").await.unwrap();
            assert_eq!(results(&ask(&client, directory, &["in"]).await), [0]);
            let user = client.as_user(500, 500);
            assert_eq!(results(&ask(&user, directory, &["in"]).await), [Errno::EACCES.status()]);
            server.mdt.change_root_squash(|squash| squash.set_root("500:500")).unwrap();
            assert_eq!(results(&ask(&client, directory, &["in"]).await), [Errno::EACCES.status()]);
        },
        &world,
    );
}
