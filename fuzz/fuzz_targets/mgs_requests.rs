//! Sequences of requests to the MGS.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_hostile::mgs_requests(data));
