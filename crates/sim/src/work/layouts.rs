//! Layouts: what new files get, and files that move from one to another.

use bytes::Bytes;
use sheen_client::posix::XattrMode;
use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, MdtIndex};
use sheen_wire::lov::{
    LovComp, LovCompEntry, LovCompHeader, LovComponent, LovEa, LovMagic, LovMd, LovMdHeader,
    LovPattern,
};

use super::Process;

/// The default layout of a directory: of its files, and of its directories.
const LOV: &[u8] = b"lustre.lov";
const DEFAULT_STRIPES: &[u8] = b"sheen.directory_default";
/// Where components end: files here are of 192 KiB.
const ENDS: [u64; 3] = [64 << 10, 128 << 10, u64::MAX];
const STRIPE_BYTES: u32 = 64 << 10;
/// Stripes of a component at most; more than there may be OSTs.
const STRIPES: u64 = 4;
/// Any OST may be the first.
const ANY: u16 = u16::MAX;

impl Process {
    /// Gives a directory a default layout.
    pub(super) async fn set_default_layout(&self) {
        let Some((directory, path)) = self.directory().await else { return };
        let is_of_directories = self.sim.options.mdts > 1 && self.one_in(2);
        let (name, (layout, text)) = match is_of_directories {
            true => (DEFAULT_STRIPES, self.default_stripes()),
            false => (LOV, self.layout()),
        };
        let text = format!("default layout of /{path}: {text}");
        let operation = self.sim.begin(self.client, text);
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let any = XattrMode::Any;
        let done = files.setxattr(who, directory.node, name, layout, any).await;
        self.kernel.touched(directory.node);
        self.ended(operation, &done);
    }

    /// What new directories get, as the mount takes it, and what it is.
    fn default_stripes(&self) -> (Bytes, String) {
        let mdts = u64::from(self.sim.options.mdts);
        let wish = self.striping(MdtIndex(self.random().below(mdts) as u16));
        let first = wish.first.filter(|_| self.one_in(2));
        let max_inherit = self.random().below(4) as u8;
        let wish = DirectoryWish { first, max_inherit, ..wish };
        (wish.to_ea().encode(), format!("{:?} from {first:?}", wish.stripes))
    }

    /// Moves a file to another layout.
    pub(super) async fn move_file(&self) {
        let Some(place) = self.file_place().await else { return };
        let Ok(Some(file)) = self.look_up(&place).await else { return };
        let (layout, text) = self.layout();
        let text = format!("move {} to {text}", file.fid);
        let operation = self.sim.begin(self.client, text);
        let order = [b"block=1\n", &layout[..]].concat().into();
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let moved = files.setxattr(who, file.node, b"sheen.migrate", order, XattrMode::Any).await;
        match moved {
            // Another process moves it.
            Err(Errno::EBUSY) => _ = self.sim.end(operation, "busy"),
            // The directory lies elsewhere, with all its stripes: the other layout has no place beside the file.
            Err(Errno::EXDEV) if self.sim.options.mdts > 1 => {
                self.sim.end(operation, "its directory is not on its MDT");
            }
            moved => self.ended_at(operation, &moved, self.sim.was_damaged(file.fid)),
        }
    }

    /// Any layout, as `lustre.lov` takes it, and what it is.
    fn layout(&self) -> (Bytes, String) {
        if self.one_in(3) {
            let (plain, text) = self.striped();
            return (LovEa::Plain(plain).encode(), text);
        }
        let mut words = Vec::new();
        let (mut components, mut start) = (Vec::new(), 0);
        for (number, end) in ENDS.into_iter().enumerate() {
            if end != u64::MAX && self.one_in(3) {
                continue;
            }
            let on_mdt = number < 2 && components.is_empty() && self.one_in(2);
            let (layout, text) = if on_mdt { on_mdt_layout() } else { self.striped() };
            words.push(format!("{text} to {end}"));
            let entry = LovCompEntry { start, end, ..LovCompEntry::default() };
            components.push(LovComponent { entry, layout });
            start = end;
        }
        let magic = LovMagic::COMP_V1;
        let header = LovCompHeader { magic, ..LovCompHeader::default() };
        (LovEa::Composite(LovComp { header, components }).encode(), words.join(", "))
    }

    fn striped(&self) -> (LovMd, String) {
        let count = 1 + self.random().below(STRIPES);
        let overstriped = self.one_in(2);
        let pattern = match overstriped {
            true => LovPattern::RAID0 | LovPattern::OVERSTRIPING,
            false => LovPattern::RAID0,
        };
        let header = LovMdHeader {
            magic: LovMagic::V1,
            pattern,
            stripe_size: STRIPE_BYTES,
            stripe_count: count as u16,
            layout_gen: ANY,
            ..LovMdHeader::default()
        };
        let text = format!("{count}{}", if overstriped { " over" } else { "" });
        (LovMd { header, ..LovMd::default() }, text)
    }
}

fn on_mdt_layout() -> (LovMd, String) {
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::MDT,
        layout_gen: ANY,
        ..LovMdHeader::default()
    };
    (LovMd { header, ..LovMd::default() }, "MDT".to_owned())
}
