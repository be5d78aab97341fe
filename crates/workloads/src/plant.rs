//! A small tree with one of everything that must survive.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::bytes::content;
use crate::{Context, Outcome};

/// Plants the tree in a new folder `plant` of `top`.
pub fn run(top: &Path) -> Outcome {
    let folder = crate::folder(top, "plant")?;
    contents(&folder)?;
    names(&folder)?;
    modes(&folder)?;
    links(&folder)?;
    attributes(&folder)?;
    nodes(&folder)
}

fn contents(folder: &Path) -> Outcome {
    for length in [0, 1, 4095, 4096, 4097, 65_536, 1_048_575, 1_048_577, 5_000_001] {
        let path = folder.join(format!("bytes-{length}"));
        fs::write(&path, content(length as u64, length)).context(path.display())?;
    }
    Ok(())
}

/// Deep folders, the longest name, names that are no UTF-8 or look like something else.
fn names(folder: &Path) -> Outcome {
    let mut deep = folder.to_owned();
    for level in 0..40 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep).context(deep.display())?;
    let longest = "n".repeat(255);
    let odd: [&[u8]; 6] =
        [b"\xff\xfe", b"new\nline", b" ", b"-rf", "\u{fc}n\u{ef}".as_bytes(), longest.as_bytes()];
    for name in odd {
        let path = deep.join(OsStr::from_bytes(name));
        fs::write(&path, name).context(path.display())?;
    }
    Ok(())
}

fn modes(folder: &Path) -> Outcome {
    for mode in [0o000, 0o400, 0o640, 0o755, 0o4755, 0o2755, 0o1777] {
        let path = folder.join(format!("mode-{mode:o}"));
        fs::write(&path, b"mode").context(path.display())?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1000 + mode), Some(2000))
                .context(path.display())?;
        }
        if mode != 0 || rustix::process::geteuid().is_root() {
            fs::set_permissions(&path, Permissions::from_mode(mode)).context(path.display())?;
        }
    }
    let path = folder.join("old");
    let file = File::create_new(&path).context(path.display())?;
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_modified(old).set_accessed(old)).context(path.display())
}

fn links(folder: &Path) -> Outcome {
    let first = folder.join("first-name");
    fs::write(&first, b"three names").context(first.display())?;
    let aside = crate::folder(folder, "aside")?;
    for name in [folder.join("second-name"), aside.join("third-name")] {
        fs::hard_link(&first, &name).context(name.display())?;
    }
    let far = "t".repeat(1000);
    for (name, target) in [("link", "first-name"), ("dangling", "nowhere"), ("far", far.as_str())] {
        let path = folder.join(name);
        symlink(target, &path).context(path.display())?;
    }
    Ok(())
}

fn attributes(folder: &Path) -> Outcome {
    let path = folder.join("attributes");
    fs::write(&path, b"x").context(path.display())?;
    for (name, value) in
        [("user.one", vec![]), ("user.two", b"two".to_vec()), ("user.big", content(5, 1000))]
    {
        let set = setxattr(&path, name, &value, XattrFlags::CREATE);
        set.context(format_args!("{}: setxattr {name}", path.display()))?;
    }
    let set = setxattr(folder.join("aside"), "user.folder", b"yes", XattrFlags::CREATE);
    set.context("setxattr on a folder")
}

fn nodes(folder: &Path) -> Outcome {
    let mode = Mode::from_raw_mode(0o644);
    mknodat(CWD, folder.join("fifo"), FileType::Fifo, mode, 0).context("mknod fifo")?;
    mknodat(CWD, folder.join("socket"), FileType::Socket, mode, 0).context("mknod socket")?;
    if rustix::process::geteuid().is_root() {
        let number = rustix::fs::makedev(1, 3);
        let made = mknodat(CWD, folder.join("null"), FileType::CharacterDevice, mode, number);
        made.context("mknod character device")?;
    }
    Ok(())
}
