//! Sequences of requests to OSTs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_hostile::ost_requests(data));
