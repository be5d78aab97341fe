//! Captures of stat-ahead: `ls -l` of directories whose names no lock covers. Which names go into which request is either client's own
//! affair; each name is answered as it was, whichever request the real client had it in.

use sheen_client::posix::NodeId;
use sheen_types::Errno;

use super::Caller;
use crate::script::Script;

/// s1: 500 files.
pub(super) async fn files(it: &Caller, _: &Script) -> Result<(), Errno> {
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let directory = it.look_up(w, "sa1").await?;
    let names = it.list_long(directory).await?;
    assert_eq!(names.len(), 500);
    assert!(names.iter().all(|(_, found)| found.size == 0 && found.nlink == 1));
    Ok(())
}

/// s2: files, symbolic links and directories, with sizes and without.
pub(super) async fn mixed(it: &Caller, _: &Script) -> Result<(), Errno> {
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let directory = it.look_up(w, "sa3").await?;
    for sizes in [true, false] {
        it.files.settings().ahead.asks_sizes.set(sizes);
        let names = it.list_long(directory).await?;
        // Files, links, directories.
        let of = |kind| names.iter().filter(|(_, found)| found.mode >> 12 == kind).count();
        assert_eq!([0o10, 0o12, 0o4].map(of), [100; 3]);
        it.clear_locks("").await;
    }
    Ok(())
}
