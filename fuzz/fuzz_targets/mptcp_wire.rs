#![no_main]
//! TCP options with those of Multipath TCP: reading ends and never panics, and what was read is written as an
//! option that is read the same.

use anabranch_mptcp_wire::{OptionBuffer, TcpOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
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
