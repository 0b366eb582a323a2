//! Writes numbers in Prometheus' text exposition format, version 0.0.4. The caller decides what the numbers
//! mean.

use std::fmt::{Display, Write as _};

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Collects a text in this format. The samples of a metric follow its head.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    text: String,
    name: String,
}

impl Exposition {
    /// Creates an empty text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a metric. The name of a counter ends with `_total`; `help` describes the metric in one line.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        self.name = format!("anabranch_{name}");
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let name = &self.name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample of the metric that began last. The values of labels may be any text.
    pub fn sample(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        let escaped = |value: &dyn Display| {
            value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
        };
        let each = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(*value)));
        let labels = match each.collect::<Vec<_>>().join(",") {
            none if none.is_empty() => none,
            some => format!("{{{some}}}"),
        };
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }

    /// Returns the text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Selects the type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number only grows, until the process ends.
    Counter,
    /// The number may grow and shrink.
    Gauge,
}

/// Checks that a text follows the rules of the format (Prometheus documentation, "Exposition formats"), as
/// far as it uses them. For tests of all crates.
///
/// # Panics
/// If the text breaks a rule, or if a name does not begin with `anabranch_`.
pub fn check(text: &str) {
    let is_name = |text: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.starts_with("anabranch_") && text.chars().all(fits)
    };
    let (mut typed, mut helped) = (Vec::new(), Vec::new());
    let mut samples = std::collections::BTreeSet::new();
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped.push(rest.split_once(' ').expect("a help").0);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (one, kind) = rest.split_once(' ').expect("a type");
            assert!(is_name(one) && !typed.contains(&one), "{line}");
            assert!(kind == "gauge" || kind == "counter" && one.ends_with("_total"), "{line}");
            typed.push(one);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let one = series.split('{').next().unwrap_or_default();
            assert_eq!(typed.last(), Some(&one), "a sample follows its type: {line}");
            assert!(samples.insert(series.to_owned()), "twice: {line}");
        }
    }
    assert_eq!(typed, helped);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_may_be_a_label() {
        let mut all = Exposition::new();
        all.metric("things", Kind::Gauge, "Things there are.");
        all.sample(&[("name", &"a\"b\\c\nd"), ("kind", &1)], 1.5);
        all.metric("seen_total", Kind::Counter, "Things that were seen.");
        all.sample(&[], 7);
        let text = all.into_text();
        check(&text);
        assert_eq!(
            text,
            "# HELP anabranch_things Things there are.\n# TYPE anabranch_things gauge\n\
             anabranch_things{name=\"a\\\"b\\\\c\\nd\",kind=\"1\"} 1.5\n\
             # HELP anabranch_seen_total Things that were seen.\n# TYPE anabranch_seen_total counter\n\
             anabranch_seen_total 7\n"
        );
    }
}
