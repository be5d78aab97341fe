//! Captures of directories in stripes over two MDTs. Names go to the stripes that they hash to, which the captured answers name;
//! what `lfs getdirstripe` and `ls -l` asked is left out.

use std::num::NonZeroU32;

use sheen_client::posix::{NewNode, NodeId, OpenFlags, RenameMode, XattrMode};
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_types::{Errno, MdtIndex, Name};
use sheen_wire::lmv::LmvHash;

use super::alone::remote;
use super::sessions::ON_SECOND;
use super::{Caller, WRITE, name};
use crate::script::Script;

/// A directory in `count` stripes whose names are hashed by `hash`.
pub(super) fn stripes(count: u32, hash: LmvHash) -> DirectoryWish {
    let stripes = NonZeroU32::new(count).map_or(WishedStripes::Unsaid, WishedStripes::Count);
    DirectoryWish { stripes, hash, max_inherit: 3, ..DirectoryWish::default() }
}

/// As the captured client placed it, by its own turn.
fn on(mdt: u16, wish: DirectoryWish) -> NewNode {
    NewNode::WishedDirectory(DirectoryWish { first: Some(MdtIndex(mdt)), ..wish })
}

/// As `: > file` does.
pub(super) async fn create(it: &Caller, directory: NodeId, text: &str) -> Result<(), Errno> {
    let (_, handle) = it.create(directory, text, 0o666, WRITE | OpenFlags::TRUNCATE).await?;
    it.close(handle).await
}

pub(super) async fn sorted(it: &Caller, directory: NodeId) -> Result<Vec<Name>, Errno> {
    let mut names = it.list(directory).await?;
    names.sort();
    Ok(names)
}

async fn unlink_all(it: &Caller, directory: NodeId, names: &[&str]) -> Result<(), Errno> {
    for text in names {
        it.files.unlink(&it.who, directory, &name(text)).await?;
    }
    Ok(())
}

/// e1, in which the directory of all three is made, e2 and e3: directories in two stripes, by a wish and by a default.
pub(super) async fn two(it: &Caller, _: &Script) -> Result<(), Errno> {
    let e = remote(it).await?;
    let s2 = it.make(e, "s2", on(1, stripes(2, LmvHash::UNKNOWN))).await?;
    let files = ["f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"];
    for text in files {
        create(it, s2, text).await?;
    }
    it.make(s2, "sub", NewNode::Directory).await?;
    assert_eq!(
        sorted(it, s2).await?,
        [&files[..], &["sub"]].concat().into_iter().map(name).collect::<Vec<_>>()
    );
    let (from, to) = (name("f1"), name("f1new"));
    it.files.rename(&it.who, (s2, &from), (s2, &to), RenameMode::Replace).await?;
    unlink_all(it, s2, &[&["f1new"], &files[1..]].concat()).await?;
    it.files.rmdir(&it.who, s2, &name("sub")).await?;
    let all = DirectoryWish {
        stripes: WishedStripes::OnEachMdt(NonZeroU32::MIN),
        hash: LmvHash::FNV_1A_64,
        max_inherit: 3,
        ..DirectoryWish::default()
    };
    let sall = it.make(e, "sall", on(0, all)).await?;
    create(it, sall, "a").await?;
    create(it, sall, "b").await?;
    assert_eq!(sorted(it, sall).await?, ["a", "b"].map(name));
    unlink_all(it, sall, &["a", "b"]).await?;
    it.files.rmdir(&it.who, e, &name("sall")).await?;
    it.files.rmdir(&it.who, e, &name("s2")).await?;
    by_default(it, e).await
}

/// e3: what is made in a directory with a default lies as that says.
async fn by_default(it: &Caller, e: NodeId) -> Result<(), Errno> {
    let dd = it.make(e, "dd", ON_SECOND).await?;
    let value = stripes(2, LmvHash::UNKNOWN).to_ea().encode();
    it.files.setxattr(&it.who, dd, b"sheen.directory_default", value, XattrMode::Any).await?;
    let k = it.make(dd, "k", NewNode::Directory).await?;
    create(it, k, "z").await?;
    unlink_all(it, k, &["z"]).await?;
    it.files.rmdir(&it.who, dd, &name("k")).await?;
    it.files.rmdir(&it.who, e, &name("dd")).await
}

/// d2: the same names under three hashes.
pub(super) async fn hashes(it: &Caller, _: &Script) -> Result<(), Errno> {
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let dh = it.make(w, "dh", NewNode::Directory).await?;
    let kinds = [
        ("crush", 1, LmvHash::CRUSH),
        ("fnv_1a_64", 0, LmvHash::FNV_1A_64),
        ("all_char", 1, LmvHash::ALL_CHARS),
    ];
    let mut made = Vec::new();
    for (text, mdt, hash) in kinds {
        let directory = it.make(dh, text, on(mdt, stripes(2, hash))).await?;
        for file in ["f1", "f2", "f3", "f4", "f5", "f6"] {
            create(it, directory, file).await?;
        }
        assert_eq!(it.list(directory).await?.len(), 6);
        unlink_all(it, directory, &["f1"]).await?;
        let (from, to) = (name("f2"), name("f2.new"));
        it.files.rename(&it.who, (directory, &from), (directory, &to), RenameMode::Replace).await?;
        made.push((text, directory));
    }
    for (text, directory) in made {
        unlink_all(it, directory, &["f2.new", "f3", "f4", "f5", "f6"]).await?;
        it.files.rmdir(&it.who, dh, &name(text)).await?;
    }
    it.files.rmdir(&it.who, w, &name("dh")).await
}

/// d3: a default of two stripes, by which a directory is made, and taken away again.
pub(super) async fn default_wish(it: &Caller, _: &Script) -> Result<(), Errno> {
    const DEFAULT: &[u8] = b"sheen.directory_default";
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let dg = it.make(w, "dg", NewNode::Directory).await?;
    let set = async |wish: DirectoryWish| {
        let value = wish.to_ea().encode();
        it.files.setxattr(&it.who, dg, DEFAULT, value, XattrMode::Any).await
    };
    set(stripes(2, LmvHash::UNKNOWN)).await?;
    let k = it.make(dg, "k", NewNode::Directory).await?;
    assert_eq!(it.list(k).await?.len(), 0);
    set(DirectoryWish::default()).await?;
    let z = it.make(dg, "z", ON_SECOND).await?;
    // The captured client lost its lock on the directory to a later command, which is left out.
    it.clear_locks("MDT").await;
    assert_eq!(sorted(it, dg).await?, ["k", "z"].map(name));
    assert_eq!(it.list(z).await?.len(), 0);
    it.files.rmdir(&it.who, dg, &name("z")).await?;
    it.files.rmdir(&it.who, dg, &name("k")).await?;
    it.files.rmdir(&it.who, w, &name("dg")).await
}

/// d5: two stripes on each of two MDTs.
pub(super) async fn overstriped(it: &Caller, _: &Script) -> Result<(), Errno> {
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let wish = DirectoryWish { max_inherit: 2, ..stripes(4, LmvHash(LmvHash::OVERSTRIPED)) };
    let directory = it.make(w, "do", on(0, wish)).await?;
    for number in 1..=20 {
        create(it, directory, &format!("f{number}")).await?;
    }
    assert_eq!(it.list(directory).await?.len(), 20);
    unlink_all(it, directory, &["f1", "f2", "f3"]).await?;
    it.make(directory, "sub", NewNode::Directory).await?;
    it.files.rmdir(&it.who, directory, &name("sub")).await?;
    assert_eq!(it.files.rmdir(&it.who, w, &name("do")).await, Err(Errno::ENOTEMPTY));
    for number in 4..=20 {
        unlink_all(it, directory, &[&format!("f{number}")]).await?;
    }
    it.files.rmdir(&it.who, w, &name("do")).await
}

/// d6: a thousand names of two stripes.
pub(super) async fn listed(it: &Caller, _: &Script) -> Result<(), Errno> {
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let dr = it.look_up(w, "dr").await?;
    for _ in 0..2 {
        let names = sorted(it, dr).await?;
        assert_eq!(names.len(), 1000);
        it.clear_locks("MDT").await;
    }
    Ok(())
}
