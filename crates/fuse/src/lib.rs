//! FUSE requests to client calls to errnos; no policy.
