//! The store contract in memory, for tests.
