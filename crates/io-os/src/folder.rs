//! A folder of UNIX sockets, in which the nodes of one file system on one machine meet.
//!
//! A node's socket is named by its address and port. The folder belongs to one user and is closed to other
//! users: a process that connects is that user's or root's, and both ends check it again by the kernel's word
//! (`SO_PEERCRED`). Paths go through the folder's descriptor (`/proc/self/fd/N/...`): so they are short,
//! however long the folder's own is (a socket's path has at most 107 bytes), and no process can exchange what
//! lies above the folder between the check and the use.

use std::fs::{DirBuilder, File};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

/// Rights that no other user may have in the folder.
const OTHER_USERS: u32 = 0o077;

/// See the module.
#[derive(Clone, Debug)]
pub struct SocketFolder {
    path: PathBuf,
}

/// The folder while it is used: what was checked is what is used.
pub(crate) struct OpenFolder {
    descriptor: OwnedFd,
    owner: u32,
}

impl SocketFolder {
    /// The folder at `path`, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or as [`SocketFolder::open`].
    pub fn create(path: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(path),
        }
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// There is none, it is open to other users, or it belongs to another user, unless we are root.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = Self { path: path.to_owned() };
        folder.enter().map(|_| folder)
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a node has its socket here, alive or dead.
    #[must_use]
    pub fn knows(&self, node: SocketAddrV4) -> bool {
        self.enter().is_ok_and(|folder| folder.knows(node))
    }

    /// Whether a node listens here.
    #[must_use]
    pub fn is_live(&self, node: SocketAddrV4) -> bool {
        self.enter().is_ok_and(|folder| folder.is_live(node))
    }

    pub(crate) fn enter(&self) -> io::Result<OpenFolder> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let found = File::from(descriptor.try_clone()?).metadata()?;
        let user = rustix::process::geteuid();
        let foreign = found.uid() != user.as_raw() && !user.is_root();
        if foreign || found.mode() & OTHER_USERS != 0 {
            let (place, owner, mode) = (self.path.display(), found.uid(), found.mode() & 0o7777);
            let text = format!(
                "{place} belongs to uid {owner} with mode {mode:o}: it must be ours, with mode 700"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(OpenFolder { descriptor, owner: found.uid() })
    }
}

fn name_of(node: SocketAddrV4) -> String {
    format!("{}@tcp-{}.sock", node.ip(), node.port())
}

impl OpenFolder {
    /// A node's socket by way of the descriptor, which must stay open meanwhile.
    pub(crate) fn path_of(&self, node: SocketAddrV4) -> PathBuf {
        format!("/proc/self/fd/{}/{}", self.descriptor.as_raw_fd(), name_of(node)).into()
    }

    /// Whether a process of `uid` may be at the other end.
    pub(crate) fn trusts(&self, uid: u32) -> bool {
        uid == self.owner || uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    pub(crate) fn knows(&self, node: SocketAddrV4) -> bool {
        rustix::fs::statat(&self.descriptor, name_of(node), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn is_live(&self, node: SocketAddrV4) -> bool {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        match UnixStream::connect(self.path_of(node)) {
            Ok(_) => true,
            Err(error) => !gone.contains(&error.kind()),
        }
    }

    /// Listens for `node`; a socket that a dead process left is replaced.
    pub(crate) fn listen(&self, node: SocketAddrV4) -> io::Result<UnixListener> {
        // One process at a time: else two could take a dead one's name, and each the other's.
        rustix::fs::flock(self.descriptor.as_fd(), FlockOperation::LockExclusive)?;
        if self.is_live(node) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.remove(node);
        let listener = UnixListener::bind(self.path_of(node));
        rustix::fs::flock(self.descriptor.as_fd(), FlockOperation::Unlock)?;
        listener
    }

    /// Takes a node's socket away.
    pub(crate) fn remove(&self, node: SocketAddrV4) {
        // There may be none.
        let _ = rustix::fs::unlinkat(&self.descriptor, name_of(node), AtFlags::empty());
    }
}
