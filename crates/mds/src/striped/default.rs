//! What new directories in a directory get as their stripes (`trusted.dmv`): set by an administrator, and handed down as far as
//! it says (Lustre: `lod_ah_init`, `lmv_inherit_next`).

use std::num::NonZeroU32;

use bytes::Bytes;
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_target::Context;
use sheen_types::{Errno, Fid};
use sheen_wire::lmv::{LmvEa, LmvHash};
use sheen_wire::md::RecSetattr;

use crate::Mdt;
use crate::caller::Caller;
use crate::xattrs::{DEFAULT_LMV, XattrsOf};

/// `LMV_INHERIT_END`: directories in it get stripes, and hand nothing down.
const END: u8 = 1;
/// `LMV_INHERIT_MAX`, `LMV_INHERIT_RR_MAX`: what is more is no count of levels.
const LEVELS_MAX: u8 = 250;
/// `LMV_INHERIT_NONE`.
const NONE: u8 = 255;

/// Reads a wish, of a client or of an attribute.
///
/// # Errors
/// [`Errno::EINVAL`] for what is none.
pub(crate) fn parse_wish(value: &Bytes) -> Result<DirectoryWish, Errno> {
    let ea = LmvEa::decode(value).map_err(|_| Errno::EINVAL)?;
    DirectoryWish::from_ea(&ea).map_err(|_| Errno::EINVAL)
}

/// The default that a new directory inherits; `None` if it ends there.
fn inherited(default: &DirectoryWish) -> Option<DirectoryWish> {
    let max_inherit = match default.max_inherit {
        END | NONE => return None,
        // Without end, as 0 is for historical reasons.
        0 => 0,
        levels if levels > LEVELS_MAX => levels,
        levels => levels - 1,
    };
    let max_inherit_rr = match default.max_inherit_rr {
        0 => 0,
        levels if levels > LEVELS_MAX => levels,
        levels => levels - 1,
    };
    Some(DirectoryWish { max_inherit, max_inherit_rr, ..default.clone() })
}

/// Whether a wish may come to stripes; else it is for a directory without.
pub(crate) fn says_several(wish: &DirectoryWish) -> bool {
    let one = [WishedStripes::Unsaid, WishedStripes::Count(NonZeroU32::MIN)];
    !wish.mdts.is_empty() || !one.contains(&wish.stripes)
}

/// A wish that says nothing: as a default it is removed (`LMVEA_DELETE_VALUES`).
fn says_nothing(wish: &DirectoryWish) -> bool {
    wish.stripes == WishedStripes::Unsaid && wish.first.is_none() && wish.mdts.is_empty()
}

/// The default that a directory gets from a request; `None` if it loses the one that it has.
///
/// # Errors
/// [`Errno::EINVAL`] for what is no wish.
pub(crate) fn new_default_stripes(value: &Bytes) -> Result<Option<Bytes>, Errno> {
    let wish = parse_wish(value)?;
    Ok((!says_nothing(&wish)).then(|| wish.to_ea().encode()))
}

impl Mdt {
    /// Whether a directory may get a default, and one could be made as that says. Called while nothing is held.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for a caller that may not choose MDTs, and where directories on other MDTs are off, those of
    /// [`new_default_stripes`] and [`Mdt::choose_stripes`].
    pub(crate) async fn check_default_stripes(
        &self,
        context: &Context,
        record: &RecSetattr,
        value: &Bytes,
    ) -> Result<(), Errno> {
        let settings = [self.setting_for(false), self.setting_for(true)];
        let caller = Caller::from(record);
        self.check_choice(context, &caller, "a default for directories", &settings)?;
        self.choose_stripes(&context.target, &parse_wish(value)?).await.map(drop)
    }

    /// The wish of a directory's default, for a new directory in it that comes without one.
    ///
    /// # Errors
    /// Those of the store. What is no wish counts as none.
    pub(crate) fn default_wish(&self, directory: Fid) -> Result<Option<DirectoryWish>, Errno> {
        if !self.sequences.knows_other_mdts() || self.is_remote(directory) {
            return Ok(None);
        }
        let value = (*self.store).xattr_of(directory, DEFAULT_LMV)?;
        Ok(value.and_then(|value| parse_wish(&value).ok()))
    }

    /// The default that a new directory inherits from its parent, whatever MDT that is on. The root hands none down: its own is that of the
    /// file system.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn inherited_default(
        &self,
        parent: Fid,
        of_parent: &(impl XattrsOf + ?Sized),
    ) -> Result<Option<Bytes>, Errno> {
        if parent == Fid::ROOT || !self.sequences.knows_other_mdts() {
            return Ok(None);
        }
        let value = of_parent.xattr_of(parent, DEFAULT_LMV)?;
        let default = value.and_then(|value| parse_wish(&value).ok());
        let inherited = default.as_ref().and_then(inherited);
        let is_one = |it: &DirectoryWish| !(says_nothing(it) && it.hash != LmvHash::UNKNOWN);
        Ok(inherited.filter(is_one).map(|it| it.to_ea().encode()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_handed_down_as_many_levels_as_it_says() {
        let of = |max_inherit, max_inherit_rr| DirectoryWish {
            max_inherit,
            max_inherit_rr,
            ..DirectoryWish::default()
        };
        let next = |max_inherit, max_inherit_rr| inherited(&of(max_inherit, max_inherit_rr));
        assert_eq!(next(3, 2), Some(of(2, 1)));
        assert_eq!(next(2, 0), Some(of(1, 0)));
        assert_eq!((next(1, 3), next(255, 3)), (None, None));
        assert_eq!(next(0, 255), Some(of(0, 255)), "without end");
    }
}
