//! Any bytes as a datagram that a program sends through SOCKS5: no panic; what is read, written again, is
//! read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_proxy::ingress::socks_udp::{decode, encode};

fuzz_target!(|bytes: &[u8]| {
    if let Some((to, payload)) = decode(bytes) {
        assert!(bytes.ends_with(payload));
        assert_eq!(decode(&encode(&to, payload)), Some((to, payload)));
    }
});
