//! Attributes, the right to change them, and extended attributes.

use bytes::Bytes;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::ldlm::{IntentOp, LdlmIntent};
use sheen_wire::md::{
    AclEntry, AttrValid, FileFlags, MdsOpenFlags, MdtBody, PosixAcl, RecSetattr, Valid,
};
use sheen_wire::messages::{LdlmIntentGetxattr, MdsGetattrName, MdsGetxattr, Reply};
use sheen_wire::text::Text;

use super::harness::{Client, DIRECTORY, REGULAR, Server, run};
use super::layouts::swap;

fn mode(value: u32) -> impl FnOnce(&mut RecSetattr) {
    move |record| record.mode = value
}

#[test]
fn modes_decide_what_a_caller_may_do() {
    let world = TestWorld::new(80);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let (alice, bob) = (root.as_user(10, 10), root.as_user(20, 20));
            assert_eq!(alice.mkdir(Fid::ROOT, "no").await, Err(Errno::EACCES));
            let shared = root.mkdir(Fid::ROOT, "tmp").await.unwrap();
            root.setattr(shared, AttrValid::MODE, mode(0o1777)).await.unwrap();
            let opened = alice.create(shared, "f").await.unwrap();
            alice.close(&opened).await.unwrap();
            let file = opened.body.fid1;
            assert_eq!((opened.body.uid, opened.body.gid), (10, 10));
            assert_eq!(bob.unlink(shared, "f").await, Err(Errno::EPERM), "sticky");
            let stolen = bob.rename((shared, "f"), (shared, "g")).await;
            assert_eq!(stolen, Err(Errno::EPERM));
            let denied = bob.open(shared, "f", MdsOpenFlags::WRITE).await.map(|_| ());
            assert_eq!(denied, Err(Errno::EACCES));
            bob.close(&bob.open(shared, "f", MdsOpenFlags::READ).await.unwrap()).await.unwrap();
            let refused = bob.setattr(file, AttrValid::MODE, mode(0o777)).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EPERM));
            alice.setattr(file, AttrValid::MODE, mode(0o600)).await.unwrap();
            let give = |record: &mut RecSetattr| record.uid = 20;
            let refused = alice.setattr(file, AttrValid::UID, give).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EPERM));
            let hidden = root.mkdir(shared, "hidden").await.unwrap();
            root.setattr(hidden, AttrValid::MODE, mode(0o700)).await.unwrap();
            let (answer, reply) = alice.lookup(hidden, "x").await;
            let error = reply.dlm_rep.unwrap().policy_res2 as u32 as i32;
            assert_eq!((answer.head.status, error), (301, Errno::EACCES.status()));
        },
        &world,
    );
}

#[test]
fn set_id_bits_go_when_they_must() {
    let world = TestWorld::new(81);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o755).await.unwrap();
            root.setattr(file, AttrValid::MODE, mode(0o6755)).await.unwrap();
            let owner = |record: &mut RecSetattr| (record.uid, record.gid) = (10, 10);
            let both = AttrValid::UID | AttrValid::GID;
            let body = root.setattr(file, both, owner).await.unwrap();
            assert_eq!(body.mode, REGULAR | 0o755);
            let alice = root.as_user(10, 99);
            let body = alice.setattr(file, AttrValid::MODE, mode(0o2755)).await.unwrap();
            assert_eq!(body.mode & 0o7777, 0o755, "not in the group");
            let directory = root.mkdir(Fid::ROOT, "d").await.unwrap();
            root.setattr(directory, AttrValid::GID, |record| record.gid = 77).await.unwrap();
            root.setattr(directory, AttrValid::MODE, mode(0o2777)).await.unwrap();
            let sub = alice.mkdir(directory, "sub").await.unwrap();
            let body = root.getattr(sub).await.unwrap();
            assert_eq!((body.gid, body.mode), (77, DIRECTORY | 0o2755));
        },
        &world,
    );
}

#[test]
fn times_and_sizes_are_set() {
    let world = TestWorld::new(82);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let valid = AttrValid::ATIME | AttrValid::MTIME | AttrValid::CTIME;
            let valid = valid | AttrValid::ATIME_SET | AttrValid::MTIME_SET;
            let times = |record: &mut RecSetattr| {
                (record.atime, record.mtime, record.ctime) = (11, 22, 3333);
            };
            let body = client.setattr(file, valid, times).await.unwrap();
            assert_eq!((body.atime, body.mtime, body.ctime), (11, 22, 3333));
            let other = client.as_user(5, 5);
            assert_eq!(other.setattr(file, valid, times).await.map(|_| ()), Err(Errno::EPERM));
            let size = |record: &mut RecSetattr| record.size = 12345;
            let body = client.setattr(file, AttrValid::SIZE, size).await.unwrap();
            assert_eq!(body.size, 12345);
            let refused = other.setattr(file, AttrValid::SIZE, size).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EACCES));
            let missing = Fid::new(client.sequence, 99_999);
            let refused = client.setattr(missing, AttrValid::SIZE, size).await.map(|_| ());
            assert_eq!(refused, Err(Errno::ENOENT));
        },
        &world,
    );
}

/// `cp -a` copies what it finds listed, and must neither change it nor fail.
#[test]
fn what_only_the_server_sets_is_left_as_it_is_and_no_error() {
    let world = TestWorld::new(88);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let links = client.getxattr(file, "trusted.link").await.unwrap();
            let changed = client.getattr(file).await.unwrap().ctime;
            for name in ["lma", "link", "fid", "version", "som", "hsm", "lfsck_ns", "lmv", "dmv"] {
                let name = format!("trusted.{name}");
                client.setxattr(file, &name, Some(b"of another"), 0).await.unwrap();
                client.setxattr(file, &name, None, 0).await.unwrap();
                let alice = client.as_user(10, 10);
                assert_eq!(alice.setxattr(file, &name, Some(b"1"), 0).await, Err(Errno::EPERM));
            }
            assert_eq!(client.getxattr(file, "trusted.link").await.unwrap(), links);
            assert_eq!(client.getxattr(file, "trusted.lma").await, Err(Errno::ENODATA));
            assert_eq!(client.getattr(file).await.unwrap().ctime, changed);
            // The end of a directory's migration comes in this way, too.
            let directory = client.make(Fid::ROOT, "d", super::harness::DIRECTORY | 0o755).await;
            let wish = 0x0CD3_0CD0u32.to_le_bytes();
            let ended = client.setxattr(directory.unwrap(), "trusted.lmv", Some(&wish), 0).await;
            assert_eq!(ended, Err(Errno::EINVAL));
        },
        &world,
    );
}

#[test]
fn extended_attributes_come_back() {
    let world = TestWorld::new(83);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            client.setxattr(file, "user.a", Some(b"1"), 0).await.unwrap();
            assert_eq!(client.setxattr(file, "user.a", Some(b"2"), 1).await, Err(Errno::EEXIST));
            assert_eq!(client.setxattr(file, "user.b", Some(b"2"), 2).await, Err(Errno::ENODATA));
            assert_eq!(&client.getxattr(file, "user.a").await.unwrap()[..], b"1");
            client.setxattr(file, "user.a", None, 0).await.unwrap();
            assert_eq!(client.getxattr(file, "user.a").await, Err(Errno::ENODATA));
            assert_eq!(client.setxattr(file, "user.a", None, 0).await, Err(Errno::ENODATA));
            assert_eq!(client.setxattr(file, "odd.a", Some(b"1"), 0).await, Err(Errno::EOPNOTSUPP));
            let alice = client.as_user(10, 10);
            assert_eq!(alice.setxattr(file, "user.x", Some(b"1"), 0).await, Err(Errno::EACCES));
            assert_eq!(alice.setxattr(file, "trusted.x", Some(b"1"), 0).await, Err(Errno::EPERM));
            let long = vec![7; 65_537];
            assert_eq!(client.setxattr(file, "user.l", Some(&long), 0).await, Err(Errno::E2BIG));
            client.setxattr(file, "trusted.big", Some(&long[..65_536]), 0).await.unwrap();
            assert_eq!(client.getxattr(file, "trusted.big").await, Err(Errno::ERANGE));
        },
        &world,
    );
}

/// All are one record: an owner filled the server's memory and disk with those of one file.
#[test]
fn an_inode_has_so_many_extended_attributes() {
    let world = TestWorld::new(99);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let value = vec![7; 65_536];
            let set =
                async |name: &str, value: &[u8]| client.setxattr(file, name, Some(value), 0).await;
            for number in 0..15 {
                set(&format!("user.{number}"), &value).await.unwrap();
            }
            assert_eq!(set("user.15", &value).await, Err(Errno::ENOSPC));
            set("user.15", &value[..60_000]).await.unwrap();
            assert_eq!(set("user.15", &value).await, Err(Errno::ENOSPC));
            set("user.14", &value).await.unwrap();
            set("user.14", b"shorter").await.unwrap();
            set("user.15", &value).await.unwrap();
            // Together they are more than a reply holds, whatever room the client says it has.
            assert_eq!(all_at_once(&client, file, u32::MAX).await.0, Errno::ERANGE.status());
            for number in 3..16 {
                client.setxattr(file, &format!("user.{number}"), None, 0).await.unwrap();
            }
            let (error, names) = all_at_once(&client, file, u32::MAX).await;
            assert_eq!((error, &names[..]), (0, "trusted.link\0user.0\0user.1\0user.2\0"));
        },
        &world,
    );
}

/// Empty ones are counted by their names: an owner gave a file 130,000, which no program could list.
#[test]
fn an_inode_has_no_more_attributes_than_can_be_listed() {
    let world = TestWorld::new(98);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let set = async |name: &str| client.setxattr(file, name, Some(b""), 0).await;
            let named = |number: u32| format!("user.{number:0>250}");
            let mut count = 0;
            while count < 1000 && set(&named(count)).await.is_ok() {
                count += 1;
            }
            // Beside `trusted.link`.
            assert_eq!(count, (65_536 - 13) / 256);
            assert_eq!(set(&named(count)).await, Err(Errno::ENOSPC));
            let (error, names) = all_at_once(&client, file, u32::MAX).await;
            assert_eq!((error, names.len() <= 65_536), (0, true));
            assert_eq!(names.matches('\0').count(), count as usize + 1);
            // What is there may be set again, and one gives room for another.
            set(&named(0)).await.unwrap();
            client.setxattr(file, &named(1), None, 0).await.unwrap();
            set(&named(count)).await.unwrap();
        },
        &world,
    );
}

/// Asks for all extended attributes: the status in the lock, and the names.
async fn all_at_once(client: &Client, file: Fid, room: u32) -> (i32, String) {
    let request = LdlmIntentGetxattr {
        dlm_req: client.dlm(file, LockMode::Pr, InodeBits::XATTR),
        ldlm_intent: LdlmIntent { opc: IntentOp::GETXATTR },
        mdt_body: MdtBody { eadatasize: room, ..client.body(file) },
        ..LdlmIntentGetxattr::default()
    };
    let mine = request.dlm_req.handles[0];
    let answer = client.inner.call(request).await;
    let Some(Reply::LdlmIntentGetxattr(reply)) = answer.reply else { panic!("{:?}", answer.head) };
    let lock = reply.dlm_rep.unwrap();
    client.keep(mine, lock.handle);
    let error = lock.policy_res2 as u32 as i32;
    (error, String::from_utf8(reply.eadata.to_vec()).unwrap())
}

/// As on Linux, where it takes CAP_SETFCAP: who owns a program would be root by it.
#[test]
fn an_owner_gives_no_program_capabilities() {
    use sheen_wire::md::{RecCreate, ReintOp};
    use sheen_wire::messages::MdsReintCreate;
    let world = TestWorld::new(98);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let shared = root.mkdir(Fid::ROOT, "tmp").await.unwrap();
            root.setattr(shared, AttrValid::MODE, mode(0o777)).await.unwrap();
            let owner = root.as_user(10, 10).with_capabilities();
            let file = owner.make(shared, "f", REGULAR | 0o755).await.unwrap();
            let name = "security.capability";
            let no = Err(Errno::EPERM);
            assert_eq!(owner.setxattr(file, name, Some(b"1"), 0).await, no);
            owner.setxattr(file, "security.selinux", Some(b"1"), 0).await.unwrap();
            root.setxattr(file, name, Some(b"1"), 0).await.unwrap();
            let stranger = root.as_user(11, 11).with_capabilities();
            assert_eq!(stranger.setxattr(file, name, None, 0).await, no);
            owner.setxattr(file, name, None, 0).await.unwrap();
            let create = async |fsuid, path: &str| {
                let rec_reint = RecCreate {
                    opcode: ReintOp::CREATE,
                    fsuid,
                    fsgid: fsuid,
                    cap: u32::MAX,
                    fid1: shared,
                    fid2: root.next_fid(),
                    mode: 0o100_755,
                    ..RecCreate::default()
                };
                let request = MdsReintCreate {
                    rec_reint,
                    name: Some(Text::new(path)),
                    file_secctx_name: Some(Text::new(name)),
                    file_secctx: Bytes::from_static(b"1"),
                    ..MdsReintCreate::default()
                };
                root.inner.call(request).await.errno()
            };
            assert_eq!(create(10, "g").await, Some(Errno::EPERM));
            assert_eq!(create(0, "h").await, None);
        },
        &world,
    );
}

#[test]
fn access_lists_count_and_are_inherited() {
    let world = TestWorld::new(84);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let line = |tag, perm, id| AclEntry { tag, perm, id };
            let none = u32::MAX;
            let entries = vec![
                line(1, 7, none),
                line(2, 7, 10),
                line(4, 0, none),
                line(16, 7, none),
                line(32, 0, none),
            ];
            let value = PosixAcl { entries }.encode();
            let access = "system.posix_acl_access";
            client.setxattr(directory, access, Some(&value), 0).await.unwrap();
            client.setxattr(directory, "system.posix_acl_default", Some(&value), 0).await.unwrap();
            assert_eq!(client.getattr(directory).await.unwrap().mode, DIRECTORY | 0o770);
            let (alice, bob) = (client.as_user(10, 10), client.as_user(20, 20));
            assert_eq!(bob.mkdir(directory, "b").await, Err(Errno::EACCES));
            let sub = alice.mkdir(directory, "a").await.unwrap();
            let body = client.getattr(sub).await.unwrap();
            assert_eq!((body.mode & 0o777, body.aclsize > 0), (0o770, true));
            let inherited = client.getxattr(sub, "system.posix_acl_default").await.unwrap();
            assert_eq!(inherited, value);
        },
        &world,
    );
}

#[test]
fn all_extended_attributes_come_at_once() {
    use sheen_types::{InodeBits, LockMode};
    use sheen_wire::ldlm::{IntentOp, LdlmIntent};
    use sheen_wire::md::MdtBody;
    use sheen_wire::messages::{LdlmIntentGetxattr, Reply};
    let world = TestWorld::new(85);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            client.setxattr(file, "user.a", Some(b"12"), 0).await.unwrap();
            client.setxattr(file, "user.b", Some(b"345"), 0).await.unwrap();
            for room in [65_536, 4] {
                let request = LdlmIntentGetxattr {
                    dlm_req: client.dlm(file, LockMode::Pr, InodeBits::XATTR),
                    ldlm_intent: LdlmIntent { opc: IntentOp::GETXATTR },
                    mdt_body: MdtBody { eadatasize: room, ..client.body(file) },
                    ..LdlmIntentGetxattr::default()
                };
                let answer = client.inner.call(request).await;
                let Some(Reply::LdlmIntentGetxattr(reply)) = answer.reply else { panic!() };
                let error = reply.dlm_rep.unwrap().policy_res2 as u32 as i32;
                if room == 4 {
                    assert_eq!(error, Errno::ERANGE.status());
                    continue;
                }
                assert_eq!((answer.head.status, error), (0, 0));
                let names = String::from_utf8(reply.eadata.to_vec()).unwrap();
                let names: Vec<&str> = names.split_terminator('\0').collect();
                assert_eq!(names, ["trusted.link", "user.a", "user.b"]);
                assert_eq!(reply.eavals_lens[1..], [2, 3]);
                assert!(reply.eavals.ends_with(b"12345"));
            }
        },
        &world,
    );
}

/// As tmpfs and ext4 have it.
#[test]
fn a_list_that_is_not_there_is_removed_without_an_error_by_the_owner_alone() {
    let world = TestWorld::new(132);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let before = client.getattr(file).await.unwrap().ctime;
            for (fid, name) in [
                (file, ACCESS),
                (file, "system.posix_acl_default"),
                (directory, ACCESS),
                (directory, "system.posix_acl_default"),
            ] {
                assert_eq!(client.setxattr(fid, name, None, 0).await, Ok(()), "{fid} {name}");
                let alice = client.as_user(10, 10);
                assert_eq!(alice.setxattr(fid, name, None, 0).await, Err(Errno::EPERM));
            }
            assert_eq!(client.setxattr(file, "user.none", None, 0).await, Err(Errno::ENODATA));
            assert_eq!(client.getattr(file).await.unwrap().ctime, before);
        },
        &world,
    );
}

const ACCESS: &str = "system.posix_acl_access";

/// The value of a list: tag, permissions, and the user or group it names.
pub(super) fn acl(lines: &[(u16, u16, u32)]) -> bytes::Bytes {
    let entry = |(tag, perm, id): &(u16, u16, u32)| AclEntry { tag: *tag, perm: *perm, id: *id };
    PosixAcl { entries: lines.iter().map(entry).collect() }.encode()
}

#[test]
fn a_chmod_changes_the_list_and_a_list_the_mode() {
    const NONE: u32 = u32::MAX;
    let world = TestWorld::new(86);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let owner = |record: &mut RecSetattr| (record.uid, record.gid) = (10, 50);
            root.setattr(file, AttrValid::UID | AttrValid::GID, owner).await.unwrap();
            root.setattr(file, AttrValid::MODE, mode(0o2775)).await.unwrap();
            let (alice, bob) = (root.as_user(10, 10), root.as_user(20, 20));
            let broken = acl(&[(1, 7, NONE), (2, 7, 20), (4, 0, NONE), (32, 0, NONE)]);
            assert_eq!(alice.setxattr(file, ACCESS, Some(&broken), 0).await, Err(Errno::EINVAL));
            let whole =
                acl(&[(1, 7, NONE), (2, 6, 20), (4, 0, NONE), (16, 7, NONE), (32, 0, NONE)]);
            assert_eq!(bob.setxattr(file, ACCESS, Some(&whole), 0).await, Err(Errno::EPERM));
            alice.setxattr(file, ACCESS, Some(&whole), 0).await.unwrap();
            let body = alice.getattr(file).await.unwrap();
            assert_eq!(body.mode & 0o7777, 0o770, "she is not in its group");
            let open = |flags| bob.open(Fid::ROOT, "f", flags);
            let both = MdsOpenFlags::READ | MdsOpenFlags::WRITE;
            bob.close(&open(both).await.unwrap()).await.unwrap();
            alice.setattr(file, AttrValid::MODE, mode(0o640)).await.unwrap();
            let masked =
                acl(&[(1, 6, NONE), (2, 6, 20), (4, 0, NONE), (16, 4, NONE), (32, 0, NONE)]);
            assert_eq!(alice.getxattr(file, ACCESS).await.unwrap(), masked);
            assert_eq!(open(both).await.map(|_| ()), Err(Errno::EACCES), "the mask cuts");
            bob.close(&open(MdsOpenFlags::READ).await.unwrap()).await.unwrap();
        },
        &world,
    );
}

#[test]
fn a_directory_that_gets_another_parent_must_be_writable() {
    let world = TestWorld::new(87);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let shared = root.mkdir(Fid::ROOT, "tmp").await.unwrap();
            root.setattr(shared, AttrValid::MODE, mode(0o777)).await.unwrap();
            let alice = root.as_user(10, 10);
            let other = alice.mkdir(shared, "other").await.unwrap();
            let moved = root.mkdir(shared, "moved").await.unwrap();
            let refused = alice.rename((shared, "moved"), (other, "moved")).await;
            assert_eq!(refused, Err(Errno::EACCES));
            alice.rename((shared, "moved"), (shared, "renamed")).await.unwrap();
            root.setattr(moved, AttrValid::MODE, mode(0o777)).await.unwrap();
            alice.rename((shared, "renamed"), (other, "moved")).await.unwrap();
        },
        &world,
    );
}

#[test]
fn root_is_squashed_where_it_is_not_trusted() {
    let world = TestWorld::new(88);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let shared = root.mkdir(Fid::ROOT, "tmp").await.unwrap();
            root.setattr(shared, AttrValid::MODE, mode(0o1777)).await.unwrap();
            let alice = root.as_user(10, 10);
            alice.close(&alice.create(shared, "f").await.unwrap()).await.unwrap();
            let private = alice.mkdir(shared, "private").await.unwrap();
            alice.setattr(private, AttrValid::MODE, mode(0o700)).await.unwrap();
            server.mdt.change_root_squash(|squash| squash.set_root("99:98")).unwrap();
            assert_eq!(root.mkdir(Fid::ROOT, "no").await, Err(Errno::EACCES));
            assert_eq!(root.mkdir(private, "no").await, Err(Errno::EACCES));
            assert_eq!(root.unlink(shared, "f").await, Err(Errno::EPERM), "sticky");
            let refused = root.setattr(private, AttrValid::MODE, mode(0o777)).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EPERM));
            let refused = root.setxattr(shared, "trusted.x", Some(b"1"), 0).await;
            assert_eq!(refused, Err(Errno::EPERM));
            let refused = root.open(shared, "f", MdsOpenFlags::WRITE).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EACCES));
            let (_, reply) = root.lookup(private, "x").await;
            let error = reply.dlm_rep.unwrap().policy_res2 as u32 as i32;
            assert_eq!(error, Errno::EACCES.status());
            let opened = root.create(shared, "mine").await.unwrap();
            assert_eq!((opened.body.uid, opened.body.gid), (99, 98));
            root.close(&opened).await.unwrap();
            let made = root.mkdir(shared, "dir").await.unwrap();
            let body = root.getattr(made).await.unwrap();
            assert_eq!((body.uid, body.gid), (99, 98));
            assert_eq!(
                alice.getattr(private).await.unwrap().uid,
                10,
                "other users are who they are"
            );
            let all_nodes = "*@tcp 0@lo";
            server.mdt.change_root_squash(|squash| squash.set_trusted(all_nodes)).unwrap();
            root.mkdir(private, "yes").await.unwrap();
            // No client is trusted for a NID that it only claims.
            root.inner.set_proven(false);
            root.inner.connect().await.unwrap();
            assert_eq!(root.mkdir(private, "no").await, Err(Errno::EACCES));
        },
        &world,
    );
}

#[test]
fn no_client_may_claim_that_no_right_is_needed() {
    use sheen_wire::md::{Bias, RecCreate, RecSetattr};
    use sheen_wire::messages::{MdsReintCreate, MdsReintSetattr};
    use sheen_wire::opcode::ReintOp;
    let world = TestWorld::new(90);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let shared = root.mkdir(Fid::ROOT, "tmp").await.unwrap();
            let rec_reint = RecSetattr {
                opcode: ReintOp::SETATTR,
                fsuid: 10,
                fid: Fid::ROOT,
                valid: AttrValid::MODE,
                mode: 0o4777,
                bias: Bias::PERM_BYPASS,
                ..RecSetattr::default()
            };
            let request = MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() };
            assert_eq!(root.inner.call(request).await.errno(), Some(Errno::EPERM));
            // Nor does a new inode begin with a layout that names objects of other files.
            let named = async |context: &str, name: &str| {
                let rec_reint = RecCreate {
                    opcode: ReintOp::CREATE,
                    fid1: shared,
                    fid2: root.next_fid(),
                    mode: 0o100_644,
                    ..RecCreate::default()
                };
                let request = MdsReintCreate {
                    rec_reint,
                    name: Some(Text::new(name)),
                    file_secctx_name: Some(Text::new(context)),
                    file_secctx: Bytes::from_static(b"value"),
                    ..MdsReintCreate::default()
                };
                root.inner.call(request).await.errno()
            };
            assert_eq!(named("trusted.lov", "a").await, Some(Errno::EINVAL));
            assert_eq!(named("trusted.link", "b").await, Some(Errno::EINVAL));
            assert_eq!(named("security.selinux", "c").await, None);
        },
        &world,
    );
}

#[test]
fn capabilities_that_a_client_claims_for_a_user_are_dropped() {
    let world = TestWorld::new(89);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let private = root.mkdir(Fid::ROOT, "private").await.unwrap();
            let file = root.make(private, "f", REGULAR | 0o600).await.unwrap();
            let other = root.make(private, "g", REGULAR | 0o600).await.unwrap();
            root.setxattr(file, "user.x", Some(b"1"), 0).await.unwrap();
            root.setattr(private, AttrValid::MODE, mode(0o700)).await.unwrap();
            let mallory = root.as_user(10, 10).with_capabilities();
            // Each request by which a right is judged, once.
            let no = Err(Errno::EACCES);
            assert_eq!(mallory.mkdir(private, "no").await.map(|_| ()), no);
            assert_eq!(mallory.symlink(private, "no").await, no);
            assert_eq!(mallory.unlink(private, "f").await, no);
            assert_eq!(mallory.link(file, private, "no").await, no);
            assert_eq!(mallory.rename((private, "f"), (private, "no")).await, no);
            assert_eq!(mallory.open(private, "f", MdsOpenFlags::READ).await.map(|_| ()), no);
            assert_eq!(mallory.open_fid(file, MdsOpenFlags::READ).await.map(|_| ()), no);
            assert_eq!(mallory.reint_open(private, "f", MdsOpenFlags::READ).await, no);
            assert_eq!(mallory.create(private, "no").await.map(|_| ()), no);
            assert_eq!(mallory.getxattr(file, "user.x").await.map(|_| ()), no);
            assert_eq!(mallory.setxattr(file, "user.x", Some(b"2"), 0).await, no);
            let size = |record: &mut RecSetattr| record.size = 1;
            assert_eq!(mallory.setattr(file, AttrValid::SIZE, size).await.map(|_| ()), no);
            let swapped = mallory.modify(swap(&mallory, file, other)).await;
            assert_eq!(swapped.map(|_| ()), no);
            let (mdt_body, name) = (mallory.body(private), Some(Text::new("f")));
            let by_name = MdsGetattrName { mdt_body, name, ..MdsGetattrName::default() };
            assert_eq!(mallory.modify(by_name).await.map(|_| ()), no);
            let (_, reply) = mallory.lookup(private, "f").await;
            let error = reply.dlm_rep.unwrap().policy_res2 as u32 as i32;
            assert_eq!(error, Errno::EACCES.status());
            let no = Err(Errno::EPERM);
            let refused = mallory.setattr(file, AttrValid::MODE, mode(0o777)).await.map(|_| ());
            assert_eq!(refused, no);
            let give = |record: &mut RecSetattr| record.uid = 10;
            assert_eq!(mallory.setattr(file, AttrValid::UID, give).await.map(|_| ()), no);
            assert_eq!(mallory.setxattr(file, "trusted.x", Some(b"1"), 0).await, no);
            root.setattr(Fid::ROOT, AttrValid::MODE, mode(0o1777)).await.unwrap();
            let device = mallory.make(Fid::ROOT, "sda", 0o060_666).await;
            assert_eq!(device.map(|_| ()), no);
            // Root has them, whatever its client says; and users, where the operator wants it so.
            root.mkdir(private, "yes").await.unwrap();
            server.mdt.set_capability_mask("cap_dac_override,cap_chown").unwrap();
            mallory.mkdir(private, "yes2").await.unwrap();
            mallory.setattr(file, AttrValid::UID, give).await.unwrap();
            let refused = mallory.setattr(other, AttrValid::MODE, mode(0o777)).await.map(|_| ());
            assert_eq!(refused, no, "not what the mask leaves out");
            assert_eq!(mallory.setxattr(file, "trusted.x", Some(b"1"), 0).await, no);
        },
        &world,
    );
}

#[test]
fn nothing_that_is_said_besides_saves_times_and_set_id_bits_from_a_check() {
    let world = TestWorld::new(94);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let other = root.as_user(5, 5);
            let chosen = AttrValid::ATIME | AttrValid::MTIME | AttrValid::CTIME;
            let chosen = chosen | AttrValid::ATIME_SET | AttrValid::MTIME_SET;
            let set = |record: &mut RecSetattr| {
                (record.atime, record.mtime, record.ctime) = (11, 22, 9999);
                (record.uid, record.gid) = (u32::MAX, u32::MAX);
            };
            let before = root.getattr(file).await.unwrap();
            let besides = [
                AttrValid::FORCE,
                AttrValid::KILL_SUID,
                AttrValid::KILL_SGID,
                AttrValid::UID,
                AttrValid::GID,
                AttrValid::OVERRIDE,
                AttrValid::FROM_OPEN,
            ];
            for besides in besides {
                let refused = other.setattr(file, chosen | besides, set).await.map(drop);
                assert_eq!(refused, Err(Errno::EPERM), "{besides:?}");
            }
            let after = root.getattr(file).await.unwrap();
            assert_eq!((after.atime, after.mtime), (before.atime, before.mtime));
            // A caller who cannot write takes no file's set-id bits; a writer does, and root and
            // the owner.
            root.setattr(file, AttrValid::MODE, mode(0o4755)).await.unwrap();
            let kills = AttrValid::KILL_SUID | AttrValid::KILL_SGID;
            for valid in [kills, kills | AttrValid::FORCE, AttrValid::KILL_SUID] {
                let refused = other.setattr(file, valid, set).await.map(drop);
                assert_eq!(refused, Err(Errno::EPERM));
            }
            assert_eq!(root.getattr(file).await.unwrap().mode & 0o7777, 0o4755);
            root.setattr(file, AttrValid::MODE, mode(0o4757)).await.unwrap();
            let body = other.setattr(file, kills | AttrValid::CTIME, set).await.unwrap();
            assert_eq!(body.mode & 0o7777, 0o757);
        },
        &world,
    );
}

/// As Linux has Lustre's clients send it, with the mode of after.
#[test]
fn a_writer_takes_the_set_id_bits_of_a_file_that_it_may_write_and_changes_no_other_bit() {
    let world = TestWorld::new(97);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o666).await.unwrap();
            let other = root.as_user(5, 5);
            let takes = AttrValid::MODE | AttrValid::FORCE | AttrValid::CTIME;
            for valid in [takes, takes | AttrValid::SIZE] {
                root.setattr(file, AttrValid::MODE, mode(0o6777)).await.unwrap();
                for (wanted, valid) in [(0o766, valid), (0o777, valid.without(AttrValid::FORCE))] {
                    let refused = other.setattr(file, valid, mode(wanted)).await.map(drop);
                    assert_eq!(refused, Err(Errno::EPERM), "{wanted:o}");
                }
                let body = other.setattr(file, valid, mode(0o777)).await.unwrap();
                assert_eq!(body.mode & 0o7777, 0o777);
                root.setattr(file, AttrValid::MODE, mode(0o6755)).await.unwrap();
                let refused = other.setattr(file, valid, mode(0o755)).await.map(drop);
                assert_eq!(refused, Err(Errno::EPERM), "it may not write");
            }
        },
        &world,
    );
}

/// Linux decides what goes, and before 6.2 also names a bit that stays.
#[test]
fn a_set_group_id_bit_without_group_execution_goes_unless_a_member_of_the_group_changes_the_file() {
    let world = TestWorld::new(99);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o666).await.unwrap();
            let owner = |record: &mut RecSetattr| (record.uid, record.gid) = (4, 50);
            root.setattr(file, AttrValid::UID | AttrValid::GID, owner).await.unwrap();
            let kill = AttrValid::KILL_SUID | AttrValid::KILL_SGID | AttrValid::CTIME;
            for (uid, gid, before, after) in [
                (5, 5, 0o2666, 0o666),
                (5, 50, 0o2666, 0o2666),
                (4, 4, 0o6666, 0o666),
                (4, 50, 0o6666, 0o2666),
                (0, 0, 0o6666, 0o2666),
                (5, 50, 0o6676, 0o676),
            ] {
                root.setattr(file, AttrValid::MODE, mode(before)).await.unwrap();
                let who = root.as_user(uid, gid);
                let body = who.setattr(file, kill, |_| {}).await.unwrap();
                assert_eq!(body.mode & 0o7777, after, "{before:o} by {uid} of {gid}");
            }
        },
        &world,
    );
}

#[test]
fn values_of_user_attributes_are_for_readers_alone_however_they_are_asked_for() {
    let world = TestWorld::new(95);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o640).await.unwrap();
            root.setxattr(file, "user.secret", Some(b"hidden"), 0).await.unwrap();
            let plain = root.make(Fid::ROOT, "g", REGULAR | 0o600).await.unwrap();
            let (stranger, reader) = (root.as_user(5, 5), root.as_user(6, 0));
            let denied = stranger.getxattr(file, "user.secret").await.map(drop);
            assert_eq!(denied, Err(Errno::EACCES));
            assert_eq!(&reader.getxattr(file, "user.secret").await.unwrap()[..], b"hidden");
            // All at once: what is not for this user is asked for one by one.
            let all = async |who: &Client, fid| {
                let dlm_req = who.dlm(fid, LockMode::Pr, InodeBits::XATTR);
                let mine = dlm_req.handles[0];
                let request = LdlmIntentGetxattr {
                    dlm_req,
                    ldlm_intent: LdlmIntent { opc: IntentOp::GETXATTR },
                    mdt_body: who.body(fid),
                    ..LdlmIntentGetxattr::default()
                };
                let answer = who.inner.call(request).await;
                let Some(Reply::LdlmIntentGetxattr(reply)) = answer.reply else {
                    panic!("{:?}", answer.head)
                };
                let lock = reply.dlm_rep.clone().expect("a lock's answer");
                who.keep(mine, lock.handle);
                (lock.policy_res2 as u32 as i32, reply.eavals, reply.eadata)
            };
            let (status, values, names) = all(&stranger, file).await;
            assert_eq!((status, values.len(), names.len()), (Errno::ERANGE.status(), 0, 0));
            let (status, values, _) = all(&reader, file).await;
            assert!(status == 0 && values.windows(6).any(|part| part == b"hidden"));
            assert_eq!(all(&stranger, plain).await.0, 0, "there is nothing to hide");
            let body = MdtBody { valid: Valid::XATTRLS, ..stranger.body(file) };
            let request = MdsGetxattr { mdt_body: body, ..MdsGetxattr::default() };
            let Some(Reply::MdsGetxattr(reply)) = stranger.inner.call(request).await.reply else {
                panic!("names")
            };
            let is_named = reply.eadata.windows(11).any(|part| part == b"user.secret");
            assert!(is_named, "names are no secret");
        },
        &world,
    );
}

/// What a request to set attributes may name.
const CHANGES: [AttrValid; 12] = [
    AttrValid::MODE,
    AttrValid::UID,
    AttrValid::GID,
    AttrValid::SIZE,
    AttrValid::BLOCKS,
    AttrValid::ATIME,
    AttrValid::MTIME,
    AttrValid::CTIME,
    AttrValid::KILL_SUID,
    AttrValid::KILL_SGID,
    AttrValid::PROJID,
    AttrValid::ATTR_FLAG,
];

#[test]
fn a_stranger_changes_nothing_whatever_combination_of_changes_is_asked_for() {
    let world = TestWorld::new(96);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let (stranger, owner) = (root.as_user(5, 5), root.as_user(10, 10));
            let give = |record: &mut RecSetattr| (record.uid, record.gid) = (10, 10);
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            root.setattr(file, AttrValid::UID | AttrValid::GID, give).await.unwrap();
            root.setattr(file, AttrValid::MODE, mode(0o6755)).await.unwrap();
            let fixed = root.make(Fid::ROOT, "g", REGULAR | 0o644).await.unwrap();
            root.setattr(fixed, AttrValid::UID | AttrValid::GID, give).await.unwrap();
            let immutable = |record: &mut RecSetattr| record.attr_flags = FileFlags::IMMUTABLE;
            root.setattr(fixed, AttrValid::ATTR_FLAG, immutable).await.unwrap();
            let before = (root.getattr(file).await.unwrap(), root.getattr(fixed).await.unwrap());
            for combination in 0_u32..1 << CHANGES.len() {
                let named = CHANGES.iter().enumerate();
                let named = named.filter(|(bit, _)| combination & 1 << bit != 0);
                let valid = named.fold(AttrValid::NONE, |all, (_, more)| all | *more);
                for id in [u32::MAX, 5] {
                    let fill = |record: &mut RecSetattr| {
                        (record.uid, record.gid, record.projid) = (id, id, 7);
                        (record.mode, record.size, record.blocks) = (0o777, 1, 1);
                        (record.atime, record.mtime, record.ctime) = (i64::MAX, 1, i64::MAX);
                        record.attr_flags = FileFlags::NODUMP;
                    };
                    let _ = stranger.setattr(file, valid, fill).await;
                    let after = root.getattr(file).await.unwrap();
                    assert_eq!(after, before.0, "{valid:?} with {id}");
                    // Nor does the owner change an immutable file, but its flags.
                    if !valid.contains(AttrValid::ATTR_FLAG) {
                        let _ = owner.setattr(fixed, valid, fill).await;
                        let after = root.getattr(fixed).await.unwrap();
                        assert_eq!(after, before.1, "{valid:?} with {id} of an immutable file");
                    }
                }
            }
        },
        &world,
    );
}

/// Clients of Lustre say blocks beside the group (`sanity.sh` 6i).
#[test]
fn an_owner_gives_a_file_that_may_only_be_read_to_a_group() {
    let world = TestWorld::new(98);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o444).await.unwrap();
            root.setattr(file, AttrValid::UID, |record| record.uid = 10).await.unwrap();
            let owner = root.as_user(10, 10);
            let give = |record: &mut RecSetattr| (record.gid, record.size) = (10, 0);
            let valid = AttrValid::GID | AttrValid::CTIME | AttrValid::BLOCKS;
            let cut = owner.setattr(file, valid | AttrValid::SIZE, give).await.map(|_| ());
            assert_eq!(cut, Err(Errno::EACCES), "a truncate writes");
            let body = owner.setattr(file, valid, give).await.unwrap();
            assert_eq!(body.gid, 10);
            let again = owner.setattr(file, valid, give).await.map(|_| ());
            assert_eq!(again, Err(Errno::EACCES), "it is the group's already");
        },
        &world,
    );
}

#[test]
fn a_close_reports_what_its_open_had_the_right_to_change() {
    let world = TestWorld::new(97);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o604).await.unwrap();
            root.close(&root.open(Fid::ROOT, "f", MdsOpenFlags::WRITE).await.unwrap())
                .await
                .unwrap();
            let before = root.getattr(file).await.unwrap();
            let stranger = root.as_user(5, 5);
            let close_with = async |who: &Client, flags| {
                let opened = who.open_fid(file, flags).await.unwrap();
                let mut request = who.close_request(file, opened.body.open_handle);
                let record = &mut request.rec_reint;
                record.valid = AttrValid::LSIZE | AttrValid::LBLOCKS | AttrValid::ATIME;
                record.valid |= AttrValid::MTIME | AttrValid::CTIME;
                (record.size, record.blocks) = (1 << 40, 99);
                (record.atime, record.mtime, record.ctime) = (7777, 8888, 9999);
                who.modify(request).await.unwrap();
                root.getattr(file).await.unwrap()
            };
            let after = close_with(&stranger, MdsOpenFlags::NONE).await;
            assert_eq!(after, before, "an open that asked for nothing");
            let after = close_with(&stranger, MdsOpenFlags::READ).await;
            assert_eq!(after.atime, 7777, "a reader reports when it read");
            assert_eq!(after, MdtBody { atime: 7777, ..before }, "and nothing else");
            let after = close_with(&root, MdsOpenFlags::WRITE).await;
            let reported = (after.size, after.blocks, after.mtime, after.ctime);
            assert_eq!(reported, (1 << 40, 99, 8888, 9999));
        },
        &world,
    );
}

#[test]
fn an_owner_that_overrides_modes_opens_no_immutable_file_for_writing() {
    let world = TestWorld::new(98);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let file = root.make(Fid::ROOT, "f", REGULAR | 0o400).await.unwrap();
            let give = |record: &mut RecSetattr| record.uid = 10;
            root.setattr(file, AttrValid::UID, give).await.unwrap();
            let owner = root.as_user(10, 10);
            let writes = MdsOpenFlags::WRITE | MdsOpenFlags::OWNEROVERRIDE;
            owner.close(&owner.open_fid(file, writes).await.unwrap()).await.unwrap();
            for (flag, also) in [
                (FileFlags::IMMUTABLE, MdsOpenFlags::NONE),
                (FileFlags::APPEND, MdsOpenFlags::NONE),
                (FileFlags::APPEND, MdsOpenFlags::APPEND | MdsOpenFlags::TRUNC),
            ] {
                let set = |record: &mut RecSetattr| record.attr_flags = flag;
                root.setattr(file, AttrValid::ATTR_FLAG, set).await.unwrap();
                for flags in [writes | also, MdsOpenFlags::TRUNC | MdsOpenFlags::OWNEROVERRIDE] {
                    let refused = owner.open_fid(file, flags).await.map(drop);
                    assert_eq!(refused, Err(Errno::EPERM), "{flag:?} {flags:?}");
                }
            }
        },
        &world,
    );
}
