//! The parameter tree, statistics, and the control socket of lctl and lfs.
