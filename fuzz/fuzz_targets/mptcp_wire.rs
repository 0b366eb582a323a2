#![no_main]
//! The fixed part of a TCP header, and TCP options with those of Multipath TCP: reading ends and never
//! panics, and what was read is written so that it is read the same.

use anabranch_mptcp_wire::{OptionBuffer, TcpHeader, TcpOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = TcpHeader::read(bytes) {
        assert_eq!(TcpHeader::read(&header.to_bytes()), Ok(header));
    }
    let mut buffer = OptionBuffer::default();
    for option in TcpOptions::new(bytes).flatten() {
        let mut out = [0; 300];
        if let Some(len) = option.write(&mut out) {
            assert_eq!(TcpOptions::new(&out[..len]).next(), Some(Ok(option)));
        }
        buffer.push(&option);
    }
    assert_eq!(buffer.as_bytes().len() % 4, 0);
    assert!(buffer.iter().all(|option| option.is_ok()));
});
