//! Directories that move to other MDTs.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::directory::{
    DirectoryLayout, DirectoryWish, FORMER, Holder, LayoutChange, WishedStripes, read_former,
    stripe_name,
};
use sheen_store::{Store, Transaction};
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid, InodeBits, LockMode, MdtIndex};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::lmv::{LmvEa, LmvHash};
use sheen_wire::md::{AttrValid, Bias, MdsOpenFlags, MdtBody, RecRename, ReintOp, Valid};
use sheen_wire::messages::{
    LdlmCancel, LdlmEnqueue, MdsGetRoot, MdsGetxattr, MdsReadpage, MdsReintMigrate, Reply,
};
use sheen_wire::out::UpdateType;
use sheen_wire::text::Text;

use super::harness::{Client, DIRECTORY, REGULAR, run};
use super::over_mdts::Scene;

const ROOT: Fid = Fid::ROOT;

/// `lfs migrate -m FIRST -c COUNT`.
pub(super) fn to(first: u16, count: u32) -> DirectoryWish {
    DirectoryWish {
        stripes: WishedStripes::Count(std::num::NonZeroU32::new(count).expect("some")),
        first: Some(MdtIndex(first)),
        hash: LmvHash(LmvHash::FIXED),
        ..DirectoryWish::default()
    }
}

/// A request for a name of a directory; `new` is the FID that is chosen for the inode.
pub(super) fn migrate_request(
    client: &Client,
    (parent, name): (Fid, &str),
    new: Fid,
    wish: &DirectoryWish,
) -> MdsReintMigrate {
    let rename = client.rename_request((parent, name), (new, ""));
    let rec_reint = RecRename { opcode: ReintOp::MIGRATE, ..rename.rec_reint };
    let (name, eadata) = (Some(Text::new(name)), wish.to_ea().encode());
    MdsReintMigrate { rec_reint, name, eadata, ..MdsReintMigrate::default() }
}

pub(super) fn layout(bytes: &Bytes) -> DirectoryLayout {
    DirectoryLayout::from_ea(&LmvEa::decode(bytes).expect("a layout")).expect("a layout")
}

pub(super) fn stripes(layout: &DirectoryLayout) -> Vec<Fid> {
    match layout.holder() {
        Holder::Master { stripes, .. } => stripes.to_vec(),
        Holder::Stripe { .. } => panic!("a stripe"),
    }
}

impl Scene {
    /// What an MDT answers to a migration; the FID that was chosen.
    pub(super) async fn migrate(
        &self,
        mdt: usize,
        place: (Fid, &str),
        wish: &DirectoryWish,
    ) -> Result<Fid, Errno> {
        let client = &self.clients[mdt];
        let new = client.next_fid();
        client.modify(migrate_request(client, place, new, wish)).await.map(|_| new)
    }

    /// Moves names only.
    async fn move_name(&self, mdt: usize, place: (Fid, &str)) -> Result<(), Errno> {
        let client = &self.clients[mdt];
        let mut request = migrate_request(client, place, client.next_fid(), &to(0, 1));
        request.rec_reint.bias = Bias::MIGRATE_NSONLY;
        client.modify(request).await.map(drop)
    }

    pub(super) async fn end(&self, master: Fid, wish: &DirectoryWish) -> Result<(), Errno> {
        let client = &self.clients[self.mdt_of(master)];
        client.setxattr(master, "trusted.lmv", Some(&wish.to_ea().encode()), 0).await
    }

    pub(super) async fn layout(&self, master: Fid) -> DirectoryLayout {
        let client = &self.clients[self.mdt_of(master)];
        layout(&client.getxattr(master, "trusted.lmv").await.expect("a layout"))
    }

    /// What a name stands for in a directory.
    pub(super) async fn child(&self, directory: Fid, name: &str) -> Option<Fid> {
        let mdt = if directory == ROOT { 0 } else { self.mdt_of(directory) };
        let (_, found) = self.clients[mdt].lookup(directory, name).await;
        let fid = found.mdt_body.unwrap_or_default().fid1;
        (!fid.is_zero()).then_some(fid)
    }
}

#[test]
fn a_directory_migrates_with_all_that_is_in_it_and_is_whole_at_any_moment() {
    let world = TestWorld::new(900);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let before = scene.links(0, ROOT).await.expect("the root");
        let d = here.mkdir(ROOT, "d").await.expect("made");
        here.setxattr(d, "user.x", Some(b"1"), 0).await.expect("set");
        let owner = AttrValid::UID | AttrValid::MODE | AttrValid::CTIME;
        here.setattr(d, owner, |it| (it.uid, it.mode, it.ctime) = (7, 0o750, 1_500))
            .await
            .expect("set");
        let file = here.make(d, "f", REGULAR | 0o640).await.expect("made");
        here.setxattr(file, "user.y", Some(b"2"), 0).await.expect("set");
        here.symlink(d, "l").await.expect("made");
        let below = here.mkdir(d, "s").await.expect("made");
        here.make(below, "b", REGULAR | 0o644).await.expect("made");
        let wish = to(1, 1);
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        // The name leads to the new master, on the other MDT, with all that it was.
        assert_eq!(scene.child(ROOT, "d").await, Some(master));
        assert_eq!(scene.links(0, ROOT).await, Ok(before + 1));
        let body = there.getattr(master).await.expect("it is there");
        assert_eq!((body.uid, body.mode & 0o7777, body.nlink), (7, 0o750, 2));
        assert_eq!(there.getxattr(master, "user.x").await, Ok(Bytes::from_static(b"1")));
        let begun = scene.layout(master).await;
        assert_eq!((begun.change(), begun.version()), (Some(LayoutChange::Migration), 2));
        let all = stripes(&begun);
        assert_eq!(all.iter().map(|it| scene.mdt_of(*it)).collect::<Vec<_>>(), [1, 0]);
        let (target, source) = (all[0], all[1]);
        assert_eq!(source, d, "it is a stripe from now on");
        for (number, stripe) in (0..).zip([target, source]) {
            let mdt = scene.mdt_of(stripe);
            let own = scene.clients[mdt].getxattr(stripe, "trusted.lmv").await.expect("a layout");
            assert_eq!(Some(layout(&own)), begun.of_stripe(number));
            let link = scene.servers[mdt].mdt.links(stripe).expect("it is there");
            let named = stripe_name(stripe, number).into_bytes();
            assert_eq!((link.entries.len(), link.entries[0].parent), (1, master));
            assert_eq!(&link.entries[0].name[..], &named[..]);
        }
        assert_eq!(scene.names(0, source).await, ["f", "l", "s"]);
        assert_eq!(scene.links(0, source).await, Ok(3));
        // The same again, and another wish.
        assert_eq!(scene.migrate(1, (ROOT, "d"), &wish).await, Err(Errno::EALREADY));
        assert_eq!(scene.migrate(0, (ROOT, "d"), &to(0, 1)).await, Err(Errno::EPERM));
        assert_eq!(scene.end(master, &wish).await, Err(Errno::ENOTEMPTY));
        // A file goes with its inode, a symlink, too, and a directory begins to.
        let moved = scene.migrate(0, (master, "f"), &wish).await.map(drop);
        assert_eq!(moved, Ok(()));
        assert_eq!(scene.child(source, "f").await, None);
        let new = scene.child(target, "f").await.expect("it is there");
        assert_eq!(scene.mdt_of(new), 1);
        let body = there.getattr(new).await.expect("it is there");
        assert_eq!((body.mode & 0o7777, body.nlink), (0o640, 1));
        assert_eq!(there.getxattr(new, "user.y").await, Ok(Bytes::from_static(b"2")));
        assert_eq!(here.getattr(file).await.map(drop), Err(Errno::ENOENT));
        assert_eq!(scene.migrate(0, (master, "f"), &wish).await, Err(Errno::EALREADY));
        assert_eq!(scene.migrate(0, (master, "x"), &wish).await, Err(Errno::ENOENT));
        scene.migrate(0, (master, "l"), &wish).await.expect("moved");
        assert_eq!(scene.names(1, target).await, ["f", "l"]);
        let new = scene.migrate(1, (master, "s"), &wish).await.expect("it begins");
        assert_eq!(scene.child(target, "s").await, Some(new));
        assert_eq!((scene.links(0, source).await, scene.links(1, target).await), (Ok(2), Ok(3)));
        let (_, up) = there.lookup(new, "..").await;
        assert_eq!(up.mdt_body.expect("a body").fid1, master);
        scene.migrate(0, (new, "b"), &wish).await.expect("moved");
        scene.end(new, &wish).await.expect("it ends");
        assert_eq!(here.getattr(below).await.map(drop), Err(Errno::ENOENT));
        // All are there.
        scene.end(master, &wish).await.expect("it ends");
        let ended = scene.layout(master).await;
        assert_eq!((ended.change(), ended.version(), stripes(&ended)), (None, 3, vec![target]));
        assert_eq!(ended.hash(), LmvHash(LmvHash::FNV_1A_64.0 | LmvHash::FIXED));
        let own = there.getxattr(target, "trusted.lmv").await.expect("a layout");
        assert_eq!(Some(layout(&own)), ended.of_stripe(0));
        assert_eq!(here.getattr(d).await.map(drop), Err(Errno::ENOENT));
        assert_eq!(scene.end(master, &wish).await, Err(Errno::EALREADY));
        assert_eq!(scene.migrate(1, (ROOT, "d"), &wish).await, Err(Errno::EALREADY));
        // And back, to two stripes.
        let both = to(0, 2);
        let back = scene.migrate(0, (ROOT, "d"), &both).await.expect("it begins");
        assert_eq!(there.getattr(master).await.map(drop), Err(Errno::ENOENT));
        let begun = scene.layout(back).await;
        let all = stripes(&begun);
        assert_eq!(all.iter().map(|it| scene.mdt_of(*it)).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!((all[2], begun.version()), (target, 2));
        let (_, up) = there.lookup(target, "..").await;
        assert_eq!(up.mdt_body.expect("a body").fid1, back);
        for name in ["f", "l", "s"] {
            let now = all[begun.places(name.as_bytes()).expect("known").now as usize];
            match (name, scene.mdt_of(now)) {
                ("s", mdt) => {
                    let own = DirectoryWish { first: Some(MdtIndex(mdt as u16)), ..both.clone() };
                    scene.migrate(mdt, (back, name), &own).await.expect("it begins");
                }
                _ => drop(scene.migrate(1, (back, name), &both).await.expect("moved")),
            }
            assert!(scene.child(now, name).await.is_some(), "{name}");
        }
        scene.end(back, &both).await.expect("it ends");
        assert_eq!(there.getattr(target).await.map(drop), Err(Errno::ENOENT));
        assert_eq!(stripes(&scene.layout(back).await), all[..2]);
        assert_eq!(scene.links(0, ROOT).await, Ok(before + 1));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_name_is_added_where_it_belongs_and_nowhere_else_while_its_directory_migrates() {
    let world = TestWorld::new(901);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = here.mkdir(ROOT, "d").await.expect("made");
        for name in ["a", "b"] {
            here.make(d, name, REGULAR | 0o644).await.expect("made");
        }
        let wish = to(1, 1);
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        let all = stripes(&scene.layout(master).await);
        let (target, source) = (all[0], all[1]);
        let other = there.make(target, "other", REGULAR | 0o644).await.expect("made");
        let far = scene.mkdir(1, ROOT, "far").await;
        let away = there.make(far, "away", REGULAR | 0o644).await.expect("made");
        // What is in the old stripe exists.
        assert_eq!(there.make(target, "a", REGULAR | 0o644).await, Err(Errno::EEXIST));
        assert_eq!(there.mkdir(target, "a").await, Err(Errno::EEXIST));
        assert_eq!(there.symlink(target, "a").await, Err(Errno::EEXIST));
        assert_eq!(there.link(other, target, "a").await, Err(Errno::EEXIST));
        assert_eq!(there.link(away, target, "a").await, Err(Errno::EEXIST));
        let striped = super::striped::wishing(
            there.create_request(target, "a", DIRECTORY | 0o777),
            &super::striped::wish(2),
        );
        assert_eq!(there.modify(striped).await.map(drop), Err(Errno::EEXIST));
        let exclusive = MdsOpenFlags::CREAT | MdsOpenFlags::EXCL | MdsOpenFlags::READ;
        assert_eq!(there.open(target, "a", exclusive).await.map(drop), Err(Errno::EEXIST));
        assert_eq!(there.create(target, "a").await.map(drop), Err(Errno::ESTALE), "opened there");
        // A directory of MDT0000 with its name in the other MDT's stripe.
        assert_eq!(here.mkdir(target, "a").await, Err(Errno::EEXIST));
        // It is replaced where it is.
        let renamed = there.rename((target, "other"), (target, "a")).await;
        assert_eq!(renamed, Err(Errno::ESTALE));
        let renamed = there.rename((far, "away"), (target, "a")).await;
        assert_eq!(renamed, Err(Errno::ESTALE));
        let renamed = here.rename((source, "b"), (target, "a")).await;
        assert_eq!(renamed, Err(Errno::ESTALE));
        // Nothing new comes to the old one.
        assert_eq!(here.make(source, "n", REGULAR | 0o644).await, Err(Errno::ESTALE));
        assert_eq!(here.mkdir(source, "n").await, Err(Errno::ESTALE));
        assert_eq!(here.create(source, "n").await.map(drop), Err(Errno::ESTALE));
        assert_eq!(here.rename((source, "b"), (source, "n")).await, Err(Errno::ESTALE));
        assert_eq!(there.rename((target, "other"), (source, "n")).await, Err(Errno::ESTALE));
        // All else is done: two requests to the MDT of the old stripe, and none where the master is here.
        scene.forget_sent();
        there.make(target, "new", REGULAR | 0o644).await.expect("made");
        inner.settle().await;
        let sent: Vec<_> = scene.sent(1, 0).concat();
        assert_eq!(sent, [UpdateType::EXCLUDE, UpdateType::RELEASE]);
        there.mkdir(target, "sub").await.expect("made");
        there.symlink(target, "l").await.expect("made");
        there.link(other, target, "second").await.expect("made");
        let opened = there.open(target, "opened", exclusive).await.expect("made");
        there.close(&opened).await.expect("closed");
        here.mkdir(target, "remote").await.expect("made");
        there.rename((target, "other"), (target, "renamed")).await.expect("moved");
        there.rename((target, "renamed"), (target, "new")).await.expect("replaced");
        here.rename((source, "b"), (target, "b2")).await.expect("moved");
        let mut names = scene.names(1, target).await;
        names.sort();
        assert_eq!(names, ["b2", "l", "new", "opened", "remote", "second", "sub"]);
        // What is replaced in the old stripe is replaced, and removed.
        there.rename((target, "second"), (source, "a")).await.map_or_else(
            |errno| assert_eq!(errno, Errno::EXDEV, "its MDT is named"),
            |()| panic!("the inode that goes is another MDT's"),
        );
        here.rename((target, "second"), (source, "a")).await.expect("replaced");
        here.unlink(source, "a").await.map_or_else(
            |errno| assert_eq!(errno, Errno::EREMOTE),
            |()| panic!("the inode is another MDT's"),
        );
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn what_has_other_names_or_is_in_use_stays_where_it_is_and_its_name_moves() {
    let world = TestWorld::new(902);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let linked = here.make(d, "one", REGULAR | 0o644).await.expect("made");
        here.link(linked, d, "two").await.expect("made");
        let used = here.make(d, "used", REGULAR | 0o644).await.expect("made");
        let opened = here.open(d, "used", MdsOpenFlags::READ).await.expect("opened");
        here.mkdir(d, "sub").await.expect("made");
        let wish = to(1, 1);
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        let all = stripes(&scene.layout(master).await);
        let (target, source) = (all[0], all[1]);
        scene.migrate(0, (master, "one"), &wish).await.expect("moved");
        assert_eq!(scene.child(target, "one").await, Some(linked), "it has a name there");
        assert_eq!(scene.links(0, linked).await, Ok(2));
        // With the last name on its MDT it goes, and all names lead to it.
        scene.migrate(0, (master, "two"), &wish).await.expect("moved");
        let new = scene.child(target, "two").await.expect("it is there");
        assert_eq!((scene.mdt_of(new), scene.child(target, "one").await), (1, Some(new)));
        assert_eq!(scene.links(1, new).await, Ok(2));
        assert_eq!(scene.links(0, linked).await, Err(Errno::ENOENT));
        let names = scene.servers[1].mdt.links(new).expect("known").entries;
        let mut names: Vec<_> = names.into_iter().map(|it| (it.parent, it.name)).collect();
        names.sort();
        let expected = ["one", "two"].map(|it| (target, Bytes::from_static(it.as_bytes())));
        assert_eq!(names, expected);
        // What is open stays, and works.
        scene.migrate(0, (master, "used"), &wish).await.expect("moved");
        assert_eq!(scene.child(target, "used").await, Some(used));
        assert_eq!(scene.child(source, "used").await, None);
        here.close(&opened).await.expect("closed");
        assert_eq!(scene.links(0, used).await, Ok(1));
        // Names only.
        assert_eq!(scene.move_name(0, (master, "used")).await, Err(Errno::EALREADY));
        let sub = scene.child(source, "sub").await.expect("it is there");
        scene.move_name(1, (master, "sub")).await.expect("moved");
        assert_eq!(scene.child(target, "sub").await, Some(sub));
        assert_eq!((scene.links(0, source).await, scene.links(1, target).await), (Ok(2), Ok(3)));
        scene.end(master, &wish).await.expect("it ends");
        // An inode goes after its name: the name stays where it is.
        let file = scene.clients[0].getattr(used).await.map(|it| it.nlink);
        assert_eq!(file, Ok(1));
        scene.migrate(0, (master, "used"), &wish).await.expect("moved");
        let new = scene.child(target, "used").await.expect("it is there");
        assert_eq!((scene.mdt_of(new), scene.links(0, used).await), (1, Err(Errno::ENOENT)));
        assert_eq!(there.getattr(new).await.map(|it| it.nlink), Ok(1));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn migrations_that_cannot_be_are_refused_by_name() {
    let world = TestWorld::new(903);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let wish = to(1, 1);
        for dot in [".", ".."] {
            assert_eq!(scene.migrate(1, (d, dot), &wish).await, Err(Errno::EBUSY));
        }
        assert_eq!(scene.migrate(1, (ROOT, ".lustre"), &wish).await, Err(Errno::EPERM));
        assert_eq!(scene.migrate(1, (ROOT, "x"), &wish).await, Err(Errno::ENOENT));
        assert_eq!(scene.migrate(1, (ROOT, "d"), &to(9, 1)).await, Err(Errno::ENODEV));
        let user = there.as_user(7, 7);
        let request = migrate_request(&user, (ROOT, "d"), user.next_fid(), &wish);
        assert_eq!(user.modify(request).await.map(drop), Err(Errno::EPERM));
        // The FID is another MDT's, or another client's.
        for new in [here.next_fid(), Fid::new(there.sequence + 1, 1), Fid::ZERO] {
            let request = migrate_request(there, (ROOT, "d"), new, &wish);
            assert_eq!(there.modify(request).await.map(drop), Err(Errno::EINVAL), "{new}");
        }
        let mut request = migrate_request(there, (ROOT, "d"), there.next_fid(), &wish);
        request.eadata = Bytes::from_static(b"no wish at all");
        assert_eq!(there.modify(request).await.map(drop), Err(Errno::EINVAL));
        scene.servers[1].mdt.migrate_directories(false);
        assert_eq!(scene.migrate(1, (ROOT, "d"), &wish).await, Err(Errno::EPERM));
        scene.servers[1].mdt.migrate_directories(true);
        // Not all are there that are wished: the same wish could not end it.
        scene.servers[0].mdt.set_read_only(true);
        inner.sleep(std::time::Duration::from_secs(5)).await;
        assert_eq!(scene.migrate(1, (ROOT, "d"), &to(1, 2)).await, Err(Errno::ENOSPC));
        scene.servers[0].mdt.set_read_only(false);
        inner.sleep(std::time::Duration::from_secs(5)).await;
        // More than there are are cut.
        let far = there.mkdir(ROOT, "far").await.expect("made");
        let cut = scene.migrate(1, (ROOT, "far"), &to(1, 9)).await.expect("it begins");
        assert_eq!(stripes(&scene.layout(cut).await).len(), 3);
        assert_eq!(scene.migrate(1, (ROOT, "far"), &to(1, 9)).await, Err(Errno::EALREADY));
        scene.end(cut, &to(1, 9)).await.expect("it ends");
        let each = DirectoryWish {
            stripes: WishedStripes::OnEachMdt(std::num::NonZeroU32::MIN),
            ..to(0, 1)
        };
        let all = scene.migrate(0, (ROOT, "far"), &each).await.expect("it begins");
        assert_eq!(stripes(&scene.layout(all).await).len(), 4);
        assert_eq!(scene.migrate(0, (ROOT, "far"), &each).await, Err(Errno::EALREADY));
        scene.end(all, &each).await.expect("it ends");
        assert_eq!(there.getattr(far).await.map(drop), Err(Errno::ENOENT));
        // It lies so.
        assert_eq!(scene.migrate(0, (ROOT, "d"), &to(0, 1)).await, Err(Errno::EALREADY));
        // A file in a directory that does not change is where it belongs.
        here.make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        assert_eq!(scene.migrate(0, (ROOT, "f"), &wish).await, Err(Errno::EALREADY));
        assert_eq!(scene.end(d, &wish).await, Err(Errno::EALREADY));
        here.make(d, "inside", REGULAR | 0o644).await.expect("made");
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        scene.servers[0].mdt.set_remote_directories_gid(u32::MAX);
        let user = here.as_user(7, 7);
        let mut request = migrate_request(&user, (master, "inside"), user.next_fid(), &wish);
        assert_eq!(user.modify(request.clone()).await.map(drop), Err(Errno::EACCES));
        request.rec_reint.bias = Bias::MIGRATE_NSONLY;
        assert_eq!(user.modify(request).await.map(drop), Err(Errno::EACCES));
        scene.servers[0].mdt.set_remote_directories_gid(0);
        here.unlink(d, "inside").await.expect("removed");
        assert_eq!(scene.end(master, &to(1, 2)).await, Err(Errno::EINVAL));
        // Its old FID is a stripe now.
        assert_eq!(scene.end(d, &wish).await, Err(Errno::ESTALE));
        let refused = there.as_user(7, 7);
        let value = wish.to_ea().encode();
        let refused = refused.setxattr(master, "trusted.lmv", Some(&value), 0).await;
        assert_eq!(refused, Err(Errno::EPERM));
        // It is removed while it migrates.
        let (errno, _) = scene.remove(1, (ROOT, "d"), master, DIRECTORY).await;
        assert_eq!(errno, None);
        assert_eq!(here.getattr(d).await.map(drop), Err(Errno::ENOENT));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn what_is_mounted_is_found_in_the_stripe_of_before() {
    let world = TestWorld::new(904);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = &scene.clients[0];
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let names: Vec<_> = (0..8).map(|number| format!("s{number}")).collect();
        for name in &names {
            here.mkdir(d, name).await.expect("made");
        }
        let master = scene.migrate(0, (ROOT, "d"), &to(0, 2)).await.expect("it begins");
        let begun = scene.layout(master).await;
        let now = |name: &str| begun.places(name.as_bytes()).expect("known").now;
        let here_too: Vec<_> = names.iter().filter(|name| now(name) == 0).collect();
        assert!(!here_too.is_empty(), "some hash to MDT0000");
        for name in here_too {
            let child = scene.child(d, name).await.expect("it is there");
            let path = Some(Text::new(format!("d/{name}")));
            let request = MdsGetRoot { name: path, ..MdsGetRoot::default() };
            let Some(Reply::MdsGetRoot(reply)) = here.inner.call(request).await.reply else {
                panic!("{name} is not found")
            };
            assert_eq!(reply.mdt_body.expect("a body").fid1, child);
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_migration_costs_few_requests_between_mdts() {
    let world = TestWorld::new(905);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = &scene.clients[0];
        for name in ["first", "d"] {
            let d = here.mkdir(ROOT, name).await.expect("made");
            for file in ["f", "g"] {
                here.make(d, file, REGULAR | 0o644).await.expect("made");
            }
        }
        let wish = to(1, 1);
        // Of the first one sequences of FIDs are asked for.
        let first = scene.migrate(1, (ROOT, "first"), &wish).await.expect("it begins");
        scene.migrate(0, (first, "f"), &wish).await.expect("moved");
        scene.settle(&inner).await;
        let sent = async || {
            inner.settle().await;
            let sent = |from, to| -> Vec<UpdateType> { scene.sent(from, to).concat() };
            (sent(0, 1), sent(1, 0))
        };
        scene.forget_sent();
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        let begun = [
            // How the parent lies, what the name stands for, and how that lies.
            UpdateType::XATTR_GET,
            UpdateType::INDEX_LOOKUP,
            UpdateType::XATTR_GET,
            // The rename lock, and the rest.
            UpdateType::EXCLUDE,
            UpdateType::EXCLUDE,
            UpdateType::XATTR_LIST,
            UpdateType::RECORD,
            UpdateType::RELEASE,
            UpdateType::RELEASE,
        ];
        assert_eq!(sent().await, (vec![], begun.to_vec()));
        scene.migrate(0, (master, "f"), &wish).await.expect("moved");
        let two = [UpdateType::EXCLUDE, UpdateType::RECORD, UpdateType::RELEASE];
        let looked = [&[UpdateType::XATTR_GET][..], &two].concat();
        assert_eq!(sent().await, (looked.clone(), vec![]));
        scene.move_name(0, (master, "g")).await.expect("moved");
        assert_eq!(sent().await, (looked, vec![]));
        scene.end(master, &wish).await.expect("it ends");
        assert_eq!(sent().await, (vec![], two.to_vec()));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// While names move, and when it begins to, other clients add and remove the same ones.
#[test]
fn a_name_is_in_one_stripe_whatever_is_done_with_it_while_it_moves() {
    let world = TestWorld::new(906);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let wish = to(1, 1);
        for times in 0..60 {
            let (here, there) = (scene.clients[0].clone(), scene.clients[1].clone());
            let (named, added) = (format!("d{times}"), times % 3);
            let d = here.mkdir(ROOT, &named).await.expect("made");
            here.make(d, "f", REGULAR | 0o644).await.expect("made");
            let master = there.next_fid();
            let begin = migrate_request(&there, (ROOT, &named), master, &wish);
            let beginning = there.clone();
            let begin = async move { drop(beginning.modify(begin).await.expect("it begins")) };
            inner.world().tasks.spawn("begin", Box::pin(begin));
            super::lost_mdts::yield_times(times).await;
            let early = here.make(d, "early", REGULAR | 0o644).await;
            assert!(matches!(early, Ok(_) | Err(Errno::ESTALE)), "{early:?}");
            inner.sleep(std::time::Duration::from_secs(1)).await;
            let all = stripes(&scene.layout(master).await);
            let names = scene.names(0, d).await;
            assert_eq!(names.contains(&"early".to_owned()), early.is_ok(), "{times}");
            let move_it = migrate_request(&here, (master, "f"), here.next_fid(), &wish);
            let moving = here.clone();
            let move_it = async move { drop(moving.modify(move_it).await) };
            inner.world().tasks.spawn("move", Box::pin(move_it));
            super::lost_mdts::yield_times(times).await;
            match added {
                0 => {
                    let made = there.make(all[0], "f", REGULAR | 0o644).await;
                    assert_eq!(made, Err(Errno::EEXIST), "{times}");
                }
                1 => drop(here.unlink(d, "f").await),
                _ => drop(here.rename((d, "f"), (all[0], "g")).await),
            }
            inner.sleep(std::time::Duration::from_secs(1)).await;
            let places = [scene.names(0, d).await, scene.names(1, all[0]).await].concat();
            let of = |name: &str| places.iter().filter(|it| *it == name).count();
            assert_eq!(of("f") + of("g"), usize::from(added != 1 || of("f") == 1), "{places:?}");
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn what_waits_for_the_begin_of_a_migration_is_added_to_no_stripe_of_before() {
    let world = TestWorld::new(907);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (scene.clients[0].clone(), scene.clients[1].clone());
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let file = here.make(ROOT, "f", REGULAR | 0o644).await.expect("made");
        scene.settle(&inner).await;
        scene.way(1, 0).hold(Some(UpdateType::RECORD));
        let begin = migrate_request(&there, (ROOT, "d"), there.next_fid(), &to(1, 1));
        let begin = async move { drop(there.modify(begin).await.expect("it begins")) };
        inner.world().tasks.spawn("begin", Box::pin(begin));
        inner.sleep(std::time::Duration::from_secs(1)).await;
        let refused = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        for kind in 0..5 {
            let (client, refused) = (here.clone(), refused.clone());
            let add = async move {
                let done = match kind {
                    0 => client.make(d, "n0", REGULAR | 0o644).await.map(drop),
                    1 => client.link(file, d, "n1").await,
                    2 => client.create(d, "n2").await.map(drop),
                    3 => client.rename((ROOT, "f"), (d, "n3")).await,
                    _ => client.mkdir(d, "n4").await.map(drop),
                };
                refused.lock().push((kind, done));
            };
            inner.world().tasks.spawn("add", Box::pin(add));
        }
        inner.sleep(std::time::Duration::from_secs(1)).await;
        assert!(refused.lock().is_empty(), "it is excluded");
        scene.way(1, 0).hold(None);
        inner.sleep(std::time::Duration::from_secs(5)).await;
        let mut refused = refused.lock().clone();
        refused.sort_by_key(|(kind, _)| *kind);
        let expected = (0..5).map(|kind| (kind, Err(Errno::ESTALE))).collect::<Vec<_>>();
        assert_eq!(refused, expected);
        assert_eq!(scene.names(0, d).await, [] as [&str; 0]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// A name may lead nowhere, be in two stripes, or be missing in the list of an inode's names: nothing is tried for ever.
#[test]
fn what_is_damaged_is_moved_alone_or_refused() {
    let world = TestWorld::new(908);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = &scene.clients[0];
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let file = here.make(d, "f", REGULAR | 0o644).await.expect("made");
        for name in ["gone", "twice"] {
            here.make(d, name, REGULAR | 0o644).await.expect("made");
        }
        let far = scene.mkdir(1, d, "far").await;
        let wish = to(1, 1);
        let apply = |mdt: usize, change: Transaction| {
            scene.servers[mdt].store.apply(change).expect("applied");
        };
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        let target = stripes(&scene.layout(master).await)[0];
        // An inode with a name in its list that is nowhere.
        let mut links = scene.servers[0].mdt.links(file).expect("known");
        crate::links::add(&mut links, target, &sheen_types::Name::new(b"absent").expect("a name"));
        let mut change = Transaction::new();
        change.set_xattr(file, "trusted.link", links.encode());
        let more = sheen_store::AttributePatch { links_added: 1, ..Default::default() };
        change.patch(file, more);
        apply(0, change);
        scene.migrate(0, (master, "f"), &wish).await.expect("moved");
        assert_eq!(scene.child(target, "f").await, Some(file), "its name alone");
        // A name of an inode that is lost, here and on the other MDT.
        let gone = scene.child(d, "gone").await.expect("it is there");
        let mut change = Transaction::new();
        change.destroy(gone);
        apply(0, change);
        scene.migrate(0, (master, "gone"), &wish).await.expect("moved");
        assert_eq!(scene.names(1, target).await, ["f", "gone"]);
        let mut change = Transaction::new();
        change.destroy(far);
        apply(1, change);
        scene.migrate(1, (master, "far"), &wish).await.expect("moved");
        assert_eq!(scene.names(1, target).await, ["f", "far", "gone"]);
        // One in both.
        let twice = crate::directory::find(&*scene.servers[0].store, d, b"twice");
        let twice = twice.expect("it can be read").expect("it is there");
        let mut change = Transaction::new();
        let (key, value) = (crate::directory::key(b"twice"), crate::directory::value(twice));
        change.insert(target, key, value);
        apply(1, change);
        assert_eq!(scene.migrate(0, (master, "twice"), &wish).await, Err(Errno::EEXIST));
    };
    run(test, &world);
}

#[test]
fn what_waits_for_the_end_of_a_migration_is_added() {
    let world = TestWorld::new(909);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (scene.clients[0].clone(), scene.clients[1].clone());
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let wish = to(1, 1);
        let master = scene.migrate(1, (ROOT, "d"), &wish).await.expect("it begins");
        let target = stripes(&scene.layout(master).await)[0];
        let file = there.make(target, "file", REGULAR | 0o644).await.expect("made");
        let far = here.make(ROOT, "far", REGULAR | 0o644).await.expect("made");
        scene.settle(&inner).await;
        // When the stripe of before is excluded, the end waits for a lock on the master.
        let reader = scene.servers[1].client("reader").await;
        let dlm_req = reader.dlm(master, LockMode::Pr, InodeBits::UPDATE);
        let mine = dlm_req.handles[0];
        let answer = reader.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
        let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{answer:?}") };
        let lock = reply.dlm_rep.expect("a lock").handle;
        reader.keep(mine, lock);
        reader.hold_on();
        let value = wish.to_ea().encode();
        let ending = there.clone();
        let end = async move {
            let ended = ending.setxattr(master, "trusted.lmv", Some(&value), 0).await;
            ended.expect("it ends");
        };
        inner.world().tasks.spawn("end", Box::pin(end));
        inner.sleep(std::time::Duration::from_secs(1)).await;
        let done = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        for kind in 0..7 {
            let (here, there, done) = (here.clone(), there.clone(), done.clone());
            let add = async move {
                let added = match kind {
                    0 => there.make(target, "n0", REGULAR | 0o644).await.map(drop),
                    1 => there.link(file, target, "n1").await,
                    2 => {
                        let flags = MdsOpenFlags::CREAT | MdsOpenFlags::READ;
                        there.open(target, "n2", flags).await.map(drop)
                    }
                    3 => there.rename((target, "file"), (target, "n3")).await,
                    4 => there.link(far, target, "n4").await,
                    5 => here.mkdir(target, "n5").await.map(drop),
                    _ => {
                        let request = there.create_request(target, "n6", DIRECTORY | 0o755);
                        let wish = super::striped::wish(2);
                        there.modify(super::striped::wishing(request, &wish)).await.map(drop)
                    }
                };
                done.lock().push((kind, added));
            };
            inner.world().tasks.spawn("add", Box::pin(add));
        }
        inner.sleep(std::time::Duration::from_secs(1)).await;
        assert!(done.lock().is_empty(), "{:?}", done.lock());
        let dlm_req = LdlmRequest::cancel(vec![lock]);
        reader.inner.call(LdlmCancel { dlm_req, ..LdlmCancel::default() }).await;
        inner.sleep(std::time::Duration::from_secs(5)).await;
        let mut done = done.lock().clone();
        done.sort_by_key(|(kind, _)| *kind);
        assert_eq!(done, (0..7).map(|kind| (kind, Ok(()))).collect::<Vec<_>>());
        assert_eq!(here.getattr(d).await.map(drop), Err(Errno::ENOENT));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// The end is applied on the MDT of the master, and not on the other MDTs: nothing is decided by what clients do not see yet.
#[test]
fn a_name_that_is_added_while_a_migration_ends_is_added() {
    let world = TestWorld::new(907);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let d = scene.mkdir(0, ROOT, "d").await;
        let listed = DirectoryWish { mdts: [1, 2].map(MdtIndex).into(), ..to(1, 2) };
        let master = scene.migrate(1, (ROOT, "d"), &listed).await.expect("it begins");
        let begun = scene.layout(master).await;
        let all = stripes(&begun);
        assert_eq!((all[2], scene.mdt_of(all[1])), (d, 2));
        let hashes = |name: &String| begun.places(name.as_bytes()).expect("known").now == 1;
        let name = (0..).map(|number| format!("n{number}")).find(hashes).expect("one of many");
        scene.way(1, 2).hold(Some(UpdateType::RECORD));
        let (client, value) = (scene.clients[1].clone(), listed.to_ea().encode());
        let end = async move { client.setxattr(master, "trusted.lmv", Some(&value), 0).await };
        inner.world().tasks.spawn("end", Box::pin(async move { end.await.expect("it ends") }));
        inner.sleep(std::time::Duration::from_secs(1)).await;
        let made = Arc::new(Mutex::new(None));
        let (client, stripe, answered) = (scene.clients[2].clone(), all[1], Arc::clone(&made));
        let make = async move {
            *answered.lock() = Some(client.make(stripe, &name, REGULAR | 0o644).await.map(drop));
        };
        inner.world().tasks.spawn("make", Box::pin(make));
        inner.sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(*made.lock(), None, "it waits for the end");
        scene.way(1, 2).hold(None);
        inner.sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(*made.lock(), Some(Ok(())));
        assert_eq!(scene.layout(master).await.change(), None);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// The same for what lists: a stripe that is gone here is gone on all MDTs when that is said.
#[test]
fn a_listing_of_a_stripe_that_goes_is_answered_when_the_master_says_so_too() {
    let world = TestWorld::new(908);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let d = scene.mkdir(0, ROOT, "d").await;
        let listed = DirectoryWish { mdts: [1, 2].map(MdtIndex).into(), ..to(1, 2) };
        let master = scene.migrate(1, (ROOT, "d"), &listed).await.expect("it begins");
        scene.way(1, 2).hold(Some(UpdateType::RECORD));
        let (client, value) = (scene.clients[1].clone(), listed.to_ea().encode());
        let end = async move { client.setxattr(master, "trusted.lmv", Some(&value), 0).await };
        inner.world().tasks.spawn("end", Box::pin(async move { end.await.expect("it ends") }));
        inner.sleep(std::time::Duration::from_secs(1)).await;
        assert!(scene.servers[0].mdt.inode(d).is_err(), "its MDT has applied its part");
        let answered = Arc::new(Mutex::new(None));
        let (client, answer) = (scene.clients[0].clone(), Arc::clone(&answered));
        let list = async move {
            let mdt_body = MdtBody { nlink: 4096, ..client.body(d) };
            let asked = MdsReadpage { mdt_body, ..MdsReadpage::default() };
            *answer.lock() = Some(client.inner.call(asked).await.errno());
        };
        inner.world().tasks.spawn("list", Box::pin(list));
        inner.sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(*answered.lock(), None, "the master says still that it is there");
        scene.way(1, 2).hold(None);
        inner.sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(*answered.lock(), Some(Some(Errno::ENOENT)));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// Asks for the list of an inode's extended attributes.
async fn listed(client: &Client, fid: Fid) -> String {
    let mdt_body = MdtBody { valid: Valid::XATTRLS, ..client.body(fid) };
    let asked = MdsGetxattr { mdt_body, ..MdsGetxattr::default() };
    match client.inner.call(asked).await.reply {
        Some(Reply::MdsGetxattr(reply)) => String::from_utf8_lossy(&reply.eadata).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_says_by_which_fids_it_was_known_before_it_moved() {
    let world = TestWorld::new(906);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = here.mkdir(ROOT, "d").await.expect("made");
        here.setxattr(d, "user.x", Some(b"1"), 0).await.expect("set");
        assert_eq!(here.getxattr(d, FORMER).await, Err(Errno::ENODATA));
        let mut former = vec![d];
        for round in 0..3_u16 {
            let wish = to(1 - round % 2, 1);
            let (mdt, client) = [(1, there), (0, here)][usize::from(round % 2)];
            scene.forget_sent();
            let master = scene.migrate(mdt, (ROOT, "d"), &wish).await.expect("it begins");
            let read = scene.sent(mdt, 1 - mdt).concat();
            let read = read.iter().filter(|it| **it == UpdateType::XATTR_GET).count();
            // The layout of the root, if that is there, and of the directory; user.x. The FIDs come with the exclusion.
            assert_eq!(read, 2 + mdt);
            let value = client.getxattr(master, FORMER).await.expect("it is there");
            assert_eq!(read_former(&value), former);
            assert_eq!(client.getxattr(master, "user.x").await, Ok(Bytes::from_static(b"1")));
            assert!(!listed(client, master).await.contains("sheen"));
            for value in [Some(&b"1"[..]), None] {
                let set = client.setxattr(master, FORMER, value, 0).await;
                assert_eq!(set, Err(Errno::EPERM));
            }
            scene.end(master, &wish).await.expect("it ends");
            assert_eq!(client.getxattr(master, FORMER).await, Ok(value));
            former.insert(0, master);
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}
