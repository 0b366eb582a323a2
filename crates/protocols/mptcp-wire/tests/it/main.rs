//! What the options look like on the wire, and that whatever arrives is read without a panic.

mod captured;
mod figures;
mod properties;

/// The bytes of a line of hexadecimal digits; spaces are for the reader.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
