//! Opening, creating by open, closing, and files that are unlinked while open.

use bytes::Bytes;
use sheen_layout::plan::{Plan, Striping};
use sheen_ldlm::Policy;
use sheen_target::budget::Limit;
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, InodeBits, LockMode, Nid, ResourceName};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::ldlm::Disposition;
use sheen_wire::lov::LovEa;
use sheen_wire::md::{AttrValid, MdsOpenFlags, MdtBody, Valid};
use sheen_wire::messages::{MdsSetInfo, Reply};

use super::harness::{Client, DIRECTORY, REGULAR, Server, opened, run};

#[test]
fn open_create_gives_layout_handle_and_lock_as_captured() {
    let world = TestWorld::new(20);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let opened = client.create(Fid::ROOT, "f1").await.unwrap();
            assert_eq!(opened.disposition, Disposition(55));
            let bits = ATTRIBUTES | InodeBits::LAYOUT;
            assert_eq!(opened.lock.map(|(_, bits, mode)| (bits, mode)), Some((bits, LockMode::Pr)));
            assert_eq!(opened.body.valid, Valid(0x1100_0080_8002_2f8f));
            assert_eq!(opened.body.mode, 0o100_644);
            assert_ne!(opened.body.open_handle.0, 0);
            let Ok(LovEa::Plain(layout)) = LovEa::decode(&opened.layout) else { panic!() };
            assert_eq!((layout.stripes.len(), layout.header.stripe_size), (1, 4 << 20));
            assert_eq!(layout.header.oi.file(), opened.body.fid1);
            client.close(&opened).await.unwrap();
            assert_eq!(client.close(&opened).await, Err(Errno::ESTALE));
            assert_eq!(server.mdt.open_count(), 0);
            server.check();
        },
        &world,
    );
}

#[test]
fn an_open_brings_the_free_bits_of_the_inode() {
    let world = TestWorld::new(28);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let made = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let target = &server.node.target;
            let held = |bits| {
                let resource = ResourceName::of_fid(made);
                target.lock(resource, Policy::bits(bits), LockMode::Cw)
            };
            let bits = async || {
                let opened = client.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
                client.close(&opened).await.unwrap();
                opened.lock.map(|(_, bits, _)| bits)
            };
            // As an open file holds that its client keeps.
            let open = held(InodeBits::LOOKUP | InodeBits::OPEN).await.unwrap();
            let free = ATTRIBUTES.without(InodeBits::LOOKUP) | InodeBits::LAYOUT;
            assert_eq!(bits().await, Some(free));
            let all = held(InodeBits::UPDATE).await;
            assert!(all.is_ok());
            assert_eq!(bits().await, None, "nothing is waited for");
            drop((open, all));
        },
        &world,
    );
}

const ATTRIBUTES: InodeBits = InodeBits(0x13);

#[test]
fn opens_refuse_what_they_must() {
    let world = TestWorld::new(21);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let root = Fid::ROOT;
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::EXCL | MdsOpenFlags::WRITE;
            let created = client.open(root, "f", flags).await.unwrap();
            client.close(&created).await.unwrap();
            let error = |result: Result<_, Errno>| result.map(|_: super::harness::Opened| ());
            assert_eq!(error(client.open(root, "f", flags).await), Err(Errno::EEXIST));
            client.mkdir(root, "d").await.unwrap();
            let write = MdsOpenFlags::WRITE;
            assert_eq!(error(client.open(root, "d", write).await), Err(Errno::EISDIR));
            let directory = MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY;
            assert_eq!(error(client.open(root, "f", directory).await), Err(Errno::ENOTDIR));
            // An absent name is no error: the disposition says it (res1 7, res2 0 in b5).
            let absent = client.open(root, "none", MdsOpenFlags::READ).await.unwrap();
            assert_eq!(absent.disposition, Disposition(7));
            assert_eq!(absent.body.open_handle.0, 0);
            let mode = |record: &mut sheen_wire::md::RecSetattr| record.mode = 0o755;
            client.setattr(created.body.fid1, AttrValid::MODE, mode).await.unwrap();
            let execute = client.open(root, "f", MdsOpenFlags::EXEC).await.unwrap();
            assert_eq!(error(client.open(root, "f", write).await), Err(Errno::ETXTBSY));
            client.close(&execute).await.unwrap();
            client.close(&client.open(root, "f", write).await.unwrap()).await.unwrap();
        },
        &world,
    );
}

#[test]
fn an_open_lock_is_given_when_asked_for() {
    let world = TestWorld::new(22);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let created = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&created).await.unwrap();
            let flags = MdsOpenFlags::READ | MdsOpenFlags::LOCK;
            let new = client.open(Fid::ROOT, "new", flags | MdsOpenFlags::CREAT).await.unwrap();
            assert!(new.disposition.contains(Disposition::OPEN_LOCK | Disposition::OPEN_CREATE));
            assert!(new.lock.unwrap().1.contains(InodeBits::OPEN));
            let opened = client.open(Fid::ROOT, "f", flags).await.unwrap();
            assert!(opened.disposition.contains(Disposition::OPEN_LOCK));
            let (_, bits, mode) = opened.lock.unwrap();
            assert_eq!(mode, LockMode::Cr);
            assert!(bits.contains(InodeBits::OPEN | InodeBits::LOOKUP));
        },
        &world,
    );
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let world = TestWorld::new(23);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (client, other) = (server.client("c").await, server.client("o").await);
            let first = client.create(Fid::ROOT, "f").await.unwrap();
            let second = other.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
            client.getxattr(first.body.fid1, "trusted.link").await.expect("it has a name");
            client.unlink(Fid::ROOT, "f").await.unwrap();
            let names = client.getxattr(first.body.fid1, "trusted.link").await;
            assert_eq!(names, Err(Errno::ENODATA));
            let report = server.check();
            assert_eq!((report.orphans.len(), report.objects.len()), (1, 1));
            assert_eq!(client.getattr(first.body.fid1).await.unwrap().nlink, 0);
            client.close(&first).await.unwrap();
            assert_eq!(server.check().orphans.len(), 1);
            other.close(&second).await.unwrap();
            let report = server.check();
            assert_eq!((report.orphans.len(), report.objects.len()), (0, 0));
            client.wait(&inner, 20).await;
            assert_eq!(server.check().dying, []);
            assert_eq!(server.osts[0].state.lock().destroys, 1);
        },
        &world,
    );
}

#[test]
fn a_client_that_leaves_closes_its_files() {
    let world = TestWorld::new(24);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (client, other) = (server.client("c").await, server.client("o").await);
            let opened = client.create(Fid::ROOT, "f").await.unwrap();
            other.unlink(Fid::ROOT, "f").await.unwrap();
            assert_eq!(server.check().orphans, [(sheen_types::MdtIndex(0), opened.body.fid1)]);
            client.inner.call(sheen_wire::messages::MdsDisconnect::default()).await;
            assert!(server.check().orphans.is_empty());
            assert_eq!(server.mdt.open_count(), 0);
        },
        &world,
    );
}

#[test]
fn a_client_that_is_evicted_while_it_opens_leaves_nothing_open() {
    let world = TestWorld::new(26);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (reader, writer) = (server.client("r").await, server.client("w").await);
            let (_, reply) = reader.lookup(Fid::ROOT, ".").await;
            reader.hold_on();
            let task = async move { drop(writer.create(Fid::ROOT, "f").await) };
            inner.world().tasks.spawn("create", Box::pin(task));
            inner.sleep(std::time::Duration::from_millis(1)).await;
            assert!(!reader.inner.callbacks().is_empty(), "the writer waits for the directory");
            assert_eq!(server.node.target.evict_client("w").await, 1);
            reader.inner.cancel(&[reply.dlm_rep.unwrap().handle]).await;
            inner.sleep(std::time::Duration::from_millis(1)).await;
            assert_eq!(server.mdt.open_count(), 0);
            reader.unlink(Fid::ROOT, "f").await.expect("it was created all the same");
            assert!(server.check().orphans.is_empty());
        },
        &world,
    );
}

#[test]
fn a_repeated_open_gets_the_same_handle_and_lock() {
    let world = TestWorld::new(25);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::EXCL | MdsOpenFlags::WRITE;
            let call = TestCall::new(client.open_request(Fid::ROOT, "f", flags)).tagged(3);
            let first = client.inner.call_with(call.clone()).await.unwrap();
            let again = client.inner.call_with(call.resent(first.xid)).await.unwrap();
            let (first, again) = (opened(first).unwrap(), opened(again).unwrap());
            assert_eq!(first.body.open_handle, again.body.open_handle);
            assert_eq!(first.lock.map(|lock| lock.0), again.lock.map(|lock| lock.0));
            assert_eq!(server.mdt.open_count(), 1);
        },
        &world,
    );
}

#[test]
fn a_close_brings_size_and_times() {
    let world = TestWorld::new(26);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let opened = client.create(Fid::ROOT, "f").await.unwrap();
            let mut request = client.close_request(opened.body.fid1, opened.body.open_handle);
            let record = &mut request.rec_reint;
            record.valid =
                AttrValid::LSIZE | AttrValid::LBLOCKS | AttrValid::MTIME | AttrValid::CTIME;
            (record.size, record.blocks, record.mtime, record.ctime) = (5000, 16, 2000, 2001);
            client.modify(request).await.unwrap();
            let body = client.getattr(opened.body.fid1).await.unwrap();
            assert!(body.valid.contains(Valid::LAZYSIZE) && !body.valid.contains(Valid::SIZE));
            assert_eq!((body.size, body.blocks, body.mtime, body.ctime), (5000, 16, 2000, 2001));
        },
        &world,
    );
}

#[test]
fn a_time_of_access_is_kept_where_it_is_newer_by_what_operators_say() {
    let world = TestWorld::new(73);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let before = client.getattr(file).await.unwrap().atime;
            let read_at = async |atime| {
                let opened = client.open_fid(file, MdsOpenFlags::READ).await.unwrap();
                let mut request = client.close_request(file, opened.body.open_handle);
                (request.rec_reint.valid, request.rec_reint.atime) = (AttrValid::ATIME, atime);
                client.modify(request).await.unwrap();
                client.getattr(file).await.unwrap().atime
            };
            assert_eq!(read_at(before + 60).await, before);
            assert_eq!(read_at(before + 61).await, before + 61);
            server.mdt.set_atime_diff(2);
            assert_eq!(read_at(before + 63).await, before + 61);
            assert_eq!(read_at(before + 64).await, before + 64);
        },
        &world,
    );
}

#[test]
fn a_file_without_a_name_is_gone_when_closed() {
    let world = TestWorld::new(27);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | MdsOpenFlags::VOLATILE;
            let opened = client.open(Fid::ROOT, "\x0cvolatile", flags).await.unwrap();
            let fid = opened.body.fid1;
            assert_eq!(client.readdir(Fid::ROOT, 1).await.len(), 2);
            assert_eq!(server.check().orphans.len(), 1);
            // A client's kernel takes a file of no link for one that was removed.
            assert_eq!((opened.body.nlink, client.getattr(fid).await.unwrap().nlink), (1, 1));
            client.close(&opened).await.unwrap();
            assert_eq!(server.check().inodes, 1);
        },
        &world,
    );
}

#[test]
fn symbolic_links_are_described_and_not_opened() {
    use sheen_wire::messages::{MdsGetattr, MdsReintCreateSym};
    let world = TestWorld::new(28);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let rec_reint = client.rec_create(Fid::ROOT, 0o120_777);
            let fid = rec_reint.fid2;
            let request = MdsReintCreateSym {
                rec_reint,
                name: Some("l".into()),
                symtgt: bytes::Bytes::from_static(b"some/where\0"),
                ..MdsReintCreateSym::default()
            };
            client.modify(request).await.unwrap();
            let mut mdt_body = client.body(fid);
            mdt_body.valid = Valid::LINKNAME;
            mdt_body.eadatasize = 11;
            let answer = client.inner.call(MdsGetattr { mdt_body, ..Default::default() }).await;
            let Some(Reply::MdsGetattr(reply)) = answer.reply else { panic!() };
            assert_eq!(&reply.mdt_md[..], b"some/where\0");
            let body = reply.mdt_body.unwrap();
            assert_eq!((body.size, body.eadatasize, body.mode), (10, 11, 0o120_777));
            let opened = client.open(Fid::ROOT, "l", MdsOpenFlags::READ).await.unwrap();
            assert_eq!(opened.body.open_handle.0, 0);
            assert!(!opened.disposition.contains(Disposition::OPEN_OPEN));
            assert_eq!(opened.body.mode & 0o170_000 & !DIRECTORY, 0o120_000 & !DIRECTORY);
        },
        &world,
    );
}

#[test]
fn no_client_changes_an_mdt_that_is_read_only() {
    let world = TestWorld::new(28);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let made = client.create(Fid::ROOT, "f").await.unwrap();
            server.mdt.set_read_only(true);
            let before = client.getattr(made.body.fid1).await.unwrap();
            let mut close = client.close_request(made.body.fid1, made.body.open_handle);
            close.rec_reint.valid = AttrValid::MTIME | AttrValid::CTIME | AttrValid::LSIZE;
            (close.rec_reint.mtime, close.rec_reint.ctime) = (77_777, 77_777);
            close.rec_reint.size = 5 << 30;
            client.modify(close).await.expect("closed");
            let after = client.getattr(made.body.fid1).await.unwrap();
            let seen = |body: &MdtBody| (body.mtime, body.ctime, body.size);
            assert_eq!(seen(&after), seen(&before), "what it has seen is not noted");
            let refused = client.open(Fid::ROOT, "f", MdsOpenFlags::WRITE).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EROFS));
            assert_eq!(client.mkdir(Fid::ROOT, "d").await.err(), Some(Errno::EROFS));
            assert_eq!(client.unlink(Fid::ROOT, "f").await.err(), Some(Errno::EROFS));
            let opened = client.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
            client.close(&opened).await.unwrap();
            server.mdt.set_read_only(false);
            client.unlink(Fid::ROOT, "f").await.expect("no longer read-only");
            server.check();
        },
        &world,
    );
}

#[test]
fn a_client_that_connects_read_only_changes_nothing() {
    let world = TestWorld::new(27);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let made = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&made).await.unwrap();
            let flags = crate::Mdt::offer().flags | ConnectFlags::RDONLY;
            let data = ObdConnectData {
                flags,
                ibits_known: 0x3f,
                brw_size: 1 << 20,
                ..ObdConnectData::default()
            };
            client.inner.connect_with(data).await.unwrap();
            let error = |result: Result<_, Errno>| result.map(|_: super::harness::Opened| ());
            for flags in [MdsOpenFlags::WRITE, MdsOpenFlags::READ | MdsOpenFlags::CREAT] {
                assert_eq!(error(client.open(Fid::ROOT, "f", flags).await), Err(Errno::EROFS));
            }
            assert!(client.mkdir(Fid::ROOT, "d").await.is_err_and(|errno| errno == Errno::EROFS));
            let opened = client.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
            client.close(&opened).await.unwrap();
            let set_info = async |key: &'static [u8], value: u32| {
                let setinfo_key = Bytes::from_static(key);
                let setinfo_val = Bytes::copy_from_slice(&value.to_le_bytes());
                let request = MdsSetInfo { setinfo_key, setinfo_val, ..MdsSetInfo::default() };
                client.inner.call(request).await.errno()
            };
            assert_eq!(set_info(b"read-only\0", 0).await, None);
            client.mkdir(Fid::ROOT, "d").await.expect("no longer read-only");
            assert_eq!(set_info(b"read-only\0", 1).await, None);
            assert!(client.mkdir(Fid::ROOT, "e").await.is_err_and(|errno| errno == Errno::EROFS));
            assert_eq!(set_info(b"unheard-of\0", 1).await, Some(Errno::EINVAL));
        },
        &world,
    );
}

/// What real MDTs answered in the captures, for each kind of open: `IT_EXECD|LOOKUP_EXECD` and these,
/// with the result. The client's kernel goes by the bits: it takes what is `OPEN_CREATE` for new, and
/// panics if it has an inode for it already, which it has unless `LOOKUP_NEG` is set.
#[test]
fn dispositions_are_those_of_a_real_mdt() {
    use sheen_wire::ldlm::Disposition as Disp;
    let world = TestWorld::new(76);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.create(Fid::ROOT, "file").await.unwrap();
            client.close(&file).await.unwrap();
            client.mkdir(Fid::ROOT, "dir").await.unwrap();
            let bare = client.make(Fid::ROOT, "bare", REGULAR | 0o644).await.unwrap();
            let requested =
                Plan::Plain(Striping { stripe_count: 1, ..Striping::default() }).encode();
            let (read, write) = (MdsOpenFlags::READ, MdsOpenFlags::WRITE);
            let (creat, by_fid) = (MdsOpenFlags::CREAT, MdsOpenFlags::BY_FID);
            let (delay, with_ea) = (MdsOpenFlags::DELAY_CREATE, MdsOpenFlags::HAS_EA);
            let (pos, neg, open) = (Disp::LOOKUP_POS, Disp::LOOKUP_NEG, Disp::OPEN_OPEN);
            let (made, lock) = (neg | Disp::OPEN_CREATE | open, Disp::OPEN_LOCK);
            let stripe = Disp::OPEN_STRIPE;
            let volatile = MdsOpenFlags::VOLATILE | creat | MdsOpenFlags::EXCL | delay | write;
            let cases = [
                ("file", read, pos | open, 0),
                ("file", write, pos | open, 0),
                ("none", read, neg, 0),
                ("none", MdsOpenFlags::DIRECTORY, neg, 0),
                ("file", MdsOpenFlags::DIRECTORY, pos, -20),
                ("dir", MdsOpenFlags::DIRECTORY, pos | open, 0),
                ("dir", creat | delay | write, pos, -21),
                ("n1", creat | write, made, 0),
                ("n2", creat | MdsOpenFlags::EXCL | write, made, 0),
                ("n3", creat | write | MdsOpenFlags::TRUNC, made, 0),
                ("n4", creat | delay | write, made | stripe, 0),
                ("n5", creat | read, made | stripe, 0),
                ("file", creat | write, pos | open, 0),
                ("file", by_fid | MdsOpenFlags::LOCK | read, pos | open | lock, 0),
                ("file", by_fid | write, pos | open, 0),
                ("bare", by_fid | with_ea | write, pos | open | stripe, 0),
                (".\u{c}\u{13}\u{14}\u{12}:VOLATILE:0000:1", volatile, made | stripe, 0),
            ];
            for (name, flags, bits, result) in cases {
                let mut request = client.open_request(Fid::ROOT, name, flags);
                if flags.contains(by_fid) {
                    let is_bare = flags.contains(with_ea);
                    request.rec_reint.fid2 = if is_bare { bare } else { file.body.fid1 };
                }
                if flags.contains(with_ea) {
                    request.eadata = requested.clone();
                }
                let mine = request.dlm_req.handles[0];
                let call = TestCall::new(request).tagged(client.next_tag());
                let answer = client.inner.call_with(call).await.unwrap();
                let Some(Reply::LdlmIntentOpen(reply)) = answer.reply else { panic!("{name}") };
                let lock = reply.dlm_rep.unwrap();
                client.keep(mine, lock.handle);
                let bits = Disp::IT_EXECD | Disp::LOOKUP_EXECD | bits;
                let answered = (lock.policy_res1, lock.policy_res2 as i64 as i32);
                assert_eq!(answered, (bits, result), "{name:?} {flags:?}");
                let is_volatile = flags.contains(MdsOpenFlags::VOLATILE);
                assert!(!is_volatile || lock.handle.0 != 0, "a lock comes with it");
            }
        },
        &world,
    );
}

/// After a restart of the MDT a create that was sent again finds its file: for the client it is new all
/// the same.
#[test]
fn a_create_sent_again_is_answered_as_one() {
    let world = TestWorld::new(77);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::EXCL | MdsOpenFlags::WRITE;
            let request = client.open_request(Fid::ROOT, "f", flags);
            let call = TestCall::new(request.clone()).tagged(1);
            let first = client.inner.call_with(call).await.unwrap();
            let before = opened(first.clone()).unwrap().disposition;
            let (server, client) = super::recovery::crash(&inner, server, &client).await;
            super::recovery::finish_recovery(&client).await;
            let again = TestCall::new(request).tagged(1).resent(first.xid);
            let again = opened(client.inner.call_with(again).await.unwrap()).unwrap();
            assert_eq!(again.disposition.without(Disposition::LOOKUP_POS), before);
            drop(server);
        },
        &world,
    );
}

#[test]
fn a_client_has_so_many_files_open_and_another_its_own() {
    let world = TestWorld::new(27);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (hostile, another) = (server.client("h").await, server.client("another h").await);
            let good = server.client_at("g", Nid::tcp([10, 0, 0, 8].into())).await;
            let target = &server.node.target;
            target.budget().set(Limit::Opens, 20);
            good.create(Fid::ROOT, "f").await.unwrap();
            let mut opened = Vec::new();
            for _ in 0..20 {
                opened.push(hostile.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap());
            }
            let refused = hostile.open(Fid::ROOT, "f", MdsOpenFlags::READ).await;
            assert_eq!(refused.map(|_| ()), Err(Errno::ENFILE));
            let refused = another.open(Fid::ROOT, "f", MdsOpenFlags::READ).await;
            assert_eq!(refused.map(|_| ()), Err(Errno::ENFILE), "another export of that client");
            assert_eq!(hostile.create(Fid::ROOT, "new").await.map(|_| ()), Err(Errno::ENFILE));
            assert_eq!(server.check().orphans.len(), 0);
            assert!(server.mdt.open_count() == 21, "nothing was made");
            good.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
            assert_eq!(target.budget().refused(Limit::Opens), 3);
            hostile.close(&opened[0]).await.unwrap();
            hostile.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
        },
        &world,
    );
}

/// The programs of one user had all open files that their mount may have, and no other user there opened one, nor root.
#[test]
fn no_user_has_all_open_files_of_a_client_and_no_users_those_of_root() {
    let world = TestWorld::new(131);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let (alice, bob) = (root.as_user(10, 10), root.as_user(20, 20));
            let elsewhere = server.client("another export").await.as_user(10, 10);
            let other_node = server.client_at("g", Nid::tcp([10, 0, 0, 8].into())).await;
            root.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let target = &server.node.target;
            target.budget().set(Limit::Opens, 32);
            let is_refused = async |client: &Client| {
                let answer = client.open(Fid::ROOT, "f", MdsOpenFlags::READ).await;
                answer.map(drop).err()
            };
            let opens = async |client: &Client, files: usize| {
                let mut opened = Vec::new();
                for _ in 0..files {
                    opened.push(client.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap());
                }
                opened
            };
            let alices = opens(&alice, 16).await;
            assert_eq!(is_refused(&alice).await, Some(Errno::ENFILE), "half of them");
            assert_eq!(is_refused(&elsewhere).await, Some(Errno::ENFILE), "the same client");
            assert_eq!(is_refused(&other_node.as_user(10, 10)).await, None, "another client");
            opens(&bob, 12).await;
            assert_eq!(is_refused(&bob).await, Some(Errno::ENFILE), "an eighth is root's");
            let roots = opens(&root, 4).await;
            assert_eq!(is_refused(&root).await, Some(Errno::ENFILE), "that is all");
            alice.close(&alices[0]).await.unwrap();
            opens(&root, 1).await;
            assert_eq!(is_refused(&alice).await, Some(Errno::ENFILE), "root has it");
            root.close(&roots[0]).await.unwrap();
            opens(&alice, 1).await;
            assert_eq!(target.budget().refused(Limit::Opens), 5);
            // Root that is no root is a user as any other.
            root.close(&roots[1]).await.unwrap();
            server.mdt.change_root_squash(|squash| squash.set_root("10:10")).unwrap();
            assert_eq!(is_refused(&root).await, Some(Errno::ENFILE));
        },
        &world,
    );
}

#[test]
fn nothing_is_kept_of_a_client_that_is_refused() {
    let world = TestWorld::new(28);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let known = server.node.target.view().exports.len();
            let refused = server.node.client("refused");
            // Without inode bits and FIDs no request can name an inode.
            let data = ObdConnectData {
                flags: ConnectFlags::VERSION | ConnectFlags::FULL20,
                ..ObdConnectData::default()
            };
            let answer = refused.connect_with(data).await;
            assert_eq!(answer.map(|_| ()), Err(Errno::EPROTO));
            assert_eq!(server.node.target.view().exports.len(), known);
        },
        &world,
    );
}

/// Else it would be acknowledged, and lost with the directory at its last close.
#[test]
fn nothing_is_made_in_a_removed_directory_that_is_open() {
    let world = TestWorld::new(31);
    let inner = world.clone();
    let test = async move {
        let server = Server::start(&inner, 1).await;
        let (one, two) = (server.client("one").await, server.client("two").await);
        let removed = one.mkdir(Fid::ROOT, "d").await.expect("made");
        let file = two.make(Fid::ROOT, "f", REGULAR | 0o644).await.expect("made");
        two.mkdir(Fid::ROOT, "e").await.expect("made");
        let flags = MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY;
        let kept = one.open_fid(removed, flags).await.expect("opened");
        two.rmdir(Fid::ROOT, "d").await.expect("it is empty");
        assert_eq!(one.mkdir(removed, "a").await, Err(Errno::ENOENT));
        assert_eq!(one.make(removed, "b", REGULAR | 0o644).await, Err(Errno::ENOENT));
        assert_eq!(one.link(file, removed, "c").await, Err(Errno::ENOENT));
        assert_eq!(one.rename((Fid::ROOT, "f"), (removed, "f")).await, Err(Errno::ENOENT));
        assert_eq!(one.rename((Fid::ROOT, "e"), (removed, "e")).await, Err(Errno::ENOENT));
        one.close(&kept).await.expect("closed");
    };
    run(test, &world);
}
