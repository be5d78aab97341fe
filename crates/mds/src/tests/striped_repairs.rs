//! What a repair of striped directories puts in order, and what it leaves alone.

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, stripe_name};
use sheen_store::{AttributePatch, Store};
use sheen_types::{Fid, MdtIndex, fid_seq};
use sheen_wire::lmv::LmvHash;

use super::checks::{apply, check_without, faults, says};
use super::repairs::{child, repair, repair_once};
use super::striped_checks::{DIRECTORY, REGULAR, ROOT, Tree, with_striped};
use crate::directory::Child;
use crate::{Rebuilt, WhyLost, links, xattrs};

const LOST_AND_FOUND: Fid = Fid { seq: fid_seq::DOT_LUSTRE, oid: 3, ver: 0 };

/// What all stripes hold, and what the directory says of them, is what was made.
fn is_whole(tree: &Tree) {
    for (number, (name, file)) in tree.files.iter().enumerate() {
        let stripe = tree.stripes[number];
        assert_eq!(child(&tree.stores, tree.mdt_of(stripe), stripe, name), Some(*file));
        let in_master = child(&tree.stores, 0, tree.master, &tree.stripe_name(number));
        assert_eq!(in_master, Some(stripe));
    }
    let layout = tree.stores[0].xattr(tree.master, xattrs::LMV).expect("a look");
    assert_eq!(layout, Some(tree.layout.to_ea().encode()));
}

fn total(done: &[Rebuilt]) -> Rebuilt {
    let mut all = Rebuilt::default();
    for done in done {
        all.names += done.names;
        all.moved += done.moved;
        all.corrected += done.corrected;
        all.directories.extend(&done.directories);
        all.stripes.extend(&done.stripes);
        all.found.extend(&done.found);
        all.lost.extend(done.lost.iter().cloned());
    }
    all
}

#[test]
fn a_striped_directory_that_is_in_order_stays_as_it_is() {
    with_striped(650, |tree| {
        assert_eq!(total(&repair(&tree.stores)), Rebuilt::default());
        is_whole(&tree);
    });
}

#[test]
fn a_name_in_the_wrong_stripe_or_in_the_master_goes_to_the_right_one() {
    with_striped(651, |tree| {
        let [(first, _), (second, file), (third, other)] = &tree.files[..] else { panic!("three") };
        for ((name, fid), number, to) in
            [((second, *file), 1, tree.stripes[0]), ((third, *other), 2, tree.master)]
        {
            tree.delete_name(tree.stripes[number], name);
            tree.put_name((to, name), Child { fid, kind: REGULAR });
            tree.change(fid, |change| {
                change.set_xattr(fid, xattrs::LINK, links::first(to, name.as_bytes()));
            });
        }
        // One that a repair which ended in between left in both.
        tree.put_name((tree.stripes[1], first), Child { fid: tree.files[0].1, kind: REGULAR });
        let done = total(&repair(&tree.stores));
        assert_eq!((done.moved, done.names, done.lost.len(), done.found.len()), (2, 0, 0, 0));
        is_whole(&tree);
    });
}

#[test]
fn a_directory_that_is_split_is_put_in_order_and_goes_on() {
    with_striped(661, |tree| {
        let changing = tree.split();
        tree.is_through(2, &changing);
        assert_eq!(total(&repair(&tree.stores)), Rebuilt::default(), "it is in order");
        // Its name is where it was and where it goes to; and one that only is where it was.
        let name = tree.moving(&changing);
        let file = Fid::new(tree.master.seq, 500);
        tree.make(0, file, REGULAR, (tree.stripes[0], &name));
        assert_eq!(total(&repair(&tree.stores)), Rebuilt::default(), "it is in order");
        tree.put_name((tree.stripes[2], &name), Child { fid: file, kind: REGULAR });
        tree.forget(tree.stripes[0]);
        tree.set_layout(tree.stripes[1], &tree.layout.of_stripe(1).expect("there is one"));
        let done = total(&repair(&tree.stores));
        assert_eq!((done.names, done.lost.len(), done.found.len()), (0, 0, 0));
        assert_eq!(faults(&tree.stores), []);
        assert_eq!(child(&tree.stores, 0, tree.stripes[0], &name), None);
        assert_eq!(child(&tree.stores, 1, tree.stripes[2], &name), Some(file));
        let layout = |fid| tree.store(fid).xattr(fid, xattrs::LMV).expect("a look");
        assert_eq!(layout(tree.master), Some(changing.to_ea().encode()));
        let own = changing.of_stripe(1).expect("there is one");
        assert_eq!(layout(tree.stripes[1]), Some(own.to_ea().encode()), "it is gone through");
        // What the master has lost comes back from stripes of which one is through.
        tree.change(tree.master, |change| {
            change.remove_xattr(tree.master, xattrs::LMV);
        });
        repair(&tree.stores);
        assert_eq!(layout(tree.master), Some(changing.to_ea().encode()));
        assert_eq!(faults(&tree.stores), []);
    });
}

#[test]
fn a_name_that_is_anothers_where_it_belongs_is_lost_or_its_inode_found() {
    with_striped(652, |tree| {
        let (name, file) = tree.files[1].clone();
        let new = Fid::new(tree.master.seq, 500);
        tree.make(0, new, REGULAR, (tree.stripes[0], &name));
        // With another name.
        let other = tree.files[0].clone();
        tree.put_name((tree.stripes[2], &name), Child { fid: other.1, kind: REGULAR });
        let done = total(&repair(&tree.stores));
        assert_eq!((done.found, done.moved), (vec![new], 0));
        let lost: Vec<_> = done.lost.iter().map(|it| (it.parent, &it.name[..], it.why)).collect();
        assert_eq!(lost, [(tree.master, &name[..], WhyLost::Taken)]);
        assert_eq!(child(&tree.stores, 0, LOST_AND_FOUND, &new.to_string()), Some(new));
        assert_eq!(child(&tree.stores, 1, tree.stripes[1], &name), Some(file));
        is_whole(&tree);
    });
}

#[test]
fn a_stripe_that_is_lost_is_made_again_with_the_names_that_inodes_know() {
    with_striped(653, |tree| {
        let stripe = tree.stripes[1];
        tree.change(tree.master, |change| {
            let (uid, permissions) = (Some(7), Some(0o751));
            change.patch(tree.master, AttributePatch { uid, permissions, ..Default::default() });
        });
        for stripe in [tree.stripes[0], tree.stripes[2]] {
            tree.change(stripe, |change| {
                let (uid, permissions) = (Some(7), Some(0o751));
                change.patch(stripe, AttributePatch { uid, permissions, ..Default::default() });
            });
        }
        apply(&tree.stores[1], |change| {
            change.destroy(stripe);
        });
        let done = repair(&tree.stores);
        assert_eq!((&done[1].stripes[..], &done[1].directories[..]), (&[stripe][..], &[][..]));
        assert_eq!(done[1].found, []);
        let attributes = tree.stores[1].recorded_attributes(stripe).expect("it is there");
        assert_eq!((attributes.uid, attributes.permissions), (7, 0o751));
        is_whole(&tree);
    });
}

#[test]
fn stripes_and_masters_that_do_not_know_each_other_do_again() {
    with_striped(654, |tree| {
        let [first, second, third] = tree.stripes[..] else { panic!("three") };
        // One without its name, one with another name, one that says nothing of itself.
        tree.delete_name(tree.master, &tree.stripe_name(0));
        tree.delete_name(tree.master, &tree.stripe_name(1));
        tree.put_name((tree.master, "other"), Child { fid: second, kind: DIRECTORY });
        tree.change(third, |change| {
            change.remove_xattr(third, xattrs::LMV);
            change.patch(third, AttributePatch { gid: Some(9), ..Default::default() });
        });
        tree.change(first, |change| {
            let number = tree.layout.of_stripe(2).expect("there is one").to_ea().encode();
            change.set_xattr(first, xattrs::LMV, number);
            change.set_xattr(first, xattrs::ACL_DEFAULT, Bytes::from_static(b"a list"));
        });
        let done = total(&repair(&tree.stores));
        assert_eq!((done.found.len(), done.directories.len(), done.stripes.len()), (0, 0, 0));
        is_whole(&tree);
    });
}

#[test]
fn a_layout_that_a_master_has_lost_comes_back_from_all_its_stripes() {
    with_striped(655, |tree| {
        tree.change(tree.master, |change| {
            change.remove_xattr(tree.master, xattrs::LMV);
        });
        repair(&tree.stores);
        is_whole(&tree);
        tree.change(tree.master, |change| {
            change.set_xattr(tree.master, xattrs::LMV, Bytes::from_static(b"no layout"));
        });
        repair(&tree.stores);
        is_whole(&tree);
        // With the master itself, and its names; of the root's it is known by its name alone.
        apply(&tree.stores[0], |change| {
            change.destroy(tree.master);
        });
        let done = total(&repair(&tree.stores));
        assert_eq!(done.directories, [tree.master]);
        is_whole(&tree);
        assert_eq!(child(&tree.stores, 0, ROOT, "s"), Some(tree.master));
    });
}

#[test]
fn stripes_without_their_master_are_plain_directories() {
    with_striped(656, |tree| {
        let lost = tree.stripes[0];
        tree.change(tree.master, |change| {
            change.remove_xattr(tree.master, xattrs::LMV);
        });
        tree.delete_name(tree.master, &tree.stripe_name(0));
        apply(&tree.stores[0], |change| {
            change.destroy(lost);
        });
        let done = total(&repair(&tree.stores));
        assert_eq!((done.lost.len(), done.stripes.len()), (0, 0));
        // What was in the lost one has no other directory.
        assert_eq!((done.directories, done.found), (vec![lost], vec![lost]));
        let report = check_without(&tree.stores, &[]);
        assert_eq!(report.faults, []);
        for number in [1, 2] {
            let (name, file) = &tree.files[number];
            let stripe = tree.stripe_name(number);
            assert_eq!(report.paths.of(*file), format!("/s/{stripe}/{name}"));
        }
        assert_eq!(
            report.paths.of(tree.files[0].1),
            format!("/lost+found/{lost}/{}", tree.files[0].0)
        );
    });
}

#[test]
fn stripes_whose_master_is_gone_with_a_stripe_go_to_lost_and_found() {
    with_striped(657, |tree| {
        tree.delete_name(ROOT, "s");
        for fid in [tree.master, tree.stripes[0]] {
            apply(&tree.stores[0], |change| {
                change.destroy(fid);
            });
        }
        let done = total(&repair(&tree.stores));
        let mut found = done.found.clone();
        found.sort_unstable();
        assert_eq!(found, [tree.master, tree.stripes[0]], "both are made again, of what they held");
        let report = check_without(&tree.stores, &[]);
        for number in [1, 2] {
            let (name, file) = &tree.files[number];
            let path = format!("/lost+found/{}/{}/{name}", tree.master, tree.stripe_name(number));
            assert_eq!(report.paths.of(*file), path);
        }
    });
}

#[test]
fn a_circle_through_a_stripe_is_opened_at_the_master() {
    with_striped(658, |tree| {
        // Into its own subdirectory.
        tree.delete_name(ROOT, "s");
        tree.put_name((tree.sub, "up"), Child { fid: tree.master, kind: DIRECTORY });
        tree.change(tree.master, |change| {
            change.set_xattr(tree.master, xattrs::LINK, links::first(tree.sub, b"up"));
        });
        repair(&tree.stores);
        is_whole(&tree);
    });
}

/// Nothing says what its FID was; and a stripe of its own is not taken from another directory.
#[test]
fn what_the_layout_has_lost_and_what_is_another_directorys_is_reported_and_stays() {
    with_striped(659, |tree| {
        let [first, second, _] = tree.stripes[..] else { panic!("three") };
        let plain = Fid::new(tree.master.seq, 500);
        tree.make(0, plain, DIRECTORY, (ROOT, "plain"));
        for lost in [Fid::ZERO, plain] {
            let stripes = vec![first, second, lost];
            let layout = DirectoryLayout::new(MdtIndex(0), LmvHash::CRUSH, stripes);
            tree.set_layout(tree.master, &layout.expect("a layout"));
            repair_once(&tree.stores);
            let found = faults(&tree.stores);
            let said = match lost == plain {
                true => format!("its stripe 2, {plain}, has no name in it"),
                false => "its stripe 2 is lost".to_owned(),
            };
            says(&found, 0, tree.master, &said);
            assert_eq!(child(&tree.stores, 0, ROOT, "plain"), Some(plain));
            assert_eq!(child(&tree.stores, 0, tree.master, &stripe_name(plain, 2)), None);
            let again = total(&repair_once(&tree.stores));
            assert_eq!(again, Rebuilt::default());
        }
    });
}
