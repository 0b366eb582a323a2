//! Numbers as text for Prometheus: its text exposition format, version 0.0.4. What they mean is the caller's.

use std::fmt::{Display, Write as _};

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text that grows. All samples of a metric follow its head.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    text: String,
    name: String,
}

impl Exposition {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A metric begins: its name, whose counter ends with `_total`, and what it is, in one line.
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

    /// A sample of the metric that began last. Values of labels may be any text.
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

    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process ends.
    Counter,
    /// It is what it is now.
    Gauge,
}

/// Checks the format's rules (Prometheus documentation, "Exposition formats"), as far as a text uses them,
/// for tests of all crates.
///
/// # Panics
/// If a rule is broken, or a name is not one of ours.
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
