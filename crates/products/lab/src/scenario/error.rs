//! Defines the error of a scenario: where it is, why it is one, and what to write instead.

use std::fmt;

/// The reason why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Name of the file as the caller gave it; empty if there is none.
    pub file: String,
    /// Line in the file, from 1, if known.
    pub line: Option<usize>,
    /// Dotted key that is wrong: `flow.mp.paths.0.via`. Empty if the error concerns no key.
    pub key: String,
    /// A sentence that names the key, the problem and the remedy.
    pub what: String,
}

impl ScenarioError {
    /// Creates an error at `key`, with the key before the text.
    pub(crate) fn at(key: impl Into<String>, what: impl fmt::Display) -> Self {
        let key = key.into();
        let what = format!("{key}: {what}");
        Self { file: String::new(), line: None, key, what }
    }
    /// Creates an error at `key` with a sentence that names the key itself.
    pub(crate) fn of(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { file: String::new(), line: None, key: key.into(), what: what.into() }
    }
    /// Adds the file's name.
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.file);
        self
    }
    /// Adds the name of the case.
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
