//! Parses the field `Range` (RFC 9110 §14.2), for one range of bytes.

use std::ops::Range;

/// The bytes that a `Range` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// The whole content, because the field is invalid or names several ranges. A server may always answer
    /// so.
    Whole,
    /// These bytes: at least one, and all within the content.
    Part(Range<u64>),
    /// No byte of the content (§15.5.17).
    Unsatisfiable,
}

/// Parses the value of a `Range` for a content of `length` bytes.
#[must_use]
pub fn requested(value: &[u8], length: u64) -> RangeRequest {
    parse(value, length).unwrap_or(RangeRequest::Whole)
}

fn parse(value: &[u8], length: u64) -> Option<RangeRequest> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, set) = text.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    // Empty elements of a list are ignored (§5.6.1.2).
    let mut elements = set.split(',').map(|e| e.trim_matches([' ', '\t'])).filter(|e| !e.is_empty());
    let (one, None) = (elements.next()?, elements.next()) else { return None };
    let (first, last) = one.split_once('-')?;
    let part = match (first, last) {
        ("", suffix) => {
            let suffix = number(suffix)?;
            if length == 0 && suffix > 0 {
                // The range is satisfiable, but no Content-Range can say "nothing".
                return None;
            }
            length.saturating_sub(suffix)..length
        }
        (first, "") => number(first)?..length,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some(if part.start < part.end { RangeRequest::Part(part) } else { RangeRequest::Unsatisfiable })
}

/// Parses a number of digits only. A number that is too large becomes the largest.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_what_the_standard_says() {
        let part = |first, end| RangeRequest::Part(first..end);
        for (value, want) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-499", part(0, 500)),
            ("bytes=500-999", part(500, 1_000)),
            ("bytes=999-999", part(999, 1_000)),
            ("bytes=0-5000", part(0, 1_000)),
            ("bytes=0-99999999999999999999999999", part(0, 1_000)),
            ("bytes=-1", part(999, 1_000)),
            ("bytes=-500", part(500, 1_000)),
            ("bytes=-5000", part(0, 1_000)),
            ("bytes=9-", part(9, 1_000)),
            ("Bytes=9-", part(9, 1_000)),
            ("bytes= 9-11 ,", part(9, 12)),
            ("bytes=1000-", RangeRequest::Unsatisfiable),
            ("bytes=1000-1001", RangeRequest::Unsatisfiable),
            ("bytes=99999999999999999999999999-", RangeRequest::Unsatisfiable),
            ("bytes=-0", RangeRequest::Unsatisfiable),
            ("bytes=0-0,5-6", RangeRequest::Whole),
            ("bytes=5-4", RangeRequest::Whole),
            ("bytes=", RangeRequest::Whole),
            ("bytes=-", RangeRequest::Whole),
            ("bytes=--1", RangeRequest::Whole),
            ("bytes=+1-2", RangeRequest::Whole),
            ("bytes=1 -2", RangeRequest::Whole),
            ("bytes=0x1-2", RangeRequest::Whole),
            ("bytes", RangeRequest::Whole),
            ("items=0-1", RangeRequest::Whole),
            ("", RangeRequest::Whole),
        ] {
            assert_eq!(requested(value.as_bytes(), 1_000), want, "{value}");
        }
        assert_eq!(requested(b"bytes=0-", 0), RangeRequest::Unsatisfiable);
        assert_eq!(requested(b"bytes=-5", 0), RangeRequest::Whole);
        assert_eq!(requested(b"bytes=\xff", 9), RangeRequest::Whole);
    }

    proptest! {
        #[test]
        fn a_part_is_never_empty_nor_beyond_the_end(
            value in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                "bytes=[0-9]{0,22}-[0-9]{0,22}".prop_map(String::into_bytes),
            ],
            length in prop_oneof![0..100_u64, any::<u64>()],
        ) {
            if let RangeRequest::Part(part) = requested(&value, length) {
                prop_assert!(part.start < part.end && part.end <= length);
            }
        }
    }
}
