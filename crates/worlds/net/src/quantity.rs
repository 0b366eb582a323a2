//! Reads quantities as people write them: a number and a unit, `1.5 GiB`, `100Mbit`, `50 ms`.

use anabranch_algo::{Rate, Span};

/// The longest time that can be written, in nanoseconds: a century, which leaves room for sums.
const NANOS_MAX: f64 = 3.2e18;

/// Splits a text into its number and the unit after it, without the space between them. Returns `None` if the
/// text does not begin with a number.
#[must_use]
pub fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// Returns the number of bytes in a unit: `B` or `bit`, perhaps after `k`, `M`, `G` (1,000) or `Ki`, `Mi`,
/// `Gi` (1,024).
#[must_use]
pub fn bytes_of(unit: &str) -> Option<f64> {
    let bits = unit.strip_suffix("bit").map(|prefix| (prefix, 0.125));
    let (prefix, one) = bits.or_else(|| Some((unit.strip_suffix('B')?, 1.0)))?;
    let scale = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        "ki" | "Ki" => 1_024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        _ => return None,
    };
    Some(one * scale)
}

/// Reads an amount of bytes, where `B` may be left out: `512M`, `1GiB`, `100Mbit`.
#[must_use]
pub fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let one = bytes_of(unit).or_else(|| bytes_of(&format!("{unit}B")))?;
    Some(number * one)
}

/// The largest rate that can be written, in bytes a second.
const RATE_MAX: f64 = 1e15;

/// Reads a data rate, in which `B` and `/s` may be left out: `500k`, `1.5Gi`, `100Mbit`.
///
/// # Errors
/// If the text is no rate, or is a rate of less than a packet a second, at which no data would ever be sent;
/// the error is a sentence for the user.
pub fn rate(text: &str) -> Result<Rate, String> {
    match bytes(text.trim().trim_end_matches("/s")).filter(|bytes| *bytes <= RATE_MAX) {
        Some(bytes) if bytes >= 1_500.0 => Ok(Rate::from_bytes(bytes as u64)),
        Some(_) => Err("out of range: 1500 bytes a second is the least".into()),
        None => Err(format!(
            "'{text}' is no rate: a number, with k, M, G, Ki, Mi or Gi behind it, and bit for bits"
        )),
    }
}

/// Reads a length of time in ns, us, ms, s or min; a zero needs no unit.
#[must_use]
pub fn span(text: &str) -> Option<Span> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "" if number == 0.0 => 0.0,
        _ => return None,
    };
    let nanos = number * nanos;
    (nanos <= NANOS_MAX).then(|| Span::from_nanos(nanos.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_times() {
        for (text, wanted) in [("512M", 512e6), ("1GiB", 1_073_741_824.0), ("100Mbit", 12.5e6), ("7", 7.0)] {
            assert_eq!(bytes(text), Some(wanted), "{text}");
        }
        for text in ["", "M", "-1", "1X", "NaN", "inf", "1.2.3", "20 apples", "1 BB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(span("0.5s"), Some(Span::from_millis(500)));
        assert_eq!(span("0"), Some(Span::ZERO));
        assert_eq!((span("50"), span("9999999999999999 s")), (None, None));
    }
}
