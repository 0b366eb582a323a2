//! Formats numbers for people.

/// Formats a size in decimal units: "4.2 GB".
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1_000.0;
    let mut unit = 0;
    // The value 999.95 would be printed as 1000.0.
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

/// Formats a data rate, given in bytes a second, in bits a second as networks are sold: "93.4 Mbit/s".
#[must_use]
pub fn rate(bytes: u64) -> String {
    anabranch_algo::Rate::from_bytes(bytes).to_string()
}

/// Returns a length of time in seconds, as reports have it.
pub fn seconds(span: anabranch_algo::Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// Formats a length of time in seconds: "0.4 s", "13 s", "3 min 05 s", "2 h 04 min", "3 d 02 h".
#[must_use]
pub fn duration(seconds: f64) -> String {
    let whole = seconds.clamp(0.0, 1e9).round() as u64;
    match whole {
        0..=2 if seconds > 0.0 => format!("{seconds:.1} s"),
        0..=59 => format!("{whole} s"),
        60..=3_599 => format!("{} min {:02} s", whole / 60, whole % 60),
        3_600..=86_399 => format!("{} h {:02} min", whole / 3_600, whole / 60 % 60),
        86_400..=8_640_000 => format!("{} d {:02} h", whole / 86_400, whole / 3_600 % 24),
        _ => "ages".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let all = [0, 999, 1_000, 999_949, 999_999, 4_200_000_000, u64::MAX].map(bytes);
        assert_eq!(all, ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "4.2 GB", "18.4 EB"]);
    }

    #[test]
    fn times() {
        let all =
            [0.0, 0.42, 3.99, 12.7, 185.0, 7_440.0, 266_400.0, f64::INFINITY, f64::NAN, -1.0].map(duration);
        let want =
            ["0 s", "0.4 s", "4 s", "13 s", "3 min 05 s", "2 h 04 min", "3 d 02 h", "ages", "0 s", "0 s"];
        assert_eq!(all, want);
    }
}
