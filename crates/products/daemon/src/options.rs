//! aria2's options: which of them mean something here, which have no effect, and which are refused.
//!
//! An option that changes what is fetched, where it goes or how it is verified is either obeyed or refused.
//! One that only changes how bytes are moved is accepted, checked and shown, and has no effect. A name that
//! is not in the table is ignored, as aria2 does with a name that it does not know.

mod rule;
mod table;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::job::Options;
pub use rule::{Fate, Kind, OptionError, OptionRule, Scope, size};
pub use table::OPTIONS;

/// Returns the option of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static OptionRule> {
    OPTIONS.binary_search_by(|known| known.name.cmp(name)).ok().map(|index| &OPTIONS[index])
}

/// Reads the options of a request. Numbers and booleans count as their texts, and lists as lines. Options
/// that `scope` excludes are ignored, as aria2 does.
///
/// # Errors
/// If an option is refused.
pub fn read(
    given: &serde_json::Map<String, Value>,
    scope: impl Fn(Scope) -> bool,
) -> Result<Options, OptionError> {
    let mut options = BTreeMap::new();
    for (name, value) in given {
        let Some(known) = named(name).filter(|known| scope(known.scope)) else { continue };
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(is_set) => is_set.to_string(),
            Value::Array(lines) if matches!(known.kind, Kind::Lines) => {
                let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
                lines.join("\n")
            }
            _ => return Err(OptionError::Value(name.clone(), String::new())),
        };
        options.insert(name.clone(), known.check(&value)?);
    }
    Ok(options)
}

/// Returns the value of an option: the one that was given, or else the default.
#[must_use]
pub fn value<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    let default = || named(name).and_then(|known| known.default);
    options.get(name).map(String::as_str).or_else(default).filter(|value| !value.is_empty())
}

/// Whether an option is set to `true`.
#[must_use]
pub fn is_true(options: &Options, name: &str) -> bool {
    value(options, name) == Some("true")
}

/// Returns all options of this scope as answers show them: the defaults, and what was given.
pub fn shown(options: &Options, scope: impl Fn(Scope) -> bool) -> BTreeMap<String, String> {
    let of_scope = OPTIONS.iter().filter(|known| scope(known.scope));
    let defaults = of_scope.filter_map(|known| Some((known.name.to_owned(), known.default?.to_owned())));
    let mut all: BTreeMap<String, String> = defaults.collect();
    all.extend(options.iter().map(|(name, value)| (name.clone(), value.clone())));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_job(given: Value) -> Result<Options, String> {
        let all = read(given.as_object().expect("an object"), |scope| scope != Scope::Daemon);
        all.map_err(|e| e.to_string())
    }

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_values() {
        assert!(OPTIONS.windows(2).all(|two| two[0].name < two[1].name));
        for known in OPTIONS {
            if let Some(default) = known.default {
                assert_eq!(known.check(default).as_deref(), Ok(default), "{}", known.name);
            }
        }
    }

    #[test]
    fn what_changes_the_download_is_obeyed_or_refused() {
        let given = json!({"out": "f", "max-download-limit": "100K", "header": ["A: b", "C: d"], "split": 4,
            "pause": true, "no-such-option": "x", "max-concurrent-downloads": "3", "dry-run": "false"});
        let read = read_job(given).expect("all are fine");
        assert_eq!(read["max-download-limit"], "102400");
        assert_eq!((read["header"].as_str(), read["pause"].as_str()), ("A: b\nC: d", "true"));
        assert_eq!(read.len(), 6, "{read:?}");
        for (name, value, why) in [
            ("dry-run", "true", "The option '--dry-run' is not supported here: "),
            ("load-cookies", "/etc/passwd", "--load-cookies"),
            ("parameterized-uri", "true", "--parameterized-uri"),
            ("split", "0", "We encountered a problem while processing the option '--split'."),
            ("pause", "maybe", "'--pause'"),
            ("checksum", "sha-256=zz", "'--checksum'."),
            ("checksum", "md5=d41d8cd98f00b204e9800998ecf8427e", "Only sha-256"),
            ("max-download-limit", "-1", "'--max-download-limit'"),
        ] {
            let refused = read_job(json!({name: value})).expect_err(name);
            assert!(refused.contains(why), "{refused}");
        }
        assert!(read_job(json!({"out": {}})).is_err());
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("0", 0), ("7", 7), ("1K", 1_024), ("2m", 2 << 20)] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "1G", "-1", "+1", "1.5K", "99999999999999999999", "9223372036854775807K", "1 K"]
        {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
