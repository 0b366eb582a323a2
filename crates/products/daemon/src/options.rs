//! aria2's options: which of them mean something here, which have no effect, and which are refused.
//!
//! An option that changes what is fetched, where it goes or how it is verified is either obeyed or refused.
//! One that only changes how bytes are moved is accepted, checked and shown, and has no effect. A name that
//! is not in the table is ignored, as aria2 does with a name that it does not know.

mod table;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::job::Options;
pub use table::OPTIONS;

/// One of aria2's options.
#[derive(Clone, Copy, Debug)]
pub struct OptionRule {
    /// The name, without dashes.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The default; `None` if answers leave the option out until it is given.
    pub default: Option<&'static str>,
    /// Whose option it is.
    pub scope: Scope,
    /// What becomes of it.
    pub fate: Fate,
}

/// The values that an option takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A number in this range.
    Int(u64, u64),
    /// A number of bytes, with `K` or `M` for 1,024 and 1,048,576.
    Size,
    /// Any text.
    Text,
    /// Any number of texts, each on a line of its own.
    Lines,
    /// A hash: `sha-256=HEX`.
    Checksum,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A download has it. As a global option, it is the default of downloads that are added later.
    Job,
    /// Only a download has it.
    JobOnly,
    /// Only the daemon has it.
    Daemon,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is obeyed.
    Obeyed,
    /// It is accepted, and has no effect.
    Idle,
    /// It is refused unless it has its default or is empty; the text says what to do instead.
    Refused(&'static str),
}

/// Why options are refused, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// A value that the option does not take, in aria2's words.
    #[error("We encountered a problem while processing the option '--{0}'.{1}")]
    Value(String, String),
    /// An option that would change what is fetched.
    #[error("The option '--{0}' is not supported here: {1}.")]
    Refused(&'static str, &'static str),
}

impl OptionRule {
    /// Returns the option of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        OPTIONS.binary_search_by(|known| known.name.cmp(name)).ok().map(|index| &OPTIONS[index])
    }

    /// Checks a value, and returns it as answers show it: sizes without a unit.
    ///
    /// # Errors
    /// If the option does not take it.
    pub fn check(&self, value: &str) -> Result<String, OptionError> {
        let wrong = |why: &str| Err(OptionError::Value(self.name.to_owned(), why.to_owned()));
        match self.kind {
            Kind::Bool if !matches!(value, "true" | "false") => return wrong(""),
            Kind::Int(min, max) if !value.parse().is_ok_and(|number| (min..=max).contains(&number)) => {
                return wrong("");
            }
            Kind::Size => match size(value) {
                Some(bytes) => return Ok(bytes.to_string()),
                None => return wrong(""),
            },
            Kind::Word(words) if !words.contains(&value) => return wrong(""),
            Kind::Checksum => {
                let is_weak = ["md5=", "sha-1=", "sha-224=", "adler32="].iter().any(|k| value.starts_with(k));
                if is_weak {
                    return wrong(" Only sha-256, sha-384 and sha-512 are checked here.");
                }
                if value.parse::<anabranch::Checksum>().is_err() {
                    return wrong("");
                }
            }
            Kind::Text | Kind::Lines if value.contains('\0') => return wrong(""),
            _ => {}
        }
        match self.fate {
            Fate::Refused(instead) if !value.is_empty() && Some(value) != self.default => {
                Err(OptionError::Refused(self.name, instead))
            }
            _ => Ok(value.to_owned()),
        }
    }
}

/// Reads a number of bytes: digits, and perhaps `K` or `M`.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 1 << 10),
        b'M' | b'm' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // aria2's numbers are signed.
    let bytes = digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit)?;
    i64::try_from(bytes).is_ok().then_some(bytes)
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
        let Some(known) = OptionRule::named(name).filter(|known| scope(known.scope)) else { continue };
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
    let default = || OptionRule::named(name).and_then(|known| known.default);
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
