//! Marks: permission bits, an extended attribute, symbolic links.

use bytes::Bytes;
use sheen_client::posix::{NewNode, SetAttributes, XattrMode};
use sheen_types::Errno;

use super::{NameInDirectory, Process, is_answer, name};
use crate::cluster::Found;
use crate::model::Mark;

/// The extended attribute.
const XATTR: &[u8] = b"user.sim";
/// Symbolic links in each directory.
const LINKS: u64 = 2;
/// The bits that `chmod` gives.
const MODES: u64 = 0o100;

impl Process {
    fn begin_mark(&self, file: &Found, mark: Mark, value: Option<u64>, text: &str) -> u64 {
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("{text} {}", file.fid));
        let value = value.unwrap_or(operation);
        self.model(|model| {
            model.marks.begin((file.fid, mark), value, operation, self.client, begin);
        });
        operation
    }

    fn mark_ended(&self, file: &Found, mark: Mark, operation: u64, outcome: &Result<(), Errno>) {
        let now = self.now();
        self.model(|model| match outcome {
            Ok(()) => model.marks.end((file.fid, mark), operation, now),
            Err(errno) if is_answer(*errno) => model.marks.refused((file.fid, mark), operation),
            Err(_) => {}
        });
        // The answer wants a size.
        let sizeless = mark == Mark::Mode && self.sim.was_damaged(file.fid);
        self.ended_at(operation, outcome, sizeless);
    }

    /// `chmod`.
    pub(super) async fn chmod(&self) {
        // That of a directory may be one of its stripes, too.
        let is_of_directory = self.sim.options.mdts > 1 && self.one_in(3);
        let place = match is_of_directory {
            true => self.directory_place().await,
            false => self.file_place().await,
        };
        let Some(place) = place else { return };
        let Ok(Some(file)) = self.look_up(&place).await else { return };
        let mut mode = 0o600 + self.random().below(MODES);
        if self.sim.extras().hostile {
            // What other users may write, a hostile node may.
            mode &= 0o755;
        }
        let text = format!("chmod {mode:o}");
        let operation = self.begin_mark(&file, Mark::Mode, Some(mode), &text);
        let changes = SetAttributes { mode: Some(mode as u32), ..SetAttributes::default() };
        let done = self.kernel.setattr(file.node, None, changes).await;
        self.mark_ended(&file, Mark::Mode, operation, &done);
    }

    /// Sets the extended attribute, or reads it.
    pub(super) async fn xattr(&self) {
        let Some(place) = self.file_place().await else { return };
        let Ok(Some(file)) = self.look_up(&place).await else { return };
        if self.one_in(2) {
            return self.read_xattr(&file).await;
        }
        let operation = self.begin_mark(&file, Mark::Xattr, None, "set an attribute of");
        let value = Bytes::copy_from_slice(&operation.to_le_bytes());
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let done = files.setxattr(who, file.node, XATTR, value, XattrMode::Any).await;
        self.kernel.touched(file.node);
        self.mark_ended(&file, Mark::Xattr, operation, &done);
    }

    /// Reads the extended attribute.
    pub(super) async fn read_xattr(&self, file: &Found) {
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("read the attribute of {}", file.fid));
        let read = self.kernel.files.getxattr(self.kernel.who(), file.node, XATTR).await;
        let seen = match &read {
            Ok(bytes) => bytes[..].try_into().ok().map(u64::from_le_bytes).or(Some(u64::MAX)),
            Err(Errno::ENODATA) => Some(0),
            Err(_) => None,
        };
        if let Some(value) = seen
            && self.is_trusted()
        {
            let end = self.now();
            let key = (file.fid, Mark::Xattr);
            let judged = self.model(|model| model.marks.saw(key, value, begin, end));
            self.sim.judge(self.client, operation, judged);
        }
        match read {
            Err(Errno::ENODATA) => self.ended(operation, &Ok(())),
            read => self.ended(operation, &read),
        }
    }

    /// Makes a symbolic link, follows one or removes one.
    pub(super) async fn symlink(&self) {
        let Some((parent, above)) = self.directory().await else { return };
        let text = format!("l{}", self.random().below(LINKS));
        let place = NameInDirectory { parent, name: name(&text), path: format!("{above}{text}") };
        match self.random().below(4) {
            0 | 1 => self.make_symlink(&place).await,
            2 => {
                if let Ok(Some(link)) = self.look_up(&place).await {
                    self.read_symlink(&link).await;
                }
            }
            _ => self.unlink_at(&place).await,
        }
    }

    async fn make_symlink(&self, place: &NameInDirectory) {
        let target = format!("made at {}", self.now().0);
        let new = NewNode::Symlink(target.as_bytes().into());
        if let Some(link) = self.make_at(place, "symlink", new).await {
            self.model(|model| model.marks.made_link(link, target.as_bytes()));
        }
    }

    /// `readlink`.
    pub(super) async fn read_symlink(&self, link: &Found) {
        let operation = self.sim.begin(self.client, format!("readlink {}", link.fid));
        let read = self.kernel.files.readlink(self.kernel.who(), link.node).await;
        if let Ok(target) = &read {
            let judged = self.model(|model| model.marks.saw_target(link.fid, target));
            self.sim.judge(self.client, operation, judged);
        }
        self.ended(operation, &read);
    }
}
