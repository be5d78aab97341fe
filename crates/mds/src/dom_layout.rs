//! What a file's layout says of data on the MDT.

use bytes::Bytes;
use sheen_wire::lov::{CompFlags, LovComp, LovComponent, LovPattern};

/// The part of a file that lies on the MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomPart {
    /// Its first byte behind.
    pub(crate) end: u64,
    /// No other component has objects: the MDT knows the size of the whole file.
    pub(crate) is_all: bool,
}

/// The part of a file with this layout that lies on the MDT.
pub(crate) fn part_of(layout: &Bytes) -> Option<DomPart> {
    let comp = LovComp::decode(layout).ok()?;
    let is_made = |part: &&LovComponent| part.entry.flags.contains(CompFlags::INIT);
    let is_on_mdt = |part: &LovComponent| part.layout.header.pattern.contains(LovPattern::MDT);
    let mut made = comp.components.iter().filter(is_made);
    let end = made.clone().find(|part| is_on_mdt(part))?.entry.end;
    Some(DomPart { end, is_all: made.all(is_on_mdt) })
}

/// Whether a layout has a component on the MDT, made or not.
pub(crate) fn names_mdt(layout: &Bytes) -> bool {
    let is_on_mdt = |part: &LovComponent| part.layout.header.pattern.contains(LovPattern::MDT);
    LovComp::decode(layout).is_ok_and(|comp| comp.components.iter().any(is_on_mdt))
}
