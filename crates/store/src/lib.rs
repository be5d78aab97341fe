//! The object-store contract, and the suite that every back end runs.
