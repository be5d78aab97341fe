//! Layouts: where the bytes of a file lie, and the names of a directory. Pure functions.
//!
//! A layout is a list of *components*, each with a range of the file's bytes; a plain layout is one
//! component for all of them. A component's bytes lie on the MDT, with the inode (Data-on-MDT), or go
//! round over objects on OSTs ([`Raid0`]); one that has not been written yet has no objects. Offsets
//! in objects count from the file's beginning, not the component's, as in Lustre: what the components
//! before hold is a hole there.
//!
//! Offsets are bytes; extents include both ends. Nothing allocates but what reads a layout; a step
//! of [`Layout::pieces`] costs a few divisions.
//!
//! What an MDT makes of requested layouts is in [`plan`], [`stored`] and [`choose`].
//!
//! Where the names of a directory lie is in [`directory`].
//!
//! Lustre's names: lov and lod, `lov_offset.c`, `lov_ea.c`, `lov_object.c`.

#[cfg(test)]
mod captured;
pub mod choose;
mod composite;
pub mod directory;
mod ea;
pub mod plan;
mod raid0;
pub mod stored;

pub use composite::{Mapping, Place, PlacedPiece, PlacedPieces};
pub use ea::{LayoutError, parse};
pub use raid0::{Piece, Pieces, Raid0};

use sheen_types::{Extent, Fid};

/// One object of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// On which OST.
    pub ost: u32,
    /// Which object there; an old-style object id as its IDIF.
    pub object: Fid,
}

/// Where the bytes of a component lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nowhere yet: the MDT makes its objects when a client is to write.
    Absent,
    /// On the MDT, in the inode's own data; only the first component.
    Mdt,
    /// On OSTs.
    Striped {
        /// The arithmetic.
        raid0: Raid0,
        /// The objects in stripe order; as many as `raid0.stripe_count`.
        stripes: Box<[Stripe]>,
    },
}

/// A range of a file's bytes that are laid out in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its number in the layout's life; 0 for that of a plain layout.
    pub id: u32,
    /// Which bytes of the file.
    pub extent: Extent,
    /// Where they are.
    pub body: Body,
    /// Number of its first object among all of the file's.
    first_object: usize,
}

/// A layout with objects, or one that will have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Grows each time the MDT changes the layout.
    pub generation: u32,
    /// By rising offset, without gaps; at least one.
    components: Box<[Component]>,
}
