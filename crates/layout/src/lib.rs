//! Stripe and directory-hash arithmetic: pure functions.
