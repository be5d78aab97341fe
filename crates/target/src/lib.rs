//! What all targets share: exports, connect, dispatch, last_rcvd, reply data, recovery.
