//! Files of a store that were changed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_hostile::store_files(data));
