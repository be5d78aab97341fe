//! Stripe arithmetic: where the bytes of a file lie in its objects. Pure functions.
//!
//! A plain (RAID-0) file is cut into stripes of `stripe_size` bytes that go round over its objects;
//! in each object they lie without gaps. Offsets here are bytes; extents include both ends.
//! Nothing allocates but `Layout::pieces`'s caller; each function costs a few divisions, by shift
//! where the stripe size is a power of two (the compiler cannot know, divisions are cheap enough).
//!
//! Lustre's names: lov, `lov_offset.c`, `lov_pack.c`.

mod ea;
mod raid0;

pub use ea::{LayoutError, parse};
pub use raid0::{Piece, Pieces, Raid0};

use sheen_types::Fid;

/// One object of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// On which OST.
    pub ost: u32,
    /// Which object there; an old-style object id as its IDIF.
    pub object: Fid,
}

/// A plain layout with objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Grows each time the MDT changes the layout.
    pub generation: u32,
    /// The arithmetic.
    pub raid0: Raid0,
    /// The objects in stripe order; as many as `raid0.stripe_count`.
    pub stripes: Box<[Stripe]>,
}
