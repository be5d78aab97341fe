//! The client as a library: configuration, metadata, data, caches, a POSIX facade.
