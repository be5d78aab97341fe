//! Directories that have moved keep the number by which the kernel knows them.

use super::*;
use crate::cache::inode_number;
use crate::posix::Entry;
use crate::posix::inodes::NamedBy;

/// What a directory in one piece is before it moves.
const BEFORE: Fid = STRIPES[1];
/// What it is after further moves.
const LATER: [Fid; 2] = [Fid::new(0x2_0000_0401, 9), Fid::new(0x2_0000_0401, 10)];

impl Bench {
    /// A directory in one piece, and the entry of its name.
    fn in_one_piece() -> (Self, Entry) {
        let bench = Self::new();
        {
            let mut cluster = bench.cluster.lock();
            cluster.are_whole = true;
            cluster.name_leads_to(BEFORE);
            cluster.directories.entry(BEFORE).or_default();
        }
        let known = entry(look_up(&bench.fixture, NodeId::ROOT, "d"));
        bench.asked();
        (bench, known)
    }

    /// Another client has moved the directory `from`, and has ended that: `to` has none of its stripes.
    fn has_moved(&self, from: Fid, to: Fid, version: u32) {
        {
            let mut cluster = self.cluster.lock();
            cluster.are_whole = false;
            cluster.gone.insert(from);
            cluster.master = to;
            cluster.name_leads_to(to);
            let LmvEa::Stripes { mut header, fids } =
                layout_of(LmvHash::FNV_1A_64, &[Fid::new(0x2_4000_0400, 10 + version)]).to_ea()
            else {
                panic!("a layout");
            };
            header.layout_version = version;
            cluster.layout =
                DirectoryLayout::from_ea(&LmvEa::Stripes { header, fids }).expect("a layout");
        }
        self.revoke(from);
        self.revoke(Fid::ROOT);
    }

    fn inode_of(&self, node: NodeId) -> Option<Fid> {
        self.fixture.files.0.inodes.by_node(node).map(|inode| inode.fid)
    }
}

impl Cluster {
    fn name_leads_to(&mut self, fid: Fid) {
        let root = self.directories.get_mut(&Fid::ROOT).expect("the root");
        root.insert("d".to_owned(), (1, fid, DIRECTORY));
    }
}

#[test]
fn a_directory_that_moves_again_and_again_keeps_its_number() {
    let (bench, known) = Bench::in_one_piece();
    let moves = [(BEFORE, MASTER), (MASTER, LATER[0]), (LATER[0], LATER[1])];
    for (at, (from, to)) in moves.into_iter().enumerate() {
        bench.cluster.lock().former.insert(0, from);
        bench.has_moved(from, to, 4 + at as u32);
        let found = entry(bench.look_up(NodeId::ROOT, "d"));
        assert_eq!((found.node, found.generation), (known.node, known.generation));
        assert_eq!(found.attributes.ino, inode_number(to), "as on any other client");
        assert_eq!(bench.inode_of(known.node), Some(to));
        let asked = bench.asked();
        assert_eq!(asked.iter().filter(|it| it.1 == "former").count(), 1, "{asked:?}");
        // It is known: nothing more is asked.
        bench.look_up(NodeId::ROOT, "d").expect("found");
        assert_eq!(bench.asked(), []);
    }
    let inodes = &bench.fixture.files.0.inodes;
    assert_eq!(inodes.by_node(NodeId(inode_number(LATER[1]))).map(|it| it.fid), None);
    // All lookups of all moves are forgotten by the one number.
    bench.fixture.files.forget(known.node, 6);
    assert!(bench.inode_of(known.node).is_some());
    bench.fixture.files.forget(known.node, 1);
    assert_eq!(bench.inode_of(known.node), None);
    // A file handle has the number still.
    let number = known.node;
    let found = bench.run(move |files, who| async move { files.by_number(&who, number).await });
    let found = found.expect("by its handle");
    assert_eq!((found.attributes.fid, found.generation), (LATER[1], known.generation));
}

#[test]
fn a_process_in_a_directory_that_moved_while_nothing_was_asked_goes_on() {
    for says in [true, false] {
        let (bench, known) = Bench::in_one_piece();
        let node = known.node;
        if says {
            bench.cluster.lock().former = vec![LATER[0], BEFORE];
        }
        bench.has_moved(BEFORE, LATER[1], 9);
        let stat = bench.run(move |files, who| async move { files.getattr(&who, node).await });
        match says {
            true => assert_eq!(stat.map(|stat| stat.attributes.fid), Ok(LATER[1])),
            // A Lustre server does not say what it was.
            false => assert_eq!(stat.map(|stat| stat.attributes.fid), Err(Errno::ESTALE)),
        }
    }
}

/// Each of the directories above is moved, too, while a program works below.
#[test]
fn a_file_is_made_in_a_directory_that_moves_while_what_is_above_moves() {
    let (bench, known) = Bench::in_one_piece();
    bench.cluster.lock().former = vec![BEFORE];
    bench.has_moved(BEFORE, MASTER, 4);
    bench.cluster.lock().refused = 5;
    bench.make_file(known.node, "f");
    assert_eq!((bench.cluster.lock().refused, bench.inode_of(known.node)), (0, Some(MASTER)));
}

#[test]
fn a_directory_that_has_the_name_of_another_one_has_its_own_number() {
    for version in [1, 9] {
        let (bench, known) = Bench::in_one_piece();
        bench.cluster.lock().former = vec![LATER[0]];
        bench.has_moved(BEFORE, MASTER, version);
        let found = entry(bench.look_up(NodeId::ROOT, "d"));
        assert_eq!(found.node, NodeId(inode_number(MASTER)));
        assert_ne!(found.node, known.node);
        let asks = bench.asked().iter().any(|it| it.1 == "former");
        assert_eq!(asks, version > 1, "what is made anew was no other one");
    }
}

/// The MDT can have removed what it was opened as, and knows of no other open.
#[test]
fn a_directory_that_has_moved_counts_as_open_until_what_was_opened_before_is_closed() {
    let (bench, known) = Bench::in_one_piece();
    let handles = [bench.open(known.node), bench.open(known.node)];
    let counts = |fid: Fid| {
        let inode = bench.fixture.files.0.inodes.by_fid(fid).expect("it is known");
        inode.state().is_removed_directory()
    };
    for (at, (from, to)) in [(BEFORE, MASTER), (MASTER, LATER[0])].into_iter().enumerate() {
        bench.cluster.lock().former.insert(0, from);
        bench.has_moved(from, to, 4 + at as u32);
        assert_eq!(entry(bench.look_up(NodeId::ROOT, "d")).node, known.node);
        assert!(counts(to));
    }
    for (handle, is_open) in handles.into_iter().zip([true, false]) {
        bench
            .run(move |files, _| async move { files.release(handle, None).await })
            .expect("closed");
        assert_eq!(counts(LATER[0]), is_open);
    }
}

#[test]
fn a_listing_ends_of_directories_that_have_taken_the_place_of_each_other() {
    let (bench, known) = Bench::in_one_piece();
    let handle = bench.open(known.node);
    let inodes = &bench.fixture.files.0.inodes;
    let other = inodes.pin(LATER[0]);
    inodes.by_fid(BEFORE).expect("it is known").state().directory.moved_to = Some(LATER[0]);
    other.state().directory.moved_to = Some(BEFORE);
    bench.cluster.lock().gone.extend([BEFORE, LATER[0]]);
    bench.revoke(BEFORE);
    let listed =
        bench.run(move |files, _| async move { files.readdir(handle, DirCookie(0), 9).await });
    assert_eq!(listed.err(), Some(Errno::ESTALE));
}

#[test]
fn a_name_that_is_found_by_another_number_than_its_directory_has_is_not_kept() {
    let (bench, known) = Bench::in_one_piece();
    let files = &bench.fixture.files.0;
    let directory = files.pin(known.node).expect("it is known");
    let text = name(&bench.name_in(1, 0));
    let file = Fid::new(0x2_0000_0401, 20);
    bench
        .cluster
        .lock()
        .directories
        .entry(BEFORE)
        .or_default()
        .insert(text.to_string(), (3, file, FILE));
    entry(bench.look_up(known.node, &text.to_string()));
    let child = files.inodes.pin(file);
    child.state().note_name_removed(known.node, &text);
    files.inodes.remember_name(&crate::cache::NamePlace::whole(&directory), &text, &child);
    for (node, is_kept) in [(LATER[0], false), (BEFORE, true)] {
        let at = NamedBy { asked: NodeId(inode_number(node)), parent: &directory, name: &text };
        assert_eq!(files.entry_of_new(at, &child).expect("an entry").keep.entry, is_kept);
        assert_eq!(child.state().keeps_name(known.node, &text), is_kept);
    }
}

#[test]
fn what_is_listed_and_not_looked_up_does_not_take_the_place_of_a_directory_that_is_known() {
    let (bench, known) = Bench::in_one_piece();
    bench.has_moved(BEFORE, MASTER, 4);
    let files = &bench.fixture.files.0;
    let (root, d) = (files.pin(NodeId::ROOT).expect("the root"), name("d"));
    let listed = |fid| crate::posix::DirEntry {
        name: (*b"d").into(),
        ino: inode_number(fid),
        fid,
        file_type: None,
        next: DirCookie(1),
    };
    assert!(files.entry_unseen(&root, &d, &listed(MASTER)).is_none());
    let same = files.entry_unseen(&root, &d, &listed(BEFORE)).expect("it is the same");
    assert_eq!(same.node, known.node);
}

/// So many questions are refused: what looks a name up makes 24 before it gives up, and then 6 more are made.
const REFUSALS: [u32; 3] = [5, 25, 29];

/// A call that changes names of a directory, which has moved.
#[derive(Clone, Copy, Debug)]
enum Change {
    Mkdir,
    Symlink,
    Mknod,
    OpenCreate,
    Link,
    Unlink,
    Rmdir,
    RenameFrom,
    RenameInto,
    RenameWithin,
}

impl Change {
    async fn run(
        self,
        files: crate::posix::FileSystem,
        who: Credentials,
        node: NodeId,
        file: NodeId,
    ) -> Result<(), Errno> {
        let (there, new) = (name("there"), name("new"));
        let replace = RenameMode::Replace;
        let make = |new: NewNode| async {
            files.make_node(&who, node, &name("new"), 0o755, new).await.map(drop)
        };
        match self {
            Self::Mkdir => make(NewNode::Directory).await,
            Self::Symlink => make(NewNode::Symlink((*b"there").into())).await,
            Self::Mknod => {
                make(NewNode::Node { file_type: crate::types::FileType::Fifo, rdev: 0 }).await
            }
            Self::OpenCreate => {
                let flags = OpenFlags(1 | OpenFlags::EXCLUSIVE);
                files.open_create(&who, node, &new, 0o644, flags).await.map(drop)
            }
            Self::Link => files.link(&who, file, node, &new).await.map(drop),
            Self::Unlink => files.unlink(&who, node, &there).await,
            Self::Rmdir => files.rmdir(&who, node, &there).await,
            Self::RenameFrom => {
                files.rename(&who, (node, &there), (NodeId::ROOT, &new), replace).await
            }
            Self::RenameInto => {
                files.rename(&who, (NodeId::ROOT, &name("file")), (node, &new), replace).await
            }
            Self::RenameWithin => files.rename(&who, (node, &there), (node, &new), replace).await,
        }
    }

    /// What is in the directory after it.
    fn leaves(self) -> &'static [&'static str] {
        match self {
            Self::Unlink | Self::Rmdir | Self::RenameFrom => &[],
            Self::RenameWithin => &["new"],
            _ => &["new", "there"],
        }
    }

    fn goes_on_where_the_directory_is(self) {
        REFUSALS.into_iter().for_each(|refusals| self.goes_on_after(refusals));
    }

    /// Makes it as the directory has moved, and the directory above refuses so many questions for its name.
    fn goes_on_after(self, refusals: u32) {
        let (bench, known) = Bench::in_one_piece();
        let file = (5, Fid::new(0x2_0000_0401, 50), FILE);
        {
            let mut cluster = bench.cluster.lock();
            cluster.former = vec![BEFORE];
            let root = cluster.directories.get_mut(&Fid::ROOT).expect("the root");
            root.insert("file".to_owned(), file);
        }
        let file = entry(bench.look_up(NodeId::ROOT, "file")).node;
        bench.has_moved(BEFORE, MASTER, 4);
        let stripe = {
            let mut cluster = bench.cluster.lock();
            let stripe = cluster.stripes()[0];
            let there = (7, Fid::new(0x2_4000_0401, 51), FILE);
            cluster.directories.insert(stripe, Names::from([("there".to_owned(), there)]));
            cluster.refused = refusals;
            stripe
        };
        let node = known.node;
        let done =
            bench.run(move |files, who| async move { self.run(files, who, node, file).await });
        let refused = bench.cluster.lock().refused;
        assert_eq!((done, refused), (Ok(()), 0), "{self:?} {refusals}");
        let cluster = bench.cluster.lock();
        let left: Vec<&str> = cluster.directories[&stripe].keys().map(|it| &it[..]).collect();
        assert_eq!(left, self.leaves());
    }
}

#[test]
fn a_directory_is_made_where_its_parent_is_that_moved_for_longer_than_the_call_asks() {
    Change::Mkdir.goes_on_where_the_directory_is();
}

#[test]
fn a_symbolic_link_is_made_where_its_parent_is_that_moved_for_longer_than_the_call_asks() {
    Change::Symlink.goes_on_where_the_directory_is();
}

#[test]
fn a_pipe_is_made_where_its_parent_is_that_moved_for_longer_than_the_call_asks() {
    Change::Mknod.goes_on_where_the_directory_is();
}

#[test]
fn a_new_file_is_opened_where_its_parent_is_that_moved_for_longer_than_the_call_asks() {
    Change::OpenCreate.goes_on_where_the_directory_is();
}

#[test]
fn a_file_is_linked_into_where_a_directory_is_that_moved_for_longer_than_the_call_asks() {
    Change::Link.goes_on_where_the_directory_is();
}

#[test]
fn a_file_is_removed_where_its_parent_is_that_moved_for_longer_than_the_call_asks() {
    Change::Unlink.goes_on_where_the_directory_is();
}

#[test]
fn a_directory_is_removed_where_its_parent_is_that_moved_for_longer_than_the_call_asks() {
    Change::Rmdir.goes_on_where_the_directory_is();
}

#[test]
fn a_file_is_renamed_where_its_parents_are_that_moved_for_longer_than_the_call_asks() {
    Change::RenameFrom.goes_on_where_the_directory_is();
    Change::RenameInto.goes_on_where_the_directory_is();
    Change::RenameWithin.goes_on_where_the_directory_is();
}
