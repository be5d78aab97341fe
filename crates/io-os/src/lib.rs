//! The io traits on Linux: sockets, threads, clock.
