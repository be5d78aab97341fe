//! Which MDT has a file. Of one MDT that is known; of several the mount is asked, once for each sequence of FIDs, as all of a
//! sequence lie on one.

use std::path::{Path, PathBuf};

use sheen_types::{Errno, Fid, HashMap};

use super::mount::Mount;
use sheen_control::api::{FID_TO_MDT, Kind, MountTarget, TARGETS};

/// The MDTs of a file system, as its mount knows them.
pub(super) struct MdtsOf {
    mount: Mount,
    mdts: Vec<MountTarget>,
    /// By sequence.
    known: HashMap<u64, u16>,
}

impl MdtsOf {
    /// Those of the file system at `path`.
    ///
    /// # Errors
    /// `ENODEV` if it is none of a mount of ours; those of the mount.
    pub(super) fn at(path: &Path) -> Result<Self, Errno> {
        let mut mount = Mount::of(path)?;
        let targets: Vec<MountTarget> = mount.ask(TARGETS, &[]).map_err(|(errno, _)| errno)?;
        let mdts = targets.into_iter().filter(|target| target.kind == Kind::Mdt).collect();
        Ok(Self { mount, mdts, known: HashMap::default() })
    }

    /// Where the file system is mounted.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.mount.info.point()
    }

    /// All of them.
    pub(super) fn all(&self) -> &[MountTarget] {
        &self.mdts
    }

    /// The index of the one that has a file.
    ///
    /// # Errors
    /// `ENOENT` if none has its sequence; those of the mount, whose process may be of a version that does not know.
    pub(super) fn find(&mut self, fid: Fid) -> Result<u16, Errno> {
        if let [mdt] = &self.mdts[..] {
            return Ok(mdt.index);
        }
        if let Some(index) = self.known.get(&fid.seq) {
            return Ok(*index);
        }
        let index = self.mount.ask(FID_TO_MDT, &[&fid.to_string()]).map_err(|(errno, _)| errno)?;
        self.known.insert(fid.seq, index);
        Ok(index)
    }
}
