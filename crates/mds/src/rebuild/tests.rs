use sheen_store_mem::{MemOptions, StoreMem};
use sheen_types::fid_seq;

use super::*;
use crate::check;

const A: Fid = Fid::new(fid_seq::NORMAL + 1, 1);
const B: Fid = Fid::new(fid_seq::NORMAL + 1, 2);
const C: Fid = Fid::new(fid_seq::NORMAL + 1, 3);
const F: Fid = Fid::new(fid_seq::NORMAL + 7, 4);
const G: Fid = Fid::new(fid_seq::NORMAL + 1, 5);
/// Not there at first.
const MORE: Fid = Fid::new(fid_seq::NORMAL + 1, 6);

struct TestTree {
    store: StoreMem,
}

impl TestTree {
    /// `/a/b/c`, the file `/a/b/f` that is `/g` as well, the file `/a/g`.
    fn new() -> Self {
        let tree = Self { store: StoreMem::new(MemOptions::default()) };
        let config = crate::MdtConfig::new("lustre", 0, Timestamp::default(), [0; 16]);
        crate::root::format(&tree.store, &config).expect("a root is made");
        tree.make(A, FileKind::Directory, &[(Fid::ROOT, "a")]);
        tree.make(B, FileKind::Directory, &[(A, "b")]);
        tree.make(C, FileKind::Directory, &[(B, "c")]);
        tree.make(F, FileKind::Regular, &[(B, "f"), (Fid::ROOT, "g")]);
        tree.make(G, FileKind::Regular, &[(A, "g")]);
        assert_eq!(tree.faults(), []);
        tree
    }

    fn apply(&self, change: impl FnOnce(&mut Transaction)) {
        let mut transaction = Transaction::new();
        change(&mut transaction);
        self.store.apply(transaction).expect("apply works");
    }

    fn make(&self, fid: Fid, kind: FileKind, names: &[(Fid, &'static str)]) {
        let links = if kind == FileKind::Directory { 2 } else { names.len() as u32 };
        let names = names.iter().map(|(parent, name)| (*parent, Bytes::from(*name)));
        let names: Vec<_> = names.collect();
        self.apply(|change| {
            change.create(fid, Attributes { kind, links, ..Attributes::default() });
            change.set_xattr(fid, xattrs::LINK, links::of(&names));
            for (parent, name) in names {
                let value = directory::value(Child { fid, kind });
                change.insert(parent, directory::key(&name), value);
                if kind == FileKind::Directory {
                    let links_added = 1;
                    let patch = AttributePatch { links_added, ..AttributePatch::default() };
                    change.patch(parent, patch);
                }
            }
        });
    }

    fn unname(&self, parent: Fid, name: &'static str) {
        self.apply(|change| {
            change.delete(parent, directory::key(name.as_bytes()));
        });
    }

    fn destroy(&self, fid: Fid) {
        self.apply(|change| {
            change.destroy(fid);
        });
    }

    fn faults(&self) -> Vec<crate::Fault> {
        check(&self.store).expect("the check runs").faults
    }

    fn rebuild(&self) -> Rebuilt {
        let all = [Fid::ROOT, LOST_AND_FOUND, A, B, C, F, G, MORE];
        let is_there = |fid: &Fid| self.store.attributes(*fid).is_ok();
        let objects: Vec<Fid> = all.into_iter().filter(is_there).collect();
        let has_keys = |fid: &Fid| !self.store.scan(*fid, &[], 1).expect("scan").is_empty();
        let indexes: Vec<Fid> = all.into_iter().filter(has_keys).collect();
        let done = rebuild(&self.store, &objects, &indexes, Timestamp::default());
        let done = done.expect("rebuild works");
        let report = check(&self.store).expect("the check runs");
        assert_eq!(report.faults, [], "{done:?}");
        assert_eq!(report.inodes, done.inodes, "the root leads to all");
        done
    }

    fn at(&self, path: &str) -> Option<Fid> {
        path.split('/').try_fold(Fid::ROOT, |at, name| {
            let found = directory::find(&self.store, at, name.as_bytes());
            found.expect("lookup works").map(|child| child.fid)
        })
    }
}

#[test]
fn what_is_in_order_stays_as_it_is() {
    let tree = TestTree::new();
    let done = tree.rebuild();
    assert_eq!(done, Rebuilt { inodes: 6, ..Rebuilt::default() });
}

#[test]
fn names_come_back_from_the_inodes_that_know_them() {
    let tree = TestTree::new();
    for (parent, name) in [(Fid::ROOT, "a"), (B, "c"), (B, "f"), (Fid::ROOT, "g"), (A, "g")] {
        tree.unname(parent, name);
    }
    let done = tree.rebuild();
    assert_eq!((done.names, done.found.len(), done.lost.len()), (5, 0, 0));
    assert_eq!((tree.at("a/b/f"), tree.at("g")), (Some(F), Some(F)));
    assert_eq!((tree.at("a/b/c"), tree.at("a/g")), (Some(C), Some(G)));
}

#[test]
fn a_directory_that_is_lost_is_made_again_of_those_that_name_it() {
    let tree = TestTree::new();
    // With them go their entries: only those below say where they lay.
    tree.destroy(B);
    tree.destroy(A);
    tree.unname(Fid::ROOT, "a");
    let done = tree.rebuild();
    assert_eq!((done.directories.len(), done.lost.len()), (2, 0));
    // Nothing records what they were called.
    assert_eq!(done.found, [A, B]);
    assert_eq!(tree.at(&format!("lost+found/{B}/c")), Some(C));
    assert_eq!(tree.at(&format!("lost+found/{A}/g")), Some(G));
    assert_eq!(tree.at("g"), Some(F));
}

#[test]
fn what_nothing_names_is_found_and_names_of_nothing_go() {
    let tree = TestTree::new();
    tree.unname(A, "g");
    tree.apply(|change| {
        change.remove_xattr(G, xattrs::LINK);
    });
    tree.destroy(F);
    tree.unname(Fid::ROOT, "a");
    tree.apply(|change| {
        change.remove_xattr(A, xattrs::LINK);
    });
    let done = tree.rebuild();
    assert_eq!(done.found, [A, G]);
    let lost: Vec<_> = done.lost.iter().map(|lost| (lost.parent, &lost.name[..])).collect();
    assert_eq!(lost.len(), 2);
    assert!(lost.contains(&(B, "f")) && lost.contains(&(Fid::ROOT, "g")), "{lost:?}");
    assert_eq!(tree.at(&format!("lost+found/{A}/b/c")), Some(C));
}

#[test]
fn an_entry_that_is_not_where_its_name_belongs_gives_way_to_the_name_of_its_inode() {
    let tree = TestTree::new();
    tree.unname(A, "g");
    let key = directory::key(b"g").to_vec();
    let key: Bytes = [&key[..8], b"w"].concat().into();
    let value = directory::value(Child { fid: G, kind: FileKind::Regular });
    tree.apply(|change| {
        change.insert(A, key, value);
    });
    let done = tree.rebuild();
    assert_eq!((done.names, done.lost.len()), (1, 1));
    assert_eq!(tree.at("a/g"), Some(G));
}

#[test]
fn a_circle_of_directories_is_opened_and_a_second_name_taken() {
    let tree = TestTree::new();
    let value = |fid| directory::value(Child { fid, kind: FileKind::Directory });
    tree.unname(Fid::ROOT, "a");
    tree.apply(|change| {
        change.insert(C, directory::key(b"up"), value(A));
        change.insert(Fid::ROOT, directory::key(b"b-too"), value(B));
        let names = [(C, Bytes::from("up"))];
        change.set_xattr(A, xattrs::LINK, links::of(&names));
    });
    // The check within finds one name of each directory, and a way from the root to all.
    let done = tree.rebuild();
    assert_eq!((done.inodes, done.lost.len()), (7, 0), "with lost+found");
    assert_eq!(tree.at("g"), Some(F));
}

/// `/lost+found`, with `/a` in it by its FID.
fn with_lost_and_found() -> TestTree {
    let tree = TestTree::new();
    tree.unname(Fid::ROOT, "a");
    tree.apply(|change| {
        change.remove_xattr(A, xattrs::LINK);
    });
    assert_eq!(tree.rebuild().found, [A]);
    tree
}

#[test]
fn lost_and_found_that_has_lost_its_name_gets_one_and_is_not_put_into_itself() {
    let tree = with_lost_and_found();
    tree.unname(Fid::ROOT, "lost+found");
    // Its name is another inode's, and it does not know a name.
    tree.make(MORE, FileKind::Regular, &[(Fid::ROOT, "lost+found")]);
    tree.apply(|change| {
        change.remove_xattr(LOST_AND_FOUND, xattrs::LINK);
    });
    let done = tree.rebuild();
    assert_eq!((done.found, done.names), (vec![], 1), "all that is in it is reached again");
    assert_eq!(tree.at("lost+found"), Some(MORE));
    assert_eq!(tree.at(&format!("lost+found-{LOST_AND_FOUND}/{A}/b/c")), Some(C));
    assert_eq!(tree.rebuild().names, 0);
}

#[test]
fn lost_and_found_in_a_directory_that_is_lost_gets_a_name_in_the_root() {
    let tree = with_lost_and_found();
    tree.unname(Fid::ROOT, "lost+found");
    tree.make(MORE, FileKind::Directory, &[]);
    let value = directory::value(Child { fid: LOST_AND_FOUND, kind: FileKind::Directory });
    tree.apply(|change| {
        change.insert(MORE, directory::key(b"moved"), value);
        change.set_xattr(LOST_AND_FOUND, xattrs::LINK, links::first(MORE, b"moved"));
    });
    assert_eq!(tree.rebuild().found, [MORE]);
    assert_eq!(tree.at(&format!("lost+found/{A}/b/c")), Some(C));
    assert_eq!(tree.at(&format!("lost+found/{MORE}")), Some(MORE));
    assert_eq!(tree.at(&format!("lost+found/{MORE}/moved")), None);
}

#[test]
fn lost_and_found_in_a_circle_is_taken_out_of_it() {
    let tree = with_lost_and_found();
    tree.unname(Fid::ROOT, "lost+found");
    let value = directory::value(Child { fid: LOST_AND_FOUND, kind: FileKind::Directory });
    tree.apply(|change| {
        change.insert(C, directory::key(b"up"), value);
        change.set_xattr(LOST_AND_FOUND, xattrs::LINK, links::first(C, b"up"));
    });
    assert_eq!(tree.rebuild().found, [] as [Fid; 0]);
    assert_eq!(tree.at(&format!("lost+found/{A}/b/c")), Some(C));
}

#[test]
fn what_is_found_gets_another_name_where_its_own_is_taken() {
    let tree = with_lost_and_found();
    for name in [format!("{G}"), format!("{G}.1"), format!("{B}")] {
        let value = directory::value(Child { fid: F, kind: FileKind::Regular });
        tree.apply(|change| {
            change.insert(LOST_AND_FOUND, directory::key(name.as_bytes()), value);
        });
    }
    // A file without a name, and a circle of two directories.
    tree.unname(A, "g");
    tree.unname(A, "b");
    tree.apply(|change| {
        change.remove_xattr(G, xattrs::LINK);
        let value = directory::value(Child { fid: B, kind: FileKind::Directory });
        change.insert(C, directory::key(b"up"), value);
        change.set_xattr(B, xattrs::LINK, links::first(C, b"up"));
    });
    assert_eq!(tree.rebuild().found, [B, G]);
    assert_eq!(tree.at(&format!("lost+found/{G}.2")), Some(G));
    assert_eq!(tree.at(&format!("lost+found/{B}.1/c")), Some(C));
    assert_eq!(tree.at(&format!("lost+found/{G}")), Some(F), "it stays");
}

/// All files of an OST were lost, and the record of the last object with them.
#[test]
fn objects_of_an_ost_that_nothing_is_known_of_are_passed_over_too() {
    let tree = TestTree::new();
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(tree.store);
    let load = || crate::sequences::Sequences::load(std::sync::Arc::clone(&store), 0);
    let range = load().unwrap().of(3, sheen_wire::fld::SeqRangeFlags::OST).unwrap();
    let mut change = Transaction::new();
    placement::put_used(&mut change, 5, 70);
    store.apply(change).unwrap();
    skip_used_objects(&*store).unwrap();
    let mut used = placement::last_used(&*store).unwrap();
    used.sort_unstable();
    assert_eq!(used, [(3, SKIPPED_IDS), (5, SKIPPED_IDS + 70)]);
    assert_eq!(load().unwrap().of(3, sheen_wire::fld::SeqRangeFlags::OST).unwrap(), range);
}

#[test]
fn no_sequence_or_object_in_use_is_given_out_again() {
    let tree = TestTree::new();
    tree.rebuild();
    let next = tree
        .store
        .lookup(Fid::new(fid_seq::LOCAL_FILE, 0x200), b"\xff\xff\xff\xff\xff\xff\xff\xffnext");
    let next = next.expect("lookup works").expect("it is noted");
    assert_eq!(u64::from_le_bytes(next[..].try_into().expect("a number")), F.seq + 1);
}
