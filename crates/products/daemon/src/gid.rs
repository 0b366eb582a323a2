//! The identifier of a download, as aria2 has it.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The number of hexadecimal digits of a whole identifier.
const DIGITS: usize = 16;

/// Identifies a download: 64 bits, never zero, written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(u64);

impl Gid {
    /// Returns the identifier of this number; `None` for zero, which aria2 reserves.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// Reads a whole identifier; `None` if `text` is not 16 hexadecimal digits, or all of them are zero.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text.len() != DIGITS { None } else { Self::new(digits(text)?) }
    }

    /// Returns the identifiers that `text`, a whole or an abbreviated one, may stand for; `None` if it is not
    /// 1 to 16 hexadecimal digits.
    #[must_use]
    pub fn beginning_with(text: &str) -> Option<RangeInclusive<Self>> {
        let missing = 4 * DIGITS.checked_sub(text.len()).filter(|missing| *missing < DIGITS)? as u32;
        let first = digits(text)? << missing;
        Some(Self(first)..=Self(first | ((1_u128 << missing) - 1) as u64))
    }
}

/// Reads hexadecimal digits. `from_str_radix` would accept a sign, too.
fn digits(text: &str) -> Option<u64> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u64::from_str_radix(text, 16).ok() } else { None }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Gid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Gid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| serde::de::Error::custom("not a GID"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abbreviation_stands_for_all_that_begin_with_it() {
        let gid = Gid::read("00ff00ff00ff00ff").expect("a GID");
        assert_eq!(gid.to_string(), "00ff00ff00ff00ff");
        for text in ["0", "00f", "00ff00ff00ff00ff", "00FF"] {
            assert!(Gid::beginning_with(text).expect(text).contains(&gid), "{text}");
        }
        for text in ["1", "00fe", "00ff00ff00ff00fe"] {
            assert!(!Gid::beginning_with(text).expect(text).contains(&gid), "{text}");
        }
        for text in ["", "zz", "+1", "-1", "00ff00ff00ff00ff0", "é"] {
            assert_eq!(Gid::beginning_with(text), None, "{text}");
        }
        for text in ["0000000000000000", "1", "zzzzzzzzzzzzzzzz"] {
            assert_eq!(Gid::read(text), None, "{text}");
        }
    }
}
