//! Parses quantities as people write them, always with a unit: `"8 Mbit/s"`, `"50 ms"`, `"10 MB"`, `"53
//! pkt"`. Rates on command lines have the same syntax, but may omit `/s` and `B`. Probabilities are numbers,
//! or percentages: `"1 %"`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anabranch_algo::{Rate, Span, Time};
use anabranch_net::quantity::{self, bytes_of, split};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! quantity {
    ($type:ident) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    };
}

/// Reads a probability: a number from 0 to 1, or a string in percent. `null` (of JSON) gives `None`.
struct ProbabilityVisitor;

impl Visitor<'_> for ProbabilityVisitor {
    type Value = Option<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probability, as 0.01 or \"1 %\"")
    }
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(number as f64))
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number as f64))
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        percent(text).map(Some).ok_or_else(|| {
            E::custom(format!("\"{text}\" is not a probability: write 0.01 without quotes, or \"1 %\""))
        })
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Parses `1 %` as 0.01: the number that is nearest to the written value.
fn percent(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    format!("{number}e-2").parse().ok().filter(|_| plain)
}

/// Reads a probability: `0.01` or `"1 %"`.
pub(super) fn probability<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let found = from.deserialize_any(ProbabilityVisitor)?;
    found.ok_or_else(|| D::Error::custom("a probability is missing"))
}

/// Reads a probability that may be missing: `0.01` or `"1 %"`.
pub(super) fn optional_probability<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    from.deserialize_any(ProbabilityVisitor)
}

/// A length of time: ns, us, ms, s, min.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Duration(pub Span);

impl Duration {
    /// Returns the length in seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0.as_nanos() as f64 / 1e9
    }
    /// Returns the time that lies this long after the start of the run.
    #[must_use]
    pub fn time(self) -> Time {
        Time::ZERO + self.0
    }
}

impl FromStr for Duration {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let span = quantity::span(text).map(Self);
        span.ok_or_else(|| format!("\"{text}\" is not a time: write it as \"50 ms\" (ns, us, ms, s, min)"))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (by, unit) = match nanos {
            n if n % 1_000_000_000 == 0 => (1e9, "s"),
            n if n % 1_000_000 == 0 || n > 1_000_000 => (1e6, "ms"),
            n if n % 1_000 == 0 || n > 1_000 => (1e3, "us"),
            _ => (1.0, "ns"),
        };
        write!(f, "{} {unit}", nanos as f64 / by)
    }
}
quantity!(Duration);

/// A rate: bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, MiB/s, or pkt/s (packets of the scenario's size).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateSpec {
    /// Bytes per second.
    Bytes(f64),
    /// Packets per second.
    Packets(f64),
}

impl RateSpec {
    /// Returns the rate for packets of `packet_bytes`.
    #[must_use]
    pub fn rate(self, packet_bytes: u64) -> Rate {
        Rate::from_bytes(match self {
            Self::Bytes(bytes) => bytes.round() as u64,
            Self::Packets(packets) => (packets * packet_bytes as f64).round() as u64,
        })
    }
}

impl FromStr for RateSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a rate: write it as \"8 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s, B/s, \
                 kB/s, MB/s, MiB/s) or \"500 pkt/s\", 8000 Tbit/s at most"
            )
        };
        let (number, unit) = split(text).ok_or_else(wrong)?;
        match unit.strip_suffix("/s").ok_or_else(wrong)? {
            "pkt" if number <= 1e12 => Ok(Self::Packets(number)),
            unit => {
                let bytes = bytes_of(unit).map(|one| number * one).filter(|bytes| *bytes <= 1e15);
                bytes.map(Self::Bytes).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for RateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(packets) => write!(f, "{packets} pkt/s"),
            Self::Bytes(bytes) if bytes >= 1.25e8 => write!(f, "{} Gbit/s", bytes * 8.0 / 1e9),
            Self::Bytes(bytes) if bytes >= 1.25e5 => write!(f, "{} Mbit/s", bytes * 8.0 / 1e6),
            Self::Bytes(bytes) => write!(f, "{} kbit/s", bytes * 8.0 / 1e3),
        }
    }
}
quantity!(RateSpec);

/// An amount: B, kB, MB, GB, or pkt; for a queue also a time, which means the bytes that the link sends in
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeSpec {
    /// Bytes.
    Bytes(u64),
    /// Packets.
    Packets(u64),
    /// Bytes that the link sends in this time.
    Time(Span),
}

impl FromStr for SizeSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not an amount: write it as \"10 MB\" (B, kB, MB, GB), \"53 pkt\" or, \
                 of a queue, \"100 ms\""
            )
        };
        let (number, unit) = split(text).ok_or_else(wrong)?;
        if unit == "pkt" && number <= 1e15 {
            return Ok(Self::Packets(number.round() as u64));
        }
        match bytes_of(unit).map(|one| number * one) {
            Some(bytes) if bytes <= 1e18 => Ok(Self::Bytes(bytes.round() as u64)),
            Some(_) => Err(wrong()),
            None => text.parse::<Duration>().map(|time| Self::Time(time.0)).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(packets) => write!(f, "{packets} pkt"),
            Self::Bytes(bytes) if bytes % 1_000_000 == 0 => write!(f, "{} MB", bytes / 1_000_000),
            Self::Bytes(bytes) if bytes % 1_000 == 0 => write!(f, "{} kB", bytes / 1_000),
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::Time(span) => Duration(span).fmt(f),
        }
    }
}
quantity!(SizeSpec);

/// Parses `1..10` (both ends included), or `10` for `1..10`; at most `count_max` seeds.
///
/// # Errors
/// If `text` is not a range of seeds; the error is a sentence for the user.
pub fn seeds(text: &str, count_max: u64) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("'{text}' names no seeds: write 1..10, or 10 for the same; 7..7 is seed 7 alone");
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
        None => (1, number(text)?),
    };
    if first > last || last - first >= count_max || last >= i64::MAX as u64 {
        return Err(wrong());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_them() {
        assert_eq!("50 ms".parse(), Ok(Duration(Span::from_millis(50))));
        assert_eq!("0.5s".parse(), Ok(Duration(Span::from_millis(500))));
        assert_eq!("0".parse(), Ok(Duration(Span::ZERO)));
        assert_eq!("8 Mbit/s".parse(), Ok(RateSpec::Bytes(1e6)));
        assert_eq!("500 pkt/s".parse::<RateSpec>().map(|s| s.rate(1_000)), Ok(Rate::from_bytes(500_000)));
        assert_eq!("11.7 MB/s".parse::<RateSpec>().map(|s| s.rate(1)), Ok(Rate::from_bytes(11_700_000)));
        assert_eq!("10 MB".parse(), Ok(SizeSpec::Bytes(10_000_000)));
        assert_eq!("1.5 GiB".parse(), Ok(SizeSpec::Bytes(1_610_612_736)));
        assert_eq!("53 pkt".parse(), Ok(SizeSpec::Packets(53)));
        assert_eq!("100 ms".parse(), Ok(SizeSpec::Time(Span::from_millis(100))));
        for text in ["", "ms", "50", "50 m", "-1 s", "1e5 s", "9999999999999999 s", "nan s", "8 Mbps"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
            assert!(text.parse::<RateSpec>().is_err(), "{text}");
        }
        assert!("50".parse::<SizeSpec>().is_err());
    }

    #[test]
    fn percent_is_the_nearest_number() {
        for (text, number) in
            [("1 %", 0.01), ("0.1%", 0.001), ("100 %", 1.0), (" 7.3 % ", 0.073), ("0 %", 0.0)]
        {
            assert_eq!(percent(text), Some(number), "{text}");
        }
        for text in ["", "%", "1", "1 percent", "-1 %", "1e2 %", "inf %"] {
            assert_eq!(percent(text), None, "{text}");
        }
    }

    #[test]
    fn there_and_back() {
        for text in ["50 ms", "1.5 ms", "300 s", "10 us", "7 ns"] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), text);
        }
        for text in ["8 Mbit/s", "500 pkt/s", "1 Gbit/s", "64 kbit/s"] {
            assert_eq!(text.parse::<RateSpec>().unwrap().to_string(), text);
        }
        for text in ["10 MB", "53 pkt", "100 ms", "7 B"] {
            assert_eq!(text.parse::<SizeSpec>().unwrap().to_string(), text);
        }
    }
}
