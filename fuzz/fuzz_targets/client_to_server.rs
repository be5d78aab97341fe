//! Bytes as clients send them: acceptor request, HELLO, LNet messages, requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_fuzz::client_to_server(data));
