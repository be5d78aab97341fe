//! The few permission checks that the client must make itself, because no request goes out that the
//! MDT could refuse.

use super::{Attributes, Credentials};

/// Permission to read, as mode bits of one class.
pub(super) const READ: u32 = 4;

/// Whether the mode bits give `wanted` to `who`. Access control lists are not looked at.
pub(super) fn permits(attributes: &Attributes, who: &Credentials, wanted: u32) -> bool {
    if who.uid == 0 {
        return true;
    }
    let shift = if who.uid == attributes.uid {
        6
    } else if who.is_in_group(attributes.gid) {
        3
    } else {
        0
    };
    attributes.mode >> shift & wanted == wanted
}

/// Whether `who` may set times of their own choice.
pub(super) fn owns(attributes: &Attributes, who: &Credentials) -> bool {
    who.uid == 0 || who.uid == attributes.uid
}
