//! Directories that are made, and how they are to lie on MDTs.

use super::*;

#[test]
fn the_answer_to_a_mkdir_says_how_the_directory_lies() {
    let bench = Bench::new();
    let node = bench.directory();
    let make = |node, text: String| {
        let text = name(&text);
        let made = bench.run(move |files, who| async move {
            files.make_node(&who, node, &text, 0o755, NewNode::Directory).await
        });
        made.expect("made")
    };
    let whole = make(node, bench.name_in(1, 0));
    bench.asked();
    bench.make_file(whole.node, "a");
    let fid = whole.attributes.fid;
    assert_eq!(kinds(&bench.asked()), [(0, "open", fid)], "it lies in one piece");

    // By its parent's default: its lock is asked for once.
    let cluster = Arc::clone(&bench.cluster);
    bench.fixture.mdt.expect(move |request| {
        let Request::MdsReintCreate(create) = request else { panic!("{request:?}") };
        let mut cluster = cluster.lock();
        cluster.master = create.rec_reint.fid2;
        let (mdt_body, mdt_md) = cluster.body(create.rec_reint.fid2, DIRECTORY);
        let mdt_body = Some(mdt_body);
        Ok(MdsReintCreateReply { mdt_body, mdt_md, ..Default::default() }.into())
    });
    let striped = make(whole.node, "striped".to_owned());
    for number in 0..2 {
        bench.make_file(striped.node, &bench.name_in(1, number));
    }
    let asked = bench.asked();
    assert_eq!(kinds(&asked)[0], (0, "getattr", striped.attributes.fid));
    assert_eq!(kinds(&asked)[1..], [(0, "open", STRIPES[1]); 2]);
}

#[test]
fn stripes_that_cannot_be_are_refused() {
    for stripes in [vec![MASTER], vec![STRIPES[0], MASTER]] {
        let bench = Bench::new();
        bench.cluster.lock().layout = layout_of(LmvHash::CRUSH, &stripes);
        assert_eq!(look_up(&bench.fixture, NodeId::ROOT, "d").err(), Some(Errno::EPROTO));
    }
    let bench = Bench::new();
    bench.cluster.lock().layout = layout_of(LmvHash::CRUSH, &[Fid::ZERO, Fid::ZERO]);
    let node = bench.directory();
    assert_eq!(bench.look_up(node, "f").err(), Some(Errno::ENODEV), "its stripe was lost");
    let LmvEa::Stripes { header, .. } = bench.cluster.lock().layout.to_ea() else { return };
    assert_eq!(header.stripe_count, 2);
}

#[test]
fn a_wish_goes_to_the_mdt_of_the_first_stripe() {
    let listed = [MdtIndex(1), MdtIndex(0)];
    let stripes = NonZeroU32::new(2).map(WishedStripes::Count).expect("two");
    let first = Some(MdtIndex(1));
    let wishes = [
        (DirectoryWish { stripes, first, ..DirectoryWish::default() }, 1),
        (DirectoryWish { stripes, mdts: listed.into(), ..DirectoryWish::default() }, 1),
        (DirectoryWish { stripes, first: Some(MdtIndex(0)), ..DirectoryWish::default() }, 0),
    ];
    for (wish, index) in wishes {
        let bench = Bench::new();
        let expected = wish.clone();
        let mdt = if index == 1 { &bench.second.mdt } else { &bench.fixture.mdt };
        mdt.expect(move |request| {
            let Request::MdsReintCreate(create) = request else { panic!("{request:?}") };
            let record = &create.rec_reint;
            assert!(is_on(record.fid2, index), "{}", record.fid2);
            assert_eq!((record.fid1, record.bias), (Fid::ROOT, Bias::SETSTRIPE_CREATE));
            let sent = LmvEa::decode(&create.eadata).expect("a wish");
            assert_eq!(DirectoryWish::from_ea(&sent), Ok(expected));
            let mdt_body = Some(body(record.fid2, DIRECTORY));
            Ok(MdsReintCreateReply { mdt_body, ..Default::default() }.into())
        });
        let made = bench.run(|files, who| async move {
            files.make_wished_directory(&who, NodeId::ROOT, &name("s"), 0o755, wish).await
        });
        assert_eq!(made, Ok(()));
        assert!(mdt.is_done());
    }
}

#[test]
fn stripes_and_defaults_are_read_and_set_as_attributes() {
    let bench = Bench::new();
    let node = bench.directory();
    let get = |name: &'static [u8], node| {
        bench.run(move |files, who| async move { files.getxattr(&who, node, name).await })
    };
    let layout = bench.cluster.lock().layout.to_ea().encode();
    assert_eq!(get(b"sheen.directory_stripes", node), Ok(layout));
    assert_eq!(bench.asked(), [], "it came with the name");
    assert_eq!(get(b"sheen.directory_stripes", NodeId::ROOT), Err(Errno::ENODATA));

    let default = DirectoryWish { first: Some(MdtIndex(1)), ..DirectoryWish::default() };
    let default = default.to_ea().encode();
    let answer = |mdt_md: Bytes, valid| {
        let mdt_body = Some(MdtBody { fid1: MASTER, valid, ..MdtBody::default() });
        MdsGetattrReply { mdt_body, mdt_md, ..Default::default() }
    };
    bench.fixture.mdt.answer(answer(default.clone(), Valid::DIREA | Valid::DEFAULT_MEA));
    assert_eq!(get(b"sheen.directory_default", node), Ok(default.clone()));
    bench.fixture.mdt.answer(answer(Bytes::new(), Valid::NONE));
    assert_eq!(get(b"sheen.directory_default", node), Err(Errno::ENODATA));

    let set = |value: Bytes| {
        bench.run(move |files, who| async move {
            let (name, mode) = (b"sheen.directory_default", crate::types::XattrMode::Any);
            files.setxattr(&who, node, name, value, mode).await
        })
    };
    assert_eq!(set(Bytes::from_static(b"nonsense")), Err(Errno::EINVAL));
    bench.fixture.mdt.expect(move |request| {
        let Request::MdsReintSetattr(asked) = request else { panic!("{request:?}") };
        assert_eq!((asked.rec_reint.fid, &asked.eadata), (MASTER, &default));
        Ok(MdsReintSetattrReply::default().into())
    });
    let default = DirectoryWish { first: Some(MdtIndex(1)), ..DirectoryWish::default() };
    assert_eq!(set(default.to_ea().encode()), Ok(()));
}

impl Bench {
    /// On which MDTs directories are made in the root, which has this default, and whether the requests say it.
    fn make_by_default(&self, default: DirectoryWish, names: &[&str]) -> Vec<(u32, bool)> {
        // As it is asked for anew.
        self.revoke(Fid::ROOT);
        let root = self.fixture.files.0.inodes.pin(Fid::ROOT);
        root.state().cover_bits(InodeBits::LOOKUP);
        root.state().note_default_striping(Some(default), true);
        self.asked();
        for text in names {
            self.make_directory(text).expect("made");
        }
        self.made()
    }

    fn make_directory(&self, text: &str) -> Result<super::super::Entry, Errno> {
        let (text, new) = (name(text), NewNode::Directory);
        self.run(move |files, who| async move {
            files.make_node(&who, NodeId::ROOT, &text, 0o755, new).await
        })
    }
}

#[test]
fn a_new_directory_is_placed_by_the_default_of_its_parent() {
    let bench = Bench::with_own_names();
    assert_eq!(bench.make_by_default(on_second(), &["a", "b"]), [(1, true), (1, true)]);
    assert_eq!(kinds(&bench.asked()), [], "nothing else was asked");
    // Round robin, as in the root: those on the name's MDT are made as any file is.
    let around = DirectoryWish { max_inherit_rr: 3, ..DirectoryWish::default() };
    let made = bench.make_by_default(around, &["c", "d", "e"]);
    assert_eq!(made, [(0, false), (1, true), (0, false)]);
    let asked = bench.asked();
    assert_eq!(kinds(&asked).iter().filter(|(_, what, _)| *what == "space").count(), 2);
}

#[test]
fn an_mdt_of_lustre_is_not_sent_the_default_of_the_parent() {
    let bench = Bench::new();
    assert_eq!(bench.make_by_default(on_second(), &["a"]), [(1, false)]);
}

#[test]
fn a_default_that_names_another_mdt_by_now_is_asked_for_again() {
    let bench = Bench::new();
    bench.make_by_default(on_second(), &[]);
    bench.second.mdt.refuse(Errno::EREMOTE);
    bench.make_directory("a").expect("made");
    assert_eq!(bench.made(), [(0, false)], "the root has no default any more");
    let asked = bench.asked();
    assert!(kinds(&asked).contains(&(0, "getattr", Fid::ROOT)), "{asked:?}");
}

fn on_second() -> DirectoryWish {
    DirectoryWish { first: Some(MdtIndex(1)), ..DirectoryWish::default() }
}
