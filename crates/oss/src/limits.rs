//! What one request of an MDT may do, with reasons.

/// Objects that one request may create (`OST_MAX_PRECREATE`).
pub(crate) const CREATE_MAX: u64 = 20_000;

/// Objects that one request may remove as orphans: more means that the MDT's or our numbers are wrong.
pub(crate) const ORPHANS_MAX: u64 = CREATE_MAX * 3 / 2;
