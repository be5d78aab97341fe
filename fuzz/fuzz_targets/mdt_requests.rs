//! Sequences of requests to an MDT.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_hostile::mdt_requests(data));
