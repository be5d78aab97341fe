//! The check of striped directories: what contradicts what, over two MDTs and with one of them missing.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, stripe_name};
use sheen_store::{AttributePatch, Attributes, FileKind, Transaction};
use sheen_store_mem::StoreMem;
use sheen_types::{Fid, MdtIndex};
use sheen_wire::lmv::{LmvHash, LmvMdsMd};

use super::checks::{apply, check_without, faults, says, with_two_mdts};
use crate::directory::{Child, key, value};
use crate::orphans::fid_key;
use crate::restripe::RESTRIPING;
use crate::{links, xattrs};

pub(super) const ROOT: Fid = Fid::ROOT;
pub(super) const REGULAR: FileKind = FileKind::Regular;
pub(super) const DIRECTORY: FileKind = FileKind::Directory;
/// The MDT of each stripe.
const MDTS: [usize; 3] = [0, 1, 1];

/// `/s` on MDT0000, with a stripe there and two on MDT0001; in it files and a directory, so that each stripe has a name.
pub(super) struct Tree {
    pub(super) stores: Vec<Arc<StoreMem>>,
    pub(super) master: Fid,
    pub(super) stripes: Vec<Fid>,
    pub(super) layout: DirectoryLayout,
    /// Of each stripe a file in it.
    pub(super) files: Vec<(String, Fid)>,
    /// The directory `/s/sub`, on MDT0001.
    pub(super) sub: Fid,
}

pub(super) fn layout_ea(layout: &DirectoryLayout) -> Bytes {
    layout.to_ea().encode()
}

impl Tree {
    pub(super) fn mdt_of(&self, fid: Fid) -> usize {
        usize::from(!self.stores[0].has(fid))
    }

    pub(super) fn store(&self, fid: Fid) -> &StoreMem {
        &self.stores[self.mdt_of(fid)]
    }

    pub(super) fn change(&self, fid: Fid, change: impl FnOnce(&mut Transaction)) {
        apply(self.store(fid), change);
    }

    pub(super) fn stripe_of(&self, name: &str) -> usize {
        self.layout.places(name.as_bytes()).expect("a known hash").now as usize
    }

    /// A name that hashes to this stripe.
    pub(super) fn name_in(&self, stripe: usize, prefix: &str) -> String {
        let names = (0..).map(|number| format!("{prefix}{number}"));
        names.into_iter().find(|name| self.stripe_of(name) == stripe).expect("one of many")
    }

    pub(super) fn stripe_name(&self, number: usize) -> String {
        stripe_name(self.stripes[number], number as u32)
    }

    /// Makes an inode, with its name.
    pub(super) fn make(&self, mdt: usize, fid: Fid, kind: FileKind, name: (Fid, &str)) {
        let count = if kind == DIRECTORY { 2 } else { 1 };
        apply(&self.stores[mdt], |change| {
            change.create(fid, Attributes { kind, links: count, ..Attributes::default() });
            change.set_xattr(fid, xattrs::LINK, links::first(name.0, name.1.as_bytes()));
        });
        self.put_name(name, Child { fid, kind });
    }

    pub(super) fn put_name(&self, (directory, name): (Fid, &str), child: Child) {
        let links_added = i32::from(child.kind == DIRECTORY && directory != self.master);
        self.change(directory, |change| {
            change.insert(directory, key(name.as_bytes()), value(child));
            change.patch(directory, AttributePatch { links_added, ..AttributePatch::default() });
        });
    }

    pub(super) fn delete_name(&self, directory: Fid, name: &str) {
        self.change(directory, |change| {
            change.delete(directory, key(name.as_bytes()));
        });
    }

    pub(super) fn set_layout(&self, fid: Fid, layout: &DirectoryLayout) {
        self.change(fid, |change| {
            change.set_xattr(fid, xattrs::LMV, layout_ea(layout));
        });
    }

    fn with(mut self, hash: LmvHash) -> Self {
        self.layout = DirectoryLayout::new(MdtIndex(0), hash, self.stripes.clone()).expect("one");
        self.make(0, self.master, DIRECTORY, (ROOT, "s"));
        self.set_layout(self.master, &self.layout);
        for (number, mdt) in MDTS.into_iter().enumerate() {
            let name = self.stripe_name(number);
            self.make(mdt, self.stripes[number], DIRECTORY, (self.master, &name));
            let own = self.layout.of_stripe(number as u32).expect("there is one");
            self.set_layout(self.stripes[number], &own);
            let file = (
                self.name_in(number, "file"),
                Fid::new(self.stripes[number].seq, 300 + number as u32),
            );
            self.make(mdt, file.1, REGULAR, (self.stripes[number], &file.0));
            self.files.push(file);
        }
        self.make(1, self.sub, DIRECTORY, (self.stripes[self.stripe_of("sub")], "sub"));
        self
    }
}

pub(super) fn with_striped(seed: u64, test: impl FnOnce(Tree) + Send + 'static) {
    with_two_mdts(seed, |made| {
        let of_mdt = |mdt: usize, oid| {
            Fid::new(if mdt == 0 { made.below.seq } else { made.directory.seq }, oid)
        };
        let stripes = MDTS.iter().zip(201..).map(|(mdt, oid)| of_mdt(*mdt, oid)).collect();
        let layout = DirectoryLayout::new(MdtIndex(0), LmvHash::CRUSH, vec![ROOT]).expect("one");
        let (master, sub) = (of_mdt(0, 200), of_mdt(1, 400));
        let tree = Tree { stores: made.stores, master, stripes, layout, files: Vec::new(), sub };
        let tree = tree.with(LmvHash::CRUSH);
        assert_eq!(faults(&tree.stores), []);
        test(tree);
    });
}

#[test]
fn a_striped_directory_is_sound_and_its_stripes_are_in_no_path() {
    with_striped(630, |tree| {
        let report = check_without(&tree.stores, &[]);
        assert_eq!((report.elsewhere, report.orphans.len()), (0, 0));
        for (name, fid) in &tree.files {
            assert_eq!(report.paths.of(*fid), format!("/s/{name}"));
        }
        assert_eq!(report.paths.of(tree.sub), "/s/sub");
    });
}

#[test]
fn stripes_of_an_mdt_that_is_not_there_are_counted_and_no_fault() {
    with_striped(631, |tree| {
        let all = check_without(&tree.stores, &[1]);
        let plain = 3;
        assert_eq!((all.faults, all.elsewhere), (vec![], plain + 2), "two stripes");
        // Their master is what is missing; what is in them is looked at.
        let second = check_without(&tree.stores, &[0]);
        assert_eq!(second.faults, []);
        tree.change(tree.stripes[1], |change| {
            let name = tree.name_in(0, "wrong");
            let child = Child { fid: tree.files[1].1, kind: REGULAR };
            change.insert(tree.stripes[1], key(name.as_bytes()), value(child));
        });
        let second = check_without(&tree.stores, &[0]);
        says(&second.faults, 1, tree.files[1].1, "its name belongs in stripe 0, not in 1");
    });
}

#[test]
fn a_name_in_another_stripe_than_it_hashes_to_is_reported() {
    with_striped(632, |tree| {
        let (name, fid) = tree.files[2].clone();
        tree.delete_name(tree.stripes[2], &name);
        tree.put_name((tree.stripes[0], &name), Child { fid, kind: REGULAR });
        tree.change(fid, |change| {
            change.set_xattr(fid, xattrs::LINK, links::first(tree.stripes[0], name.as_bytes()));
        });
        let found = faults(&tree.stores);
        says(&found, 0, fid, "its name belongs in stripe 2, not in 0");
        assert_eq!((found.len(), &found[0].path[..]), (1, &format!("/s/{name}")[..]));
    });
}

impl Tree {
    /// Says in all that the directory is being split from two stripes to three, as a server does.
    pub(super) fn split(&self) -> DirectoryLayout {
        let header = LmvMdsMd {
            hash_type: LmvHash(LmvHash::CRUSH.0 | LmvHash::MIGRATION | LmvHash::SPLIT),
            layout_version: 2,
            migrate_offset: 2,
            migrate_hash: LmvHash::FNV_1A_64,
            ..header_of(&self.layout)
        };
        let fids = self.stripes.clone();
        let changing = sheen_wire::lmv::LmvEa::Stripes { header, fids };
        let changing = DirectoryLayout::from_ea(&changing).expect("a layout");
        self.note(self.master, &changing);
        for (number, stripe) in (0..).zip(&self.stripes) {
            self.note(*stripe, &changing.of_stripe(number).expect("there is one"));
        }
        changing
    }

    fn note(&self, fid: Fid, layout: &DirectoryLayout) {
        self.set_layout(fid, layout);
        self.change(fid, |change| {
            change.insert(RESTRIPING, fid_key(fid), Bytes::new());
        });
    }

    /// This stripe has nothing to move any more.
    pub(super) fn is_through(&self, number: u32, changing: &DirectoryLayout) {
        let stripe = self.stripes[number as usize];
        let own = changing.of_stripe(number).expect("there is one");
        self.set_layout(stripe, &own.without_migration().expect("it changes"));
        self.forget(stripe);
    }

    pub(super) fn forget(&self, fid: Fid) {
        self.change(fid, |change| {
            change.delete(RESTRIPING, fid_key(fid));
        });
    }

    /// A name that moves from stripe 0 to stripe 2.
    pub(super) fn moving(&self, changing: &DirectoryLayout) -> String {
        let moves = |name: &String| {
            let places = changing.places(name.as_bytes()).expect("known hashes");
            places.now == 2 && places.before == Some(0)
        };
        let mut names = (0..).map(|number| format!("old{number}"));
        names.find(moves).expect("one of many")
    }
}

#[test]
fn while_names_move_they_may_lie_where_they_hashed_to() {
    with_striped(633, |tree| {
        let changing = tree.split();
        assert_eq!(faults(&tree.stores), []);
        let name = tree.moving(&changing);
        tree.make(0, Fid::new(tree.master.seq, 500), REGULAR, (tree.stripes[0], &name));
        assert_eq!(faults(&tree.stores), []);
        tree.make(0, Fid::new(tree.master.seq, 501), REGULAR, (tree.stripes[1], &name));
        says(
            &faults(&tree.stores),
            1,
            Fid::new(tree.master.seq, 501),
            "belongs in stripe 2, not in 1",
        );
    });
}

#[test]
fn a_directory_that_is_split_is_sound_at_each_step_and_what_contradicts_it_is_reported() {
    with_striped(638, |tree| {
        let changing = tree.split();
        // One stripe after the other is through.
        tree.is_through(2, &changing);
        assert_eq!(faults(&tree.stores), []);
        tree.forget(tree.stripes[0]);
        tree.forget(tree.master);
        let found = faults(&tree.stores);
        let lacks = "the index of such directories lacks it";
        says(&found, 0, tree.stripes[0], lacks);
        says(&found, 0, tree.master, lacks);
        let name = tree.moving(&changing);
        let file = Fid::new(tree.master.seq, 500);
        tree.make(0, file, REGULAR, (tree.stripes[0], &name));
        tree.put_name((tree.stripes[2], &name), Child { fid: file, kind: REGULAR });
        says(&faults(&tree.stores), 0, file, "its name is in stripe 2, and in 0, too");
        let own = tree.layout.of_stripe(1).expect("there is one");
        tree.set_layout(tree.stripes[1], &own);
        let disagree = "disagree on whether names are being moved";
        says(&faults(&tree.stores), 1, tree.stripes[1], disagree);
    });
}

fn header_of(layout: &DirectoryLayout) -> LmvMdsMd {
    match layout.to_ea() {
        sheen_wire::lmv::LmvEa::Stripes { header, .. } => header,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stripe_that_is_gone_is_reported_where_its_mdt_is() {
    with_striped(634, |tree| {
        let stripe = tree.stripes[1];
        apply(&tree.stores[1], |change| {
            change.destroy(stripe);
        });
        let found = faults(&tree.stores);
        says(&found, 0, stripe, "a name of an inode that is missing on MDT0001");
    });
}

#[test]
fn a_master_and_a_stripe_that_do_not_know_each_other_are_reported() {
    with_striped(635, |tree| {
        let (master, stripe) = (tree.master, tree.stripes[1]);
        tree.delete_name(master, &tree.stripe_name(1));
        let found = faults(&tree.stores);
        says(&found, 0, master, &format!("its stripe 1, {stripe}, has no name in it"));
        says(&found, 1, stripe, "no name leads to it");
        // In another directory it is one all the same.
        tree.put_name((ROOT, "t"), Child { fid: stripe, kind: DIRECTORY });
        tree.change(stripe, |change| {
            change.set_xattr(stripe, xattrs::LINK, links::first(ROOT, b"t"));
        });
        let found = faults(&tree.stores);
        says(&found, 0, master, "has no name in it");
        assert_eq!(found.len(), 1, "{found:?}");
        tree.change(master, |change| {
            change.remove_xattr(master, xattrs::LMV);
        });
        let found = faults(&tree.stores);
        for (stripe, mdt) in tree.stripes.iter().zip(MDTS) {
            says(&found, mdt as u16, *stripe, "it is a stripe, of no directory");
        }
        says(&found, 0, master, "it has 4 links and says 2");
    });
}

#[test]
fn what_a_stripe_says_of_itself_is_what_its_master_says() {
    with_striped(636, |tree| {
        let stripe = tree.stripes[2];
        let stripes = tree.stripes.clone();
        let fewer = DirectoryLayout::new(MdtIndex(0), LmvHash::CRUSH, stripes[..2].to_vec());
        let other_hash = DirectoryLayout::new(MdtIndex(0), LmvHash::ALL_CHARS, stripes);
        let wrong = [
            tree.layout.of_stripe(1),
            fewer.expect("two").of_stripe(1),
            other_hash.expect("three").of_stripe(2),
        ];
        for own in wrong {
            tree.set_layout(stripe, &own.expect("a stripe's"));
            says(&faults(&tree.stores), 1, stripe, "it does not say that it is stripe 2 of");
        }
        tree.change(stripe, |change| {
            change.remove_xattr(stripe, xattrs::LMV);
        });
        let found = faults(&tree.stores);
        says(&found, 1, stripe, "it does not say that it is stripe 2 of");
        assert_eq!(found.len(), 1, "{found:?}");
        tree.change(stripe, |change| {
            change.set_xattr(stripe, xattrs::LMV, Bytes::from_static(b"no layout"));
        });
        says(&faults(&tree.stores), 1, stripe, "its stripes cannot be read");
    });
}

#[test]
fn a_master_has_the_names_of_its_stripes_alone() {
    with_striped(637, |tree| {
        let master = tree.master;
        let (stray, fifo) = (Fid::new(master.seq, 500), FileKind::Fifo);
        tree.make(0, stray, fifo, (master, "stray"));
        says(
            &faults(&tree.stores),
            0,
            stray,
            "its name is in a striped directory, and in no stripe",
        );
        tree.delete_name(master, "stray");
        // Well formed, and of no stripe.
        let name = stripe_name(stray, 1);
        tree.put_name((master, &name), Child { fid: stray, kind: fifo });
        says(&faults(&tree.stores), 0, stray, "the name of stripe 1, and the directory's layout");
        tree.delete_name(master, &name);
        let name = tree.stripe_name(1);
        tree.delete_name(master, &name);
        tree.put_name((master, &name), Child { fid: stray, kind: fifo });
        says(&faults(&tree.stores), 0, stray, "its name is that of stripe [");
    });
}

#[test]
fn layouts_with_stripes_that_are_lost_or_twice_or_of_no_known_hash_are_reported() {
    with_striped(638, |tree| {
        let master = tree.master;
        let [first, second, _] = tree.stripes[..] else { panic!("three") };
        let lay = |hash, stripes: Vec<Fid>| {
            let layout = DirectoryLayout::new(MdtIndex(0), hash, stripes).expect("a layout");
            tree.set_layout(master, &layout);
            faults(&tree.stores)
        };
        let found = lay(LmvHash::CRUSH, vec![first, second, Fid::ZERO]);
        says(&found, 0, master, "its stripe 2 is lost");
        let found = lay(LmvHash::CRUSH, vec![first, second, first]);
        says(&found, 0, master, "its stripes 0 and 2 are the same");
        let found = lay(LmvHash(77), tree.stripes.clone());
        says(&found, 0, master, "unknown hash type 0x4d");
        tree.change(master, |change| {
            change.set_xattr(master, xattrs::LMV, Bytes::from_static(b"no layout"));
        });
        says(&faults(&tree.stores), 0, master, "its stripes cannot be read");
    });
}

#[test]
fn links_of_masters_and_stripes_are_counted_each_for_itself() {
    with_striped(639, |tree| {
        let with_sub = tree.stripes[tree.stripe_of("sub")];
        let links = AttributePatch { links_added: 1, ..AttributePatch::default() };
        tree.change(tree.master, |change| {
            change.patch(tree.master, links.clone());
        });
        tree.change(with_sub, |change| {
            change.patch(with_sub, links);
        });
        let found = faults(&tree.stores);
        says(&found, 0, tree.master, "it has 2 links and says 3");
        says(&found, tree.mdt_of(with_sub) as u16, with_sub, "it has 3 links and says 4");
        assert_eq!(found.len(), 2, "{found:?}");
    });
}

#[test]
fn a_stripe_has_the_owner_the_mode_the_access_lists_and_the_defaults_of_its_master() {
    with_striped(640, |tree| {
        let [first, second, third] = tree.stripes[..] else { panic!("three") };
        tree.change(first, |change| {
            change.patch(first, AttributePatch { uid: Some(7), ..AttributePatch::default() });
        });
        tree.change(second, |change| {
            let permissions = Some(0o1777);
            change.patch(second, AttributePatch { permissions, ..AttributePatch::default() });
        });
        tree.change(third, |change| {
            change.set_xattr(third, xattrs::ACL_ACCESS, Bytes::from_static(b"a list"));
        });
        tree.change(tree.stripes[2], |change| {
            change.set_xattr(third, xattrs::DEFAULT_LMV, Bytes::from_static(b"a default"));
        });
        let found = faults(&tree.stores);
        for (stripe, mdt) in tree.stripes.iter().zip(MDTS) {
            says(&found, mdt as u16, *stripe, "its owner, mode, access lists or defaults are not");
        }
        assert_eq!(found.len(), 3, "{found:?}");
    });
}
