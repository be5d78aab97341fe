//! What the MDT counts, as Lustre's `md_stats` shows it.

use sheen_types::CounterLine;
use sheen_wire::messages::Request;

/// The type bits by which a client says that it means a directory.
const DIRECTORY_MODE: u32 = 0o040_000;
const TYPE_MASK: u32 = 0o170_000;

/// Places in [`LINES`].
const OPEN: usize = 0;
const CLOSE: usize = 1;
pub(crate) const MKNOD: usize = 2;
const LINK: usize = 3;
const UNLINK: usize = 4;
const MKDIR: usize = 5;
const RMDIR: usize = 6;
const RENAME: usize = 7;
pub(crate) const GETATTR: usize = 8;
const SETATTR: usize = 9;
const GETXATTR: usize = 10;
const SETXATTR: usize = 11;
const STATFS: usize = 12;
const SYNC: usize = 13;
const SAMEDIR_RENAME: usize = 14;
const CROSSDIR_RENAME: usize = 17;
/// Bytes that a read sent.
pub(crate) const READ_BYTES: usize = 19;
/// Bytes that a write carried.
pub(crate) const WRITE_BYTES: usize = 20;
const READ: usize = 21;
const WRITE: usize = 22;
const PUNCH: usize = 23;
const MIGRATE: usize = 24;
const FALLOCATE: usize = 25;
const READPAGE: usize = 26;

/// In Lustre's order, all that it has, since `job_stats` shows them all; what we do not do stays 0
/// (renames in parallel, migration). Renames count twice: all of them, and by whether they stay in
/// their directory.
pub(crate) static LINES: [CounterLine; 27] = [
    CounterLine::time("open"),
    CounterLine::time("close"),
    CounterLine::time("mknod"),
    CounterLine::time("link"),
    CounterLine::time("unlink"),
    CounterLine::time("mkdir"),
    CounterLine::time("rmdir"),
    CounterLine::time("rename"),
    CounterLine::time("getattr"),
    CounterLine::time("setattr"),
    CounterLine::time("getxattr"),
    CounterLine::time("setxattr"),
    CounterLine::time("statfs"),
    CounterLine::time("sync"),
    CounterLine::time("samedir_rename"),
    CounterLine::time("parallel_rename_file"),
    CounterLine::time("parallel_rename_dir"),
    CounterLine::time("crossdir_rename"),
    CounterLine::time("rename_trylocks"),
    CounterLine::bytes("read_bytes"),
    CounterLine::bytes("write_bytes"),
    CounterLine::time("read"),
    CounterLine::time("write"),
    CounterLine::time("punch"),
    CounterLine::time("migrate"),
    CounterLine::time("fallocate"),
    CounterLine::time("readpage"),
];

/// Under which line a request counts.
pub(crate) fn counter_of(request: &Request) -> Option<usize> {
    let is_directory = |mode: u32| mode & TYPE_MASK == DIRECTORY_MODE;
    Some(match request {
        Request::LdlmIntentOpen(_) | Request::MdsReintOpen(_) => OPEN,
        Request::MdsClose(_) | Request::MdsCloseIntent(_) => CLOSE,
        Request::MdsReintCreate(it) if is_directory(it.rec_reint.mode) => MKDIR,
        Request::MdsReintCreate(_) | Request::MdsReintCreateSym(_) => MKNOD,
        Request::MdsReintLink(_) => LINK,
        Request::MdsReintUnlink(it) if is_directory(it.rec_reint.mode) => RMDIR,
        Request::MdsReintUnlink(_) => UNLINK,
        Request::MdsReintRename(_) => RENAME,
        Request::MdsReintMigrate(_) => MIGRATE,
        Request::LdlmIntentGetattr(_) | Request::MdsGetattr(_) | Request::MdsGetattrName(_) => {
            GETATTR
        }
        Request::MdsReintSetattr(_) => SETATTR,
        Request::LdlmIntentGetxattr(_) | Request::MdsGetxattr(_) => GETXATTR,
        Request::MdsReintSetxattr(_) => SETXATTR,
        Request::MdsStatfs(_) => STATFS,
        Request::MdsSync(_) => SYNC,
        Request::MdsReadpage(_) => READPAGE,
        Request::OstRead(_) => READ,
        Request::OstWrite(_) => WRITE,
        Request::OstPunch(_) => PUNCH,
        Request::OstFallocate(_) => FALLOCATE,
        _ => return None,
    })
}

/// The second line of a rename.
pub(crate) fn of_rename(stays: bool) -> usize {
    if stays { SAMEDIR_RENAME } else { CROSSDIR_RENAME }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names_go_together() {
        for (place, name) in [
            (OPEN, "open"),
            (RMDIR, "rmdir"),
            (RENAME, "rename"),
            (SETXATTR, "setxattr"),
            (READPAGE, "readpage"),
            (of_rename(true), "samedir_rename"),
            (of_rename(false), "crossdir_rename"),
            (WRITE_BYTES, "write_bytes"),
            (PUNCH, "punch"),
            (FALLOCATE, "fallocate"),
            (STATFS, "statfs"),
            (SYNC, "sync"),
            (READ, "read"),
        ] {
            assert_eq!(LINES[place].name, name);
        }
    }
}
