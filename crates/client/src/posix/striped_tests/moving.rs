//! Names that are being moved between stripes, and directories that move.

use super::*;
use crate::types::FileType;

/// The stripe to which names move, and those that they leave.
const TO: Fid = STRIPES[0];
const FILE_FID: Fid = Fid::new(0x2_0000_0401, 20);

/// The layout of a directory that moves to the first of these stripes.
fn moving(stripes: &[Fid]) -> DirectoryLayout {
    let LmvEa::Stripes { mut header, fids } = layout_of(LmvHash::FNV_1A_64, stripes).to_ea() else {
        panic!("a layout");
    };
    header.hash_type = LmvHash(LmvHash::FNV_1A_64.0 | LmvHash::MIGRATION);
    (header.migrate_offset, header.migrate_hash) = (1, LmvHash::FNV_1A_64);
    header.layout_version = 2;
    DirectoryLayout::from_ea(&LmvEa::Stripes { header, fids }).expect("a layout")
}

impl Bench {
    fn moving() -> Self {
        let bench = Self::new();
        bench.cluster.lock().layout = moving(&STRIPES);
        bench
    }

    /// A file that has not moved yet.
    fn put_before(&self, text: &str, fid: Fid) -> Fid {
        let mut cluster = self.cluster.lock();
        let before = cluster.stripe_before(text).expect("another stripe");
        let names = cluster.directories.entry(before).or_default();
        let hash = (names.len() as u64 + 3) * 10;
        names.insert(text.to_owned(), (hash, fid, FILE));
        before
    }

    fn move_behind(&self, stripe: Fid, text: &str) {
        self.cluster.lock().moves_behind = Some((stripe, text.to_owned()));
    }

    fn holders(&self, text: &str) -> Vec<Fid> {
        let cluster = self.cluster.lock();
        let has = cluster.directories.iter().filter(|(_, names)| names.contains_key(text));
        has.map(|(stripe, _)| *stripe).collect()
    }
}

#[test]
fn a_name_is_found_in_the_stripe_that_it_leaves_and_in_the_one_that_it_moves_to() {
    let bench = Bench::moving();
    let node = bench.directory();
    let before = bench.put_before("old", FILE_FID);
    assert_eq!(entry(bench.look_up(node, "old")).attributes.fid, FILE_FID);
    let asked: Vec<Fid> = bench.asked().into_iter().map(|(.., on)| on).collect();
    assert_eq!(asked, [TO, before]);
    bench.put("new", Fid::new(0x2_4000_0401, 21));
    assert_eq!(entry(bench.look_up(node, "new")).attributes.fid.oid, 21);
    assert_eq!(kinds(&bench.asked()), [(1, "getattr", TO)]);
}

#[test]
fn a_name_that_moves_between_two_questions_is_found() {
    let bench = Bench::moving();
    let node = bench.directory();
    bench.put_before("f", FILE_FID);
    bench.move_behind(TO, "f");
    assert_eq!(entry(bench.look_up(node, "f")).attributes.fid, FILE_FID);
    let asked: Vec<Fid> = bench.asked().into_iter().map(|(.., on)| on).collect();
    assert_eq!((asked[0], asked[2], asked.len()), (TO, TO, 4), "once more where it moves to");
}

#[test]
fn a_name_is_absent_if_no_stripe_has_it_before_and_after() {
    let bench = Bench::moving();
    let node = bench.directory();
    assert!(matches!(bench.look_up(node, "f"), Ok(Lookup::Absent { .. })));
    assert_eq!(bench.asked().len(), 3);
    // Known of both stripes by their locks: nothing is asked.
    let bench = Bench::with_own_names();
    bench.cluster.lock().layout = moving(&STRIPES);
    let node = bench.directory();
    bench.list(bench.open(node), 100);
    bench.asked();
    assert!(matches!(bench.look_up(node, "f"), Ok(Lookup::Absent { .. })));
    assert_eq!(bench.asked(), []);
    // Another client makes it in the stripe that names move to, then in the other one.
    for stripe in [TO, bench.put_before("f", FILE_FID)] {
        bench.revoke(stripe);
        assert_eq!(entry(bench.look_up(node, "f")).attributes.fid, FILE_FID);
    }
}

/// A program works in it, and asks for its path: a name that is dropped is in no path until it is looked up again.
#[test]
fn the_kernel_does_not_drop_a_directory_that_is_absent_from_the_stripe_that_it_moves_to() {
    let bench = Bench::moving();
    let node = bench.directory();
    let before = bench.put_before("st", FILE_FID);
    {
        let mut cluster = bench.cluster.lock();
        let (.., mode) = cluster
            .directories
            .get_mut(&before)
            .and_then(|it| it.get_mut("st"))
            .expect("it is there");
        *mode = DIRECTORY;
    }
    let notices = |bench: &Bench| {
        let dropped = std::mem::take(&mut *bench.fixture.watcher.dropped.lock());
        let notices = bench.fixture.watcher.take();
        (notices.iter().any(|it| it.ends_with(&format!("{} st", node.0))), dropped)
    };
    // With a listing come locks on the names of both.
    bench.list(bench.open(node), 100);
    let found = entry(bench.look_up(node, "st"));
    assert_eq!(found.attributes.file_type(), FileType::Directory);
    notices(&bench);
    bench.revoke(TO);
    assert_eq!(notices(&bench), (true, vec![]), "the lock under which it was absent there");
    // The layout changes under which it was absent.
    bench.list(bench.open(node), 100);
    bench.revoke(FILE_FID);
    assert_eq!(entry(bench.look_up(node, "st")).node, found.node);
    notices(&bench);
    bench.cluster.lock().layout = moving(&[TO, before]);
    bench.revoke(MASTER);
    bench.look_up(node, "other").expect("an answer");
    bench.fixture.world.settle();
    assert_eq!(notices(&bench), (true, vec![]));
}

#[test]
fn a_listing_has_each_name_once_while_names_move() {
    for (page, room) in [(3, 2), (5, 7), (50, 100)] {
        for moved in [0, 1, 7, 20, 39] {
            let bench = Bench::moving();
            (bench.cluster.lock().page, bench.cluster.lock().grants_no_names) = (page, true);
            let expected: BTreeSet<String> = (0..40).map(|at| format!("f{at}")).collect();
            for (at, text) in expected.iter().enumerate() {
                bench.put_before(text, Fid::new(0x2_0000_0401, 100 + at as u32));
            }
            let node = bench.directory();
            let handle = bench.open(node);
            // The stripe that it moves to has answered without it, and the other one answers without it.
            bench.move_behind(TO, &format!("f{moved}"));
            let listed = bench.list(handle, room);
            let names: Vec<String> = listed[2..].iter().map(|(name, ..)| name.clone()).collect();
            assert_eq!(names.len(), expected.len(), "{page} {room} f{moved}: {names:?}");
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}

#[test]
fn a_name_that_gets_another_hash_where_it_moves_to_is_listed_once() {
    for moved in [0, 20, 39] {
        let bench = Bench::moving();
        {
            let mut cluster = bench.cluster.lock();
            (cluster.grants_no_names, cluster.rehashes) = (true, true);
        }
        for at in 0..40 {
            bench.put_before(&format!("f{at}"), Fid::new(0x2_0000_0401, 100 + at));
        }
        let node = bench.directory();
        let handle = bench.open(node);
        let name = format!("f{moved}");
        // The stripe that it leaves has answered with it, and the other one answers with it.
        let before = bench.holders(&name)[0];
        bench.move_behind(before, &name);
        let listed = bench.list(handle, 100);
        let times = listed.iter().filter(|(listed, ..)| *listed == name).count();
        assert_eq!((times, listed.len()), (1, 42), "{name}");
    }
}

#[test]
fn what_removes_moves_or_opens_a_name_goes_where_it_is() {
    let bench = Bench::moving();
    let node = bench.directory();
    let run = |call: &str, from: &str, to: &str| {
        let (call, from, to) = (call.to_owned(), name(from), name(to));
        bench.run(move |files, who| async move {
            match &call[..] {
                "unlink" => files.unlink(&who, node, &from).await,
                "rename" => {
                    files.rename(&who, (node, &from), (node, &to), RenameMode::Replace).await
                }
                _ => {
                    let made = files.make_node(&who, node, &from, 0o755, NewNode::Directory).await;
                    made.map(drop)
                }
            }
        })
    };
    bench.put_before("gone", FILE_FID);
    assert_eq!(run("unlink", "gone", "-"), Ok(()));
    assert_eq!(bench.holders("gone"), []);
    assert_eq!(run("unlink", "gone", "-"), Err(Errno::ENOENT));
    // A new name goes to where names move, and what it replaces is found.
    bench.put_before("a", Fid::new(0x2_0000_0401, 31));
    assert_eq!(run("rename", "a", "b"), Ok(()));
    assert_eq!((bench.holders("a"), bench.holders("b")), (vec![], vec![TO]));
    bench.put_before("c", Fid::new(0x2_0000_0401, 32));
    assert_eq!(run("rename", "b", "c"), Ok(()));
    assert_eq!(bench.holders("c").len(), 1);
    assert_eq!(bench.holders("b"), []);
    // One that is there is not made once more.
    let before = bench.put_before("x", Fid::new(0x2_0000_0401, 33));
    assert_eq!(run("mkdir", "x", "-"), Err(Errno::EEXIST));
    bench.make_file(node, "x");
    assert_eq!(bench.holders("x"), [before], "it was opened");
    bench.make_file(node, "e");
    assert_eq!(bench.holders("e"), [TO]);
}

/// An MDT refuses what is made elsewhere than it belongs, so where that is needs no lock.
#[test]
fn nothing_is_asked_before_a_name_is_made_in_what_was_a_directory_in_one_piece() {
    let bench = Bench::new();
    let whole = STRIPES[1];
    {
        let mut cluster = bench.cluster.lock();
        cluster.are_whole = true;
        let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
        root.insert("d".to_owned(), (1, whole, DIRECTORY));
        cluster.directories.entry(whole).or_default();
    }
    let node = bench.directory();
    for text in ["a", "b"] {
        bench.revoke(whole);
        bench.asked();
        bench.make_file(node, text);
        assert_eq!(kinds(&bench.asked()), [(0, "open", whole)]);
    }
    {
        let mut cluster = bench.cluster.lock();
        cluster.are_whole = false;
        cluster.layout = moving(&[TO, whole]);
        let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
        root.insert("d".to_owned(), (1, MASTER, DIRECTORY));
    }
    bench.revoke(whole);
    bench.make_file(node, "c");
    assert_eq!(bench.holders("c"), [TO]);
}

/// Before it moves it lies in one piece, and is the stripe that names leave after it has begun.
#[test]
fn a_directory_that_is_open_is_used_by_the_inode_that_takes_its_place() {
    let bench = Bench::new();
    let whole = STRIPES[1];
    {
        let mut cluster = bench.cluster.lock();
        cluster.are_whole = true;
        let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
        root.insert("d".to_owned(), (1, whole, DIRECTORY));
        for at in 0..8 {
            let file = (10 + at, Fid::new(0x2_0000_0401, 100 + at as u32), FILE);
            cluster.directories.entry(whole).or_default().insert(format!("f{at}"), file);
        }
        cluster.page = 4;
    }
    let node = bench.directory();
    let handle = bench.open(node);
    let first = bench
        .run(move |files, _| async move { files.readdir(handle, DirCookie(0), 3).await })
        .expect("a listing");
    assert_eq!(first.len(), 3);
    let from = first[2].next;
    // It begins to move, and a name does that was not listed yet.
    {
        let mut cluster = bench.cluster.lock();
        cluster.are_whole = false;
        cluster.layout = moving(&[TO, whole]);
        let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
        root.insert("d".to_owned(), (1, MASTER, DIRECTORY));
        cluster.moves_behind = Some((TO, "f7".to_owned()));
        cluster.move_behind(TO);
    }
    bench.revoke(whole);
    let mut rest = Vec::new();
    let mut from = from;
    loop {
        let some = bench
            .run(move |files, _| async move { files.readdir(handle, from, 3).await })
            .expect("a listing");
        let Some(last) = some.last() else { break };
        from = last.next;
        rest.extend(some.iter().map(|it| String::from_utf8_lossy(&it.name).into_owned()));
    }
    let rest: Vec<&str> = rest.iter().map(|name| &name[..]).collect();
    assert_eq!(rest, ["f1", "f2", "f3", "f4", "f5", "f6", "f7"]);
    // A process that works in it: the kernel knows it by the number that it had.
    for text in ["f7", "f2"] {
        assert!(entry(bench.look_up(node, text)).keep.entry);
    }
    let stat = bench
        .run(move |files, who| async move { files.getattr(&who, node).await })
        .expect("its attributes");
    assert_eq!(stat.attributes.fid, MASTER);
    assert_eq!(entry(bench.look_up(NodeId::ROOT, "d")).node, node);
}

#[test]
fn a_listing_of_a_directory_that_has_moved_to_the_end_does_not_end() {
    for is_removed in [false, true] {
        let bench = Bench::new();
        let whole = STRIPES[1];
        {
            let mut cluster = bench.cluster.lock();
            cluster.are_whole = true;
            cluster.page = 4;
            let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
            root.insert("d".to_owned(), (1, whole, DIRECTORY));
            for at in 0..8 {
                let file = (10 + at, Fid::new(0x2_0000_0401, 100 + at as u32), FILE);
                cluster.directories.entry(whole).or_default().insert(format!("f{at}"), file);
            }
        }
        let node = bench.directory();
        let handle = bench.open(node);
        let read =
            |from| bench.run(move |files, _| async move { files.readdir(handle, from, 3).await });
        let from = read(from_start()).expect("a listing")[2].next;
        {
            let mut cluster = bench.cluster.lock();
            cluster.are_whole = false;
            cluster.gone.insert(whole);
            let LmvEa::Stripes { mut header, fids } = layout_of(LmvHash::FNV_1A_64, &[TO]).to_ea()
            else {
                panic!("a layout");
            };
            header.layout_version = 4;
            cluster.layout =
                DirectoryLayout::from_ea(&LmvEa::Stripes { header, fids }).expect("a layout");
            let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
            root.remove("d");
            if !is_removed {
                root.insert("d".to_owned(), (1, MASTER, DIRECTORY));
            }
        }
        bench.revoke(whole);
        bench.revoke(Fid::ROOT);
        let mut from = from;
        let ended = loop {
            match read(from) {
                Ok(some) => match some.last() {
                    Some(last) => from = last.next,
                    None => break Ok(()),
                },
                Err(errno) => break Err(errno),
            }
        };
        assert_eq!(ended, if is_removed { Ok(()) } else { Err(Errno::ESTALE) });
    }
}

#[test]
fn a_directory_that_stays_with_its_names_alone_is_there_already() {
    let bench = Bench::new();
    let migrated = bench.run(move |files, who| async move {
        let wish = DirectoryWish { first: Some(MdtIndex(1)), ..DirectoryWish::default() };
        files.migrate_name(&who, NodeId::ROOT, &name("d"), wish, true).await
    });
    assert_eq!(migrated, Err(Errno::EALREADY));
    assert!(bench.cluster.lock().moves.is_empty());
}

/// An MDT of Lustre says so of a directory that lies on the target's MDT, and leaves its name in a stripe that is to go.
#[test]
fn the_name_of_a_directory_that_is_on_its_mdt_already_moves_alone() {
    for (bench, is_ours) in [(Bench::moving(), false), (Bench::moving(), true)] {
        for mdt in [&bench.fixture.mdt, &bench.second.mdt] {
            mdt.own_names.store(is_ours, Ordering::Relaxed);
        }
        let node = bench.directory();
        let sub = Fid::new(0x2_4000_0401, 30);
        let before = bench.put_before("sub", sub);
        {
            let mut cluster = bench.cluster.lock();
            let names = cluster.directories.get_mut(&before).expect("a stripe");
            names.get_mut("sub").expect("it is there").2 = DIRECTORY;
        }
        entry(bench.look_up(node, "sub"));
        bench.cluster.lock().is_there_already = true;
        let migrated = bench.run(move |files, who| async move {
            let wish = DirectoryWish { first: Some(MdtIndex(1)), ..DirectoryWish::default() };
            files.migrate_name(&who, node, &name("sub"), wish, false).await
        });
        assert_eq!(migrated, if is_ours { Err(Errno::EALREADY) } else { Ok(()) });
        let moves = std::mem::take(&mut bench.cluster.lock().moves);
        match &moves[..] {
            [] if is_ours => {}
            [(1, Request::MdsReintMigrate(alone))] if !is_ours => {
                assert_eq!(alone.rec_reint.bias, Bias::MIGRATE_NSONLY);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn from_start() -> DirCookie {
    DirCookie(0)
}

/// What the capture d4 has.
#[test]
fn a_move_is_asked_of_the_mdt_that_is_to_have_the_directory_or_has_the_inode() {
    let bench = Bench::moving();
    let wish = DirectoryWish {
        first: Some(MdtIndex(1)),
        hash: LmvHash(LmvHash::FIXED),
        ..DirectoryWish::default()
    };
    let node = bench.directory();
    bench.put_before("f", FILE_FID);
    let run = |parent: NodeId, text: &str, end: bool| {
        let (text, wish) = (name(text), wish.clone());
        bench.run(move |files, who| async move {
            match end {
                true => files.finish_migration(&who, parent, &text, wish).await,
                false => files.migrate_name(&who, parent, &text, wish, false).await,
            }
        })
    };
    assert_eq!(run(NodeId::ROOT, "d", false), Ok(()));
    assert_eq!(run(node, "f", false), Ok(()));
    assert_eq!(run(NodeId::ROOT, "d", true), Ok(()));
    let moves = std::mem::take(&mut bench.cluster.lock().moves);
    let [
        (1, Request::MdsReintMigrate(begin)),
        (0, Request::MdsReintMigrate(file)),
        (0, Request::MdsReintSetxattr(end)),
    ] = &moves[..]
    else {
        panic!("{moves:?}");
    };
    let value = b"\xd0\x0c\xd3\x0c\0\0\0\0\x01\0\0\0\0\0\0\x02";
    for (request, parent, mode) in [(begin, Fid::ROOT, DIRECTORY), (file, MASTER, FILE)] {
        assert_eq!((request.rec_reint.fid1, request.rec_reint.mode), (parent, mode));
        assert!(is_on(request.rec_reint.fid2, 1), "the new inode is on the target");
        assert_eq!(&request.eadata[..16], value);
    }
    assert_eq!((end.rec_reint.fid, text_of(end.name.as_ref())), (MASTER, "trusted.lmv".to_owned()));
    assert_eq!(&end.eadata[..16], value);
}

/// What the capture n4 has.
#[test]
fn a_directory_that_is_there_is_split_by_a_mkdir_that_may_change_it() {
    let bench = Bench::new();
    bench.directory();
    let stripes = WishedStripes::Count(NonZeroU32::new(2).expect("two"));
    let wish = DirectoryWish { stripes, ..DirectoryWish::default() };
    let split = bench.run(move |files, who| async move {
        files.restripe_directory(&who, NodeId::ROOT, &name("d"), 0o777, wish).await
    });
    assert_eq!(split, Ok(()));
    let moves = std::mem::take(&mut bench.cluster.lock().moves);
    let [(_, Request::MdsReintCreate(asked))] = &moves[..] else { panic!("{moves:?}") };
    assert_eq!(asked.rec_reint.flags(), MdsOpenFlags::RESYNC);
    assert_eq!(asked.rec_reint.fid1, Fid::ROOT);
}
