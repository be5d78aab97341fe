//! Operations against a scripted MDT.
