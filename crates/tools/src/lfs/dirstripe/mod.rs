//! `lfs getdirstripe`, `mkdir` and `setdirstripe`: how directories lie on MDTs.
//!
//! One that exists is split or merged by `setdirstripe -c`; that to other MDTs is moved by `lfs migrate -m`.

mod make;
mod show;

pub(super) use make::{Make, REFUSED, make};
pub(super) use show::{Get, get};

use sheen_layout::directory::HASH_NAMES;
use sheen_wire::lmv::LmvHash;

/// The type of a hash by its name or number; `None` for what is none.
pub(super) fn hash_type(text: &str) -> Option<LmvHash> {
    let by_name = HASH_NAMES.iter().skip(1).position(|name| *name == text).map(|at| at as u32 + 1);
    let hash = LmvHash(by_name.or_else(|| text.parse().ok())?);
    (hash.is_known() && hash == hash.without_flags()).then_some(hash)
}
