//! Restores 64-bit sequence numbers of which the lowest 32 bits were sent (RFC 8684 section 3.3.3).

/// Returns the number that has `short` as its lowest 32 bits and is closest to `near`: at most 2³¹ below it,
/// or less than 2³¹ above it. The result wraps around as the sequence numbers do.
#[must_use]
pub const fn expand(short: u32, near: u64) -> u64 {
    let ahead = short.wrapping_sub(near as u32) as i32;
    near.wrapping_add(ahead as i64 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest() {
        for (short, near, whole) in [
            (5, 7, 5),
            (0xffff_fff0, 0x1_0000_0005, 0xffff_fff0),
            (3, 0xffff_fff0, 0x1_0000_0003),
            (0, 0x7fff_ffff, 0),
            (0, 0x8000_0000, 0),
            (0, 0x8000_0001, 0x1_0000_0000),
            (2, u64::MAX, 2),
            (u32::MAX, 0, u64::MAX),
        ] {
            assert_eq!(expand(short, near), whole, "{short:x} near {near:x}");
        }
    }
}
