//! The options on the wire, and checks that arbitrary bytes are read without a panic.

mod captured;
mod figures;
mod properties;

/// Returns the bytes of a line of hexadecimal digits; other characters are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
