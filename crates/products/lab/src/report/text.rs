//! Formats text: escaped for HTML, and numbers for people.

use std::borrow::Cow;

/// Appends to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($part)*);
    }};
}
pub(super) use put;

/// Most decimals of a number.
const DECIMALS_MAX: i32 = 6;
/// Least number that is written with an exponent.
const PLAIN_MAX: f64 = 1e12;

/// Puts texts into a page of Markdown, each in the place of `{{NAME}}`, without the blank space at its end.
pub(crate) fn fill(page: &str, places: &[(&str, String)]) -> String {
    places
        .iter()
        .fold(page.to_owned(), |page, (name, text)| page.replace(&format!("{{{{{name}}}}}"), text.trim_end()))
}

/// Escapes `text` for HTML, as content or in a quoted attribute. Control characters, which HTML forbids,
/// become U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns `value` if it is finite.
pub(super) fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite())
}

/// Returns the number of decimals for all of `values`: four significant digits of the largest, two of the
/// smallest.
pub(super) fn decimals(values: impl Iterator<Item = f64>) -> usize {
    let (mut most, mut least) = (i32::MIN, i32::MAX);
    for value in values.filter(|v| v.is_finite() && *v != 0.0) {
        let exponent = value.abs().log10().floor() as i32;
        (most, least) = (most.max(exponent), least.min(exponent));
    }
    if most == i32::MIN {
        return 1;
    }
    // A value far below the others must not add decimals.
    let least = least.max(most - 3);
    (3 - most).max(1 - least).clamp(0, DECIMALS_MAX) as usize
}

/// Formats `value` with `decimals`; with an exponent or in words if decimals would say nothing.
pub(super) fn number(value: f64, decimals: usize) -> String {
    if value.is_nan() {
        return "not a number".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "-∞".into() };
    }
    if value.abs() >= PLAIN_MAX {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.decimals$}");
    // "-0.0" would claim a sign that rounding took away.
    if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') {
        text.trim_start_matches('-').into()
    } else {
        text
    }
}

/// Formats `value` with at most `decimals`, without zeros at the end.
pub(super) fn short(value: f64, decimals: usize) -> String {
    let text = number(value, decimals);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

/// Estimates the width of `text` in a plot, pixels. The font is unknown, so this assumes a wide one.
pub(super) fn width(text: &str) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 3.6,
        'f' | 't' | 'r' | '/' | '-' | '(' | ')' | '[' | ']' => 4.7,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 10.8,
        c if c.is_ascii_uppercase() => 8.0,
        c if c.is_ascii() => 6.9,
        '×' | '±' => 9.3,
        _ => 11.0,
    };
    text.chars().map(of).sum()
}

/// Returns `text`, or its beginning and end if it is wider than `most` pixels.
pub(super) fn fit(text: &str, most: f64) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    let chars: Vec<char> = text.chars().collect();
    // Names differ at their ends more than at their beginnings.
    let cut = |keep: usize| {
        let head = keep / 2;
        let tail = chars.len() - (keep - head);
        chars[..head].iter().chain(&['…']).chain(&chars[tail..]).collect::<String>()
    };
    let keep = (1..chars.len()).rev().find(|&keep| width(&cut(keep)) <= most).unwrap_or(1);
    Cow::Owned(cut(keep))
}

/// Formats `text` as the content of an SVG text element: shortened to `most` pixels, with the whole text on
/// hover.
pub(super) fn fitted(text: &str, most: f64) -> String {
    match fit(text, most) {
        Cow::Borrowed(text) => escape(text),
        Cow::Owned(short) => format!("{}<title>{}</title>", escape(&short), escape(text)),
    }
}

/// Formats a count: "1 seed", "2 seeds".
pub(super) fn count(n: usize, of: &str) -> String {
    format!("{n} {of}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_matters() {
        assert_eq!(decimals([50.12, 49.3].into_iter()), 2);
        assert_eq!(decimals([8_000.0, 6_990.0].into_iter()), 0);
        assert_eq!(decimals([0.0123].into_iter()), 5);
        assert_eq!(decimals([100.0, 0.0].into_iter()), 1);
        assert_eq!(decimals([f64::NAN, f64::INFINITY].into_iter()), 1);
        assert_eq!(number(-0.001, 2), "0.00");
        assert_eq!(number(-0.1, 1), "-0.1");
        assert_eq!(number(f64::NAN, 1), "not a number");
        assert_eq!(number(1e15, 1), "1.000e15");
        assert_eq!(short(66.700, 3), "66.7");
        assert_eq!(short(100.0, 0), "100");
        assert_eq!(short(0.0, 2), "0");
    }

    #[test]
    fn text_is_escaped_and_fits() {
        assert_eq!(
            escape("<a href=\"x\" b='&'>\0"),
            "&lt;a href=&quot;x&quot; b=&#39;&amp;&#39;&gt;\u{fffd}"
        );
        assert_eq!(fit("nmcc", 60.0), "nmcc");
        let short = fit("a-very-long-name-of-a-flow-17", 60.0);
        assert!(short.ends_with("17") && short.contains('…') && width(&short) <= 60.0, "{short}");
        assert_eq!(fit("wide", 0.0), "…e");
    }
}
