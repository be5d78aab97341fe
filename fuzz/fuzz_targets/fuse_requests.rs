//! Requests as no kernel would send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_hostile::fuse_requests(data));
