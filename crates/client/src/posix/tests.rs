//! The facade against a scripted file system.
