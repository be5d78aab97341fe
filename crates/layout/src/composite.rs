//! A file's bytes over its components.

use sheen_types::Extent;

use crate::raid0::{Piece, Pieces};
use crate::{Body, Component, Layout, Raid0, Stripe};

/// Where a run of bytes lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the object of this number, counted over all components.
    Object(usize),
    /// In a component that has no objects yet.
    Absent,
}

/// A run of a file's bytes that lies in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPiece {
    /// Which object.
    pub place: Place,
    /// Where the run begins in the file.
    pub file_offset: u64,
    /// Where it begins in the object.
    pub object_offset: u64,
    /// Its bytes, at least 1.
    pub length: u64,
}

/// The arithmetic of one object of a file: its stripe of its component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The component's bytes of the file.
    pub extent: Extent,
    /// How they go round.
    pub raid0: Raid0,
    /// Which of the stripes.
    pub stripe: u32,
}

impl Mapping {
    /// All of a file in one object.
    #[must_use]
    pub fn whole() -> Self {
        Self { extent: Extent::ALL, raid0: Raid0::WHOLE, stripe: 0 }
    }

    /// The object's bytes that are in `extent` of the file, as one extent from the first to the last;
    /// `None` if it has none.
    #[must_use]
    pub fn object_extent(&self, extent: Extent) -> Option<Extent> {
        self.raid0.object_extent(self.stripe, self.extent.intersection(&extent)?)
    }

    /// As [`Mapping::object_extent`], with what of the object lies before or behind the component if
    /// `extent` reaches that far: no other client wants it, and a lock on it shows that the object
    /// ends.
    #[must_use]
    pub fn lock_extent(&self, extent: Extent) -> Option<Extent> {
        let Extent { start, end } = self.object_extent(extent)?;
        Some(Extent {
            start: if extent.start <= self.extent.start { 0 } else { start },
            end: if extent.end >= self.extent.end { Extent::EOF } else { end },
        })
    }

    /// The smallest extent of the file that holds all bytes of `extent` of the object; `None` if these
    /// all lie before or behind its component.
    #[must_use]
    pub fn file_extent(&self, extent: Extent) -> Option<Extent> {
        self.raid0.file_extent(self.stripe, extent).intersection(&self.extent)
    }

    /// Size of the file that an object of `object_size` bytes proves; 0 for one that has no byte of its
    /// component.
    #[must_use]
    pub fn file_size(&self, object_size: u64) -> u64 {
        let size = self.raid0.file_size(self.stripe, object_size);
        let size = if size <= self.extent.start { 0 } else { size };
        size.min(self.extent.end.saturating_add(1))
    }

    /// Where byte `object_offset` of the object is in the file; saturates.
    #[must_use]
    pub fn file_offset(&self, object_offset: u64) -> u64 {
        self.raid0.file_offset(self.stripe, object_offset)
    }

    /// What becomes of the object when the file is cut, or extended, at `file_size`: its new size, or
    /// `None` if it may stay as it is because the file ends behind its component.
    #[must_use]
    pub fn object_size(&self, file_size: u64) -> Option<u64> {
        match file_size.checked_sub(1) {
            Some(last) if last > self.extent.end => None,
            Some(last) if last >= self.extent.start => {
                Some(self.raid0.object_size(self.stripe, file_size))
            }
            _ => Some(0),
        }
    }
}

impl Component {
    /// How its bytes go round over objects; `None` while it has none.
    fn raid0(&self) -> Option<Raid0> {
        match &self.body {
            Body::Absent => None,
            Body::Mdt => Some(Raid0::WHOLE),
            Body::Striped { raid0, .. } => Some(*raid0),
        }
    }

    /// The objects' number; that on the MDT counts.
    #[must_use]
    pub fn object_count(&self) -> usize {
        match &self.body {
            Body::Absent => 0,
            Body::Mdt => 1,
            Body::Striped { stripes, .. } => stripes.len(),
        }
    }

    /// The component's objects on OSTs.
    #[must_use]
    pub fn stripes(&self) -> &[Stripe] {
        match &self.body {
            Body::Absent | Body::Mdt => &[],
            Body::Striped { stripes, .. } => stripes,
        }
    }

    fn is_absent(&self) -> bool {
        matches!(self.body, Body::Absent)
    }
}

impl Layout {
    /// A layout of components: `id`, range and place of each. `None` if there is none, the ranges do
    /// not follow one another from byte 0 on, or data on the MDT is not first.
    #[must_use]
    pub fn new(
        generation: u32,
        components: impl IntoIterator<Item = (u32, Extent, Body)>,
    ) -> Option<Self> {
        let mut list: Vec<Component> = Vec::new();
        let (mut next, mut first_object) = (Some(0), 0);
        for (id, extent, body) in components {
            let is_misplaced = matches!(body, Body::Mdt) && !list.is_empty();
            if next != Some(extent.start) || extent.start > extent.end || is_misplaced {
                return None;
            }
            next = extent.end.checked_add(1);
            list.push(Component { id, extent, body, first_object });
            first_object += list.last().map_or(0, Component::object_count);
        }
        (!list.is_empty()).then(|| Self { generation, components: list.into() })
    }

    /// A plain layout.
    #[must_use]
    pub fn plain(generation: u32, raid0: Raid0, stripes: Box<[Stripe]>) -> Self {
        let body = Body::Striped { raid0, stripes };
        let whole = Component { id: 0, extent: Extent::ALL, body, first_object: 0 };
        Self { generation, components: Box::new([whole]) }
    }

    /// By rising offset, without gaps; at least one.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The objects on OSTs, of all components.
    pub fn stripes(&self) -> impl Iterator<Item = &Stripe> {
        self.components.iter().flat_map(Component::stripes)
    }

    /// The objects that exist, in the order of their numbers: the arithmetic of each, and where it is;
    /// `None` for the one on the MDT.
    pub fn objects(&self) -> impl Iterator<Item = (Mapping, Option<Stripe>)> {
        self.components.iter().flat_map(|component| {
            let raid0 = component.raid0().unwrap_or(Raid0::WHOLE);
            (0..component.object_count()).map(move |stripe| {
                let extent = component.extent;
                let mapping = Mapping { extent, raid0, stripe: stripe as u32 };
                (mapping, component.stripes().get(stripe).copied())
            })
        })
    }

    /// Whether the first bytes lie on the MDT.
    #[must_use]
    pub fn is_on_mdt(&self) -> bool {
        self.components.first().is_some_and(|first| matches!(first.body, Body::Mdt))
    }

    /// Whether no byte lies anywhere but on the MDT.
    #[must_use]
    pub fn is_only_on_mdt(&self) -> bool {
        self.is_on_mdt() && self.stripes().next().is_none()
    }

    /// The last byte that the layout has a component for.
    #[must_use]
    pub fn last_byte(&self) -> u64 {
        self.components.last().map_or(0, |last| last.extent.end)
    }

    /// How many bytes from `offset` on the layout has components for.
    #[must_use]
    pub fn room(&self, offset: u64) -> u64 {
        let last = self.components.last().map(|last| last.extent.end);
        let rest = last.and_then(|last| last.checked_sub(offset));
        rest.map_or(0, |rest| rest.saturating_add(1))
    }

    /// Whether a component of `extent` has no objects yet, so that nothing can be written there.
    #[must_use]
    pub fn lacks_objects(&self, extent: Extent) -> bool {
        let from = self.index_of(extent.start);
        let touched = self.components[from..].iter();
        touched
            .take_while(|component| component.extent.start <= extent.end)
            .any(Component::is_absent)
    }

    /// Whether all objects of `old` are in this layout too, where they were: whatever was written by
    /// the old one is still there.
    #[must_use]
    pub fn keeps(&self, old: &Layout) -> bool {
        let kept = |component: &Component| {
            component.is_absent()
                || self
                    .components
                    .iter()
                    .any(|now| (now.extent, &now.body) == (component.extent, &component.body))
        };
        old.components.iter().all(kept)
    }

    /// The runs of `length` bytes from `offset`, in file order. Nothing of what lies behind the last
    /// component.
    #[must_use]
    pub fn pieces(&self, offset: u64, length: u64) -> PlacedPieces<'_> {
        let end = offset.saturating_add(length);
        let rest = &self.components[self.index_of(offset)..];
        PlacedPieces { rest, next: offset, end, inner: None }
    }

    /// The component that holds `offset`; one too many if none does.
    fn index_of(&self, offset: u64) -> usize {
        self.components.partition_point(|component| component.extent.end < offset)
    }
}

/// Runs of bytes, in file order.
#[derive(Clone, Debug)]
pub struct PlacedPieces<'a> {
    /// Components not gone through, the present one first.
    rest: &'a [Component],
    next: u64,
    end: u64,
    /// Of the present component.
    inner: Option<Pieces>,
}

impl Iterator for PlacedPieces<'_> {
    type Item = PlacedPiece;

    fn next(&mut self) -> Option<PlacedPiece> {
        loop {
            let component = self.rest.first().filter(|_| self.next < self.end)?;
            let end = component.extent.end.saturating_add(1).min(self.end);
            let Some(raid0) = component.raid0() else {
                let (file_offset, length) = (self.next, end - self.next);
                (self.next, self.rest) = (end, &self.rest[1..]);
                let (place, object_offset) = (Place::Absent, 0);
                return Some(PlacedPiece { place, file_offset, object_offset, length });
            };
            let from = self.next;
            let inner = self.inner.get_or_insert_with(|| raid0.pieces(from, end - from));
            if let Some(Piece { stripe, file_offset, object_offset, length }) = inner.next() {
                let place = Place::Object(component.first_object + stripe as usize);
                return Some(PlacedPiece { place, file_offset, object_offset, length });
            }
            (self.next, self.inner, self.rest) = (end, None, &self.rest[1..]);
        }
    }
}

#[cfg(test)]
#[path = "composite_tests.rs"]
mod tests;
