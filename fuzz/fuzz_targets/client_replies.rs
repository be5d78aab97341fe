//! Answers of servers that lie to a client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_hostile::client_replies(data));
