//! Looks up the entries of a measure's `paper`, `model`, `expect` and `why` by case, controller and world;
//! defines ranges and verdicts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::World;

/// Prefix of keys in a measure's notes that concern runs in the kernel.
pub const KERNEL_PREFIX: &str = "kernel:";

/// Returns the note for this case and controller, by the key `CASE/CONTROLLER`, `CASE`, `CONTROLLER` or `*`.
#[must_use]
pub fn lookup<'a, T>(notes: &'a BTreeMap<String, T>, case: Option<&str>, controller: &str) -> Option<&'a T> {
    let of_case =
        case.and_then(|case| notes.get(&format!("{case}/{controller}")).or_else(|| notes.get(case)));
    of_case.or_else(|| notes.get(controller)).or_else(|| notes.get("*"))
}

/// Returns the note for this world, case and controller. Expectations and reasons concern the simulator,
/// unless their key begins with [`KERNEL_PREFIX`].
#[must_use]
pub fn lookup_in<'a, T>(
    world: World,
    notes: &'a BTreeMap<String, T>,
    case: Option<&str>,
    controller: &str,
) -> Option<&'a T> {
    if world == World::Sim {
        return lookup(notes, case, controller);
    }
    let of_case = case.and_then(|case| {
        let both = notes.get(&format!("{KERNEL_PREFIX}{case}/{controller}"));
        both.or_else(|| notes.get(&format!("{KERNEL_PREFIX}{case}")))
    });
    let of_all = || {
        notes.get(&format!("{KERNEL_PREFIX}{controller}")).or_else(|| notes.get(&format!("{KERNEL_PREFIX}*")))
    };
    of_case.or_else(of_all)
}

/// The result of comparing a value with its expected range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The value is in the range, and its interval fits.
    Ok,
    /// The value is outside the range.
    Not,
    /// The value is in the range, but its interval is wider than the range, or unknown.
    Unclear,
}

impl Verdict {
    /// Returns the word that programs read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Not => "not",
            Self::Unclear => "unclear",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The range in which a value is expected, ends included: `"47..53"`, `"97.."`, `"..3"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Least value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
}

/// The error for a text that is not a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeError(String);

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no range: write \"47..53\", \"97..\" or \"..3\"", self.0)
    }
}
impl std::error::Error for RangeError {}

impl Range {
    /// Whether `value` is in the range.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the verdict on a value with half of its interval, if known. `Ok` needs an interval that fits:
    /// no wider than a closed range, or on the right side of the end of an open one.
    #[must_use]
    pub fn verdict(&self, value: f64, ci95: Option<f64>) -> Verdict {
        if !self.contains(value) {
            return Verdict::Not;
        }
        let width = self.high - self.low;
        let fits = |ci: f64| match width.is_finite() {
            true => 2.0 * ci <= width,
            false => self.contains(value - ci) && self.contains(value + ci),
        };
        if ci95.is_some_and(fits) { Verdict::Ok } else { Verdict::Unclear }
    }
}

impl FromStr for Range {
    type Err = RangeError;
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let wrong = || RangeError(text.into());
        let (low, high) = text.split_once("..").ok_or_else(wrong)?;
        let end = |text: &str, open: f64| match text.trim() {
            "" => Ok(open),
            number => number.parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(wrong),
        };
        let range = Self { low: end(low, f64::NEG_INFINITY)?, high: end(high, f64::INFINITY)? };
        let open = range.low.is_infinite() && range.high.is_infinite();
        if open || range.low > range.high { Err(wrong()) } else { Ok(range) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!("47..53".parse(), Ok(Range { low: 47.0, high: 53.0 }));
        assert_eq!("-0.5 .. 1e3".parse(), Ok(Range { low: -0.5, high: 1e3 }));
        let range: Range = "97..".parse().expect("a range");
        assert!(range.contains(97.0) && range.contains(1e9) && !range.contains(96.9));
        assert!("..3".parse::<Range>().expect("a range").contains(-7.0));
        let verdict = |text: &str, value, ci| text.parse::<Range>().expect("a range").verdict(value, ci);
        assert_eq!(verdict("47..53", 47.1, Some(3.0)), Verdict::Ok);
        assert_eq!(verdict("47..53", 50.0, Some(3.1)), Verdict::Unclear);
        assert_eq!(verdict("47..53", 50.0, None), Verdict::Unclear);
        assert_eq!(verdict("47..53", 46.9, Some(40.0)), Verdict::Not);
        assert_eq!(verdict("97..", 98.0, Some(1.0)), Verdict::Ok);
        assert_eq!(verdict("97..", 98.0, Some(1.1)), Verdict::Unclear);
        assert_eq!(verdict("..3", 2.0, Some(1.1)), Verdict::Unclear);
        for text in ["", "..", "3", "5..4", "a..b", "1...", "nan..", "1..inf"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }
}
