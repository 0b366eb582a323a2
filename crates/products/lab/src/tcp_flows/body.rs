//! The bytes that programs write: views of one pattern, which are never copied.

use std::sync::OnceLock;

use anabranch_algo::SplitMix64;
use anabranch_mptcp::Payload;

/// Bytes of the pattern, a prime: no multiple of a segment's size, so bytes at a wrong place are noticed.
const PATTERN_BYTES: usize = 1_048_573;

/// The pattern, made once for all simulations of the program.
static PATTERN: OnceLock<Payload> = OnceLock::new();

/// Returns a view of the bytes of the endless stream from `at` on, at most `max` bytes and at least one
/// unless `max` is zero.
pub(super) fn view(at: u64, max: u64) -> Payload {
    let mut view = PATTERN.get_or_init(pattern).clone();
    view.skip((at % PATTERN_BYTES as u64) as usize);
    view.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    view
}

fn pattern() -> Payload {
    let mut random = SplitMix64(1);
    let mut bytes: Vec<u8> = Vec::with_capacity(PATTERN_BYTES + 8);
    while bytes.len() < PATTERN_BYTES {
        bytes.extend_from_slice(&random.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(PATTERN_BYTES);
    bytes.into()
}

/// Whether `bytes` are those of the stream from `at` on.
pub(super) fn has(mut at: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let part = view(at, bytes.len() as u64);
        let (front, rest) = bytes.split_at(part.len());
        if part.as_bytes() != front {
            return false;
        }
        (at, bytes) = (at + front.len() as u64, rest);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_follow_each_other_across_the_end_of_the_pattern() {
        let at = PATTERN_BYTES as u64 - 3;
        let mut bytes = view(at, 10).as_bytes().to_vec();
        assert_eq!(bytes.len(), 3);
        bytes.extend_from_slice(view(at + 3, 10).as_bytes());
        assert!(has(at, &bytes) && !has(at + 1, &bytes));
        bytes[7] ^= 1;
        assert!(!has(at, &bytes));
    }
}
