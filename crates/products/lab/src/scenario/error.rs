//! What is wrong with a scenario: where, what, and what to write instead.

use std::fmt;

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
