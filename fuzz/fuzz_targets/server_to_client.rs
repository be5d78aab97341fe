//! Bytes as servers send them: HELLO, LNet messages, replies, callbacks, bulk data.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_fuzz::server_to_client(data));
