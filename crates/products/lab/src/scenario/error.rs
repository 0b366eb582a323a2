//! What is wrong with a scenario: where, what, and what to write instead.

use std::fmt;

pub use anabranch_net::nearest;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, as it was named; empty if there is none.
    pub file: String,
    /// The line in it, from 1, if it is known.
    pub line: Option<usize>,
    /// The key it is about, dotted: `flow.mp.paths.0.via`. Empty if it is about none.
    pub key: String,
    /// What is wrong and what to do, as a sentence that names the key.
    pub what: String,
}

impl ScenarioError {
    /// About `key`.
    pub(crate) fn at(key: impl Into<String>, what: impl fmt::Display) -> Self {
        let key = key.into();
        let what = format!("{key}: {what}");
        Self { file: String::new(), line: None, key, what }
    }
    /// A sentence of its own that names `key` itself.
    pub(crate) fn of(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { file: String::new(), line: None, key: key.into(), what: what.into() }
    }
    /// In this file.
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.file);
        self
    }
    /// In this case.
    pub(crate) fn in_case(mut self, case: &str) -> Self {
        self.what = format!("case `{case}`: {}", self.what);
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => {}
            (file, None) => write!(f, "{file}: ")?,
            (file, Some(line)) => write!(f, "{file}:{line}: ")?,
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ScenarioError {}

/// At most so many names are listed where none is near.
const LISTED_MAX: usize = 24;

/// ": did you mean `x`?" or the list of what there is.
pub(crate) fn hint<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(near) = nearest(word, names.iter().copied()) {
        return format!(": did you mean `{near}`?");
    }
    match names.len() {
        0 => "; there are none".into(),
        n if n > LISTED_MAX => format!("; there are {}, … ({n})", names[..LISTED_MAX].join(", ")),
        _ => format!("; there are {}", names.join(", ")),
    }
}

/// That there is no `what` of this name, and which was probably meant.
pub(crate) fn missing<'a>(what: &str, name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    format!("there is no {what} `{name}`{}", hint(name, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let keys = ["rate", "delay", "jitter", "queue", "mark_above", "reorder_by"];
        assert_eq!(hint("rtae", keys), ": did you mean `rate`?");
        assert_eq!(hint("zz", ["a", "b"]), "; there are a, b");
        assert_eq!(hint("zz", []), "; there are none");
    }
}
