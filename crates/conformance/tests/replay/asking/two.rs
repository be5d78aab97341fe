//! Captures of a node with two mounts: two of our clients, each with the answers that one of the mounts had.

use bytes::Bytes;
use sheen_client::posix::{NodeId, OpenFlags};
use sheen_layout::directory::DirectoryWish;
use sheen_types::Errno;
use sheen_wire::lmv::LmvHash;

use super::striped::stripes;
use super::{Caller, WRITE, name};
use crate::script::Script;

/// Behind all packets.
const LAST: usize = usize::MAX;

/// n4: a directory of 101 names is split over two MDTs, used by both mounts, and merged again.
pub(super) async fn restriped(them: &[Caller], _: &Script) -> Result<(), Errno> {
    let (one, other) = (&them[0], &them[1]);
    let n4 = one.look_up(NodeId::ROOT, "n4").await?;
    let restripe = async |count, max_inherit| {
        let wish = DirectoryWish { max_inherit, ..stripes(count, LmvHash::UNKNOWN) };
        let d = name("d");
        one.files.restripe_directory(&one.who, n4, &d, 0o777, wish).await
    };
    let d = one.look_up(n4, "d").await?;
    one.look_up(d, "sub").await?;
    restripe(2, 3).await?;
    let d = one.look_up(n4, "d").await?;
    assert_eq!(one.list(d).await?.len(), 101);
    // It is done.
    one.pass_to(156).await;
    let d = one.look_up(n4, "d").await?;
    for text in ["1", "50", "100"] {
        let found = one.cat(d, &format!("f{text}")).await?;
        assert_eq!(found, format!("{text}\n"));
    }
    one.look_up(d, "sub").await?;
    assert_eq!(one.list_long(d).await?.len(), 101);
    let there = other.look_up(NodeId::ROOT, "n4").await?;
    let there = other.look_up(there, "d").await?;
    assert_eq!(other.list(there).await?.len(), 101);
    let (_, handle) = one.create(d, "afterwards", 0o666, WRITE | OpenFlags::TRUNCATE).await?;
    one.files.write(handle, 0, Bytes::from_static(b"new\n")).await?;
    one.close(handle).await?;
    one.files.unlink(&one.who, d, &name("f100")).await?;
    restripe(1, 0).await?;
    one.pass_to(LAST).await;
    let d = one.look_up(n4, "d").await?;
    assert_eq!(one.list(d).await?.len(), 101);
    for (text, data) in [("f1", "1\n"), ("f99", "99\n"), ("afterwards", "new\n")] {
        assert_eq!(one.cat(d, text).await?, data);
    }
    one.look_up(d, "sub").await?;
    Ok(())
}

/// n6: a directory of two stripes, listed by one mount with what its names stand for and looked up by the other by number; then by the
/// first one by number, too.
pub(super) async fn by_number(them: &[Caller], _: &Script) -> Result<(), Errno> {
    let (one, other) = (&them[0], &them[1]);
    let directory = one.look_up(NodeId::ROOT, "n6").await?;
    assert_eq!(one.list_long(directory).await?.len(), 300);
    one.clear_locks("MDT").await;
    let there = other.look_up(NodeId::ROOT, "n6").await?;
    for number in 0..120 {
        other.look_up(there, &format!("file.{number}")).await?;
    }
    other.clear_locks("MDT").await;
    let directory = one.look_up(NodeId::ROOT, "n6").await?;
    for number in 0..100 {
        one.look_up(directory, &format!("file.{number}")).await?;
    }
    Ok(())
}
